"""aiohttp at the seam of accel's own connections: the same requests, over one tuned session for each server.

It exists to be measured beside the other two (`bench.latency.transports`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from unittest import mock

import aiohttp
from yarl import URL

from accel.runtime import io_loop
from accel.store.connection_faults import tls_context
from accel.store.http_connection import Reply, Request
from accel.store.http_connections import Origin, Timeouts, UnreachableError
from accel.store.http_response import ResponseHead

__all__ = ["AiohttpConnections", "aiohttp_instead", "close_connections"]

_BUFFER = 1 << 20


class AiohttpConnections:
    """What `Connections` does, but for its bounds on memory and for what a cut body leaves.

    Parameters
    ----------
    origin : Origin
    timeouts : Timeouts
    """

    def __init__(self, origin: Origin, timeouts: Timeouts) -> None:
        scheme = "https" if origin.tls else "http"
        self._root = f"{scheme}://{origin.host}:{origin.port}"
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0,
                ttl_dns_cache=30,
                ssl=tls_context(origin.authorities) if origin.tls else True,
                keepalive_timeout=90.0,
            ),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=timeouts.connect, sock_read=timeouts.read),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=_BUFFER,
            skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent"),
        )

    async def ask(self, request: Request, room: int) -> Reply:
        """Send a request and return its response; see `Connections.ask`."""
        first, *lines = request.text.decode("ascii").split("\r\n")[:-2]
        method, target, _ = first.split(" ")
        headers = dict(line.split(": ", 1) for line in lines)
        try:
            response = await self._session.request(
                method, URL(self._root + target, encoded=True), headers=headers, allow_redirects=False
            )
        except aiohttp.ClientConnectorError as error:
            raise UnreachableError(type(error).__name__) from None
        body = await response.read()
        told = response.headers
        head = ResponseHead(response.status, told, int(told["Content-Length"]), keep_alive=True)
        return Reply(head, memoryview(body))

    async def close(self) -> None:
        """End all connections."""
        await self._session.close()


_pools: dict[tuple[asyncio.AbstractEventLoop, Origin, Timeouts], AiohttpConnections] = {}


async def close_connections() -> None:
    """End all connections that belong to the running event loop."""
    for key in [key for key in _pools if key[0] is asyncio.get_running_loop()]:
        await _pools.pop(key).close()


@contextlib.contextmanager
def aiohttp_instead() -> Iterator[None]:
    """Have the S3 store read and list over aiohttp meanwhile. Connections are kept from one time to the next."""

    def connections_to(origin: Origin, timeouts: Timeouts) -> AiohttpConnections:
        key = asyncio.get_running_loop(), origin, timeouts
        pool = _pools.get(key)
        if pool is None:
            pool = _pools[key] = AiohttpConnections(origin, timeouts)
            io_loop.at_shutdown(pool.close)
        return pool

    with (
        mock.patch("accel.store.s3_store.connections_to", connections_to),
        mock.patch("accel.store.s3_listing.connections_to", connections_to),
    ):
        yield
