"""An object store that fails while a job of Spark reads from it: the right rows, or an error that names the
file."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import accel
from accel.testing import CutBody, Stall, Status, write_file
from tests.support.relay import Passage, RelayFault

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.proxy import Proxy
    from tests.support.s3 import S3Admin

FILES, ROWS = 4, 3_000
WHERE = "id % 3 = 1"
OPTIONS = accel.Options(
    max_attempts=6, backoff_base=0.01, backoff_max=0.05, read_timeout=0.7, tail_hint=4_096, piece_bytes=16_384
)
"""Many requests, and little patience."""
BROKEN = "2.parquet"
pytestmark = pytest.mark.timeout(600)


def row(i: int) -> tuple[int, str]:
    return i, f"text {i * 7919 % 100_003}"


EXPECTED = sorted(row(i) for i in range(FILES * ROWS))


class Table:
    def __init__(self, s3: S3Admin, bucket: str, proxy: Proxy) -> None:
        self.s3, self.bucket, self.proxy = s3, bucket, proxy
        self.url = f"s3://{bucket}/t/"
        self.given: dict[str, Any] = {"storage_options": s3.storage_options(proxy.url), "options": OPTIONS}
        for number in range(FILES):
            rows = [row(i) for i in range(number * ROWS, (number + 1) * ROWS)]
            columns = {"id": [i for i, _ in rows], "text": [text for _, text in rows]}
            s3.put(bucket, f"t/{number}.parquet", write_file(pa.table(columns)))

    def rows(self, **given: Any) -> list[tuple[int, str]]:
        """What is in the store now, read without faults."""
        options = self.s3.storage_options()
        table = accel.scan(self.url, storage_options=options, cache=None, **given).to_table()
        return sorted(zip(*table.select(["id", "text"]).to_pydict().values(), strict=True))


@pytest.fixture
def table(s3: S3Admin, bucket: str, proxy: Proxy) -> Table:
    return Table(s3, bucket, proxy)


def tuples(frame: Any) -> list[tuple[int, str]]:
    return sorted((found.id, found.text) for found in frame.select("id", "text").collect())


def read(spark: SparkSession, table: Table) -> list[tuple[int, str]]:
    return tuples(accel.spark.read(spark, table.url, **table.given))


def read_planned_by_executors(spark: SparkSession, table: Table) -> list[tuple[int, str]]:
    return tuples(accel.spark.read(spark, table.url, planning="executors", **table.given))


def data_source(spark: SparkSession, table: Table) -> list[tuple[int, str]]:
    accel.spark.register(spark)
    reader = spark.read.format("accel").options(**table.given["storage_options"])
    for name in ("max_attempts", "backoff_base", "backoff_max", "read_timeout", "tail_hint", "piece_bytes"):
        reader = reader.option(name, str(getattr(OPTIONS, name)))
    return tuples(reader.load(table.url))


def lookup(spark: SparkSession, table: Table) -> list[tuple[int, str]]:
    keys = spark.range(0, FILES * ROWS).withColumnRenamed("id", "key")
    found = accel.spark.lookup(keys, table.url, on={"key": "id"}, columns=["text"], **table.given)
    return sorted((each.key, each.text) for each in found.collect())


def optimize(spark: SparkSession, table: Table) -> list[tuple[int, str]]:
    report = accel.spark.optimize(spark, table.url, sort_by="text", parts=2, **table.given)
    assert (report.rows, report.files_after) == (FILES * ROWS, 2)
    return table.rows()


def embed(spark: SparkSession, table: Table) -> list[tuple[int, str]]:
    report = accel.spark.embed(spark, table.url, indexes={"text": "bloom"}, **table.given)
    assert report.embedded + len(report.failed) == FILES
    if report.failed:
        raise AssertionError(str(dict(report.failed)))
    return table.rows()


def build_index(spark: SparkSession, table: Table) -> list[tuple[int, str]]:
    report = accel.spark.build_index(spark, table.url, indexes={"text": "keys"}, shares=2, **table.given)
    if report.skipped:
        raise AssertionError(str(dict(report.skipped)))
    assert report.files == FILES
    return table.rows(index=f"{table.url}_accel/", listing="index")


WAYS: dict[str, Callable[[SparkSession, Table], list[tuple[int, str]]]] = {
    "read": read,
    "read, planned by executors": read_planned_by_executors,
    "format": data_source,
    "lookup": lookup,
    "optimize": optimize,
    "embed": embed,
    "build_index": build_index,
}


def is_data(passage: Passage) -> bool:
    return passage.method == "GET" and ".parquet" in passage.path


def now_and_then(passage: Passage) -> RelayFault | None:
    """One request in four is refused, has its body cut, or is not answered in time; none of a kind in a
    row."""
    if passage.number % 4 != 1:
        return None
    kinds = (Status(503), CutBody(100), Stall(2.0)) if is_data(passage) else (Status(503), Status(500))
    return kinds[passage.number // 4 % len(kinds)]


@pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))
def test_faults_that_pass(spark: SparkSession, table: Table, way: Any) -> None:
    table.proxy.reset(now_and_then)
    assert way(spark, table) == EXPECTED
    faults = {passage.fault for passage in table.proxy.passages}
    assert "Status" in faults
    assert faults & {"CutBody", "Stall"}


FAULTS = itertools.cycle([Status(503), CutBody(100)])


@pytest.mark.parametrize(("way", "fault"), [(way, next(FAULTS)) for way in WAYS.values()], ids=list(WAYS))
def test_faults_that_stay(spark: SparkSession, table: Table, way: Any, fault: RelayFault) -> None:
    """Of the data of one file; its footer comes, so that most of them meet it in an executor."""

    def script(passage: Passage) -> RelayFault | None:
        tail = passage.range is not None and passage.range.startswith("bytes=-")
        return fault if is_data(passage) and BROKEN in passage.path and not tail else None

    table.proxy.reset(script)
    with pytest.raises(Exception, match=BROKEN) as caught:
        way(spark, table)
    text = str(caught.value)
    first = next(line for line in text.splitlines() if "Traceback" not in line and BROKEN in line)
    before = text[: text.index(first)]
    assert "Traceback" not in before, text[:2000]
    assert before.count("\n") <= 1, text[:2000]
    # Nothing of the table has changed, and no half file is there.
    table.proxy.reset()
    assert table.rows() == EXPECTED
