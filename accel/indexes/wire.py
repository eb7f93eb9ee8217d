"""The fields that the bytes of every index kind consist of.

All numbers are little endian; docs/formats.md specifies the bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel.arrays import integers, mask, pack_bits, validity
from accel.errors import IndexFormatError
from accel.indexes.kind import Presence
from accel.indexes.native import ARROW, NUMPY, Tag, tag_of

if TYPE_CHECKING:
    from accel.arrays import Bools

__all__ = [
    "BlobReader",
    "BlobWriter",
]


class BlobWriter:
    """Appends fields to four bytes of magic."""

    def __init__(self, magic: bytes) -> None:
        self._parts = [magic]

    def u32(self, value: int) -> None:
        self._parts.append(value.to_bytes(4, "little"))

    def u64(self, value: int) -> None:
        self._parts.append(value.to_bytes(8, "little"))

    def array(self, values: npt.NDArray[Any], dtype: str) -> None:
        """Append numbers, whose count the reader must know."""
        self._parts.append(np.ascontiguousarray(values, dtype).tobytes())

    def flags(self, flags: Bools) -> None:
        """Append one bit for each flag, the lowest first, padded with zeros."""
        self._parts.append(np.packbits(flags, bitorder="little").tobytes())

    def block(self, data: bytes) -> None:
        """Append a u32 length and the bytes."""
        self.u32(len(data))
        self._parts.append(data)

    def presence(self, presence: Presence) -> None:
        self.flags(presence.null)
        self.flags(presence.value)

    def values(self, values: pa.Array) -> None:
        """Append a uniform array without nulls: u32 tag, u32 count, values (BYTES: u32 ends, then all
        bytes)."""
        tag = tag_of(values.type)
        if tag is None:
            raise TypeError(f"{values.type} is no stored type")
        self.u32(tag)
        self.u32(len(values))
        if tag is Tag.BYTES:
            each = values.to_pylist()
            self.array(np.cumsum([len(value) for value in each], dtype=np.uint64), "<u4")
            self._parts.append(b"".join(each))
        elif tag is Tag.BOOLEAN:
            self.array(mask(values), "u1")
        elif tag in (Tag.INT128, Tag.INT256):
            start = values.offset * tag.width
            data = values.buffers()[1]
            self._parts.append(data[start : start + len(values) * tag.width].to_pybytes() if data else b"")
        else:
            self.array(integers(values), NUMPY[tag])

    def optional_bytes(self, values: pa.Array) -> None:
        """Append binary values, as many as the reader must know: flags of those that are not null, u32 length
        of each, or 0 where it varies, and then their u32 ends; then all bytes."""
        each = [value for value in values.to_pylist() if value is not None]
        lengths = {len(value) for value in each}
        self.flags(validity(values))
        width = lengths.pop() if len(lengths) == 1 else 0
        self.u32(width)
        if not width:
            self.array(np.cumsum([len(value) for value in each], dtype=np.uint64), "<u4")
        self._parts.extend(each)

    def bytes(self) -> bytes:
        return b"".join(self._parts)


class BlobReader:
    """Reads what a `BlobWriter` wrote, in the same order; raises IndexFormatError where it cannot."""

    def __init__(self, data: bytes | memoryview, magic: bytes) -> None:
        self._data = memoryview(data).cast("B") if len(data) else memoryview(b"")
        self._at = 0
        found = bytes(self.take(4))
        if found != magic:
            raise IndexFormatError(f"an index starts with {found!r}, not with {magic!r}")

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, length: int) -> memoryview:
        if length > self.left:
            raise IndexFormatError(f"an index ends early: {length} bytes wanted, {self.left} left")
        self._at += length
        return self._data[self._at - length : self._at]

    def end(self) -> None:
        if self.left:
            raise IndexFormatError(f"an index has {self.left} bytes too many")

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def u64(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def units(self, expected: int) -> None:
        """Read a u32, which must be the expected number of units."""
        found = self.u32()
        if found != expected:
            raise IndexFormatError(f"an index is of {found} units where {expected} are")

    def array(self, count: int, dtype: str) -> npt.NDArray[Any]:
        """Read that many numbers, as a view."""
        raw = self.take(count * np.dtype(dtype).itemsize)
        return np.frombuffer(raw, dtype, count)

    def flags(self, count: int) -> Bools:
        raw = np.frombuffer(self.take((count + 7) // 8), np.uint8)
        bits = np.unpackbits(raw, bitorder="little")
        if bool(bits[count:].any()):
            raise IndexFormatError("an index has flags of units that are not")
        return bits[:count].astype(bool)

    def block(self) -> memoryview:
        return self.take(self.u32())

    def presence(self, units: int) -> Presence:
        return Presence(self.flags(units), self.flags(units))

    def optional_bytes(self, count: int) -> pa.Array:
        """Read that many binary values."""
        there = self.flags(count)
        width, some = self.u32(), int(there.sum())
        if width:
            ends = np.arange(1, some + 1, dtype=np.int64) * width
        else:
            ends = self.array(some, "<u4").astype(np.int64)
        lengths = np.zeros(count, np.int64)
        lengths[there] = np.diff(ends, prepend=0)
        total = int(ends[-1]) if some else 0
        if bool((lengths < 0).any()) or total >> 31:
            raise IndexFormatError("an index holds values that end before they start")
        data = pa.py_buffer(bytes(self.take(total)))
        nulls = None if some == count else pack_bits(there)
        offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
        return pa.Array.from_buffers(pa.binary(), count, [nulls, pa.py_buffer(offsets), data])

    def values(self) -> pa.Array:
        try:
            tag = Tag(self.u32())
        except ValueError:
            raise IndexFormatError("an index holds values of an unknown type") from None
        count = self.u32()
        if tag is Tag.BYTES:
            ends = self.array(count, "<u4").astype(np.int64)
            if bool((np.diff(ends, prepend=0) < 0).any()):
                raise IndexFormatError("an index holds values that end before they start")
            data = self.take(int(ends[-1]) if count else 0)
            offsets = np.concatenate(([0], ends)).astype(np.int64)
            buffers = [None, pa.py_buffer(offsets), pa.py_buffer(bytes(data))]
            return pa.Array.from_buffers(ARROW[tag], count, buffers)
        raw = self.take(count * tag.width)
        if tag is Tag.BOOLEAN:
            flags = np.frombuffer(raw, np.uint8)
            if bool((flags > 1).any()):
                raise IndexFormatError("an index holds a truth value that is neither")
            packed = np.packbits(flags, bitorder="little")
            return pa.Array.from_buffers(pa.bool_(), count, [None, pa.py_buffer(packed)])
        return pa.Array.from_buffers(ARROW[tag], count, [None, pa.py_buffer(bytes(raw))])
