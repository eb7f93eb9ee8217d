"""Byte ranges of data that were read before, by version of their object."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import field
from typing import NamedTuple

from accel.planning.file import ObjectId
from accel.ranges import ByteRange
from accel.records import dataclass

__all__ = ["DataCache", "Held"]

# What one read may put into the cache at most is this part of it: what reads more is a scan, not a lookup.
_ADMITTED = 64
# Beside its bytes a segment costs about so much.
_OVERHEAD = 256


@dataclass(slots=True, eq=False)
class _Segment:
    start: int
    end: int
    data: memoryview
    of: _Version

    @property
    def weight(self) -> int:
        return self.end - self.start + _OVERHEAD


@dataclass(slots=True, eq=False)
class _Version:
    """The segments of one version of an object, ascending and apart from each other."""

    key: tuple[str, str]
    id: ObjectId
    starts: list[int] = field(default_factory=list)
    segments: list[_Segment] = field(default_factory=list)

    def over(self, start: int, end: int) -> list[_Segment]:
        """Those with a byte in `start..end`."""
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


class _Order(OrderedDict[_Segment, None]):
    """Segments, the least recently used first, and what they weigh."""

    nbytes = 0

    def add(self, segment: _Segment) -> None:
        self[segment] = None
        self.nbytes += segment.weight

    def discard(self, segment: _Segment) -> bool:
        """Take a segment out, if it is there."""
        if segment not in self:
            return False
        del self[segment]
        self.nbytes -= segment.weight
        return True

    def oldest(self) -> _Segment:
        """Take out the least recently used one."""
        segment, _ = self.popitem(last=False)
        self.nbytes -= segment.weight
        return segment


class Held(NamedTuple):
    """What of a wanted range is held: its beginning, its end, or all of it; `missing` lies between."""

    before: tuple[memoryview, ...]
    missing: ByteRange | None
    after: tuple[memoryview, ...] = ()

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.before) + sum(part.nbytes for part in self.after)

    def complete(self, came: memoryview | None) -> memoryview:
        """The whole wanted range, with what came for `missing`."""
        between = () if came is None else (came,)
        parts = (*self.before, *between, *self.after)
        return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))


class DataCache:
    """Segments of objects, bounded by bytes. For use by several threads.

    Parameters
    ----------
    limit : int
        Bytes that all segments may hold. 0 keeps nothing.

    Notes
    -----
    What is new is the first to go, the least recently used before the others; what was used again is
    protected from it, up to three quarters of the limit. So a scan that reads once displaces what other
    scans have read once, and no more.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lock = threading.Lock()
        self._versions: dict[tuple[str, str], _Version] = {}
        self._new = _Order()
        self._protected = _Order()
        self._most_protected = limit * 3 // 4
        self.hits = 0
        self.misses = 0
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._new) + len(self._protected)

    @property
    def nbytes(self) -> int:
        """What the segments hold."""
        return self._new.nbytes + self._protected.nbytes

    def admits(self, nbytes: int) -> bool:
        """Whether a read of so many bytes may be kept."""
        return 0 < nbytes <= self.limit // _ADMITTED

    def find(self, token: str, file: ObjectId, wanted: ByteRange) -> Held:
        """What is held of a range, which is thereby used."""
        return self.find_all(token, file, (wanted,))[0]

    def find_all(self, token: str, file: ObjectId, wanted: Sequence[ByteRange]) -> list[Held]:
        """What is held of each range, which is thereby used."""
        found: list[Held] = []
        with self._lock:
            version = self._version(token, file)
            for one in wanted:
                held, used = _look(version, one)
                if held.missing is None:
                    self.hits += 1
                else:
                    self.misses += 1
                for segment in used:
                    self._use(segment)
                found.append(held)
        return found

    def missing(self, token: str, file: ObjectId, wanted: ByteRange) -> ByteRange | None:
        """What `find` would have to ask for; nothing is used or counted."""
        with self._lock:
            return _look(self._version(token, file), wanted)[0].missing

    def keep(self, token: str, file: ObjectId, start: int, data: memoryview) -> None:
        """Keep the bytes from `start` on. Those of another version of the object go.

        `data` is kept as it is: whoever gives a part of something larger gives a copy.
        """
        key = (token, file.path)
        with self._lock:
            version = self._versions.get(key)
            if version is None or version.id != file:
                self._drop(key)
                version = self._versions[key] = _Version(key, file)
            end = start + data.nbytes
            for other in version.over(start, end):
                if start <= other.start and other.end <= end:
                    self._forget(other)
                elif end <= other.end and other.start <= start:
                    return
                elif other.start <= start:
                    data, start = memoryview(bytes(data[other.end - start :])), other.end
                else:
                    data, end = memoryview(bytes(data[: other.start - start])), other.start
            segment = _Segment(start, end, data, version)
            if segment.weight > self.limit:
                return
            while self.nbytes + segment.weight > self.limit:
                self._evict()
            # Forgetting its last segment has let go of the version.
            self._versions.setdefault(key, version).add(segment)
            self._new.add(segment)

    def drop(self, token: str, path: str) -> None:
        """Forget all segments of an object."""
        with self._lock:
            self._drop((token, path))

    def clear(self) -> None:
        """Forget all segments."""
        with self._lock:
            self._versions.clear()
            self._new = _Order()
            self._protected = _Order()

    def _version(self, token: str, file: ObjectId) -> _Version | None:
        version = self._versions.get((token, file.path))
        return version if version is not None and version.id == file else None

    def _use(self, segment: _Segment) -> None:
        """It is the most recently used now, and protected; what that leaves no room for is new again."""
        if segment in self._protected:
            self._protected.move_to_end(segment)
        elif segment.weight > self._most_protected:
            self._new.move_to_end(segment)
        else:
            self._new.discard(segment)
            while self._protected.nbytes + segment.weight > self._most_protected:
                self._new.add(self._protected.oldest())
            self._protected.add(segment)

    def _evict(self) -> None:
        segment = (self._new or self._protected).oldest()
        self.evictions += 1
        self._unlink(segment)

    def _forget(self, segment: _Segment) -> None:
        if not self._new.discard(segment):
            self._protected.discard(segment)
        self._unlink(segment)

    def _unlink(self, segment: _Segment) -> None:
        version = segment.of
        version.remove(segment)
        if not version.segments and self._versions.get(version.key) is version:
            del self._versions[version.key]

    def _drop(self, key: tuple[str, str]) -> None:
        version = self._versions.get(key)
        if version is not None:
            for segment in tuple(version.segments):
                self._forget(segment)


def _look(version: _Version | None, wanted: ByteRange) -> tuple[Held, list[_Segment]]:
    if version is None:
        return Held((), wanted), []
    over = version.over(wanted.start, wanted.end)
    if len(over) == 1:
        # As a rule a page that was read before.
        (segment,) = over
        start = segment.start
        if start <= wanted.start and wanted.end <= segment.end:
            return Held((segment.data[wanted.start - start : wanted.end - start],), None), over
    before, low = _leading(over, wanted)
    if low == wanted.end:
        return Held(tuple(before), None), over
    after, high = _trailing(over, wanted)
    return Held(tuple(before), ByteRange(low, high), tuple(after)), over


def _leading(over: list[_Segment], wanted: ByteRange) -> tuple[list[memoryview], int]:
    """The parts that follow each other from the beginning of the range, and where they end."""
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
    """The parts that follow each other up to the end of the range, and where they begin."""
    parts: list[memoryview] = []
    at = wanted.end
    for segment in reversed(over):
        if segment.end < at:
            break
        start = max(segment.start, wanted.start)
        parts.insert(0, segment.data[start - segment.start : at - segment.start])
        at = start
    return parts, at
