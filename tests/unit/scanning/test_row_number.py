"""`row_number=`: the number of each row in its file as a column, in all that a scan is used for."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa
import pytest

import accel
from accel.planning.task_arrow import decode_tasks
from accel.testing import DictStore, Layout, RecordingStore, table, write_file

ROWS = 5000


def file_of(at: int) -> bytes:
    # `n` is in no order: a predicate over it leaves rows of many pages.
    rows = table(
        id=list(range(at * ROWS, (at + 1) * ROWS)),
        n=[(row * 7919) % 101 for row in range(ROWS)],
        text=[f"text {row}" for row in range(ROWS)],
    )
    return write_file(rows, Layout(group_rows=1200, page_rows=100))


FILES = {f"d/{at}.parquet": file_of(at) for at in range(2)}
SMALL = {
    "d/0.parquet": write_file(
        table(id=list(range(60)), n=[row % 3 for row in range(60)]), Layout(group_rows=4)
    )
}


def ask(files: Any, where: Any = None, **keywords: Any) -> accel.Scan:
    store = RecordingStore(DictStore(files))
    return accel.scan("d/", where, store=store, **{"row_number": "row", "cache": None, **keywords})


def test_it_is_the_last_column() -> None:
    scan = ask(FILES, file_path="file")
    assert scan.schema.names == ["id", "n", "text", "file", "row"]
    assert scan.schema.field("row").type == pa.int64()
    found = scan.to_table()
    assert found["row"].to_pylist() == [*range(ROWS), *range(ROWS)]
    assert found["id"].to_pylist() == list(range(2 * ROWS))


@pytest.mark.parametrize(
    "where", ["n = 17", "id >= 4900 AND id < 5100", "id = 2401 OR n = 3", "text LIKE '%99'", "id < 0"]
)
@pytest.mark.parametrize("phases", ["one", "two"])
def test_rows_that_are_left_out_count(where: str, phases: str) -> None:
    options = accel.Options(phases=phases)
    found = ask(FILES, where, columns=["row", "id"], options=options).to_pylist()
    expected = ask(FILES, where, columns=["id"], row_number=None).to_table()["id"].to_pylist()
    assert found == [{"row": number % ROWS, "id": number} for number in expected]


@pytest.mark.parametrize("where", [None, "n = 1", "id >= 30"])
def test_small_row_groups_that_are_read_together(where: str | None) -> None:
    found = ask(SMALL, where).to_table()
    assert found["row"].to_pylist() == found["id"].to_pylist()


def test_it_may_be_all_that_is_read() -> None:
    assert ask(FILES, columns=["row"]).to_table()["row"].to_pylist() == [*range(ROWS), *range(ROWS)]
    assert (
        ask(FILES, "n = 17", columns=["row"], limit=3).to_table()["row"].to_pylist()
        == [row for row in range(ROWS) if (row * 7919) % 101 == 17][:3]
    )


def test_cached_results_are_those_of_the_same_question() -> None:
    cache = accel.Cache()
    where = "id = 2401"
    plain = partial(ask, FILES, where, cache=cache, columns=["id"])
    for _ in range(3):
        assert plain(row_number=None).to_pylist() == [{"id": 2401}]
        assert ask(FILES, where, cache=cache, columns=["id", "row"]).to_pylist() == [
            {"id": 2401, "row": 2401}
        ]
        assert ask(FILES, where, cache=cache, columns=["id", "at"], row_number="at").to_pylist() == [
            {"id": 2401, "at": 2401}
        ]


def test_aggregates_and_distinct_values_read_it() -> None:
    scan = ask(FILES, "n = 17")
    rows = scan.to_table()["row"]
    found = scan.aggregate([("row", "max"), ("row", "sum"), ("id", "count"), ([], "count_all")])
    assert found.to_pylist() == [
        {
            "row_max": max(rows.to_pylist()),
            "row_sum": sum(rows.to_pylist()),
            "id_count": len(rows),
            "count_all": len(rows),
        }
    ]
    assert ask(FILES).aggregate([("row", "max"), ("id", "max")]).to_pylist() == [
        {"row_max": ROWS - 1, "id_max": 2 * ROWS - 1}
    ]
    assert scan.distinct("row").to_pylist() == sorted(set(rows.to_pylist()))
    assert scan.count_rows() == len(rows)


def test_tasks_carry_it() -> None:
    store = DictStore(FILES)
    planned = accel.plan("d/", "n = 17", store=store, cache=None, row_number="row")
    expected = ask(FILES, "n = 17").to_table()
    assert accel.scan(planned, store=store, cache=None).to_table() == expected
    again = accel.Plan.from_arrow(planned.to_arrow())
    assert accel.scan(again, store=store, cache=None).to_table() == expected
    assert [task.first_row for task in again.tasks] == [0, 1200, 2400, 3600, 4800] * 2


def test_a_task_without_its_first_row_is_refused() -> None:
    planned = accel.plan("d/", store=DictStore(SMALL), cache=None, row_number="row")
    (batch, *_) = iter(planned)
    with pytest.raises(accel.AccelError, match="damaged"):
        list(decode_tasks(batch.set_column(6, batch.schema.field(6), pa.nulls(len(batch), pa.int32()))))


def test_deleted_and_selected_rows_keep_their_numbers() -> None:
    selection = {"d/0.parquet": {1: [(3, 5)], 4: [(0, 1)]}}
    found = ask(FILES, selection=selection, columns=["row"]).to_table()
    assert found["row"].to_pylist() == [1203, 1204, 4800]


def test_mapinarrow_takes_it() -> None:
    paths = pa.RecordBatch.from_pydict({"path": list(FILES)})
    scan = accel.scan(iter([paths]), store=DictStore(FILES), cache=None, row_number="row")
    assert pa.Table.from_batches(list(scan))["row"].to_pylist() == [*range(ROWS), *range(ROWS)]


@pytest.mark.parametrize("where", ["row = 3", "id = 1 AND row IS NULL"])
def test_no_predicate_names_it(where: str) -> None:
    with pytest.raises(accel.PredicateError, match=r"names 'row', which is the number"):
        ask(FILES, where)


def test_a_name_that_there_is_already_is_refused() -> None:
    with pytest.raises(accel.SchemaMismatchError, match="row_number adds a column 'id'"):
        ask(FILES, row_number="id").to_table()
    with pytest.raises(TypeError, match="row_number is the name of a column"):
        ask(FILES, row_number=3)
    with pytest.raises(ValueError, match="row_number: a plan has its own"):
        accel.scan(accel.plan("d/", store=DictStore(FILES)), row_number="row")
