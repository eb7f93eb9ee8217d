"""Pages walked together are the pages that one finds who reads each header by itself, whatever the bytes."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from accel.errors import ParquetFormatError
from accel.format.model import PageTable
from accel.format.page_header import parse_page_header, walk_chunks, walk_pages
from accel.format.thrift import BINARY, FALSE, I32, I64, STRUCT, TRUE, write_struct

_INNER: list[tuple[int, int, dict[int, Any]]] = [
    (0, 5, {1: (I32, 10), 2: (I32, 8), 3: (I32, 3), 4: (I32, 3)}),
    (0, 5, {1: (I32, 10_000), 2: (I32, 0), 3: (I32, 3), 4: (I32, 3)}),
    (0, 5, {1: (I32, 10), 2: (I32, 8), 3: (I32, 3), 4: (I32, 3), 5: (STRUCT, {6: (BINARY, b"min")})}),
    (0, 6, {1: (I32, 10)}),
    (2, 7, {1: (I32, 7), 2: (I32, 2)}),
    (3, 8, {1: (I32, 10), 2: (I32, 4), 3: (I32, 9), 4: (I32, 0), 5: (I32, 0), 6: (I32, 0)}),
    (
        3,
        8,
        {1: (I32, 10), 2: (I32, 4), 3: (I32, 9), 4: (I32, 0), 5: (I32, 1), 6: (I32, 0), 7: (FALSE, False)},
    ),
    (3, 8, {1: (I32, 17), 2: (I32, 0), 3: (I32, 1), 4: (I32, 8), 5: (I32, 0), 6: (I32, 0), 7: (TRUE, True)}),
    (2, 7, {1: (I32, 1 << 20), 2: (I32, 0), 3: (FALSE, False)}),
    (
        0,
        5,
        {1: (I32, 10), 2: (I32, 8), 3: (I32, 4), 4: (I32, 3), 5: (STRUCT, {3: (I64, 7), 5: (BINARY, b"z")})},
    ),
]


@st.composite
def _page(draw: st.DrawFn) -> bytes:
    kind, field, inner = draw(st.sampled_from(_INNER))
    stored = draw(st.sampled_from([0, 1, 63, 64, 70]))
    sizes = st.one_of(st.integers(0, 300), st.sampled_from([8191, 8192, 1 << 20, (1 << 31) - 1, 1 << 31, -1]))
    fields: dict[int, Any] = {1: (I32, kind), 2: (I32, draw(sizes)), 3: (I32, stored)}
    crc = draw(st.one_of(st.none(), st.integers(-(1 << 31), (1 << 31) - 1)))
    if crc is not None:
        fields[4] = (I32, crc)
    return write_struct(fields | {field: (STRUCT, inner)}) + bytes(stored)


@st.composite
def _chunk(draw: st.DrawFn) -> bytes:
    pages = draw(st.lists(_page(), min_size=1, max_size=6))
    repeated = draw(st.lists(st.sampled_from(pages), min_size=1, max_size=8))
    data = bytearray(b"".join(repeated))
    for _ in range(draw(st.integers(0, 2))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.sampled_from([len(data), len(data) - 1]))])


def _one_by_one(data: bytes) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    pos = 0
    while pos < len(data):
        page = parse_page_header(data, pos)
        body = pos + page.header_length
        end = body + page.compressed_size
        if end > len(data):
            raise ParquetFormatError("a body beyond the bytes")
        levels = page.definition_bytes + page.repetition_bytes
        found.append(
            (
                *(page.type, pos, body, end, page.uncompressed_size, page.num_values, page.num_rows),
                *(page.num_nulls, page.encoding, levels, page.definition_bytes, page.is_compressed),
                *(min(max(page.level_encoding, -1), 127), -1 if page.crc is None else page.crc),
            )
        )
        pos = end
    return found


@given(_chunk())
def test_walked_together_as_one_by_one(data: bytes) -> None:
    try:
        expected = _one_by_one(data)
    except ParquetFormatError:
        expected = None
    try:
        table = walk_pages(memoryview(data), max_pages=100)
    except ParquetFormatError:
        assert expected is None
        return
    assert _rows(table) == expected
    again, counts = walk_chunks([data, data], num_values=[1 << 40] * 2, max_pages=100)
    assert (_rows(again), counts.tolist()) == ([*expected, *expected], [len(expected)] * 2)


@given(st.lists(_chunk(), min_size=1, max_size=8), st.sampled_from([1, 3, 100]))
def test_many_chunks_have_the_pages_of_each(some: list[bytes], most: int) -> None:
    """More chunks than are walked one by one: what is usual is read of all at once."""
    chunks = (some * 100)[:100]
    due = [None if place % 3 else 12 for place in range(len(chunks))]
    expected: list[tuple[object, ...]] | None = []
    counts = []
    try:
        for chunk, values in zip(chunks, due, strict=True):
            pages = _rows(walk_pages(memoryview(chunk), max_pages=most, num_values=values))
            expected += pages
            counts.append(len(pages))
    except ParquetFormatError as error:
        expected, failure = None, str(error)
    try:
        table, found = walk_chunks(chunks, num_values=due, max_pages=most)
    except ParquetFormatError as error:
        assert (expected, failure) == (None, str(error))
        return
    assert (_rows(table), found.tolist()) == (expected, counts)


def _rows(table: PageTable) -> list[tuple[object, ...]]:
    columns = (
        *(table.type, table.start, table.body, table.end, table.uncompressed, table.num_values),
        *(table.num_rows, table.num_nulls, table.encoding, table.level_bytes, table.definition_bytes),
        *(table.is_compressed, table.level_encoding, table.crc),
    )
    return list(zip(*(column.tolist() for column in columns), strict=True))
