"""Tree to text: exact words, and what is written reads back as the same tree."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings

from accel.errors import PredicateError
from accel.predicate.expr import (
    And,
    Column,
    Expr,
    InArray,
    InList,
    Literal,
    Not,
    Ticks,
    column_named,
    column_of,
)
from accel.predicate.parser import parse
from accel.predicate.sql import literal_sql, name_sql, to_sql
from tests.unit.predicate.trees import trees, typed

A = column_of(["a"])


@settings(max_examples=300)
@given(trees)
def test_text_reads_back_as_the_same_tree(tree: Expr) -> None:
    assert typed(parse(to_sql(tree))) == typed(tree)


@pytest.mark.parametrize(
    "text",
    [
        "carrier = 'UA' AND dep_delay > 60",
        "a = 1 OR b = 2 AND c = 3",
        "(a = 1 OR b = 2) AND c = 3",
        "NOT (a = 1 AND b)",
        "NOT a = 1",
        "NOT NOT a",
        "a NOT IN (1, NULL) AND b IS NOT NULL AND c NOT LIKE 'x%' AND d NOT ILIKE 'y' AND e IS NULL",
        "a IS DISTINCT FROM b AND 1 <= a AND a IS NOT DISTINCT FROM NULL",
        '"a.b" = 1 AND a.b = 2 AND a."b.c" = 3 AND "date" = 4 AND "é" = 5 AND "a ""b""" = 6',
        "TRUE OR FALSE OR NULL",
        "a IN ()",
    ],
)
def test_canonical_text_is_a_fixed_point(text: str) -> None:
    # `a = 1 OR b = 2 AND c = 3` is written with the parentheses that its tree has.
    written = to_sql(parse(text))
    assert to_sql(parse(written)) == written
    assert written in (text, "a = 1 OR (b = 2 AND c = 3)")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "NULL"),
        (True, "TRUE"),
        (-7, "-7"),
        (0.1, "DOUBLE '0.1'"),
        (float("nan"), "DOUBLE 'NaN'"),
        (float("-inf"), "DOUBLE '-Infinity'"),
        (-0.0, "DOUBLE '-0.0'"),
        (Decimal("10.050"), "10.050"),
        (Decimal(7), "7E0"),
        (Decimal("1e400"), "1E+400"),
        ("it's", "'it''s'"),
        (b"\x00\xff", "X'00ff'"),
        (datetime.date(2013, 1, 31), "DATE '2013-01-31'"),
        (datetime.time(1, 2, 3, 4), "TIME '01:02:03.000004'"),
        (datetime.datetime(2013, 1, 31, 5), "TIMESTAMP '2013-01-31 05:00:00'"),
        (
            datetime.datetime(2013, 1, 31, 5, tzinfo=datetime.timezone(datetime.timedelta(hours=1))),
            "TIMESTAMP '2013-01-31 04:00:00+00:00'",
        ),
        (Ticks("time", 1), "TIME '00:00:00.000000001'"),
        (Ticks("timestamp", -1, True), "TIMESTAMP '1969-12-31 23:59:59.999999999+00:00'"),
    ],
    ids=repr,
)
def test_literals(value: object, text: str) -> None:
    assert literal_sql(value) == text  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (Column(("a", "b"), head=2), "a.b"),
        (Column(("a", "b")), '"a".b'),
        (Column(("a.b",)), '"a.b"'),
        (Column(("a", "b", "c"), head=2), 'a.b."c"'),
        (Column(("a", "b", "c", "d"), head=2), 'a.b."c".d'),
        (Column(("a", "b", "c")), '"a".b.c'),
        (Column(("a", "b c")), 'a."b c"'),
        (Column(("a",)), "a"),
    ],
    ids=str,
)
def test_which_dots_may_be_part_of_a_name(column: Column, text: str) -> None:
    assert name_sql(column) == text
    assert parse(text) == column


def test_the_name_that_python_gives_is_shown_as_it_was_given() -> None:
    assert name_sql(column_named("a.b")) == "a.b"


def test_long_lists_can_be_cut() -> None:
    assert to_sql(InList(A, tuple(range(5))), max_values=3) == "a IN (0, 1, 2, … 2 more)"
    array = InArray(A, pa.array(range(2000)))
    assert to_sql(Not(array), max_values=2) == "a NOT IN (0, 1, … 1,998 more)"
    assert parse(to_sql(array)) == array


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (
            pa.array([-(2**62), 0], pa.timestamp("ms")),
            f"{-(2**62)} timestamp[ms], TIMESTAMP '1970-01-01 00:00:00'",
        ),
        (pa.array([2**31 - 1, None], pa.date32()), f"{2**31 - 1} date32[day], NULL"),
        (pa.array([-1], pa.int64()).view(pa.time64("us")), "-1 time64[us]"),
        (pa.array([5], pa.duration("s")), "5 duration[s]"),
        (pa.array([b"\xff", b"a"]).view(pa.string()), "…, 'a'"),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_keys_without_a_literal_are_shown(array: pa.Array, text: str) -> None:
    assert to_sql(InArray(A, array)) == f"a IN ({text})"


def test_the_deepest_tree_is_written() -> None:
    tree: Expr = A
    for _ in range(3000):
        tree = Not(And((A, tree)))
    assert to_sql(tree).count("NOT (a AND ") == 3000


def test_what_is_no_predicate_is_refused() -> None:
    with pytest.raises(PredicateError, match="a Literal is no part of a predicate"):
        to_sql(Literal(1))  # type: ignore[arg-type]
    with pytest.raises(PredicateError, match="years 0001 to 9999"):
        literal_sql(Ticks("timestamp", 10**22))
