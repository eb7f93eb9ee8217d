"""What bounds and counts prove of a predicate, unit by unit, vectorised.

Only the claims of `Bounds` are used. What is not claimed may be: a value anywhere, a null, a NaN (which
is above every number, so an upper bound does not bound it).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from accel.format.domain import Bounds
from accel.predicate.atoms import (
    Against,
    AllOf,
    Among,
    AnyOf,
    Bound,
    Fixed,
    IsTrue,
    Matches,
    Negation,
    Node,
    Null,
    Order,
    Pair,
    Pattern,
    Truth,
)
from accel.predicate.claims import Claims, alike, claims_of, where_both, where_flagged
from accel.predicate.evidence import Evidence

if TYPE_CHECKING:
    from accel.arrays import Bools

__all__ = ["Witness", "prune"]

Values: TypeAlias = npt.NDArray[Any]
Witness: TypeAlias = Callable[[Node], Evidence | None]
"""What indexes know of a part of the tree, by unit; None where they cannot say."""


def prune(
    bound: Bound,
    bounds: Mapping[tuple[str, ...], Bounds],
    n: int,
    *,
    witness: Witness | None = None,
) -> Evidence:
    """Which outcomes the predicate may have in each of n units.

    Parameters
    ----------
    bound : Bound
        The predicate.
    bounds : Mapping of tuple of str to Bounds
        By column path, each of n units and in the ticks of the column's bound type; a column that is
        missing is unknown.
    n : int
        Units.
    witness : callable, optional
        Asked for every part of the tree; what it rules out is ruled out besides what bounds do. Where the
        two leave no outcome at all, one of them is wrong, and the bounds alone are believed.

    Raises
    ------
    ValueError
        Bounds that are not of n units.
    """
    for path, claims in bounds.items():
        if len(claims) != n:
            raise ValueError(f"bounds of {'.'.join(path)!r} have {len(claims)} units, not {n}")
    return _Units(bound, bounds, n, witness).node(bound.root)


class _Units:
    def __init__(
        self, bound: Bound, bounds: Mapping[tuple[str, ...], Bounds], n: int, witness: Witness | None
    ) -> None:
        self.witness = witness
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
        known = None if self.witness is None else self.witness(node)
        if known is None:
            return claimed
        both = claimed.meet(known)
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
        result = self.node(operands[0])
        for operand in operands[1:]:
            result = combine(result, self.node(operand))
        return result

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
        # Wrapped, or numpy would strip the trailing zeros of bytes and round large integers.
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
    # The keys that stand in [lower, upper] are a run of the sorted keys.
    low, high = claims.has_lower, claims.has_upper
    if claims.bounded:
        inside = _search(keys, claims.upper, "right") - _search(keys, claims.lower, "left")
    else:
        first = np.zeros(len(claims.plain), np.int64)
        stop = np.full(len(claims.plain), len(keys), np.int64)
        first[low] = _search(keys, claims.lower[low], "left")
        stop[high] = _search(keys, claims.upper[high], "right")
        inside = stop - first
    some = inside > 0
    may_true = claims.plain & some
    single = where_both(low if claims.bounded else low & high, claims.lower, claims.upper, np.equal)
    every = single & some
    if keys.dtype.kind in "iu" and claims.lower.dtype.kind in "iu":
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
        # All between two values that start with the prefix start with it.
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
    keys, points = alike(keys, points)
    found: Values = keys.searchsorted(points, side)
    return found


def _starting(values: Values, prefix: bytes) -> Bools:
    return np.fromiter((value.startswith(prefix) for value in values), bool, len(values))
