"""Schema elements that are like one read before, but for their names and field ids.

Source: parquet-format `parquet.thrift` (SchemaElement).

The elements of a wide schema are of few kinds. Where the bytes before a name and those after it are those
of an element that has been read, they mean what they meant there: a struct of Thrift ends where its own
bytes say, so the same bytes are read the same way. A field id in between may be another number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from accel.format.model import SchemaElement
from accel.format.thrift import BINARY, I32, ThriftReader

__all__ = ["Likenesses"]

_MOST: Final = 16
"""Kinds remembered for each beginning; comparing with more would take longer than reading."""
_LONGEST: Final = 12
"""Bytes before a name; usual ones have a type, a length and a repetition there."""
_NAME, _FIELD_ID = 4, 9


@dataclass(frozen=True, slots=True)
class _Like:
    """What follows the name in an element that has been read, which it is."""

    after: bytes
    """Up to and with STOP or, where there is a field id, up to and with its header."""
    rest: bytes | None
    """What follows the field id; None without one."""
    element: SchemaElement


class Likenesses:
    """The kinds of elements met so far in one footer's bytes."""

    __slots__ = ("_buf", "_likes", "_longest")

    def __init__(self, buf: bytes) -> None:
        self._buf = buf
        self._likes: dict[bytes, list[_Like]] = {}
        self._longest: tuple[int, ...] = ()

    def read(self, pos: int) -> tuple[SchemaElement, int] | None:
        """The element at `pos` and where it ends; None where none like it is known."""
        buf = self._buf
        for length in self._longest:
            begin = pos + length + 1
            likes = self._likes.get(buf[pos : begin - 1])
            if likes is None or begin > len(buf):
                continue
            end = begin + buf[begin - 1]
            if end - begin > 127:
                return None
            for like in likes:
                if buf.startswith(like.after, end):
                    return self._read_as(like, pos, begin, end)
            return None
        return None

    def _read_as(self, like: _Like, pos: int, begin: int, end: int) -> tuple[SchemaElement, int] | None:
        buf = self._buf
        stop = end + len(like.after)
        kind = like.element
        field_id = kind.field_id
        if like.rest is not None:
            reader = ThriftReader(buf, stop)
            field_id = reader.i32()
            if not buf.startswith(like.rest, reader.pos):
                return None
            stop = reader.pos + len(like.rest)
        try:
            name = buf[begin:end].decode()
        except UnicodeDecodeError:
            return None
        element = SchemaElement(
            name,
            kind.physical,
            kind.type_length,
            kind.repetition,
            kind.num_children,
            kind.converted_type,
            kind.logical_type,
            kind.logical_params,
            kind.scale,
            kind.precision,
            field_id,
            buf[pos:stop],
        )
        return element, stop

    def learn(self, element: SchemaElement) -> None:
        """Remember the kind of an element that has been read from these bytes."""
        raw = element.raw
        reader = ThriftReader(raw)
        name = field_id = None
        for number, ctype in reader.fields():
            begin = reader.pos
            reader.skip(ctype)
            if number == _NAME:
                if name is not None or ctype != BINARY:
                    return
                name = begin, reader.pos
            elif number == _FIELD_ID and ctype == I32 and name is not None:
                if field_id is not None:
                    return
                field_id = begin, reader.pos
        if name is None or name[0] > _LONGEST:
            return
        before = raw[: name[0]]
        likes = self._likes.setdefault(before, [])
        if len(likes) >= _MOST:
            return
        if field_id is None:
            likes.append(_Like(raw[name[1] :], None, element))
        else:
            likes.append(_Like(raw[name[1] : field_id[0]], raw[field_id[1] :], element))
        self._longest = tuple(sorted({*self._longest, len(before)}))
