"""Byte ranges of data that were read before, by version of their object."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cachetools import LRUCache

from accel.cache.ghosts import Ghosts
from accel.cache.spans import Key, Spans
from accel.planning.file import ObjectId
from accel.ranges import ByteRange

__all__ = ["DataCache", "Held"]

# All numbers here are divisors of the cache's limit.
# Small reads are kept the first time: a read of up to 1/64, as long as its scan has read no more than 1/8 so far.
_ADMITTED, _ADMITTED_EACH = 64, 8
# A larger read is kept when it is met again before other such reads have brought more than 1/2.
_REMEMBERED = 2
# It is kept the first time while no more than 1/2 of the cache is in use, and its scan has read no more than 1/16.
_FILLED, _FILLED_EACH = 2, 16
# Beside its bytes a segment costs about so much.
_OVERHEAD = 256


@dataclass(slots=True, eq=False)
class _Segment:
    start: int
    end: int
    data: memoryview
    of: Spans[_Segment]


def _weight(segment: _Segment) -> int:
    return segment.end - segment.start + _OVERHEAD


class _Order(LRUCache[_Segment, _Segment]):
    """Segments by what they weigh; the least recently used one goes where `leave` takes it."""

    def __init__(self, limit: int, leave: Callable[[_Segment], None]) -> None:
        super().__init__(limit, _weight)
        self._leave = leave

    def popitem(self) -> tuple[_Segment, _Segment]:
        segment, _ = found = super().popitem()
        self._leave(segment)
        return found


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

    A read of more than a sixty-fourth of the limit, and whatever a scan reads beyond an eighth of it, is not kept, but
    its ranges are remembered (`Ghosts`). What of them is read again, before as much as half the limit has been read like
    that, is kept then, and protected at once. Where it displaces nothing, as half the cache is empty, what a scan reads
    up to a sixteenth of the limit is kept the first time.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lock = threading.Lock()
        self._ghosts = Ghosts(limit // _REMEMBERED)
        self._most_protected = limit * 3 // 4
        self._empty()
        self.hits = 0
        self.misses = 0
        self.evictions = 0

    def _empty(self) -> None:
        # Older cachetools clear item by item: what is protected would be new again, and what is new evicted.
        self._versions: dict[Key, Spans[_Segment]] = {}
        self._new = _Order(self.limit, self._evicted)
        self._protected = _Order(self._most_protected, self._renew)

    def __len__(self) -> int:
        return len(self._new) + len(self._protected)

    @property
    def nbytes(self) -> int:
        """What the segments hold."""
        return int(self._new.currsize + self._protected.currsize)

    def admit(
        self, token: str, file: ObjectId, ranges: Sequence[ByteRange], *, so_far: int
    ) -> Sequence[bool] | None:
        """Which of the ranges that one read brought are to be kept, as they were read before; the others are remembered.

        None of a read that is small enough to be kept whatever was read before: by itself, and with what its scan has
        read `so_far`.
        """
        if (
            so_far <= self.limit // _ADMITTED_EACH
            and sum(one.length for one in ranges) <= self.limit // _ADMITTED
        ):
            return None
        with self._lock:
            return self._ghosts.meet((token, file.path), file, ranges)

    def has_room(self, ranges: Sequence[ByteRange], *, so_far: int) -> bool:
        """Whether a read that is not small is kept all the same, as it displaces nothing; see `admit`."""
        if so_far > self.limit // _FILLED_EACH:
            return False
        with self._lock:
            return self.nbytes + sum(one.length + _OVERHEAD for one in ranges) <= self.limit // _FILLED

    def find(self, token: str, file: ObjectId, wanted: ByteRange) -> Held:
        """What is held of a range, which is thereby used."""
        return self.find_all(token, file, wanted=(wanted,))[0]

    def find_all(self, token: str, file: ObjectId, *, wanted: Sequence[ByteRange]) -> list[Held]:
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

    def keep(self, token: str, file: ObjectId, start: int, data: memoryview, *, known: bool = False) -> None:
        """Keep the bytes from `start` on, protected where they are `known` from before. Those of another version go.

        `data` is kept as it is: whoever gives a part of something larger gives a copy.
        """
        key = (token, file.path)
        with self._lock:
            version = self._versions.get(key)
            if version is None or version.id != file:
                self._drop(key)
                version = self._versions[key] = Spans(key, file)
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
            weight = _weight(segment)
            if weight > self.limit:
                return
            while self.nbytes + weight > self.limit:
                self._evict()
            # Forgetting its last segment has let go of the version.
            self._versions.setdefault(key, version).add(segment)
            order = self._protected if known and weight <= self._most_protected else self._new
            order[segment] = segment

    def drop(self, token: str, path: str) -> None:
        """Forget all segments of an object, and what was read of it."""
        with self._lock:
            self._drop((token, path))
            self._ghosts.drop((token, path))

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._empty()
            self._ghosts.clear()

    def _version(self, token: str, file: ObjectId) -> Spans[_Segment] | None:
        version = self._versions.get((token, file.path))
        return version if version is not None and version.id == file else None

    def _use(self, segment: _Segment) -> None:
        """It is the most recently used now, and protected; what that leaves no room for is new again."""
        if self._protected.get(segment) is not None:
            return
        if _weight(segment) > self._most_protected:
            self._new.get(segment)
        else:
            del self._new[segment]
            self._protected[segment] = segment

    def _evict(self) -> None:
        """Let go of the least recently used of the new ones, or of the protected ones where there is none."""
        if not self._new:
            self._protected.popitem()
        self._new.popitem()

    def _evicted(self, segment: _Segment) -> None:
        self.evictions += 1
        self._unlink(segment)

    def _renew(self, segment: _Segment) -> None:
        """One that is no longer protected is as new."""
        self._new[segment] = segment

    def _forget(self, segment: _Segment) -> None:
        if self._new.pop(segment, None) is None:
            del self._protected[segment]
        self._unlink(segment)

    def _unlink(self, segment: _Segment) -> None:
        version = segment.of
        version.remove(segment)
        if not version.items and self._versions.get(version.key) is version:
            del self._versions[version.key]

    def _drop(self, key: Key) -> None:
        version = self._versions.get(key)
        if version is not None:
            for segment in tuple(version.items):
                self._forget(segment)


def _look(version: Spans[_Segment] | None, wanted: ByteRange) -> tuple[Held, list[_Segment]]:
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
