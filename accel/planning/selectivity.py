"""How the values of a column lie in one row group, as far as its statistics tell: for guesses, never for a
verdict."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from accel.format.domain import Bounds, Domain
from accel.indexes.question import question_of
from accel.indexes.sketch import ParsedSketch
from accel.planning.handle import FileHandle, FileView
from accel.planning.query import FileQuery
from accel.predicate.atoms import (
    Against,
    AllOf,
    Among,
    AnyOf,
    Bound,
    Fixed,
    IsTrue,
    Kernel,
    Matches,
    Negation,
    Node,
    Null,
    Order,
    Pair,
    Truth,
)

__all__ = [
    "BELOW",
    "EQUAL",
    "Selectivity",
    "Spread",
    "place_of",
    "spread_of",
]

EQUAL = 0.02
"""The fraction of values that equal another, where nothing is known."""
BELOW = 0.3
"""The fraction of values on one side of another, where nothing is known."""
# The leading bytes of a text that place it on the number line.
_PLACE_BYTES = 6


@dataclass(frozen=True, slots=True)
class Spread:
    """The values of one column in one row group, between two bounds."""

    nulls: float
    """The fraction of nulls."""
    values: int
    lower: float | None
    upper: float | None
    discrete: bool
    """Values are whole numbers: a range holds no more distinct ones than it is wide."""

    def equal(self) -> float:
        """Return the fraction of the values that equal a given one."""
        if self.discrete and self.lower is not None and self.upper is not None:
            width = self.upper - self.lower + 1
            return 1.0 / max(1.0, min(width, self.values))
        return EQUAL

    def below(self, at: float) -> float:
        """Return the fraction of the values that are not above a point."""
        lower, upper = self.lower, self.upper
        if lower is None or upper is None or not math.isfinite(upper - lower):
            return BELOW
        if upper <= lower:
            return 1.0 if at >= lower else 0.0
        return min(1.0, max(0.0, (at - lower) / (upper - lower)))


def spread_of(view: FileView, row_group: int, leaf: int | None) -> Spread:
    """Return the spread of a leaf's chunk; without a leaf, or statistics in memory, one that holds for any
    column."""
    rows = view.metadata.group_rows.item(row_group)
    bounds = None if leaf is None else view.chunk_bounds.get(leaf)
    if bounds is None:
        return Spread(0.0, rows, None, None, False)
    nulls = max(0, bounds.null_count.item(row_group))
    return Spread(
        nulls / max(1, rows),
        rows - nulls,
        _bound(bounds, bounds.lower, bounds.has_lower, row_group),
        _bound(bounds, bounds.upper, bounds.has_upper, row_group),
        bounds.domain is Domain.INTEGER or bounds.domain is Domain.BOOLEAN,
    )


def _bound(bounds: Bounds, values: Any, has_value: Any, row_group: int) -> float | None:
    if bounds.domain is Domain.NONE or not has_value.item(row_group):
        return None
    return place_of(values.item(row_group))


def place_of(value: Any) -> float | None:
    """Return a native value on the number line, in the order of its domain; None where it has no place."""
    if type(value) is float:
        return value
    if isinstance(value, bytes):
        return float(int.from_bytes(value[:_PLACE_BYTES].ljust(_PLACE_BYTES, b"\0"), "big"))
    try:
        return float(value)
    except (OverflowError, TypeError, ValueError):
        return None


# Rules of thumb, where nothing is known: the fraction of values that pass.
_LIKE = 0.05
_IS_NULL = 0.05


class Selectivity:
    """How selective a predicate is expected to be over a file's row groups."""

    def __init__(self, handle: FileHandle, query: FileQuery) -> None:
        self._handle = handle
        self._bound = query.bound
        leaves = {path: leaf for path, leaf, _ in query.prunable}
        columns = () if query.bound is None else query.bound.columns
        self._columns = [(column.path, leaves.get(column.path)) for column in columns]

    def share(
        self, row_group: int, *, doubtful: int, sketches: Mapping[tuple[str, ...], ParsedSketch]
    ) -> float:
        """Return the fraction, 0 to 1, of the undecided rows that are expected to match.

        Parameters
        ----------
        row_group : int
        doubtful : int
            How many rows of it the metadata left undecided: all rows that match are taken to be among them.
        sketches : mapping
            By column path, those that are in memory.
        """
        if self._bound is None or doubtful <= 0:
            return 1.0
        view = self._handle.view
        rows = view.metadata.group_rows.item(row_group)
        columns = [(spread_of(view, row_group, leaf), sketches.get(path)) for path, leaf in self._columns]
        share = _Guess(self._bound, columns).node(self._bound.root)
        return min(1.0, max(0.0, share) * rows / doubtful)


class _Guess:
    """One walk over a bound tree; every node gives the fraction of rows that it is TRUE for."""

    def __init__(self, bound: Bound, columns: list[tuple[Spread, ParsedSketch | None]]) -> None:
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
            case Kernel():
                return BELOW
            case Pair():
                return EQUAL if node.order is Order.EQ else BELOW
            case _:
                return self.atom(node)

    def all_of(self, operands: Iterable[Node]) -> float:
        """Guess the share of an AND.

        Operands are taken to be independent, but for the two ends of a range over one column, which overlap.
        """
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
            present = 1.0 - self.columns[column][0].nulls
            share *= max(0.0, sum(guesses) - present) if len(guesses) == 2 else guesses[0]
        return share

    def nulls(self, node: Node) -> float:
        match node:
            case Null() | IsTrue() | Truth() | Pair() | Kernel():
                return 0.0
            case AllOf() | AnyOf():
                return max((self.nulls(operand) for operand in node.operands), default=0.0)
            case Negation():
                return self.nulls(node.operand)
            case _:
                return self.columns[node.column][0].nulls

    def atom(self, node: Null | Fixed | Against | Among | Matches) -> float:
        column, sketch = self.columns[node.column]
        if sketch is not None:
            question = question_of(node, self.bound.columns[node.column])
            if question is not None:
                return sketch.selectivity(question)
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
                at = place_of(node.value)
                return (BELOW if at is None else column.below(at)) * present

    @staticmethod
    def _like(column: Spread, node: Matches) -> float:
        """Guess the share of a LIKE: a prefix is a range."""
        pattern = node.pattern
        if not pattern.lower or pattern.upper is None:
            return _LIKE
        low, high = place_of(pattern.lower), place_of(pattern.upper)
        if low is None or high is None or column.lower is None:
            return _LIKE
        share = column.below(high) - column.below(low)
        # At least one value, where the leading bytes of the bounds differ.
        distinct = column.upper is not None and column.upper > column.lower
        return max(share, 1.0 / max(1, column.values) if distinct else column.equal())
