"""Objects in Cassandra, beyond the contract of all stores: outcomes that are unclear, damage, expiry, garbage,
sessions, and errors."""

from __future__ import annotations

import asyncio
import builtins
import secrets
import socket
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from accel.errors import AccelError, AccessDeniedError, ObjectChangedError, ObjectNotFoundError, StoreError
from accel.options import Options
from accel.ranges import ByteRange, Suffix
from accel.store import cassandra_store
from accel.store.cassandra_connection import (
    OBJECT_SETTINGS,
    CassandraAddress,
    CassandraSession,
    UnclearError,
)
from accel.store.cassandra_store import CassandraStore
from tests.support.cassandra import Cassandra

PART = 64 * 1024
BODY = bytes(i * 7 % 251 for i in range(3 * PART + 100))
QUICK = Options(connect_timeout=5.0, read_timeout=5.0)


def store_at(url: str, options: Options = QUICK) -> CassandraStore:
    return CassandraStore(CassandraAddress.parse(url, settings=OBJECT_SETTINGS), options)


async def put(store: CassandraStore, path: str, data: bytes, **condition: Any) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for start in range(0, len(data), 50_000):
            yield data[start : start + 50_000]

    await store.write(path, parts(), size=len(data), **condition)


async def content(store: CassandraStore, path: str) -> bytes:
    return bytes((await store.read(path, Suffix(1 << 30))).data)


async def run(store: CassandraStore, statement: str, *given: object) -> list[Any]:
    return await store.run("", statement, *given)


async def body_of(store: CassandraStore, path: str) -> str:
    return ((await store.head(path)).etag or "").strip('"')


@pytest.fixture
async def store(cassandra: Cassandra, keyspace: str) -> AsyncIterator[CassandraStore]:
    """A new name."""
    made = store_at(cassandra.url(keyspace, f"t{secrets.token_hex(6)}"))
    yield made
    await made.close()


# -- outcomes that are unclear -----------------------------------------------------------------------


@pytest.fixture
def unclear(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[bool]]:
    """Has the next compare-and-sets time out, each carried out or not."""
    real = CassandraSession.run
    outcomes: list[bool] = []

    async def timing_out(self: CassandraSession, statement: str, *given: Any, **named: Any) -> Any:
        if " IF version" in statement and outcomes:
            if outcomes.pop(0):
                await real(self, statement, *given, **named)
            raise UnclearError("the server made no progress in time", path=named["path"], transient=True)
        return await real(self, statement, *given, **named)

    monkeypatch.setattr(CassandraSession, "run", timing_out)

    def plan(*carried_out: bool) -> list[bool]:
        outcomes[:] = carried_out
        return outcomes

    return plan


@pytest.mark.parametrize("carried_out", [(True,), (False,), (False, True), (False, False, False)], ids=str)
async def test_an_outcome_that_is_unclear_is_settled_by_reading_again(
    store: CassandraStore, unclear: Callable[..., list[bool]], carried_out: tuple[bool, ...]
) -> None:
    left = unclear(*carried_out)
    await put(store, "head", b"one", if_absent=True)
    first = (await store.head("head")).etag
    assert (left, await content(store, "head")) == ([], b"one")
    unclear(*carried_out)
    await put(store, "head", b"two", if_match=first)
    assert await content(store, "head") == b"two"
    with pytest.raises(ObjectChangedError):
        await put(store, "head", b"three", if_match=first)
    # What was replaced is garbage, whoever replaced it; what is there is none.
    garbage = {row[0] for row in await run(store, cassandra_store.GET_GARBAGE, store.name)}
    assert garbage == {(first or "").strip('"')}


async def test_another_commit_behind_an_unclear_outcome_is_seen(
    store: CassandraStore, unclear: Callable[..., list[bool]]
) -> None:
    await put(store, "head", b"one", if_absent=True)
    first = (await store.head("head")).etag
    left = unclear(False)
    writing = asyncio.create_task(put(store, "head", b"two", if_match=first))
    while left:
        await asyncio.sleep(0)
    await put(store, "head", b"other")
    with pytest.raises(ObjectChangedError):
        await writing
    assert await content(store, "head") == b"other"


async def test_an_outcome_that_stays_unclear_is_an_error(
    store: CassandraStore, unclear: Callable[..., list[bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cassandra_store, "FIRST_PAUSE", 0.0)
    unclear(*[False] * 100)
    with pytest.raises(StoreError, match="no progress in time") as failed:
        await put(store, "head", b"one", if_absent=True)
    assert failed.value.transient
    with pytest.raises(ObjectNotFoundError):
        await store.head("head")


# -- damage ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["a byte", "a part is gone", "a part of another place", "a shorter part"])
async def test_a_damaged_body_is_refused(store: CassandraStore, damage: str) -> None:
    await put(store, "o", BODY)
    body = await body_of(store, "o")
    stored = bytes((await run(store, cassandra_store.GET_PART, body, 1))[0][0])
    other = bytes((await run(store, cassandra_store.GET_PART, body, 2))[0][0])
    if damage == "a part is gone":
        await run(store, cassandra_store.DROP_PART, body, 1)
    else:
        changed = {
            "a byte": stored[:50] + bytes([stored[50] ^ 1]) + stored[51:],
            "a part of another place": other,
            "a shorter part": stored[:-1],
        }[damage]
        await run(store, cassandra_store.PUT_PART, body, 1, changed, 0)
    for want in (ByteRange(PART, PART + 1), Suffix(1 << 30)):
        with pytest.raises(StoreError, match="the object in Cassandra is damaged"):
            await store.read("o", want)
    with pytest.raises(StoreError, match="the object in Cassandra is damaged"):
        await store.read("o", ByteRange(PART, PART + 1), if_match=f'"{body}"')
    assert bytes((await store.read("o", ByteRange(0, 9))).data) == BODY[:9]


@pytest.mark.parametrize(
    ("column", "value"), [("size", 5), ("size", -1), ("version", "0" * 32), ("version", "x"), ("seal", "x")]
)
async def test_a_damaged_row_is_refused(store: CassandraStore, column: str, value: object) -> None:
    await put(store, "o", BODY)
    statement = f"UPDATE accel_objects SET {column} = ? WHERE name = ? AND path = ? IF EXISTS"
    await run(store, statement, value, store.name, "o")
    for work in (store.head("o"), store.read("o", Suffix(5))):
        with pytest.raises(StoreError, match="the object in Cassandra is damaged"):
            await work


# -- what expires, and what nothing names ------------------------------------------------------------


async def test_a_head_lives_no_longer_than_what_it_names(cassandra: Cassandra, keyspace: str) -> None:
    store = store_at(cassandra.url(keyspace, f"t{secrets.token_hex(6)}", ttl=1000))
    statement = "SELECT TTL(version) FROM accel_objects WHERE name = ? AND path = ?"

    async def left(path: str) -> int:
        return int((await run(store, statement, store.name, path))[0][0])

    await put(store, "segment", BODY)
    await put(store, "head", b"one", if_absent=True)
    assert 990 < await left("head") <= await left("segment") <= 1000
    # With more than half of its time left it stays as it is, else it is written anew.
    for seconds, expected in ((700, 700), (300, 1000)):
        row = await store.row("segment")
        await store.put_row(row, row.version, ttl=seconds)
        await put(store, "head", b"two", if_match=(await store.head("head")).etag)
        assert expected - 10 < await left("head") <= await left("segment") <= expected
    parts = "SELECT TTL(data) FROM accel_parts WHERE body = ? AND part = ?"
    body = await body_of(store, "segment")
    assert [990 < (await run(store, parts, body, part))[0][0] <= 1000 for part in range(4)] == [True] * 4
    assert await content(store, "segment") == BODY
    await store.close()


async def test_garbage_is_removed_by_a_later_commit(
    store: CassandraStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield BODY
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        await store.write("o", broken(), size=2 * len(BODY))
    await put(store, "head", BODY, if_absent=True)
    first = await body_of(store, "head")
    await put(store, "head", BODY, if_match=f'"{first}"')
    second = await body_of(store, "head")
    garbage = await run(store, cassandra_store.GET_GARBAGE, store.name)
    # The body that no row names may be under way; the other one may be read by somebody.
    assert sorted(row[3] for row in garbage) == [600, 86_400]
    assert len(await run(store, cassandra_store.GET_PART, first, 0)) == 1
    aged = "UPDATE accel_garbage SET since = ? WHERE name = ? AND body = ?"
    for row in garbage:
        await run(store, aged, row[2] - 1000 * row[3] - 1000, store.name, row[0])
    await run(store, aged, 1, store.name, second)  # it is named
    await put(store, "head", b"end", if_match=f'"{second}"')
    left = await run(store, cassandra_store.GET_GARBAGE, store.name)
    assert {row[0] for row in left} == {second}
    for row in garbage:
        for part in range(7):
            assert await run(store, cassandra_store.GET_PART, row[0], part) == []
    await store.remove("head")
    assert [entry async for entry in store.list("")] == []


# -- sessions ----------------------------------------------------------------------------------------


async def test_stores_share_a_session_whose_threads_end_with_the_last(
    cassandra: Cassandra, keyspace: str
) -> None:
    def threads() -> list[str]:
        # The one of the driver's sockets is common to all sessions, and stays.
        ours = ("Connection heartbeat", "Task Scheduler")
        return sorted(one.name for one in threading.enumerate() if one.name in ours)

    others = threads()
    one, other = (store_at(cassandra.url(keyspace, f"t{secrets.token_hex(6)}")) for _ in range(2))
    assert one.session is other.session
    await put(one, "o", b"1")
    await put(other, "o", b"2")
    assert threads() == sorted([*others, "Connection heartbeat", "Task Scheduler"])
    await one.close()
    assert await content(other, "o") == b"2"
    await other.close()
    for _ in range(100):
        if threads() == others:
            break
        await asyncio.sleep(0.05)
    assert threads() == others
    assert await content(one, "o") == b"1"  # it opens another
    await one.close()


async def test_a_wrong_password_is_refused(cassandra: Cassandra, keyspace: str) -> None:
    store = store_at(cassandra.url(keyspace, password="s3cret"))
    with pytest.raises(AccessDeniedError, match="refused the user or the password") as refused:
        await store.head("o")
    assert "s3cret" not in f"{refused.value!r} {refused.value}"
    assert refused.value.hides


async def test_a_keyspace_that_is_not_there_is_named(cassandra: Cassandra) -> None:
    store = store_at(cassandra.url("nowhere"))
    with pytest.raises(StoreError, match="nowhere") as missing:
        await store.head("o")
    assert "create the keyspace" in (missing.value.hint or "")


async def test_no_server(cassandra: Cassandra) -> None:
    store = store_at("cassandra://u:s3cret@127.0.0.1:1/k")
    with pytest.raises(StoreError, match="connection refused") as failed:
        await store.head("o")
    assert failed.value.transient
    assert "s3cret" not in f"{failed.value!r} {failed.value}"


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x84\0\0\0\x02\xff\xff\xff\xff"]
)
async def test_a_server_that_answers_nonsense_or_nothing(answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer)
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    store = store_at(f"cassandra://127.0.0.1:{port}/k?connect_timeout=1&timeout=1")
    async with server, asyncio.timeout(15):
        with pytest.raises(StoreError):
            await store.head("o")


# -- the URL -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "shown", "expected"),
    [
        ("cassandra://h/k", "cassandra://h:9042/k", {"hosts": ("h",), "port": 9042, "name": "", "tls": False}),
        (
            "cassandra://u:p%40%2F@a,b:7/k?ttl=60&consistency=quorum&serial_consistency=SERIAL#n.1",
            "cassandra://a,b:7/k#n.1",
            {
                "hosts": ("a", "b"), "username": "u", "password": "p@/", "ttl": 60, "name": "n.1",
                "consistency": "QUORUM", "serial_consistency": "SERIAL",
            },
        ),
        (
            "cassandra://[::1]/k?ca=/a/b.pem&datacenter=dc1&timeout=2.5",
            "cassandra://[::1]:9042/k",
            {
                "tls": True, "authorities": "/a/b.pem", "datacenter": "dc1", "consistency": "LOCAL_QUORUM",
                "serial_consistency": "LOCAL_SERIAL", "settings": {"timeout": 2.5},
            },
        ),
    ],
)  # fmt: skip
def test_a_url_is_taken_apart(url: str, shown: str, expected: dict[str, object]) -> None:
    address = CassandraAddress.parse(url, settings=OBJECT_SETTINGS)
    assert {name: getattr(address, name) for name in expected} == expected
    assert (str(address), repr(address)) == (shown, f"CassandraAddress({shown!r})")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("cassandra://", "no URL of Cassandra"),
        ("cassandra://u:s3cret@/k", "no URL of Cassandra"),
        ("cassandra://u:s3cret/x@h/k", "no URL of Cassandra"),
        ("cassandra://u:s3cret@h:99999/k", "no URL of Cassandra"),
        ("cassandra://u:s3cret@h", "the name of a keyspace"),
        ("cassandra://u:s3cret@h/a/b", "the name of a keyspace"),
        ("cassandra://u:s3cret@h/k;drop", "the name of a keyspace"),
        ("cassandra://u:s3cret@h/k#a b", "the name behind #"),
        ("cassandra://u:s3cret@h/k?password=s3cret", "may set connect_timeout, timeout, ttl"),
        ("cassandra://u:s3cret@h/k?ttl=s3cret", "ttl in the URL is no number"),
        ("cassandra://u:s3cret@h/k?ttl=1e9", "ttl in the URL is no number"),
        ("cassandra://u:s3cret@h/k?ttl=900000000", "ttl in the URL is above"),
        ("cassandra://u:s3cret@h/k?consistency=s3cret", "consistency in the URL is none of"),
        ("cassandra://u:s3cret@h/k?serial_consistency=ONE", "serial_consistency in the URL is none of"),
        ("cassandra://u:s3cret@h/k?tls=s3cret", "tls in the URL is none of"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_being_quoted(url: str, message: str) -> None:
    with pytest.raises(StoreError, match=message) as refused:
        CassandraAddress.parse(url, settings=OBJECT_SETTINGS)
    assert "s3cret" not in f"{refused.value} {refused.value!r} {refused.value.__dict__}"
    assert refused.value.hides


async def test_without_the_package_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real: Callable[..., Any] = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.split(".")[0] == "cassandra":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        with pytest.raises(AccelError, match=r"pip install 'accel-parquet\[cassandra\]'"):
            await store_at(f"cassandra://127.0.0.1:{probe.getsockname()[1]}/k").head("o")


async def test_an_idle_session_is_closed_and_opened_again(cassandra: Cassandra, keyspace: str) -> None:
    address = CassandraAddress.parse(cassandra.url(keyspace), settings=())
    session = CassandraSession(address, connect_timeout=5.0, timeout=5.0, idle_seconds=0.05)
    statement = "SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = ?"
    assert not session.is_open
    for _ in range(2):
        assert await session.run(statement, (keyspace,), path="k") == [(keyspace,)]
        assert session.is_open
        async with asyncio.timeout(30):
            while session.is_open:
                await asyncio.sleep(0.01)
    # Requests that follow each other find it open.
    for _ in range(50):
        assert await session.run(statement, (keyspace,), path="k") == [(keyspace,)]
        assert session.is_open
    await session.close()
    assert not session.is_open
