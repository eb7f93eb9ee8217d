"""Column indexes for chunks that have none: the bounds and nulls of each page, from decoded values.

Sources: parquet-format `PageIndex.md`, `parquet.thrift` (ColumnIndex), `LogicalTypes.md` (sort orders).

Bounds are written only where every reader understands them alike: an order that the schema defines, a
type whose values pyarrow hands over as they were written, and no NaN in the chunk: the format would have them left
out of the bounds, and readers that take NaN for greater than numbers then drop pages that hold one (DataFusion does).
INT96 has no order.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accel.format.model import Physical, SchemaElement
from accel.format.schema import ConvertedType, LogicalType, time_unit
from accel.format.thrift import BINARY, I32, I64, LIST, TRUE, ThriftList, write_struct

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = ["BoundsBuilder", "bounds_builder"]


_MOST_BYTES = 64
"""Longer text bounds are cut, as parquet-java and arrow-rs cut them."""
_TEXT = (LogicalType.STRING, LogicalType.ENUM, LogicalType.JSON)
"""Those that are UTF-8."""
_UNSIGNED = (ConvertedType.UINT_8, ConvertedType.UINT_16, ConvertedType.UINT_32, ConvertedType.UINT_64)


@dataclass(frozen=True, slots=True)
class _Coding:
    """How the values of one column become comparable, and their bounds bytes."""

    to: pa.DataType | None
    """The type to look at a value's ticks by; None where pyarrow's own values will do."""
    lower: Callable[[Any], bytes]
    upper: Callable[[Any], bytes]


@dataclass(slots=True)
class BoundsBuilder:
    """Takes the pages of one chunk in order; gives the column index."""

    coding: _Coding
    null_pages: list[bool] = field(default_factory=list)
    lower: list[bytes] = field(default_factory=list)
    upper: list[bytes] = field(default_factory=list)
    null_counts: list[int] = field(default_factory=list)
    keys: list[tuple[Any, Any]] = field(default_factory=list)
    """Of the pages that are not all null: their bounds as comparable values."""
    void: bool = False
    """No index can be given: there is a NaN."""

    def add_run(self, array: pa.Array, first_rows: Int64s) -> None:
        """Take the values of the next pages, given where each starts among them."""
        stops = np.append(first_rows[1:], len(array))
        for start, stop in zip(first_rows.tolist(), stops.tolist(), strict=True):
            self.add(array.slice(start, stop - start))

    def add(self, page: pa.Array) -> None:
        """Take the values of the next page."""
        if self.void:
            return
        if pa.types.is_dictionary(page.type):
            page = page.dictionary_decode()
        self.null_counts.append(page.null_count)
        if page.null_count == len(page):
            self.null_pages.append(True)
            self.lower.append(b"")
            self.upper.append(b"")
            return
        if self.coding.to is not None:
            page = page.view(self.coding.to)
        if pa.types.is_float16(page.type):
            page = page.cast(pa.float32())
        if pa.types.is_decimal32(page.type) or pa.types.is_decimal64(page.type):
            # Arrow finds bounds of the wider ones only.
            page = page.cast(pa.decimal128(page.type.precision, page.type.scale))
        if pa.types.is_floating(page.type) and pc.any(pc.is_nan(page)).as_py():
            self.void = True
            return
        bounds = pc.min_max(page)
        least, most = bounds["min"].as_py(), bounds["max"].as_py()
        lower, upper = self.coding.lower(least), self.coding.upper(most)
        self.null_pages.append(False)
        self.lower.append(lower)
        self.upper.append(upper)
        # Cut texts may stand in another order than whole ones.
        self.keys.append((lower, upper) if isinstance(least, bytes) else (least, most))

    def finish(self) -> bytes | None:
        """The ColumnIndex in Thrift's compact protocol; None where there can be none."""
        if self.void:
            return None
        return write_struct(
            {
                1: (LIST, ThriftList(TRUE, self.null_pages)),
                2: (LIST, ThriftList(BINARY, self.lower)),
                3: (LIST, ThriftList(BINARY, self.upper)),
                4: (I32, _order(self.keys)),
                5: (LIST, ThriftList(I64, self.null_counts)),
            }
        )


def _order(keys: Sequence[tuple[Any, Any]]) -> int:
    pairs = list(itertools.pairwise(keys))
    if all(a[0] <= b[0] and a[1] <= b[1] for a, b in pairs):
        return 1
    if all(a[0] >= b[0] and a[1] >= b[1] for a, b in pairs):
        return 2
    return 0


def bounds_builder(element: SchemaElement, arrow_type: pa.DataType) -> BoundsBuilder | None:
    """A builder for a flat column in the order that its type defines; None for types that are left alone.

    `arrow_type` is that of the decoded values.
    """
    if pa.types.is_dictionary(arrow_type):
        arrow_type = arrow_type.value_type
    coding = _coding(element, arrow_type)
    return None if coding is None else BoundsBuilder(coding)


def _coding(element: SchemaElement, arrow: pa.DataType) -> _Coding | None:
    kind = element.physical
    if kind is Physical.BOOLEAN and pa.types.is_boolean(arrow):
        return _Coding(None, lambda v: bytes((v,)), lambda v: bytes((v,)))
    if pa.types.is_decimal(arrow):
        return _decimals(element, arrow)
    if kind in (Physical.INT32, Physical.INT64):
        return _integers(element, arrow)
    if kind is Physical.FLOAT and pa.types.is_float32(arrow):
        return _Coding(None, _float("<f", -0.0), _float("<f", 0.0))
    if kind is Physical.DOUBLE and pa.types.is_float64(arrow):
        return _Coding(None, _float("<d", -0.0), _float("<d", 0.0))
    if (
        pa.types.is_float16(arrow)
        and element.logical_type == LogicalType.FLOAT16
        and element.type_length == 2
    ):
        return _Coding(None, _float("<e", -0.0), _float("<e", 0.0))
    return _bytes(element, arrow)


def _bytes(element: SchemaElement, arrow: pa.DataType) -> _Coding | None:
    kind = element.physical
    if pa.types.is_string(arrow) or pa.types.is_large_string(arrow):
        if kind is not Physical.BYTE_ARRAY or element.logical_type not in (*_TEXT, None):
            return None
        # As bytes: pyarrow's text may not be UTF-8, and is ordered by bytes anyway.
        to = pa.binary() if pa.types.is_string(arrow) else pa.large_binary()
        return _Coding(to, _cut_text, _raise_text)
    if element.logical_type is not None or element.converted_type is not None:
        return None
    if kind is Physical.BYTE_ARRAY and (pa.types.is_binary(arrow) or pa.types.is_large_binary(arrow)):
        return _Coding(None, lambda v: bytes(v[:_MOST_BYTES]), _raise_bytes)
    if kind is Physical.FIXED_LEN_BYTE_ARRAY and pa.types.is_fixed_size_binary(arrow):
        return _Coding(None, bytes, bytes) if element.type_length <= _MOST_BYTES else None
    return None


def _integers(element: SchemaElement, arrow: pa.DataType) -> _Coding | None:
    wide = element.physical is Physical.INT64
    ticks = pa.int64() if wide else pa.int32()
    signed = _fixed("<q" if wide else "<i")
    types = pa.types
    logical, params = element.logical_type, element.logical_params
    if types.is_signed_integer(arrow) and logical in (None, LogicalType.INTEGER):
        if element.converted_type not in _UNSIGNED:
            return _Coding(None, signed, signed)
    elif types.is_unsigned_integer(arrow):
        if logical == LogicalType.INTEGER and not params.get("signed", 1):
            unsigned = _fixed("<Q" if wide else "<I")
            return _Coding(None, unsigned, unsigned)
    elif types.is_date32(arrow) and not wide:
        return _Coding(ticks, signed, signed)
    elif types.is_time(arrow) or types.is_timestamp(arrow):
        due = LogicalType.TIMESTAMP if types.is_timestamp(arrow) else LogicalType.TIME
        if logical == due and time_unit(element) == arrow.unit:
            return _Coding(ticks, signed, signed)
    return None


def _decimals(element: SchemaElement, arrow: pa.DataType) -> _Coding | None:
    """As unscaled integers: of the physical type, or big-endian in two's complement."""
    if element.logical_type != LogicalType.DECIMAL and element.converted_type != ConvertedType.DECIMAL:
        return None
    scale = arrow.scale
    if element.physical in (Physical.INT32, Physical.INT64):
        pack = _fixed("<q" if element.physical is Physical.INT64 else "<i")
    elif element.physical is Physical.FIXED_LEN_BYTE_ARRAY:
        length = element.type_length

        def pack(value: int) -> bytes:
            return value.to_bytes(length, "big", signed=True)
    else:
        return None
    return _Coding(None, lambda v: pack(_unscaled(v, scale)), lambda v: pack(_unscaled(v, scale)))


def _unscaled(value: Decimal, scale: int) -> int:
    # Not by Decimal's own arithmetic, which rounds to 28 digits.
    sign, digits, exponent = value.as_tuple()
    number = int("".join(map(str, digits))) * int(10 ** (int(exponent) + scale))
    return int(-number if sign else number)


def _fixed(shape: str) -> Callable[[int], bytes]:
    return struct.Struct(shape).pack


def _float(shape: str, zero: float) -> Callable[[float], bytes]:
    pack = struct.Struct(shape).pack
    # Both zeros are equal: a bound of either must let the other pass.
    return lambda value: pack(zero if value == 0 else value)


def _cut_text(value: bytes) -> bytes:
    if len(value) <= _MOST_BYTES:
        return value
    end = _MOST_BYTES
    while end > _MOST_BYTES - 4 and value[end] & 0xC0 == 0x80:
        end -= 1
    return value[:end]


def _raise_text(value: bytes) -> bytes:
    """An upper bound of at most so many bytes that is text again; the value itself where there is none."""
    if len(value) <= _MOST_BYTES:
        return value
    try:
        text = _cut_text(value).decode()
    except UnicodeDecodeError:
        return value
    for end in range(len(text), 0, -1):
        point = ord(text[end - 1]) + 1
        if 0xD800 <= point < 0xE000:
            point = 0xE000
        if point <= 0x10FFFF:
            return (text[: end - 1] + chr(point)).encode()
    return value


def _raise_bytes(value: bytes) -> bytes:
    if len(value) <= _MOST_BYTES:
        return bytes(value)
    kept = value[:_MOST_BYTES].rstrip(b"\xff")
    return kept[:-1] + bytes((kept[-1] + 1,)) if kept else bytes(value)
