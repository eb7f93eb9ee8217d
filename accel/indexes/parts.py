"""Indexes that are read in parts: a head, which stays cached, says where the parts are and what their checksums are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from accel.errors import IndexFormatError
from accel.indexes.wire import BlobReader, BlobWriter

if TYPE_CHECKING:
    from accel.arrays import Int64s, Uint64s

__all__ = [
    "Directory",
    "check_part",
    "close_head",
    "head_length",
    "open_head",
    "read_directory",
    "seal_head",
    "write_directory",
]


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
    """Its body, to be read up to its end.

    Raises
    ------
    IndexFormatError
        It is none of that magic, or not what was written.
    """
    import xxhash

    blob = BlobReader(data, magic)
    if blob.u32() != len(data) or len(data) < 16:
        raise IndexFormatError("the head of an index is not as long as it says")
    if xxhash.xxh64_intdigest(data[:-8]) != int.from_bytes(data[-8:], "little"):
        raise IndexFormatError("the head of an index has a wrong checksum")
    return blob


def close_head(blob: BlobReader) -> None:
    """Raises IndexFormatError where the body goes on."""
    blob.take(8)
    blob.end()


@dataclass(frozen=True, slots=True, eq=False)
class Directory:
    """Where the parts are that hold ascending runs of keys."""

    first_keys: Uint64s
    sizes: Int64s
    """Keys of each part."""
    ends: Int64s
    """Where each part ends, counted from the end of the head."""
    checksums: Uint64s

    @classmethod
    def of(cls, first_keys: Uint64s, sizes: Int64s, parts: Iterable[bytes]) -> Directory:
        """That of parts which were made, and are to stand in their order."""
        import xxhash

        told = [(len(part), xxhash.xxh64_intdigest(part)) for part in parts]
        ends = np.cumsum([length for length, _ in told], dtype=np.int64)
        return cls(first_keys, sizes, ends, np.array([check for _, check in told], np.uint64))

    @classmethod
    def joined(cls, some: Sequence[Directory]) -> Directory:
        """That of the parts of all, one after the other."""
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
        """Of all parts."""
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
    """Raises IndexFormatError for one that contradicts itself."""
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
    """Raises IndexFormatError for a part that is not the one that was written."""
    import xxhash

    if xxhash.xxh64_intdigest(data) != int(expected):
        raise IndexFormatError("a part of an index has a wrong checksum")
