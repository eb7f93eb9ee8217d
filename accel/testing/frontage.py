"""A lean HTTP/1.1 server before an origin: objects and listings from memory, all else relayed; each answer late and paced.

It stands where `accel.testing.relay` does, injects the same network and keeps the same log, without faults. Store
and client share the cores of one machine: what an answer costs here is what the measured client cannot have.
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

from accel.testing.directory import Directory, is_listing
from accel.testing.origin import Answer, Origin, once, plain_answer
from accel.testing.pace import NOW, lead, piece_size, pieces, until
from accel.testing.relay import Passage
from accel.testing.request_head import Head, parse_head
from accel.testing.shelf import Shelf, ShelfObject, object_path

__all__ = ["Control", "Frontage"]

Control: TypeAlias = "Callable[[str, bytes], Awaitable[bytes]]"
"""Method and body of a request for the control path, to the body of its answer."""

_MOST_HEAD = 64 * 1024
_MOST_BODY = 1 << 30
_MOST_AHEAD = 1 << 20
"""Bytes of further requests that are taken in while one is answered."""
_HIGH_WATER = 512 * 1024


@dataclass(slots=True, eq=False)
class Frontage:
    """What all connections share. Make it on the loop that serves; the first four may be set while it runs.

    `first_byte` and `bandwidth` are as of `Relay`.
    """

    origin: Origin
    shelf: Shelf
    first_byte: float = 0.0
    bandwidth: float | None = None
    control_path: str = ""
    control: Control | None = None
    hosts: frozenset[str] = frozenset()
    """The Host headers under which a path begins with its bucket; what others mean the origin knows."""
    directory: Directory = field(default_factory=Directory)
    passages: list[Passage] = field(default_factory=list)
    connections: set[_Connection] = field(default_factory=set)

    def connect(self) -> asyncio.Protocol:
        """The protocol of a new connection."""
        return _Connection(self)

    def reset(self) -> None:
        """Forget what passed, not what is kept."""
        self.passages = []

    def find(self, path: str | None, target: str) -> ShelfObject | None:
        """What is kept of an object, or of the listing that is asked for."""
        return self.directory.find(target) if path is None else self.shelf.find(path)

    def forget(self, path: str = "") -> None:
        """Something is written there, or may have been, by default anywhere: drop what was kept of it."""
        self.directory.forget()
        self.shelf.forget(path)

    def abort(self) -> None:
        """Drop all connections."""
        for connection in list(self.connections):
            connection.abort()


class _Connection(asyncio.Protocol):
    """One client. Its requests are answered one after the other; what came in early waits."""

    _transport: asyncio.Transport

    def __init__(self, front: Frontage) -> None:
        self._front = front
        self._loop = asyncio.get_running_loop()
        self._lead = lead(self._loop)
        self._unread = bytearray()
        self._head: Head | None = None
        """Of the request whose body is awaited, or which is answered."""
        self._busy = False
        self._passage: Passage | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        # Of an answer from the shelf.
        self._said = b""
        self._body = memoryview(b"")
        self._start: float | None = None
        # While the client does not read as fast as it is sent to.
        self._full = False
        self._room = asyncio.Event()
        self._room.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's is one by what it can, not by inheritance.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_HIGH_WATER)
        self._front.connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._front.connections.discard(self)
        self._busy = True
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
        if self._passage is not None and self._passage.end is None:
            self._passage.end = time.monotonic()
        self._body = memoryview(b"")

    def abort(self) -> None:
        """Drop it now."""
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._unread += data
        if not self._busy:
            self._next()
        elif len(self._unread) > _MOST_AHEAD:
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        self._full = True
        self._room.clear()

    def resume_writing(self) -> None:
        self._full = False
        self._room.set()
        if self._start is not None and self._timer is None:
            self._send()

    # Requests.

    def _next(self) -> None:
        """Take the next request from what has come in, if it is there as a whole."""
        if self._head is None:
            end = self._unread.find(b"\r\n\r\n")
            if end < 0:
                if len(self._unread) > _MOST_HEAD:
                    self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
                return
            try:
                self._head = parse_head(bytes(self._unread[:end]))
            except ValueError:
                return self._refuse(HTTPStatus.BAD_REQUEST)
            del self._unread[: end + 4]
            if self._head.body_size is None:
                return self._refuse(HTTPStatus.LENGTH_REQUIRED)
            if self._head.body_size > _MOST_BODY:
                return self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            if self._head.headers.get("expect", "").lower() == "100-continue":
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        size = self._head.body_size or 0
        if len(self._unread) >= size:
            body = bytes(self._unread[:size])
            del self._unread[:size]
            self._busy = True
            self._answer(self._head, body)

    def _refuse(self, status: HTTPStatus) -> None:
        """Answer what cannot be understood, and close: where the next request begins is not known."""
        self._busy = True
        self._transport.write(
            b"HTTP/1.1 %d %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            % (status, status.phrase.encode())
        )
        self._transport.close()

    def _answer(self, head: Head, body: bytes) -> None:
        front, now = self._front, time.monotonic()
        if front.control is not None and head.target == front.control_path:
            self._task = self._loop.create_task(self._tell(front.control(head.method, body)))
            return
        seen = {name: value for name, value in head.headers.items() if name != "authorization"}
        passage = self._passage = Passage(
            len(front.passages),
            head.method,
            head.target,
            seen.get("range"),
            seen.get("if-match"),
            seen,
            now,
        )
        front.passages.append(passage)
        ours = seen.get("host") in front.hosts
        path = object_path(head.target) if ours else None
        if ours and head.method in ("GET", "HEAD"):
            kept = front.find(path, head.target)
            found = None if kept is None else kept.answer(seen)
            if found is not None:
                passage.status, self._said, self._body = found
                if head.method == "HEAD":
                    self._body = self._body[:0]
                return self._wait(now + front.first_byte)
        self._task = self._loop.create_task(self._relay(head, path, body, passage))

    def _done(self) -> None:
        """The answer was handed over: on to the next request."""
        if self._passage is not None:
            self._passage.end = time.monotonic()
        self._passage = self._task = self._start = None
        last, self._head = self._head is not None and self._head.last, None
        if last:
            return self._transport.close()
        self._busy = False
        if self._unread:
            # By the loop: however many requests there are, none is answered within another.
            self._busy = True
            self._loop.call_soon(self._resume)

    def _resume(self) -> None:
        if not self._transport.is_closing():
            self._busy = False
            self._transport.resume_reading()
            self._next()

    # Answers from the shelf: no task, a timer for each piece.

    def _wait(self, due: float) -> None:
        delay = due - time.monotonic()
        if delay <= NOW:
            self._begin()
        else:
            self._timer = self._loop.call_later(delay - self._lead, self._begin)

    def _begin(self) -> None:
        self._timer = None
        self._start = time.monotonic()
        if self._passage is not None:
            self._passage.first_byte = self._start
        self._transport.write(self._said)
        self._send()

    def _send(self) -> None:
        """Hand over what is due; come back when more is, or when the client has read."""
        self._timer = None
        passage, body, bandwidth, start = self._passage, self._body, self._front.bandwidth, self._start
        if passage is None or start is None:
            return
        most = piece_size(bandwidth)
        while (sent := passage.sent) < len(body):
            if self._full:
                return
            end = min(sent + most, len(body))
            if bandwidth is not None:
                delay = start + end / bandwidth - time.monotonic()
                if delay > NOW:
                    self._timer = self._loop.call_later(delay - self._lead, self._send)
                    return
            # Counted first: the client may have it all before the next line.
            passage.sent = end
            self._transport.write(body[sent:end])
        if passage.end is None:  # Else a write called for the rest at once, which said so.
            self._body = memoryview(b"")
            self._done()

    # Answers of the origin.

    async def _relay(self, head: Head, path: str | None, body: bytes, passage: Passage) -> None:
        try:
            await self._ask_origin(head, path, body, passage)
        except (ClientError, OSError):
            # The origin has gone: there is nobody to tell but the client.
            return self.abort()
        except BaseException:
            self.abort()
            raise
        self._done()

    async def _ask_origin(self, head: Head, path: str | None, body: bytes, passage: Passage) -> None:
        front, reads = self._front, head.method in ("GET", "HEAD")
        written = unquote(head.target.partition("?")[0])
        if not reads:
            front.forget(written)
        writes = front.directory.writes
        answer = await front.origin.ask(head.method, head.target, head.lines, body or None)
        try:
            if not reads:
                # Once more: it may have been read again before it was written.
                front.forget(written)
            elif is_listing(head.target) and head.method == "GET" and answer.status == 200:
                page = b"".join([bytes(chunk) async for chunk in answer.body])
                front.directory.keep(head.target, answer.headers, page, writes=writes)
                answer.body = once(page)
            elif path is not None and answer.status in (200, 206):
                front.shelf.want(path)
            passage.status = answer.status
            await until(passage.begin + front.first_byte)
            passage.first_byte = time.monotonic()
            await self._pass_on(answer, passage, empty=head.method == "HEAD")
        finally:
            answer.close()

    async def _pass_on(self, answer: Answer, passage: Passage, *, empty: bool) -> None:
        chunked = "Content-Length" not in answer.headers and not empty and answer.status not in (204, 304)
        if chunked:
            answer.headers["Transfer-Encoding"] = "chunked"
        lines = [f"HTTP/1.1 {answer.status} {responses.get(answer.status, '')}"]
        lines += [f"{name}: {value}" for name, value in answer.headers.items()]
        start, bandwidth = time.monotonic(), self._front.bandwidth
        self._transport.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
        if empty:
            return
        async for piece in pieces(answer.body, bandwidth):
            if bandwidth is not None:
                await until(start + (passage.sent + len(piece)) / bandwidth)
            await self._room.wait()
            passage.sent += len(piece)
            self._transport.write(b"%x\r\n%b\r\n" % (len(piece), bytes(piece)) if chunked else piece)
        if chunked:
            self._transport.write(b"0\r\n\r\n")

    async def _tell(self, said: Awaitable[bytes]) -> None:
        try:
            answer = plain_answer(200, await said, Content_Type="application/json")
        except ValueError as error:
            answer = plain_answer(400, str(error).encode())
        await self._pass_on(answer, Passage(0, "", "", None, None, {}, time.monotonic()), empty=False)
        self._done()
