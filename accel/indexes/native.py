"""Column values in the form that indexes store and compare, and the 64-bit keys of those values.

Text and binary are bytes; integers, dates, times, timestamps (ticks) and decimals (unscaled) are integers;
-0.0 is 0.0, and all NaN are one value. A key is the value's own 64 bits, or their XXH64 with seed 0.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel.arrays import bytes_array, integers, mask, pack_bits, validity, whole
from accel.errors import SchemaMismatchError
from accel.format.domain import Domain
from accel.predicate.kinds import kind_of, native

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s, Uint64s

__all__ = [
    "ARROW",
    "FILL",
    "NUMPY",
    "Coded",
    "Tag",
    "bits_of",
    "bits_of_rows",
    "code_values",
    "from_natives",
    "hash_bits",
    "hash_natives",
    "hash_values",
    "native_values",
    "signature_of",
    "tag_of",
    "uniform",
]


class Tag(enum.IntEnum):
    """The stored form of a value; the numbers are part of the file format."""

    INT64 = 1
    UINT64 = 2
    INT128 = 3
    INT256 = 4
    FLOAT64 = 5
    BYTES = 6
    BOOLEAN = 7

    @property
    def width(self) -> int:
        """Bytes of one value; 0 for BYTES."""
        return _WIDTHS[self]


_WIDTHS = {
    Tag.INT64: 8,
    Tag.UINT64: 8,
    Tag.INT128: 16,
    Tag.INT256: 32,
    Tag.FLOAT64: 8,
    Tag.BYTES: 0,
    Tag.BOOLEAN: 1,
}


def tag_of(kind: pa.DataType) -> Tag | None:
    """Return the stored form of an Arrow type's values; None for types that have no order."""
    found = kind_of(kind)
    match found.domain:
        case Domain.FLOAT:
            return Tag.FLOAT64
        case Domain.BYTES:
            return Tag.BYTES
        case Domain.BOOLEAN:
            return Tag.BOOLEAN
        case Domain.NONE:
            return None
    if pa.types.is_decimal(found.native):
        return Tag.INT128 if found.native.bit_width == 128 else Tag.INT256
    return Tag.UINT64 if found.native == pa.uint64() else Tag.INT64


def signature_of(kind: pa.DataType) -> str:
    """Return the stored form of a type, which an index's entry records. Values of one signature compare.

    It is the tag and, for integers, the unit of the number: `int64:1/100` is a decimal of scale 2,
    `int64:1000/1` a time or timestamp in microseconds (1000 nanoseconds).
    """
    tag = tag_of(kind)
    if tag is None:
        return "opaque"
    name = tag.name.lower()
    if kind_of(kind).domain is not Domain.INTEGER:
        return name
    up, down = kind_of(kind).step
    return f"{name}:{up}/{down}"


def uniform(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Convert values to one of seven types: int64, uint64, decimal128(38, 0), decimal256(76, 0), double,
    binary or large_binary, bool. Dictionaries are decoded.

    Raises SchemaMismatchError where the type has no order: lists, structs, intervals, null.
    """
    array = whole(array)
    tag = tag_of(array.type)
    if tag is None:
        raise SchemaMismatchError(
            f"an index cannot hold values of type {array.type}",
            hint="index a column of numbers, text, bytes, moments or truth values, or a field of the struct",
        )
    values = native(array)
    if tag is Tag.INT64:
        return values if values.type == pa.int64() else values.cast(pa.int64())
    if tag is Tag.FLOAT64:
        with np.errstate(invalid="ignore"):  # for signalling NaN
            numbers = integers(values) + 0.0
        numbers[np.isnan(numbers)] = math.nan
        return _fixed(numbers, validity(values), pa.float64())
    return values


def _fixed(numbers: npt.NDArray[Any], valid: npt.NDArray[np.bool_], kind: pa.DataType) -> pa.Array:
    bits = None if bool(valid.all()) else pack_bits(valid)
    return pa.Array.from_buffers(kind, len(numbers), [bits, pa.py_buffer(numbers)])


@dataclass(frozen=True, slots=True, eq=False)
class Coded:
    """A column as its distinct values and a code for every row."""

    values: pa.Array
    """The distinct values as `uniform` returns them, without null, in no order."""
    codes: Int64s
    """The position in `values` for every row; -1 for a null."""


def code_values(array: pa.Array | pa.ChunkedArray) -> Coded:
    """Return the distinct values of a column, and the code of every row.

    Raises SchemaMismatchError as `uniform` does.
    """
    array = whole(array)
    if not pa.types.is_dictionary(array.type):
        encoded = uniform(array).dictionary_encode()
        return Coded(encoded.dictionary, _codes(encoded))
    # A dictionary may have repeated values, nulls, and values that no row has.
    entries = uniform(array.dictionary).dictionary_encode()
    codes = _codes(array)
    if not len(entries):
        return Coded(entries.dictionary, np.full(len(codes), -1, np.int64))
    codes = np.where(codes < 0, -1, _codes(entries)[codes])
    used = np.zeros(len(entries.dictionary), bool)
    used[codes[codes >= 0]] = True
    if bool(used.all()):
        return Coded(entries.dictionary, codes)
    moved = np.cumsum(used) - 1
    places = np.flatnonzero(used)
    values = entries.dictionary.take(_fixed(places, np.ones(len(places), bool), pa.int64()))
    return Coded(values, np.where(codes < 0, -1, moved[codes]))


def _codes(encoded: pa.DictionaryArray) -> Int64s:
    codes = integers(encoded.indices).astype(np.int64)
    if encoded.indices.null_count:
        codes[~validity(encoded.indices)] = -1
    return codes


def native_values(array: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    """Return the values that are not null, in row order, in the form of the literals of a `LeafQuestion`.

    Parameters
    ----------
    array : pyarrow.Array or pyarrow.ChunkedArray
        The values.

    Returns
    -------
    numpy.ndarray
        int64, uint64, float64 or bool; objects for bytes and for decimals beyond 64 bits.

    Raises
    ------
    SchemaMismatchError
        The type has no order that accel defines.
    """
    values = uniform(array)
    present = values.drop_null() if values.null_count else values
    tag = tag_of(values.type)
    if tag is Tag.BOOLEAN:
        return mask(present)
    if tag is not Tag.BYTES:
        return integers(present)
    out = np.empty(len(present), object)
    out[:] = present.to_pylist()
    return out


def from_natives(values: list[Any], tag: Tag) -> pa.Array:
    """Return a uniform array of native values: the inverse of `native_values`."""
    if tag is Tag.BYTES:
        return bytes_array(values, pa.large_binary())
    if tag is Tag.BOOLEAN:
        bits = np.packbits(np.array(values, bool), bitorder="little")
        return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(bits)])
    return pa.Array.from_buffers(ARROW[tag], len(values), [None, pa.py_buffer(pack(values, tag))])


def pack(values: list[Any], tag: Tag) -> bytes:
    """Encode fixed-width values in little endian, booleans as one byte each."""
    if tag in (Tag.INT128, Tag.INT256):
        return b"".join(int(value).to_bytes(tag.width, "little", signed=True) for value in values)
    return np.array(values, NUMPY[tag]).tobytes()


ARROW = {
    Tag.INT64: pa.int64(),
    Tag.UINT64: pa.uint64(),
    Tag.INT128: pa.decimal128(38, 0),
    Tag.INT256: pa.decimal256(76, 0),
    Tag.FLOAT64: pa.float64(),
    Tag.BYTES: pa.large_binary(),
    Tag.BOOLEAN: pa.bool_(),
}
FILL: dict[Tag, Any] = {
    Tag.INT64: 0,
    Tag.UINT64: 0,
    Tag.INT128: 0,
    Tag.INT256: 0,
    Tag.FLOAT64: 0.0,
    Tag.BYTES: b"",
    Tag.BOOLEAN: False,
}
"""The value that is stored where there is none."""
NUMPY: dict[Tag, Any] = {Tag.INT64: "<i8", Tag.UINT64: "<u8", Tag.FLOAT64: "<f8", Tag.BOOLEAN: "u1"}


SAMPLE = 1024


_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def bits_of(values: pa.Array) -> Uint64s | None:
    """Return the 64 bits of each value of a uniform array; None for types that do not fit into them."""
    tag = tag_of(values.type)
    if tag is Tag.BOOLEAN:
        return mask(values).astype(np.uint64)
    if tag in (Tag.INT64, Tag.UINT64, Tag.FLOAT64):
        found: Uint64s = integers(values).view(np.uint64)
        return found
    return None


def hash_values(values: pa.Array) -> Uint64s:
    """Return the XXH64 of each value of a uniform array without nulls: of its 8 bytes (with a boolean
    widened), of the 16 or 32 bytes of a wide decimal, or of the value itself for bytes."""
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
    """Return the 64 bits of every row's value, and which rows have one, for a column whose values seldom
    repeat.

    Return None for other columns and for types that do not fit into 64 bits. Finding the distinct values of
    such a column would take longer than the rest of the build.
    """
    if pa.types.is_dictionary(array.type) or tag_of(array.type) not in (Tag.INT64, Tag.UINT64, Tag.FLOAT64):
        return None
    values = uniform(array)
    bits = bits_of(values)
    if bits is None or len(bits) < SAMPLE:
        return None
    sample = np.sort(bits[:: len(bits) // SAMPLE])
    if 2 * int((sample[1:] == sample[:-1]).sum()) > len(sample):
        return None
    return bits, validity(values)


def hash_natives(values: tuple[Any, ...], tag: Tag) -> Uint64s:
    """Return the `hash_values` of a question's literals."""
    return hash_values(from_natives(list(values), tag))


def hash_bits(words: Uint64s) -> Uint64s:
    """Return the XXH64 of the eight bytes of each word, by the specification's steps for inputs of that
    length."""
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
