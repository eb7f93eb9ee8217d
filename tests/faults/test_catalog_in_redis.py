"""A catalog in Redis, or in memory: many at once, servers that end or come back empty, damage, and
secrets."""

from __future__ import annotations

import asyncio
import gc
import logging
import pickle
import secrets
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import accel
from accel.catalog.homes import objects
from accel.catalog.inspecting import inspect_index, verify_index
from accel.runtime import io_loop
from accel.store.clients import client_for
from accel.store.location import Location
from accel.store.redis_connection import RedisAddress
from accel.testing import DictStore, write_file
from tests.faults.test_catalog_commits import Crowd, InMemory
from tests.faults.test_secrets import failure_of, leaks
from tests.support.cutting_relay import CuttingRelay
from tests.support.redis_server import RedisServer, find_redis

# Files are replaced all the time, which scans by the list of the index tell.
pytestmark = pytest.mark.filterwarnings("ignore:.*replaced since the index at:UserWarning")

SECRET = "s3cretSignature"
"""That of `test_secrets`, which looks for it."""
QUICK = accel.Options(
    max_attempts=2, backoff_base=0.001, backoff_max=0.002, connect_timeout=2.0, read_timeout=2.0
)
STRICT = accel.Options(
    max_attempts=2, backoff_base=0.001, backoff_max=0.002, connect_timeout=2.0, read_timeout=2.0, strict=True
)


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    """A server that a test may end."""
    binary = find_redis()
    if binary is None:
        pytest.skip("needs redis-server on PATH: apt-get update && apt-get install redis-server")
    with RedisServer(binary, password=SECRET) as running:
        yield running


@pytest.fixture
def files() -> DictStore:
    return DictStore(
        {
            f"t/{at:03}.parquet": write_file(pa.table({"n": list(range(at * 10, at * 10 + 10))}))
            for at in range(40)
        }
    )


def rows(files: DictStore, where: str, **given: Any) -> tuple[int, accel.Metrics]:
    """The number of rows that match, and what that took; warnings are in the metrics."""
    scan = accel.scan("t/", where, store=files, **{"cache": None, "options": QUICK, **given})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return scan.to_table().num_rows, scan.metrics


# -- many at once ------------------------------------------------------------------------------------


def test_writers_and_readers_of_a_catalog_in_memory() -> None:
    Crowd(InMemory(seed=7, rate=0.0), seed=7, faulty=False, to=f"memory://{secrets.token_hex(8)}").run()


def test_writers_and_readers_of_a_catalog_in_redis(redis_server: RedisServer) -> None:
    Crowd(InMemory(seed=8, rate=0.0), seed=8, faulty=False, to=redis_server.url(secrets.token_hex(8))).run()


def test_writers_and_readers_while_connections_end(redis_server: RedisServer, large: bool) -> None:
    with CuttingRelay(redis_server.port, rate=0.01, seed=9) as relay:
        url = redis_server.url(secrets.token_hex(8)).replace(f":{redis_server.port}/", f":{relay.port}/")
        crowd = Crowd(InMemory(seed=9, rate=0.01), seed=9, faulty=True, to=url)
        crowd.run(writers=4, readers=16, seconds=60.0 if large else 2.5)
        assert relay.cuts > 0
        print(
            f"{crowd.refreshed} changes, {crowd.answered} answers, {crowd.refused} refused, "
            f"{relay.cuts} connections ended, {len(crowd.history.states)} states"
        )


def test_the_connections_of_a_client_that_made_room_are_closed(redis_server: RedisServer) -> None:
    """Only so many clients stay; what nobody has closed would warn when it is collected, which fails a test
    here."""

    def connections() -> int:
        return int(redis_server.ask("INFO", "clients").partition(b"connected_clients:")[2].split()[0])

    before = connections()
    prefix = secrets.token_hex(6)
    for number in range(300):
        url = redis_server.url(f"{prefix}{number}")
        location = Location("redis", str(RedisAddress.parse(url, settings=())), "")
        client = client_for(location, storage_options={"url": url})
        with pytest.raises(accel.ObjectNotFoundError):
            io_loop.run(client.head("nothing"))
    del client
    gc.collect()
    for _ in range(100):
        if connections() - before <= 128:
            break
        io_loop.run(asyncio.sleep(0.05))
    assert 0 < connections() - before <= 128


# -- a server that ends ------------------------------------------------------------------------------


@pytest.mark.parametrize("comes_back", [False, True], ids=["ends", "comes back empty"])
def test_redis_ends_and_the_scan_goes_on_from_the_files(
    comes_back: bool, own_redis: RedisServer, files: DictStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the head and the tables that it names."""
    monkeypatch.setattr(objects, "INLINE_BYTES", 0)
    url = own_redis.url("c")
    accel.build_index("t/", to=url, store=files)
    assert rows(files, "n = 123", index=url)[1].catalog.total == 40
    cache = accel.Cache(max_age=3600)
    assert rows(files, "n = 7", index=url, cache=cache)[0] == 1
    own_redis.end()
    if comes_back:
        own_redis.start()
    # The head is cached, the tables are not: those of another question are gone.
    cache.byte_tier.clear()
    count, metrics = rows(files, "n = 321", index=url, cache=cache)
    assert (count, metrics.files.total, metrics.catalog.total, metrics.indexes_ignored) == (1, 40, 0, 1)
    # Without a cache the head is gone, too.
    count, metrics = rows(files, "n = 321", index=url)
    assert (count, metrics.catalog.total, metrics.indexes_ignored, len(metrics.warnings)) == (1, 0, 1, 1)
    expected = "there is no index at redis://" if comes_back else "connection refused"
    assert expected in metrics.warnings[0]
    assert SECRET not in metrics.warnings[0]
    with pytest.raises(accel.StoreError):
        rows(files, "n = 321", index=url, options=STRICT)
    with pytest.raises(accel.StoreError):
        rows(files, "n = 321", index=url, listing="index")
    if comes_back:
        accel.build_index("t/", to=url, store=files)
        assert rows(files, "n = 321", index=url)[1].catalog.total == 40


def test_a_head_that_is_damaged_is_passed_over_or_refused(own_redis: RedisServer, files: DictStore) -> None:
    url = own_redis.url("c")
    accel.build_index("t/", to=url, store=files)
    own_redis.ask("SETRANGE", "c:object:head", "1000", "xyz")
    count, metrics = rows(files, "n = 321", index=url)
    assert (count, metrics.indexes_ignored) == (1, 1)
    assert "the value in Redis is damaged" in metrics.warnings[0]
    with pytest.raises(accel.StoreError, match="the value in Redis is damaged"):
        rows(files, "n = 321", index=url, options=STRICT)
    with pytest.raises(accel.StoreError, match="the value in Redis is damaged"):
        accel.refresh_index(url, store=files)


def test_a_table_that_is_damaged_is_passed_over_or_refused(
    own_redis: RedisServer, files: DictStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "INLINE_BYTES", 0)
    url = own_redis.url("c")
    accel.build_index("t/", to=url, store=files)
    names = own_redis.ask("HKEYS", "c:objects").split(b"\r\n")
    for name in names:
        if name.endswith(b".parquet"):
            own_redis.ask("SETRANGE", b"c:object:" + name, "200", "xyz")
    count, metrics = rows(files, "n = 321", index=url)
    assert (count, metrics.indexes_ignored) == (1, 1)
    with pytest.raises(accel.AccelError, match="damaged"):
        rows(files, "n = 321", index=url, options=STRICT)


def test_an_index_larger_than_the_limit_is_refused_and_leaves_the_old_one(
    redis_server: RedisServer, files: DictStore
) -> None:
    url = redis_server.url(secrets.token_hex(8), max_bytes=40_000)
    accel.build_index("t/", to=url, store=files)
    for at in range(40, 1_000):
        files.put(f"t/{at:03}.parquet", files.objects["t/000.parquet"])
    with pytest.raises(accel.StoreError, match="max_bytes=40000"):
        accel.refresh_index(url, store=files)
    assert rows(files, "n = 321", index=url)[1].catalog.total == 40


def test_an_index_that_has_expired_is_built_anew(redis_server: RedisServer, files: DictStore) -> None:
    prefix = secrets.token_hex(8)
    url = redis_server.url(prefix, ttl=60)
    accel.build_index("t/", to=url, store=files)
    for name in redis_server.ask("HKEYS", f"{prefix}:objects").split(b"\r\n"):
        redis_server.ask("PEXPIRE", f"{prefix}:object:".encode() + name, "1")
    redis_server.ask("PEXPIRE", f"{prefix}:objects", "1")
    while not redis_server.ask("EXISTS", f"{prefix}:objects").startswith(b":0"):
        pass
    count, metrics = rows(files, "n = 321", index=url)
    assert (count, metrics.catalog.total) == (1, 0)
    assert "there is no index at redis://" in metrics.warnings[0]
    assert accel.build_index("t/", to=url, store=files).generation == 1
    assert rows(files, "n = 321", index=url)[1].catalog.total == 40


# -- what differs by the URL alone -------------------------------------------------------------------


def test_names_in_memory_are_apart_from_paths_in_a_store_of_the_callers(files: DictStore) -> None:
    name = secrets.token_hex(8)
    accel.build_index("memory://t/", store=files)
    assert "t/_accel/head" in files.objects
    accel.build_index("t/", to=f"memory://{name}", store=files)
    assert [path for path in files.objects if name in path] == []
    assert rows(files, "n = 321", index=f"memory://{name}/")[1].catalog.total == 40
    assert inspect_index(f"memory://{name}", store=files).files == 40
    assert verify_index(f"memory://{name}", store=files).is_empty
    with pytest.raises(accel.StoreError, match="names no store by itself"):
        accel.refresh_index("memory://t/_accel")
    with pytest.raises(accel.ObjectNotFoundError):
        accel.refresh_index("memory://another-name", store=files)


def test_prefixes_are_apart(redis_server: RedisServer, files: DictStore) -> None:
    one, other = (redis_server.url(secrets.token_hex(8)) for _ in range(2))
    accel.build_index("t/", to=one, store=files)
    with pytest.raises(accel.ObjectNotFoundError):
        accel.refresh_index(other, store=files)
    accel.build_index("t/", to=other, store=files)
    assert rows(files, "n = 321", index=other)[1].catalog.total == 40


# -- secrets -----------------------------------------------------------------------------------------


def calls(url: str, files: DictStore) -> dict[str, Callable[[], object]]:
    given: dict[str, Any] = {"store": files, "options": STRICT}
    return {
        "build": lambda: accel.build_index("t/", to=url, **given),
        "refresh": lambda: accel.refresh_index(url, **given),
        "compact": lambda: accel.compact_index(url, **given),
        "vacuum": lambda: accel.vacuum_index(url, **given),
        "inspect": lambda: inspect_index(url, **given),
        "verify": lambda: verify_index(url, **given),
        "scan": lambda: accel.scan("t/", "n = 5", index=url, cache=None, **given).to_table(),
        "count": lambda: accel.scan("t/", "n = 5", index=url, cache=None, **given).count_rows(),
        "listing": lambda: accel.scan("t/", "n = 5", index=url, listing="index", cache=None, **given).head(),
        "plan": lambda: accel.plan("t/", "n = 5", index=url, cache=None, **given),
        "explain": lambda: accel.scan("t/", "n = 5", index=url, cache=None, **given).explain(),
    }


@pytest.mark.parametrize("verb", calls("", DictStore()))
@pytest.mark.parametrize("wrong", ["password", "port", "URL", "head", "files"])
def test_the_password_is_in_nothing_that_a_failure_keeps(
    verb: str, wrong: str, own_redis: RedisServer, files: DictStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    url = own_redis.url("c")
    if wrong == "password":
        url = own_redis.url("c", password=f"other-{SECRET}")
    elif wrong == "port":
        url = f"redis://u:{SECRET}@127.0.0.1:1/0"
    elif wrong == "URL":
        url = f"redis://u:{SECRET}@h:{SECRET}/0?x={SECRET}"
    elif wrong == "head":
        accel.build_index("t/", to=url, store=files)
        own_redis.ask("SETRANGE", "c:object:head", "100", "xyz")
    else:
        accel.build_index("t/", to=url, store=files)
        for path in list(files.objects):
            files.put(path, b"PAR1 no Parquet PAR1")
        if verb in ("build", "refresh", "compact", "vacuum", "inspect", "verify"):
            return  # they tell of such files without failing
    error = failure_of(calls(url, files)[verb])
    assert isinstance(error, accel.AccelError)
    assert [leak for leak in leaks(error) if "calls.<locals>" not in leak] == []  # that is this file
    assert SECRET not in caplog.text


def test_the_password_is_in_no_result(own_redis: RedisServer, files: DictStore) -> None:
    url = own_redis.url("c")
    report = accel.build_index("t/", to=url, store=files)
    scan = accel.scan("t/", "n = 321", index=url, store=files, cache=accel.Cache())
    shown = [
        report,
        scan,
        scan.explain(),
        scan.explain(analyze=True),
        scan.metrics,
        inspect_index(url, store=files),
    ]
    plan = accel.plan("t/", "n = 321", index=url, store=files, cache=None)
    shown += [plan, plan.tasks, plan.explain(), verify_index(url, store=files)]
    assert report.index == f"redis://127.0.0.1:{own_redis.port}/0/c/"
    assert SECRET not in " ".join(f"{one!r} {one}" for one in shown)
    assert SECRET.encode() not in pickle.dumps(plan)
    client = client_for(objects.Location("redis", report.index.rstrip("/"), ""), storage_options={"url": url})
    assert SECRET not in f"{client!r} {client.store!r} {client.token}"
