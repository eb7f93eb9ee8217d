"""The offsets of a stream: sets of files by their canonical names, and those of the version before."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import accel
from accel.spark.stream_offsets import FileNames, SeenFiles
from accel.store.location import parse_url


def _name(url: str, **options: str) -> int:
    location = parse_url(url)
    return FileNames(options).of(location.root, location.path)


def _text(*hashes: int) -> str:
    return base64.b64encode(np.array(hashes, dtype="<u8").tobytes()).decode()


@pytest.mark.parametrize("read", [set(), {0}, {1, 2**64 - 1, 12345678901234567890}], ids=len)
def test_an_offset_is_a_set(read: set[int]) -> None:
    seen = SeenFiles(
        read=frozenset(read), carried=frozenset({5}), spelled=frozenset({6, 7}), scopes=frozenset({8})
    )
    assert SeenFiles.decode(seen.encode()) == seen
    assert SeenFiles().encode() == {"version": 2, "count": 0, "seen": ""}


def test_an_offset_of_the_version_before_is_read() -> None:
    seen = SeenFiles.decode({"version": 1, "count": 2, "seen": _text(3, 9)})
    assert seen == SeenFiles(spelled=frozenset({3, 9}), outdated=True)
    assert seen.holds(1, [9, 4])
    assert not seen.holds(3, [4])


@pytest.mark.parametrize(
    "offset",
    [
        {},
        {"version": 3, "count": 0, "seen": ""},
        {"version": 2, "count": 0},
        {"version": 2, "count": 1, "seen": ""},
        {"version": 1, "count": 1, "seen": ""},
        {"version": 2, "count": 0, "seen": "?"},
        {"version": 2, "count": 0, "seen": "AAAA"},
        {"version": 2, "count": 0, "seen": "", "scopes": 7},
    ],
    ids=["nothing", "version", "no files", "count", "count before", "no base64", "bytes", "no text"],
)
def test_an_offset_of_something_else(offset: dict[str, Any]) -> None:
    with pytest.raises(accel.AccelError, match="the checkpoint holds no offset"):
        SeenFiles.decode(offset)


@pytest.mark.parametrize(
    "spellings",
    [
        ["s3://bucket/t/f", "s3a://bucket/t/f", "S3A://bucket/t/f"],
        ["gs://bucket/t/f", "gcs://bucket/t/f"],
        ["az://box/t/f", "azure://box/t/f", "abfss://box/t/f"],
        ["/data/t/f", "file:/data/t/f", "file:///data/t/f", "/data/x/../t/./f", "//data/t/f"],
        ["/data/a b", "file:///data/a%20b"],
    ],
    ids=["s3", "gs", "azure", "local", "encoded"],
)
def test_one_file_has_one_name(spellings: list[str]) -> None:
    assert len({_name(url) for url in spellings}) == 1


def test_another_file_has_another_name() -> None:
    urls = ["s3://bucket/t/f", "s3://bucket/t/g", "s3://other/t/f", "gs://bucket/t/f", "/bucket/t/f"]
    assert len({_name(url) for url in urls}) == len(urls)


def test_accounts_of_azure() -> None:
    there = _name("abfss://box@acme.dfs.core.windows.net/t/f")
    assert _name("az://box/t/f", account_name="acme") == there
    assert _name("az://box/t/f", AZURE_STORAGE_ACCOUNT_NAME="acme") == there
    assert _name("az://box/t/f", account_name="other") != there
    assert _name("abfss://box@other.dfs.core.windows.net/t/f") != there


def test_a_link_to_a_directory(tmp_path: Path) -> None:
    """The files of a directory are the same by a link to it; a link to a file is a file by itself."""
    (tmp_path / "real").mkdir()
    os.symlink(tmp_path / "real", tmp_path / "link")
    os.symlink(tmp_path / "real" / "f", tmp_path / "real" / "g")
    assert _name(f"{tmp_path}/link/f") == _name(f"{tmp_path}/real/f") != _name(f"{tmp_path}/real/g")


def test_files_that_are_gone_leave_the_set_of_one_place() -> None:
    """A narrower pattern does not see them all: then they stay."""
    first = SeenFiles().after({1: (), 2: ()}, read=[1, 2], carried=[], scope=10)
    then = first.after({2: (), 3: ()}, read=[3], carried=[], scope=10)
    assert then == SeenFiles(read=frozenset({2, 3}), scopes=frozenset({10}))
    narrow = then.after({4: ()}, read=[4], carried=[], scope=11)
    assert narrow.read == {2, 3, 4}
    assert narrow.after({4: (), 5: ()}, read=[5], carried=[], scope=11).read == {2, 3, 4, 5}


def test_files_of_the_version_before_stay_until_they_are_gone() -> None:
    before = SeenFiles.decode({"version": 1, "count": 2, "seen": _text(3, 9)})
    after = before.after({1: (3, 30), 2: (4, 40)}, read=[2], carried=[], scope=10)
    assert after == SeenFiles(read=frozenset({2}), spelled=frozenset({3}), scopes=frozenset({10}))
    assert after.without(before) == SeenFiles(read=frozenset({2}))
    assert not after.outdated
    assert SeenFiles.decode(after.encode()) == after


def test_the_scope_is_the_place_and_not_its_spelling() -> None:
    names = FileNames(None)
    scopes = {
        names.scope(source, listing="store")
        for source in ("/data/t", "/data/t/", "file:///data/t", ["/data/t"])
    }
    assert len(scopes) == 1
    assert names.scope("/data/t/*.parquet", listing="store") not in scopes
    assert names.scope("/data/t", listing="index") not in scopes
