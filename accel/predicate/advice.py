"""Hints for predicates that Python reads in another way, or that use another library's names."""

from __future__ import annotations

from accel.errors import PredicateError
from accel.predicate.expr import And, Column, Compare, Constant, Expr, Literal, Not, Op, Or
from accel.predicate.literal import shown
from accel.predicate.sql import to_sql

__all__ = ["compared_predicate", "name_advice"]

_PYTHON_OPS = {"=": "==", "<>": "!="}
_EXAMPLE = '(col("a") > 1) & (col("b") != 2)'
_PREDICATE = "(...)"
_WHY = "& | ~ bind closer than comparisons, so each of these takes parentheses: "

_INSTEAD = {
    **dict.fromkeys(("is_in", "in_", "in_list", "isin_", "IN"), "isin([...])"),
    **dict.fromkeys(("not_in", "notin", "is_not_in", "isnotin"), "~col.isin([...])"),
    **dict.fromkeys(("isnull", "isNull", "isna", "is_na", "is_none", "isNone"), "is_null()"),
    **dict.fromkeys(
        ("isnotnull", "isNotNull", "notnull", "notna", "not_null", "is_valid", "is_not_none"), "is_not_null()"
    ),
    **dict.fromkeys(("startswith", "startsWith", "str", "prefix"), "starts_with(prefix), or like(pattern)"),
    **dict.fromkeys(("endswith", "endsWith", "ends_with"), "like('%suffix')"),
    **dict.fromkeys(("contains", "str_contains"), "like('%text%')"),
    **dict.fromkeys(("rlike", "regexp", "matches", "match", "fullmatch"), "like(pattern), of % and _ only"),
    **dict.fromkeys(("is_between", "isbetween"), "between(low, high)"),
    **dict.fromkeys(("eqNullSafe", "eq_missing"), "is_not_distinct_from(value)"),
    "ne_missing": "is_distinct_from(value)",
    "is_nan": "== float('nan')",
    "isnan": "== float('nan')",
    **dict.fromkeys(("eq", "equals", "equal"), "== value"),
    **dict.fromkeys(("ne", "neq", "not_equal"), "!= value"),
    **dict.fromkeys(("lt", "less"), "< value"),
    **dict.fromkeys(("le", "lte", "less_equal"), "<= value"),
    **dict.fromkeys(("gt", "greater"), "> value"),
    **dict.fromkeys(("ge", "gte", "greater_equal"), ">= value"),
    **dict.fromkeys(("and_", "or_", "not_", "invert"), "& | ~, each comparison in parentheses"),
    **dict.fromkeys(("dt", "cast", "try_cast", "to_date"), "year(), date() or date_trunc(unit)"),
    **dict.fromkeys(("truncate", "trunc", "floor", "floor_temporal"), "date_trunc(unit)"),
    **dict.fromkeys(("field", "getField", "getItem", "struct"), '["name"], for the field of a struct'),
}


def compared_predicate(expr: Expr, op: Op, other: object) -> PredicateError:
    """Return the error for `predicate op other`, where parentheses are missing or there is one comparison too
    many.

    `other` is a tree or a plain value.
    """
    sign = _sign(op)
    text = to_sql(expr, max_values=5)
    text = f"{text[:77]}..." if len(text) > 80 else text
    meant = _parenthesised(expr, sign, other)
    if isinstance(other, bool) and not meant:
        hint = "a predicate stands alone, and ~ negates it"
    else:
        hint = _WHY + (meant or _EXAMPLE)
    return PredicateError(
        f"a predicate cannot be compared, as in ({text}) {sign} {_value_text(other)}", hint=hint
    )


def _parenthesised(expr: Expr, sign: str, other: object) -> str | None:
    """Return the text with the last comparison in parentheses, where the predicate ends with a column."""
    if _value_text(other) == _PREDICATE:
        return None
    match expr:
        case Not(Column() as column):
            return f"~({_column_text(column)} {sign} {_value_text(other)})"
        case And(operands) | Or(operands) if isinstance(operands[-1], Column):
            joint = "&" if isinstance(expr, And) else "|"
            first = operands[0]
            before = _condition_text(first) if len(operands) == 2 else None
            return (
                f"{before or _PREDICATE} {joint} ({_column_text(operands[-1])} {sign} {_value_text(other)})"
            )
    return None


def _condition_text(expr: Expr) -> str | None:
    """Return a short condition as Python code."""
    match expr:
        case Compare(op, Column() as column, Literal(value)) if op not in (Op.DISTINCT, Op.NOT_DISTINCT):
            return f"({_column_text(column)} {_sign(op)} {_value_text(value)})"
        case Column():
            return _column_text(expr)
        case Constant(value):
            return repr(value)
    return None


def _sign(op: Op) -> str:
    """Return an operator as Python code."""
    return _PYTHON_OPS.get(op.value, op.value)


def _column_text(column: Column) -> str:
    top, fields = ".".join(column.path[: column.head]), column.path[column.head :]
    return f"col({_in_quotes(top)})" + "".join(f"[{_in_quotes(field)}]" for field in fields)


def _in_quotes(name: str) -> str:
    return f'"{name}"' if '"' not in name else repr(name)


def _value_text(value: object) -> str:
    if isinstance(value, Column):
        return _column_text(value)
    return _PREDICATE if isinstance(value, Expr) else shown(value)


def name_advice(name: str, *, is_column: bool) -> str:
    """Return the hint for an attribute that a predicate or a column does not have."""
    if not is_column:
        return "& | ~ join predicates, and `where=` takes them"
    instead = _INSTEAD.get(name)
    if instead is not None:
        return f"write {instead}"
    return (
        "it has between, date, date_trunc, ilike, is_distinct_from, is_not_distinct_from, is_not_null, "
        "is_null, isin, like, starts_with and year; "
        f'a field of a struct is ["{name}"]'
    )
