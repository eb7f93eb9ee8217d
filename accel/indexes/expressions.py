"""What a zone map may cover: columns, expressions over them (folded text, calendar parts), and tuples of
columns.

Their textual form is `a`, `b.c`, `"any name"`, `b."any name"`, `lower(s)`, `year(t)` or `(a, b)`; commas
separate list members.

Text is folded by the Python that writes an index and again by the Python that reads it. `str.casefold` never
changes for a character once Unicode has assigned it, but a later Unicode may fold a character that this one
has not assigned. So text with unassigned characters ("not settled") proves nothing.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel.arrays import bytes_array, from_numpy, integers, mask, pack_bits, validity
from accel.errors import SchemaMismatchError
from accel.indexes.native import Tag, code_values, tag_of, uniform
from accel.predicate.expr import quoted_name, quoted_path
from accel.predicate.kinds import Family, kind_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from accel.arrays import Int64s

__all__ = [
    "Expression",
    "Member",
    "apply_expression",
    "apply_to_value",
    "fold",
    "fold_all",
    "fold_settled",
    "inputs_of",
    "is_settled",
    "numbers_of",
    "output_type",
    "parse_member",
    "split_members",
]

_ASCII = bytes(range(128))


def fold(text: bytes) -> bytes:
    """Fold a text; raises UnicodeDecodeError for bytes that are not UTF-8."""
    return text.lower() if text.isascii() else text.decode().casefold().encode()


def fold_all(texts: Sequence[bytes]) -> list[bytes] | None:
    """Fold texts; None where one is not UTF-8, or not settled."""
    if b"".join(texts).isascii():
        return [text.lower() for text in texts]
    try:
        folded = [fold(text) for text in texts]
    except UnicodeDecodeError:
        return None
    return folded if is_settled(b"".join(folded)) else None


def fold_settled(text: bytes) -> bytes | None:
    """Fold a text; None where it is not UTF-8, or not settled."""
    found = fold_all((text,))
    return None if found is None else found[0]


def is_settled(text: bytes) -> bool:
    """Return whether every later Unicode folds a text, which must be UTF-8, as this one does."""
    if text.isascii():
        return True
    shown = text.translate(None, _ASCII).decode()
    if shown.isprintable():  # unassigned characters are not printable, nearly all others are
        return True
    from unicodedata import category

    return all(category(character) != "Cn" or _is_noncharacter(ord(character)) for character in set(shown))


def _is_noncharacter(code: int) -> bool:
    """Return whether Unicode will never assign the code."""
    return code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF


_SECOND = 1_000_000_000


class Expression(enum.StrEnum):
    """A function of one column's values; the text is what files hold."""

    VALUE = "value"
    LOWER = "lower"
    """Text folded as `str.casefold` does."""
    YEAR = "year"
    MONTH = "month"
    DAY = "day"
    HOUR = "hour"
    """Parts of dates and timestamps, in UTC."""

    @property
    def monotone(self) -> bool:
        """Whether a greater value never gives a smaller result."""
        return self in (Expression.VALUE, Expression.YEAR)


def output_type(expression: Expression, kind: pa.DataType) -> pa.DataType:
    """Return the type of an expression over a column.

    Raises SchemaMismatchError where the expression does not apply to the type.
    """
    if expression is Expression.VALUE:
        return kind
    family = kind_of(kind).family
    if expression is Expression.LOWER:
        if family is Family.TEXT:
            return pa.large_string()
    elif family in (Family.DATE, Family.TIMESTAMP):
        return pa.int64()
    raise SchemaMismatchError(f"{expression}() has no meaning for {kind}")


def apply_expression(expression: Expression, array: pa.Array) -> pa.Array:
    """Apply an expression to a column; return a uniform array, which is null where the column is.

    Raises
    ------
    SchemaMismatchError
        The expression does not apply to the type.
    UnicodeDecodeError
        `lower` of bytes that are not UTF-8.
    """
    output_type(expression, array.type)
    if expression is Expression.VALUE:
        return uniform(array)
    if expression is Expression.LOWER:
        coded = code_values(array)
        folded = bytes_array([fold(text) for text in coded.values.to_pylist()], pa.large_binary())
        valid = coded.codes >= 0
        indices = pa.Array.from_buffers(
            pa.int64(),
            len(valid),
            [pack_bits(valid), pa.py_buffer(np.maximum(coded.codes, 0))],
        )
        if not len(folded):
            return pa.nulls(len(valid), pa.large_binary())
        return folded.take(indices)
    ticks = uniform(array)
    parts = _part(expression, integers(ticks), kind_of(array.type).numerator)
    plain = from_numpy(parts)
    if not ticks.null_count:
        return plain
    bits = pack_bits(validity(ticks))
    return pa.Array.from_buffers(pa.int64(), len(plain), [bits, plain.buffers()[1]])


def apply_to_value(expression: Expression, value: Any, *, kind: pa.DataType) -> Any:
    """Apply an expression to a native value; return None where there is no result, or a later Unicode may
    change it."""
    if expression is Expression.VALUE:
        return value
    if expression is Expression.LOWER:
        return fold_settled(value)
    return int(_part(expression, np.array([value], np.int64), kind_of(kind).numerator)[0])


def _part(expression: Expression, ticks: Int64s, nanos: int) -> Int64s:
    """Return a calendar part of times since 1970, given in ticks of that many nanoseconds."""
    seconds = ticks // (_SECOND // nanos) if nanos <= _SECOND else ticks * (nanos // _SECOND)
    if expression is Expression.HOUR:
        return seconds // 3600 % 24
    days = (seconds // 86_400).astype("datetime64[D]")
    months = days.astype("datetime64[M]")
    count = months.astype(np.int64)
    if expression is Expression.YEAR:
        return 1970 + count // 12
    if expression is Expression.MONTH:
        return count % 12 + 1
    first: Int64s = (days - months.astype("datetime64[D]")).astype(np.int64) + 1
    return first


def numbers_of(values: pa.Array) -> npt.NDArray[Any] | None:
    """Return a uniform array as numpy numbers, arbitrary where it is null; None for bytes."""
    tag = tag_of(values.type)
    if tag is Tag.BYTES:
        return None
    return mask(values) if tag is Tag.BOOLEAN else integers(values)


_TOKEN = re.compile(r'\s*(?:"((?:[^"]|"")*)"|([(),])|([^\s"(),]+))\s*')
_CALL = re.compile(r"\s*([a-z]*)\s*\((.*)\)\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Member:
    """One thing that a zone map covers: a column, an expression over one, or a tuple of columns."""

    of: Expression
    columns: tuple[str | tuple[str, ...], ...]
    """One column, or those of a tuple: each a name or dotted path, or the names of its path."""

    def __str__(self) -> str:
        inner = ", ".join(map(_written, self.columns))
        if len(self.columns) > 1:
            return f"({inner})"
        return inner if self.of is Expression.VALUE else f"{self.of}({inner})"


def split_members(text: str) -> tuple[str, ...]:
    """Split a list of members into the text of each.

    Raises ValueError where parentheses or quotes do not match.
    """
    found, depth, begun, at = [], 0, 0, 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise _unreadable(text)
        at = token.end()
        depth += {"(": 1, ")": -1}.get(token[2] or "", 0)
        if depth < 0:
            raise _unreadable(text)
        if token[2] == "," and not depth:
            found.append(text[begun : token.start(2)].strip())
            begun = at
    found.append(text[begun:].strip())
    if depth or not all(found):
        raise _unreadable(text)
    return tuple(found)


def parse_member(text: str, *, default: Expression = Expression.VALUE) -> Member:
    """Read one member.

    Parameters
    ----------
    text : str
        The text, as the module describes it.
    default : Expression
        The expression that a column without one means.

    Raises
    ------
    ValueError
        The text is no member, or names an unknown expression.
    """
    call = _CALL.fullmatch(text)
    if call is None or text.lstrip().startswith('"'):
        return Member(default, (_name(text),))
    columns = tuple(_name(part) for part in split_members(call[2]))
    if not call[1]:
        if len(columns) < 2 or len(set(columns)) < len(columns):
            raise ValueError(f"a tuple is of two columns or more, not {text!r}")
        return Member(Expression.VALUE, columns)
    names = [str(each) for each in Expression]
    if call[1] not in names or len(columns) != 1:
        raise ValueError(f"an index is of one of {', '.join(names)} of a column, not of {text!r}")
    return Member(Expression(call[1]), columns)


def inputs_of(members: Iterable[Member]) -> tuple[str | tuple[str, ...], ...]:
    """Return the columns of all members, each once, in order of first use."""
    return tuple(dict.fromkeys(column for member in members for column in member.columns))


def _name(text: str) -> str | tuple[str, ...]:
    path = quoted_path(text.strip())
    if path is not None:
        # A path of a single name without a dot is that name.
        return path[0] if len(path) == 1 and "." not in path[0] else path
    token = _TOKEN.fullmatch(text)
    if token is None or token[3] is None:
        raise _unreadable(text)
    return token[3]


def _written(column: str | tuple[str, ...]) -> str:
    if isinstance(column, str):
        return _quoted(column)
    return ".".join(quoted_name(name) if "." in name else _quoted(name) for name in column)


def _quoted(name: str) -> str:
    token = _TOKEN.fullmatch(name)
    return name if token is not None and token[3] == name else quoted_name(name)


def _unreadable(text: str) -> ValueError:
    return ValueError(f"{text!r} is no list of columns, expressions like lower(s), and tuples like (a, b)")
