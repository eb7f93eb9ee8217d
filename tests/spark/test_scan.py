"""accel.scan and accel.spark.read inside a real Spark: paths, tasks, partial; compared with Spark's own
reader."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from decimal import Decimal
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.spark.executing import for_executors
from accel.spark.partitions import spread

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MONTHS, ROWS = 4, 3_000
WHERE = "carrier = 'UA' AND delay > 55"
COLUMNS = ["flight", "carrier", "delay"]
_BAD_END = re.compile("SIGABRT|abort|core dumped|exited unexpectedly|Traceback|Fatal|panic", re.IGNORECASE)
SCHEMA = "flight bigint, carrier string, delay double"


def _month(month: int) -> pa.Table:
    number = np.arange(ROWS, dtype=np.int64) + month * ROWS
    delay = pa.array(np.round((number * 7919) % 60, 1).astype(float), mask=number % 11 == 0)
    carrier = pa.array(np.array(["AA", "B6", "HA", "UA"])[np.arange(ROWS) * 4 // ROWS].tolist())
    return pa.Table.from_arrays([pa.array(number), carrier, delay], names=["flight", "carrier", "delay"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file a month, two row groups each, sorted by carrier, with a page index."""
    root = tmp_path_factory.mktemp("data") / "flights"
    for month in range(1, MONTHS + 1):
        path = root / f"month={month}" / "part.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(
            _month(month), path, row_group_size=ROWS // 2, write_page_index=True, max_rows_per_page=100
        )
    return root


@pytest.fixture(scope="module")
def files(folder: Path) -> list[str]:
    return [str(path) for path in sorted(folder.glob("*/*.parquet"))]


@pytest.fixture
def paths(spark: SparkSession, files: list[str]) -> DataFrame:
    return spark.createDataFrame([(name,) for name in files], "path string").repartition(2)


@pytest.fixture(scope="module")
def expected(spark: SparkSession, folder: Path) -> list[tuple[object, ...]]:
    rows = spark.read.parquet(str(folder)).where(WHERE).select(*COLUMNS).collect()
    found = sorted(tuple(row) for row in rows)
    assert len(found) == 175
    return found


def _sorted(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def test_partial_over_paths(paths: DataFrame, expected: list[tuple[object, ...]]) -> None:
    ask = partial(accel.scan, where=WHERE, columns=COLUMNS)
    assert _sorted(paths.mapInArrow(ask, SCHEMA)) == expected


def test_scan_over_paths(paths: DataFrame, spark: SparkSession, folder: Path) -> None:
    whole = paths.mapInArrow(accel.scan, SCHEMA)
    own = spark.read.parquet(str(folder)).select(*COLUMNS)
    assert whole.count() == MONTHS * ROWS
    assert whole.exceptAll(own).count() == 0
    assert own.exceptAll(whole).count() == 0


def test_tasks_of_a_plan(spark: SparkSession, folder: Path, expected: list[tuple[object, ...]]) -> None:
    plan = accel.plan(str(folder), where=WHERE, columns=COLUMNS)
    tasks = spark.createDataFrame(plan.to_arrow())
    assert tasks.count() == len(plan.tasks) == MONTHS
    frame = tasks.mapInArrow(accel.scan, accel.spark.spark_schema(plan.schema))
    assert _sorted(frame) == expected


def test_read(spark: SparkSession, folder: Path, expected: list[tuple[object, ...]]) -> None:
    frame = accel.spark.read(spark, str(folder), where=WHERE, columns=COLUMNS)
    assert frame.schema.simpleString() == "struct<flight:bigint,carrier:string,delay:double>"
    assert all(field.nullable for field in frame.schema)
    assert _sorted(frame) == expected


@pytest.mark.parametrize("partitions", [1, 3, 100], ids=str)
def test_read_keeps_the_order_of_the_files(spark: SparkSession, folder: Path, partitions: int) -> None:
    frame = accel.spark.read(spark, str(folder), columns=["flight"], partitions=partitions)
    assert frame.rdd.getNumPartitions() == min(partitions, 2 * MONTHS)
    assert [row.flight for row in frame.collect()] == list(range(ROWS, (MONTHS + 1) * ROWS))


def test_read_partition_columns(spark: SparkSession, folder: Path) -> None:
    frame = accel.spark.read(spark, str(folder), where="month >= 3", columns=["month", "flight"])
    assert frame.groupBy("month").count().orderBy("month").collect() == [(3, ROWS), (4, ROWS)]


def test_read_by_a_long_list_of_values(spark: SparkSession, folder: Path) -> None:
    """It travels once, beside the tasks: a plan of them all holds little."""
    wanted = np.arange(0, 1_000_000, 100)
    frame = accel.spark.read(spark, str(folder), where=accel.col("flight").isin(wanted), columns=["flight"])
    assert [row.flight for row in frame.collect()] == list(range(ROWS, (MONTHS + 1) * ROWS, 100))


def test_read_of_nothing(spark: SparkSession, folder: Path) -> None:
    frame = accel.spark.read(spark, str(folder), where="carrier = 'ZZ'", columns=["flight"])
    assert frame.schema.simpleString() == "struct<flight:bigint>"
    assert frame.collect() == []


def test_read_without_columns_counts(spark: SparkSession, folder: Path) -> None:
    assert accel.spark.read(spark, str(folder), columns=[]).count() == MONTHS * ROWS


@pytest.mark.parametrize("version", ["3.5.6", "4.0.1"])
def test_rows_without_columns_are_refused_where_spark_loses_them(folder: Path, version: str) -> None:
    session = SimpleNamespace(version=version, createDataFrame=None, conf={})
    with pytest.raises(
        accel.AccelError, match=rf"Spark {version} loses rows without columns \(name a column"
    ):
        accel.spark.read(session, str(folder), columns=[])  # type: ignore[arg-type]


@pytest.mark.parametrize("planning", ["driver", "executors"])
def test_spark_knows_about_the_size(spark: SparkSession, tmp_path: Path, planning: Any) -> None:
    """It sends what it takes for small to every executor: a million rows are not, one file of few rows is."""
    rows = 500_000
    table = pa.table({"id": np.arange(rows), "text": [f"{n * 7919:032x}" for n in range(rows)]})
    pq.write_table(table, tmp_path / "large.parquet", compression="none", use_dictionary=False)
    pq.write_table(table.slice(0, 100), tmp_path / "small.parquet")
    large, small = (
        accel.spark.read(spark, str(tmp_path / f"{name}.parquet"), planning=planning)
        for name in ("large", "small")
    )
    sizes = [
        int(str(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))
        for frame in (large, small)
    ]
    assert 0.5 * table.nbytes < sizes[0] < 2 * table.nbytes
    assert sizes[1] < 1_000_000
    assert large.count() == rows
    keys = spark.range(50)
    joined = large.join(keys, "id")
    assert "BroadcastExchange" not in _plan_of(large.join(large.withColumnRenamed("text", "other"), "id"))
    assert joined.count() == 50
    assert "BroadcastExchange" in _plan_of(keys.join(small, "id"))


def _plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def test_an_empty_partition_is_an_empty_scan(spark: SparkSession, files: list[str]) -> None:
    frame = spark.createDataFrame([(files[0],)], "path string").repartition(4).mapInArrow(accel.scan, SCHEMA)
    assert frame.rdd.getNumPartitions() == 4
    assert frame.count() == ROWS


def test_a_limit_stops_early(spark: SparkSession, folder: Path) -> None:
    frame = accel.spark.read(spark, str(folder), columns=["flight"])
    assert [row.flight for row in frame.limit(3).collect()] == [ROWS, ROWS + 1, ROWS + 2]


def test_files_of_another_order_are_an_error(spark: SparkSession, tmp_path: Path) -> None:
    names = []
    for name, order in (("a", ["x", "y"]), ("b", ["y", "x"])):
        names.append(str(tmp_path / f"{name}.parquet"))
        pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=order), names[-1])
    paths = spark.createDataFrame([(name,) for name in names], "path string").coalesce(1)
    with pytest.raises(Exception, match="SchemaMismatchError.*b.parquet"):
        paths.mapInArrow(accel.scan, "x long, y long").collect()
    got = paths.mapInArrow(partial(accel.scan, columns=["x", "y"]), "x long, y long").collect()
    assert sorted(tuple(row) for row in got) == [(1, 2), (2, 1)]


@pytest.mark.parametrize(
    ("column", "declared", "given"),
    [
        (pa.array([Decimal("1.25")], pa.decimal128(9, 2)), "decimal(9,1)", "1.3"),
        (pa.array([7], pa.timestamp("us")), "timestamp", "1970-01-01 00:00:00.000007"),
        (pa.array([7], pa.timestamp("us")), "long", "7"),
        (pa.array([7], pa.date32()), "int", "7"),
        (pa.array([{"x": 1, "y": 2}]), "struct<y:long,x:long>", "y 1, x 2"),
    ],
    ids=["decimal", "timestamp", "timestamp as long", "date", "struct"],
)
def test_wrong_types_that_spark_does_not_notice(
    spark: SparkSession, tmp_path: Path, column: pa.Array, declared: str, given: str
) -> None:
    """What docs/spark.md warns of: were one of them noticed, the page could drop it."""
    pq.write_table(pa.table({"c": column}), tmp_path / "f.parquet")
    paths = spark.createDataFrame([(str(tmp_path / "f.parquet"),)], "path string")
    frame = paths.mapInArrow(accel.scan, f"c {declared}")
    text = "concat('y ', c.y, ', x ', c.x)" if declared.startswith("struct") else "cast(c as string)"
    assert frame.selectExpr(text).collect() == [(given,)]


def test_files_of_another_order_in_another_partition(spark: SparkSession, tmp_path: Path) -> None:
    """A partition is a scan of its own: only names given for all of them hold for all of them."""
    for name, order in (("a", ["x", "y"]), ("b", ["y", "x"])):
        pq.write_table(pa.table([[1], [2]], names=order), tmp_path / f"{name}.parquet")
    names = [(str(tmp_path / f"{name}.parquet"),) for name in "ab"]
    apart = spark.createDataFrame(names, "path string").repartitionByRange(2, "path")
    assert _sorted(apart.mapInArrow(accel.scan, "x bigint, y bigint")) == [(1, 2), (1, 2)]
    ask = partial(accel.scan, columns=["x", "y"])
    assert _sorted(apart.mapInArrow(ask, "x bigint, y bigint")) == [(1, 2), (2, 1)]


def test_a_file_that_changed_fails_the_job(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    pq.write_table(_month(1), path)
    frame = accel.spark.read(spark, str(path), columns=["flight"])
    pq.write_table(_month(2).slice(5), path)
    with pytest.raises(Exception, match="ObjectChangedError"):
        frame.collect()


def test_what_differs_from_sparks_own_reader(spark: SparkSession, tmp_path: Path) -> None:
    """What docs/spark.md warns of: the session's zone is not asked."""
    folder = str(tmp_path / "hours")
    hours = spark.range(0, 9, numPartitions=1)
    hours.selectExpr("id", "timestamp_seconds(id * 3600) as at").write.parquet(folder)
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        asked = {"1970-01-01 07:00:00": 7, "1970-01-01 00:00:00-05:00": 5}
        for text, hour in asked.items():
            found = accel.spark.read(spark, folder, where=f"at = '{text}'", columns=["id"])
            assert found.collect() == [(hour,)]
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_its_own_folder_overwritten(spark: SparkSession, tmp_path: Path) -> None:
    """What docs/spark.md warns of: Spark does not refuse it, and the rows are gone."""
    folder = str(tmp_path / "own")
    spark.range(0, 9, numPartitions=1).write.parquet(folder)
    with pytest.raises(Exception, match="has been deleted since"):
        accel.spark.read(spark, folder).write.mode("overwrite").parquet(folder)
    assert list(Path(folder).glob("*.parquet")) == []


def test_what_travels_pickles_small_and_holds_no_secret(spark: SparkSession, folder: Path) -> None:
    secret = "a-secret-of-the-test"
    plan = accel.plan(
        str(folder), where=WHERE, columns=COLUMNS, storage_options={"secret_access_key": secret}
    )
    assert secret.encode() not in pickle.dumps(plan)
    frame = accel.spark.read(spark, str(folder), where=WHERE, storage_options={"secret_access_key": secret})
    assert secret not in frame._jdf.queryExecution().toString()
    assert secret not in str(frame.schema)


def test_workers_that_used_accel_end_well(files: list[str]) -> None:
    """Sixteen short-lived workers, and the driver: all end with their own status, and none says a word."""
    root = Path(__file__).resolve().parents[2]
    ran = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("fresh_workers.py")), files[0], "2"],
        env=os.environ | {"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert ran.stdout.split() == ["counts", str(8 * ROWS // 4)]
    said = [line for line in ran.stderr.splitlines() if _BAD_END.search(line)]
    assert said == []


@pytest.mark.parametrize(
    ("partitions", "told"),
    [
        (0, "partitions is at least 1, not 0"),
        (-1, "partitions is a non-negative int, not -1"),
        ("3", "partitions is a non-negative int, not '3'"),
        (2.5, "partitions is a non-negative int, not 2.5"),
        (True, "partitions is a non-negative int, not True"),
    ],
    ids=str,
)
def test_partitions_that_are_no_number_of_them_are_refused(partitions: Any, told: str) -> None:
    """Before anything is planned."""
    session: Any = SimpleNamespace(createDataFrame=None, conf={})
    with pytest.raises(ValueError, match=rf"^{re.escape(told)}$"):
        accel.spark.read(session, "nowhere/", partitions=partitions)


@pytest.mark.parametrize(
    ("nbytes", "partitions", "spread_over"),
    [
        ([], 4, []),
        ([10], 4, [0]),
        ([1 << 26] * 4, 2, [0, 0, 1, 1]),
        ([1 << 26] * 3, 9, [0, 1, 2]),
        ([1 << 30, 1, 1, 1], 2, [0, 1, 1, 1]),
        ([0, 0, 0, 0], 2, [0, 0, 1, 1]),
    ],
    ids=["none", "one", "even", "fewer than partitions", "one is heavy", "no bytes"],
)
def test_spread(nbytes: list[int], partitions: int, spread_over: list[int]) -> None:
    assert spread(np.array(nbytes, dtype=np.int64), partitions).tolist() == spread_over


OPTIONS = accel.Options(max_attempts=2)
SECRET = {"secret_access_key": "x"}


@pytest.mark.parametrize(
    ("keywords", "sent"),
    [
        ({}, {}),
        ({"storage_options": None, "options": None}, {}),
        ({"storage_options": SECRET, "glob": False}, {"storage_options": SECRET}),
        ({"options": OPTIONS, "selection": {}}, {"options": OPTIONS}),
        ({"cache": accel.Cache()}, {}),
        ({"cache": None}, {"cache": None}),
    ],
    ids=["none", "none given", "credentials", "options", "a cache stays", "no cache"],
)
def test_what_executors_get(keywords: dict[str, object], sent: dict[str, object]) -> None:
    assert for_executors(keywords) == sent


def test_tasks_of_a_python_worker_share_a_cache_with_a_directory(tmp_path: Path) -> None:
    """The settings of one travel, and what is unpickled by one task is found by the next."""
    sent = pickle.dumps(for_executors({"cache": accel.Cache(disk=tmp_path, memory=1 << 20)}))
    first, second = (pickle.loads(sent)["cache"] for _ in range(2))
    assert first is second
    assert (first.disk, first.memory) == (str(tmp_path), 1 << 20)
    assert (
        pickle.loads(pickle.dumps(for_executors({"cache": accel.Cache(disk=tmp_path)})))["cache"] is not first
    )
