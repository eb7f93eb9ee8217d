"""Which ranges large reads have brought lately that were not kept: the evidence for keeping them the next time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cachetools import LRUCache

from accel.cache.spans import Key, Spans
from accel.planning.file import ObjectId
from accel.ranges import ByteRange

__all__ = ["Ghosts"]

# So many at the most, however short they are.
_MOST = 4096


@dataclass(slots=True, eq=False)
class _Ghost:
    start: int
    end: int
    of: Spans[_Ghost]


class _Latest(LRUCache[_Ghost, _Ghost]):
    """The ghosts, those of the latest reads: one that has to go leaves its object too."""

    def __init__(self, limit: int, owner: Ghosts) -> None:
        self._least = limit // _MOST
        self._owner = owner
        super().__init__(limit, self._weight)

    def _weight(self, ghost: _Ghost) -> int:
        return max(ghost.end - ghost.start, self._least)

    def popitem(self) -> tuple[_Ghost, _Ghost]:
        ghost, _ = found = super().popitem()
        self._owner.unlink(ghost)
        return found


class Ghosts:
    """Ranges without their bytes, the least recently read forgotten first. Whoever uses it holds a lock.

    Parameters
    ----------
    limit : int
        Bytes that all remembered ranges cover together at the most. Once more than that has been read, the oldest
        ranges are forgotten: a cache of that size would have dropped them by then, too. So a scan that reads more
        than the limit finds none of its own ranges when it is run again, and nothing of it is kept.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._reads: dict[Key, Spans[_Ghost]] = {}
        self._latest = _Latest(limit, self)

    def __len__(self) -> int:
        return len(self._latest)

    @property
    def nbytes(self) -> int:
        """What was read and is remembered; a short range counts as more."""
        return int(self._latest.currsize)

    def meet(self, key: Key, file: ObjectId, ranges: Sequence[ByteRange]) -> list[bool]:
        """Of the ranges that one read brought, which were read before, as to half of their bytes at least.

        Those are forgotten, as they will be kept now; the others are remembered. So is nothing of a read that is
        larger than the limit, and nothing of another version of the object.
        """
        if sum(one.length for one in ranges) > self._limit:
            return [False] * len(ranges)
        read = self._reads.get(key)
        if read is not None and read.id != file:
            self.drop(key)
            read = None
        if read is None:
            again = [False] * len(ranges)
            read = self._reads[key] = Spans(key, file)
        else:
            again = [_shared(read, one) * 2 >= one.length for one in ranges]
            for start, end in _joined(ranges):
                self._forget(read, start, end)
            # Forgetting the last one has let go of the object.
            self._reads[key] = read
        for start, end in _joined([one for one, known in zip(ranges, again, strict=True) if not known]):
            ghost = _Ghost(start, end, read)
            read.add(ghost)
            self._latest[ghost] = ghost
        if not read.items:
            self._reads.pop(key, None)
        return again

    def drop(self, key: Key) -> None:
        """Forget what was read of an object."""
        read = self._reads.pop(key, None)
        for ghost in () if read is None else read.items:
            del self._latest[ghost]

    def clear(self) -> None:
        """Forget everything."""
        self._reads.clear()
        self._latest.clear()

    def unlink(self, ghost: _Ghost) -> None:
        """Told of one that is no longer remembered."""
        read = ghost.of
        read.remove(ghost)
        if not read.items and self._reads.get(read.key) is read:
            del self._reads[read.key]

    def _forget(self, read: Spans[_Ghost], start: int, end: int) -> None:
        """Of one object; what lies beside `start..end` stays."""
        for ghost in read.over(start, end):
            if self._latest.pop(ghost, None) is None:
                continue  # it had to go for what was left of the one before
            read.remove(ghost)
            for low, high in ((ghost.start, start), (end, ghost.end)):
                if low < high:
                    rest = _Ghost(low, high, read)
                    read.add(rest)
                    self._latest[rest] = rest


def _shared(read: Spans[_Ghost], wanted: ByteRange) -> int:
    """Bytes of a range that were read."""
    start, end = wanted
    return sum(min(end, ghost.end) - max(start, ghost.start) for ghost in read.over(start, end))


def _joined(ranges: Sequence[ByteRange]) -> Iterator[tuple[int, int]]:
    """The same bytes as ranges apart from each other."""
    if not ranges:
        return
    ordered = sorted(ranges)
    low, high = ordered[0]
    for start, end in ordered:
        if start > high:
            yield low, high
            low, high = start, end
        elif end > high:
            high = end
    yield low, high
