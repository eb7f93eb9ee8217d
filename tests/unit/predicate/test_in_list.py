"""The collections that IN takes: which stay lists of literals, which become arrays, and of which type."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from accel.errors import PredicateError
from accel.predicate.expr import MAX_LIST, InArray, InList, column_of
from accel.predicate.in_list import member_of

A = column_of(["a"])
MANY = MAX_LIST + 1


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], ()),
        ([1, 2.5, None, "x"], (1, 2.5, None, "x")),
        ({3, 1, 2}, (1, 2, 3)),
        pytest.param(frozenset("ba"), ("a", "b"), id="frozenset"),
        ({"k": 1}.keys(), ("k",)),
        pytest.param((i for i in range(2)), (0, 1), id="generator"),
        (np.array(["x", "y"]), ("x", "y")),
        (np.array([True]), (True,)),
        (np.array([1, "x", None], object), (1, "x", None)),
        (np.array(["2013-01-31"], "M8[D]"), (datetime.date(2013, 1, 31),)),
        (np.ma.array(["x", "y"], mask=[True, False]), (None, "y")),
    ],
    ids=repr,
)
def test_lists(values: Any, expected: tuple[object, ...]) -> None:
    found = member_of(A, values)
    assert isinstance(found, InList)
    assert (found.values, [type(v) for v in found.values]) == (expected, [type(v) for v in expected])


DAY = datetime.date(2013, 1, 31)
NOON = datetime.datetime(2013, 1, 31, 12)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([1, None]), pa.array([1, None])),
        (pa.chunked_array([[1], [2]]), pa.array([1, 2])),
        (pa.chunked_array([], pa.int8()), pa.array([], pa.int8())),
        (np.array([1, 2], np.int8), pa.array([1, 2], pa.int8())),
        (np.array([1, 2], ">u2"), pa.array([1, 2], pa.uint16())),
        (np.arange(10)[::3], pa.array([0, 3, 6, 9])),
        (np.array([0.5], np.float16), pa.array([np.float16(0.5)])),
        (np.ma.array([1, 2], mask=[False, True]), pa.array([1, None])),
        (np.ma.array([1, 2]), pa.array([1, 2])),
        (
            np.ma.array(np.array(["2013-01-31T12", "NaT", "2014-01-31"], "M8[ms]"), mask=[0, 0, 1]),
            pa.array([NOON, None, None], pa.timestamp("ms")),
        ),
        (np.array(["2013-01-31T12", "NaT"], "M8[ms]"), pa.array([NOON, None], pa.timestamp("ms"))),
        (range(MANY), pa.array(range(MANY))),
        ([2**64 - 1] * MANY, pa.array([2**64 - 1] * MANY, pa.uint64())),
        ([0.5, *[None] * MANY], pa.array([0.5, *[None] * MANY])),
        (["é", None, ""] * MANY, pa.array(["é", None, ""] * MANY, pa.large_string())),
        ([b"\xff"] * MANY, pa.array([b"\xff"] * MANY, pa.large_binary())),
        ([DAY, None] * MANY, pa.array([DAY, None] * MANY)),
        ([NOON] * MANY, pa.array([NOON] * MANY, pa.timestamp("us"))),
        ([NOON.replace(tzinfo=datetime.UTC)] * MANY, pa.array([NOON] * MANY, pa.timestamp("us", "UTC"))),
    ],
    ids=lambda value: f"{type(value).__name__}-{getattr(value, 'dtype', getattr(value, 'type', ''))}",
)
def test_arrays(values: Any, expected: pa.Array) -> None:
    found = member_of(A, values)
    assert isinstance(found, InArray)
    found.values.validate(full=True)
    assert (found.values.type, found.values) == (expected.type, expected)


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint64()], ids=str)
@pytest.mark.parametrize("values", [pa.string(), pa.string_view(), pa.binary()], ids=str)
def test_a_null_among_the_entries_of_a_dictionary_is_a_null(kind: pa.DataType, values: pa.DataType) -> None:
    entries = pa.array(["a", None, "b"], values)
    indices = pa.array([2, 0, 1, None, 2], kind)[1:]
    found = member_of(A, pa.DictionaryArray.from_arrays(indices, entries)).values
    assert isinstance(found, pa.DictionaryArray)
    found.validate(full=True)
    expected = [entries[0].as_py(), None, None, entries[2].as_py()]
    assert (found.to_pylist(), found.null_count) == (expected, 2)
    unnamed = member_of(A, pa.DictionaryArray.from_arrays(pa.array([0, 2], kind), entries)).values
    assert unnamed.null_count == 0


@pytest.mark.parametrize(
    "values",
    [[1, "x"] * MANY, [True] * MANY, [2**70] * MANY, [-1, 2**64 - 1] * MANY, [None] * MANY],
    ids=["mixed", "bool", "wide", "signs", "nulls"],
)
def test_long_lists_without_one_plain_type_stay_lists(values: list[Any]) -> None:
    assert member_of(A, values) == InList(A, tuple(values))


def test_what_offers_itself_as_arrow_is_taken_as_such() -> None:
    polars = pytest.importorskip("polars")
    found = member_of(A, polars.Series([1, 2]))
    assert found == InArray(A, pa.array([1, 2]))


def test_objects_of_polars_are_looked_at_one_by_one() -> None:
    """It offers them as their addresses."""
    polars = pytest.importorskip("polars")
    assert member_of(A, polars.Series([1, "x"], dtype=polars.Object)) == InList(A, (1, "x"))
    with pytest.raises(PredicateError, match="cannot be a literal"):
        member_of(A, polars.Series([object()], dtype=polars.Object))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("abc", "IN takes a collection of values, not a str"),
        (b"abc", "IN takes a collection of values, not a bytes"),
        (7, "IN takes a collection of values, not a int"),
        (None, "IN takes a collection of values, not a NoneType"),
        (pa.scalar(1), "IN takes a collection of values"),
        (pa.table({"a": [1]}), r"IN takes a collection of values, not a Table \(give one of its columns\)"),
        (np.zeros((2, 2)), "IN takes an array of one dimension"),
        ([[1]], "cannot be a literal"),
        (["x"] * MANY + ["\ud800"], "a text literal holds a lone surrogate"),
        ([10**4000] * MANY, "an int literal has more than 4,000 digits"),
        (pa.array([[1]]), r"an array of list<\w+: int64> cannot be the list of IN"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_refused(values: Any, message: str) -> None:
    with pytest.raises(PredicateError, match=message):
        member_of(A, values)


def test_the_values_of_a_long_list_are_looked_at_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers and texts of Python are their own literals."""
    monkeypatch.setattr("accel.predicate.in_list.literal_value", None)
    assert member_of(A, range(MANY)) == InArray(A, pa.array(range(MANY)))
    assert member_of(A, ["x", None] * MANY) == InArray(A, pa.array(["x", None] * MANY, pa.large_string()))


def test_a_series_that_is_no_arrow_array() -> None:
    """pandas holds what Arrow has no type for: it is taken value by value, or told as in a list."""
    pandas = pytest.importorskip("pandas")
    series = pandas.Series
    assert member_of(A, series([2**70, None], dtype=object)) == InList(A, (2**70, None))
    assert member_of(A, series([1, "x"], dtype=object)) == InList(A, (1, "x"))
    assert member_of(A, series([0, 2], dtype="Sparse[int]")) == InList(A, (0, 2))
    for values, message in (
        (series([1j]), "cannot be a literal"),
        (pandas.DataFrame({"a": [1]}), "one dimension"),
        (series([pandas.Period("2013")]), "values of pandas.period"),
        (series([pandas.Interval(1, 2)]), "values of pandas.interval"),
    ):
        with pytest.raises(PredicateError, match=message):
            member_of(A, values)


@pytest.mark.parametrize("values", [np.array([1, 2]), np.array(["2013-01-31", "NaT"], "M8[s]")], ids=str)
def test_nulls_of_a_plain_array_are_found_without_a_warning(values: Any) -> None:
    """From Python 3.12 on `~False`, which is a number, is a DeprecationWarning."""
    found = member_of(A, values)
    assert isinstance(found, InArray)
    assert found.values.null_count == (values.dtype.kind == "M")
