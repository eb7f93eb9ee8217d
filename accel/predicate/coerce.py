"""Exact conversion of literals to a column's native values.

Semantics (docs/predicates.md): numbers compare by exact value whatever their types, but a literal
against a float column is first rounded to double; NaN is above every number and equal to itself;
-0.0 = 0.0; a date is its midnight; text without a zone is UTC.
"""

from __future__ import annotations

import datetime
import decimal
import math
from dataclasses import dataclass

from accel.errors import PredicateError
from accel.format.domain import Domain
from accel.predicate.atoms import Against, Fixed, Negation, Node, Order
from accel.predicate.expr import Ticks, Value
from accel.predicate.kinds import Family, Kind
from accel.predicate.literal import (
    date_from_text,
    nanos_of_date,
    nanos_of_instant,
    nanos_of_time,
    shown,
    time_from_text,
    timestamp_from_text,
)

__all__ = [
    "fixed",
    "key",
    "nearest_double",
    "order_atom",
]

# A decimal literal with more digits lies beyond every column's range and is not expanded.
_MAX_EXPONENT = 400


@dataclass(frozen=True, slots=True)
class Cut:
    """The place of a literal among the native integers: at `floor`, or between it and the next (not
    `exact`)."""

    floor: int
    exact: bool


def order_atom(column: int, kind: Kind, *, order: Order, value: Value, where: str, position: int) -> Node:
    """Return `column order value` in normal form; `value` is not None.

    Raises PredicateError where the value cannot be compared with the column.
    """
    if kind.domain is Domain.INTEGER:
        return _integer_atom(column, kind, order, cut(value, kind, where=where, position=position))
    plain = _plain(value, kind, where, position)
    if kind.domain is Domain.BOOLEAN:
        # false < true: every other comparison is an equality too, or has a fixed result.
        if order is Order.EQ:
            return Against(column, Order.EQ, bool(plain))
        if order is Order.LT:
            return Against(column, Order.EQ, False) if plain else Fixed(column, False)
        return Fixed(column, True) if plain else Against(column, Order.EQ, False)
    if isinstance(plain, float) and math.isnan(plain):
        if order is Order.LE:
            return Fixed(column, True)
        equal = Against(column, Order.EQ, plain)
        return equal if order is Order.EQ else Negation(equal)
    if plain == b"" and order is Order.LT:
        return Fixed(column, False)
    return Against(column, order, plain)


def _integer_atom(column: int, kind: Kind, order: Order, at: Cut) -> Node:
    low, high = kind.limits
    if order is Order.EQ:
        if at.exact and low <= at.floor <= high:
            return Against(column, Order.EQ, at.floor)
        return fixed(column, kind, value=False)
    last = at.floor - 1 if order is Order.LT and at.exact else at.floor
    if last < low:
        return fixed(column, kind, value=False)
    return fixed(column, kind, value=True) if last >= high else Against(column, Order.LE, last)


def fixed(column: int, kind: Kind, *, value: bool) -> Node:
    """Return a test that is `value` for every value that a column of this kind can have.

    A timestamp stored as INT96 may be one that nanoseconds cannot have, which only its reading tells. So the
    test is one that has to see the values, unless there are bounds.
    """
    if kind.family is not Family.TIMESTAMP or (kind.numerator, kind.denominator) != (1, 1):
        return Fixed(column, value)
    whole = Against(column, Order.LE, kind.limits[1])
    return whole if value else Negation(whole)


def key(value: Value, kind: Kind, *, where: str, position: int) -> bool | int | float | bytes | None:
    """Return the native value that equals a literal (not None); None where the column cannot hold it.

    Raises PredicateError where the value cannot be compared with the column.
    """
    if kind.domain is Domain.INTEGER:
        at = cut(value, kind, where=where, position=position)
        low, high = kind.limits
        return at.floor if at.exact and low <= at.floor <= high else None
    return _plain(value, kind, where, position)


def _plain(value: Value, kind: Kind, where: str, position: int) -> bool | float | bytes:
    """Convert a literal for a domain that can hold every literal of its family."""
    if kind.domain is Domain.FLOAT:
        number = _double(value)
        if number is not None:
            return number
    elif kind.domain is Domain.BOOLEAN:
        if isinstance(value, bool):
            return value
    elif kind.family is Family.UUID:
        raw = _uuid(value)
        if raw is not None:
            return raw
    elif isinstance(value, bytes):
        return value
    elif isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise PredicateError("the text has a lone surrogate", position=position) from None
    raise _refusal(value, kind, where, position)


def cut(value: Value, kind: Kind, *, where: str, position: int) -> Cut:
    """Return the place of a literal (not None) among the native integers of a column.

    Raises PredicateError where the value cannot be compared with the column.
    """
    low, high = kind.limits
    if kind.family in (Family.INTEGER, Family.DECIMAL):
        side = _beyond(value)
        if side:
            # Beyond all values: above or below every one and equal to none.
            return Cut(high, False) if side > 0 else Cut(low - 1, False)
        ratio = _ratio(value)
    elif kind.family is Family.DURATION:
        # Durations have no literal: a whole number counts the column's own ticks.
        ratio = None
        if isinstance(value, int) and not isinstance(value, bool):
            ratio = value * kind.numerator, 1
    else:
        nanos = _nanos(value, kind.family)
        ratio = None if nanos is None else (nanos, 1)
    if ratio is None:
        raise _refusal(value, kind, where, position)
    floor, rest = divmod(ratio[0] * kind.denominator, ratio[1] * kind.numerator)
    return Cut(floor, rest == 0)


def _beyond(value: Value) -> int:
    """Return 1 or -1 for a number beyond every integer and decimal column (NaN is above), else 0."""
    if isinstance(value, float):
        return 0 if math.isfinite(value) else (-1 if value < 0 else 1)
    if isinstance(value, decimal.Decimal):
        if value.is_snan():
            return 0
        if not value.is_finite():
            return -1 if value.is_infinite() and value.is_signed() else 1
        if value and value.adjusted() > _MAX_EXPONENT:
            return -1 if value.is_signed() else 1
    return 0


def _ratio(value: Value) -> tuple[int, int] | None:
    """Return a finite number as numerator and denominator; None for other values."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value, 1
    if isinstance(value, float):
        return value.as_integer_ratio()
    if isinstance(value, decimal.Decimal) and value.is_finite():
        if value and value.adjusted() < -_MAX_EXPONENT:
            # Too small for any scale: only its sign matters.
            return (-1 if value.is_signed() else 1), 10**_MAX_EXPONENT
        return value.as_integer_ratio()
    return None


def _double(value: Value) -> float | None:
    """Return the nearest double, without a negative zero; None where the value is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float | decimal.Decimal):
        return None
    if isinstance(value, decimal.Decimal) and value.is_snan():
        return None
    try:
        return float(value) + 0.0
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def nearest_double(value: Value) -> Value:
    """Round a number to a double, as comparison with floats does; other values are returned unchanged."""
    number = _double(value)
    return value if number is None else number


def _uuid(value: Value) -> bytes | None:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        return None
    text = value.strip()
    if len(text) == 36 and text[8] + text[13] + text[18] + text[23] == "----":
        text = text.replace("-", "")
    if len(text) != 32 or not text.isascii() or not text.isalnum():
        return None
    try:
        return bytes.fromhex(text)
    except ValueError:
        return None


def _nanos(value: Value, family: Family) -> int | None:
    """Return nanoseconds from midnight or from 1970; None where the value does not belong to the family.

    For dates too, text is read as a timestamp: `d < '2013-01-31 12:00'` holds for that day.
    """
    if isinstance(value, str):
        try:
            value = time_from_text(value) if family is Family.TIME else timestamp_from_text(value)
        except ValueError:
            return None
    if isinstance(value, Ticks):
        return value.nanos if (value.kind == "time") == (family is Family.TIME) else None
    if family is Family.TIME:
        # Times with a zone cannot be ordered without a date.
        if not isinstance(value, datetime.time) or value.tzinfo is not None:
            return None
        return nanos_of_time(value)
    if isinstance(value, datetime.datetime):
        return nanos_of_instant(value)
    return nanos_of_date(value) if isinstance(value, datetime.date) else None


_HINTS = {
    Family.DATE: "write DATE '2013-01-31'",
    Family.TIME: "write TIME '12:30:00', without a zone",
    Family.TIMESTAMP: "write TIMESTAMP '2013-01-31 12:30:00', with Z or an offset if need be",
    Family.UUID: "write '00112233-4455-6677-8899-aabbccddeeff'",
    Family.INTEGER: "write a number, without quotes",
    Family.DECIMAL: "write a number, without quotes",
    Family.FLOAT: "write a number, without quotes",
    Family.TEXT: "write text in single quotes",
    Family.BOOLEAN: "write TRUE or FALSE",
    Family.DURATION: "write a whole number of the column's own ticks",
    Family.OPAQUE: "only IS NULL and IS NOT NULL apply to it",
}


def _hint(value: Value, family: Family) -> str | None:
    if isinstance(value, str) and family in (Family.DATE, Family.TIME, Family.TIMESTAMP):
        # The error describes the format of the column's own family.
        read = {Family.DATE: date_from_text, Family.TIME: time_from_text}.get(family, timestamp_from_text)
        try:
            read(value)
        except ValueError as error:
            return str(error)
    return _HINTS.get(family)


def _refusal(value: Value, kind: Kind, where: str, position: int) -> PredicateError:
    return PredicateError(
        f"{where} cannot be compared with {shown(value)}",
        position=position,
        hint=_hint(value, kind.family),
    )
