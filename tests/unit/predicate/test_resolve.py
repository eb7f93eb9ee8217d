"""Names of a predicate in schemas whose own names hold dots."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import accel
from accel.errors import AccelError, ColumnNotFoundError, PredicateError
from accel.predicate.atoms import BoundColumn
from accel.predicate.bind import resolve
from accel.predicate.expr import Column, column_named
from accel.predicate.parser import parse
from accel.testing import DictStore, write_file


def struct(**kinds: pa.DataType) -> pa.DataType:
    return pa.struct(list(kinds.items()))


INT, TEXT = pa.int64(), pa.string()
SCHEMA = pa.schema(
    [
        ("a.b", struct(x=INT, y=struct(z=INT))),
        ("a", struct(b=struct(x=TEXT, w=TEXT))),
        ("a.b.y", struct(v=TEXT)),
        ("whole.name", INT),
        ("twice.x", struct(n=INT)),
        ("twice.x", struct(n=INT)),
    ]
)


@pytest.mark.parametrize(
    ("name", "field", "whole"),
    [
        # The path that text means by it, and that a name in Python means.
        ("a.b", ("a", "b"), ("a.b",)),
        ("a.b.x", ("a", "b", "x"), ("a.b", "x")),
        ("a.b.w", ("a", "b", "w"), ("a", "b", "w")),
        ("a.b.y", ("a.b", "y"), ("a.b.y",)),
        ("a.b.y.z", ("a.b", "y", "z"), ("a.b", "y", "z")),
        ("a.b.y.v", ("a.b.y", "v"), ("a.b.y", "v")),
        ("whole.name", ("whole.name",), ("whole.name",)),
    ],
)
def test_what_dots_that_may_be_part_of_a_name_mean(
    name: str, field: tuple[str, ...], whole: tuple[str, ...]
) -> None:
    assert (resolve(parse_column(name), SCHEMA).path, resolve(column_named(name), SCHEMA).path) == (
        field,
        whole,
    )


@pytest.mark.parametrize(
    ("text", "path", "kind"),
    [
        ('"a.b"', ("a.b",), SCHEMA.field("a.b").type),
        ('"a"."b"', ("a", "b"), SCHEMA.field("a").type.field("b").type),
        ('"a".b', ("a", "b"), SCHEMA.field("a").type.field("b").type),
        ('a."b"', ("a", "b"), SCHEMA.field("a").type.field("b").type),
        ('"a"."b"."x"', ("a", "b", "x"), TEXT),
        ('"a.b".x', ("a.b", "x"), INT),
        ('a.b."x"', ("a", "b", "x"), TEXT),
        ('a.b."y".z', ("a.b", "y", "z"), INT),
        ('"a.b.y"."v"', ("a.b.y", "v"), TEXT),
        ('"whole.name"', ("whole.name",), INT),
    ],
)
def test_names_in_quotes_are_exact(text: str, path: tuple[str, ...], kind: pa.DataType) -> None:
    assert resolve(parse_column(text), SCHEMA) == BoundColumn(path, kind)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('"a"."b"."y"', "no column 'a.b.y': no 'y' in 'a.b' (the column of that name is \"a.b.y\")"),
        ('a."b".y.v', "no column 'a.b.y.v': no 'y' in 'a.b' (there are: x, w)"),
        ('"whole"."name"', "no column 'whole.name': no 'whole' (the column of that name is \"whole.name\")"),
        (
            '"a.b.x"',
            "no column 'a.b.x' (in double quotes a dot is part of the name; without them a.b.x is the field of a struct)",
        ),
    ],
)
def test_exact_names_that_are_not_there(text: str, message: str) -> None:
    with pytest.raises(ColumnNotFoundError) as caught:
        resolve(parse_column(text), SCHEMA)
    assert str(caught.value) == message


def parse_column(text: str) -> Column:
    column = parse(text)
    assert isinstance(column, Column)
    return column


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("a.b.q", ColumnNotFoundError, "no column 'a.b.q': no 'q' in 'a.b' (there are: x, y)"),
        ("a.b.y.q", ColumnNotFoundError, "no column 'a.b.y.q': no 'q' in 'a.b.y' (there are: v)"),
        ("a.b.x.q", PredicateError, "column 'a.b.x' is int64 and has no field 'q'"),
        ("whole.name.q", PredicateError, "column 'whole.name' is int64 and has no field 'q'"),
        ("whole.other", ColumnNotFoundError, "no column 'whole.other': no 'whole'"),
        ("twice.x.n", PredicateError, "column 'twice.x' is ambiguous"),
    ],
)
def test_what_is_not_there(name: str, error: type[AccelError], message: str) -> None:
    with pytest.raises(error) as caught:
        resolve(column_named(name), SCHEMA)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ('n = "x"', "no column 'x' (there are: s, n; text stands in single quotes: 'x')"),
        (f'n = "{"x" * 61}"', f"no column '{'x' * 61}' (there are: s, n; text stands in single quotes)"),
        ("n = None", "no column 'None' (there are: s, n; null is NULL, after IS or IS NOT)"),
        ("n = nan", "no column 'nan' (there are: s, n; write DOUBLE 'NaN')"),
        (accel.col("x") == 1, "no column 'x' (there are: s, n)"),
        ([("x", "=", 1)], "no column 'x' (there are: s, n)"),
        (
            '"s.b" = 1',
            "no column 's.b' (in double quotes a dot is part of the name; without them s.b is the field of a struct)",
        ),
        (
            [("s.b", "=", 1)],
            "no column 's.b' (the name of a filter list is exact; the field of a struct is ('s', 'b'))",
        ),
        ([("s.c", "=", 1)], "no column 's.c' (there are: s, n)"),
    ],
    ids=str,
)
def test_what_may_have_been_meant(where: Any, message: str) -> None:
    store = DictStore({"f": write_file(pa.table({"s": [{"b": 1}], "n": [1]}))})
    with pytest.raises(ColumnNotFoundError) as caught:
        accel.scan("f", where, store=store, cache=None).to_table()
    assert str(caught.value) == f"f: {message}"


@pytest.mark.parametrize(
    "where",
    [
        accel.col("a.b")["x"] == 1,
        accel.col("a.b.x") == 1,
        'a.b."x" = 1',
        '"a.b".x = 1',
        [(("a.b", "x"), "=", 1)],
        "a.b.x = 1",
    ],
    ids=str,
)
def test_all_ways_to_name_it(where: Any) -> None:
    store = DictStore({"f": write_file(pa.table({"a.b": [{"x": 1}, {"x": 2}]}))})
    assert accel.scan("f", where, store=store, cache=None).to_table().to_pylist() == [{"a.b": {"x": 1}}]


def test_a_files_own_fields_are_not_meant() -> None:
    """What a name stands for is settled by the data set, not by each of its files."""
    first = pa.table({"a.b": [{"y": 0}], "a": [{"b": {"x": 1}}]})
    later = pa.table({"a.b": [{"y": 0, "x": 1}], "a": [{"b": {"x": 2}}]})
    store = DictStore({"f0": write_file(first), "f1": write_file(later)})
    found = accel.scan(["f0", "f1"], "a.b.x = 1", columns=["a"], store=store, cache=None)
    assert found.to_table().to_pylist() == [{"a": {"b": {"x": 1}}}]
