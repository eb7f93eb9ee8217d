"""The bytes of a bitmap index: a head, which places each key in a part, and the parts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from accel.arrays import sort_distinct
from accel.errors import IndexFormatError
from accel.indexes.hashing import bits_of, hash_natives
from accel.indexes.kind import Presence
from accel.indexes.matrix import Matrix, keys_per_block, write_matrix
from accel.indexes.native import Tag, from_natives
from accel.indexes.parts import (
    Directory,
    check_part,
    close_head,
    open_head,
    read_directory,
    seal_head,
    write_directory,
)
from accel.indexes.question import MANY_KEYS, LeafOp, LeafQuestion
from accel.indexes.wire import BlobReader, BlobWriter
from accel.predicate.prune import Evidence

if TYPE_CHECKING:
    from accel.arrays import Int64s, Uint64s

__all__ = ["BitmapHead", "ParsedBitmap", "Part", "cut_parts", "encode_head", "keys_per_part", "read_head"]


_MAGIC = b"AIBm"
_JOINED_MAGIC = b"AIBj"
_LEAST_PART, _MOST_PART = 64, 4096


def keys_per_part(keys: int, units: int) -> int:
    """So many that neither the head nor a part gets long."""
    return max(min(max(math.isqrt(2 * keys), _LEAST_PART), _MOST_PART, keys_per_block(units)), 1)


@dataclass(frozen=True, slots=True, eq=False)
class BitmapHead:
    """All but the parts."""

    presence: Presence
    range_rows: int
    """Rows of a unit; 0 where the units are pages."""
    rows: int
    """Rows of the row group, where units are ranges of them."""
    tag: Tag
    exact: bool
    """Keys are the values themselves, not hashes of them."""
    counts: Int64s
    """Distinct keys in each unit."""
    directory: Directory
    length: int
    groups: Int64s | None = None
    """Units of each row group, where the index is of all of a file's; they follow each other."""

    def spans(self) -> list[tuple[int, int]]:
        """The parts as half-open ranges of the whole index's bytes."""
        return self.directory.spans(self.length)


def encode_head(
    presence: Presence,
    *,
    range_rows: int,
    tag: int,
    exact: bool,
    counts: Int64s,
    directory: Directory,
    groups: Int64s | None = None,
) -> bytes:
    """The head's bytes. Its own length stands second, XXH64 of all before it last."""
    body = BlobWriter(b"")
    if groups is not None:
        body.u32(len(groups))
        body.array(groups, "<u4")
    body.u32(len(presence))
    body.u32(range_rows)
    body.presence(presence)
    body.u32(tag)
    body.u32(int(exact))
    body.array(counts, "<u4")
    write_directory(body, directory)
    return seal_head(_MAGIC if groups is None else _JOINED_MAGIC, body)


def read_head(data: bytes, *, rows: int) -> BitmapHead:
    """Read a head. `rows` is that of the row group where units are ranges of rows.

    Raises
    ------
    IndexFormatError
        It is none, or of another number of rows.
    """
    joined = bytes(data[:4]) == _JOINED_MAGIC
    blob = open_head(data, _JOINED_MAGIC if joined else _MAGIC)
    groups = blob.array(blob.u32(), "<u4").astype(np.int64) if joined else None
    units, range_rows = blob.u32(), blob.u32()
    if (range_rows or rows) and (not range_rows or units != -(-rows // range_rows)):
        raise IndexFormatError("a bitmap index is not of the row group's rows")
    if groups is not None and (range_rows or int(groups.sum()) != units):
        raise IndexFormatError("a bitmap index is not of its row groups' pages")
    presence = blob.presence(units)
    try:
        tag = Tag(blob.u32())
    except ValueError:
        raise IndexFormatError("a bitmap index holds values of an unknown type") from None
    exact = blob.u32()
    counts = blob.array(units, "<u4").astype(np.int64)
    directory = read_directory(blob)
    close_head(blob)
    if exact > 1:
        raise IndexFormatError("the head of a bitmap index contradicts itself")
    return BitmapHead(
        presence=presence,
        range_rows=range_rows,
        rows=rows,
        tag=tag,
        exact=bool(exact),
        counts=counts,
        directory=directory,
        length=len(data),
        groups=groups,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A run of keys, and where they stand."""

    MAGIC: ClassVar[bytes] = b"AIBp"

    keys: Uint64s
    matrix: Matrix

    @classmethod
    def read(cls, data: memoryview, head: BitmapHead, number: int) -> Part:
        """Raises IndexFormatError for what is not the part that the head tells of."""
        check_part(data, head.directory.checksums[number])
        blob = BlobReader(data, cls.MAGIC)
        count = int(head.directory.sizes[number])
        keys = blob.array(count, "<u8")
        matrix = Matrix.read(blob, keys=count, units=len(head.presence))
        blob.end()
        if keys[0] != head.directory.first_keys[number] or bool((keys[1:] <= keys[:-1]).any()):
            raise IndexFormatError("a part of a bitmap index has keys out of order")
        return cls(keys, matrix)

    @classmethod
    def write(cls, keys: Uint64s, cells: Int64s, *, units: int) -> bytes:
        """The bytes of some keys, and of the cells of their matrix that are set, both ascending."""
        out = BlobWriter(cls.MAGIC)
        out.array(keys, "<u8")
        write_matrix(out, cells, keys=len(keys), units=units)
        return out.bytes()


def cut_parts(keys: Uint64s, cells: Int64s, *, step: int, units: int) -> Iterator[tuple[int, int, bytes]]:
    """The parts of a matrix, `step` keys each but for the last: the places of the first key and after the last, the bytes.

    `cells` are those of the matrix that are set, ascending.
    """
    for low in range(0, len(keys), step):
        high = min(low + step, len(keys))
        a, b = np.searchsorted(cells, (low * units, high * units))
        yield low, high, Part.write(keys[low:high], cells[a:b] - low * units, units=units)


@dataclass(frozen=True, slots=True, eq=False)
class ParsedBitmap:
    """A bitmap index, or its head and some of its parts."""

    head: BitmapHead
    parts: Mapping[int, Part]

    @property
    def nbytes(self) -> int:
        own = self.head.length + 16 * len(self.head.counts) + 512
        return own + sum(part.matrix.nbytes + part.keys.nbytes for part in self.parts.values())

    @property
    def group_units(self) -> Int64s | None:
        """The units of each row group, of an index of all of them; else None."""
        return self.head.groups

    @property
    def first_rows(self) -> Int64s | None:
        """Where the ranges of rows start; None where the units are pages."""
        rows = self.head.range_rows
        return np.arange(len(self.head.presence), dtype=np.int64) * rows if rows else None

    def wants(self, question: LeafQuestion) -> list[tuple[int, int]]:
        """The parts that the question needs and that are not here, as ranges of the index's bytes."""
        keys = self._keys(question)
        if keys is None or question.op is LeafOp.IS_NULL:
            return []
        spans = self.head.spans()
        numbers = sort_distinct(self.head.directory.part_of(keys)).tolist()
        return [spans[number] for number in numbers if number >= 0 and number not in self.parts]

    def with_parts(self, found: Mapping[tuple[int, int], memoryview]) -> ParsedBitmap:
        """The same index with more parts, each by the range that `wants` gave.

        Raises
        ------
        IndexFormatError
            A part does not verify.
        """
        numbers = {span: number for number, span in enumerate(self.head.spans())}
        more = {numbers[span]: Part.read(data, self.head, numbers[span]) for span, data in found.items()}
        return ParsedBitmap(self.head, {**self.parts, **more})

    def _keys(self, question: LeafQuestion) -> Uint64s | None:
        if question.op not in (LeafOp.EQ, LeafOp.IN) or question.tag is not self.head.tag:
            return None
        if len(question.values) > MANY_KEYS:
            return None
        if self.head.exact:
            return bits_of(from_natives(list(question.values), self.head.tag))
        return hash_natives(question.values, self.head.tag)

    def prune(self, question: LeafQuestion) -> Evidence | None:
        """One entry a page, or at the row-range level one a range."""
        presence = self.head.presence
        if question.op is LeafOp.IS_NULL:
            return presence.nulls()
        keys = self._keys(question)
        if keys is None:
            return None
        hits = np.zeros(len(presence), np.int64)
        for key, number in zip(keys, self.head.directory.part_of(keys).tolist(), strict=True):
            if number < 0:
                continue
            part = self.parts.get(number)
            if part is None:
                return None
            at = int(np.searchsorted(part.keys, key))
            if at < len(part.keys) and part.keys[at] == key:
                hits[part.matrix.row(at)] += 1
        # Only where keys are the values does a unit of hits alone prove that all its rows pass.
        miss = self.head.counts > hits if self.head.exact else None
        return presence.evidence(hits > 0, miss)

    def describe(self) -> Mapping[str, Any]:
        """What `accel inspect` shows."""
        return {
            "keys": int(self.head.directory.sizes.sum()),
            "parts": len(self.head.directory.sizes),
            "units": len(self.head.presence),
            "exact": self.head.exact,
        }
