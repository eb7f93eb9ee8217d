"""Comparisons of a moment that Spark cuts, `year(t) = 2024` or `date_trunc('day', t) > x`, as tests of the
column itself.

Spark cuts an instant in the zone of the session. A day begins in any zone within 18 hours of its beginning in
UTC, which is the most that Java's zones allow: by so much the span is wider where the zone is not UTC. Spark
tests the rows that are left once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final

from accel.predicate.moments import moved, start_of
from accel.spark.column_tests import ColumnTest, Operator

__all__ = ["Cut", "spark_unit"]

_MOST_OFFSET: Final = timedelta(hours=18)
_UTC: Final = frozenset(("UTC", "Z", "GMT", "UCT", "Zulu", "Etc/UTC", "Etc/GMT", "Etc/UCT", "+00:00"))
_UNITS: Final = {
    **dict.fromkeys(("year", "yyyy", "yy"), "year"),
    **dict.fromkeys(("month", "mon", "mm"), "month"),
    **dict.fromkeys(("day", "dd"), "day"),
    **{name: name for name in ("quarter", "week", "hour", "minute", "second")},
}
_ENDS: Final = (Operator.EQUAL, Operator.EQUAL_NULL_SAFE)
_FIRST_YEAR, _LAST_YEAR = 2, 9997


def spark_unit(text: str) -> str | None:
    """Return the unit that a format of `date_trunc` names; None for one that is not understood."""
    return _UNITS.get(text.lower())


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A column of dates or timestamps, cut to the beginning of a unit."""

    path: tuple[str, ...]
    kind: str
    """Spark's type of the column: date, timestamp or timestamp_ntz."""
    unit: str
    zone: str | None = None
    """The zone in which instants are cut; None where it does not matter."""

    def tests(self, operator: Operator, value: Any) -> Sequence[ColumnTest]:
        """Return tests of the column that every row passes whose cut value passes a test; none where nothing
        is known.

        Parameters
        ----------
        operator : Operator
            Of equality or order.
        value : int, date or datetime
            A year, a day in the zone, or an instant in UTC (without a zone: a local time).
        """
        moment, is_instant = _moment(value)
        if moment is None or operator not in _OPERATORS:
            return ()
        off = timedelta() if self.zone is None or self.zone in _UTC else _MOST_OFFSET
        # An instant may be another day where it is cut; a day or a year is meant there already.
        about = off if is_instant else timedelta()
        low, high = self._start(moment - about), self._next(moment + about)
        is_start = not about and low == moment
        low, high = low - off, high + off
        if operator in _ENDS:
            return self._test(Operator.GREATER_EQUAL, low), self._test(Operator.LESS, high)
        if operator is Operator.GREATER and is_start:
            low = self._next(moment) - off
        if operator in (Operator.GREATER, Operator.GREATER_EQUAL):
            return (self._test(Operator.GREATER_EQUAL, low),)
        if operator is Operator.LESS and is_start:
            high = moment + off
        return (self._test(Operator.LESS, high),)

    def _start(self, moment: datetime) -> datetime:
        return _midnight(start_of(moment, self.unit))

    def _next(self, moment: datetime) -> datetime:
        return _midnight(moved(self._start(moment), self.unit, 1))

    def _test(self, operator: Operator, bound: datetime) -> ColumnTest:
        value: date = bound
        if self.kind == "date":
            # A day is at least, or less than, a time of day where it is so for the next midnight.
            value = bound.date() if bound.time() == time() else bound.date() + timedelta(days=1)
        elif self.kind == "timestamp":
            value = bound.replace(tzinfo=UTC)
        return ColumnTest(operator, self.path, value, exact=False)


_OPERATORS: Final = (
    *_ENDS,
    Operator.GREATER,
    Operator.GREATER_EQUAL,
    Operator.LESS,
    Operator.LESS_EQUAL,
)


def _midnight(found: Any) -> datetime:
    return found if isinstance(found, datetime) else datetime.combine(found, time())


def _moment(value: Any) -> tuple[datetime | None, bool]:
    """Return a value as a moment without a zone, and whether it is one of a day; None for one that lies too
    far away."""
    if isinstance(value, datetime):
        moment, is_instant = value.replace(tzinfo=None), value.tzinfo is not None
    elif isinstance(value, date):
        moment, is_instant = datetime.combine(value, time()), False
    elif _FIRST_YEAR <= value <= _LAST_YEAR:
        moment, is_instant = datetime(value, 1, 1), False
    else:
        return None, False
    return (moment if _FIRST_YEAR <= moment.year <= _LAST_YEAR else None), is_instant
