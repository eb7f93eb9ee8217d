"""Renders a predicate as text, for errors, explain and logs; the text parses to the same tree."""

from __future__ import annotations

import datetime
import decimal
import math
import re
from collections.abc import Iterable
from itertools import islice
from typing import Any

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
    Opaque,
    Operand,
    Or,
    Ticks,
    Value,
    quoted_name,
)
from accel.predicate.literal import TYPE_WORDS, literal_value, text_from_moment

__all__ = ["OPERATOR_WORDS", "literal_sql", "name_sql", "text_hint", "to_sql"]

OPERATOR_WORDS = frozenset(("AND", "OR", "NOT", "IS", "IN", "BETWEEN", "LIKE", "ILIKE"))
"""Words that can follow an operand. Where an operand is expected, each may still name a column."""
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*")
# Every word of the dialect is quoted as a name; a quoted name is always read correctly.
_WORDS = OPERATOR_WORDS | TYPE_WORDS | {"NULL", "TRUE", "FALSE", "DISTINCT", "FROM"}


def to_sql(expr: Expr, *, max_values: int | None = None) -> str:
    """Render a predicate as text.

    Parameters
    ----------
    expr : Expr
    max_values : int, optional
        The most values to show of each IN list; a shortened text does not parse.

    Returns
    -------
    str
        Text that `parse` turns into an equal tree, if nothing was shortened, no condition is Arrow's and the
        tree is as the parser makes it: no AND directly within an AND, no OR within an OR, no comparison of
        two literals, and lists of literals instead of arrays.
    """
    out: list[str] = []
    stack: list[Expr | str] = [expr]
    while stack:
        node = stack.pop()
        if isinstance(node, str):
            out.append(node)
        elif isinstance(node, And | Or):
            word = " AND " if isinstance(node, And) else " OR "
            pieces: list[Expr | str] = []
            for operand in node.operands:
                pieces += [word] if pieces else []
                pieces += ["(", operand, ")"] if isinstance(operand, And | Or) else [operand]
            stack += reversed(pieces)
        elif isinstance(node, Not):
            stack += reversed(_negated(node.operand, max_values))
        else:
            out.append(_condition(node, "", max_values))
    return "".join(out)


def _negated(node: Expr, max_values: int | None) -> list[Expr | str]:
    if isinstance(node, InList | InArray | Like | IsNull):
        return [_condition(node, "NOT ", max_values)]
    if isinstance(node, And | Or):
        return ["NOT (", node, ")"]
    return ["NOT ", node]


def _condition(node: Expr, negation: str, max_values: int | None) -> str:
    match node:
        case Column():
            return name_sql(node)
        case Compare(op, left, right):
            return f"{_operand(left)} {op.value} {_operand(right)}"
        case InList(column, values):
            shown = _texts(map(literal_sql, values), len(values), max_values)
            return f"{name_sql(column)} {negation}IN ({shown})"
        case InArray(column, array):
            return f"{name_sql(column)} {negation}IN ({_texts(map(_key, array), len(array), max_values)})"
        case Like(column, pattern, ignore_case):
            word = "ILIKE" if ignore_case else "LIKE"
            return f"{name_sql(column)} {negation}{word} {literal_sql(pattern)}"
        case IsNull(column):
            return f"{name_sql(column)} IS {negation}NULL"
        case Opaque(expression):
            from accel.predicate.arrow_expression import shown_expression

            return f"{negation}{{{shown_expression(expression)}}}"
        case Constant(value):
            return literal_sql(value)
        case _:
            raise PredicateError(f"a {type(node).__name__} is no part of a predicate")


def _key(scalar: Any) -> str:
    """Render a key of an Arrow array as a literal, or (years outside 0001 to 9999, durations) as its ticks
    and type."""
    try:
        return literal_sql(literal_value(scalar))
    except PredicateError:
        ticks = getattr(scalar, "value", None)
        return f"{ticks} {scalar.type}" if isinstance(ticks, int) else "…"


def _texts(texts: Iterable[str], count: int, max_values: int | None) -> str:
    shown = count if max_values is None else min(count, max_values)
    text = ", ".join(islice(texts, shown))
    return text if shown == count else f"{text}, … {count - shown:,} more"


def _operand(operand: Operand) -> str:
    return name_sql(operand) if isinstance(operand, Column) else literal_sql(operand.value)


def name_sql(column: Column) -> str:
    """Render a column's name, quoted where needed: an unquoted name may be part of a name with a dot in
    it."""
    names = [name if _is_plain(name) else quoted_name(name) for name in column.path]
    at = column.head
    if at < len(names) and names[at] == column.path[at]:
        # Quote one of the names beside the first dot that can only separate a path.
        at = 0 if at == 1 else at
        names[at] = quoted_name(column.path[at])
    return ".".join(names)


def _is_plain(name: str) -> bool:
    return _PLAIN.fullmatch(name) is not None and name.upper() not in _WORDS


def literal_sql(value: Value) -> str:
    """Render a literal exactly."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return str(value)
        case float():
            return f"DOUBLE '{_double(value)}'"
        case str():
            doubled = value.replace("'", "''")
            return f"'{doubled}'"
        case bytes():
            return f"X'{value.hex()}'"
        case decimal.Decimal():
            text = str(value)
            return text if "." in text or "E" in text else f"{text}E0"
        case datetime.datetime():
            return f"TIMESTAMP '{_moment(value)}'"
        case datetime.date():
            return f"DATE '{_moment(value)}'"
        case datetime.time():
            return f"TIME '{_moment(value)}'"
        case Ticks():
            return f"{'TIME' if value.kind == 'time' else 'TIMESTAMP'} '{_moment(value)}'"
    raise PredicateError(f"a {type(value).__name__} is no literal")


def text_hint(name: str) -> str:
    """Return the hint for a name that was probably meant as text."""
    return f"text stands in single quotes: {literal_sql(name)}"


def _double(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)


def _moment(value: datetime.date | datetime.time | Ticks) -> str:
    try:
        return text_from_moment(value)
    except ValueError as error:
        raise PredicateError(str(error)) from None
