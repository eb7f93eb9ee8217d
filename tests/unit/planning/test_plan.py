"""Plans: what they are made of, how they travel, what they say."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.planning.task_arrow import TASK_ARROW_SCHEMA
from accel.testing import DictStore, Layout, table, write_file

STORE = DictStore({"f": write_file(table(x=pa.array(np.arange(600))), Layout(group_rows=2, page_rows=2))})


def test_a_plan_of_many_tasks() -> None:
    plan = accel.plan("f", store=STORE)
    assert (len(plan), len(plan.tasks), repr(plan)) == (300, 300, "Plan(300 tasks, 600 rows)")
    assert [batch.num_rows for batch in plan] == [256, 44]
    sent = plan.to_arrow()
    assert (sent.num_rows, sent.schema.remove_metadata()) == (300, TASK_ARROW_SCHEMA)
    for back in (accel.Plan.from_arrow(sent), pickle.loads(pickle.dumps(plan))):
        assert [t.row_group for t in back.tasks] == list(range(300))
        assert back.schema == plan.schema


def test_a_plan_is_made_of_tasks() -> None:
    with pytest.raises(TypeError, match="not of a int"):
        accel.Plan([1], schema=pa.schema([]))  # type: ignore[list-item]


def test_a_batch_ends_before_it_holds_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """A predicate of megabytes is in every row, and a column of a batch holds 2 GiB."""
    plan = accel.plan("f", accel.col("x").isin(np.arange(0, 600, 2)), store=STORE)
    row = sum(len(value) for value in plan.to_arrow().to_pylist()[0].values() if isinstance(value, bytes))
    monkeypatch.setattr("accel.planning.plan._BATCH_BYTES", 100 * row + row // 2)
    assert [batch.num_rows for batch in plan] == [100, 100, 100]
    monkeypatch.setattr("accel.planning.plan._BATCH_BYTES", 1)
    assert [batch.num_rows for batch in plan] == [1] * 300
    assert accel.scan(accel.Plan.from_arrow(plan.to_arrow()), store=STORE).count_rows() == 300


def test_a_plan_without_tasks_keeps_its_schema() -> None:
    plan = accel.plan("f", "x = -1", store=STORE)
    assert (len(plan), plan.question) == (0, None)
    want = pa.schema([("x", pa.int64())])
    for back in (plan, accel.Plan.from_arrow(plan.to_arrow()), pickle.loads(pickle.dumps(plan))):
        assert (back.schema, len(back)) == (want, 0)
        found = accel.scan(back, store=STORE)
        assert found.to_table() == want.empty_table()
        assert found.count_rows() == 0
        assert found.schema == want


def test_explained_where_it_was_planned() -> None:
    plan = accel.plan("f", "x < 4", store=STORE)
    assert plan.explain().rows == (4, 600)
    assert pickle.loads(pickle.dumps(plan)).explain() == plan.explain()
    with pytest.raises(accel.AccelError, match="does not know how it came about"):
        accel.Plan.from_arrow(plan.to_arrow()).explain()


def test_keys_that_no_literal_can_hold_travel_in_plans() -> None:
    moments = pa.array([-(2**62), 0], pa.timestamp("ms"))
    store = DictStore({"f": write_file(pa.table({"a": moments}))})
    where = accel.col("a").isin(moments)
    plan = accel.plan("f", where, store=store)
    sent = pickle.loads(pickle.dumps(plan))
    shown = f"a IN ({-(2**62)} timestamp[ms], TIMESTAMP '1970-01-01 00:00:00')"
    assert (sent.explain().where, repr(where)) == (shown, f"<{shown}>")
    for back in (plan, sent, accel.Plan.from_arrow(plan.to_arrow())):
        assert accel.scan(back, store=store).to_table()["a"].cast(pa.int64()).to_pylist() == [-(2**62), 0]


def test_tables_that_are_no_plans() -> None:
    for data in (table(x=[1]), table(version=[99])):
        with pytest.raises(accel.AccelError, match="not a scan task of version"):
            accel.Plan.from_arrow(data)


@pytest.mark.parametrize("rows", [10, 200_000], ids=["all of it at hand", "more than the first read brings"])
def test_a_task_pickles_whatever_is_at_hand(rows: int) -> None:
    store = DictStore({"f.parquet": write_file(table(i=pa.array(range(rows))))})
    (task,) = accel.plan("f.parquet", "i = 7", store=store).tasks
    assert accel.scan(pickle.loads(pickle.dumps(task)), store=store).to_table()["i"].to_pylist() == [7]
