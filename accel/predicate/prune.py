"""Pruning: which outcomes of a predicate the bounds of its columns leave possible, for many units at once.

A unit is a file, a row group, a page or a range of rows. Whatever its bounds and counts do not rule out may
occur: any value, a null, a NaN (which is above every number, so an upper bound does not bound it).
"""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from accel.format.domain import Bounds, Domain
from accel.predicate.atoms import (
    Against,
    AllOf,
    Among,
    AnyOf,
    Bound,
    BoundColumn,
    Fixed,
    IsTrue,
    Kernel,
    Matches,
    Negation,
    Node,
    Null,
    Order,
    Pair,
    Pattern,
    Truth,
    column_tested,
)

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s

__all__ = [
    "Evidence",
    "IndexEvidence",
    "Verdict",
    "prune",
]

Values: TypeAlias = npt.NDArray[Any]


class Verdict(enum.IntEnum):
    """The result of pruning for one unit."""

    NONE = 0
    """No row can make the predicate true: drop the unit."""
    SOME = 1
    """Some rows may, others may not: the exact filter decides."""
    ALL = 2
    """Every row makes it true: no filter column is needed."""


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """Which outcomes of a three-valued predicate are possible in each unit.

    Closed under NOT (swap true and false), AND and OR. All three set means unknown.
    """

    may_true: Bools
    """Units in which the predicate may be true."""
    may_false: Bools
    """Units in which it may be false."""
    may_null: Bools
    """Units in which it may be null."""

    @classmethod
    def unknown(cls, n: int) -> Evidence:
        """Return evidence that rules out nothing.

        Parameters
        ----------
        n : int
            The number of units.

        Returns
        -------
        Evidence
            All outcomes are possible in each unit.
        """
        return cls(np.ones(n, bool), np.ones(n, bool), np.ones(n, bool))

    def __len__(self) -> int:
        return len(self.may_true)

    def part(self, begin: int, end: int) -> Evidence:
        """Cut out a half-open range of the units.

        Parameters
        ----------
        begin, end : int
            The range.

        Returns
        -------
        Evidence
            The evidence of these units.
        """
        return Evidence(self.may_true[begin:end], self.may_false[begin:end], self.may_null[begin:end])

    def take(self, units: Int64s) -> Evidence:
        """Choose units.

        Parameters
        ----------
        units : int64 array
            Their places.

        Returns
        -------
        Evidence
            The evidence of these units, in their order.
        """
        return Evidence(self.may_true[units], self.may_false[units], self.may_null[units])

    def meet(self, other: Evidence) -> Evidence:
        """Combine two pieces of evidence about one predicate.

        Parameters
        ----------
        other : Evidence
            The other piece.

        Returns
        -------
        Evidence
            The outcomes that both leave possible.
        """
        return Evidence(
            self.may_true & other.may_true, self.may_false & other.may_false, self.may_null & other.may_null
        )

    def __invert__(self) -> Evidence:
        return Evidence(self.may_false, self.may_true, self.may_null)

    def __and__(self, other: Evidence) -> Evidence:
        # Per-row outcomes of the two sides are not known to be independent: allow every combination.
        return Evidence(
            self.may_true & other.may_true,
            self.may_false | other.may_false,
            (self.may_null & (other.may_null | other.may_true)) | (other.may_null & self.may_true),
        )

    def __or__(self, other: Evidence) -> Evidence:
        return Evidence(
            self.may_true | other.may_true,
            self.may_false & other.may_false,
            (self.may_null & (other.may_null | other.may_false)) | (other.may_null & self.may_false),
        )

    def verdicts(self) -> npt.NDArray[np.int8]:
        """Judge each unit.

        Returns
        -------
        int8 array
            One `Verdict` per unit.
        """
        surely = self.may_true & ~(self.may_false | self.may_null)
        return self.may_true.astype(np.int8) + surely  # 0, 1 and 2 are NONE, SOME and ALL


IndexEvidence: TypeAlias = Callable[[Node], Evidence | None]
"""Returns what indexes prove of a part of the tree, for each unit; None where they cannot answer."""


def prune(
    bound: Bound,
    bounds: Mapping[tuple[str, ...], Bounds],
    n: int,
    *,
    index_evidence: IndexEvidence | None = None,
) -> Evidence:
    """Return the outcomes that the predicate may have in each of n units.

    Parameters
    ----------
    bound : Bound
        The predicate.
    bounds : Mapping of tuple of str to Bounds
        The bounds of each column by path, for n units and in the ticks of the column's bound type; a
        missing column has no bounds.
    n : int
        Units.
    index_evidence : callable, optional
        Called for every part of the tree; what it rules out is ruled out in addition to what the bounds
        rule out. Where the two together leave no outcome, one of them is wrong, and only the bounds count.

    Raises
    ------
    ValueError
        Bounds have another number of units.
    """
    for path, claims in bounds.items():
        if len(claims) != n:
            raise ValueError(f"bounds of {'.'.join(path)!r} have {len(claims)} units, not {n}")
    return _Units(bound, bounds, n, index_evidence).node(bound.root)


class _Units:
    def __init__(
        self,
        bound: Bound,
        bounds: Mapping[tuple[str, ...], Bounds],
        n: int,
        index_evidence: IndexEvidence | None,
    ) -> None:
        self.index_evidence = index_evidence
        self.bound = bound
        self.bounds = bounds
        self.n = n
        self._claims: dict[int, Claims] = {}

    def claims(self, column: int) -> Claims:
        found = self._claims.get(column)
        if found is None:
            named = self.bound.columns[column]
            found = self._claims[column] = claims_of(named, self.bounds.get(named.path), n=self.n)
        return found

    def node(self, node: Node) -> Evidence:
        claimed = self.combined(node)
        indexed = None if self.index_evidence is None else self.index_evidence(node)
        if indexed is None:
            return claimed
        both = claimed.meet(indexed)
        nothing = ~(both.may_true | both.may_false | both.may_null)
        return Evidence(
            np.where(nothing, claimed.may_true, both.may_true),
            np.where(nothing, claimed.may_false, both.may_false),
            np.where(nothing, claimed.may_null, both.may_null),
        )

    def combined(self, node: Node) -> Evidence:
        match node:
            case AllOf():
                return self.fold(node.operands, lambda a, b: a & b)
            case AnyOf():
                return self.fold(node.operands, lambda a, b: a | b)
            case Negation():
                return ~self.node(node.operand)
            case IsTrue():
                inner = self.node(node.operand)
                return Evidence(inner.may_true, inner.may_false | inner.may_null, np.zeros(self.n, bool))
            case Truth():
                flags = [np.full(self.n, node.value is answer) for answer in (True, False, None)]
                return Evidence(flags[0], flags[1], flags[2])
            case Pair():
                return self.pair(node)
            case Kernel():
                return Evidence.unknown(self.n)
            case _:
                return self.claimed(node)

    def claimed(self, node: Node) -> Evidence:
        match node:
            case Null():
                claims = self.claims(node.column)
                return Evidence(claims.null, claims.value, np.zeros(self.n, bool))
            case Fixed():
                claims, nothing = self.claims(node.column), np.zeros(self.n, bool)
                if node.value:
                    return claims.evidence(claims.value, nothing)
                return claims.evidence(nothing, claims.value)
            case Against():
                return _test(self.claims(node.column), node.order, node.value)
            case Among():
                return _among(self.claims(node.column), node)
            case Matches():
                return _matches(self.claims(node.column), node.pattern)
        raise TypeError(f"{type(node).__name__} is no bound predicate")

    def fold(self, operands: tuple[Node, ...], combine: Callable[[Evidence, Evidence], Evidence]) -> Evidence:
        tested = [column_tested(operand) for operand in operands]
        twice = {
            column
            for column in tested
            if column is not None and tested.count(column) > 1 and bool(self.claims(column).nan.any())
        }
        parts = [
            self.node(operand)
            for operand, column in zip(operands, tested, strict=True)
            if column not in twice
        ]
        for column in twice:
            some = [operand for operand, of in zip(operands, tested, strict=True) if of == column]
            parts.append(self.without_and_with_nan(column, some, combine))
        return functools.reduce(combine, parts)

    def without_and_with_nan(
        self, column: int, operands: Sequence[Node], combine: Callable[[Evidence, Evidence], Evidence]
    ) -> Evidence:
        """Judge several comparisons of one column for its numbers and nulls, and again for its NaN.

        One that a NaN passes does not say which: `x >= 1 AND x <= 2` would hold nothing against units of
        smaller numbers that may have a NaN, as that passes the first, and the numbers the second.
        """
        claims, nothing = self.claims(column), np.zeros(self.n, bool)
        cases = []
        try:
            for case in (
                replace(claims, nan=nothing),
                replace(claims, plain=nothing, null=nothing),
            ):
                self._claims[column] = case
                cases.append(functools.reduce(combine, map(self.node, operands)))
        finally:
            self._claims[column] = claims
        a, b = cases
        return Evidence(a.may_true | b.may_true, a.may_false | b.may_false, a.may_null | b.may_null)

    def pair(self, node: Pair) -> Evidence:
        left, right = self.bound.columns[node.left], self.bound.columns[node.right]
        a, b = self.claims(node.left), self.claims(node.right)
        if left.kind.domain is not right.kind.domain or left.kind.step != right.kind.step:
            nothing = np.zeros(self.n, bool)
            a = Claims(a.domain, a.lower, a.upper, nothing, nothing, a.null, a.plain, a.nan)
        return _pair(a, b, node.order)


def _test(claims: Claims, order: Order, value: bool | float | bytes) -> Evidence:
    if isinstance(value, float) and math.isnan(value):
        return claims.evidence(claims.nan, claims.plain)
    point: Any = value
    if isinstance(value, bool) or not isinstance(value, int):
        # As an array, because numpy scalars strip the trailing zeros of bytes and round large integers.
        point = np.array([value], object if isinstance(value, bytes) else None)
    return _test_point(claims, order, point)


def _test_point(claims: Claims, order: Order, point: Any) -> Evidence:
    if order is Order.LE:
        true, false = claims.below(lambda low: low <= point), claims.above(lambda high: high > point)
    elif order is Order.LT:
        true, false = claims.below(lambda low: low < point), claims.above(lambda high: high >= point)
    else:
        true = claims.below(lambda low: low <= point) & claims.above(lambda high: high >= point)
        false = claims.plain & ~claims.single(point)
    return claims.evidence(true, false | claims.nan)


def _among(claims: Claims, node: Among) -> Evidence:
    keys = node.keys.sorted
    # The keys within [lower, upper] are consecutive in the sorted keys.
    low, high = claims.has_lower, claims.has_upper
    first = np.zeros(len(claims.plain), np.int64)
    stop = np.full(len(claims.plain), len(keys), np.int64)
    first[low] = _search(keys, claims.lower[low], "left")
    stop[high] = _search(keys, claims.upper[high], "right")
    inside = stop - first
    some = inside > 0
    may_true = claims.plain & some
    single = where_both(low & high, claims.lower, claims.upper, np.equal)
    every = single & some
    if all(values.dtype.kind in "iu" for values in (keys, claims.lower, claims.upper)):
        # As many keys as there are integers between the bounds: every value is a key.
        width = claims.upper.astype(np.uint64) - claims.lower.astype(np.uint64)
        every |= low & high & some & (width == (inside - 1).astype(np.uint64))
    miss = claims.plain & ~every
    if node.keys.nan:
        may_true = may_true | claims.nan
    else:
        miss = miss | claims.nan
    if node.with_null:
        return Evidence(may_true, np.zeros(len(miss), bool), claims.null | miss)
    return claims.evidence(may_true, miss)


def _matches(claims: Claims, pattern: Pattern) -> Evidence:
    lower, upper = np.array([pattern.lower], object), np.array([pattern.upper], object)
    may_true = claims.above(lambda high: high >= lower)
    if pattern.upper is not None:
        may_true &= claims.below(lambda low: low < upper)
    may_false = claims.plain
    prefix = pattern.prefix
    if prefix is not None:
        # All values between two that start with the prefix start with it too.
        starts = where_flagged(claims.has_lower, claims.lower, test=lambda low: _starting(low, prefix))
        ends = where_flagged(claims.has_upper, claims.upper, test=lambda high: _starting(high, prefix))
        may_false = may_false & ~(starts & ends)
    return claims.evidence(may_true, may_false)


def _pair(a: Claims, b: Claims, order: Order) -> Evidence:
    both = a.plain & b.plain
    low_high = (a.has_lower & b.has_upper, a.lower, b.upper)
    high_low = (a.has_upper & b.has_lower, a.upper, b.lower)
    if order is Order.EQ:
        may_true = both & ~where_both(*low_high, np.greater) & ~where_both(*high_low, np.less)
        may_true |= a.nan & b.nan
        same = where_both(*low_high, np.equal) & where_both(*high_low, np.equal)
        same &= where_both(a.has_lower & a.has_upper, a.lower, a.upper, np.equal)
        may_false = both & ~same | a.nan & b.plain | a.plain & b.nan
    else:
        strict = order is Order.LT
        may_true = both & ~where_both(*low_high, np.greater_equal if strict else np.greater)
        may_true |= (a.plain if strict else a.value) & b.nan
        may_false = both & ~where_both(*high_low, np.less if strict else np.less_equal)
        may_false |= a.nan & (b.value if strict else b.plain)
    may_null = (a.null & (b.null | b.value)) | (b.null & a.value)
    return Evidence(may_true, may_false, may_null)


def _search(keys: Values, points: Values, side: Any) -> Values:
    keys, points = same_dtype(keys, points)
    found: Values = keys.searchsorted(points, side)
    return found


def _starting(values: Values, prefix: bytes) -> Bools:
    return np.fromiter((value.startswith(prefix) for value in values), bool, len(values))


@dataclass(frozen=True, slots=True, eq=False)
class Claims:
    """What may occur in each unit of one column, by its bounds and counts."""

    domain: Domain
    """The domain in which the predicate compares the column."""
    lower: Values
    upper: Values
    has_lower: Bools
    has_upper: Bools
    null: Bools
    """A null may occur."""
    plain: Bools
    """A value that is neither null nor NaN may occur."""
    nan: Bools

    @property
    def value(self) -> Bools:
        return self.plain | self.nan

    def below(self, test: Callable[[Values], Any]) -> Bools:
        """Return where the lower bound passes, or is unknown."""
        return self._may(self.has_lower, self.lower, test)

    def above(self, test: Callable[[Values], Any]) -> Bools:
        """Return where the upper bound passes, or is unknown."""
        return self._may(self.has_upper, self.upper, test)

    def single(self, point: Any) -> Bools:
        """Return where both bounds are this value."""
        same = where_flagged(self.has_lower, self.lower, test=lambda low: low == point)
        return same & where_flagged(self.has_upper, self.upper, test=lambda high: high == point)

    def _may(self, has_bound: Bools, bounds: Values, test: Callable[[Values], Any]) -> Bools:
        return self.plain & (~has_bound | where_flagged(has_bound, bounds, test=test))

    def evidence(self, may_true: Bools, may_false: Bools) -> Evidence:
        return Evidence(may_true, may_false, self.null)


def claims_of(column: BoundColumn, given: Bounds | None, *, n: int) -> Claims:
    """Return what bounds claim of a column in each of n units; None are no bounds."""
    domain = column.kind.domain
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
            consistent = (nulls >= 0) & (total >= 0) & (nulls <= total)
            plain = value & ~(consistent & counted & (nans == total - nulls))
    else:
        nan, plain = np.zeros(n, bool), value
    has_lower, has_upper = given.has_lower, given.has_upper
    if given.domain is not domain:
        has_lower = has_upper = np.zeros(n, bool)
    # Bounds that contradict each other claim nothing.
    uncrossed = ~where_both(has_lower & has_upper, given.lower, given.upper, np.greater)
    has_lower, has_upper = has_lower & uncrossed, has_upper & uncrossed
    return Claims(domain, given.lower, given.upper, has_lower, has_upper, null, plain, nan)


def where_flagged(flags: Bools, values: Values, *, test: Callable[[Values], Any]) -> Bools:
    """Apply the test where flagged; other values are not read and give False."""
    flagged = np.count_nonzero(flags)
    if flagged == len(flags):
        return np.asarray(test(values), bool)
    out = np.zeros(len(flags), bool)
    if flagged:
        out[flags] = np.asarray(test(values[flags]), bool)
    return out


def where_both(flags: Bools, a: Values, b: Values, test: Callable[[Values, Values], Any]) -> Bools:
    """Apply a test of two arrays where flagged, else False."""
    flagged = np.count_nonzero(flags)
    if flagged == len(flags):
        return np.asarray(test(*same_dtype(a, b)), bool)
    out = np.zeros(len(flags), bool)
    if flagged:
        left, right = same_dtype(a[flags], b[flags])
        out[flags] = np.asarray(test(left, right), bool)
    return out


def same_dtype(a: Values, b: Values) -> tuple[Values, Values]:
    """Return both arrays in a type that compares exactly: numpy would compare int64 with uint64 as
    doubles."""
    return (a, b) if a.dtype == b.dtype else (a.astype(object), b.astype(object))
