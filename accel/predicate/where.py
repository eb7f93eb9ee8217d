"""The forms that `where` takes, converted to the expression tree: text, filter lists, `col()` expressions,
trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from accel.errors import PredicateError
from accel.predicate.column import Condition
from accel.predicate.expr import (
    MAX_DEPTH,
    And,
    Column,
    Compare,
    Constant,
    Expr,
    InArray,
    InList,
    IsNull,
    Like,
    Literal,
    Not,
    Opaque,
    Or,
    column_of,
    depth_of,
    join,
)
from accel.predicate.in_list import member_of
from accel.predicate.literal import literal_value, shown
from accel.predicate.parser import COMPARISONS, parse

if TYPE_CHECKING:
    import pyarrow.compute as pc

__all__ = [
    "Where",
    "from_dnf",
    "to_expr",
]

Where: TypeAlias = "str | list[Any] | tuple[Any, ...] | Condition | Expr | pc.Expression | None"
"""The forms of `where=`: text, pyarrow's filter lists, expressions of `accel.col` or `pyarrow.compute`, a
tree, or None."""

_NODES = (And, Column, Compare, Constant, InArray, InList, IsNull, Like, Not, Opaque, Or)


def to_expr(where: Where) -> Expr | None:
    """Convert a `where` to the tree; None keeps every row.

    Raises PredicateError where the `where` does not parse, is nested too deeply, or has a type that is not
    supported.
    """
    if where is None:
        return None
    if isinstance(where, str):
        return parse(where)
    if isinstance(where, list | tuple):
        return from_dnf(where)
    if type(where).__module__ == "pyarrow._compute" and type(where).__name__ == "Expression":
        from accel.predicate.arrow_expression import from_arrow

        return from_arrow(where)
    expr = where.expr if isinstance(where, Condition) else where
    if not isinstance(expr, _NODES):
        kind = f"{type(expr).__module__}.{type(expr).__name__}".removeprefix("builtins.")
        hint = "give text, a list of (name, op, value), or accel.col(name) compared with something"
        if kind.startswith(("polars.", "pyspark.")):
            hint = f"another library's expression cannot be looked into; {hint}"
        raise PredicateError(f"a {kind} is no predicate", hint=hint)
    if depth_of(expr) > MAX_DEPTH:
        raise PredicateError(f"the predicate is nested deeper than {MAX_DEPTH} levels")
    return expr


_OPS = {sign: op for sign, op in COMPARISONS.items() if sign != "<>"}


def from_dnf(filters: Sequence[Any]) -> Expr:
    """Convert a filter list in pyarrow's form.

    Parameters
    ----------
    filters : list of (name, op, value), or list of such lists
        Terms of one list are joined by AND, lists by OR. A name is exact (a dot is a character of
        it); a tuple of names is a path into structs. `op` is one of `= == != < <= > >= in not in`.

    Notes
    -----
    `in` and `not in` treat null as pyarrow does: a null among the values matches null, and `not in`
    keeps null rows unless null is listed. A comparison with null is null, as in SQL.

    Raises
    ------
    PredicateError
        A term is invalid; the error names it.
    """
    if not isinstance(filters, list | tuple) or not filters:
        raise PredicateError(
            "a filter list is empty" if filters in ([], ()) else "a filter list is a list of terms",
            hint='write [("column", ">", 1)]; leave out `where=` to keep every row',
        )
    if all(not isinstance(item, list | tuple) for item in filters) and not _has_operator(filters):
        raise PredicateError(
            f"expected terms (name, op, value) in a filter list, found {shown(filters[0])}",
            hint="join conditions by AND in one text, or by & and | where they are of accel.col",
        )
    if _is_term(filters):
        raise PredicateError("one term alone is no filter list", hint=f"write [{shown(filters)}]")
    if all(map(_is_term, filters)):
        return _conjunction(filters, "")
    groups = [_conjunction(group, f" of list {number}") for number, group in enumerate(filters, 1)]
    return join(Or, groups)


def _has_operator(item: Sequence[object]) -> bool:
    """Return whether the items may be one term."""
    return len(item) == 3 and isinstance(item[1], str)


def _is_term(item: object) -> bool:
    if not isinstance(item, list | tuple) or not item:
        return False
    first = item[0]
    if isinstance(first, str):
        return True
    # A path: (("a", "b"), "=", 1), not a list of terms.
    return isinstance(first, tuple) and len(item) == 3 and isinstance(item[1], str)


def _conjunction(terms: object, place: str) -> Expr:
    if not isinstance(terms, list | tuple) or not terms:
        raise PredicateError(
            f"expected a list of terms{place or ' of the filter'}, found {shown(terms)}",
            hint="terms joined by AND in a list, such lists joined by OR in another",
        )
    found: list[Expr] = []
    for number, term in enumerate(terms, 1):
        try:
            node = _term(term)
        except PredicateError as error:
            raise PredicateError(
                f"term {number}{place}, {shown(term)}: {error.message}", hint=error.hint
            ) from None
        found.append(node)
    return join(And, found)


def _term(term: object) -> Expr:
    if not isinstance(term, list | tuple) or len(term) != 3:
        raise PredicateError("a term is (name, op, value)")
    name, op, value = term
    column = _column(name)
    if op == "in":
        return _in(column, value)
    if op == "not in":
        return _not_in(column, value)
    if not isinstance(op, str) or op not in _OPS:
        raise PredicateError(
            f"{op!r} is no operator of filter lists", hint="one of = == != < <= > >= in, not in"
        )
    if isinstance(value, list | tuple | set | frozenset):
        raise PredicateError(f"{op} takes one value, not a {type(value).__name__}", hint="use in")
    return Compare(_OPS[op], column, Literal(literal_value(value)))


def _column(name: object) -> Column:
    if isinstance(name, str):
        return column_of([name])
    if isinstance(name, tuple) and name and all(isinstance(part, str) for part in name):
        return column_of(name)
    raise PredicateError(f"{shown(name)} is no column name")


def _split_nulls(node: InList | InArray) -> tuple[InList | InArray, bool]:
    """Return the node without nulls among its values, and whether there were any."""
    if isinstance(node, InList):
        present = tuple(value for value in node.values if value is not None)
        return InList(node.column, present), len(present) < len(node.values)
    if not node.values.null_count:
        return node, False
    import pyarrow as pa

    values = node.values
    if pa.types.is_string_view(values.type) or pa.types.is_binary_view(values.type):
        # Arrow cannot filter views, which Polars exports.
        text = pa.types.is_string_view(values.type)
        values = values.cast(pa.large_string() if text else pa.large_binary())
    return InArray(node.column, values.drop_null()), True


def _in(column: Column, values: object) -> Expr:
    node, with_null = _split_nulls(member_of(column, values))
    return Or((node, IsNull(column))) if with_null else node


def _not_in(column: Column, values: object) -> Expr:
    node, with_null = _split_nulls(member_of(column, values))
    if not with_null:
        return Or((Not(node), IsNull(column)))
    # NOT IN of an empty list is true even for null.
    return Not(node) if len(node.values) else And((Not(node), Not(IsNull(column))))
