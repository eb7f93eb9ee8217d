"""Literals from Python, numpy and Arrow values."""

from __future__ import annotations

import datetime
import decimal
import math
import operator
import sys
import uuid
from typing import Any

from accel.errors import PredicateError
from accel.predicate.expr import Ticks, Value
from accel.predicate.literal_text import MAX_DIGITS, bounded
from accel.predicate.moments import (
    date_from_days,
    instant_from_nanos,
    nanos_of_instant,
    time_from_nanos,
)

__all__ = ["literal_value", "shown"]

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
    """A Python, numpy, pandas or pyarrow scalar as a literal of the tree, exact.

    Raises
    ------
    PredicateError
        When the value has no literal form (a duration, a list, a struct, a time with a zone, ...).
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
    """The value for a message: its repr, cut where it is long."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a caller's repr may raise anything (pyarrow's does, out of range)
        return f"a {type(value).__name__}"
    return f"{text[:77]}..." if len(text) > 80 else text


def _converted(value: Any) -> Value:
    """`literal_value` for everything but the plainest types."""
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
    # By name: pandas is never imported here. NaT and NA are the nulls of pandas.
    name = type(value).__name__
    if name in ("NaTType", "NAType"):
        return None
    if name == "Timestamp":
        # The nanoseconds that a Timestamp holds beyond those of the datetime that it also is.
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
