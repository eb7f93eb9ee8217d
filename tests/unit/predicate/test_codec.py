"""Tree to bytes and back; damaged and foreign bytes are refused."""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings

from accel.errors import PredicateError
from accel.predicate.codec import decode, encode
from accel.predicate.column import Condition, col
from accel.predicate.expr import And, Expr, InArray, IsNull, Literal, Not, Or, column_of
from accel.predicate.parser import MAX_DEPTH, parse
from tests.unit.predicate.trees import trees, typed

A = column_of(["a"])


def framed(nodes: Any, tail: bytes = b"", version: int = 2) -> bytes:
    text = nodes if isinstance(nodes, bytes) else json.dumps(nodes).encode()
    body = text + tail
    return struct.pack("<4sBII", b"AXPR", version, zlib.crc32(body, len(text)), len(text)) + body


@settings(max_examples=300)
@given(trees)
def test_bytes_read_back_as_the_same_tree(tree: Expr) -> None:
    assert typed(decode(encode(tree))) == typed(tree)


def test_the_bytes_of_a_small_predicate() -> None:
    text = b'[["compare","=",["c",["a","b"],2,false],["l",1]],["null",[["b"],1,false]],["not"],["and",2]]'
    assert encode(parse("a.b = 1 AND NOT b IS NULL")) == framed(text)


@pytest.mark.parametrize(
    "column", [col("a.b"), col("a")["b"], col("a.b")["c"], parse("a.b.c"), parse('"a.b".c')], ids=repr
)
def test_columns_travel_as_they_were_named(column: Any) -> None:
    expr = column.expr if isinstance(column, Condition) else column
    assert decode(encode(expr)) == expr


@pytest.mark.parametrize(
    "array",
    [
        pa.array([1, None, 3]),
        pa.array([], pa.string()),
        pa.array(["x", None, "é"]).dictionary_encode(),
        pa.array([1.5, float("inf")], pa.float32()),
        pa.array(["x"] * 3, pa.string_view()),
        pa.array([10**9], pa.timestamp("ns", "UTC")),
        pa.array(range(100_000))[10:],
    ],
    ids=lambda array: str(array.type),
)
def test_key_arrays_keep_type_and_content(array: pa.Array) -> None:
    tree = Or((InArray(A, array), Not(InArray(column_of(["b"]), pa.array([1])))))
    found = decode(encode(tree))
    assert found == tree
    assert isinstance(found, Or)
    assert found.operands[0].values.type == array.type  # type: ignore[union-attr]


def test_a_slice_travels_without_the_rest() -> None:
    assert len(encode(InArray(A, pa.array(range(100_000))[:10]))) < 1000


def test_every_flip_and_cut_is_noticed() -> None:
    data = encode(And((parse("a = 'x'"), InArray(A, pa.array([1, 2, 3])))))
    for index in range(len(data)):
        with pytest.raises(PredicateError):
            decode(data[:index])
        flipped = bytearray(data)
        flipped[index] ^= 0x10
        with pytest.raises(PredicateError):
            decode(bytes(flipped))


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (b"", "not understood"),
        (b"[" * 200_000, "not understood"),
        ({}, "list expected, dict found"),
        ([], "0 predicates where one was expected"),
        ([["column", [["a"], 1, False]]] * 2, "2 predicates where one was expected"),
        ([["not"]], "pop from empty list"),
        ([["column", [["a"], 1, False]], ["and", 2]], "and of 2 operands"),
        ([["column", [["a"], 1, False]], ["and", 1]], "and of 1 operands"),
        ([["column", [["a"], 1, 0]]], "bool expected, int found"),
        ([["column", [[1], 1, False]]], "str expected, int found"),
        ([["column", [["\ud800"], 1, False]]], "surrogates"),
        ([["what", [["a"], 1, False]]], "'what' is no node"),
        ([["compare", "~", ["c", ["a"], 1, False], ["l", 1]]], "is not a valid Op"),
        ([["column", [[], 1, False]]], "1 of 0 names"),
        ([["column", [["a"], 2, False]]], "2 of 1 names"),
        ([["column", [["a"], 0, False]]], "0 of 1 names"),
        ([["column", ["a", 1, False]]], "list expected, str found"),
        ([["compare", "=", ["l", 1], ["l", 1]]], "a comparison without a column"),
        ([["compare", "=", ["c", ["a"], 1, False], ["l", {}]]], "cannot be a literal"),
        ([["compare", "=", ["c", ["a"], 1, False], ["l", 1.5]]], "1.5 is not written so"),
        ([["compare", "=", ["c", ["a"], 1, False], ["l", ["decimal", "NaN"]]]], "NaN is no number"),
        ([["compare", "=", ["c", ["a"], 1, False], ["l", ["date", "x"]]]], "'x' is not a date"),
        ([["compare", "=", ["c", ["a"], 1, False], ["l", ["what", "x"]]]], "what"),
        ([["like", [["a"], 1, False], "x\\", False]], "ends with a backslash"),
        ([["in_array", [["a"], 1, False], 0]], "out of range"),
        ([["in_array", [["a"], 1, False], -1]], "a negative array number"),
        ([["column", [["a"], 1, False]]] + [["not"]] * MAX_DEPTH, "nested deeper"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_well_framed_but_no_predicate_is_refused(nodes: Any, message: str) -> None:
    with pytest.raises(PredicateError, match=message):
        decode(framed(nodes))


@pytest.mark.parametrize(
    ("tail", "message"),
    [
        (b"\x01", "cut short"),
        (struct.pack("<Q", 2**63), "cut short"),
        (struct.pack("<Q", 4) + b"abcd", "does not read"),
    ],
)
def test_arrays_that_do_not_read_are_refused(tail: bytes, message: str) -> None:
    with pytest.raises(PredicateError, match=message):
        decode(framed([["in_array", [["a"], 1, False], 0]], tail))


def test_other_versions_and_other_bytes_are_refused() -> None:
    with pytest.raises(PredicateError, match="version 1, this accel reads 2"):
        decode(framed([], version=1))
    with pytest.raises(PredicateError, match="hold no predicate"):
        decode(b"PAR1" + bytes(20))


def test_depth_is_no_matter_of_recursion() -> None:
    tree: Expr = IsNull(A)
    for _ in range(MAX_DEPTH - 1):
        tree = Not(tree)
    assert decode(encode(tree)) == tree
    for _ in range(5000):
        tree = Not(tree)
    with pytest.raises(PredicateError, match="nested deeper"):
        decode(encode(tree))


def test_what_is_no_tree_is_refused() -> None:
    with pytest.raises(PredicateError, match="a Literal is no part"):
        encode(Literal(1))  # type: ignore[arg-type]
