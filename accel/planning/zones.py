"""Exact figures of runs of rows (pages, row groups) from metadata: what an aggregate may be answered from.

Pruning may use a bound that is no value; an answer may not. So a minimum or maximum counts only where its source
says, or its type makes sure, that it occurs, and for floats only where NaN are counted.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from accel.format.domain import Bounds, Domain
from accel.format.model import Physical, SchemaElement
from accel.planning.measures import Function
from accel.planning.tally import Tally

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s
    from accel.indexes.zone_bounds import ZoneStats

__all__ = ["Zones", "zones_of_bounds", "zones_of_stats"]


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

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, unit: int) -> Zones:
        """The figures of one unit."""
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
        )

    def known(self, functions: Collection[Function]) -> Bools:
        """Units for which all of these functions can be answered."""
        out = np.ones(len(self), bool)
        if Function.COUNT in functions or Function.SUM in functions:
            out &= self.counts >= 0
        # Nothing but null and NaN has no bounds, and needs none.
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
            return np.zeros(len(self), bool)
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

    def tally(self, units: Bools, functions: Collection[Function]) -> Tally:
        """The figures of those units together, for which the functions are `known`."""
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
        return found


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
    )


def zones_of_bounds(
    bounds: Bounds, element: SchemaElement, low_exact: npt.NDArray[np.int8], high_exact: npt.NDArray[np.int8]
) -> Zones:
    """From Parquet's own statistics.

    Parameters
    ----------
    bounds : Bounds
        Of a column that is not repeated.
    element : SchemaElement
        The column's.
    low_exact, high_exact : array of int8
        Whether they occur as values: 1, 0, or -1 where that is not told (`chunk_extremes`, `page_extremes`).
    """
    floating = bounds.domain is Domain.FLOAT
    low, high = bounds.lower.tolist(), bounds.upper.tolist()
    if floating:
        # Zeros were widened to either sign.
        low, high = [x + 0.0 for x in low], [x + 0.0 for x in high]
    # Numbers of a fixed width cannot be cut short, texts and decimals in bytes can.
    whole = element.physical is not Physical.BYTE_ARRAY and bounds.domain is not Domain.BYTES
    low_ok, high_ok = (low_exact != 0, high_exact != 0) if whole else (low_exact == 1, high_exact == 1)
    known = (bounds.num_values >= 0) & (bounds.null_count >= 0)
    return Zones(
        rows=bounds.num_values,
        counts=np.where(known, bounds.num_values - bounds.null_count, -1),
        nans=bounds.nan_count,
        low=low,
        high=high,
        has_low=bounds.has_lower & low_ok,
        has_high=bounds.has_upper & high_ok,
        sums=None,
        floating=floating,
    )
