"""Rows that go on on the next page, though the offset index says where each page's rows end.

parquet-format `PageIndex.md` has pages begin with a row where there is an offset index; arrow-go and older
versions of arrow-rs wrote others.
"""

from __future__ import annotations

import io
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.format.thrift import read_struct, write_struct
from accel.testing import DictStore, Layout, RecordingStore, write_file
from tests.support.file_steps import Bytes, split_rows

ROWS, PAGE, LENGTH = 2_000, 100, 8
TAIL = 16 << 10
FORMATS = ["1.0", "2.0"]


@cache
def sound(data_page: str) -> bytes:
    lists = pa.array([list(range(LENGTH * i, LENGTH * i + LENGTH)) for i in range(ROWS)])
    layout = Layout(page_rows=PAGE, data_page=data_page, codec="none", dictionary=False)
    keys = pa.array(np.arange(ROWS))
    return write_file(pa.Table.from_arrays([keys, lists, keys], names=["key", "x", "other"]), layout)


def split(data_page: str, *pages: int) -> tuple[bytes, list[Any]]:
    """A file of which these pages begin within a row, and the lists as pyarrow reads them."""
    data = sound(data_page)
    chunks = Bytes(data).open().metadata.chunks
    start, end = int(chunks.start[0, 1]), int(chunks.end[0, 1])
    data = data[:start] + split_rows(memoryview(data)[start:end], pages=pages) + data[end:]
    expected = pq.read_table(io.BytesIO(data)).column("x").to_pylist()
    assert {len(row) for row in expected} == {4, 8, 12}
    return data, expected


def ask(store: Any, cache: accel.Cache | None = None, **more: Any) -> list[Any]:
    options = accel.Options(tail_hint=TAIL, **more.pop("options", {}))
    return accel.scan("f", store=store, cache=cache, options=options, **more).to_table()["x"].to_pylist()


@pytest.mark.parametrize("phases", ["one", "two"])
@pytest.mark.parametrize("data_page", FORMATS)
@pytest.mark.parametrize("page", [1, 7, 19])
def test_a_row_is_whole_whose_end_lies_on_the_next_page(data_page: str, page: int, phases: str) -> None:
    data, expected = split(data_page, page)
    store, options, last = DictStore({"f": data}), {"phases": phases}, page * PAGE - 1
    for start, stop in (
        (last, last + 1),
        (last - 1, last + 1),
        (max(0, last - PAGE), last + 1),
        (last + 1, last + 2),
    ):
        cut = {"f": {0: [(start, stop)]}}
        assert ask(store, columns=["x"], selection=cut, options=options) == expected[start:stop]
        for where in (
            f"key >= {start} AND key < {stop}",
            f"x IS NOT NULL AND key >= {start} AND key < {stop}",
        ):
            assert ask(store, columns=["x"], where=where, options=options) == expected[start:stop]
    assert ask(store, columns=["x"], options=options) == expected


@pytest.mark.parametrize("data_page", FORMATS)
def test_so_it_is_where_pieces_are_cut(data_page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next page is the next piece's, too, and is asked for once."""
    monkeypatch.setattr(accel.Options, "cut_bytes", property(lambda options: 4096))
    data, expected = split(data_page, 4, 5, 11)
    store, cache = DictStore({"f": data}), accel.Cache()
    for where, rows in (("key >= 300 AND key < 500", slice(300, 500)), (None, slice(None))):
        assert ask(store, cache, columns=["x"], where=where) == expected[rows]
    recording = RecordingStore(DictStore({"f": sound(data_page)}))
    assert len(ask(recording, columns=["x", "key"], options={"max_gap_bytes": 0})) == ROWS
    chunks = Bytes(data).open().metadata.chunks
    start, end = int(chunks.start[0, 1]), int(chunks.end[0, 1])
    read = [
        (max(start, r.start), min(end, r.end))
        for r in recording.fetched("f")
        if r.start < end <= len(data) - TAIL
    ]
    read = sorted(span for span in read if span[0] < span[1])
    assert len(read) > 1
    assert all(before[1] == after[0] for before, after in pairwise(read))


def test_the_next_page_comes_only_with_the_last_row() -> None:
    store = DictStore({"f": sound("2.0")})
    for start, stop, pages in ((710, 790, 1), (710, 800, 2), (699, 700, 2), (700, 701, 1), (1990, 2000, 1)):
        cut = {"f": {0: [(start, stop)]}}
        (task,) = accel.plan("f", columns=["other", "x"], selection=cut, store=store, cache=None).tasks
        assert {reads.max_repetition: len(reads.ordinal) for reads in task.reads} == {0: 1, 1: pages}


@pytest.mark.parametrize("data_page", FORMATS)
@pytest.mark.parametrize(("codec", "limit"), [("none", 350_000), ("zstd", 240_000)])
def test_the_next_page_takes_no_room_of_the_limit(data_page: str, codec: str, limit: int) -> None:
    """Nor is it decoded: what could be read a page at a time still can be."""
    lists = pa.array([list(range(LENGTH * i, LENGTH * i + LENGTH)) for i in range(ROWS * 8)])
    layout = Layout(page_rows=PAGE * 20, data_page=data_page, codec=codec, dictionary=False)
    data = write_file(pa.Table.from_arrays([lists], names=["x"]), layout)
    store = DictStore({"f": data})
    assert ask(store, options={"memory_limit": limit}) == lists.to_pylist()
    last = PAGE * 20 - 1
    cut = {"f": {0: [(last, last + 1)]}}
    assert ask(store, options={"memory_limit": limit}, selection=cut) == lists.slice(last, 1).to_pylist()


def without_index(data: bytes, column: int) -> bytes:
    """The file, whose footer does not name the page index of a column."""
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer, _ = read_struct(data[start:-8])
    for group in footer[4][1].items:
        chunk = group[1][1].items[column]
        for place in (4, 5, 6, 7):
            chunk.pop(place)
    changed = write_struct(footer)
    return data[:start] + changed + len(changed).to_bytes(4, "little") + b"PAR1"


@pytest.mark.parametrize("data_page", FORMATS)
def test_so_it_is_where_only_the_filter_is_read_as_a_whole(
    data_page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("accel.planning.task.DECODE_AT_ONCE", 1_000)
    data, expected = split(data_page, 4, 5, 11)
    store = DictStore({"f": without_index(data, 0)})
    for row in (4 * PAGE - 1, 4 * PAGE, 5 * PAGE - 1, 11 * PAGE - 1, 7 * PAGE - 1):
        for phases in ("one", "two"):
            found = ask(store, columns=["x"], where=f"key = {row}", options={"phases": phases})
            assert found == [expected[row]]


@pytest.mark.parametrize("data_page", FORMATS)
@pytest.mark.parametrize("page", [1, 7])
def test_so_it_is_where_a_limit_ends_with_the_last_row(data_page: str, page: int) -> None:
    data, expected = split(data_page, page)
    store, rows = DictStore({"f": data}), page * PAGE
    assert ask(store, columns=["x"], limit=rows) == expected[:rows]
    cut = {"f": {0: [(rows - 1, ROWS)]}}
    assert ask(store, columns=["x"], selection=cut, limit=1) == expected[rows - 1 : rows]
