"""Make the Delta tables of the tests, by Spark with Delta's own library; and what Spark reads of each version.

It runs in an environment of its own, as pyspark 4.3, which the project has, is too new for delta-spark 4.4:
`make tables`. A table is a directory `tests/tables/delta/NAME/table`; beside it lie `expected/VERSION.parquet`,
the rows as Spark reads them.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

HERE = Path(__file__).parent / "delta"


def session(jars: str) -> SparkSession:
    return (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", ",".join(str(path) for path in sorted(Path(jars).glob("*.jar"))))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.warehouse.dir", str(HERE / "warehouse"))
        .config("spark.databricks.delta.properties.defaults.checkpointInterval", "1000")
        .getOrCreate()
    )


def mapped_by_name(spark: SparkSession, at: str) -> None:
    """Make deletion vectors, and columns that were renamed, dropped and added again."""
    spark.sql(
        f"create table delta.`{at}` (id bigint, user string, spot struct<x: int, y: struct<z: string>>, "
        "tags array<struct<k: string>>, old int, region string) using delta partitioned by (region) "
        "tblproperties ('delta.columnMapping.mode' = 'name', 'delta.enableDeletionVectors' = 'true')"
    )
    for part in range(3):
        spark.sql(
            f"insert into delta.`{at}` select id, concat('u', id % 7), "
            "named_struct('x', cast(id as int), 'y', named_struct('z', concat('z', id))), "
            "array(named_struct('k', concat('k', id))), cast(id as int), if(id % 2 = 0, 'eu', 'us') "
            f"from range({part * 100}, {part * 100 + 100})"
        )
    spark.sql(f"delete from delta.`{at}` where id % 10 = 3")
    spark.sql(f"alter table delta.`{at}` rename column user to person")
    spark.sql(f"alter table delta.`{at}` drop column old")
    spark.sql(f"alter table delta.`{at}` add column old string")
    spark.sql(f"alter table delta.`{at}` rename column spot.y.z to zed")
    spark.sql(
        f"insert into delta.`{at}` select id, concat('u', id % 7), named_struct('x', null, 'y', "
        "named_struct('zed', 'new')), null, 'again', null from range(300, 320)"
    )
    checkpoint(spark, at)
    spark.sql(f"delete from delta.`{at}` where id between 40 and 60")
    spark.sql(f"update delta.`{at}` set person = 'changed' where id = 77")


def mapped_by_id(spark: SparkSession, at: str) -> None:
    spark.sql(
        f"create table delta.`{at}` (id int, name string, inner struct<a: int, b: map<string, int>>) using delta "
        "tblproperties ('delta.columnMapping.mode' = 'id')"
    )
    for part in range(2):
        spark.sql(
            f"insert into delta.`{at}` select cast(id as int), concat('n', id), "
            "named_struct('a', cast(id as int), 'b', map('k', cast(id as int))) "
            f"from range({part * 10}, {part * 10 + 10})"
        )
    spark.sql(f"alter table delta.`{at}` rename column name to label")
    spark.sql(f"alter table delta.`{at}` rename column inner.a to first")
    spark.sql(f"insert into delta.`{at}` values (100, 'last', named_struct('first', 5, 'b', map('q', 1)))")


def widened(spark: SparkSession, at: str) -> None:
    spark.sql(
        f"create table delta.`{at}` (a tinyint, b int, c float, d decimal(5, 2), e date, f int, g smallint) "
        "using delta tblproperties ('delta.enableTypeWidening' = 'true', 'delta.enableRowTracking' = 'true', "
        "'delta.feature.timestampNtz' = 'supported')"
    )
    spark.sql(
        f"insert into delta.`{at}` values (1, 2, 1.1, 3.25, date'2024-02-29', 7, 9), (-128, -1, 0.3, null, "
        "null, -7, -9)"
    )
    for name, kind in (("a", "int"), ("b", "bigint"), ("c", "double"), ("d", "decimal(20, 4)")):
        spark.sql(f"alter table delta.`{at}` alter column {name} type {kind}")
    spark.sql(f"alter table delta.`{at}` alter column e type timestamp_ntz")
    spark.sql(f"alter table delta.`{at}` alter column f type double")
    spark.sql(f"alter table delta.`{at}` alter column g type decimal(10, 0)")
    spark.sql(
        f"insert into delta.`{at}` values (100000, 5000000000, 1.1D, 12345678901.1234, "
        "timestamp_ntz'2024-03-01 10:00:00.123456', 0.5, 12345)"
    )


def second_checkpoints(spark: SparkSession, at: str, form: str) -> None:
    """Make v2 checkpoints, with sidecars."""
    spark.conf.set("spark.databricks.delta.checkpointV2.topLevelFileFormat", form)
    spark.sql(
        f"create table delta.`{at}` (id bigint, p string) using delta partitioned by (p) "
        "tblproperties ('delta.checkpointPolicy' = 'v2')"
    )
    for part in range(4):
        spark.sql(
            f"insert into delta.`{at}` select id, concat('p', id % 2) from range({part * 10}, {part * 10 + 10})"
        )
    checkpoint(spark, at)
    spark.sql(f"delete from delta.`{at}` where id = 15")


def partition_types(spark: SparkSession, at: str) -> None:
    spark.sql(
        f"create table delta.`{at}` (id int, s string, b boolean, i int, l bigint, f float, d double, "
        "n decimal(12, 3), t date, ts timestamp, tn timestamp_ntz, y binary) using delta "
        "partitioned by (s, b, i, l, f, d, n, t, ts, tn, y)"
    )
    rows = [
        "1, 'eu/x y%z=1', true, -5, 9000000000, 1.5, -2.25, 1.125, date'2024-02-29', timestamp'2024-02-29 23:59:59.123456Z', timestamp_ntz'1999-12-31 23:59:59.5', X'6162'",
        "2, null, null, null, null, null, null, null, null, null, null, null",
        "3, '', false, 0, 0, float('nan'), double('infinity'), -0.001, date'1900-01-01', timestamp'1970-01-01 00:00:00Z', timestamp_ntz'2024-01-01 00:00:00', X'7a'",
        "4, 'é\"''', false, 1, 1, -0.0, -0.0, 0, date'9999-12-31', timestamp'2200-01-01 00:00:00Z', null, null",
    ]
    for row in rows:
        spark.sql(f"insert into delta.`{at}` values ({row})")
    checkpoint(spark, at)


def all_statistics(spark: SparkSession, at: str) -> None:
    """Make files whose statistics writers cut: long texts, microseconds, decimals, NaN."""
    spark.sql(
        f"create table delta.`{at}` (id int, s string, ts timestamp, tn timestamp_ntz, n decimal(38, 10), "
        "f float, d double, t date, b boolean, y binary, deep struct<s: string, n: int>) using delta "
        "tblproperties ('delta.checkpoint.writeStatsAsStruct' = 'true', 'delta.enableDeletionVectors' = 'true')"
    )
    for part in range(4):
        spark.sql(
            f"insert into delta.`{at}` select cast(id as int), concat(repeat('long text ', 6), {part}, '-', id), "
            f"timestamp_micros(1700000000000999 + id * 1000001 + {part} * 1000000000L), "
            f"cast(timestamp_micros(1600000000000999 + id) as timestamp_ntz), "
            f"cast('1234567890123456789{part}.1234567891' as decimal(38, 10)) + id, "
            f"cast(0.1 * id as float), if(id % 9 = 0, double('nan'), 0.1 * id), date_add(date'2024-01-01', "
            f"cast(id as int)), id % 2 = 0, cast(concat('y', id) as binary), "
            f"if(id % 5 = 0, null, named_struct('s', concat('d', id), 'n', cast(id as int))) "
            f"from range({part * 20}, {part * 20 + 20})"
        )
    spark.sql(f"delete from delta.`{at}` where id in (1, 25)")
    checkpoint(spark, at)
    spark.sql(f"insert into delta.`{at}` (id, s) values (1000, null)")


def commit_times(spark: SparkSession, at: str) -> None:
    """Make a table that has its times in its commits from version 2 on."""
    spark.sql(f"create table delta.`{at}` (id int) using delta")
    spark.sql(f"insert into delta.`{at}` values (1)")
    spark.sql(f"alter table delta.`{at}` set tblproperties ('delta.enableInCommitTimestamps' = 'true')")
    spark.sql(f"insert into delta.`{at}` values (2)")
    spark.sql(f"insert into delta.`{at}` values (3)")


def other_features(spark: SparkSession, at: str) -> None:
    """Make identity and generated columns, a default, and liquid clustering."""
    spark.sql(
        f"create table delta.`{at}` (id bigint generated always as identity, day date, "
        "year int generated always as (year(day)), note string default 'none') using delta cluster by (day) "
        "tblproperties ('delta.feature.allowColumnDefaults' = 'supported')"
    )
    spark.sql(f"insert into delta.`{at}` (day) values (date'2024-05-01'), (date'2023-01-01')")
    spark.sql(f"insert into delta.`{at}` (day, note) values (date'2025-05-01', 'x')")


def variants(spark: SparkSession, at: str) -> None:
    spark.sql(f"create table delta.`{at}` (id int, v variant) using delta")
    spark.sql(f"insert into delta.`{at}` select 1, parse_json('{{\"a\": 1}}')")


def several_parts(spark: SparkSession, at: str) -> None:
    """Make a checkpoint of several parts."""
    spark.sql(f"create table delta.`{at}` (id bigint) using delta")
    for part in range(6):
        spark.sql(f"insert into delta.`{at}` select * from range({part * 10}, {part * 10 + 10})")
    spark.conf.set("spark.databricks.delta.checkpoint.partSize", "3")
    checkpoint(spark, at)
    spark.conf.unset("spark.databricks.delta.checkpoint.partSize")
    spark.sql(f"delete from delta.`{at}` where id = 33")


def checkpoint(spark: SparkSession, at: str) -> None:
    log = spark._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, at)  # type: ignore[union-attr]
    log.checkpoint()


TABLES: dict[str, Callable[[SparkSession, str], None]] = {
    "mapped_by_name": mapped_by_name,
    "mapped_by_id": mapped_by_id,
    "widened": widened,
    "v2_json": lambda spark, at: second_checkpoints(spark, at, "json"),
    "v2_parquet": lambda spark, at: second_checkpoints(spark, at, "parquet"),
    "partition_types": partition_types,
    "all_statistics": all_statistics,
    "commit_times": commit_times,
    "other_features": other_features,
    "variants": variants,
    "several_parts": several_parts,
}


def keep_rows(spark: SparkSession, at: Path) -> None:
    """Write what Spark reads of each version beside the table."""
    out = at.parent / "expected"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    for version in range(spark.sql(f"describe history delta.`{at}`").count()):
        frame = spark.read.format("delta").option("versionAsOf", version).load(str(at))
        names = [f"to_json({one}) {one}" if kind == "variant" else f"`{one}`" for one, kind in frame.dtypes]
        rows = frame.selectExpr(*names).toArrow() if frame.columns else pa.table({})
        pq.write_table(rows, out / f"{version}.parquet", compression="zstd")


def main() -> None:
    jars, *only = sys.argv[1:]
    spark = session(jars)
    for name, make in TABLES.items():
        if only and name not in only:
            continue
        at = HERE / name / "table"
        shutil.rmtree(at.parent, ignore_errors=True)
        at.parent.mkdir(parents=True)
        make(spark, str(at))
        keep_rows(spark, at)
        print("made", name, flush=True)
        for path in at.rglob(".*.crc"):
            path.unlink()
    spark.stop()
    shutil.rmtree(HERE / "warehouse", ignore_errors=True)


if __name__ == "__main__":
    main()
