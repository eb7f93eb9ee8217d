"""64-bit keys of values: XXH64, seed 0, of what is stored of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from accel.arrays import integers, mask, validity
from accel.indexes.native import Tag, from_natives, tag_of, uniform

if TYPE_CHECKING:
    from accel.arrays import Bools, Uint64s

__all__ = ["bits_of", "bits_of_rows", "hash_bits", "hash_natives", "hash_values"]

_SAMPLE = 1024


_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def bits_of(values: pa.Array) -> Uint64s | None:
    """The 64 bits of each value of a uniform array; None for types that do not fit into them."""
    tag = tag_of(values.type)
    if tag is Tag.BOOLEAN:
        return mask(values).astype(np.uint64)
    if tag in (Tag.INT64, Tag.UINT64, Tag.FLOAT64):
        found: Uint64s = integers(values).view(np.uint64)
        return found
    return None


def hash_values(values: pa.Array) -> Uint64s:
    """XXH64 of each value of a uniform array without nulls: of its 8 bytes (a boolean's byte widened),
    of the 16 or 32 of a wide decimal, or of the value itself for bytes."""
    bits = bits_of(values)
    if bits is not None:
        return hash_bits(bits)
    import xxhash

    digest = xxhash.xxh64_intdigest
    tag = tag_of(values.type)
    if tag is Tag.BYTES:
        return np.fromiter(map(digest, values.to_pylist()), np.uint64, len(values))
    width = Tag.INT128.width if tag is Tag.INT128 else Tag.INT256.width
    if not len(values):
        return np.zeros(0, np.uint64)
    data = values.buffers()[1].to_pybytes()[values.offset * width :]
    pieces = (data[i * width : (i + 1) * width] for i in range(len(values)))
    return np.fromiter(map(digest, pieces), np.uint64, len(values))


def bits_of_rows(array: pa.Array) -> tuple[Uint64s, Bools] | None:
    """The 64 bits of every row's value, and where there is one: for a column whose values seldom repeat, so that looking
    for its distinct ones gains nothing. None for other columns, and for types that do not fit into 64 bits."""
    if pa.types.is_dictionary(array.type) or tag_of(array.type) not in (Tag.INT64, Tag.UINT64, Tag.FLOAT64):
        return None
    values = uniform(array)
    bits = bits_of(values)
    if bits is None or len(bits) < _SAMPLE:
        return None
    sample = np.sort(bits[:: len(bits) // _SAMPLE])
    if 2 * int((sample[1:] == sample[:-1]).sum()) > len(sample):
        return None
    return bits, validity(values)


def hash_natives(values: tuple[Any, ...], tag: Tag) -> Uint64s:
    """`hash_values` of a question's literals."""
    return hash_values(from_natives(list(values), tag))


def hash_bits(words: Uint64s) -> Uint64s:
    """XXH64 of each word's eight bytes, all at once: the specification's steps for inputs of that length."""
    with np.errstate(over="ignore"):
        lane = _rotated(words * np.uint64(_P2), 31) * np.uint64(_P1)
        out = np.uint64(_P5 + 8) ^ lane
        out = _rotated(out, 27) * np.uint64(_P1) + np.uint64(_P4)
        out ^= out >> np.uint64(33)
        out *= np.uint64(_P2)
        out ^= out >> np.uint64(29)
        out *= np.uint64(_P3)
        out ^= out >> np.uint64(32)
    return out


def _rotated(words: Uint64s, by: int) -> Uint64s:
    return (words << np.uint64(by)) | (words >> np.uint64(64 - by))
