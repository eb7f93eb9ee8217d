"""The lists of decoded leaves, held against the pages that should have them and against those of other leaves.

Rows of which a level was damaged take the values of their neighbours. Where a page, or another leaf, tells how many
there should be, that is seen.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from accel.decode.chunks import ChunkPages
from accel.decode.nested import count_levels, list_sizes
from accel.decode.trim import place_rows
from accel.decode.units import Unit, Verified
from accel.errors import ParquetFormatError
from accel.format.model import ParquetSchema, Repetition
from accel.format.page_index import PageIndexMismatchError
from accel.planning.selection import RowSelection

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = ["Siblings", "check_levels"]


def check_levels(chunk: ChunkPages, array: pa.ChunkedArray, *, page_values: Int64s) -> None:
    """Hold the level values of decoded rows against the pages that should hold these rows.

    Raises
    ------
    ParquetFormatError
        Some page holds others.
    """
    counts = np.concatenate([_levels(part) for part in array.chunks])
    opens = np.cumsum(chunk.stop_rows - chunk.first_rows) - (chunk.stop_rows - chunk.first_rows)
    wrong = np.add.reduceat(counts, opens) != page_values
    if bool(wrong.any()):
        raise PageIndexMismatchError(
            f"data page {int(np.flatnonzero(wrong)[0])} of those read does not hold the rows that the offset index says"
        )


class Siblings:
    """The lists of leaves that are decoded apart and put together to one field, in all rows that are decoded of both.

    Whoever puts them together holds them against each other in the rows that are wanted. These may look right where
    others, before them on their pages, do not.

    Parameters
    ----------
    known : Verified
    units : sequence of Unit
        All that are decoded, each field's in the schema's order.
    wanted : int
        Rows that are wanted of each.
    """

    def __init__(self, known: Verified, units: Sequence[Unit], *, wanted: int) -> None:
        self._known = known
        self._pairs: list[tuple[int, int, int]] = []
        self._depths: dict[int, int] = {}
        self._sizes: dict[int, list[Int64s]] = {}
        for one, other in itertools.pairwise(units):
            if one.field != other.field or one.num_rows == wanted == other.num_rows:
                continue
            leaves = one.leaves[0], other.leaves[0]
            depth = _shared_lists(known.schema, *leaves)
            if depth:
                self._pairs.append((*leaves, depth))
                self._depths.update((leaf, max(depth, self._depths.get(leaf, 0))) for leaf in leaves)

    def add(self, leaf: int, array: pa.ChunkedArray) -> None:
        """All rows of a leaf's pages, decoded."""
        depth = self._depths.get(leaf)
        if depth is not None:
            parts = [list_sizes(part, depth) for part in array.chunks]
            self._sizes[leaf] = [np.concatenate(level) for level in zip(*parts, strict=True)]

    def check(self) -> None:
        """Once all have been added.

        Raises
        ------
        ParquetFormatError
            They do not agree.
        """
        for one, other, depth in self._pairs:
            chunks = self._known.chunks
            common = _rows_of(chunks[one]).intersect(_rows_of(chunks[other]))
            mine, theirs = (_cut(self._sizes[leaf][:depth], chunks[leaf], common) for leaf in (one, other))
            if not all(map(np.array_equal, mine, theirs)):
                raise ParquetFormatError(
                    "the leaves of a nested column do not agree about its lists",
                    place=self._known.place((one, other)),
                )


def _shared_lists(schema: ParquetSchema, one: int, other: int) -> int:
    """How many lists, one in another, two leaves of a field are both in."""
    depth = 0
    for mine, theirs in zip(schema.leaves[one].ancestors, schema.leaves[other].ancestors, strict=False):
        if mine != theirs:
            break
        depth += schema.elements[mine].repetition == Repetition.REPEATED
    return depth


def _rows_of(chunk: ChunkPages) -> RowSelection:
    opens = np.append(True, chunk.first_rows[1:] != chunk.stop_rows[:-1])
    return RowSelection(chunk.first_rows[opens], chunk.stop_rows[np.append(opens[1:], True)])


def _cut(levels: Sequence[Int64s], chunk: ChunkPages, rows: RowSelection) -> list[Int64s]:
    """Of some rows, the sizes of their lists, of the lists in these, and so on."""
    placed = place_rows(chunk, rows)
    starts, stops = placed.starts, placed.stops
    kept: list[Int64s] = []
    for sizes in levels:
        runs = zip(starts.tolist(), stops.tolist(), strict=True)
        kept.append(np.concatenate([sizes[:0], *(sizes[start:stop] for start, stop in runs)]))
        before = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
        starts, stops = before[starts], before[stops]
    return kept


def _levels(array: pa.Array) -> Int64s:
    counts = count_levels(array)
    return np.ones(len(array), np.int64) if counts is None else counts
