"""Parquet's split-block bloom filters: the header, the block that a hash names, the probe.

Sources: parquet-format `BloomFilter.md`, `parquet.thrift` (BloomFilterHeader).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from accel.errors import IndexFormatError, ParquetFormatError
from accel.format.reading import Raw, Reading
from accel.format.thrift import read_struct
from accel.format.thrift_value import I32, STRUCT
from accel.ranges import Buffer

__all__ = [
    "BLOCK_BYTES",
    "HEADER_BYTES",
    "SALT",
    "BloomHeader",
    "BloomState",
    "expected_header",
    "hash_keys",
    "holds",
    "parse_bloom_header",
    "plain_keys",
    "probe_block",
]

BLOCK_BYTES = 32
HEADER_BYTES = 64
"""No header known is longer: what is asked for where its length is not known."""

SALT = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31],
    np.uint32,
)
"""A hash times each of these says which bit of each of a block's eight words is its own."""
# A header of the usual shape, but for the varint of its first field.
_FIXED_HEADER = 14
_FORMATS = {
    Raw.INT32: "<i",
    Raw.INT64: "<q",
    Raw.UINT32: "<I",
    Raw.UINT64: "<Q",
    Raw.FLOAT16: "<e",
    Raw.FLOAT32: "<f",
    Raw.FLOAT64: "<d",
}


@dataclass(frozen=True, slots=True)
class BloomHeader:
    """Where the bitset of a filter is."""

    length: int
    """Of the header, in bytes: the bitset follows."""
    num_bytes: int
    """Of the bitset; a positive multiple of 32."""

    @property
    def num_blocks(self) -> int:
        return self.num_bytes // BLOCK_BYTES


@dataclass(slots=True)
class BloomState:
    """What is known of one chunk's filter. Grows as scans ask."""

    header: BloomHeader | None = None
    unusable: bool = False
    blocks: dict[int, bytes] = field(default_factory=dict)
    has_bits: bool = False
    """One of the blocks has a bit. A filter without any, over a chunk that has values, is wrong (arrow-go 18.4 to 18.6
    wrote some)."""

    @property
    def nbytes(self) -> int:
        return 128 + 100 * len(self.blocks)


def parse_bloom_header(data: Buffer) -> BloomHeader:
    """Read a BloomFilterHeader from the start of `data`.

    Raises
    ------
    IndexFormatError
        It does not parse, or names an algorithm, hash or compression that is not known.
    """
    try:
        fields, length = read_struct(data)
    except ParquetFormatError as error:
        raise IndexFormatError(f"the bloom filter's header does not parse: {error.message}") from error
    ctype, num_bytes = fields.get(1, (0, 0))
    if ctype != I32 or num_bytes <= 0 or num_bytes % BLOCK_BYTES:
        raise IndexFormatError(f"a bloom filter of {num_bytes} bytes")
    for number, name in ((2, "algorithm"), (3, "hash"), (4, "compression")):
        ctype, union = fields.get(number, (0, {}))
        if ctype != STRUCT or list(union) != [1]:
            raise IndexFormatError(f"the bloom filter's {name} is not known")
    return BloomHeader(length, num_bytes)


def expected_header(length: int) -> BloomHeader | None:
    """The header that a filter of `length` bytes in all has, if it is of the usual shape."""
    for varint in range(1, 6):
        num_bytes = length - _FIXED_HEADER - varint
        if num_bytes <= 0 or num_bytes % BLOCK_BYTES:
            continue
        if (2 * num_bytes).bit_length() in range(7 * (varint - 1) + 1, 7 * varint + 1):
            return BloomHeader(_FIXED_HEADER + varint, num_bytes)
    return None


def plain_keys(reading: Reading, value: float | bytes) -> list[bytes] | None:
    """How a value of a column's domain is stored, PLAIN and without a length: what the filter hashes.

    Returns
    -------
    list of bytes or None
        No entry where the column cannot hold the value, two for a zero (the two zeros hash differently);
        None where that is not known, as for NaN.
    """
    if isinstance(value, bytes):
        return [value] if reading.raw is Raw.BYTES else None
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        if math.isnan(value) or reading.raw not in (Raw.FLOAT16, Raw.FLOAT32, Raw.FLOAT64):
            return None
        try:
            stored = struct.pack(_FORMATS[reading.raw], value)
        except OverflowError:
            return []
        if struct.unpack(_FORMATS[reading.raw], stored)[0] != value:
            return []
        if value == 0.0:
            return [struct.pack(_FORMATS[reading.raw], zero) for zero in (0.0, -0.0)]
        return [stored]
    ticks, rest = divmod(int(value), reading.factor)
    if rest:
        return []
    if reading.raw is Raw.BIG_ENDIAN:
        if not reading.width:
            return None  # decimals of free length may be padded
        try:
            return [ticks.to_bytes(reading.width, "big", signed=True)]
        except OverflowError:
            return []
    shape = _FORMATS.get(reading.raw)
    if shape is None or reading.raw in (Raw.FLOAT16, Raw.FLOAT32, Raw.FLOAT64):
        return None
    try:
        return [struct.pack(shape, ticks)]
    except struct.error:
        return []


def hash_keys(keys: Sequence[bytes]) -> npt.NDArray[np.uint64]:
    """xxHash64 with seed 0 of each key."""
    import xxhash

    return np.array([xxhash.xxh64_intdigest(key) for key in keys], np.uint64)


def probe_block(hashed: int, num_blocks: int) -> int:
    """The number of the one block that a hash lies in."""
    return ((hashed >> 32) * num_blocks) >> 32


def holds(block: Buffer, hashed: int) -> bool:
    """Whether a block of 32 bytes may hold the key of this hash; False is certain."""
    words = np.frombuffer(block, "<u4", 8)
    masks = np.uint32(1) << ((np.uint32(hashed & 0xFFFFFFFF) * SALT) >> np.uint32(27))
    return bool((words & masks).all())
