"""Local files: ranges, etags, and listings of what a file system may hold."""

from __future__ import annotations

import os
import pathlib

import pytest

from accel.errors import ObjectChangedError, ObjectNotFoundError, ParquetFormatError, StoreError
from accel.ranges import ByteRange, Suffix
from accel.store import local_store
from accel.store.local_store import FileStore
from accel.store.range_store import Gatherer, Header, Lister, RangeStore
from accel.store.request_errors import ShortObjectError

BODY = bytes(i % 251 for i in range(1000))


@pytest.fixture
def store(tmp_path: pathlib.Path) -> FileStore:
    (tmp_path / "f").write_bytes(BODY)
    (tmp_path / "e").write_bytes(b"")
    return FileStore(str(tmp_path))


def test_what_it_is() -> None:
    assert isinstance(FileStore(), RangeStore)
    assert isinstance(FileStore(), Lister)
    assert isinstance(FileStore(), Header)
    assert isinstance(FileStore(), Gatherer)


async def test_reads(store: FileStore) -> None:
    tail = await store.read("f", Suffix(10))
    assert (bytes(tail.data), tail.range, tail.size) == (BODY[-10:], ByteRange(990, 1000), 1000)
    part = await store.read("f", ByteRange(5, 9), if_match=tail.etag)
    assert (bytes(part.data), part.range, part.etag) == (BODY[5:9], ByteRange(5, 9), tail.etag)
    whole = await store.read("f", Suffix(5000))
    assert (bytes(whole.data), whole.range) == (BODY, ByteRange(0, 1000))
    entry = await store.head("f")
    assert (entry.size, entry.etag) == (1000, tail.etag)


@pytest.mark.parametrize("at_once", [32 << 20, 10], ids=["allocated before", "too much for that"])
async def test_several_ranges(store: FileStore, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(local_store, "_AT_ONCE", at_once)
    etag = (await store.read("f", Suffix(1))).etag
    wants = [ByteRange(5, 9), ByteRange(900, 1000), ByteRange(0, 6)]
    found = await store.gather_ranges("f", wants, if_match=etag)
    assert [(bytes(p.data), p.range, p.size, p.etag) for p in found] == [
        (BODY[want.start : want.end], want, 1000, etag) for want in wants
    ]


async def test_a_file_whose_time_was_set_back_has_changed(store: FileStore, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "f"
    etag, before = (await store.read("f", Suffix(1))).etag, path.stat()
    while (
        path.stat().st_ctime_ns == before.st_ctime_ns
    ):  # as long as the clock of the file system stands still
        path.write_bytes(BODY[::-1])
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    now = path.stat()
    assert (now.st_ino, now.st_mtime_ns, now.st_size) == (before.st_ino, before.st_mtime_ns, before.st_size)
    with pytest.raises(ObjectChangedError):
        await store.read("f", ByteRange(0, 3), if_match=etag)


async def test_several_ranges_of_which_one_fails(store: FileStore, tmp_path: pathlib.Path) -> None:
    wants = [ByteRange(0, 1), ByteRange(990, 1001)]
    with pytest.raises(ShortObjectError) as caught:
        await store.gather_ranges("f", wants)
    assert caught.value.size == 1000
    with pytest.raises(ObjectNotFoundError):
        await store.gather_ranges("nope", wants)
    with pytest.raises(ObjectChangedError):
        await store.gather_ranges("f", wants[:1], if_match='"another"')


async def test_several_ranges_of_a_file_that_changes_meanwhile(
    store: FileStore, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pread = local_store._pread

    def torn(handle: int, wanted: ByteRange, held: memoryview) -> memoryview:
        if wanted.start:
            (tmp_path / "f").write_bytes(BODY[::-1])
        return pread(handle, wanted, held)

    monkeypatch.setattr(local_store, "_pread", torn)
    with pytest.raises(ObjectChangedError):
        await store.gather_ranges("f", [ByteRange(0, 9), ByteRange(9, 18)])


async def test_refusals(store: FileStore, tmp_path: pathlib.Path) -> None:
    (tmp_path / "d").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for path in ("nope", "f/below", "d", "pipe"):
        with pytest.raises(ObjectNotFoundError):
            await store.read(path, ByteRange(0, 1))
        with pytest.raises(ObjectNotFoundError):
            await store.head(path)
    with pytest.raises(ParquetFormatError, match="the file is empty"):
        await store.read("e", Suffix(8))
    with pytest.raises(ShortObjectError) as caught:
        await store.read("f", ByteRange(990, 1001))
    assert caught.value.size == 1000
    with pytest.raises(StoreError, match="File name too long"):
        await store.read("x" * 5000, ByteRange(0, 1))


@pytest.mark.parametrize("how", ["in place", "replaced", "appended"])
async def test_a_rewritten_file_has_another_etag(store: FileStore, tmp_path: pathlib.Path, how: str) -> None:
    before = (await store.read("f", ByteRange(0, 1))).etag
    if how == "in place":
        os.utime(tmp_path / "f", ns=(1, 1))  # a rewrite whose time cannot be told apart changes ctime still
    elif how == "replaced":
        (tmp_path / "g").write_bytes(BODY)
        os.replace(tmp_path / "g", tmp_path / "f")
    else:
        (tmp_path / "f").write_bytes(BODY + b"x")
    with pytest.raises(ObjectChangedError):
        await store.read("f", ByteRange(0, 1), if_match=before)
    assert (await store.read("f", ByteRange(0, 1))).etag != before


async def test_listing(store: FileStore, tmp_path: pathlib.Path) -> None:
    odd = "a%20 ?*[x]#é\n"
    (tmp_path / "d" / "sub").mkdir(parents=True)
    (tmp_path / "d-x").mkdir()
    for name in ("d/b", f"d/sub/{odd}", "d-x/a"):
        (tmp_path / name).write_bytes(b"1")
    (tmp_path / "d" / "broken").symlink_to("/nowhere/at/all")
    (tmp_path / "d" / "circle").symlink_to(tmp_path / "d")
    (tmp_path / "d" / "link").symlink_to(tmp_path / "f")
    listed = [entry async for entry in store.list("d")]
    assert [(entry.path, entry.size) for entry in listed] == [
        ("d/b", 1),
        ("d/link", 1000),
        (f"d/sub/{odd}", 1),
    ]
    assert listed[1].etag == (await store.read("f", ByteRange(0, 1))).etag
    assert bytes((await store.read(f"d/sub/{odd}", Suffix(1))).data) == b"1"
    assert [entry.path async for entry in store.list("")] == [
        "d-x/a",
        "d/b",
        "d/link",
        f"d/sub/{odd}",
        "e",
        "f",
    ]
    assert [entry.path async for entry in store.list("f")] == ["f"]
    assert [entry.path async for entry in store.list("nope")] == []


async def test_a_name_that_is_no_utf8(store: FileStore, tmp_path: pathlib.Path) -> None:
    (tmp_path / "\udcff").write_bytes(b"12")
    names = [entry.path async for entry in store.list("")]
    assert names == ["e", "f", "\udcff"]
    assert bytes((await store.read("\udcff", Suffix(2))).data) == b"12"
