"""`bloom`: for every page a filter of the values in it, sized by how many there are.

Answers EQ and IN; IS NULL by flags. Costs, for a false-positive rate of 1 %: about 10.5 bits a distinct value of a
page. The filters are split into blocks of 256 bits as Parquet's own are.
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
from accel.indexes.bloom_parts import (
    FIRST_MAGIC,
    MOST_PARTS,
    WORDS,
    ParsedBloom,
    bit_places,
    encode_bloom,
    parse_first,
    read_head,
)
from accel.indexes.hashing import bits_of_rows, hash_bits, hash_values
from accel.indexes.kind import ChunkValues, IndexKind, Level, Presence
from accel.indexes.matrix import distinct_cells
from accel.indexes.native import Coded, code_values, tag_of
from accel.indexes.parts import head_length
from accel.indexes.question import LeafOp

if TYPE_CHECKING:
    from accel.arrays import Int64s, Uint64s

__all__ = ["Bloom", "ParsedBloom"]


_PART_BYTES = 16 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Bloom(IndexKind):
    """Bloom filters of the pages of a high-cardinality column.

    Parameters
    ----------
    fpp : float
        The chance that a page without the value passes, above 0 and below 1.
    """

    name: ClassVar[str] = "bloom"
    version: ClassVar[int] = 2
    reads: ClassVar[frozenset[int]] = frozenset({1, 2})
    levels: ClassVar[frozenset[Level]] = frozenset({Level.PAGE, Level.ROW_GROUP})
    ops: ClassVar[frozenset[LeafOp]] = frozenset({LeafOp.EQ, LeafOp.IN, LeafOp.IS_NULL})

    fpp: float = 0.01

    def __post_init__(self) -> None:
        if not 0 < self.fpp < 1:
            raise ValueError(f"fpp is a chance between 0 and 1, not {self.fpp}")

    def builder(self, *, level: Level) -> _Builder:
        """A new index in the making."""
        return _Builder(self.fpp, level)

    def head_bytes(self, data: bytes) -> int:
        """The length of the head of an index that was built: what a reader needs before it knows which part."""
        return head_length(data)

    def parse_head(self, data: bytes, *, level: Level, units: int) -> ParsedBloom:
        """Read the head alone; what it wants for a question is then to be added by `with_parts`."""
        return ParsedBloom(read_head(data, units), {})

    def parse(self, data: bytes, *, level: Level, units: int) -> ParsedBloom:
        if data[:4] == FIRST_MAGIC:
            return parse_first(data, units)
        length = head_length(data)
        head = read_head(data[:length], units)
        if len(data) != length + head.part_bytes * len(head.checksums):
            raise IndexFormatError("a bloom index is not as long as its head says")
        found = ParsedBloom(head, {})
        return found.with_parts({(a, b): memoryview(data)[a:b] for a, b in head.spans()})

    @property
    def params(self) -> Mapping[str, Any]:
        return {"fpp": self.fpp}


def _blocks(distinct: npt.NDArray[Any], fpp: float) -> Int64s:
    """Blocks of each filter; one at least where there is a value."""
    return np.ceil(distinct / _load(fpp)).astype(np.int64)


@functools.lru_cache(maxsize=16)
def _load(fpp: float) -> float:
    """Values a block, on average, at which absent values pass with that chance.

    Parquet's own formula takes all blocks to be equally full; they are not, and it comes out up to twice as high.
    """
    low, high = 0.01, 512.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if _rate(middle) <= fpp else (low, middle)
    return low


def _rate(load: float) -> float:
    """The chance to pass in blocks of which each has a Poisson number of values."""
    counts = np.arange(int(load + 12 * math.sqrt(load) + 12))
    weights = np.exp(counts * math.log(load) - load - np.cumsum(np.log(np.maximum(counts, 1))))
    return float((weights * (1 - (31 / 32) ** counts) ** WORDS).sum())


class _Builder:
    """Of the values only their hashes are kept, 8 bytes for each unit that a value stands in."""

    def __init__(self, fpp: float, level: Level) -> None:
        self.fpp = fpp
        self.level = level
        self.presence: list[Presence] = []
        self.hashes: list[Uint64s] = []
        """Distinct ones of each unit, as far as it is known."""
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
        counts = _blocks(np.array([len(each) for each in self.hashes], np.int64), self.fpp)
        count = _part_count(counts)
        counts = -(-counts // count) * count
        starts = np.concatenate(([0], np.cumsum(counts)))
        words = np.zeros(int(starts[-1]) * WORDS, np.uint32)
        for unit, hashes in enumerate(self.hashes):
            # A unit at a time: the bits of all would be many times the filters.
            index, bits = bit_places(hashes, starts[unit], counts[unit])
            for lane in range(WORDS):
                np.bitwise_or.at(words, index + lane, bits[:, lane])
        return encode_bloom(presence, self.tag, words=words, counts=counts // count, parts=count)


def _part_count(counts: Int64s) -> int:
    """A power of two, so that parts have a fair size and filling filters up to a multiple of it costs little."""
    total = int(counts.sum())
    count = 1
    while count < MOST_PARTS and total * WORDS * 4 > 2 * count * _PART_BYTES:
        count *= 2
    while count > 1 and int((-(-counts // count) * count).sum()) > 1.2 * total:
        count //= 2
    return count
