"""Percent signs in the paths of Iceberg's metadata: a part of the names of files, in every kind of URL."""

from __future__ import annotations

import pyarrow as pa
import pytest

import accel
import accel.tables
from tests.tables.iceberg_writer import IcebergWriter, parquet_bytes
from tests.tables.test_iceberg_rules import COLUMNS, PARTITION, PATH, POS, SPEC, data, ids_of


@pytest.mark.parametrize("scheme", ["file://", "file:", "s3://lake"])
@pytest.mark.parametrize("moved", [False, True])
def test_what_is_percent_encoded_in_a_path_is_a_part_of_its_name(scheme: str, moved: bool) -> None:
    """Of data files, of delete files and of what these name; below a directory, and in the last name."""
    writer = IcebergWriter(COLUMNS, [SPEC], root=f"{scheme}/t")
    paths = ["data/part=%C3%BC/a.parquet", "data/part=%252F/%2e%2e/b%20.parquet", "data/plain.parquet"]
    files = [
        writer.file(path, data([at * 10, at * 10 + 1]), 2, partition={"part": "a"})
        for at, path in enumerate(paths)
    ]
    writer.manifest(files, partition=PARTITION, sequence=2)
    deletes = parquet_bytes(
        {
            "file_path": (PATH, pa.array([f"{writer.root}/{path}" for path in paths])),
            "pos": (POS, pa.array([0, 1, 0], pa.int64())),
        }
    )
    file = writer.file("data/part=%C3%BC/%41.parquet", deletes, 3, content=1, partition={"part": "a"})
    writer.manifest([file], partition=PARTITION, content=1, sequence=2)
    assert ids_of(writer, allow_moved_paths=moved) == [1, 10, 21]
    table = accel.tables.iceberg(writer.save(), allow_moved_paths=moved)
    whole = accel.scan(table, store=writer.store, file_path="file").to_table()
    # A URL of a file that was read is the URL of that file.
    urls = whole.column("file").to_pylist()
    again = accel.scan(urls, columns=["id"], store=writer.store, table=None, partitioning=None)
    assert again.to_table().column("id").to_pylist() == [0, 1, 10, 11, 20, 21]
    if "file" in scheme:
        assert urls[0] == f"{writer.root}/data/part=%25C3%25BC/a.parquet"
