"""Bounds and partition values in the binary form that manifests have them in, decoded into Arrow arrays.

A value whose bytes are of no such type is null: nothing is known then, and the file is kept.

Source: the Iceberg specification, appendix D, "Binary single-value serialization".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from accel.arrays import bools, from_numpy, masked_numbers, validity, values_array

if TYPE_CHECKING:
    from accel.arrays import Bools

__all__ = ["decode_values"]

_MOST_DECIMAL_BYTES: Final = 16
_MICROSECONDS_OF_A_DAY: Final = 86_400_000_000


def decode_values(values: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """Return values of a column, as an array of its type; None for types that have no order.

    Parameters
    ----------
    values : pyarrow.BinaryArray
        Null where unknown. A value of a type that widens to the column's is taken, too: an int of a long, a
        float of a double, a date of a timestamp.
    kind : pyarrow.DataType
        The type of the column.
    """
    t = pa.types
    if t.is_string(kind):
        return _texts(values)
    if t.is_binary(kind):
        return values
    if t.is_fixed_size_binary(kind):
        lengths = _lengths(values)
        return _masked(values, lengths == kind.byte_width).cast(kind)
    if t.is_decimal(kind):
        return _decimals(values, kind)
    if t.is_boolean(kind):
        found, fine = _fixed(values, "u1")
        return bools(found != 0, fine)
    if t.is_integer(kind):
        return _integers(values, 8 if kind.bit_width == 64 else 4, kind)
    if t.is_float64(kind) or t.is_float32(kind):
        return _floats(values, kind)
    if t.is_date(kind):
        return _integers(values, 4, pa.int32()).cast(kind)
    if t.is_time(kind):
        return _integers(values, 8, pa.int64()).cast(kind)
    if t.is_timestamp(kind):
        return _timestamps(values, kind)
    return None


def _lengths(values: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    lengths = np.diff(offsets).astype(np.int64)
    return np.where(validity(values), lengths, -1)


def _masked(values: pa.Array, keep: Bools) -> pa.Array:
    places = masked_numbers(np.arange(len(values)), keep, pa.int64())
    return values.take(places)


def _fixed(values: pa.Array, dtype: str) -> tuple[np.ndarray[Any, Any], Bools]:
    """Return numbers of those values that have just their bytes, and which these are."""
    width = np.dtype(dtype).itemsize
    n = len(values)
    if n == 0:
        return np.zeros(0, dtype), np.zeros(0, bool)
    fine = _lengths(values) == width
    data = values.buffers()[2]
    out = np.zeros((n, width), np.uint8)
    if data is not None and fine.any():
        starts = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + n]
        chosen = starts[fine].astype(np.int64)[:, None] + np.arange(width)
        out[fine] = np.frombuffer(data, np.uint8)[chosen]
    return out.reshape(-1).view(dtype), fine


def _integers(values: pa.Array, width: int, kind: pa.DataType) -> pa.Array:
    short, fine = _fixed(values, "<i4")
    if width == 4:
        return masked_numbers(short, fine, pa.int32()).cast(kind)
    long, wide = _fixed(values, "<i8")
    return masked_numbers(np.where(wide, long, short), fine | wide, pa.int64())


def _floats(values: pa.Array, kind: pa.DataType) -> pa.Array:
    short, fine = _fixed(values, "<f4")
    if pa.types.is_float32(kind):
        return masked_numbers(short, fine, pa.float32())
    long, wide = _fixed(values, "<f8")
    return masked_numbers(np.where(wide, long, short.astype(np.float64)), fine | wide, pa.float64())


def _timestamps(values: pa.Array, kind: pa.DataType) -> pa.Array:
    days, is_day = _fixed(values, "<i4")
    ticks, fine = _fixed(values, "<i8")
    scale = _MICROSECONDS_OF_A_DAY * (1000 if kind.unit == "ns" else 1)
    is_day &= np.abs(days.astype(np.int64)) < (1 << 62) // scale
    found = np.where(is_day, np.where(is_day, days, 0).astype(np.int64) * scale, ticks)
    return masked_numbers(found, fine | is_day, pa.int64()).cast(kind)


def _texts(values: pa.Array) -> pa.Array:
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return values_array([_text(value) for value in values.to_pylist()], pa.string())


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def _decimals(values: pa.Array, kind: pa.DataType) -> pa.Array:
    least, most = -(10**kind.precision), 10**kind.precision
    out = bytearray(16 * len(values))
    fine = np.zeros(len(values), bool)
    for at, value in enumerate(values.to_pylist()):
        if value and len(value) <= _MOST_DECIMAL_BYTES:
            number = int.from_bytes(value, "big", signed=True)
            if least < number < most:
                out[16 * at : 16 * at + 16] = number.to_bytes(16, "little", signed=True)
                fine[at] = True
    valid = from_numpy(fine)
    return pa.Array.from_buffers(
        kind, len(values), [valid.buffers()[1], pa.py_buffer(bytes(out))], int((~fine).sum())
    )
