"""`ngram`: the three-byte runs of a column's text, and the pages that have each.

Answers LIKE and ILIKE with a literal run of three bytes or more, EQ, IN, and IS NULL by flags. Text is
folded as `str.casefold` does, which makes equal whatever ILIKE takes as equal. Costs: 4 bytes a run that occurs and about 2
for each page it occurs in; for words of many kinds a tenth to a half of the compressed text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel.arrays import from_numpy
from accel.errors import IndexFormatError, SchemaMismatchError
from accel.indexes.kind import ChunkValues, IndexKind, Level, Presence
from accel.indexes.matrix import Matrix, sort_distinct, write_matrix
from accel.indexes.native import Tag, code_values, tag_of
from accel.indexes.question import LeafOp, LeafQuestion
from accel.indexes.wire import BlobReader, BlobWriter
from accel.predicate.evidence import Evidence
from accel.records import dataclass

__all__ = ["Ngram", "ParsedNgram"]

Bools = npt.NDArray[np.bool_]
Uint32s = npt.NDArray[np.uint32]

_MAGIC = b"AINg"
_GRAMS = 1 << 24
_MANY_KEYS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Ngram(IndexKind):
    """Trigrams of text, for LIKE '%part%'."""

    name: ClassVar[str] = "ngram"
    version: ClassVar[int] = 1
    levels: ClassVar[frozenset[Level]] = frozenset({Level.PAGE, Level.ROW_GROUP})
    ops: ClassVar[frozenset[LeafOp]] = frozenset({LeafOp.LIKE, LeafOp.EQ, LeafOp.IN, LeafOp.IS_NULL})

    def build(self, chunks: Iterable[ChunkValues], *, level: Level) -> bytes:
        (chunk,) = chunks
        presence = Presence.of(chunk, level)
        coded = code_values(chunk.array)
        if tag_of(coded.values.type) is not Tag.BYTES:
            raise SchemaMismatchError(f"an ngram index is of text, not of {chunk.array.type}")
        starts = chunk.starts(level)
        seen = np.zeros(_GRAMS, bool)
        found: list[Uint32s] = []
        opaque = np.zeros(len(presence), bool)
        for unit, codes in enumerate(np.split(coded.codes, starts[1:])):
            present = sort_distinct(codes[codes >= 0])
            texts = coded.values.take(from_numpy(present))
            try:
                grams = _grams(_folded(texts))
            except UnicodeDecodeError:
                # What is no text may match in ways that folding does not foresee.
                opaque[unit] = True
                grams = np.zeros(0, np.uint32)
            seen[grams] = True
            found.append(np.flatnonzero(seen).astype(np.uint32))
            seen[found[-1]] = False
        grams = sort_distinct(np.concatenate([*found, np.zeros(0, np.uint32)]))
        cells = [np.searchsorted(grams, here) * len(presence) + unit for unit, here in enumerate(found)]
        out = BlobWriter(_MAGIC)
        out.u32(len(presence))
        out.presence(presence)
        out.flags(opaque)
        out.u32(len(grams))
        out.array(grams, "<u4")
        every = np.sort(np.concatenate([*cells, np.zeros(0, np.int64)]))
        write_matrix(out, every, keys=len(grams), units=len(presence))
        return out.bytes()

    def parse(self, data: bytes, *, level: Level, units: int) -> ParsedNgram:
        blob = BlobReader(data, _MAGIC)
        blob.units(units)
        presence = blob.presence(units)
        opaque = blob.flags(units)
        count = blob.u32()
        grams = blob.array(count, "<u4")
        if bool((grams[1:] <= grams[:-1]).any()) or (count and int(grams[-1]) >= _GRAMS):
            raise IndexFormatError("an ngram index has runs out of order")
        matrix = Matrix.read(blob, keys=count, units=units)
        blob.end()
        return ParsedNgram(presence, opaque, grams, matrix, len(data))

    @property
    def params(self) -> Mapping[str, Any]:
        return {"bytes": 3}


def _folded(texts: pa.Array) -> list[bytes]:
    return [
        text.lower() if text.isascii() else text.decode().casefold().encode() for text in texts.to_pylist()
    ]


def _grams(texts: list[bytes]) -> Uint32s:
    """The trigrams of texts, with repeats; none across two texts."""
    data = np.frombuffer(b"".join(texts), np.uint8).astype(np.uint32)
    if len(data) < 3:
        return np.zeros(0, np.uint32)
    grams = (data[:-2] << np.uint32(16)) | (data[1:-1] << np.uint32(8)) | data[2:]
    inside = np.ones(len(data), bool)
    ends = np.cumsum([len(text) for text in texts])
    for back in (1, 2):
        crossing = ends - back
        inside[crossing[crossing >= 0]] = False
    return grams[inside[:-2]]


@dataclass(frozen=True, slots=True, eq=False)
class ParsedNgram:
    """Trigrams read back."""

    presence: Presence
    opaque: Bools
    """Units whose text is not UTF-8: anything may match there."""
    grams: Uint32s
    matrix: Matrix
    size: int

    @property
    def nbytes(self) -> int:
        return 2 * self.size + 256

    def prune(self, question: LeafQuestion) -> Evidence | None:
        if question.op is LeafOp.IS_NULL:
            return self.presence.nulls()
        if question.tag is not Tag.BYTES:
            return None
        if question.op is LeafOp.LIKE and question.pattern is not None:
            runs = question.pattern.runs
            hit = self._having([run.casefold().encode() for run in runs])
        elif question.op in (LeafOp.EQ, LeafOp.IN) and len(question.values) <= _MANY_KEYS:
            hit = np.zeros(len(self.presence), bool)
            for value in question.values:
                hit |= self._having(_question_text(value))
        else:
            return None
        return self.presence.evidence(hit | self.opaque)

    def _having(self, runs: list[bytes]) -> Bools:
        """Units that have every trigram of the runs."""
        wanted = sort_distinct(_grams(runs))
        at = np.searchsorted(self.grams, wanted)
        if bool((at == len(self.grams)).any()) or bool((self.grams[at] != wanted).any()):
            return np.zeros(len(self.presence), bool)
        return self.matrix.all(at.tolist())

    def describe(self) -> Mapping[str, Any]:
        """What `accel inspect` shows."""
        return {"grams": len(self.grams), "units": len(self.presence)}


def _question_text(value: bytes) -> list[bytes]:
    try:
        return [value.decode().casefold().encode()]
    except UnicodeDecodeError:
        return []
