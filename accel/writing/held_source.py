"""A source that can keep a stretch of the file at hand, for who is to look at it more than once."""

from __future__ import annotations

from collections.abc import Sequence

from accel.writing.source import Source

__all__ = ["HeldSource"]


class HeldSource:
    """Reads from another source, or from what was held of it."""

    def __init__(self, source: Source, *, most_held: int) -> None:
        self._source = source
        self._most_held = most_held
        self._start = 0
        self._data = memoryview(b"")

    @property
    def name(self) -> str:
        return self._source.name

    @property
    def size(self) -> int:
        return self._source.size

    @property
    def window(self) -> int:
        return self._source.window

    def hold(self, start: int, end: int) -> None:
        """Read a stretch once, if it is not too long: reads within it cost nothing until `release`."""
        if 0 < end - start <= self._most_held:
            [self._data] = self._source.read([(start, end)])
            self._start = start

    def release(self) -> None:
        self._data = memoryview(b"")

    def read(self, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        end = self._start + len(self._data)
        if all(self._start <= a and b <= end for a, b in ranges):
            return [self._data[a - self._start : b - self._start] for a, b in ranges]
        return self._source.read(ranges)

    def close(self) -> None:
        self._source.close()
