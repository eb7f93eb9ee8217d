"""Which bytes hold a chunk's page index."""

from __future__ import annotations

import pytest

from accel.planning.page_indexes import index_want, page_index_wants
from accel.ranges import ByteRange, Kind, ReadKey, Want
from accel.testing import Layout, bench_table, write_file
from tests.support.file_steps import Bytes, query_of
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
        piece_bytes=1 << 20,
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
        piece_bytes=1 << 20,
        limit=None,
        pages_indexed=True,
    )
    assert {want.key.column for want in wants if want.key.kind is Kind.OFFSET_INDEX} == set(
        range(len(handle.arrow_schema))
    )
