"""HTTP/1.1 connections to one server: opened, through a proxy if there is one, reused for request after
request, and given up when no bytes come."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import random
import socket
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cachetools import LRUCache

from accel.errors import StoreError
from accel.runtime import io_loop
from accel.runtime.threads import resolve
from accel.store.connection_faults import CLOSED, SLOW, STALLED, connection_fault, tls_context
from accel.store.gate import open_file_limit
from accel.store.http_connection import MOST_HEAD, Connection, Loss, LostError, Reply, Request, new_scratch
from accel.store.http_response import HEAD_END, read_head
from accel.store.request_errors import OUT_OF_FILES

__all__ = [
    "Connections",
    "Origin",
    "Proxy",
    "ProxyRefusedError",
    "Timeouts",
    "UnreachableError",
    "connection_error",
    "connections_to",
]

# A server closes the connections that it drops earlier; a middlebox drops them silently, but only after
# minutes. obstore's client uses the same time.
IDLE_SECONDS = 90.0
# S3 spreads its load by names that are valid for a few seconds; a lookup in 30 seconds still spreads it.
_NAME_SECONDS = 30.0
_MOST_WATCH = 1.0
_MOST_SERVERS = 256
# Idle connections take up to a quarter of the files that the process may have open.
_SHARE_IDLE = 4


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy, reached without TLS."""

    host: str
    port: int
    authorization: str | None = field(default=None, repr=False)
    """The value of the header Proxy-Authorization."""


class Origin(NamedTuple):
    """A server."""

    host: str
    port: int
    tls: bool
    authorities: str | None = ""
    """The file of those that certificates are verified by, "" for those of the system; None: none is."""
    proxy: Proxy | None = None
    """The proxy that it is reached by. With TLS, the proxy connects to it, and knows no more."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Times in seconds."""

    connect: float
    """For a connection to be made, its handshake included."""
    read: float
    """Between two parts of a response."""


class UnreachableError(Exception):
    """No connection could be made, for the error in `failure`; None if that took too long."""

    def __init__(self, message: str, failure: OSError | ValueError | None = None) -> None:
        super().__init__(message)
        self.failure = failure


class ProxyRefusedError(UnreachableError):
    """The proxy does not connect to the server."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the proxy answered with status {status}")
        self.status = status


def connection_error(
    error: LostError | UnreachableError,
    path: str,
    *,
    place: str | None = None,
    server: str | None = None,
    address: str,
) -> StoreError:
    """Return the error to raise if a request got no response.

    Parameters
    ----------
    error : LostError or UnreachableError
    path, place, server, address
        As for `ConnectionFault.error`.
    """
    cause = error.failure if isinstance(error, UnreachableError) else error.__cause__
    if isinstance(error, LostError) and error.loss is Loss.STALLED:
        fault = STALLED
    elif isinstance(cause, OSError):
        fault = connection_fault(cause)
    elif isinstance(error, UnreachableError):
        fault = SLOW
    elif error.loss is Loss.CLOSED:
        fault = CLOSED
    else:
        hint = OUT_OF_FILES if error.loss is Loss.EXHAUSTED else None
        return StoreError(
            error.loss.value, path=path, place=place, hint=hint, transient=error.loss is Loss.EXHAUSTED
        )
    return fault.error(path, place=place, server=server, address=address, cause=cause)


def _answer_to_connect(raw: bytes) -> int:
    """Return the status of a proxy's answer to CONNECT, which a server follows that speaks only once it is
    spoken to."""
    front, _, rest = raw.partition(HEAD_END)
    try:
        status = read_head(front).status
    except ValueError:
        raise LostError(Loss.GARBLED, begun=True) from None
    if rest and 200 <= status < 300:
        raise LostError(Loss.GARBLED, begun=True)
    return status


def connections_to(origin: Origin, timeouts: Timeouts) -> Connections:
    """Return the pool of connections of the running event loop to a server, which all stores there share."""
    servers = shared_by_loop().servers
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
        self.idle: dict[Connection, float] = {}
        self.all_idle = shared_by_loop().idle
        self._most_idle = open_file_limit() // _SHARE_IDLE
        self.busy: set[Connection] = set()
        self.watch: asyncio.TimerHandle | None = None
        self._addresses: list[Any] = []
        self._resolved = float("-inf")
        self.closed = False

    async def ask(self, request: Request, room: int) -> Reply:
        """Send a request over a connection of the pool; see `Connection.ask`.

        An idle connection that ends before the response begins was most likely closed while it was idle. The
        request, which changes nothing, is then sent once more over a new connection.

        Raises
        ------
        LostError
        UnreachableError
        """
        idle_one = self.take()
        if idle_one is not None:
            sent_at = self._loop.time()
            try:
                return await self._ask(idle_one, request, room)
            except LostError as error:
                if error.loss is Loss.STALLED and not error.begun:
                    # A middlebox may have dropped the other idle connections too; each would cost an attempt.
                    self._drop_idle(since=sent_at)
                if self.closed or error.begun or error.loss is not Loss.CLOSED:
                    raise
        return await self._ask(await self.connect(), request, room)

    async def close(self) -> None:
        """End all connections; requests under way fail."""
        self.closed = True
        if self.watch is not None:
            self.watch.cancel()
            self.watch = None
        for connection in (*self.idle, *self.busy):
            connection.abort()

    async def _ask(self, connection: Connection, request: Request, room: int) -> Reply:
        self.busy.add(connection)
        if self.watch is None:
            self.watch = self._loop.call_later(self.interval, self._look)
        try:
            return await connection.ask(request, room)
        finally:
            self.busy.discard(connection)
            if connection.usable:
                self.idle[connection] = self._loop.time()
                self.all_idle[connection] = self
                if len(self.all_idle) > self._most_idle:
                    oldest, pool = next(iter(self.all_idle.items()))
                    pool._forget(oldest)
                    oldest.abort()

    def take(self) -> Connection | None:
        while self.idle:
            connection, since = self.idle.popitem()
            self.all_idle.pop(connection, None)
            if connection.usable and connection.silent and self._loop.time() - since < IDLE_SECONDS:
                return connection
            connection.abort()
        return None

    def _drop_idle(self, *, since: float) -> None:
        """End the connections that have been idle since then or longer."""
        for connection, idle_since in list(self.idle.items()):
            if idle_since > since:
                break
            connection.abort()

    def _forget(self, connection: Connection) -> None:
        self.idle.pop(connection, None)
        self.all_idle.pop(connection, None)

    # Waiting.

    @property
    def interval(self) -> float:
        return min(_MOST_WATCH, self._timeouts.read / 4)

    def _look(self) -> None:
        """End connections without progress or idle for too long, and look again later while there are any."""
        now = self._loop.time()
        for connection in list(self.busy):
            if now - connection.progress >= self._timeouts.read:
                connection.stalled()
        self._drop_idle(since=now - IDLE_SECONDS)
        tracked = self.busy or self.idle
        self.watch = self._loop.call_later(self.interval, self._look) if tracked else None

    # Connecting.

    async def connect(self) -> Connection:
        try:
            async with asyncio.timeout(self._timeouts.connect):
                return await self.reach()
        except TimeoutError:
            raise UnreachableError(SLOW.message) from None
        except (OSError, ValueError) as error:  # an untrusted certificate is an OSError too
            if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
                for idle in list(self.all_idle):
                    idle.abort()
                raise LostError(Loss.EXHAUSTED, begun=False) from None
            raise UnreachableError(type(error).__name__, error) from None

    async def reach(self) -> Connection:
        from aiohappyeyeballs import start_connection

        found = await self._resolve()
        # Connections spread over all addresses of a server; the family that the system prefers comes first.
        shuffled = random.SystemRandom().sample(found, len(found))
        infos = sorted(shuffled, key=lambda info: info[0] != found[0][0])
        tls = self._origin.tls
        reached = await start_connection(infos, happy_eyeballs_delay=0.25, interleave=1, loop=self._loop)
        if tls and self._origin.proxy is not None:
            await self._tunnel(reached, self._origin.proxy)
        try:
            _, protocol = await self._loop.create_connection(
                lambda: Connection(self._scratch, on_lost=self._forget),
                sock=reached,
                ssl=tls_context(self._origin.authorities) if tls else None,
                server_hostname=self._origin.host if tls else None,
            )
        except BaseException:
            # Shut down, not closed: the transport, which may outlive a cancelled handshake, closes it, and
            # could by then close another file with the same number.
            with contextlib.suppress(OSError):
                reached.shutdown(socket.SHUT_RDWR)
            raise
        return protocol

    async def _tunnel(self, reached: socket.socket, proxy: Proxy) -> None:
        """Have the proxy connect to the server.

        Raises
        ------
        OSError, LostError, ProxyRefusedError
        """
        host = f"[{self._origin.host}]" if ":" in self._origin.host else self._origin.host
        server = f"{host}:{self._origin.port}"
        lines = [f"CONNECT {server} HTTP/1.1", f"Host: {server}"]
        if proxy.authorization is not None:
            lines.append(f"Proxy-Authorization: {proxy.authorization}")
        raw = b""
        try:
            await self._loop.sock_sendall(reached, "\r\n".join((*lines, "", "")).encode("ascii"))
            while HEAD_END not in raw:
                came = await self._loop.sock_recv(reached, MOST_HEAD)
                raw += came
                if not came or len(raw) > MOST_HEAD:
                    raise ConnectionResetError(errno.ECONNRESET, "the proxy sent no answer")
            status = _answer_to_connect(raw)
            if not 200 <= status < 300:
                raise ProxyRefusedError(status)
        except BaseException:
            reached.close()
            raise

    async def _resolve(self) -> list[Any]:
        """Return the addresses to connect to, which are looked up again after `_NAME_SECONDS`."""
        if not self._addresses or self._loop.time() - self._resolved >= _NAME_SECONDS:
            server = self._origin.proxy or self._origin
            self._addresses = await resolve(server.host, server.port)
            self._resolved = self._loop.time()
        return self._addresses


class _Shared:
    """State that all pools of one event loop share."""

    def __init__(self) -> None:
        self.servers: LRUCache[tuple[Origin, Timeouts], Connections] = LRUCache(_MOST_SERVERS)
        self.idle: dict[Connection, Connections] = {}
        """All idle connections, the one idle for longest first, as they share the open files of the
        process."""


def shared_by_loop() -> _Shared:
    loop = asyncio.get_running_loop()
    shared = loops.get(loop)
    if shared is None:
        for closed in [other for other in loops if other.is_closed()]:
            del loops[closed]
        shared = loops[loop] = _Shared()
    return shared


loops: dict[asyncio.AbstractEventLoop, _Shared] = {}
