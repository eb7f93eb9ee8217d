"""`bitmap`: exactly which pages or ranges of rows have each value.

It answers EQ and IN, and IS NULL by flags. It costs 8 bytes for each distinct value, and 2 to 10 for each
unit that has the value. The bytes are a head, which stays cached, and parts by key, so a lookup of one value
reads one part. The indexes of all row groups can be joined into one, so that a lookup reads one part instead
of one of each row group.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from accel.arrays import sort_distinct
from accel.errors import IndexFormatError
from accel.indexes.kind import ChunkValues, Level, Presence
from accel.indexes.matrix import distinct_cells, keys_per_block
from accel.indexes.native import (
    Tag,
    bits_of,
    bits_of_rows,
    code_values,
    from_natives,
    hash_natives,
    hash_values,
    tag_of,
)
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
from accel.indexes.question import MANY_KEYS, LeafOp, LeafQuestion
from accel.indexes.wire import BlobWriter
from accel.predicate.prune import Evidence

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s, Uint64s

__all__ = ["Bitmap", "ParsedBitmap", "join_bitmaps"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bitmap(KindInParts):
    """The units that have each value of a column.

    Parameters
    ----------
    range_rows : int
        Rows of a range at the row-range level: 1 is exact, more makes the index smaller.
    """

    name: ClassVar[str] = "bitmap"
    version: ClassVar[int] = 1
    joined_version: ClassVar[int] = 2
    levels: ClassVar[frozenset[Level]] = frozenset({Level.PAGE, Level.ROW_RANGE})
    ops: ClassVar[frozenset[LeafOp]] = frozenset({LeafOp.EQ, LeafOp.IN, LeafOp.IS_NULL})

    range_rows: int = 512

    def __post_init__(self) -> None:
        if not 1 <= self.range_rows < 1 << 31:
            raise ValueError(f"range_rows is a number of rows, not {self.range_rows}")

    def builder(self, *, level: Level) -> _Builder:
        """Start a new index; see `IndexKind.builder`."""
        return _Builder(self, level)

    def join(
        self, runs: Sequence[Callable[[int, int], bytes]], *, keep: Callable[[bytes], None]
    ) -> bytes | None:
        """Join the page indexes of all row groups into one of `joined_version`: see `join_bitmaps`."""
        return join_bitmaps(runs, keep=keep)

    def parse_head(self, data: bytes, *, level: Level, units: int) -> ParsedBitmap:
        """Parse the head alone; see `IndexKind.parse_head`."""
        return ParsedBitmap(head=self._head(data, level, units), parts={})

    def _head(self, data: bytes, level: Level, units: int) -> BitmapHead:
        head = read_head(data, rows=units if level is Level.ROW_RANGE else 0)
        if (level is Level.ROW_RANGE) != bool(head.range_rows):
            raise IndexFormatError("a bitmap index is of another level than its entry says")
        if level is not Level.ROW_RANGE and len(head.presence) != units:
            raise IndexFormatError(f"a bitmap index is of {len(head.presence)} units where {units} are")
        return head

    @property
    def params(self) -> Mapping[str, Any]:
        """The parameters that the table of contents of a file shows."""
        return {"range_rows": self.range_rows}


class _Builder:
    """Collects the keys of the values, in 16 bytes for each value in each unit."""

    def __init__(self, kind: Bitmap, level: Level) -> None:
        self.range_rows = kind.range_rows if level is Level.ROW_RANGE else 0
        self.rows = 0
        self.units = 0
        self.null = np.zeros(0, bool)
        self.value = np.zeros(0, bool)
        self.keys: list[Uint64s] = []
        self.places: list[Int64s] = []
        self.tag = 0
        self.exact = True

    def add(self, chunk: ChunkValues) -> None:
        first = self.rows // self.range_rows if self.range_rows else self.units
        if self.range_rows:
            places = (self.rows + np.arange(chunk.num_rows)) // self.range_rows
            self.units = -(-(self.rows + chunk.num_rows) // self.range_rows)
        else:
            places = chunk.units(Level.PAGE) + first
            self.units += len(chunk.starts(Level.PAGE))
        self.rows += chunk.num_rows
        found = bits_of_rows(chunk.array)
        if found is not None:
            keys, valid = found
            self.tag, self.exact = tag_of(chunk.array.type) or 0, True
            self._note(places, valid)
            self.keys.append(keys[valid])
            self.places.append(places[valid])
            return
        coded = code_values(chunk.array)
        self.tag = tag_of(coded.values.type) or 0
        bits = bits_of(coded.values)
        self.exact = bits is not None
        valid = coded.codes >= 0
        self._note(places, valid)
        codes, places = coded.codes[valid], places[valid] - first
        count, width = len(coded.values), max(self.units - first, 1)
        if 2 * count < len(codes):
            # Note values that repeat once for each unit; `_cells` removes the other repeats.
            codes, places = np.divmod(distinct_cells(codes, places, width=width, height=count), width)
        self.keys.append((hash_values(coded.values) if bits is None else bits)[codes])
        self.places.append(places + first)

    def _note(self, places: Int64s, valid: Bools) -> None:
        grown = self.units - len(self.null)
        self.null = np.concatenate([self.null, np.zeros(grown, bool)])
        self.value = np.concatenate([self.value, np.zeros(grown, bool)])
        here = places[valid]
        self.null[places[~valid]] = True
        # Places ascend, so it is enough to set a flag where each begins.
        self.value[here[np.flatnonzero(np.diff(here, prepend=-1))]] = True

    def finish(self) -> bytes:
        units = self.units
        keys, cells = self._cells()
        counts = np.bincount(cells % units, minlength=units) if units else np.zeros(0, np.int64)
        directory, parts = _PARTS.cut(keys, cells, step=keys_per_part(len(keys), units), units=units)
        return encode_head(
            Presence(self.null, self.value),
            range_rows=self.range_rows,
            tag=self.tag,
            exact=self.exact,
            counts=counts,
            directory=directory,
        ) + b"".join(parts)

    def _cells(self) -> tuple[Uint64s, Int64s]:
        """Return the distinct keys and the cells of the matrix that are set, both ascending."""
        if not self.keys:
            return np.zeros(0, np.uint64), np.zeros(0, np.int64)
        all_keys, places = np.concatenate(self.keys), np.concatenate(self.places)
        self.keys, self.places = [], []
        order = np.argsort(all_keys)
        ordered = all_keys[order]
        del all_keys
        new = np.ones(len(ordered), bool)
        new[1:] = ordered[1:] != ordered[:-1]
        keys = ordered[new]
        del ordered
        if len(keys) == len(order):
            return keys, np.arange(len(keys)) * self.units + places[order]
        # A unit may have a value twice, or two values of one hash.
        return keys, sort_distinct((np.cumsum(new) - 1) * self.units + places[order])


_MAGIC = b"AIBm"
_JOINED_MAGIC = b"AIBj"
_PARTS = KeyedParts(b"AIBp", "<u8")
LEAST_PART, MOST_PART = 64, 4096


def keys_per_part(keys: int, units: int) -> int:
    """Return how many keys a part has: few enough for short parts, and enough for a short head."""
    return max(min(max(math.isqrt(2 * keys), LEAST_PART), MOST_PART, keys_per_block(units)), 1)


@dataclass(frozen=True, slots=True, eq=False)
class BitmapHead:
    """The index without its parts."""

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
    """The number of units of each row group, in order, for an index of all row groups; else None."""

    def spans(self) -> list[tuple[int, int]]:
        """Return the parts as half-open ranges of the whole index's bytes."""
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
    """Encode a head."""
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
    """Read a head; `rows` are those of the row group where units are ranges of rows, else 0.

    Raises IndexFormatError for other bytes, and for a head of another number of rows.
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
class ParsedBitmap(IndexInParts):
    """A bitmap index, or its head and some of its parts."""

    head: BitmapHead
    parts: Mapping[int, KeyedPart]

    @property
    def nbytes(self) -> int:
        own = self.head.length + 16 * len(self.head.counts) + 512
        return own + sum(part.nbytes for part in self.parts.values())

    @property
    def group_units(self) -> Int64s | None:
        """The number of units of each row group, for an index of all row groups; else None."""
        return self.head.groups

    @property
    def first_rows(self) -> Int64s | None:
        """Where the ranges of rows start; None where the units are pages."""
        rows = self.head.range_rows
        return np.arange(len(self.head.presence), dtype=np.int64) * rows if rows else None

    def part_numbers(self, question: LeafQuestion) -> list[int]:
        keys = self._keys(question)
        return [] if keys is None else sort_distinct(self.head.directory.part_of(keys)).tolist()

    def read_part(self, number: int, data: memoryview) -> KeyedPart:
        return _PARTS.read(data, self.head.directory, number, units=len(self.head.presence))

    def _keys(self, question: LeafQuestion) -> Uint64s | None:
        if question.op not in (LeafOp.EQ, LeafOp.IN) or question.tag is not self.head.tag:
            return None
        if len(question.values) > MANY_KEYS:
            return None
        if self.head.exact:
            return bits_of(from_natives(list(question.values), self.head.tag))
        return hash_natives(question.values, self.head.tag)

    def prune(self, question: LeafQuestion) -> Evidence | None:
        """Return one entry for each page, or at the row-range level for each range."""
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
        # A unit of nothing but hits proves that all its rows pass only where keys are the values themselves.
        miss = self.head.counts > hits if self.head.exact else None
        return presence.evidence(hits > 0, miss)

    def describe(self) -> Mapping[str, Any]:
        """Describe the index for `accel inspect`."""
        return {
            "keys": int(self.head.directory.sizes.sum()),
            "parts": len(self.head.directory.sizes),
            "units": len(self.head.presence),
            "exact": self.head.exact,
        }


Read = Callable[[int, int], bytes]

AT_ONCE = 1 << 19
"""About how many keys are merged at a time; each takes some 50 bytes."""
_MOST_UNITS = (1 << 31) - 1


def join_bitmaps(runs: Sequence[Read], *, keep: Callable[[bytes], None]) -> bytes | None:
    """Join the page indexes of one column, those of all row groups in order, into one of version 2.

    Parameters
    ----------
    runs : sequence of callables
        A function for each index that returns the bytes of a half-open range of it.
    keep : callable
        Called with the parts of the new index, in order.

    Returns
    -------
    bytes or None
        The head, which comes before the parts. None, before any call of `keep`, where their types differ or
        they have too many pages.
    """
    heads = [_read_head(read) for read in runs]
    groups = np.array([len(head.presence) for head in heads], np.int64)
    units = int(groups.sum())
    alike = len({(head.tag, head.exact, head.range_rows, head.groups is None) for head in heads}) == 1
    if not alike or heads[0].range_rows or heads[0].groups is not None or not 0 < units <= _MOST_UNITS:
        return None
    at_most = sum(int(head.directory.sizes.sum()) for head in heads)
    step = keys_per_part(at_most, units)
    placed: list[Directory] = []
    for keys, cells in _merged(runs, heads, groups):
        directory, parts = _PARTS.cut(keys, cells, step=step, units=units)
        for part in parts:
            keep(part)
        placed.append(directory)
    return encode_head(
        Presence.joined([head.presence for head in heads]),
        range_rows=0,
        tag=heads[0].tag,
        exact=heads[0].exact,
        counts=np.concatenate([head.counts for head in heads]),
        directory=Directory.joined(placed),
        groups=groups,
    )


def _read_head(read: Read) -> BitmapHead:
    return read_head(read(0, head_length(read(0, 8))), rows=0)


def _merged(
    runs: Sequence[Read], heads: Sequence[BitmapHead], groups: Int64s
) -> Iterator[tuple[Uint64s, Int64s]]:
    """Yield runs of distinct ascending keys, each with the cells of its matrix that are set."""
    units = int(groups.sum())
    sources = [
        _Run(read, head, first)
        for read, head, first in zip(runs, heads, (np.cumsum(groups) - groups).tolist(), strict=True)
    ]
    for end in _ends(heads):
        taken = [run.take(end) for run in sources]
        keys = np.concatenate([keys for keys, _ in taken])
        places = np.concatenate([places for _, places in taken])
        if not len(keys):
            continue
        # The units of a key ascend from run to run, and within each.
        order = np.argsort(keys, kind="stable")
        keys, places = keys[order], places[order]
        new = np.ones(len(keys), bool)
        new[1:] = keys[1:] != keys[:-1]
        cells = (np.cumsum(new) - 1) * units
        cells += places
        yield keys[new], cells


def _ends(heads: Sequence[BitmapHead]) -> list[int | None]:
    """Return the keys before which runs of about equal length end; the last is None."""
    firsts = np.concatenate([head.directory.first_keys for head in heads])
    sizes = np.concatenate([head.directory.sizes for head in heads])
    order = np.argsort(firsts, kind="stable")
    stretch = np.cumsum(sizes[order]) // AT_ONCE
    begins = np.flatnonzero(np.diff(stretch) > 0) + 1
    return [*dict.fromkeys(firsts[order][begins].tolist()), None]


class _Run:
    """The parts of one row group's index, read in order."""

    def __init__(self, read: Read, head: BitmapHead, first_unit: int) -> None:
        self._read = read
        self._head = head
        self._spans = head.spans()
        self._first_unit = first_unit
        self._next = 0
        self._keys: Uint64s = np.zeros(0, np.uint64)
        self._places: Int64s = np.zeros(0, np.int64)

    def take(self, end: int | None) -> tuple[Uint64s, Int64s]:
        """Return the keys before `end` that were not returned yet, each repeated for its units, and those
        units."""
        keys, places = [self._keys], [self._places]
        firsts = self._head.directory.first_keys
        while self._next < len(self._spans) and (end is None or int(firsts[self._next]) < end):
            more = self._part(self._next)
            keys.append(more[0])
            places.append(more[1])
            self._next += 1
        all_keys, all_places = np.concatenate(keys), np.concatenate(places)
        stop = len(all_keys) if end is None else int(np.searchsorted(all_keys, np.uint64(end)))
        self._keys, self._places = all_keys[stop:].copy(), all_places[stop:].copy()
        return all_keys[:stop], all_places[:stop]

    def _part(self, number: int) -> tuple[Uint64s, Int64s]:
        begin, end = self._spans[number]
        data = memoryview(self._read(begin, end))
        part = _PARTS.read(data, self._head.directory, number, units=len(self._head.presence))
        rows, units = part.matrix.cells(most=int(self._head.counts.sum()))
        if not len(rows) or int(rows[-1]) >= len(part.keys):
            raise IndexFormatError("a part of a bitmap index has keys without a unit")
        return part.keys[rows], units + self._first_unit
