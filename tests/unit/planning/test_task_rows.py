"""What all rows of a table of tasks share, taken out of them and put back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.planning.task_arrow import decode_tasks, encode_tasks, join_rows, rows_of, take_out
from accel.testing import DictStore, Layout, table, write_file

STORE = DictStore(
    {
        name: write_file(table(x=pa.array(np.arange(600))), Layout(group_rows=200, page_rows=20))
        for name in "ab"
    }
)
KEYS = np.arange(30_000) * 7
SHARED = ["where", "data_schema", "output_schema"]


def planned(where: object = None) -> accel.Plan:
    return accel.plan(["a", "b"], where, store=STORE, cache=None)


def test_a_long_predicate_is_sent_once() -> None:
    plan = planned(accel.col("x").isin(KEYS))
    (whole,) = plan
    (cut,), shared = take_out(plan)
    assert whole.num_rows == 6
    assert list(shared) == SHARED
    assert [cut.column(name).null_count for name in SHARED] == [6, 6, 6]
    # Three bytes say that six rows of three columns are null.
    assert cut.nbytes == whole.nbytes - 6 * sum(map(len, shared.values())) + 3
    joined = join_rows(cut, shared)
    assert rows_of(joined) == whole.to_pylist()
    found = accel.scan(iter([joined]), store=STORE, cache=None).to_table().to_pydict()
    assert found == {"x": 2 * list(range(0, 600, 7))}


def test_a_short_one_stays_in_its_rows() -> None:
    plan = planned("x < 9")
    batches, shared = take_out(plan)
    assert (batches, shared) == (list(plan), {})
    assert take_out(planned("x < 0")) == (list(planned("x < 0")), {})


def test_rows_that_differ_keep_their_own() -> None:
    first, second = (encode_tasks(planned(accel.col("x").isin(keys)).tasks) for keys in (KEYS, KEYS[1:]))
    mixed = pa.concat_batches([first, second])
    (same, other, both), shared = take_out([first, second, mixed])
    assert [batch.column("where").null_count for batch in (same, other, both)] == [6, 0, 0]
    assert rows_of(join_rows(both, shared)) == mixed.to_pylist()


def test_without_what_was_taken_out_they_are_damaged() -> None:
    (cut,), shared = take_out(planned(accel.col("x").isin(KEYS)))
    for wrong in (shared | {"where": shared["where"][:-1]}, {}):
        with pytest.raises(accel.AccelError, match="a scan task is damaged: its checksum is another"):
            list(decode_tasks(join_rows(cut, wrong)))


def test_files_share_their_question_and_their_schema() -> None:
    plan = planned(accel.col("x").isin(KEYS))
    tasks = list(decode_tasks(encode_tasks(plan.tasks)))
    assert [task.path for task in tasks] == ["a"] * 3 + ["b"] * 3
    assert len({id(task.file) for task in tasks}) == 2
    assert len({id(task.file.question) for task in tasks}) == 1
    assert len({id(task.file.schema) for task in tasks}) == 1
    assert len({id(task.file.query) for task in tasks}) == 1
