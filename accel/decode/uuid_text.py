"""UUIDs as text: Spark has no UUID type, and its own functions write them as strings."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["uuid_text"]

_LENGTH = 36
_DASHES = (8, 13, 18, 23)
_DIGIT_PLACES = np.array([place for place in range(_LENGTH) if place not in _DASHES])
_HEX = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)


def uuid_text(storage: pa.Array) -> pa.StringArray:
    """Canonical lower-case text (8-4-4-4-12 digits) of 16-byte values; null stays null.

    Parameters
    ----------
    storage : pa.FixedSizeBinaryArray
        16-byte values in network order, as RFC 9562 writes them; may be a slice.
    """
    rows = len(storage)
    data = storage.buffers()[1]
    if data is None:
        return storage.cast(pa.binary()).cast(pa.string())
    raw = np.frombuffer(data, dtype=np.uint8, count=16 * rows, offset=16 * storage.offset).reshape(rows, 16)
    text = np.full((rows, _LENGTH), ord("-"), dtype=np.uint8)
    nibbles = np.stack([raw >> 4, raw & 15], axis=2).reshape(rows, 32)
    text[:, _DIGIT_PLACES] = _HEX[nibbles]
    offsets = np.arange(0, _LENGTH * (rows + 1), _LENGTH, dtype=np.int32)
    whole = pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(text))
    if not storage.null_count:
        return whole
    return pc.if_else(storage.is_valid(), whole, pa.nulls(1, pa.string())[0])
