"""The jobs of a table on Spark: the same as in one process, by many tasks, with one commit."""

from __future__ import annotations

import datetime
import decimal
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def table(seed: int, rows: int) -> pa.Table:
    """Among others types that Spark does not have."""
    r = random.Random(seed)
    floats = [float("nan"), -0.0, 0.0, 1.5]
    return pa.table(
        {
            "id": pa.array(r.sample(range(10**6), rows), pa.uint64()),
            "name": pa.array([r.choice(["a", "b", None, "ä"]) for _ in range(rows)]).dictionary_encode(),
            "f": pa.array([r.choice(floats) for _ in range(rows)], pa.float32()),
            "m": pa.array([decimal.Decimal(r.randrange(99)) for _ in range(rows)], pa.decimal256(40, 1)),
            "at": pa.array([datetime.datetime(2020, 1, 1 + r.randrange(28)) for _ in range(rows)], pa.timestamp("ns")),
            "l": pa.array([[{"x": r.randrange(3)}] * r.randrange(3) for _ in range(rows)]),
        }
    )  # fmt: skip


def fill(path: Path, *, files: int = 6, rows: int = 700) -> pa.Table:
    for number in range(files):
        pq.write_table(table(number, rows), path / f"{number}.parquet")
    return accel.scan(str(path), cache=None).to_table()


def rows_of(found: pa.Table) -> list[str]:
    return [repr(row) for row in found.to_pylist()]


def read(path: Path, **given: Any) -> pa.Table:
    return accel.scan(str(path), cache=None, **given).to_table()


@pytest.mark.parametrize("parts", [3, None], ids=["three parts", "by default"])
def test_optimize_sorts_over_all_files(spark: SparkSession, tmp_path: Path, parts: int | None) -> None:
    before = fill(tmp_path)
    index = accel.build_index(tmp_path).index
    report = accel.spark.optimize(
        spark, tmp_path, sort_by=[("name", "descending"), "id"], target_file_size=20_000, parts=parts,
        blooms=["id"], indexes={"name": "distinct"},
    )  # fmt: skip
    after = read(tmp_path)
    assert after.schema == before.schema
    assert sorted(rows_of(after)) == sorted(rows_of(before))
    alone = tmp_path / "_alone"
    alone.mkdir()
    fill(alone)
    accel.optimize(alone, sort_by=[("name", "descending"), "id"])
    assert rows_of(after) == rows_of(read(alone))
    assert (report.rows, report.files_before, report.index) == (4200, 6, index)
    assert report.files_after == len(list(tmp_path.glob("*.parquet"))) > 1
    assert list((tmp_path / "_accel").glob("optimize-*")) == []
    listed = read(tmp_path, where="id >= 0", index=index, listing="index")
    assert sorted(rows_of(listed)) == sorted(rows_of(before))


def test_optimize_along_a_curve_into_another_directory(spark: SparkSession, tmp_path: Path) -> None:
    source, target = tmp_path / "from", tmp_path / "to"
    source.mkdir()
    before = fill(source)
    report = accel.spark.optimize(spark, source, to=target, z_order=["f", "at", "m"], parts=4)
    assert sorted(rows_of(read(target))) == sorted(rows_of(before))
    assert report.files_after == 4
    assert len(list(source.glob("*.parquet"))) == 6


def test_optimize_without_an_order_keeps_the_rows_in_theirs(spark: SparkSession, tmp_path: Path) -> None:
    before = fill(tmp_path)
    accel.spark.optimize(spark, tmp_path, target_file_size=60_000)
    assert rows_of(read(tmp_path)) == rows_of(before)


def test_optimize_keeps_partitions(spark: SparkSession, tmp_path: Path) -> None:
    for month in range(3):
        folder = tmp_path / f"month={month}"
        folder.mkdir()
        pq.write_table(table(month, 300).slice(0, 300 if month else 0), folder / "0.parquet")
    before = read(tmp_path)
    report = accel.spark.optimize(spark, tmp_path, sort_by="id", parts=2)
    after = read(tmp_path)
    assert sorted(rows_of(after)) == sorted(rows_of(before))
    assert [len(list((tmp_path / f"month={m}").iterdir())) for m in range(3)] == [1, 2, 2]
    assert report.files_after == 5


def test_a_job_that_fails_leaves_the_files(spark: SparkSession, tmp_path: Path) -> None:
    before = fill(tmp_path)
    broken = bytearray((tmp_path / "3.parquet").read_bytes())
    broken[4:200] = bytes(196)
    (tmp_path / "3.parquet").write_bytes(broken)
    with pytest.raises(Exception, match=r"3\.parquet"):
        accel.spark.optimize(spark, tmp_path, sort_by="id")
    names = sorted(path.name for path in tmp_path.rglob("*") if path.is_file())
    assert names == [*(f"{number}.parquet" for number in range(6)), "optimize.json"]
    assert (tmp_path / "_accel/optimize.json").read_bytes() == b"{}"  # a journal of no job
    pq.write_table(table(3, 700), tmp_path / "3.parquet")
    accel.spark.optimize(spark, tmp_path, sort_by="id")
    assert sorted(rows_of(read(tmp_path))) == sorted(rows_of(before))


def test_embed(spark: SparkSession, tmp_path: Path) -> None:
    before = fill(tmp_path)
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 no file PAR1")
    report = accel.spark.embed(spark, tmp_path, indexes={"name": "distinct"})
    assert (report.files, report.embedded, list(report.failed)) == (7, 6, ["broken.parquet"])
    (tmp_path / "broken.parquet").unlink()
    assert rows_of(read(tmp_path)) == rows_of(before)
    assert accel.scan(str(tmp_path), "name = 'none'", cache=None).metrics.rows.kept == 0
    again = accel.spark.embed(spark, tmp_path, indexes={"name": "distinct"})
    assert (again.embedded, again.skipped) == (0, 6)
