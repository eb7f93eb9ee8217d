"""Objects that were read once, whole, from the origin, and are answered from memory ever after."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from email.utils import formatdate
from urllib.parse import unquote

from aiohttp import ClientError

from accel.testing.origin import Answer, Origin
from accel.testing.s3 import S3Admin

__all__ = ["LIMIT", "OWN", "Shelf", "ShelfObject", "object_path"]

LIMIT = 2 << 30
"""Bytes of objects that a shelf keeps; what does not fit in what is left of it is relayed each time."""
_READS = 4
OWN = frozenset(("content-length", "content-range", "date", "connection"))
"""Headers that are said anew of each answer, in lower case."""
# What only the origin can answer: other conditions than If-Match, keys of the client's, access across sites.
_PARTICULAR = (
    "if-none-match",
    "if-modified-since",
    "if-unmodified-since",
    "if-range",
    "origin",
    "x-amz-server-side-encryption-customer-key",
)
# Signed by its headers, or by its query alone.
_OBJECT = re.compile(
    r"(/[^/?]+/[^?]+?)(?:\?(?:x-id=GetObject|X-Amz-Algorithm=[^?]*&X-Amz-Signature=[0-9a-f]+))?"
)
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


def object_path(target: str) -> str | None:
    """The decoded path of the object that a request names and asks no more of; None where it does not."""
    found = _OBJECT.fullmatch(target)
    return None if found is None else unquote(found[1])


@dataclass(frozen=True, slots=True)
class ShelfObject:
    """One object: its bytes, and what the origin says of it with every answer."""

    data: memoryview
    etag: str
    said: bytes
    """Header lines, each with its end."""

    def answer(self, headers: Mapping[str, str]) -> tuple[int, bytes, memoryview] | None:
        """Status, head and body of the answer to a GET with these headers, by lower-case name.

        None where it is not a plain success: errors and 304 are the origin's to say.
        """
        if headers.get("if-match", self.etag) != self.etag or any(name in headers for name in _PARTICULAR):
            return None
        size, asked = len(self.data), headers.get("range")
        if asked is None:
            return 200, self._head(b"200 OK", size, b""), self.data
        found = _RANGE.fullmatch(asked)
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
        parts = (b"HTTP/1.1 ", status, b"\r\nContent-Length: %d\r\n" % length, where, self.said, _date())
        return b"".join(parts)


class Shelf:
    """What is kept, by decoded path.

    Parameters
    ----------
    origin : Origin
        Where objects are read, signed as `reader`. Who writes there past the proxy says `forget`.
    limit : int
        Bytes of objects kept.
    """

    def __init__(self, origin: Origin, reader: S3Admin, *, limit: int = LIMIT) -> None:
        self._origin = origin
        self._reader = reader
        self._limit = limit
        self._held = 0
        self._kept: dict[str, ShelfObject] = {}
        self._refused: set[str] = set()
        self._reads: dict[str, asyncio.Task[None]] = {}
        self._gate = asyncio.Semaphore(_READS)

    def find(self, path: str) -> ShelfObject | None:
        """The object, where it is kept."""
        return self._kept.get(path)

    def want(self, path: str) -> asyncio.Task[None] | None:
        """Begin to read an object that is there, unless that was done; the read under way, if any."""
        if path in self._kept or path in self._refused:
            return None
        task = self._reads.get(path)
        if task is None:
            task = self._reads[path] = asyncio.get_running_loop().create_task(self._read(path))
            task.add_done_callback(
                lambda _: self._reads.pop(path, None) if self._reads.get(path) is task else None
            )
        return task

    async def read(self, paths: Iterable[str]) -> None:
        """Read these, as far as they are there and fit."""
        tasks = [task for path in paths if (task := self.want(path)) is not None]
        if tasks:
            await asyncio.wait(tasks)

    def forget(self, path: str = "") -> None:
        """Drop an object, or all of a bucket or prefix, and what is being read of it; by default everything."""
        under = path.rstrip("/") + "/"
        for name in [n for n in self._kept if n == path or n.startswith(under)]:
            self._held -= len(self._kept.pop(name).data)
        self._refused = {n for n in self._refused if n != path and not n.startswith(under)}
        for name in [n for n in self._reads if n == path or n.startswith(under)]:
            self._reads.pop(name).cancel()

    async def close(self) -> None:
        """Stop reading."""
        tasks = list(self._reads.values())
        self.forget()
        if tasks:
            await asyncio.wait(tasks)

    async def _read(self, path: str) -> None:
        async with self._gate:
            # Checksums are said only to who asks; an object that has some is the origin's to answer.
            target, signed = self._reader.signed_get(path)
            headers = {**signed, "x-amz-checksum-mode": "ENABLED"}
            answer = await self._origin.ask("GET", target, headers.items())
            try:
                kept = await self._whole(answer)
            except ClientError:
                return
            finally:
                answer.close()
        if kept is None:
            self._refused.add(path)
        else:
            self._kept[path] = kept

    async def _whole(self, answer: Answer) -> ShelfObject | None:
        """The object that is being answered; None where it does not fit, or is not to be kept."""
        headers = answer.headers
        size, etag = int(headers.get("Content-Length", -1)), headers.get("ETag", "")
        checked = any(name.lower().startswith("x-amz-checksum") for name in headers)
        if answer.status != 200 or size < 0 or checked or not etag or self._held + size > self._limit:
            return None
        self._held += size
        data, done = bytearray(size), 0
        try:
            async for chunk in answer.body:
                data[done : done + len(chunk)] = chunk
                done += len(chunk)
        finally:
            if done != size:
                self._held -= size
        said = "".join(f"{name}: {value}\r\n" for name, value in headers.items() if name.lower() not in OWN)
        return (
            ShelfObject(memoryview(data).toreadonly(), etag, said.encode("latin-1")) if done == size else None
        )


_dated: tuple[int, bytes] = (0, b"")


def _date() -> bytes:
    """The last header line and the end of a head; made once a second."""
    global _dated
    now = int(time.time())
    if _dated[0] != now:
        _dated = now, f"Date: {formatdate(now, usegmt=True)}\r\n\r\n".encode()
    return _dated[1]
