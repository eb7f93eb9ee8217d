"""How the values of each type lie in PLAIN pages, and how Arrow wants them.

Sources: parquet-format `Encodings.md` (PLAIN), `LogicalTypes.md`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from accel.decode.bodies import Bytes
from accel.format.model import Physical, SchemaElement
from accel.format.schema import time_unit

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = ["Form", "Shape", "form_of", "put", "widen"]


_DECIMAL_BYTES: Final = 16


class Shape(enum.Enum):
    """What becomes of a value's bytes."""

    COPIED = "copied"
    """They are Arrow's too."""
    NARROWED = "narrowed"
    """An integer, of which Arrow's type holds the lower bytes."""
    WIDENED = "widened"
    """A little-endian integer becomes a decimal."""
    SWAPPED = "swapped"
    """A big-endian integer becomes a decimal."""
    TEXT = "text"
    """Its length in four bytes, then the value."""


@dataclass(frozen=True, slots=True)
class Form:
    """Values of one type."""

    shape: Shape
    width: int
    """Bytes of a value in the page; 0 for texts, of which each page has its own."""
    out: int
    """Bytes of a value in Arrow; 0 for texts."""
    one_by_one: bool
    """pyarrow makes each value by itself, which takes it several times what a copy does."""


_OF_4: Final = frozenset({pa.lib.Type_INT32, pa.lib.Type_UINT32, pa.lib.Type_DATE32})
_OF_8: Final = frozenset({pa.lib.Type_INT64, pa.lib.Type_UINT64, pa.lib.Type_DURATION})
_NARROW: Final = {
    pa.lib.Type_INT8: 1,
    pa.lib.Type_UINT8: 1,
    pa.lib.Type_INT16: 2,
    pa.lib.Type_UINT16: 2,
}
_MOMENTS: Final = {
    pa.lib.Type_TIME32: Physical.INT32,
    pa.lib.Type_TIME64: Physical.INT64,
    pa.lib.Type_TIMESTAMP: Physical.INT64,
}
_TEXTS: Final = frozenset(
    {pa.lib.Type_STRING, pa.lib.Type_BINARY, pa.lib.Type_LARGE_STRING, pa.lib.Type_LARGE_BINARY}
)

_TEXT: Final = Form(Shape.TEXT, 0, 0, True)
_COPY_4: Final = Form(Shape.COPIED, 4, 4, False)
_COPY_8: Final = Form(Shape.COPIED, 8, 8, False)


def form_of(kind: pa.DataType, element: SchemaElement) -> Form | None:
    """How PLAIN values of a column become an array of this type, which pyarrow gives it; None where that is
    left to pyarrow."""
    number, physical = kind.id, element.physical
    if physical is Physical.BYTE_ARRAY:
        return _TEXT if number in _TEXTS else None
    if physical is Physical.FIXED_LEN_BYTE_ARRAY:
        return _fixed(kind, element.type_length)
    if physical is Physical.DOUBLE:
        return _COPY_8 if number == pa.lib.Type_DOUBLE else None
    if physical is Physical.FLOAT:
        return _COPY_4 if number == pa.lib.Type_FLOAT else None
    if physical is not Physical.INT32 and physical is not Physical.INT64:
        return None
    size, same = (4, _OF_4) if physical is Physical.INT32 else (8, _OF_8)
    if number in same or (_MOMENTS.get(number) is physical and kind.unit == time_unit(element)):
        return _COPY_4 if size == 4 else _COPY_8
    if number == pa.lib.Type_DECIMAL128:
        return Form(Shape.WIDENED, size, _DECIMAL_BYTES, True)
    if physical is Physical.INT32 and number in _NARROW:
        return Form(Shape.NARROWED, size, _NARROW[number], False)
    return None


def _fixed(kind: pa.DataType, width: int) -> Form | None:
    if not width:
        return None
    if kind.id == pa.lib.Type_DECIMAL128:
        return Form(Shape.SWAPPED, width, _DECIMAL_BYTES, True) if width <= _DECIMAL_BYTES else None
    if kind.id in (pa.lib.Type_FIXED_SIZE_BINARY, pa.lib.Type_HALF_FLOAT) and kind.byte_width == width:
        return Form(Shape.COPIED, width, width, True)
    return None


def put(form: Form, raw: Bytes, data: Bytes, row: int) -> None:
    """Values as they lie in a page into Arrow's bytes, from some row on. Texts are none of these."""
    start, count = form.out * row, len(raw) // form.width
    if form.shape is Shape.COPIED:
        data[start : start + len(raw)] = raw
        return
    part = data[start : start + form.out * count]
    if form.shape is Shape.NARROWED:
        part.view(f"<u{form.out}")[:] = raw.view("<u4")
        return
    words = part.view("<i8").reshape(count, 2)
    if form.shape is Shape.SWAPPED:
        widen(raw, form.width, out=words)
        return
    words[:, 0] = raw.view(f"<i{form.width}")
    np.right_shift(words[:, 0], 63, out=words[:, 1])


def widen(raw: Bytes, width: int, *, out: Int64s) -> None:
    """Big-endian integers of 1 to 16 bytes, two's complement, as rows of two words, the low one first."""
    count = len(out)
    low, high = out[:, 0], out[:, 1]
    if width > 8:
        low[:] = _words(raw, count, width, width - 8)
        high[:] = _words(raw, count, width, 0)
        high >>= 8 * (_DECIMAL_BYTES - width)
        return
    # The word that begins with a value has bytes of the next behind it, which the last values have not.
    inside = max(0, count - (7 // width + 1))
    low[:inside] = _words(raw, inside, width, 0)
    tail = np.zeros((count - inside) * width + 8, np.uint8)
    tail[:-8] = raw[inside * width :]
    low[inside:] = _words(tail, count - inside, width, 0)
    low >>= 64 - 8 * width
    np.right_shift(low, 63, out=high)


def _words(raw: Bytes, count: int, width: int, offset: int) -> Int64s:
    words: Int64s = np.ndarray((count,), ">i8", raw, offset, (width,)) if count else np.zeros(0, np.int64)
    return words
