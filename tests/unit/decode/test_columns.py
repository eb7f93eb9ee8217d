"""Selected rows of columns, from whole chunks and chosen pages, with pages without values among them."""

from __future__ import annotations

import decimal
import io
import itertools
import random
import subprocess
import sys
import zlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.decode.arrow import projected_schema
from accel.decode.chunks import ChunkPages
from accel.decode.columns import StoredRowGroup, cut_calls, decode_columns
from accel.decode.units import Unit
from accel.errors import MemoryLimitError, ParquetFormatError
from accel.format.model import Codec, PageType
from accel.format.page_header import walk_pages
from accel.format.thrift import I32, STRUCT, read_struct, write_struct
from accel.planning.selection import RowSelection
from accel.testing import DictStore
from tests.unit.decode.selected import (
    assert_same,
    chosen_pages,
    decode,
    offset_index,
    open_metadata,
    random_rows,
    truth,
    whole_chunk,
)
from tests.unit.decode.typed import FLAT, NESTED, column

_ROWS = 300
_CODECS = ["NONE", "SNAPPY", "GZIP", "BROTLI", "ZSTD", "LZ4", "LZ4_RAW"]
_LAYOUTS: dict[str, dict[str, Any]] = {
    "v1, pages by rows": {"data_page_version": "1.0", "max_rows_per_page": 37},
    "v2, pages by rows": {"data_page_version": "2.0", "max_rows_per_page": 41, "use_dictionary": False},
    "v1, pages by bytes": {"data_page_version": "1.0", "data_page_size": 200, "write_batch_size": 16},
    "v2, falls back to plain": {
        "data_page_version": "2.0",
        "data_page_size": 64,
        "write_batch_size": 3,
        "dictionary_pagesize_limit": 200,
        "write_page_checksum": True,
    },
    "no page index": {"write_page_index": False, "max_rows_per_page": 37},
}


def _write(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, **{"write_page_index": True, **options}) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def _seed(text: str) -> random.Random:
    return random.Random(zlib.crc32(text.encode()))


@pytest.mark.parametrize("nulls", [0.0, 0.3], ids=["full", "nulls"])
@pytest.mark.parametrize("name", [*FLAT, *NESTED])
def test_every_type_in_every_layout(name: str, nulls: float) -> None:
    kind, make = (FLAT | NESTED)[name]
    rng = _seed(f"{name} {nulls}")
    array = column(kind, make, _ROWS, rng, nulls=nulls)
    table = pa.Table.from_arrays([array], names=["c"])
    for number, (label, options) in enumerate(_LAYOUTS.items()):
        data = _write(table, compression=_CODECS[(len(name) + number) % len(_CODECS)], **options)
        for rows in (random_rows(rng, _ROWS), random_rows(rng, _ROWS)):
            print(label, rows)
            assert_same(decode(data, rows), truth(data, rows))


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", _CODECS)
def test_every_codec(codec: str, version: str) -> None:
    rng = _seed(codec + version)
    names = ["int64", "string", "bool", "decimal_fixed"]
    arrays = [column(*FLAT[name], 2_000, rng, nulls=0.1) for name in names]
    arrays.append(column(*NESTED["list_struct_list"], 2_000, rng, nulls=0.1))
    table = pa.Table.from_arrays(arrays, names=[*names, "nested"])
    data = _write(
        table, compression=codec, data_page_version=version, max_rows_per_page=150, write_page_checksum=True
    )
    for _ in range(3):
        rows = random_rows(rng, 2_000)
        assert_same(decode(data, rows), truth(data, rows))


_ENCODED = [
    ("int32", "DELTA_BINARY_PACKED"),
    ("int64", "DELTA_BINARY_PACKED"),
    ("int64", "BYTE_STREAM_SPLIT"),
    ("float64", "BYTE_STREAM_SPLIT"),
    ("float16", "BYTE_STREAM_SPLIT"),
    ("string", "DELTA_LENGTH_BYTE_ARRAY"),
    ("string", "DELTA_BYTE_ARRAY"),
    ("fixed", "DELTA_BYTE_ARRAY"),
    ("bool", "RLE"),
]


@pytest.mark.parametrize(("name", "encoding"), _ENCODED, ids=[f"{a} {b}" for a, b in _ENCODED])
def test_every_encoding(name: str, encoding: str) -> None:
    rng = _seed(name + encoding)
    table = pa.Table.from_arrays([column(*FLAT[name], _ROWS, rng, nulls=0.2)], names=["c"])
    for version in ("1.0", "2.0"):
        data = _write(
            table,
            use_dictionary=False,
            column_encoding={"c": encoding},
            data_page_version=version,
            max_rows_per_page=29,
        )
        for _ in range(3):
            rows = random_rows(rng, _ROWS)
            assert_same(decode(data, rows), truth(data, rows))


_WRITERS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "int96": (
        ["timestamp_ns", "timestamp_us", "timestamp_utc"],
        {"use_deprecated_int96_timestamps": True},
    ),
    "decimals as integers": (
        ["decimal_int32", "decimal_int64", "decimal_fixed"],
        {"store_decimal_as_integer": True},
    ),
    "no Arrow schema": (
        [n for n in FLAT if not n.startswith("duration")] + ["list_struct_list", "map_struct"],
        {"store_schema": False},
    ),
    "old format": (["int8", "uint32", "timestamp_ns", "timestamp_ms", "string"], {"version": "1.0"}),
    "lists of three levels named otherwise": (
        ["list_struct_list", "struct_deep"],
        {"use_compliant_nested_type": False},
    ),
}


@pytest.mark.parametrize("case", _WRITERS)
def test_what_writers_are_told(case: str) -> None:
    names, options = _WRITERS[case]
    rng = _seed(case)
    arrays = [column(*(FLAT | NESTED)[name], _ROWS, rng, nulls=0.2) for name in names]
    table = pa.Table.from_arrays(arrays, names=names)
    data = _write(table, max_rows_per_page=31, **options)
    for _ in range(3):
        rows = random_rows(rng, _ROWS)
        assert_same(decode(data, rows), truth(data, rows))


def test_columns_whose_pages_do_not_align() -> None:
    rng = _seed("misaligned")
    names = [*FLAT, *NESTED]
    arrays = [column(*(FLAT | NESTED)[n], 500, rng, nulls=0.2) for n in names]
    table = pa.Table.from_arrays(arrays, names=names)
    data = _write(table, data_page_size=700, write_batch_size=7, dictionary_pagesize_limit=900)
    meta = open_metadata(data)
    pages = {len(i.offset) for leaf in range(40) if (i := offset_index(data, meta, 0, leaf)) is not None}
    assert len(pages) > 5
    for _ in range(12):
        rows = random_rows(rng, 500)
        print(rows)
        assert_same(decode(data, rows), truth(data, rows))


def test_projections_have_pyarrows_meaning() -> None:
    rng = _seed("projections")
    names = ["int64", "struct_deep", "struct_types", "list_struct_list", "map_struct", "dictionary"]
    arrays = [column(*(FLAT | NESTED)[n], _ROWS, rng, nulls=0.2) for n in names]
    data = _write(pa.Table.from_arrays(arrays, names=names), data_page_size=300, write_batch_size=8)
    schema = open_metadata(data).schema
    paths = [".".join(leaf.path) for leaf in schema.leaves]
    for _ in range(25):
        leaves = sorted(rng.sample(range(len(paths)), rng.randrange(1, 6)))
        rows = random_rows(rng, _ROWS)
        print(leaves, rows)
        expected = truth(data, rows, columns=[paths[i] for i in leaves])
        shuffled = rng.sample(leaves, len(leaves))
        assert_same(decode(data, rows, leaves=shuffled), expected)


def test_each_row_alone_at_every_page_edge() -> None:
    table = pa.Table.from_arrays(
        [pa.array(range(100)), pa.array([[i] * (i % 3) for i in range(100)])], names=["i", "l"]
    )
    data = _write(table, max_rows_per_page=7)
    for row in range(100):
        found = decode(data, RowSelection.of([(row, row + 1)]))
        assert found.to_pylist() == [{"i": row, "l": [row] * (row % 3)}]


def test_no_rows_need_no_pages() -> None:
    names = [*FLAT, *NESTED]
    arrays = [pa.nulls(3, (FLAT | NESTED)[n][0]) for n in names]
    data = _write(pa.Table.from_arrays(arrays, names=names))
    meta = open_metadata(data)
    leaves = range(len(meta.schema.leaves))
    schema = projected_schema(meta.schema, meta.key_value, leaves=leaves)
    found = decode_columns(
        StoredRowGroup("f", 0, meta.schema, meta.key_value),
        {},
        rows=RowSelection.none(),
        arrow_schema=schema,
    )
    assert [len(array) for array in found] == [0] * len(names)
    assert [array.type for array in found] == schema.types


def test_later_row_groups() -> None:
    table = pa.Table.from_arrays(
        [pa.array(range(1_000)), pa.array([str(i) for i in range(1_000)])], names="is"
    )
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=300, write_page_index=True, max_rows_per_page=50)
    data = sink.getvalue().to_pybytes()
    rows = RowSelection.of([(10, 12), (99, 100)])
    assert_same(decode(data, rows, group=3), truth(data, rows, group=3))
    assert decode(data, rows, group=3)["i"].to_pylist() == [910, 911, 999]


def test_many_single_rows_of_views_share_their_text() -> None:
    values = [f"a text longer than twelve bytes, number {i}" if i % 7 else None for i in range(2_000)]
    table = pa.Table.from_arrays([pa.array(values, pa.string_view())], names=["v"])
    data = _write(table, max_rows_per_page=100)
    rows = RowSelection.of([(i, i + 1) for i in range(3, 2_000, 5)])
    assert decode(data, rows)["v"].to_pylist() == values[3::5]


def test_few_rows_do_not_hold_the_page() -> None:
    table = pa.Table.from_arrays([pa.array([str(i) * 10 for i in range(10_000)])], names=["s"])
    data = _write(table, use_dictionary=False)
    found = decode(data, RowSelection.of([(77, 79)]))
    assert found["s"].to_pylist() == ["77" * 10, "78" * 10]
    assert found.get_total_buffer_size() < 1_000


def test_decimals_stored_as_byte_arrays() -> None:
    # pyarrow writes none: write plain binary, and annotate it in the metadata that was parsed.
    values = [0, 1, -1, 255, -256, 10**30, -(10**30), 12345, None]
    raw = [None if v is None else v.to_bytes(v.bit_length() // 8 + 1, "big", signed=True) for v in values]
    data = _write(pa.Table.from_arrays([pa.array(raw, pa.binary())], names=["d"]), store_schema=False)
    meta = open_metadata(data)
    element = meta.schema.elements[1]
    struct, _ = read_struct(element.raw)
    struct |= {6: (I32, 5), 7: (I32, 4), 8: (I32, 38)}
    elements = (meta.schema.elements[0], replace(element, raw=write_struct(struct)))
    schema = replace(meta.schema, elements=elements)
    rows = RowSelection.of([(1, 4), (5, 9)])
    arrow_schema = projected_schema(schema, {}, leaves=[0])
    assert arrow_schema.types == [pa.decimal128(38, 4)]
    found = decode_columns(
        StoredRowGroup("f", 0, schema, {}),
        {0: chosen_pages(data, meta, 0, 0, rows)},
        rows=rows,
        arrow_schema=arrow_schema,
    )
    context = decimal.Context(prec=50)
    expected = [None if v is None else decimal.Decimal(v).scaleb(-4, context) for v in values]
    assert found[0].to_pylist() == expected[1:4] + expected[5:]


def test_a_dictionary_that_would_grow_beyond_the_limit() -> None:
    # 40 names of one value of 64 KiB: 2.6 MB out of a file of some hundred bytes.
    values = ["x" * 65_536 if i % 250 == 0 else "y" for i in range(10_000)]
    data = _write(pa.Table.from_arrays([pa.array(values)], names=["s"]), compression="zstd")
    rows = RowSelection.all(10_000)
    assert decode(data, rows, memory_limit=4_000_000)["s"].to_pylist() == values
    with pytest.raises(MemoryLimitError, match=r"^file\.parquet, row group 0, column s: .*2000000 bytes"):
        decode(data, rows, memory_limit=2_000_000)


def test_chunks_of_unequal_pages_are_kept_for_large_dictionaries() -> None:
    values = [f"{i % 400:04}" * 4 for i in range(4_000)]
    array = pa.array(values).dictionary_encode()
    data = _write(
        pa.Table.from_arrays([array], names=["d"]), dictionary_pagesize_limit=1_000, max_rows_per_page=100
    )
    rows = RowSelection.of([(0, 50), (1_000, 1_500), (3_999, 4_000)])
    found = decode(data, rows)
    assert_same(found, truth(data, rows))
    assert found.schema.types == [pa.dictionary(pa.int32(), pa.string())]


def test_a_whole_chunk_followed_by_padding() -> None:
    data = _write(pa.Table.from_arrays([pa.array(range(50))], names=["i"]), write_page_index=False)
    meta = open_metadata(data)
    chunk = whole_chunk(data, meta, 0, 0)
    padded = replace(chunk, buffers=(bytes(chunk.buffers[0]) + b"\xff" * 40,))
    schema = projected_schema(meta.schema, meta.key_value, leaves=[0])
    found = decode_columns(
        StoredRowGroup("f", 0, meta.schema, meta.key_value),
        {0: padded},
        rows=RowSelection.of([(48, 50)]),
        arrow_schema=schema,
    )
    assert found[0].to_pylist() == [48, 49]


def test_rows_that_are_on_no_page_are_the_callers_mistake() -> None:
    data = _write(pa.Table.from_arrays([pa.array(range(50))], names=["i"]), max_rows_per_page=10)
    meta = open_metadata(data)
    chunk = chosen_pages(data, meta, 0, 0, RowSelection.of([(10, 20)]))
    schema = projected_schema(meta.schema, meta.key_value, leaves=[0])
    assert np.array_equal(chunk.first_rows, [10])
    with pytest.raises(ValueError, match=r"rows RowSelection\(19\.\.21\) are not all on the pages"):
        decode_columns(
            StoredRowGroup("f", 0, meta.schema, meta.key_value),
            {0: chunk},
            rows=RowSelection.of([(19, 21)]),
            arrow_schema=schema,
        )


_FIRST_DECODE = """
import sys
import numpy as np
from accel.decode.arrow import projected_schema
from accel.decode.chunks import ChunkPages
from accel.decode.columns import StoredRowGroup, decode_columns
from accel.format.footer import parse_footer
from accel.planning.selection import RowSelection
data = open(sys.argv[1], "rb").read()
start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
meta = parse_footer(data[start:-8], file_size=len(data), footer_start=start)
c, leaves = meta.chunks, range(len(meta.schema.leaves))
chunks = {
    i: ChunkPages(
        leaf=i, codec=int(c.codec[0, i]), dictionary=None, buffers=(data[int(c.start[0, i]) : int(c.end[0, i])],),
        first_rows=np.zeros(1, np.int64), stop_rows=meta.group_rows[:1], num_values=int(c.num_values[0, i]), whole=True,
    )
    for i in leaves
}
schema = projected_schema(meta.schema, meta.key_value, leaves=leaves)
rows = RowSelection.of([(i, i + 1) for i in range(0, 100, 3)])
arrays = decode_columns(
    StoredRowGroup("f", 0, meta.schema, meta.key_value), chunks, rows=rows, arrow_schema=schema
)
heavy = {"pandas", "aiohttp", "pyarrow.acero", "pyarrow.dataset", "pyarrow.fs", "pyarrow.parquet"}
print([len(a) for a in arrays], sorted(heavy & set(sys.modules)))
"""


def test_a_first_decode_loads_nothing_heavy(tmp_path: Path) -> None:
    rng = _seed("fresh process")
    names = ["int64", "string", "dictionary", "list_struct_list", "map_struct"]
    arrays = [column(*(FLAT | NESTED)[n], 100, rng, nulls=0.2) for n in names]
    file = tmp_path / "file.parquet"
    file.write_bytes(_write(pa.Table.from_arrays(arrays, names=names)))
    command = [sys.executable, "-c", _FIRST_DECODE, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[34, 34, 34, 34, 34] []\n"


_MIB = 1 << 20


def _known(codec: Codec, sizes: list[int]) -> Any:
    return SimpleNamespace(
        chunks={leaf: SimpleNamespace(codec=codec) for leaf in range(len(sizes))},
        facts={leaf: SimpleNamespace(uncompressed=size) for leaf, size in enumerate(sizes)},
    )


@pytest.mark.parametrize(
    ("codec", "fields", "sizes", "calls"),
    [
        (Codec.ZSTD, [0, 1, 2], [9, 9, 9], [[0, 1, 2]]),
        (Codec.SNAPPY, [0, 1, 2], [1, 3, 4], [[0, 1, 2]]),
        (Codec.SNAPPY, [0, 1, 2], [1, 3, 5], [[0, 1], [2]]),
        (Codec.SNAPPY, [0, 1, 2], [40, 1, 1], [[0], [1, 2]]),
        # What holds siblings against each other sees all of a field.
        (Codec.SNAPPY, [0, 1, 1, 2], [5, 5, 5, 5], [[0], [1, 2], [3]]),
    ],
    ids=["other codec", "all at once", "two", "a large one", "a field of two"],
)
def test_units_are_shared_out(
    codec: Codec, fields: list[int], sizes: list[int], calls: list[list[int]]
) -> None:
    units = [Unit(field, (leaf,), 10, False) for leaf, field in enumerate(fields)]
    found = cut_calls(_known(codec, [size * _MIB for size in sizes]), units)
    assert [[unit.leaves[0] for unit in call] for call in found] == calls


_ROWS_OF_EMPTIES = 400
_NAMES = ["int64", "string", *NESTED]


def _empty_page(encoding: int) -> bytes:
    """A v1 data page of no values, with a body as writers give it one."""
    body = bytes(8)
    data = {1: (I32, 0), 2: (I32, encoding), 3: (I32, 3), 4: (I32, 3)}
    header = {1: (I32, 0), 2: (I32, len(body)), 3: (I32, len(body)), 5: (STRUCT, data)}
    return write_struct(header) + body


def _with_empty_pages(chunk: ChunkPages, rng: random.Random) -> ChunkPages:
    """The chunk with such pages before, between and after its own."""
    buffers, counts = [], []
    for buffer in chunk.buffers:
        table = walk_pages(buffer, max_pages=1 << 20, num_values=chunk.num_values if chunk.whole else None)
        pieces: list[bytes] = []
        pages = zip(
            table.start.tolist(),
            table.end.tolist(),
            table.type.tolist(),
            table.encoding.tolist(),
            strict=True,
        )
        for start, end, kind, encoding in pages:
            if kind != PageType.DICTIONARY_PAGE:
                counts.append(rng.choice([0, 0, 1, 2]))
                pieces += [_empty_page(encoding)] * counts[-1]
            pieces.append(bytes(memoryview(buffer)[start:end]))
        buffers.append(b"".join(pieces))
    if chunk.whole:
        return replace(chunk, buffers=tuple(buffers))
    before = np.array(counts)
    owns = np.repeat(np.arange(len(before)), before + 1)
    is_own = np.append(owns[1:] != owns[:-1], True)
    first = chunk.first_rows[owns]
    return replace(
        chunk,
        buffers=tuple(buffers),
        first_rows=first,
        stop_rows=np.where(is_own, chunk.stop_rows[owns], first),
    )


def _written(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, write_page_index=True, max_rows_per_page=37, **options)
    return sink.getvalue()


@pytest.mark.parametrize("whole", [True, False], ids=["whole chunks", "pages"])
@pytest.mark.parametrize("name", _NAMES)
def test_empty_pages_are_left_out(name: str, whole: bool) -> None:
    rng = random.Random(zlib.crc32(name.encode()))
    kind, make = (FLAT | NESTED)[name]
    table = pa.Table.from_arrays([column(kind, make, _ROWS_OF_EMPTIES, rng, nulls=0.2)], names=["c"])
    for codec, dictionary in itertools.product(("NONE", "ZSTD"), (True, False)):
        data = _written(table, compression=codec, use_dictionary=dictionary)
        meta = open_metadata(data)
        leaves = range(len(meta.schema.leaves))
        rows = random_rows(rng, _ROWS_OF_EMPTIES)
        found = decode_columns(
            StoredRowGroup("f", 0, meta.schema, meta.key_value),
            {
                leaf: _with_empty_pages(
                    whole_chunk(data, meta, 0, leaf) if whole else chosen_pages(data, meta, 0, leaf, rows),
                    rng,
                )
                for leaf in leaves
            },
            rows=rows,
            arrow_schema=projected_schema(meta.schema, meta.key_value, leaves=leaves),
        )
        assert_same(pa.Table.from_arrays(found, names=["c"]), truth(data, rows))


def test_of_empty_pages_alone_no_row_comes() -> None:
    data = _written(pa.table({"c": pa.array([[1]], pa.list_(pa.int32()))}), use_dictionary=False)
    meta = open_metadata(data)
    chunk = replace(whole_chunk(data, meta, 0, 0), buffers=(_empty_page(0) * 2,))
    with pytest.raises(ParquetFormatError, match="the pages hold 0 values for 1 rows"):
        decode_columns(
            StoredRowGroup("f", 0, meta.schema, meta.key_value),
            {0: chunk},
            rows=RowSelection.all(1),
            arrow_schema=projected_schema(meta.schema, meta.key_value, leaves=[0]),
        )


@pytest.mark.parametrize("codec", ["none", "snappy", "zstd"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("index", [True, False], ids=["page index", "none"])
def test_a_page_that_pyarrow_begins_too_soon(codec: str, version: str, index: bool) -> None:
    """A small limit has it end a page in the middle of a first row, of which that page is then to have
    none."""
    sink = io.BytesIO()
    table = pa.table({"c": pa.array([[1, 0]], pa.list_(pa.int32())), "n": [7]})
    pq.write_table(
        table, sink, data_page_size=1, compression=codec, data_page_version=version, write_page_index=index
    )
    store = DictStore({"f": sink.getvalue()})
    for where in (None, "n = 7", "c IS NOT NULL"):
        assert accel.scan("f", where, store=store, cache=None).to_table() == table
