"""Listings of obstore's that are given up: what is under way ends, and the store lives on."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from accel.errors import StoreError
from accel.options import Options, Transport
from accel.store import obstore_store
from accel.store.obstore_store import ListingChunks, ObstoreStore
from accel.store.s3_store import adapt
from tests.support.object_server import ObjectServer, Reply, s3_at

ONE = b"<Key>d/a</Key><LastModified>2015-10-21T07:28:00.000Z</LastModified><Size>1</Size>"


def answer(inside: bytes) -> Callable[[Reply], None]:
    """The reply is a listing that holds this."""

    def edit(reply: Reply) -> None:
        reply.status, reply.headers = 200, {"Content-Type": "application/xml"}
        reply.body = b"<ListBucketResult>" + inside + b"</ListBucketResult>"

    return edit


def store_at(url: str) -> ObstoreStore:
    return ObstoreStore(s3_at(url))


async def names(store: ObstoreStore) -> list[str]:
    return [entry.path async for page in store.pages("d") for entry in page]


async def test_a_cancelled_listing_ends_its_request_at_once(server: ObjectServer) -> None:
    """Left to the garbage collector, it stayed open; and where an answer had come by then, obstore's pool
    broke."""
    asked, gone = asyncio.Event(), asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        assert await reader.read() == b""
        gone.set()
        writer.close()

    listening = await asyncio.start_server(hang, "127.0.0.1", 0)
    store = store_at(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
    gc.disable()
    try:
        task = asyncio.ensure_future(names(store))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(5.0):
            await gone.wait()
    finally:
        gc.enable()
    listening.close()


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("d/a//b", 'Path "d/a//b" contained empty path segment'),
        (
            "d/./b",
            'Error parsing Path "d/./b": Encountered illegal character sequence "." whilst parsing path segment "."',
        ),
        (
            "d/a\x7fb",
            'Error parsing Path "d/a\x7fb": Encountered illegal character sequence "\x7f" whilst parsing path '
            + 'segment "a\x7fb"',
        ),
    ],
    ids=["an empty segment", "a dot", "a control character"],
)
async def test_a_key_that_obstore_cannot_spell_is_named(server: ObjectServer, key: str, why: str) -> None:
    server.always = answer(b"<Contents>" + ONE.replace(b"d/a", key.encode()) + b"</Contents>")
    with pytest.raises(StoreError) as caught:
        await names(store_at(server.url))
    assert str(caught.value) == (
        f"d: Encountered object with invalid path: {why} "
        "(obstore takes no such key: rename or delete that object, or name the files to read)"
    )


async def test_empty_pages_without_an_end_are_given_up(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(obstore_store, "CHUNK_TIMEOUTS", 2)
    server.always = answer(b"<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>")
    with pytest.raises(StoreError) as caught:
        await names(adapt(s3_at(server.url), Options(read_timeout=0.1, transport=Transport.OBSTORE)))
    assert str(caught.value) == (
        "d: the store listed nothing more in 0.2 seconds "
        "(it is slow, or sends empty pages without an end; `options.read_timeout` allows for more)"
    )
    assert not caught.value.transient
    assert len(server.requests) > 1
    server.always = answer(b"<Contents>" + ONE + b"</Contents>")
    assert await names(store_at(server.url)) == ["d/a"]


class Stream:
    """Of whose futures a test decides."""

    def __init__(self, turn: asyncio.Future[Any]) -> None:
        self.turn = turn

    def __aiter__(self) -> Stream:
        return self

    def __anext__(self) -> asyncio.Future[Any]:
        return self.turn


async def waiting(chunks: ListingChunks) -> asyncio.Task[Any]:
    task = asyncio.ensure_future(chunks.take())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return task


async def test_the_stream_is_let_go_of_before_its_request_is_cancelled() -> None:
    alive: list[bool] = []

    class Turn(asyncio.Future[Any]):
        def cancel(self, msg: Any = None) -> bool:
            alive.append(tracked() is not None)
            return super().cancel(msg)

    stream = Stream(Turn())
    tracked = weakref.ref(stream)
    chunks = ListingChunks(stream, "d", read_timeout=None)
    del stream
    task = await waiting(chunks)
    assert tracked() is not None
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert alive == [False]
    assert await chunks.take() is None


async def test_a_failure_that_nobody_waits_for_any_more_is_not_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    turn: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    task = await waiting(ListingChunks(Stream(turn), "d", read_timeout=None))
    task.cancel()
    turn.set_exception(ValueError("late"))
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0)  # what it calls when it is done holds it
    tracked = weakref.ref(turn)
    del turn, task
    gc.collect()
    assert (tracked(), caplog.records) == (None, [])
