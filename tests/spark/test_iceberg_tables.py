"""Iceberg tables on Spark: the driver reads metadata and deletes, and executors read tasks, without pyiceberg."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyroaring import BitMap64

import accel
import accel.tables
from tests.tables.iceberg_writer import IcebergWriter, parquet_bytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATH, POS = 2147483546, 2147483545
LEFT = [1, 3, 10, 11, 13, 20, 22]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files of four rows, from which a position delete file, a vector and an equality delete take some."""
    root = tmp_path_factory.mktemp("lake") / "t"
    writer = IcebergWriter([(1, "id", "long"), (2, "key", "long")], version=3, root=f"file://{root}")
    files = []
    for at, name in enumerate("abc"):
        ids = pa.array(range(10 * at, 10 * at + 4), pa.int64())
        keys = pa.array([7, 8, 7, None], pa.int64())
        files.append(
            writer.file(f"data/{name}.parquet", parquet_bytes({"id": (1, ids), "key": (2, keys)}), 4)
        )
    writer.manifest(files[:2], sequence=2)
    writer.manifest(files[2:], sequence=1)
    names = {PATH: (PATH, pa.array([f"file://{root}/data/a.parquet"] * 2))}
    positions = parquet_bytes({"file_path": names[PATH], "pos": (POS, pa.array([0, 2], pa.int64()))})
    vector = b"\xd1\xd3\x39\x64" + BitMap64([2]).serialize()
    blob = struct.pack(">I", len(vector)) + vector + struct.pack(">I", zlib.crc32(vector))
    keys = parquet_bytes({"key": (2, pa.array([8, None], pa.int64()))})
    deletes = [
        writer.file("data/d.parquet", positions, 2, content=1),
        writer.file(
            "data/v.puffin",
            b"PFA1" + blob,
            1,
            content=1,
            file_format="PUFFIN",
            referenced_data_file=f"file://{root}/data/b.parquet",
            content_offset=4,
            content_size_in_bytes=len(blob),
        ),
        writer.file("data/e.parquet", keys, 2, content=2, equality_ids=[2]),
    ]
    writer.manifest(deletes, content=1, sequence=2)
    writer.save()
    for path, content in writer.store.objects.items():
        place = root.parent / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    return root


def test_deletes_of_each_kind_travel_in_tasks(spark: SparkSession, table: Path) -> None:
    named = accel.tables.iceberg(str(table))
    assert sorted(accel.scan(named).to_table()["id"].to_pylist()) == LEFT
    frame = accel.spark.read(spark, named, columns=["id"])
    assert sorted(row.id for row in frame.collect()) == LEFT
    filtered = accel.spark.read(spark, named, where="id >= 3 AND id < 22", columns=["id"])
    assert sorted(row.id for row in filtered.collect()) == [3, 10, 11, 13, 20]
    assert accel.spark.read(spark, named).count() == len(LEFT)


def test_the_data_source_takes_iceberg_and_a_snapshot(spark: SparkSession, table: Path) -> None:
    accel.spark.register(spark)
    reader = spark.read.format("accel").option("table", "iceberg")
    frame = reader.load(str(table))
    assert frame.columns == ["id", "key"]
    assert sorted(row.id for row in frame.where("key = 7").collect()) == [10, 20, 22]
    assert reader.option("version", 7).load(str(table)).count() == len(LEFT)
    with pytest.raises(Exception, match="no snapshot 8"):
        reader.option("version", 8).load(str(table)).count()
    recognised = spark.read.format("accel").load(str(table))
    assert sorted(row.id for row in recognised.select("id").collect()) == LEFT


def test_executors_that_read_tasks_import_no_pyiceberg(spark: SparkSession, table: Path) -> None:
    frame = accel.spark.read(spark, accel.tables.iceberg(str(table)))

    def loaded(rows: object) -> object:
        import sys

        for _ in rows:  # type: ignore[attr-defined]
            pass
        found = any(name.split(".")[0] in ("pyiceberg", "fastavro") for name in sys.modules)
        yield pa.RecordBatch.from_pylist([{"found": found}])

    assert {row.found for row in frame.mapInArrow(loaded, "found boolean").collect()} == {False}
