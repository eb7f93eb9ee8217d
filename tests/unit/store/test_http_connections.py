"""Connections to one server: kept, given up, and never handed on with something left in them."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import trustme

from accel.store import http_connections
from accel.store.gate import open_file_limit
from accel.store.http_connection import Connection, Loss, LostError, Reply, Request
from accel.store.http_connections import (
    Connections,
    Origin,
    Timeouts,
    UnreachableError,
    connections_to,
)

BODY = bytes(i % 251 for i in range(1000))
PATIENCE = Timeouts(1.0, 0.2)


def origin_of(url: str, host: str = "127.0.0.1") -> Origin:
    return Origin(host, urlsplit(url).port or 0, False)


@pytest.fixture
async def pool(server: Any) -> AsyncIterator[Connections]:
    it = Connections(origin_of(server.url), PATIENCE)
    yield it
    await it.close()


def request(start: int, end: int) -> Request:
    return Request(f"GET /f HTTP/1.1\r\nHost: h\r\nRange: bytes={start}-{end - 1}\r\n\r\n".encode())


async def ask(pool: Connections, start: int = 10, end: int = 20) -> Reply:
    return await pool.ask(request(start, end), end - start)


async def test_answers_come_one_after_the_other_over_one_connection(server: Any, pool: Connections) -> None:
    for start, end in ((0, 1), (10, 20), (0, 1000)):
        reply = await ask(pool, start, end)
        assert (reply.head.status, bytes(reply.body), reply.cut) == (206, BODY[start:end], None)
        assert reply.body.readonly
    assert server.connections == 1


async def test_long_bodies(server: Any, pool: Connections) -> None:
    server.objects["/f"] = data = bytes(i % 253 for i in range(3_000_000))
    assert bytes((await ask(pool, 5, 2_999_999)).body) == data[5:2_999_999]
    assert bytes((await ask(pool, 7, 70_000)).body) == data[7:70_000]
    assert server.connections == 1


async def test_what_was_answered_is_not_held(server: Any, pool: Connections) -> None:
    await ask(pool, 0, 1000)
    (kept,) = pool.idle
    assert len(kept.body) == 0


async def test_patience_begins_with_the_request(server: Any, pool: Connections) -> None:
    """Not with what last passed over a connection that has been idle since."""
    await ask(pool)
    (kept,) = pool.idle
    kept.progress -= 60.0
    server.script[1] = lambda reply: setattr(reply, "delay", 2 * pool.interval)
    assert bytes((await ask(pool)).body) == BODY[10:20]
    assert server.connections == 1


async def test_requests_at_once_have_connections_of_their_own(server: Any, pool: Connections) -> None:
    replies = await asyncio.gather(*(ask(pool, n, n + 5) for n in range(9)))
    assert [bytes(reply.body) for reply in replies] == [BODY[n : n + 5] for n in range(9)]
    assert server.connections == 9
    await asyncio.gather(*(ask(pool, n, n + 5) for n in range(9)))
    assert server.connections == 9


async def test_a_head_that_comes_byte_by_byte() -> None:
    raw = b"HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\nContent-Range: bytes 0-4/9\r\n\r\nabcde"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            await reader.readuntil(b"\r\n\r\n")
            for byte in raw:
                writer.write(bytes((byte,)))
                await asyncio.sleep(0)
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    pool = Connections(Origin("127.0.0.1", listening.sockets[0].getsockname()[1], False), PATIENCE)
    for _ in range(2):
        assert bytes((await ask(pool, 0, 5)).body) == b"abcde"
    await pool.close()
    listening.close()


async def test_who_answers_with_no_head_is_not_asked_again_over_the_same_connection() -> None:
    accepted: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(b"no head\r\n\r\n" if len(accepted) == 1 else b"HTTP/1.1 404 x\r\n\r\n")
        ended.append(writer)
        writer.close()

    ended: list[asyncio.StreamWriter] = []
    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    pool = Connections(Origin("127.0.0.1", listening.sockets[0].getsockname()[1], False), PATIENCE)
    with pytest.raises(LostError) as caught:
        await ask(pool)
    assert caught.value.loss is Loss.GARBLED
    assert (await ask(pool)).head.status == 404
    assert len(accepted) == 2
    await pool.close()
    async with asyncio.timeout(20):
        while len(ended) < 2:
            await asyncio.sleep(0)
    listening.close()


async def test_a_connection_that_was_closed_while_idle_is_replaced(server: Any, pool: Connections) -> None:
    await ask(pool)
    server.script[1] = lambda reply: setattr(reply, "vanish", True)
    assert bytes((await ask(pool)).body) == BODY[10:20]
    assert (server.connections, len(server.requests)) == (2, 3)


async def test_a_new_connection_that_is_closed_is_not(server: Any, pool: Connections) -> None:
    server.always = lambda reply: setattr(reply, "vanish", True)
    with pytest.raises(LostError, match="closed too early") as caught:
        await ask(pool)
    assert (caught.value.loss, caught.value.begun, len(server.requests)) == (Loss.CLOSED, False, 1)


async def test_what_stalls_before_its_head_is_lost(server: Any, pool: Connections) -> None:
    server.script[0] = lambda reply: setattr(reply, "delay", 5.0)
    with pytest.raises(LostError, match="no progress") as caught:
        await ask(pool)
    assert caught.value.loss is Loss.STALLED
    assert len(server.requests) == 1


async def test_a_head_without_an_end_is_no_progress() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 206 X\r\n")
        with suppress(ConnectionError):
            while True:
                writer.write(b"X-More: 1\r\n")
                await writer.drain()
                await asyncio.sleep(0.05)
        writer.close()
        ended.set()

    ended = asyncio.Event()
    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    pool = Connections(Origin("127.0.0.1", listening.sockets[0].getsockname()[1], False), PATIENCE)
    with pytest.raises(LostError, match="no progress"):
        async with asyncio.timeout(3):
            await ask(pool)
    await asyncio.wait_for(ended.wait(), 3)
    await pool.close()
    listening.close()


async def test_what_stalls_in_its_body_is_cut(server: Any, pool: Connections) -> None:
    server.script[0] = lambda reply: setattr(reply, "stall", (4, 5.0))
    reply = await ask(pool)
    assert (bytes(reply.body), reply.cut) == (BODY[10:14], Loss.STALLED)
    assert bytes((await ask(pool)).body) == BODY[10:20]
    assert server.connections == 2


async def test_a_slow_body_that_makes_progress_is_waited_for(server: Any, pool: Connections) -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 206 x\r\nContent-Length: 6\r\n\r\n")
        for _ in range(6):
            await asyncio.sleep(0.1)
            writer.write(b"a")
        writer.close()

    listening = await asyncio.start_server(drip, "127.0.0.1", 0)
    slow = Connections(Origin("127.0.0.1", listening.sockets[0].getsockname()[1], False), PATIENCE)
    reply = await ask(slow, 0, 6)
    assert (bytes(reply.body), reply.cut) == (b"aaaaaa", None)
    await slow.close()
    listening.close()


async def test_a_cut_body(server: Any, pool: Connections) -> None:
    server.script[0] = lambda reply: setattr(reply, "cut", 4)
    reply = await ask(pool)
    assert (bytes(reply.body), reply.cut) == (BODY[10:14], Loss.CLOSED)


def raw(data: bytes) -> Any:
    return lambda reply: setattr(reply, "raw", data)


GARBLED = {
    "garbage": b"garbage\r\n\r\n",
    "interim responses without an end": b"HTTP/1.1 102 x\r\n\r\n" * 17,
    "another protocol": b"HTTP/1.1 101 x\r\n\r\nHTTP/1.1 206 x\r\nContent-Length: 1\r\n\r\na",
    "another encoding": b"HTTP/1.1 206 x\r\nTransfer-Encoding: gzip\r\n\r\na",
    "lines that end bare": b"HTTP/1.1 206 x\nContent-Length: 3\n\nabc",
    "a last line that ends bare": b"HTTP/1.1 206 x\r\nContent-Length: 3\n\r\nabc",
    "bare lines before a body like a head": b"HTTP/1.1 206 x\nContent-Length: 4\n\n\r\n\r\n",
    "a head without end": b"HTTP/1.1 206 x\r\n" + b"X: y\r\n" * 20_000,
}


@pytest.mark.parametrize("data", GARBLED.values(), ids=GARBLED)
async def test_what_is_no_answer(server: Any, pool: Connections, data: bytes) -> None:
    server.script[0] = raw(data)
    with pytest.raises(LostError, match="not HTTP") as caught:
        await ask(pool)
    assert caught.value.loss is Loss.GARBLED


ONCE = {
    "more than was promised": b"HTTP/1.1 206 x\r\nContent-Length: 2\r\n\r\nabcd",
    "more than there is room for": b"HTTP/1.1 206 x\r\nContent-Length: 11\r\n\r\nabcdefghijk",
    "of no told length": b"HTTP/1.1 206 x\r\n\r\nabcd",
    "in chunks": b"HTTP/1.1 206 x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
    "of another version": b"HTTP/1.0 206 x\r\nContent-Length: 2\r\n\r\nab",
    "the last": b"HTTP/1.1 206 x\r\nContent-Length: 2\r\nConnection: close\r\n\r\nab",
    "a long refusal": b"HTTP/1.1 403 x\r\nContent-Length: 70000\r\n\r\n" + b"x" * 70_000,
}


@pytest.mark.parametrize("data", ONCE.values(), ids=ONCE)
async def test_a_connection_of_unknown_state_is_not_used_again(
    server: Any, pool: Connections, data: bytes
) -> None:
    server.script[0] = raw(data)
    reply = await ask(pool)
    assert bytes(reply.body) in (b"", b"ab")
    assert reply.cut is None
    assert bytes((await ask(pool)).body) == BODY[10:20]
    assert server.connections == 2


WITH_INTERIM = (
    b"HTTP/1.1 103 x\r\nLink: x\r\n\r\nHTTP/1.1 100 x\r\n\r\nHTTP/1.1 206 x\r\nContent-Length: 2\r\n\r\nab"
)


async def test_interim_responses_are_passed_by(server: Any, pool: Connections) -> None:
    server.script[0] = raw(WITH_INTERIM)
    reply = await ask(pool)
    assert (reply.head.status, bytes(reply.body), reply.cut) == (206, b"ab", None)


async def test_head_has_no_body(server: Any, pool: Connections) -> None:
    head = Request(b"HEAD /f HTTP/1.1\r\nHost: h\r\n\r\n", bodiless=True)
    for _ in range(2):
        reply = await pool.ask(head, 0)
        assert (reply.head.status, reply.head.length, bytes(reply.body)) == (200, 1000, b"")
    assert server.connections == 1


@pytest.mark.parametrize(
    ("window", "connections"),
    [(range(1000), 1), (range(990, 1000), 1), (range(10), 2), (range(0), 2)],
    ids=str,
)
async def test_a_part_of_a_body_is_read_and_the_rest_of_it_is_left_in_no_connection(
    server: Any, pool: Connections, window: range, connections: int
) -> None:
    text = b"GET /f HTTP/1.1\r\nHost: h\r\n\r\n"
    reply = await pool.ask(Request(text, window=lambda head: window), 0)
    assert (bytes(reply.body), reply.cut) == (BODY[window.start : window.stop], None)
    assert bytes((await ask(pool)).body) == BODY[10:20]
    assert server.connections == connections


UNTIL_CLOSED = b"HTTP/1.1 200 x\r\nConnection: close\r\n\r\nabcdef"
IN_CHUNKS = b"HTTP/1.1 200 x\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nabcdef\r\n"


@pytest.mark.parametrize(
    ("data", "body", "cut"),
    [
        pytest.param(UNTIL_CLOSED, b"bcdef", None, id="up to the end of the connection"),
        pytest.param(IN_CHUNKS + b"0\r\n\r\n", b"bcdef", None, id="in chunks"),
        pytest.param(IN_CHUNKS, b"bcdef", Loss.CLOSED, id="in chunks without a last one"),
        pytest.param(IN_CHUNKS + b"what", b"bcdef", Loss.CLOSED, id="in chunks that break off"),
        pytest.param(IN_CHUNKS + b"what\r\n", b"", Loss.GARBLED, id="in what is no chunks"),
    ],
)
async def test_bodies_without_a_length(
    server: Any, pool: Connections, data: bytes, body: bytes, cut: Loss | None
) -> None:
    server.script[0] = raw(data)
    reply = await pool.ask(Request(b"GET /f HTTP/1.1\r\n\r\n", window=lambda head: range(1, 100)), 0)
    assert (reply.cut, bytes(reply.body)) == (cut, body)
    assert bytes((await ask(pool)).body) == BODY[10:20]
    assert server.connections == 2


async def test_a_body_that_a_reset_ends_is_cut() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(UNTIL_CLOSED)
        await asyncio.sleep(0.1)
        taken = writer.get_extra_info("socket")
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    pool = Connections(Origin("127.0.0.1", listening.sockets[0].getsockname()[1], False), Timeouts(5.0, 5.0))
    reply = await pool.ask(Request(b"GET /f HTTP/1.1\r\n\r\n", window=lambda head: range(100)), 0)
    assert (reply.cut, bytes(reply.body)) == (Loss.CLOSED, b"abcdef")
    await pool.close()
    listening.close()


async def test_what_comes_unasked_ends_a_connection(server: Any, pool: Connections) -> None:
    server.script[0] = lambda reply: (
        reply.headers.update({"Content-Length": "10"})
        or setattr(reply, "body", reply.body + b"HTTP/1.1 206 x\r\nContent-Length: 10\r\n\r\n" + b"x" * 10)
    )
    assert bytes((await ask(pool)).body) == BODY[10:20]
    assert bytes((await ask(pool)).body) == BODY[10:20]
    assert server.connections == 2


@pytest.mark.parametrize("length", [10, 100_000])
async def test_an_answer_too_many_is_not_taken_for_the_next(length: int) -> None:
    """It lies in the socket by the time that the next request could be sent over it."""
    served = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(writer)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                head = b"HTTP/1.1 206 x\r\nContent-Length: %d\r\n\r\n" % length
                writer.write(head + b"a" * length + head + b"b" * length)
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    pool = Connections(Origin("127.0.0.1", listening.sockets[0].getsockname()[1], False), Timeouts(5.0, 5.0))
    for _ in range(5):
        assert bytes((await ask(pool, 0, length)).body) == b"a" * length
    await pool.close()
    await asyncio.gather(*(writer.wait_closed() for writer in served), return_exceptions=True)
    assert len(served) == 5
    listening.close()


async def test_of_connections_that_were_forgotten_one_is_waited_for(server: Any, pool: Connections) -> None:
    """What lies between dropped all that were idle without a word; new ones work."""
    await asyncio.gather(*(ask(pool) for _ in range(4)))
    asked = len(server.requests)
    server.script[asked] = lambda reply: setattr(reply, "delay", 5.0)
    with pytest.raises(LostError) as caught:
        await ask(pool)
    assert (caught.value.loss, caught.value.begun) == (Loss.STALLED, False)
    assert bytes((await ask(pool)).body) == BODY[10:20]
    assert server.connections == 5


async def test_of_connections_one_whose_answer_had_begun_is_lost_alone(
    server: Any, pool: Connections
) -> None:
    await asyncio.gather(*(ask(pool) for _ in range(4)))
    asked = len(server.requests)
    server.script[asked] = lambda reply: setattr(reply, "stall", (4, 5.0))
    assert (await ask(pool)).cut is Loss.STALLED
    await asyncio.gather(*(ask(pool) for _ in range(3)))
    assert server.connections == 4


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EMFILE, "Too many open files"),
        OSError(errno.ENFILE, "Too many open files in system"),
    ],
    ids=["the process", "the system"],
)
async def test_without_files_to_open_idle_connections_are_given_up(
    server: Any, pool: Connections, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    await asyncio.gather(*(ask(pool) for _ in range(3)))
    kept = [pool.take() for _ in range(2)]
    assert None not in kept

    async def fail() -> Any:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(pool, "reach", fail)
        assert bytes((await ask(pool)).body) == BODY[10:20]  # over the third
        with pytest.raises(LostError) as caught:
            await pool.connect()
        assert (caught.value.loss, caught.value.begun) == (Loss.EXHAUSTED, False)
        assert pool.take() is None
    assert bytes((await ask(pool)).body) == BODY[10:20]
    assert server.connections == 4


async def test_few_idle_connections_are_kept_where_few_files_may_be_open(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (12, 64))
    pool = Connections(origin_of(server.url), PATIENCE)
    await asyncio.gather(*(ask(pool) for _ in range(8)))
    assert server.connections == 8
    await asyncio.sleep(0)  # an aborted connection is told of its end
    assert len(pool.idle) == 3
    await asyncio.gather(*(ask(pool) for _ in range(3)))
    assert server.connections == 8
    await pool.close()


async def test_idle_connections_of_all_pools_count_together(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (12, 64))
    pools = [Connections(origin_of(server.url), Timeouts(1.0, 0.2 + n)) for n in range(4)]
    for pool in pools:
        await asyncio.gather(*(ask(pool) for _ in range(2)))
    await asyncio.sleep(0)  # an aborted connection is told of its end
    assert [len(pool.idle) for pool in pools] == [0, 0, 1, 2]
    for pool in pools:
        await pool.close()
    await asyncio.sleep(0)
    assert not pools[0].all_idle


async def test_without_files_to_open_those_of_other_pools_are_given_up(
    server: Any, pool: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Connections(origin_of(server.url), Timeouts(1.0, 0.3))
    await ask(other)

    async def fail() -> Any:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(pool, "reach", fail)
    with pytest.raises(LostError):
        await ask(pool)
    await asyncio.sleep(0)  # an aborted connection is told of its end
    assert not other.idle
    await other.close()


@pytest.mark.parametrize(("soft", "files"), [(1024, 1024), (-1, 1 << 16), (1 << 30, 1 << 16)])
def test_how_many_files_may_be_open(monkeypatch: pytest.MonkeyPatch, soft: int, files: int) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (soft, soft))
    assert open_file_limit() == files


async def test_a_cancelled_request_ends_its_connection(server: Any, pool: Connections) -> None:
    server.script[0] = lambda reply: setattr(reply, "delay", 0.1)
    task = asyncio.ensure_future(ask(pool))
    while not server.requests:
        await asyncio.sleep(0.005)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert bytes((await ask(pool, 30, 40)).body) == BODY[30:40]
    assert server.connections == 2


async def test_idle_connections_are_dropped(
    server: Any, pool: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asyncio.gather(ask(pool), ask(pool))
    monkeypatch.setattr(http_connections, "IDLE_SECONDS", 0.0)
    async with asyncio.timeout(10):  # a loaded machine takes longer than the usual two looks
        while pool.idle or pool.watch is not None:
            await asyncio.sleep(pool.interval)
    monkeypatch.undo()
    await ask(pool)
    assert server.connections == 3


async def test_a_connection_idle_for_too_long_is_not_used(
    server: Any, pool: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ask(pool)
    monkeypatch.setattr(http_connections, "IDLE_SECONDS", 0.0)
    await ask(pool)
    assert server.connections == 2


async def test_closing_ends_those_that_are_idle_and_those_that_are_not(server: Any) -> None:
    pool = Connections(origin_of(server.url), PATIENCE)
    server.script[0] = lambda reply: setattr(reply, "delay", 60.0)
    waiting = asyncio.create_task(ask(pool))
    async with asyncio.timeout(20):
        while not server.requests:
            await asyncio.sleep(0)
    await ask(pool)
    open_ones = [*pool.idle, *pool.busy]
    assert (len(pool.idle), len(pool.busy)) == (1, 1)
    await pool.close()
    assert [connection.usable for connection in open_ones] == [False, False]
    with pytest.raises(LostError) as caught:
        await asyncio.wait_for(waiting, 20)
    assert caught.value.loss is Loss.CLOSED
    assert (len(pool.idle), len(pool.busy), pool.watch) == (0, 0, None)


async def test_closing_has_nothing_sent_again(server: Any) -> None:
    """Over a kept connection, too: it was not idle, and nobody is to be asked any more."""
    pool = Connections(origin_of(server.url), PATIENCE)
    await ask(pool)
    server.always = lambda reply: setattr(reply, "delay", 60.0)
    waiting = asyncio.create_task(ask(pool))
    async with asyncio.timeout(20):
        while len(server.requests) < 2:
            await asyncio.sleep(0)
    await pool.close()
    with pytest.raises(LostError) as caught:
        await asyncio.wait_for(waiting, 20)
    assert caught.value.loss is Loss.CLOSED
    assert (server.connections, len(pool.idle)) == (1, 0)


async def test_nobody_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        pool = Connections(Origin("127.0.0.1", taken.getsockname()[1], False), PATIENCE)
        with pytest.raises(UnreachableError):
            await ask(pool)


async def test_a_handshake_without_an_answer_ends_in_time(server: Any) -> None:
    pool = Connections(origin_of(server.url)._replace(tls=True), Timeouts(0.2, 5.0))
    with pytest.raises(UnreachableError, match="in time"):
        async with asyncio.timeout(3):
            await ask(pool)


@pytest.mark.parametrize("early", [True, False], ids=["before the handshake", "as it ends"])
async def test_a_handshake_that_is_cancelled_leaves_the_next_alone(
    server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, early: bool
) -> None:
    """Its socket's number is not given to another while the event loop still has it for the first."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    served: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.add(asyncio.ensure_future(server.serve(reader, writer)))

    listening = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
    pool = Connections(Origin("localhost", listening.sockets[0].getsockname()[1], True), Timeouts(5.0, 5.0))
    loop, asking = asyncio.get_running_loop(), set[asyncio.Task[Reply]]()
    made, connect = Connection.connection_made, loop.create_connection

    def cancelled() -> None:
        while asking:
            asking.pop().cancel()

    def cancelled_when_made(self: Connection, transport: asyncio.BaseTransport) -> None:
        made(self, transport)
        cancelled()

    def cancelled_when_begun(*given: Any, **more: Any) -> Any:
        loop.call_soon(cancelled)
        return connect(*given, **more)

    if early:
        monkeypatch.setattr(loop, "create_connection", cancelled_when_begun)
    else:
        monkeypatch.setattr(Connection, "connection_made", cancelled_when_made)
    for _ in range(5):
        asking.add(task := asyncio.ensure_future(ask(pool)))
        with pytest.raises(asyncio.CancelledError):
            await task
        assert bytes((await ask(pool)).body) == BODY[10:20]
        await pool.close()
        pool.closed = False
    async with asyncio.timeout(5):
        await asyncio.gather(*served)
    listening.close()


async def test_names_are_looked_up_once_for_many(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    look_up = socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, *more: Any) -> Any:
        asked.append(host)
        return look_up("127.0.0.1", port, *more)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    pool = Connections(origin_of(server.url, "somewhere.example"), PATIENCE)
    await asyncio.gather(*(ask(pool) for _ in range(5)))
    assert asked == ["somewhere.example"]
    await pool.close()


async def test_one_pool_for_a_server() -> None:
    one, other = Origin("a", 1, False), Origin("a", 1, True)
    assert connections_to(one, PATIENCE) is connections_to(Origin("a", 1, False), Timeouts(1.0, 0.2))
    assert connections_to(one, PATIENCE) is not connections_to(other, PATIENCE)
    assert connections_to(one, PATIENCE) is not connections_to(one, Timeouts(1.0, 0.3))


def test_the_pools_of_a_closed_loop_are_forgotten() -> None:
    async def pool() -> Connections:
        return connections_to(Origin("a", 1, False), PATIENCE)

    assert asyncio.run(pool()) is not asyncio.run(pool())
    assert sum(loop.is_closed() for loop in http_connections.loops) <= 1
