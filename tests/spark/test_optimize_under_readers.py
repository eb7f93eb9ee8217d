"""Jobs that meet others: under a DataFrame that was planned before, and two of one directory at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES, ROWS = 4, 500


def _fill(folder: Path) -> list[int]:
    folder.mkdir()
    for number in range(FILES):
        ids = [(at * 7_919 + number) % (FILES * ROWS) for at in range(number * ROWS, (number + 1) * ROWS)]
        pq.write_table(pa.table({"id": ids}), folder / f"{number}.parquet")
    return sorted(pq.read_table(folder)["id"].to_pylist())


def test_a_dataframe_that_was_planned_before(spark: SparkSession, tmp_path: Path) -> None:
    """It has the rows of its files, or says that they are gone; it is never short of some."""
    folder = tmp_path / "t"
    ids = _fill(folder)
    before = accel.spark.read(spark, folder)
    accel.spark.optimize(spark, str(folder), sort_by="id")
    with pytest.raises(Exception, match="ObjectGoneError|ObjectChangedError"):
        before.collect()
    assert sorted(row.id for row in accel.spark.read(spark, folder).collect()) == ids


def test_two_of_one_directory(spark: SparkSession, tmp_path: Path) -> None:
    """Each is done or says why it is not; where they may meet is in tests/faults/test_optimize_at_once.py."""
    folder = tmp_path / "t"
    ids = _fill(folder)

    def run(parts: int) -> Exception | None:
        try:
            accel.spark.optimize(spark, str(folder), sort_by="id", parts=parts)
        except Exception as error:  # noqa: BLE001 (of accel, or of Spark with the text of accel's)
            return error
        return None

    with ThreadPoolExecutor(2) as pool:
        errors = [error for error in pool.map(run, [1, 2]) if error is not None]
    assert len(errors) < 2, errors
    assert all("Object" in str(error) or "another job" in str(error) for error in errors)
    assert sorted(row.id for row in accel.spark.read(spark, folder).collect()) == ids
