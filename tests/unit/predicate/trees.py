"""Trees as the parser makes them, for hypothesis."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from accel.predicate.expr import (
    And,
    Column,
    Compare,
    Constant,
    Expr,
    InList,
    IsNull,
    Like,
    Literal,
    Not,
    Op,
    Or,
    Ticks,
    Value,
    column_of,
)
from accel.predicate.literal import literal_value

characters = st.characters(exclude_categories=["Cs"])
names = st.one_of(
    st.sampled_from(["a", "B", "_x1", "date", "IN", "not", "true", "a b", 'q"q', "", "é", "a.b"]),
    st.text(characters, max_size=5),
)
columns = st.one_of(
    st.lists(names, min_size=1, max_size=3).map(column_of),
    # Without quotes, as far as `head` goes: a dot may be part of a name there.
    st.builds(
        lambda first, then: column_of([*first, *then], head=len(first)),
        st.lists(st.sampled_from(["a", "B", "_x1", "date2"]), min_size=2, max_size=3),
        st.lists(names, max_size=2),
    ),
)
decimals = st.decimals(allow_nan=False, allow_infinity=False).filter(lambda d: abs(d.adjusted()) < 4000)
zones = st.one_of(st.none(), st.just(datetime.UTC))
ticks = st.one_of(
    st.builds(Ticks, st.just("time"), st.integers(0, 86_399 * 10**6).map(lambda n: n * 1000 + 1)),
    st.builds(
        Ticks, st.just("timestamp"), st.integers(-(10**15), 10**15).map(lambda n: n * 1000 + 7), st.booleans()
    ),
)
values: st.SearchStrategy[Value] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(characters),
    st.binary(),
    decimals.map(literal_value),
    st.dates(),
    st.times(),
    st.datetimes(timezones=zones),
    ticks,
)
patterns = st.text(st.sampled_from("ab%_é'"), max_size=6).map(lambda text: text.replace("é", "\\%"))
comparisons = st.one_of(
    st.builds(Compare, st.sampled_from(Op), columns, st.one_of(columns, values.map(Literal))),
    st.builds(Compare, st.sampled_from(Op), values.map(Literal), columns),
)
leaves: st.SearchStrategy[Expr] = st.one_of(
    comparisons,
    st.builds(InList, columns, st.lists(values, max_size=4).map(tuple)),
    st.builds(Like, columns, patterns, st.booleans()),
    st.builds(IsNull, columns),
    st.builds(Constant, st.sampled_from([True, False, None])),
    columns,
)


def _flat(kind: type[And | Or], operands: list[Any]) -> Expr:
    flat: list[Expr] = []
    for operand in operands:
        flat += operand.operands if isinstance(operand, kind) else [operand]
    return kind(tuple(flat))


trees: st.SearchStrategy[Expr] = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.lists(inner, min_size=2, max_size=4).map(lambda operands: _flat(And, operands)),
        st.lists(inner, min_size=2, max_size=4).map(lambda operands: _flat(Or, operands)),
    ),
    max_leaves=12,
)


def typed(expr: Any) -> Any:
    """The tree with the type of every literal: 1, 1.0 and True are equal to Python, not to us."""
    match expr:
        case Not(operand):
            return ("not", typed(operand))
        case And(operands) | Or(operands):
            return (type(expr).__name__, [typed(operand) for operand in operands])
        case Compare(op, left, right):
            return (op, typed(left), typed(right))
        case InList(column, found):
            return (column, [(type(value).__name__, _exact(value)) for value in found])
        case Literal(value):
            return (type(value).__name__, _exact(value))
        case Column() | Like() | IsNull() | Constant():
            return expr
    raise TypeError(expr)


def _exact(value: Any) -> Any:
    return (
        repr(value)
        if isinstance(value, float)
        else value.normalize()
        if isinstance(value, Decimal) and not value
        else value
    )
