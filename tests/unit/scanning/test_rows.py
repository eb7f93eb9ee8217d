"""`accel.rows`: rows by their numbers over all files, and the requests that they take."""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa
import pytest

import accel
from accel.testing import DictStore, Layout, RecordingStore, table, write_file

SIZES = [700, 0, 1300, 5, 2000]
STARTS = [sum(SIZES[:at]) for at in range(len(SIZES))]


def file_of(at: int) -> bytes:
    numbers = range(STARTS[at], STARTS[at] + SIZES[at])
    rows = table(id=pa.array(numbers, pa.int64())).append_column(
        "tags", pa.array([[{"n": row, "t": str(row)}] * (row % 3) for row in numbers],
                         pa.list_(pa.struct([("n", pa.int64()), ("t", pa.string())])))
    )  # fmt: skip
    return write_file(rows, Layout(group_rows=500, page_rows=50, dictionary=False))


FILES = {f"d/{at}.parquet": file_of(at) for at in range(len(SIZES))}
TOTAL = sum(SIZES)


@pytest.mark.parametrize(
    ("offset", "count"),
    [
        (0, 1),
        (0, 0),
        (699, 3),
        (700, 1),
        (1195, 10),
        (2000, 6),
        (0, TOTAL),
        (TOTAL - 1, 5),
        (TOTAL, 5),
        (10**15, 1),
    ],
)
def test_any_window(offset: int, count: int) -> None:
    found = accel.rows("d/", offset, count, store=DictStore(FILES), cache=None)
    expected = range(offset, min(offset + count, TOTAL))
    assert found["id"].to_pylist() == list(expected)
    assert found["tags"].to_pylist() == [[{"n": row, "t": str(row)}] * (row % 3) for row in expected]
    assert found.schema.names == ["id", "tags"]


def test_the_pages_that_hold_them() -> None:
    store = RecordingStore(DictStore(FILES))
    found = accel.rows(
        "d/4.parquet", 1620, 10, store=store, columns=["tags"], cache=None,
        options=accel.Options(tail_hint=8192),
    )  # fmt: skip
    assert [len(tags) for tags in found["tags"].to_pylist()] == [row % 3 for row in range(3625, 3635)]
    data = [call.want.length for call in store.calls if hasattr(call.want, "start")]
    assert sum(data) < 8000


def test_files_behind_the_last_row_are_not_opened() -> None:
    store = RecordingStore(DictStore(FILES))
    accel.rows("d/", 0, 5, store=store, columns=["id"], cache=None)
    assert {call.path for call in store.calls} == {"d", "d/0.parquet"}


class Counted(accel.FileSource):
    """A table that counts the rows of its files, some of which are gone."""

    async def blocks(self, request: Any) -> Any:
        yield request.block(
            list(FILES), num_rows=pa.array(SIZES), immutable=True, deleted={2: list(range(0, 1300, 2))}
        )


def test_a_table_that_counts_rows() -> None:
    store = RecordingStore(DictStore(FILES))
    found = accel.rows(
        Counted(), 700 + 650 + 5 + 1990, 100, store=store, columns=["id", "row"], row_number="row"
    )
    assert found["id"].to_pylist() == list(range(TOTAL - 10, TOTAL))
    assert found["row"].to_pylist() == list(range(1990, 2000))
    # The first file settles the schema; the third one has rows that are gone.
    assert {call.path for call in store.calls} == {"d/0.parquet", "d/2.parquet", "d/4.parquet"}
    found = accel.rows(Counted(), 701, 3, store=store, columns=["id"])
    assert found["id"].to_pylist() == [703, 705, 707]


def test_rows_here_and_there_are_taken() -> None:
    """By `take` of a data set: of files that are counted none but those that hold them are opened."""
    store = RecordingStore(DictStore(FILES))
    left = [row for row in range(TOTAL) if not 700 <= row < 2000 or row % 2]
    data = accel.dataset(Counted(), columns=["id", "row"], row_number="row", store=store, cache=None)
    store.calls.clear()
    for places in ([3000, 0, 702], [702, 3000, 702, 699, 1349, 1350], list(range(690, 720)), [1354], []):
        found = data.take(places)
        assert found["id"].to_pylist() == [left[place] for place in places]
        firsts = [max(start for start in STARTS if start <= left[place]) for place in places]
        numbers = [left[place] - first for place, first in zip(places, firsts, strict=True)]
        assert found["row"].to_pylist() == numbers
    store.calls.clear()
    assert data.take([3344, 1, 2, 690])["id"].to_pylist() == [left[3344], 1, 2, 690]
    # How many rows of the third file are gone is known once it is opened, and others are beside it.
    opened = {"d/0.parquet", "d/2.parquet", "d/3.parquet", "d/4.parquet"}
    assert {call.path for call in store.calls} == opened
    store.calls.clear()
    assert data.take([5])["id"].to_pylist() == [5]
    assert {call.path for call in store.calls} == {"d/0.parquet"}
    with pytest.raises(IndexError, match=f"row {len(left)} of {len(left)}"):
        data.take([0, len(left)])


def test_rows_of_a_file_that_is_there_twice_are_taken() -> None:
    store = DictStore(FILES)
    data = accel.dataset(["d/0.parquet", "d/3.parquet", "d/0.parquet"], columns=["id"], store=store)
    assert data.take([2, 713, 700, 13])["id"].to_pylist() == [2, 8, STARTS[3], 13]


def test_awaited_and_selected() -> None:
    store = DictStore(FILES)
    found = asyncio.run(accel.rows_async("d/", 2, 2, store=store, selection={"d/2.parquet": {1: [(7, 12)]}}))
    assert found["id"].to_pylist() == [700 + 509, 700 + 510]


@pytest.mark.parametrize(("offset", "count"), [(-1, 1), (0, -1), (0.5, 1), (True, 1)])
def test_what_is_no_number(offset: Any, count: Any) -> None:
    with pytest.raises(ValueError, match="is a non-negative int"):
        accel.rows("d/", offset, count, store=DictStore(FILES))


def test_a_plan_has_no_numbers() -> None:
    store = DictStore(FILES)
    with pytest.raises(ValueError, match="numbered over files"):
        accel.rows(accel.plan("d/", store=store), 0, 1, store=store)
