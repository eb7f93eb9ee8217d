"""Tasks cut to a limit; bytes that are at hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.errors import ParquetFormatError
from accel.planning.pages import LeafReads
from accel.planning.selection import RowSelection
from accel.planning.task import ScanTask, adjacent_tasks, truncate_task
from accel.planning.task_arrow import TASK_ARROW_SCHEMA, checksum_of, decode_tasks
from accel.ranges import ByteRange
from accel.testing import DictStore, Layout, table, write_file
from tests.unit.planning.test_pages import ROWS, reads, whole

DATA = write_file(
    table(x=pa.array(np.arange(100)), y=pa.array([f"{i:05}" for i in range(100)])),
    Layout(page_rows=10, dictionary=["y"]),
)


@pytest.fixture
def task() -> ScanTask:
    chosen = {"f": {0: [(5, 25), (60, 61), (80, 100)]}}
    (task,) = accel.plan("f", selection=chosen, store=DictStore({"f": DATA}), cache=None).tasks
    return task


@pytest.mark.parametrize(
    ("limit", "rows", "pages"),
    [
        (0, [], []),
        (1, [(5, 6)], [0]),
        (5, [(5, 10)], [0]),
        (6, [(5, 11)], [0, 1]),
        (20, [(5, 25)], [0, 1, 2]),
        (21, [(5, 25), (60, 61)], [0, 1, 2, 6]),
        (22, [(5, 25), (60, 61), (80, 81)], [0, 1, 2, 6, 8]),
        (41, [(5, 25), (60, 61), (80, 100)], [0, 1, 2, 6, 8, 9]),
        (99, [(5, 25), (60, 61), (80, 100)], [0, 1, 2, 6, 8, 9]),
    ],
)
def test_truncated(task: ScanTask, limit: int, rows: list[tuple[int, int]], pages: list[int]) -> None:
    cut = truncate_task(task, limit)
    assert list(cut.rows) == list(cut.certain) == rows
    for leaf in cut.reads:
        assert leaf.ordinal.tolist() == pages
        assert len(leaf.offset) == len(leaf.size) == len(leaf.first_row) == len(leaf.stop_row) == len(pages)


def test_a_task_with_a_filter_is_left_whole(task: ScanTask) -> None:
    filtered = replace(task, certain=RowSelection.of([(5, 6)]))
    assert filtered.needs_filter
    assert truncate_task(filtered, 1) is filtered


def test_what_it_says_of_itself(task: ScanTask) -> None:
    assert (task.path, task.needs_filter, task.reads_whole_chunks) == ("f", False, False)
    assert task.nbytes == sum(int(reads.size.sum()) for reads in task.reads)
    assert (
        repr(task) == f"ScanTask(TaskFile('f', {len(DATA)} bytes), row group 0, 41 rows, {task.nbytes} bytes)"
    )


HELD = ((100, memoryview(bytes(range(50)))), (10, memoryview(b"0123456789")))


@pytest.mark.parametrize(
    ("wanted", "missing", "asked", "whole"),
    [
        pytest.param((100, 150), None, None, bytes(range(50)), id="all"),
        pytest.param((120, 130), None, None, bytes(range(20, 30)), id="within"),
        pytest.param((12, 15), None, None, b"234", id="another piece"),
        pytest.param((90, 110), (90, 100), b"x" * 10, b"x" * 10 + bytes(range(10)), id="the end"),
        pytest.param((0, 10), (0, 10), b"y" * 10, b"y" * 10, id="before"),
        pytest.param((140, 160), (140, 160), b"z" * 20, b"z" * 20, id="the beginning is no use"),
    ],
)
def test_bytes_loaded(
    task: ScanTask,
    wanted: tuple[int, int],
    missing: tuple[int, int] | None,
    asked: bytes | None,
    whole: bytes,
) -> None:
    file = replace(task.file, loaded=HELD)
    assert file.missing(ByteRange(*wanted)) == (None if missing is None else ByteRange(*missing))
    assert file.complete(ByteRange(*wanted), None if asked is None else memoryview(asked)) == whole


@pytest.mark.parametrize(
    ("wanted", "missing"),
    [
        pytest.param((20, 30), None, id="in several, and the first of them has all"),
        pytest.param((5, 30), (5, 10), id="as much as there is"),
        pytest.param((20, 60), (20, 25), id="beyond the first"),
        pytest.param((60, 70), (60, 70), id="beyond all"),
    ],
)
def test_bytes_loaded_twice(task: ScanTask, wanted: tuple[int, int], missing: tuple[int, int] | None) -> None:
    data = bytes(range(60))
    spans = [(25, 60), (10, 40), (20, 35)]
    file = replace(task.file, loaded=tuple((a, memoryview(data[a:b])) for a, b in spans))
    want, rest = ByteRange(*wanted), None if missing is None else ByteRange(*missing)
    assert file.missing(want) == rest
    if want.end <= 60:
        asked = None if rest is None else memoryview(data[rest.start : rest.end])
        assert file.complete(want, asked) == data[want.start : want.end]


class Looked:
    """Bytes that count how often they are asked for their length."""

    count = 0

    def __len__(self) -> int:
        Looked.count += 1
        return 10


def test_of_many_bytes_loaded_few_are_looked_at(task: ScanTask) -> None:
    # Chunks without an offset index that are cut when read: of 10,000 columns so many.
    held = tuple((at, Looked()) for at in range(0, 20_000, 20))
    file = replace(task.file, loaded=held)
    before = Looked.count
    assert [file.missing(ByteRange(at, at + 10)) for at, _ in held] == [None] * len(held)
    assert Looked.count - before <= 10 * len(held)


def test_bytes_that_nobody_asked_for(task: ScanTask) -> None:
    with pytest.raises(ValueError, match="bytes 0..9 is neither loaded nor wanted"):
        replace(task.file, loaded=HELD).complete(ByteRange(0, 9), None)


# -- adjacent tasks ---------------------------------------------------------------------------------


KIB = 1024
ALL = RowSelection.all(ROWS)


def task_adjacent_tasks(*leaves: LeafReads) -> ScanTask:
    return ScanTask(None, 0, ROWS, ALL, ALL, leaves)  # type: ignore[arg-type]


def pages(start: int, nbytes: int, *, dictionary: int | None = None) -> LeafReads:
    """Of a chunk two pages from `start` on, `nbytes` long together; its dictionary."""
    found = reads(leaf=0, first_rows=[0, 50], rows=ALL, start=start, page_bytes=nbytes // 2)
    place = None if dictionary is None else ByteRange(dictionary, dictionary + 10)
    return replace(found, dictionary=place)


def chunk(start: int, nbytes: int) -> LeafReads:
    return replace(whole(leaf=0), chunk=ByteRange(start, start + nbytes))


@pytest.mark.parametrize(
    ("tasks", "found"),
    [
        pytest.param([], [], id="none"),
        pytest.param([task_adjacent_tasks(pages(0, 100))], [1], id="one"),
        pytest.param(
            [task_adjacent_tasks(pages(i * 100, 100)) for i in range(9)], [9], id="small ones side by side"
        ),
        pytest.param(
            [task_adjacent_tasks(pages(i * 10, 10)) for i in range(150)],
            [64, 64, 22],
            id="no more than so many",
        ),
        pytest.param(
            [task_adjacent_tasks(chunk(i * 100, 100)) for i in range(9)], [9], id="without an offset index"
        ),
        pytest.param(
            [task_adjacent_tasks(pages(i * 200 * KIB, 200 * KIB)) for i in range(5)],
            [2, 2, 1],
            id="up to a request",
        ),
        pytest.param(
            [task_adjacent_tasks(pages(i << 20, 100)) for i in range(3)], [1, 1, 1], id="small ones far apart"
        ),
        pytest.param(
            [
                task_adjacent_tasks(pages(0, 100)),
                task_adjacent_tasks(pages(100, 600 * KIB)),
                task_adjacent_tasks(pages(700 * KIB, 100)),
            ],
            [1, 1, 1],
            id="a large one between",
        ),
        pytest.param(
            [
                task_adjacent_tasks(pages(0, 100)),
                task_adjacent_tasks(),
                task_adjacent_tasks(pages(100, 100)),
                task_adjacent_tasks(pages(200, 100)),
            ],
            [1, 1, 2],
            id="one that reads nothing",
        ),
        pytest.param(
            [task_adjacent_tasks(pages(i * 100, 100), pages((1 << 20) + i, 100)) for i in range(3)],
            [1, 1, 1],
            id="columns far apart",
        ),
        pytest.param(
            [task_adjacent_tasks(pages((1 << 20) + i * 100, 100, dictionary=i)) for i in range(3)],
            [1, 1, 1],
            id="dictionaries far away",
        ),
        pytest.param(
            [task_adjacent_tasks(pages((9 - i) * 100, 100)) for i in range(9)],
            [9],
            id="backwards in the file",
        ),
    ],
)
def test_neighbours(tasks: list[ScanTask], found: list[int]) -> None:
    together = list(adjacent_tasks(tasks))
    assert [len(some) for some in together] == found
    assert [one for some in together for one in some] == tasks


# -- task check -------------------------------------------------------------------------------------


TOP = 2**63 - 1
Row = dict[str, Any]


@cache
def planned(*, page_index: bool = True) -> pa.RecordBatch:
    """One task: rows 10..40 of 40, of which 20..40 are in no doubt; two columns of four pages."""
    columns = table(k=pa.array(range(40)), s=pa.array([f"s{n % 3}" for n in range(40)]))
    data = write_file(columns, Layout(group_rows=40, page_rows=10, page_index=page_index, dictionary=["s"]))
    store = DictStore({"f": data})
    (batch,) = accel.plan("f", "k >= 14", store=store, cache=None).to_arrow().to_batches()
    return batch


def changed(change: Callable[[Row], Any], **how: bool) -> pa.RecordBatch:
    row = planned(**how).to_pylist()[0]
    change(row)
    return pa.RecordBatch.from_pylist([row | {"checksum": checksum_of(row)}], schema=TASK_ARROW_SCHEMA)


def put(name: str, value: Any, *, leaf: int | None = None) -> Callable[[Row], Any]:
    return lambda row: (row if leaf is None else row["leaves"][leaf]).update({name: value})


def test_what_was_planned_is_fine() -> None:
    (task,) = decode_tasks(planned())
    assert list(task.rows) == [(10, 40)]
    (task,) = decode_tasks(changed(lambda row: None, page_index=False))
    assert task.reads_whole_chunks


@pytest.mark.parametrize(
    ("change", "text"),
    [
        pytest.param(put("row_group", -1), "names no row group", id="row group"),
        pytest.param(put("num_rows", -1), "names no row group", id="no rows"),
        pytest.param(put("num_rows", 2**62), "names no row group", id="too many rows"),
        pytest.param(put("num_rows", 39), "not some of the 39", id="fewer rows"),
        pytest.param(put("path", None), "names no row group", id="no path"),
        pytest.param(put("row_starts", []), "not some of the 40", id="no starts"),
        pytest.param(put("row_starts", [-1]), "not some of the 40", id="a negative row"),
        pytest.param(put("row_stops", [TOP]), "not some of the 40", id="a row far away"),
        pytest.param(put("row_stops", [10]), "not some of the 40", id="an empty range"),
        pytest.param(
            lambda row: row.update(row_starts=[10, 12], row_stops=[13, 40]), "not some of", id="overlapping"
        ),
        pytest.param(put("row_starts", [21]), "is certain of rows", id="certain of others"),
        pytest.param(put("row_starts", [9]), "reads no page of rows", id="rows without pages"),
        pytest.param(lambda row: row["leaves"].pop(), "columns of its result", id="a column less"),
        pytest.param(lambda row: row["leaves"].reverse(), "not in order", id="columns the other way round"),
        pytest.param(put("column", 1, leaf=0), "not in order", id="a column twice"),
        pytest.param(put("for_output", False, leaf=1), "columns of its result", id="not for the result"),
        pytest.param(put("for_filter", False, leaf=0), "columns of its filter", id="not for the filter"),
        pytest.param(put("for_filter", True, leaf=1), "columns of its filter", id="no column of the filter"),
        pytest.param(put("dictionary_end", TOP, leaf=1), "outside its file", id="a dictionary outside"),
        pytest.param(put("expansion", float("nan"), leaf=0), "no number of values", id="NaN"),
        pytest.param(put("expansion", float("inf"), leaf=0), "no number of values", id="without end"),
        pytest.param(put("num_values", -1, leaf=0), "no number of values", id="fewer than no values"),
        pytest.param(put("dictionary_pages", -2, leaf=1), "miscounts", id="dictionary pages"),
        pytest.param(put("total_pages", 0, leaf=0), "miscounts", id="read whole, and pages"),
        pytest.param(put("total_pages", 3, leaf=0), "miscounts", id="pages beyond the last"),
        pytest.param(put("ordinal", [1, 1, 2], leaf=0), "miscounts", id="a page twice"),
        pytest.param(put("offset", [0, 1, 2], leaf=0), "outside their chunk", id="pages before the chunk"),
        pytest.param(put("size", [0, 1, 1], leaf=0), "outside their chunk", id="an empty page"),
        pytest.param(put("size", [TOP, 1, 1], leaf=0), "overlap", id="a page larger than anything"),
        pytest.param(
            lambda row: row["leaves"][0]["size"].__setitem__(0, row["leaves"][0]["size"][0] + 1),
            "overlap",
            id="pages that overlap",
        ),
        pytest.param(put("stop_row", [20, 30, 41], leaf=0), "does not have", id="rows beyond the last"),
        pytest.param(put("first_row", [10, 19, 30], leaf=0), "of several pages", id="a row of two pages"),
        pytest.param(put("first_row", [10, 21, 30], leaf=0), "reads no page of rows", id="a row of no page"),
    ],
)
def test_numbers_that_are_wrong_are_refused(change: Callable[[Row], Any], text: str) -> None:
    with pytest.raises(ParquetFormatError, match=text):
        list(decode_tasks(changed(change)))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(put("num_rows", None), id="no number of rows"),
        pytest.param(put("row_starts", [None]), id="no row"),
        pytest.param(put("expansion", None, leaf=0), id="no expansion"),
        pytest.param(put("chunk_start", -1, leaf=0), id="a chunk before the file"),
        pytest.param(put("dictionary_start", TOP, leaf=1), id="a dictionary that ends before it begins"),
    ],
)
def test_what_is_missing_is_told(change: Callable[[Row], Any]) -> None:
    with pytest.raises(accel.AccelError, match="a scan task does not decode"):
        list(decode_tasks(changed(change)))
