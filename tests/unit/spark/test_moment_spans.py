"""Spans of moments that Spark cuts: every row whose cut value passes a test passes those of the column, in any
zone, by an oracle that cuts with the zones of Python."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

pytest.importorskip("pyspark")

from accel.spark.column_tests import ColumnTest, Operator
from accel.spark.moment_spans import Cut, spark_unit

_TESTS: dict[Operator, Callable[[Any, Any], bool]] = {
    Operator.EQUAL: operator.eq,
    Operator.EQUAL_NULL_SAFE: operator.eq,
    Operator.GREATER: operator.gt,
    Operator.GREATER_EQUAL: operator.ge,
    Operator.LESS: operator.lt,
    Operator.LESS_EQUAL: operator.le,
}
# At midnight, a minute after it, far from UTC on both sides, and with days that there never were.
ZONES = (
    "UTC",
    "America/Havana",
    "America/St_Johns",
    "Pacific/Kiritimati",
    "Pacific/Apia",
    "America/Juneau",
    "Asia/Kolkata",
)


def _cut(moment: datetime, unit: str) -> datetime:
    moment = moment.replace(microsecond=0)
    if unit == "second":
        return moment
    if unit in ("minute", "hour"):
        return moment.replace(second=0, minute=moment.minute if unit == "minute" else 0)
    day = datetime.combine(moment.date(), time())
    if unit == "week":
        return day - timedelta(days=day.weekday())
    months = {"year": 12, "quarter": 3, "month": 1}.get(unit)
    return day if months is None else day.replace(day=1, month=(day.month - 1) // months * months + 1)


def _passes(tests: Any, value: Any) -> bool:
    return all(_TESTS[test.operator](value, test.value) for test in tests)


@pytest.mark.parametrize("zone", ZONES)
def test_no_instant_is_lost(zone: str) -> None:
    rng, kept, found = random.Random(zone), 0, 0
    here = ZoneInfo(zone)
    for _ in range(4_000):
        near = datetime(rng.choice([1867, 1993, 2011, 2024]), rng.choice([1, 3, 10, 11, 12]), 1, tzinfo=UTC)
        instant = near + timedelta(minutes=rng.randint(-60 * 24 * 40, 60 * 24 * 40))
        local = instant.astimezone(here).replace(tzinfo=None)
        unit = rng.choice(["year", "quarter", "month", "week", "day", "hour"])
        test, how = rng.choice(list(_TESTS.items()))
        cut = Cut(path=("t",), kind="timestamp", unit=unit, zone=zone)
        start = _cut(local, unit)
        if unit in ("year", "day") and rng.random() < 0.5:
            near_days = timedelta(days=rng.randint(-1, 1))
            value: Any = start.year + rng.randint(-1, 1) if unit == "year" else (start + near_days).date()
            passes = how(start.year if unit == "year" else start.date(), value)
        else:
            began = start.replace(tzinfo=here).astimezone(UTC)
            value = began + timedelta(hours=rng.choice([-30, -1, 0, 0, 0, 1, 30]))
            passes = how(began, value)
        tests = cut.tests(test, value)
        assert tests
        kept += _passes(tests, instant)
        found += passes
        assert _passes(tests, instant) or not passes, (instant, unit, test, value)
    assert 0 < found <= kept < 4_000


@pytest.mark.parametrize("kind", ["date", "timestamp", "timestamp_ntz"])
def test_without_a_zone_the_span_is_exact_where_a_unit_begins(kind: str) -> None:
    rng = random.Random(kind)
    for _ in range(2_000):
        moment = datetime(2023, 12, 28) + timedelta(hours=rng.randint(0, 24 * 9))
        unit = rng.choice(["year", "quarter", "month", "week", "day"])
        test, how = rng.choice(list(_TESTS.items()))
        value = _cut(datetime(2023, 12, 28) + timedelta(days=rng.randint(0, 9)), unit)
        tests = Cut(path=("t",), kind=kind, unit=unit).tests(test, value.date())
        held: Any = moment.replace(tzinfo=UTC) if kind == "timestamp" else moment
        held = moment.date() if kind == "date" else held
        cut = _cut(datetime.combine(moment.date(), time()) if kind == "date" else moment, unit)
        assert _passes(tests, held) == how(cut, value), (moment, unit, test, value)


def test_tests_are_what_they_say() -> None:
    cut = Cut(path=("s", "t"), kind="timestamp", unit="year", zone="Etc/UTC")
    assert cut.tests(Operator.EQUAL, 2024) == (
        ColumnTest(Operator.GREATER_EQUAL, ("s", "t"), datetime(2024, 1, 1, tzinfo=UTC), exact=False),
        ColumnTest(Operator.LESS, ("s", "t"), datetime(2025, 1, 1, tzinfo=UTC), exact=False),
    )
    wide = Cut(path=("t",), kind="timestamp", unit="day", zone="Europe/Paris")
    assert wide.tests(Operator.LESS_EQUAL, date(2024, 2, 29)) == (
        ColumnTest(Operator.LESS, ("t",), datetime(2024, 3, 1, 18, tzinfo=UTC), exact=False),
    )
    days = Cut(path=("d",), kind="date", unit="month")
    assert days.tests(Operator.GREATER, date(2024, 1, 1)) == (
        ColumnTest(Operator.GREATER_EQUAL, ("d",), date(2024, 2, 1), exact=False),
    )
    assert cut.tests(Operator.EQUAL, 10_000) == cut.tests(Operator.EQUAL, -3) == ()
    assert cut.tests(Operator.STARTS_WITH, 2024) == ()
    assert [spark_unit(text) for text in ("MM", "YYYY", "Week", "dd", "decade")] == [
        "month",
        "year",
        "week",
        "day",
        None,
    ]
