"""Indexes that are read in parts: the head, the directory of the parts, and parts by key.

An index in parts begins with a head, which stays cached. It locates the parts and has their checksums, so a
question reads few bytes of a large index. docs/formats.md specifies the bytes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from accel.errors import IndexFormatError
from accel.indexes.kind import IndexKind, Level, ParsedIndex
from accel.indexes.matrix import Matrix, write_matrix
from accel.indexes.question import LeafQuestion
from accel.indexes.wire import BlobReader, BlobWriter

if TYPE_CHECKING:
    from accel.arrays import Int64s, Uint64s

__all__ = [
    "Directory",
    "IndexInParts",
    "KeyedPart",
    "KeyedParts",
    "KindInParts",
    "check_part",
    "close_head",
    "head_length",
    "open_head",
    "read_directory",
    "seal_head",
    "write_directory",
]


def seal_head(magic: bytes, body: BlobWriter) -> bytes:
    """Return a head: magic, u32 length of the whole head, the body, and XXH64 of everything before."""
    import xxhash

    rest = body.bytes()
    data = magic + (len(rest) + 16).to_bytes(4, "little") + rest
    return data + xxhash.xxh64_intdigest(data).to_bytes(8, "little")


def head_length(data: bytes) -> int:
    """Return the length of the head of an index that was built."""
    return int.from_bytes(data[4:8], "little")


def open_head(data: bytes | memoryview, magic: bytes) -> BlobReader:
    """Check a head; return a reader of its body.

    Raises IndexFormatError where the magic, the length or the checksum is wrong.
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
    """The locations of the parts, each of which has a run of ascending keys."""

    first_keys: Uint64s
    sizes: Int64s
    """The number of keys of each part."""
    ends: Int64s
    """The end of each part, counted from the end of the head."""
    checksums: Uint64s

    @classmethod
    def of(cls, first_keys: Uint64s, sizes: Int64s, parts: Iterable[bytes]) -> Directory:
        """Make the directory of these parts, in their order."""
        import xxhash

        stored = list(parts)
        ends = np.cumsum([len(part) for part in stored], dtype=np.int64)
        checksums = np.array([xxhash.xxh64_intdigest(part) for part in stored], np.uint64)
        return cls(first_keys, sizes, ends, checksums)

    @classmethod
    def joined(cls, some: Sequence[Directory]) -> Directory:
        """Concatenate directories."""
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
        """Return the parts as half-open ranges, of which the first begins at `start`."""
        edges = np.concatenate(([0], self.ends)) + start
        return list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))

    def part_of(self, keys: Uint64s) -> Int64s:
        """Return the number of the part that may have each key; -1 for a key before the first part."""
        return np.searchsorted(self.first_keys, keys, "right") - 1


def write_directory(out: BlobWriter, directory: Directory) -> None:
    """Write a u32 number of parts, then the first keys, sizes, ends and checksums of all parts."""
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
class KeyedPart:
    """A run of ascending keys, and the units that have each."""

    keys: npt.NDArray[Any]
    matrix: Matrix

    @property
    def nbytes(self) -> int:
        return int(self.keys.nbytes) + self.matrix.nbytes


@dataclass(frozen=True, slots=True)
class KeyedParts:
    """The bytes of the parts of one kind of index."""

    magic: bytes
    key_type: str
    """The stored numpy type of the keys."""

    def cut(
        self, keys: npt.NDArray[Any], cells: Int64s, *, step: int, units: int
    ) -> tuple[Directory, list[bytes]]:
        """Cut a matrix into parts of `step` keys each; `keys` and `cells`, those that are set, ascend."""
        stops = np.minimum(np.arange(0, len(keys), step) + step, len(keys))
        parts = []
        low = 0
        for high in stops.tolist():
            begin, end = np.searchsorted(cells, (low * units, high * units))
            out = BlobWriter(self.magic)
            out.array(keys[low:high], self.key_type)
            write_matrix(out, cells[begin:end] - low * units, keys=high - low, units=units)
            parts.append(out.bytes())
            low = high
        return Directory.of(keys[::step].astype(np.uint64), np.diff(stops, prepend=0), parts), parts

    def read(self, data: memoryview, directory: Directory, number: int, *, units: int) -> KeyedPart:
        """Read a part; raises IndexFormatError for bytes that are not the part that the directory
        describes."""
        check_part(data, directory.checksums[number])
        blob = BlobReader(data, self.magic)
        count = int(directory.sizes[number])
        keys = blob.array(count, self.key_type)
        matrix = Matrix.read(blob, keys=count, units=units)
        blob.end()
        if int(keys[0]) != int(directory.first_keys[number]) or bool((keys[1:] <= keys[:-1]).any()):
            raise IndexFormatError("a part of an index has keys out of order")
        return KeyedPart(keys, matrix)


class KindInParts(IndexKind):
    """A kind whose indexes are `IndexInParts`."""

    def parse_head(self, data: bytes, *, level: Level, units: int) -> IndexInParts:
        """Read the head alone; `with_parts` adds the parts that a question needs."""
        raise NotImplementedError

    def head_bytes(self, data: bytes) -> int:
        """Return the length of the head of an index: a reader needs it before it can tell which part to
        read."""
        return head_length(data)

    def parse(self, data: bytes, *, level: Level, units: int) -> IndexInParts:
        head = self.parse_head(data[: head_length(data)], level=level, units=units)
        return head.with_all_parts(data)


@dataclass(frozen=True, slots=True, eq=False)
class IndexInParts(ParsedIndex):
    """An index whose head was read, and perhaps some of its parts.

    A subclass names the parts that a question needs, and reads one. Its head has `length`, in bytes, and
    `spans()`.
    """

    head: Any
    parts: Mapping[int, Any]
    """The parts that were read, by number."""

    def part_numbers(self, question: LeafQuestion) -> Iterable[int]:
        """Return the numbers of the parts that a question needs; negative ones stand for no part."""
        raise NotImplementedError

    def read_part(self, number: int, data: memoryview) -> Any:
        """Read a part; raises IndexFormatError for bytes that are not this part."""
        raise NotImplementedError

    def wants(self, question: LeafQuestion) -> list[tuple[int, int]]:
        """Return the byte ranges of the parts that the question needs and that were not read yet."""
        spans = self.head.spans()
        numbers = self.part_numbers(question)
        return [spans[number] for number in numbers if number >= 0 and number not in self.parts]

    def with_parts(self, found: Mapping[tuple[int, int], memoryview]) -> Self:
        """Return the index with more parts, by range; raises IndexFormatError where one does not verify."""
        numbers = {span: number for number, span in enumerate(self.head.spans())}
        more = {numbers[span]: self.read_part(numbers[span], data) for span, data in found.items()}
        return dataclasses.replace(self, parts={**self.parts, **more})

    def with_all_parts(self, data: bytes) -> Self:
        """Return the index with every part, from all of its bytes.

        Raises IndexFormatError where their length is not the head's, or a part does not verify.
        """
        spans = self.head.spans()
        if len(data) != (spans[-1][1] if spans else self.head.length):
            raise IndexFormatError("an index is not as long as its head says")
        return self.with_parts({(a, b): memoryview(data)[a:b] for a, b in spans})
