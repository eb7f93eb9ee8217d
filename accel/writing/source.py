"""One version of the file that indexes go into, read by ranges in blocking calls."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from typing import Protocol

from accel.errors import ObjectChangedError, ObjectNotFoundError, ParquetFormatError, StoreError
from accel.metrics import Metrics
from accel.ranges import ByteRange, Kind, ObjectId, ReadKey, Want
from accel.runtime import io_loop
from accel.store.client import Client
from accel.store.location import Location
from accel.store.request_errors import system_error

__all__ = [
    "BufferedSource",
    "LocalSource",
    "RemoteSource",
    "Source",
    "open_local",
    "open_remote",
    "read_file",
]


class Source(Protocol):
    """One version of one file. `read` may be called from any thread but the I/O loop's."""

    @property
    def name(self) -> str:
        """The name in error messages."""
        ...

    @property
    def size(self) -> int: ...

    @property
    def window(self) -> int:
        """Bytes worth reading at once even if few of them are wanted."""
        ...

    def read(self, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        """Return exactly the bytes of each half-open range.

        Raises
        ------
        ObjectChangedError
            The file is no longer the version that was opened.
        """
        ...

    def close(self) -> None: ...


def read_file(handle: int, start: int, end: int) -> bytes:
    """Return the bytes of a half-open range of an open file; fewer if the file ends before."""
    data = os.pread(handle, end - start, start)
    while len(data) < end - start:  # Linux returns at most 2 GiB at a time
        more = os.pread(handle, end - start - len(data), start + len(data))
        if not more:
            break
        data += more
    return data


def _identity(found: os.stat_result) -> tuple[int, int, int, int]:
    """Return the fields by which two versions of a local file differ."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


class LocalSource:
    """An open local file. It stays the same file even if its name is given to another."""

    window = 16 * 1024

    def __init__(self, path: str, handle: int, *, found: os.stat_result) -> None:
        self.path = path
        self.handle = handle
        self.found = found

    @property
    def name(self) -> str:
        return self.path

    @property
    def size(self) -> int:
        return self.found.st_size

    def read(self, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        return [memoryview(self._pread(start, end)) for start, end in ranges]

    def check_unchanged(self) -> None:
        """Raise ObjectChangedError if the file was changed or replaced since it was opened."""
        try:
            now = (_identity(os.stat(self.path)), _identity(os.fstat(self.handle)))
            same = now == (_identity(self.found),) * 2
        except FileNotFoundError:
            same = False
        if not same:
            raise ObjectChangedError(
                "the file was changed meanwhile, and is left as it is", path=self.path, hint="start again"
            )

    def close(self) -> None:
        os.close(self.handle)

    def _pread(self, start: int, end: int) -> bytes:
        try:
            data = read_file(self.handle, start, end)
        except OSError as error:
            raise system_error(error, path=self.path) from error
        if len(data) != end - start:
            raise ObjectChangedError("the file has become shorter", path=self.path)
        return data


class RemoteSource:
    """An object of a store. Every read is pinned to one version."""

    window = 4 * 1024 * 1024

    def __init__(self, client: Client, location: Location, *, pin: ObjectId) -> None:
        self.client = client
        self.location = location
        self.pin = pin
        self.metrics = Metrics()

    @property
    def name(self) -> str:
        return str(self.location)

    @property
    def size(self) -> int:
        return self.pin.size

    def read(self, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        return io_loop.run(self.fetch(ranges)) if ranges else []

    async def fetch(self, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        """Read as `read` does, on the I/O loop."""
        keys = [ReadKey(Kind.CHUNK, ordinal=i) for i in range(len(ranges))]
        wants = [
            Want(key, ByteRange(start, end))
            for key, (start, end) in zip(keys, ranges, strict=True)
            if start < end
        ]
        stash = await self.client.read(self.pin.path, wants, pin=self.pin, metrics=self.metrics)
        return [stash.get(key, memoryview(b"")) for key in keys]

    def close(self) -> None:
        """Do nothing, as nothing is open."""


_ONE_FILE = "`accel.embed_files` takes a directory; of a pattern, each file is given by itself"


def open_local(path: str) -> LocalSource:
    """Open a local file by its real path.

    Raises
    ------
    ObjectNotFoundError
        There is no regular file of that name.
    ParquetFormatError
        The file is empty.
    """
    path = os.path.realpath(path)
    try:
        # O_NONBLOCK: opening a FIFO must not wait for its writer.
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError as error:
        hint = _ONE_FILE if "*" in path else None
        raise ObjectNotFoundError("there is no such file", path=path, hint=hint) from error
    except OSError as error:
        raise system_error(error, path=path) from error
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise ObjectNotFoundError("this is not a regular file", path=path, hint=_ONE_FILE)
        if found.st_size == 0:
            raise ParquetFormatError("the file is empty", path=path)
    except BaseException:
        os.close(handle)
        raise
    return LocalSource(path, handle, found=found)


def open_remote(client: Client, location: Location) -> RemoteSource:
    """Find the version and the size of an object.

    Raises
    ------
    StoreError
        The object cannot be read, or the store gives no etag to pin it by.
    """
    tail = io_loop.run(client.read_tail(location.path, 8, metrics=Metrics()))
    if tail.size is None or tail.etag is None:
        raise StoreError(
            "the store gives no etag, so a copy of this object may mix two versions of it", path=str(location)
        )
    return RemoteSource(client, location, pin=ObjectId(location.path, tail.size, tail.etag))


class BufferedSource:
    """A source with one stretch of it in memory."""

    def __init__(self, source: Source, *, capacity: int) -> None:
        self._source = source
        self._capacity = capacity
        self._start = 0
        self._data = memoryview(b"")
        self.name = source.name
        self.size = source.size
        self.window = source.window

    def fill(self, start: int, end: int) -> None:
        """Read a stretch, unless it exceeds the capacity: reads within it cost nothing until `release`."""
        if 0 < end - start <= self._capacity:
            [self._data] = self._source.read([(start, end)])
            self._start = start

    def release(self) -> None:
        """Free the stretch."""
        self._data = memoryview(b"")

    def read(self, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        """Return exactly the bytes of each half-open range; see `Source.read`."""
        end = self._start + len(self._data)
        if all(self._start <= a and b <= end for a, b in ranges):
            return [self._data[a - self._start : b - self._start] for a, b in ranges]
        return self._source.read(ranges)

    def close(self) -> None:
        """Close the source."""
        self._source.close()
