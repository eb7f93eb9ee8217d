from __future__ import annotations

import datetime
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from accel.format.model import ColumnIndex, OffsetIndex, SchemaElement
from accel.format.page_index import parse_column_index, parse_offset_index
from accel.writing.page_indexes import (
    BoundsBuilder,
    ChunkPageList,
    bounds_builder,
    encode_offset_index,
    list_pages,
)
from tests.unit.writing.files import as_source, metadata_of, write


def same(a: OffsetIndex, b: OffsetIndex) -> bool:
    return all(
        getattr(a, name).tolist() == getattr(b, name).tolist() for name in ("offset", "size", "first_row")
    )


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("window", [64, 300, 1 << 20])
def test_located_as_the_writer_has_it(tmp_path: Path, version: str, window: int) -> None:
    path = write(tmp_path / "a.parquet", write_page_index=True, data_page_version=version)
    metadata = metadata_of(path)
    data = Path(path).read_bytes()
    source = as_source(path)
    source.window = window
    checked = 0
    for group in range(metadata.num_row_groups):
        for leaf in metadata.schema.leaves:
            at = (group, leaf.ordinal)
            chunks, rows = metadata.chunks, int(metadata.group_rows[group])
            start, end = int(chunks.start[at]), int(chunks.end[at])
            offset = int(chunks.offset_index_offset[at])
            stored = data[offset : offset + int(chunks.offset_index_length[at])]
            truth = parse_offset_index(stored, num_rows=rows, lower=start, upper=end)
            pages = list_pages(source, start, end=end, num_values=int(chunks.num_values[at]))
            assert pages is not None
            found = pages.locate(pages.num_rows if leaf.max_repetition else pages.num_values, rows)
            if leaf.max_repetition and version == "1.0":
                assert found is None
                continue
            assert found is not None
            assert same(found, truth)
            again = parse_offset_index(encode_offset_index(found), num_rows=rows, lower=start, upper=end)
            assert same(again, truth)
            checked += 1
    assert checked == metadata.num_row_groups * (10 if version == "2.0" else 9)
    source.close()


def test_values_that_do_not_add_up_are_unknown(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet")
    metadata = metadata_of(path)
    chunks = metadata.chunks
    source = as_source(path)
    start, end, values = int(chunks.start[0, 0]), int(chunks.end[0, 0]), int(chunks.num_values[0, 0])
    assert list_pages(source, start, end=end, num_values=values) is not None
    assert list_pages(source, start, end=end, num_values=values + 1) is None
    assert list_pages(source, start, end=end, num_values=values - 1) is None
    assert list_pages(source, start, end=end - 1, num_values=values) is None
    assert list_pages(source, start + 1, end=end, num_values=values) is None
    source.close()


def pages_of(*values: int) -> ChunkPageList:
    sizes = np.full(len(values), 10, np.int64)
    return ChunkPageList(np.array([np.cumsum(sizes), sizes, values, np.full(len(values), -1)]))


@pytest.mark.parametrize(
    ("values", "levels", "first_rows"),
    [
        pytest.param((3, 2), [1, 2, 2], [0, 2], id="between rows"),
        pytest.param((5,), [1, 2, 2], [0], id="one page"),
        pytest.param((2, 3), [1, 2, 2], None, id="within a row"),
        pytest.param((3, 3), [1, 2, 2], None, id="more values than levels"),
        pytest.param((1, 1, 3), [1, 1, 3], [0, 1, 2], id="a page a row"),
    ],
)
def test_rows_counted_by_levels(
    values: tuple[int, ...], levels: list[int], first_rows: list[int] | None
) -> None:
    found = pages_of(*values).locate_counted(np.array(levels))
    assert (None if found is None else found.first_row.tolist()) == first_rows


LONG = "a" * 70


def element_of(tmp_path: Path, kind: pa.DataType) -> SchemaElement:
    path = tmp_path / "schema.parquet"
    pq.write_table(pa.table({"c": pa.array([], kind)}), path)
    schema = metadata_of(path).schema
    return schema.elements[schema.leaves[0].element]


def build(builder: BoundsBuilder, *pages: pa.Array) -> ColumnIndex | None:
    for page in pages:
        builder.add(page)
    data = builder.finish()
    return None if data is None else parse_column_index(data, num_pages=len(pages))


def raw(index: ColumnIndex) -> list[tuple[bytes, bytes]]:
    return [
        (index.blob[a : a + n], index.blob[b : b + m])
        for a, n, b, m in zip(
            index.min_start, index.min_length, index.max_start, index.max_length, strict=True
        )
    ]


CASES: dict[str, tuple[pa.DataType, list[Any], bytes, bytes]] = {
    "bool": (pa.bool_(), [True, False], b"\0", b"\1"),
    "int8": (pa.int8(), [-3, 5], struct.pack("<i", -3), struct.pack("<i", 5)),
    "int64": (pa.int64(), [-(2**62), 1], struct.pack("<q", -(2**62)), struct.pack("<q", 1)),
    "uint8": (pa.uint8(), [200, 3], struct.pack("<I", 3), struct.pack("<I", 200)),
    "uint64": (pa.uint64(), [2**63, 3], struct.pack("<Q", 3), struct.pack("<Q", 2**63)),
    "float": (pa.float32(), [1.5, -2.0], struct.pack("<f", -2.0), struct.pack("<f", 1.5)),
    "double": (pa.float64(), [1.5, float("-inf")], struct.pack("<d", float("-inf")), struct.pack("<d", 1.5)),
    "halffloat": (pa.float16(), [np.float16(v) for v in (1.5, -2.0, 9.0)], struct.pack("<e", -2.0), struct.pack("<e", 9.0)),
    "half zeros": (pa.float16(), [np.float16(0.0)], struct.pack("<e", -0.0), struct.pack("<e", 0.0)),
    "zeros": (pa.float64(), [0.0, 0.0], struct.pack("<d", -0.0), struct.pack("<d", 0.0)),
    "negative zeros": (pa.float64(), [-0.0], struct.pack("<d", -0.0), struct.pack("<d", 0.0)),
    "text": (pa.string(), ["é", "z", "", None], b"", "é".encode()),
    "text of 64 bytes": (pa.string(), ["a" * 64], b"a" * 64, b"a" * 64),
    "long text": (pa.string(), [LONG], b"a" * 64, b"a" * 63 + b"b"),
    "cut within a character": (pa.string(), ["a" * 63 + "éé"], b"a" * 63, b"a" * 62 + b"b"),
    "last code point": (pa.string(), ["a" * 63 + "\x7f" + "z"], b"a" * 63 + b"\x7f", "".join(["a" * 63, "\x80"]).encode()),
    "before the surrogates": (pa.string(), ["\ud7ff" * 30], ("\ud7ff" * 21).encode(), ("\ud7ff" * 20 + "\ue000").encode()),
    "nothing is above": (pa.string(), ["\U0010ffff" * 17], ("\U0010ffff" * 16).encode(), ("\U0010ffff" * 17).encode()),
    "large text": (pa.large_string(), ["b", "a"], b"a", b"b"),
    "binary": (pa.binary(), [b"\xff", b"\x80"], b"\x80", b"\xff"),
    "long binary": (pa.binary(), [b"\x01" + b"\xff" * 80], b"\x01" + b"\xff" * 63, b"\x02"),
    "binary of ones": (pa.binary(), [b"\xff" * 80], b"\xff" * 64, b"\xff" * 80),
    "fixed": (pa.binary(3), [b"abc", b"\xffbc"], b"abc", b"\xffbc"),
    "date": (pa.date32(), [datetime.date(1970, 1, 3)], struct.pack("<i", 2), struct.pack("<i", 2)),
    "time ms": (pa.time32("ms"), [datetime.time(0, 0, 1)], struct.pack("<i", 1000), struct.pack("<i", 1000)),
    "time ns": (pa.time64("ns"), [datetime.time(0, 0, 1)], struct.pack("<q", 10**9), struct.pack("<q", 10**9)),
    "timestamp": (
        pa.timestamp("us", tz="UTC"),
        [datetime.datetime(1969, 12, 31, 23, 59, 59, tzinfo=datetime.UTC)],
        struct.pack("<q", -(10**6)),
        struct.pack("<q", -(10**6)),
    ),
    "decimal": (
        pa.decimal128(38, 3),
        [Decimal("-0.001"), Decimal("12345678901234567890123456789012345.678")],
        (-1).to_bytes(16, "big", signed=True),
        (12345678901234567890123456789012345678).to_bytes(16, "big"),
    ),
    "small decimal": (
        pa.decimal128(5, 2), [Decimal("-1.00"), Decimal("2.50")], (-100).to_bytes(3, "big", signed=True), (250).to_bytes(3, "big"),
    ),
    "decimal of 32 bits": (
        pa.decimal32(7, 2), [Decimal("-1.00"), None, Decimal("99999.99")],
        (-100).to_bytes(4, "big", signed=True), (9999999).to_bytes(4, "big"),
    ),
    "decimal of 64 bits": (
        pa.decimal64(15, 4), [Decimal(-1), Decimal("99999999999.9999")],
        (-10000).to_bytes(7, "big", signed=True), (999999999999999).to_bytes(7, "big"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_bounds_of_a_page(tmp_path: Path, case: tuple[pa.DataType, list[Any], bytes, bytes]) -> None:
    kind, values, lower, upper = case
    builder = bounds_builder(element_of(tmp_path, kind), kind)
    assert builder is not None
    array = pa.array(values, kind)
    index = build(builder, array)
    assert index is not None
    assert raw(index) == [(lower, upper)]
    assert index.null_count.tolist() == [array.null_count]
    assert index.null_pages.tolist() == [False]


@pytest.mark.parametrize(
    "kind",
    [pa.null(), pa.duration("us")],
    ids=str,
)
def test_types_that_are_left_alone(tmp_path: Path, kind: pa.DataType) -> None:
    assert bounds_builder(element_of(tmp_path, kind), kind) is None


def test_an_int96_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    kind = pa.timestamp("ns")
    pq.write_table(pa.table({"c": pa.array([1], kind)}), path, use_deprecated_int96_timestamps=True)
    schema = metadata_of(path).schema
    assert bounds_builder(schema.elements[schema.leaves[0].element], kind) is None


@pytest.mark.parametrize(
    ("pages", "order"),
    [
        pytest.param([[1, 2], [2, 3], [3, 3]], 1, id="ascending"),
        pytest.param([[1, 2], [None], [2, 3]], 1, id="a null page does not count"),
        pytest.param([[3, 3], [2, 3], [1, 2]], 2, id="descending"),
        pytest.param([[1, 9], [2, 3]], 0, id="upper bounds fall"),
        pytest.param([[1], [3], [2]], 0, id="unordered"),
        pytest.param([[None], [None]], 1, id="nulls alone"),
    ],
)
def test_boundary_order(tmp_path: Path, pages: list[list[int | None]], order: int) -> None:
    builder = bounds_builder(element_of(tmp_path, pa.int64()), pa.int64())
    assert builder is not None
    index = build(builder, *(pa.array(page, pa.int64()) for page in pages))
    assert index is not None
    assert index.boundary_order == order
    assert index.null_pages.tolist() == [page == [None] for page in pages]
    assert index.null_count.tolist() == [page.count(None) for page in pages]
    assert [pair for pair, page in zip(raw(index), pages, strict=True) if page == [None]] == [
        (b"", b"") for page in pages if page == [None]
    ]


def test_boundary_order_is_that_of_bounds_as_they_are_cut(tmp_path: Path) -> None:
    """The second text is cut before its last character, and is then below the first."""
    builder = bounds_builder(element_of(tmp_path, pa.string()), pa.string())
    assert builder is not None
    index = build(builder, pa.array(["a" * 63 + "b"]), pa.array(["a" * 63 + "é"]))
    assert index is not None
    assert [lower for lower, _ in raw(index)] == [b"a" * 63 + b"b", b"a" * 63]
    assert index.boundary_order == 0


def test_a_nan_anywhere_leaves_the_chunk_without_bounds(tmp_path: Path) -> None:
    builder = bounds_builder(element_of(tmp_path, pa.float64()), pa.float64())
    assert builder is not None
    pages = [pa.array([1.0]), pa.array([None, float("nan")]), pa.array([2.0])]
    assert build(builder, *pages) is None
