"""`timeout=` of what the driver does before it returns: planning, and jobs of Spark that it waits for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import accel
import accel.spark
from accel.spark import index_jobs
from accel.testing import write_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOBS: dict[str, Callable[..., Any]] = {
    "build_index": lambda spark, root, **more: accel.spark.build_index(spark, root, **more),
    "optimize": lambda spark, root, **more: accel.spark.optimize(spark, root, sort_by="id", **more),
    "embed": lambda spark, root, **more: accel.spark.embed(spark, root, indexes={"id": "bitmap"}, **more),
    "lookup": lambda spark, root, **more: accel.spark.lookup(spark.range(3), root, on="id", **more),
    "read": lambda spark, root, **more: accel.spark.read(spark, root, **more),
    "table": lambda spark, root, **more: accel.spark.table(spark, root, **more),
}


@pytest.fixture
def root(tmp_path: Path) -> str:
    for at in range(2):
        rows = pa.table({"id": pa.array(range(at * 100, at * 100 + 100), pa.int64())})
        (tmp_path / f"{at}.parquet").write_bytes(write_file(rows))
    return str(tmp_path)


def left_running(spark: SparkSession) -> int:
    return len(spark.sparkContext.statusTracker().getActiveJobsIds())


@pytest.mark.parametrize("verb", JOBS)
def test_no_time_at_all(spark: SparkSession, root: str, verb: str) -> None:
    with pytest.raises(accel.ScanTimeoutError):
        JOBS[verb](spark, root, timeout=1e-6)
    with pytest.raises(ValueError, match="timeout is a number of seconds above 0"):
        JOBS[verb](spark, root, timeout=0)
    assert JOBS[verb](spark, root, timeout=300) is not None
    assert left_running(spark) == 0


def slow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        time.sleep(30)
        yield batch


def test_the_job_that_collects_keys_is_cancelled(spark: SparkSession, root: str) -> None:
    keys = spark.range(3).mapInArrow(slow, "id long")
    began = time.monotonic()
    with pytest.raises(accel.ScanTimeoutError, match="not done within 2 seconds") as caught:
        accel.spark.lookup(keys, root, on="id", timeout=2)
    assert time.monotonic() - began < 12
    assert caught.value.__suppress_context__
    assert left_running(spark) == 0
    # What comes later is not of that call.
    assert spark.range(5).count() == 5


def test_the_job_of_an_index_is_cancelled(
    spark: SparkSession, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = index_jobs.run_shares

    def run_slowly(*given: Any) -> Any:
        frame = real(*given)
        return frame.mapInArrow(slow, frame.schema)

    monkeypatch.setattr(index_jobs, "run_shares", run_slowly)
    began = time.monotonic()
    with pytest.raises(accel.ScanTimeoutError):
        accel.spark.build_index(spark, root, timeout=3, progress=lambda done: None)
    assert time.monotonic() - began < 15
    assert left_running(spark) == 0
    monkeypatch.undo()
    assert accel.spark.build_index(spark, root).files == 2
