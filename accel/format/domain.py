"""Comparable bounds of a column's values, and how they are decoded from the bytes in the metadata.

Sources: parquet-format `parquet.thrift` (Statistics, ColumnIndex, ColumnOrder, ConvertedType, LogicalType),
`LogicalTypes.md`.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel.format.model import Physical, SchemaElement
from accel.format.schema import ConvertedType, LogicalType, time_unit

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s

__all__ = [
    "BoundEncoding",
    "Bounds",
    "Domain",
    "RawType",
    "bound_encoding",
    "decode_bounds",
    "extension_name",
    "storage_type",
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
    """Proven bounds and counts of one column's values in n units (files, row groups, pages or other runs of
    rows); every array has length n.

    Where `has_lower` (`has_upper`) is set, every value of the unit that is neither null nor NaN is
    >= `lower` (<= `upper`). A bound need not occur as a value, since writers truncate. Where the
    flags are unset any value may occur.
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
    lower_exact: Bools | None = None
    """Where the lower bound occurs: it is the least value that is not NaN. None: nobody has looked."""
    upper_exact: Bools | None = None
    """Where the upper bound occurs."""
    sums: tuple[int | float, ...] | None = None
    """Sums of the values that are not null, decimals unscaled; None where they are not known."""

    def __len__(self) -> int:
        return len(self.has_lower)

    def take(self, units: Int64s) -> Bounds:
        """Return the bounds for other units: unit i of the result is a part of unit `units[i]`.

        What need not hold for a part becomes unknown: exactness, sums, and a count that is neither zero nor
        everything.
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
        """Return the bounds of a half-open range of the units, as views."""
        at = slice(begin, end)
        return Bounds(
            domain=self.domain,
            lower=self.lower[at],
            upper=self.upper[at],
            has_lower=self.has_lower[at],
            has_upper=self.has_upper[at],
            num_values=self.num_values[at],
            null_count=self.null_count[at],
            nan_count=self.nan_count[at],
            lower_exact=None if self.lower_exact is None else self.lower_exact[at],
            upper_exact=None if self.upper_exact is None else self.upper_exact[at],
            sums=None if self.sums is None else self.sums[at],
        )

    @classmethod
    def join(cls, parts: Sequence[Bounds]) -> Bounds:
        """Concatenate bounds that are `joinable`."""
        if len(parts) == 1:
            return parts[0]
        columns: dict[str, Any] = {}
        for name in _COLUMNS:
            given = [getattr(part, name) for part in parts]
            columns[name] = None if any(one is None for one in given) else np.concatenate(given)
        sums = [part.sums for part in parts]
        every = None if None in sums else tuple(total for each in sums if each is not None for total in each)
        return cls(domain=parts[0].domain, sums=every, **columns)

    @staticmethod
    def joinable(parts: Sequence[Bounds]) -> bool:
        """Return whether all bounds have one domain and one numpy type."""
        first = parts[0]
        for part in parts:
            if part.domain is not first.domain:
                return False
            if part.lower.dtype != first.lower.dtype or part.upper.dtype != first.upper.dtype:
                return False
        return True

    def spread(self, places: Int64s, n: int) -> Bounds:
        """Return bounds of n units: those of unit i at `places[i]`, and nothing of the others."""
        columns: dict[str, Any] = {}
        for name in _COLUMNS:
            values = getattr(self, name)
            if values is None:
                continue
            filler: Any = -1 if name in _COUNTS else 0
            if name in ("lower", "upper"):
                filler = self._filler
            columns[name] = out = np.full(n, filler, values.dtype)
            out[places] = values
        return Bounds(domain=self.domain, **columns)

    def fold(self, sizes: Int64s) -> Bounds:
        """Return the bounds of stretches of units: of the first `sizes[0]` together, of the next `sizes[1]`
        together, and so on.

        They are unknown where a unit with values has none, and exact where those of all such units are.
        """
        rows, nulls, nans = self.num_values, self.null_count, self.nan_count
        # A unit without values that bounds could bound does not widen those of the others.
        counted = (nulls >= 0) & (nans >= 0) & (rows >= 0)
        some = ~((rows == 0) | ((nulls == rows) & (rows >= 0)) | (counted & (nulls + nans == rows)))
        owners, n = np.repeat(np.arange(len(sizes)), sizes)[some], len(sizes)
        filler = self._filler
        lower, has_lower = _folded(self.lower[some], self.has_lower[some], owners, n, np.minimum, filler)
        upper, has_upper = _folded(self.upper[some], self.has_upper[some], owners, n, np.maximum, filler)
        low, high = self.lower_exact, self.upper_exact
        return Bounds(
            domain=self.domain,
            lower=lower,
            upper=upper,
            has_lower=has_lower,
            has_upper=has_upper,
            num_values=_totals(rows, sizes),
            null_count=_totals(nulls, sizes),
            nan_count=_totals(nans, sizes),
            lower_exact=None if low is None else _every(low[some], owners, n),
            upper_exact=None if high is None else _every(high[some], owners, n),
            sums=None if self.sums is None else _stretch_sums(self.sums, sizes),
        )

    @property
    def _filler(self) -> Any:
        """What stands where there is no bound."""
        return b"" if self.domain is Domain.BYTES else 0

    @classmethod
    def unknown(cls, num_values: Int64s) -> Bounds:
        """Return bounds of units of which only the sizes are given."""
        n = len(num_values)
        nothing = np.full(n, -1, np.int64)
        empty: npt.NDArray[np.generic] = np.zeros(n, np.int64)
        return cls(
            Domain.NONE, empty, empty, np.zeros(n, bool), np.zeros(n, bool), num_values, nothing, nothing
        )


_COLUMNS: Final = tuple(name for name in Bounds.__slots__ if name not in ("domain", "sums"))
_COUNTS: Final = frozenset({"num_values", "null_count", "nan_count"})


def _all_or_none(count: Int64s, total: Int64s) -> Int64s:
    return np.where((count == 0) | ((count == total) & (total >= 0)), count, -1)


def _folded(
    values: Any, has: Bools, owners: Int64s, count: int, fold: np.ufunc, filler: Any
) -> tuple[Any, Bools]:
    """Return the least or the greatest value of each of `count` stretches, and whether it is known.

    It is known where all units of a stretch have one. `owners` are the stretches that the values are of,
    ascending.
    """
    out = np.full(count, filler, values.dtype)
    every = np.zeros(count, bool)
    if len(owners):
        values = np.where(has, values, filler) if values.dtype == object else values
        starts = np.flatnonzero(np.append(True, owners[1:] != owners[:-1]))
        some = owners[starts]
        every[some] = np.logical_and.reduceat(has, starts)
        out[some] = fold.reduceat(values, starts)
        out[~every] = filler
    return out, every


def _every(flags: Bools, owners: Int64s, count: int) -> Bools:
    """Return whether all flags of each stretch are set; so they are where it has none."""
    every: Bools = np.bincount(owners[~flags], minlength=count) == 0
    return every


def _totals(counts: Int64s, sizes: Int64s) -> Int64s:
    """Return the sum of the counts of each stretch, -1 where one of them is unknown."""
    ends = np.concatenate([[0], np.cumsum(sizes)])

    def sums(values: Int64s) -> Int64s:
        found: Int64s = np.diff(np.concatenate([[0], np.cumsum(values)])[ends]).astype(np.int64)
        return found

    return np.where(sums((counts < 0).astype(np.int64)) > 0, -1, sums(counts))


def _stretch_sums(values: Sequence[int | float], sizes: Int64s) -> tuple[int | float, ...]:
    ends = np.cumsum(sizes).tolist()
    return tuple(_sum(values[stop - size : stop]) for stop, size in zip(ends, sizes.tolist(), strict=True))


def _sum(values: Sequence[int | float]) -> int | float:
    """Return a sum; of finite floats exactly, or infinity, which no caller uses, where a part of it
    overflows."""
    if not any(isinstance(value, float) for value in values) or not all(map(math.isfinite, values)):
        return sum(values)
    try:
        return math.fsum(values)
    except OverflowError:
        return math.inf


class RawType(enum.Enum):
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
class BoundEncoding:
    """How the raw bounds of one column encode values of its domain."""

    domain: Domain
    raw: RawType
    width: int = 0
    """Bytes of every raw bound; 0 where they vary. For BYTES the maximum, where 0 is no limit."""
    signed_order: bool = False
    """The deprecated `min` and `max`, compared as signed, are right for this type."""
    factor: int = 1
    """Arrow's ticks (or unscaled units) in one of Parquet's."""
    least: int | None = None
    """The range of the Arrow type in Parquet's ticks, where the Parquet type has a wider one. Values outside
    may wrap when they are decoded, so bounds count only where both exist and lie inside."""
    greatest: int | None = None


class _Meaning(enum.Enum):
    """The meaning of an annotation, whether LogicalType or ConvertedType."""

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
    """No order, or an unknown one: INTERVAL, VARIANT, GEOMETRY, later types."""


_LOGICAL: dict[int, _Meaning] = {
    LogicalType.STRING: _Meaning.TEXT,
    LogicalType.ENUM: _Meaning.TEXT,
    LogicalType.DECIMAL: _Meaning.DECIMAL,
    LogicalType.DATE: _Meaning.DATE,
    LogicalType.TIME: _Meaning.TIME,
    LogicalType.TIMESTAMP: _Meaning.TIMESTAMP,
    LogicalType.JSON: _Meaning.TEXT,
    LogicalType.BSON: _Meaning.TEXT,
    LogicalType.UUID: _Meaning.UUID,
    LogicalType.FLOAT16: _Meaning.FLOAT16,
}
"""INTEGER is missing because its parameters give the sign."""
_CONVERTED: dict[int, _Meaning] = {
    ConvertedType.UTF8: _Meaning.TEXT,
    ConvertedType.ENUM: _Meaning.TEXT,
    ConvertedType.DECIMAL: _Meaning.DECIMAL,
    ConvertedType.DATE: _Meaning.DATE,
    ConvertedType.TIME_MILLIS: _Meaning.TIME,
    ConvertedType.TIME_MICROS: _Meaning.TIME,
    ConvertedType.TIMESTAMP_MILLIS: _Meaning.TIMESTAMP,
    ConvertedType.TIMESTAMP_MICROS: _Meaning.TIMESTAMP,
    ConvertedType.UINT_8: _Meaning.UNSIGNED,
    ConvertedType.UINT_16: _Meaning.UNSIGNED,
    ConvertedType.UINT_32: _Meaning.UNSIGNED,
    ConvertedType.UINT_64: _Meaning.UNSIGNED,
    ConvertedType.INT_8: _Meaning.SIGNED,
    ConvertedType.INT_16: _Meaning.SIGNED,
    ConvertedType.INT_32: _Meaning.SIGNED,
    ConvertedType.INT_64: _Meaning.SIGNED,
    ConvertedType.JSON: _Meaning.TEXT,
    ConvertedType.BSON: _Meaning.TEXT,
}
_NANOS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_DAY_MILLIS = 86_400_000


def bound_encoding(element: SchemaElement, arrow_type: pa.DataType) -> BoundEncoding | None:
    """Return how the bounds of a leaf are encoded; None where the pair of types is not supported.

    Dictionary, run-end encoded and extension types count as their value or storage type.
    """
    kind = storage_type(arrow_type)
    meaning = _meaning(element)
    physical = element.physical
    if extension_name(arrow_type) == "arrow.bool8":  # stored as int8, compared as booleans
        return None
    if meaning is _Meaning.OPAQUE or physical is None or physical is Physical.INT96:
        return None
    if physical in (Physical.INT32, Physical.INT64):
        return _read_integer(element, physical, meaning, kind)
    if physical in (Physical.BYTE_ARRAY, Physical.FIXED_LEN_BYTE_ARRAY):
        return _read_bytes(element, meaning, kind)
    if meaning is not _Meaning.NONE:
        return None
    if physical is Physical.BOOLEAN:
        if not pa.types.is_boolean(kind):
            return None
        return BoundEncoding(domain=Domain.BOOLEAN, raw=RawType.BOOLEAN, width=1, signed_order=True)
    width = 4 if physical is Physical.FLOAT else 8
    if not pa.types.is_floating(kind) or kind.bit_width < 8 * width:
        return None
    raw = RawType.FLOAT32 if width == 4 else RawType.FLOAT64
    return BoundEncoding(domain=Domain.FLOAT, raw=raw, width=width, signed_order=True)


def storage_type(kind: pa.DataType) -> pa.DataType:
    """Return the type below extension, dictionary and run-end encoding."""
    while True:
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        elif pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
            kind = kind.value_type
        else:
            return kind


def extension_name(kind: pa.DataType) -> str:
    """Return the name of the extension type, also within dictionaries and runs; empty for other types."""
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return extension_name(kind.value_type)
    return str(kind.extension_name) if isinstance(kind, pa.BaseExtensionType) else ""


def _meaning(element: SchemaElement) -> _Meaning:
    if element.logical_type is not None:
        if element.logical_type == LogicalType.INTEGER:
            return _Meaning.SIGNED if element.logical_params.get("signed") else _Meaning.UNSIGNED
        return _LOGICAL.get(element.logical_type, _Meaning.OPAQUE)
    if element.converted_type is not None:
        return _CONVERTED.get(element.converted_type, _Meaning.OPAQUE)
    return _Meaning.NONE


def _factor(element: SchemaElement, meaning: _Meaning, kind: pa.DataType) -> int | None:
    """Return Arrow's ticks in one of Parquet's; None where the types do not fit each other."""
    t = pa.types
    if meaning in (_Meaning.NONE, _Meaning.SIGNED, _Meaning.UNSIGNED):
        # pyarrow stores durations as plain INT64 in their own unit.
        return 1 if t.is_integer(kind) or (meaning is _Meaning.NONE and t.is_duration(kind)) else None
    if meaning is _Meaning.DECIMAL:
        if not t.is_decimal(kind):
            return None
        logical = element.logical_type is not None
        shift = kind.scale - (element.logical_params.get("scale", 0) if logical else element.scale)
        return 10**shift if 0 <= shift <= 76 else None
    if meaning is _Meaning.DATE:
        return 1 if t.is_date32(kind) else _DAY_MILLIS if t.is_date64(kind) else None
    if (meaning is _Meaning.TIME and t.is_time(kind)) or (
        meaning is _Meaning.TIMESTAMP and t.is_timestamp(kind)
    ):
        stored = time_unit(element)
        if stored is None or _NANOS[stored] % _NANOS[kind.unit]:
            return None
        return _NANOS[stored] // _NANOS[kind.unit]
    return None


def _read_integer(
    element: SchemaElement, physical: Physical, meaning: _Meaning, kind: pa.DataType
) -> BoundEncoding | None:
    factor = _factor(element, meaning, kind)
    if factor is None:
        return None
    bits = 32 if physical is Physical.INT32 else 64
    unsigned = meaning is _Meaning.UNSIGNED
    if unsigned:
        raw = RawType.UINT32 if bits == 32 else RawType.UINT64
    else:
        raw = RawType.INT32 if bits == 32 else RawType.INT64
    source = (0, (1 << bits) - 1) if unsigned else _signed_limits(bits)
    least, greatest = _limits(source, kind, factor)
    return BoundEncoding(
        domain=Domain.INTEGER,
        raw=raw,
        width=bits // 8,
        signed_order=not unsigned,
        factor=factor,
        least=least,
        greatest=greatest,
    )


def _read_bytes(element: SchemaElement, meaning: _Meaning, kind: pa.DataType) -> BoundEncoding | None:
    t = pa.types
    width = element.type_length
    if meaning is _Meaning.FLOAT16:
        if width != 2 or not t.is_floating(kind):
            return None
        return BoundEncoding(domain=Domain.FLOAT, raw=RawType.FLOAT16, width=2)
    if meaning is _Meaning.DECIMAL:
        factor = _factor(element, meaning, kind)
        if factor is None:
            return None
        least, greatest = _limits(_signed_limits(8 * (width or 1024)), kind, factor)
        return BoundEncoding(
            domain=Domain.INTEGER,
            raw=RawType.BIG_ENDIAN,
            width=width,
            factor=factor,
            least=least,
            greatest=greatest,
        )
    if meaning not in (_Meaning.NONE, _Meaning.TEXT, _Meaning.UUID):
        return None
    if not (_is_bytes(kind) or (t.is_fixed_size_binary(kind) and kind.byte_width == width)):
        return None
    return BoundEncoding(domain=Domain.BYTES, raw=RawType.BYTES, width=width)


def _is_bytes(kind: pa.DataType) -> bool:
    t = pa.types
    tests = (t.is_string, t.is_large_string, t.is_string_view, t.is_binary, t.is_large_binary)
    return t.is_binary_view(kind) or any(test(kind) for test in tests)


def _signed_limits(bits: int) -> tuple[int, int]:
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1


def _limits(source: tuple[int, int], kind: pa.DataType, factor: int) -> tuple[int | None, int | None]:
    """Return the range of the Arrow type in Parquet's ticks; None where it covers that of Parquet's type."""
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

_FIXED: dict[RawType, np.dtype[Any]] = {
    RawType.BOOLEAN: np.dtype(np.uint8),
    RawType.INT32: np.dtype("<i4"),
    RawType.INT64: np.dtype("<i8"),
    RawType.UINT32: np.dtype("<u4"),
    RawType.UINT64: np.dtype("<u8"),
    RawType.FLOAT16: np.dtype("<f2"),
    RawType.FLOAT32: np.dtype("<f4"),
    RawType.FLOAT64: np.dtype("<f8"),
}
_WIDE = {"u": np.uint64, "i": np.int64, "f": np.float64}


def decode_bounds(
    blob: bytes, encoding: BoundEncoding, *, start: Int64s, length: Int64s, wanted: Bools
) -> tuple[Values, Bools]:
    """Decode the bounds where `wanted`; return the values and where they are valid.

    A bound is invalid where its length does not fit the type, where it is NaN, and where it lies
    outside the encoding's limits. `start` and `length` lie within `blob`.
    """
    if encoding.raw is RawType.BYTES:
        return _decode_bytes(blob, encoding.width, start, length, wanted)
    if encoding.raw is RawType.BIG_ENDIAN:
        values, has = _decode_big_endian(blob, encoding.width, start, length, wanted)
    else:
        has = wanted & (length == encoding.width)
        values = _gather(blob, start, has, encoding.width).view(_FIXED[encoding.raw])[:, 0]
        if encoding.raw is RawType.BOOLEAN:
            return values == 1, has & (values <= 1)
        values = values.astype(_WIDE[values.dtype.kind])
        if values.dtype.kind == "f":
            return values, has & ~np.isnan(values)
    return _rescale(values, has, encoding)


def _rescale(values: Values, has: Bools, encoding: BoundEncoding) -> tuple[Values, Bools]:
    """Scale to Arrow's ticks; bounds outside the limits are dropped before they can overflow."""
    if encoding.least is not None and encoding.greatest is not None:
        least, greatest = encoding.least, encoding.greatest
        if values.dtype.kind != "O":  # numpy compares with a number of its own type only
            info = np.iinfo(values.dtype)
            least, greatest = max(least, int(info.min)), min(greatest, int(info.max))
        has = has & (values >= least).astype(bool) & (values <= greatest).astype(bool)
    if encoding.factor == 1:
        return values, has
    values = np.where(has, values, 0)
    widest = max((abs(int(end)) for end in (values.min(initial=0), values.max(initial=0))), default=0)
    if values.dtype.kind != "O" and widest * encoding.factor >= 1 << 63:
        values = values.astype(object)
    return values * encoding.factor, has


def _gather(blob: bytes, start: Int64s, has: Bools, width: int) -> npt.NDArray[np.uint8]:
    """Return the `width` bytes at each start, as rows; zeros where `has` is unset."""
    rows = np.zeros((len(start), width), np.uint8)
    if has.any():
        data = np.frombuffer(blob, np.uint8)
        rows[has] = data[start[has][:, None] + np.arange(width)]
    return rows


def _decode_bytes(
    blob: bytes, width: int, start: Int64s, length: Int64s, wanted: Bools
) -> tuple[Values, Bools]:
    # A bound of a fixed-length type may be truncated but never longer; an empty one is no bound.
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
