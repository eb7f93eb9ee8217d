"""All connections to one server: made, reused for the next request, given up when nothing moves."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import random
import socket
from dataclasses import dataclass
from typing import Any, NamedTuple

from cachetools import LRUCache

from accel.store import io_loop
from accel.store.connection_faults import tls_context
from accel.store.gate import open_file_limit
from accel.store.http_connection import Connection, Loss, LostError, Reply, Request, new_scratch
from accel.store.threads import resolve

__all__ = ["Connections", "Origin", "Timeouts", "UnreachableError", "connections_to"]


# A server that drops idle connections earlier closes them; a middlebox forgets them silently, but after minutes. A new
# connection costs two or three round trips. obstore's client uses the same time.
_IDLE_SECONDS = 90.0
# S3 spreads its load by names that are valid for a few seconds; looking them up so seldom still spreads it.
_NAME_SECONDS = 30.0
_MOST_WATCH = 1.0
_MOST_SERVERS = 256
# Idle connections hold one in so many of the files that the process may have open.
_SHARE_IDLE = 4


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
    """Until a connection is made, its handshake included."""
    read: float
    """Without a byte of an answer."""


class UnreachableError(Exception):
    """No connection could be made."""


def connections_to(origin: Origin, patience: Timeouts) -> Connections:
    """Return the pool of the running event loop for a server. All its stores share it: URLs are signed, not connections."""
    servers = _shared().servers
    pool = servers.get((origin, patience))
    if pool is None:
        pool = servers[origin, patience] = Connections(origin, patience)
        io_loop.at_shutdown(pool.close)
    return pool


class Connections:
    """The connections to one server, used on the event loop that they were made on.

    Parameters
    ----------
    origin : Origin
    patience : Patience
    """

    def __init__(self, origin: Origin, patience: Timeouts) -> None:
        self._origin = origin
        self._patience = patience
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

        An idle connection that ends before the answer begins was most likely closed while it was idle. The request, which
        changes nothing, is then sent once more over a new one.

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
                    # A middlebox may have forgotten the others as well, which would cost a try each.
                    self._drop_idle(since=asked_at)
                if self._closed or error.begun or error.loss is not Loss.CLOSED:
                    raise
        return await self._ask(await self._connect(), request, room)

    async def close(self) -> None:
        """Drop all connections; what is under way fails."""
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
        """Drop those that have been idle since then, or longer."""
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
        return min(_MOST_WATCH, self._patience.read / 4)

    def _look(self) -> None:
        """Drop connections that make no progress or are idle for too long; look again later, while there are any."""
        now = self._loop.time()
        for connection in list(self._busy):
            if now - connection.progress >= self._patience.read:
                connection.stalled()
        self._drop_idle(since=now - _IDLE_SECONDS)
        tracked = self._busy or self._idle
        self._watch = self._loop.call_later(self._interval, self._look) if tracked else None

    # Connecting.

    async def _connect(self) -> Connection:
        try:
            async with asyncio.timeout(self._patience.connect):
                return await self._reach()
        except TimeoutError:
            raise UnreachableError("no connection came about in time") from None
        except (OSError, ValueError) as error:  # a refused certificate is an OSError too
            if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
                for idle in list(self._all_idle):
                    idle.abort()
                raise LostError(Loss.EXHAUSTED, begun=False) from None
            raise UnreachableError(type(error).__name__) from None

    async def _reach(self) -> Connection:
        from aiohappyeyeballs import start_connection

        found = await self._resolve()
        # Requests spread over all addresses of a server; those of the family that the system prefers come first.
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
            # Shut down and not closed: the transport closes it, which may outlive a cancelled handshake and would then
            # take the next file with this number for its own.
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
        """All idle connections, the one idle for longest first: they share the open files of the process."""


def _shared() -> _Shared:
    loop = asyncio.get_running_loop()
    shared = _loops.get(loop)
    if shared is None:
        for known in [known for known in _loops if known.is_closed()]:
            del _loops[known]
        shared = _loops[loop] = _Shared()
    return shared


_loops: dict[asyncio.AbstractEventLoop, _Shared] = {}
