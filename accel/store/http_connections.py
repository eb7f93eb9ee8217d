"""HTTP/1.1 connections to one server: opened, reused for request after request, and given up when no bytes come.

A connection answers one GET after the other. The body of a response is received into the memory in which it stays.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import errno
import random
import select
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, cast

from cachetools import LRUCache

from accel.memory import allocate
from accel.store import io_loop
from accel.store.connection_faults import CLOSED, STALLED, tls_context
from accel.store.gate import open_file_limit
from accel.store.http_response import HEAD_END, ResponseHead, read_head
from accel.store.threads import resolve

__all__ = [
    "Connection",
    "Connections",
    "Loss",
    "LostError",
    "Origin",
    "Reply",
    "Request",
    "Timeouts",
    "UnreachableError",
    "connections_to",
    "new_scratch",
]

_SCRATCH_BYTES = 64 * 1024
_MOST_HEAD = 64 * 1024
# Bytes read of the body of an error response: enough for the error code of S3.
_MOST_REFUSAL = 64 * 1024
# Smaller bodies are put into memory of Python's. Arrow releases the interpreter lock to allocate, and an event loop among
# busy threads then waits for it (1.4 ms of a lookup).
_SMALL = 256 * 1024
# Nearly every head is shorter, and comes whole with the first bytes.
_USUAL_HEAD = 2048
# A server closes the connections that it drops earlier; a middlebox drops them silently, but only after minutes. obstore's
# client uses the same time.
_IDLE_SECONDS = 90.0
# S3 spreads its load by names that are valid for a few seconds; a lookup in 30 seconds still spreads it.
_NAME_SECONDS = 30.0
_MOST_WATCH = 1.0
_MOST_SERVERS = 256
# Idle connections take up to a quarter of the files that the process may have open.
_SHARE_IDLE = 4


class Loss(enum.Enum):
    """Why a request got no response."""

    CLOSED = CLOSED.message
    STALLED = STALLED.message
    GARBLED = "the answer is not HTTP"
    EXHAUSTED = "no connection could be made, as the process has as many files open as it may"


class LostError(Exception):
    """There is no response. `begun` says whether some of it had come; the cause is the error that ended the connection."""

    def __init__(self, loss: Loss, *, begun: bool) -> None:
        super().__init__(loss.value)
        self.loss = loss
        self.begun = begun


@dataclass(frozen=True, slots=True, repr=False)
class Request:
    """A whole request without a body. Its repr hides the text, which may hold a signed URL."""

    text: bytes


@dataclass(frozen=True, slots=True)
class Reply:
    """A response."""

    head: ResponseHead
    body: memoryview
    """All `head.length` bytes, or fewer for the reason in `cut`; none if the body was not wanted."""
    cut: Loss | None = None


def new_scratch() -> memoryview:
    """Return a buffer for the heads of responses, which all connections of one event loop can share."""
    return memoryview(bytearray(_SCRATCH_BYTES))


class Connection(asyncio.BufferedProtocol):
    """One connection, on which one request is under way at a time.

    Parameters
    ----------
    scratch : memoryview
    on_lost : callable
        Called with the connection when it has ended.
    """

    def __init__(self, scratch: memoryview, *, on_lost: Callable[[Connection], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._scratch = scratch
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._unread: Callable[[], object] | None = None
        self._answer: asyncio.Future[Reply] | None = None
        self._room = 0
        self._early = b""
        self._head: ResponseHead | None = None
        self._body = memoryview(b"")
        self._filled = 0
        self.progress = 0.0
        """The loop's time when a request was sent, or when bytes of its response last came."""

    async def ask(self, request: Request, room: int) -> Reply:
        """Send a request and return its response; being cancelled ends the connection.

        Parameters
        ----------
        request : Request
        room : int
            Maximum bytes of the body if the status is 206.

        Raises
        ------
        LostError
            No complete and valid head came.
        """
        if self._transport is None or self._transport.is_closing():
            raise LostError(Loss.CLOSED, begun=False)
        answer: asyncio.Future[Reply] = self._loop.create_future()
        self._answer = answer
        self._room, self._early, self._head = room, b"", None
        self.progress = self._loop.time()
        self._transport.write(request.text)
        try:
            return await answer
        except asyncio.CancelledError:
            self.abort()
            raise
        finally:
            self._answer = None
            self._body = memoryview(b"")

    @property
    def usable(self) -> bool:
        """Whether another request may be sent."""
        return self._answer is None and self._transport is not None and not self._transport.is_closing()

    @property
    def silent(self) -> bool:
        """Whether no bytes have come since the last response. Bytes that the loop has not read yet would be taken for the
        next response."""
        return self._unread is None or not self._unread()

    def stalled(self) -> None:
        """End the connection, as no bytes came for too long."""
        self._lose(Loss.STALLED)
        self.abort()

    def abort(self) -> None:
        """End the connection now."""
        if self._transport is not None:
            self._transport.abort()

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        socket = transport.get_extra_info("socket")
        if socket is not None and hasattr(select, "poll"):
            looking = select.poll()
            looking.register(socket.fileno(), select.POLLIN)
            self._unread = partial(looking.poll, 0)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._scratch if self._head is None else self._body[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._answer is None or self._answer.done():
            return self.abort()  # nothing was requested, or nobody waits any more
        if self._head is None:
            self._begin(nbytes)
        else:
            self._filled += nbytes
        if self._head is None:
            return  # an incomplete head is no progress
        self.progress = self._loop.time()
        if self._filled == len(self._body):
            self._finish(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose(Loss.CLOSED, exc)
        self._on_lost(self)

    def _begin(self, came: int) -> None:
        """Read the first bytes of a response: the head, or more of it, and the first bytes of the body."""
        early = len(self._early)
        raw = self._early + bytes(self._scratch[: min(came, _USUAL_HEAD)])
        end = raw.find(HEAD_END)
        if end < 0 and came > _USUAL_HEAD:
            raw = self._early + bytes(self._scratch[:came])
            end = raw.find(HEAD_END)
        if end < 0:
            self._early = raw
            # A head whose lines end in line feeds alone has ended too: nothing more would come.
            if len(raw) > _MOST_HEAD or b"\n\n" in raw or b"\n\r\n" in raw:
                self._garbled()
            return
        try:
            head = read_head(raw[:end])
        except ValueError:
            return self._garbled()
        most = self._room if head.status == 206 else _MOST_REFUSAL
        self._head, self._filled = head, 0
        if head.length is None or head.length > most:
            # The body is not wanted, or of unknown length: only the head is returned, and the connection is dropped.
            self._finish(None)
            return self.abort()
        self._body = _room_for(head.length)
        first = self._scratch[end + len(HEAD_END) - early : came]
        self._filled = min(len(first), head.length)
        self._body[: self._filled] = first[: self._filled]
        if len(first) > head.length:
            # More came than the head promised, so the beginning of the next response is unknown.
            self._finish(None)
            self.abort()

    def _finish(self, cut: Loss | None) -> None:
        answer, head = self._answer, self._head
        if answer is None or head is None or answer.done():
            return
        self._head = None  # bytes that come now were not requested
        answer.set_result(Reply(head, self._body[: self._filled].toreadonly(), cut))
        if not head.keep_alive and cut is None:
            self.abort()

    def _garbled(self) -> None:
        self._lose(Loss.GARBLED)
        self.abort()

    def _lose(self, loss: Loss, cause: Exception | None = None) -> None:
        answer = self._answer
        if answer is None or answer.done():
            return
        if self._head is not None:
            self._finish(loss)
        else:
            lost = LostError(loss, begun=bool(self._early))
            lost.__cause__ = cause
            answer.set_exception(lost)


def _room_for(length: int) -> memoryview:
    if length <= _SMALL:
        return memoryview(bytearray(length))
    # Arrow reuses memory, where the system would give fresh pages.
    return memoryview(allocate(length)).cast("B")


class Origin(NamedTuple):
    """A server."""

    host: str
    port: int
    tls: bool
    """With the system's certificates."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Times in seconds."""

    connect: float
    """For a connection to be made, its handshake included."""
    read: float
    """Between two parts of a response."""


class UnreachableError(Exception):
    """No connection could be made."""


def connections_to(origin: Origin, timeouts: Timeouts) -> Connections:
    """Return the pool of connections of the running event loop to a server, which all stores there share."""
    servers = _shared().servers
    pool = servers.get((origin, timeouts))
    if pool is None:
        pool = servers[origin, timeouts] = Connections(origin, timeouts)
        io_loop.at_shutdown(pool.close)
    return pool


class Connections:
    """The connections to one server, used on the event loop that they were made on.

    Parameters
    ----------
    origin : Origin
    timeouts : Timeouts
    """

    def __init__(self, origin: Origin, timeouts: Timeouts) -> None:
        self._origin = origin
        self._timeouts = timeouts
        self._loop = asyncio.get_running_loop()
        self._scratch = new_scratch()
        # By the time at which each became idle, ascending; the one used last is used first.
        self._idle: dict[Connection, float] = {}
        self._all_idle = _shared().idle
        self._most_idle = open_file_limit() // _SHARE_IDLE
        self._busy: set[Connection] = set()
        self._watch: asyncio.TimerHandle | None = None
        self._addresses: list[Any] = []
        self._resolved = float("-inf")
        self._closed = False

    async def ask(self, request: Request, room: int) -> Reply:
        """Send a request over a connection of the pool; see `Connection.ask`.

        An idle connection that ends before the response begins was most likely closed while it was idle. The request, which
        changes nothing, is then sent once more over a new connection.

        Raises
        ------
        LostError
        UnreachableError
        """
        idle_one = self._take()
        if idle_one is not None:
            asked_at = self._loop.time()
            try:
                return await self._ask(idle_one, request, room)
            except LostError as error:
                if error.loss is Loss.STALLED and not error.begun:
                    # A middlebox may have dropped the other idle connections too; each would cost an attempt.
                    self._drop_idle(since=asked_at)
                if self._closed or error.begun or error.loss is not Loss.CLOSED:
                    raise
        return await self._ask(await self._connect(), request, room)

    async def close(self) -> None:
        """End all connections; requests under way fail."""
        self._closed = True
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        for connection in (*self._idle, *self._busy):
            connection.abort()

    async def _ask(self, connection: Connection, request: Request, room: int) -> Reply:
        self._busy.add(connection)
        if self._watch is None:
            self._watch = self._loop.call_later(self._interval, self._look)
        try:
            return await connection.ask(request, room)
        finally:
            self._busy.discard(connection)
            if connection.usable:
                self._idle[connection] = self._loop.time()
                self._all_idle[connection] = self
                if len(self._all_idle) > self._most_idle:
                    oldest, pool = next(iter(self._all_idle.items()))
                    pool._forget(oldest)
                    oldest.abort()

    def _take(self) -> Connection | None:
        while self._idle:
            connection, since = self._idle.popitem()
            self._all_idle.pop(connection, None)
            if connection.usable and connection.silent and self._loop.time() - since < _IDLE_SECONDS:
                return connection
            connection.abort()
        return None

    def _drop_idle(self, *, since: float) -> None:
        """End the connections that have been idle since then or longer."""
        for connection, idle_since in list(self._idle.items()):
            if idle_since > since:
                break
            connection.abort()

    def _forget(self, connection: Connection) -> None:
        self._idle.pop(connection, None)
        self._all_idle.pop(connection, None)

    # Waiting.

    @property
    def _interval(self) -> float:
        return min(_MOST_WATCH, self._timeouts.read / 4)

    def _look(self) -> None:
        """End connections without progress or idle for too long, and look again later while there are any."""
        now = self._loop.time()
        for connection in list(self._busy):
            if now - connection.progress >= self._timeouts.read:
                connection.stalled()
        self._drop_idle(since=now - _IDLE_SECONDS)
        tracked = self._busy or self._idle
        self._watch = self._loop.call_later(self._interval, self._look) if tracked else None

    # Connecting.

    async def _connect(self) -> Connection:
        try:
            async with asyncio.timeout(self._timeouts.connect):
                return await self._reach()
        except TimeoutError:
            raise UnreachableError("no connection came about in time") from None
        except (OSError, ValueError) as error:  # an untrusted certificate is an OSError too
            if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
                for idle in list(self._all_idle):
                    idle.abort()
                raise LostError(Loss.EXHAUSTED, begun=False) from None
            raise UnreachableError(type(error).__name__) from None

    async def _reach(self) -> Connection:
        from aiohappyeyeballs import start_connection

        found = await self._resolve()
        # Connections spread over all addresses of a server; the family that the system prefers comes first.
        infos = sorted(random.sample(found, len(found)), key=lambda info: info[0] != found[0][0])
        tls = self._origin.tls
        reached = await start_connection(infos, happy_eyeballs_delay=0.25, interleave=1, loop=self._loop)
        try:
            _, protocol = await self._loop.create_connection(
                lambda: Connection(self._scratch, on_lost=self._forget),
                sock=reached,
                ssl=tls_context() if tls else None,
                server_hostname=self._origin.host if tls else None,
            )
        except BaseException:
            # Shut down, not closed: the transport, which may outlive a cancelled handshake, closes it, and could by then
            # close another file with the same number.
            with contextlib.suppress(OSError):
                reached.shutdown(socket.SHUT_RDWR)
            raise
        return protocol

    async def _resolve(self) -> list[Any]:
        """Return the server's addresses, which are looked up again after `_NAME_SECONDS`."""
        if not self._addresses or self._loop.time() - self._resolved >= _NAME_SECONDS:
            self._addresses = await resolve(self._origin.host, self._origin.port)
            self._resolved = self._loop.time()
        return self._addresses


class _Shared:
    """State that all pools of one event loop share."""

    def __init__(self) -> None:
        self.servers: LRUCache[tuple[Origin, Timeouts], Connections] = LRUCache(_MOST_SERVERS)
        self.idle: dict[Connection, Connections] = {}
        """All idle connections, the one idle for longest first, as they share the open files of the process."""


def _shared() -> _Shared:
    loop = asyncio.get_running_loop()
    shared = _loops.get(loop)
    if shared is None:
        for closed in [other for other in _loops if other.is_closed()]:
            del _loops[closed]
        shared = _loops[loop] = _Shared()
    return shared


_loops: dict[asyncio.AbstractEventLoop, _Shared] = {}
