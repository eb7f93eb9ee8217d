"""Metadata that a fleet shares on a server: fewer requests, never another answer, whatever becomes of the
server."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import accel
from accel.cache.disk import StoredMetadata
from accel.ranges import Kind
from accel.store import clients as client_module
from accel.testing import DictStore, RecordingStore, write_file
from tests.faults.test_secrets import failure_of, leaks
from tests.faults.versions import OPTIONS, PATH, WHERE, expected, outcome, version
from tests.support.proxy import Proxy
from tests.support.redis_server import RedisServer, find_redis
from tests.support.relay import Passage, Substitute

A, B = version(1), version(2)
A_ROWS, B_ROWS = expected(1), expected(2)
POINT = "key = 4321"
SECRET = "s3cretPassword"
TOLD = "s3cretSignature"
"""That of `test_secrets`, which looks for it."""
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


@pytest.fixture(params=["memory", "redis", "postgresql"])
def shared(request: pytest.FixtureRequest) -> str:
    """The URL of an empty place."""
    if request.param == "postgresql":
        url: str = request.getfixturevalue("postgres").new_database() + "?timeout=2"
    elif request.param == "redis":
        url = request.getfixturevalue("redis_server").url(secrets.token_hex(6), timeout=2)
    else:
        url = f"memory://{secrets.token_hex(6)}"
    return url


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    """A server that a test may end."""
    binary = find_redis()
    if binary is None:
        pytest.skip("needs redis-server on PATH: apt-get update && apt-get install redis-server")
    with RedisServer(binary, password=SECRET) as running:
        yield running


def wait_for(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not reached() and time.monotonic() < deadline:
        time.sleep(0.002)
    assert reached()


def kinds(metrics: accel.Metrics) -> set[Kind]:
    return set(metrics.requests_by_kind)


async def point(server: Proxy, cache: accel.Cache, *, name: int = 1) -> accel.Metrics:
    """Look one row up, with a cache that has nothing in memory; what that took, once all is stored."""
    cache = pickle.loads(pickle.dumps(cache))
    scan = accel.scan(f"{server.url}/{PATH}", POINT, cache=cache, options=OPTIONS)
    found = await scan.to_table_async()
    assert found.to_pylist() == [{"key": 4321, "version": name, "value": 43210 + name}]
    wait_for(lambda: cache.shared_tier is None or not cache.shared_tier.waiting)
    return scan.metrics


# -- a fleet -----------------------------------------------------------------------------------------

FILES = 300
MANY = 2_000


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> tuple[str, RecordingStore]:
    """A bucket of small files, and the store that records what is asked of it."""
    return bucket_of(FILES, monkeypatch)


def bucket_of(count: int, monkeypatch: pytest.MonkeyPatch) -> tuple[str, RecordingStore]:
    objects = {f"t/{at:04}.parquet": write_file(pa.table({"n": [at, at + 0.5]})) for at in range(count)}
    store = RecordingStore(DictStore(objects), settle=1)
    monkeypatch.setattr(client_module, "build_store", lambda *_, **__: store)
    return f"s3://{secrets.token_hex(6)}/t/", store


def test_the_second_of_a_fleet_reads_no_footer(shared: str, monkeypatch: pytest.MonkeyPatch) -> None:
    count = MANY if shared.startswith("redis") else FILES
    url, store = bucket_of(count, monkeypatch)
    first = accel.Cache(shared=shared)
    scan = accel.scan(url, "n = 123.5", cache=first)
    assert scan.to_table().to_pylist() == [{"n": 123.5}]
    assert scan.metrics.requests_by_kind[Kind.TAIL] == count
    wait_for(lambda: first.stats().shared_written == count)
    assert (first.stats().shared_hits, first.stats().shared_misses) == (0, count)
    store.clear()

    second = accel.Cache(shared=shared)
    scan = accel.scan(url, "n = 123.5", cache=second)
    assert scan.to_table().to_pylist() == [{"n": 123.5}]
    # The listing, and the data of the one file that may match.
    assert [(call.path, call.want is None) for call in store.calls if call.want is None] == [("t", True)]
    assert {call.path for call in store.calls if call.want is not None} <= {"t/0123.parquet"}
    assert len(store.calls) <= 2
    metrics = scan.metrics
    assert (metrics.metadata_hits, metrics.metadata_misses) == (count, 0)
    assert (metrics.shared_hits, metrics.shared_failures, metrics.warnings) == (count, 0, [])
    assert (second.stats().shared_hits, second.stats().shared_misses) == (count, 0)
    assert second.stats().shared_written == 0
    # In memory from now on.
    again = accel.scan(url, "n = 77", cache=second)
    assert again.count_rows() == 1
    assert (again.metrics.shared_hits, again.metrics.metadata_hits) == (0, count)


def test_the_disk_comes_first_and_is_filled(
    shared: str, bucket: tuple[str, RecordingStore], tmp_path: Path
) -> None:
    url, store = bucket
    for path in sorted(store.inner.objects)[10:]:  # type: ignore[attr-defined]
        store.inner.delete(path)  # type: ignore[attr-defined]
    first = accel.Cache(shared=shared)
    assert accel.scan(url, "n = 3", cache=first).count_rows() == 1
    wait_for(lambda: first.stats().shared_written == 10)
    for hits in ((10, 0), (0, 10)):
        cache = accel.Cache(shared=shared, disk=tmp_path / "cache")
        scan = accel.scan(url, "n = 3", cache=cache)
        assert scan.count_rows() == 1
        assert Kind.TAIL not in kinds(scan.metrics)
        stats = cache.stats()
        assert (stats.shared_hits, stats.disk_hits) == hits
        assert stats.shared_written == 0


_PROGRAM = """
import json, sys
import accel
url, where, shared, max_age = json.loads(sys.argv[1])
cache = accel.Cache(shared=shared, max_age=max_age)
scan = accel.scan(url, where, cache=cache, options=accel.Options(tail_hint=8192, max_gap_bytes=0))
rows = scan.to_table().to_pylist()
m, s = scan.metrics, cache.stats()
print(json.dumps([rows, m.round_trips, sorted(k.name for k in m.requests_by_kind), m.warnings,
                  s.shared_hits, s.shared_misses]))
"""


def run(url: str, shared: str, *, max_age: float = 60) -> list[object]:
    process = subprocess.run(
        [sys.executable, "-c", _PROGRAM, json.dumps([url, POINT, shared, max_age])],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (process.returncode, process.stderr) == (0, "")
    answer: list[object] = json.loads(process.stdout)
    return answer


ROW = [{"key": 4321, "version": 1, "value": 43211}]


def test_another_process_looks_up_in_one_round_trip(shared: str, server: Proxy) -> None:
    if shared.startswith("memory"):
        return  # of one process
    url = f"{server.url}/{PATH}"
    # What the first has read is stored, although it ends at once.
    assert run(url, shared) == [ROW, 2, ["PAGE", "TAIL"], [], 0, 1]
    assert run(url, shared) == [ROW, 1, ["PAGE"], [], 1, 0]
    assert run(url, shared, max_age=0) == [ROW, 2, ["PAGE", "REVALIDATE"], [], 1, 0]


# -- versions ----------------------------------------------------------------------------------------


async def test_old_metadata_is_asked_for_once_and_then_young_again(shared: str, server: Proxy) -> None:
    cache = accel.Cache(shared=shared, max_age=0.3)
    await point(server, cache)
    await asyncio.sleep(0.35)
    asked = await point(server, cache)
    assert (asked.round_trips, kinds(asked)) == (2, {Kind.REVALIDATE, Kind.PAGE})
    assert (asked.metadata_hits, asked.shared_hits) == (1, 1)
    again = await point(server, accel.Cache(shared=shared, max_age=0.3))
    assert (again.round_trips, kinds(again)) == (1, {Kind.PAGE})


@pytest.mark.parametrize("honest", [True, False], ids=["If-Match honoured", "If-Match ignored"])
async def test_a_replaced_object_is_never_read_stale(
    honest: bool, origin: Origin, server: Proxy, shared: str
) -> None:
    await point(server, accel.Cache(shared=shared))
    origin.replace()
    server.reset(lambda passage: Substitute(origin.data, origin.etag, honour_if_match=honest))
    scan = accel.scan(f"{server.url}/{PATH}", WHERE, cache=accel.Cache(shared=shared), options=OPTIONS)
    assert await outcome(scan, a=A_ROWS, b=B_ROWS) == "b"
    assert scan.metrics.replans == 1
    again = await point(server, accel.Cache(shared=shared), name=2)
    assert kinds(again) <= {Kind.PAGE, Kind.TAIL}


async def test_a_replaced_object_is_seen_by_revalidation(origin: Origin, server: Proxy, shared: str) -> None:
    await point(server, accel.Cache(shared=shared))
    origin.replace()
    asked = await point(server, accel.Cache(shared=shared, max_age=0), name=2)
    assert (asked.replans, kinds(asked)) == (0, {Kind.REVALIDATE, Kind.TAIL, Kind.PAGE})
    assert kinds(await point(server, accel.Cache(shared=shared), name=2)) == {Kind.PAGE}


async def test_only_strong_etags_are_shared(origin: Origin, server: Proxy, shared: str) -> None:
    origin.etag = 'W/"a"'
    for _ in range(2):
        assert Kind.TAIL in kinds(await point(server, accel.Cache(shared=shared)))


def test_files_of_this_machine_and_of_a_store_of_the_callers_are_not_shared(
    tmp_path: Path, shared: str
) -> None:
    (tmp_path / PATH).write_bytes(A)
    for source, given in ((tmp_path / PATH, {}), (PATH, {"store": DictStore({PATH: A})})):
        cache = accel.Cache(shared=shared)
        scan: Any = accel.scan(source, POINT, cache=cache, options=OPTIONS, **given)
        assert scan.count_rows() == 1
        assert (cache.stats().shared_misses, cache.stats().shared_written) == (0, 0)


def test_entries_that_are_no_footers_are_read_anew(bucket: tuple[str, RecordingStore]) -> None:
    """Their checksums are right, and what they hold is of no use: somebody else has written them."""
    url, _ = bucket
    shared = f"memory://{secrets.token_hex(6)}"
    first = accel.Cache(shared=shared)
    assert accel.scan(url, "n = 7", cache=first).count_rows() == 1
    wait_for(lambda: first.stats().shared_written == FILES)
    assert first.shared_tier is not None
    entries = first.shared_tier.store.entries  # type: ignore[attr-defined]
    for at, (key, entry) in enumerate(list(entries.items())):
        stored = StoredMetadata.decode(entry, key)
        assert stored is not None
        data = stored.data[-8:] if at % 2 else bytes(len(stored.data))  # it asks for more, or is none
        entries[key] = replace(stored, data=data).encode(key)
    scan = accel.scan(url, "n = 7", cache=accel.Cache(shared=shared))
    assert scan.to_table().to_pylist() == [{"n": 7.0}]
    assert scan.metrics.requests_by_kind[Kind.TAIL] == FILES
    assert (scan.metrics.metadata_hits, scan.metrics.metadata_misses) == (0, FILES)


# -- a server that fails -----------------------------------------------------------------------------


async def test_a_damaged_entry_is_read_anew(own_redis: RedisServer, server: Proxy) -> None:
    cache = accel.Cache(shared=own_redis.url("c", timeout=2))
    await point(server, cache)
    (name,) = [key for key in keys_of(own_redis) if key not in (b"expiry", b"sizes", b"bytes")]
    own_redis.ask("SETRANGE", b"c:metadata:" + name, "100", "xx")
    metrics = await point(server, cache)
    assert (metrics.round_trips, kinds(metrics)) == (2, {Kind.TAIL, Kind.PAGE})
    assert metrics.shared_failures == 1
    address = f"redis://127.0.0.1:{own_redis.port}/0/c"
    assert metrics.warnings == [f"the shared cache {address} is not used: an entry is damaged"]
    healed = await point(server, cache)
    assert (kinds(healed), healed.warnings) == ({Kind.PAGE}, [])


def keys_of(redis: RedisServer) -> list[bytes]:
    """What the keys of the shared metadata are, without their prefix."""
    return [part for part in redis_parts(redis.ask("KEYS", "c:metadata:*"))]


def redis_parts(answer: bytes) -> list[bytes]:
    """The strings of an answer that is an array of them."""
    parts, rest = [], answer.partition(b"\r\n")[2]
    while rest:
        length, _, rest = rest.partition(b"\r\n")
        parts.append(rest[: int(length[1:])].removeprefix(b"c:metadata:"))
        rest = rest[int(length[1:]) + 2 :]
    return parts


@pytest.mark.parametrize("what", ["gone", "stopped", "wrong password"])
async def test_a_server_that_does_not_serve_is_passed_over(
    what: str, own_redis: RedisServer, server: Proxy
) -> None:
    url = own_redis.url("c", password="wrong" if what == "wrong password" else None)
    if what == "gone":
        own_redis.end()
    if what == "stopped":
        own_redis.signal(signal.SIGSTOP)
    try:
        cache = accel.Cache(shared=url)
        # The first scan imports much: it is not measured.
        assert (await point(server, accel.Cache())).rows_out == 1
        begun = time.monotonic()
        metrics = await point(server, cache)
        assert time.monotonic() - begun < 5.0
        assert (metrics.round_trips, metrics.shared_failures, len(metrics.warnings)) == (2, 1, 1)
        assert f"127.0.0.1:{own_redis.port}" in metrics.warnings[0]
        assert SECRET not in metrics.warnings[0]
    finally:
        if what == "stopped":
            own_redis.signal(signal.SIGCONT)


def test_a_server_that_ends_and_comes_back_empty_costs_requests_only(
    own_redis: RedisServer, bucket: tuple[str, RecordingStore]
) -> None:
    url, store = bucket
    shared = own_redis.url("c", timeout=2)
    first = accel.Cache(shared=shared)
    assert accel.scan(url, "n >= 0", cache=first).count_rows() == 2 * FILES
    wait_for(lambda: first.stats().shared_written == FILES)
    store.clear()
    lookups = 0
    second = accel.Cache(shared=shared)
    assert second.shared_tier is not None
    get_many = second.shared_tier.store.get_many

    async def ending(keys: Any) -> Any:
        nonlocal lookups
        lookups += 1
        if lookups == 2:
            own_redis.end()
        return await get_many(keys)

    second.shared_tier.store.get_many = ending  # type: ignore[method-assign]
    try:
        scan = accel.scan(url, "n >= 0", cache=second, columns=["n"])
        assert scan.to_table().num_rows == 2 * FILES
    finally:
        del second.shared_tier.store.get_many  # type: ignore[attr-defined]
    metrics = scan.metrics
    assert metrics.shared_hits + metrics.shared_failures == FILES
    assert metrics.shared_hits > 0
    assert metrics.shared_failures > 0
    assert len(metrics.warnings) == 1
    own_redis.start()
    third = accel.Cache(shared=shared)
    scan = accel.scan(url, "n >= 0", cache=third)
    assert scan.count_rows() == 2 * FILES
    assert (scan.metrics.shared_hits, scan.metrics.shared_failures) == (0, 0)
    wait_for(lambda: third.stats().shared_written == FILES)


# -- secrets -----------------------------------------------------------------------------------------


def test_the_password_is_shown_nowhere(own_redis: RedisServer, server: Proxy, caplog: Any) -> None:
    caplog.set_level(0)
    cache = accel.Cache(shared=own_redis.url("c"))
    scan = accel.scan(f"{server.url}/{PATH}", POINT, cache=cache, options=OPTIONS)
    scan.to_table()
    plan = accel.plan(f"{server.url}/{PATH}", POINT, cache=cache, options=OPTIONS)
    shown = [
        cache,
        cache.stats(),
        scan,
        scan.metrics,
        scan.explain(),
        plan,
        plan.tasks,
        cache.shared_tier,
        vars(cache.shared_tier),
    ]
    assert repr(cache).endswith(f"shared='redis://127.0.0.1:{own_redis.port}/0/c')")
    assert SECRET not in " ".join(f"{one!r} {one}" for one in shown)
    assert SECRET.encode() not in pickle.dumps(plan)
    assert SECRET not in caplog.text
    # Neither keys nor entries show a name of a file, or a credential.
    stored = own_redis.ask("KEYS", "*")
    assert PATH.encode() not in stored
    assert server.url.encode() not in stored
    assert SECRET.encode() not in stored


@pytest.mark.parametrize(
    "url",
    [
        f"ftp://u:{TOLD}@h",
        f"redis://u:{TOLD}@h:{TOLD}/0",
        f"redis://u:{TOLD}/0?x={TOLD}",
        f"postgresql://u:{TOLD}@h/d?x={TOLD}",
        f"postgresql://u:{TOLD}@h/d?ttl={TOLD}",
    ],
)
def test_a_url_that_is_refused_is_in_nothing_that_the_error_keeps(url: str) -> None:
    error = failure_of(lambda: accel.Cache(shared=url))
    assert [leak for leak in leaks(error) if "<locals>.<lambda>" not in leak] == []  # that is this file


def test_a_copy_of_a_cache_shares_what_it_shares() -> None:
    cache = accel.Cache(shared="memory://copied")
    copied = pickle.loads(pickle.dumps(cache))
    assert copied.shared_tier.store is cache.shared_tier.store
    assert os.fspath(repr(copied)) == repr(cache)
