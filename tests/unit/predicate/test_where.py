"""One door for every form of `where`, and how little it loads."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pyarrow.compute as pc
import pytest

from accel.errors import PredicateError
from accel.predicate.column import col
from accel.predicate.expr import MAX_DEPTH, Compare, Expr, Literal, Not, Op, column_of
from accel.predicate.where import to_expr

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
        (pc.field("a") > 1, "another library's expression cannot be looked into"),
        ({"a": 1}, "a dict is no predicate"),
    ],
    ids=["empty", "empty-list", "bool", "literal", "arrow", "dict"],
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
