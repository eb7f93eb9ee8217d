"""What metadata says of one column's values, ready to be compared.

The Parquet specification's sources: `parquet.thrift` (Statistics, ColumnIndex, ColumnOrder).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel.format.model import Physical, SchemaElement
from accel.format.schema import ConvertedType, LogicalType, time_unit

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s

__all__ = [
    "Bounds",
    "Domain",
    "Raw",
    "Reading",
    "decode_bounds",
    "plain_type",
    "reading_of",
]


class Domain(enum.Enum):
    """How the values of `Bounds` are to be compared, and their numpy type."""

    INTEGER = "integer"
    """int64, uint64 or object arrays of Python ints: integers of every width and sign, dates (days),
    times and timestamps (ticks of the column's own unit), decimals (unscaled). INT96: nanoseconds."""
    FLOAT = "float"
    """float64 arrays; NaN never is a bound, and zeros are already widened to -0.0 below, 0.0 above."""
    BYTES = "bytes"
    """object arrays of `bytes`, compared bytewise: text, binary, fixed, UUID."""
    BOOLEAN = "boolean"
    """bool arrays."""
    NONE = "none"
    """No order: only the counts can be used."""


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """What metadata proves of the values of one column in n units; every array has length n.

    Where `has_lower` (`has_upper`) is set, every value of the unit that is neither null nor NaN is
    >= `lower` (<= `upper`). A bound need not occur as a value (writers truncate). Nothing at all
    is claimed where the flags are unset: unknown keeps.
    """

    domain: Domain
    lower: npt.NDArray[np.generic]
    upper: npt.NDArray[np.generic]
    has_lower: Bools
    has_upper: Bools
    num_values: Int64s
    """Values of the unit, nulls included; for a column that is not repeated, its rows. -1 unknown."""
    null_count: Int64s
    """-1 unknown (absent is never zero)."""
    nan_count: Int64s
    """-1 unknown; 0 for domains without NaN."""
    read: object = field(default=None, init=False, repr=False)
    """What pruning made of them, for the next question; it follows from the rest."""

    def keep_read(self, made: object) -> None:
        """Remember it."""
        object.__setattr__(self, "read", made)

    def __len__(self) -> int:
        return len(self.has_lower)

    def take(self, units: Int64s) -> Bounds:
        """The same claims for other units: unit i of the result is a part of unit `units[i]`.

        Counts then are only right as "none", "all" or "some", which is all that pruning asks: a count
        that is neither zero nor everything becomes unknown.
        """
        values = self.num_values[units]
        return Bounds(
            domain=self.domain,
            lower=self.lower[units],
            upper=self.upper[units],
            has_lower=self.has_lower[units],
            has_upper=self.has_upper[units],
            num_values=values,
            null_count=_all_or_none(self.null_count[units], values),
            nan_count=_all_or_none(self.nan_count[units], values),
        )

    def part(self, begin: int, end: int) -> Bounds:
        """The claims for a half-open range of the units, as they are: views."""
        return Bounds(
            self.domain,
            self.lower[begin:end],
            self.upper[begin:end],
            self.has_lower[begin:end],
            self.has_upper[begin:end],
            self.num_values[begin:end],
            self.null_count[begin:end],
            self.nan_count[begin:end],
        )

    @classmethod
    def join(cls, parts: Sequence[Bounds]) -> Bounds:
        """The claims of some that are `alike`, one after the other."""
        return cls(
            parts[0].domain,
            np.concatenate([part.lower for part in parts]),
            np.concatenate([part.upper for part in parts]),
            np.concatenate([part.has_lower for part in parts]),
            np.concatenate([part.has_upper for part in parts]),
            np.concatenate([part.num_values for part in parts]),
            np.concatenate([part.null_count for part in parts]),
            np.concatenate([part.nan_count for part in parts]),
        )

    @staticmethod
    def alike(parts: Sequence[Bounds]) -> bool:
        """Whether they are of one domain and type."""
        first = parts[0]
        for part in parts:
            if part.domain is not first.domain:
                return False
            if part.lower.dtype != first.lower.dtype or part.upper.dtype != first.upper.dtype:
                return False
        return True

    @classmethod
    def unknown(cls, num_values: Int64s) -> Bounds:
        """Nothing is known of `len(num_values)` units but their sizes."""
        n = len(num_values)
        nothing = np.full(n, -1, np.int64)
        empty: npt.NDArray[np.generic] = np.zeros(n, np.int64)
        return cls(
            Domain.NONE, empty, empty, np.zeros(n, bool), np.zeros(n, bool), num_values, nothing, nothing
        )


def _all_or_none(count: Int64s, total: Int64s) -> Int64s:
    return np.where((count == 0) | ((count == total) & (total >= 0)), count, -1)


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


MAX_DECIMAL_BYTES: Final = 1024
"""No decimal that Arrow holds needs more than 32."""

Values = npt.NDArray[Any]

_FIXED: dict[Raw, np.dtype[Any]] = {
    Raw.BOOLEAN: np.dtype(np.uint8),
    Raw.INT32: np.dtype("<i4"),
    Raw.INT64: np.dtype("<i8"),
    Raw.UINT32: np.dtype("<u4"),
    Raw.UINT64: np.dtype("<u8"),
    Raw.FLOAT16: np.dtype("<f2"),
    Raw.FLOAT32: np.dtype("<f4"),
    Raw.FLOAT64: np.dtype("<f8"),
}
_WIDE = {"u": np.uint64, "i": np.int64, "f": np.float64}


def decode_bounds(
    blob: bytes, reading: Reading, *, start: Int64s, length: Int64s, wanted: Bools
) -> tuple[Values, Bools]:
    """Decode the bounds where `wanted`; returns the values and where there is one.

    There is none where the bytes are of a length that the type does not have, where a float is NaN,
    and where the number is beyond the reading's limits. `start` and `length` lie within `blob`.
    """
    if reading.raw is Raw.BYTES:
        return _decode_bytes(blob, reading.width, start, length, wanted)
    if reading.raw is Raw.BIG_ENDIAN:
        values, has = _decode_big_endian(blob, reading.width, start, length, wanted)
    else:
        has = wanted & (length == reading.width)
        values = _gather(blob, start, has, reading.width).view(_FIXED[reading.raw])[:, 0]
        if reading.raw is Raw.BOOLEAN:
            return values == 1, has & (values <= 1)
        values = values.astype(_WIDE[values.dtype.kind])
        if values.dtype.kind == "f":
            return values, has & ~np.isnan(values)
    return _rescale(values, has, reading)


def _rescale(values: Values, has: Bools, reading: Reading) -> tuple[Values, Bools]:
    """Numbers in Arrow's ticks; those beyond the limits are dropped before they can overflow."""
    if reading.least is not None and reading.greatest is not None:
        least, greatest = reading.least, reading.greatest
        if values.dtype.kind != "O":  # numpy compares with a number of its own type only
            info = np.iinfo(values.dtype)
            least, greatest = max(least, int(info.min)), min(greatest, int(info.max))
        has = has & (values >= least).astype(bool) & (values <= greatest).astype(bool)
    if reading.factor == 1:
        return values, has
    values = np.where(has, values, 0)
    widest = max((abs(int(end)) for end in (values.min(initial=0), values.max(initial=0))), default=0)
    if values.dtype.kind != "O" and widest * reading.factor >= 1 << 63:
        values = values.astype(object)
    return values * reading.factor, has


def _gather(blob: bytes, start: Int64s, has: Bools, width: int) -> npt.NDArray[np.uint8]:
    """The `width` bytes at each start, in rows; zeros where there is nothing to take."""
    rows = np.zeros((len(start), width), np.uint8)
    if has.any():
        data = np.frombuffer(blob, np.uint8)
        rows[has] = data[start[has][:, None] + np.arange(width)]
    return rows


def _decode_bytes(
    blob: bytes, width: int, start: Int64s, length: Int64s, wanted: Bools
) -> tuple[Values, Bools]:
    # Bounds of fixed-length values may be cut short, never be longer; an empty one is no bound.
    has = wanted & (length > 0) & (length <= width) if width else wanted
    values = np.empty(len(start), object)
    values[:] = [
        blob[s : s + n] if h else b""
        for s, n, h in zip(start.tolist(), length.tolist(), has.tolist(), strict=True)
    ]
    return values, has


def _decode_big_endian(
    blob: bytes, width: int, start: Int64s, length: Int64s, wanted: Bools
) -> tuple[Values, Bools]:
    has = wanted & (length == width if width else (length > 0) & (length <= MAX_DECIMAL_BYTES))
    if 0 < width <= 8:
        rows = np.zeros((len(start), 8), np.uint8)
        rows[:, 8 - width :] = _gather(blob, start, has, width)
        rows[:, : 8 - width] = np.where(rows[:, 8 - width] > 127, 255, 0)[:, None]
        return rows.view(">i8")[:, 0].astype(np.int64), has
    values = np.empty(len(start), object)
    values[:] = [
        int.from_bytes(blob[s : s + n], "big", signed=True) if h else 0
        for s, n, h in zip(start.tolist(), length.tolist(), has.tolist(), strict=True)
    ]
    return values, has
