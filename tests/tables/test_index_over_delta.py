"""An index over a Delta table beside its log: every version, deleted rows, a rename, and a vacuum."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.catalog.inspecting import inspect_index
from accel.cli.main import main
from accel.testing import DictStore, RecordingStore

deltalake = pytest.importorskip("deltalake", reason="deltalake writes the tables")

SCHEMA = pa.schema([("id", pa.int64()), ("key", pa.string()), ("v", pa.float64())])


def rows(start: int, count: int) -> pa.Table:
    keys = np.random.default_rng(start).integers(0, 500, count)
    return pa.table(
        [np.arange(start, start + count), [f"k{key:03}" for key in keys], keys / 7], schema=SCHEMA
    )


def write(url: str, data: pa.Table, **given: Any) -> None:
    deltalake.write_deltalake(url, data, mode="append", **given)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table of twelve versions: appends, deletes, an optimize and a vacuum."""
    url = str(tmp_path_factory.mktemp("table") / "events")
    for number in range(8):
        write(url, rows(number * 200, 200))
    table = deltalake.DeltaTable(url)
    table.delete("id % 5 = 1 AND id < 700")
    write(url, rows(1600, 200))
    return url


def test_one_index_serves_all_versions(url: str) -> None:
    report = accel.build_index(accel.tables.delta(url, version=3), indexes={"key": "keys"})
    assert (report.files, report.skipped) == (4, {})
    assert Path(url, "_accel", "head").is_file()
    latest = deltalake.DeltaTable(url).version()
    assert accel.build_index(accel.tables.delta(url), indexes={"key": "keys"}).added > 0
    for version in range(latest + 1):
        table = accel.tables.delta(url, version=version)
        every = table_rows(url, version)
        for key in ("k007", "k250", "k499", "none"):
            scan = accel.scan(table, f"key = '{key}'")
            found = scan.to_table().sort_by("id")
            assert found.to_pylist() == [row for row in every if row["key"] == key], (version, key)
            assert scan.metrics.catalog_stale == 0


def table_rows(url: str, version: int) -> list[dict[str, Any]]:
    """All rows of a version as deltalake reads them."""
    found = deltalake.DeltaTable(url, version=version).to_pyarrow_table()
    return [dict(row) for row in found.sort_by("id").to_pylist()]


def test_a_vacuum_leaves_the_index_alone(url: str) -> None:
    accel.build_index(accel.tables.delta(url), indexes={"key": "keys"})
    table = deltalake.DeltaTable(url)
    table.optimize.compact()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert Path(url, "_accel", "head").is_file()
    expected = [row for row in table_rows(url, table.version()) if row["key"] == "k250"]
    for _ in range(2):
        scan = accel.scan(url, "key = 'k250'")
        assert scan.to_table().sort_by("id").to_pylist() == expected
        accel.build_index(accel.tables.delta(url))
    assert scan.metrics.catalog_stale == 0


# -- its default place ---------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table of eight files, of which one has each key of some."""
    url = tmp_path / "lake" / "events"
    for number in range(8):
        write(str(url), rows(number * 200, 200))
    return url


def stored(table: Path) -> RecordingStore:
    """A store that has the table as `events`."""
    files = (path for path in table.rglob("*") if path.is_file())
    return RecordingStore(
        DictStore({str(path.relative_to(table.parent)): path.read_bytes() for path in files})
    )


@pytest.mark.parametrize("source", ["events", accel.tables.delta("events")], ids=["directory", "named"])
def test_an_index_beside_a_table_is_found(table: Path, source: Any) -> None:
    accel.build_index(table, indexes={"key": "keys"})
    store, cache = stored(table), accel.Cache()
    scan = accel.scan(source, "key = 'k250'", store=store, cache=cache)
    expected = [row for row in table_rows(str(table), 7) if row["key"] == "k250"]
    assert scan.to_table().sort_by("id").to_pylist() == expected
    assert (scan.metrics.catalog.total, scan.metrics.catalog_stale) == (8, 0)
    without = accel.scan(source, "key = 'k250'", store=store, cache=None, index=None)
    assert without.to_table().sort_by("id").to_pylist() == expected
    assert without.metrics.catalog.total == 0
    # The head comes beside the log: no wave more than for the log alone.
    waves = stored(table), stored(table)
    for where, index in zip(waves, ("auto", None), strict=True):
        accel.scan(source, "id < 0", store=where, cache=None, index=index).to_table()
    assert waves[0].waves == waves[1].waves


def test_a_table_without_an_index_costs_no_wave_and_is_asked_once(table: Path) -> None:
    store, cache = stored(table), accel.Cache(max_age=0)

    def requests(source: Any, **given: Any) -> tuple[int, int]:
        scan = accel.scan(source, "id = 77", **{"store": store, "cache": cache, **given})
        before = store.waves
        assert scan.to_table().num_rows == 1
        return scan.metrics.requests, store.waves - before

    named = accel.tables.delta("events")
    first, again = requests(named), requests(named)
    alone = requests(named, cache=None, index=None)
    assert first == (alone[0] + 1, alone[1])
    assert again[0] == 1  # the log from the known version on
    # A directory shows it as it is listed.
    assert requests("events", cache=None) == requests("events", cache=None, index=None)


def test_an_index_that_is_built_meanwhile_is_found(table: Path) -> None:
    named = accel.tables.delta(table)
    cache = accel.Cache()
    question = {"where": "key = 'k007'", "cache": cache}
    assert accel.scan(named, **question).count_rows() >= 0
    accel.build_index(named, indexes={"key": "keys"})
    scan = accel.scan(named, **question)
    scan.to_table()
    assert scan.metrics.catalog.total == 8


def test_a_damaged_index_beside_a_table_is_told_of(table: Path) -> None:
    accel.build_index(table)
    (table / "_accel" / "head").write_bytes(b"nonsense")
    with pytest.warns(UserWarning, match="is not used"):
        assert accel.scan(accel.tables.delta(table), cache=None).count_rows() == 1600


def version_of(index: Path) -> Any:
    """The last version that an index covers."""
    return (inspect_index(index).table or {})["version"]


def test_a_refresh_describes_what_is_new(table: Path, tmp_path: Path) -> None:
    named = accel.tables.delta(table)
    with pytest.raises(accel.ObjectNotFoundError, match="no index"):
        accel.refresh_index(named)
    accel.build_index(accel.tables.delta(table, version=4), indexes={"key": "keys"})
    accel.build_index(accel.tables.delta(table, version=4), to=tmp_path / "elsewhere")
    index = table / "_accel"
    assert inspect_index(index).table == {"format": "Delta", "location": str(table), "version": 4}
    report = accel.refresh_index(named)
    assert (report.added, report.unchanged, report.removed) == (3, 5, 0)
    assert version_of(index) == 7
    assert accel.refresh_index(deltalake.DeltaTable(table)).added == 0
    assert accel.refresh_index(named, to=tmp_path / "elsewhere").added == 3
    deltalake.DeltaTable(table).optimize.compact()
    # The index itself tells which table it is of.
    assert (accel.refresh_index(index).added, accel.build_index(table).added) == (1, 0)
    assert version_of(index) == 8
    assert accel.refresh_index(tmp_path / "elsewhere").added == 1
    with pytest.raises(ValueError, match="given as such"):
        accel.refresh_index(index, to=index)


def test_the_command_builds_and_refreshes(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = ["--table", "delta", "--version", "3"]
    assert main(["index", "build", str(table), *old, "--index", "key=keys"]) == 0
    assert "4 added" in capsys.readouterr().out
    assert main(["index", "refresh", str(table), "--table", "delta"]) == 0
    assert "4 added, 0 removed, 4 as before" in capsys.readouterr().out
    assert main(["index", "refresh", str(table / "_accel")]) == 0
    assert "0 added, 0 removed, 8 as before" in capsys.readouterr().out
    assert main(["index", "inspect", str(table / "_accel")]) == 0
    assert f"of the Delta table {table}, up to version 7" in capsys.readouterr().out
