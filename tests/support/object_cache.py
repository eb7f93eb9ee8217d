"""Objects and listings of an origin in memory: each object is read whole once, and then answered from
here."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from email.utils import formatdate
from typing import Final
from urllib.parse import unquote

from aiohttp import ClientError
from cachetools import LRUCache

from tests.support.responses import Origin, Response
from tests.support.s3 import S3Admin

__all__ = ["DEFAULT_CACHE_BYTES", "CachedObject", "ListingCache", "ObjectCache", "is_listing", "object_path"]

DEFAULT_CACHE_BYTES = 2 << 30
"""Bytes of objects that are cached; an object that no longer fits is relayed each time."""
_CONCURRENT_READS = 4
_PER_RESPONSE = frozenset(("content-length", "content-range", "date", "connection"))
"""Headers that each response has anew, in lower case."""
_LISTING_BYTES: Final = 64 << 20
"""Bytes of listings that are cached; the least recently used go first."""
_LISTING = re.compile(r"/[^/?]+/?\?(?:[^#]*&)?list-type=2(?:&[^#]*)?")
# Only the origin can answer these: conditions other than If-Match, the client's own keys, access across
# sites.
_ORIGIN_ONLY = (
    "if-none-match",
    "if-modified-since",
    "if-unmodified-since",
    "if-range",
    "origin",
    "x-amz-server-side-encryption-customer-key",
)
# The request is signed by its headers, or by its query alone.
_OBJECT = re.compile(
    r"(/[^/?]+/[^?]+?)(?:\?(?:x-id=GetObject|X-Amz-Algorithm=[^?]*&X-Amz-Signature=[0-9a-f]+))?"
)
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


def is_listing(target: str) -> bool:
    """Whether a request asks for one page of a bucket's listing (S3's second version)."""
    return _LISTING.fullmatch(target) is not None


def object_path(target: str) -> str | None:
    """Return the decoded path of the object that a plain read names; None for every other request."""
    found = _OBJECT.fullmatch(target)
    return None if found is None else unquote(found[1])


@dataclass(frozen=True, slots=True)
class CachedObject:
    """One object, or one page of a listing: its bytes, and the headers that every response to it has."""

    data: memoryview
    etag: str
    headers: bytes
    """Header lines, each with its line end."""

    def respond(self, headers: Mapping[str, str]) -> tuple[int, bytes, memoryview] | None:
        """Make the status, head and body of the response to a GET with these headers, by lower-case name.

        None where that is not a plain success: the origin answers with errors and 304.
        """
        if headers.get("if-match", self.etag) != self.etag or any(name in headers for name in _ORIGIN_ONLY):
            return None
        size, requested = len(self.data), headers.get("range")
        if requested is None:
            return 200, self._head(b"200 OK", size, b""), self.data
        found = _RANGE.fullmatch(requested)
        if found is None or not (found[1] or found[2]):
            return None
        if found[1]:
            start, end = int(found[1]), min(size, int(found[2]) + 1) if found[2] else size
        else:
            start, end = max(0, size - int(found[2])), size
        if start >= end:
            return None
        where = b"Content-Range: bytes %d-%d/%d\r\n" % (start, end - 1, size)
        return 206, self._head(b"206 Partial Content", end - start, where), self.data[start:end]

    def _head(self, status: bytes, length: int, where: bytes) -> bytes:
        parts = (b"HTTP/1.1 ", status, b"\r\nContent-Length: %d\r\n" % length, where, self.headers, _date())
        return b"".join(parts)


class ObjectCache:
    """Objects by decoded path.

    Parameters
    ----------
    origin : Origin
        Where objects are read, with requests signed by `reader`. A writer that bypasses the proxy calls
        `evict`.
    limit : int
        Bytes of objects that may be cached.
    """

    def __init__(self, origin: Origin, reader: S3Admin, *, limit: int = DEFAULT_CACHE_BYTES) -> None:
        self._origin = origin
        self._reader = reader
        self._limit = limit
        self._bytes = 0
        self._objects: dict[str, CachedObject] = {}
        self._uncacheable: set[str] = set()
        self._reads: dict[str, asyncio.Task[None]] = {}
        self._gate = asyncio.Semaphore(_CONCURRENT_READS)

    def find(self, path: str) -> CachedObject | None:
        """Return the object if it is cached."""
        return self._objects.get(path)

    def start_read(self, path: str) -> asyncio.Task[None] | None:
        """Begin to read an object, unless that was done before; return the read that is under way, if any."""
        if path in self._objects or path in self._uncacheable:
            return None
        task = self._reads.get(path)
        if task is None:
            task = self._reads[path] = asyncio.get_running_loop().create_task(self._read(path))
            task.add_done_callback(
                lambda _: self._reads.pop(path, None) if self._reads.get(path) is task else None
            )
        return task

    async def read(self, paths: Iterable[str]) -> None:
        """Read these objects, as far as they exist and fit."""
        tasks = [task for path in paths if (task := self.start_read(path)) is not None]
        if tasks:
            await asyncio.wait(tasks)

    def evict(self, path: str = "") -> None:
        """Drop an object, or all of a bucket or prefix, and cancel its reads; by default everything."""
        under = path.rstrip("/") + "/"
        for name in [n for n in self._objects if n == path or n.startswith(under)]:
            self._bytes -= len(self._objects.pop(name).data)
        self._uncacheable = {n for n in self._uncacheable if n != path and not n.startswith(under)}
        for name in [n for n in self._reads if n == path or n.startswith(under)]:
            self._reads.pop(name).cancel()

    async def close(self) -> None:
        """Stop reading."""
        tasks = list(self._reads.values())
        self.evict()
        if tasks:
            await asyncio.wait(tasks)

    async def _read(self, path: str) -> None:
        async with self._gate:
            # The origin sends checksums only on request, so an object that has some is never cached.
            target, signed = self._reader.signed_get(path)
            headers = {**signed, "x-amz-checksum-mode": "ENABLED"}
            response = await self._origin.request("GET", target, headers.items())
            try:
                found = await self._read_body(response)
            except ClientError:
                return
            finally:
                response.close()
        if found is None:
            self._uncacheable.add(path)
        else:
            self._objects[path] = found

    async def _read_body(self, response: Response) -> CachedObject | None:
        """Read the object of a response; None where it does not fit or cannot be cached."""
        headers = response.headers
        size, etag = int(headers.get("Content-Length", -1)), headers.get("ETag", "")
        checked = any(name.lower().startswith("x-amz-checksum") for name in headers)
        if response.status != 200 or size < 0 or checked or not etag or self._bytes + size > self._limit:
            return None
        self._bytes += size
        data, done = bytearray(size), 0
        try:
            async for chunk in response.body:
                data[done : done + len(chunk)] = chunk
                done += len(chunk)
        finally:
            if done != size:
                self._bytes -= size
        if done != size:
            return None
        return CachedObject(memoryview(data).toreadonly(), etag, _lasting_headers(headers))


class ListingCache:
    """Pages of listings by the exact request for them, until something is written.

    A page depends on the bucket's content and on nothing else, so a writer that bypasses the proxy calls
    `clear`.
    """

    def __init__(self, *, limit: int = _LISTING_BYTES) -> None:
        self._pages: LRUCache[str, CachedObject] = LRUCache(limit, getsizeof=lambda page: len(page.data))
        self.writes = 0
        """Counts the writes; a page that was requested before the last one is not cached."""

    def find(self, target: str) -> CachedObject | None:
        """Return the page that a request asks for, if it is cached."""
        return self._pages.get(target)

    def store(self, target: str, headers: Mapping[str, str], body: bytes, *, writes: int) -> None:
        """Cache the response to a request that was sent when there had been `writes` writes."""
        if writes == self.writes and len(body) <= self._pages.maxsize:
            self._pages[target] = CachedObject(memoryview(body), "", _lasting_headers(headers))

    def clear(self) -> None:
        """Drop all pages, because something is written."""
        self.writes += 1
        self._pages.clear()


def _lasting_headers(headers: Mapping[str, str]) -> bytes:
    lines = (f"{name}: {value}\r\n" for name, value in headers.items() if name.lower() not in _PER_RESPONSE)
    return "".join(lines).encode("latin-1")


_date_line: tuple[int, bytes] = (0, b"")


def _date() -> bytes:
    """Return the last header line and the end of a head; it is made once a second."""
    global _date_line
    now = int(time.time())
    if _date_line[0] != now:
        _date_line = now, f"Date: {formatdate(now, usegmt=True)}\r\n\r\n".encode()
    return _date_line[1]
