"""The responses of a proxy: how it gets them from the server behind it, and when their bytes are due."""

from __future__ import annotations

import asyncio
import io
import re
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout, TCPConnector
from multidict import CIMultiDict
from yarl import URL

from accel.ranges import Buffer

__all__ = [
    "TIMER_RESOLUTION",
    "Origin",
    "Response",
    "piece_size",
    "plain_response",
    "sleep_until",
    "split_body",
    "timer_lead",
    "whole_body",
]

TIMER_RESOLUTION = 0.0005
"""Seconds within which a due time counts as reached, because event loops wait in whole milliseconds."""
_MIN_PIECE = 64 * 1024
_UNPACED_PIECE = 1 << 20
# A piece leaves when its last byte is due, so its first byte leaves this much later than over a network.
_PIECE_SECONDS = 0.002

# Headers that belong to one connection, not to the message (RFC 9110, 7.6.1).
_HOP_BY_HOP = frozenset(
    ("connection", "keep-alive", "proxy-authenticate", "te", "trailer", "transfer-encoding", "upgrade")
)


@dataclass(slots=True)
class Response:
    """The response to one request; its body may still be arriving."""

    status: int
    headers: CIMultiDict[str]
    body: AsyncIterator[Buffer]
    source: ClientResponse | None = None

    def close(self) -> None:
        """Release the connection to the origin for reuse if the body was read to its end, else close it."""
        if self.source is not None:
            self.source.close()


class Origin:
    """The client of the server behind the proxy, at `url`; None: there is no server, and every response is a
    404."""

    def __init__(self, url: str | None) -> None:
        self.url = None if url is None else url.rstrip("/")
        self._session: ClientSession | None = None

    async def open(self) -> None:
        """Make the client, on the loop that will use it."""
        self._session = ClientSession(
            connector=TCPConnector(limit=0, keepalive_timeout=60),
            timeout=ClientTimeout(total=None),
            auto_decompress=False,
            read_bufsize=1 << 20,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        )

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def request(
        self, method: str, target: str, headers: Iterable[tuple[str, str]], body: bytes | None = None
    ) -> Response:
        """Request `target`, path and query unchanged; a 502 where the server does not answer."""
        if self._session is None or self.url is None:
            return plain_response(404, b"this proxy has no origin")
        # A client that is configured for a forward proxy sends the whole URL (RFC 9112, 3.2.2).
        url = URL(self.url + re.sub(r"^http://[^/]*", "", target), encoded=True)
        # aiohttp warns about large bodies that are bytes; this one is in memory anyway.
        data = None if body is None else io.BytesIO(body)
        try:
            # The Host header stays as the client signed it: MinIO checks AWS signatures against it.
            response = await self._session.request(
                method, url, headers=_end_to_end(headers), data=data, allow_redirects=False
            )
        except ClientError as error:
            return plain_response(502, f"the origin did not answer: {error}".encode())
        passed = _end_to_end(response.headers.items())
        return Response(response.status, passed, response.content.iter_any(), response)


def _end_to_end(items: Iterable[tuple[str, str]]) -> CIMultiDict[str]:
    headers = CIMultiDict(items)
    for name in _HOP_BY_HOP & {name.lower() for name in headers}:
        del headers[name]
    return headers


async def whole_body(data: Buffer) -> AsyncIterator[Buffer]:
    """Yield a body that is in memory."""
    yield data


def plain_response(status: int, body: bytes, **headers: str) -> Response:
    """Make a response of the proxy's own; header names are given with _ for -."""
    merged = CIMultiDict({name.replace("_", "-"): value for name, value in headers.items()})
    merged["Content-Length"] = str(len(body))
    return Response(status, merged, whole_body(body))


def timer_lead(loop: asyncio.AbstractEventLoop) -> float:
    """Return the seconds to aim early by, so that the mean is right: asyncio rounds waits up, uvloop to the
    nearest."""
    return 0.0 if type(loop).__module__.startswith("uvloop") else TIMER_RESOLUTION


def piece_size(bandwidth: float | None) -> int:
    """Return the bytes to send at once, at `bandwidth` bytes a second (None: no limit)."""
    return _UNPACED_PIECE if bandwidth is None else max(_MIN_PIECE, int(bandwidth * _PIECE_SECONDS))


async def split_body(
    body: AsyncIterator[Buffer], bandwidth: float | None, stop_at: int | None = None
) -> AsyncIterator[memoryview]:
    """Split a body into pieces small enough to pace, with an edge exactly at `stop_at`."""
    done, most = 0, piece_size(bandwidth)
    async for chunk in body:
        view = memoryview(chunk)
        while len(view):
            size = len(view) if bandwidth is None else most
            if stop_at is not None and done < stop_at:
                size = min(size, stop_at - done)
            yield view[:size]
            done += len(view[:size])
            view = view[size:]


async def sleep_until(due: float) -> None:
    """Sleep until `due` of `time.monotonic`, give or take half a millisecond."""
    # uvloop counts from the start of its iteration, so a busy loop wakes early.
    while (delay := due - time.monotonic()) > TIMER_RESOLUTION:
        await asyncio.sleep(delay - timer_lead(asyncio.get_running_loop()))
