"""Page locations for chunks that have no (usable) offset index, from the page headers met on the way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from accel.errors import AccelError
from accel.format.model import OffsetIndex, PageType
from accel.format.page_runs import walk_pages
from accel.planning.pages import LeafReads
from accel.planning.selection import RowSelection
from accel.ranges import ByteRange

__all__ = ["locate_pages", "page_reads"]


def locate_pages(
    chunk: memoryview, *, start: int, num_rows: int, num_values: int, repeated: bool
) -> OffsetIndex | None:
    """What an offset index would have said of a chunk that was read whole.

    Parameters
    ----------
    chunk : memoryview
        All bytes of the column chunk, its dictionary page included.
    start : int
        Where it begins in the file.
    num_rows : int
        Of the row group.
    num_values : int
        Of the chunk.
    repeated : bool
        The leaf is inside a list: pages of version 1 then do not say how many rows they hold.

    Returns
    -------
    OffsetIndex or None
        None where the headers do not tell rows, or do not add up to `num_rows`: unknown, not an error.
    """
    try:
        pages = walk_pages(chunk, max_pages=max(num_rows, 1) + 1, num_values=num_values)
    except AccelError:
        return None
    data = (pages.type == PageType.DATA_PAGE) | (pages.type == PageType.DATA_PAGE_V2)
    if not data.any():
        return None
    rows = np.where(
        pages.num_rows[data] >= 0, pages.num_rows[data], -1 if repeated else pages.num_values[data]
    )
    # An empty page would share its first row with the next one.
    if bool((rows <= 0).any()) or int(rows.sum()) != num_rows:
        return None
    begin, end = pages.start[data], pages.end[data]
    return OffsetIndex(
        offset=begin + start, size=end - begin, first_row=np.concatenate(([0], np.cumsum(rows)[:-1]))
    )


def page_reads(leaf: LeafReads, index: OffsetIndex, *, rows: RowSelection, num_rows: int) -> LeafReads:
    """The reads of a whole chunk, as reads of its pages."""
    keep = np.flatnonzero(rows.overlaps(index.first_row, num_rows)).astype(np.int64)
    first_page = int(index.offset[0])
    return replace(
        leaf,
        dictionary=ByteRange(leaf.chunk.start, first_page) if leaf.chunk.start < first_page else None,
        dictionary_pages=-1,
        ordinal=keep,
        offset=index.offset[keep],
        size=index.size[keep],
        first_row=index.first_row[keep],
        stop_row=np.append(index.first_row[1:], num_rows)[keep],
        total_pages=index.num_pages,
    )
