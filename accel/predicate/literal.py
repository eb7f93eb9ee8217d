"""Literals: values of Python, numpy, pandas and Arrow, numbers and moments of predicate text, and their
comparison.

Literals compare by the same rules as columns (`accel.predicate.coerce`). Dates, times and timestamps are
exact to the nanosecond, in the years 0001 to 9999.
"""

from __future__ import annotations

import datetime
import decimal
import math
import operator
import re
import sys
import uuid
from collections.abc import Callable
from typing import Any

from accel.errors import PredicateError
from accel.predicate.expr import Op, Ticks, Value

__all__ = [
    "DAY_NANOS",
    "EPOCH_ORDINAL",
    "TYPE_WORDS",
    "compare_values",
    "date_from_days",
    "date_from_text",
    "instant_from_nanos",
    "literal_value",
    "nanos_of_date",
    "nanos_of_instant",
    "nanos_of_time",
    "number_from_text",
    "shown",
    "text_from_moment",
    "time_from_nanos",
    "time_from_text",
    "timestamp_from_text",
    "typed_from_text",
]

_OF_DURATIONS = "a column of durations compares with a whole number of its own unit"
_NANOS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1000, "ns": 1}
_NUMPY_NANOS = {
    "W": 604_800_000_000_000,
    "D": 86_400_000_000_000,
    "h": 3_600_000_000_000,
    "m": 60_000_000_000,
    **_NANOS,
}


def literal_value(value: object) -> Value:
    """Convert a Python, numpy, pandas or pyarrow scalar exactly to a literal.

    Raises PredicateError where the value has no literal form (a duration, a list, a struct, a time with a
    zone, ...).
    """
    kind = type(value)
    if value is None or kind is bool:
        return value  # type: ignore[return-value]
    try:
        if kind is str:
            value.encode()  # type: ignore[attr-defined]
            return value  # type: ignore[return-value]
        if kind is int or kind is float:
            return _checked_number(value)
        return _converted(value)
    except UnicodeEncodeError:
        raise PredicateError("a text literal holds a lone surrogate, which is no character") from None
    except (ValueError, OverflowError) as error:
        if isinstance(error, PredicateError):
            raise
        raise PredicateError(f"{shown(value)} cannot be a literal: {error}") from None


def _checked_number(value: Any) -> int | float:
    if isinstance(value, int) and value.bit_length() > 13_000 and abs(value) >= 10**MAX_DIGITS:
        raise PredicateError(f"an int literal has more than {MAX_DIGITS:,} digits")
    return value  # type: ignore[no-any-return]


def shown(value: object) -> str:
    """Return a value for a message: its repr, shortened where it is long."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a caller's repr may raise anything (pyarrow's does, out of range)
        return f"a {type(value).__name__}"
    return f"{text[:77]}..." if len(text) > 80 else text


def _converted(value: Any) -> Value:
    """Convert a value that is not exactly None, bool, str, int or float."""
    module = type(value).__module__.partition(".")[0]
    if module == "numpy":
        return _from_numpy(value)
    if module == "pyarrow":
        return _from_arrow(value)
    if module == "pandas":
        return _from_pandas(value)
    if isinstance(value, bool):
        return bool(value)
    if isinstance(value, int):
        return _checked_number(operator.index(value))
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        plain = str.__str__(value)
        plain.encode()
        return plain
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, decimal.Decimal):
        return _from_decimal(value)
    if isinstance(value, datetime.datetime):
        return instant_from_nanos(nanos_of_instant(value), utc=value.utcoffset() is not None)
    if isinstance(value, datetime.date):
        return datetime.date(value.year, value.month, value.day)
    if isinstance(value, datetime.time):
        if value.tzinfo is not None:
            raise ValueError("a time of the day has no zone")
        return value.replace(fold=0)
    if isinstance(value, Ticks):
        return _from_ticks(value)
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, datetime.timedelta):
        raise _no_literal(value, _OF_DURATIONS)
    if isinstance(value, list | tuple | set | frozenset):
        raise _no_literal(value, "use isin")
    raise _no_literal(
        value, "numbers, text, bytes, booleans, dates, times, timestamps, decimals and None can"
    )


def _no_literal(value: object, hint: str) -> PredicateError:
    return PredicateError(
        f"{shown(value)} ({type(value).__name__}) cannot be a literal of a predicate", hint=hint
    )


def _from_decimal(value: decimal.Decimal) -> Value:
    if value.is_nan():
        if value.is_snan():
            raise ValueError("a signalling NaN")
        return math.nan
    if value.is_infinite():
        return -math.inf if value.is_signed() else math.inf
    return bounded(value)


def _from_ticks(value: Ticks) -> Value:
    if value.kind == "time":
        return time_from_nanos(value.nanos)
    if value.kind == "timestamp":
        return instant_from_nanos(value.nanos, utc=value.utc)
    raise ValueError('the kind of Ticks is "time" or "timestamp"')


def _from_numpy(value: Any) -> Value:
    np = sys.modules["numpy"]
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, np.datetime64):
        return _from_datetime64(value, np)
    if isinstance(value, np.longdouble) and not np.isnan(value) and float(value) != value:
        raise ValueError("it does not fit into a double")
    if isinstance(value, np.bool_ | np.number | np.str_ | np.bytes_) and not isinstance(
        value, np.timedelta64 | np.complexfloating
    ):
        return literal_value(float(value) if isinstance(value, np.floating) else value.item())
    if isinstance(value, np.timedelta64):
        raise _no_literal(value, _OF_DURATIONS)
    raise ValueError(f"a numpy {type(value).__name__} is no scalar that a column holds")


def _from_datetime64(value: Any, np: Any) -> Value:
    if np.isnat(value):
        return None
    unit, count = np.datetime_data(value.dtype)
    if unit in ("Y", "M"):
        value, unit, count = value.astype("datetime64[D]"), "D", 1
    ticks = int(value.view(np.int64)) * count
    if unit == "D":
        return date_from_days(ticks)
    if unit not in _NUMPY_NANOS:
        raise ValueError(f"the unit {unit} is finer than a nanosecond")
    return instant_from_nanos(ticks * _NUMPY_NANOS[unit], utc=False)


def _from_pandas(value: Any) -> Value:
    # Types are compared by name because pandas is not imported here. NaT and NA are its nulls.
    name = type(value).__name__
    if name in ("NaTType", "NAType"):
        return None
    if name == "Timestamp":
        # A Timestamp has nanoseconds beyond the microseconds of its datetime.
        nanos = nanos_of_instant(value.to_pydatetime(warn=False)) + int(value.nanosecond)
        return instant_from_nanos(nanos, utc=value.tzinfo is not None)
    if name == "Timedelta":
        raise _no_literal(value, _OF_DURATIONS)
    raise ValueError(f"a pandas {name} is no scalar that a column holds")


def _from_arrow(value: Any) -> Value:
    import pyarrow as pa

    if not isinstance(value, pa.Scalar):
        raise PredicateError(
            f"a pyarrow {type(value).__name__} is no literal", hint="pass an array to isin()"
        )
    if not value.is_valid:
        return None
    if isinstance(value, pa.ExtensionScalar):
        return _from_arrow(value.value)
    if isinstance(value, pa.DictionaryScalar):
        return _from_arrow(value.value)
    kind = value.type
    if pa.types.is_timestamp(kind):
        return instant_from_nanos(value.value * _NANOS[kind.unit], utc=kind.tz is not None)
    if pa.types.is_time(kind):
        return time_from_nanos(value.value * _NANOS[kind.unit])
    if pa.types.is_date(kind):
        days = value.value if pa.types.is_date32(kind) else value.value // 86_400_000
        return date_from_days(days)
    if pa.types.is_duration(kind):
        raise _no_literal(value, _OF_DURATIONS)
    if pa.types.is_nested(kind) or pa.types.is_interval(kind):
        raise ValueError(f"{kind} has no order to compare by")
    plain = value.as_py()
    if type(plain).__module__.partition(".")[0] == "pyarrow":
        raise ValueError(f"{kind} is not understood")
    return literal_value(float(plain) if pa.types.is_floating(kind) else plain)


MAX_DIGITS = 4000
"""Most digits of a number literal, and its largest power of ten in either direction."""

TYPE_WORDS = frozenset({"DATE", "TIME", "TIMESTAMP", "DOUBLE", "X"})


def number_from_text(text: str) -> int | decimal.Decimal:
    """Parse a number: `7` is an int, one with a point or an exponent an exact Decimal. Raise ValueError when
    out of range."""
    if len(text) > 2 * MAX_DIGITS:
        raise ValueError(f"a number of {len(text):,} characters; at most {MAX_DIGITS:,} digits")
    if text.isdigit():
        if len(text) > MAX_DIGITS:
            raise ValueError(f"a number of {len(text):,} digits; at most {MAX_DIGITS:,}")
        return int(text)
    try:
        value = decimal.Decimal(text)
    except decimal.DecimalException:
        raise ValueError(f"{text[:40]} is out of range") from None
    if not value.is_finite():
        raise ValueError(f"{text[:40]} is no number")
    return bounded(value)


def bounded(value: decimal.Decimal) -> decimal.Decimal:
    """Return the number, or raise ValueError where it exceeds MAX_DIGITS digits or powers of ten."""
    if not value:
        return decimal.Decimal("-0" if value.is_signed() else 0)
    if abs(value.adjusted()) > MAX_DIGITS or len(value.as_tuple().digits) > MAX_DIGITS:
        raise ValueError(f"the number is beyond {MAX_DIGITS:,} digits or powers of ten")
    return value


def typed_from_text(word: str, text: str) -> Value:
    """Parse a typed literal such as `DATE '2013-01-31'`; raise ValueError when the text is invalid."""
    if word == "X":
        return _bytes_from_hex(text)
    if word == "DOUBLE":
        return _double_from_text(text)
    if word == "DATE":
        return date_from_text(text)
    return time_from_text(text) if word == "TIME" else timestamp_from_text(text)


def _bytes_from_hex(text: str) -> bytes:
    try:
        if not text.isalnum():
            raise ValueError
        return bytes.fromhex(text)
    except ValueError:
        if not text:
            return b""
        raise ValueError(f"{text[:40]!r} is not binary; write pairs of hexadecimal digits: X'00ff'") from None


def _double_from_text(text: str) -> float:
    try:
        if "_" in text or text != text.strip() or not text.isascii():
            raise ValueError
        return float(text)
    except ValueError:
        raise ValueError(
            f"{text[:40]!r} is not a double; write '0.5', '1e300', 'Infinity' or 'NaN'"
        ) from None


DAY_NANOS = 86_400_000_000_000
EPOCH_ORDINAL = datetime.date(1970, 1, 1).toordinal()
_FIRST_NANOS = (datetime.date.min.toordinal() - EPOCH_ORDINAL) * DAY_NANOS
_END_NANOS = (datetime.date.max.toordinal() - EPOCH_ORDINAL + 1) * DAY_NANOS

# Compiled by `re` on first use, since most predicates have no dates.
_DATE = r"(\d{4})-(\d{2})-(\d{2})"
_TIME = r"(\d{2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?"
_TIMESTAMP = (
    r"(\d{4}-\d{2}-\d{2})(?:[ Tt](\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?)"
    r"(?: ?([Zz]|UTC|[+-]\d{2}(?::?\d{2})?))?)?"
)


def date_from_text(text: str) -> datetime.date:
    """Parse `2013-01-31`, in the years 0001 to 9999; raise ValueError for other text."""
    match = re.fullmatch(_DATE, text, re.ASCII)
    if match is None:
        raise ValueError(f"{text[:40]!r} is not a date; write YYYY-MM-DD")
    year, month, day = map(int, match.groups())
    try:
        return datetime.date(year, month, day)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a date: {error}") from None


def date_from_days(days: int) -> datetime.date:
    """Return the date this many days after 1970-01-01; raise ValueError outside the years 0001 to 9999."""
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
    """Parse `23:59`, `23:59:59` or `23:59:59.999999999`; raise ValueError for other text."""
    return time_from_nanos(_clock_nanos(text))


def time_from_nanos(nanos: int) -> datetime.time | Ticks:
    """Return the time this many nanoseconds after midnight, as `Ticks` only where microseconds are too
    coarse."""
    if not 0 <= nanos < DAY_NANOS:
        raise ValueError("a time of the day is at least 00:00:00 and below 24:00:00")
    micros, rest = divmod(nanos, 1000)
    if rest:
        return Ticks("time", nanos)
    seconds, micros = divmod(micros, 1_000_000)
    return datetime.time(seconds // 3600, seconds // 60 % 60, seconds % 60, micros)


def timestamp_from_text(text: str) -> datetime.datetime | Ticks:
    """Parse `2013-01-31` or `2013-01-31 23:59[:59[.999999999]]` (or with `T`), and an optional zone.

    A zone is `Z`, `UTC` or an offset `+HH`, `+HH:MM`, `+HHMM`; the value is then in UTC.
    Raise ValueError for other text.
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
    """Return the timestamp this many nanoseconds after 1970; raise ValueError outside the years 0001 to
    9999."""
    if not _FIRST_NANOS <= nanos < _END_NANOS:
        raise ValueError("a timestamp must lie in the years 0001 to 9999")
    micros, rest = divmod(nanos, 1000)
    if rest:
        return Ticks("timestamp", nanos, utc)
    start = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC if utc else None)
    return start + datetime.timedelta(microseconds=micros)


def nanos_of_instant(value: datetime.datetime) -> int:
    """Return a datetime's nanoseconds since 1970: in UTC if it has a zone, else of its local time."""
    days = value.toordinal() - EPOCH_ORDINAL
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    nanos = days * DAY_NANOS + seconds * 1_000_000_000 + value.microsecond * 1000
    offset = value.utcoffset()
    if offset is None:
        return nanos
    return nanos - (offset.days * 86_400_000_000 + offset.seconds * 1_000_000 + offset.microseconds) * 1000


def nanos_of_date(day: datetime.date) -> int:
    """Return the nanoseconds from 1970 to the day's start."""
    return (day.toordinal() - EPOCH_ORDINAL) * DAY_NANOS


def nanos_of_time(value: datetime.time) -> int:
    """Return the nanoseconds since midnight."""
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return seconds * 1_000_000_000 + value.microsecond * 1000


def text_from_moment(value: datetime.date | datetime.time | Ticks) -> str:
    """Render a date, time or timestamp as text that parses to the same value (a zone is written as UTC)."""
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


def compare_values(op: Op, left: Value, right: Value) -> bool | None:
    """Evaluate a comparison without columns in three-valued logic; raise ValueError where the two cannot be
    compared."""
    if left is None or right is None:
        if op is Op.DISTINCT:
            return left is not right
        if op is Op.NOT_DISTINCT:
            return left is right
        return None
    order = _order(left, right)
    match op:
        case Op.EQ | Op.NOT_DISTINCT:
            return order == 0
        case Op.NE | Op.DISTINCT:
            return order != 0
        case Op.LT:
            return order < 0
        case Op.LE:
            return order <= 0
        case Op.GT:
            return order > 0
        case Op.GE:
            return order >= 0


def _order(left: Any, right: Any) -> int:
    kinds = _kind(left), _kind(right)
    if kinds[0] != kinds[1]:
        if kinds[0] == "text" and kinds[1] in _FROM_TEXT:
            left = _FROM_TEXT[kinds[1]](left)
        elif kinds[1] == "text" and kinds[0] in _FROM_TEXT:
            right = _FROM_TEXT[kinds[0]](right)
        elif set(kinds) not in _MIXED:
            raise ValueError(f"cannot compare {_NOUN[kinds[0]]} with {_NOUN[kinds[1]]}")
    a, b = _key(left), _key(right)
    return 0 if a == b else -1 if a < b else 1


# A date compares as its midnight, text as its UTF-8 bytes.
_MIXED = ({"date", "timestamp"}, {"text", "binary"})
_NOUN = {
    "number": "a number",
    "boolean": "a boolean",
    "text": "text",
    "binary": "binary",
    "date": "a date",
    "time": "a time",
    "timestamp": "a timestamp",
}
_FROM_TEXT: dict[str, Callable[[str], Value]] = {
    "date": timestamp_from_text,  # which reads a date too
    "time": time_from_text,
    "timestamp": timestamp_from_text,
}


def _kind(value: Value) -> str:
    match value:
        case bool():
            return "boolean"
        case int() | float() | decimal.Decimal():
            return "number"
        case str():
            return "text"
        case bytes():
            return "binary"
        case datetime.datetime():
            return "timestamp"
        case datetime.date():
            return "date"
        case datetime.time():
            return "time"
        case Ticks():
            return value.kind
        case _:
            raise ValueError(f"{type(value).__name__} is no literal")


def _key(value: Any) -> Any:
    """Return a key that orders as the value does within its kind; NaN is equal to itself and above every
    number."""
    match value:
        case bool() | bytes():
            return value
        case float() if math.isnan(value):
            return (1, 0)
        case int() | float() | decimal.Decimal():
            return (0, value)
        case str():
            return value.encode()
        case datetime.datetime():
            return nanos_of_instant(value)
        case datetime.date():
            return nanos_of_date(value)
        case datetime.time():
            return nanos_of_time(value)
        case _:
            return value.nanos
