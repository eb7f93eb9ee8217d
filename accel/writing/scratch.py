"""Bytes that are made now and written later: in memory while they are few, else in a nameless file."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterator, Sequence

from accel.errors import StoreError
from accel.options import MIB

__all__ = ["Scratch", "ScratchBytes"]

_MOST_HELD = 32 * MIB


class ScratchBytes:
    """Some bytes, at hand again by `read`."""

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
        """The bytes of all, one after the other."""
        return cls(sum(part.length for part in parts), parts=parts)

    def pieces(self) -> Iterator[bytes]:
        """All of it, as it was kept, piece by piece."""
        if not self._parts:
            yield self.read()
        for part in self._parts:
            yield from part.pieces()

    def read(self, begin: int = 0, end: int | None = None) -> bytes:
        """The bytes of a half-open range."""
        if end is None:
            end = self.length
        if self._parts:
            return b"".join(self.pieces())[begin:end]
        if self._data is not None:
            return self._data if (begin, end) == (0, self.length) else self._data[begin:end]
        start, length = self._start + begin, end - begin
        data = os.pread(self._handle, length, start)
        while len(data) < length:  # Linux returns at most 2 GiB at a time
            more = os.pread(self._handle, length - len(data), start + len(data))
            if not more:
                raise StoreError("a temporary file lost its end")
            data += more
        return data


class Scratch:
    """Keeps bytes. What it kept can be read for as long as it lives itself."""

    def __init__(self, *, most_held: int = _MOST_HELD) -> None:
        self._most_held = most_held
        self._held = 0
        self._handle = -1
        self._end = 0

    def keep(self, data: bytes) -> ScratchBytes:
        """Raises StoreError where the temporary directory is full."""
        if self._held + len(data) <= self._most_held:
            self._held += len(data)
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
    # It never has a name where the system can do that: nothing is left of a process that is killed.
    with tempfile.TemporaryFile(prefix="accel-") as file:
        return os.dup(file.fileno())
