"""Random questions by mapInArrow(accel.scan) and by Spark's own reader, over the same files: the same rows,
in order.

Spark's pushdown is off: of its own files it loses zeros of the other sign, of others' NaN.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import accel
from accel.predicate.sql import to_sql
from accel.testing import Layout, write_file
from tests.support.sample_table import TYPES, everything, predicate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 1500
QUESTIONS = 6
SETTINGS = {"spark.sql.parquet.filterPushdown": "false", "spark.sql.parquet.aggregatePushdown": "false"}


@pytest.fixture(scope="module")
def unpushed(spark: SparkSession) -> Iterator[SparkSession]:
    before = {name: spark.conf.get(name) for name in SETTINGS}
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.fixture(scope="module")
def files(unpushed: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same rows as written by pyarrow and by Spark, a file each."""
    folder = tmp_path_factory.mktemp("questions")
    table = everything(ROWS).select(["i32", *(name for name in TYPES if name != "i32")])
    ours, theirs = folder / "pyarrow.parquet", folder / "spark"
    write_file(
        table,
        Layout(group_rows=400, page_rows=60, codec="snappy", dictionary=["s", "cat", "dec"]),
        where=str(ours),
    )
    # Spark has no unsigned 64 bits: it reads them as decimals, and writes those.
    sized = {"parquet.block.size": "20000", "parquet.page.size": "2000"}
    unpushed.read.parquet(str(ours)).coalesce(1).write.options(**sized).parquet(str(theirs))
    (written,) = theirs.glob("*.parquet")
    return {"pyarrow": ours, "spark": written}


def in_sparks_words(where: str) -> str:
    return re.sub(r"DOUBLE ('[^']*')", r"CAST(\1 AS DOUBLE)", where)


def rows_of(frame: DataFrame) -> list[str]:
    return [repr(tuple(row)) for row in frame.collect()]


@pytest.mark.parametrize("writer", ["pyarrow", "spark"])
def test_the_same_rows(unpushed: SparkSession, files: dict[str, Path], writer: str, large: bool) -> None:
    path = str(files[writer])
    named = unpushed.createDataFrame([(path,)], "path string").coalesce(1)
    schema = accel.spark.spark_schema(accel.scan(path).schema)
    whole = unpushed.read.parquet(path)
    telling = 0
    for number in range(QUESTIONS * (25 if large else 1)):
        where = to_sql(predicate(random.Random(f"{writer} {number}")))
        found = rows_of(named.mapInArrow(partial(accel.scan, where=where), schema))
        assert found == rows_of(whole.where(in_sparks_words(where))), f"question {number}: {where}"
        telling += 0 < len(found) < ROWS
    assert telling > QUESTIONS // 3


def test_the_questions_are_of_every_type() -> None:
    asked = " ".join(
        to_sql(predicate(random.Random(f"{writer} {number}")))
        for writer in ("pyarrow", "spark")
        for number in range(QUESTIONS)
    )
    assert {name for name in TYPES if name in asked} == set(TYPES)
    assert isinstance(everything(10), pa.Table)
