"""Objects in Redis, in Cassandra and in memory: one contract for all, and what only Redis has: checksums,
expiry, limits, errors."""

from __future__ import annotations

import asyncio
import builtins
import secrets
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from accel.errors import (
    AccelError,
    AccessDeniedError,
    ObjectChangedError,
    ObjectNotFoundError,
    StoreError,
)
from accel.options import Options
from accel.ranges import ByteRange, Suffix
from accel.store import redis_store
from accel.store.cassandra_connection import CassandraAddress
from accel.store.cassandra_store import CassandraStore
from accel.store.memory_store import DictStore, store_named
from accel.store.range_store import Header, Lister, ObjectEntry, RangeStore, Remover, Writer
from accel.store.redis_connection import OBJECT_SETTINGS, RedisAddress
from accel.store.redis_store import RedisStore
from tests.support.cassandra import Cassandra
from tests.support.redis_server import RedisServer

BODY = bytes(i * 7 % 251 for i in range(100_000))
BLOCK = 32 * 1024
HEADER, CHECKSUM = 68, 8
QUICK = Options(connect_timeout=2.0, read_timeout=2.0)


def redis_at(url: str, options: Options = QUICK) -> RedisStore:
    return RedisStore(RedisAddress.parse(url, settings=OBJECT_SETTINGS), options)


async def parts_of(data: bytes, size: int = 10_000) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


async def put(store: Any, path: str, data: bytes, **condition: Any) -> None:
    await store.write(path, parts_of(data), size=len(data), **condition)


async def listed(store: Any, prefix: str = "") -> list[str]:
    return [entry.path async for entry in store.list(prefix)]


@pytest.fixture
async def redis(redis_server: RedisServer) -> AsyncIterator[RedisStore]:
    """An empty prefix."""
    store = redis_at(redis_server.url(f"t{secrets.token_hex(6)}"))
    yield store
    await store.close()


@pytest.fixture
async def in_cassandra(cassandra: Cassandra, keyspace: str) -> AsyncIterator[CassandraStore]:
    """A new name."""
    url = cassandra.url(keyspace, f"t{secrets.token_hex(6)}")
    store = CassandraStore(CassandraAddress.parse(url, settings=()), QUICK)
    yield store
    await store.close()


@pytest.fixture(params=["memory", "redis", "cassandra"])
def store(request: pytest.FixtureRequest) -> Any:
    if request.param != "memory":
        return request.getfixturevalue("redis" if request.param == "redis" else "in_cassandra")
    return store_named(f"memory://{secrets.token_hex(6)}")


def test_what_they_are(redis: RedisStore) -> None:
    for protocol in (RangeStore, Header, Lister, Writer, Remover):
        assert isinstance(redis, protocol)
    for protocol in (RangeStore, Lister, Writer, Remover):
        assert isinstance(store_named("memory://x"), protocol)
    assert store_named("memory://x") is store_named("memory://x")
    assert isinstance(store_named("memory://x"), DictStore)


@pytest.mark.parametrize(
    "want",
    [
        ByteRange(0, 1),
        ByteRange(0, len(BODY)),
        ByteRange(BLOCK - 1, BLOCK + 1),
        ByteRange(BLOCK, 2 * BLOCK),
        ByteRange(5, 3 * BLOCK + 7),
        ByteRange(len(BODY) - 1, len(BODY)),
        Suffix(1),
        Suffix(BLOCK),
        Suffix(len(BODY)),
        Suffix(10 * len(BODY)),
    ],
    ids=str,
)
async def test_a_range_is_read_exactly(store: Any, want: ByteRange | Suffix) -> None:
    await put(store, "a/b", BODY)
    span = want if isinstance(want, ByteRange) else ByteRange(max(0, len(BODY) - want.length), len(BODY))
    payload = await store.read("a/b", want)
    assert (bytes(payload.data), payload.range, payload.size) == (
        BODY[span.start : span.end],
        span,
        len(BODY),
    )
    assert (await store.read("a/b", want, if_match=payload.etag)) == payload


@pytest.mark.parametrize("size", [1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK])
async def test_objects_of_any_size(store: Any, size: int) -> None:
    await put(store, "o", BODY[:size])
    assert bytes((await store.read("o", Suffix(size))).data) == BODY[:size]
    with pytest.raises(StoreError) as short:
        await store.read("o", ByteRange(0, size + 1))
    assert short.value.status == 416


async def test_an_empty_object_has_no_last_bytes(store: Any) -> None:
    await put(store, "o", b"")
    with pytest.raises(StoreError) as empty:
        await store.read("o", Suffix(8))
    assert empty.value.status == 416
    assert [entry.size async for entry in store.list("")] == [0]


async def test_a_version_is_replaced_once(store: Any) -> None:
    await put(store, "o", b"one", if_absent=True)
    first = (await store.read("o", Suffix(9))).etag
    with pytest.raises(ObjectChangedError):
        await put(store, "o", b"other", if_absent=True)
    with pytest.raises(ObjectChangedError):
        await put(store, "o", b"other", if_match='"another"')
    await put(store, "o", b"two", if_match=first)
    with pytest.raises(ObjectChangedError):
        await put(store, "o", b"three", if_match=first)
    with pytest.raises(ObjectChangedError):
        await store.read("o", ByteRange(0, 3), if_match=first)
    with pytest.raises(ObjectChangedError):
        await put(store, "missing", b"x", if_match=first)
    assert bytes((await store.read("o", Suffix(9))).data) == b"two"
    assert await listed(store) == ["o"]


async def test_of_many_who_replace_a_version_one_succeeds(store: Any) -> None:
    await put(store, "o", b"0")
    for _ in range(5):
        etag = (await store.read("o", Suffix(99))).etag
        bodies = [secrets.token_bytes(50) for _ in range(8)]
        outcomes = await asyncio.gather(
            *(put(store, "o", body, if_match=etag) for body in bodies), return_exceptions=True
        )
        assert sum(isinstance(one, ObjectChangedError) for one in outcomes) == 7
        assert bytes((await store.read("o", Suffix(99))).data) == bodies[outcomes.index(None)]


async def test_what_is_listed_and_removed(store: Any) -> None:
    for path in ("d/a", "d/e/f", "da", "z*[x]", "d"):
        await put(store, path, path.encode())
    assert await listed(store) == ["d", "d/a", "d/e/f", "da", "z*[x]"]
    assert await listed(store, "d") == ["d", "d/a", "d/e/f"]
    assert await listed(store, "d/e") == ["d/e/f"]
    (entry,) = [entry async for entry in store.list("d/a")]
    assert entry == ObjectEntry("d/a", 3, (await store.read("d/a", Suffix(1))).etag)
    for _ in range(2):
        await store.remove("d/a")
    assert await listed(store, "d") == ["d", "d/e/f"]
    with pytest.raises(ObjectNotFoundError):
        await store.read("d/a", Suffix(1))


async def test_parts_of_another_length_are_not_stored(store: Any) -> None:
    with pytest.raises(AccelError, match="5 bytes"):
        await store.write("o", parts_of(b"12345"), size=6)
    assert await listed(store) == []


# -- Redis -------------------------------------------------------------------------------------------


async def test_a_large_object_goes_in_pieces_and_leaves_nothing_else(
    redis: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_store, "APPENDED", 50_000)
    await put(redis, "o", BODY * 7)
    assert bytes((await redis.read("o", Suffix(1 << 30))).data) == BODY * 7
    keys = await redis.redis.keys(f"{redis.address.prefix}:*")
    assert sorted(keys) == [redis.prefix + b"o", redis.index_key]
    assert await redis.redis.pttl(redis.prefix + b"o") == -1
    assert await redis.head("o") == ObjectEntry("o", 7 * len(BODY), (await redis.read("o", Suffix(1))).etag)


async def test_a_writer_that_fails_leaves_the_old_object(
    redis: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_store, "APPENDED", 50_000)
    await put(redis, "o", b"old")

    async def broken() -> AsyncIterator[bytes]:
        yield BODY
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        await redis.write("o", broken(), size=2 * len(BODY))
    assert bytes((await redis.read("o", Suffix(9))).data) == b"old"
    left = [key for key in await redis.redis.keys(f"{redis.address.prefix}:*") if b":unfinished:" in key]
    assert [0 < await redis.redis.pttl(key) <= 600_000 for key in left] == [True]


async def test_a_lost_answer_does_not_undo_the_commit(redis: RedisStore) -> None:
    """An attempt that is repeated after it was carried out succeeds again."""
    await put(redis, "o", b"one", if_absent=True)
    await put(redis, "o", b"one", if_absent=True)
    first = (await redis.head("o")).etag
    await put(redis, "o", b"two", if_match=first)
    await put(redis, "o", b"two", if_match=first)
    with pytest.raises(ObjectChangedError):
        await put(redis, "o", b"three", if_match=first)


async def test_too_large_an_object_is_refused_before_anything_is_sent(redis: RedisStore) -> None:
    async def never() -> AsyncIterator[bytes]:
        raise TypeError("nothing is asked for")
        yield b""

    with pytest.raises(StoreError, match="too large for Redis"):
        await redis.write("o", never(), size=512 << 20)


@pytest.mark.parametrize(
    ("at", "want"),
    [
        pytest.param(0, ByteRange(0, 5), id="magic"),
        pytest.param(10, ByteRange(0, 5), id="etag"),
        pytest.param(40, ByteRange(0, 5), id="size"),
        pytest.param(60, Suffix(5), id="checksum of the header"),
        pytest.param(HEADER, ByteRange(0, 5), id="checksum of a block"),
        pytest.param(HEADER + CHECKSUM + 100, ByteRange(0, 5), id="the same block"),
        pytest.param(HEADER + 2 * CHECKSUM + BLOCK, ByteRange(BLOCK - 1, BLOCK + 1), id="the second block"),
    ],
)
async def test_a_damaged_value_is_refused(redis: RedisStore, at: int, want: ByteRange | Suffix) -> None:
    await put(redis, "o", BODY)
    key = redis.prefix + b"o"
    old = await redis.redis.getrange(key, at, at)
    await redis.redis.setrange(key, at, bytes([old[0] ^ 1]))
    with pytest.raises(StoreError, match="the value in Redis is damaged") as damaged:
        await redis.read("o", want)
    assert (damaged.value.path, damaged.value.transient) == ("o", False)


@pytest.mark.parametrize("value", [b"", b"short", b"x" * HEADER, b"AcR1" + b"0" * 64])
async def test_what_is_no_object_is_refused(redis: RedisStore, value: bytes) -> None:
    await redis.redis.set(redis.prefix + b"o", value)
    expected = ObjectNotFoundError if not value else StoreError
    with pytest.raises(expected):
        await redis.read("o", ByteRange(0, 5))
    with pytest.raises(expected):
        await redis.read("o", Suffix(5))


async def test_blocks_that_changed_places_or_are_gone_are_refused(redis: RedisStore) -> None:
    await put(redis, "o", BODY)
    key, block = redis.prefix + b"o", CHECKSUM + BLOCK
    whole = await redis.redis.get(key)
    first, second = whole[HEADER : HEADER + block], whole[HEADER + block : HEADER + 2 * block]
    await redis.redis.setrange(key, HEADER, second + first)
    with pytest.raises(StoreError, match="damaged"):
        await redis.read("o", ByteRange(0, 5))
    await redis.redis.set(key, whole[:-30])
    with pytest.raises(StoreError, match="damaged"):
        await redis.read("o", Suffix(5))
    assert bytes((await redis.read("o", ByteRange(0, 5))).data) == BODY[:5]


async def test_another_type_of_value_is_an_error(redis: RedisStore) -> None:
    await redis.redis.lpush(redis.prefix + b"o", "x")
    with pytest.raises(StoreError, match="WRONGTYPE"):
        await redis.read("o", Suffix(5))


async def test_objects_expire_together_after_their_last_use(redis_server: RedisServer) -> None:
    prefix = f"t{secrets.token_hex(6)}"
    store = redis_at(redis_server.url(prefix, ttl=60))
    await put(store, "a", b"1")
    await store.redis.pexpire(store.index_key, 40_000)
    await put(store, "b", b"2")  # a write renews all

    async def left() -> list[int]:
        keys = sorted(await store.redis.keys(f"{prefix}:*"))
        return [await store.redis.pexpiretime(key) for key in keys]

    assert len(await left()) == 3
    assert len(set(await left())) == 1
    renewed = (await left())[0]
    await store.read("a", Suffix(1))  # too early to renew anything
    assert set(await left()) == {renewed}
    for key in await store.redis.keys(f"{prefix}:*"):
        await store.redis.pexpire(key, 20_000)
    await store.read("a", Suffix(1))
    assert len(set(await left())) == 1
    assert (await left())[0] >= renewed
    # Who writes by a URL without a time to live keeps to the time of the others.
    plain = redis_at(redis_server.url(prefix))
    await put(plain, "c", b"3")
    assert 0 < await store.redis.pttl(store.prefix + b"c") <= 60_000
    for key in await store.redis.keys(f"{prefix}:*"):
        await store.redis.pexpire(key, 1)
    await asyncio.sleep(0.01)
    assert await listed(store) == []
    with pytest.raises(ObjectNotFoundError):
        await store.read("a", Suffix(1))
    await store.close()
    await plain.close()


async def test_beyond_the_limit_nothing_is_written(redis_server: RedisServer) -> None:
    store = redis_at(redis_server.url(f"t{secrets.token_hex(6)}", max_bytes=100_000))
    await put(store, "a", BODY[:60_000])
    with pytest.raises(StoreError, match="max_bytes=100000"):
        await put(store, "b", BODY[:40_000])
    await put(store, "a", BODY[:99_000])  # in place of itself
    await store.remove("a")
    await put(store, "b", BODY[:60_000])
    # What Redis has evicted counts no more.
    await store.redis.delete(store.prefix + b"b")
    await put(store, "c", BODY[:60_000])
    assert await listed(store) == ["c"]
    assert await store.redis.hkeys(store.index_key) == [b"c"]
    await store.close()


async def test_what_is_lost_while_it_is_written_is_not_committed(
    redis: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_store, "APPENDED", 50_000)

    async def evicted() -> AsyncIterator[bytes]:
        yield BODY
        yield BODY
        keys = await redis.redis.keys(f"{redis.address.prefix}:unfinished:*")
        assert await redis.redis.delete(*keys) == 1
        yield BODY[:10]

    with pytest.raises(StoreError, match="has lost what was being written") as lost:
        await redis.write("o", evicted(), size=2 * len(BODY) + 10)
    assert lost.value.transient
    assert await listed(redis) == []


# -- the URL, and errors -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "shown", "expected"),
    [
        ("redis://h", "redis://h:6379/0/accel", ("h", 6379, 0, "accel", False, None, None, {})),
        ("redis://h:1/2/x/y/", "redis://h:1/2/x/y", ("h", 1, 2, "x/y", False, None, None, {})),
        ("rediss://:p%40%2F@h/", "rediss://h:6379/0/accel", ("h", 6379, 0, "accel", True, None, "p@/", {})),
        ("REDIS://u:p@[::1]:7/3", "redis://[::1]:7/3/accel", ("::1", 7, 3, "accel", False, "u", "p", {})),
        (
            "redis://h/0/a%20b?ttl=1.5&max_bytes=10",
            "redis://h:6379/0/a b",
            ("h", 6379, 0, "a b", False, None, None, {"ttl": 1.5, "max_bytes": 10.0}),
        ),
    ],
)
def test_a_url_is_taken_apart(url: str, shown: str, expected: tuple[object, ...]) -> None:
    address = RedisAddress.parse(url, settings=OBJECT_SETTINGS)
    found = (
        address.host, address.port, address.database, address.prefix,
        address.tls, address.username, address.password, dict(address.settings),
    )  # fmt: skip
    assert found == expected
    assert (str(address), repr(address)) == (shown, f"RedisAddress({shown!r})")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("redis://", "no URL of Redis"),
        ("redis://:s3cret@", "no URL of Redis"),
        ("redis://u:s3cret/x@h", "no URL of Redis"),
        ("redis://u:1/s3cret@h", "no URL of Redis"),
        ("redis://u:1?s3cret@h", "no URL of Redis"),
        ("redis://:s3cret#x@h", "no URL of Redis"),
        ("redis://:s3cret@h:port", "no URL of Redis"),
        ("redis://:s3cret@h/x", "the number of a database"),
        ("redis://:s3cret@h/70000", "the number of a database"),
        ("redis://:s3cret@h/0?password=s3cret", "may set max_bytes, ttl, and nothing else"),
        ("redis://:s3cret@h/0?ttl=s3cret", "ttl in the URL is no number"),
        ("redis://:s3cret@h/0?ttl=0", "ttl in the URL is no number"),
        ("redis://:s3cret@h/0?ttl=-1", "ttl in the URL is no number"),
        ("redis://:s3cret@h/0?ttl=1e999", "ttl in the URL is no number"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_being_quoted(url: str, message: str) -> None:
    with pytest.raises(StoreError, match=message) as refused:
        RedisAddress.parse(url, settings=OBJECT_SETTINGS)
    assert "s3cret" not in f"{refused.value} {refused.value!r} {refused.value.__dict__}"
    assert refused.value.hides


def test_without_the_package_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real: Callable[..., Any] = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.split(".")[0] == "redis":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(AccelError, match=r"pip install 'accel-parquet\[redis\]'"):
        redis_at("redis://h")


@pytest.mark.parametrize("password", ["wrong-s3cret", ""])
async def test_a_wrong_password_is_told_without_it(redis_server: RedisServer, password: str) -> None:
    store = redis_at(redis_server.url("x", password=password))
    with pytest.raises(AccessDeniedError, match="refused the user or the password") as denied:
        await store.read("o", Suffix(5))
    assert "s3cret" not in str(denied.value)
    assert not denied.value.transient
    await store.close()


async def test_a_server_that_is_not_there_may_come_later() -> None:
    store = redis_at("redis://:s3cret@127.0.0.1:1/0")
    with pytest.raises(StoreError, match=r"connection refused \(127.0.0.1:1\)") as refused:
        await store.read("o", Suffix(5))
    assert refused.value.transient
    assert refused.value.hides
    await store.close()


async def test_a_server_that_does_not_answer_is_given_up() -> None:
    ended = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        await writer.wait_closed()
        ended.set()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    store = redis_at(f"redis://127.0.0.1:{port}/0", Options(connect_timeout=0.2, read_timeout=0.2))
    with pytest.raises(StoreError, match="in time") as slow:
        await store.read("o", Suffix(5))
    assert slow.value.transient
    await store.close()
    await asyncio.wait_for(ended.wait(), 5)
    server.close()
