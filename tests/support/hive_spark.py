"""Tables in a Hive Metastore, made by Spark in a process of its own, and the rows that Spark reads of them.

Run with the URL of the metastore, the directory of the warehouse, and the directory for the rows.
"""

from __future__ import annotations

import sys

__all__ = ["REFUSED", "TABLES"]

STATEMENTS = [
    "CREATE DATABASE db",
    # Spark's own kind of table: names in the case in which they were written, in its parameters.
    """CREATE TABLE db.events (Id BIGINT, userName STRING, Price DECIMAL(10, 2),
        Nested STRUCT<InnerField: INT, Tags: ARRAY<STRING>>, Day DATE, region STRING, bucketNo INT)
        USING parquet PARTITIONED BY (Day, region, bucketNo)""",
    """INSERT INTO db.events
        SELECT id, concat('u', id % 7), cast(id AS DECIMAL(10, 2)) / 4,
            named_struct('InnerField', cast(id % 5 AS INT), 'Tags', array(concat('t', id % 3))),
            date_add(DATE'2024-01-01', cast(id % 3 AS INT)),
            element_at(array('eu', 'us/x', 'it''s', 'a"b', NULL, '50%'), cast(id % 6 AS INT) + 1),
            cast((id div 6) % 2 AS INT)
        FROM range(600)""",
    # Hive's own kind.
    """CREATE TABLE db.hive_made (Id BIGINT, Label STRING, S STRUCT<Aa: INT, Bb: STRING>)
        PARTITIONED BY (k INT, p STRING) STORED AS PARQUET""",
    """INSERT INTO db.hive_made PARTITION (k, p)
        SELECT id, concat('l', id), named_struct('Aa', cast(id AS INT), 'Bb', 'x'),
            cast(id % 2 AS INT) + 1, concat('p', id % 2) FROM range(80)""",
    # TIMESTAMP_NTZ is unknown to Hive: Spark notes formats that it does not use.
    "CREATE TABLE db.flat (a INT, B STRING, t TIMESTAMP, n TIMESTAMP_NTZ) USING parquet",
    """INSERT INTO db.flat SELECT cast(id AS INT), concat('b', id),
        timestamp_micros(1700000000000000 + id * 1000001),
        cast(timestamp_micros(1700000000000000 + id * 1000001) AS TIMESTAMP_NTZ) FROM range(50)""",
    "CREATE TABLE db.buckets (a INT, b STRING) USING parquet CLUSTERED BY (a) INTO 3 BUCKETS",
    "INSERT INTO db.buckets SELECT cast(id AS INT), concat('b', id) FROM range(30)",
    "CREATE TABLE db.empty (v STRING, a INT) USING parquet PARTITIONED BY (a)",
    "CREATE VIEW db.view AS SELECT * FROM db.flat",
    "CREATE TABLE db.orc_table (a INT) USING orc",
    "CREATE TABLE db.text_table (a INT) STORED AS TEXTFILE",
    "CREATE TABLE db.csv_table (a INT) USING csv",
]
TABLES = ("events", "hive_made", "flat", "buckets", "empty")
REFUSED = {
    "view": "virtual view",
    "orc_table": "a table of 'orc'",
    "text_table": "TextInputFormat' is not that of Parquet",
    "csv_table": "a table of 'csv'",
}
"""What the error of a table says."""


def main(url: str, warehouse: str, rows: str) -> None:
    import pyarrow.parquet as pq
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.default.parallelism", "1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.hadoop.hive.exec.dynamic.partition.mode", "nonstrict")
        .config("spark.hadoop.hive.metastore.uris", url)
        .config("spark.sql.warehouse.dir", warehouse)
        .enableHiveSupport()
        .getOrCreate()
    )
    for statement in STATEMENTS:
        spark.sql(statement)
    for table in TABLES:
        pq.write_table(spark.table(f"db.{table}").toArrow(), f"{rows}/{table}.parquet")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
