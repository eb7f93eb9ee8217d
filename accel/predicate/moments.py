"""Moments that a predicate computes: functions of dates and timestamps that keep their order, and arithmetic
with literals.

`year(t) = 2024` holds for the values of one span of time, so it becomes two comparisons of `t` itself, which
every bound and index can judge. Arithmetic is carried out when the text is read.
"""

from __future__ import annotations

import calendar
import datetime
from dataclasses import dataclass
from typing import Final

from accel.predicate.expr import And, Column, Compare, Expr, IsNull, Literal, Not, Op, Ticks, Value
from accel.predicate.literal import (
    DAY_NANOS,
    instant_from_nanos,
    nanos_of_date,
    nanos_of_instant,
    timestamp_from_text,
)

__all__ = ["UNITS", "Truncated", "moved", "start_of", "unit_of"]

UNITS: Final = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")
_NANOS: Final = {"second": 10**9, "minute": 60 * 10**9, "hour": 3600 * 10**9, "day": DAY_NANOS}
_MONTHS: Final = {"year": 12, "quarter": 3, "month": 1}
_MIRRORED: Final = {Op.LT: Op.GT, Op.LE: Op.GE, Op.GT: Op.LT, Op.GE: Op.LE}
_FIRST_YEAR, _LAST_YEAR = 1, 9998


def unit_of(word: str) -> str | None:
    """Return the unit of time that a word names, in any case and number; None for another word."""
    plain = word.strip().lower().removesuffix("s")
    return plain if plain in UNITS else None


@dataclass(frozen=True, slots=True)
class Truncated:
    """A date or timestamp column, cut to the beginning of its year, day, or another unit."""

    column: Column
    unit: str
    is_number: bool
    """Whether it is compared with the number of the year."""
    position: int

    def compared(self, op: Op, value: Value, *, mirrored: bool = False) -> Expr:
        """Return the comparison with a value, as comparisons of the column.

        Raises
        ------
        ValueError
            The value is none that this can be compared with.
        """
        op = _MIRRORED.get(op, op) if mirrored else op
        if op is Op.DISTINCT:
            return Not(self.compared(Op.NOT_DISTINCT, value))
        if value is None:
            null = op is Op.NOT_DISTINCT
            return IsNull(self.column, self.position) if null else self._column(Op.EQ, None)
        start, exact = self._start_of(value)
        following = moved(start, self.unit, 1)
        within = And((self._column(Op.GE, start), self._column(Op.LT, following)))
        if not exact:
            # Nothing is cut to this moment; null for null.
            within = And((self._column(Op.GE, following), self._column(Op.LT, start)))
        match op:
            case Op.EQ:
                return within
            case Op.NE:
                return Not(within)
            case Op.NOT_DISTINCT:
                return And((within, Not(IsNull(self.column, self.position))))
            case Op.LT:
                return self._column(Op.LT, start if exact else following)
            case Op.GE:
                return self._column(Op.GE, start if exact else following)
            case Op.LE:
                return self._column(Op.LT, following)
            case _:
                return self._column(Op.GE, following)

    def _column(self, op: Op, value: Value) -> Expr:
        return Compare(op, self.column, Literal(_plain(value), self.position), self.position)

    def _start_of(self, value: Value) -> tuple[datetime.date | Ticks, bool]:
        """Return the beginning of the unit that a value lies in, and whether it is that beginning."""
        if self.is_number:
            if isinstance(value, bool) or not isinstance(value, int):
                raise ValueError("a year is compared with a whole number, as in year(t) = 2024")
            if not _FIRST_YEAR <= value <= _LAST_YEAR:
                raise ValueError(f"a year is a number from {_FIRST_YEAR} to {_LAST_YEAR}")
            return datetime.date(value, 1, 1), True
        if isinstance(value, str):
            value = timestamp_from_text(value)
        is_time = isinstance(value, Ticks) and value.kind != "timestamp"
        if not isinstance(value, datetime.date | Ticks) or is_time:
            raise ValueError(f"a {self.unit} is compared with a date or a timestamp, as in DATE '2024-01-31'")
        start = start_of(value, self.unit)
        return start, _nanos(start) == _nanos(value)


def _nanos(value: datetime.date | Ticks) -> tuple[int, bool]:
    """Return nanoseconds since 1970, and whether they are UTC."""
    if isinstance(value, Ticks):
        return value.nanos, value.utc
    if isinstance(value, datetime.datetime):
        return nanos_of_instant(value), value.tzinfo is not None
    return nanos_of_date(value), False


def start_of(value: datetime.date | Ticks, unit: str) -> datetime.date | Ticks:
    """Return the beginning of the unit that a moment lies in, as a timestamp."""
    nanos, utc = _nanos(value)
    if unit in _NANOS:
        return instant_from_nanos(nanos - nanos % _NANOS[unit], utc=utc)
    day = datetime.date(1970, 1, 1) + datetime.timedelta(days=nanos // DAY_NANOS)
    if unit == "week":
        day -= datetime.timedelta(days=day.weekday())
    else:
        months = _MONTHS[unit]
        day = day.replace(day=1, month=(day.month - 1) // months * months + 1)
    return instant_from_nanos(nanos_of_date(day), utc=utc)


def moved(value: datetime.date | Ticks, unit: str, count: int) -> datetime.date | Ticks:
    """Return a moment some units later, or earlier where `count` is negative.

    The day of a month that is too short becomes the last of that month. A date stays a date where days are
    counted.

    Raises
    ------
    ValueError
        It would lie outside the years 0001 to 9999.
    """
    is_date = isinstance(value, datetime.date) and not isinstance(value, datetime.datetime)
    nanos, utc = _nanos(value)
    try:
        if unit in _MONTHS:
            day = datetime.date(1970, 1, 1) + datetime.timedelta(days=nanos // DAY_NANOS)
            months = day.year * 12 + day.month - 1 + count * _MONTHS[unit]
            year, month = divmod(months, 12)
            last = calendar.monthrange(year, month + 1)[1]
            nanos = nanos_of_date(datetime.date(year, month + 1, min(day.day, last))) + nanos % DAY_NANOS
        else:
            nanos += count * (7 * DAY_NANOS if unit == "week" else _NANOS[unit])
        if is_date and unit not in ("hour", "minute", "second"):
            return datetime.date(1970, 1, 1) + datetime.timedelta(days=nanos // DAY_NANOS)
        return instant_from_nanos(nanos, utc=utc)
    except (OverflowError, ValueError):
        raise ValueError("a timestamp must lie in the years 0001 to 9999") from None


def _plain(value: Value) -> Value:
    """Return a midnight without a zone as a date, which compares with dates and timestamps alike."""
    if isinstance(value, datetime.datetime) and value.tzinfo is None and value.time() == datetime.time():
        return value.date()
    return value
