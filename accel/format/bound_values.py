"""The bytes of bounds decoded, many at once, into numpy arrays.

Source: parquet-format `Encodings.md` (PLAIN), `LogicalTypes.md` (DECIMAL, FLOAT16).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from accel.format.reading import Raw, Reading

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s

__all__ = ["decode_bounds"]

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
