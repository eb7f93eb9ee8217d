"""50,000 files that an index knows, read by Spark: planned on the executors, by what the index says alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import accel
from bench.e2e.catalog_generated import FILE_ROWS, linked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES = 50_000
KEPT = 100


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """To the index `c0` ascends over all files, so that a value of it is in one file; each has it from 0 to
    399, in truth."""
    folder = tmp_path_factory.mktemp("many")
    linked(folder, FILES)
    return folder


_SOME, _ONE = f"c0 < {KEPT * FILE_ROWS} AND c1 >= 0", "c0 = 7"


@pytest.mark.parametrize(
    ("way", "where", "kept"),
    [("read", _ONE, 1), ("executors", _SOME, KEPT), ("format", _ONE, 1), ("sql", _SOME, KEPT)],
)
def test_files_that_the_index_rules_out_are_not_opened(
    spark: SparkSession, folder: Path, where: str, kept: int, way: str
) -> None:
    given: dict[str, Any] = {"index": f"{folder}/_accel", "listing": "index"}
    with accel.spark.metrics(spark) as counts:
        if way in ("read", "executors"):
            planning: Any = "executors" if way == "executors" else "auto"
            read = accel.spark.read(spark, folder, where=where, columns=["c1"], planning=planning, **given)
            found = read.selectExpr("count(c1)").collect()[0][0]
        elif way == "format":
            accel.spark.register(spark)
            loaded = spark.read.format("accel").options(**given, where=where, columns="c1").load(str(folder))
            found = loaded.selectExpr("count(c1)").collect()[0][0]
        else:
            table = accel.spark.table(spark, folder, **given)
            query = f"SELECT count(c1 + 1) FROM {{t}} WHERE {where}"
            found = accel.spark.sql(spark, query, t=table).collect()[0][0]
    assert found == (kept * FILE_ROWS if kept > 1 else 1)
    assert counts.files.kept == kept
    # One for each of the four row groups, and the footer where the executors plan.
    assert sum(count for kind, count in counts.requests_by_kind.items() if kind != "catalog") <= 5 * kept
