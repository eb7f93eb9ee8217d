"""Every form of `where` to the one tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from accel.errors import PredicateError
from accel.predicate.expr import (
    And,
    Column,
    Compare,
    Constant,
    Expr,
    InArray,
    InList,
    IsNull,
    Like,
    Not,
    Or,
    depth_of,
)
from accel.predicate.parser import MAX_DEPTH, parse

if TYPE_CHECKING:
    from accel.predicate.column import Condition

__all__ = ["Where", "to_expr"]

Where: TypeAlias = "str | list[Any] | tuple[Any, ...] | Condition | Expr | None"
"""What `where=` takes: text, pyarrow's filter lists, `accel.col(...)` expressions, a tree, or None."""

_NODES = (And, Column, Compare, Constant, InArray, InList, IsNull, Like, Not, Or)


def to_expr(where: Where) -> Expr | None:
    """The tree of a `where`, or None where every row is wanted.

    Raises
    ------
    PredicateError
        When it does not parse, is nested too deep, or is nothing that `where` takes.
    """
    if where is None:
        return None
    if isinstance(where, str):
        return parse(where)
    if isinstance(where, list | tuple):
        from accel.predicate.dnf import from_dnf

        return from_dnf(where)
    from accel.predicate.column import Condition

    expr = where.expr if isinstance(where, Condition) else where
    if not isinstance(expr, _NODES):
        kind = f"{type(expr).__module__}.{type(expr).__name__}".removeprefix("builtins.")
        hint = "give text, a list of (name, op, value), or accel.col(name) compared with something"
        if kind.startswith(("pyarrow.", "polars.", "pyspark.")):
            hint = f"another library's expression cannot be looked into; {hint}"
        raise PredicateError(f"a {kind} is no predicate", hint=hint)
    if depth_of(expr) > MAX_DEPTH:
        raise PredicateError(f"the predicate is nested deeper than {MAX_DEPTH} levels")
    return expr
