"""The directory of entries: what is kept comes back exactly, and whatever is wrong with a file, it is no
entry."""

from __future__ import annotations

import os
import pickle
import stat
import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from accel.cache.cache import Cache, CacheStats
from accel.cache.disk import Disk, StoredMetadata, entry_key
from accel.store.identity import credentials_token, lasts

TOKEN = "0123456789abcdef" * 2
KEY, OTHER = entry_key(TOKEN, "a.parquet"), entry_key(TOKEN, "b.parquet")
STORED = StoredMetadata(etag='"v1"', size=5_000, data=bytes(range(250)), checked_at=1_700_000_000.25)
BLOB = STORED.encode(KEY)


def write(disk: Disk, key: bytes, stored: StoredMetadata) -> None:
    disk.put(key, stored.encode(key))


def read(disk: Disk, key: bytes) -> StoredMetadata | None:
    entry = disk.get(key)
    return None if entry is None else StoredMetadata.decode(entry, key)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(str(tmp_path / "cache"), limit=100_000)


def entry(disk_root: Path, key: bytes = KEY) -> Path:
    return disk_root / "cache" / f"{key.hex()}.meta"


def names(root: Path) -> list[str]:
    return sorted(os.listdir(root / "cache"))


def test_what_is_kept_comes_back_for_its_key_alone(disk: Disk, tmp_path: Path) -> None:
    assert read(disk, KEY) is None
    assert not (tmp_path / "cache").exists()  # looking makes nothing
    write(disk, KEY, STORED)
    assert (read(disk, KEY), read(disk, OTHER)) == (STORED, None)
    assert names(tmp_path) == [f"{KEY.hex()}.meta"]
    assert disk.nbytes() == len(BLOB) == 64 + len('"v1"') + 250 + 16
    write(disk, KEY, replace(STORED, etag='"v2"', data=b"x" * 9))
    assert read(disk, KEY) == replace(STORED, etag='"v2"', data=b"x" * 9)
    disk.drop(KEY)
    disk.drop(KEY)
    assert (read(disk, KEY), names(tmp_path), disk.problem()) == (None, [], None)


def test_only_its_owner_may_look(disk: Disk, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write(disk, KEY, STORED)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "cache").stat().st_mode) == 0o700
    assert stat.S_IMODE(entry(tmp_path).stat().st_mode) == 0o600


@pytest.mark.parametrize("length", [*range(0, len(BLOB), 13), len(BLOB) - 1], ids=str)
def test_a_truncated_entry_is_none(length: int) -> None:
    assert StoredMetadata.decode(BLOB[:length], KEY) is None


def test_any_flipped_bit_is_seen() -> None:
    assert StoredMetadata.decode(BLOB, KEY) == STORED
    for place in range(len(BLOB)):
        harmed = bytearray(BLOB)
        harmed[place] ^= 1 << (place % 8)
        assert StoredMetadata.decode(bytes(harmed), KEY) is None, place


FOREIGN = {
    "of another key": STORED.encode(OTHER),
    "with more behind it": BLOB + b"\0",
    "of a weak etag": replace(STORED, etag='W/"v1"').encode(KEY),
    "of no etag": replace(STORED, etag='""').encode(KEY),
    "longer than its file": replace(STORED, size=249).encode(KEY),
    "checked at no time": replace(STORED, checked_at=float("nan")).encode(KEY),
    "something else": b"PAR1" * 100,
}


@pytest.mark.parametrize("blob", FOREIGN.values(), ids=list(FOREIGN))
def test_a_foreign_entry_is_none(blob: bytes) -> None:
    assert StoredMetadata.decode(blob, KEY) is None


def test_the_first_problem_is_told_once(disk: Disk) -> None:
    disk.note("first")
    disk.note("second")
    assert (disk.problem(), disk.problem()) == ("first", None)


def test_a_link_a_fifo_and_a_directory_are_no_entries(disk: Disk, tmp_path: Path) -> None:
    write(disk, OTHER, STORED)
    (tmp_path / "elsewhere").write_bytes(BLOB)
    entry(tmp_path).symlink_to(tmp_path / "elsewhere")
    assert read(disk, KEY) is None
    entry(tmp_path).unlink()
    os.mkfifo(entry(tmp_path))
    assert read(disk, KEY) is None
    entry(tmp_path).unlink()
    entry(tmp_path).mkdir()
    assert read(disk, KEY) is None
    write(disk, KEY, STORED)  # cannot take its place: no error
    assert (read(disk, KEY), names(tmp_path)) == (None, sorted(f"{k.hex()}.meta" for k in (KEY, OTHER)))


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o757, 0o720, 0o702], ids=oct)
def test_a_directory_that_others_can_write_to_is_not_used(mode: int, tmp_path: Path) -> None:
    shared = tmp_path / "cache"
    shared.mkdir()
    shared.chmod(mode)
    entry(tmp_path).write_bytes(BLOB)
    disk = Disk(str(shared), limit=100_000)
    write(disk, OTHER, STORED)
    assert (read(disk, KEY), names(tmp_path)) == (None, [f"{KEY.hex()}.meta"])
    assert "others can write" in (disk.problem() or "")
    shared.chmod(0o755)
    assert read(disk, KEY) == STORED


def test_an_entry_of_another_owner_is_none(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(disk, KEY, STORED)
    fstat = os.fstat

    def of_another(handle: int) -> os.stat_result:
        found = fstat(handle)
        return os.stat_result((*found[:4], found.st_uid + 1, *found[5:]))

    monkeypatch.setattr(os, "fstat", of_another)
    assert read(disk, KEY) is None
    monkeypatch.undo()
    assert read(disk, KEY) == STORED


@pytest.mark.parametrize("place", ["file", "file/below", "/proc/accel-cache"])
def test_no_directory_there_is_no_error(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    disk = Disk(str(tmp_path / place), limit=1000)
    write(disk, KEY, STORED)
    disk.drop(KEY)
    disk.clear()
    assert (read(disk, KEY), disk.nbytes()) == (None, 0)
    assert str(tmp_path / place) in (disk.problem() or "")


def test_a_full_disk_is_no_error(disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(disk, KEY, STORED)

    def full(source: str, target: str) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", full)
        write(disk, OTHER, STORED)
    assert (read(disk, KEY), read(disk, OTHER)) == (STORED, None)
    assert names(tmp_path) == [f"{KEY.hex()}.meta"]  # nothing half-written stays
    assert "No space left" in (disk.problem() or "")


def test_the_limit_holds_and_the_least_recently_used_go_first(tmp_path: Path) -> None:
    disk = Disk(str(tmp_path / "cache"), limit=10 * len(BLOB))
    keys = [entry_key(TOKEN, str(i)) for i in range(30)]
    for i, key in enumerate(keys):
        write(disk, key, STORED)
        assert disk.nbytes() <= 10 * len(BLOB)
        os.utime(entry(tmp_path, key), (i, i))
        assert read(disk, keys[0]) == STORED  # used again and again, it stays
    left = [i for i, key in enumerate(keys) if entry(tmp_path, key).exists()]
    assert left == [0, *range(21, 30)]


def test_what_other_processes_write_counts(tmp_path: Path) -> None:
    disks = [Disk(str(tmp_path / "cache"), limit=50 * len(BLOB)) for _ in range(4)]
    for i in range(400):
        write(disks[i % 4], entry_key(TOKEN, str(i)), STORED)
        assert disks[0].nbytes() <= 54 * len(BLOB)  # each knows of its own at once, of others' by and by


def test_what_is_too_large_or_not_ours_stays_out(disk: Disk, tmp_path: Path) -> None:
    write(disk, KEY, replace(STORED, size=10**6, data=bytes(100_000)))
    assert not entry(tmp_path).exists()
    write(disk, KEY, STORED)
    own, stale = tmp_path / "cache" / "notes.txt", tmp_path / "cache" / f".{'0' * 64}.{'0' * 16}.tmp"
    for path in (own, stale):
        path.write_bytes(b"x")
        os.utime(path, (1, 1))
    disk.clear()
    assert names(tmp_path) == ["notes.txt"]  # what a writer left that died is gone, the user's own is not


def test_writers_and_readers_of_one_entry_never_see_a_half(tmp_path: Path) -> None:
    versions = [replace(STORED, etag=f'"{i}"', size=10**6, data=bytes([i]) * 50_000) for i in range(4)]
    wrong: list[object] = []

    def work(number: int) -> None:
        own = Disk(str(tmp_path / "cache"), limit=10**6)
        for i in range(40):
            write(own, KEY, versions[number])
            found = read(own, KEY)
            if found not in versions or (i % 10 == 9 and own.problem() is not None):
                wrong.append(found)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert names(tmp_path) == [f"{KEY.hex()}.meta"]


def test_the_cache_hands_its_disk_to_lasting_tokens_only(tmp_path: Path) -> None:
    cache = Cache(disk=tmp_path / "cache", disk_limit=100_000)
    assert Cache().disk_for(TOKEN) is None
    assert (cache.disk_for("store-1"), cache.disk_for("process-" + TOKEN)) == (None, None)
    disk = cache.disk_for(TOKEN)
    assert disk is not None
    write(disk, KEY, STORED)
    assert cache.stats() == CacheStats(
        entries=0, nbytes=0, limit=cache.memory, hits=0, misses=0, evictions=0, disk_nbytes=len(BLOB)
    )
    copy = pickle.loads(pickle.dumps(cache))
    assert (copy.disk, copy.disk_limit) == (str(tmp_path / "cache"), 100_000)
    assert read(copy.disk_for(TOKEN), KEY) == STORED
    copy.clear()
    assert (read(disk, KEY), cache.stats().disk_nbytes) == (None, 0)
    with pytest.raises(ValueError, match="disk_limit=-1"):
        Cache(disk=tmp_path, disk_limit=-1)


def test_a_token_lasts_unless_an_option_is_an_object() -> None:
    client = {"timeout": timedelta(seconds=9), "x": ["list"]}
    plain = {"access_key_id": "KEY", "headers": {"a": "1"}, "region": None, "client_options": client}
    assert lasts(credentials_token("s3://b", plain))
    assert lasts(credentials_token("s3://b", None))
    # Another process may have another object at the same address.
    for odd in ({"credential_provider": object()}, {"client_options": {"x": [object()]}}):
        assert not lasts(credentials_token("s3://b", odd))
