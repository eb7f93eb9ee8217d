"""Literals as they are written in a predicate's text."""

from __future__ import annotations

import decimal

from accel.predicate.expr import Value

__all__ = ["MAX_DIGITS", "TYPE_WORDS", "bounded", "number_from_text", "typed_from_text"]

MAX_DIGITS = 4000
"""Most digits of a number literal, and the largest power of ten either way: what is beyond cannot be meant."""

TYPE_WORDS = frozenset({"DATE", "TIME", "TIMESTAMP", "DOUBLE", "X"})


def number_from_text(text: str) -> int | decimal.Decimal:
    """`7` is an int; with a point or an exponent it is an exact Decimal. ValueError when out of range."""
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
    """The number, if it has no more digits and powers of ten than may be; else ValueError."""
    if not value:
        return decimal.Decimal("-0" if value.is_signed() else 0)
    if abs(value.adjusted()) > MAX_DIGITS or len(value.as_tuple().digits) > MAX_DIGITS:
        raise ValueError(f"the number is beyond {MAX_DIGITS:,} digits or powers of ten")
    return value


def typed_from_text(word: str, text: str) -> Value:
    """The value of a typed literal such as `DATE '2013-01-31'`; ValueError when the text is none."""
    if word == "X":
        return _bytes_from_hex(text)
    if word == "DOUBLE":
        return _double_from_text(text)
    from accel.predicate import moments

    if word == "DATE":
        return moments.date_from_text(text)
    return moments.time_from_text(text) if word == "TIME" else moments.timestamp_from_text(text)


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
