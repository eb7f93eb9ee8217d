"""Which bytes hold a chunk's page index."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.format.page_header import walk_pages
from accel.format.page_index import parse_offset_index
from accel.planning.page_indexes import PlanSizes, index_want, locate_pages, page_index_wants, page_reads
from accel.planning.selection import RowSelection
from accel.ranges import ByteRange, Kind, ReadKey, Want
from accel.testing import DictStore, Layout, bench_table, table, write_file
from tests.support.file_steps import Bytes, query_of, split_rows
from tests.support.sample_table import flights_table


@pytest.mark.parametrize("kind", [Kind.OFFSET_INDEX, Kind.COLUMN_INDEX])
@pytest.mark.parametrize("missing", [None, "offset", "length"])
def test_half_of_a_page_index_is_one_want_where_both_its_numbers_are_known(
    kind: Kind, missing: str | None
) -> None:
    chunks = Bytes(write_file(flights_table(100), Layout(page_rows=50))).open().metadata.chunks
    name = kind.name.lower()
    at, length = (int(getattr(chunks, f"{name}_{what}")[0, 1]) for what in ("offset", "length"))
    assert index_want(chunks, kind, 0, 1) == [Want(ReadKey(kind, 0, 1), ByteRange(at, at + length))]
    if missing is not None:
        getattr(chunks, f"{name}_{missing}")[0, 1] = -1
        assert index_want(chunks, kind, 0, 1) == []


@pytest.mark.parametrize(
    ("changed", "asked"),
    [
        ({}, False),
        ({"dictionary_pages": 0, "plain_pages": 1}, False),
        ({"dictionary_pages": 1, "plain_pages": 1}, True),
        ({"dictionary_pages": 0, "plain_pages": 0}, True),
        ({"dictionary_pages": -1, "plain_pages": -1}, True),
        ({"dictionary_pages": 2, "plain_pages": -1}, True),
        ({"min_start": -1}, True),
        ({"max_start": -1}, True),
        ({"null_count": -1}, True),
    ],
)
def test_none_is_asked_for_where_the_footer_tells_of_one_page_and_its_bounds(
    changed: dict[str, int], asked: bool
) -> None:
    handle = Bytes(write_file(bench_table(300), Layout(group_rows=100, page_rows=100))).open()
    key = handle.arrow_schema.get_field_index("key")
    for name, value in changed.items():
        getattr(handle.metadata.chunks, name)[1, key] = value
    wants = page_index_wants(
        handle,
        query_of(handle, "key > 100 AND key <= 600"),
        groups=[(0, False), (1, False), (2, False)],
        selection=None,
        sizes=PlanSizes(piece_bytes=1 << 20, probe_min_bytes=0),
        limit=None,
        pages_indexed=False,
    )
    assert {want.key.row_group for want in wants} == ({1} if asked else set())
    assert {want.key.kind for want in wants} == ({Kind.COLUMN_INDEX, Kind.OFFSET_INDEX} if asked else set())


def test_an_index_of_the_file_that_speaks_of_pages_needs_to_know_where_they_are() -> None:
    handle = Bytes(write_file(bench_table(300), Layout(group_rows=100, page_rows=100))).open()
    wants = page_index_wants(
        handle,
        query_of(handle, "key > 100"),
        groups=[(1, False)],
        selection=None,
        sizes=PlanSizes(piece_bytes=1 << 20, probe_min_bytes=0),
        limit=None,
        pages_indexed=True,
    )
    assert {want.key.column for want in wants if want.key.kind is Kind.OFFSET_INDEX} == set(
        range(len(handle.arrow_schema))
    )


# -- page locations ---------------------------------------------------------------------------------


ROWS = 1000
INTS = pa.array(np.arange(ROWS))
LISTS = pa.array([[i] * (i % 4) for i in range(ROWS)])
NULLS = pa.array([None if i % 3 else i for i in range(ROWS)])


def chunk_of(data: bytes) -> tuple[memoryview, dict[str, Any], Any]:
    """The bytes of the only chunk, what `locate_pages` takes with them, and its offset index if it has
    one."""
    handle = Bytes(data).open(8)
    chunks = handle.metadata.chunks
    start, end = int(chunks.start[0, 0]), int(chunks.end[0, 0])
    leaf = handle.metadata.schema.leaves[0]
    facts = {
        "start": start,
        "num_rows": int(handle.metadata.group_rows[0]),
        "num_values": int(chunks.num_values[0, 0]),
        "max_repetition": leaf.max_repetition,
    }
    at, length = int(chunks.offset_index_offset[0, 0]), int(chunks.offset_index_length[0, 0])
    index = None
    if at > 0:
        index = parse_offset_index(
            data[at : at + length], num_rows=facts["num_rows"], lower=4, upper=len(data)
        )
    return memoryview(data)[start:end], facts, index


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("column", [INTS, NULLS], ids=["ints", "nulls"])
def test_they_equal_the_offset_index(column: pa.Array, version: str, dictionary: bool) -> None:
    data = write_file(table(x=column), Layout(page_rows=70, data_page=version, dictionary=dictionary))
    chunk, facts, index = chunk_of(data)
    found = locate_pages(chunk, **facts)
    assert found is not None
    for name in ("offset", "size", "first_row"):
        assert np.array_equal(getattr(found, name), getattr(index, name)), name


def test_lists_tell_their_rows_only_in_pages_of_version_2() -> None:
    data = write_file(table(x=LISTS), Layout(page_rows=70, data_page="2.0"))
    chunk, facts, index = chunk_of(data)
    found = locate_pages(chunk, **facts)
    assert found is not None
    assert np.array_equal(found.first_row, index.first_row)
    old, facts, _ = chunk_of(write_file(table(x=LISTS), Layout(page_rows=70)))
    assert locate_pages(old, **facts) is None


@pytest.mark.parametrize(
    "items",
    [
        pytest.param([[i] * 8 for i in range(ROWS)], id="levels in packed runs"),
        pytest.param([[i] * (100 if i % 70 == 0 else 8) for i in range(ROWS)], id="a row of many"),
        pytest.param([[i] for i in range(ROWS)], id="levels in one run"),
        pytest.param([[[i, i], []] for i in range(ROWS)], id="lists of lists"),
    ],
)
def test_lists_of_any_length_are_located_by_their_pages(items: list[list[Any]]) -> None:
    data = write_file(table(x=pa.array(items)), Layout(page_rows=70, data_page="2.0"))
    chunk, facts, index = chunk_of(data)
    found = locate_pages(chunk, **facts)
    assert found is not None
    assert np.array_equal(found.first_row, index.first_row)


def test_pages_that_begin_within_a_row_are_unknown() -> None:
    layout = Layout(page_rows=100, page_index=False, data_page="2.0", codec="none", dictionary=False)
    data = write_file(table(x=pa.array([[i] * 8 for i in range(ROWS)])), layout)
    chunk, facts, _ = chunk_of(data)
    assert locate_pages(chunk, **facts) is not None
    split = split_rows(chunk)
    assert split != bytes(chunk)
    assert locate_pages(memoryview(split), **facts) is None
    # So is one that begins with a run of no levels.
    no_run = bytearray(chunk)
    no_run[int(walk_pages(chunk, max_pages=100).body[3])] = 0
    assert locate_pages(memoryview(no_run), **facts) is None


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"num_rows": ROWS + 1}, id="rows that do not add up"),
        pytest.param({"num_rows": 0}, id="no rows"),
    ],
)
def test_what_does_not_add_up_is_unknown(change: dict[str, int]) -> None:
    chunk, facts, _ = chunk_of(write_file(table(x=INTS), Layout(page_rows=70, dictionary=False)))
    assert locate_pages(chunk, **(facts | change)) is None


@pytest.mark.parametrize("cut", [0, 1, 10, 100, -1])
def test_damaged_bytes_are_unknown(cut: int) -> None:
    chunk, facts, _ = chunk_of(write_file(table(x=INTS), Layout(page_rows=70, dictionary=False)))
    assert locate_pages(chunk[:cut], **facts) is None


@pytest.mark.parametrize("dictionary", [True, False])
def test_reads_of_the_pages_that_rows_are_in(dictionary: bool) -> None:
    data = write_file(
        table(x=INTS), Layout(page_rows=100, page_index=False, dictionary=dictionary, codec="none")
    )
    chunk, facts, _ = chunk_of(data)
    rows = RowSelection.of([(150, 160), (420, 610)])
    chosen = {"f": {0: list(rows)}}
    (task,) = accel.plan("f", selection=chosen, store=DictStore({"f": data}), cache=None).tasks
    (whole,) = task.reads
    assert whole.whole
    index = locate_pages(chunk, **facts)
    assert index is not None
    reads = page_reads(whole, index, rows=rows, num_rows=ROWS)
    assert reads.ordinal.tolist() == [1, 4, 5, 6]
    assert reads.first_row.tolist() == [100, 400, 500, 600]
    assert reads.stop_row.tolist() == [200, 500, 600, 700]
    assert reads.offset.tolist() == index.offset[[1, 4, 5, 6]].tolist()
    assert (reads.total_pages, reads.for_filter, reads.for_output) == (10, False, True)
    if dictionary:
        assert reads.dictionary == ByteRange(whole.chunk.start, int(index.offset[0]))
        assert reads.dictionary_pages == -1
    else:
        assert reads.dictionary is None
