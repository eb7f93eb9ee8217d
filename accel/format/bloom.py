"""Parquet's split-block bloom filters: the header, the block that a hash selects, the probe.

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
from accel.format.domain import BoundEncoding, RawType
from accel.format.thrift import I32, STRUCT, read_struct
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
"""Bytes read for a header of unknown length; no writer's header is longer."""

SALT = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31],
    np.uint32,
)
"""The factors that turn a hash into one bit of each of a block's eight words."""
# The length of a usual header without the varint of its first field.
_FIXED_HEADER = 14
_FORMATS = {
    RawType.INT32: "<i",
    RawType.INT64: "<q",
    RawType.UINT32: "<I",
    RawType.UINT64: "<Q",
    RawType.FLOAT16: "<e",
    RawType.FLOAT32: "<f",
    RawType.FLOAT64: "<d",
}


@dataclass(frozen=True, slots=True)
class BloomHeader:
    """The lengths of a filter's header and of its bitset."""

    length: int
    """Bytes of the header; the bitset follows it."""
    num_bytes: int
    """Bytes of the bitset: a positive multiple of 32."""

    @property
    def num_blocks(self) -> int:
        return self.num_bytes // BLOCK_BYTES


@dataclass(slots=True)
class BloomState:
    """The parts of one chunk's filter that scans have read so far."""

    header: BloomHeader | None = None
    unusable: bool = False
    blocks: dict[int, bytes] = field(default_factory=dict)
    has_bits: bool = False
    """Whether one of the blocks has a bit set. A filter without any over a chunk that has values is wrong
    (arrow-go 18.4 to 18.6 wrote some)."""

    @property
    def nbytes(self) -> int:
        return 128 + 100 * len(self.blocks)


def parse_bloom_header(data: Buffer) -> BloomHeader:
    """Read a BloomFilterHeader from the start of `data`.

    Raises IndexFormatError where the header does not parse, or its algorithm, hash or compression is unknown.
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
    """Return the header of a filter of `length` bytes in all, if it has the usual form."""
    for varint in range(1, 6):
        num_bytes = length - _FIXED_HEADER - varint
        if num_bytes <= 0 or num_bytes % BLOCK_BYTES:
            continue
        if (2 * num_bytes).bit_length() in range(7 * (varint - 1) + 1, 7 * varint + 1):
            return BloomHeader(_FIXED_HEADER + varint, num_bytes)
    return None


def plain_keys(encoding: BoundEncoding, value: float | bytes) -> list[bytes] | None:
    """Encode a value of a column's domain as the filter hashes it: PLAIN, without a length.

    Returns
    -------
    list of bytes or None
        Empty where the column cannot hold the value; two entries for a zero, since 0.0 and -0.0 hash
        differently; None where the stored bytes are not certain, as for NaN.
    """
    if isinstance(value, bytes):
        return [value] if encoding.raw is RawType.BYTES else None
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        if math.isnan(value) or encoding.raw not in (RawType.FLOAT16, RawType.FLOAT32, RawType.FLOAT64):
            return None
        try:
            stored = struct.pack(_FORMATS[encoding.raw], value)
        except OverflowError:
            return []
        if struct.unpack(_FORMATS[encoding.raw], stored)[0] != value:
            return []
        if value == 0.0:
            return [struct.pack(_FORMATS[encoding.raw], zero) for zero in (0.0, -0.0)]
        return [stored]
    ticks, rest = divmod(int(value), encoding.factor)
    if rest:
        return []
    if encoding.raw is RawType.BIG_ENDIAN:
        if not encoding.width:
            return None  # decimals of variable length may be padded
        try:
            return [ticks.to_bytes(encoding.width, "big", signed=True)]
        except OverflowError:
            return []
    shape = _FORMATS.get(encoding.raw)
    if shape is None or encoding.raw in (RawType.FLOAT16, RawType.FLOAT32, RawType.FLOAT64):
        return None
    try:
        return [struct.pack(shape, ticks)]
    except struct.error:
        return []


def hash_keys(keys: Sequence[bytes]) -> npt.NDArray[np.uint64]:
    """Return the xxHash64, with seed 0, of each key."""
    import xxhash

    return np.array([xxhash.xxh64_intdigest(key) for key in keys], np.uint64)


def probe_block(hashed: int, num_blocks: int) -> int:
    """Return the number of the block that a hash selects."""
    return ((hashed >> 32) * num_blocks) >> 32


def holds(block: Buffer, hashed: int) -> bool:
    """Return whether a block of 32 bytes may hold the key of this hash; False is certain."""
    words = np.frombuffer(block, "<u4", 8)
    masks = np.uint32(1) << ((np.uint32(hashed & 0xFFFFFFFF) * SALT) >> np.uint32(27))
    return bool((words & masks).all())
