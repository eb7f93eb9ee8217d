"""Values as DuckLake's catalogs have them: as text, for most types, in three forms.

A list or map, and what is below it, is as DuckDB shows it: texts are in quotes where they have to be, and a
backslash escapes. A struct that is a column, or the field of such a struct, is as SQL has it: texts are in
quotes, and a quote is doubled. What is neither is an error.

Sources: DuckDB's casts of nested values to text; inlined rows that its extension 1.5.5 wrote.
"""

from __future__ import annotations

import decimal
import re
import struct
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from accel.errors import TableFormatError
from accel.tables.formats.ducklake.types import LakeColumn

__all__ = ["decode_value", "named_value"]

_INFINITE: Final = {"infinity": 1, "-infinity": -1}
_DAY: Final = re.compile(r"(-?\d{1,7})-(\d{1,2})-(\d{1,2})( \(BC\))?", re.ASCII)
_CLOCK: Final = re.compile(r"(\d{1,2}):(\d{2}):(\d{2})(?:\.(\d{1,9}))?", re.ASCII)
_ZONE: Final = re.compile(r"([+-])(\d{2})(?::?(\d{2}))?(?::?(\d{2}))?", re.ASCII)
_PART: Final = re.compile(r"(-?\d+) (year|month|mon|day)s?(?![a-z])", re.ASCII)
_SPAN: Final = re.compile(r"(-?)(\d+):(\d{2}):(\d{2})(?:\.(\d{1,9}))?", re.ASCII)
_MOST_DIGITS: Final = 400
_PER_SECOND: Final[Mapping[str, int]] = {
    "timestamp": 10**6,
    "timestamp_us": 10**6,
    "timestamp_s": 10**6,
    "timestamp_ms": 10**3,
    "timestamp_ns": 10**9,
    "timestamptz": 10**6,
    "timestamptz_ns": 10**9,
    "time": 10**6,
    "timetz": 10**6,
    "time_ns": 10**9,
}


def decode_value(value: Any, column: LakeColumn) -> Any:
    """Return a value of a column as Python has it: days, instants and times as numbers, structs by the ids of
    their fields.

    Parameters
    ----------
    value : object
        As the database gave it: text, or a number or bytes.
    column : LakeColumn
        The column as it was when the value was written.

    Raises
    ------
    TableFormatError
        It is no such value.
    """
    if value is None:
        return None
    if not column.children:
        return _scalar(value, column)
    if isinstance(value, bytes):
        value = _utf8(value, column)
    if not isinstance(value, str):
        raise _no_value(value, column)
    if column.type.lower() != "struct":
        return _Nested(value).whole(column, sql=False)
    try:
        return _Nested(value).whole(column, sql=True)
    except TableFormatError:
        return _Nested(value).whole(column, sql=False)


def named_value(value: Any, column: LakeColumn) -> Any:
    """Return a value that `decode_value` returned with its structs by the names of their fields."""
    if value is None or not column.children:
        return value
    kind = column.type.lower()
    if kind == "struct":
        return {child.name: named_value(value.get(child.id), child) for child in column.children}
    if kind == "list":
        return [named_value(item, column.children[0]) for item in value]
    key, item = column.children
    return [(named_value(one, key), named_value(other, item)) for one, other in value]


# -- scalars -------------------------------------------------------------------------------------


def _scalar(value: Any, column: LakeColumn) -> Any:
    kind = column.type.lower()
    try:
        if isinstance(value, bytes) and kind != "blob":
            value = _utf8(value, column)
        found = _DECODERS.get(kind)
        if found is None:
            found = _exact_number if kind.startswith("decimal(") else None
        if found is None:
            raise _no_value(value, column)
        if kind in _PER_SECOND:
            return _ticks(value, kind)
        return found(value)
    except (ValueError, TypeError, ArithmeticError, AttributeError, KeyError):
        raise _no_value(value, column) from None


def _utf8(value: bytes, column: LakeColumn) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise _no_value(value, column) from None


def _no_value(value: Any, column: LakeColumn) -> TableFormatError:
    return TableFormatError(
        f"the catalog has {str(value)[:60]!r} for the column {column.name!r}, which is no {column.type[:40]}",
        hint="call ducklake_flush_inlined_data in DuckDB, which writes such rows to files",
    )


def _truth(value: Any) -> bool:
    return {0: False, 1: True, "false": False, "true": True, "0": False, "1": True}[value]


def _whole(value: Any) -> int:
    if isinstance(value, int):
        return value
    if not re.fullmatch(r"-?[0-9]{1,60}", value):
        raise ValueError("no whole number")
    return int(value)


def _float(value: Any) -> float:
    if isinstance(value, int | float):
        return float(value)
    cast = re.fullmatch(r"CAST\('(-?(?:inf|nan|0\.0))' AS [A-Z]+\)", value)
    text = cast[1] if cast else value
    if len(text) > _MOST_DIGITS or "_" in text:
        raise ValueError("no number")
    return float(text)


def _exact_number(value: Any) -> decimal.Decimal:
    text = str(value)
    if not re.fullmatch(r"-?[0-9]{1,40}(\.[0-9]{1,40})?", text):
        raise ValueError("no decimal")
    return decimal.Decimal(text)


def _days(value: str) -> int:
    """Return the days since 1970 of a date of any year."""
    if value in _INFINITE:
        return _INFINITE[value] * (2**31 - 1)
    found = _DAY.fullmatch(value)
    if found is None:
        raise ValueError("no date")
    return _day_number(found)


def _day_number(found: re.Match[str]) -> int:
    year, month, day = int(found[1]), int(found[2]), int(found[3])
    if not (1 <= month <= 12 and 1 <= day <= 31):
        raise ValueError("no date")
    if found[4]:
        year = 1 - year
    # Years from March on, so that the leap day is the last one; 400 years have 146,097 days.
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def _ticks(value: Any, kind: str) -> int:
    """Return the number of an instant or a time of day, in the unit of its type."""
    per_second = _PER_SECOND[kind]
    text = value.strip()
    if kind.startswith("timestamp") and text in _INFINITE:
        return _INFINITE[text] * (2**63 - 1)
    days = 0
    if kind.startswith("timestamp"):
        found = _DAY.match(text)
        if found is None:
            raise ValueError("no instant")
        days = _day_number(found)
        text = text[found.end() :].lstrip(" T") or "00:00:00"
    clock = _CLOCK.match(text)
    if clock is None:
        raise ValueError("no time")
    seconds = days * 86_400 + int(clock[1]) * 3600 + int(clock[2]) * 60 + int(clock[3])
    zone = text[clock.end() :]
    if zone:
        offset = _ZONE.fullmatch(zone)
        if offset is None or "tz" not in kind:
            raise ValueError("no zone")
        apart = int(offset[2]) * 3600 + int(offset[3] or 0) * 60 + int(offset[4] or 0)
        seconds += apart if offset[1] == "-" else -apart
    if kind == "timetz":
        seconds %= 86_400
    fraction = int((clock[4] or "").ljust(9, "0")) if clock[4] else 0
    return seconds * per_second + fraction * per_second // 10**9


def _interval(value: str) -> bytes:
    """Return months, days and milliseconds, as Parquet has them."""
    months = days = micros = 0
    rest = value.strip()
    while found := _PART.match(rest):
        number = int(found[1])
        if found[2] == "day":
            days += number
        else:
            months += number * (12 if found[2] == "year" else 1)
        rest = rest[found.end() :].lstrip()
    if rest:
        span = _SPAN.fullmatch(rest)
        if span is None:
            raise ValueError("no interval")
        seconds = int(span[2]) * 3600 + int(span[3]) * 60 + int(span[4])
        micros = seconds * 10**6 + int((span[5] or "").ljust(6, "0")[:6])
        micros = -micros if span[1] else micros
    if min(months, days, micros) < 0:
        raise ValueError("Parquet has no negative interval")
    return b"".join(part.to_bytes(4, "little") for part in (months, days, micros // 1000))


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    return re.sub(rb"\\x([0-9A-Fa-f]{2})", lambda found: bytes([int(found[1], 16)]), value.encode("ascii"))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value


_DECODERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "boolean": _truth,
    **{f"{sign}int{bits}": _whole for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "int128": lambda value: float(_whole(value)),
    "uint128": lambda value: float(_whole(value)),
    "float32": lambda value: struct.unpack("f", struct.pack("f", _float(value)))[0],
    "float64": _float,
    "date": _days,
    "interval": _interval,
    "varchar": _text,
    "json": _text,
    "blob": _bytes,
    "uuid": lambda value: uuid.UUID(value).bytes,
    **{kind: _text for kind in _PER_SECOND},
}


# -- nested --------------------------------------------------------------------------------------


class _Nested:
    """Reads the text of a nested value from its beginning."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def whole(self, column: LakeColumn, *, sql: bool) -> Any:
        """Return the value that all of the text is."""
        found = self._value(column, "", sql)
        if self._at != len(self._text):
            raise self._error(column)
        return found

    def _value(self, column: LakeColumn, ends: str, sql: bool) -> Any:
        """Return the value that begins here; an unquoted one reaches to one of `ends`."""
        after = self._text[self._at + 4 : self._at + 5]
        if self._text.startswith("NULL", self._at) and (after in ends if after else True):
            self._at += 4
            return None
        kind = column.type.lower()
        if kind == "list":
            return self._items("[", "]", column, lambda: self._value(column.children[0], ",]", False))
        if kind == "map":
            return self._items("{", "}", column, lambda: self._pair(column))
        if kind == "struct":
            fields = self._items("{", "}", column, lambda: self._field(column, sql))
            if len(fields) != len(column.children) or len(dict(fields)) < len(fields):
                raise self._error(column)
            return dict(fields)
        return _scalar(self._scalar_text(column, ends, sql), column)

    def _items(self, begin: str, end: str, column: LakeColumn, read: Callable[[], Any]) -> list[Any]:
        self._expect(begin, column)
        found: list[Any] = []
        while not self._text.startswith(end, self._at):
            if found:
                self._expect(", ", column)
            found.append(read())
            if self._at >= len(self._text):
                raise self._error(column)
        self._at += len(end)
        return found

    def _pair(self, column: LakeColumn) -> tuple[Any, Any]:
        key = self._value(column.children[0], "=", False)
        self._expect("=", column)
        return key, self._value(column.children[1], ",}", False)

    def _field(self, column: LakeColumn, sql: bool) -> tuple[int, Any]:
        name = self._quoted(column, sql)
        self._expect(": ", column)
        for child in column.children:
            if child.name == name:
                return child.id, self._value(child, ",}", sql)
        raise self._error(column)

    def _scalar_text(self, column: LakeColumn, ends: str, sql: bool) -> str:
        if self._text.startswith("'", self._at):
            return self._quoted(column, sql)
        if sql and self._text.startswith("CAST('", self._at):
            self._at += len("CAST(")
            value = self._quoted(column, sql)
            self._skip(r" AS [A-Z0-9_ ]+(\([0-9, ]+\))?\)", column)
            return value
        if sql and self._text.startswith("CONCAT('", self._at):
            return self._concatenated(column)
        start = self._at
        while self._at < len(self._text) and self._text[self._at] not in ends:
            self._at += 1
        return self._text[start : self._at]

    def _concatenated(self, column: LakeColumn) -> str:
        """Return a text with NUL characters: `CONCAT('a', chr(0), 'b')`."""
        self._at += len("CONCAT(")
        parts = [self._quoted(column, True)]
        while self._text.startswith(", chr(0), ", self._at):
            self._at += len(", chr(0), ")
            parts.append(self._quoted(column, True))
        self._expect(")", column)
        return "\0".join(parts)

    def _quoted(self, column: LakeColumn, sql: bool) -> str:
        """Return the text in quotes that begins here: a quote in it is doubled in SQL, and escaped
        elsewhere."""
        pattern = r"'((?:[^']|'')*)'" if sql else r"'((?:[^'\\]|\\.)*)'"
        found = re.compile(pattern, re.DOTALL).match(self._text, self._at)
        if found is None:
            raise self._error(column)
        self._at = found.end()
        return found[1].replace("''", "'") if sql else re.sub(r"\\(.)", r"\1", found[1], flags=re.DOTALL)

    def _skip(self, pattern: str, column: LakeColumn) -> None:
        found = re.compile(pattern).match(self._text, self._at)
        if found is None:
            raise self._error(column)
        self._at = found.end()

    def _expect(self, text: str, column: LakeColumn) -> None:
        if not self._text.startswith(text, self._at):
            raise self._error(column)
        self._at += len(text)

    def _error(self, column: LakeColumn) -> TableFormatError:
        return _no_value(self._text[max(0, self._at - 20) :], column)
