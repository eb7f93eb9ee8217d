"""What Spark has written is rewritten by every job, and read by Spark, DuckDB and pyarrow as before, in a
zone other than UTC.

`tests/interop/test_rewritten_types.py` has the same for other writers, without Spark.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
import accel.spark
from tests.interop.test_rewritten_types import WRITERS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from accel.maintenance.optimizing import OptimizeReport

TIMES = """
    id, timestamp'1969-12-31 20:30:00.123456' + make_interval(0, 0, 0, 0, id) as ts, timestamp_ntz'2020-03-08 02:30:00' as ntz,
    if(id % 3 = 0, null, timestamp'9999-12-31 00:00:00') as far, timestamp'1500-01-01 00:00:00' as old, date'1500-01-01' as day,
    array(timestamp'2020-01-01 00:00:00', null) as l, named_struct('t', timestamp'2020-01-01 00:00:00', 'n', id) as s,
    map('k', timestamp'2020-01-01 00:00:00') as m
"""
TYPES = """
    id, cast(id as tinyint) as i8, cast(id as smallint) as i16, interval 3 day as dt, interval 2 month as ym,
    cast(-id / 4 as decimal(9, 2)) as d9, cast(id as decimal(18, 4)) as d18, cast(id as decimal(38, 4)) as d38,
    parse_json('{"a": 1}') as v, cast('x' as char(5)) as c, cast(null as int) as n, binary('ab') as b, time'12:00:01' as t,
    array(named_struct('iv', interval 1 hour, 'd', cast(1.5 as decimal(5, 1)))) as l
"""
SPARK_WRITERS: dict[str, tuple[str, dict[str, str]]] = {
    "int96": (TIMES, {}),
    "micros": (TIMES, {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}),
    "millis": (TIMES, {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MILLIS"}),
    "old calendar": (
        TIMES,
        {
            "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
            "spark.sql.parquet.int96RebaseModeInWrite": "LEGACY",
        },
    ),
    "types": (TYPES, {}),
    "legacy format": (TYPES.replace("parse_json('{\"a\": 1}') as v,", ""), {"spark.sql.parquet.writeLegacyFormat": "true"}),
}  # fmt: skip
OTHERS = ("pyarrow-int96", "pyarrow-decimals-in-integers", "duckdb", "fastparquet", "arro3", "polars")

Job = Callable[["SparkSession", Path], object]


def _optimize(spark: SparkSession, directory: Path) -> OptimizeReport:
    return accel.spark.optimize(spark, str(directory), sort_by=[("id", "descending")], parts=2)


def _copied(spark: SparkSession, directory: Path) -> OptimizeReport:
    return accel.spark.optimize(spark, str(directory))


def _by_instants(spark: SparkSession, directory: Path) -> OptimizeReport:
    column = "ts" if "ts" in pq.read_schema(next(directory.glob("*.parquet"))).names else "id"
    return accel.optimize(directory, sort_by=column)


def _written(spark: SparkSession, directory: Path) -> None:
    for path in directory.glob("*.parquet"):
        accel.write_table(accel.scan(str(path), options=accel.Options(), cache=None), path)


JOBS: dict[str, Job] = {
    "optimize on Spark": _optimize,
    "optimize on Spark, unsorted": _copied,
    "optimize": lambda spark, directory: accel.optimize(directory),
    "optimize by instants": _by_instants,
    "embed on Spark": lambda spark, directory: accel.spark.embed(
        spark, str(directory), indexes={"id": "distinct"}
    ),
    "embed": lambda spark, directory: accel.embed_files(directory, indexes={"id": "distinct"}),
    "write_table": _written,
}


@pytest.fixture
def new_york(spark: SparkSession) -> Iterator[SparkSession]:
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.fixture(scope="module")
def originals(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("originals")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    for name, (columns, settings) in SPARK_WRITERS.items():
        before = {key: spark.conf.get(key) for key in settings}
        try:
            for key, value in settings.items():
                spark.conf.set(key, value)
            spark.range(40).selectExpr(*_split(columns)).repartition(2).write.parquet(str(root / name))
        finally:
            for key, old in before.items():
                spark.conf.set(key, str(old))
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    for name in OTHERS:
        (root / name).mkdir()
        WRITERS[name](root / name / "0.parquet")
    return root


def _split(columns: str) -> list[str]:
    """Cut a list of expressions at its outermost commas."""
    found, depth, start = [], 0, 0
    for at, letter in enumerate(columns):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and not depth:
            found.append(columns[start:at])
            start = at + 1
    return [*found, columns[start:]]


def _by_spark(spark: SparkSession, directory: Path) -> Any:
    """The schema, and the rows as text; or the error of types that Spark does not read."""
    from pyspark.errors import PySparkException

    try:
        frame = spark.read.parquet(str(directory))
        shown = [
            f"to_json(`{name}`)" if kind == "variant" else f"cast(`{name}` as string)"
            for name, kind in frame.dtypes
        ]
        rows = frame.orderBy("id").selectExpr(*shown).collect()
    except PySparkException as error:
        return error.getCondition()
    return frame.schema.jsonValue(), [tuple(row) for row in rows]


def _drop_far_years(spark: SparkSession, directory: Path) -> None:
    """Leave out what only INT96 holds: a scan reads nanoseconds, and refuses to write anything else."""
    [path, *_] = directory.glob("*.parquet")
    with pytest.raises(accel.SchemaMismatchError, match=r'Options\(int96_unit="us_utc"\)'):
        accel.write_table(accel.scan(str(path), cache=None), path)
    rows = spark.read.parquet(str(directory)).drop("far", "old").localCheckpoint()
    rows.write.mode("overwrite").parquet(str(directory))


def _by_accel(spark: SparkSession, directory: Path) -> list[Any]:
    rows = accel.spark.read(spark, str(directory), index=None)
    return [
        rows.dtypes,
        sorted(map(str, rows.selectExpr(*(f"cast(`{name}` as string)" for name in rows.columns if name != "v")).collect())),
    ]  # fmt: skip


def _by_duckdb(directory: Path) -> Any:
    with duckdb.connect() as connection:
        connection.sql("set timezone = 'America/New_York'")
        try:
            found = connection.sql(f"from read_parquet('{directory}/*.parquet') order by id")
        except duckdb.Error as error:
            return type(error).__name__
        return found.types, connection.sql("select columns(*)::varchar from found").fetchall()


def _by_pyarrow(directory: Path) -> Any:
    paths = sorted(directory.glob("*.parquet"))
    table = pa.concat_tables([pq.ParquetFile(path).read() for path in paths])
    types = [(field.name, field.type, field.nullable) for field in table.schema]
    return types, sorted(str(row) for row in table.to_pylist())


def _calendar(directory: Path) -> dict[bytes, bytes]:
    metadata = pq.read_metadata(next(directory.glob("*.parquet"))).metadata or {}
    return {key: value for key, value in metadata.items() if key.startswith(b"org.apache.spark")}


_USUAL = ("optimize on Spark", "optimize by instants", "embed")
CASES = [
    *((writer, job) for writer in SPARK_WRITERS for job in _USUAL),
    *((writer, job) for writer in ("int96", "types") for job in JOBS if job not in _USUAL),
    *((writer, "optimize on Spark") for writer in OTHERS),
]


@pytest.mark.parametrize(("writer", "job"), CASES, ids=[": ".join(case) for case in CASES])
def test_rewritten_files_are_read_as_before(
    new_york: SparkSession, originals: Path, tmp_path: Path, writer: str, job: str
) -> None:
    directory = tmp_path / "t"
    shutil.copytree(originals / writer, directory)
    if (writer, job) == ("int96", "write_table"):
        _drop_far_years(new_york, directory)
    before = (
        _by_spark(new_york, directory),
        _by_duckdb(directory),
        _by_pyarrow(directory),
        _calendar(directory),
    )
    JOBS[job](new_york, directory)
    # Of the files that are gone or replaced, no checksums of Hadoop's are left.
    assert list(directory.glob(".*.parquet.crc")) == []
    after = (
        _by_spark(new_york, directory),
        _by_duckdb(directory),
        _by_pyarrow(directory),
        _calendar(directory),
    )
    for reader, found, expected in zip(("Spark", "DuckDB", "pyarrow", "keys"), after, before, strict=True):
        assert found == expected, reader


def test_accel_reads_rewritten_int96_on_spark_as_before(
    new_york: SparkSession, originals: Path, tmp_path: Path
) -> None:
    shutil.copytree(originals / "int96", tmp_path / "t")
    before = _by_accel(new_york, tmp_path / "t")
    _optimize(new_york, tmp_path / "t")
    assert _by_accel(new_york, tmp_path / "t") == before
    assert dict(before[0])["ts"] == "timestamp"


def test_files_of_two_calendars_are_refused(new_york: SparkSession, originals: Path, tmp_path: Path) -> None:
    shutil.copytree(originals / "int96", tmp_path / "t")
    for path in (originals / "old calendar").glob("*.parquet"):
        shutil.copy(path, tmp_path / "t" / f"old-{path.name}")
    before = sorted(path.name for path in (tmp_path / "t").glob("*.parquet"))
    with pytest.raises(accel.SchemaMismatchError, match="another calendar"):
        _optimize(new_york, tmp_path / "t")
    assert sorted(path.name for path in (tmp_path / "t").glob("*.parquet")) == before


def test_columns_that_were_added_stay_in_the_schema_of_spark(new_york: SparkSession, tmp_path: Path) -> None:
    """The files have different schemas, of which one alone tells that a number is an interval."""
    path = str(tmp_path / "t")
    new_york.range(4).selectExpr("id", "interval 3 day as a").write.parquet(path)
    new_york.range(4).selectExpr("id + 4 as id", "interval 2 day as a", "cast(1 as short) as b").write.mode(
        "append"
    ).parquet(path)
    accel.spark.optimize(new_york, path, sort_by="id", parts=1)
    frame = new_york.read.parquet(path)
    assert json.loads(frame.schema.json())["fields"] == [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("id", "long"), ("a", "interval day"), ("b", "short"))
    ]
    rows = frame.orderBy("id").selectExpr("cast(a as string)", "b").collect()
    assert [tuple(row) for row in rows] == [("INTERVAL '3' DAY", None)] * 4 + [("INTERVAL '2' DAY", 1)] * 4
