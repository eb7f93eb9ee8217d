"""Stretches of one version of an object that lie apart from each other, in order."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Generic, Protocol, TypeAlias, TypeVar

from accel.planning.file import ObjectId

__all__ = ["Key", "Spans"]

Key: TypeAlias = tuple[str, str]
"""The token of a client, and the path of an object."""


class _Span(Protocol):
    start: int
    end: int


S = TypeVar("S", bound=_Span)


class Spans(Generic[S]):
    """Stretches `start..end` of one version of an object, ascending and apart."""

    __slots__ = ("id", "items", "key", "starts")

    def __init__(self, key: Key, file: ObjectId) -> None:
        self.key = key
        self.id = file
        self.starts: list[int] = []
        self.items: list[S] = []

    def over(self, start: int, end: int) -> list[S]:
        """Those with a byte in `start..end`."""
        first = bisect_right(self.starts, start) - 1
        if first < 0 or self.items[first].end <= start:
            first += 1
        return self.items[first : bisect_left(self.starts, end)]

    def add(self, span: S) -> None:
        """Put one in where there is none."""
        at = bisect_left(self.starts, span.start)
        self.starts.insert(at, span.start)
        self.items.insert(at, span)

    def remove(self, span: S) -> None:
        """Take out one that is there."""
        at = bisect_left(self.starts, span.start)
        del self.starts[at], self.items[at]
