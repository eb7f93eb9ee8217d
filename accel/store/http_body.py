"""Bodies of HTTP/1.1 responses that are put together from whatever parts of them come: in chunks, of a known
length, or up to the end of the connection."""

from __future__ import annotations

import re

__all__ = ["BodyStream"]

_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?")
_MOST_LINE = 4096
"""Bytes of a line between two chunks."""


class BodyStream:
    """The part of a body that is wanted. What comes before it is dropped, what comes after it is not read.

    Parameters
    ----------
    window : range
        The bytes of the body that are wanted.
    length : int or None
        Bytes of the whole body, if they are known.
    chunked : bool
        Whether it is sent in chunks.
    """

    def __init__(self, window: range, *, length: int | None, chunked: bool) -> None:
        self.body = bytearray()
        """What has come of the window."""
        self.reusable = False
        """Whether the whole body has come, and nothing after it."""
        self._skip = window.start
        self._most = len(window)
        self._left = length
        self._chunks = _Chunks() if chunked else None

    @property
    def ends_with_connection(self) -> bool:
        """Whether the end of the connection is the end of the body."""
        return self._left is None and self._chunks is None

    def feed(self, came: bytes) -> bool:
        """Take more bytes of the connection; return whether no more are needed.

        Raises
        ------
        ValueError
            These are no chunks.
        """
        ended = False
        if self._chunks is not None:
            for data in self._chunks.feed(came):
                self._take(data)
            ended, self.reusable = self._chunks.ended, self._chunks.ended and not self._chunks.rest
        elif self._left is None:
            self._take(came)
        else:
            self._take(came[: self._left])
            ended, self.reusable = len(came) >= self._left, len(came) == self._left
            self._left = max(0, self._left - len(came))
        return ended or len(self.body) == self._most

    def _take(self, data: bytes) -> None:
        dropped = min(self._skip, len(data))
        self._skip -= dropped
        self.body += data[dropped : dropped + self._most - len(self.body)]


class _Chunks:
    """The data in a body that is sent in chunks."""

    def __init__(self) -> None:
        self.ended = False
        self.rest = b""
        """After the end, the bytes that follow the body."""
        self._pending = bytearray()
        self._left = 0
        """Bytes of the present chunk that have not come, with the end of its line."""
        self._last = False

    def feed(self, came: bytes) -> list[bytes]:
        """Take more bytes, and return the data in them."""
        self._pending += came
        data: list[bytes] = []
        while not self.ended:
            if self._left:
                whole = self._take_chunk(data)
            else:
                whole = self._take_line()
            if not whole:
                break
        return data

    def _take_line(self) -> bool:
        """Read the line before a chunk, or after the last; return whether it has come."""
        end = self._pending.find(b"\r\n")
        if max(end, len(self._pending) if end < 0 else 0) > _MOST_LINE:
            raise ValueError("a line between chunks is too long")
        if end < 0:
            return False
        line = bytes(self._pending[:end])
        del self._pending[: end + 2]
        if self._last:
            if not line:  # trailers, which come before an empty line, are ignored
                self.ended, self.rest = True, bytes(self._pending)
            return True
        size = _CHUNK_SIZE.fullmatch(line)
        if size is None:
            raise ValueError("this is no size of a chunk")
        length = int(size[1], 16)
        self._last = length == 0
        self._left = length + 2 if length else 0
        return True

    def _take_chunk(self, data: list[bytes]) -> bool:
        """Read what has come of the present chunk; return whether all of it has."""
        came = min(max(self._left - 2, 0), len(self._pending))
        if came:
            data.append(bytes(self._pending[:came]))
        del self._pending[:came]
        self._left -= came
        if self._left > 2 or len(self._pending) < self._left:
            return False
        if self._pending[:2] != b"\r\n":
            raise ValueError("a chunk is longer than it says")
        del self._pending[:2]
        self._left = 0
        return True
