"""Byte ranges of data that were read before, by version of their object."""

from __future__ import annotations

import operator
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from cachetools import LRUCache

from accel.ranges import ByteRange, ObjectId

__all__ = ["ByteTier", "CachedRange"]

# All numbers here are divisors of the tier's limit.
# A read of up to 1/64 is stored the first time, as long as its scan has read no more than 1/8 so far.
_SMALL, _SMALL_IN_SCAN = 64, 8
# So is a larger one while no more than 1/2 of the tier is in use, and its scan has read no more than 1/16.
_FILLED, _FILLED_IN_SCAN = 2, 16
# Any other is stored when it is read again before other such reads have brought more than 1/2.
_REMEMBERED = 2
# Ranges that are remembered at the most, however short they are.
_MOST_REMEMBERED = 4096
# A segment takes about so many bytes beside its data.
_OVERHEAD = 256

_Key: TypeAlias = tuple[str, str]
"""The token of a client, and the path of an object."""


@dataclass(slots=True, eq=False)
class _Segment:
    start: int
    end: int
    data: memoryview

    @property
    def weight(self) -> int:
        return self.end - self.start + _OVERHEAD


class _Version:
    """The segments of one version of an object, ascending and without overlaps."""

    __slots__ = ("file", "segments", "starts")

    def __init__(self, file: ObjectId) -> None:
        self.file = file
        self.starts: list[int] = []
        self.segments: list[_Segment] = []

    def overlapping(self, start: int, end: int) -> list[_Segment]:
        first = bisect_right(self.starts, start) - 1
        if first < 0 or self.segments[first].end <= start:
            first += 1
        return self.segments[first : bisect_left(self.starts, end)]

    def add(self, segment: _Segment) -> None:
        at = bisect_left(self.starts, segment.start)
        self.starts.insert(at, segment.start)
        self.segments.insert(at, segment)

    def remove(self, segment: _Segment) -> None:
        at = bisect_left(self.starts, segment.start)
        del self.starts[at], self.segments[at]


class CachedRange(NamedTuple):
    """What of a wanted range is cached: its beginning, its end, or all of it; `missing` lies between."""

    before: tuple[memoryview, ...]
    missing: ByteRange | None
    after: tuple[memoryview, ...] = ()

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in (*self.before, *self.after))

    def complete(self, fetched: memoryview | None) -> memoryview:
        """Return the whole wanted range, with what was fetched for `missing`."""
        between = () if fetched is None else (fetched,)
        parts = (*self.before, *between, *self.after)
        return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))


class ByteTier:
    """Segments of objects, bounded in bytes; the least recently used is evicted first. For use by several threads.

    Parameters
    ----------
    limit : int
        Bytes that all segments may hold. 0 stores nothing.

    Notes
    -----
    A small read is stored the first time, a large one the second time, so that scans do not evict what lookups need:
    see `admit`.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lock = threading.Lock()
        self._remembered_bytes = limit // _REMEMBERED
        self.hits = 0
        self.misses = 0
        self.evictions = 0
        self._reset()

    def _reset(self) -> None:
        self._versions: dict[_Key, _Version] = {}
        # By object and start. Nothing in it refers back: dropped with its cache, it is freed at once.
        self._recent: LRUCache[tuple[_Key, int], _Segment] = LRUCache(
            self.limit, getsizeof=operator.attrgetter("weight")
        )
        least = self._remembered_bytes // _MOST_REMEMBERED
        self._read_once: LRUCache[tuple[str, ObjectId, ByteRange], int] = LRUCache(
            self._remembered_bytes, getsizeof=lambda nbytes: max(nbytes, least)
        )

    def __len__(self) -> int:
        return len(self._recent)

    @property
    def nbytes(self) -> int:
        return int(self._recent.currsize)

    def admit(self, token: str, file: ObjectId, ranges: Sequence[ByteRange], *, so_far: int) -> list[bool]:
        """Decide which of the ranges that one read brought are stored; the others are remembered for the next time.

        Parameters
        ----------
        token : str
        file : ObjectId
        ranges : sequence of ByteRange
        so_far : int
            Bytes that the scan has read, this read included.
        """
        total = sum(one.length for one in ranges)
        if so_far <= self.limit // _SMALL_IN_SCAN and total <= self.limit // _SMALL:
            return [True] * len(ranges)
        with self._lock:
            if so_far <= self.limit // _FILLED_IN_SCAN:
                needed = total + _OVERHEAD * len(ranges)
                if self.nbytes + needed <= self.limit // _FILLED:
                    return [True] * len(ranges)
            if total > self._remembered_bytes:
                return [False] * len(ranges)
            return [self._is_read_again((token, file, one)) for one in ranges]

    def _is_read_again(self, key: tuple[str, ObjectId, ByteRange]) -> bool:
        if self._read_once.pop(key, None) is not None:
            return True
        self._read_once[key] = key[2].length
        return False

    def find(self, token: str, file: ObjectId, ranges: Sequence[ByteRange]) -> list[CachedRange]:
        """Return what is cached of each range, which is thereby the most recently used."""
        found: list[CachedRange] = []
        key = (token, file.path)
        with self._lock:
            version = self._version(token, file)
            for wanted in ranges:
                cached, used = _look_up(version, wanted)
                if cached.missing is None:
                    self.hits += 1
                else:
                    self.misses += 1
                for segment in used:
                    self._recent.get((key, segment.start))
                found.append(cached)
        return found

    def missing(self, token: str, file: ObjectId, wanted: ByteRange) -> ByteRange | None:
        """Return what has to be fetched of a range; nothing is counted, or used by that."""
        with self._lock:
            return _look_up(self._version(token, file), wanted)[0].missing

    def put(self, token: str, file: ObjectId, start: int, data: memoryview) -> None:
        """Store the bytes from `start` on, as they are: who has a part of something larger gives a copy.

        Segments of another version of the object are dropped.
        """
        key = (token, file.path)
        with self._lock:
            version = self._versions.get(key)
            if version is None or version.file != file:
                self._drop(key)
                version = _Version(file)
            end = start + data.nbytes
            for other in version.overlapping(start, end):
                if start <= other.start and other.end <= end:
                    self._forget(key, version, other)
                elif end <= other.end and other.start <= start:
                    return
                elif other.start <= start:
                    data, start = memoryview(bytes(data[other.end - start :])), other.end
                else:
                    data, end = memoryview(bytes(data[: other.start - start])), other.start
            segment = _Segment(start, end, data)
            if segment.weight > self.limit:
                return
            while self.nbytes + segment.weight > self.limit:
                (other_key, _), evicted = self._recent.popitem()
                self._unlink(other_key, self._versions[other_key], evicted)
                self.evictions += 1
            self._recent[key, start] = segment
            version.add(segment)
            # Making room may have evicted the last segment that the version had before.
            self._versions[key] = version

    def drop(self, token: str, path: str) -> None:
        """Forget all segments of an object."""
        with self._lock:
            self._drop((token, path))

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._reset()

    def _version(self, token: str, file: ObjectId) -> _Version | None:
        version = self._versions.get((token, file.path))
        return version if version is not None and version.file == file else None

    def _forget(self, key: _Key, version: _Version, segment: _Segment) -> None:
        del self._recent[key, segment.start]
        self._unlink(key, version, segment)

    def _unlink(self, key: _Key, version: _Version, segment: _Segment) -> None:
        version.remove(segment)
        if not version.segments:
            self._versions.pop(key, None)

    def _drop(self, key: _Key) -> None:
        version = self._versions.get(key)
        if version is not None:
            for segment in tuple(version.segments):
                self._forget(key, version, segment)


def _look_up(version: _Version | None, wanted: ByteRange) -> tuple[CachedRange, list[_Segment]]:
    if version is None:
        return CachedRange((), wanted), []
    over = version.overlapping(wanted.start, wanted.end)
    before, low = _leading(over, wanted)
    if low == wanted.end:
        return CachedRange(tuple(before), None), over
    after, high = _trailing(over, wanted)
    return CachedRange(tuple(before), ByteRange(low, high), tuple(after)), over


def _leading(over: list[_Segment], wanted: ByteRange) -> tuple[list[memoryview], int]:
    """Return the parts that follow each other from the beginning of the range, and where they end."""
    parts: list[memoryview] = []
    at = wanted.start
    for segment in over:
        if segment.start > at:
            break
        end = min(segment.end, wanted.end)
        parts.append(segment.data[at - segment.start : end - segment.start])
        at = end
    return parts, at


def _trailing(over: list[_Segment], wanted: ByteRange) -> tuple[list[memoryview], int]:
    """Return the parts that follow each other up to the end of the range, and where they begin."""
    parts: list[memoryview] = []
    at = wanted.end
    for segment in reversed(over):
        if segment.end < at:
            break
        start = max(segment.start, wanted.start)
        parts.insert(0, segment.data[start - segment.start : at - segment.start])
        at = start
    return parts, at
