"""readStream.format("accel"): each file of a growing directory once, through restarts, by the store's list or
the index's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 10


def _write(folder: Path, number: int) -> None:
    """A file whose name has nothing to do with its time."""
    path = folder / f"day={number % 2}" / f"{number * 7919 % 100:02}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    ids = pa.array(range(number * ROWS, (number + 1) * ROWS), pa.int64())
    pq.write_table(pa.table({"id": ids, "text": [f"file {number}"] * ROWS}), path)


class _Sink:
    """What every batch of a query held."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def batches(self) -> list[list[int]]:
        """The numbers of the files of each batch."""
        found = []
        for path in sorted(self._folder.glob("batch=*"), key=lambda path: int(path.name[6:])):
            ids = pq.read_table(path)["id"].to_pylist() if list(path.glob("*.parquet")) else []
            assert len(ids) == len(set(ids))
            found.append(sorted({n // ROWS for n in ids}))
        return found

    def __call__(self, frame: Any, batch: int) -> None:
        frame.coalesce(1).write.mode("overwrite").parquet(str(self._folder / f"batch={batch}"))


def _run(spark: SparkSession, source: Path | str, work: Path, **options: object) -> list[list[int]]:
    """Run a query until it has read what is there, and return all batches so far."""
    sink = _Sink(work / "out")
    reader = spark.readStream.format("accel").options(**{k: str(v) for k, v in options.items()})
    query = (
        reader.load(str(source))
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(work / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(150)
    return sink.batches()


@pytest.fixture(scope="module")
def source(spark: SparkSession) -> SparkSession:
    accel.spark.register(spark)
    return spark


@pytest.mark.timeout(400)
def test_each_file_once_and_so_many_a_batch(source: SparkSession, tmp_path: Path) -> None:
    """A query that ended goes on from its checkpoint, also where a file was deleted since, and another
    came."""
    folder = tmp_path / "in"
    for number in range(5):
        _write(folder, number)
    batches = _run(source, folder, tmp_path, maxFilesPerTrigger=2)
    assert sorted(map(len, batches)) == [1, 2, 2]
    assert sorted(n for batch in batches for n in batch) == list(range(5))
    for number in (5, 6):
        _write(folder, number)
    next(folder.glob("day=0/*.parquet")).unlink()
    batches = _run(source, folder, tmp_path, maxFilesPerTrigger=2, where="day = 0 OR day = 1")
    assert sorted(n for batch in batches for n in batch) == list(range(7))
    assert _run(source, folder, tmp_path) == batches


@pytest.mark.timeout(400)
def test_the_files_of_an_index(source: SparkSession, tmp_path: Path) -> None:
    """What is not refreshed yet is not there yet."""
    folder = tmp_path / "in"
    _write(folder, 0)
    accel.build_index(str(folder))
    _write(folder, 1)
    assert _run(source, folder, tmp_path, listing="index", columns="id") == [[0]]
    accel.refresh_index(str(folder / "_accel"))
    assert _run(source, folder, tmp_path, listing="index", columns="id") == [[0], [1]]


@pytest.mark.timeout(400)
def test_one_place_by_another_name_and_optimized(source: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    for number in range(3):
        _write(folder, number)
    assert _run(source, folder, tmp_path) == [[0, 1, 2]]
    assert _run(source, f"file://{folder}", tmp_path) == [[0, 1, 2]]
    accel.optimize(folder, sort_by="id")
    assert _run(source, folder, tmp_path) == [[0, 1, 2]]
    _write(folder, 3)
    assert _run(source, folder, tmp_path) == [[0, 1, 2], [3]]


@pytest.mark.timeout(400)
def test_a_stream_that_is_refused_says_why(source: SparkSession, tmp_path: Path) -> None:
    _write(tmp_path / "in", 0)
    with pytest.raises(
        Exception, match=r"ValueError: a stream has no limit: leave the option limit out"
    ) as caught:
        _run(source, tmp_path / "in", tmp_path, limit=3)
    assert "Traceback" not in str(caught.value)
    with pytest.raises(Exception, match="no option cleanSource: "):
        _run(source, tmp_path / "in", tmp_path, cleanSource="delete")
