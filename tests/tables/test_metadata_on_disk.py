"""What describes a table never changes: it is read once for all processes that share a directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa

import accel
from tests.support.s3 import S3Admin
from tests.tables.stored_tables import stored_table


def put(minio: S3Admin, bucket: str, directory: Path) -> None:
    for path in directory.rglob("*"):
        if path.is_file():
            minio.put(bucket, str(path.relative_to(directory.parent)), path.read_bytes())


def made(url: Path, *, first: int = 0) -> None:
    """A table of seven versions, with a checkpoint of the fourth."""
    for at in range(7):
        rows = pa.table({"id": range(first + at * 10, first + at * 10 + 10), "name": ["x"] * 10})
        deltalake.write_deltalake(str(url), rows, mode="append")
        if at == 3:
            deltalake.DeltaTable(url).create_checkpoint()


def requests(source: Any, where: str, directory: Path, minio: S3Admin) -> tuple[int, int]:
    """The rows, and the requests for what describes the table, of a process that knows nothing."""
    cache = accel.Cache(disk=directory, max_age=0)
    scan = accel.scan(source, where, cache=cache, storage_options=minio.storage_options(), index=None)
    count = scan.to_table().num_rows
    assert scan.metrics.table is not None
    assert not scan.metrics.warnings
    return count, scan.metrics.table.log_requests


def test_another_process_asks_for_the_newest_version_of_a_delta_table_alone(
    minio: S3Admin, bucket: str, tmp_path: Path
) -> None:
    made(tmp_path / "t")
    put(minio, bucket, tmp_path / "t")
    table, directory = accel.tables.delta(f"s3://{bucket}/t"), tmp_path / "cache"
    count, first = requests(table, "id = 33", directory, minio)
    assert count == 1
    assert first >= 6  # the listing, the hint, the checkpoint and three commits
    assert requests(table, "id = 33", directory, minio) == (1, 2)  # the listing and the hint
    # Nothing is taken from a directory that somebody has damaged.
    for entry in directory.glob("*.meta"):
        entry.write_bytes(entry.read_bytes()[:-3] + b"xyz")
    cache = accel.Cache(disk=directory, max_age=0)
    scan = accel.scan(table, "id = 33", cache=cache, storage_options=minio.storage_options())
    assert scan.to_table().num_rows == 1
    assert any("damaged" in warning for warning in scan.metrics.warnings)
    # A table that was made anew at the same place has the same names in its log.
    made(tmp_path / "new" / "t", first=1000)
    for path in tmp_path.glob("t/**/*.*"):
        minio.delete(bucket, str(path.relative_to(tmp_path)))
    put(minio, bucket, tmp_path / "new" / "t")
    assert requests(table, "id = 33", directory, minio)[0] == 0
    assert requests(table, "id = 1033", directory, minio) == (1, 2)
    deltalake.DeltaTable(tmp_path / "new" / "t").delete("id = 1033")
    put(minio, bucket, tmp_path / "new" / "t")
    assert requests(table, "id = 1033", directory, minio) == (0, 3)


def test_another_process_asks_for_no_manifest_of_an_iceberg_table(
    minio: S3Admin, bucket: str, tmp_path: Path
) -> None:
    stored = stored_table("evolving_v3")
    for path, content in stored.objects.items():
        minio.put(bucket, path, content)
    place = f"s3://{bucket}/{stored.directory}"
    table, directory = accel.tables.iceberg(place, allow_moved_paths=True), tmp_path / "cache"
    count, first = requests(table, "id < 1000", directory, minio)
    again, second = requests(table, "id < 1000", directory, minio)
    # The listing and the hint, and a metadata file whose name may come again (v7.metadata.json).
    assert (again, second) == (count, 3)
    assert first > second
