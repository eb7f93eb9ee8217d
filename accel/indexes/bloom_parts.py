"""The bytes of a bloom index: a head, and parts by hash, each with some blocks of every unit's filter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from accel.errors import IndexFormatError
from accel.format.bloom import SALT
from accel.indexes.hashing import hash_natives
from accel.indexes.kind import Presence
from accel.indexes.native import Tag
from accel.indexes.parts import check_part, close_head, open_head, seal_head
from accel.indexes.question import MANY_KEYS, LeafOp, LeafQuestion
from accel.indexes.wire import BlobReader, BlobWriter
from accel.predicate.prune import Evidence

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s, Uint64s

__all__ = [
    "FIRST_MAGIC",
    "MOST_PARTS",
    "WORDS",
    "BloomHead",
    "ParsedBloom",
    "bit_places",
    "encode_bloom",
    "parse_first",
    "read_head",
]


_MAGIC = b"AIB2"
FIRST_MAGIC = b"AIBf"
MOST_PARTS = 1 << 12
WORDS = 8
"""32-bit words of a block."""


def bit_places(hashes: Uint64s, starts: Any, counts: Any) -> tuple[Int64s, npt.NDArray[np.uint32]]:
    """The first word of each hash's block, and the bit of it in each of the eight words.

    `starts` and `counts` are the blocks before its filter, and in it: of each hash, or of all.
    """
    block = ((hashes >> np.uint64(32)) * np.asarray(counts).astype(np.uint64)) >> np.uint64(32)
    low = hashes.astype(np.uint32)
    with np.errstate(over="ignore"):
        bit = (low[:, None] * SALT) >> np.uint32(27)
    return (starts + block.astype(np.int64)) * WORDS, np.uint32(1) << bit


def encode_bloom(
    presence: Presence, tag: int, *, words: npt.NDArray[np.uint32], counts: Int64s, parts: int
) -> bytes:
    """The index's bytes.

    Parameters
    ----------
    words : array of uint32
        All filters, one behind the other.
    counts : array of int64
        Blocks of each filter in each part.
    """
    import xxhash

    starts = np.cumsum(counts * parts) - counts * parts
    stored = [
        b"".join(
            words[start * WORDS : (start + size) * WORDS].astype("<u4").tobytes()
            for start, size in zip((starts + part * counts).tolist(), counts.tolist(), strict=True)
        )
        for part in range(parts)
    ]
    head = BlobWriter(b"")
    head.u32(len(presence))
    head.presence(presence)
    head.u32(tag)
    head.array(counts, "<u4")
    head.u32(parts)
    head.array(np.array([xxhash.xxh64_intdigest(part) for part in stored], np.uint64), "<u8")
    return seal_head(_MAGIC, head) + b"".join(stored)


@dataclass(frozen=True, slots=True, eq=False)
class BloomHead:
    presence: Presence
    tag: Tag
    counts: Int64s
    """Blocks of each unit's filter in each part."""
    checksums: Uint64s
    length: int

    @property
    def part_bytes(self) -> int:
        return int(self.counts.sum()) * WORDS * 4

    def spans(self) -> list[tuple[int, int]]:
        """The parts as half-open ranges of the whole index's bytes."""
        size = self.part_bytes
        return [(self.length + n * size, self.length + (n + 1) * size) for n in range(len(self.checksums))]

    def part_of(self, hashes: Uint64s) -> list[int]:
        """The part that has each hash's blocks, in every filter."""
        found: list[int] = (
            ((hashes >> np.uint64(32)) * np.uint64(len(self.checksums))) >> np.uint64(32)
        ).tolist()
        return found


def read_head(data: bytes, units: int) -> BloomHead:
    blob = open_head(data, _MAGIC)
    presence, tag, counts = _read_counts(blob, units)
    parts = blob.u32()
    if not 1 <= parts <= MOST_PARTS:
        raise IndexFormatError(f"a bloom index of {parts} parts")
    checksums = blob.array(parts, "<u8").astype(np.uint64)
    close_head(blob)
    return BloomHead(presence, tag, counts, checksums, len(data))


def _read_counts(blob: BlobReader, units: int) -> tuple[Presence, Tag, Int64s]:
    blob.units(units)
    presence = blob.presence(units)
    try:
        tag = Tag(blob.u32())
    except ValueError:
        raise IndexFormatError("a bloom index holds values of an unknown type") from None
    counts = blob.array(units, "<u4").astype(np.int64)
    if bool((presence.value & (counts == 0)).any()):
        raise IndexFormatError("a bloom index has values and no filter for them")
    return presence, tag, counts


def parse_first(data: bytes, units: int) -> ParsedBloom:
    """Version 1: one part, and no head."""
    blob = BlobReader(data, FIRST_MAGIC)
    presence, tag, counts = _read_counts(blob, units)
    words = blob.array(int(counts.sum()) * WORDS, "<u4").astype(np.uint32, copy=False)
    blob.end()
    return ParsedBloom(BloomHead(presence, tag, counts, np.zeros(1, np.uint64), len(data)), {0: words})


@dataclass(frozen=True, slots=True, eq=False)
class ParsedBloom:
    """Filters read back, or the head and some of the parts."""

    head: BloomHead
    parts: Mapping[int, npt.NDArray[np.uint32]]

    @property
    def nbytes(self) -> int:
        own = self.head.length + 16 * len(self.head.counts) + 256
        return own + sum(words.nbytes for words in self.parts.values())

    def wants(self, question: LeafQuestion) -> list[tuple[int, int]]:
        """The parts that the question needs and that are not here, as ranges of the index's bytes."""
        hashes = self._hashes(question)
        if hashes is None or not self.head.part_bytes:
            return []
        spans = self.head.spans()
        return [
            spans[number] for number in sorted(set(self.head.part_of(hashes))) if number not in self.parts
        ]

    def with_parts(self, found: Mapping[tuple[int, int], memoryview]) -> ParsedBloom:
        """The same index with more parts, each by the range that `wants` gave.

        Raises
        ------
        IndexFormatError
            A part does not verify.
        """
        if not self.head.part_bytes:
            return self
        numbers = {span: number for number, span in enumerate(self.head.spans())}
        more = dict(self.parts)
        for span, data in found.items():
            number = numbers[span]
            check_part(data, self.head.checksums[number])
            if len(data) != self.head.part_bytes:
                raise IndexFormatError("a part of a bloom index has a wrong length")
            more[number] = np.frombuffer(bytes(data), "<u4").astype(np.uint32, copy=False)
        return ParsedBloom(self.head, more)

    def prune(self, question: LeafQuestion) -> Evidence | None:
        if question.op is LeafOp.IS_NULL:
            return self.head.presence.nulls()
        hashes = self._hashes(question)
        if hashes is None:
            return None
        hit = np.zeros(len(self.head.presence), bool)
        for key, number in zip(hashes, self.head.part_of(hashes), strict=True):
            words = self.parts.get(number)
            if words is None and self.head.part_bytes:
                return None
            if words is not None:
                hit |= self._probe(key, words)
        return self.head.presence.evidence(hit)

    def _hashes(self, question: LeafQuestion) -> Uint64s | None:
        if question.op not in (LeafOp.EQ, LeafOp.IN) or question.tag is not self.head.tag:
            return None
        return hash_natives(question.values, self.head.tag) if len(question.values) <= MANY_KEYS else None

    def _probe(self, key: np.uint64, words: npt.NDArray[np.uint32]) -> Bools:
        """Units whose filter has the hash, by the part that has its blocks."""
        counts = self.head.counts
        units = np.flatnonzero(counts)
        starts = (np.cumsum(counts) - counts)[units]
        # Within the part, what is left of the hash's high half says which block.
        inner = (int(key) >> 32) * len(self.head.checksums) & 0xFFFFFFFF
        moved = np.full(len(units), (inner << 32) | (int(key) & 0xFFFFFFFF), np.uint64)
        index, bits = bit_places(moved, starts, counts[units])
        found = words[index[:, None] + np.arange(WORDS)] & bits
        hit = np.zeros(len(counts), bool)
        hit[units] = (found != 0).all(axis=1)
        return hit

    def describe(self) -> Mapping[str, Any]:
        """What `accel inspect` shows."""
        return {
            "filter_bytes": self.head.part_bytes * len(self.head.checksums),
            "parts": len(self.head.checksums),
            "units": len(self.head.presence),
        }
