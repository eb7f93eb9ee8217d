"""The directory of entries: what is kept comes back exactly, and whatever is wrong with a file, it is no entry."""

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
from accel.cache.disk import Disk
from accel.cache.disk_entry import Kept, decode, encode, entry_key
from accel.store.storage_options import credentials_token, lasts

TOKEN = "0123456789abcdef" * 2
KEY, OTHER = entry_key(TOKEN, "a.parquet"), entry_key(TOKEN, "b.parquet")
KEPT = Kept(etag='"v1"', size=5_000, data=bytes(range(250)), checked_at=1_700_000_000.25)
BLOB = encode(KEPT, KEY)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(str(tmp_path / "cache"), limit=100_000)


def entry(disk_root: Path, key: bytes = KEY) -> Path:
    return disk_root / "cache" / f"{key.hex()}.meta"


def names(root: Path) -> list[str]:
    return sorted(os.listdir(root / "cache"))


def test_what_is_kept_comes_back_for_its_key_alone(disk: Disk, tmp_path: Path) -> None:
    assert disk.read(KEY) is None
    assert not (tmp_path / "cache").exists()  # looking makes nothing
    disk.write(KEY, KEPT)
    assert (disk.read(KEY), disk.read(OTHER)) == (KEPT, None)
    assert names(tmp_path) == [f"{KEY.hex()}.meta"]
    assert disk.nbytes() == len(BLOB) == 64 + len('"v1"') + 250 + 16
    disk.write(KEY, replace(KEPT, etag='"v2"', data=b"x" * 9))
    assert disk.read(KEY) == replace(KEPT, etag='"v2"', data=b"x" * 9)
    disk.drop(KEY)
    disk.drop(KEY)
    assert (disk.read(KEY), names(tmp_path), disk.problem()) == (None, [], None)


def test_only_its_owner_may_look(disk: Disk, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        disk.write(KEY, KEPT)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "cache").stat().st_mode) == 0o700
    assert stat.S_IMODE(entry(tmp_path).stat().st_mode) == 0o600


@pytest.mark.parametrize("length", [*range(0, len(BLOB), 13), len(BLOB) - 1], ids=str)
def test_a_truncated_entry_is_none(length: int) -> None:
    assert decode(BLOB[:length], KEY) is None


def test_any_flipped_bit_is_seen() -> None:
    assert decode(BLOB, KEY) == KEPT
    for place in range(len(BLOB)):
        harmed = bytearray(BLOB)
        harmed[place] ^= 1 << (place % 8)
        assert decode(bytes(harmed), KEY) is None, place


FOREIGN = {
    "of another key": encode(KEPT, OTHER),
    "with more behind it": BLOB + b"\0",
    "of a weak etag": encode(replace(KEPT, etag='W/"v1"'), KEY),
    "of no etag": encode(replace(KEPT, etag='""'), KEY),
    "longer than its file": encode(replace(KEPT, size=249), KEY),
    "checked at no time": encode(replace(KEPT, checked_at=float("nan")), KEY),
    "something else": b"PAR1" * 100,
}


@pytest.mark.parametrize("blob", FOREIGN.values(), ids=list(FOREIGN))
def test_a_foreign_entry_is_none_said_once_and_replaced(blob: bytes, disk: Disk, tmp_path: Path) -> None:
    disk.write(KEY, KEPT)
    entry(tmp_path).write_bytes(blob)
    assert (disk.read(KEY), disk.read(KEY)) == (None, None)
    assert "is damaged, and not used" in (disk.problem() or "")
    assert disk.problem() is None
    disk.write(KEY, KEPT)
    assert disk.read(KEY) == KEPT


def test_a_link_a_fifo_and_a_directory_are_no_entries(disk: Disk, tmp_path: Path) -> None:
    disk.write(OTHER, KEPT)
    (tmp_path / "elsewhere").write_bytes(BLOB)
    entry(tmp_path).symlink_to(tmp_path / "elsewhere")
    assert disk.read(KEY) is None
    entry(tmp_path).unlink()
    os.mkfifo(entry(tmp_path))
    assert disk.read(KEY) is None
    entry(tmp_path).unlink()
    entry(tmp_path).mkdir()
    assert disk.read(KEY) is None
    disk.write(KEY, KEPT)  # cannot take its place: no error
    assert (disk.read(KEY), names(tmp_path)) == (None, sorted(f"{k.hex()}.meta" for k in (KEY, OTHER)))


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o757, 0o720, 0o702], ids=oct)
def test_a_directory_that_others_can_write_to_is_not_used(mode: int, tmp_path: Path) -> None:
    shared = tmp_path / "cache"
    shared.mkdir()
    shared.chmod(mode)
    entry(tmp_path).write_bytes(BLOB)
    disk = Disk(str(shared), limit=100_000)
    disk.write(OTHER, KEPT)
    assert (disk.read(KEY), names(tmp_path)) == (None, [f"{KEY.hex()}.meta"])
    assert "others can write" in (disk.problem() or "")
    shared.chmod(0o755)
    assert disk.read(KEY) == KEPT


def test_an_entry_of_another_owner_is_none(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.write(KEY, KEPT)
    fstat = os.fstat

    def of_another(handle: int) -> os.stat_result:
        found = fstat(handle)
        return os.stat_result((*found[:4], found.st_uid + 1, *found[5:]))

    monkeypatch.setattr(os, "fstat", of_another)
    assert disk.read(KEY) is None
    monkeypatch.undo()
    assert disk.read(KEY) == KEPT


@pytest.mark.parametrize("place", ["file", "file/below", "/proc/accel-cache"])
def test_no_directory_there_is_no_error(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    disk = Disk(str(tmp_path / place), limit=1000)
    disk.write(KEY, KEPT)
    disk.confirm(KEY, '"v1"', 1.0)
    disk.drop(KEY)
    disk.clear()
    assert (disk.read(KEY), disk.nbytes()) == (None, 0)
    assert str(tmp_path / place) in (disk.problem() or "")


def test_a_full_disk_is_no_error(disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk.write(KEY, KEPT)

    def full(source: str, target: str) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", full)
        disk.write(OTHER, KEPT)
    assert (disk.read(KEY), disk.read(OTHER)) == (KEPT, None)
    assert names(tmp_path) == [f"{KEY.hex()}.meta"]  # nothing half-written stays
    assert "No space left" in (disk.problem() or "")


def test_the_limit_holds_and_the_least_recently_used_go_first(tmp_path: Path) -> None:
    disk = Disk(str(tmp_path / "cache"), limit=10 * len(BLOB))
    keys = [entry_key(TOKEN, str(i)) for i in range(30)]
    for i, key in enumerate(keys):
        disk.write(key, KEPT)
        assert disk.nbytes() <= 10 * len(BLOB)
        os.utime(entry(tmp_path, key), (i, i))
        assert disk.read(keys[0]) == KEPT  # used again and again, it stays
    left = [i for i, key in enumerate(keys) if entry(tmp_path, key).exists()]
    assert left == [0, *range(21, 30)]


def test_what_other_processes_write_counts(tmp_path: Path) -> None:
    disks = [Disk(str(tmp_path / "cache"), limit=50 * len(BLOB)) for _ in range(4)]
    for i in range(400):
        disks[i % 4].write(entry_key(TOKEN, str(i)), KEPT)
        assert disks[0].nbytes() <= 54 * len(BLOB)  # each knows of its own at once, of others' by and by


def test_what_is_too_large_or_not_ours_stays_out(disk: Disk, tmp_path: Path) -> None:
    disk.write(KEY, replace(KEPT, size=10**6, data=bytes(100_000)))
    assert not entry(tmp_path).exists()
    disk.write(KEY, KEPT)
    own, stale = tmp_path / "cache" / "notes.txt", tmp_path / "cache" / f".{'0' * 64}.{'0' * 16}.tmp"
    for path in (own, stale):
        path.write_bytes(b"x")
        os.utime(path, (1, 1))
    disk.clear()
    assert names(tmp_path) == ["notes.txt"]  # what a writer left that died is gone, the user's own is not


def test_a_check_is_noted_for_that_version_only(disk: Disk) -> None:
    disk.write(KEY, KEPT)
    disk.confirm(KEY, '"v1"', KEPT.checked_at + 5)
    assert disk.read(KEY) == replace(KEPT, checked_at=KEPT.checked_at + 5)
    disk.confirm(KEY, '"v1"', KEPT.checked_at)  # older: another process knows better
    disk.confirm(KEY, '"v2"', KEPT.checked_at + 9)
    disk.confirm(OTHER, '"v1"', KEPT.checked_at + 9)
    assert disk.read(KEY) == replace(KEPT, checked_at=KEPT.checked_at + 5)


def test_writers_and_readers_of_one_entry_never_see_a_half(tmp_path: Path) -> None:
    versions = [replace(KEPT, etag=f'"{i}"', size=10**6, data=bytes([i]) * 50_000) for i in range(4)]
    wrong: list[object] = []

    def work(number: int) -> None:
        own = Disk(str(tmp_path / "cache"), limit=10**6)
        for i in range(40):
            own.write(KEY, versions[number])
            found = own.read(KEY)
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
    disk.write(KEY, KEPT)
    assert cache.stats() == CacheStats(
        entries=0, nbytes=0, limit=cache.memory, hits=0, misses=0, evictions=0, disk_nbytes=len(BLOB)
    )
    copy = pickle.loads(pickle.dumps(cache))
    assert (copy.disk, copy.disk_limit) == (str(tmp_path / "cache"), 100_000)
    assert copy.disk_for(TOKEN).read(KEY) == KEPT
    copy.clear()
    assert (disk.read(KEY), cache.stats().disk_nbytes) == (None, 0)
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
