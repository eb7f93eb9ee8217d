"""What was fetched of one leaf, and the part of it that some rows need."""

from __future__ import annotations

import numpy as np

from accel.planning.pages import PieceLeaf
from accel.planning.selection import RowSelection
from accel.ranges import Buffer
from accel.records import dataclass

__all__ = ["LeafBytes", "narrow_leaf"]


@dataclass(frozen=True, slots=True)
class LeafBytes:
    """What was fetched for one leaf of a piece."""

    dictionary: Buffer | None
    pages: tuple[Buffer, ...]
    """Whole data pages in row order, neighbours back to back, or the whole chunk."""


def narrow_leaf(part: PieceLeaf, held: LeafBytes, *, rows: RowSelection) -> tuple[PieceLeaf, LeafBytes]:
    """Of the pages that were fetched, those that hold any of `rows`: the others need not be decoded."""
    reads, lo, hi = part.reads, part.lo, part.hi
    if reads.whole or hi - lo < 2:
        return part, held
    rows = reads.reach(rows)
    if (
        len(rows.starts) == 1
        and rows.starts[0] < reads.stop_row[lo]
        and reads.first_row[hi - 1] < rows.stops[0]
    ):
        # One run of rows that reaches into the first page and the last.
        return part, held
    keep = rows.counts(reads.first_row[lo:hi], reads.stop_row[lo:hi]) > 0
    if keep.all():
        return part, held
    runs = [(lo, lo + 1), *part.runs()] if part.carried else part.runs()
    pages: list[Buffer] = []
    for (start, stop), buffer in zip(runs, held.pages, strict=True):
        view, base = memoryview(buffer), int(reads.offset[start])
        # The pages of a run lie back to back, and so do those that are kept next to each other.
        for first, last in RowSelection.from_mask(keep[start - lo : stop - lo]):
            begin, end = start + first, start + last - 1
            pages.append(
                view[int(reads.offset[begin]) - base : int(reads.offset[end] + reads.size[end]) - base]
            )
    kept = reads.take(lo + np.flatnonzero(keep))
    return PieceLeaf(kept, 0, len(kept.offset), False), LeafBytes(held.dictionary, tuple(pages))
