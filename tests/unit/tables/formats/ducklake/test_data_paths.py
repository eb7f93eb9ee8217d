"""Which files a lake may name."""

from __future__ import annotations

import pyarrow as pa
import pytest

from accel.errors import AccelError
from accel.tables.formats.ducklake.data_paths import DataPaths
from accel.tables.formats.ducklake.metadata import LakeVersion


def paths(data_path: str, *folders: tuple[str, bool]) -> DataPaths:
    return DataPaths.of(LakeVersion(1, 1, data_path, folders, (), (), None), None)


def url(at: DataPaths, path: str, relative: bool = True) -> str:
    (found,) = at.urls(pa.array([path]), pa.array([relative])).to_pylist()
    assert found == at.url(path, relative)
    return str(found)


def test_paths_are_below_their_table() -> None:
    lake = paths("s3://lake/data/", ("main/", True), ("events/", True))
    assert url(lake, "a=1/f.parquet") == "s3://lake/data/main/events/a=1/f.parquet"
    assert url(lake, "..f/..parquet") == "s3://lake/data/main/events/..f/..parquet"
    assert url(lake, "s3://lake/other/f.parquet", relative=False) == "s3://lake/other/f.parquet"
    assert (
        url(paths("/lake", ("main", True)), "/elsewhere/f.parquet", relative=False) == "/elsewhere/f.parquet"
    )
    moved = paths("s3://lake/data/", ("s3://lake/schemas/main/", False), ("events/", True))
    assert url(moved, "f.parquet") == "s3://lake/schemas/main/events/f.parquet"


@pytest.mark.parametrize(
    ("data_path", "path", "relative"),
    [
        ("s3://lake/", "../f.parquet", True),
        ("s3://lake/", "a/../../f.parquet", True),
        ("s3://lake/", "..", True),
        ("s3://lake/", r"a\..\f.parquet", True),
        ("s3://lake/", "", True),
        ("s3://lake/", "a\0b", True),
        ("https://host/lake/", "%2e%2e/f.parquet", True),
        ("s3://lake/", "s3://other/f.parquet", False),
        ("s3://lake/", "file:///etc/f.parquet", False),
        ("s3://lake/", "/etc/f.parquet", False),
        ("s3://lake/", "https://host/f.parquet", False),
        ("s3://lake/", "s3://lake/../f.parquet", False),
        ("/lake/", "s3://lake/f.parquet", False),
        ("/lake/", "file://host/f.parquet", False),
        ("/lake/", "f://x", False),
    ],
)
def test_others_are_refused(data_path: str, path: str, relative: bool) -> None:
    at = paths(data_path)
    for ask in (lambda: at.url(path, relative), lambda: at.urls(pa.array([path]), pa.array([relative]))):
        with pytest.raises(AccelError):
            ask()


def test_other_stores_may_be_allowed() -> None:
    found = LakeVersion(1, 1, "s3://lake/data/", (), (), (), None)
    at = DataPaths.of(found, None, allowed=["s3://other/below/", "/local"])
    for path in ("s3://other/f.parquet", "/elsewhere/f.parquet"):
        assert url(at, path, relative=False) == path
    with pytest.raises(AccelError, match="another store"):
        at.url("s3://third/f.parquet", False)


def test_folders_are_judged_too() -> None:
    for folder in (("../x/", True), ("s3://other/", False), ("/", False)):
        with pytest.raises(AccelError):
            paths("s3://lake/data/", folder)
    with pytest.raises(AccelError, match="data_path="):
        paths("")
