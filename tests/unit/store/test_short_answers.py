"""Servers that send fewer bytes at a time than they are asked for, and say so: the rest is read on, of the
same version."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from accel.errors import ObjectChangedError, StoreError
from accel.metrics import Metrics
from accel.options import Options, Transport
from accel.ranges import ByteRange, Kind, Suffix
from accel.store.client import Client
from accel.store.fetch import Pin, Retry
from accel.store.http_store import HttpStore
from accel.store.s3_store import adapt
from tests.support.object_server import ObjectServer, Reply, s3_at

BODY = bytes(i % 251 for i in range(1000))


def s3(server: ObjectServer) -> Any:
    return adapt(s3_at(server.url), Options())


def by_obstore(server: ObjectServer) -> Any:
    return adapt(s3_at(server.url), Options(transport=Transport.OBSTORE))


def http(server: ObjectServer) -> Any:
    return HttpStore(server.url, storage_options={}, options=Options())


def at_most(size: int) -> Callable[[Reply], None]:
    """Sends the first `size` bytes of each range."""

    def edit(reply: Reply) -> None:
        found = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", reply.headers.get("Content-Range", ""))
        if reply.status == 206 and found is not None:
            end = min(int(found[1]) + size - 1, int(found[2]))
            reply.headers["Content-Range"] = f"bytes {found[1]}-{end}/{found[3]}"
            reply.body = reply.body[:size]

    return edit


class Bench:
    def __init__(self, server: ObjectServer, store: Callable[[ObjectServer], Any]) -> None:
        server.objects = {"/f": BODY, "/b/f": BODY}
        self.server = server
        self.slept: list[float] = []
        self.metrics = Metrics()
        retry = Retry(max_attempts=3, backoff_base=0.5, backoff_max=5.0, sleep=self.sleep)
        self.store = store(server)
        self.client = Client(self.store, root="s3://b", token="t", options=Options(), retry=retry)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    async def fetch(self, want: ByteRange | Suffix, pin: Pin = Pin()) -> tuple[bytes, ByteRange]:  # noqa: B008
        found = await self.client.fetcher.fetch("f", want, pin=pin, kind=Kind.PAGE, metrics=self.metrics)
        return bytes(found.data), found.range


ALL = pytest.mark.parametrize("store", [s3, http, by_obstore], ids=lambda store: store.__name__)


@ALL
@pytest.mark.parametrize(
    ("want", "whole"),
    [(ByteRange(10, 500), ByteRange(10, 500)), (Suffix(300), ByteRange(700, 1000))],
    ids=["a range", "the end"],
)
async def test_the_rest_is_read_on(
    server: ObjectServer, store: Any, want: ByteRange | Suffix, whole: ByteRange
) -> None:
    it = Bench(server, store)
    server.always = at_most(100)
    assert await it.fetch(want) == (BODY[whole.start : whole.end], whole)
    assert (it.slept, it.metrics.retries) == ([], 0)
    parts = [
        f"bytes={start}-{min(whole.end, start + 100 if store is by_obstore else whole.end) - 1}"
        for start in range(whole.start, whole.end, 100)
    ]
    ranges = [request.headers["range"] for request in server.requests]
    if store is by_obstore:  # it drops what came, so each part but the last is requested again
        assert set(parts) <= set(ranges)
    else:
        first = [f"bytes=-{want.length}"] if isinstance(want, Suffix) else parts[:1]
        assert ranges == [*first, *parts[1:]]
    pinned = [request.headers.get("if-match") for request in server.requests]
    assert pinned[-1] == '"v1"'
    assert pinned[0] is None


@ALL
async def test_the_rest_is_of_the_same_version(server: ObjectServer, store: Any) -> None:
    it = Bench(server, store)
    at = 2 if store is by_obstore else 1

    def change(reply: Reply) -> None:
        server.etags = {"/f": '"v2"', "/b/f": '"v2"'}
        reply.status, reply.headers, reply.body = 412, {}, b""

    server.always, server.script = at_most(100), {at: change}
    with pytest.raises(ObjectChangedError):
        await it.fetch(ByteRange(10, 300), Pin(1000, '"v1"'))


@pytest.mark.parametrize("store", [s3, http], ids=lambda store: store.__name__)
async def test_a_few_bytes_at_a_time_are_no_progress(server: ObjectServer, store: Any) -> None:
    it = Bench(server, store)
    server.always = at_most(3)
    with pytest.raises(StoreError, match="the store answered with 3 bytes of 484, 3 times"):
        await it.fetch(ByteRange(10, 500))
    assert len(server.requests) == 3


async def test_large_ranges_are_read_by_parts_of_some_size(server: ObjectServer) -> None:
    it = Bench(server, s3)
    body = bytes(i % 253 for i in range(4 << 20))
    server.objects["/b/f"] = body
    server.always = at_most(64 * 1024)
    assert await it.fetch(ByteRange(0, 4 << 20)) == (body, ByteRange(0, 4 << 20))
    assert (len(server.requests), it.slept) == (64, [])


@pytest.mark.parametrize("store", [s3, http], ids=lambda store: store.__name__)
async def test_what_contradicts_itself_is_refused(server: ObjectServer, store: Any) -> None:
    it = Bench(server, store)
    server.always = lambda reply: reply.headers.update({"Content-Range": "bytes 10-99/1000"})
    with pytest.raises(StoreError):
        await it.fetch(ByteRange(10, 500))
    assert len(server.requests) == 1
