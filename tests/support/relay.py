"""A relay before an HTTP origin: it counts, delays, paces and damages what passes."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from aiohttp import ClientError, web
from multidict import CIMultiDict

from accel.ranges import Buffer
from accel.testing import CutBody, ShortBody, Stall, Status, WrongRange
from tests.support.responses import Origin, Response, plain_response, sleep_until, split_body, whole_body

__all__ = ["Etags", "Passage", "Relay", "RelayFault", "RelayScript", "Substitute"]


class Etags(StrEnum):
    """What the relay does to the ETag header of every response."""

    KEEP = "keep"
    WEAK = "weak"
    UNQUOTED = "unquoted"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Substitute:
    """The relay answers a GET or HEAD itself, from these bytes, as a correct server or a careless one."""

    data: bytes
    etag: str | None = None
    honour_if_match: bool = True
    honour_range: bool = True


RelayFault: TypeAlias = "Status | CutBody | Stall | ShortBody | WrongRange | Substitute"


@dataclass(slots=True, eq=False)
class Passage:
    """One request that passed. Times are of `time.monotonic`."""

    number: int
    """Counts all requests since the relay started or was reset, from 0."""
    method: str
    path: str
    """Path and query as they came."""
    range: str | None
    if_match: str | None
    headers: dict[str, str]
    """All headers but the authorization, by lower-case name."""
    begin: float
    first_byte: float | None = None
    end: float | None = None
    status: int | None = None
    sent: int = 0
    """Body bytes of the response."""
    fault: str | None = None


# Faults by position since the script was set (None or the end: no fault), or a function of each request.
RelayScript: TypeAlias = "Sequence[RelayFault | None] | Callable[[Passage], RelayFault | None]"


@dataclass(slots=True)
class Relay:
    """The handler of the proxy; `tests.support.proxy` runs it.

    `first_byte` is in seconds from the request's arrival and includes the origin's own time; `bandwidth` is
    in bytes a second of each response, None for no limit. All may be set while it runs.
    """

    origin: str | None
    first_byte: float = 0.0
    bandwidth: float | None = None
    etags: Etags = Etags.KEEP
    script: RelayScript = ()
    passages: list[Passage] = field(default_factory=list)
    _played: int = 0
    _client: Origin | None = None

    async def open(self) -> None:
        """Make the client of the origin, on the loop that will serve."""
        self._client = Origin(self.origin)
        await self._client.open()

    async def close(self) -> None:
        """Close the connections to the origin."""
        if self._client is not None:
            await self._client.close()

    def reset(self, script: RelayScript = ()) -> None:
        """Forget what passed, and play `script` from its start."""
        self.passages = []
        self.script = script
        self._played = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Relay one request."""
        now = time.monotonic()
        passage = Passage(
            len(self.passages),
            request.method,
            request.raw_path,
            request.headers.get("Range"),
            request.headers.get("If-Match"),
            {
                name.lower(): value
                for name, value in request.headers.items()
                if name.lower() != "authorization"
            },
            now,
        )
        self.passages.append(passage)
        try:
            fault = self._fault(passage)
            passage.fault = None if fault is None else type(fault).__name__
            if isinstance(fault, Status):
                response = _status_response(fault)
            elif isinstance(fault, Substitute):
                response = _substitute_response(request, fault)
            else:
                response = await self._forward(request)
            try:
                return await self._reply(request, response, fault, passage)
            finally:
                response.close()
        finally:
            passage.end = time.monotonic()

    def _fault(self, passage: Passage) -> RelayFault | None:
        script = self.script
        if callable(script):
            return script(passage)
        number, self._played = self._played, self._played + 1
        return script[number] if number < len(script) else None

    async def _forward(self, request: web.Request) -> Response:
        if self._client is None:
            return plain_response(404, b"this relay is not open")
        body = await request.read() if request.body_exists else None
        return await self._client.request(request.method, request.raw_path, request.headers.items(), body)

    async def _reply(
        self, request: web.Request, response: Response, fault: RelayFault | None, passage: Passage
    ) -> web.StreamResponse:
        self._damage_headers(response, fault)
        outgoing = web.StreamResponse(status=response.status, headers=response.headers)
        passage.status = response.status
        if isinstance(fault, Stall) and not fault.after:
            await asyncio.sleep(fault.seconds)
        await sleep_until(passage.begin + self.first_byte)
        passage.first_byte = time.monotonic()
        try:
            await outgoing.prepare(request)
            if request.method != "HEAD":
                await self._send_body(request, outgoing, response.body, fault, passage)
        except (ClientError, ConnectionError):
            # One side has closed its connection, so the other one is closed too.
            _abort(request)
        return outgoing

    def _damage_headers(self, response: Response, fault: RelayFault | None) -> None:
        headers = response.headers
        etag = headers.get("ETag")
        if etag is not None and self.etags is not Etags.KEEP:
            del headers["ETag"]
            if self.etags is not Etags.MISSING:
                headers["ETag"] = f"W/{etag}" if self.etags is Etags.WEAK else etag.strip('"')
        if isinstance(fault, WrongRange) and "Content-Range" in headers:
            headers["Content-Range"] = re.sub(
                r"(\d+)-(\d+)",
                lambda m: f"{int(m[1]) + fault.shift}-{int(m[2]) + fault.shift}",
                headers["Content-Range"],
            )
        if isinstance(fault, ShortBody) and "Content-Length" in headers:
            headers["Content-Length"] = str(max(0, int(headers["Content-Length"]) - fault.missing))

    async def _send_body(
        self,
        request: web.Request,
        outgoing: web.StreamResponse,
        body: AsyncIterator[Buffer],
        fault: RelayFault | None,
        passage: Passage,
    ) -> None:
        stop_at = fault.after if isinstance(fault, CutBody | Stall) else None
        room = int(outgoing.headers["Content-Length"]) if isinstance(fault, ShortBody) else None
        start = time.monotonic()
        async for piece in split_body(body, self.bandwidth, stop_at):
            if stop_at is not None and passage.sent == stop_at:
                if isinstance(fault, CutBody):
                    return _abort(request)
                if isinstance(fault, Stall) and fault.after:
                    await asyncio.sleep(fault.seconds)
            if room is not None:
                piece = piece[: room - passage.sent]
            if self.bandwidth is not None:
                await sleep_until(start + (passage.sent + len(piece)) / self.bandwidth)
            # Counted first, because the client may have it all before this coroutine runs again.
            passage.sent += len(piece)
            await outgoing.write(piece)
        if isinstance(fault, CutBody):
            return _abort(request)
        await outgoing.write_eof()


def _abort(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


def _status_response(fault: Status) -> Response:
    response = plain_response(fault.status, b"")
    if fault.retry_after is not None:
        response.headers["Retry-After"] = f"{fault.retry_after:g}"
    return response


def _substitute_response(request: web.Request, fault: Substitute) -> Response:
    """Make an HTTP server's response to this GET or HEAD over the given bytes (RFC 9110, 13 and 14)."""
    etag, size = fault.etag, len(fault.data)
    if_match = request.headers.get("If-Match")
    if fault.honour_if_match and if_match not in (None, "*", etag):
        return plain_response(412, b"")
    headers = CIMultiDict({"Accept-Ranges": "bytes"})
    if etag is not None:
        headers["ETag"] = etag
    status, start, end = 200, 0, size
    requested = re.fullmatch(r"bytes=(\d*)-(\d*)", request.headers.get("Range", ""))
    if requested and fault.honour_range and (requested[1] or requested[2]):
        status = 206
        if requested[1]:
            start, end = int(requested[1]), min(size, int(requested[2]) + 1 if requested[2] else size)
        else:
            start = max(0, size - int(requested[2]))
        if start >= end:
            return plain_response(416, b"", Content_Range=f"bytes */{size}")
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
    headers["Content-Length"] = str(end - start)
    return Response(status, headers, whole_body(memoryview(fault.data)[start:end]))
