"""What bounds answer exactly: the figures of runs of rows (pages, row groups, files) for aggregates.

Pruning may use a bound that is no value; an answer may not. So a minimum or maximum counts only where it is
known to occur, and for floats only where NaN are counted.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from accel.format.domain import Bounds, Domain
from accel.planning.aggregates import Function, Tally

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s

__all__ = ["answerable", "exact_values", "tally_units"]


_EXACT_SUM: Final = 2.0**53
"""Sums of whole numbers up to this are exact in doubles, whatever the order of the rows."""


def answerable(bounds: Bounds, functions: Collection[Function]) -> Bools:
    """Return the units for which all of these functions can be answered."""
    out = np.ones(len(bounds), bool)
    counts, nans = _counts(bounds), _nans(bounds)
    if Function.COUNT in functions or Function.SUM in functions:
        out &= counts >= 0
    # Units of nothing but null and NaN have no bounds, and take none.
    none = (nans >= 0) & (counts == nans)
    if Function.MIN in functions:
        out &= none | (_occurs(bounds.has_lower, bounds.lower_exact) & (nans >= 0))
    if Function.MAX in functions:
        out &= none | (_occurs(bounds.has_upper, bounds.upper_exact) & (nans >= 0))
    if Function.SUM in functions:
        out &= _summed(bounds)
    if Function.DISTINCT in functions:
        out &= np.array([exact_values(bounds, unit) is not None for unit in range(len(bounds))], bool)
    return out


def exact_values(bounds: Bounds, unit: int) -> tuple[list[Any], bool] | None:
    """Return the distinct values of a unit, NaN among them, and whether it holds null; None where others may
    occur."""
    rows, nulls, nans = (each.item(unit) for each in (bounds.num_values, bounds.null_count, bounds.nan_count))
    if rows < 0 or nulls < 0 or (rows > nulls and nans < 0):
        return None
    null, count = nulls > 0, rows - nulls
    found: list[Any] = [math.nan] if count and nans else []
    if not count or count == nans:
        return found, null
    for has, exact in ((bounds.has_lower, bounds.lower_exact), (bounds.has_upper, bounds.upper_exact)):
        if exact is None or not (has.item(unit) and exact.item(unit)):
            return None
    low, high = bounds.lower.item(unit), bounds.upper.item(unit)
    if bounds.domain is Domain.FLOAT:
        low, high = low + 0.0, high + 0.0
    if low == high:
        return [*found, low], null
    # There is nothing between an integer and the next one.
    discrete = bounds.domain in (Domain.INTEGER, Domain.BOOLEAN)
    return ([*found, low, high], null) if discrete and int(high) - int(low) == 1 else None


def tally_units(bounds: Bounds, units: Bools, functions: Collection[Function]) -> Tally:
    """Return the figures of those units together, for which the functions are `answerable`."""
    counts, nans = _counts(bounds), _nans(bounds)
    found = Tally(count=int(np.maximum(counts[units], 0).sum()), nan=bool((nans[units] > 0).any()))
    if Function.MIN in functions:
        here = units & _occurs(bounds.has_lower, bounds.lower_exact)
        found.low = min(_natives(bounds, bounds.lower[here]), default=None)
    if Function.MAX in functions:
        here = units & _occurs(bounds.has_upper, bounds.upper_exact)
        found.high = max(_natives(bounds, bounds.upper[here]), default=None)
    if Function.SUM in functions and bounds.sums is not None:
        found.total = sum(bounds.sums[at] for at in np.flatnonzero(units).tolist())
    elif Function.SUM in functions:
        some = units & (counts > 0)
        values = zip(_natives(bounds, bounds.lower[some]), counts[some].tolist(), strict=True)
        found.total = sum(value * count for value, count in values)
    return found


def _counts(bounds: Bounds) -> Int64s:
    """Return how many values of each unit are not null; -1 where that is not known."""
    known = (bounds.num_values >= 0) & (bounds.null_count >= 0)
    return np.where(known, bounds.num_values - bounds.null_count, -1)


def _nans(bounds: Bounds) -> Int64s:
    return np.where(_counts(bounds) == 0, 0, bounds.nan_count)


def _occurs(has: Bools, exact: Bools | None) -> Bools:
    return np.zeros(len(has), bool) if exact is None else has & exact


def _natives(bounds: Bounds, ends: npt.NDArray[Any]) -> list[Any]:
    """Return ends as native values, as a `Tally` has them."""
    # Zeros were widened to either sign.
    return [end + 0.0 for end in ends.tolist()] if bounds.domain is Domain.FLOAT else ends.tolist()


def _summed(bounds: Bounds) -> Bools:
    """Return the units whose sums are known."""
    low, counts, nans = _natives(bounds, bounds.lower), _counts(bounds), _nans(bounds)
    if bounds.sums is None:
        same = np.array([x == y for x, y in zip(low, _natives(bounds, bounds.upper), strict=True)], bool)
        single = _occurs(bounds.has_lower, bounds.lower_exact)
        single = single & _occurs(bounds.has_upper, bounds.upper_exact) & same & (nans == 0)
        if bounds.domain is Domain.FLOAT:
            # It must not overflow, or depend on the order of the rows.
            whole = [
                float(value).is_integer() and abs(value * count) <= _EXACT_SUM
                for value, count in zip(low, counts.tolist(), strict=True)
            ]
            single &= np.array(whole, bool)
        known: Bools = (counts == 0) | single
        return known
    if bounds.domain is not Domain.FLOAT:
        return np.ones(len(bounds), bool)
    # A sum of finite numbers that overflowed, and would not in another order, is no answer.
    infinite = (bounds.has_lower & np.isinf(bounds.lower)) | (bounds.has_upper & np.isinf(bounds.upper))
    summed: Bools = np.isfinite(bounds.sums) | (nans > 0) | infinite
    return summed
