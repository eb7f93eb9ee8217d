"""The builder: the trees it makes, what it takes as literals, and the mistakes it catches."""

from __future__ import annotations

import copy
import datetime
import inspect
import pickle
import re
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from accel.errors import PredicateError
from accel.predicate.column import ColumnExpr, Condition, col
from accel.predicate.expr import (
    And,
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
    column_of,
)
from accel.predicate.parser import parse
from accel.predicate.sql import to_sql

A, B = column_of(["a"]), column_of(["b"])
ONE, TWO, THREE = (Compare(Op.EQ, column_of([name]), Literal(1)) for name in "abc")


CLOSER = "& | ~ bind closer than comparisons, so each of these takes parentheses: "
EXAMPLE = '(col("a") > 1) & (col("b") != 2)'
ALONE = "a predicate stands alone, and ~ negates it"
OTHERS = (
    "it has between, date, date_trunc, ilike, is_distinct_from, is_not_distinct_from, is_not_null, is_null, isin, "
    "like, starts_with and year; "
    'a field of a struct is ["value"]'
)


@pytest.mark.parametrize(
    ("built", "text"),
    [
        (col("a") == 1, "a = 1"),
        (col("a") != 1, "a <> 1"),
        (col("a") < 1, "a < 1"),
        (col("a") <= 1, "a <= 1"),
        (col("a") > 1, "a > 1"),
        (col("a") >= 1, "a >= 1"),
        (1 < col("a"), "a > 1"),
        (col("a") == col("b"), "a = b"),
        (col("a") == None, "a = NULL"),
        (col("a").is_distinct_from(None), "a IS DISTINCT FROM NULL"),
        (col("a").is_not_distinct_from(1), "a IS NOT DISTINCT FROM 1"),
        (col("a").is_null(), "a IS NULL"),
        (col("a").is_not_null(), "a IS NOT NULL"),
        (col("a").isin([1, None]), "a IN (1, NULL)"),
        (~col("a").isin({"y", "x"}), "a NOT IN ('x', 'y')"),
        (col("a").between(1, 2), "a >= 1 AND a <= 2"),
        (col("a").like("x%"), "a LIKE 'x%'"),
        (col("a").ilike("x_"), "a ILIKE 'x_'"),
        (col("a").starts_with("5%_\\"), "a LIKE '5\\%\\_\\\\%'"),
        (col("a").starts_with(""), "a LIKE '%'"),
        (col("a") & ~col("b"), "a AND NOT b"),
        ((col("a") == 1) | col("b"), "a = 1 OR b"),
        (col("a").is_null() & True, "a IS NULL AND TRUE"),
        (False | col("a").is_null(), "FALSE OR a IS NULL"),
        (col("a")["b"] == 1, '"a".b = 1'),
        (col("a")["b"]["c.d"] == 1, '"a".b."c.d" = 1'),
        (col("a")["c.d"] == 1, 'a."c.d" = 1'),
        (col("a b") == 1, '"a b" = 1'),
        (col(".") == 1, '"." = 1'),
        (col("date") == datetime.date(2013, 1, 31), "\"date\" = DATE '2013-01-31'"),
        (col("a") == Decimal("1.50"), "a = 1.50"),
        (col("a") == pa.scalar(5, pa.int8()), "a = 5"),
    ],
    ids=repr,
)
def test_what_is_built_is_what_the_text_says(built: Condition, text: str) -> None:
    assert to_sql(built.expr) == text
    assert built.expr == parse(text)
    assert repr(built) == f"<{text}>"


def test_chains_are_flat() -> None:
    a, b, c = col("a") == 1, col("b") == 1, col("c") == 1
    assert (a & b & c).expr == (a & (b & c)).expr == And((ONE, TWO, THREE))
    assert (a | b | c).expr == (a | (b | c)).expr == Or((ONE, TWO, THREE))
    assert ((a & b) | c).expr == Or((And((ONE, TWO)), THREE))


def test_a_column_alone_is_a_condition() -> None:
    assert isinstance(col("a"), ColumnExpr)
    assert col("a").expr == A
    assert (~col("a")).expr == Not(A)
    assert col("a").is_null().expr == IsNull(A)
    assert (col("a") & True).expr == And((A, Constant(True)))


def test_long_lists_become_arrays() -> None:
    assert col("a").isin(list(range(1000))).expr == InList(A, tuple(range(1000)))
    assert col("a").isin(range(1001)).expr == InArray(A, pa.array(range(1001)))
    assert col("a").isin(pa.array(["x"])).expr == InArray(A, pa.array(["x"]))


@pytest.mark.parametrize(
    "mistake",
    [
        lambda: (col("a") > 1) and (col("b") > 1),
        lambda: (col("a") > 1) or (col("b") > 1),
        lambda: not col("a"),
        lambda: 1 < col("a") < 5,
        lambda: bool(col("a") == 1),
        lambda: [1 for _ in range(1) if col("a") == 1],
    ],
    ids=["and", "or", "not", "chain", "bool", "if"],
)
def test_the_truth_of_a_predicate_is_refused(mistake: Any) -> None:
    with pytest.raises(TypeError, match="join predicates by & and |"):
        mistake()


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (
            lambda: (col("a") > 1) & col("b") != 2,
            f'(a > 1 AND b) != 2 ({CLOSER}(col("a") > 1) & (col("b") != 2))',
        ),
        (
            lambda: (col("a") > 1) & col("b") == col("c"),
            f'(a > 1 AND b) == col("c") ({CLOSER}(col("a") > 1) & (col("b") == col("c")))',
        ),
        (
            lambda: (col("a") > 1) | col("b") < "x",
            f"(a > 1 OR b) < 'x' ({CLOSER}(col(\"a\") > 1) | (col(\"b\") < 'x'))",
        ),
        (
            lambda: col("a").is_null() | (col("a") > 1) & col("b") >= 3,
            f"(a IS NULL OR (a > 1 AND b)) >= 3 ({CLOSER}{EXAMPLE})",
        ),
        (
            lambda: col("a") & col("b").is_null() & col("c") <= 3,
            f'(a AND b IS NULL AND c) <= 3 ({CLOSER}(...) & (col("c") <= 3))',
        ),
        (lambda: ~col("a") == 1, f'(NOT a) == 1 ({CLOSER}~(col("a") == 1))'),
        (lambda: col("a").is_null() == True, f"(a IS NULL) == True ({ALONE})"),
        (lambda: False != col("a").is_null(), f"(a IS NULL) != False ({ALONE})"),
        (lambda: (col("a") > 1) > (col("b") > 1), f"(a > 1) > (...) ({CLOSER}{EXAMPLE})"),
        (lambda: col("a") < (col("b") > 1), f'(b > 1) > col("a") ({CLOSER}{EXAMPLE})'),
        (lambda: col("a") == ONE, f'(a = 1) == col("a") ({CLOSER}{EXAMPLE})'),
        (lambda: (col("a") > 1) == None, f"(a > 1) == None ({CLOSER}{EXAMPLE})"),
        (
            lambda: np.int64(2) != ((col("a") > 1) & col("b")),
            f'(a > 1 AND b) != 2 ({CLOSER}(col("a") > 1) & (col("b") != 2))',
        ),
    ],
    ids=["ne", "eq", "lt", "ge", "le", "not", "true", "false", "gt", "column", "tree", "none", "numpy"],
)
def test_a_predicate_that_is_compared_is_told_with_the_parentheses_that_were_meant(
    mistake: Any, message: str
) -> None:
    with pytest.raises(PredicateError) as caught:
        mistake()
    assert str(caught.value) == f"a predicate cannot be compared, as in {message}"


def test_predicates_can_be_kept_copied_and_pickled() -> None:
    built = (col("a") > 1) & col("b")
    assert {built: 1}[built] == 1
    assert built in [built]
    for made in (copy.copy(built), copy.deepcopy(built), pickle.loads(pickle.dumps(built))):
        assert made.expr == built.expr


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda: col("a").is_in, "write isin([...])"),
        (lambda: col("a").isNull, "write is_null()"),
        (lambda: col("a").startswith, "write starts_with(prefix), or like(pattern)"),
        (lambda: col("a").contains, "write like('%text%')"),
        (lambda: col("s").value, OTHERS),
        (lambda: (col("a") > 1).isin, "& | ~ join predicates, and `where=` takes them"),
        (lambda: col("a").__array__, None),
    ],
    ids=["is_in", "isNull", "startswith", "contains", "value", "predicate", "protocol"],
)
def test_a_name_that_there_is_not_is_told_with_the_right_one(mistake: Any, message: str | None) -> None:
    with pytest.raises(AttributeError) as caught:
        mistake()
    text = str(caught.value)
    assert text.partition(": ")[2] == (message or "")
    assert f"object has no attribute {caught.value.name!r}" in text


def test_each_name_that_is_told_is_one_that_there_is() -> None:
    names = {name for name in dir(ColumnExpr) if name[0] != "_" and name != "expr"}
    assert set(re.findall(r"\w+", OTHERS.partition(";")[0])) - {"it", "has", "and"} == names


@pytest.mark.parametrize(
    "mistake",
    [lambda: 1 in col("a"), lambda: list(col("a")), lambda: {col("a"): 1}],
    ids=["in", "iterate", "hash"],
)
def test_a_column_is_no_container_and_no_key(mistake: Any) -> None:
    with pytest.raises(TypeError):
        mistake()


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda: (col("a") > 1) & 5, "& joins predicates, not a int"),
        (lambda: col("a") > 1 & col("b") < 2, "& joins predicates, not a int"),
        (lambda: "x" | col("a"), r"\| joins predicates, not a str"),
    ],
    ids=["right", "precedence", "left"],
)
def test_what_is_joined_must_be_predicates(mistake: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        mistake()


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda: col(5), "a column's name is a str, not a int"),
        (lambda: col("a")[0], "a field's name is a str, not a int"),
        (lambda: col("\udcff"), r"the column name '\\udcff' holds a lone surrogate"),
        (lambda: col("a")["\udcff"], r"the column name 'a.\\udcff' holds a lone surrogate"),
        (lambda: col("a") == (col("b") > 1), r"a predicate cannot be compared, as in \(b > 1\) == col"),
        (lambda: col("a") == [1], "cannot be a literal"),
        (lambda: col("a") == datetime.timedelta(1), "cannot be a literal"),
        (lambda: col("a").like(5), "a pattern is a str, not a int"),
        (lambda: col("a").like("x\\"), "ends with a backslash"),
        (lambda: col("a").starts_with(b"x"), "a prefix is a str, not a bytes"),
        (lambda: col("a").isin("abc"), "IN takes a collection"),
        (lambda: col("a").isin(5), "IN takes a collection"),
    ],
)
def test_other_mistakes(mistake: Any, message: str) -> None:
    with pytest.raises(PredicateError, match=message):
        mistake()


@pytest.mark.parametrize("kind", [Condition, ColumnExpr])
def test_each_method_is_explained(kind: type) -> None:
    assert [
        name for name, made in vars(kind).items() if name[0] != "_" and not made.__doc__ and callable(made)
    ] == []


@pytest.mark.parametrize(
    "made",
    [col, ColumnExpr, *map(vars(ColumnExpr).get, ("__getitem__", "isin", "like", "ilike", "starts_with"))],
)
def test_what_may_be_a_mistake_says_what_it_raises(made: Any) -> None:
    assert "Raises\n------\nPredicateError\n    " in inspect.getdoc(made)


def test_the_tree_is_made_of_plain_nodes() -> None:
    built: Expr = (col("a").like("x") | (col("b") == "y")).expr
    assert built == Or((Like(A, "x"), Compare(Op.EQ, B, Literal("y"))))
