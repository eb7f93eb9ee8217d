"""Lists of IN in a bound tree, and many equalities of one column as the list that they come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

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
    """The AND (OR) of the operands, many inequalities (equalities) of one column as one test of membership.

    The two agree on every row: both are null where the column is, and only there.
    """
    tests = [_equality(kind, node) for node in operands]
    counts = Counter(test.column for test in tests if test is not None)
    many = {
        column
        for column, count in counts.items()
        if count >= MANY and columns[column].kind.domain is not Domain.BOOLEAN
    }
    if not many:
        return kind(tuple(operands))
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
