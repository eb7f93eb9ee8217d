"""The page index: against the page headers of pyarrow's files, its fast pass against its loop, lies."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel.errors import IndexFormatError
from accel.format.page_header import walk_pages
from accel.format.page_index import parse_column_index, parse_offset_index
from accel.format.thrift import BINARY, I32, I64, LIST, STRUCT, TRUE, ThriftList, write_struct
from tests.unit.format.files import parse, write

ROWS = 5000


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["none", "snappy", "zstd"])
def test_offsets_and_counts_equal_the_page_headers(version, codec):
    texts = pa.array([None if i % 11 == 0 or i >= 4000 else f"text {i % 100}" for i in range(ROWS)])
    lists = pa.array([list(range(i % 4)) for i in range(ROWS)], pa.list_(pa.int64()))
    table = pa.Table.from_arrays([pa.array(np.arange(ROWS)), texts, lists], ["i", "s", "l"])
    raw = write(
        table,
        write_page_index=True,
        data_page_version=version,
        compression=codec,
        max_rows_per_page=100,
        row_group_size=2500,
    )
    metadata = parse(raw)
    for g in range(2):
        for c in range(3):
            offsets, columns, pages = read_all(raw, metadata, g, c)
            data = pages.type != 2
            start = metadata.chunks.start[g, c]
            assert offsets.num_pages == columns.num_pages == data.sum()
            assert offsets.offset.tolist() == (pages.start[data] + start).tolist()
            assert offsets.size.tolist() == (pages.end - pages.start)[data].tolist()
            rows = np.diff(np.append(offsets.first_row, 2500))
            if version == "2.0":
                assert rows.tolist() == pages.num_rows[data].tolist()
                if c != 2:  # pyarrow counts an empty list as a null in the index
                    assert columns.null_count.tolist() == pages.num_nulls[data].tolist()
            if c == 1:
                part = texts.slice(g * 2500, 2500)
                for page, first in enumerate(offsets.first_row):
                    check_texts(part.slice(first, rows[page]), columns, page)


def read_all(raw, metadata, g, c):
    chunks = metadata.chunks

    def piece(name):
        start = int(getattr(chunks, f"{name}_offset")[g, c])
        return memoryview(raw)[start : start + int(getattr(chunks, f"{name}_length")[g, c])]

    lower, upper = int(chunks.start[g, c]), int(chunks.end[g, c])
    offsets = parse_offset_index(
        piece("offset_index"), num_rows=int(metadata.group_rows[g]), lower=lower, upper=upper
    )
    columns = parse_column_index(piece("column_index"), num_pages=offsets.num_pages)
    return offsets, columns, walk_pages(memoryview(raw)[lower:upper], max_pages=1000)


def check_texts(values, columns, page):
    there = sorted(v.as_py().encode() for v in values if v.is_valid)
    assert columns.null_pages[page] == (not there)
    assert columns.null_count[page] == values.null_count
    if there:
        low = columns.blob[columns.min_start[page] :][: columns.min_length[page]]
        high = columns.blob[columns.max_start[page] :][: columns.max_length[page]]
        assert (low, high) == (there[0], there[-1])


def locations(rows: list[tuple[int, int, int]], extra: dict | None = None) -> bytes:
    items = [{1: (I64, a), 2: (I32, b), 3: (I64, c), **(extra or {})} for a, b, c in rows]
    return write_struct({1: (LIST, ThriftList(STRUCT, items)), 2: (LIST, ThriftList(I64, [1] * len(rows)))})


steps = st.lists(
    st.tuples(st.integers(0, 1 << 35), st.integers(1, (1 << 31) - 1), st.integers(1, 1 << 40)),
    min_size=1,
    max_size=60,
)


def pages_of(steps) -> tuple[list[tuple[int, int, int]], int]:
    rows, offset, row = [], 4, 0
    for gap, size, count in steps:
        offset += gap
        rows.append((offset, size, row))
        offset, row = offset + size, row + count
    return rows, row


@given(steps)
def test_locations_are_read_with_or_without_unknown_fields(steps):
    rows, num_rows = pages_of(steps)
    upper = rows[-1][0] + rows[-1][1]
    for encoded in (locations(rows), locations(rows, {9: (TRUE, True)})):
        index = parse_offset_index(encoded, num_rows=num_rows, lower=4, upper=upper)
        assert np.transpose([index.offset, index.size, index.first_row]).tolist() == [
            list(row) for row in rows
        ]


GOOD = [(100, 50, 0), (150, 50, 10), (210, 40, 30)]


LIES = {
    "before the chunk": [(99, 51, 0), *GOOD[1:]],
    "beyond the chunk": [*GOOD[:2], (210, 41, 30)],
    "far beyond": [*GOOD[:2], ((1 << 63) - 1, 40, 30)],
    "greatest size": [*GOOD[:2], (210, (1 << 63) - 1, 30)],
    "empty page": [GOOD[0], (150, 0, 10), GOOD[2]],
    "negative size": [GOOD[0], (150, -3, 10), GOOD[2]],
    "overlapping": [GOOD[0], (149, 50, 10), GOOD[2]],
    "descending": [GOOD[1], GOOD[0], GOOD[2]],
    "first row not zero": [(100, 50, 1), *GOOD[1:]],
    "rows equal": [*GOOD[:2], (210, 40, 10)],
    "rows descending": [*GOOD[:2], (210, 40, 5)],
    "rows beyond the group": [*GOOD[:2], (210, 40, 40)],
    "negative row": [*GOOD[:2], (210, 40, -1)],
    "no pages": [],
}


def test_good_locations_pass():
    index = parse_offset_index(locations(GOOD), num_rows=40, lower=100, upper=250)
    assert list(zip(index.offset, index.size, index.first_row, strict=True)) == GOOD
    assert parse_offset_index(locations([]), num_rows=0, lower=0, upper=0).num_pages == 0


@pytest.mark.parametrize("rows", LIES.values(), ids=LIES.keys())
def test_locations_that_cannot_be_are_refused(rows):
    with pytest.raises(IndexFormatError):
        parse_offset_index(locations(rows), num_rows=40, lower=100, upper=250)


def column_index(**changes) -> bytes:
    fields = {
        1: (LIST, ThriftList(TRUE, [False, True, False])),
        2: (LIST, ThriftList(BINARY, [b"a", b"", b"longer"])),
        3: (LIST, ThriftList(BINARY, [b"b", b"", b"m" * 200])),
        4: (I32, 1),
        5: (LIST, ThriftList(I64, [0, 10, 3])),
        6: (LIST, ThriftList(I64, [1, 2, 3])),
        7: (LIST, ThriftList(I64, [4] * 40)),
        8: (LIST, ThriftList(I64, [1, 0, -4])),
    }
    fields |= {int(name[1:]): value for name, value in changes.items()}
    return write_struct({k: v for k, v in fields.items() if v is not None})


def test_every_field_of_a_column_index():
    index = parse_column_index(column_index(), num_pages=3)
    assert index.null_pages.tolist() == [False, True, False]
    assert index.boundary_order == 1
    assert index.null_count.tolist() == [0, 10, 3]
    assert index.nan_count.tolist() == [1, 0, -1]
    low = [index.blob[s : s + n] for s, n in zip(index.min_start, index.min_length, strict=True)]
    high = [index.blob[s : s + n] for s, n in zip(index.max_start, index.max_length, strict=True)]
    assert (low, high) == ([b"a", b"", b"longer"], [b"b", b"", b"m" * 200])


def test_counts_may_be_absent_and_an_order_unknown():
    index = parse_column_index(column_index(f5=None, f8=None, f4=(I32, 9)), num_pages=3)
    assert index.null_count.tolist() == index.nan_count.tolist() == [-1] * 3
    assert index.boundary_order == 0


@given(st.integers(0, 130), st.integers(1, 40))
def test_bounds_of_one_width(width, count):
    values = [bytes([i % 256]) * width for i in range(count)]
    bounds = (LIST, ThriftList(BINARY, values))
    nulls = (LIST, ThriftList(TRUE, [False] * count))
    index = parse_column_index(write_struct({1: nulls, 2: bounds, 3: bounds}), num_pages=count)
    for starts, lengths in ((index.min_start, index.min_length), (index.max_start, index.max_length)):
        assert [index.blob[s : s + n] for s, n in zip(starts, lengths, strict=True)] == values


BAD = {
    "fewer null pages": {"f1": (LIST, ThriftList(TRUE, [False]))},
    "null pages of numbers": {"f1": (LIST, ThriftList(I64, [0, 0, 0]))},
    "no null pages": {"f1": None},
    "fewer bounds": {"f2": (LIST, ThriftList(BINARY, [b"a"]))},
    "no upper bounds": {"f3": None},
    "more null counts": {"f5": (LIST, ThriftList(I64, [1, 2, 3, 4]))},
    "null counts of text": {"f5": (LIST, ThriftList(BINARY, [b"", b"", b""]))},
    "fewer NaN counts": {"f8": (LIST, ThriftList(I64, [1]))},
}


@pytest.mark.parametrize("changes", BAD.values(), ids=BAD.keys())
def test_a_column_index_that_cannot_be_is_refused(changes):
    with pytest.raises(IndexFormatError):
        parse_column_index(column_index(**changes), num_pages=3)
