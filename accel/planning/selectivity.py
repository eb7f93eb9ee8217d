"""How many rows a predicate is expected to leave: a guess, for choosing how to read, never for what.

From embedded sketches where a column has one, else from chunk statistics and rules of thumb. Nothing here may drop
a row; a wrong guess costs a round trip, or bytes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from accel.format.domain import Bounds, Domain
from accel.indexes.question import question_of
from accel.indexes.sketch import ParsedSketch
from accel.planning.handle import FileHandle
from accel.planning.query import FileQuery
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
    Truth,
)
from accel.records import dataclass

__all__ = ["expected_share"]

# Rules of thumb, where nothing is known: the fraction of values that pass.
_EQUAL = 0.02
_BELOW = 0.3
_LIKE = 0.05
_IS_NULL = 0.05
# Of a text as much as orders it, as a number.
_PLACE_BYTES = 6


def expected_share(
    handle: FileHandle,
    query: FileQuery,
    *,
    row_group: int,
    doubtful: int,
    sketches: Mapping[tuple[str, ...], ParsedSketch],
) -> float:
    """The fraction, 0 to 1, of the rows in doubt that are expected to match.

    Parameters
    ----------
    row_group : int
    doubtful : int
        How many rows of it the metadata left in doubt: all rows that match are taken to be among them.
    sketches : mapping
        By column path, those that are at hand.
    """
    if query.bound is None or doubtful <= 0:
        return 1.0
    rows = int(handle.metadata.group_rows[row_group])
    columns = [_Column.of(handle, query, column.path, row_group, sketches) for column in query.bound.columns]
    share = _Guess(query.bound, columns).node(query.bound.root)
    return min(1.0, max(0.0, share) * rows / doubtful)


@dataclass(frozen=True, slots=True)
class _Column:
    """What is known of a column's values in one row group."""

    nulls: float
    """The fraction of nulls."""
    values: int
    lower: float | None
    upper: float | None
    discrete: bool
    """Values are whole numbers: a range holds no more distinct ones than it is wide."""
    sketch: ParsedSketch | None

    @classmethod
    def of(
        cls,
        handle: FileHandle,
        query: FileQuery,
        path: tuple[str, ...],
        row_group: int,
        sketches: Mapping[tuple[str, ...], ParsedSketch],
    ) -> _Column:
        rows = handle.metadata.group_rows.item(row_group)
        leaf = next((leaf for plain, leaf, _ in query.prunable if plain == path), None)
        bounds = None if leaf is None else handle.chunk_bounds.get(leaf)
        sketch = sketches.get(path)
        if bounds is None:
            return cls(0.0, rows, None, None, False, sketch)
        nulls = max(0, bounds.null_count.item(row_group))
        return cls(
            nulls / max(1, rows),
            rows - nulls,
            _bound(bounds, bounds.lower, bounds.has_lower, row_group),
            _bound(bounds, bounds.upper, bounds.has_upper, row_group),
            bounds.domain is Domain.INTEGER or bounds.domain is Domain.BOOLEAN,
            sketch,
        )

    def equal(self) -> float:
        """Of the values, those equal to a given one."""
        if self.discrete and self.lower is not None and self.upper is not None:
            width = self.upper - self.lower + 1
            return 1.0 / max(1.0, min(width, self.values))
        return _EQUAL

    def below(self, at: float) -> float:
        """Of the values, those not above a point."""
        lower, upper = self.lower, self.upper
        if lower is None or upper is None or not math.isfinite(upper - lower):
            return _BELOW
        if upper <= lower:
            return 1.0 if at >= lower else 0.0
        return min(1.0, max(0.0, (at - lower) / (upper - lower)))


def _bound(bounds: Bounds, values: Any, known: Any, row_group: int) -> float | None:
    if bounds.domain is Domain.NONE or not known.item(row_group):
        return None
    return _place(values.item(row_group))


def _place(value: Any) -> float | None:
    """A native value on the number line, in the order of its domain."""
    if type(value) is float:
        return value
    if isinstance(value, bytes):
        return float(int.from_bytes(value[:_PLACE_BYTES].ljust(_PLACE_BYTES, b"\0"), "big"))
    try:
        return float(value)
    except (OverflowError, TypeError, ValueError):
        return None


class _Guess:
    """One walk over a bound tree; every node gives the fraction of rows that it is TRUE for."""

    def __init__(self, bound: Bound, columns: list[_Column]) -> None:
        self.bound = bound
        self.columns = columns

    def node(self, node: Node) -> float:
        match node:
            case Truth():
                return 1.0 if node.value else 0.0
            case AllOf():
                return self.all_of(node.operands)
            case AnyOf():
                return 1.0 - math.prod(1.0 - self.node(operand) for operand in node.operands)
            case IsTrue():
                return self.node(node.operand)
            case Negation():
                # Where the operand is NULL, so is this.
                return max(0.0, 1.0 - self.node(node.operand) - self.nulls(node.operand))
            case Pair():
                return _EQUAL if node.order is Order.EQ else _BELOW
            case _:
                return self.atom(node)

    def all_of(self, operands: Iterable[Node]) -> float:
        """Independent but for the two ends of a range over one column, which overlap."""
        upper: dict[int, float] = {}
        lower: dict[int, float] = {}
        share = 1.0
        for operand in operands:
            inner = operand.operand if isinstance(operand, Negation) else operand
            guess = self.node(operand)
            if isinstance(inner, Against) and inner.order is not Order.EQ:
                ends = lower if isinstance(operand, Negation) else upper
                ends[inner.column] = min(ends.get(inner.column, 1.0), guess)
            else:
                share *= guess
        both: defaultdict[int, list[float]] = defaultdict(list)
        for ends in (upper, lower):
            for column, guess in ends.items():
                both[column].append(guess)
        for column, guesses in both.items():
            present = 1.0 - self.columns[column].nulls
            share *= max(0.0, sum(guesses) - present) if len(guesses) == 2 else guesses[0]
        return share

    def nulls(self, node: Node) -> float:
        match node:
            case Null() | IsTrue() | Truth() | Pair():
                return 0.0
            case AllOf() | AnyOf():
                return max((self.nulls(operand) for operand in node.operands), default=0.0)
            case Negation():
                return self.nulls(node.operand)
            case _:
                return self.columns[node.column].nulls

    def atom(self, node: Null | Fixed | Against | Among | Matches) -> float:
        column = self.columns[node.column]
        if column.sketch is not None:
            question = question_of(node, self.bound.columns[node.column])
            if question is not None:
                return column.sketch.selectivity(question)
        present = 1.0 - column.nulls
        match node:
            case Null():
                return column.nulls if column.nulls or column.lower is not None else _IS_NULL
            case Fixed():
                return present if node.value else 0.0
            case Matches():
                return self._like(column, node) * present
            case Among():
                return min(1.0, len(node.keys.sorted) * column.equal()) * present
            case Against():
                if node.order is Order.EQ:
                    return column.equal() * present
                at = _place(node.value)
                return (_BELOW if at is None else column.below(at)) * present

    @staticmethod
    def _like(column: _Column, node: Matches) -> float:
        """A prefix is a range; the rest is a guess."""
        pattern = node.pattern
        if not pattern.lower or pattern.upper is None:
            return _LIKE
        low, high = _place(pattern.lower), _place(pattern.upper)
        if low is None or high is None or column.lower is None:
            return _LIKE
        share = column.below(high) - column.below(low)
        # No more than a value, where the bounds lie apart in what is looked at of them.
        apart = column.upper is not None and column.upper > column.lower
        return max(share, 1.0 / max(1, column.values) if apart else column.equal())
