"""Local files: reads, listings, and files that replace others."""

from __future__ import annotations

import asyncio
import errno
import multiprocessing
import os
import pathlib
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from accel.errors import AccelError, ObjectChangedError, ObjectNotFoundError, ParquetFormatError, StoreError
from accel.ranges import ByteRange, Suffix
from accel.store import local_store
from accel.store.local_store import FileStore, copy_bytes, write_beside
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
    monkeypatch.setattr(local_store, "AT_ONCE", at_once)
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
    pread = local_store.read_at

    def torn(handle: int, wanted: ByteRange, held: memoryview) -> memoryview:
        if wanted.start:
            (tmp_path / "f").write_bytes(BODY[::-1])
        return pread(handle, wanted, held)

    monkeypatch.setattr(local_store, "read_at", torn)
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


def test_the_name_is_given_at_the_end(tmp_path: Path) -> None:
    target = tmp_path / "a"
    target.write_bytes(b"old")
    with write_beside(str(target)) as file:
        file.write(b"new")
        assert target.read_bytes() == b"old"
        assert len(list(tmp_path.iterdir())) == 2
    assert target.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, AccelError])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path, error: type[BaseException]) -> None:
    target = tmp_path / "a"
    target.write_bytes(b"old")
    with pytest.raises(error), write_beside(str(target)) as file:
        file.write(b"new")
        raise error("no")
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_check_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "a"
    target.write_bytes(b"old")

    def check() -> None:
        assert target.read_bytes() == b"old"
        raise AccelError("changed")

    with pytest.raises(AccelError, match="changed"), write_beside(str(target), check=check) as file:
        file.write(b"new")
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("mode", [0o640, 0o2640], ids=oct)
def test_mode_is_taken_over(tmp_path: Path, mode: int) -> None:
    target = tmp_path / "a"
    target.write_bytes(b"old")
    target.chmod(mode)
    with write_beside(str(target), like=os.stat(target)) as file:
        file.write(b"new")
    assert stat.S_IMODE(target.stat().st_mode) == mode


@pytest.mark.parametrize("target", ["missing/a", "."], ids=["no directory", "a directory"])
def test_what_cannot_be_written_is_a_store_error(tmp_path: Path, target: str) -> None:
    with pytest.raises(StoreError), write_beside(str(tmp_path / target)):
        raise RuntimeError("unreachable")
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_leaves_no_room_for_a_longer_one(tmp_path: Path) -> None:
    target = tmp_path / ("n" * 250)
    with write_beside(str(target)) as file:
        file.write(b"new")
    assert target.read_bytes() == b"new"


@pytest.mark.skipif(sys.platform == "win32", reason="has no limit of a file's size")
def test_what_finds_room_only_in_part_is_not_taken_for_written(tmp_path: Path) -> None:
    target = tmp_path / "a"
    script = f"""
import resource
from accel.errors import StoreError
from accel.store.local_store import write_beside
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    with write_beside({str(target)!r}) as file:
        file.write(bytes(3 << 19))
except StoreError as error:
    print(error.message)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], timeout=60, check=True, capture_output=True, text=True
    )
    assert done.stdout == "File too large\n"
    assert list(tmp_path.iterdir()) == []


STEPS = ("open", "write", "fsync", "check", "replace", "after")


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_any_step_there_is_the_old_file_or_the_new(tmp_path: Path, step: str) -> None:
    target = tmp_path / "a"
    target.write_bytes(b"old")
    script = f"""
import os, signal
from accel.store.local_store import write_beside
def die(*args): os.kill(os.getpid(), signal.SIGKILL)
step = {step!r}
if step == "fsync": os.fsync = die
if step == "replace": os.replace = die
with write_beside({str(target)!r}, check=die if step == "check" else None) as file:
    if step == "open": die()
    file.write(b"ne")
    if step == "write": die()
    file.write(b"w")
die()
"""
    done = subprocess.run([sys.executable, "-c", script], timeout=60, check=False)
    assert done.returncode == -9
    assert target.read_bytes() == (b"new" if step == "after" else b"old")
    rest = [path.name for path in tmp_path.iterdir() if path != target]
    assert len(rest) == (0 if step == "after" else 1)
    assert all(name.startswith(".a.") and name.endswith(".part") for name in rest)


@pytest.mark.parametrize("way", ["kernel", "blocks"])
def test_bytes_are_copied_from_the_front(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    monkeypatch.setattr(local_store, "BLOCK", 1000)
    if way == "blocks":

        def refuse(*args: object, **more: object) -> int:
            raise OSError(errno.EXDEV, "no")

        monkeypatch.setattr(os, "copy_file_range", refuse)
    data = bytes(range(256)) * 20
    (tmp_path / "a").write_bytes(data)
    told: list[int] = []
    with open(tmp_path / "a", "rb") as source, open(tmp_path / "b", "wb") as target:
        copy_bytes(source.fileno(), target.fileno(), length=4321, note=told.append)
    assert (tmp_path / "b").read_bytes() == data[:4321]
    assert sum(told) == 4321
    with (
        open(tmp_path / "a", "rb") as source,
        open(tmp_path / "b", "wb") as target,
        pytest.raises(OSError, match="shorter"),
    ):
        copy_bytes(source.fileno(), target.fileno(), length=len(data) + 1, note=told.append)


@pytest.mark.parametrize("told", [True, False])
def test_what_was_private_stays_so(tmp_path: Path, told: bool) -> None:
    target = tmp_path / "a"
    target.write_bytes(b"old")
    target.chmod(0o640)
    with write_beside(str(target), like=os.stat(target) if told else None) as file:
        file.write(b"new")
        assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == 0o600
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert target.read_bytes() == b"new"


# -- writing on conditions ---------------------------------------------------------------------------


def add_one(root: str, times: int) -> None:
    """Count up in a file, by conditional writes that others come before."""
    store = FileStore(root)

    async def once() -> bool:
        try:
            found = await store.read("count", Suffix(100))
            body = str(int(bytes(found.data)) + 1).encode()
            await store.write("count", one_part(body), size=len(body), if_match=found.etag)
        except ObjectChangedError:
            return False
        return True

    for _ in range(times):
        while not asyncio.run(once()):
            pass


async def one_part(body: bytes) -> AsyncIterator[bytes]:
    yield body


@pytest.mark.timeout(120)
def test_processes_that_write_on_conditions_lose_nothing_and_leave_no_lock(tmp_path: Path) -> None:
    (tmp_path / "count").write_bytes(b"0")
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=add_one, args=(str(tmp_path), 40)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    assert (tmp_path / "count").read_bytes() == b"160"
    assert [path.name for path in tmp_path.iterdir()] == ["count"]


CHECKSUMS = b"crc\0" + b"\0\0\x02\0" + b"1234"


@pytest.mark.parametrize("write", ["write_beside", "write", "conditionally", "move", "remove"])
async def test_checksums_of_hadoop_go_with_what_they_were_made_of(tmp_path: Path, write: str) -> None:
    store, target, checksums = FileStore(str(tmp_path)), tmp_path / "f", tmp_path / ".f.crc"
    target.write_bytes(b"old")
    checksums.write_bytes(CHECKSUMS)
    (tmp_path / ".other.crc").write_bytes(CHECKSUMS)

    async def parts() -> AsyncIterator[bytes]:
        yield b"new"

    if write == "write_beside":
        with write_beside(str(target)) as file:
            file.write(b"new")
    elif write == "write":
        await store.write("f", parts(), size=3)
    elif write == "conditionally":
        await store.write("f", parts(), size=3, if_match=(await store.head("f")).etag)
    elif write == "move":
        (tmp_path / "staged").write_bytes(b"new")
        await store.move("staged", "f")
    else:
        await store.remove("f")
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {".other.crc"} | (set() if write == "remove" else {"f"})


def test_a_file_that_has_the_name_of_checksums_stays(tmp_path: Path) -> None:
    (tmp_path / ".f.crc").write_bytes(b"my own")
    with write_beside(str(tmp_path / "f")) as file:
        file.write(b"new")
    assert (tmp_path / ".f.crc").read_bytes() == b"my own"


def test_checksums_stay_where_the_file_does(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"old")
    (tmp_path / ".f.crc").write_bytes(CHECKSUMS)

    def refuse() -> None:
        raise ObjectChangedError("the file was changed")

    with pytest.raises(ObjectChangedError), write_beside(str(tmp_path / "f"), check=refuse) as file:
        file.write(b"new")
    assert (tmp_path / ".f.crc").read_bytes() == CHECKSUMS
