"""`bloom`: a filter of the values of each page, sized by their number.

It answers EQ and IN, and IS NULL by flags. At a false-positive rate of 1 %, it costs about 10.5 bits for each
distinct value of a page. The filters consist of blocks of 256 bits, as Parquet's own do. The bytes are a
head, and parts by hash; each part has some blocks of every unit's filter.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from accel.arrays import sort_distinct
from accel.errors import IndexFormatError
from accel.format.bloom import SALT
from accel.indexes.kind import ChunkValues, Level, Presence
from accel.indexes.matrix import distinct_cells
from accel.indexes.native import (
    Coded,
    Tag,
    bits_of_rows,
    code_values,
    hash_bits,
    hash_natives,
    hash_values,
    tag_of,
)
from accel.indexes.parts import IndexInParts, KindInParts, check_part, close_head, open_head, seal_head
from accel.indexes.question import MANY_KEYS, LeafOp, LeafQuestion
from accel.indexes.wire import BlobWriter
from accel.predicate.prune import Evidence

if TYPE_CHECKING:
    import pyarrow as pa

    from accel.arrays import Bools, Int64s, Uint64s

__all__ = [
    "MOST_PARTS",
    "WORDS",
    "Bloom",
    "ParsedBloom",
    "block_counts",
    "probe_part",
    "set_bits",
    "value_hashes",
]

_PART_BYTES = 16 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Bloom(KindInParts):
    """Bloom filters of the pages of a high-cardinality column.

    Parameters
    ----------
    fpp : float
        The probability that a page without the value passes, above 0 and below 1.
    """

    name: ClassVar[str] = "bloom"
    version: ClassVar[int] = 2
    levels: ClassVar[frozenset[Level]] = frozenset({Level.PAGE, Level.ROW_GROUP})
    ops: ClassVar[frozenset[LeafOp]] = frozenset({LeafOp.EQ, LeafOp.IN, LeafOp.IS_NULL})

    fpp: float = 0.01

    def __post_init__(self) -> None:
        if not 0 < self.fpp < 1:
            raise ValueError(f"fpp is a probability between 0 and 1, not {self.fpp}")

    def builder(self, *, level: Level) -> _Builder:
        """Start a new index; see `IndexKind.builder`."""
        return _Builder(self.fpp, level)

    def parse_head(self, data: bytes, *, level: Level, units: int) -> ParsedBloom:
        """Parse the head alone; see `IndexKind.parse_head`."""
        return ParsedBloom(read_head(data, units), {})

    @property
    def params(self) -> Mapping[str, Any]:
        """The parameters that the table of contents of a file shows."""
        return {"fpp": self.fpp}


@functools.lru_cache(maxsize=16)
def _load(fpp: float) -> float:
    """Return the mean number of values of a block at which absent values pass with this probability.

    Parquet's own formula assumes equally full blocks; since they are not, its rate comes out up to twice as
    high.
    """
    low, high = 0.01, 512.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if _rate(middle) <= fpp else (low, middle)
    return low


def _rate(load: float) -> float:
    """Return the probability to pass, in blocks that each have a Poisson number of values."""
    counts = np.arange(int(load + 12 * math.sqrt(load) + 12))
    weights = np.exp(counts * math.log(load) - load - np.cumsum(np.log(np.maximum(counts, 1))))
    return float((weights * (1 - (31 / 32) ** counts) ** WORDS).sum())


class _Builder:
    """Collects the hashes of the values, in 8 bytes for each value in each unit."""

    def __init__(self, fpp: float, level: Level) -> None:
        self.fpp = fpp
        self.level = level
        self.presence: list[Presence] = []
        self.hashes: list[Uint64s] = []
        """The distinct hashes of each unit."""
        self.tag = 0

    def add(self, chunk: ChunkValues) -> None:
        here = Presence.of(chunk, self.level)
        self.presence.append(here)
        rows = bits_of_rows(chunk.array)
        if rows is None:
            self._add_distinct(code_values(chunk.array), chunk, here)
        else:
            bits, valid = rows
            self.tag = tag_of(chunk.array.type) or 0
            owner = chunk.units(self.level)[valid]
            parts = np.split(hash_bits(bits[valid]), np.searchsorted(owner, np.arange(1, len(here))))
            self.hashes += [sort_distinct(part) for part in parts[: len(here)]]
        if self.level is not Level.PAGE and len(self.presence) > 1:
            self.presence = [self.presence[0] | self.presence[1]]
            self.hashes = [sort_distinct(np.concatenate(self.hashes))]

    def _add_distinct(self, coded: Coded, chunk: ChunkValues, here: Presence) -> None:
        self.tag = tag_of(coded.values.type) or 0
        hashes = hash_values(coded.values)
        valid = coded.codes >= 0
        cells = distinct_cells(
            chunk.units(self.level)[valid], coded.codes[valid], width=max(len(hashes), 1), height=len(here)
        )
        owner, code = np.divmod(cells, max(len(hashes), 1))
        self.hashes += np.split(hashes[code], np.searchsorted(owner, np.arange(1, len(here))))[: len(here)]

    def finish(self) -> bytes:
        presence = Presence.joined(self.presence)
        counts = block_counts(np.array([len(each) for each in self.hashes], np.int64), self.fpp)
        count = part_count(counts)
        counts = -(-counts // count) * count
        starts = np.concatenate(([0], np.cumsum(counts)))
        words = np.zeros(int(starts[-1]) * WORDS, np.uint32)
        for unit, hashes in enumerate(self.hashes):
            # One unit at a time, since the bits of all units would take many times the size of the filters.
            set_bits(words, hashes, int(starts[unit]), int(counts[unit]))
        return encode_bloom(presence, self.tag, words=words, counts=counts // count, parts=count)


def part_count(counts: Int64s) -> int:
    """Return a power of two that gives parts a fair size and costs little padding of the filters to a
    multiple."""
    total = int(counts.sum())
    count = 1
    while count < MOST_PARTS and total * WORDS * 4 > 2 * count * _PART_BYTES:
        count *= 2
    while count > 1 and int((-(-counts // count) * count).sum()) > 1.2 * total:
        count //= 2
    return count


_MAGIC = b"AIB2"
MOST_PARTS = 1 << 12
WORDS = 8
"""32-bit words of a block."""


def bit_places(hashes: Uint64s, starts: Any, counts: Any) -> tuple[Int64s, npt.NDArray[np.uint32]]:
    """Return the first word of each hash's block, and the bit of it in each of the eight words.

    `starts` and `counts` are the number of blocks before and in the filter, of each hash or of all.
    """
    block = ((hashes >> np.uint64(32)) * np.asarray(counts).astype(np.uint64)) >> np.uint64(32)
    low = hashes.astype(np.uint32)
    with np.errstate(over="ignore"):
        bit = (low[:, None] * SALT) >> np.uint32(27)
    return (starts + block.astype(np.int64)) * WORDS, np.uint32(1) << bit


def probe_part(key: np.uint64, words: npt.NDArray[np.uint32], counts: Int64s, *, parts: int) -> Bools:
    """Return which filters have a hash.

    Parameters
    ----------
    key : uint64
        The hash.
    words : array of uint32
        The part of each filter that has the hash's block, one after the other.
    counts : array of int64
        The number of blocks of each.
    parts : int
        The number of parts of every filter.
    """
    units = np.flatnonzero(counts)
    starts = (np.cumsum(counts) - counts)[units]
    # The rest of the hash's high half selects the block within the part.
    inner = (int(key) >> 32) * parts & 0xFFFFFFFF
    moved = np.full(len(units), (inner << 32) | (int(key) & 0xFFFFFFFF), np.uint64)
    index, bits = bit_places(moved, starts, counts[units])
    found = words[index[:, None] + np.arange(WORDS)] & bits
    hit = np.zeros(len(counts), bool)
    hit[units] = (found != 0).all(axis=1)
    return hit


def set_bits(words: npt.NDArray[np.uint32], hashes: Uint64s, start: int, count: int) -> None:
    """Add hashes to a filter of `count` blocks that begins at block `start`."""
    index, bits = bit_places(hashes, start, count)
    for word in range(WORDS):
        np.bitwise_or.at(words, index + word, bits[:, word])


def block_counts(distinct: Int64s, fpp: float) -> Int64s:
    """Return the number of blocks of filters of so many values, at least one where there is a value."""
    return np.ceil(distinct / _load(fpp)).astype(np.int64)


def value_hashes(array: pa.Array) -> Uint64s:
    """Return the hashes of the values of a column, ascending, each once."""
    rows = bits_of_rows(array)
    if rows is not None:
        bits, valid = rows
        return sort_distinct(hash_bits(bits[valid]))
    return sort_distinct(hash_values(code_values(array).values))


def encode_bloom(
    presence: Presence, tag: int, *, words: npt.NDArray[np.uint32], counts: Int64s, parts: int
) -> bytes:
    """Encode an index.

    Parameters
    ----------
    words : array of uint32
        The concatenated filters.
    counts : array of int64
        The number of blocks of each filter in each part.
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
        """Return the parts as half-open ranges of the whole index's bytes."""
        size = self.part_bytes
        return [(self.length + n * size, self.length + (n + 1) * size) for n in range(len(self.checksums))]

    def part_of(self, hashes: Uint64s) -> list[int]:
        """Return the number of the part with each hash's blocks, which is the same for every filter."""
        found: list[int] = (
            ((hashes >> np.uint64(32)) * np.uint64(len(self.checksums))) >> np.uint64(32)
        ).tolist()
        return found


def read_head(data: bytes, units: int) -> BloomHead:
    """Read a head; raises IndexFormatError for other bytes, and for a head of another number of units."""
    blob = open_head(data, _MAGIC)
    blob.units(units)
    presence = blob.presence(units)
    try:
        tag = Tag(blob.u32())
    except ValueError:
        raise IndexFormatError("a bloom index holds values of an unknown type") from None
    counts = blob.array(units, "<u4").astype(np.int64)
    if bool((presence.value & (counts == 0)).any()):
        raise IndexFormatError("a bloom index has values and no filter for them")
    parts = blob.u32()
    if not 1 <= parts <= MOST_PARTS:
        raise IndexFormatError(f"a bloom index of {parts} parts")
    checksums = blob.array(parts, "<u8").astype(np.uint64)
    close_head(blob)
    return BloomHead(presence, tag, counts, checksums, len(data))


@dataclass(frozen=True, slots=True, eq=False)
class ParsedBloom(IndexInParts):
    """A parsed bloom index: the head, and some or all parts."""

    head: BloomHead
    parts: Mapping[int, npt.NDArray[np.uint32]]

    @property
    def nbytes(self) -> int:
        own = self.head.length + 16 * len(self.head.counts) + 256
        return own + sum(words.nbytes for words in self.parts.values())

    def part_numbers(self, question: LeafQuestion) -> list[int]:
        hashes = self._hashes(question)
        if hashes is None or not self.head.part_bytes:
            return []
        return sorted(set(self.head.part_of(hashes)))

    def read_part(self, number: int, data: memoryview) -> npt.NDArray[np.uint32]:
        check_part(data, self.head.checksums[number])
        if len(data) != self.head.part_bytes:
            raise IndexFormatError("a part of a bloom index has a wrong length")
        return np.frombuffer(bytes(data), "<u4").astype(np.uint32, copy=False)

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
        """Return the units whose filter has the hash; `words` are the part with its blocks."""
        return probe_part(key, words, self.head.counts, parts=len(self.head.checksums))

    def describe(self) -> Mapping[str, Any]:
        """Describe the index for `accel inspect`."""
        return {
            "filter_bytes": self.head.part_bytes * len(self.head.checksums),
            "parts": len(self.head.checksums),
            "units": len(self.head.presence),
        }
