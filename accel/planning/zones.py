"""Exact figures of runs of rows (pages, row groups) from metadata: what an aggregate may be answered from.

Pruning may use a bound that is no value; an answer may not. So a minimum or maximum counts only where its source
says, or its type makes sure, that it occurs, and for floats only where NaN are counted.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel.errors import IndexFormatError
from accel.format.bounds import chunk_extremes, page_extremes
from accel.format.domain import Bounds, Domain
from accel.format.embedded import Entry, verify_blob
from accel.format.model import Physical, SchemaElement
from accel.indexes.expressions import Expression, output_type
from accel.indexes.kind import Level
from accel.indexes.native import signature_of, tag_of
from accel.indexes.registry import find_kind, guarded
from accel.planning.aggregates import Function, Measure, Tally
from accel.planning.handle import FileHandle
from accel.planning.page_indexes import index_want, take_page_indexes
from accel.planning.pruning import bounds_of_pages, group_bounds
from accel.planning.read_request import OnBadIndex
from accel.predicate.kinds import kind_of
from accel.ranges import ByteRange, Kind, ReadKey, Stash, Want

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s
    from accel.indexes.zone_bounds import ZoneStats

__all__ = [
    "LeafMeasure",
    "ZoneSources",
    "Zones",
    "zones_of_bounds",
    "zones_of_stats",
]


@dataclass(frozen=True, slots=True, eq=False)
class Zones:
    """Figures of n units of rows, one entry each; -1 for counts that are not known."""

    rows: Int64s
    counts: Int64s
    """Values that are not null."""
    nans: Int64s
    low: Sequence[Any]
    """The least value that is not NaN, where `has_low`: native values, as a `Tally` has them."""
    high: Sequence[Any]
    has_low: Bools
    has_high: Bools
    sums: Sequence[int | float] | None
    floating: bool
    single: Bools
    """Where all values that are neither null nor NaN are `low`."""

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, unit: int) -> Zones:
        """Return the figures of one unit."""
        at = slice(unit, unit + 1)
        return Zones(
            rows=self.rows[at],
            counts=self.counts[at],
            nans=self.nans[at],
            low=self.low[at],
            high=self.high[at],
            has_low=self.has_low[at],
            has_high=self.has_high[at],
            sums=None if self.sums is None else self.sums[at],
            floating=self.floating,
            single=self.single[at],
        )

    def answerable(self, functions: Collection[Function]) -> Bools:
        """Units for which all of these functions can be answered."""
        out = np.ones(len(self), bool)
        if Function.COUNT in functions or Function.SUM in functions:
            out &= self.counts >= 0
        # Units of nothing but null and NaN have no bounds, and take none.
        none = (self.nans >= 0) & (self.counts == self.nans)
        if Function.MIN in functions:
            out &= none | (self.has_low & (self.nans >= 0))
        if Function.MAX in functions:
            out &= none | (self.has_high & (self.nans >= 0))
        if Function.SUM in functions:
            out &= self._summed()
        return out

    def _summed(self) -> Bools:
        if self.sums is None:
            found: Bools = (self.counts == 0) | (self.single & (self.nans == 0) & self._finite())
            return found
        if not self.floating:
            return np.ones(len(self), bool)
        # A sum of finite numbers that overflowed, and would not in another order, is no answer.
        ends = zip(self.sums, self.nans.tolist(), self.low, self.high, strict=True)
        return np.array(
            [
                math.isfinite(total) or nans > 0 or any(x is not None and math.isinf(x) for x in (low, high))
                for total, nans, low, high in ends
            ],
            bool,
        )

    def _finite(self) -> Bools:
        """Whether the sum of each unit of one value neither overflows nor depends on the order of its rows."""
        if not self.floating:
            return np.ones(len(self), bool)
        return np.array(
            [
                float(low).is_integer() and abs(low * count) <= _EXACT_SUM
                for low, count in zip(self.low, self.counts.tolist(), strict=True)
            ],
            bool,
        )

    def values_of(self, unit: int, *, discrete: bool) -> tuple[list[Any], bool] | None:
        """Return the distinct values of a unit, NaN among them, and whether it holds null; None where others may occur.

        `discrete` says that there is nothing between a value and the next integer.
        """
        rows, count, nans = int(self.rows[unit]), int(self.counts[unit]), int(self.nans[unit])
        if rows < 0 or count < 0 or (count and nans < 0):
            return None
        null = rows > count
        found: list[Any] = [math.nan] if count and nans else []
        if not count or count == nans:
            return found, null
        low, high = self.low[unit], self.high[unit]
        if self.single[unit]:
            return [*found, low], null
        if discrete and self.has_low[unit] and self.has_high[unit] and int(high) - int(low) == 1:
            return [*found, low, high], null
        return None

    def tally(self, units: Bools, functions: Collection[Function]) -> Tally:
        """Return the figures of those units together, for which the functions are `answerable`."""
        found = Tally(
            count=int(np.maximum(self.counts[units], 0).sum()), nan=bool((self.nans[units] > 0).any())
        )
        chosen = np.flatnonzero(units).tolist()
        if Function.MIN in functions:
            found.low = min((self.low[i] for i in chosen if self.has_low[i]), default=None)
        if Function.MAX in functions:
            found.high = max((self.high[i] for i in chosen if self.has_high[i]), default=None)
        if Function.SUM in functions and self.sums is not None:
            found.total = sum(self.sums[i] for i in chosen)
        elif Function.SUM in functions:
            found.total = sum(self.low[i] * int(self.counts[i]) for i in chosen if self.counts[i])
        return found


_EXACT_SUM: Final = 2.0**53
"""Sums of whole numbers up to this are exact in doubles, whatever the order of the rows."""
_LEAST_CUT: Final = 16
"""Bytes. Writers that cut bounds leave as many at least: equal bounds of fewer are values."""


def zones_of_stats(stats: ZoneStats) -> Zones:
    """From an embedded zone map."""
    floating = stats.bounds().domain is Domain.FLOAT
    return Zones(
        rows=stats.rows,
        counts=stats.counts,
        nans=stats.nans,
        low=stats.lower,
        high=stats.upper,
        has_low=stats.exact & np.array([value is not None for value in stats.lower], bool),
        has_high=stats.exact & np.array([value is not None for value in stats.upper], bool),
        sums=stats.sums,
        floating=floating,
        single=stats.exact
        & np.array([x is not None and x == y for x, y in zip(stats.lower, stats.upper, strict=True)], bool),
    )


def zones_of_bounds(
    bounds: Bounds, element: SchemaElement, low_exact: npt.NDArray[np.int8], high_exact: npt.NDArray[np.int8]
) -> Zones:
    """From Parquet's own statistics.

    Parameters
    ----------
    bounds : Bounds
        The bounds of a column that is not repeated.
    element : SchemaElement
        The column's.
    low_exact, high_exact : array of int8
        Whether they occur as values: 1, 0, or -1 where that is unknown (`chunk_extremes`, `page_extremes`).
    """
    floating = bounds.domain is Domain.FLOAT
    low, high = bounds.lower.tolist(), bounds.upper.tolist()
    if floating:
        # Zeros were widened to either sign.
        low, high = [x + 0.0 for x in low], [x + 0.0 for x in high]
    # Numbers of a fixed width cannot be cut short, texts and decimals in bytes can.
    whole = element.physical is not Physical.BYTE_ARRAY and bounds.domain is not Domain.BYTES
    low_ok, high_ok = (low_exact != 0, high_exact != 0) if whole else (low_exact == 1, high_exact == 1)
    single = bounds.has_lower & bounds.has_upper & (low_exact != 0) & (high_exact != 0)
    single &= np.array([x == y for x, y in zip(low, high, strict=True)], bool)
    if not whole:
        short = np.array([not isinstance(x, bytes) or len(x) < _LEAST_CUT for x in low], bool)
        single &= short | ((low_exact == 1) & (high_exact == 1))
    counted = (bounds.num_values >= 0) & (bounds.null_count >= 0)
    return Zones(
        rows=bounds.num_values,
        counts=np.where(counted, bounds.num_values - bounds.null_count, -1),
        nans=bounds.nan_count,
        low=low,
        high=high,
        has_low=bounds.has_lower & low_ok,
        has_high=bounds.has_upper & high_ok,
        sums=None,
        floating=floating,
        single=single,
    )


_ZONEMAP = "zonemap"


@dataclass(frozen=True, slots=True)
class LeafMeasure:
    """A measure of a column that one file holds as one plain leaf."""

    ordinal: int
    measure: Measure
    leaf: int
    kind: pa.DataType
    """The type of the leaf in this file."""

    @property
    def same_values(self) -> bool:
        """Whether the file's values are the result's, and need no widening."""
        here, there = kind_of(self.kind), kind_of(self.measure.column_type)
        return here.domain is there.domain and here.step == there.step

    @property
    def counted(self) -> bool:
        """Whether only a count is wanted: types do not matter then."""
        return self.measure.functions == {Function.COUNT}


@dataclass(slots=True)
class ZoneSources:
    """The figures that a file's metadata can give."""

    handle: FileHandle
    on_bad_index: OnBadIndex
    _places: dict[int, list[tuple[int, Entry]]] = field(default_factory=dict)
    """By the ordinal of a measure: the zone maps of it, with their places in the table of contents."""
    _chunks: dict[int, Zones] = field(default_factory=dict)

    def at_hand(self, column: LeafMeasure, group: int, *, whole: bool) -> Iterator[Zones]:
        """Yield figures that need no fetching, each of all rows of a row group, in units of its own.

        `whole` says that every row of it is to be answered for.
        """
        if not (column.same_values or column.counted):
            return
        if whole and column.measure.of is Expression.VALUE:
            yield self._of_chunk(column, group)
        for at, entry in self._entries(column):
            if entry.row_group == group and (whole or entry.level == Level.PAGE):
                zones = self._of_map(column, at, int(self.handle.metadata.group_rows[group]))
                if zones is not None:
                    yield zones
        if column.measure.of is Expression.VALUE:
            paged = self._of_pages(column, group)
            if paged is not None:
                yield paged

    def of_file(self, column: LeafMeasure) -> Zones | None:
        """Return the figures of all rows of the file as one unit, where they are in memory."""
        if column.same_values or column.counted:
            for at, entry in self._entries(column):
                if entry.level == Level.FILE:
                    zones = self._of_map(column, at, int(self.handle.metadata.group_rows.sum()))
                    if zones is not None:
                        return zones
        return None

    def wants(
        self, column: LeafMeasure, groups: Collection[int], *, whole: bool, all_rows: bool
    ) -> list[Want]:
        """Return what to fetch to answer these row groups: the smallest kind of source that may do.

        `all_rows` says that every row of the file is to be answered for.
        """
        if not (column.same_values or column.counted) or self.handle.distrusted:
            return []
        levels = [Level.FILE] if all_rows else []
        levels += [Level.ROW_GROUP, Level.PAGE] if whole else [Level.PAGE]
        for level in levels:
            found = [
                _want_index(entry, column.leaf)
                for at, entry in self._entries(column)
                if entry.level == level and at not in self.handle.view.indexes
                if level is Level.FILE or entry.row_group in groups
            ]
            if found:
                return found
        bounded = Function.SUM not in column.measure.functions and column.measure.of is Expression.VALUE
        exact = kind_of(column.kind).domain in (Domain.INTEGER, Domain.BOOLEAN) or column.counted
        return [] if whole or not (bounded and exact) else self.page_index_wants(column.leaf, groups)

    def learn(self, wants: Sequence[Want], stash: Stash) -> None:
        """Take in the bytes that were read."""
        pages = [want for want in wants if want.key.kind is not Kind.INDEX]
        take_page_indexes(self.handle, pages, stash=stash, on_bad_index=self.on_bad_index)
        came = {want.range: stash[want.key] for want in wants if want.key.kind is Kind.INDEX}
        entries = self.handle.toc.entries if self.handle.toc is not None else ()
        for at, entry in enumerate(entries):
            data = came.get(ByteRange(entry.offset, entry.offset + entry.length))
            if data is None or at in self.handle.view.indexes:
                continue
            try:
                self.handle.view.indexes[at] = _parse(entry, data)
            except IndexFormatError as error:
                self.handle.view.indexes[at] = None
                error.at(
                    path=self.handle.id.path, place=f"embedded zone map, column {'.'.join(entry.column)}"
                )
                self.on_bad_index(error)

    # -- one source each -------------------------------------------------------------------------

    def _entries(self, column: LeafMeasure) -> list[tuple[int, Entry]]:
        found = self._places.get(column.ordinal)
        if found is None:
            toc = None if self.handle.distrusted else self.handle.toc
            found = [
                (at, entry)
                for at, entry in enumerate(toc.entries if toc is not None else ())
                if entry.kind == _ZONEMAP and _speaks_of(entry, column)
            ]
            self._places[column.ordinal] = found
        return found

    def _of_chunk(self, column: LeafMeasure, group: int) -> Zones:
        metadata, leaf = self.handle.metadata, column.leaf
        zones = self._chunks.get(leaf)
        if zones is None:
            bounds = group_bounds(self.handle, leaf, kind=column.kind)
            element = metadata.schema.elements[metadata.schema.leaves[leaf].element]
            low, high = chunk_extremes(metadata, leaf, arrow_type=column.kind)
            zones = zones_of_bounds(bounds, element, low, high)
            self._chunks[leaf] = zones
        return zones.take(group)

    def _of_pages(self, column: LeafMeasure, group: int) -> Zones | None:
        handle, leaf = self.handle, column.leaf
        found = bounds_of_pages(handle, leaf, kind=column.kind, row_group=group)
        index = handle.view.column_indexes.get((group, leaf))
        if handle.distrusted or found is None or index is None:
            return None
        _, bounds = found
        metadata = handle.metadata
        element = metadata.schema.elements[metadata.schema.leaves[leaf].element]
        occur = page_extremes(metadata, leaf, index, bounds.num_values, arrow_type=column.kind)
        return zones_of_bounds(bounds, element, occur, occur)

    def _of_map(self, column: LeafMeasure, at: int, num_rows: int) -> Zones | None:
        parsed: Any = self.handle.view.indexes.get(at)
        if parsed is None:
            return None
        stats = parsed.stats(column.measure.path, column.measure.of)
        kind = output_type(column.measure.of, column.kind)
        if stats is None or bool((stats.rows > num_rows).any()) or tag_of(kind) is not stats.tag:
            return None
        if int(stats.rows.sum()) != num_rows:
            return None
        return zones_of_stats(stats)

    def page_index_wants(self, leaf: int, groups: Collection[int]) -> list[Want]:
        """Return the missing halves of page indexes, for chunks that have both."""
        handle = self.handle
        wants: list[Want] = []
        for group in sorted(groups):
            at = (group, leaf)
            places = index_want(handle.metadata.chunks, Kind.OFFSET_INDEX, *at)
            bounds = index_want(handle.metadata.chunks, Kind.COLUMN_INDEX, *at)
            if places and bounds:
                wants += [] if at in handle.view.offset_indexes else places
                wants += [] if at in handle.view.column_indexes else bounds
        return wants


def _speaks_of(entry: Entry, column: LeafMeasure) -> bool:
    signature = entry.signature_of(column.measure.path, column.measure.of)
    return signature == signature_of(column.kind) and find_kind(entry.kind, entry.version) is not None


def _want_index(entry: Entry, leaf: int) -> Want:
    span = ByteRange(entry.offset, entry.offset + entry.length)
    return Want(ReadKey(Kind.INDEX, entry.row_group, leaf, span.start), span)


def _parse(entry: Entry, data: memoryview) -> Any:
    kind = find_kind(entry.kind, entry.version)
    if kind is None:
        raise IndexFormatError(f"no index kind {entry.kind!r}")
    verify_blob(entry, data)
    return guarded(kind.parse, bytes(data), level=Level(entry.level), units=entry.units)
