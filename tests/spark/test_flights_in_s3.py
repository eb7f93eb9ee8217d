"""The flights of 2013 in an S3 server, asked by an async scan and by Spark in its four ways; DuckDB is the
judge."""

from __future__ import annotations

import pickle
from functools import partial
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest

import accel
from demo.flights import read_flights, write_flights

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.support.s3 import S3Admin

BUCKET = "flights-of-2013"
WHERE = "month = 7 AND carrier IN ('AS', 'HA') AND dep_delay > 60"
COLUMNS = ["time_hour", "month", "carrier", "flight", "tailnum", "dep_delay"]

# The same question to both: their dialects have these in common.
QUESTIONS = [
    "month = 7 AND carrier IN ('AS', 'HA') AND dep_delay > 60",
    "carrier = 'HA' AND arr_delay IS NULL",
    "dest = 'ANC'",
    "tailnum LIKE 'N14%' AND month BETWEEN 11 AND 12 AND NOT (dep_delay <= 120)",
    "time_hour = TIMESTAMP '2013-12-31 13:00:00' OR (flight = 51 AND day = 1)",
    "carrier = 'ZZ'",
]


@pytest.fixture(scope="module")
def where_it_is(s3: S3Admin, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """The URL of the data set, and the options that reach it."""
    folder = tmp_path_factory.mktemp("flights")
    write_flights(folder)
    s3.create_bucket(BUCKET)
    for path in sorted(folder.glob("*/*.parquet")):
        s3.put(BUCKET, f"nyc/{path.relative_to(folder).as_posix()}", path.read_bytes())
    return f"s3://{BUCKET}/nyc/", dict(s3.storage_options())


@pytest.fixture(scope="module")
def judge() -> duckdb.DuckDBPyConnection:
    """The same rows as a table of DuckDB's own, the hour without a zone as accel's literals are UTC."""
    flights = read_flights()
    hour = flights.schema.get_field_index("time_hour")
    flights = flights.set_column(hour, "time_hour", flights["time_hour"].cast(pa.timestamp("us")))
    connection = duckdb.connect()
    connection.register("arrow", flights)
    connection.execute("CREATE TABLE flights AS SELECT * FROM arrow")
    return connection


def _judged(judge: duckdb.DuckDBPyConnection, where: str) -> list[tuple[object, ...]]:
    rows = judge.execute(f"SELECT {', '.join(COLUMNS)} FROM flights WHERE {where}").fetchall()
    return sorted(rows, key=repr)


def _rows(table: pa.Table) -> list[tuple[object, ...]]:
    hour = table.schema.get_field_index("time_hour")
    table = table.set_column(hour, "time_hour", table["time_hour"].cast(pa.timestamp("us")))
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


@pytest.mark.parametrize("where", QUESTIONS, ids=str)
async def test_async_scan(
    where: str, where_it_is: tuple[str, dict[str, Any]], judge: duckdb.DuckDBPyConnection
) -> None:
    url, options = where_it_is
    scan = accel.scan(url, where=where, columns=COLUMNS, storage_options=options)
    batches = [batch async for batch in scan]
    assert _rows(pa.Table.from_batches(batches, scan.schema)) == _judged(judge, where)


async def test_a_warm_question_of_one_file_takes_one_round_trip(
    where_it_is: tuple[str, dict[str, Any]],
) -> None:
    url, options = where_it_is
    cache = accel.Cache()
    scan = accel.scan(url, where=WHERE, columns=COLUMNS, storage_options=options, cache=cache)
    assert (await scan.to_table_async()).num_rows == 4
    assert (scan.metrics.files.kept, scan.metrics.files.total) == (1, 12)
    assert scan.metrics.round_trips == 3
    assert (await scan.to_table_async()).num_rows == 4
    assert scan.metrics.round_trips == 1  # its data is asked for beside the listing
    assert scan.metrics.bytes < 480_000 / 4  # the file is 480 KB


@pytest.mark.parametrize("where", QUESTIONS, ids=str)
def test_spark_read(
    where: str,
    spark: SparkSession,
    where_it_is: tuple[str, dict[str, Any]],
    judge: duckdb.DuckDBPyConnection,
) -> None:
    url, options = where_it_is
    frame = accel.spark.read(spark, url, where=where, columns=COLUMNS, storage_options=options)
    assert _rows(frame.toArrow()) == _judged(judge, where)


def _paths(spark: SparkSession, url: str) -> DataFrame:
    names = [(f"{url}month={month}/flights.parquet",) for month in range(1, 13)]
    return spark.createDataFrame(names, "path string").repartition(2)


def test_map_in_arrow_over_paths(
    spark: SparkSession, where_it_is: tuple[str, dict[str, Any]], judge: duckdb.DuckDBPyConnection
) -> None:
    url, options = where_it_is
    ask = partial(
        accel.scan,
        where="carrier = 'HA' AND dep_delay > 60",
        columns=["flight", "dep_delay"],
        storage_options=options,
    )
    rows = _paths(spark, url).mapInArrow(ask, "flight int, dep_delay int").collect()
    expected = judge.execute("SELECT flight, dep_delay FROM flights WHERE carrier = 'HA' AND dep_delay > 60")
    assert sorted(tuple(row) for row in rows) == sorted(expected.fetchall())
    assert len(rows) > 5


def test_map_in_arrow_over_tasks(
    spark: SparkSession, where_it_is: tuple[str, dict[str, Any]], judge: duckdb.DuckDBPyConnection
) -> None:
    url, options = where_it_is
    plan = accel.plan(url, where=WHERE, columns=COLUMNS, storage_options=options)
    assert options["secret_access_key"].encode() not in pickle.dumps(plan)
    tasks = spark.createDataFrame(plan.to_arrow())
    schema = accel.spark.spark_schema(plan.schema)
    answer = tasks.mapInArrow(partial(accel.scan, storage_options=options), schema).toArrow()
    assert _rows(answer) == _judged(judge, WHERE)
