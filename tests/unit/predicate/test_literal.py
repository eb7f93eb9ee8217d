"""Literals of Python, numpy, pandas and Arrow, moments as text, and comparisons without columns: exact value
and type."""

from __future__ import annotations

import datetime
import enum
import subprocess
import sys
import uuid
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel.errors import PredicateError
from accel.predicate.evaluate import matches_like
from accel.predicate.expr import (
    Compare,
    Like,
    Literal,
    Op,
    Ticks,
    Value,
    check_pattern,
    column_of,
)
from accel.predicate.literal import (
    DAY_NANOS,
    compare_values,
    date_from_days,
    date_from_text,
    instant_from_nanos,
    literal_value,
    nanos_of_date,
    nanos_of_instant,
    nanos_of_time,
    text_from_moment,
    time_from_nanos,
    time_from_text,
    timestamp_from_text,
)
from tests.oracle import rowwise

UTC = datetime.UTC
PARIS = datetime.timezone(datetime.timedelta(hours=1))
NOON = datetime.datetime(2013, 1, 31, 12)


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, None),
        (True, True),
        (7, 7),
        (2**100, 2**100),
        (0.5, 0.5),
        ("é", "é"),
        (b"x", b"x"),
        (bytearray(b"x"), b"x"),
        pytest.param(memoryview(b"x"), b"x", id="memoryview"),
        (Colour.RED, "red"),
        (Level.LOW, 1),
        (Decimal("1.50"), Decimal("1.50")),
        (Decimal("Infinity"), float("inf")),
        (datetime.date(2013, 1, 31), datetime.date(2013, 1, 31)),
        (datetime.time(1, 2, 3, 4), datetime.time(1, 2, 3, 4)),
        (NOON, NOON),
        (NOON.replace(tzinfo=UTC), NOON.replace(tzinfo=UTC)),
        (NOON.replace(tzinfo=PARIS), datetime.datetime(2013, 1, 31, 11, tzinfo=UTC)),
        (Ticks("time", 1), Ticks("time", 1)),
        (Ticks("time", 1000), datetime.time(0, 0, 0, 1)),
        (Ticks("timestamp", 0, True), datetime.datetime(1970, 1, 1, tzinfo=UTC)),
        (uuid.UUID(int=1), bytes(15) + b"\x01"),
        (np.True_, True),
        (np.int8(-5), -5),
        (np.uint64(2**64 - 1), 2**64 - 1),
        (np.float64(0.1), 0.1),
        (np.float32(0.1), 0.10000000149011612),
        (np.float16(0.1), 0.0999755859375),
        (np.str_("x"), "x"),
        (np.bytes_(b"x"), b"x"),
        (np.array(5), 5),
        (np.datetime64("2013-01-31"), datetime.date(2013, 1, 31)),
        (np.datetime64("2013-02"), datetime.date(2013, 2, 1)),
        (np.datetime64("2013-01-31T12"), NOON),
        (np.datetime64("1970-01-01T00:00:00.000000001"), Ticks("timestamp", 1)),
        (np.datetime64("NaT", "ns"), None),
        (pa.scalar(None, pa.int8()), None),
        (pa.scalar(5, pa.uint8()), 5),
        (pa.scalar(0.1, pa.float32()), 0.10000000149011612),
        (pa.scalar(np.float16(0.1)), 0.0999755859375),
        (pa.scalar("x", pa.large_string()), "x"),
        (pa.scalar(b"ab", pa.binary(2)), b"ab"),
        (pa.scalar(Decimal("1.5"), pa.decimal128(5, 2)), Decimal("1.50")),
        (pa.scalar(15736, pa.date32()), datetime.date(2013, 1, 31)),
        (pa.scalar(NOON, pa.timestamp("ms", "Europe/Paris")), NOON.replace(tzinfo=UTC)),
        (pa.scalar(1, pa.timestamp("ns")), Ticks("timestamp", 1)),
        (pa.scalar(1, pa.time64("ns")), Ticks("time", 1)),
        (pa.scalar(61, pa.time32("s")), datetime.time(0, 1, 1)),
        (pa.array(["x"]).dictionary_encode()[0], "x"),
    ],
    ids=repr,
)
def test_values(given: Any, expected: Any) -> None:
    found = literal_value(given)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize("nan", [float("nan"), np.float32("nan"), Decimal("NaN"), pa.scalar(float("nan"))])
def test_nan_is_a_float(nan: Any) -> None:
    found = literal_value(nan)
    assert (type(found), repr(found)) == (float, "nan")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("\ud800", "a lone surrogate"),
        (10**4000, "more than 4,000 digits"),
        (Decimal("sNaN"), "a signalling NaN"),
        (Decimal("1e5000"), "beyond 4,000 digits"),
        (datetime.time(1, tzinfo=UTC), "a time of the day has no zone"),
        (datetime.timedelta(1), r"\(timedelta\) cannot be a literal .*a whole number of its own unit"),
        (datetime.datetime(1, 1, 1, tzinfo=PARIS), "years 0001 to 9999"),
        (Ticks("day", 1), 'the kind of Ticks is "time" or "timestamp"'),
        ([1], r"\(list\) cannot be a literal of a predicate \(use isin"),
        (1j, r"\(complex\) cannot be a literal"),
        (np.complex64(1), "complex64 is no scalar"),
        (np.timedelta64(1, "s"), r"\(timedelta64\) cannot be a literal .*a whole number of its own unit"),
        (np.array([1, 2]), "ndarray is no scalar"),
        (np.datetime64(1, "ps"), "the unit ps is finer than a nanosecond"),
        (np.datetime64(10**15, "s"), "years 0001 to 9999"),
        (np.longdouble(1) / 3, "does not fit into a double"),
        (pa.scalar([1]), "has no order to compare by"),
        (pa.scalar(1, pa.duration("s")), r"\(DurationScalar\) cannot be .*a whole number of its own unit"),
        (pa.array([1]), "a pyarrow Int64Array is no literal"),
        (
            pa.scalar(2**31 - 1, pa.date32()),
            "a Date32Scalar cannot be a literal: a date must lie in the years 0001",
        ),
        (pa.scalar(-(2**31), pa.date32()), "a date must lie in the years 0001 to 9999"),
        (np.datetime64(10**7, "D"), "a date must lie in the years 0001 to 9999"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_refused(given: Any, message: str) -> None:
    with pytest.raises(PredicateError, match=message):
        literal_value(given)


PANDAS = """
import datetime
import pandas as pd
from accel.errors import PredicateError
from accel.predicate.column import col
from accel.predicate.expr import Ticks
from accel.predicate.literal import literal_value
noon = datetime.datetime(2013, 1, 31, 12)
assert literal_value(pd.Timestamp(noon)) == noon
assert type(literal_value(pd.Timestamp(noon))) is datetime.datetime
assert literal_value(pd.Timestamp(1)) == Ticks("timestamp", 1)
assert literal_value(pd.Timestamp(1, tz="Europe/Paris")) == Ticks("timestamp", 1, True)
assert literal_value(pd.NaT) is None and literal_value(pd.NA) is None
try:
    literal_value(pd.Timedelta(1))
except PredicateError as error:
    assert str(error) == (
        "Timedelta('0 days 00:00:00.000000001') (Timedelta) cannot be a literal of a predicate "
        "(a column of durations compares with a whole number of its own unit)"
    )
else:
    raise AssertionError("a Timedelta is no literal")
assert col("a").isin(pd.Series([1, 2])).expr.values.to_pylist() == [1, 2]
assert col("a").isin(pd.Index(["x", None])).expr.values.to_pylist() == ["x", None]
print("done")
"""


def test_pandas_scalars() -> None:
    pytest.importorskip("pandas")
    done = subprocess.run(
        [sys.executable, "-c", PANDAS], capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.stdout, done.stderr) == ("done\n", "")


FIRST = nanos_of_instant(datetime.datetime.min)
LAST = nanos_of_instant(datetime.datetime.max) + 999


@given(st.dates())
def test_dates(value: datetime.date) -> None:
    assert date_from_text(text_from_moment(value)) == value
    assert date_from_days((value - datetime.date(1970, 1, 1)).days) == value


@pytest.mark.parametrize("days", [-(2**31), -719_163, 2_932_897, 2**31 - 1, 2**63])
def test_days_without_a_date(days: int) -> None:
    with pytest.raises(ValueError, match="a date must lie in the years 0001 to 9999"):
        date_from_days(days)


@given(st.integers(0, DAY_NANOS - 1))
def test_times(nanos: int) -> None:
    value = time_from_nanos(nanos)
    assert isinstance(value, Ticks) == (nanos % 1000 != 0)
    assert time_from_text(text_from_moment(value)) == value


@given(st.integers(FIRST, LAST), st.booleans())
def test_timestamps(nanos: int, utc: bool) -> None:
    value = instant_from_nanos(nanos, utc=utc)
    assert (value.nanos if isinstance(value, Ticks) else nanos_of_instant(value)) == nanos
    assert isinstance(value, Ticks) == (nanos % 1000 != 0)
    assert timestamp_from_text(text_from_moment(value)) == value


@given(st.datetimes(timezones=st.timezones()))
def test_zones_are_written_as_utc(value: datetime.datetime) -> None:
    try:
        expected = value.astimezone(datetime.UTC)
    except OverflowError:
        with pytest.raises((ValueError, OverflowError)):
            timestamp_from_text(text_from_moment(value))
        return
    found = timestamp_from_text(text_from_moment(value))
    assert (found, found.utcoffset()) == (expected, datetime.timedelta(0))  # type: ignore[union-attr]


@pytest.mark.parametrize("nanos", [FIRST - 1, LAST + 1, 10**30])
def test_years_are_1_to_9999(nanos: int) -> None:
    with pytest.raises(ValueError, match="years 0001 to 9999"):
        instant_from_nanos(nanos, utc=False)
    with pytest.raises(ValueError, match="years 0001 to 9999"):
        text_from_moment(Ticks("timestamp", nanos))


@pytest.mark.parametrize("nanos", [-1, DAY_NANOS])
def test_a_time_lies_within_its_day(nanos: int) -> None:
    with pytest.raises(ValueError, match="at least 00:00:00 and below 24:00:00"):
        time_from_nanos(nanos)


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (date_from_text, "2013-1-31"),
        (date_from_text, "2013-00-01"),
        (date_from_text, "２０13-01-31"),
        (date_from_text, "2013-01-31 "),
        (date_from_text, "0000-01-01"),
        (time_from_text, "1:00"),
        (time_from_text, "01:60"),
        (time_from_text, "01:00:60"),
        (time_from_text, "01:00:00.0000000001"),
        (time_from_text, "01:00Z"),
        (timestamp_from_text, ""),
        (timestamp_from_text, "2013-01-31T"),
        (timestamp_from_text, "2013-01-31Z"),
        (timestamp_from_text, "2013-01-31 01:00 CET"),
        (timestamp_from_text, "2013-01-31 01:00+1"),
        (timestamp_from_text, "2013-01-31 01:00+01:60"),
        (timestamp_from_text, "9999-12-31 23:59:59-01"),
    ],
)
def test_other_text_is_refused(read: object, text: str) -> None:
    with pytest.raises(ValueError, match="."):
        read(text)  # type: ignore[operator]


@pytest.mark.parametrize(
    "day", [datetime.date.min, datetime.date(1970, 1, 1), datetime.date(2024, 2, 29)], ids=str
)
def test_a_day_begins_where_its_midnight_is(day: datetime.date) -> None:
    assert nanos_of_date(day) == nanos_of_instant(datetime.datetime.combine(day, datetime.time()))


def test_a_time_counts_from_midnight() -> None:
    latest = datetime.time(23, 59, 59, 999_999)
    assert (nanos_of_time(datetime.time()), nanos_of_time(latest)) == (0, DAY_NANOS - 1000)
    assert time_from_nanos(nanos_of_time(latest)) == latest


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
