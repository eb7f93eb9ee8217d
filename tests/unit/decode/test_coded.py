"""Dictionary-encoded columns decoded from bare pages: what pyarrow's own reading of the file gives, whatever the type."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from accel.decode import apart, coded, columns, texts
from accel.decode.arrow import projected_schema
from accel.decode.columns import decode_columns
from accel.decode.indexed import Values
from accel.errors import AccelError, ParquetFormatError
from accel.format.model import Codec
from accel.format.page_header import parse_page_header
from accel.format.thrift import I32, STRUCT, read_struct, write_struct
from accel.planning.selection import RowSelection
from tests.unit.decode.selected import (
    assert_same,
    chosen_pages,
    decode,
    open_metadata,
    random_rows,
    truth,
)
from tests.unit.decode.typed import FLAT, column

Seen = list[pa.ChunkedArray | None]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """What was read so, or tried; any number of rows is."""
    found: Seen = []
    read = coded.read_coded

    def recorded(*given: Any, **named: Any) -> pa.ChunkedArray | None:
        found.append(read(*given, **named))
        return found[-1]

    monkeypatch.setattr(coded, "read_coded", recorded)
    monkeypatch.setattr(apart, "MOST_PICKED", 0)
    monkeypatch.setattr(apart, "_LEAST_PAGES", 1)
    monkeypatch.setattr(apart, "_WITH_CONTEXTS", frozenset(Codec))
    monkeypatch.setattr(texts, "_LEAST_VALUES", 1)
    monkeypatch.setattr(texts, "_LEAST_TUPLED", 1)
    monkeypatch.setattr(texts, "_LEAST_USES", 0)
    return found


def _write(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        **{"write_page_index": True, "max_rows_per_page": 64, "write_batch_size": 64, **options},
    )
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("name", FLAT)
def test_every_type_comes_as_pyarrow_reads_it(name: str, seed: int, seen: Seen) -> None:
    rng = random.Random(f"{name} {seed}")
    rows = rng.choice([1, 65, 700])
    few = column(*FLAT[name], rng.choice([1, 2, 9, 60]), rng, nulls=0.0)
    nulls = rng.choice([0.0, 0.0, 0.3, 1.0])
    start = rng.choice([0, rows // 2])
    none = pa.nulls(1, few.type)
    array = pa.concat_arrays(
        [
            none if row >= start and rng.random() < nulls else few.slice(rng.randrange(len(few)), 1)
            for row in range(rows)
        ]
    )
    field = pa.field("a", array.type, nullable=bool(array.null_count) or rng.random() < 0.5)
    data = _write(
        pa.Table.from_arrays([array], schema=pa.schema([field])),
        compression=rng.choice(["none", "snappy", "gzip", "brotli", "zstd", "lz4"]),
        data_page_version=rng.choice(["1.0", "2.0"]),
        write_page_checksum=rng.random() < 0.5,
        store_schema=rng.random() < 0.8,
        store_decimal_as_integer=rng.random() < 0.5,
        dictionary_pagesize_limit=rng.choice([100, 1 << 20]),
    )
    for _ in range(4):
        chosen, whole = random_rows(rng, rows), rng.random() < 0.3
        expected = truth(data, chosen)
        for values in Values:
            assert_same(decode(data, chosen, whole=whole, values=values), expected)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("nullable", [True, False])
@pytest.mark.parametrize(
    "make",
    [
        lambda places: places,
        lambda places: places.cast(pa.int64()),
        lambda places: places.cast(pa.int8()),
        lambda places: places.cast(pa.float32()),
        lambda places: places.cast(pa.float64()),
        lambda places: places.cast(pa.date32()),
        lambda places: places.cast(pa.int64()).cast(pa.timestamp("us", "UTC")),
        lambda places: places.cast(pa.decimal128(12, 2)),
        lambda places: places.cast(pa.string()),
        lambda places: places.cast(pa.string()).cast(pa.large_binary()),
    ],
    ids=["int32", "int64", "int8", "float", "double", "date", "timestamp", "decimal", "text", "large binary"],
)
def test_these_are_read_so(
    make: Callable[[pa.Array], pa.Array], nullable: bool, version: str, seen: Seen
) -> None:
    places = pa.array([None if nullable and i % 7 == 3 else i % 11 for i in range(600)], pa.int32())
    data = _write(pa.table({"a": make(places)}), data_page_version=version, compression="zstd")
    rows = RowSelection.all(600)
    assert_same(decode(data, rows), truth(data, rows))
    assert len(seen) == 1 and seen[0] is not None and len(seen[0]) == 600


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64(), pa.string(), pa.decimal128(30, 2)], ids=str)
@pytest.mark.parametrize("nullable", [True, False])
def test_an_index_that_names_no_entry_is_refused(kind: pa.DataType, nullable: bool, seen: Seen) -> None:
    numbers = pa.array([0, 1] + [2] * 62, pa.int64())
    field = pa.field("a", kind, nullable=nullable)
    data = _write(pa.Table.from_arrays([numbers.cast(kind)], schema=pa.schema([field])), compression="none")
    meta = open_metadata(data)
    rows = RowSelection.all(64)
    chunk = chosen_pages(data, meta, 0, 0, rows)
    (page,) = chunk.buffers
    broken = bytes(page)
    # The last run: 62 times the third entry. There is no fourth.
    assert broken[-1] == 2
    with pytest.raises(ParquetFormatError):
        _decode_chunk(data, replace(chunk, buffers=(broken[:-1] + b"\x03",)), rows)
    assert seen == []


def _decode_chunk(data: bytes, chunk: Any, rows: RowSelection) -> list[pa.Array]:
    meta = open_metadata(data)
    return decode_columns(
        meta.schema,
        meta.key_value,
        chunks={0: chunk},
        rows=rows,
        arrow_schema=projected_schema(meta.schema, meta.key_value, leaves=[0]),
        leaves=[0],
        path="file.parquet",
        row_group=0,
    )


def test_the_checksum_of_a_page_is_looked_at(seen: Seen) -> None:
    data = _write(pa.table({"a": [f"text {i % 5}" for i in range(300)]}), write_page_checksum=True)
    meta = open_metadata(data)
    rows = RowSelection.all(300)
    chunk = chosen_pages(data, meta, 0, 0, rows)
    broken = bytearray(chunk.buffers[0])
    broken[-1] ^= 1
    with pytest.raises(ParquetFormatError, match="CRC"):
        _decode_chunk(data, replace(chunk, buffers=(bytes(broken),)), rows)
    assert len(_decode_chunk(data, chunk, rows)[0]) == 300


def test_levels_are_believed_rather_than_the_count_of_nulls(seen: Seen) -> None:
    array = pa.array([None if i % 3 == 0 else i % 4 for i in range(60)], pa.int32())
    data = _write(pa.table({"a": array}), data_page_version="2.0", compression="none")
    meta = open_metadata(data)
    rows = RowSelection.all(60)
    chunk = chosen_pages(data, meta, 0, 0, rows)
    (page,) = chunk.buffers
    header = parse_page_header(page)
    assert header.num_nulls == 20
    fields, _ = read_struct(page)
    own = dict(fields[8][1])
    own[2] = (I32, 0)
    fields[8] = (STRUCT, own)
    lying = write_struct(fields) + bytes(memoryview(page)[header.header_length :])
    (found,) = _decode_chunk(data, replace(chunk, buffers=(lying,)), rows)
    assert found.to_pylist() == array.to_pylist()


@pytest.mark.parametrize("seed", range(30))
def test_damaged_pages_are_refused_or_give_sound_arrays(seed: int, seen: Seen) -> None:
    rng = random.Random(seed)
    nullable = rng.random() < 0.5
    numbers = pa.array(
        [None if nullable and i % 9 == 1 else rng.randrange(9) for i in range(400)], pa.int32()
    )
    array = numbers if rng.random() < 0.5 else numbers.cast(pa.string())
    data = _write(
        pa.table({"a": array}),
        compression=rng.choice(["none", "snappy", "zstd", "gzip"]),
        data_page_version=rng.choice(["1.0", "2.0"]),
    )
    rows = RowSelection.all(400)
    chunk = chosen_pages(data, open_metadata(data), 0, 0, rows)
    (buffer,) = chunk.buffers
    for _ in range(60):
        broken = bytearray(buffer)
        for _ in range(rng.choice([1, 1, 3])):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        try:
            (found,) = _decode_chunk(data, replace(chunk, buffers=(bytes(broken),)), rows)
        except AccelError as error:
            assert error.path == "file.parquet" and error.place is not None
        else:
            found.validate(full=True)
            assert len(found) == 400


def test_without_this_way_the_rows_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    rows = RowSelection.all(50_000)
    table = pa.table(
        {
            "day": pa.array(rng.integers(0, 900, 50_000).astype(np.int32)).cast(pa.date32()),
            "flag": pa.array(["AFR"[i] for i in rng.integers(0, 3, 50_000)]),
            "mode": pa.array([["air", "ship", "by rail"][i] for i in rng.integers(0, 3, 50_000)]),
        }
    )
    data = _write(table, max_rows_per_page=5000, write_batch_size=1000, compression="zstd")
    found = decode(data, rows)
    monkeypatch.setattr(columns, "read_apart", lambda *given, **named: None)
    assert_same(found, decode(data, rows))
