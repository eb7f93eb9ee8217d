"""What a task comes to: kept the second time that it is asked for, found the third, and by nobody else."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import accel
from accel.planning.file import ObjectId
from accel.planning.pages import Piece
from accel.planning.selection import RowSelection
from accel.reader.kept_outcome import KeptOutcome
from tests.unit.planning.test_question_keys import Task

ROWS = 10
ALL, NONE = RowSelection.all(ROWS), RowSelection.none()
FOUND = [pa.record_batch({"a": [3], "b": ["x"]})]


class Handle:
    """Of a `FileHandle` what is looked at."""

    distrusted = False
    remembered: Any = None


def outcome(
    cache: accel.Cache, *, where: str = "i = 1", token: str = "t", handle: Any = None, **changed: Any
) -> KeptOutcome:
    task: Any = Task(0, where=where)
    task.id, task.num_rows, task.rows, task.sure = ObjectId("f", 100, "e1"), ROWS, ALL, NONE
    for name, value in changed.items():
        setattr(task, name, value)
    return KeptOutcome(task, cache, token=token, handle=handle or Handle(), batch_rows=100)


def piece(start: int = 0, stop: int = ROWS) -> Piece:
    return Piece(ALL.within(start, stop), NONE, (), start, stop)


def ask(one: KeptOutcome) -> Any:
    """What is kept, or is now, if it may be."""
    kept = one.recall_piece(piece())
    if kept is None:
        one.keep(piece(), FOUND)
    return kept if kept is None else list(kept)


def test_from_the_third_time_on() -> None:
    cache = accel.Cache()
    assert [ask(outcome(cache)) for _ in range(4)] == [None, None, FOUND, FOUND]
    cache.clear()
    assert [ask(outcome(cache)) for _ in range(3)] == [None, None, FOUND]


def test_it_is_looked_for_once() -> None:
    cache = accel.Cache()
    one = outcome(cache)
    assert [one.recall() for _ in range(3)] == [None] * 3
    assert ask(outcome(cache)) is None


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
        ask(outcome(cache))
    assert ask(outcome(cache, **changed)) is None
    assert ask(outcome(cache)) == FOUND


def test_a_part_is_neither_kept_nor_found() -> None:
    cache = accel.Cache()
    for _ in range(3):
        one = outcome(cache)
        assert one.recall_piece(piece(0, 5)) is None
        one.keep(piece(0, 5), FOUND)
        one.keep(piece(5, ROWS), FOUND)
    assert outcome(cache).recall() is None
    one = outcome(cache)
    assert one.recall() is None
    one.keep(piece(), FOUND)
    assert outcome(cache).recall() is not None
    assert outcome(cache).recall_piece(piece(0, 5)) is None


def test_not_where_an_index_lies_or_no_data_is_kept() -> None:
    liar = Handle()
    liar.distrusted = True
    cache = accel.Cache()
    for _ in range(3):
        ask(outcome(cache))
    assert outcome(cache, handle=liar).recall() is None
    nothing = accel.Cache(data=0)
    assert [ask(outcome(nothing)) for _ in range(4)] == [None] * 4


def test_rows_of_a_remembered_predicate_are_kept_at_once() -> None:
    knowing = Handle()
    knowing.remembered = object()
    cache = accel.Cache()
    assert [ask(outcome(cache, handle=knowing, sure=ALL)) for _ in range(2)] == [None, FOUND]
    # What is in doubt may be asked for once only, whatever is remembered of others.
    cache = accel.Cache()
    assert [ask(outcome(cache, handle=knowing)) for _ in range(3)] == [None, None, FOUND]
