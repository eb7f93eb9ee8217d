"""Each verb once: what `make test-lowest` runs with the oldest versions of what accel needs."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import accel
from accel.cli.main import main

ROWS = 5_000
TABLE = pa.table(
    {
        "id": pa.array(range(ROWS)),
        "name": pa.array([None if i % 7 == 0 else f"name {i % 50:02}" for i in range(ROWS)]),
        "pair": pa.array([None if i % 5 == 0 else {"x": i, "y": f"{i}"} for i in range(ROWS)]),
        "items": pa.array([None if i % 3 == 0 else list(range(i % 4)) for i in range(ROWS)]),
        "at": pa.array(range(ROWS), pa.timestamp("us", "UTC")),
    }
)
WHERE = "id BETWEEN 1200 AND 1230 AND name IS NOT NULL"
FOUND = [row for row in TABLE.slice(1200, 31).to_pylist() if row["name"] is not None]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    below = tmp_path / "data"
    below.mkdir()
    for part in range(2):
        rows = TABLE.slice(part * ROWS // 2, ROWS // 2)
        accel.write_table(rows, below / f"{part}.parquet", row_group_size=1_000)
    return below


def test_write_and_scan(directory: Path) -> None:
    assert accel.scan(directory, cache=None).to_table().equals(TABLE)
    scan = accel.scan(directory, WHERE, cache=None)
    assert scan.to_table().to_pylist() == FOUND
    assert accel.scan(directory, WHERE, cache=None).count_rows() == len(FOUND)
    assert accel.scan(directory, cache=None).aggregate([("id", "max")]).to_pylist() == [{"id_max": ROWS - 1}]


def test_nested_columns_of_few_rows(directory: Path) -> None:
    for columns in (["pair"], ["items"], ["pair", "items"], ["pair.y", "id"]):
        found = accel.scan(directory, "id IN (3, 777, 2600)", columns=columns, cache=None).to_table()
        assert found.equals(
            accel.scan(directory, columns=columns, cache=None).to_table().take([3, 777, 2600])
        )


def test_plan(directory: Path) -> None:
    plan = accel.Plan.from_arrow(accel.plan(directory, WHERE, cache=None).to_arrow())
    assert accel.scan(plan, cache=None).to_table().to_pylist() == FOUND


def test_embed(directory: Path) -> None:
    kinds = {"name": ["distinct", "bitmap", "bloom", "ngram"], "id": ["zonemap", "sketch"]}
    accel.embed_files(directory, indexes=kinds)
    for where in ("name = 'name 07'", "name LIKE '%e 31%'", WHERE):
        found = accel.scan(directory, where, columns=["id"], cache=None).to_table()["id"].to_pylist()
        whole = accel.scan(_whole(directory), where, columns=["id"], cache=None).to_table()
        assert found == whole["id"].to_pylist()
        assert found


def _whole(directory: Path) -> Path:
    path = directory.parent / "whole.parquet"
    accel.write_table(TABLE, path)
    return path


def test_index(directory: Path, tmp_path: Path) -> None:
    index = str(tmp_path / "index")
    accel.build_index(directory, to=index, indexes={"id": ["keys", "zonemap"], "name": "distinct"})
    assert accel.scan(directory, WHERE, index=index, cache=None).to_table().to_pylist() == FOUND
    found = accel.scan(directory, "id = 4000", index=index, listing="index", cache=None)
    assert found.to_table().to_pylist() == TABLE.slice(4000, 1).to_pylist()


def test_optimize(directory: Path, tmp_path: Path) -> None:
    accel.optimize(directory, to=tmp_path / "sorted", sort_by=["name", "id"])
    found = accel.scan(tmp_path / "sorted", WHERE, cache=None).to_table().sort_by("id")
    assert found.to_pylist() == FOUND


def test_command_line(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scan", str(directory), "--where", "id = 4321", "--columns", "id,name"]) == 0
    assert "4321" in capsys.readouterr().out
