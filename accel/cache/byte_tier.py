"""The byte tier of the cache: byte ranges of data pages, by version of their object."""

from __future__ import annotations

import operator
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from cachetools import LRUCache

from accel.ranges import ByteRange, ObjectId
from accel.runtime.forks import lock_over_forks

__all__ = ["ByteTier", "CachedRange"]

# All these numbers are divisors of the limit of the tier.
# A read of up to 1/64 is stored the first time, while its scan has read no more than 1/8.
_SMALL, _SMALL_IN_SCAN = 64, 8
# A larger one is too, while no more than 1/2 of the tier is in use and its scan has read no more than 1/16.
_FILLED, _FILLED_IN_SCAN = 2, 16
# Any other is stored when it is read again before such reads have brought more than 1/2.
_REMEMBERED = 2
# Maximum ranges that are remembered to have been read once.
_MOST_REMEMBERED = 4096
# Estimated bytes of a segment besides its data.
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
    """The segments of one version of an object, in ascending order and without overlaps."""

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
    """The cached parts of a requested range: its beginning, its end, or all of it; `missing` lies between."""

    before: tuple[memoryview, ...]
    missing: ByteRange | None
    after: tuple[memoryview, ...] = ()

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in (*self.before, *self.after))

    def complete(self, fetched: memoryview | None) -> memoryview:
        """Return the whole range, given the bytes that were fetched for `missing`."""
        between = () if fetched is None else (fetched,)
        parts = (*self.before, *between, *self.after)
        return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))


class ByteTier:
    """Segments of objects, bounded in bytes; the least recently used is evicted first. Thread-safe.

    Parameters
    ----------
    limit : int
        Bytes that all segments may take. 0 stores nothing.

    Notes
    -----
    A small read is stored the first time, a large one the second time (see `admit`), so that scans do not
    evict what lookups use.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lock = lock_over_forks()
        self._remembered_bytes = limit // _REMEMBERED
        self.hits = 0
        self.misses = 0
        self.evictions = 0
        self._reset()

    def _reset(self) -> None:
        self._versions: dict[_Key, _Version] = {}
        # By object and start. Its values refer to no other object of the cache, so they are freed with it at
        # once.
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
        """Return for each range of a read whether it is to be stored; the others are remembered to have been
        read once.

        Parameters
        ----------
        token : str
        file : ObjectId
        ranges : sequence of ByteRange
        so_far : int
            Bytes that the scan has read, including this read.
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
        """Return the cached parts of each range, which are then the most recently used."""
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
                    self._recent[key, segment.start]  # now the most recently used
                found.append(cached)
        return found

    def missing(self, token: str, file: ObjectId, wanted: ByteRange) -> ByteRange | None:
        """Return the part of a range that is not cached, without counting a use."""
        with self._lock:
            return _look_up(self._version(token, file), wanted)[0].missing

    def put(self, token: str, file: ObjectId, start: int, data: memoryview) -> None:
        """Store the bytes from `start` on, without a copy; segments of other versions of the object are
        removed."""
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
            # Eviction may have removed the last earlier segment of the version, and with it the version.
            self._versions[key] = version

    def drop(self, token: str, path: str) -> None:
        """Remove all segments of an object."""
        with self._lock:
            self._drop((token, path))

    def clear(self) -> None:
        """Remove all segments."""
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
    """Return the contiguous parts at the beginning of the range, and where they end."""
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
    """Return the contiguous parts at the end of the range, and where they begin."""
    parts: list[memoryview] = []
    at = wanted.end
    for segment in reversed(over):
        if segment.end < at:
            break
        start = max(segment.start, wanted.start)
        parts.insert(0, segment.data[start - segment.start : at - segment.start])
        at = start
    return parts, at
