"""Which rows of tasks are answered, and which tasks are left: over files in memory, without a store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.planning.aggregates import Aggregates, check_aggregates, resolve_aggregates
from accel.planning.metadata_answers import MEASURES_KEY, RemainingReads, narrow_tasks, remaining_tasks
from accel.planning.selection import RowSelection
from accel.planning.task import ScanTask
from accel.testing import DictStore, Layout, table, write_file

ROWS = 100


def task_of(where: str, columns: list[str], **layout: Any) -> ScanTask:
    """One task over 100 rows: `key` ascends, pages of 10; `wide` has pages of its own."""
    rows = table(
        key=pa.array(np.arange(ROWS)),
        x=pa.array(np.arange(ROWS) * 2),
        y=pa.array(np.arange(ROWS) * 3),
        st=pa.array([{"a": i, "b": str(i)} for i in range(ROWS)]),
    )
    data = write_file(rows, Layout(page_rows=10, dictionary=False, **layout))
    plan = accel.plan("f", where, columns=columns, store=DictStore({"f": data}), cache=None)
    (task,) = plan.tasks
    return task


def resolve(task: ScanTask, *asked: tuple[Any, str]) -> Aggregates:
    return resolve_aggregates(check_aggregates(asked), task.file.query.output)


def spans(rows: RowSelection) -> list[tuple[int, int]]:
    return list(rows)


def shape(tasks: list[ScanTask]) -> Iterator[tuple[Any, ...]]:
    """What each task reads: names, rows, rows known to match, and pages by leaf."""
    for task in tasks:
        pages = {reads.leaf: reads.ordinal.tolist() for reads in task.reads}
        yield task.file.query.output.names, spans(task.rows), spans(task.certain), pages


def leftover(aggregates: Aggregates, **leaves: int) -> RemainingReads:
    ordinals = {
        aggregates.measures.index(m): leaves[m.path[0]] for m in aggregates.measures if m.path[0] in leaves
    }
    return RemainingReads(aggregates, leaves=ordinals, by_rows=(), constants=(), absent=())


def test_without_metadata_rows_are_counted_and_the_rest_is_read() -> None:
    task = task_of("key >= 15 AND key < 50", ["x"])
    answer = narrow_tasks([task], resolve(task, ([], "count_all")))
    assert answer.rows == 30
    assert list(shape(answer.tasks)) == [([], [(10, 20)], [], {0: [1]})]
    answer = narrow_tasks([task], resolve(task, ([], "count_all"), ("x", "sum")))
    assert answer.rows == 0
    assert list(shape(answer.tasks)) == [(["x"], [(10, 50)], [(20, 50)], {0: [1], 1: [1, 2, 3, 4]})]


def test_what_is_answered_is_not_read() -> None:
    task = task_of("key >= 15 AND key < 50", ["x", "y"])
    aggregates = resolve(task, ("x", "sum"), ("y", "max"))
    left = leftover(aggregates, x=1, y=2)
    answered = {0: RowSelection.of([(20, 50)]), 1: RowSelection.of([(30, 50)])}
    read = left.rows_to_read(task, answered, unknown=())
    assert {o: spans(rows) for o, rows in read.items()} == {0: [(10, 20)], 1: [(10, 30)]}
    tasks = remaining_tasks(left, task, read=read)
    assert sorted(shape(tasks)) == [
        (["x", "y"], [(10, 20)], [], {0: [1], 1: [1], 2: [1]}),
        (["y"], [(20, 30)], [(20, 30)], {2: [2]}),
    ]
    told = {(task.file.query.output.metadata or {})[MEASURES_KEY] for task in tasks}
    assert told == {b"0,1;", b"1;"}
    nothing = left.rows_to_read(
        task_of("key < 50", ["x", "y"]), dict.fromkeys((0, 1), task.rows.invert(0)), unknown=()
    )
    assert nothing.keys() == {0, 1}


def test_a_chunk_without_pages_is_read_once_or_not_at_all() -> None:
    task = task_of("key >= 15 AND key < 50", ["x", "y"], page_index=False)
    aggregates = resolve(task, ("x", "sum"), ("y", "max"))
    left = leftover(aggregates, x=1, y=2)
    read = left.rows_to_read(task, {0: RowSelection.of([(20, 50)])}, unknown=())
    assert spans(read[0]) == spans(read[1]) == spans(task.rows) == [(0, ROWS)]
    read = left.rows_to_read(task, {0: task.rows}, unknown=())
    assert (spans(read[0]), spans(read[1])) == ([], [(0, ROWS)])


def test_many_kinds_of_rows_are_read_together() -> None:
    task = task_of("key >= 0", ["x"])
    asked = [("x", "sum"), ("x", "min")]
    aggregates = resolve(task, *asked)
    many = Aggregates(aggregates.requested, aggregates.measures * 12, aggregates.of, aggregates.schema)
    left = RemainingReads(many, leaves=dict.fromkeys(range(12), 1), by_rows=(), constants=(), absent=())
    answered = {o: RowSelection.of([(10 * o, 100)]) for o in range(1, 10)}
    read = left.rows_to_read(task, answered, unknown=())
    assert {tuple(spans(rows)) for rows in read.values()} == {((0, ROWS),)}


@pytest.mark.parametrize(
    ("asked", "columns", "wanted"),
    [
        ((("st.a", "sum"),), ["st"], pa.struct([("a", pa.int64())])),
        ((("st.a", "sum"), ("st.b", "max")), ["st"], pa.struct([("a", pa.int64()), ("b", pa.string())])),
    ],
)
def test_structs_are_read_as_far_as_they_are_asked_for(
    asked: tuple[Any, ...], columns: list[str], wanted: pa.DataType
) -> None:
    task = task_of("key >= 15 AND key < 50", columns)
    answer = narrow_tasks([task], resolve(task, *asked))
    (left,) = answer.tasks
    assert left.file.query.output.field("st").type == wanted
    assert len(left.file.query.output_leaves) == wanted.num_fields
