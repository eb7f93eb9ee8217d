"""A predicate that has met a schema: few kinds of atoms over native values.

One normal form serves the exact filter and pruning alike, so they cannot disagree on what a literal
means. In the integer domains `x < 10.005` on a decimal of scale 2 has become `x <= 1000`; what cannot
occur has become `Fixed`; the other operators are negations, which three-valued logic allows
because every domain is totally ordered (NaN above every number).
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy.typing as npt
import pyarrow as pa

from accel.predicate.kinds import Kind, kind_of

__all__ = [
    "Against",
    "AllOf",
    "Among",
    "AnyOf",
    "Atom",
    "Bound",
    "BoundColumn",
    "Fixed",
    "IsTrue",
    "Keys",
    "Matches",
    "Negation",
    "Node",
    "Null",
    "Order",
    "Pair",
    "Pattern",
    "Truth",
    "column_atoms",
    "over_first_column",
    "single_column_parts",
]


class Order(enum.Enum):
    """The orders that need an atom; the others are their negations."""

    EQ = "="
    LT = "<"
    LE = "<="


@dataclass(frozen=True, slots=True)
class BoundColumn:
    """A column of the schema: the names from the top level down, and its Arrow type."""

    path: tuple[str, ...]
    type: pa.DataType
    # Asked for a dozen times a question.
    kind: Kind = field(init=False, repr=False, compare=False)
    """The comparison that the type takes part in."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", kind_of(self.type))

    def __reduce__(self) -> tuple[type[BoundColumn], tuple[tuple[str, ...], pa.DataType]]:
        return BoundColumn, (self.path, self.type)


@dataclass(frozen=True, slots=True)
class Truth:
    """TRUE, FALSE or NULL for every row."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class Fixed:
    """NULL where the column is null, else always `value`."""

    column: int
    value: bool


@dataclass(frozen=True, slots=True)
class Against:
    """The column's native value against one of its domain; NULL where the column is null.

    Integers know EQ and LE, booleans EQ, floats and bytes all; a NaN stands with EQ only.
    """

    column: int
    order: Order
    value: bool | int | float | bytes


@dataclass(frozen=True, slots=True)
class Pair:
    """One column against another, by exact value."""

    left: int
    right: int
    order: Order


@dataclass(frozen=True, slots=True, eq=False)
class Keys:
    """A set of native values: no null among them, no NaN, sorted, each once."""

    values: pa.Array
    """In the column's native type."""
    sorted: npt.NDArray[Any]
    """The same, as numpy (bytes and wide decimals as objects)."""
    nan: bool = False


@dataclass(frozen=True, slots=True)
class Among:
    """The column's value is one of the keys (or NaN, where `keys.nan`).

    NULL where the column is null, and on a miss where `with_null`.
    """

    column: int
    keys: Keys
    with_null: bool


@dataclass(frozen=True, slots=True)
class Pattern:
    """A LIKE pattern, taken apart.

    `regex` (RE2, anchored) decides, unless `literal` and the flags say that a plain search does.
    `lower` and `upper` (exclusive) bound the bytes of whatever matches; None is no bound.
    """

    regex: str
    ignore_case: bool
    literal: bytes | None
    """The text of a pattern that is one text, with or without a `%` at its ends; None for others."""
    open_start: bool
    """The pattern begins with `%`."""
    open_end: bool
    """It ends with one."""
    lower: bytes
    upper: bytes | None
    runs: tuple[str, ...] = ()
    """The literal runs in order: what matches has each (by its other cases, where case is ignored)."""
    least: int = 0
    """Characters that whatever matches has at least."""

    @property
    def prefix(self) -> bytes | None:
        """The prefix that alone decides, if one does."""
        if self.literal is None or self.open_start or not self.open_end or self.ignore_case:
            return None
        return self.literal


@dataclass(frozen=True, slots=True)
class Matches:
    column: int
    pattern: Pattern


@dataclass(frozen=True, slots=True)
class Null:
    """IS NULL: never NULL itself."""

    column: int


@dataclass(frozen=True, slots=True)
class IsTrue:
    """NULL becomes FALSE."""

    operand: Node


@dataclass(frozen=True, slots=True)
class Negation:
    operand: Node


@dataclass(frozen=True, slots=True)
class AllOf:
    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    operands: tuple[Node, ...]


Node: TypeAlias = Truth | Fixed | Against | Pair | Among | Matches | Null | IsTrue | Negation | AllOf | AnyOf


Atom: TypeAlias = Null | Fixed | Against | Among | Matches
"""A node over one column."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A predicate bound to a schema: its columns, each once, and the tree that names them by ordinal."""

    columns: tuple[BoundColumn, ...]
    root: Node


def column_atoms(node: Node) -> Iterator[Atom]:
    """The atoms over one column in a bound tree, in order: what a witness is asked for."""
    match node:
        case AllOf() | AnyOf():
            for operand in node.operands:
                yield from column_atoms(operand)
        case Negation() | IsTrue():
            yield from column_atoms(node.operand)
        case Null() | Fixed() | Against() | Among() | Matches():
            yield node
        case _:
            pass


def single_column_parts(node: Node) -> Iterator[tuple[int, Node]]:
    """The largest parts of a tree that are over one column each, with that column, in order."""
    columns = _columns_in(node)
    if len(columns) == 1:
        yield next(iter(columns)), node
    elif isinstance(node, AllOf | AnyOf):
        for operand in node.operands:
            yield from single_column_parts(operand)
    elif isinstance(node, Negation | IsTrue):
        yield from single_column_parts(node.operand)


def _columns_in(node: Node) -> frozenset[int]:
    match node:
        case AllOf() | AnyOf():
            return frozenset().union(*(_columns_in(operand) for operand in node.operands))
        case Negation() | IsTrue():
            return _columns_in(node.operand)
        case Pair():
            return frozenset((node.left, node.right))
        case Truth():
            return frozenset()
        case _:
            return frozenset((node.column,))


def over_first_column(node: Node) -> Node:
    """A tree over one column, as if that column were the only one."""
    match node:
        case AllOf() | AnyOf():
            return replace(node, operands=tuple(over_first_column(operand) for operand in node.operands))
        case Negation() | IsTrue():
            return replace(node, operand=over_first_column(node.operand))
        case Pair():
            return replace(node, left=0, right=0)
        case Truth():
            return node
        case _:
            return replace(node, column=0)
