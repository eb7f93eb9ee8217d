"""The `accel` command over tables that a catalog names, and how it says what is missing."""

from __future__ import annotations

import json
import pathlib
import secrets

import pyarrow as pa
import pytest

from accel.cli.main import main
from accel.testing import write_file
from tests.support.ducklake import Lake
from tests.support.hive_metastore import HiveMetastore
from tests.support.hive_tables import make_partitions, make_table, parquet_at


@pytest.fixture
def lake(tmp_path: pathlib.Path) -> Lake:
    with Lake(f"sqlite:///{tmp_path / 'catalog.db'}", tmp_path / "data", "data_inlining_row_limit 2") as made:
        made.run(
            "CREATE TABLE events (id INT, label VARCHAR)",
            "INSERT INTO events SELECT i, 'l' || i FROM range(100) r(i)",
            "INSERT INTO events SELECT i, 'l' || i FROM range(100, 200) r(i)",
            "INSERT INTO events VALUES (200, 'late')",
            "DELETE FROM events WHERE id = 7",
        )
    return made


def test_a_table_of_a_ducklake(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    named = ["events", "--table", "ducklake", "--catalog", lake.catalog]
    assert main(["scan", *named, "-w", "id IN (7, 8, 150, 200)", "-f", "csv", "-v"]) == 0
    shown = capsys.readouterr()
    assert sorted(shown.out.splitlines()) == ['150,"l150"', '200,"late"', '8,"l8"', "id,label"]
    assert main(["scan", *named, "--version", "2", "--count"]) == 0
    assert capsys.readouterr().out == "100\n"
    assert main(["explain", *named, "-w", "id = 150"]) == 0
    assert "DuckLake, version 5, 2 files" in capsys.readouterr().out
    assert main(["inspect", *named, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == [{"name": "id", "type": "int32"}, {"name": "label", "type": "string"}]
    told = {name: found[name] for name in ("table", "version", "files", "deleted_rows", "inlined_rows")}
    assert told == {"table": "DuckLake", "version": 5, "files": 2, "deleted_rows": 1, "inlined_rows": 1}


def test_a_table_of_a_metastore(
    metastore: HiveMetastore, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"t{secrets.token_hex(6)}"
    columns = {"id": "bigint", "label": "string"}
    make_table(metastore.url, name, parquet_at(f"file:{tmp_path}", columns), keys={"day": "string"})
    for day, start in (("2024-02-01", 0), ("2024-02-02", 10)):
        rows = pa.table({"id": range(start, start + 3), "label": ["a", "b", "c"]})
        (tmp_path / f"day={day}").mkdir()
        (tmp_path / f"day={day}" / "a.parquet").write_bytes(write_file(rows))
        make_partitions(metastore.url, name, [([day], parquet_at(f"file:{tmp_path}/day={day}", columns))])
    named = [f"default.{name}", "--table", "hive", "--catalog", metastore.url]
    assert main(["scan", *named, "-w", "day = '2024-02-02' AND id > 10", "-f", "csv"]) == 0
    expected = ["id,label,day", '11,"b","2024-02-02"', '12,"c","2024-02-02"']
    assert capsys.readouterr().out.splitlines() == expected
    assert main(["inspect", *named]) == 0
    shown = capsys.readouterr().out
    assert f"{metastore.url}/default.{name}: Hive table" in shown
    assert "partition columns day" in shown
    assert main(["scan", *named, "--version", "3"]) == 2
    assert "has one version" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["events", "--table", "hive"], "a table of Hive is named in a catalog, and no catalog is given"),
        (["events", "--table", "delta", "--catalog", "x"], "a table of Delta is named by its directory"),
        (["events", "--catalog", "thrift://h"], "a catalog names tables: it needs their format as --table, iceberg or ducklake or hive"),
        (["events", "--table", "hudi"], "there is no format of tables 'hudi'"),
        (["a", "b", "--table", "hive", "--catalog", "thrift://h"], "one path, or one name"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["scan", "inspect"])
def test_what_is_missing_is_said(
    command: str, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, *arguments]) == 2
    assert said in capsys.readouterr().err
