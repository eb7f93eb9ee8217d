"""The text of date, time and timestamp literals: read strictly, written exactly, to the nanosecond."""

from __future__ import annotations

import datetime
import re

from accel.predicate.expr import Ticks

__all__ = [
    "DAY_NANOS",
    "EPOCH_ORDINAL",
    "date_from_days",
    "date_from_text",
    "instant_from_nanos",
    "nanos_of_date",
    "nanos_of_instant",
    "nanos_of_time",
    "text_from_moment",
    "time_from_nanos",
    "time_from_text",
    "timestamp_from_text",
]

DAY_NANOS = 86_400_000_000_000
EPOCH_ORDINAL = datetime.date(1970, 1, 1).toordinal()
_FIRST_NANOS = (datetime.date.min.toordinal() - EPOCH_ORDINAL) * DAY_NANOS
_END_NANOS = (datetime.date.max.toordinal() - EPOCH_ORDINAL + 1) * DAY_NANOS

# Compiled by `re` where the first one is met: most predicates have none.
_DATE = r"(\d{4})-(\d{2})-(\d{2})"
_TIME = r"(\d{2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?"
_TIMESTAMP = (
    r"(\d{4}-\d{2}-\d{2})(?:[ Tt](\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?)"
    r"(?: ?([Zz]|UTC|[+-]\d{2}(?::?\d{2})?))?)?"
)


def date_from_text(text: str) -> datetime.date:
    """`2013-01-31`, years 0001 to 9999; anything else is a ValueError."""
    match = re.fullmatch(_DATE, text, re.ASCII)
    if match is None:
        raise ValueError(f"{text[:40]!r} is not a date; write YYYY-MM-DD")
    year, month, day = map(int, match.groups())
    try:
        return datetime.date(year, month, day)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a date: {error}") from None


def date_from_days(days: int) -> datetime.date:
    """The date that many days after 1970-01-01; a ValueError outside the years 0001 to 9999."""
    try:
        return datetime.date.fromordinal(days + EPOCH_ORDINAL)
    except (ValueError, OverflowError):
        raise ValueError("a date must lie in the years 0001 to 9999") from None


def _clock_nanos(text: str) -> int:
    match = re.fullmatch(_TIME, text, re.ASCII)
    if match is None:
        raise ValueError(f"{text[:40]!r} is not a time; write HH:MM[:SS[.fffffffff]]")
    hour, minute, second = int(match[1]), int(match[2]), int(match[3] or 0)
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"{text!r} is not a time of the day, 00:00:00 to 23:59:59.999999999")
    return ((hour * 60 + minute) * 60 + second) * 1_000_000_000 + int((match[4] or "").ljust(9, "0"))


def time_from_text(text: str) -> datetime.time | Ticks:
    """`23:59`, `23:59:59` or `23:59:59.999999999`; anything else is a ValueError."""
    return time_from_nanos(_clock_nanos(text))


def time_from_nanos(nanos: int) -> datetime.time | Ticks:
    """The time of the day that many nanoseconds after midnight; `Ticks` only where it must be."""
    if not 0 <= nanos < DAY_NANOS:
        raise ValueError("a time of the day is at least 00:00:00 and below 24:00:00")
    micros, rest = divmod(nanos, 1000)
    if rest:
        return Ticks("time", nanos)
    seconds, micros = divmod(micros, 1_000_000)
    return datetime.time(seconds // 3600, seconds // 60 % 60, seconds % 60, micros)


def timestamp_from_text(text: str) -> datetime.datetime | Ticks:
    """`2013-01-31`, `2013-01-31 23:59[:59[.999999999]]` (or `T`), then a zone or none.

    A zone is `Z`, `UTC` or an offset `+HH`, `+HH:MM`, `+HHMM`; the value is then in UTC.
    Anything else is a ValueError.
    """
    match = re.fullmatch(_TIMESTAMP, text, re.ASCII)
    if match is None:
        raise ValueError(f"{text[:40]!r} is not a timestamp; write YYYY-MM-DD HH:MM:SS[.fffffffff][+HH:MM]")
    day = date_from_text(match[1])
    nanos = nanos_of_date(day)
    if match[2]:
        nanos += _clock_nanos(match[2])
    zone = match[3]
    if zone and zone not in ("Z", "z", "UTC"):
        hours, minutes = int(zone[1:3]), int(zone[3:].lstrip(":") or 0)
        if hours > 15 or minutes > 59:
            raise ValueError(f"{zone} is not an offset from UTC")
        offset = (hours * 60 + minutes) * 60_000_000_000
        nanos += offset if zone[0] == "-" else -offset
    return instant_from_nanos(nanos, utc=bool(zone))


def instant_from_nanos(nanos: int, *, utc: bool) -> datetime.datetime | Ticks:
    """The timestamp that many nanoseconds after 1970; a ValueError outside the years 0001 to 9999."""
    if not _FIRST_NANOS <= nanos < _END_NANOS:
        raise ValueError("a timestamp must lie in the years 0001 to 9999")
    micros, rest = divmod(nanos, 1000)
    if rest:
        return Ticks("timestamp", nanos, utc)
    start = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC if utc else None)
    return start + datetime.timedelta(microseconds=micros)


def nanos_of_instant(value: datetime.datetime) -> int:
    """Nanoseconds since 1970 of a datetime: of its instant in UTC if it has a zone, as it stands if not."""
    days = value.toordinal() - EPOCH_ORDINAL
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    nanos = days * DAY_NANOS + seconds * 1_000_000_000 + value.microsecond * 1000
    offset = value.utcoffset()
    if offset is None:
        return nanos
    return nanos - (offset.days * 86_400_000_000 + offset.seconds * 1_000_000 + offset.microseconds) * 1000


def nanos_of_date(day: datetime.date) -> int:
    """Nanoseconds from 1970 to the day's begin."""
    return (day.toordinal() - EPOCH_ORDINAL) * DAY_NANOS


def nanos_of_time(value: datetime.time) -> int:
    """Nanoseconds since midnight."""
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return seconds * 1_000_000_000 + value.microsecond * 1000


def text_from_moment(value: datetime.date | datetime.time | Ticks) -> str:
    """The text that reads back as exactly this date, time or timestamp (a zone is written as UTC)."""
    if isinstance(value, Ticks):
        days, nanos = divmod(value.nanos, DAY_NANOS)
        seconds, fraction = divmod(nanos, 1_000_000_000)
        clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:09}"
        if value.kind == "time":
            return clock
        if not _FIRST_NANOS <= value.nanos < _END_NANOS:
            raise ValueError("a timestamp must lie in the years 0001 to 9999")
        day = datetime.date.fromordinal(days + EPOCH_ORDINAL)
        return f"{day.isoformat()} {clock}{'+00:00' if value.utc else ''}"
    if isinstance(value, datetime.datetime) and value.utcoffset() is not None:
        start = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        value = start + datetime.timedelta(microseconds=nanos_of_instant(value) // 1000)
    return value.isoformat(" ") if isinstance(value, datetime.datetime) else value.isoformat()
