"""What a task comes to: kept the second time that it is asked for, found the third, and by nobody else."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import accel
from accel.cache.result_tier import ResultCacheEntry
from accel.planning.pages import Piece
from accel.planning.selection import RowSelection
from accel.ranges import ObjectId
from tests.unit.planning.test_question_keys import Task

ROWS = 10
ALL, NONE = RowSelection.all(ROWS), RowSelection.none()
FOUND = [pa.record_batch({"a": [3], "b": ["x"]})]


class Handle:
    """Of a `FileHandle` what is looked at."""

    distrusted = False
    predicate_cache: Any = None


def entry(
    cache: accel.Cache, *, where: str = "i = 1", token: str = "t", handle: Any = None, **changed: Any
) -> ResultCacheEntry:
    task: Any = Task(0, where=where)
    task.id, task.num_rows, task.rows, task.sure = ObjectId("f", 100, "e1"), ROWS, ALL, NONE
    for name, value in changed.items():
        setattr(task, name, value)
    return ResultCacheEntry(task, cache.result_tier, token=token, handle=handle or Handle(), batch_rows=100)


def piece(start: int = 0, stop: int = ROWS) -> Piece:
    return Piece(ALL.within(start, stop), NONE, (), start, stop)


def ask(one: ResultCacheEntry) -> Any:
    """What is kept, or is now, if it may be."""
    kept = one.get_piece(piece())
    if kept is None:
        one.put(piece(), FOUND)
    return kept if kept is None else list(kept)


def test_from_the_third_time_on() -> None:
    cache = accel.Cache()
    assert [ask(entry(cache)) for _ in range(4)] == [None, None, FOUND, FOUND]
    cache.clear()
    assert [ask(entry(cache)) for _ in range(3)] == [None, None, FOUND]


def test_it_is_looked_for_once() -> None:
    cache = accel.Cache()
    one = entry(cache)
    assert [one.get() for _ in range(3)] == [None] * 3
    assert ask(entry(cache)) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"where": "i = 2"},
        {"token": "u"},
        {"id": ObjectId("f", 100, "e2")},
        {"id": ObjectId("g", 100, "e1")},
        {"row_group": 1},
        {"rows": ALL.within(0, 9)},
        {"sure": ALL.within(0, 1)},
    ],
    ids=["predicate", "credentials", "version", "file", "row group", "rows", "sure"],
)
def test_by_nobody_else(changed: dict[str, Any]) -> None:
    cache = accel.Cache()
    for _ in range(3):
        ask(entry(cache))
    assert ask(entry(cache, **changed)) is None
    assert ask(entry(cache)) == FOUND


def test_a_part_is_neither_kept_nor_found() -> None:
    cache = accel.Cache()
    for _ in range(3):
        one = entry(cache)
        assert one.get_piece(piece(0, 5)) is None
        one.put(piece(0, 5), FOUND)
        one.put(piece(5, ROWS), FOUND)
    assert entry(cache).get() is None
    one = entry(cache)
    assert one.get() is None
    one.put(piece(), FOUND)
    assert entry(cache).get() is not None
    assert entry(cache).get_piece(piece(0, 5)) is None


def test_not_where_an_index_lies() -> None:
    liar = Handle()
    liar.distrusted = True
    cache = accel.Cache()
    for _ in range(3):
        ask(entry(cache))
    assert entry(cache, handle=liar).get() is None


def test_rows_of_a_remembered_predicate_are_kept_at_once() -> None:
    knowing = Handle()
    knowing.predicate_cache = object()
    cache = accel.Cache()
    assert [ask(entry(cache, handle=knowing, sure=ALL)) for _ in range(2)] == [None, FOUND]
    # What is in doubt may be asked for once only, whatever is remembered of others.
    cache = accel.Cache()
    assert [ask(entry(cache, handle=knowing)) for _ in range(3)] == [None, None, FOUND]
