"""Changes of a column's type that lose something: which a data set allows, and the values after them.

What keeps every value is in `conform`. A table format may allow more: DuckLake casts whatever DuckDB casts
without being told, so that a BIGINT becomes a DOUBLE and a DECIMAL a FLOAT, rounded. Values are those that
DuckDB has, to the last bit, as the same predicate has to find the same rows.

Sources: DuckDB's casts between numbers, observed in version 1.5.5.
"""

from __future__ import annotations

import enum
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel.arrays import Int64s, decimal_words, packed_validity, validity, zone_of

__all__ = ["Promotion", "promote_array", "promotes"]

_TIME_UNITS: Final = ("s", "ms", "us", "ns")
_EXACT_IN: Final = {16: 1 << 11, 32: 1 << 24, 64: 1 << 53}
"""By the bits of a float, the integers up to which all are exact in it."""
_LONG_DIGITS: Final = 18
"""Digits of a decimal that DuckDB has in 64 bits."""


class Promotion(enum.Enum):
    """The changes of a column's type between the files of a data set that a scan follows."""

    EXACT = "exact"
    """Those that keep every value as it is."""
    SQL = "sql"
    """Those that a table format follows besides, by the casts of `promote_array`."""


def promotes(have: pa.DataType, to: pa.DataType) -> bool:
    """Return whether values of one plain type become those of another by a cast of `promote_array`: numbers
    are rounded, or become of another kind."""
    types = pa.types
    if types.is_boolean(have):
        return bool(types.is_integer(to) or types.is_floating(to) or types.is_string(to))
    if types.is_integer(have):
        return bool((types.is_floating(to) and not _is_exact(have, to)) or types.is_string(to))
    if types.is_floating(have):
        return bool(types.is_floating(to) and to.bit_width < have.bit_width)
    if types.is_decimal(have):
        return bool(types.is_floating(to))
    if types.is_timestamp(have) and types.is_timestamp(to):
        # DuckDB has seconds as microseconds in files, and milliseconds as such.
        coarser = _TIME_UNITS.index(have.unit) > _TIME_UNITS.index(to.unit)
        return coarser and zone_of(have) == zone_of(to)
    return False


def _is_exact(have: pa.DataType, to: pa.DataType) -> bool:
    return bool((1 << have.bit_width) <= _EXACT_IN[to.bit_width])


def promote_array(array: pa.Array, to: pa.DataType) -> pa.Array:
    """Return an array under a type that `promotes` allows.

    Raises
    ------
    pyarrow.ArrowInvalid
        An instant lies between two of the coarser unit.
    """
    have = array.type
    if pa.types.is_decimal(have):
        return _floats_of_decimals(array, to)
    if pa.types.is_boolean(have) and not pa.types.is_string(to):
        return array.cast(pa.int8()).cast(to)
    return array.cast(to, safe=pa.types.is_timestamp(have))


def _floats_of_decimals(array: pa.Array, to: pa.DataType) -> pa.Array:
    """Return decimals as floats: what is too large to be exact is rounded on each side of the point.

    Arrow multiplies by a tenth, so that its 1.7 is none.
    """
    kind, dtype = array.type, np.dtype(np.float32 if to.bit_width == 32 else np.float64)
    wide = array.cast(pa.decimal128(min(38, kind.precision), kind.scale))
    words = decimal_words(wide)
    low = words[:, 0]
    power: Any = dtype.type(float(10**kind.scale))
    short = (low >> 63) == words[:, 1]
    exact = short & (np.abs(low) <= _EXACT_IN[to.bit_width]) & (low != np.iinfo(np.int64).min)
    values = low.astype(dtype) / power
    others = ~exact if kind.scale or kind.precision > _LONG_DIGITS else np.zeros(len(low), bool)
    if array.null_count:
        others &= validity(array)
    if others.any():
        values[others] = _rounded(words[others], kind, power)
    return pa.Array.from_buffers(to, len(array), [packed_validity(array), pa.py_buffer(values)])


def _rounded(words: Int64s, kind: pa.DataType, divisor: Any) -> npt.NDArray[Any]:
    power: int = 10**kind.scale
    dtype = divisor.dtype
    found: npt.NDArray[Any]
    if kind.precision <= _LONG_DIGITS:
        numbers = words[:, 0]
        whole = np.sign(numbers) * (np.abs(numbers) // power)
        found = whole.astype(dtype) + (numbers - whole * power).astype(dtype) / divisor
        return found
    found = np.empty(len(words), dtype)
    for at, (low, high) in enumerate(words.tolist()):
        number = (high << 64) | (low & 0xFFFF_FFFF_FFFF_FFFF)
        if kind.scale:
            above, below = divmod(abs(number), power)
            sign = -1 if number < 0 else 1
            found[at] = _of_128_bits(sign * above, dtype) + _of_128_bits(sign * below, dtype) / divisor
        else:
            found[at] = _of_128_bits(number, dtype)
    return found


def _of_128_bits(number: int, dtype: np.dtype[Any]) -> Any:
    """Return an integer as a float that was put together from its halves."""
    low, high = number & 0xFFFF_FFFF_FFFF_FFFF, number >> 64
    if high == -1:
        return dtype.type(-float(0xFFFF_FFFF_FFFF_FFFF - low) - 1.0)
    return dtype.type(float(low) + float(high) * 2.0**64)
