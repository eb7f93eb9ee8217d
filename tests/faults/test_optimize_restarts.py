"""A rewrite that was killed, run again: it goes on where it was, and takes over nothing that another plan
made."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

import accel
from accel.tables.journal import JOURNAL_NAME, STAGE_PREFIX
from accel.testing import write_file
from tests.faults.mortal_store import Killed, MortalStore

ROWS, FILES = 250, 4
SMALL = accel.Options(memory_limit=12_000)
"""So little that rows are sorted on disk."""


@dataclass(frozen=True)
class Case:
    given: Mapping[str, Any]
    folders: int = 1
    by: str | None = None
    """The column by which the rows of each folder are sorted afterwards, others as they came."""


CASES: Mapping[str, Case] = {
    "sorted, with equal keys": Case({"sort_by": "k", "options": SMALL}, by="k"),
    "in folders": Case({"sort_by": "id"}, folders=2, by="id"),
    "a Z curve": Case({"z_order": ["k", "id"]}),
    "as they are": Case({"target_file_size": 3_000}, folders=2),
    "with an index in the files": Case({"sort_by": "id", "indexes": {"k": "distinct"}}, by="id"),
}


@dataclass
class Table:
    case: Case
    store: MortalStore = field(default_factory=MortalStore)

    def __post_init__(self) -> None:
        r = random.Random(11)
        ids = iter(r.sample(range(10_000), ROWS * FILES * self.case.folders))
        self.rows: list[tuple[int, int, int]] = []
        for folder in range(self.case.folders):
            for number in range(FILES):
                part = [(next(ids), r.randrange(4)) for _ in range(ROWS)]
                path = f"t/d={folder}/{number}.parquet"
                self.store.put(
                    path, write_file(pa.table({"id": [i for i, _ in part], "k": [k for _, k in part]}))
                )
                self.rows += [(folder, *row) for row in part]
        self.store.changes.clear()

    def optimize(self, **given: Any) -> accel.OptimizeReport:
        return accel.optimize(
            "t", **{"target_file_size": 1_500, "store": self.store, **self.case.given, **given}
        )

    def killed_at(self, number: int, *, makes_the_last: bool) -> Table:
        self.store.dies_at, self.store.makes_the_last = number, makes_the_last
        with pytest.raises(Killed):
            self.optimize()
        self.store.revive()
        return self

    def read(self) -> list[tuple[int, int, int]]:
        table = accel.scan("t/", columns=["d", "id", "k"], store=self.store, cache=None).to_table()
        return list(zip(*table.to_pydict().values(), strict=True))

    def check(self) -> None:
        """All rows are there once, in the promised order, and nothing else is left."""
        found, by = self.read(), self.case.by
        if by is not None:
            at = ("d", "id", "k").index(by)
            assert found == sorted(self.rows, key=lambda row: (row[0], row[at]))
        elif "z_order" in self.case.given:
            assert sorted(found) == sorted(self.rows)
        else:
            assert found == self.rows
        assert not [path for path in self.store.objects if "optimize-" in path]

    def outputs(self) -> set[str]:
        """The new files that are complete."""
        return {path for path in self.store.objects if STAGE_PREFIX in path and path.endswith(".parquet")}

    def written(self) -> list[str]:
        return [what for what in self.store.changes if what.startswith("write") and what.endswith(".parquet")]


def before_the_commit(case: Case) -> Iterator[int]:
    table = Table(case)
    table.optimize()
    changes = table.store.changes
    moves = next(at for at, what in enumerate(changes) if what.startswith("move"))
    assert moves > 8
    return iter(range(moves - 1))


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_what_is_complete_is_not_written_again(case: Case) -> None:
    reused = []
    for number in before_the_commit(case):
        table = Table(case).killed_at(number, makes_the_last=bool(number % 2))
        complete = table.outputs()
        report = table.optimize()
        assert not report.finished
        assert report.reused + len(table.written()) == report.files_after
        # A file of which the record is lacking is written again, with what comes after it.
        assert len(complete) - report.reused in (0, 1), number
        reused.append(report.reused)
        table.check()
    assert reused == sorted(reused)
    assert reused[-1] > 2
    assert set(reused) == set(range(reused[-1] + 1)), "it goes on from every file"


def test_a_job_that_is_killed_again_and_again_ends() -> None:
    """Each call makes five changes: it takes the job over, and adds a file or two."""
    table, calls = Table(CASES["sorted, with equal keys"]), 0
    while not table.store.moved and calls < 20:
        calls += 1
        table.killed_at(5, makes_the_last=True)
    assert 1 < calls < 20
    assert table.optimize().finished
    table.check()


def test_files_whose_rows_are_written_are_not_read_again() -> None:
    table = Table(CASES["as they are"])
    table.optimize()
    moves = next(at for at, what in enumerate(table.store.changes) if what.startswith("move"))
    table = Table(CASES["as they are"]).killed_at(moves - 2, makes_the_last=False)
    table.store.reads.clear()
    assert table.optimize().reused
    data = {path for path, first in table.store.reads if path.startswith("t/d=0") and first == 4}
    assert data == set(), "the rows of the first folder are complete"
    table.check()


def killed_midway(case: Case = CASES["sorted, with equal keys"]) -> Table:
    table = Table(case)
    table.optimize()
    moves = next(at for at, what in enumerate(table.store.changes) if what.startswith("move"))
    table = Table(case).killed_at(moves - 3, makes_the_last=False)
    assert len(table.outputs()) > 2
    return table


def other_arguments(table: Table) -> dict[str, Any]:
    return {"page_rows": 20}


def other_rows(table: Table) -> dict[str, Any]:
    table.store.put("t/d=0/0.parquet", write_file(pa.table({"id": [77_777], "k": [1]})))
    table.rows = [(0, 77_777, 1), *table.rows[ROWS:]]
    return {}


def one_more_file(table: Table) -> dict[str, Any]:
    table.store.put("t/d=0/9.parquet", write_file(pa.table({"id": [77_777], "k": [1]})))
    table.rows.append((0, 77_777, 1))
    return {}


def one_file_less(table: Table) -> dict[str, Any]:
    del table.store.objects["t/d=0/0.parquet"]
    table.rows = table.rows[ROWS:]
    return {}


def a_damaged_plan(table: Table) -> dict[str, Any]:
    path = next(path for path in table.store.objects if path.endswith("-plan.json"))
    table.store.put(path, table.store.objects[path].replace(b'"firsts"', b'"fiirst"'))
    return {}


def no_plan(table: Table) -> dict[str, Any]:
    path = next(path for path in table.store.objects if path.endswith("-plan.json"))
    del table.store.objects[path]
    return {}


@pytest.mark.parametrize(
    "change", [other_arguments, other_rows, one_more_file, one_file_less, a_damaged_plan, no_plan]
)
def test_what_another_plan_made_is_removed(change: Any) -> None:
    table = killed_midway()
    old = table.outputs()
    given = change(table)
    report = table.optimize(**given)
    assert (report.reused, len(table.written())) == (0, report.files_after)
    assert not old & set(table.store.objects)
    table.check()


def test_another_version_of_accel_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    table = killed_midway()
    monkeypatch.setattr("accel._version.__version__", "0.0.0")
    assert table.optimize().reused == 0
    table.check()


@pytest.mark.parametrize("change", ["a damaged record", "no record", "a file that is gone", "a torn file"])
def test_only_files_before_the_damage_are_taken_over(change: str) -> None:
    table = killed_midway()
    objects = table.store.objects
    record = next(path for path in sorted(objects) if path.endswith("-00001.json"))
    file = next(path for path in sorted(objects) if "-00001-" in path and path.endswith(".parquet"))
    if change == "a damaged record":
        table.store.put(record, objects[record].replace(b'"rows": ', b'"rows": 1'))
    elif change == "a torn file":
        table.store.put(file, objects[file][:-1])
    else:
        del objects[record if change == "no record" else file]
    assert table.optimize().reused == 1
    table.check()


def test_a_call_that_is_still_there_gives_up_and_leaves_the_files_to_the_other() -> None:
    table = Table(CASES["sorted, with equal keys"])
    reports = []

    def meanwhile(now: accel.JobProgress) -> None:
        if now.stage == "write" and now.done > ROWS and not reports:
            reports.append(table.optimize())

    with pytest.raises(accel.ObjectChangedError, match=r"changed or removed|another job"):
        table.optimize(progress=meanwhile)
    assert reports[0].reused > 0
    table.check()


def test_a_call_that_is_still_there_while_the_other_is_killed() -> None:
    table = Table(CASES["sorted, with equal keys"])
    begun = []

    def meanwhile(now: accel.JobProgress) -> None:
        if now.stage == "write" and now.done > ROWS and not begun:
            begun.append(len(table.store.changes))
            table.store.dies_at = begun[0] + 4
            with pytest.raises(Killed):
                table.optimize()
            table.store.revive()

    with pytest.raises(accel.ObjectChangedError, match="another job"):
        table.optimize(progress=meanwhile)
    assert f"t/{JOURNAL_NAME}" in table.store.objects
    assert table.outputs()
    assert table.optimize().reused > 0
    table.check()
