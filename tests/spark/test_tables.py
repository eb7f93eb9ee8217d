"""Tables on Spark: the driver reads the log or asks the catalog, executors read tasks; deleted rows stay
deleted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import accel
from accel.spark.source_options import read_options
from tests.support.ducklake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = Path(__file__).parents[1] / "tables/delta/mapped_by_name/table"


def test_a_table_is_read_in_a_version(spark: SparkSession) -> None:
    expected = sorted(accel.scan(TABLE, "id < 90").to_table()["id"].to_pylist())
    frame = accel.spark.read(spark, TABLE, where="id < 90", columns=["id", "person"])
    assert sorted(row.id for row in frame.collect()) == expected
    old = accel.tables.delta(TABLE, version=3)
    assert accel.spark.read(spark, old, columns=["id"]).count() == accel.scan(old).count_rows() == 300
    named = accel.spark.read(spark, str(TABLE), table="delta", where="person = 'changed'")
    assert [row.id for row in named.collect()] == [77]


def test_the_data_source_takes_a_format_and_a_version(spark: SparkSession) -> None:
    accel.spark.register(spark)
    old = spark.read.format("accel").option("table", "delta").option("version", 3).load(str(TABLE))
    assert old.count() == 300
    new = spark.read.format("accel").option("table", "delta").load(str(TABLE))
    assert [row.person for row in new.where("id = 77").collect()] == ["changed"]
    with pytest.raises(Exception, match="needs `table="):
        spark.read.format("accel").option("version", 3).load(str(TABLE)).count()


def test_the_data_source_takes_a_catalog(spark: SparkSession, tmp_path: Path) -> None:
    accel.spark.register(spark)
    with Lake(f"sqlite:///{tmp_path / 'catalog.db'}", tmp_path / "data") as lake:
        lake.run(
            "CREATE TABLE events (id INT, label VARCHAR)",
            "INSERT INTO events SELECT i, 'l' || i FROM range(100) r(i)",
            "INSERT INTO events VALUES (200, 'late')",
            "DELETE FROM events WHERE id = 7",
        )
    named = spark.read.format("accel").option("table", "ducklake").option("catalog", lake.catalog)
    found = named.load("main.events").where("id IN (7, 8) OR id > 99").orderBy("id").collect()
    assert [tuple(row) for row in found] == [(8, "l8"), (200, "late")]
    assert named.option("version", 2).load("events").count() == 100


def test_a_catalog_of_hive() -> None:
    given = {"path": "db.events", "table": "hive", "catalog": "thrift://user:secret@host:9083"}
    asked = read_options(given)
    assert "secret" not in repr(asked)
    assert asked.names_table
    asked = read_options({**given, "catalog": "thrift://host:9083"})
    assert repr(asked.scanned) == "accel.tables.hive('thrift://host:9083', 'db.events')"
    assert asked.storage_options is None
    with pytest.raises(ValueError, match="no catalog is given"):
        read_options({"path": "db.events", "table": "hive"}).scanned  # noqa: B018
