"""Values taken out of PLAIN pages as they lie there: what comes out is what pyarrow's own reading gives.

Random columns of every type that has that way, beside texts of one length and of several: nulls, required and
optional, every codec, both kinds of page, dictionaries that run full midway, checksums, whole chunks and
chosen pages; rows by the piece, one by one, or all of them.
"""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from accel.decode import columns, direct_decoders
from accel.decode.dictionary_arrays import Values
from tests.unit.decode.selected import assert_same, decode, open_metadata, random_rows, truth

_CODECS = ["none", "snappy", "gzip", "brotli", "zstd", "lz4"]
_WIDTHS = {
    pa.float16(): 2,
    pa.float32(): 4,
    pa.float64(): 8,
    pa.int8(): 1,
    pa.int16(): 2,
    pa.int32(): 4,
    pa.int64(): 8,
    pa.uint8(): 1,
    pa.uint16(): 2,
    pa.uint32(): 4,
    pa.uint64(): 8,
    pa.date32(): 4,
    pa.time32("ms"): 4,
    pa.time64("us"): 8,
    pa.time64("ns"): 8,
    pa.timestamp("ms"): 8,
    pa.timestamp("us", "Asia/Tokyo"): 8,
    pa.timestamp("ns"): 8,
    pa.timestamp("s"): 8,
    pa.duration("s"): 8,
    pa.duration("ns"): 8,
    pa.binary(1): 1,
    pa.binary(16): 16,
}
_DAY = {pa.time32("ms"): 86_400_000, pa.time64("us"): 86_400_000_000, pa.time64("ns"): 86_400_000_000_000}
_TEXTS = [pa.string(), pa.binary(), pa.large_string(), pa.large_binary(), pa.string_view()]
_DECIMALS = [pa.decimal128(precision, 2) for precision in (4, 9, 10, 18, 19, 38)]


def _plain(rng: random.Random, rows: int, kind: pa.DataType) -> pa.Array:
    width = _WIDTHS[kind]
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        # So that Python can tell the moment.
        data = b"".join(
            rng.randrange(-(10**4), 10**4).to_bytes(width, "little", signed=True) for _ in range(rows)
        )
    elif kind in _DAY:
        data = b"".join(rng.randrange(_DAY[kind]).to_bytes(width, "little") for _ in range(rows))
    else:
        few = [rng.randbytes(width) for _ in range(rng.choice([1, 4, 100, 5000]))]
        data = b"".join(rng.choice(few) for _ in range(rows))
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(data)])


def _text(rng: random.Random, rows: int, kind: pa.DataType) -> pa.Array:
    length = rng.choice([0, 1, 2, 7, 8, 25, 36])
    few = [str(rng.randrange(10**6)).rjust(length, "x")[:length] for _ in range(rng.choice([1, 9, 1000]))]
    texts = [rng.choice(few) for _ in range(rows)]
    other = rng.choice(["all", "all", "some", "later"])
    for row in range(rows):
        if (other == "some" and rng.random() < 0.02) or (other == "later" and row > rows // 2):
            texts[row] += "é" * rng.randrange(1, 4) if other == "some" else "yz"
    return pa.array(texts, pa.string()).cast(kind) if kind != pa.string_view() else pa.array(texts, kind)


def _decimal(rng: random.Random, rows: int, kind: pa.DataType) -> pa.Array:
    top = 10**kind.precision - 1
    few = [0, -1, top, -top]
    data = b"".join(
        rng.choice([*few, rng.randint(-top, top)]).to_bytes(16, "little", signed=True) for _ in range(rows)
    )
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(data)])


def _column(rng: random.Random, rows: int) -> pa.Array:
    make, kinds = rng.choice(
        [(_plain, [*_WIDTHS]), (_plain, [*_WIDTHS]), (_text, _TEXTS), (_decimal, _DECIMALS)]
    )
    kind = rng.choice(kinds)
    array = make(rng, rows, kind)
    share = rng.choice([0.0, 0.0, 0.01, 0.3, 1.0])
    if not share:
        return array
    valid = pa.array([row < rows // 3 or rng.random() >= share for row in range(rows)])
    if pa.types.is_string_view(kind):
        return pc.if_else(valid, array.cast(pa.string()), pa.nulls(rows, pa.string())).cast(kind)
    return pc.if_else(valid, array, pa.nulls(rows, kind))


def _file(rng: random.Random, rows: int) -> bytes:
    arrays = [_column(rng, rows) for _ in range(4)]
    fields = [
        pa.field(name, array.type, nullable=bool(array.null_count) or rng.random() < 0.5)
        for name, array in zip("abcd", arrays, strict=True)
    ]
    options: dict[str, Any] = {
        "compression": rng.choice(_CODECS),
        "data_page_version": rng.choice(["1.0", "2.0"]),
        "use_dictionary": rng.random() < 0.4,
        "dictionary_pagesize_limit": rng.choice([60, 500, 1 << 20]),
        "write_page_index": rng.random() < 0.8,
        "write_page_checksum": rng.random() < 0.5,
        "store_schema": rng.random() < 0.8,
        "store_decimal_as_integer": rng.random() < 0.5,
        "max_rows_per_page": rng.choice([7, 40, 1000]),
        "write_batch_size": rng.choice([7, 40]),
    }
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_arrays(arrays, schema=pa.schema(fields)), sink, **options)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("seed", range(120))
def test_plain_pages_give_what_pyarrow_gives(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    rows = rng.choice([1, 9, 60, 400, 2500])
    data = _file(rng, rows)
    assert len(open_metadata(data).group_rows) == 1
    for _ in range(5):
        chosen, whole = random_rows(rng, rows), rng.random() < 0.3
        expected = truth(data, chosen)
        for values in Values:
            assert_same(decode(data, chosen, whole=whole, values=values), expected)
        with monkeypatch.context() as slow:
            slow.setattr(columns, "read_directly", lambda *given, **named: None)
            assert_same(decode(data, chosen, whole=whole), expected)


def test_every_type_takes_that_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them, as written by pyarrow without a dictionary and nulls, needs no reader of pyarrow."""
    rng = random.Random(1)
    arrays = [_plain(rng, 100, kind) for kind in _WIDTHS]
    arrays += [_decimal(rng, 100, kind) for kind in _DECIMALS]
    arrays += [pa.array([f"id-{row:04}" for row in range(100)]).cast(kind) for kind in _TEXTS[:4]]
    table = pa.Table.from_arrays(arrays, [f"c{number}" for number in range(len(arrays))])
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, use_dictionary=False, store_decimal_as_integer=True, max_rows_per_page=30)
    data = sink.getvalue().to_pybytes()
    chosen = random_rows(rng, 100)
    expected = truth(data, chosen)
    decode(data, chosen)  # schemas are settled by pyarrow, once
    taken: list[object] = []
    read = direct_decoders.read_plain
    monkeypatch.setattr(
        direct_decoders, "read_plain", lambda *a, **k: taken.append(read(*a, **k)) or taken[-1]
    )
    monkeypatch.setattr(columns, "open_reader", None)
    assert_same(decode(data, chosen), expected)
    assert len(taken) == len(arrays)
    assert None not in taken
