"""Arrow arrays from numpy and Python values, without `pa.array` and `pa.scalar`.

Those two import pandas wherever it is installed, which costs seconds in a fresh process.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["from_numpy", "from_texts", "make_scalar", "repeat_scalar"]


def from_numpy(values: npt.NDArray[np.generic]) -> pa.Array:
    """An array without nulls of the same integers, floats or booleans; the numbers are not copied."""
    if values.dtype == np.bool_:
        bits = pa.py_buffer(np.packbits(values.view(np.uint8), bitorder="little"))
        return pa.Array.from_buffers(pa.bool_(), len(values), [None, bits])
    values = np.ascontiguousarray(values)
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def from_texts(values: Sequence[str | bytes], kind: pa.DataType | None = None) -> pa.Array:
    """A string (or binary) array without nulls."""
    raw = [v.encode("utf-8", "surrogateescape") if isinstance(v, str) else v for v in values]
    offsets = np.zeros(len(raw) + 1, np.int64)
    np.cumsum([len(v) for v in raw], out=offsets[1:])
    wide = pa.large_binary() if isinstance(next(iter(values), ""), bytes) else pa.large_string()
    out = pa.Array.from_buffers(wide, len(raw), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(raw))])
    return out.cast(kind or (pa.binary() if pa.types.is_large_binary(wide) else pa.string()))


def make_scalar(value: object, kind: pa.DataType) -> pa.Scalar:
    """One value of a plain type, as `pa.scalar` would make it.

    Raises
    ------
    pyarrow.ArrowInvalid
        The value is none of that type.
    """
    if value is None:
        return pa.nulls(1, kind)[0]
    if isinstance(value, bytes):
        return from_texts([value]).cast(kind)[0]
    if isinstance(value, datetime.datetime):
        value = value.isoformat(sep=" ")
    elif isinstance(value, bool):
        value = "true" if value else "false"
    return from_texts([str(value)]).cast(kind)[0]


def repeat_scalar(value: pa.Scalar, length: int) -> pa.Array:
    """The same value `length` times."""
    if not value.is_valid:
        return pa.nulls(length, value.type)
    return pa.repeat(value, length)
