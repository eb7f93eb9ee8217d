"""Tables written with any of pyarrow's options: a scan gives what pyarrow reads, filtered row by row in plain
Python.

Encodings by column (deltas, byte streams split, RLE), codecs, both kinds of page, INT96, dictionaries that
run full, bloom filters, statistics of some columns or none, page indexes or none; nulls anywhere.
"""

from __future__ import annotations

import io
import random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import accel
from accel.predicate.where import to_expr
from accel.testing import DictStore
from tests.oracle import rowwise
from tests.support.arrow import as_text

_INTEGERS = {pa.int8(): 8, pa.uint8(): 8, pa.int16(): 16, pa.uint32(): 32, pa.int64(): 64, pa.uint64(): 64}
_TICKS = [
    pa.date32(),
    pa.time32("ms"),
    pa.time64("us"),
    pa.timestamp("ms"),
    pa.timestamp("us", "UTC"),
    pa.timestamp("ns"),
]
_KINDS = [
    *_INTEGERS,
    *_TICKS,
    *(pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.binary(), pa.binary(5)),
    *(pa.decimal128(5, 2), pa.decimal128(18, 6), pa.decimal128(30, 3), pa.decimal64(15, 4)),
]
_DELTAS = ["PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"]
_TEXTS = ["", "a", "A", "aé", "b", "\uffff", "\U00010000", "x" * 70, "id-0001", "id-0002"]


def _pool(rng: random.Random, kind: pa.DataType) -> list[Any]:
    """A few values; of moments their ticks."""
    if kind in _INTEGERS:
        signed = pa.types.is_signed_integer(kind)
        low = -(1 << (_INTEGERS[kind] - 1)) if signed else 0
        high = low + (1 << _INTEGERS[kind]) - 1
        return [low, high, 0, 1, 2, *(rng.randint(low, high) for _ in range(4))]
    if kind in _TICKS:
        return [0, 1, 999, 1000, 86_399, *(rng.randrange(80_000) for _ in range(8))]
    if pa.types.is_floating(kind):
        return [0.0, -0.0, 1.5, -1.5, float("inf"), *([float("nan")] if rng.random() < 0.5 else [])]
    if pa.types.is_decimal(kind):
        return [rng.randrange(-(10**5) + 1, 10**5) for _ in range(8)]
    if pa.types.is_boolean(kind):
        return [True, False]
    if pa.types.is_fixed_size_binary(kind):
        return [bytes([rng.choice([0, 127, 128, 255])]) * 5 for _ in range(5)]
    return [text.encode() for text in _TEXTS] if pa.types.is_binary(kind) else _TEXTS


def _column(rng: random.Random, kind: pa.DataType, rows: int) -> pa.Array:
    pool = _pool(rng, kind)
    drawn = [rng.choice(pool) for _ in range(rows)]
    if rng.random() < 0.4 and not pa.types.is_floating(kind):
        drawn.sort()
    share = rng.choice([0, 0, 0.1, 0.6, 1.0])
    values = [None if rng.random() < share else value for value in drawn]
    if pa.types.is_decimal(kind):
        raw = b"".join((value or 0).to_bytes(16, "little", signed=True) for value in values)
        whole = pa.Array.from_buffers(pa.decimal128(38, kind.scale), rows, [None, pa.py_buffer(raw)])
        nothing = pa.nulls(rows, whole.type)
        return pc.if_else(pa.array([v is not None for v in values]), whole, nothing).cast(kind)
    if kind in _TICKS:
        return pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)
    return pa.array(values, kind)


def _encodings(rng: random.Random, schema: pa.Schema) -> dict[str, str]:
    out = {}
    for field in schema:
        kind, types = field.type, pa.types
        if kind in _INTEGERS or kind in _TICKS:
            choices = _DELTAS
        elif types.is_boolean(kind):
            choices = ["PLAIN", "RLE"]
        elif types.is_string(kind) or types.is_binary(kind):
            choices = ["PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"]
        elif types.is_decimal(kind):
            choices = ["PLAIN"]
        else:
            choices = ["PLAIN", "BYTE_STREAM_SPLIT"]
        out[field.name] = rng.choice(choices)
    return out


def _write(rng: random.Random, table: pa.Table) -> bytes:
    names = table.schema.names
    options: dict[str, Any] = {
        "compression": rng.choice(["none", "snappy", "zstd", "lz4", "gzip", "brotli"]),
        "data_page_version": rng.choice(["1.0", "2.0"]),
        "write_page_index": rng.random() < 0.7,
        "write_statistics": rng.choice([True, True, False, names[:1]]),
        "store_schema": rng.random() < 0.8,
        "write_page_checksum": rng.random() < 0.3,
        "dictionary_pagesize_limit": rng.choice([1 << 20, 40]),
        "max_rows_per_page": rng.choice([7, 64, 20_000]),
        "write_batch_size": 7,
        "row_group_size": rng.choice([60, 137, 1000]),
        "use_deprecated_int96_timestamps": rng.random() < 0.2,
        "use_dictionary": rng.random() < 0.5,
    }
    if not options["use_dictionary"] and not options["use_deprecated_int96_timestamps"]:
        options["column_encoding"] = _encodings(rng, table.schema)
    if rng.random() < 0.3:
        options["bloom_filter_options"] = {
            field.name: {"ndv": 20, "fpp": 0.1}
            for field in table.schema
            if not pa.types.is_boolean(field.type)
        }
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def _literal(rng: random.Random, column: pa.ChunkedArray) -> Any:
    """A value of the column, or near one."""
    scalar = column[rng.randrange(len(column))]
    kind = column.type
    if not scalar.is_valid:
        return None
    if pa.types.is_temporal(kind):
        return scalar
    value = scalar.as_py()
    if kind in _INTEGERS:
        return value + rng.choice([0, 0, 1, -1])
    return value


def _atom(rng: random.Random, table: pa.Table) -> Any:
    name = rng.choice(table.schema.names)
    column, value = accel.col(name), _literal(rng, table.column(name))
    if isinstance(value, pa.Scalar):
        return column.isin(pa.array([value], value.type))
    if value is None or rng.random() < 0.2:
        return column.is_null() if rng.random() < 0.5 else column.is_not_null()
    kind = table.schema.field(name).type
    if rng.random() < 0.3 and not pa.types.is_decimal(kind):
        return column.isin([value, _pool(rng, kind)[0], None][: rng.choice([1, 3])])
    return rng.choice([column == value, column < value, column >= value, column != value])


def _where(rng: random.Random, table: pa.Table, depth: int) -> Any:
    if not depth or rng.random() < 0.4:
        return _atom(rng, table)
    if rng.random() < 0.2:
        return ~_where(rng, table, depth - 1)
    left, right = _where(rng, table, depth - 1), _where(rng, table, depth - 1)
    return left & right if rng.random() < 0.5 else left | right


@pytest.mark.parametrize("seed", range(40))
def test_a_scan_gives_what_pyarrow_reads(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Small as these files are, their page indexes are met, but for some.
    monkeypatch.setattr("accel.reader.reader.WHOLE_BYTES", 0 if seed % 5 else 8192)
    rng = random.Random(seed)
    rows = rng.choice([1, 50, 300])
    kinds = [rng.choice(_KINDS) for _ in range(4)]
    columns = [_column(rng, kind, rows) for kind in kinds]
    data = _write(rng, pa.Table.from_arrays(columns, names=list("abcd")))
    tables = {
        unit: pq.read_table(
            io.BytesIO(data), page_checksum_verification=True, coerce_int96_timestamp_unit=unit
        )
        for unit in (accel.Int96Unit.NS, accel.Int96Unit.US)
    }
    store, cache = DictStore({"f": data}), rng.choice([accel.Cache(), None])
    for _ in range(4):
        unit = rng.choice(list(tables))
        whole = tables[unit]
        where = _where(rng, whole, 2)
        names = rng.sample(list("abcd"), rng.randrange(1, 5))
        options = accel.Options(
            phases=rng.choice(["auto", "one", "two"]),
            tail_hint=rng.choice([None, 8]),
            piece_bytes=rng.choice([1, 1000, 1 << 20]),
            max_gap_bytes=0,
            probe_min_bytes=rng.choice([None, 1]),
            int96_unit=unit,
        )
        scan = accel.scan("f", where, columns=names, store=store, cache=cache, options=options)
        expr = to_expr(where)
        assert expr is not None
        kept = [row for row, answer in enumerate(rowwise.evaluate(expr, whole)) if answer is True]
        expected = whole.select(names).take(pa.array(kept, pa.int64()))
        assert as_text(scan.to_table().cast(_plain(whole, names))) == as_text(
            expected.cast(_plain(whole, names))
        )
        assert scan.count_rows() == len(kept)


def _plain(table: pa.Table, names: list[str]) -> pa.Schema:
    """With moments as their ticks, of which Python has some that it cannot tell."""
    fields = []
    for name in names:
        kind = table.schema.field(name).type
        if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
            kind = pa.int64()
        fields.append(pa.field(name, kind))
    return pa.schema(fields)
