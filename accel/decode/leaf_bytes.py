"""What was fetched of one leaf, and the part of it that some rows need."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from accel.planning.pages import LeafReads, PieceLeaf
from accel.planning.selection import RowSelection
from accel.ranges import Buffer

if TYPE_CHECKING:
    from accel.decode.ahead import Unpacked

__all__ = ["LeafBytes", "narrow_leaf"]


@dataclass(frozen=True, slots=True)
class LeafBytes:
    """What was fetched for one leaf of a piece."""

    dictionary: Buffer | None
    pages: tuple[Buffer, ...]
    """Whole data pages in row order, neighbours back to back, or the whole chunk."""
    ahead: Unpacked | None = None
    """Of a single page, where it was decompressed before it is decoded."""


def narrow_leaf(
    part: PieceLeaf,
    held: LeafBytes,
    *,
    rows: RowSelection,
    memory_limit: int | None,
) -> tuple[PieceLeaf, LeafBytes]:
    """Of the pages that were fetched, those that hold any of `rows`: the others need not be decoded.

    Nor need the page behind a row, once it is seen that it begins with the next one; else it stays, and it is for the
    decoder to find what is wrong. A page of more than `memory_limit` is not looked at.
    """
    reads, lo, hi = part.reads, part.lo, part.hi
    if reads.whole or hi - lo < 2:
        return part, held
    if (
        len(rows.starts) == 1
        and rows.starts[0] < reads.stop_row[lo]
        and reads.first_row[hi - 1] < rows.stops[0]
    ):
        # One run of rows that reaches into the first page and the last.
        return part, held
    keep = rows.counts(reads.first_row[lo:hi], reads.stop_row[lo:hi]) > 0
    runs = [(lo, lo + 1), *part.runs()] if part.carried else part.runs()
    if reads.max_repetition and not keep.all():
        behind = reads.reach(rows).counts(reads.first_row[lo:hi], reads.stop_row[lo:hi]) > 0
        for at in np.flatnonzero(behind & ~keep).tolist():
            run = bisect_right(runs, lo + at, key=itemgetter(0)) - 1
            begin = int(reads.offset[lo + at] - reads.offset[runs[run][0]])
            page = memoryview(held.pages[run])[begin : begin + int(reads.size[lo + at])]
            keep[at] = not _begins_with_row(page, reads, memory_limit)
    if keep.all():
        return part, held
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


def _begins_with_row(page: memoryview, reads: LeafReads, memory_limit: int | None) -> bool:
    from accel.decode.page_begin import page_begins_with_row

    return page_begins_with_row(
        page, codec=reads.codec, max_repetition=reads.max_repetition, memory_limit=memory_limit
    )
