"""Which pages of a row group's chunks hold the rows that are wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from accel.format.model import ChunkTable, Encoding, OffsetIndex
from accel.planning.pages import LeafReads
from accel.planning.selection import RowSelection
from accel.ranges import ByteRange

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = ["DICTIONARY_ENCODINGS", "ChunkFacts", "PagesOf", "chunk_facts", "pages_holding"]


DICTIONARY_ENCODINGS = (1 << Encoding.PLAIN_DICTIONARY) | (1 << Encoding.RLE_DICTIONARY)
"""Their bits among `ChunkTable.encodings`."""
_NOTHING = np.empty(0, np.int64)
_new = tuple.__new__
# Ways in which the chunks of a row group are cut into pages, as far as they are remembered.
_MOST_SHAPES = 8


ChunkFacts: TypeAlias = tuple[int, int, int, int, int, int, float]
"""What the footer and the offset index say of one chunk, whatever rows of it are wanted: where its first page is (-1
without an offset index), where it starts and ends; `LeafReads`' codec, dictionary pages, number of values and expansion.

A plain tuple of numbers, which the garbage collector need not follow: files planned by the thousand keep ten each.
"""


def chunk_facts(
    chunks: ChunkTable, first_page: int, row_group: int, column: int, decoded_bytes: int
) -> ChunkFacts:
    """Those of a chunk, of so many bytes once decoded.

    Raises
    ------
    ValueError
        The chunk, or what lies before its first page, has no place in a file.
    """
    at = (row_group, column)
    chunk = ByteRange(chunks.start.item(at), chunks.end.item(at))
    return (
        first_page,
        *chunk,
        chunks.codec.item(at),
        _dictionary_pages(chunks, at) if chunk.start < first_page else 0,
        chunks.num_values.item(at),
        max(1.0, decoded_bytes / max(1, chunks.compressed.item(at))),
    )


class PagesOf:
    """The pages of one row group's chunks that hold some rows.

    Chunks often have their pages begin at the same rows, and then share the array that says so: it is looked at once.
    """

    def __init__(self, rows: RowSelection, num_rows: int) -> None:
        self.all_rows = rows.count == num_rows
        self._rows = rows
        self._num_rows = num_rows
        self._found: list[tuple[Int64s, bool, tuple[Int64s, Int64s, Int64s, slice | Int64s]]] = []

    def reads(
        self,
        facts: ChunkFacts,
        index: OffsetIndex | None,
        leaf: int,
        *,
        for_filter: bool,
        for_output: bool,
        max_repetition: int,
    ) -> LeafReads:
        """What one chunk must be asked for so that the rows can be decoded."""
        first_page, start, end, codec, dictionary_pages, num_values, expansion = facts
        if index is None:
            ordinal = offset = size = first = stop = _NOTHING
            total = 0
        else:
            ordinal, first, stop, keep = self._pages(index.first_row, max_repetition > 0)
            offset, size, total = index.offset, index.size, len(index.offset)
            if len(ordinal) != total:
                offset, size = offset[keep], size[keep]
        return LeafReads(
            leaf,
            leaf,
            codec,
            # Ranges were made of these before.
            _new(ByteRange, (start, end)),
            _new(ByteRange, (start, first_page)) if start < first_page else None,
            dictionary_pages,
            num_values,
            expansion,
            for_filter,
            for_output,
            max_repetition,
            ordinal,
            offset,
            size,
            first,
            stop,
            total,
        )

    def _pages(self, first_row: Int64s, repeated: bool) -> tuple[Int64s, Int64s, Int64s, slice | Int64s]:
        for known, same, found in self._found:
            if known is first_row and same is repeated:
                return found
        rows = self._rows.grown() if repeated else self._rows  # as `LeafReads.reach` has it
        found = pages_holding(first_row, rows, self._num_rows)
        if len(self._found) < _MOST_SHAPES:
            self._found.append((first_row, repeated, found))
        return found


def pages_holding(
    first_row: Int64s, rows: RowSelection, num_rows: int
) -> tuple[Int64s, Int64s, Int64s, slice | Int64s]:
    """The pages that hold some rows: ordinals, first rows, stop rows, and their places among those that start at `first_row`."""
    keep = rows.units(first_row, num_rows)
    if not isinstance(keep, slice):
        return keep, first_row[keep], np.append(first_row[1:], num_rows)[keep], keep
    lo, hi = keep.start, keep.stop
    if hi < len(first_row):
        stop = first_row[lo + 1 : hi + 1]
    else:
        stop = np.empty(hi - lo, np.int64)
        stop[:-1] = first_row[lo + 1 :]
        stop[-1:] = num_rows
    return np.arange(lo, hi), first_row[keep], stop, keep


def _dictionary_pages(chunks: ChunkTable, at: tuple[int, int]) -> int:
    known = int(chunks.dictionary_pages[at])
    if known >= 0:
        return known
    return -1 if int(chunks.encodings[at]) & DICTIONARY_ENCODINGS else 0
