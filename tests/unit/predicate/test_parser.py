"""Tokens, and text to tree: each form of the dialect, precedence, folding, positions, bounds and errors."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel.errors import PredicateError
from accel.predicate.expr import (
    MAX_DEPTH,
    MAX_LIST,
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
    Op,
    Or,
    Ticks,
    column_of,
    depth_of,
)
from accel.predicate.in_list import member_of
from accel.predicate.parser import Token, parse, tokenize

A, B, C = (column_of([name]) for name in "abc")


def compared(op: Op, value: Any, column: Column = A) -> Compare:
    return Compare(op, column, Literal(value))


ONE, TWO, THREE = (Compare(Op.EQ, column, Literal(1)) for column in (A, B, C))
UTC = datetime.UTC


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = 1", compared(Op.EQ, 1)),
        ("a == 1", compared(Op.EQ, 1)),
        ("a <> 1", compared(Op.NE, 1)),
        ("a != 1", compared(Op.NE, 1)),
        ("a < 1", compared(Op.LT, 1)),
        ("a <= 1", compared(Op.LE, 1)),
        ("a > 1", compared(Op.GT, 1)),
        ("a >= 1", compared(Op.GE, 1)),
        ("1 < a", Compare(Op.LT, Literal(1), A)),
        ("a < b", Compare(Op.LT, A, B)),
        ("a IS DISTINCT FROM 1", compared(Op.DISTINCT, 1)),
        ("a is not distinct from b", Compare(Op.NOT_DISTINCT, A, B)),
        ("a IS NULL", IsNull(A)),
        ("a IS NOT NULL", Not(IsNull(A))),
        ("a IS TRUE", compared(Op.NOT_DISTINCT, True)),
        ("a IS NOT FALSE", compared(Op.DISTINCT, False)),
        ("a IN (1, 'x', NULL)", InList(A, (1, "x", None))),
        ("a NOT IN (1)", Not(InList(A, (1,)))),
        ("a IN ()", InList(A, ())),
        ("a IN (1, b)", Or((ONE, Compare(Op.EQ, A, B)))),
        ("1 IN (a, b)", Or((Compare(Op.EQ, Literal(1), A), Compare(Op.EQ, Literal(1), B)))),
        ("a BETWEEN 1 AND 2", And((compared(Op.GE, 1), compared(Op.LE, 2)))),
        ("a NOT BETWEEN 1 AND 2", Not(And((compared(Op.GE, 1), compared(Op.LE, 2))))),
        ("a BETWEEN (1) AND ((b))", And((compared(Op.GE, 1), Compare(Op.LE, A, B)))),
        ("a LIKE 'x%'", Like(A, "x%")),
        ("a NOT LIKE 'x_'", Not(Like(A, "x_"))),
        ("a ILIKE '\\%'", Like(A, "\\%", True)),
        ("a NOT ILIKE 'x'", Not(Like(A, "x", True))),
        ("a LIKE NULL", compared(Op.EQ, None)),
        ("a", A),
        ("NOT a", Not(A)),
        ("NOT NOT a", Not(Not(A))),
        ("TRUE", Constant(True)),
        ("false", Constant(False)),
        ("Null", Constant(None)),
        ("(a) = (1)", compared(Op.EQ, 1)),
        ("((a = ((1))))", compared(Op.EQ, 1)),
        ("(((a)))", A),
        ("a=1AND b=1", None),
        ("a = 1 AND b = 1 OR c = 1", Or((And((ONE, TWO)), THREE))),
        ("a = 1 OR b = 1 AND c = 1", Or((ONE, And((TWO, THREE))))),
        ("(a = 1 OR b = 1) AND c = 1", And((Or((ONE, TWO)), THREE))),
        ("NOT a = 1 AND b = 1", And((Not(ONE), TWO))),
        ("NOT (a = 1 AND b = 1)", Not(And((ONE, TWO)))),
        ("NOT (NOT a = 1) OR NOT b", Or((Not(Not(ONE)), Not(B)))),
        ("(a = 1 AND (b = 1 AND c = 1))", And((ONE, TWO, THREE))),
        ("((a = 1 OR b = 1) OR c = 1)", Or((ONE, TWO, THREE))),
        ("a BETWEEN 1 AND 2 AND b = 1", And((compared(Op.GE, 1), compared(Op.LE, 2), TWO))),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_forms(text: str, expected: Expr | None) -> None:
    if expected is None:
        with pytest.raises(PredicateError, match="after a number"):
            parse(text)
    else:
        assert parse(text) == expected


@pytest.mark.parametrize(
    ("text", "path", "head"),
    [
        ("a.b.c", ("a", "b", "c"), 3),
        ('a.b."c"', ("a", "b", "c"), 2),
        ('"a"."b"', ("a", "b"), 1),
        ('"a.b"', ("a.b",), 1),
        ('a."b.c"', ("a", "b.c"), 1),
        ('"a" . b', ("a", "b"), 1),
        ('"it""s"', ('it"s',), 1),
        ('""', ("",), 1),
        ("Größe", ("Größe",), 1),
        ("true.null", ("true", "null"), 2),
        ("a.in", ("a", "in"), 2),
    ],
)
def test_names(text: str, path: tuple[str, ...], head: int) -> None:
    column = Column(path, head)
    assert parse(f"{text} = 1") == compared(Op.EQ, 1, column)
    assert parse(text) == column


def test_names_are_case_sensitive_and_words_are_not() -> None:
    assert parse("A iN (1) aNd a Is nOt NuLl") == And((InList(column_of(["A"]), (1,)), Not(IsNull(A))))


WORDS = [
    "and",
    "or",
    "not",
    "in",
    "between",
    "like",
    "ilike",
    "is",
    "null",
    "true",
    "false",
    "distinct",
    "from",
    "date",
    "time",
    "timestamp",
    "double",
    "x",
    "interval",
    "select",
    "escape",
]


@pytest.mark.parametrize("word", WORDS)
def test_every_word_is_a_column_in_quotes(word: str) -> None:
    column = column_of([word])
    text = f'"{word}"'
    assert parse(f"{text} = 1 AND NOT {text} IS NULL AND {text} IN (1) AND 1 < {text}") == And(
        (
            compared(Op.EQ, 1, column),
            Not(IsNull(column)),
            InList(column, (1,)),
            Compare(Op.LT, Literal(1), column),
        )
    )


@pytest.mark.parametrize("word", [word for word in WORDS if word not in ("null", "true", "false")])
def test_words_are_columns_without_quotes_where_nothing_else_fits(word: str) -> None:
    column = column_of([word])
    assert parse(f"{word} = 1") == compared(Op.EQ, 1, column)
    assert parse(f"a = 1 AND {word} < 1 OR 2 > {word}") == Or(
        (And((ONE, compared(Op.LT, 1, column))), Compare(Op.GT, Literal(2), column))
    )
    assert parse(f"({word})") == column
    assert parse(f"a BETWEEN {word} AND {word}") == And(
        (Compare(Op.GE, A, column), Compare(Op.LE, A, column))
    )


def test_a_word_stays_an_operator_where_it_is_one() -> None:
    like = column_of(["like"])
    assert parse("like LIKE 'like'") == Like(like, "like")
    assert parse("between BETWEEN 1 AND 2 AND in IN (1)") == And(
        (
            compared(Op.GE, 1, column_of(["between"])),
            compared(Op.LE, 2, column_of(["between"])),
            InList(column_of(["in"]), (1,)),
        )
    )
    assert parse("not not in = 1") == Not(Not(compared(Op.EQ, 1, column_of(["in"]))))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("-7", -7),
        ("- 7", -7),
        ("+7", 7),
        ("007", 7),
        (str(2**70), 2**70),
        ("7.0", Decimal("7.0")),
        ("7.", Decimal(7)),
        (".5", Decimal("0.5")),
        ("-10.005", Decimal("-10.005")),
        ("9007199254740993e0", Decimal(9007199254740993)),
        ("1e400", Decimal("1e400")),
        ("1.5E-3", Decimal("0.0015")),
        ("-" + "1" * 60 + ".25", Decimal("-" + "1" * 60 + ".25")),
        ("0e999999", Decimal(0)),
        ("'it''s'", "it's"),
        ("''", ""),
        ("X''", b""),
        ("x'00Ff'", b"\x00\xff"),
        ("NULL", None),
        ("TRUE", True),
        ("DOUBLE '0.1'", 0.1),
        ("DOUBLE '-Infinity'", float("-inf")),
        ("DATE '2013-01-31'", datetime.date(2013, 1, 31)),
        ("date '0001-01-01'", datetime.date(1, 1, 1)),
        ("TIME '23:59'", datetime.time(23, 59)),
        ("TIME '23:59:58.25'", datetime.time(23, 59, 58, 250000)),
        ("TIME '00:00:00.000000001'", Ticks("time", 1)),
        ("TIMESTAMP '2013-01-31'", datetime.datetime(2013, 1, 31)),
        ("TIMESTAMP '2013-01-31 05:06'", datetime.datetime(2013, 1, 31, 5, 6)),
        ("TIMESTAMP '2013-01-31T05:06:07.5'", datetime.datetime(2013, 1, 31, 5, 6, 7, 500000)),
        ("TIMESTAMP '2013-01-31T05:06:07Z'", datetime.datetime(2013, 1, 31, 5, 6, 7, tzinfo=UTC)),
        ("TIMESTAMP '2013-01-31 05:06:07+05:30'", datetime.datetime(2013, 1, 30, 23, 36, 7, tzinfo=UTC)),
        ("TIMESTAMP '2013-01-31 05:06:07 -08'", datetime.datetime(2013, 1, 31, 13, 6, 7, tzinfo=UTC)),
        ("TIMESTAMP '1970-01-01 00:00:00.000000001'", Ticks("timestamp", 1)),
        ("TIMESTAMP '1969-12-31 23:59:59.999999999Z'", Ticks("timestamp", -1, True)),
    ],
)
def test_literals(text: str, value: object) -> None:
    expected = Compare(Op.EQ, A, Literal(value))  # type: ignore[arg-type]
    found = parse(f"a = {text}")
    assert found == expected
    assert isinstance(found, Compare)
    assert isinstance(found.right, Literal)
    assert type(found.right.value) is type(value)
    assert parse(f"a IN ({text})") == InList(A, (value,))  # type: ignore[arg-type]


MANY = [str(i * 7) for i in range(MAX_LIST + 1)]


@pytest.mark.parametrize(
    ("texts", "values"),
    [
        (MANY, [int(text) for text in MANY]),
        ([f"-{text}" for text in MANY], [-int(text) for text in MANY]),
        ([f"'it''s {text}'" for text in MANY], [f"it's {text}" for text in MANY]),
        ([*MANY, "NULL"], [*(int(text) for text in MANY), None]),
        ([f"({text})" for text in MANY], [int(text) for text in MANY]),
        ([f"DOUBLE '{text}'" for text in MANY], [float(text) for text in MANY]),
    ],
    ids=["numbers", "negative", "text", "null", "parentheses", "doubles"],
)
def test_a_long_list_of_one_type_is_an_array(texts: list[str], values: list[Any]) -> None:
    found = parse(f"a IN ({', '.join(texts)})")
    assert isinstance(found, InArray)
    assert (found, found.position) == (member_of(A, values), 2)
    assert parse(f"a NOT IN ({', '.join(texts[:MAX_LIST])})") == Not(InList(A, tuple(values[:MAX_LIST])))


@pytest.mark.parametrize("texts", [[*MANY, "1.5"], [*MANY, "'x'"], [str(2**70)] * len(MANY)], ids=len)
def test_a_long_list_of_several_types_stays_a_list(texts: list[str]) -> None:
    found = parse(f"a IN ({', '.join(texts)})")
    assert isinstance(found, InList)
    assert len(found.values) == len(texts)


@pytest.mark.parametrize("end", [",", ", 1e5000", " 1", ", =", "", ", 1 OR"])
def test_faults_of_a_list_whatever_is_in_it(end: str) -> None:
    """With a sign it is read in another way."""
    close = ")" if end else ""
    with pytest.raises(PredicateError) as plain:
        parse(f"a IN ({', '.join(MANY)}{end}{close}")
    with pytest.raises(PredicateError) as signed:
        parse(f"a IN (+{', '.join(MANY)}{end}{close}")
    assert plain.value.message == signed.value.message
    assert (plain.value.position, plain.value.hint) == (signed.value.position - 1, signed.value.hint)  # type: ignore[operator]


def test_nan_and_negative_zero() -> None:
    nan, zero, decimal_zero = parse("a IN (DOUBLE 'NaN', DOUBLE '-0.0', -0.0)").values  # type: ignore[union-attr]
    assert repr((nan, zero, decimal_zero)) == "(nan, -0.0, Decimal('-0'))"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 = 1.0", True),
        ("1 = DOUBLE '1'", True),
        ("0.1 = DOUBLE '0.1'", False),
        ("9007199254740993 = DOUBLE '9007199254740992'", False),
        ("1e400 > DOUBLE '1e308'", True),
        ("DOUBLE 'NaN' > DOUBLE 'Infinity'", True),
        ("DOUBLE 'NaN' = DOUBLE 'NaN'", True),
        ("DOUBLE '-0.0' < 0", False),
        ("1 <> 2", True),
        ("'a' < 'b'", True),
        ("'Z' < 'a'", True),
        ("'\uffff' < '\U00010000'", True),
        ("X'ff' > X'00'", True),
        ("'a' = X'61'", True),
        ("TRUE > FALSE", True),
        ("DATE '2013-01-31' < '2013-02-01'", True),
        ("TIMESTAMP '2013-01-31' = DATE '2013-01-31'", True),
        ("TIMESTAMP '2013-01-31 00:00:00.000000001' > TIMESTAMP '2013-01-31'", True),
        ("'2013-01-31 01:00:00+01' = TIMESTAMP '2013-01-31 00:00Z'", True),
        ("TIME '01:00' < '02:00'", True),
        ("NULL = NULL", None),
        ("1 = NULL", None),
        ("NULL IS NOT DISTINCT FROM NULL", True),
        ("1 IS DISTINCT FROM NULL", True),
        ("NULL IS NULL", True),
        ("1 IS NULL", False),
        ("1 IS NOT NULL", True),
        ("NULL IS TRUE", False),
        ("1 IN (1, NULL)", True),
        ("1 IN (2, NULL)", None),
        ("1 IN (2, 3)", False),
        ("1 IN ()", False),
        ("'abc' LIKE 'a%c'", True),
        ("'abc' LIKE '_b_'", True),
        ("'ab' LIKE 'a%b%b'", False),
        ("'a%' LIKE 'a\\%'", True),
        ("'ab' LIKE 'a\\%'", False),
        ("'\n' LIKE '_'", True),
        ("'ABC' ILIKE 'a%C'", True),
        ("'STRASSE' ILIKE 'straße'", False),
        ("NULL LIKE 'a'", None),
        ("'a' LIKE NULL", None),
    ],
)
def test_what_holds_no_column_is_folded(text: str, value: bool | None) -> None:
    assert parse(text) == Constant(value)


def test_positions_lie_in_the_text() -> None:
    found = parse("  carrier = 'UA' AND \"dep delay\" IN (1)")
    assert isinstance(found, And)
    first, second = found.operands
    assert isinstance(first, Compare)
    assert isinstance(first.left, Column)
    assert isinstance(first.right, Literal)
    assert (first.left.position, first.position, first.right.position) == (2, 10, 12)
    assert isinstance(second, InList)
    assert (second.column.position, second.position) == (21, 33)


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        ("", 0, "the predicate is empty"),
        (" \n", 0, "the predicate is empty"),
        ("a =", 3, "expected a column or a literal, found the end"),
        ("= 1", 0, "expected a column or a literal, found ="),
        ("a b", 2, "expected AND, OR or the end, found b"),
        ("a = 1 2", 6, "expected AND, OR or the end, found 2"),
        ("a = 1 'x'", 6, "expected AND, OR or the end, found text"),
        ('a = 1 "x"', 6, 'expected AND, OR or the end, found "x"'),
        ("1 < a < 3", 6, "expected AND, OR or the end, found <"),
        ("(a = 1) = TRUE", 8, "expected AND, OR or the end, found ="),
        ("a + 1 = 2", 2, "expected AND, OR or the end, found +"),
        ("lower(a) = 'x'", 5, "expected an operator, found ("),
        ("(a = 1", 6, "expected AND, OR or the ) of the ( at 0, found the end"),
        ("a = (1", 6, "expected ), found the end"),
        ("a = 1)", 5, "expected AND, OR or the end, found )"),
        ("()", 1, "expected a column or a literal, found )"),
        ("a = 1 AND", 9, "expected a column or a literal, found the end"),
        ("a = 1 AND AND b", 10, "expected a column or a literal, found AND"),
        ("a = OR b = 1", 4, "expected a column or a literal, found OR"),
        ("a NOT 5", 6, "expected IN, BETWEEN, LIKE or ILIKE after NOT, found 5"),
        ("a NOT = 5", 6, "expected IN, BETWEEN, LIKE or ILIKE after NOT, found ="),
        ("a IN 1", 5, "expected ( after IN, found 1"),
        ("a IN (1", 7, "expected , or ) in the list of IN, found the end"),
        ("a IN (1 2)", 8, "expected , or ) in the list of IN, found 2"),
        ("a IN (1,)", 8, "expected a column or a literal, found )"),
        ("a BETWEEN 1", 11, "expected AND between the bounds of BETWEEN, found the end"),
        ("a BETWEEN 1 OR 2", 12, "expected AND between the bounds of BETWEEN, found OR"),
        ("a LIKE b", 7, "expected a pattern: a text literal"),
        ("a LIKE 5", 7, "expected a pattern: a text literal"),
        ("a LIKE 'x\\'", 7, "the pattern ends with a backslash that escapes nothing; write two"),
        ("5 LIKE 'x'", 0, "LIKE takes text"),
        ("a LIKE 'x' ESCAPE '!'", 11, "expected AND, OR or the end, found ESCAPE"),
        ("a IS", 4, "expected NULL, NOT, DISTINCT FROM, TRUE or FALSE, found the end"),
        ("a IS 5", 5, "expected NULL, NOT, DISTINCT FROM, TRUE or FALSE, found 5"),
        ("a IS NOT 5", 9, "expected NULL, DISTINCT FROM, TRUE or FALSE, found 5"),
        ("a IS DISTINCT b", 14, "expected FROM after DISTINCT, found b"),
        ("(a = 1) IS NULL", 8, "expected AND, OR or the end, found IS"),
        ("a. = 1", 3, "expected a name after the dot, found ="),
        ("a = - b", 6, "expected a number after -, found b"),
        ("5", 0, "expected a condition, found a literal"),
        ("a = 1 AND 'x'", 10, "expected a condition, found a literal"),
        ("'a' = 1", 6, "cannot compare text with a number"),
        ("DATE '2013-01-31' = TIME '01:00'", 20, "cannot compare a date with a time"),
        ("1 IN (1, TRUE)", 9, "cannot compare a number with a boolean"),
        ("a = DATE '2013-02-30'", 9, "'2013-02-30' is not a date: day is out of range for month"),
        ("a = DATE '13-2-3'", 9, "'13-2-3' is not a date; write YYYY-MM-DD"),
        ("a = TIME '24:00'", 9, "'24:00' is not a time of the day, 00:00:00 to 23:59:59.999999999"),
        ("a = TIMESTAMP 'x'", 14, "'x' is not a timestamp; write YYYY-MM-DD HH:MM:SS[.fffffffff][+HH:MM]"),
        ("a = TIMESTAMP '0001-01-01 00:00+01'", 14, "a timestamp must lie in the years 0001 to 9999"),
        ("a = TIMESTAMP '2013-01-31 00:00+16'", 14, "+16 is not an offset from UTC"),
        ("a = X'0'", 5, "'0' is not binary; write pairs of hexadecimal digits: X'00ff'"),
        ("a = DOUBLE '1_0'", 11, "'1_0' is not a double; write '0.5', '1e300', 'Infinity' or 'NaN'"),
        ("a = INTERVAL '1'", 4, "expected an operator, found INTERVAL"),
        ("a = 1e5000", 4, "the number is beyond 4,000 digits or powers of ten"),
        ("a = 1e99999999999999999999", 4, "1e99999999999999999999 is out of range"),
    ],
)
def test_faults(text: str, position: int, message: str) -> None:
    with pytest.raises(PredicateError) as caught:
        parse(text)
    assert (caught.value.message, caught.value.position, caught.value.text) == (message, position, text)


@pytest.mark.parametrize("digits", [4001, 10_000])
def test_numbers_have_a_bounded_length(digits: int) -> None:
    with pytest.raises(PredicateError) as caught:
        parse(f"a = {'9' * digits}")
    assert caught.value.position == 4
    assert parse(f"a = {'9' * 4000}") == compared(Op.EQ, 10**4000 - 1)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("a IN (SELECT 1)", "queries within are not supported"),
        ("a IS NAN", "write = DOUBLE 'NaN'"),
        ("a IS OK", None),
        (
            "a > 2013-01-02",
            "arithmetic is for dates, as in CURRENT_DATE - 7; dates and times stand in quotes",
        ),
        (
            "lower(a) = 'x'",
            "only year(t), date_trunc('day', t), CAST(t AS DATE) and EXTRACT(YEAR FROM t) are functions here",
        ),
        ("a && b", "write AND"),
        (
            "a = @x",
            "parameters are not supported: write the value itself, or build the condition with `accel.col`",
        ),
        ("a = :x", "casts and parameters are not supported; write a typed literal such as DATE '2013-01-31'"),
        ("a = %s", "neither arithmetic nor parameters are supported; LIKE takes 'a%' in quotes"),
        ("a IN {1, 2}", "a list stands in parentheses, as in IN (1, 2)"),
        ('a LIKE "it\'s"', "text stands in single quotes: 'it''s'"),
        ("a LIKE b", "text stands in single quotes: 'b'"),
        ("a LIKE 5", None),
        ("a IN 'x'", "a list stands in parentheses, as in IN (1, 2)"),
        ("a IN ('x',)", "a list ends without a comma"),
        ("a IN (,'x')", None),
        (
            "s['a'] = 1",
            (
                "a field of a struct is written a.b; a list stands in parentheses, as in IN (1, 2); "
                'names are quoted with double quotes: "a name"'
            ),
        ),
        ("'my col' = 1", 'single quotes make a text; the column is written "my col"'),
        ("'a' > 1", "single quotes make a text; the column is written a"),
        ("1 = 'a'", None),
        ("a IS None", "write NULL"),
        ("a IS NOT None", "write NULL"),
        ("a IS IN (1)", "write IN, without IS"),
        ("a > 1 LIMIT 5", "the condition alone stands here: `limit=` is an argument of its own"),
        (
            "a > 1 ORDER BY a",
            "the condition alone stands here: rows come in file order, and are sorted in what they are read into",
        ),
        (
            "a > 1 GROUP BY a",
            "the condition alone stands here: rows are grouped in what they are read into",
        ),
        ("a CONTAINS 'x'", "write LIKE '%text%'"),
        ("a startswith 'x'", "write LIKE 'text%'"),
        ("a RLIKE 'x'", "LIKE is the one kind of pattern, of % and _"),
        ("a ISNULL", "write IS NULL"),
        ("a =< 1", "the operators are = <> < <= > >="),
        ("a <=> 1", "write IS NOT DISTINCT FROM"),
        (
            "my col = 1",
            (
                "the operators are = <> < <= > >= IN BETWEEN LIKE ILIKE IS; "
                "names with other characters than letters, digits and _ need double quotes"
            ),
        ),
    ],
)
def test_what_another_dialect_would_have_is_told(text: str, hint: str | None) -> None:
    with pytest.raises(PredicateError) as caught:
        parse(text)
    assert caught.value.hint == hint


def test_a_column_may_be_called_select() -> None:
    assert parse("a IN (SELECT, 1)") == parse('a IN ("SELECT", 1)')


def test_long_chains_are_flat() -> None:
    count = 10_000
    found = parse(" OR ".join(f"a = {i}" for i in range(count)))
    assert found == Or(tuple(compared(Op.EQ, i) for i in range(count)))
    assert parse(" AND ".join(["a"] * count)) == And((A,) * count)
    assert parse(f"a IN ({', '.join(map(str, range(count)))})") == member_of(A, range(count))


@pytest.mark.parametrize(
    ("opening", "closing"), [("(", ")"), ("NOT ", ""), ("NOT (", ")"), ("b OR c AND (", ")")]
)
def test_depth_is_bounded(opening: str, closing: str) -> None:
    for levels in (MAX_DEPTH * 2, 10_000):
        with pytest.raises(PredicateError, match=f"nested deeper than {MAX_DEPTH} levels") as caught:
            parse(opening * levels + "a" + closing * levels)
        assert caught.value.position is not None
    few = MAX_DEPTH // len(opening.split()) - 2
    assert depth_of(parse(opening * few + "a" + closing * few)) <= MAX_DEPTH


def test_parentheses_on_the_right_are_bounded() -> None:
    assert parse(f"a = {'(' * 200}1{')' * 200}") == compared(Op.EQ, 1)
    with pytest.raises(PredicateError, match="nested deeper"):
        parse(f"a = {'(' * 201}1{')' * 201}")


PIECES = st.sampled_from(
    [
        "a",
        "b.c",
        '"d"',
        "'x'",
        "1",
        "2.5",
        "-1",
        "(",
        ")",
        ",",
        ".",
        "AND",
        "OR",
        "NOT",
        "IN",
        "IS",
        "NULL",
        "TRUE",
        "BETWEEN",
        "LIKE",
        "=",
        "<",
        "<>",
        "DISTINCT",
        "FROM",
        "DATE",
        "'2013-01-31'",
        "X'00'",
        "-",
        "+",
        "é",
        "\\",
        "%",
    ]
)


@given(st.one_of(st.lists(PIECES, max_size=14).map(" ".join), st.text(max_size=30)))
def test_any_text_parses_or_is_refused_with_its_place(text: str) -> None:
    try:
        found = parse(text)
    except PredicateError as error:
        assert error.position is not None
        assert 0 <= error.position <= len(text)
    else:
        assert depth_of(found) <= MAX_DEPTH


def short(text: str) -> list[tuple[str, str, int]]:
    return [(token.kind, token.value, token.position) for token in tokenize(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", [("end", "", 0)], id="empty"),
        pytest.param(" \t\r\n\f\v", [("end", "", 6)], id="blank"),
        pytest.param("a", [("name", "a", 0), ("end", "", 1)], id="name"),
        pytest.param("_a$1", [("name", "_a$1", 0), ("end", "", 4)], id="name-marks"),
        pytest.param("größe名", [("name", "größe名", 0), ("end", "", 6)], id="name-letters"),
        pytest.param("कि", [("name", "कि", 0), ("end", "", 2)], id="name-combining-mark"),
        pytest.param('"a ""b"""', [("quoted", 'a "b"', 0), ("end", "", 9)], id="quoted"),
        pytest.param('""', [("quoted", "", 0), ("end", "", 2)], id="quoted-empty"),
        pytest.param("'it''s'", [("text", "it's", 0), ("end", "", 7)], id="text"),
        pytest.param("''", [("text", "", 0), ("end", "", 2)], id="text-empty"),
        pytest.param("'a\\n--\n'", [("text", "a\\n--\n", 0), ("end", "", 8)], id="text-raw"),
        pytest.param("12", [("number", "12", 0), ("end", "", 2)], id="int"),
        pytest.param("1.", [("number", "1.", 0), ("end", "", 2)], id="point-last"),
        pytest.param(".5", [("number", ".5", 0), ("end", "", 2)], id="point-first"),
        pytest.param("1.5E-3", [("number", "1.5E-3", 0), ("end", "", 6)], id="exponent"),
        pytest.param(
            "a>=-1",
            [("name", "a", 0), ("op", ">=", 1), ("mark", "-", 3), ("number", "1", 4), ("end", "", 5)],
            id="glued",
        ),
        pytest.param(
            "a<>b!=c==d",
            [
                ("name", "a", 0),
                ("op", "<>", 1),
                ("name", "b", 3),
                ("op", "!=", 4),
                ("name", "c", 6),
                ("op", "==", 7),
                ("name", "d", 9),
                ("end", "", 10),
            ],
            id="operators",
        ),
        pytest.param(
            'a."b"',
            [("name", "a", 0), ("mark", ".", 1), ("quoted", "b", 2), ("end", "", 5)],
            id="path",
        ),
    ],
)
def test_tokens(text: str, expected: list[tuple[str, str, int]]) -> None:
    assert short(text) == expected


def test_only_plain_unquoted_names_are_words() -> None:
    # U+017F and U+0131 become S and I in upper case, but `iſ` is no IS and `lıke` no LIKE.
    assert [token.word for token in tokenize("is \"IS\" 'IS' iſ lıke")] == ["IS", "", "", "", "", ""]
    assert tokenize("<=")[0] == Token("op", "<=", 0, "<=")


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        pytest.param("a = 'x", 4, "this text is not closed", id="open-text"),
        pytest.param("a = 'x''", 4, "this text is not closed", id="open-text-after-pair"),
        pytest.param('"a = 1', 0, "this quoted name is not closed", id="open-name"),
        pytest.param("a = 5x", 5, "unexpected 'x' after a number", id="number-then-letter"),
        pytest.param("a = 1.2.3", 7, "unexpected '.' after a number", id="two-points"),
        pytest.param("a = 1_000", 5, "unexpected '_' after a number", id="underscore"),
        pytest.param("a = 1e", 5, "unexpected 'e' after a number", id="bare-exponent"),
        pytest.param("a = 1 -- c", 6, "comments are not supported", id="dash-comment"),
        pytest.param("a = /* c */ 1", 4, "comments are not supported", id="star-comment"),
        pytest.param("a = `b`", 4, "unexpected character '`'", id="backtick"),
        pytest.param("a\x00", 1, "unexpected character '\\x00'", id="nul"),
        pytest.param("a = “b”", 4, "unexpected character '“' (U+201C)", id="smart-quotes"),
        pytest.param("a\u00a0= 1", 1, "unexpected character '\\xa0' (U+00A0)", id="no-break-space"),
        pytest.param("a = '\ud800'", 5, "a lone surrogate is no character", id="surrogate"),
    ],
)
def test_faults_point_at_the_character(text: str, position: int, message: str) -> None:
    with pytest.raises(PredicateError) as caught:
        tokenize(text)
    assert (caught.value.position, caught.value.message, caught.value.text is not None) == (
        position,
        message,
        True,
    )
    assert str(caught.value).endswith("^")


def test_length_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accel.predicate.parser.MAX_LENGTH", 5)
    assert short("a = 1")[-1] == ("end", "", 5)
    with pytest.raises(PredicateError, match="6 characters, more than 5"):
        tokenize("a = 12")
