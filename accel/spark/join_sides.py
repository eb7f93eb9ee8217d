"""The sides of Spark's joins: which of them may lose rows that have no match, and whose keys may say so.

The keys of a small side are collected before the query runs, and the side runs again with it. So it has to
give the same rows both times: it is made of reads of pinned files, and of what depends on nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from accel.spark.expressions import class_of, items_of, kind_of_expression
from accel.spark.read_records import recorded_by_name

__all__ = ["JOINS", "Pair", "equal_pairs", "is_repeatable", "is_row_wise"]

Pair = tuple[Any, Any]
"""The columns on the left and on the right that are equal."""
_LEFT, _RIGHT = 0, 1
JOINS: Final[Mapping[str, tuple[int, ...]]] = {
    "Inner": (_LEFT, _RIGHT),
    "LeftSemi": (_LEFT, _RIGHT),
    "LeftOuter": (_RIGHT,),
    "LeftAnti": (_RIGHT,),
    "RightOuter": (_LEFT,),
}
"""By the kind of join, the sides of which a row without a match leaves no trace."""
_LOGICAL: Final = "org.apache.spark.sql.catalyst.plans.logical."
_VALUES: Final = ("LocalRelation", "OneRowRelation", "Range")
_MADE_OF_ROWS: Final = ("Filter", "Project", "Join", "Aggregate", "Union", "Distinct", "SubqueryAlias")
_INEXACT: Final = ("float", "double")
"""Numbers that may come out another way when they are computed again."""


def equal_pairs(join: Any, outputs: Sequence[set[int]]) -> list[Pair]:
    """Return the pairs of plain columns of one type that are equal in each row of a join.

    Parameters
    ----------
    join : JavaObject
    outputs : sequence of two sets of int
        The numbers of the columns of its sides.
    """
    condition = join.condition()
    left = [] if condition.isEmpty() else [condition.get()]
    found: list[Pair] = []
    while left:
        expression = left.pop()
        kind = kind_of_expression(expression)
        if kind == "And":
            left += items_of(expression.children())
        if kind != "EqualTo":
            continue
        one, other = items_of(expression.children())
        if not all(kind_of_expression(each) == "AttributeReference" for each in (one, other)):
            continue
        of_type = one.dataType().catalogString()
        if of_type != other.dataType().catalogString() or of_type in _INEXACT:
            continue
        if one.exprId().id() in outputs[_RIGHT]:
            one, other = other, one
        if one.exprId().id() in outputs[_LEFT] and other.exprId().id() in outputs[_RIGHT]:
            found.append((one, other))
    return found


def is_row_wise(node: Any) -> list[Any]:
    """Return the children of which a row may go if no row that it leads to is wanted."""
    kind = _kind(node)
    if kind in ("Filter", "Project"):
        # A number of the row, as of monotonically_increasing_id, depends on the rows before it.
        return [node.child()] if _is_deterministic(node) else []
    if kind != "Join":
        return []
    sides = {"Inner": (_LEFT, _RIGHT), "LeftSemi": (_LEFT,), "LeftAnti": (_LEFT,), "LeftOuter": (_LEFT,)}
    children = items_of(node.children())
    return [children[at] for at in sides.get(node.joinType().toString(), ())]


def is_repeatable(node: Any, place_of: Callable[[Any], Any]) -> bool:
    """Return whether a plan gives the same rows whenever it runs.

    Parameters
    ----------
    node : JavaObject
    place_of : callable
        Returns something for a read of accel.
    """
    if place_of(node) is not None:
        return True
    kind = _kind(node)
    if kind in ("MapInArrow", "PythonMapInArrow"):
        return recorded_by_name(node.functionExpr().name()) is not None
    if kind in _VALUES:
        return True
    if kind not in _MADE_OF_ROWS or not node.subqueries().isEmpty():
        return False
    expressions = items_of(node.expressions())
    if kind == "Aggregate" and any(kind_of_expression(each) != "AttributeReference" for each in expressions):
        return False  # what is computed of many rows may depend on their order
    return _is_deterministic(node) and all(
        is_repeatable(child, place_of) for child in items_of(node.children())
    )


def _is_deterministic(node: Any) -> bool:
    return all(each.deterministic() for each in items_of(node.expressions()))


def _kind(node: Any) -> str:
    return class_of(node).removeprefix(_LOGICAL)
