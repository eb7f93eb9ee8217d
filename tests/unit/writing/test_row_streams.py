"""`write_table` of streams and iterators, in bounded memory, and of partitions."""

from __future__ import annotations

import datetime
import pathlib
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import accel
from accel.testing import DictStore
from accel.writing import partitioned, row_streams

TABLE = pa.table(
    {
        "year": pa.array([2024, 2025, None, 2024, 2025, 2024]),
        "name": pa.array(["a/b", "é", "a/b", "x=y", None, "100%"]),
        "n": pa.array(range(6)),
        "d": pa.array([Decimal(i) for i in range(6)], pa.decimal128(10, 2)),
        "t": pa.DictionaryArray.from_arrays([0, 1, 0, 1, None, 0], ["p", "q"]),
    }
)


def batches(rows: int = 2) -> Iterator[pa.RecordBatch]:
    yield from TABLE.to_batches(max_chunksize=rows)


SOURCES: dict[str, Any] = {
    "table": lambda: TABLE,
    "generator of batches": batches,
    "list of batches": lambda: list(batches()),
    "list of tables": lambda: [TABLE.slice(0, 4), TABLE.slice(4)],
    "record batch": lambda: TABLE.combine_chunks().to_batches()[0],
    "reader": lambda: pa.RecordBatchReader.from_batches(TABLE.schema, batches()),
    "batches of none": lambda: [*TABLE.schema.empty_table().to_batches(), TABLE.slice(0, 0), *batches()],
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES.keys())
def test_all_sources_write_the_same_rows(source: Any, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "f.parquet"
    report = accel.write_table(source(), path, row_group_size=4, indexes={"n": "distinct"})
    assert report.rows == 6
    read = pq.read_table(path)
    assert read.schema == TABLE.schema
    assert read.to_pylist() == TABLE.to_pylist()
    assert [pq.ParquetFile(path).metadata.row_group(i).num_rows for i in range(2)] == [4, 2]
    assert accel.scan(str(path), "n = 3").to_table().to_pylist() == TABLE.slice(3, 1).to_pylist()


def test_a_stream_without_rows_writes_a_file_without_rows(tmp_path: pathlib.Path) -> None:
    reader = pa.RecordBatchReader.from_batches(TABLE.schema, iter(()))
    assert accel.write_table(reader, tmp_path / "f.parquet").rows == 0
    assert pq.read_table(tmp_path / "f.parquet").equals(TABLE.schema.empty_table())


def test_a_scan_is_written_as_its_files_are(tmp_path: pathlib.Path) -> None:
    source = tmp_path / "instants.parquet"
    stamps = pa.array([datetime.datetime(2024, 1, day) for day in (1, 2, 3)], pa.timestamp("ns"))
    table = pa.table({"at": stamps, "part": ["a", "b", "a"]})
    pq.write_table(table, source, use_deprecated_int96_timestamps=True)
    accel.write_table(accel.scan(str(source)), tmp_path / "copy.parquet")
    accel.write_table(accel.scan(str(source)), str(tmp_path / "parts"), partition_by="part")
    accel.write_table(accel.scan(str(source), "part = 'none'"), tmp_path / "none.parquet")
    written = [tmp_path / "copy.parquet", tmp_path / "none.parquet", *(tmp_path / "parts").rglob("*.parquet")]
    assert len(written) == 4
    for path in written:
        assert pq.ParquetFile(path).schema.column(0).physical_type == "INT96"
    assert pq.read_table(tmp_path / "copy.parquet").equals(table)
    accel.write_table(accel.scan(str(source)), source)
    assert pq.read_table(source).equals(table)


def test_no_more_than_a_row_group_of_a_stream_is_held(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part is asked for only when those before have been written, but for a row group."""
    monkeypatch.setattr(row_streams, "GROUP_BYTES", 1 << 20)
    held: list[int] = []

    def parts() -> Iterator[pa.RecordBatch]:
        for number in range(64):
            held.append(pa.total_allocated_bytes())
            yield pa.record_batch({"n": pa.array(range(number * 65536, (number + 1) * 65536))})

    before = pa.total_allocated_bytes()
    report = accel.write_table(parts(), tmp_path / "f.parquet", compression="none", use_dictionary=False)
    assert report.rows == 64 * 65536
    written = pq.ParquetFile(tmp_path / "f.parquet").metadata.num_row_groups
    assert written == 32
    assert max(held) - before < 16 << 20  # of 32 MiB


@pytest.mark.parametrize(
    ("source", "wrong", "told"),
    [
        (lambda: iter(()), ValueError, "gives no record batch"),
        (lambda: iter([1]), TypeError, "gives a int, not record batches"),
        (lambda: [{"a": 1}], TypeError, "gives a dict, not record batches"),
        (lambda: {"a": [1]}, TypeError, "makes one of a dict of columns"),
        (lambda: "f.parquet", TypeError, "not a str"),
        (lambda: [TABLE, TABLE.select(["n"])], ValueError, "the parts differ"),
        (lambda: [TABLE.select(["n"]), TABLE.select(["n", "d"])], ValueError, "first 1 columns, then 2"),
        (lambda: pa.chunked_array([[1]]), TypeError, "no Arrow stream"),
    ],
)
def test_what_is_no_stream_is_refused(
    source: Any, wrong: type[Exception], told: str, tmp_path: pathlib.Path
) -> None:
    with pytest.raises(wrong, match=told):
        accel.write_table(source(), tmp_path / "f.parquet")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("by", [None, ["year"]])
def test_an_error_of_the_source_leaves_no_file(by: Any, tmp_path: pathlib.Path) -> None:
    def parts() -> Iterator[pa.RecordBatch]:
        yield from batches()
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="the source broke"):
        accel.write_table(parts(), tmp_path / "f", partition_by=by, row_group_size=2)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES.keys())
@pytest.mark.parametrize("by", ["year", ["name"], ["year", "name"], ["t"]], ids=str)
def test_partitions(source: Any, by: Any, tmp_path: pathlib.Path) -> None:
    reports = accel.write_table(source(), tmp_path, partition_by=by, indexes={"n": "distinct"})
    names = [by] if isinstance(by, str) else by
    assert sum(report.rows for report in reports) == 6
    files = sorted(tmp_path.rglob("*.parquet"))
    assert len(files) == len(TABLE.group_by(names).aggregate([]))
    assert all(
        set(pq.ParquetFile(path).schema_arrow.names) == set(TABLE.schema.names) - set(names) for path in files
    )
    read = accel.scan(str(tmp_path), columns=TABLE.schema.names).to_table().sort_by("n")
    assert read.to_pylist() == TABLE.to_pylist()
    theirs = ds.dataset(tmp_path, partitioning="hive").to_table()
    assert theirs.sort_by("n").select(["n", "d"]).to_pylist() == TABLE.select(["n", "d"]).to_pylist()
    if names == ["name"]:
        assert {path.parent.name for path in files} == {
            "name=a%2Fb",
            "name=%C3%A9",
            "name=x%3Dy",
            "name=100%25",
            "name=__HIVE_DEFAULT_PARTITION__",
        }


def test_a_second_call_adds_files(tmp_path: pathlib.Path) -> None:
    for _ in range(2):
        accel.write_table(batches(), tmp_path, partition_by="year")
    assert accel.scan(str(tmp_path), "year = 2024").count_rows() == 6


def test_partitions_are_sorted_and_have_blooms(tmp_path: pathlib.Path) -> None:
    accel.write_table(TABLE, tmp_path, partition_by="year", sort_by=[("n", "descending")])
    (path,) = (tmp_path / "year=2024").iterdir()
    assert pq.ParquetFile(path).read()["n"].to_pylist() == [5, 3, 0]
    assert pq.ParquetFile(path).metadata.row_group(0).sorting_columns[0].descending


def test_very_many_partitions_are_written_with_few_open_files(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitioned, "MOST_OPEN", 3)
    monkeypatch.setattr(partitioned, "MOST_BYTES", 100)
    rows = pa.table({"k": [i % 10 for i in range(200)], "n": range(200)})
    reports = accel.write_table(rows.to_batches(max_chunksize=7), tmp_path, partition_by="k")
    assert sum(report.rows for report in reports) == 200
    assert len(reports) > 10
    read = accel.scan(str(tmp_path)).to_table().sort_by("n")
    assert read.select(["k", "n"]).to_pylist() == rows.to_pylist()


def test_into_a_store() -> None:
    store = DictStore({})
    accel.write_table(batches(), "lake/", partition_by=["year"], store=store)
    assert {path.rpartition("/")[0] for path in store.objects} == {
        "lake/year=2024",
        "lake/year=2025",
        "lake/year=__HIVE_DEFAULT_PARTITION__",
    }
    assert accel.scan("lake/", "year = 2025", store=store).count_rows() == 2
    accel.write_table(batches(), "one.parquet", store=store)
    assert accel.scan("one.parquet", store=store).to_table().to_pylist() == TABLE.to_pylist()


@pytest.mark.parametrize(
    ("by", "wrong", "told"),
    [
        ("nowhere", ValueError, "no column 'nowhere'"),
        (["d"], ValueError, "type decimal128.*, which names no directory"),
        (["year", "year"], ValueError, "twice"),
        ([], TypeError, "a list of columns"),
        (3, TypeError, "a list of columns"),
        (TABLE.schema.names, ValueError, "names no directory"),
        (["year", "name", "n"], ValueError, "none is left"),
    ],
    ids=str,
)
def test_what_names_no_directory_is_refused(
    by: Any, wrong: type[Exception], told: str, tmp_path: pathlib.Path
) -> None:
    table = TABLE if by != ["year", "name", "n"] else TABLE.select(by)
    with pytest.raises(wrong, match=told):
        accel.write_table(table, tmp_path / "lake", partition_by=by)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_text_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="empty text"):
        accel.write_table(pa.table({"k": ["", "a"], "n": [1, 2]}), tmp_path, partition_by="k")


def test_a_file_is_no_directory(tmp_path: pathlib.Path) -> None:
    with pytest.raises(accel.StoreError, match="the target is a directory"):
        accel.write_table(TABLE, f"{tmp_path}/")
