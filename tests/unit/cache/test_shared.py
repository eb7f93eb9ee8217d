"""The shared tier by itself: lookups go together, a server that fails is passed over, and clocks may
differ."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest

from accel.cache import shared
from accel.cache.cassandra_shared import CassandraShared
from accel.cache.disk import StoredMetadata, entry_key
from accel.cache.shared import LOOKED_UP, SharedTier, Stamped
from accel.cache.shared_stores import MemoryShared, PostgresShared, RedisShared, open_shared
from accel.errors import AccelError, StoreError
from accel.runtime import io_loop
from tests.support.cassandra import Cassandra
from tests.support.postgres import Postgres
from tests.support.redis_server import RedisServer

TOKEN = "0123456789abcdef" * 2
KEYS = [entry_key(TOKEN, f"{at}.parquet") for at in range(300)]
STORED = StoredMetadata(etag='"v1"', size=5_000, data=bytes(range(250)), checked_at=0.0)


class Server:
    """A dictionary whose clock is wrong by `skew`, and which may fail, or be slow."""

    def __init__(self, skew: float = 0.0) -> None:
        self.entries: dict[bytes, bytes] = {}
        self.skew = skew
        self.lookups: list[int] = []
        self.writes: list[int] = []
        self.failure: StoreError | None = None
        self.delay = 0.0
        self.closed = 0

    async def _answer(self) -> None:
        await asyncio.sleep(self.delay)
        if self.failure is not None:
            raise self.failure

    async def get_many(self, keys: Sequence[bytes]) -> Stamped:
        self.lookups.append(len(keys))
        await self._answer()
        return Stamped(
            {key: self.entries[key] for key in keys if key in self.entries}, time.time() + self.skew
        )

    async def put_many(self, entries: Mapping[bytes, bytes]) -> None:
        self.writes.append(len(entries))
        await self._answer()
        self.entries.update(entries)

    async def close(self) -> None:
        self.closed += 1


@pytest.fixture
def server() -> Server:
    return Server()


def tier_of(server: Server, *, timeout: float = 5.0) -> SharedTier:
    return SharedTier(server, name="the server", timeout=timeout)


async def written(tier: SharedTier, count: int) -> None:
    """Wait until a tier has written so many entries."""
    deadline = time.monotonic() + 10
    while tier.written < count and time.monotonic() < deadline:
        await asyncio.sleep(0.001)
    assert tier.written == count


async def store(server: Server, keys: Sequence[bytes], *, checked_at: float | None = None) -> None:
    """Have another process store entries."""
    tier = tier_of(server)
    assert await tier.get(keys[0]) is None
    for key in keys:
        tier.put(key, STORED, checked_at=time.monotonic() if checked_at is None else checked_at)
    await written(tier, len(keys))


async def test_what_one_stores_another_finds(server: Server) -> None:
    await store(server, KEYS[:1])
    found = await tier_of(server).get(KEYS[0])
    assert found is not None
    assert replace(found.stored, checked_at=0.0) == STORED
    assert time.monotonic() - 5 < found.checked_at <= time.monotonic()
    assert await tier_of(server).get(KEYS[1]) is None


async def test_lookups_that_are_made_together_go_together(server: Server) -> None:
    await store(server, KEYS[:200])
    server.lookups.clear()
    tier = tier_of(server)
    found = await asyncio.gather(*(tier.get(key) for key in KEYS + KEYS[:50]))
    assert [entry is not None for entry in found] == [at < 200 for at in range(300)] + [True] * 50
    assert server.lookups == [LOOKED_UP, LOOKED_UP, 300 - 2 * LOOKED_UP]
    # Writes go together, too.
    assert sum(server.writes) == 200
    assert len(server.writes) <= 3


@pytest.mark.parametrize("skew", [0.0, -500.0, 500.0])
async def test_an_age_is_that_of_the_servers_clock(skew: float) -> None:
    """However wrong the clock of the server, or of who stored an entry, it looks no younger than it is."""
    server = Server(skew)
    before = time.monotonic() - 100
    await store(server, KEYS[:1], checked_at=before)
    found = await tier_of(server).get(KEYS[0])
    assert found is not None
    assert before - 5 < found.checked_at <= before


async def test_an_entry_of_the_future_is_of_no_certain_age(server: Server) -> None:
    await store(server, KEYS[:1])
    server.skew = -1000.0
    found = await tier_of(server).get(KEYS[0])
    assert found is not None
    assert found.checked_at == -float("inf")


async def test_a_slow_server_is_passed_over_for_a_while(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store(server, KEYS[:1])
    monkeypatch.setattr(shared, "FIRST_PAUSE", 0.3)
    tier = tier_of(server, timeout=0.05)
    server.delay = 30.0
    server.lookups.clear()
    begun = time.monotonic()
    outcomes = await asyncio.gather(*(tier.get(key) for key in KEYS), return_exceptions=True)
    assert time.monotonic() - begun < 2.0
    assert {str(outcome) for outcome in outcomes} == {"it did not answer within 0.05 s"}
    # Not asked again, and nothing is sent there.
    with pytest.raises(StoreError, match="did not answer"):
        await tier.get(KEYS[0])
    tier.put(KEYS[5], STORED, checked_at=time.monotonic())
    assert server.lookups == [LOOKED_UP]
    server.delay = 0.0
    await asyncio.sleep(0.35)
    assert await tier.get(KEYS[0]) is not None
    assert server.lookups == [LOOKED_UP, 1]
    assert server.writes == [1]


async def test_the_time_for_which_it_is_passed_over_doubles(server: Server) -> None:
    tier = tier_of(server)
    server.failure = StoreError("connection refused")
    pauses = []
    for _ in range(7):
        tier._passed_over_until = 0.0
        with pytest.raises(StoreError, match="connection refused"):
            await tier.get(KEYS[0])
        pauses.append(round(tier._passed_over_until - time.monotonic()))
    assert pauses == [1, 2, 4, 8, 16, 30, 30]
    server.failure, tier._passed_over_until = None, 0.0
    assert await tier.get(KEYS[0]) is None
    server.failure = StoreError("again")
    with pytest.raises(StoreError, match="again"):
        await tier.get(KEYS[0])
    assert round(tier._passed_over_until - time.monotonic()) == 1


def keep_busy(seconds: float) -> None:
    """Hold up the loop, as an import or a large footer does."""
    time.sleep(seconds)


async def test_a_loop_that_was_busy_does_not_use_up_the_time(server: Server) -> None:
    await store(server, KEYS[:1])
    tier = tier_of(server, timeout=0.1)
    server.delay = 0.02
    lookup = asyncio.ensure_future(tier.get(KEYS[0]))
    await asyncio.sleep(0.001)
    keep_busy(0.3)
    assert await lookup is not None


@pytest.mark.parametrize("at", [0, 10, 70, -1], ids=["magic", "key", "etag", "checksum"])
async def test_a_damaged_entry_is_told(server: Server, at: int) -> None:
    await store(server, KEYS[:1])
    entry = bytearray(server.entries[KEYS[0]])
    entry[at] ^= 1
    server.entries[KEYS[0]] = bytes(entry)
    tier = tier_of(server)
    with pytest.raises(StoreError, match="an entry is damaged"):
        await tier.get(KEYS[0])
    assert await tier.get(KEYS[1]) is None  # the server is asked as before


async def test_an_entry_of_another_key_is_damaged(server: Server) -> None:
    await store(server, KEYS[:1])
    server.entries[KEYS[1]] = server.entries[KEYS[0]]
    with pytest.raises(StoreError, match="an entry is damaged"):
        await tier_of(server).get(KEYS[1])


async def test_what_was_dropped_is_not_used_until_it_is_newer(server: Server) -> None:
    await store(server, KEYS[:1])
    tier = tier_of(server)
    assert await tier.get(KEYS[0]) is not None
    tier.drop(KEYS[0])
    assert await tier.get(KEYS[0]) is None
    assert await tier_of(server).get(KEYS[0]) is not None
    await asyncio.sleep(0.002)
    tier.put(KEYS[0], STORED, checked_at=time.monotonic())
    await written(tier, 1)
    tier.put(KEYS[1], STORED, checked_at=time.monotonic())
    tier.drop(KEYS[1])  # before it was written
    assert await tier.get(KEYS[0]) is not None
    assert await tier.get(KEYS[1]) is None
    assert KEYS[1] not in server.entries


async def test_what_waits_to_be_written_is_bounded(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(STORED.encode(KEYS[0]))
    monkeypatch.setattr(shared, "MOST_WAITING", 10 * size)
    monkeypatch.setattr(shared, "MOST_ENTRY", 2 * size)
    tier = tier_of(server)
    await tier.get(KEYS[0])
    tier.put(KEYS[250], replace(STORED, data=bytes(3 * size)), checked_at=0.0)
    for key in KEYS[:30]:
        tier.put(key, STORED, checked_at=0.0)
    await written(tier, 10)
    assert sorted(server.entries) == sorted(KEYS[:10])


async def test_writes_that_fail_are_dropped(server: Server) -> None:
    tier = tier_of(server)
    await tier.get(KEYS[0])
    server.failure = StoreError("no room")
    tier.put(KEYS[0], STORED, checked_at=0.0)
    while not server.writes or tier.waiting:
        await asyncio.sleep(0.001)
    assert (tier.written, server.entries) == (0, {})
    with pytest.raises(StoreError, match="no room"):
        await tier.get(KEYS[0])


async def test_the_end_of_the_process_writes_what_waits(server: Server) -> None:
    tier = tier_of(server)
    await tier.get(KEYS[0])
    tier.put(KEYS[0], STORED, checked_at=0.0)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()  # as `io_loop` does
    await tier.flush()
    assert (list(server.entries), server.closed) == ([KEYS[0]], 1)
    assert tier.flush in [closer() for closer in io_loop.loop_state.closers]


async def test_a_lookup_that_is_cancelled_harms_no_other(server: Server) -> None:
    await store(server, KEYS[:1])
    tier = tier_of(server)
    server.delay = 0.02
    one, other = (asyncio.ensure_future(tier.get(KEYS[0])) for _ in range(2))
    await asyncio.sleep(0.005)
    one.cancel()
    assert await other is not None
    assert one.cancelled()


# -- the servers -------------------------------------------------------------------------------------


@pytest.fixture(params=["memory", "redis", "postgresql", "cassandra"])
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    """Makes a server object over an empty server of each kind, with settings of the URL."""
    if request.param == "postgresql":
        base = request.getfixturevalue("postgres").new_database()
    elif request.param == "redis":
        redis: RedisServer = request.getfixturevalue("redis_server")
        base = redis.url(f"c{secrets.token_hex(6)}")
    elif request.param == "cassandra":
        cassandra: Cassandra = request.getfixturevalue("cassandra")
        base = cassandra.url(cassandra.new_keyspace())
    else:
        base = f"memory://{secrets.token_hex(6)}"
    async with AsyncExitStack() as stack:

        def make(**settings: object) -> Any:
            query = "&".join(f"{name}={value}" for name, value in settings.items())
            made = open_shared(base + (f"?{query}" if query else "")).store
            stack.push_async_callback(made.close)
            return made

        make.kind = request.param  # type: ignore[attr-defined]
        yield make


async def test_entries_of_a_server(place: Any) -> None:
    one, other = place(), place()
    before = time.time()
    assert dict((await one.get_many(KEYS[:3])).entries) == {}
    await one.put_many({KEYS[0]: b"a", KEYS[1]: bytes(range(256)) * 40, KEYS[2]: b"c"})
    await one.put_many({KEYS[2]: b"new", KEYS[3]: b""})
    found = await other.get_many([*KEYS[:3], KEYS[9]])
    assert dict(found.entries) == {KEYS[0]: b"a", KEYS[1]: bytes(range(256)) * 40, KEYS[2]: b"new"}
    assert before - 1 <= found.now <= time.time() + 1
    await one.put_many({key: key for key in KEYS[:LOOKED_UP]})
    assert dict((await other.get_many(KEYS[:LOOKED_UP])).entries) == {key: key for key in KEYS[:LOOKED_UP]}
    # A server object that was closed opens new connections.
    await one.close()
    assert dict((await one.get_many(KEYS[:1])).entries) == {KEYS[0]: KEYS[0]}


async def test_entries_expire(place: Any) -> None:
    if place.kind == "memory":
        return
    # Cassandra counts whole seconds, of which the first may be nearly over.
    brief, usual = place(ttl=2.0 if place.kind == "cassandra" else 0.5), place()
    await usual.put_many({KEYS[1]: b"stays"})
    await brief.put_many({KEYS[0]: b"goes"})
    assert dict((await usual.get_many(KEYS[:2])).entries) == {KEYS[0]: b"goes", KEYS[1]: b"stays"}
    deadline = time.monotonic() + 5
    while KEYS[0] in (await usual.get_many(KEYS[:2])).entries and time.monotonic() < deadline:
        await asyncio.sleep(0.02)
    assert dict((await usual.get_many(KEYS[:2])).entries) == {KEYS[1]: b"stays"}


async def test_the_oldest_entries_make_room(place: Any) -> None:
    if place.kind in ("memory", "cassandra"):
        return  # these have no limit that the URL sets
    most = 32_000
    server = place(max_bytes=most)
    for at in range(100):
        await server.put_many({KEYS[at]: bytes(1_000)})
        left = [
            found
            for start in (0, 100)
            for found in (await server.get_many(KEYS[start : start + 100])).entries
        ]
        assert len(left) * 1_000 <= most + most // 32
        assert KEYS[at] in left
        await asyncio.sleep(0.002)  # Redis has the moments by milliseconds
    assert len(left) >= 28
    assert set(left) == set(KEYS[100 - len(left) : 100])
    await server.put_many({KEYS[0]: bytes(most + 1), KEYS[1]: b"small"})
    assert dict((await server.get_many(KEYS[:2])).entries) == {KEYS[1]: b"small"}


async def test_what_redis_has_forgotten_is_not_counted_for_ever(redis_server: RedisServer) -> None:
    made = open_shared(redis_server.url(f"c{secrets.token_hex(6)}", max_bytes=10_000)).store
    assert isinstance(made, RedisShared)
    await made.put_many({key: bytes(1_000) for key in KEYS[:10]})
    await made.redis.delete(*(made.prefix + name for name in (b"expiry", b"sizes")))
    await made.put_many({KEYS[20]: bytes(1_000)})
    await made.put_many({KEYS[21]: bytes(1_000)})
    assert (await made.get_many([KEYS[21]])).entries == {KEYS[21]: bytes(1_000)}
    assert int(await made.redis.get(made.prefix + b"bytes")) == 2_000
    await made.redis.delete(made.prefix + b"bytes")
    await made.put_many({KEYS[22]: bytes(1_000)})
    assert int(await made.redis.get(made.prefix + b"bytes")) == 3_000
    await made.close()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("s3cret", "no URL of a server"),
        ("http://:s3cret@h", "no URL of a server"),
        ("redis://:s3cret@h/0?size=1", "may set max_bytes, timeout, ttl, and nothing else"),
        ("redis://:s3cret@h:x", "no URL of Redis"),
        ("cassandra://:s3cret@h/k?max_bytes=1", "may set timeout, ttl, and nothing else"),
        ("postgresql://u:s3cret@h:x/d", "no URL of PostgreSQL"),
        ("postgresql://u:s3cret/x@h/d", "no URL of PostgreSQL"),
        ("postgresql://u:1/s3cret@h/d", "no URL of PostgreSQL"),
        ("postgresql://u:s3cret@h/d?s3cret=1", "no URL of PostgreSQL"),
        ("postgresql://u:s3cret@h/d?ttl=s3cret", "ttl in the URL is no number"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_being_quoted(url: str, message: str) -> None:
    with pytest.raises(AccelError, match=message) as refused:
        open_shared(url)
    assert "s3cret" not in f"{refused.value} {refused.value!r} {refused.value.__dict__}"


@pytest.mark.parametrize(
    ("url", "name", "kind"),
    [
        ("memory://x", "memory://x", MemoryShared),
        ("redis://u:s3cret@h/3/p?timeout=0.5", "redis://h:6379/3/p", RedisShared),
        ("postgresql://u:s3cret@h/d?timeout=0.5&sslmode=require", "postgresql://h:5432/d", PostgresShared),
        ("postgres://u:s3cret@h:1/d", "postgresql://h:1/d", PostgresShared),
        ("cassandra://u:s3cret@h/k?timeout=0.5&tls=true", "cassandra://h:9042/k", CassandraShared),
    ],
)
def test_the_url_chooses_the_server(url: str, name: str, kind: type) -> None:
    tier = open_shared(url)
    assert (str(tier), type(tier.store)) == (name, kind)
    assert tier.timeout == (0.5 if "timeout" in url else 0.1)
    assert open_shared(url).store is tier.store
    assert "s3cret" not in repr(vars(tier))


async def test_a_server_that_refuses_shows_no_password(postgres: Postgres) -> None:
    refusing = open_shared(postgres.url(password="s3cret")).store
    with pytest.raises(StoreError, match="PostgreSQL failed") as refused:
        await refusing.get_many(KEYS[:1])
    assert "s3cret" not in str(refused.value)
    absent = open_shared("postgresql://u:s3cret@127.0.0.1:1/d").store
    with pytest.raises(StoreError, match="PostgreSQL failed") as refused:
        await absent.get_many(KEYS[:1])
    assert "s3cret" not in str(refused.value)
