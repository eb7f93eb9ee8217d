"""Row selections: sorted, disjoint, half-open ranges of rows within one row group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s

__all__ = ["RowSelection"]


@dataclass(frozen=True, slots=True, eq=False)
class RowSelection:
    """Rows `starts[i]` up to, not including, `stops[i]`; sorted, disjoint, not touching, none empty."""

    starts: Int64s
    stops: Int64s
    _count: int = field(default=-1, init=False, repr=False)
    """The rows, once they were counted."""

    @classmethod
    def none(cls) -> RowSelection:
        return _NONE

    @classmethod
    def all(cls, num_rows: int) -> RowSelection:
        return _all(num_rows) if num_rows > 0 else cls.none()

    @classmethod
    def of(cls, ranges: Iterable[tuple[int, int]]) -> RowSelection:
        """Return the selection of ranges in any order; overlapping ones are united, empty ones dropped.

        Raises
        ------
        ValueError
            A range is negative or ends before it starts.
        """
        pairs = np.array([(int(a), int(b)) for a, b in ranges], np.int64).reshape(-1, 2)
        if len(pairs) and bool(((pairs[:, 0] < 0) | (pairs[:, 1] < pairs[:, 0])).any()):
            raise ValueError("a row range is negative or ends before it starts")
        return cls._normal(pairs[:, 0], pairs[:, 1])

    @classmethod
    def from_mask(cls, mask: Bools) -> RowSelection:
        """Return the set positions of a boolean array."""
        edges = _run_edges(mask)
        return cls(edges[::2].astype(np.int64), edges[1::2].astype(np.int64))

    @classmethod
    def from_units(cls, first_rows: Int64s, num_rows: int, *, keep: Bools) -> RowSelection:
        """Return the rows of the units (pages) that are kept; unit i ends where unit i + 1 starts."""
        edges = _run_edges(keep)
        if not len(edges):
            return cls.none()
        begins, ends = edges[::2], edges[1::2]
        starts = first_rows[begins]
        stops = np.append(first_rows, num_rows)[ends]
        # Units without rows are possible, and leave empty or touching ranges.
        if np.count_nonzero(stops <= starts) or np.count_nonzero(starts[1:] <= stops[:-1]):
            return cls._normal(starts, stops)
        return cls(starts, stops)

    @classmethod
    def _normal(cls, starts: Int64s, stops: Int64s) -> RowSelection:
        full = stops > starts
        starts, stops = starts[full], stops[full]
        if not len(starts):
            return cls.none()
        order = np.argsort(starts, kind="stable")
        starts, stops = starts[order], np.maximum.accumulate(stops[order])
        first = np.append(True, starts[1:] > stops[:-1])
        last = np.append(first[1:], True)
        return cls(np.ascontiguousarray(starts[first], np.int64), np.ascontiguousarray(stops[last], np.int64))

    @property
    def count(self) -> int:
        """Rows selected."""
        count = self._count
        if count < 0:
            starts, stops = self.starts, self.stops
            if len(starts) == 1:
                count = stops.item(0) - starts.item(0)
            else:
                count = int(np.add.reduce(stops - starts)) if len(starts) else 0
            object.__setattr__(self, "_count", count)
        return count

    def __bool__(self) -> bool:
        return len(self.starts) > 0

    def __len__(self) -> int:
        return len(self.starts)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(zip(self.starts.tolist(), self.stops.tolist(), strict=True))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, RowSelection)
            and np.array_equal(self.starts, other.starts)
            and np.array_equal(self.stops, other.stops)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(f"{a}..{b}" for a, b in list(self)[:6])
        return f"RowSelection({shown}{', ...' if len(self) > 6 else ''})"

    def intersect(self, other: RowSelection) -> RowSelection:
        """Return the rows in both."""
        if not self or not other:
            return RowSelection.none()
        if len(self.starts) == 1 and len(other.starts) == 1:
            starts, stops = np.maximum(self.starts, other.starts), np.minimum(self.stops, other.stops)
            return RowSelection(starts, stops) if starts.item(0) < stops.item(0) else RowSelection.none()
        # For each of our ranges, the run of the other's ranges that overlaps it.
        lo = other.stops.searchsorted(self.starts, "right")
        hi = other.starts.searchsorted(self.stops, "left")
        counts = np.maximum(hi - lo, 0)
        mine = np.repeat(np.arange(len(self)), counts)
        offsets = np.arange(len(mine)) - np.repeat(np.cumsum(counts) - counts, counts)
        theirs = np.repeat(lo, counts) + offsets
        return RowSelection(
            np.maximum(self.starts[mine], other.starts[theirs]),
            np.minimum(self.stops[mine], other.stops[theirs]),
        )

    def union(self, other: RowSelection) -> RowSelection:
        """Return the rows in either."""
        return RowSelection._normal(
            np.concatenate((self.starts, other.starts)), np.concatenate((self.stops, other.stops))
        )

    def grown(self) -> RowSelection:
        """Return these rows, and the row after each range, though it may be beyond the last."""
        if len(self.starts) <= 1:
            return RowSelection(self.starts, self.stops + 1)
        return RowSelection._normal(self.starts, self.stops + 1)

    def invert(self, num_rows: int) -> RowSelection:
        """Return the rows of `num_rows` that are not selected."""
        starts = np.append(np.int64(0), self.stops)
        stops = np.append(self.starts, np.int64(num_rows))
        return RowSelection._normal(starts, stops)

    def without(self, other: RowSelection, num_rows: int) -> RowSelection:
        """Return the rows that are not in `other`, of a row group of `num_rows`."""
        if other is self:
            return RowSelection.none()
        if not len(other.starts) or not len(self.starts):
            return self
        if len(other) == 1 and other.starts[0] <= self.starts[0] and self.stops[-1] <= other.stops[0]:
            return RowSelection.none()
        return self.intersect(other.invert(num_rows))

    def within(self, start: int, stop: int) -> RowSelection:
        """Return the rows in `start..stop`, still counted from the row group's first row."""
        if stop <= start:
            return RowSelection.none()
        lo = int(self.stops.searchsorted(start, "right"))
        hi = int(self.starts.searchsorted(stop, "left"))
        return RowSelection(np.maximum(self.starts[lo:hi], start), np.minimum(self.stops[lo:hi], stop))

    def head(self, count: int) -> RowSelection:
        """Return the first `count` of the selected rows."""
        before = np.cumsum(self.stops - self.starts) - (self.stops - self.starts)
        keep = before < count
        stops = np.minimum(self.stops, self.starts + (count - before))
        return RowSelection(self.starts[keep], stops[keep])

    def refine(self, mask: Bools) -> RowSelection:
        """Return the selected rows whose place, in order, is set in `mask`."""
        inner = RowSelection.from_mask(mask)
        if not inner:
            return RowSelection.none()
        if len(self.starts) == 1 and len(mask) <= self.count:
            return RowSelection(inner.starts + self.starts, inner.stops + self.starts)
        # Position p of the selected rows is row starts[i] + (p - before[i]); a run may span ranges.
        lengths = self.stops - self.starts
        before = np.concatenate(([0], np.cumsum(lengths)))
        placed = RowSelection(before[:-1].astype(np.int64), before[1:].astype(np.int64))
        # Pieces that touch are not merged, so that each result lies in one of them.
        cut = inner.intersect(placed)
        owner = before.searchsorted(cut.starts, "right") - 1
        shift = self.starts[owner] - before[owner]
        return RowSelection._normal(cut.starts + shift, cut.stops + shift)

    def overlaps(self, first_rows: Int64s, num_rows: int) -> Bools:
        """Return which units (pages, by their first rows) hold at least one selected row."""
        if not self:
            return np.zeros(len(first_rows), bool)
        stops = np.append(first_rows[1:], num_rows)
        lo = self.stops.searchsorted(first_rows, "right")
        hi = self.starts.searchsorted(stops, "left")
        return np.asarray(hi > lo, dtype=bool)

    def units(self, first_rows: Int64s, num_rows: int) -> slice | Int64s:
        """Return the places of those that `overlaps` flags; a slice where that is cheaper to find."""
        if len(self.starts) != 1:
            return np.flatnonzero(self.overlaps(first_rows, num_rows)).astype(np.int64, copy=False)
        start, stop = self.starts.item(0), self.stops.item(0)
        lo = int(first_rows.searchsorted(start, "right")) - 1 if start > 0 else 0
        hi = int(first_rows.searchsorted(stop, "left")) if stop < num_rows else len(first_rows)
        return slice(max(lo, 0), hi)

    def counts(self, first_rows: Int64s, stop_rows: Int64s) -> Int64s:
        """Return how many selected rows each of the spans `first_rows[i]..stop_rows[i]` holds."""
        if not self:
            return np.zeros(len(first_rows), np.int64)
        return self._before(stop_rows) - self._before(first_rows)

    def covers(self, starts: Int64s, stops: Int64s) -> Bools:
        """Return which of the spans `starts[i]..stops[i]` are selected entirely."""
        if not self:
            return np.zeros(len(starts), bool)
        at = np.searchsorted(self.starts, starts, side="right") - 1
        return np.asarray((at >= 0) & (self.stops[np.maximum(at, 0)] >= stops), bool)

    def row_numbers(self) -> Int64s:
        """Return every single row, ascending."""
        if len(self.starts) == 1:
            return np.arange(self.starts.item(0), self.stops.item(0), dtype=np.int64)
        lengths = self.stops - self.starts
        shift = np.repeat(self.starts - (np.cumsum(lengths) - lengths), lengths)
        numbers: Int64s = np.arange(len(shift), dtype=np.int64) + shift
        return numbers

    def _before(self, rows: Int64s) -> Int64s:
        """Return how many selected rows come before each row."""
        if len(self.starts) == 1:
            return np.minimum(np.maximum(rows, self.starts), self.stops) - self.starts
        lengths = self.stops - self.starts
        at = self.starts.searchsorted(rows, "right") - 1
        inside = np.clip(rows - self.starts[at], 0, lengths[at])
        earlier = (np.cumsum(lengths) - lengths)[at]
        return np.where(at < 0, 0, earlier + inside)


_NONE = RowSelection(np.empty(0, np.int64), np.empty(0, np.int64))


@lru_cache(256)
def _all(num_rows: int) -> RowSelection:
    """Return the selection of all rows, which row groups of as many rows share."""
    rows = RowSelection(np.zeros(1, np.int64), np.array([num_rows], np.int64))
    rows.starts.flags.writeable = rows.stops.flags.writeable = False
    return rows


def _run_edges(mask: Bools) -> Int64s:
    """Return the start and the end of each run of set places, alternately."""
    edges = np.empty(len(mask) + 2, bool)
    edges[0] = edges[-1] = False
    edges[1:-1] = mask
    found: Int64s = (edges[1:] != edges[:-1]).nonzero()[0]
    return found
