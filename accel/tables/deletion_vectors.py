"""Deletion vectors as files hold them: the row numbers that are gone, as a bitmap of 64 bits in the portable
format of Roaring.

Delta and Iceberg have the same form: length, magic, bitmap, checksum.

Sources: the Iceberg specification of Puffin, "deletion-vector-v1"; the Delta protocol, "Deletion Vector
Format".
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

import numpy as np

from accel.errors import TableFormatError

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = ["rows_of_bitmap", "rows_of_vector"]

_MAGIC: Final = b"\xd1\xd3\x39\x64"
_AROUND: Final = 8
"""Bytes of the length before and of the checksum behind what the length counts."""
_LEAST: Final = len(_MAGIC) + 8
_MOST_ROWS: Final = 1 << 28


def rows_of_vector(data: memoryview, *, cardinality: int) -> Int64s:
    """Return the row numbers of a vector, ascending.

    Parameters
    ----------
    data : memoryview
        The length, the vector, and its checksum.
    cardinality : int
        The rows that it must have.

    Raises
    ------
    TableFormatError
        It is damaged, or has another number of rows, or more than are read.
    """
    if len(data) < _AROUND + _LEAST:
        raise TableFormatError(f"{len(data)} bytes are no deletion vector")
    length = int.from_bytes(data[:4], "big")
    if length != len(data) - _AROUND:
        raise TableFormatError(f"a deletion vector has {length} bytes, and {len(data) - _AROUND} are there")
    body = bytes(data[4:-4])
    if zlib.crc32(body) != int.from_bytes(data[-4:], "big"):
        raise TableFormatError("a deletion vector does not match its checksum")
    return rows_of_bitmap(body, cardinality=cardinality)


def rows_of_bitmap(body: bytes, *, cardinality: int) -> Int64s:
    """Return the row numbers of a vector without its length and checksum, ascending, as `rows_of_vector`
    does."""
    from pyroaring import BitMap64

    if len(body) < _LEAST or body[:4] != _MAGIC:
        raise TableFormatError("a deletion vector does not begin as one")
    maps = int.from_bytes(body[4:12], "little")
    if maps > (len(body) - _LEAST) // 8:
        raise TableFormatError(f"a deletion vector of {len(body)} bytes cannot have {maps} bitmaps")
    try:
        bitmap = BitMap64.deserialize(body[4:])
        found = len(bitmap)
    except Exception as error:  # whatever the library raises for damaged bytes
        raise TableFormatError("a deletion vector cannot be read") from error
    if found != cardinality:
        raise TableFormatError(f"a deletion vector has {found} rows, and the table says {cardinality}")
    if found > _MOST_ROWS:
        raise TableFormatError(f"a deletion vector has {found} rows, more than {_MOST_ROWS}")
    return np.array(bitmap.to_array(), np.uint64).astype(np.int64)
