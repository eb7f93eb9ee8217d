"""The fields that the bytes of every index kind consist of, and indexes that are read in parts.

All numbers are little endian; docs/formats.md specifies the bytes. An index in parts begins with a head, which stays
cached and says where the parts are and what their checksums are, so that a question reads few bytes of a large index.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel.arrays import integers, mask
from accel.errors import IndexFormatError
from accel.indexes.kind import Presence
from accel.indexes.native import ARROW, NUMPY, Tag, tag_of

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s, Uint64s
    from accel.indexes.question import LeafQuestion

__all__ = [
    "BlobReader",
    "BlobWriter",
    "Directory",
    "IndexInParts",
    "check_part",
    "close_head",
    "head_length",
    "open_head",
    "read_directory",
    "seal_head",
    "write_directory",
]


class BlobWriter:
    """Appends fields one after the other, after four bytes of magic."""

    def __init__(self, magic: bytes) -> None:
        self._parts = [magic]

    def u32(self, value: int) -> None:
        self._parts.append(value.to_bytes(4, "little"))

    def u64(self, value: int) -> None:
        self._parts.append(value.to_bytes(8, "little"))

    def array(self, values: npt.NDArray[Any], dtype: str) -> None:
        """Numbers; the reader must know how many."""
        self._parts.append(np.ascontiguousarray(values, dtype).tobytes())

    def flags(self, flags: Bools) -> None:
        """One bit each, the lowest first, filled up with zeros."""
        self._parts.append(np.packbits(flags, bitorder="little").tobytes())

    def block(self, data: bytes) -> None:
        """A u32 length and the bytes."""
        self.u32(len(data))
        self._parts.append(data)

    def presence(self, presence: Presence) -> None:
        self.flags(presence.null)
        self.flags(presence.value)

    def values(self, values: pa.Array) -> None:
        """A uniform array without nulls: u32 tag, u32 count, then the values (BYTES: u32 ends, then all bytes)."""
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
        """Take a u32, which must be the expected number of units."""
        found = self.u32()
        if found != expected:
            raise IndexFormatError(f"an index is of {found} units where {expected} are")

    def array(self, count: int, dtype: str) -> npt.NDArray[Any]:
        """A view of that many numbers."""
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


def seal_head(magic: bytes, body: BlobWriter) -> bytes:
    """A head: magic, u32 length of it all, the body, and XXH64 of what stands before."""
    import xxhash

    rest = body.bytes()
    data = magic + (len(rest) + 16).to_bytes(4, "little") + rest
    return data + xxhash.xxh64_intdigest(data).to_bytes(8, "little")


def head_length(data: bytes) -> int:
    """The length of the head of an index that was built."""
    return int.from_bytes(data[4:8], "little")


def open_head(data: bytes | memoryview, magic: bytes) -> BlobReader:
    """Check a head, and give a reader of its body.

    Raises
    ------
    IndexFormatError
        The magic, the length or the checksum is wrong.
    """
    import xxhash

    blob = BlobReader(data, magic)
    if blob.u32() != len(data) or len(data) < 16:
        raise IndexFormatError("the head of an index is not as long as it says")
    if xxhash.xxh64_intdigest(data[:-8]) != int.from_bytes(data[-8:], "little"):
        raise IndexFormatError("the head of an index has a wrong checksum")
    return blob


def close_head(blob: BlobReader) -> None:
    """Check that the body ends here; raises IndexFormatError where it goes on."""
    blob.take(8)
    blob.end()


@dataclass(frozen=True, slots=True, eq=False)
class Directory:
    """Where the parts are; each has a run of ascending keys."""

    first_keys: Uint64s
    sizes: Int64s
    """Keys of each part."""
    ends: Int64s
    """Where each part ends, counted from the end of the head."""
    checksums: Uint64s

    @classmethod
    def of(cls, first_keys: Uint64s, sizes: Int64s, parts: Iterable[bytes]) -> Directory:
        """The directory of these parts, in their order."""
        import xxhash

        stored = list(parts)
        ends = np.cumsum([len(part) for part in stored], dtype=np.int64)
        checksums = np.array([xxhash.xxh64_intdigest(part) for part in stored], np.uint64)
        return cls(first_keys, sizes, ends, checksums)

    @classmethod
    def joined(cls, some: Sequence[Directory]) -> Directory:
        """The directory of all their parts, one directory after the other."""
        before = np.cumsum([0, *(one.length for one in some)], dtype=np.int64)
        return cls(
            np.concatenate([np.zeros(0, np.uint64), *(one.first_keys for one in some)]),
            np.concatenate([np.zeros(0, np.int64), *(one.sizes for one in some)]),
            np.concatenate(
                [np.zeros(0, np.int64), *(one.ends + at for one, at in zip(some, before[:-1], strict=True))]
            ),
            np.concatenate([np.zeros(0, np.uint64), *(one.checksums for one in some)]),
        )

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def nbytes(self) -> int:
        return 32 * len(self.sizes)

    @property
    def length(self) -> int:
        """The bytes of all parts."""
        return int(self.ends[-1]) if len(self.ends) else 0

    def spans(self, start: int) -> list[tuple[int, int]]:
        """The parts as half-open ranges, of which the first begins at `start`."""
        edges = np.concatenate(([0], self.ends)) + start
        return list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))

    def part_of(self, keys: Uint64s) -> Int64s:
        """The part that each key would stand in; -1 before the first."""
        return np.searchsorted(self.first_keys, keys, "right") - 1


def write_directory(out: BlobWriter, directory: Directory) -> None:
    """A u32 number of parts, then for all of them: first keys, sizes, ends, checksums."""
    out.u32(len(directory))
    out.array(directory.first_keys, "<u8")
    out.array(directory.sizes, "<u4")
    out.array(directory.ends, "<u8")
    out.array(directory.checksums, "<u8")


def read_directory(blob: BlobReader) -> Directory:
    """Read a directory; raises IndexFormatError for one that contradicts itself."""
    parts = blob.u32()
    first_keys = blob.array(parts, "<u8")
    sizes = blob.array(parts, "<u4").astype(np.int64)
    ends = blob.array(parts, "<u8").astype(np.int64)
    checksums = blob.array(parts, "<u8")
    wrong = bool((first_keys[1:] <= first_keys[:-1]).any()) or bool((sizes < 1).any())
    if wrong or bool((np.diff(ends, prepend=0) <= 0).any()):
        raise IndexFormatError("the head of an index contradicts itself")
    return Directory(first_keys, sizes, ends, checksums)


def check_part(data: memoryview, expected: Any) -> None:
    """Check the checksum of a part; raises IndexFormatError where it differs."""
    import xxhash

    if xxhash.xxh64_intdigest(data) != int(expected):
        raise IndexFormatError("a part of an index has a wrong checksum")


@dataclass(frozen=True, slots=True, eq=False)
class IndexInParts:
    """An index whose head is read, and of whose parts some are.

    A subclass says which parts answer a question, and reads one. Its head has `length`, in bytes, and `spans()`.
    """

    head: Any
    parts: Mapping[int, Any]
    """The parts that are read, by number."""

    def part_numbers(self, question: LeafQuestion) -> Iterable[int]:
        """The numbers of the parts that a question needs; negative ones stand for no part."""
        raise NotImplementedError

    def read_part(self, number: int, data: memoryview) -> Any:
        """Read one part. Raises IndexFormatError for bytes that are not that part."""
        raise NotImplementedError

    def wants(self, question: LeafQuestion) -> list[tuple[int, int]]:
        """The byte ranges of the parts that the question needs and that are not read yet."""
        spans = self.head.spans()
        numbers = self.part_numbers(question)
        return [spans[number] for number in numbers if number >= 0 and number not in self.parts]

    def with_parts(self, found: Mapping[tuple[int, int], memoryview]) -> Self:
        """The same index with more parts, each by the range that `wants` gave.

        Raises
        ------
        IndexFormatError
            A part does not verify.
        """
        numbers = {span: number for number, span in enumerate(self.head.spans())}
        more = {numbers[span]: self.read_part(numbers[span], data) for span, data in found.items()}
        return dataclasses.replace(self, parts={**self.parts, **more})

    def with_all_parts(self, data: bytes) -> Self:
        """The same index with every part, from the bytes of all of it.

        Raises
        ------
        IndexFormatError
            The bytes are not as long as the head says, or a part does not verify.
        """
        spans = self.head.spans()
        if len(data) != (spans[-1][1] if spans else self.head.length):
            raise IndexFormatError("an index is not as long as its head says")
        return self.with_parts({(a, b): memoryview(data)[a:b] for a, b in spans})
