"""How predicate text writes moments that are computed: functions of a column, the present, and arithmetic."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any, Final, NoReturn, Protocol

from accel.errors import PredicateError
from accel.predicate.expr import Column, Literal, Ticks
from accel.predicate.moments import UNITS, Truncated, moved, unit_of

__all__ = [
    "CALLED",
    "FUNCTIONS",
    "ONLY_FUNCTIONS",
    "PRESENT",
    "TokenReader",
    "read_function",
    "read_moves",
    "read_present",
]

FUNCTIONS: Final = frozenset(("YEAR", "DATE", "DATE_TRUNC", "CAST", "EXTRACT"))
"""Functions that keep the order of a column, by the word before the parenthesis."""
PRESENT: Final = frozenset(("CURRENT_DATE", "CURRENT_TIMESTAMP", "NOW", "TODAY"))
CALLED: Final = frozenset(("NOW", "TODAY"))
"""Those that are written with parentheses."""
ONLY_FUNCTIONS: Final = (
    "only year(t), date_trunc('day', t), CAST(t AS DATE) and EXTRACT(YEAR FROM t) are functions here"
)


class TokenReader(Protocol):
    """The parser, as far as this module needs it."""

    @property
    def token(self) -> Any:
        """The next token."""

    def skip(self) -> None:
        """Go on behind the next token."""

    def take(self, word: str) -> bool:
        """Go on behind the next token, if it is this word; return whether it was."""

    def column(self) -> Column:
        """Read a column."""

    def fail(self, expected: str, hint: str | None = None) -> NoReturn:
        """Raise the error for the next token."""

    def error(self, message: str, position: int, hint: str | None = None) -> PredicateError:
        """Return an error about a place in the text."""


def read_function(reader: TokenReader) -> Truncated:
    """Read a function of a column, whose name is the next token."""
    name, position = reader.token.word, reader.token.position
    reader.skip()
    reader.skip()
    unit, is_number = "day", False
    if name == "YEAR":
        unit, is_number = "year", True
    elif name == "EXTRACT":
        if not reader.take("YEAR"):
            reader.fail("YEAR, of which alone the values keep their order", ONLY_FUNCTIONS)
        if not reader.take("FROM"):
            reader.fail("FROM")
        unit, is_number = "year", True
    elif name == "DATE_TRUNC":
        found = unit_of(reader.token.value) if reader.token.kind == "text" else None
        if found is None:
            reader.fail(f"one of {', '.join(repr(each) for each in UNITS)}")
        unit = found
        reader.skip()
        if not reader.take(","):
            reader.fail(", and a column")
    if reader.token.kind not in ("name", "quoted"):
        reader.fail("a column")
    column = reader.column()
    if name == "CAST" and not (reader.take("AS") and reader.take("DATE")):
        reader.fail("AS DATE", "a cast to a date keeps the order of timestamps; no other cast is supported")
    if not reader.take(")"):
        reader.fail(")", ONLY_FUNCTIONS)
    return Truncated(column, unit, is_number, position)


def read_present(reader: TokenReader, now: Callable[[], datetime.datetime]) -> Literal:
    """Read CURRENT_DATE, or another name of the present, in UTC."""
    word, position = reader.token.word, reader.token.position
    reader.skip()
    if word in CALLED:
        reader.skip()
        if not reader.take(")"):
            reader.fail(")")
    moment = now()
    return Literal(moment.date() if word in ("CURRENT_DATE", "TODAY") else moment, position)


def read_moves(reader: TokenReader, literal: Literal) -> Literal:
    """Read what is added to a date or a timestamp, and taken from it, and return the outcome."""
    value = literal.value
    while isinstance(value, datetime.date | Ticks) and reader.token.word in ("+", "-"):
        if isinstance(value, Ticks) and value.kind != "timestamp":
            break
        sign = 1 if reader.token.word == "+" else -1
        position = reader.token.position
        reader.skip()
        count, unit = _interval(reader, is_date=type(value) is datetime.date)
        try:
            value = moved(value, unit, sign * count)
        except ValueError as error:
            raise reader.error(str(error), position) from None
    return Literal(value, literal.position)


def _interval(reader: TokenReader, *, is_date: bool) -> tuple[int, str]:
    hint = "write a number of days after a date, or INTERVAL '7' DAY"
    if not reader.take("INTERVAL"):
        if not is_date:
            reader.fail("INTERVAL", hint)
        return _count(reader, reader.token.value, hint), "day"
    words = reader.token.value.split() if reader.token.kind == "text" else []
    unit = unit_of(words[1]) if len(words) == 2 else None
    count = _count(reader, words[0] if words else reader.token.value, hint)
    if unit is None:
        unit = unit_of(reader.token.value) if reader.token.kind == "name" and len(words) < 2 else None
        if unit is None:
            reader.fail(f"a unit: {', '.join(UNITS)}", hint)
        reader.skip()
    return count, unit


def _count(reader: TokenReader, text: str, hint: str) -> int:
    if reader.token.kind not in ("number", "text") or not (
        text.isascii() and text.isdigit() and len(text) < 8
    ):
        reader.fail("a whole number", hint)
    reader.skip()
    return int(text)
