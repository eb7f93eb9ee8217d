"""What the bounds of one column claim, unit by unit: what may stand there, and how that is asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from accel.format.domain import Bounds, Domain
from accel.predicate.atoms import BoundColumn
from accel.predicate.evidence import Evidence

if TYPE_CHECKING:
    from accel.arrays import Bools

__all__ = ["Claims", "alike", "claims_of", "where_both", "where_flagged"]

Values: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Claims:
    """One column's bounds, read once: what may stand in each unit."""

    domain: Domain
    """Of the column, as the predicate takes it."""
    lower: Values
    upper: Values
    has_lower: Bools
    has_upper: Bools
    null: Bools
    """A null may occur."""
    plain: Bools
    """A value that is neither null nor NaN may occur."""
    nan: Bools
    bounded: bool = False
    """Every unit has both bounds."""

    @property
    def value(self) -> Bools:
        return self.plain | self.nan

    def below(self, test: Callable[[Values], Any]) -> Bools:
        """Where the lower bound passes, or is unknown."""
        return self._may(self.has_lower, self.lower, test)

    def above(self, test: Callable[[Values], Any]) -> Bools:
        """Where the upper bound passes, or is unknown."""
        return self._may(self.has_upper, self.upper, test)

    def single(self, point: Any) -> Bools:
        """Where both bounds are known, and this."""
        if self.bounded:
            return np.asarray((self.lower == point) & (self.upper == point), bool)
        same = where_flagged(self.has_lower, self.lower, test=lambda low: low == point)
        return same & where_flagged(self.has_upper, self.upper, test=lambda high: high == point)

    def _may(self, known: Bools, bounds: Values, test: Callable[[Values], Any]) -> Bools:
        passes = (
            np.asarray(test(bounds), bool)
            if self.bounded
            else ~known | where_flagged(known, bounds, test=test)
        )
        return self.plain & passes

    def evidence(self, may_true: Bools, may_false: Bools) -> Evidence:
        return Evidence(may_true, may_false, self.null)


def claims_of(column: BoundColumn, given: Bounds | None, *, n: int) -> Claims:
    """What bounds claim of a column; worked out once for bounds that are kept, and asked again."""
    domain = column.kind.domain
    if given is None:
        return _read(domain, None, n)
    known = given.read
    if isinstance(known, Claims) and known.domain is domain:
        return known
    claims = _read(domain, given, n)
    given.keep_read(claims)
    return claims


def _read(domain: Domain, given: Bounds | None, n: int) -> Claims:
    float_column = domain is Domain.FLOAT
    if given is None:
        everything, nothing = np.ones(n, bool), np.zeros(n, bool)
        void = np.zeros(n, np.int64)
        nan = everything if float_column else nothing
        return Claims(domain, void, void, nothing, nothing, everything, everything, nan)
    nulls, total, nans = given.null_count, given.num_values, given.nan_count
    null = nulls != 0
    value = (nulls != total) | (nulls < 0)
    if float_column and bool(nans.any()):
        nan, plain = value & (nans != 0), value
        counted = nans >= 0
        if bool(counted.any()):
            known = (nulls >= 0) & (total >= 0) & (nulls <= total)
            plain = value & ~(known & counted & (nans == total - nulls))
    else:
        nan, plain = np.zeros(n, bool), value
    has_lower, has_upper = given.has_lower, given.has_upper
    if given.domain is not domain:
        has_lower = has_upper = np.zeros(n, bool)
    both = has_lower & has_upper
    bounded = bool(both.all())
    crossed = where_both(both, given.lower, given.upper, np.greater)
    if bool(crossed.any()):
        # Bounds that contradict themselves claim nothing.
        has_lower, has_upper, bounded = has_lower & ~crossed, has_upper & ~crossed, False
    return Claims(domain, given.lower, given.upper, has_lower, has_upper, null, plain, nan, bounded)


def where_flagged(flags: Bools, values: Values, *, test: Callable[[Values], Any]) -> Bools:
    """The test where flagged, else False; what stands elsewhere is never looked at."""
    if bool(flags.all()):
        return np.asarray(test(values), bool)
    out = np.zeros(len(flags), bool)
    if bool(flags.any()):
        out[flags] = np.asarray(test(values[flags]), bool)
    return out


def where_both(flags: Bools, a: Values, b: Values, test: Callable[[Values, Values], Any]) -> Bools:
    if bool(flags.all()):
        return np.asarray(test(*alike(a, b)), bool)
    out = np.zeros(len(flags), bool)
    if bool(flags.any()):
        left, right = alike(a[flags], b[flags])
        out[flags] = np.asarray(test(left, right), bool)
    return out


def alike(a: Values, b: Values) -> tuple[Values, Values]:
    # int64 with uint64 would meet as doubles.
    return (a, b) if a.dtype == b.dtype else (a.astype(object), b.astype(object))
