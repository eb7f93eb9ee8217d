"""Bytes that are written later: in memory while they are few, else in a file without a name."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterator, Sequence

from accel.errors import StoreError
from accel.options import MIB
from accel.writing.source import read_file

__all__ = ["Scratch", "ScratchBytes"]

_MEMORY_BYTES = 32 * MIB


class ScratchBytes:
    """Bytes in a `Scratch`, or several of them as one."""

    __slots__ = ("_data", "_handle", "_parts", "_start", "length")

    def __init__(
        self,
        length: int,
        *,
        data: bytes | None = None,
        handle: int = -1,
        start: int = 0,
        parts: Sequence[ScratchBytes] = (),
    ) -> None:
        self.length = length
        self._data = data
        self._handle = handle
        self._start = start
        self._parts = parts

    @classmethod
    def joined(cls, parts: Sequence[ScratchBytes]) -> ScratchBytes:
        """Return the bytes of all parts as one."""
        return cls(sum(part.length for part in parts), parts=parts)

    def pieces(self) -> Iterator[bytes]:
        """Yield the bytes in the pieces in which they were stored."""
        if not self._parts:
            yield self.read()
        for part in self._parts:
            yield from part.pieces()

    def read(self, begin: int = 0, end: int | None = None) -> bytes:
        """Return the bytes of a half-open range, of all by default."""
        if end is None:
            end = self.length
        if self._parts:
            return b"".join(self.pieces())[begin:end]
        if self._data is not None:
            return self._data if (begin, end) == (0, self.length) else self._data[begin:end]
        data = read_file(self._handle, self._start + begin, self._start + end)
        if len(data) != end - begin:
            raise StoreError("a temporary file lost its end")
        return data


class Scratch:
    """Stores bytes, which can be read as long as it exists."""

    def __init__(self, *, memory_bytes: int = _MEMORY_BYTES) -> None:
        self._room = memory_bytes
        self._handle = -1
        self._end = 0

    def store(self, data: bytes) -> ScratchBytes:
        """Store bytes; raise StoreError if the temporary directory is full."""
        if len(data) <= self._room:
            self._room -= len(data)
            return ScratchBytes(len(data), data=data)
        try:
            if self._handle < 0:
                self._handle = _open()
                weakref.finalize(self, os.close, self._handle)
            start, view = self._end, memoryview(data)
            while view:
                written = os.pwrite(self._handle, view, self._end)
                self._end += written
                view = view[written:]
        except OSError as error:
            raise StoreError(
                error.strerror or str(error),
                path=tempfile.gettempdir(),
                hint="TMPDIR names another directory",
            ) from error
        return ScratchBytes(len(data), handle=self._handle, start=start)


def _open() -> int:
    # Without a name, as far as the system can do that, nothing is left of a process that is killed.
    with tempfile.TemporaryFile(prefix="accel-") as file:
        return os.dup(file.fileno())
