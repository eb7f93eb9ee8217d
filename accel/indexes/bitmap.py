"""`bitmap`: for every value exactly which pages, or ranges of rows, hold it.

Answers EQ and IN, and IS NULL by flags. Costs: 8 bytes a distinct value, and 2 to 10 for each place that a value stands
in. The bytes are a head and parts by key, so that one value is looked up in a large index by reading
the head (which stays cached) and one part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from accel.arrays import sort_distinct
from accel.errors import IndexFormatError
from accel.indexes.bitmap_parts import (
    BitmapHead,
    ParsedBitmap,
    cut_parts,
    encode_head,
    keys_per_part,
    read_head,
)
from accel.indexes.hashing import bits_of, bits_of_rows, hash_values
from accel.indexes.kind import ChunkValues, IndexKind, Level, Presence
from accel.indexes.matrix import distinct_cells
from accel.indexes.native import code_values, tag_of
from accel.indexes.parts import Directory, head_length
from accel.indexes.question import LeafOp

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s, Uint64s

__all__ = ["Bitmap"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bitmap(IndexKind):
    """Where each value of a column stands.

    Parameters
    ----------
    range_rows : int
        At the row-range level, the rows of a range: 1 is exact, more is smaller.
    """

    name: ClassVar[str] = "bitmap"
    version: ClassVar[int] = 1
    joined_version: ClassVar[int] = 2
    reads: ClassVar[frozenset[int]] = frozenset({1, 2})
    levels: ClassVar[frozenset[Level]] = frozenset({Level.PAGE, Level.ROW_RANGE})
    ops: ClassVar[frozenset[LeafOp]] = frozenset({LeafOp.EQ, LeafOp.IN, LeafOp.IS_NULL})

    range_rows: int = 512

    def __post_init__(self) -> None:
        if not 1 <= self.range_rows < 1 << 31:
            raise ValueError(f"range_rows is a number of rows, not {self.range_rows}")

    def builder(self, *, level: Level) -> _Builder:
        """A new index in the making."""
        return _Builder(self, level)

    def head_bytes(self, data: bytes) -> int:
        """The length of the head of an index that was built: what a reader needs before it knows which part."""
        return head_length(data)

    def join(
        self, runs: Sequence[Callable[[int, int], bytes]], *, keep: Callable[[bytes], None]
    ) -> bytes | None:
        """One index of all row groups, of `joined_version`, from those of pages of each: see `join_bitmaps`."""
        from accel.indexes.bitmap_join import join_bitmaps

        return join_bitmaps(runs, keep=keep)

    def parse_head(self, data: bytes, *, level: Level, units: int) -> ParsedBitmap:
        """Read the head alone; what it wants for a question is then to be added by `with_parts`."""
        return ParsedBitmap(head=self._head(data, level, units), parts={})

    def parse(self, data: bytes, *, level: Level, units: int) -> ParsedBitmap:
        length = self.head_bytes(data)
        head = self._head(data[:length], level, units)
        if len(data) != length + head.directory.length:
            raise IndexFormatError("a bitmap index is not as long as its head says")
        found = ParsedBitmap(head=head, parts={})
        return found.with_parts({(a, b): memoryview(data)[a:b] for a, b in head.spans()})

    def _head(self, data: bytes, level: Level, units: int) -> BitmapHead:
        head = read_head(data, rows=units if level is Level.ROW_RANGE else 0)
        if (level is Level.ROW_RANGE) != bool(head.range_rows):
            raise IndexFormatError("a bitmap index is of another level than its entry says")
        if level is not Level.ROW_RANGE and len(head.presence) != units:
            raise IndexFormatError(f"a bitmap index is of {len(head.presence)} units where {units} are")
        return head

    @property
    def params(self) -> Mapping[str, Any]:
        return {"range_rows": self.range_rows}


class _Builder:
    """Of the values only their keys are kept: 16 bytes for each place that a value stands in."""

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
            # Values that repeat are noted once a unit; the few others are sorted out in the end.
            codes, places = np.divmod(distinct_cells(codes, places, width=width, height=count), width)
        self.keys.append((hash_values(coded.values) if bits is None else bits)[codes])
        self.places.append(places + first)

    def _note(self, places: Int64s, valid: Bools) -> None:
        grown = self.units - len(self.null)
        self.null = np.concatenate([self.null, np.zeros(grown, bool)])
        self.value = np.concatenate([self.value, np.zeros(grown, bool)])
        here = places[valid]
        self.null[places[~valid]] = True
        # Places ascend: a flag each where one begins is enough.
        self.value[here[np.flatnonzero(np.diff(here, prepend=-1))]] = True

    def finish(self) -> bytes:
        units = self.units
        keys, cells = self._cells()
        counts = np.bincount(cells % units, minlength=units) if units else np.zeros(0, np.int64)
        step = keys_per_part(len(keys), units)
        cut = list(cut_parts(keys, cells, step=step, units=units))
        sizes, parts = [high - low for low, high, _ in cut], [part for *_, part in cut]
        return encode_head(
            Presence(self.null, self.value),
            range_rows=self.range_rows,
            tag=self.tag,
            exact=self.exact,
            counts=counts,
            directory=Directory.of(keys[::step], np.array(sizes, np.int64), parts),
        ) + b"".join(parts)

    def _cells(self) -> tuple[Uint64s, Int64s]:
        """The distinct keys, ascending, and the cells of the matrix that are set, likewise."""
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
        # A value may stand in a unit twice, and two of one hash.
        return keys, sort_distinct((np.cumsum(new) - 1) * self.units + places[order])
