"""Every way in and the jobs on a standalone cluster: two workers, and the files in an S3 server behind the
proxy.

Each test sends a function to the driver, which lives in a process of its own.
"""

from __future__ import annotations

import functools
import io
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from tests.support.losing_store import LosingStore
from tests.support.proxy import Proxy
from tests.support.spark_cluster import SparkCluster, find_java
from tests.support.spark_driver import SparkDriver

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.support.s3 import S3Admin

pytestmark = pytest.mark.timeout(300)  # the first test starts everything

FILES, ROWS = 6, 200
BUCKET = "spark-cluster"
TABLE = f"s3://{BUCKET}/t/"
WHERE = "id IN (3, 250, 333, 500, 777, 7) AND name <> 'name 0' AND half < 300"
"""To accel and to Spark the same."""
EXPECTED = [3, 250, 333, 500]
MATCHING = (0, 1, 2)
"""The files of these rows."""
OPTIONS = accel.Options(tail_hint=64)  # of these small files the whole would come with the footer


def _table(number: int) -> pa.Table:
    ids = range(number * ROWS, (number + 1) * ROWS)
    names = [None if n % 11 == 0 else f"name {n % 7}" for n in ids]
    return pa.table({"id": pa.array(ids, pa.int64()), "name": names, "half": [n / 2 for n in ids]})


@pytest.fixture(scope="module")
def proxy(s3: S3Admin) -> Iterator[Proxy]:
    s3.create_bucket(BUCKET)
    for number in range(FILES):
        sink = io.BytesIO()
        pq.write_table(
            _table(number), sink, row_group_size=ROWS // 2, write_page_index=True, max_rows_per_page=20
        )
        s3.put(BUCKET, f"t/month={number}/part.parquet", sink.getvalue())
    with Proxy(s3.url) as running:
        yield running


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    if find_java() is None:
        pytest.skip("needs Java on PATH or in JAVA_HOME")
    with SparkCluster() as running:
        yield running


@pytest.fixture(scope="module")
def driver(cluster: SparkCluster) -> Iterator[SparkDriver]:
    events = cluster.folder / "events"
    events.mkdir()
    config = {
        **cluster.config(),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        # Otherwise a small stage may run where the one before it ran, on one worker alone.
        "spark.locality.wait": "0s",
        "spark.shuffle.reduceLocality.enabled": "false",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": events.as_uri(),
    }
    with SparkDriver(config, environment=cluster.driver_environment()) as running:
        yield running


@pytest.fixture
def options(s3: S3Admin, proxy: Proxy) -> dict[str, str]:
    proxy.reset()
    return s3.storage_options(proxy.url)


# -- what runs in the driver --------------------------------------------------------------------


_planned: list[DataFrame] = []


def plan_frame(spark: SparkSession, options: dict[str, str], way: str) -> int:
    """Plan a DataFrame of ids and of the Python workers that gave them, and hold it until it is collected."""
    frame = _WAYS[way](spark, options).select("id").mapInArrow(_with_worker, "id long, worker long")
    _planned[:] = [frame]
    return int(frame.rdd.getNumPartitions())


def collect_frame(spark: SparkSession) -> tuple[list[int], int]:
    """The ids of the planned frame, and how many Python workers gave them."""
    rows = _planned.pop().collect()
    return sorted(row.id for row in rows), len({row.worker for row in rows})


def _with_worker(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        worker = pa.array([os.getppid()] * batch.num_rows, pa.int64())  # the daemon, one on each machine
        yield pa.RecordBatch.from_arrays([batch.column(0), worker], names=["id", "worker"])


def _read(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    return accel.spark.read(spark, TABLE, where=WHERE, storage_options=options, options=OPTIONS, partitions=4)


def _read_planned_by_executors(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    return accel.spark.read(
        spark, TABLE, where=WHERE, storage_options=options, planning="executors", partitions=4
    )


def _sql(spark: SparkSession, options: dict[str, str], *, pushdown: bool) -> DataFrame:
    accel.spark.register(spark, pushdown=pushdown)
    given = {**options, "path": TABLE, "tail_hint": "64", "partitions": "4"}
    if not pushdown:
        given["where"] = WHERE
    listed = ", ".join(
        f"`{name}` '{value.replace(chr(39), chr(92) + chr(39))}'" for name, value in given.items()
    )
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW t USING accel OPTIONS ({listed})")
    return spark.sql("SELECT id FROM t" + (f" WHERE {WHERE}" if pushdown else ""))


def _paths(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    from functools import partial

    names = [(f"{TABLE}month={number}/part.parquet",) for number in range(FILES)]
    ask = partial(accel.scan, where=WHERE, columns=["id"], storage_options=options, partitioning=None)
    return spark.createDataFrame(names, "path string").repartition(4).mapInArrow(ask, "id long")


_WAYS: dict[str, Any] = {
    "read": _read,
    "executors plan": _read_planned_by_executors,
    "where in SQL": lambda spark, options: _sql(spark, options, pushdown=False),
    "pushed by SQL": lambda spark, options: _sql(spark, options, pushdown=True),
    "paths": _paths,
}


def join_keys(spark: SparkSession, options: dict[str, str]) -> list[tuple[Any, ...]]:
    keys = spark.createDataFrame(
        [(5, "a"), (333, "b"), (333, "c"), (None, "d"), (10**6, "e")], "id long, tag string"
    )
    found = accel.spark.lookup(keys, TABLE, on="id", columns=["half"], storage_options=options)
    return sorted(tuple(row) for row in found.collect())


def stream(spark: SparkSession, options: dict[str, str], folder: str) -> list[tuple[int, int]]:
    """The number of rows and the greatest id, of all batches of a query and of a second one with its
    checkpoint."""
    accel.spark.register(spark)
    for _ in range(2):
        query = (
            spark.readStream.format("accel")
            .options(**options, maxFilesPerTrigger="2")
            .load(TABLE)
            .writeStream.format("parquet")
            .option("path", f"{folder}/out")
            .option("checkpointLocation", f"{folder}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        if not query.awaitTermination(120):
            raise TimeoutError("the stream does not end")
    rows = spark.read.parquet(f"{folder}/out").selectExpr("count(*)", "count(distinct id)", "max(id)")
    return [tuple(row) for row in rows.collect()]


def keep_table(spark: SparkSession, source: str, options: dict[str, str]) -> dict[str, Any]:
    """Build an index, rewrite the table with it, and ask before and after."""
    from accel.catalog.inspecting import verify_index

    asked: dict[str, Any] = {"storage_options": options}
    built = accel.spark.build_index(spark, source, indexes={"name": "keys"}, shares=4, **asked)
    index = f"{source}_accel/"
    before = accel.spark.read(spark, source, where=WHERE, index=index, listing="index", **asked)
    ids = [row.id for row in before.select("id").orderBy("id").collect()]
    report = accel.spark.optimize(spark, source, sort_by=["name", "id"], index=index, parts=2, **asked)
    after = accel.spark.read(spark, source, where=WHERE, index=index, listing="index", **asked)
    return {
        "built": (built.files, dict(built.skipped)),
        "before": ids,
        "rows": report.rows,
        "after": [row.id for row in after.select("id").orderBy("id").collect()],
        "whole": verify_index(index, **asked).is_empty,
    }


def plan_by_workers(spark: SparkSession, options: dict[str, str], folder: str) -> int:
    cache = accel.Cache(disk=folder, memory=0, data=0)
    frame = accel.spark.read(
        spark, TABLE, where=WHERE, storage_options=options, options=OPTIONS, planning="executors", cache=cache
    )
    return int(frame.count())


def read_slowly(spark: SparkSession, options: dict[str, str], marks: str) -> list[int]:
    frame = _read(spark, options).select("id").mapInArrow(functools.partial(_slowly, marks), "id long")
    return sorted(row.id for row in frame.collect())


def _slowly(marks: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Hand batches on after a while; a file named after the process tells that it is at it."""
    for batch in batches:
        Path(marks, str(os.getpid())).touch()
        time.sleep(2)
        yield batch


# -- the tests ----------------------------------------------------------------------------------


@pytest.mark.parametrize("way", _WAYS)
def test_rows_come_from_both_workers(driver: SparkDriver, options: dict[str, str], way: str) -> None:
    assert driver.call(plan_frame, options, way) >= 2
    rows, workers = driver.call(collect_frame)
    assert rows == EXPECTED
    assert workers == 2


@pytest.mark.parametrize("way", ["read", "where in SQL", "pushed by SQL"])
def test_executors_request_data_alone(
    driver: SparkDriver, proxy: Proxy, options: dict[str, str], way: str
) -> None:
    """The driver has listed the files and read their footers; each task reads ranges of pages, once."""
    driver.call(plan_frame, options, way)
    assert any(passage.path.startswith(f"/{BUCKET}?") for passage in proxy.passages)
    proxy.reset()
    rows, _ = driver.call(collect_frame)
    assert rows == EXPECTED
    requests = [(p.method, unquote(p.path.partition("?")[0]), p.range) for p in proxy.passages]
    assert {(method, path) for method, path, _ in requests} <= {
        ("GET", f"/{BUCKET}/t/month={number}/part.parquet") for number in MATCHING
    }
    assert all(asked and not asked.startswith("bytes=-") for *_, asked in requests)
    assert len(set(requests)) == len(requests)


def test_a_join_by_keys(driver: SparkDriver, options: dict[str, str]) -> None:
    assert driver.call(join_keys, options) == [(5, "a", 2.5), (333, "b", 166.5), (333, "c", 166.5)]


def test_a_stream(driver: SparkDriver, options: dict[str, str], tmp_path: Path) -> None:
    assert driver.call(stream, options, str(tmp_path)) == [(FILES * ROWS, FILES * ROWS, FILES * ROWS - 1)]


def test_jobs_of_a_table(driver: SparkDriver, s3: S3Admin, bucket: str, options: dict[str, str]) -> None:
    for number in range(FILES):
        sink = io.BytesIO()
        pq.write_table(_table(number), sink)
        s3.put(bucket, f"t/{number}.parquet", sink.getvalue())
    assert driver.call(keep_table, f"s3://{bucket}/t/", options) == {
        "built": (FILES, {}),
        "before": EXPECTED,
        "rows": FILES * ROWS,
        "after": EXPECTED,
        "whole": True,
    }


def test_workers_of_a_machine_share_the_directory_of_a_cache(
    driver: SparkDriver, cluster: SparkCluster, proxy: Proxy, options: dict[str, str], tmp_path: Path
) -> None:
    """Python workers that know nothing find the footers that others have read."""
    found = driver.call(plan_by_workers, options, str(tmp_path / "cache"))
    assert found == len(EXPECTED)
    assert _footers(proxy) > 0
    for number in range(2):
        for pid in cluster.python_workers(number):
            cluster.kill(pid)
    proxy.reset()
    assert driver.call(plan_by_workers, options, str(tmp_path / "cache")) == found
    assert _footers(proxy) == 0


def _data_reads(proxy: Proxy) -> int:
    """Reads of parts of files other than their ends."""
    return sum((passage.range or "bytes=-").startswith("bytes=-") is False for passage in proxy.passages)


def _footers(proxy: Proxy) -> int:
    """Reads of the ends of files."""
    return sum((passage.range or "").startswith("bytes=-") for passage in proxy.passages)


def test_no_secret_is_written(
    driver: SparkDriver, cluster: SparkCluster, s3: S3Admin, options: dict[str, str]
) -> None:
    """Neither in the event log, nor in what the programs of the cluster print."""
    driver.call(plan_frame, options, "read")
    driver.call(collect_frame)
    logs = [path for path in (cluster.folder / "events").rglob("*") if path.is_file()]
    printed = [*cluster.folder.glob("*.log"), *cluster.folder.glob("worker*/*/*/std*")]
    assert any(b"SparkListenerTaskEnd" in path.read_bytes() for path in logs)
    assert len(printed) >= 3 + 2 * 2
    assert [path for path in [*logs, *printed] if s3.secret_key.encode() in path.read_bytes()] == []


def run_job(
    spark: SparkSession, job: str, folder: str, mark: str, change: str, made: bool, workers: tuple[int, ...]
) -> dict[str, Any]:
    """Run a job of the table `t` in a store that loses executors."""
    root = Path(folder)
    store = LosingStore(root, Path(mark), change=change, made=made, workers=workers)
    jobs: dict[str, Any] = {
        "optimize": lambda: accel.spark.optimize(spark, "t", sort_by="name", parts=2, store=store),
        "embed": lambda: accel.spark.embed(spark, "t", indexes={"name": "distinct"}, store=store),
        "build_index": lambda: accel.spark.build_index(
            spark, "t", indexes={"name": "keys"}, shares=2, store=store
        ),
    }
    jobs[job]()
    rows = accel.scan(f"{folder}/t/", columns=["id"], cache=None).to_table()
    found: dict[str, Any] = {"ids": sorted(rows["id"].to_pylist())}
    if job == "embed":
        found["embedded"] = all(
            b"accel.indexes" in (pq.read_metadata(path).metadata or {}) for path in root.glob("t/*.parquet")
        )
    if job == "build_index":
        from accel.catalog.inspecting import verify_index

        found["whole"] = verify_index("t/_accel", store=store).is_empty
    return found


_LOSSES = [
    ("optimize", r"write .*-00001-00000\.json", False, True),
    ("optimize", r"write t/_accel/replaced-", False, False),
    ("embed", r"write t/2\.parquet", True, True),
    ("build_index", r"write t/_accel/(?!head)", True, True),
]
"""A job, the change at which executors are lost, whether it is made, and whether a Python worker makes it."""


@pytest.mark.parametrize(("job", "change", "made", "in_worker"), _LOSSES)
def test_executors_are_lost_in_the_commit(
    driver: SparkDriver,
    cluster: SparkCluster,
    tmp_path: Path,
    job: str,
    change: str,
    made: bool,
    in_worker: bool,
) -> None:
    """Whoever reads sees each row once, at that moment and after; the job ends well, as Spark runs the task again."""
    (tmp_path / "t").mkdir()
    for number in range(FILES):
        pq.write_table(_table(number), tmp_path / "t" / f"{number}.parquet")
    mark = tmp_path / "mark.json"
    workers = (cluster.worker(0), cluster.worker(1))
    found = driver.call(run_job, job, str(tmp_path), str(mark), change, made, workers)
    ids = list(range(FILES * ROWS))
    lost = json.loads(mark.read_text())
    assert (lost["in_worker"], lost["ids"]) == (in_worker, ids)
    assert found["ids"] == ids
    assert found.get("embedded", True)
    assert found.get("whole", True)
    cluster.wait_for_executors(2)


def test_a_machine_is_lost_in_the_middle_of_a_job(
    driver: SparkDriver, cluster: SparkCluster, options: dict[str, str], tmp_path: Path
) -> None:
    """The last test here: the other worker reads what was being read there."""
    driver.start(read_slowly, options, str(tmp_path))

    def at_it() -> set[int]:
        """Python workers of the machine that have begun to hand rows on."""
        return {int(mark.name) for mark in tmp_path.iterdir()} & set(cluster.python_workers(1))

    deadline = time.monotonic() + 60
    while not at_it():
        assert time.monotonic() < deadline, "no task has begun there"
        time.sleep(0.05)
    cluster.kill_worker(1)
    assert driver.result() == EXPECTED
    assert cluster.executors(1) == []
