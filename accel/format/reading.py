"""What a column's raw bounds mean, by its Parquet type and the Arrow type that it decodes to.

Sources: parquet-format `LogicalTypes.md`, `parquet.thrift` (ConvertedType, LogicalType, ColumnOrder).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import pyarrow as pa

from accel.format.annotations import ConvertedType, LogicalType, time_unit
from accel.format.domain import Domain
from accel.format.model import Physical, SchemaElement

__all__ = ["Raw", "Reading", "plain_type", "reading_of"]


class Raw(enum.Enum):
    """How the bytes of a bound encode it (parquet-format `Encodings.md`, PLAIN, without a length)."""

    BOOLEAN = "boolean"
    INT32 = "int32"
    INT64 = "int64"
    UINT32 = "uint32"
    UINT64 = "uint64"
    FLOAT16 = "float16"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    BIG_ENDIAN = "big endian"
    """Two's complement, as decimals in bytes have it."""
    BYTES = "bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How to turn the raw bounds of one column into values of its domain."""

    domain: Domain
    raw: Raw
    width: int = 0
    """Bytes of every raw bound; 0 where they vary. For BYTES, the most there can be, 0 being any."""
    signed_order: bool = False
    """The deprecated `min` and `max`, compared as signed, are right for this type."""
    factor: int = 1
    """Of Arrow's ticks (or unscaled units) to Parquet's."""
    least: int | None = None
    """What the Arrow type can hold, in Parquet's ticks, where the Parquet type can hold more: values
    beyond may wrap when decoded, so that bounds count only where both are there and within."""
    greatest: int | None = None


class _Sense(enum.Enum):
    """What the annotation says, the older kind of annotation put into terms of the newer."""

    NONE = "none"
    TEXT = "text"
    DECIMAL = "decimal"
    DATE = "date"
    TIME = "time"
    TIMESTAMP = "timestamp"
    SIGNED = "signed"
    UNSIGNED = "unsigned"
    UUID = "uuid"
    FLOAT16 = "float16"
    OPAQUE = "opaque"
    """No order, or one that is not known here: INTERVAL, VARIANT, GEOMETRY, whatever comes next."""


_LOGICAL: dict[int, _Sense] = {
    LogicalType.STRING: _Sense.TEXT,
    LogicalType.ENUM: _Sense.TEXT,
    LogicalType.DECIMAL: _Sense.DECIMAL,
    LogicalType.DATE: _Sense.DATE,
    LogicalType.TIME: _Sense.TIME,
    LogicalType.TIMESTAMP: _Sense.TIMESTAMP,
    LogicalType.JSON: _Sense.TEXT,
    LogicalType.BSON: _Sense.TEXT,
    LogicalType.UUID: _Sense.UUID,
    LogicalType.FLOAT16: _Sense.FLOAT16,
}
"""INTEGER aside, which says itself whether it is signed."""
_CONVERTED: dict[int, _Sense] = {
    ConvertedType.UTF8: _Sense.TEXT,
    ConvertedType.ENUM: _Sense.TEXT,
    ConvertedType.DECIMAL: _Sense.DECIMAL,
    ConvertedType.DATE: _Sense.DATE,
    ConvertedType.TIME_MILLIS: _Sense.TIME,
    ConvertedType.TIME_MICROS: _Sense.TIME,
    ConvertedType.TIMESTAMP_MILLIS: _Sense.TIMESTAMP,
    ConvertedType.TIMESTAMP_MICROS: _Sense.TIMESTAMP,
    ConvertedType.UINT_8: _Sense.UNSIGNED,
    ConvertedType.UINT_16: _Sense.UNSIGNED,
    ConvertedType.UINT_32: _Sense.UNSIGNED,
    ConvertedType.UINT_64: _Sense.UNSIGNED,
    ConvertedType.INT_8: _Sense.SIGNED,
    ConvertedType.INT_16: _Sense.SIGNED,
    ConvertedType.INT_32: _Sense.SIGNED,
    ConvertedType.INT_64: _Sense.SIGNED,
    ConvertedType.JSON: _Sense.TEXT,
    ConvertedType.BSON: _Sense.TEXT,
}
_NANOS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_DAY_MILLIS = 86_400_000


def reading_of(element: SchemaElement, arrow_type: pa.DataType) -> Reading | None:
    """How the bounds of a leaf are to be read; None where the pair of types is not understood.

    Dictionary, run-end encoded and extension types stand for what they hold.
    """
    kind = plain_type(arrow_type)
    sense = _sense(element)
    physical = element.physical
    if kind is None or sense is _Sense.OPAQUE or physical is None or physical is Physical.INT96:
        return None
    if physical in (Physical.INT32, Physical.INT64):
        return _read_integer(element, physical, sense, kind)
    if physical in (Physical.BYTE_ARRAY, Physical.FIXED_LEN_BYTE_ARRAY):
        return _read_bytes(element, sense, kind)
    if sense is not _Sense.NONE:
        return None
    if physical is Physical.BOOLEAN:
        if not pa.types.is_boolean(kind):
            return None
        return Reading(domain=Domain.BOOLEAN, raw=Raw.BOOLEAN, width=1, signed_order=True)
    width = 4 if physical is Physical.FLOAT else 8
    if not pa.types.is_floating(kind) or kind.bit_width < 8 * width:
        return None
    raw = Raw.FLOAT32 if width == 4 else Raw.FLOAT64
    return Reading(domain=Domain.FLOAT, raw=raw, width=width, signed_order=True)


def plain_type(kind: pa.DataType) -> pa.DataType | None:
    """The type that dictionaries, runs and extensions stand for; None for one that is compared in another way."""
    while True:
        if isinstance(kind, pa.BaseExtensionType):
            if kind.extension_name == "arrow.bool8":  # stored as numbers, compared as truth values
                return None
            kind = kind.storage_type
        elif pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
            kind = kind.value_type
        else:
            return kind


def _sense(element: SchemaElement) -> _Sense:
    if element.logical_type is not None:
        if element.logical_type == LogicalType.INTEGER:
            return _Sense.SIGNED if element.logical_params.get("signed") else _Sense.UNSIGNED
        return _LOGICAL.get(element.logical_type, _Sense.OPAQUE)
    if element.converted_type is not None:
        return _CONVERTED.get(element.converted_type, _Sense.OPAQUE)
    return _Sense.NONE


def _factor(element: SchemaElement, sense: _Sense, kind: pa.DataType) -> int | None:
    """Arrow's ticks in one of Parquet's; None where they do not go with each other."""
    t = pa.types
    if sense in (_Sense.NONE, _Sense.SIGNED, _Sense.UNSIGNED):
        # pyarrow stores durations as plain INT64 in their own unit.
        return 1 if t.is_integer(kind) or (sense is _Sense.NONE and t.is_duration(kind)) else None
    if sense is _Sense.DECIMAL:
        if not t.is_decimal(kind):
            return None
        logical = element.logical_type is not None
        shift = kind.scale - (element.logical_params.get("scale", 0) if logical else element.scale)
        return 10**shift if 0 <= shift <= 76 else None
    if sense is _Sense.DATE:
        return 1 if t.is_date32(kind) else _DAY_MILLIS if t.is_date64(kind) else None
    if (sense is _Sense.TIME and t.is_time(kind)) or (sense is _Sense.TIMESTAMP and t.is_timestamp(kind)):
        stored = time_unit(element)
        if stored is None or _NANOS[stored] % _NANOS[kind.unit]:
            return None
        return _NANOS[stored] // _NANOS[kind.unit]
    return None


def _read_integer(
    element: SchemaElement, physical: Physical, sense: _Sense, kind: pa.DataType
) -> Reading | None:
    factor = _factor(element, sense, kind)
    if factor is None:
        return None
    bits = 32 if physical is Physical.INT32 else 64
    unsigned = sense is _Sense.UNSIGNED
    if unsigned:
        raw = Raw.UINT32 if bits == 32 else Raw.UINT64
    else:
        raw = Raw.INT32 if bits == 32 else Raw.INT64
    source = (0, (1 << bits) - 1) if unsigned else _signed_limits(bits)
    least, greatest = _limits(source, kind, factor)
    return Reading(
        domain=Domain.INTEGER,
        raw=raw,
        width=bits // 8,
        signed_order=not unsigned,
        factor=factor,
        least=least,
        greatest=greatest,
    )


def _read_bytes(element: SchemaElement, sense: _Sense, kind: pa.DataType) -> Reading | None:
    t = pa.types
    width = element.type_length
    if sense is _Sense.FLOAT16:
        if width != 2 or not t.is_floating(kind):
            return None
        return Reading(domain=Domain.FLOAT, raw=Raw.FLOAT16, width=2)
    if sense is _Sense.DECIMAL:
        factor = _factor(element, sense, kind)
        if factor is None:
            return None
        least, greatest = _limits(_signed_limits(8 * (width or 1024)), kind, factor)
        return Reading(
            domain=Domain.INTEGER,
            raw=Raw.BIG_ENDIAN,
            width=width,
            factor=factor,
            least=least,
            greatest=greatest,
        )
    if sense not in (_Sense.NONE, _Sense.TEXT, _Sense.UUID):
        return None
    if not (_is_bytes(kind) or (t.is_fixed_size_binary(kind) and kind.byte_width == width)):
        return None
    return Reading(domain=Domain.BYTES, raw=Raw.BYTES, width=width)


def _is_bytes(kind: pa.DataType) -> bool:
    t = pa.types
    tests = (t.is_string, t.is_large_string, t.is_string_view, t.is_binary, t.is_large_binary)
    return t.is_binary_view(kind) or any(test(kind) for test in tests)


def _signed_limits(bits: int) -> tuple[int, int]:
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1


def _limits(source: tuple[int, int], kind: pa.DataType, factor: int) -> tuple[int | None, int | None]:
    """What the Arrow type holds, in Parquet's ticks; None where it holds all that Parquet's type does."""
    if pa.types.is_unsigned_integer(kind):
        least, greatest = 0, (1 << kind.bit_width) - 1
    else:
        least, greatest = _signed_limits(kind.bit_width)
    least, greatest = -(-least // factor), greatest // factor
    if least <= source[0] and source[1] <= greatest:
        return None, None
    return least, greatest
