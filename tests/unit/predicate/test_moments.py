"""Dates, times and timestamps: text and value are exact inverses; nanoseconds are exact."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel.predicate.expr import Ticks
from accel.predicate.literal import (
    DAY_NANOS,
    date_from_days,
    date_from_text,
    instant_from_nanos,
    nanos_of_date,
    nanos_of_instant,
    nanos_of_time,
    text_from_moment,
    time_from_nanos,
    time_from_text,
    timestamp_from_text,
)

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
