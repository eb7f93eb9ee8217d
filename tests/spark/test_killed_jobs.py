"""Jobs on Spark that die at any of their changes: readers see the old table or the new one, and the next call
does the rest."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.catalog.inspecting import verify_index
from accel.spark import index_jobs
from accel.tables.journal import JOURNAL_NAME, STAGE_PREFIX, Journal, JournalState
from accel.testing import write_file
from tests.support.step_store import Killed, StepStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES, ROWS = 4, 200
ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.timeout(600)


class Table:
    """The table `t` in a directory, whose changes are counted."""

    def __init__(self, path: Path, *, indexed: bool) -> None:
        self.path = path / "files"
        (self.path / "t").mkdir(parents=True)
        self.store = StepStore(self.path, path / "state.json")
        r = random.Random(4)
        self.ids = r.sample(range(10_000), FILES * ROWS)
        for number in range(FILES):
            part = self.ids[number * ROWS : (number + 1) * ROWS]
            self.add(number, part)
        if indexed:
            accel.build_index("t", store=self.store)
        self.store.arm(None)

    def add(self, number: int, ids: list[int]) -> None:
        names = [f"n{i % 7}" for i in ids]
        (self.path / f"t/{number}.parquet").write_bytes(write_file(pa.table({"id": ids, "name": names})))

    def files(self, pattern: str = "t/*.parquet") -> dict[str, bytes]:
        return {str(path.relative_to(self.path)): path.read_bytes() for path in self.path.glob(pattern)}

    def read(self, where: str | None = None, **given: Any) -> list[int]:
        scan = accel.scan("t/", where, columns=["id"], store=self.store, cache=None, **given)
        found: list[int] = scan.to_table().column("id").to_pylist()
        return found

    def is_indexed(self) -> bool:
        """Whether there is an index of all files as they are."""
        if not (self.path / "t/_accel/head").exists():
            return False
        differences = verify_index("t/_accel", store=self.store)
        assert not differences.wrong
        return differences.is_empty

    def check_readers(self, *, indexed: bool) -> None:
        """Whoever reads finds every row once, and every index that is there is whole."""
        assert sorted(self.read()) == sorted(self.ids)
        few = sorted(i for i in self.ids if i % 7 == 3)
        assert sorted(self.read("name = 'n3'")) == few
        if indexed:
            assert sorted(self.read(index="t/_accel", listing="index")) == sorted(self.ids)
            assert sorted(self.read("name = 'n3'", index="t/_accel", listing="index")) == few

    def die(self, number: int, job: Callable[[], object], *, makes_the_last: bool) -> None:
        self.store.arm(number, makes_the_last=makes_the_last)
        # The process that is alive here sees its own death, or that of a worker.
        with pytest.raises((Killed, Exception)):
            job()
        self.store.arm(None)


def optimize(spark: SparkSession, table: Table) -> accel.OptimizeReport:
    return accel.spark.optimize(spark, "t", sort_by="id", parts=2, target_file_size=1_500, store=table.store)


def test_optimize(spark: SparkSession, tmp_path: Path) -> None:
    whole = Table(tmp_path / "whole", indexed=True)
    optimize(spark, whole)
    steps, outputs = whole.store.steps, len(whole.files())
    # Behind the commit comes the record of what replaces what, and then the first move.
    commit = next(at for at, what in enumerate(steps) if "/replaced-" in what) - 1
    # The parts have two files and a record each: after the seventh change the first part is complete, after
    # the eighth both are.
    deaths = [(1, False), (6, True), (commit, False), (commit, True)]
    deaths += [(number, bool(number % 2)) for number in range(commit + 1, len(steps), 4)]
    reused = {}
    for number, made in deaths:
        table = Table(tmp_path / f"{number}{made}", indexed=True)
        before = table.files()
        table.die(number, lambda table=table: optimize(spark, table), makes_the_last=made)
        journal = Journal.decode((table.path / "t" / JOURNAL_NAME).read_bytes())
        committed = journal.state is JournalState.COMMITTED
        assert committed == ((number, made) >= (commit, True)), number
        if not committed:
            assert table.files() == before, "before the commit nobody sees a new file"
        table.check_readers(indexed=True)
        report = optimize(spark, table)
        assert report.finished == committed, number
        staged = [what for what in table.store.steps if STAGE_PREFIX in what and what.endswith(".parquet")]
        written = [what for what in staged if what.startswith("write")]
        if not committed:
            assert report.reused + len(written) == report.files_after == outputs
            reused[number] = report.reused
        table.check_readers(indexed=True)
        assert table.read() == sorted(table.ids)
        assert not [path for path in table.files("t/_accel/*") if "optimize-" in path]
    assert reused == {1: 0, 6: 2, commit: outputs}


@pytest.mark.parametrize(
    "given",
    [{"target_file_size": 3_000}, {"z_order": ["name", "id"], "parts": 2}],
    ids=["as they are", "a Z curve"],
)
def test_what_another_call_has_written_fits_or_goes(
    spark: SparkSession, tmp_path: Path, given: dict[str, Any]
) -> None:
    def run(table: Table, **more: Any) -> accel.OptimizeReport:
        return accel.spark.optimize(spark, "t", store=table.store, **{**given, **more})

    whole = Table(tmp_path / "whole", indexed=False)
    run(whole)
    commit = next(at for at, what in enumerate(whole.store.steps) if "/replaced-" in what) - 1
    for name, more in (("same", {}), ("other", {"page_rows": 30}), ("other parts", {"parts": 3})):
        if name == "other parts" and "parts" not in given:
            continue
        table = Table(tmp_path / name, indexed=False)
        table.die(commit, lambda table=table: run(table), makes_the_last=False)
        report = run(table, **more)
        assert report.reused == (0 if more else report.files_after), name
        assert report.files_after >= 2
        table.check_readers(indexed=False)
        if "z_order" not in given:
            assert table.read() == table.ids
        assert not [path for path in table.files("t/_accel/*") if "optimize-" in path]


def test_a_driver_that_is_really_killed(spark: SparkSession, tmp_path: Path) -> None:
    """With its JVM, by SIGKILL, at the seventh change, as in `test_optimize`."""
    table = Table(tmp_path, indexed=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    environment["PYTHONPATH"] = str(ROOT)
    program = [sys.executable, str(Path(__file__).with_name("killed_driver.py"))]
    ran = subprocess.run(
        [*program, str(table.path), str(tmp_path / "state.json"), "6"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        start_new_session=True,
        check=False,
    )
    assert ran.returncode == -signal.SIGKILL, ran.stderr[-4000:]
    table.store.arm(None)
    table.check_readers(indexed=True)
    report = optimize(spark, table)
    assert (report.finished, report.reused) == (False, 2)
    table.check_readers(indexed=True)
    assert table.read() == sorted(table.ids)


def has_indexes(data: bytes) -> bool:
    """Whether a whole file has indexes of accel's."""
    file = pq.ParquetFile(pa.BufferReader(data))
    return file.read().num_rows == ROWS and b"accel.indexes" in file.metadata.metadata


# A job that was killed has not refreshed the index, as it does in the end: whoever trusts its list is told.
@pytest.mark.filterwarnings("ignore:.*replaced since the index:UserWarning")
def test_embed(spark: SparkSession, tmp_path: Path) -> None:
    def embed(table: Table) -> accel.EmbedFilesReport:
        return accel.spark.embed(spark, "t", indexes={"name": "distinct"}, store=table.store)

    whole = Table(tmp_path / "whole", indexed=True)
    embed(whole)
    # The second dies in a worker, the others on the driver, which refreshes the index in the end.
    for number in (2, FILES, len(whole.store.steps) - 1):
        table = Table(tmp_path / str(number), indexed=True)
        before = table.files()
        table.die(number, lambda table=table: embed(table), makes_the_last=bool(number % 2))
        between = table.files()
        table.check_readers(indexed=True)
        done = [path for path in before if between[path] != before[path]]
        assert all(has_indexes(between[path]) for path in done), "a file is the old one or the new one"
        assert len(done) >= min(number, FILES)
        report = embed(table)
        # Spark gives up a job while tasks of it are under way, and tells no driver when these have ended:
        # such a task may put its file in place after the job has failed, and even beside the next one. That
        # is harmless: it puts the same file with the indexes that were asked for there, whole, and only in
        # place of the version that it has read; what has been replaced before, it leaves alone. So the next
        # job passes over more files than were done when the first one failed, and never over one without its
        # indexes.
        assert len(done) <= report.skipped == FILES - report.embedded
        assert all(map(has_indexes, table.files().values()))
        table.check_readers(indexed=True)
        scan = accel.scan("t/", "name = 'n3'", store=table.store, index="t/_accel", cache=None)
        assert scan.to_table().num_rows
        assert scan.metrics.catalog_stale == 0


def build(spark: SparkSession, table: Table) -> accel.IndexReport:
    return accel.spark.build_index(spark, "t", indexes={"name": "keys"}, shares=2, store=table.store)


def refresh(spark: SparkSession, table: Table) -> accel.IndexReport:
    return accel.spark.refresh_index(spark, "t/_accel", shares=2, store=table.store)


def compact(spark: SparkSession, table: Table) -> accel.IndexReport:
    return accel.spark.compact_index(spark, "t/_accel", store=table.store)


def grow(table: Table) -> None:
    """Change a file, remove one, and add two."""
    del table.ids[:ROWS]
    (table.path / "t/0.parquet").unlink()
    for number in (1, 8, 9):
        more = [number * 100_000 + i for i in range(ROWS)]
        if number == 1:
            del table.ids[:ROWS]
        table.ids += more
        table.add(number, more)


@pytest.mark.parametrize(
    ("job", "prepare", "deaths"),
    [
        (build, (), [(0, False), (3, True), (7, False), (7, True)]),
        (refresh, (build, grow), [(0, True), (4, False), (7, False), (7, True)]),
        (compact, (build, grow, refresh), [(0, False), (2, True), (3, False), (3, True)]),
    ],
    ids=["build_index", "refresh_index", "compact_index"],
)
def test_an_index(spark: SparkSession, tmp_path: Path, job: Any, prepare: Any, deaths: Any) -> None:
    """All of it is written before the head of the index is replaced, which is the last change."""

    def prepared(name: str) -> Table:
        table = Table(tmp_path / name, indexed=False)
        for each in prepare:
            if each is grow:
                grow(table)
            else:
                each(spark, table)
        table.store.arm(None)
        return table

    whole = prepared("whole")
    expected = job(spark, whole)
    steps = whole.store.steps
    assert (len(steps), steps[-1]) == (deaths[-1][0] + 1, "write t/_accel/head")
    for number, made in deaths:
        table = prepared(f"{number}{made}")
        before = table.is_indexed()
        table.die(number, lambda table=table: job(spark, table), makes_the_last=made)
        assert table.is_indexed() == (before or (number, made) == deaths[-1])
        table.check_readers(indexed=False)
        if (table.path / "t/_accel/head").exists():
            assert sorted(table.read("id >= 0", index="t/_accel")) == sorted(table.ids)
            if not table.is_indexed() and job is build:
                with pytest.raises(accel.AccelError, match="does not list all files yet"):
                    table.read(index="t/_accel", listing="index")
        again = job(spark, table)
        assert (again.files, again.segments) == (expected.files, expected.segments)
        assert table.is_indexed()
        table.check_readers(indexed=True)


def test_an_index_of_many_files_goes_on_from_the_last_commit(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_jobs, "COMMITTED_FILES", 2)
    whole = Table(tmp_path / "whole", indexed=False)
    report = accel.spark.build_index(spark, "t", indexes={"name": "keys"}, store=whole.store)
    assert (report.files, report.added, report.unchanged, report.removed) == (FILES, FILES, 0, 0)
    heads = [at for at, what in enumerate(whole.store.steps) if what == "write t/_accel/head"]
    assert len(heads) == 3, "the first is of no file"
    table = Table(tmp_path / "killed", indexed=False)
    table.die(
        heads[2],
        lambda: accel.spark.build_index(spark, "t", indexes={"name": "keys"}, store=table.store),
        makes_the_last=False,
    )
    table.check_readers(indexed=False)
    assert not table.is_indexed()
    report = accel.spark.build_index(spark, "t", indexes={"name": "keys"}, store=table.store)
    assert (report.files, report.added, report.unchanged) == (FILES, 2, 2)
    assert table.is_indexed()
    table.check_readers(indexed=True)
