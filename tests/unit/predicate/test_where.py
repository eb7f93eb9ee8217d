"""All forms of `where`, pyarrow's filter lists among them, and how little they load."""

from __future__ import annotations

import datetime
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from accel.errors import PredicateError
from accel.predicate.column import col
from accel.predicate.expr import (
    MAX_DEPTH,
    And,
    Compare,
    Expr,
    InArray,
    InList,
    IsNull,
    Literal,
    Not,
    Op,
    Or,
    column_of,
)
from accel.predicate.where import from_dnf, to_expr
from tests.oracle import rowwise

ABOVE = Compare(Op.GT, column_of(["a"]), Literal(1))


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (None, None),
        ("a > 1", ABOVE),
        ([("a", ">", 1)], ABOVE),
        ([[("a", ">", 1)]], ABOVE),
        (col("a") > 1, ABOVE),
        (col("a"), column_of(["a"])),
        (ABOVE, ABOVE),
    ],
    ids=["none", "text", "terms", "lists", "builder", "column", "tree"],
)
def test_forms(where: Any, expected: Expr | None) -> None:
    assert to_expr(where) == expected


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("", "the predicate is empty"),
        ([], "a filter list is empty"),
        (True, "a bool is no predicate"),
        (Literal(1), r"a accel\.predicate\.expr\.Literal is no predicate"),
        ({"a": 1}, "a dict is no predicate"),
    ],
    ids=["empty", "empty-list", "bool", "literal", "dict"],
)
def test_what_is_no_where(where: Any, message: str) -> None:
    with pytest.raises(PredicateError, match=message):
        to_expr(where)


def test_depth_is_bounded_however_it_was_built() -> None:
    tree: Expr = ABOVE
    for _ in range(MAX_DEPTH - 1):
        tree = Not(tree)
    assert to_expr(tree) is tree
    with pytest.raises(PredicateError, match="nested deeper than 200 levels"):
        to_expr(Not(tree))


LOADED = """
import sys
from accel.predicate.where import to_expr
to_expr("a = DATE '2013-01-31' AND b IN (1, 2.5) OR c LIKE 'x%'")
assert "pyarrow" not in sys.modules, "text needs no pyarrow"
import datetime
import numpy
from accel.predicate.codec import decode, encode
from accel.predicate.column import col
lists = [range(5000), map(str, range(5000)), numpy.arange(9), [datetime.date(2013, 1, 1)] * 2000]
for values in lists:
    expr = to_expr(col("a").isin(values))
    assert decode(encode(expr)) == expr
print(sorted({"pandas", "pyarrow.acero", "pyarrow.dataset", "aiohttp"} & set(sys.modules)))
"""


def test_nothing_heavy_is_loaded() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


A, B = column_of(["a"]), column_of(["b"])
A_ABOVE_1 = Compare(Op.GT, A, Literal(1))
B_IS_X = Compare(Op.EQ, B, Literal("x"))


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([("a", ">", 1)], A_ABOVE_1),
        ([["a", ">", 1]], A_ABOVE_1),
        ((("a", ">", 1),), A_ABOVE_1),
        ([("a", ">", 1), ("b", "=", "x")], And((A_ABOVE_1, B_IS_X))),
        ([("a", ">", 1), ("b", "=", "x"), ("a", ">", 1)], And((A_ABOVE_1, B_IS_X, A_ABOVE_1))),
        ([[("a", ">", 1)]], A_ABOVE_1),
        ([[("a", ">", 1)], [("b", "==", "x")]], Or((A_ABOVE_1, B_IS_X))),
        ([[("a", ">", 1), ("b", "==", "x")], [("b", "=", "x")]], Or((And((A_ABOVE_1, B_IS_X)), B_IS_X))),
        ([("a", "!=", 1)], Compare(Op.NE, A, Literal(1))),
        ([("a", "<", 1)], Compare(Op.LT, A, Literal(1))),
        ([("a", "<=", 1)], Compare(Op.LE, A, Literal(1))),
        ([("a", ">=", 1)], Compare(Op.GE, A, Literal(1))),
        ([("a", "=", None)], Compare(Op.EQ, A, Literal(None))),
        ([("a", "in", [1, 2])], InList(A, (1, 2))),
        ([("a", "in", {2, 1})], InList(A, (1, 2))),
        ([("a", "in", (1, None))], Or((InList(A, (1,)), IsNull(A)))),
        ([("a", "not in", [1])], Or((Not(InList(A, (1,))), IsNull(A)))),
        ([("a", "not in", [1, None])], Not(InList(A, (1,)))),
        ([("a", "not in", [None])], And((Not(InList(A, ())), Not(IsNull(A))))),
        pytest.param(
            [("a", "not in", pa.nulls(2))], And((Not(InArray(A, pa.nulls(0))), Not(IsNull(A)))), id="nulls"
        ),
        ([("a", "in", np.array([1, 2]))], InArray(A, pa.array([1, 2]))),
        pytest.param(
            [("a", "in", pa.array([1, None]))], Or((InArray(A, pa.array([1])), IsNull(A))), id="arrow"
        ),
        ([("a", "in", range(3))], InList(A, (0, 1, 2))),
        ([("a.b", "=", 1)], Compare(Op.EQ, column_of(["a.b"]), Literal(1))),
        ([(("a", "b"), "=", 1)], Compare(Op.EQ, column_of(["a", "b"]), Literal(1))),
        ([("not a word", "=", 1)], Compare(Op.EQ, column_of(["not a word"]), Literal(1))),
    ],
    ids=lambda value: repr(value)[:60] if isinstance(value, list) else "",
)
def test_trees(filters: Any, expected: Expr) -> None:
    assert from_dnf(filters) == expected


@pytest.mark.parametrize(
    "filters",
    [
        [("a", "in", [1, 3])],
        [("a", "in", [1, None])],
        [("a", "not in", [1, 3])],
        [("a", "not in", [1, None])],
        [("a", "not in", [])],
        [("a", "in", [None])],
        [("a", "not in", [None])],
        [("a", "not in", (None,))],
        pytest.param([("a", "not in", {None})], id="a set of null"),
        pytest.param([("a", "not in", pa.array([None], pa.int64()))], id="an array of null"),
        [("a", "!=", 1)],
        pytest.param([("a", ">", 1), ("s", "in", {"x", "y"})], id="a set"),
        [[("a", "<=", 1)], [("s", "not in", ["x"]), ("a", "<", 4)]],
        [("d", ">=", datetime.date(2013, 1, 2))],
    ],
    ids=repr,
)
def test_rows_are_those_that_pyarrow_keeps(filters: Any) -> None:
    days = [datetime.date(2013, 1, day) for day in (1, 2, 3)]
    table = pa.table(
        {
            "a": [1, 2, None, 3, 1],
            "s": ["x", None, "y", "z", "x"],
            "d": [days[0], None, *days],
            "row": range(5),
        }
    )
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    kept = pq.read_table(pa.BufferReader(sink.getvalue()), filters=filters)["row"].to_pylist()
    assert [row for row, true in enumerate(rowwise.evaluate(from_dnf(filters), table)) if true] == kept


@pytest.mark.parametrize("op", ["in", "not in"])
def test_a_null_among_the_entries_of_a_dictionary_is_a_null(op: str) -> None:
    coded = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array(["x", None]))
    table = pa.table({"s": ["x", None, "y"]})
    found = rowwise.evaluate(from_dnf([("s", op, coded)]), table)
    assert found == rowwise.evaluate(from_dnf([("s", op, ["x", None])]), table)


@pytest.mark.parametrize("op", ["in", "not in"])
@pytest.mark.parametrize(("kind", "x"), [(pa.string_view(), "x"), (pa.binary_view(), b"x")], ids=str)
def test_nulls_of_views(op: str, kind: pa.DataType, x: str | bytes) -> None:
    """As a series of Polars gives them: Arrow has no filter for these."""
    table = pa.table({"s": ["x", None, "y"]})
    found = rowwise.evaluate(from_dnf([("s", op, pa.array([x, None], kind))]), table)
    assert found == rowwise.evaluate(from_dnf([("s", op, ["x", None])]), table)


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ([], "a filter list is empty"),
        ({"a": 1}, "a filter list is a list of terms"),
        (("a", "=", 1), "one term alone is no filter list"),
        ([[("a", "=", 1)], []], r"expected a list of terms of list 2, found \[\]"),
        ([[("a", "=", 1)], ("b", "=", 1)], r"term 1 of list 2, 'b': a term is"),
        ([("a", "=", 1), ("b", "=")], r"term 2, \('b', '='\): a term is \(name, op, value\)"),
        ([("a", "~", 1)], r"term 1, \('a', '~', 1\): '~' is no operator of filter lists"),
        ([("a", "like", "x%")], "'like' is no operator"),
        ([("a", ["x"], 1)], "is no operator"),
        ([("a", "=", [1])], "= takes one value, not a list"),
        ([("a", "in", "abc")], "IN takes a collection of values, not a str"),
        ([("a", "in", 5)], "IN takes a collection of values, not a int"),
        ([("a", "=", object)], "cannot be a literal"),
        ([((), "=", 1)], "is no column name"),
        ([5], r"expected terms \(name, op, value\) in a filter list, found 5"),
    ],
    ids=repr,
)
def test_faults_name_the_term(filters: Any, message: str) -> None:
    with pytest.raises(PredicateError, match=message):
        from_dnf(filters)
