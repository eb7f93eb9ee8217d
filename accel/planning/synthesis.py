"""Page locations for chunks that have no (usable) offset index, from the page headers met on the way.

Source: parquet-format `parquet.thrift` (DataPageHeaderV2: pages begin with a row).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from accel.errors import AccelError
from accel.format.model import OffsetIndex, PageTable, PageType
from accel.format.page_header import walk_pages
from accel.format.runs import begins_with_row
from accel.planning.chunk_pages import pages_holding
from accel.planning.pages import LeafReads
from accel.planning.selection import RowSelection
from accel.ranges import ByteRange

__all__ = ["locate_pages", "page_reads"]


def locate_pages(
    chunk: memoryview, *, start: int, num_rows: int, num_values: int, max_repetition: int
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
    max_repetition : int
        Of the leaf. Inside a list pages of version 1 do not say how many rows they hold.

    Returns
    -------
    OffsetIndex or None
        None where the headers do not tell rows, or do not add up to `num_rows`, or where a page begins within a row:
        unknown, not an error.
    """
    try:
        pages = walk_pages(chunk, max_pages=max(num_rows, 1) + 1, num_values=num_values)
    except AccelError:
        return None
    data = (pages.type == PageType.DATA_PAGE) | (pages.type == PageType.DATA_PAGE_V2)
    if not data.any():
        return None
    rows = np.where(
        pages.num_rows[data] >= 0, pages.num_rows[data], -1 if max_repetition else pages.num_values[data]
    )
    # An empty page would share its first row with the next one.
    if bool((rows <= 0).any()) or int(rows.sum()) != num_rows:
        return None
    if max_repetition and not _begin_with_rows(chunk, pages, max_repetition):
        return None
    begin, end = pages.start[data], pages.end[data]
    return OffsetIndex(
        offset=begin + start, size=end - begin, first_row=np.concatenate(([0], np.cumsum(rows)[:-1]))
    )


def _begin_with_rows(chunk: memoryview, pages: PageTable, max_repetition: int) -> bool:
    """Whether each page of version 2 begins with a row: see `format.runs`."""
    v2 = pages.type == PageType.DATA_PAGE_V2
    lengths = (pages.level_bytes - pages.definition_bytes)[v2]
    return all(
        begins_with_row(chunk[body : body + length], max_repetition)
        for body, length in zip(pages.body[v2].tolist(), lengths.tolist(), strict=True)
    )


def page_reads(leaf: LeafReads, index: OffsetIndex, *, rows: RowSelection, num_rows: int) -> LeafReads:
    """The reads of a whole chunk, as reads of its pages."""
    ordinal, first_row, stop_row, keep = pages_holding(index.first_row, leaf.reach(rows), num_rows)
    first_page = int(index.offset[0])
    return replace(
        leaf,
        dictionary=ByteRange(leaf.chunk.start, first_page) if leaf.chunk.start < first_page else None,
        dictionary_pages=-1,
        ordinal=ordinal,
        offset=index.offset[keep],
        size=index.size[keep],
        first_row=first_row,
        stop_row=stop_row,
        total_pages=index.num_pages,
    )
