"""Which row groups are read together: those side by side, as long as one request brings them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from accel.planning.pages import LeafReads
from accel.planning.selection import RowSelection
from accel.planning.task import ScanTask, adjacent_tasks
from accel.ranges import ByteRange
from tests.unit.planning.test_pages import ROWS, reads, whole

KIB = 1024
ALL = RowSelection.all(ROWS)


def task(*leaves: LeafReads) -> ScanTask:
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
        pytest.param([task(pages(0, 100))], [1], id="one"),
        pytest.param([task(pages(i * 100, 100)) for i in range(9)], [9], id="small ones side by side"),
        pytest.param([task(pages(i * 10, 10)) for i in range(150)], [64, 64, 22], id="no more than so many"),
        pytest.param([task(chunk(i * 100, 100)) for i in range(9)], [9], id="without an offset index"),
        pytest.param(
            [task(pages(i * 200 * KIB, 200 * KIB)) for i in range(5)], [2, 2, 1], id="up to a request"
        ),
        pytest.param([task(pages(i << 20, 100)) for i in range(3)], [1, 1, 1], id="small ones far apart"),
        pytest.param(
            [task(pages(0, 100)), task(pages(100, 600 * KIB)), task(pages(700 * KIB, 100))],
            [1, 1, 1],
            id="a large one between",
        ),
        pytest.param(
            [task(pages(0, 100)), task(), task(pages(100, 100)), task(pages(200, 100))],
            [1, 1, 2],
            id="one that reads nothing",
        ),
        pytest.param(
            [task(pages(i * 100, 100), pages((1 << 20) + i, 100)) for i in range(3)],
            [1, 1, 1],
            id="columns far apart",
        ),
        pytest.param(
            [task(pages((1 << 20) + i * 100, 100, dictionary=i)) for i in range(3)],
            [1, 1, 1],
            id="dictionaries far away",
        ),
        pytest.param([task(pages((9 - i) * 100, 100)) for i in range(9)], [9], id="backwards in the file"),
    ],
)
def test_neighbours(tasks: list[ScanTask], found: list[int]) -> None:
    together = list(adjacent_tasks(tasks))
    assert [len(some) for some in together] == found
    assert [one for some in together for one in some] == tasks
