"""Bound trees taken apart by columns."""

from __future__ import annotations

import pytest

from accel.predicate.atoms import (
    Against,
    AllOf,
    AnyOf,
    IsTrue,
    Negation,
    Node,
    Null,
    Order,
    Pair,
    Truth,
    column_atoms,
    over_first_column,
    single_column_parts,
)

A, B, C = Against(0, Order.EQ, 5), Null(1), Against(1, Order.LE, 7)
AB = Pair(0, 1, Order.LT)


@pytest.mark.parametrize(
    ("tree", "atoms", "parts"),
    [
        (A, [A], [(0, A)]),
        (Negation(C), [C], [(1, Negation(C))]),
        (AllOf((A, B)), [A, B], [(0, A), (1, B)]),
        (AllOf((A, AnyOf((B, C)))), [A, B, C], [(0, A), (1, AnyOf((B, C)))]),
        (Negation(AnyOf((A, IsTrue(C)))), [A, C], [(0, A), (1, IsTrue(C))]),
        (IsTrue(AllOf((A, B))), [A, B], [(0, A), (1, B)]),
        (AnyOf((Truth(None), C)), [C], [(1, AnyOf((Truth(None), C)))]),
        (AB, [], []),
        (AllOf((AB, C)), [C], [(1, C)]),
        (Pair(1, 1, Order.LT), [], [(1, Pair(1, 1, Order.LT))]),
        (Truth(True), [], []),
    ],
    ids=str,
)
def test_apart(tree: Node, atoms: list[Node], parts: list[tuple[int, Node]]) -> None:
    assert list(column_atoms(tree)) == atoms
    assert list(single_column_parts(tree)) == parts


@pytest.mark.parametrize(
    ("part", "alone"),
    [
        (C, Against(0, Order.LE, 7)),
        (Negation(C), Negation(Against(0, Order.LE, 7))),
        (IsTrue(AllOf((B, C))), IsTrue(AllOf((Null(0), Against(0, Order.LE, 7))))),
        (AnyOf((Truth(None), B)), AnyOf((Truth(None), Null(0)))),
        (Pair(1, 1, Order.LT), Pair(0, 0, Order.LT)),
    ],
    ids=str,
)
def test_as_if_its_column_were_the_only_one(part: Node, alone: Node) -> None:
    assert over_first_column(part) == alone
