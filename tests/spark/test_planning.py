"""accel.spark.read planned by the executors: the same rows as by the driver, in a stage of its own, however
many the files."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.spark import planning
from accel.testing import DictStore
from accel.testing.stores import StoreWrapper

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MONTHS, FILES, ROWS = 3, 4, 50


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("planning") / "table"
    for number in range(MONTHS * FILES):
        path = root / f"month={number // FILES}" / f"{number}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        ids = np.arange(number * ROWS, (number + 1) * ROWS)
        # Later files have wider numbers, and a column that the first one lacks.
        kind = pa.int32() if number else pa.int16()
        more = {"later": pa.array(ids)} if number else {}
        table = pa.table(
            {"id": pa.array(ids), "n": pa.array(ids % 7, pa.int16() if not number else kind), **more}
        )
        pq.write_table(table.cast(pa.schema([*table.schema])), path, row_group_size=20)
    return root


@pytest.fixture
def schema() -> pa.Schema:
    return pa.schema([("id", pa.int64()), ("n", pa.int32()), ("later", pa.int64()), ("month", pa.int64())])


def _rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


@pytest.mark.parametrize(
    "question",
    [
        {},
        {"where": "month = 1 AND n = 3", "columns": ["id", "month"]},
        {"where": accel.col("id").isin(np.arange(0, 30_000, 3)), "columns": ["later", "id"]},
        {"columns": []},
        {"where": "month = 99", "columns": ["id"]},
    ],
    ids=["all", "predicate", "long list", "no columns", "nothing"],
)
def test_rows_are_those_of_the_driver(
    spark: SparkSession, folder: Path, schema: pa.Schema, question: dict[str, Any]
) -> None:
    expected = accel.scan(str(folder), schema=schema, **question).to_table()
    frame = accel.spark.read(spark, str(folder), schema=schema, planning="executors", **question)
    assert frame.columns == expected.column_names
    due = sorted((tuple(row.values()) for row in expected.to_pylist()), key=repr)
    if question.get("columns") == []:
        assert frame.count() == expected.num_rows == MONTHS * FILES * ROWS
    else:
        assert _rows(frame) == due


def test_the_driver_opens_one_file(spark: SparkSession, folder: Path) -> None:
    """And files that their paths exclude are not sent."""
    with accel.spark.metrics(spark) as counts:
        own = accel.Cache()
        frame = accel.spark.read(
            spark, str(folder), where="month = 2", columns=["id"], planning="executors", cache=own
        )
        assert counts.requests_by_kind == {"listing": 1, "tail": 1}
        assert counts.files.total == (MONTHS - 1) * FILES
        assert frame.count() == FILES * ROWS
    assert (counts.files.kept, counts.files.total) == (FILES, MONTHS * FILES)
    assert counts.rows_out == FILES * ROWS


def test_many_files_are_planned_by_the_executors(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = accel.spark.read(spark, str(folder), columns=["id"])
    assert _stages(frame) == 1
    monkeypatch.setattr(planning, "MOST_FILES", MONTHS * FILES - 1)
    frame = accel.spark.read(spark, str(folder), columns=["id"])
    assert _stages(frame) == 2
    assert _stages(accel.spark.read(spark, str(folder), columns=["id"], planning="driver")) == 1
    assert _rows(frame) == sorted(((n,) for n in range(MONTHS * FILES * ROWS)), key=repr)


def _stages(frame: DataFrame) -> int:
    """The passes through Python workers."""
    return str(frame._jdf.queryExecution().executedPlan()).count("MapInArrow")


@pytest.mark.parametrize("place", ["driver", "executors"])
@pytest.mark.parametrize("where", [None, "month = 1", "file LIKE '%/7.parquet' AND id > 360"])
def test_the_file_of_a_row_is_a_column(
    spark: SparkSession, folder: Path, where: str | None, place: Any
) -> None:
    question: dict[str, Any] = {
        "where": where,
        "columns": ["file", "row", "id", "month"],
        "file_path": "file",
        "row_number": "row",
    }
    expected = accel.scan(str(folder), **question).to_pylist()
    frame = accel.spark.read(spark, str(folder), planning=place, **question)
    assert frame.columns == question["columns"]
    assert _rows(frame) == sorted((tuple(row.values()) for row in expected), key=repr)
    assert {row[0] for row in _rows(frame)} <= {str(path) for path in folder.rglob("*.parquet")}


@pytest.mark.parametrize("place", ["driver", "executors", "auto"])
def test_the_driver_plans_in_time(spark: SparkSession, place: Any) -> None:
    with pytest.raises(accel.ScanTimeoutError, match=r"not done within 0\.2 seconds"):
        accel.spark.read(spark, "d/", planning=place, timeout=0.2, store=_Silent(DictStore({})), cache=None)


class _Silent(StoreWrapper):
    """Answers nothing."""

    async def read(self, path: str, want: Any, *, if_match: str | None = None) -> Any:
        await asyncio.Event().wait()

    async def _list_inner(self, prefix: str) -> Any:
        await asyncio.Event().wait()
        yield


@pytest.mark.parametrize("place", ["driver", "executors"])
def test_a_limit(spark: SparkSession, folder: Path, place: Any) -> None:
    """Three partitions have five rows each to give, and Spark takes five of all."""
    frame = accel.spark.read(spark, str(folder), columns=["id"], limit=5, planning=place, partitions=3)
    assert frame.count() == 5
    assert len(set(_rows(frame))) == 5


@pytest.mark.parametrize("place", ["driver", "executors"])
def test_broken_files_are_skipped(spark: SparkSession, folder: Path, tmp_path: Path, place: Any) -> None:
    """The very first too, which would have settled the schema; where they are not skipped, it is named."""
    good = (folder / "month=0" / "1.parquet").read_bytes()
    for name in ("b", "c"):
        (tmp_path / f"{name}.parquet").write_bytes(good)
    for name in ("a", "d"):
        (tmp_path / f"{name}.parquet").write_bytes(b"PAR1 this is no file PAR1")
    with pytest.raises(Exception, match=r"a\.parquet"):
        accel.spark.read(spark, str(tmp_path), planning=place).count()
    with accel.spark.metrics(spark) as counts:
        assert accel.spark.read(spark, str(tmp_path), planning=place, on_error="skip").count() == 2 * ROWS
    assert sorted({name for text in counts.warnings for name in "abcd" if f"/{name}.parquet" in text}) == [
        "a",
        "d",
    ]


@pytest.mark.parametrize(
    ("keywords", "told"),
    [
        ({"planning": "nowhere"}, 'planning is "auto", "driver" or "executors", not .nowhere.'),
        ({"on_error": "ignore"}, 'on_error is "raise" or "skip", not .ignore.'),
        ({"limit": -1}, "limit is a non-negative int, not -1"),
        ({"credentials": "nothing"}, "credentials names a function"),
        ({"planning": "executors", "selection": {}}, "selection= names files of the whole scan"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_wrong_arguments(spark: SparkSession, folder: Path, keywords: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        accel.spark.read(spark, str(folder), **keywords)
