"""`embed_files`: every file of a directory gets its indexes, once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.testing import DictStore, write_file

INDEXES = {"name": ["distinct", ("bloom", "row group")], "id": "zonemap"}


def fill(path: Path, count: int = 5) -> None:
    for number in range(count):
        folder = path / f"day={number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        ids = range(number * 1000, number * 1000 + 1000)
        pq.write_table(
            pa.table({"id": ids, "name": [f"n{i % 7}" for i in ids]}), folder / f"{number}.parquet"
        )


def test_every_file_gets_them_once(tmp_path: Path) -> None:
    fill(tmp_path)
    before = accel.scan(str(tmp_path), cache=None).to_table()
    index = accel.build_index(tmp_path).index
    seen: list[accel.JobProgress] = []
    report = accel.embed_files(tmp_path, indexes=INDEXES, progress=seen.append)
    assert (report.files, report.embedded, report.skipped, report.failed) == (5, 5, 0, {})
    assert [now.done for now in seen] == [1, 2, 3, 4, 5]
    assert report.bytes_after > report.bytes_before
    assert accel.scan(str(tmp_path), cache=None).to_table().equals(before)
    scan = accel.scan(str(tmp_path), "name = 'absent'", cache=None)
    assert scan.count_rows() == 0
    assert (scan.metrics.rows.kept, scan.metrics.catalog_stale, report.index) == (0, 0, index)
    again = accel.embed_files(tmp_path, indexes=INDEXES)
    assert (again.embedded, again.skipped) == (0, 5)


@pytest.mark.parametrize(
    "other",
    [
        {},
        {"name": "distinct"},
        {"name": ["distinct", ("bloom", "row group")], "id": "bitmap"},
        {"name": [("distinct", "file"), ("bloom", "row group")], "id": "zonemap"},
        {"name": ["distinct", (accel.indexes.Bloom(fpp=0.001), "row group")], "id": "zonemap"},
        {"name": ["distinct", ("bloom", "row group")], "id, lower(name), (id, name)": "zonemap"},
        {"name": ["idx1", ("bloom", "row group")], "id": "zonemap"},
        {"name": "idx1", "id, name": "zonemap"},
    ],
    ids=[
        "none",
        "fewer",
        "another kind",
        "another level",
        "other parameters",
        "several columns",
        "idx1",
        "idx1 and several columns",
    ],
)
def test_files_with_other_indexes_get_these(tmp_path: Path, other: dict[str, object]) -> None:
    fill(tmp_path, 2)
    accel.embed_files(tmp_path, indexes=INDEXES)
    report = accel.embed_files(tmp_path, indexes=other)
    assert (report.embedded, report.skipped) == (2, 0)
    assert accel.embed_files(tmp_path, indexes=other).skipped == 2


def test_the_order_of_the_columns_of_an_index_counts(tmp_path: Path) -> None:
    fill(tmp_path, 2)
    for several in ("id, name", "name, id", "id, lower(name)", "(id, name)"):
        for embedded in (2, 0):
            assert accel.embed_files(tmp_path, indexes={several: "zonemap"}).embedded == embedded, several


def test_an_idx1_that_is_not_wanted_stays_and_costs_nothing(tmp_path: Path) -> None:
    fill(tmp_path, 2)
    accel.embed_files(tmp_path, indexes={"name": "idx1"})
    assert accel.embed_files(tmp_path, indexes={"id": "zonemap"}).embedded == 2
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.parquet")}
    assert all(b"distinct_index_offset" in data for data in before.values())
    assert accel.embed_files(tmp_path, indexes={"id": "zonemap"}).skipped == 2
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.parquet")} == before


def test_into_another_directory(tmp_path: Path) -> None:
    source, target = tmp_path / "from", tmp_path / "to"
    fill(source)
    before = {path.name: path.read_bytes() for path in source.rglob("*.parquet")}
    report = accel.embed_files(source, to=target, indexes=INDEXES)
    assert (report.embedded, report.directory) == (5, f"{target}/")
    assert {path.name: path.read_bytes() for path in source.rglob("*.parquet")} == before
    assert accel.scan(str(target), cache=None).to_table().equals(accel.scan(str(source)).to_table())
    # A file of the source that was changed, and one that is lost in the target, are done again.
    (target / "day=1/1.parquet").unlink()
    pq.write_table(pa.table({"id": [1], "name": ["x"]}), source / "day=0/0.parquet")
    report = accel.embed_files(source, to=target, indexes=INDEXES)
    assert (report.embedded, report.skipped) == (2, 3)
    assert accel.scan(str(target), cache=None).to_table().equals(accel.scan(str(source)).to_table())


def test_one_that_was_stopped_goes_on(tmp_path: Path) -> None:
    fill(tmp_path)

    def stop(now: accel.JobProgress) -> None:
        if now.done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        accel.embed_files(tmp_path, indexes=INDEXES, progress=stop)
    report = accel.embed_files(tmp_path, indexes=INDEXES)
    assert report.skipped >= 2
    assert report.embedded + report.skipped == 5


def test_a_broken_file_keeps_no_other_from_its_indexes(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "day=0/0.parquet").write_bytes(b"PAR1 no file PAR1")
    report = accel.embed_files(tmp_path, indexes=INDEXES)
    assert (report.embedded, list(report.failed)) == (4, ["day=0/0.parquet"])
    assert "day=0/0.parquet" in report.failed["day=0/0.parquet"]


def test_what_no_file_can_have_is_refused(tmp_path: Path) -> None:
    fill(tmp_path, 2)
    with pytest.raises(accel.ColumnNotFoundError):
        accel.embed_files(tmp_path, indexes={"none": "distinct"})
    with pytest.raises(TypeError, match="maps columns"):
        accel.embed_files(tmp_path, indexes=["name"])  # type: ignore[arg-type]
    with pytest.raises(accel.ObjectNotFoundError):
        accel.embed_files(tmp_path / "_none", indexes=INDEXES)


async def test_in_a_store_from_a_coroutine() -> None:
    store = DictStore()
    for number in range(3):
        store.put(f"t/{number}.parquet", write_file(pa.table({"name": ["a", "b"]})))
    report = await accel.embed_files_async("t", indexes={"name": "distinct"}, store=store)
    assert report.embedded == 3
    assert accel.scan("t/", "name = 'a'", store=store, cache=None).count_rows() == 3


def test_the_checksums_of_hadoop_are_not_left_beside_new_files(tmp_path: Path) -> None:
    """Spark refuses a local file that its checksums contradict."""
    fill(tmp_path)
    for path in tmp_path.rglob("*.parquet"):
        path.with_name(f".{path.name}.crc").write_bytes(b"crc\0\0\0\x02\0")
    accel.embed_files(tmp_path, indexes=INDEXES)
    assert list(tmp_path.rglob(".*.crc")) == []
