"""Metadata that outlives the process: fewer requests, never another answer, whatever becomes of the
directory."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import accel
from accel.ranges import Kind
from accel.testing import DictStore
from tests.faults.versions import OPTIONS, PATH, WHERE, expected, outcome, version
from tests.support.proxy import Proxy
from tests.support.relay import Passage, Substitute
from tests.support.s3 import S3Admin

A, B = version(1), version(2)
A_ROWS, B_ROWS = expected(1), expected(2)
POINT = "key = 4321"
MakeProxy = Callable[..., Proxy]


class Origin:
    """One object behind a proxy, to be replaced as a test goes on."""

    def __init__(self) -> None:
        self.data, self.etag = A, '"a"'

    def answer(self, passage: Passage) -> Substitute:
        return Substitute(self.data, self.etag)

    def replace(self) -> None:
        self.data, self.etag = B, '"b"'


@pytest.fixture
def origin() -> Origin:
    return Origin()


@pytest.fixture
def server(origin: Origin, make_proxy: MakeProxy) -> Proxy:
    return make_proxy(None, script=origin.answer)


@pytest.fixture
def where(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def scan_of(server: Proxy, cache: accel.Cache, predicate: str = WHERE) -> accel.Scan:
    return accel.scan(f"{server.url}/{PATH}", predicate, cache=cache, options=OPTIONS)


async def point(server: Proxy, cache: accel.Cache, *, name: int = 1) -> accel.Metrics:
    """Look one row up, with a cache that has nothing in memory; what that took."""
    scan = scan_of(server, pickle.loads(pickle.dumps(cache)), POINT)
    found = await scan.to_table_async()
    assert found.to_pylist() == [{"key": 4321, "version": name, "value": 43210 + name}]
    return scan.metrics


def kinds(metrics: accel.Metrics) -> set[Kind]:
    return set(metrics.requests_by_kind)


def entries(where: Path) -> list[Path]:
    return sorted(where.glob("*.meta"))


def grow_old(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """The wall clock is that far on (the disk's only clock)."""
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + seconds)


_PROGRAM = """
import json, sys
import accel
from accel.ranges import Kind
url, where, disk, max_age, storage = json.loads(sys.argv[1])
cache = accel.Cache(disk=disk, max_age=max_age)
options = accel.Options(tail_hint=8192, max_gap_bytes=0)
scan = accel.scan(url, where, cache=cache, options=options, storage_options=storage)
rows = scan.to_table().to_pylist()
m, s = scan.metrics, cache.stats()
print(json.dumps([rows, m.round_trips, sorted(k.name for k in m.requests_by_kind), m.warnings,
                  s.disk_hits, s.disk_misses]))
"""


def start(
    url: str, where: Path, *, max_age: float = 60, storage: object = None, **environment: str
) -> subprocess.Popen[str]:
    arguments = json.dumps([url, POINT, str(where), max_age, storage])
    return subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def finish(process: subprocess.Popen[str]) -> list[object]:
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    answer: list[object] = json.loads(out)
    return answer


ROW = [{"key": 4321, "version": 1, "value": 43211}]


def test_another_process_looks_up_in_one_round_trip(server: Proxy, where: Path) -> None:
    url = f"{server.url}/{PATH}"
    first = finish(start(url, where))
    assert first == [ROW, 2, ["PAGE", "TAIL"], [], 0, 1]
    server.reset(server.relay.script)
    assert finish(start(url, where)) == [ROW, 1, ["PAGE"], [], 1, 0]
    assert all(passage.if_match == '"a"' for passage in server.passages)
    assert finish(start(url, where, max_age=0)) == [ROW, 2, ["PAGE", "REVALIDATE"], [], 1, 0]


def test_credentials_separate_entries_and_are_in_none(
    s3: S3Admin, bucket: str, s3_options: dict[str, str], where: Path
) -> None:
    s3.put(bucket, PATH, A)
    url = f"s3://{bucket}/{PATH}"
    assert finish(start(url, where, storage=s3_options))[1:3] == [2, ["PAGE", "TAIL"]]
    assert finish(start(url, where, storage=s3_options))[1:3] == [1, ["PAGE"]]
    # The same keys by another way, and so another token: at worst a request too many.
    keys = {"AWS_ACCESS_KEY_ID": s3.access_key, "AWS_SECRET_ACCESS_KEY": s3.secret_key}
    rest = {k: v for k, v in s3_options.items() if not k.endswith(("key", "key_id"))}
    assert finish(start(url, where, storage=rest, **keys))[1:3] == [2, ["PAGE", "TAIL"]]
    assert len(entries(where)) == 2
    for path in entries(where):
        said = path.read_bytes() + path.name.encode()
        for secret in (s3.secret_key, s3.access_key, bucket, PATH):
            assert secret.encode() not in said
        assert path.stat().st_mode & 0o777 == 0o600
    assert where.stat().st_mode & 0o777 == 0o700


def test_processes_may_write_the_same_entry_at_once(server: Proxy, where: Path) -> None:
    url = f"{server.url}/{PATH}"
    together = [start(url, where) for _ in range(3)]
    for process in together:
        answer = finish(process)
        assert (answer[0], answer[3]) == (ROW, [])
    assert len(os.listdir(where)) == 1
    assert finish(start(url, where))[1:3] == [1, ["PAGE"]]


async def test_a_local_file_is_kept_too(tmp_path: Path, where: Path) -> None:
    (tmp_path / PATH).write_bytes(A)
    for tail, name in ((True, 1), (False, 1)):
        cache = accel.Cache(disk=where)
        scan = accel.scan(tmp_path / PATH, POINT, cache=cache, options=OPTIONS)
        assert (await scan.to_table_async())["version"].to_pylist() == [name]
        assert (Kind.TAIL in kinds(scan.metrics)) is tail


async def test_old_metadata_is_asked_for_once_and_then_young_again(
    server: Proxy, where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = accel.Cache(disk=where)
    await point(server, cache)
    grow_old(monkeypatch, 100)
    asked = await point(server, cache)
    assert (asked.round_trips, kinds(asked)) == (2, {Kind.REVALIDATE, Kind.PAGE})
    assert (asked.metadata_hits, asked.metadata_misses) == (1, 0)
    again = await point(server, cache)
    assert (again.round_trips, kinds(again)) == (1, {Kind.PAGE})


async def test_a_clock_that_was_set_back_means_asking(
    server: Proxy, where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = accel.Cache(disk=where)
    await point(server, cache)
    grow_old(monkeypatch, -1000)
    assert kinds(await point(server, cache)) == {Kind.REVALIDATE, Kind.PAGE}


async def test_a_check_by_memory_is_noted_on_disk(
    server: Proxy, where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strict, cache = accel.Cache(disk=where, max_age=0), accel.Cache(disk=where)
    await scan_of(server, strict).to_table_async()
    before = entries(where)[0].read_bytes()
    await scan_of(server, strict).to_table_async()  # in memory, asked
    assert entries(where)[0].read_bytes() != before
    assert kinds(await point(server, cache)) == {Kind.PAGE}


@pytest.mark.parametrize("honest", [True, False], ids=["If-Match honoured", "If-Match ignored"])
async def test_a_replaced_object_is_never_read_stale(
    honest: bool, origin: Origin, server: Proxy, where: Path
) -> None:
    cache = accel.Cache(disk=where)
    await point(server, cache)
    old = entries(where)[0].read_bytes()
    origin.replace()
    server.reset(lambda passage: Substitute(origin.data, origin.etag, honour_if_match=honest))
    scan = scan_of(server, accel.Cache(disk=where))
    assert await outcome(scan, a=A_ROWS, b=B_ROWS) == "b"
    assert scan.metrics.replans == 1
    assert [path.read_bytes() == old for path in entries(where)] == [False]
    assert kinds(await point(server, cache, name=2)) == {Kind.PAGE}


async def test_a_replaced_object_is_seen_by_revalidation(origin: Origin, server: Proxy, where: Path) -> None:
    await point(server, accel.Cache(disk=where))
    origin.replace()
    scan = scan_of(server, accel.Cache(disk=where, max_age=0))
    assert await outcome(scan, a=A_ROWS, b=B_ROWS) == "b"
    assert (scan.metrics.replans, scan.metrics.requests_by_kind[Kind.REVALIDATE]) == (0, 1)
    assert kinds(await point(server, accel.Cache(disk=where), name=2)) == {Kind.PAGE}


async def test_a_plan_of_the_old_version_raises_and_drops_the_entry(
    origin: Origin, server: Proxy, where: Path
) -> None:
    cache = accel.Cache(disk=where)
    plan = await accel.plan_async(f"{server.url}/{PATH}", where=WHERE, cache=cache, options=OPTIONS)
    assert len(entries(where)) == 1
    origin.replace()
    with pytest.raises(accel.ObjectChangedError):
        await accel.scan(plan, cache=cache, options=OPTIONS).to_table_async()
    assert entries(where) == []


async def test_a_listing_is_a_check(
    s3: S3Admin, bucket: str, s3_options: dict[str, str], where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.put(bucket, f"t/{PATH}", A)

    async def count(cache: accel.Cache) -> tuple[list[int], set[Kind]]:
        scan = accel.scan(
            f"s3://{bucket}/t/", POINT, storage_options=s3_options, cache=cache, options=OPTIONS
        )
        return (await scan.to_table_async())["version"].to_pylist(), kinds(scan.metrics)

    assert await count(accel.Cache(disk=where)) == ([1], {Kind.LISTING, Kind.TAIL, Kind.PAGE})
    grow_old(monkeypatch, 100)
    assert await count(accel.Cache(disk=where)) == ([1], {Kind.LISTING, Kind.PAGE})  # agrees, however old
    named = accel.scan(
        f"s3://{bucket}/t/{PATH}", POINT, storage_options=s3_options, cache=accel.Cache(disk=where)
    )
    assert await named.to_table_async() is not None
    assert kinds(named.metrics) == {Kind.PAGE}  # and was noted
    s3.put(bucket, f"t/{PATH}", B)
    assert await count(accel.Cache(disk=where)) == ([2], {Kind.LISTING, Kind.TAIL, Kind.PAGE})  # disagrees


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "truncated": lambda data: data[:-100],
    "no footer": lambda data: data[:60],
    "longer": lambda data: data + data,
    "a flipped bit of the footer": lambda data: data[:-200] + bytes([data[-200] ^ 4]) + data[-199:],
    "a flipped bit of the etag": lambda data: data[:65] + bytes([data[65] ^ 1]) + data[66:],
    "a flipped bit of the size": lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:],
    "foreign": lambda data: A,
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=list(DAMAGE))
async def test_a_damaged_entry_is_read_anew(
    damage: Callable[[bytes], bytes], server: Proxy, where: Path
) -> None:
    await point(server, accel.Cache(disk=where))
    path = entries(where)[0]
    path.write_bytes(damage(path.read_bytes()))
    metrics = await point(server, accel.Cache(disk=where))
    assert (metrics.round_trips, kinds(metrics)) == (2, {Kind.TAIL, Kind.PAGE})
    assert [text for text in metrics.warnings if "is damaged" in text] == metrics.warnings != []
    healed = await point(server, accel.Cache(disk=where))
    assert (kinds(healed), healed.warnings) == ({Kind.PAGE}, [])


async def test_an_entry_under_another_files_name_is_not_its(
    origin: Origin, server: Proxy, where: Path
) -> None:
    await point(server, accel.Cache(disk=where))
    other = accel.scan(f"{server.url}/other.parquet", POINT, cache=accel.Cache(disk=where), options=OPTIONS)
    origin.replace()
    await other.to_table_async()
    one, two = entries(where)
    data = one.read_bytes(), two.read_bytes()
    one.write_bytes(data[1])
    two.write_bytes(data[0])
    count = scan_of(server, accel.Cache(disk=where))
    assert await outcome(count, a=A_ROWS, b=B_ROWS) == "b"
    assert Kind.TAIL in kinds(count.metrics)


@pytest.mark.parametrize("place", ["file", "file/below", "shared"])
async def test_without_a_directory_it_works_without(place: str, server: Proxy, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    cache = accel.Cache(disk=tmp_path / place, data=0)
    scan = scan_of(server, cache, POINT)
    assert (await scan.to_table_async()).num_rows == 1
    assert len(scan.metrics.warnings) == 1
    assert str(tmp_path / place) in scan.metrics.warnings[0]
    again = scan_of(server, cache, POINT)
    assert (await again.to_table_async()).num_rows == 1
    assert (kinds(again.metrics), again.metrics.warnings) == ({Kind.PAGE}, [])  # memory serves
    assert os.listdir(tmp_path / "shared") == []


async def test_only_strong_etags_are_kept(origin: Origin, server: Proxy, where: Path) -> None:
    origin.etag = 'W/"a"'
    await point(server, accel.Cache(disk=where))
    assert not where.exists()


async def test_a_store_of_the_callers_is_not_kept(where: Path) -> None:
    cache = accel.Cache(disk=where)
    scan = accel.scan(PATH, POINT, store=DictStore({PATH: A}), cache=cache, options=OPTIONS)
    assert (await scan.to_table_async()).num_rows == 1
    assert (where.exists(), cache.stats().disk_misses) == (False, 0)


async def test_a_footer_longer_than_the_hint_and_a_whole_small_file(server: Proxy, where: Path) -> None:
    for hint, first, warm in ((64, 4, 2), (2 * len(A), 1, 0)):
        for expected_trips in (first, warm):
            scan = accel.scan(
                f"{server.url}/{PATH}",
                POINT,
                cache=accel.Cache(disk=where / str(hint)),
                options=accel.Options(tail_hint=hint, max_gap_bytes=0),
            )
            assert (await scan.to_table_async())["value"].to_pylist() == [43211]
            assert scan.metrics.round_trips == expected_trips


async def test_the_limit_is_kept_and_clear_empties(server: Proxy, where: Path) -> None:
    await point(server, accel.Cache(disk=where))
    one = entries(where)[0].stat().st_size
    cache = accel.Cache(disk=where, disk_limit=3 * one)
    for i in range(8):
        scan = accel.scan(f"{server.url}/{i}.parquet", POINT, cache=cache, options=OPTIONS)
        assert (await scan.to_table_async()).num_rows == 1
        assert 0 < cache.stats().disk_nbytes <= 3 * one
    cache.clear()
    assert (os.listdir(where), cache.stats().disk_nbytes) == ([], 0)
