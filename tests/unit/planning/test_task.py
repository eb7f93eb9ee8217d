"""Tasks cut to a limit; bytes that are at hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.planning.selection import RowSelection
from accel.planning.task import ScanTask, truncate_task
from accel.ranges import ByteRange
from accel.testing import DictStore, Layout, table, write_file

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
    assert list(cut.rows) == list(cut.sure) == rows
    for reads in cut.reads:
        assert reads.ordinal.tolist() == pages
        assert (
            len(reads.offset) == len(reads.size) == len(reads.first_row) == len(reads.stop_row) == len(pages)
        )


def test_a_task_with_a_filter_is_left_whole(task: ScanTask) -> None:
    filtered = replace(task, sure=RowSelection.of([(5, 6)]))
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
def test_bytes_at_hand(
    task: ScanTask,
    wanted: tuple[int, int],
    missing: tuple[int, int] | None,
    asked: bytes | None,
    whole: bytes,
) -> None:
    file = replace(task.file, at_hand=HELD)
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
def test_bytes_at_hand_twice(
    task: ScanTask, wanted: tuple[int, int], missing: tuple[int, int] | None
) -> None:
    data = bytes(range(60))
    spans = [(25, 60), (10, 40), (20, 35)]
    file = replace(task.file, at_hand=tuple((a, memoryview(data[a:b])) for a, b in spans))
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


def test_of_many_bytes_at_hand_few_are_looked_at(task: ScanTask) -> None:
    # Chunks without an offset index that are cut when read: of 10,000 columns so many.
    held = tuple((at, Looked()) for at in range(0, 20_000, 20))
    file = replace(task.file, at_hand=held)
    before = Looked.count
    assert [file.missing(ByteRange(at, at + 10)) for at, _ in held] == [None] * len(held)
    assert Looked.count - before <= 10 * len(held)


def test_bytes_that_nobody_asked_for(task: ScanTask) -> None:
    with pytest.raises(ValueError, match="bytes 0..9 is neither at hand nor was it asked for"):
        replace(task.file, at_hand=HELD).complete(ByteRange(0, 9), None)
