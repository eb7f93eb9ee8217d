"""Equalities in a bound tree: lists of IN, many of one column as such a list, and ranges that hold one value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

from accel.format.domain import Domain
from accel.predicate.atoms import (
    Against,
    AllOf,
    Among,
    AnyOf,
    BoundColumn,
    Fixed,
    Keys,
    Negation,
    Node,
    Order,
    Truth,
)
from accel.predicate.kinds import Family

__all__ = ["MANY", "joined", "membership"]

_End: TypeAlias = "tuple[int, bool, bool | int | float | bytes]"
"""A column, whether it is the upper end of a range, and the value there, which is in the range."""

MANY = 16
"""Equalities of one column; fewer are compared one by one as fast as they are looked up."""


def membership(ordinal: int, column: BoundColumn, keys: Keys, *, with_null: bool) -> Node:
    """That a column's value is one of the keys, in normal form."""
    count = len(keys.sorted) + keys.nan
    if count == 0:
        return Truth(None) if with_null else Fixed(ordinal, False)
    if column.kind.family is Family.BOOLEAN:
        if count == 2:
            return Fixed(ordinal, True)
        test = Against(ordinal, Order.EQ, bool(keys.sorted[0]))
        return AnyOf((test, Truth(None))) if with_null else test
    if count == 1 and not with_null:
        value = float("nan") if keys.nan else keys.sorted[0]
        return Against(ordinal, Order.EQ, value.item() if hasattr(value, "item") else value)
    return Among(ordinal, keys, with_null)


def joined(kind: type[AllOf | AnyOf], operands: Sequence[Node], columns: Sequence[BoundColumn]) -> Node:
    """The AND (OR) of the operands, many inequalities (equalities) of one column as one test of membership, and two ends
    of a range that are one value as an equality.

    They agree on every row: both are null where the column is, and only there.
    """
    operands = _with_points(kind, operands, columns)
    tests = [_equality(kind, node) for node in operands]
    counts = Counter(test.column for test in tests if test is not None)
    many = {
        column
        for column, count in counts.items()
        if count >= MANY and columns[column].kind.domain is not Domain.BOOLEAN
    }
    if not many:
        return operands[0] if len(operands) == 1 else kind(tuple(operands))
    from accel.predicate.keys import native_keys

    out: list[Node] = []
    for column in sorted(many):
        values = {test.value for test in tests if test is not None and test.column == column}
        found = membership(
            column, columns[column], native_keys(values, columns[column].kind), with_null=False
        )
        out.append(found if kind is AnyOf else Negation(found))
    out += [
        node for node, test in zip(operands, tests, strict=True) if test is None or test.column not in many
    ]
    return out[0] if len(out) == 1 else kind(tuple(out))


def _equality(kind: type[AllOf | AnyOf], node: Node) -> Against | None:
    """The equality that a node is (in an AND: denies)."""
    if kind is AllOf:
        if not isinstance(node, Negation):
            return None
        node = node.operand
    return node if isinstance(node, Against) and node.order is Order.EQ else None


def _with_points(
    kind: type[AllOf | AnyOf], operands: Sequence[Node], columns: Sequence[BoundColumn]
) -> Sequence[Node]:
    """The operands, `x >= v` and `x <= v` in an AND as `x = v`, and `x < v` and `x > v` in an OR as its negation.

    What answers equality, as a bloom filter does, is asked by it then.
    """
    ends: dict[_End, int] = {}
    for at, node in enumerate(operands):
        for end in _ends(kind, node, columns):
            ends.setdefault(end, at)
    out: dict[int, Node] = dict(enumerate(operands))
    taken: set[int] = set()
    for (column, upper, value), at in ends.items():
        other = None if upper else ends.get((column, True, value))
        if other is None or other == at or not taken.isdisjoint((at, other)):
            continue
        taken |= {at, other}
        point = Against(column, Order.EQ, value)
        out[at] = point if kind is AllOf else Negation(point)
        del out[other]
    return list(out.values())


def _ends(kind: type[AllOf | AnyOf], node: Node, columns: Sequence[BoundColumn]) -> Sequence[_End]:
    """The ends of a range that a node is, in an AND; in an OR, those of the range that it leaves."""
    negated = isinstance(node, Negation)
    atom = node.operand if isinstance(node, Negation) else node
    if isinstance(atom, Fixed):
        of = columns[atom.column].kind
        # The range of all values has the ends that the type has.
        if of.domain is Domain.INTEGER and (atom.value is not negated) is (kind is AllOf):
            return (atom.column, False, of.limits[0]), (atom.column, True, of.limits[1])
        return ()
    if not isinstance(atom, Against) or atom.order is Order.EQ:
        return ()
    upper, value = negated is (kind is AnyOf), atom.value
    if columns[atom.column].kind.domain is Domain.INTEGER:
        return ((atom.column, upper, value if upper else int(value) + 1),)
    # A range whose end is not in it holds other values beside that one.
    return ((atom.column, upper, value),) if upper is (atom.order is Order.LE) else ()
