"""Building and keeping an index outside the files on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.catalog.inspecting import verify_index
from accel.errors import ObjectNotFoundError
from accel.maintenance.progress import JobProgress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES = 9


def fill(folder: Path, first: int = 0, files: int = FILES) -> None:
    for number in range(first, first + files):
        keys = [number * 100 + i * 37 % 100 for i in range(100)]
        names = [f"n{(number * 7 + i) % 50}" for i in range(100)]
        pq.write_table(pa.table({"id": keys, "name": names}), folder / f"{number:02}.parquet")


def test_an_index_is_built_and_refreshed_by_the_executors(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path)
    seen: list[JobProgress] = []
    built = accel.spark.build_index(
        spark, str(tmp_path), indexes={"name": "keys"}, shares=4, progress=seen.append
    )
    assert (built.files, built.added, built.removed, built.segments) == (FILES, FILES, 0, 3)
    assert dict(built.skipped) == {}
    index = f"{tmp_path}/_accel/"
    assert verify_index(index).is_empty
    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    descriptions = [jobs.apply(number).description() for number in range(jobs.size())]
    assert any("Some(accel: describe)" in str(text) for text in descriptions)
    assert spark.sparkContext.getLocalProperty("spark.job.description") is None
    scan = accel.scan(str(tmp_path), "name = 'n3'", index=index, listing="index", cache=None)
    assert scan.to_table().equals(accel.scan(str(tmp_path), "name = 'n3'", index=None, cache=None).to_table())
    assert scan.metrics.catalog.total == FILES

    (tmp_path / "03.parquet").unlink()
    fill(tmp_path, first=FILES, files=2)
    refreshed = accel.spark.refresh_index(spark, index)
    assert (refreshed.files, refreshed.added) == (FILES + 1, 2)
    assert verify_index(index).is_empty
    again = accel.spark.refresh_index(spark, index)
    assert (again.files, again.added, again.unchanged) == (FILES + 1, 0, FILES + 1)

    compacted = accel.spark.compact_index(spark, index)
    assert (compacted.files, compacted.segments) == (FILES + 1, 1)
    assert verify_index(index).is_empty


def test_a_file_that_is_broken_is_told(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path, files=3)
    (tmp_path / "01.parquet").write_bytes(b"PAR1 nothing PAR1")
    built = accel.spark.build_index(spark, str(tmp_path), to=f"{tmp_path}-index")
    assert (built.files, set(built.skipped)) == (2, {"01.parquet"})


def test_what_is_not_there(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ObjectNotFoundError):
        accel.spark.refresh_index(spark, f"{tmp_path}/none/")
    with pytest.raises(ValueError, match="shares"):
        accel.spark.build_index(spark, str(tmp_path), shares=0)
    with pytest.raises(TypeError, match="SparkSession"):
        accel.spark.build_index(str(tmp_path), str(tmp_path))  # type: ignore[arg-type]
