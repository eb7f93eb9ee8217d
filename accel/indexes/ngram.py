"""`ngram`: the trigrams (runs of three bytes) of a column's text, and the pages that have each.

It answers LIKE and ILIKE with a literal run of three bytes or more, EQ, IN, and IS NULL by flags. Text is
folded by `str.casefold`, so that all texts that ILIKE treats as equal are equal. It costs 4 bytes for each
trigram that occurs, and about 2 for each page that has it: for varied words a tenth to a half of the
compressed text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from accel.arrays import from_numpy, sort_distinct
from accel.errors import SchemaMismatchError
from accel.indexes.expressions import fold_all, fold_settled
from accel.indexes.kind import ChunkValues, Level, Presence
from accel.indexes.matrix import distinct_cells, keys_per_block
from accel.indexes.native import Tag, code_values, tag_of
from accel.indexes.parts import (
    Directory,
    IndexInParts,
    KeyedPart,
    KeyedParts,
    KindInParts,
    close_head,
    head_length,
    open_head,
    read_directory,
    seal_head,
    write_directory,
)
from accel.indexes.question import LeafOp, LeafQuestion
from accel.indexes.wire import BlobWriter
from accel.predicate.prune import Evidence

if TYPE_CHECKING:
    from accel.arrays import Bools

__all__ = ["Ngram", "ParsedNgram", "UnitGrams", "gram_alternatives"]

Uint32s = npt.NDArray[np.uint32]

_MAGIC = b"AIN3"
_PARTS = KeyedParts(b"AINp", "<u4")
_OPAQUE = "some value of every unit is no text that can be searched in; take bitmap or bloom instead"
PART_KEYS = 512
_GRAMS = 1 << 24
"""The number of trigrams of bytes."""
_MANY_KEYS = 100
"""An IN of more values is not looked up, since each value takes a lookup for every trigram in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ngram(KindInParts):
    """Trigrams of text, for LIKE '%part%'."""

    name: ClassVar[str] = "ngram"
    version: ClassVar[int] = 3
    levels: ClassVar[frozenset[Level]] = frozenset({Level.PAGE, Level.ROW_GROUP})
    ops: ClassVar[frozenset[LeafOp]] = frozenset({LeafOp.LIKE, LeafOp.EQ, LeafOp.IN, LeafOp.IS_NULL})

    def builder(self, *, level: Level) -> _Builder:
        """Start a new index; see `IndexKind.builder`."""
        return _Builder(level)

    def parse_head(self, data: bytes, *, level: Level, units: int) -> ParsedNgram:
        """Parse the head alone; see `IndexKind.parse_head`."""
        return ParsedNgram(_read_head(data, units), {})

    def shortcoming(self, data: bytes, *, units: int) -> str | None:
        """Return why an index rules nothing out but nulls, or None; see `IndexKind.shortcoming`."""
        head = _read_head(data[: head_length(data)], units)
        values = head.presence.value
        return _OPAQUE if bool(values.any()) and bool(head.opaque[values].all()) else None

    @property
    def params(self) -> Mapping[str, Any]:
        """The parameters that the table of contents of a file shows."""
        return {"bytes": 3}


class UnitGrams:
    """Finds the trigrams of units of text; it holds scratch memory between calls."""

    def __init__(self) -> None:
        self._seen = np.zeros(_GRAMS, bool)

    def of(self, chunk: ChunkValues, level: Level) -> tuple[list[Uint32s], list[bool]]:
        """Return the trigrams of each unit, ascending, and whether anything may match in it.

        Raises
        ------
        SchemaMismatchError
            The values are no text.
        """
        coded = code_values(chunk.array)
        if tag_of(coded.values.type) is not Tag.BYTES:
            raise SchemaMismatchError(f"an ngram index is of text, not of {chunk.array.type}")
        starts = chunk.starts(level)
        grams: list[Uint32s] = []
        opaque: list[bool] = []
        for codes in np.split(coded.codes, starts[1:])[: len(starts)]:
            present = distinct_cells(
                np.zeros(int((codes >= 0).sum()), np.int64),
                codes[codes >= 0],
                width=len(coded.values),
                height=1,
            )
            # Invalid text, and text outside of this Python's Unicode, may match in ways that folding does not
            # foresee.
            folded = fold_all(coded.values.take(from_numpy(present)).to_pylist())
            grams.append(self.distinct(_grams(folded or [])))
            opaque.append(folded is None)
        return grams, opaque

    def distinct(self, grams: Uint32s) -> Uint32s:
        """Return each of some trigrams once, ascending."""
        if len(grams) < _GRAMS // 256:
            return sort_distinct(grams)
        self._seen[grams] = True
        found = np.flatnonzero(self._seen).astype(np.uint32)
        self._seen[found] = False
        return found


class _Builder:
    def __init__(self, level: Level) -> None:
        self.level = level
        self.presence: list[Presence] = []
        self.opaque: list[bool] = []
        self.found: list[Uint32s] = []
        """The trigrams of each unit, ascending."""
        self._units = UnitGrams()

    def add(self, chunk: ChunkValues) -> None:
        grams, opaque = self._units.of(chunk, self.level)
        self.found += grams
        self.opaque += opaque
        self.presence.append(Presence.of(chunk, self.level))
        if self.level is not Level.PAGE and len(self.presence) > 1:
            self.presence = [self.presence[0] | self.presence[1]]
            self.opaque = [any(self.opaque)]
            self.found = [self._units.distinct(np.concatenate(self.found))]

    def finish(self) -> bytes:
        presence = Presence.joined(self.presence)
        units = len(presence)
        grams = self._units.distinct(np.concatenate([*self.found, np.zeros(0, np.uint32)]))
        cells = [np.searchsorted(grams, here) * units + unit for unit, here in enumerate(self.found)]
        every = np.sort(np.concatenate([*cells, np.zeros(0, np.int64)]))
        step = max(1, min(PART_KEYS, keys_per_block(units)))
        directory, parts = _PARTS.cut(grams, every, step=step, units=units)
        head = BlobWriter(b"")
        head.u32(units)
        head.presence(presence)
        head.flags(np.array(self.opaque, bool)[:units])
        write_directory(head, directory)
        return seal_head(_MAGIC, head) + b"".join(parts)


def _grams(texts: list[bytes]) -> Uint32s:
    """Return the trigrams within each text, with repeats."""
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
class _Head:
    presence: Presence
    opaque: Bools
    """Units where anything may match: their text is not UTF-8, or a later Unicode may fold it differently."""
    directory: Directory
    length: int

    def spans(self) -> list[tuple[int, int]]:
        """Return the parts as half-open ranges of the whole index's bytes."""
        return self.directory.spans(self.length)


def _read_head(data: bytes, units: int) -> _Head:
    blob = open_head(data, _MAGIC)
    blob.units(units)
    presence, opaque = blob.presence(units), blob.flags(units)
    directory = read_directory(blob)
    close_head(blob)
    return _Head(presence, opaque, directory, len(data))


@dataclass(frozen=True, slots=True, eq=False)
class ParsedNgram(IndexInParts):
    """A parsed ngram index: the head, and some or all parts."""

    head: _Head
    parts: Mapping[int, KeyedPart]

    @property
    def nbytes(self) -> int:
        read = sum(part.nbytes for part in self.parts.values())
        return self.head.length + self.head.directory.nbytes + 2 * read + 512

    def part_numbers(self, question: LeafQuestion) -> list[int]:
        runs = _runs(question)
        if runs is None:
            return []
        grams = _grams([run for each in runs for run in each]).astype(np.uint64)
        numbers: list[int] = sort_distinct(self.head.directory.part_of(grams)).tolist()
        return numbers

    def read_part(self, number: int, data: memoryview) -> KeyedPart:
        return _PARTS.read(data, self.head.directory, number, units=len(self.head.presence))

    def prune(self, question: LeafQuestion) -> Evidence | None:
        presence = self.head.presence
        if question.op is LeafOp.IS_NULL:
            return presence.nulls()
        runs = _runs(question)
        if runs is None:
            return None
        hit = np.zeros(len(presence), bool)
        for each in runs:
            having = self._having(each)
            if having is None:
                return None
            hit |= having
        return presence.evidence(hit | self.head.opaque)

    def _having(self, runs: list[bytes]) -> Bools | None:
        """Return the units that have every trigram of the runs; None where a part was not read."""
        wanted = sort_distinct(_grams(runs))
        out = np.ones(len(self.head.presence), bool)
        numbers = self.head.directory.part_of(wanted.astype(np.uint64))
        for number in sort_distinct(numbers).tolist():
            if number < 0:
                return np.zeros(len(out), bool)
            part = self.parts.get(number)
            if part is None:
                return None
            here = wanted[numbers == number]
            at = np.searchsorted(part.keys, here)
            if int(at[-1]) == len(part.keys) or bool((part.keys[at] != here).any()):
                return np.zeros(len(out), bool)
            out &= part.matrix.all(at.tolist())
        return out

    def describe(self) -> Mapping[str, Any]:
        """Describe the index for `accel inspect`."""
        directory = self.head.directory
        return {
            "grams": int(directory.sizes.sum()),
            "parts": len(directory),
            "units": len(self.head.presence),
        }


def gram_alternatives(question: LeafQuestion) -> list[Uint32s] | None:
    """Return lists of trigrams, each ascending: a passing value has all of one list. None where trigrams
    cannot tell."""
    runs = _runs(question)
    return None if runs is None else [sort_distinct(_grams(each)) for each in runs]


def _runs(question: LeafQuestion) -> list[list[bytes]] | None:
    """Return lists of texts: a passing value contains all texts of one list. None where the index cannot
    tell."""
    if question.tag is not Tag.BYTES:
        return None
    if question.op is LeafOp.LIKE and question.pattern is not None:
        return [_settled(run.encode() for run in question.pattern.runs)]
    if question.op in (LeafOp.EQ, LeafOp.IN) and len(question.values) <= _MANY_KEYS:
        return [_settled([value]) for value in question.values]
    return None


def _settled(texts: Iterable[bytes]) -> list[bytes]:
    """Return the folded texts, without those that another Unicode may fold differently."""
    return [folded for folded in map(fold_settled, texts) if folded is not None]
