"""Comparisons without columns: three-valued, total, and the same as the row-by-row oracle's."""

from __future__ import annotations

import datetime
from decimal import Decimal
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel.predicate.evaluate import matches_like
from accel.predicate.expr import Compare, Like, Literal, Op, Value, column_of
from accel.predicate.fold import check_pattern, compare_values
from tests.oracle import rowwise

X = column_of(["x"])
ASCENDING: list[list[Value]] = [
    [float("-inf"), Decimal("-1e400"), -(2**70), -1.5, -0.0, 5e-324, Decimal("0.1"), 0.1, 1, 2**53 + 1, 1e300,
     Decimal("1e400"), float("inf"), float("nan")],
    [False, True],
    ["", "A", "Z", "a", "é", "\uffff", "\U00010000"],
    [b"", b"\x00", b"\x00\x00", b"\xff"],
    [datetime.date(1, 1, 1), datetime.datetime(1970, 1, 1), datetime.datetime(1970, 1, 1, 0, 0, 0, 1),
     datetime.datetime(1970, 1, 1, 1, tzinfo=datetime.UTC), datetime.date(9999, 12, 31)],
    [datetime.time(0), datetime.time(23, 59)],
]  # fmt: skip


@pytest.mark.parametrize("values", ASCENDING, ids=lambda values: type(values[-1]).__name__)
def test_orders_are_total(values: list[Value]) -> None:
    for low, high in pairwise(values):
        answers = {op: compare_values(op, low, high) for op in Op}
        assert answers == {
            Op.EQ: False,
            Op.NE: True,
            Op.LT: True,
            Op.LE: True,
            Op.GT: False,
            Op.GE: False,
            Op.DISTINCT: True,
            Op.NOT_DISTINCT: False,
        }
    for value in values:
        assert compare_values(Op.EQ, value, value) is True
        assert compare_values(Op.LT, value, value) is False


@pytest.mark.parametrize(
    ("left", "right", "order"),
    [(-0.0, 0, 0), (1, Decimal("1.00"), 0), (2**53 + 1, float(2**53), 1), (0.1, Decimal("0.1"), 1)],
)
def test_numbers_compare_by_exact_value(left: Value, right: Value, order: int) -> None:
    assert compare_values(Op.EQ, left, right) is (order == 0)
    assert compare_values(Op.GT, left, right) is (order > 0)


def test_null_is_unknown_but_to_distinct() -> None:
    plain = [op for op in Op if op not in (Op.DISTINCT, Op.NOT_DISTINCT)]
    assert [compare_values(op, None, 1) for op in plain] == [None] * 6
    assert [compare_values(op, None, None) for op in plain] == [None] * 6
    assert [compare_values(Op.DISTINCT, *pair) for pair in ((None, None), (None, 1), (1, None))] == [
        False,
        True,
        True,
    ]


@pytest.mark.parametrize(
    ("left", "right"),
    [(1, "1"), (1, True), (b"x", 1), (datetime.date(1, 1, 1), datetime.time(0)), ("x", True)],
)
def test_what_does_not_compare_is_refused(left: Value, right: Value) -> None:
    with pytest.raises(ValueError, match="cannot compare"):
        compare_values(Op.EQ, left, right)


@given(
    st.integers(-(2**63), 2**63 - 1),
    st.one_of(st.integers(), st.floats(), st.decimals(allow_nan=False, allow_infinity=False)),
)
def test_numbers_agree_with_the_oracle(left: int, right: Value) -> None:
    table = pa.table({"x": pa.array([left], pa.int64())})
    for op in Op:
        assert [compare_values(op, left, right)] == rowwise.evaluate(Compare(op, X, Literal(right)), table)


TEXTS = st.text("abAB\n%_\\ßſé", max_size=6)
PATTERNS = st.text("abB%_\\ßſ", max_size=8)


@given(TEXTS, PATTERNS, st.booleans())
def test_like_agrees_with_the_oracle(text: str, pattern: str, ignore_case: bool) -> None:
    try:
        check_pattern(pattern)
    except ValueError:
        with pytest.raises(ValueError, match="lone backslash"):
            matches_like(text, pattern, ignore_case=ignore_case)
        return
    table = pa.table({"x": pa.array([text], pa.string())})
    expected = rowwise.evaluate(Like(X, pattern, ignore_case), table)
    assert [matches_like(text, pattern, ignore_case=ignore_case)] == expected


def test_like_takes_no_time_to_fail() -> None:
    assert matches_like("a" * 5000, "%a" * 50 + "%b", ignore_case=False) is False
