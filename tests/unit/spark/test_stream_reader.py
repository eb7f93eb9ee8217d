"""The reader of a stream, as Spark calls it, without Spark: each file once, by whatever name, and beside
`optimize`."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

import accel
from accel.spark.data_source import AccelDataSource, RefusedStream
from accel.tables.journal import (
    IDLE,
    JOURNAL_NAME,
    AddedFile,
    Journal,
    JournalState,
    RemovedFile,
    record_path,
)

JOB = "0123456789abcdef"


def write(folder: Path, *numbers: int) -> None:
    """Files of two rows each."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        table = pa.table({"id": pa.array([2 * number, 2 * number + 1], pa.int64())})
        pq.write_table(table, folder / f"{number:02}.parquet")


def reader_of(source: object, **options: object) -> Any:
    given = {"path": str(source), "index": "none", **{name: str(value) for name, value in options.items()}}
    if isinstance(source, list):
        given["paths"] = json.dumps(given.pop("path") and [str(one) for one in source])
    asked = AccelDataSource(given)
    return asked.streamReader(asked.schema())


class Stream:
    """A query and its checkpoint."""

    def __init__(self, offset: dict[str, Any] | None = None) -> None:
        self.offset = offset

    def run(self, source: object, *, most: int | None = None, **options: object) -> list[int]:
        """Run it until it has read what is there, and return the rows, as of a query that is started anew."""
        reader = reader_of(source, **options)
        if self.offset is None:
            self.offset = reader.initialOffset()
        reader.prepareForTriggerAvailableNow()
        limit = ReadAllAvailable() if most is None else ReadMaxFiles(most)
        rows: list[int] = []
        while (end := reader.latestOffset(self.offset, limit)) != self.offset:
            rows += rows_of(reader, self.offset, end)
            self.offset = json.loads(json.dumps(end))
        return rows


def rows_of(reader: Any, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    """Return the rows of one batch."""
    batches = [batch for each in reader.partitions(start, end) for batch in reader.read(each)]
    return sorted(value for batch in batches for value in batch["id"].to_pylist())


def of_version_1(*urls: str) -> dict[str, Any]:
    """The offset that an earlier version wrote."""
    hashes = sorted(
        int.from_bytes(hashlib.blake2b(url.encode(), digest_size=8).digest(), "little") for url in urls
    )
    text = base64.b64encode(np.array(hashes, dtype="<u8").tobytes()).decode()
    return {"version": 1, "count": len(hashes), "seen": text}


def test_one_place_by_other_names(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    write(folder, 0, 1)
    os.symlink(folder, tmp_path / "link")
    stream = Stream()
    assert stream.run(folder) == [0, 1, 2, 3]
    for again in (
        f"file://{folder}",
        f"{folder}/",
        f"{folder}/*.parquet",
        f"{tmp_path}/link",
        [folder, f"file:{folder}"],
    ):
        assert stream.run(again) == [], again
    write(folder, 2)
    assert stream.run([folder, f"file:{folder}"]) == [4, 5]
    write(folder, 13)
    assert stream.run(f"{folder}/1*.parquet") == [26, 27]
    assert stream.run(folder) == []


def test_batches_of_so_many_bytes_and_the_latest_first(tmp_path: Path) -> None:
    write(tmp_path, 0, 1, 2, 3)
    for number in range(4):
        os.utime(tmp_path / f"{number:02}.parquet", (1_000 - number, 1_000 - number))
    size = max(path.stat().st_size for path in tmp_path.iterdir())

    def batches(**options: object) -> list[list[int]]:
        reader = reader_of(tmp_path, **options)
        offset, found = reader.initialOffset(), []
        while (end := reader.latestOffset(offset, reader.getDefaultReadLimit())) != offset:
            found.append(rows_of(reader, offset, end))
            offset = end
        return found

    assert batches(maxBytesPerTrigger=3 * size) == [[0, 1, 2, 3, 4, 5], [6, 7]]
    assert batches(maxBytesPerTrigger=1) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert batches(maxBytesPerTrigger="1m", maxFilesPerTrigger=3) == [[0, 1, 2, 3, 4, 5], [6, 7]]
    os.utime(tmp_path / "02.parquet", (2_000, 2_000))
    assert batches(latestFirst="true", maxFilesPerTrigger=1) == [[4, 5], [0, 1], [2, 3], [6, 7]]
    with pytest.raises(Exception, match="leave modifiedAfter and modifiedBefore out"):
        reader_of(tmp_path, modifiedAfter="1960-01-01T00:00:00Z").initialOffset()


def test_a_file_that_is_gone_is_new_when_it_comes_back(tmp_path: Path) -> None:
    write(tmp_path, 0, 1)
    stream = Stream()
    assert stream.run(tmp_path) == [0, 1, 2, 3]
    (tmp_path / "00.parquet").unlink()
    write(tmp_path, 2)
    assert stream.run(tmp_path) == [4, 5]
    write(tmp_path, 0)
    assert stream.run(tmp_path) == [0, 1]


def test_optimized_files_are_not_read_again(tmp_path: Path) -> None:
    """In folders, twice, and with files that came between."""
    write(tmp_path / "day=1", 0, 1)
    write(tmp_path / "day=2", 2)
    stream = Stream()
    assert stream.run(tmp_path) == [0, 1, 2, 3, 4, 5]
    accel.optimize(tmp_path, sort_by="id")
    assert stream.run(tmp_path) == []
    write(tmp_path / "day=2", 3)
    assert stream.run(tmp_path) == [6, 7]
    accel.optimize(tmp_path, sort_by="id", target_file_size=1)
    accel.optimize(tmp_path, sort_by=[("id", "descending")])
    assert stream.run(tmp_path) == []
    assert stream.run(f"{tmp_path}/day=2") == []
    write(tmp_path / "day=2", 4)
    assert stream.run(f"file://{tmp_path}") == [8, 9]


def test_optimized_files_that_were_not_read_are(tmp_path: Path) -> None:
    """Also where those of another folder were."""
    write(tmp_path / "day=1", 0, 1)
    stream = Stream()
    assert stream.run(tmp_path) == [0, 1, 2, 3]
    write(tmp_path / "day=2", 2, 3)
    accel.optimize(tmp_path, sort_by="id")
    assert stream.run(tmp_path) == [4, 5, 6, 7]
    assert Stream().run(tmp_path) == list(range(8))


def test_files_read_in_part_cannot_be_told_apart(tmp_path: Path) -> None:
    write(tmp_path, 0)
    stream = Stream()
    assert stream.run(tmp_path) == [0, 1]
    write(tmp_path, 1)
    accel.optimize(tmp_path, sort_by="id")
    with pytest.raises(accel.AccelError, match=r"has read some and has not read others.*new checkpoint"):
        stream.run(tmp_path)


def test_a_batch_whose_files_were_optimized_since(tmp_path: Path) -> None:
    """It was begun, and is run again: from the files that replace those of it and no others."""
    write(tmp_path / "day=1", 0, 1)
    reader = reader_of(tmp_path)
    start = reader.initialOffset()
    one = reader.latestOffset(start, ReadMaxFiles(1))
    both = reader.latestOffset(start, ReadAllAvailable())
    accel.optimize(tmp_path, sort_by="id")
    assert rows_of(reader_of(tmp_path), start, both) == [0, 1, 2, 3]
    assert Stream(both).run(tmp_path) == []
    with pytest.raises(accel.ObjectNotFoundError, match="1 of 1 files of a batch have been deleted"):
        reader_of(tmp_path).partitions(start, one)


def test_a_new_file_beside_one_that_it_replaces(tmp_path: Path) -> None:
    """A pattern lists both, while the job is about to remove the old ones: the new one's turn is later."""
    write(tmp_path, 0, 1)
    old = [task.file for task in accel.plan(f"{tmp_path}/", index=None).tasks]
    new = f"part-00000-{JOB}.parquet"
    pq.write_table(pq.read_table(tmp_path), tmp_path / new)
    journal = Journal(
        id=JOB,
        state=JournalState.COMMITTED,
        added=(AddedFile(staged=f"_accel/optimize-{JOB}-0", path=new, size=1, rows=4),),
        removed=tuple(
            RemovedFile(path=Path(file.url).name, size=file.id.size, etag=file.id.etag or "") for file in old
        ),
    )
    (tmp_path / "_accel").mkdir()
    (tmp_path / record_path(JOB)).write_bytes(journal.record().encode())
    stream = Stream()
    assert stream.run(f"{tmp_path}/*.parquet", most=1) == [0, 1, 2, 3]
    (tmp_path / "00.parquet").unlink()
    (tmp_path / "01.parquet").unlink()
    assert stream.run(f"{tmp_path}/*.parquet") == []
    # Another file that has the name of an old one keeps nothing back.
    write(tmp_path / "other", 9)
    (tmp_path / "other" / "09.parquet").rename(tmp_path / "00.parquet")
    assert Stream().run(f"{tmp_path}/*.parquet") == [0, 1, 2, 3, 18, 19]


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    write(tmp_path, 0)
    stream = Stream()
    stream.run(tmp_path)
    accel.optimize(tmp_path)
    (record,) = (tmp_path / "_accel").glob("replaced-*.json")
    record.write_bytes(b"{}")
    with pytest.raises(accel.IndexFormatError, match="replaced-"):
        stream.run(tmp_path)


@pytest.mark.parametrize("spelled", ["{0}", "file://{0}", "{0}/"], ids=["path", "url", "slash"])
def test_a_checkpoint_of_the_version_before_goes_on(tmp_path: Path, spelled: str) -> None:
    folder = tmp_path / "in"
    write(folder, 0, 1)
    source = spelled.format(folder).rstrip("/")
    stream = Stream(of_version_1(f"{source}/00.parquet"))
    assert stream.run(spelled.format(folder)) == [2, 3]
    assert stream.run(f"file:{folder}") == []
    write(folder, 2)
    assert stream.run(folder) == [4, 5]
    accel.optimize(folder, sort_by="id")
    assert stream.run(folder) == []


def test_a_checkpoint_of_the_version_before_with_relative_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another spelling they are refused, as they may be these files; so it is after `optimize`."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "in", 0, 1)
    before = of_version_1("in/00.parquet", "in/01.parquet")
    with pytest.raises(accel.AccelError, match="none of the files that it names is there"):
        Stream(before).run(tmp_path / "in")
    assert Stream(before).run("in") == []
    accel.optimize("in", sort_by="id")
    assert Stream(before).run("in") == []


def test_a_batch_of_the_version_before_is_run_again(tmp_path: Path) -> None:
    write(tmp_path, 0, 1)
    urls = [f"{tmp_path}/0{n}.parquet" for n in (0, 1)]
    start, end = of_version_1(urls[0]), of_version_1(*urls)
    assert rows_of(reader_of(tmp_path), start, end) == [2, 3]


@pytest.mark.parametrize(
    ("options", "told"),
    [({"limit": 3}, "a stream has no limit"), ({"maxFilesPerTrigger": 0}, "at least 1")],
    ids=["limit", "option"],
)
def test_what_is_refused_is_said_by_the_first_offset(
    tmp_path: Path, options: dict[str, object], told: str
) -> None:
    """Spark reports its own mistake in place of an error that `streamReader` raises."""
    write(tmp_path, 0)
    given = {"path": str(tmp_path), **{name: str(value) for name, value in options.items()}}
    reader = AccelDataSource(given).streamReader(AccelDataSource({"path": str(tmp_path)}).schema())
    assert isinstance(reader, RefusedStream)
    calls: Sequence[Any] = (reader.initialOffset, reader.latestOffset, lambda: reader.partitions({}, {}))
    for call in calls:
        with pytest.raises(ValueError, match=told):
            call()


def test_the_journal_is_idle_and_the_record_is_there(tmp_path: Path) -> None:
    write(tmp_path, 0, 1)
    accel.optimize(tmp_path)
    (new,) = tmp_path.glob("*.parquet")
    job = new.name.split("-")[2].removesuffix(".parquet")
    names = sorted(path.name for path in (tmp_path / "_accel").iterdir())
    assert names == ["optimize.json", f"replaced-{job}.json"]
    assert (tmp_path / JOURNAL_NAME).read_bytes() == IDLE
    record = Journal.decode((tmp_path / record_path(job)).read_bytes())
    assert [file.path for file in record.removed] == ["00.parquet", "01.parquet"]
    assert record.replaced_by(new.name) == record.removed
