"""Delta tables that change: random histories, read at every version, and a writer that never rests."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import accel
from accel.testing import DictStore, write_file

deltalake = pytest.importorskip("deltalake", reason="deltalake writes the tables")

CHANGES = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 40)),
    st.tuples(st.just("append"), st.integers(1, 40)),
    st.tuples(st.just("delete"), st.integers(2, 9)),
    st.tuples(st.just("update"), st.integers(2, 9)),
    st.tuples(st.just("compact"), st.just(0)),
    st.tuples(st.just("widen"), st.integers(1, 20)),
    st.tuples(st.just("checkpoint"), st.just(0)),
    st.tuples(st.just("overwrite"), st.integers(0, 1)),
)


class History:
    """A table, and the rows of each version as deltalake reads them."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.next = 0
        self.columns = 0
        self.append(20)

    @property
    def table(self) -> Any:
        return deltalake.DeltaTable(self.url)

    def rows(self, count: int) -> pa.Table:
        ids = list(range(self.next, self.next + count))
        self.next += count
        more = {f"c{at}": [id % 5 for id in ids] for at in range(self.columns)}
        keys = [None if id % 11 == 0 else f"k{id * 7919 % 23}" for id in ids]
        part = [["eu", "us/x", None][id // 10 % 3] for id in ids]
        return pa.table({"id": ids, "key": keys, "region": pa.array(part, pa.string()), **more})

    def append(self, count: int, **given: Any) -> None:
        deltalake.write_deltalake(
            self.url, self.rows(count), **{"mode": "append", "partition_by": ["region"], **given}
        )

    def change(self, what: str, number: int) -> None:
        match what:
            case "append":
                self.append(number)
            case "delete":
                self.table.delete(f"id % {number} = 1")
            case "update":
                self.table.update(updates={"key": "'k7'"}, predicate=f"id % {number} = 0")
            case "compact":
                self.table.optimize.compact()
            case "widen":
                self.columns += 1
                self.append(number, schema_mode="merge")
            case "checkpoint":
                self.table.create_checkpoint()
            case "overwrite":
                region = ["eu", "us/x"][number]
                self.table.delete(f"region = '{region}'")

    def at(self, version: int) -> pa.Table:
        return deltalake.DeltaTable(self.url, version=version).to_pyarrow_table()


def predicates(last: int) -> list[str | None]:
    return [
        None,
        "key = 'k7'",
        f"id BETWEEN {last // 3} AND {last // 3 + 6}",
        f"NOT (key > 'k15') OR id = {last - 1}",
        "region = 'us/x' AND key IN ('k1', 'k2')",
        "region IS NULL AND id > 12",
    ]


def sorted_rows(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: row["id"])


@given(changes=st.lists(CHANGES, min_size=2, max_size=7), described=st.integers(0, 3))
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_version_of_a_random_history_is_read_with_and_without_an_index(
    changes: list[tuple[str, int]], described: int
) -> None:
    directory = tempfile.mkdtemp()
    try:
        history = History(f"{directory}/t")
        for at, change in enumerate(changes):
            history.change(*change)
            if at == described:
                accel.build_index(accel.tables.delta(history.url), indexes={"key": "keys"})
        last = history.table.version()
        cache = accel.Cache()
        for version in {0, last // 2, last - 1, last} & set(range(last + 1)):
            table = accel.tables.delta(history.url, version=version)
            rows = history.at(version)
            every = DictStore({"all.parquet": write_file(rows)})
            for where in predicates(history.next):
                expected = accel.scan("all.parquet", where, store=every, cache=None).to_table()
                for index in ("auto", None):
                    found = accel.scan(table, where, index=index, cache=cache)
                    assert sorted_rows(found.to_table()) == sorted_rows(expected), (version, where, index)
                    assert found.count_rows() == expected.num_rows
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def test_scans_beside_a_writer_that_vacuums_have_one_version_whole_or_say_which_file_is_gone(
    tmp_path: Path,
) -> None:
    """The ids of each version go from one multiple of ten to another."""
    url, stop, wrong = str(tmp_path / "t"), threading.Event(), list[BaseException]()

    def write() -> None:
        try:
            for at in range(10_000):
                if stop.is_set():
                    return
                rows = pa.table({"id": range(at * 10, at * 10 + 10)})
                deltalake.write_deltalake(url, rows, mode="append")
                table = deltalake.DeltaTable(url)
                if at % 3 == 2:
                    table.optimize.compact()
                if at % 5 == 4:
                    table.delete(f"id < {(at - 4) * 10}")
                if at % 2 == 1:
                    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
        except BaseException as error:  # noqa: BLE001 - told below
            wrong.append(error)

    rows = pa.table({"id": range(0)}, pa.schema([("id", pa.int64())]))
    deltalake.write_deltalake(url, rows)
    writer = threading.Thread(target=write)
    writer.start()
    whole = gone = 0
    cache = accel.Cache(max_age=0)
    try:
        until = time.monotonic() + 4
        while time.monotonic() < until or not whole:
            scan = accel.scan(accel.tables.delta(url), cache=cache)
            try:
                ids = sorted(scan.to_table()["id"].to_pylist())
            except accel.ObjectNotFoundError as error:
                assert "vacuumed" in str(error)
                assert ".parquet" in str(error.path)
                gone += 1
                continue
            first = ids[0] if ids else 0
            assert (first % 10, len(ids) % 10) == (0, 0)
            assert ids == list(range(first, first + len(ids)))
            whole += 1
    finally:
        stop.set()
        writer.join(60)
    assert not wrong
    assert whole


def test_a_file_that_a_vacuum_has_taken_is_named(tmp_path: Path) -> None:
    url = str(tmp_path / "t")
    for at in range(3):
        deltalake.write_deltalake(url, pa.table({"id": range(at * 10, at * 10 + 10)}), mode="append")
    deltalake.DeltaTable(url).optimize.compact()
    deltalake.DeltaTable(url).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert accel.scan(url).count_rows() == 30
    old = accel.tables.delta(url, version=1)
    for where in ("id < 5", None):
        with pytest.raises(
            accel.ObjectNotFoundError, match=r"version 1 of the Delta table .* vacuumed"
        ) as caught:
            accel.scan(old, where, cache=None).to_table()
        assert ".parquet" in str(caught.value.path)
    with pytest.raises(accel.ObjectNotFoundError, match="vacuumed"):
        accel.scan(old, cache=None).aggregate([("id", "sum")])
    with pytest.raises(accel.ObjectNotFoundError, match="vacuumed"):
        accel.plan(old, "id < 5", cache=None)
