"""A lean HTTP/1.1 proxy: it serves objects and listings from memory, relays the rest, and delays and paces
every response.

It injects the same network as `tests.support.relay` and writes the same log, without faults. Server and
client share the cores of one machine, so the CPU that a response costs here is CPU that the measured client
lacks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import responses
from typing import TypeAlias, cast
from urllib.parse import unquote

from aiohttp import ClientError

from tests.support.object_cache import CachedObject, ListingCache, ObjectCache, is_listing, object_path
from tests.support.relay import Passage
from tests.support.responses import (
    TIMER_RESOLUTION,
    Origin,
    Response,
    piece_size,
    plain_response,
    sleep_until,
    split_body,
    timer_lead,
    whole_body,
)

__all__ = ["CachingProxy", "Control", "RequestHead", "parse_head"]

Control: TypeAlias = "Callable[[str, bytes], Awaitable[bytes]]"
"""Maps the method and body of a request for the control path to the body of its response."""

_MAX_HEAD = 64 * 1024
_MAX_BODY = 1 << 30
_MAX_PIPELINED = 1 << 20
"""Bytes of further requests that are read while one is answered."""
_HIGH_WATER = 512 * 1024


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A request line and its headers."""

    method: str
    target: str
    lines: tuple[tuple[str, str], ...]
    """Names and values as the client sent them."""
    headers: dict[str, str]
    """Values by lower-case name; the last one of a name that occurs twice."""

    @property
    def body_size(self) -> int | None:
        """Bytes of the body that follows; None where the head does not declare them."""
        if "transfer-encoding" in self.headers:
            return None
        return int(self.headers.get("content-length", 0))

    @property
    def closes(self) -> bool:
        """Whether the client wants the connection closed after the answer."""
        return self.headers.get("connection", "").lower() == "close"


def parse_head(raw: bytes) -> RequestHead:
    """Parse the head of an HTTP/1.1 request (RFC 9112), which is everything before the empty line.

    Raises
    ------
    ValueError
        The bytes are no head of an HTTP/1.1 request.
    """
    first, *rest = raw.decode("latin-1").split("\r\n")
    method, target, version = first.split(" ")
    if version != "HTTP/1.1":
        raise ValueError(f"not HTTP/1.1: {version[:20]!r}")
    lines, headers = [], {}
    for line in rest:
        name, colon, value = line.partition(":")
        if not colon or not name or name[-1] in " \t":
            raise ValueError(f"not a header: {line[:80]!r}")
        value = value.strip(" \t")
        lines.append((name, value))
        headers[name.lower()] = value
    size = headers.get("content-length", "0")
    if not (size.isascii() and size.isdigit() and len(size) < 16):
        raise ValueError(f"not a length: {size[:20]!r}")
    return RequestHead(method, target, tuple(lines), headers)


@dataclass(slots=True, eq=False)
class CachingProxy:
    """The state that all connections share. It is made on the loop that serves.

    `first_byte` and `bandwidth` mean what they do for `Relay`, and may be set while it runs.
    """

    origin: Origin
    objects: ObjectCache
    first_byte: float = 0.0
    bandwidth: float | None = None
    control_path: str = ""
    control: Control | None = None
    hosts: frozenset[str] = frozenset()
    """The Host headers for which a path begins with its bucket; the origin interprets all others."""
    listings: ListingCache = field(default_factory=ListingCache)
    passages: list[Passage] = field(default_factory=list)
    connections: set[_Connection] = field(default_factory=set)

    def connect(self) -> asyncio.Protocol:
        """Make the protocol of a new connection."""
        return _Connection(self)

    def reset(self) -> None:
        """Clear the log, and leave the caches as they are."""
        self.passages = []

    def find(self, path: str | None, target: str) -> CachedObject | None:
        """Return the cached object at `path`, or the cached listing that `target` asks for where `path` is
        None."""
        return self.listings.find(target) if path is None else self.objects.find(path)

    def invalidate(self, path: str = "") -> None:
        """Drop what is cached of an object, bucket or prefix that is written, by default everything; and all
        listings."""
        self.listings.clear()
        self.objects.evict(path)

    def abort(self) -> None:
        """Close all connections now."""
        for connection in list(self.connections):
            connection.abort()


class _Connection(asyncio.Protocol):
    """One client. Its requests are answered one after the other; pipelined ones wait."""

    _transport: asyncio.Transport

    def __init__(self, proxy: CachingProxy) -> None:
        self._proxy = proxy
        self._loop = asyncio.get_running_loop()
        self._timer_lead = timer_lead(self._loop)
        self._unread = bytearray()
        self._head: RequestHead | None = None
        """The head of the request whose body is awaited, or which is being answered."""
        self._busy = False
        self._passage: Passage | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        # The response from the cache that is being sent.
        self._response_head = b""
        self._body = memoryview(b"")
        self._start: float | None = None
        # Set and cleared while the client reads more slowly than the proxy sends.
        self._full = False
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport has the methods of one, but not the base class.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_HIGH_WATER)
        self._proxy.connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._proxy.connections.discard(self)
        self._busy = True
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
        if self._passage is not None and self._passage.end is None:
            self._passage.end = time.monotonic()
        self._body = memoryview(b"")

    def abort(self) -> None:
        """Close the connection now."""
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._unread += data
        if not self._busy:
            self._next()
        elif len(self._unread) > _MAX_PIPELINED:
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        self._full = True
        self._writable.clear()

    def resume_writing(self) -> None:
        self._full = False
        self._writable.set()
        if self._start is not None and self._timer is None:
            self._send()

    # Requests.

    def _next(self) -> None:
        """Answer the next request, if it has arrived as a whole."""
        if self._head is None:
            end = self._unread.find(b"\r\n\r\n")
            if end < 0:
                if len(self._unread) > _MAX_HEAD:
                    self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
                return
            try:
                self._head = parse_head(bytes(self._unread[:end]))
            except ValueError:
                return self._refuse(HTTPStatus.BAD_REQUEST)
            del self._unread[: end + 4]
            if self._head.body_size is None:
                return self._refuse(HTTPStatus.LENGTH_REQUIRED)
            if self._head.body_size > _MAX_BODY:
                return self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            if self._head.headers.get("expect", "").lower() == "100-continue":
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        size = self._head.body_size or 0
        if len(self._unread) >= size:
            body = bytes(self._unread[:size])
            del self._unread[:size]
            self._busy = True
            self._respond(self._head, body)

    def _refuse(self, status: HTTPStatus) -> None:
        """Refuse a request that cannot be parsed, and close: where the next one begins is unknown."""
        self._busy = True
        self._transport.write(
            b"HTTP/1.1 %d %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            % (status, status.phrase.encode())
        )
        self._transport.close()

    def _respond(self, head: RequestHead, body: bytes) -> None:
        proxy, now = self._proxy, time.monotonic()
        if proxy.control is not None and head.target == proxy.control_path:
            self._task = self._loop.create_task(self._send_control(proxy.control(head.method, body)))
            return
        seen = {name: value for name, value in head.headers.items() if name != "authorization"}
        passage = self._passage = Passage(
            len(proxy.passages),
            head.method,
            head.target,
            seen.get("range"),
            seen.get("if-match"),
            seen,
            now,
        )
        proxy.passages.append(passage)
        ours = seen.get("host") in proxy.hosts
        path = object_path(head.target) if ours else None
        if ours and head.method in ("GET", "HEAD"):
            cached = proxy.find(path, head.target)
            found = None if cached is None else cached.respond(seen)
            if found is not None:
                passage.status, self._response_head, self._body = found
                if head.method == "HEAD":
                    self._body = self._body[:0]
                return self._wait(now + proxy.first_byte)
        self._task = self._loop.create_task(self._relay(head, path, body, passage))

    def _done(self) -> None:
        """Close the log entry of a response that was sent, and go on to the next request."""
        if self._passage is not None:
            self._passage.end = time.monotonic()
        self._passage = self._task = self._start = None
        closes, self._head = self._head is not None and self._head.closes, None
        if closes:
            return self._transport.close()
        self._busy = False
        if self._unread:
            # Through the loop, so that no request is answered within the call of another.
            self._busy = True
            self._loop.call_soon(self._resume)

    def _resume(self) -> None:
        if not self._transport.is_closing():
            self._busy = False
            self._transport.resume_reading()
            self._next()

    # Responses from the cache: no task, a timer for each piece.

    def _wait(self, due: float) -> None:
        delay = due - time.monotonic()
        if delay <= TIMER_RESOLUTION:
            self._begin()
        else:
            self._timer = self._loop.call_later(delay - self._timer_lead, self._begin)

    def _begin(self) -> None:
        self._timer = None
        self._start = time.monotonic()
        if self._passage is not None:
            self._passage.first_byte = self._start
        self._transport.write(self._response_head)
        self._send()

    def _send(self) -> None:
        """Send the pieces that are due; return when more is due, or when the client has read."""
        self._timer = None
        passage, body, bandwidth, start = self._passage, self._body, self._proxy.bandwidth, self._start
        if passage is None or start is None:
            return
        most = piece_size(bandwidth)
        while (sent := passage.sent) < len(body):
            if self._full:
                return
            end = min(sent + most, len(body))
            if bandwidth is not None:
                delay = start + end / bandwidth - time.monotonic()
                if delay > TIMER_RESOLUTION:
                    self._timer = self._loop.call_later(delay - self._timer_lead, self._send)
                    return
            # Counted first, because the client may have it all before the next line runs.
            passage.sent = end
            self._transport.write(body[sent:end])
        if passage.end is None:  # Otherwise a write called this method again, which sent the rest.
            self._body = memoryview(b"")
            self._done()

    # Responses of the origin.

    async def _relay(self, head: RequestHead, path: str | None, body: bytes, passage: Passage) -> None:
        try:
            await self._respond_from_origin(head, path, body, passage)
        except (ClientError, OSError):
            # The origin closed its connection, so the client is disconnected too.
            return self.abort()
        except BaseException:
            self.abort()
            raise
        self._done()

    async def _respond_from_origin(
        self, head: RequestHead, path: str | None, body: bytes, passage: Passage
    ) -> None:
        proxy, reads = self._proxy, head.method in ("GET", "HEAD")
        written = unquote(head.target.partition("?")[0])
        if not reads:
            proxy.invalidate(written)
        writes = proxy.listings.writes
        response = await proxy.origin.request(head.method, head.target, head.lines, body or None)
        try:
            if not reads:
                # Again, because the object may have been read between the request and the write.
                proxy.invalidate(written)
            elif is_listing(head.target) and head.method == "GET" and response.status == 200:
                page = b"".join([bytes(chunk) async for chunk in response.body])
                proxy.listings.store(head.target, response.headers, page, writes=writes)
                response.body = whole_body(page)
            elif path is not None and response.status in (200, 206):
                proxy.objects.start_read(path)
            passage.status = response.status
            await sleep_until(passage.begin + proxy.first_byte)
            passage.first_byte = time.monotonic()
            await self._pass_on(response, passage, empty=head.method == "HEAD")
        finally:
            response.close()

    async def _pass_on(self, response: Response, passage: Passage, *, empty: bool) -> None:
        chunked = "Content-Length" not in response.headers and not empty and response.status not in (204, 304)
        if chunked:
            response.headers["Transfer-Encoding"] = "chunked"
        lines = [f"HTTP/1.1 {response.status} {responses.get(response.status, '')}"]
        lines += [f"{name}: {value}" for name, value in response.headers.items()]
        start, bandwidth = time.monotonic(), self._proxy.bandwidth
        self._transport.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
        if empty:
            return
        async for piece in split_body(response.body, bandwidth):
            if bandwidth is not None:
                await sleep_until(start + (passage.sent + len(piece)) / bandwidth)
            await self._writable.wait()
            passage.sent += len(piece)
            self._transport.write(b"%x\r\n%b\r\n" % (len(piece), bytes(piece)) if chunked else piece)
        if chunked:
            self._transport.write(b"0\r\n\r\n")

    async def _send_control(self, body: Awaitable[bytes]) -> None:
        try:
            response = plain_response(200, await body, Content_Type="application/json")
        except ValueError as error:
            response = plain_response(400, str(error).encode())
        await self._pass_on(response, Passage(0, "", "", None, None, {}, time.monotonic()), empty=False)
        self._done()
