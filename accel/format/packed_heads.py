"""The heads of large indexes, packed: so they stand beside the footer once more, where the first read brings them."""

from __future__ import annotations

import pyarrow as pa

from accel.errors import IndexFormatError
from accel.ranges import Buffer

__all__ = ["LONGEST_HEAD", "pack_head", "unpack_head"]

LONGEST_HEAD = 4 << 20
"""Bytes; a longer one is not packed, nor unpacked."""
_LEVEL = 9


def pack_head(head: bytes) -> bytes:
    """As a Zstandard frame."""
    return bytes(pa.Codec("zstd", compression_level=_LEVEL).compress(head, asbytes=True))


def unpack_head(data: Buffer, length: int) -> bytes:
    """The head of so many bytes; it is yet to be held against its checksum.

    Raises
    ------
    IndexFormatError
        The data is no such frame.
    """
    if not 0 < length <= LONGEST_HEAD:
        raise IndexFormatError(f"the head of an index, {length} bytes, does not come packed")
    try:
        return bytes(pa.decompress(data, decompressed_size=length, codec="zstd", asbytes=True))
    except (pa.ArrowException, OSError) as error:
        raise IndexFormatError(f"the head of an index does not unpack: {error}") from None
