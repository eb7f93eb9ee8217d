"""`bloom`: for every page a filter of the values in it, sized by how many there are.

Answers EQ and IN; IS NULL by flags. Costs, for a false-positive rate of 1 %: about 10.5 bits a distinct value of a
page. The filters are split into blocks of 256 bits as Parquet's own are.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from accel.errors import IndexFormatError
from accel.indexes.hashing import hash_natives, hash_values
from accel.indexes.kind import ChunkValues, IndexKind, Level, Presence
from accel.indexes.matrix import sort_distinct
from accel.indexes.native import Tag, code_values, tag_of
from accel.indexes.question import LeafOp, LeafQuestion
from accel.indexes.wire import BlobReader, BlobWriter
from accel.predicate.evidence import Evidence
from accel.records import dataclass

__all__ = ["Bloom", "ParsedBloom"]

Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]
Uint64s = npt.NDArray[np.uint64]

_MAGIC = b"AIBf"
_WORDS = 8
"""32-bit words of a block."""
_SALT = np.array(
    (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31),
    np.uint32,
)
_MANY_KEYS = 1000
"""An IN of more keys passes every filter sooner or later: it is not probed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bloom(IndexKind):
    """Bloom filters of the pages of a high-cardinality column.

    Parameters
    ----------
    fpp : float
        The chance that a page without the value passes, above 0 and below 1.
    """

    name: ClassVar[str] = "bloom"
    version: ClassVar[int] = 1
    levels: ClassVar[frozenset[Level]] = frozenset({Level.PAGE, Level.ROW_GROUP})
    ops: ClassVar[frozenset[LeafOp]] = frozenset({LeafOp.EQ, LeafOp.IN, LeafOp.IS_NULL})

    fpp: float = 0.01

    def __post_init__(self) -> None:
        if not 0 < self.fpp < 1:
            raise ValueError(f"fpp is a chance between 0 and 1, not {self.fpp}")

    def build(self, chunks: Iterable[ChunkValues], *, level: Level) -> bytes:
        (chunk,) = chunks
        presence = Presence.of(chunk, level)
        units = len(presence)
        coded = code_values(chunk.array)
        hashes = hash_values(coded.values)
        valid = coded.codes >= 0
        cells = sort_distinct(chunk.units(level)[valid] * max(len(hashes), 1) + coded.codes[valid])
        owner, code = np.divmod(cells, max(len(hashes), 1))
        counts = _blocks(np.bincount(owner, minlength=units), self.fpp)
        starts = np.concatenate(([0], np.cumsum(counts)))
        words = np.zeros(int(starts[-1]) * _WORDS, np.uint32)
        index, bits = _places(hashes[code], starts[owner], counts[owner])
        for lane in range(_WORDS):
            np.bitwise_or.at(words, index + lane, bits[:, lane])
        out = BlobWriter(_MAGIC)
        out.u32(units)
        out.presence(presence)
        tag = tag_of(coded.values.type)
        out.u32(0 if tag is None else tag)
        out.array(counts, "<u4")
        out.array(words, "<u4")
        return out.bytes()

    def parse(self, data: bytes, *, level: Level, units: int) -> ParsedBloom:
        blob = BlobReader(data, _MAGIC)
        blob.units(units)
        presence = blob.presence(units)
        try:
            tag = Tag(blob.u32())
        except ValueError:
            raise IndexFormatError("a bloom index holds values of an unknown type") from None
        counts = blob.array(units, "<u4").astype(np.int64)
        words = blob.array(int(counts.sum()) * _WORDS, "<u4").astype(np.uint32, copy=False)
        blob.end()
        if bool((presence.value & (counts == 0)).any()):
            raise IndexFormatError("a bloom index has values and no filter for them")
        return ParsedBloom(presence, tag, counts, words, len(data))

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
    return float((weights * (1 - (31 / 32) ** counts) ** _WORDS).sum())


def _places(hashes: Uint64s, starts: Int64s, counts: Int64s) -> tuple[Int64s, npt.NDArray[np.uint32]]:
    """The first word of each hash's block, and the bit of it in each of the eight words."""
    block = ((hashes >> np.uint64(32)) * counts.astype(np.uint64)) >> np.uint64(32)
    low = hashes.astype(np.uint32)
    with np.errstate(over="ignore"):
        bit = (low[:, None] * _SALT) >> np.uint32(27)
    return (starts + block.astype(np.int64)) * _WORDS, np.uint32(1) << bit


@dataclass(frozen=True, slots=True, eq=False)
class ParsedBloom:
    """Filters read back."""

    presence: Presence
    tag: Tag
    counts: Int64s
    """Blocks of each unit's filter."""
    words: npt.NDArray[np.uint32]
    size: int

    @property
    def nbytes(self) -> int:
        return self.size + 8 * len(self.counts) + 256

    def prune(self, question: LeafQuestion) -> Evidence | None:
        if question.op is LeafOp.IS_NULL:
            return self.presence.nulls()
        if question.op not in (LeafOp.EQ, LeafOp.IN) or question.tag is not self.tag:
            return None
        if len(question.values) > _MANY_KEYS:
            return None
        hit = np.zeros(len(self.presence), bool)
        for key in hash_natives(question.values, self.tag):
            hit |= self._probe(key)
        return self.presence.evidence(hit)

    def _probe(self, key: np.uint64) -> Bools:
        """Units whose filter has the hash."""
        units = np.flatnonzero(self.counts)
        counts = self.counts[units]
        starts = (np.cumsum(self.counts) - self.counts)[units]
        index, bits = _places(np.full(len(units), key, np.uint64), starts, counts)
        found = self.words[index[:, None] + np.arange(_WORDS)] & bits
        hit = np.zeros(len(self.counts), bool)
        hit[units] = (found != 0).all(axis=1)
        return hit

    def describe(self) -> Mapping[str, Any]:
        """What `accel inspect` shows."""
        return {"filter_bytes": 4 * len(self.words), "units": len(self.presence)}
