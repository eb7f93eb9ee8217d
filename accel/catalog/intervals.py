"""What a predicate says of one column in the order of `bound_bytes`, so that a database compares it by its
own index.

Every row that matches has a value in one of the intervals of each column that has any. A column without
intervals may have any value, or none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from accel.format.domain import Domain
from accel.indexes.bound_bytes import End, encode_bounds, encode_natives
from accel.predicate.atoms import (
    Against,
    AllOf,
    Among,
    Bound,
    IsTrue,
    Matches,
    Negation,
    Node,
    Order,
)
from accel.predicate.kinds import Kind

__all__ = ["HIGHEST", "LOWEST", "Interval", "required_intervals"]

LOWEST: Final = b""
"""Not above the encoding of any value."""
HIGHEST: Final = b"\xff" * 65
"""Above the encoding of every value."""
_MOST_INTERVALS: Final = 32
"""Intervals of a column; of more, neighbours are taken together."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Values whose encodings lie between two, both included."""

    lower: bytes = LOWEST
    upper: bytes = HIGHEST

    def meet(self, other: Interval) -> Interval | None:
        """Return what is in both; None where nothing is."""
        lower, upper = max(self.lower, other.lower), min(self.upper, other.upper)
        return Interval(lower, upper) if lower <= upper else None


def required_intervals(bound: Bound) -> Mapping[int, Sequence[Interval]]:
    """Return the intervals in which the values of columns lie in every row that matches.

    Parameters
    ----------
    bound : Bound
        The predicate.

    Returns
    -------
    mapping of int to sequence of Interval
        By the ordinal of the column in `bound`, ascending and apart from each other; no interval at all where
        no row can match. NaN lies in none, so that a column of floats has only intervals that exclude it.
    """
    found: dict[int, Sequence[Interval]] = {}
    for column, intervals in _required(bound.root, bound):
        before = found.get(column, (Interval(),))
        both = (a.meet(b) for a in before for b in intervals)
        found[column] = _merged([each for each in both if each is not None])
    # Where NaN may match, what has no upper end matches it too: it is above every number.
    return {
        column: intervals
        for column, intervals in found.items()
        if not _is_open(bound.columns[column].kind, intervals)
    }


def _is_open(kind: Kind, intervals: Sequence[Interval]) -> bool:
    """Return whether the intervals do not limit the values of a column."""
    if kind.domain is Domain.FLOAT and any(each.upper == HIGHEST for each in intervals):
        return True
    return kind.domain is Domain.NONE or Interval() in intervals


def _required(node: Node, bound: Bound) -> Iterator[tuple[int, Sequence[Interval]]]:
    match node:
        case AllOf():
            for operand in node.operands:
                yield from _required(operand, bound)
        case IsTrue():
            yield from _required(node.operand, bound)
        case Against(column=column, order=order, value=value):
            kind = bound.columns[column].kind
            lower, upper = _encoded(value, kind)
            if lower is not None and upper is not None:
                yield column, (Interval(lower if order is Order.EQ else LOWEST, upper),)
        case Negation(operand=Against(column=column, order=(Order.LT | Order.LE) as order, value=value)):
            kind = bound.columns[column].kind
            # The next integer is the least that is above.
            is_next = isinstance(value, int) and kind.domain is Domain.INTEGER and order is Order.LE
            above = int(value) + 1 if is_next else value
            lower, _ = _encoded(above, kind)
            if lower is not None:
                yield column, (Interval(lower, HIGHEST),)
        case Among(column=column) if not node.keys.nan:
            keys, kind = node.keys.sorted, bound.columns[column].kind
            has = np.ones(len(keys), bool)
            lowers = encode_bounds(keys, has, kind=kind, end=End.LOWER).to_pylist()
            uppers = encode_bounds(keys, has, kind=kind, end=End.UPPER).to_pylist()
            ends = zip(lowers, uppers, strict=True)
            yield (
                column,
                _merged([Interval(lower, HIGHEST if upper is None else upper) for lower, upper in ends]),
            )
        case Matches(column=column, pattern=pattern):
            kind = bound.columns[column].kind
            lower, _ = _encoded(pattern.lower, kind)
            upper = HIGHEST if pattern.upper is None else _encoded(pattern.upper, kind)[1]
            if lower is not None and upper is not None:
                yield column, (Interval(lower, upper),)
        case _:
            pass


def _encoded(value: Any, kind: Kind) -> tuple[bytes | None, bytes | None]:
    """Return a native value as the lower and the upper end of an interval; None where it has no encoding."""
    if isinstance(value, float) and math.isnan(value):
        return None, None
    (lower,), (upper,) = (encode_natives([value], kind, end) for end in (End.LOWER, End.UPPER))
    # Of text that is cut and cannot be raised there is nothing above.
    return lower, HIGHEST if upper is None and lower is not None else upper


def _merged(intervals: Sequence[Interval]) -> Sequence[Interval]:
    """Return the same values, or more, in few intervals that are apart from each other."""
    apart: list[Interval] = []
    for each in sorted(intervals, key=lambda one: one.lower):
        if apart and each.lower <= apart[-1].upper:
            apart[-1] = Interval(apart[-1].lower, max(apart[-1].upper, each.upper))
        else:
            apart.append(each)
    size = math.ceil(len(apart) / _MOST_INTERVALS)
    if size <= 1:
        return apart
    groups = [apart[start : start + size] for start in range(0, len(apart), size)]
    return [Interval(group[0].lower, group[-1].upper) for group in groups]
