"""What to write instead of what Python, or another library's habit, takes for something else."""

from __future__ import annotations

from accel.errors import PredicateError
from accel.predicate.expr import And, Column, Compare, Constant, Expr, Literal, Not, Op, Or

__all__ = ["compared_predicate", "name_advice", "text_advice"]

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
    **dict.fromkeys(("field", "getField", "getItem", "struct"), '["name"], for the field of a struct'),
}


def compared_predicate(expr: Expr, op: Op, other: object) -> PredicateError:
    """Of `predicate op other`, which is a comparison that took too much to its left, or one too many."""
    from accel.predicate.sql import to_sql

    sign = _sign(op)
    text = to_sql(expr, max_values=5)
    text = f"{text[:77]}..." if len(text) > 80 else text
    meant = _parenthesised(expr, sign, other)
    if isinstance(other, bool) and not meant:
        hint = "a predicate stands alone, and ~ negates it"
    else:
        hint = _WHY + (meant or _EXAMPLE)
    return PredicateError(f"a predicate cannot be compared, as in ({text}) {sign} {_told(other)}", hint=hint)


def _parenthesised(expr: Expr, sign: str, other: object) -> str | None:
    """The comparison with the last column alone, where a column is what stands last."""
    if _told(other) == _PREDICATE:
        return None
    match expr:
        case Not(Column() as column):
            return f"~({_called(column)} {sign} {_told(other)})"
        case And(operands) | Or(operands) if isinstance(operands[-1], Column):
            joint = "&" if isinstance(expr, And) else "|"
            first = operands[0]
            before = _plain(first) if len(operands) == 2 else None
            return f"{before or _PREDICATE} {joint} ({_called(operands[-1])} {sign} {_told(other)})"
    return None


def _plain(expr: Expr) -> str | None:
    """A short condition as it is written in Python."""
    match expr:
        case Compare(op, Column() as column, Literal(value)) if op not in (Op.DISTINCT, Op.NOT_DISTINCT):
            return f"({_called(column)} {_sign(op)} {_told(value)})"
        case Column():
            return _called(expr)
        case Constant(value):
            return repr(value)
    return None


def _sign(op: Op) -> str:
    """An operator as it is written in Python."""
    return _PYTHON_OPS.get(op.value, op.value)


def _called(column: Column) -> str:
    top, fields = ".".join(column.path[: column.head]), column.path[column.head :]
    return f"col({_in_quotes(top)})" + "".join(f"[{_in_quotes(field)}]" for field in fields)


def _in_quotes(name: str) -> str:
    return f'"{name}"' if '"' not in name else repr(name)


def _told(value: object) -> str:
    from accel.predicate.column import ColumnExpr, Condition
    from accel.predicate.literal import shown

    if isinstance(value, ColumnExpr):
        return _called(value.expr)
    return _PREDICATE if isinstance(value, Condition) else shown(value)


def text_advice(name: str) -> str:
    """What to write instead of a name that is meant as text."""
    from accel.predicate.sql import literal_sql

    return f"text stands in single quotes: {literal_sql(name)}"


def name_advice(name: str, *, is_column: bool) -> str:
    """What to write instead of a name that a predicate, or a column, does not have."""
    if not is_column:
        return "& | ~ join predicates, and where= takes them"
    instead = _INSTEAD.get(name)
    if instead is not None:
        return f"write {instead}"
    return (
        "it has between, ilike, is_distinct_from, is_not_distinct_from, is_not_null, is_null, isin, like and starts_with; "
        f'a field of a struct is ["{name}"]'
    )
