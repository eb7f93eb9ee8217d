"""The bytes of one column that were fetched from one row group, and the part of them that some rows need.

Sources: parquet-format `Encodings.md` (levels of data pages; RLE/bit-packed hybrid), `parquet.thrift`
(DataPageHeader, DataPageHeaderV2).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from operator import itemgetter

import numpy as np

from accel.arrays import Int64s
from accel.decode.codecs import check_crc, decompress
from accel.errors import ParquetFormatError
from accel.format.model import Encoding, PageType
from accel.format.page_header import parse_page_header
from accel.format.runs import MOST_BYTES, begins_with_row
from accel.planning.pages import PieceLeaf
from accel.planning.selection import RowSelection
from accel.ranges import Buffer

__all__ = [
    "ChunkPages",
    "LeafBytes",
    "narrow_leaf",
    "page_begins_with_row",
]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChunkPages:
    """Whole data pages of one column chunk, and the rows that each of them holds.

    A chunk that is read without an offset index is one pseudo page: `buffers` is the whole chunk,
    its dictionary page included, `dictionary` is None, `first_rows` is [0] and `stop_rows` is
    [rows of the row group].
    """

    leaf: int
    """The column's ordinal in the file's schema."""
    codec: int
    """As `format.model.Codec`."""
    dictionary: Buffer | None
    """The dictionary page, header included; None where no page here is dictionary-encoded."""
    buffers: tuple[Buffer, ...]
    """Whole data pages, headers included, back to back, in row order."""
    first_rows: Int64s
    """The first row of each data page, counted from the row group's first; ascending."""
    stop_rows: Int64s
    """The row after each data page's last."""
    num_values: int
    """The most level values that these pages have according to the metadata."""
    whole: bool
    """Read without an offset index: the pages and their rows are not listed, and padding may follow them."""

    @property
    def num_rows(self) -> int:
        return int((self.stop_rows - self.first_rows).sum())


@dataclass(frozen=True, slots=True)
class LeafBytes:
    """The bytes that were fetched for one leaf of a piece."""

    dictionary: Buffer | None
    pages: tuple[Buffer, ...]
    """Whole data pages in row order, neighbours back to back, or the whole chunk."""


def narrow_leaf(
    part: PieceLeaf,
    fetched: LeafBytes,
    *,
    rows: RowSelection,
    memory_limit: int | None,
) -> tuple[PieceLeaf, LeafBytes]:
    """Drop the fetched pages that hold none of `rows`.

    The last row of a page inside a list may continue on the next page. That page is dropped too if it begins
    with a new row; a page that would decompress to more than `memory_limit` bytes stays.
    """
    reads, lo, hi = part.reads, part.lo, part.hi
    if reads.whole or hi - lo < 2:
        return part, fetched
    if (
        len(rows.starts) == 1
        and rows.starts[0] < reads.stop_row[lo]
        and reads.first_row[hi - 1] < rows.stops[0]
    ):
        # One run of rows reaches from the first page to the last.
        return part, fetched
    keep = rows.counts(reads.first_row[lo:hi], reads.stop_row[lo:hi]) > 0
    runs = [(lo, lo + 1), *part.runs()] if part.carried else part.runs()
    if reads.max_repetition and not keep.all():
        behind = reads.reach(rows).counts(reads.first_row[lo:hi], reads.stop_row[lo:hi]) > 0
        for at in np.flatnonzero(behind & ~keep).tolist():
            run = bisect_right(runs, lo + at, key=itemgetter(0)) - 1
            begin = int(reads.offset[lo + at] - reads.offset[runs[run][0]])
            page = memoryview(fetched.pages[run])[begin : begin + int(reads.size[lo + at])]
            keep[at] = not page_begins_with_row(
                page, codec=reads.codec, max_repetition=reads.max_repetition, memory_limit=memory_limit
            )
    if keep.all():
        return part, fetched
    pages: list[Buffer] = []
    for (start, stop), buffer in zip(runs, fetched.pages, strict=True):
        view, base = memoryview(buffer), int(reads.offset[start])
        for first, last in RowSelection.from_mask(keep[start - lo : stop - lo]):
            begin, end = start + first, start + last - 1
            pages.append(
                view[int(reads.offset[begin]) - base : int(reads.offset[end] + reads.size[end]) - base]
            )
    narrowed = reads.take(lo + np.flatnonzero(keep))
    return PieceLeaf(narrowed, 0, len(narrowed.offset), False), LeafBytes(fetched.dictionary, tuple(pages))


def page_begins_with_row(
    page: memoryview, *, codec: int, max_repetition: int, memory_limit: int | None = None
) -> bool:
    """Return whether a data page inside a list, header included, begins with a new row.

    It is False where that cannot be determined: the page is damaged, or would decompress to more than
    `memory_limit` bytes.
    """
    try:
        header = parse_page_header(page)
        body = page[header.header_length :]
        if len(body) != header.compressed_size:
            return False
        check_crc(body, header.crc)
    except ParquetFormatError:
        return False
    if header.type == PageType.DATA_PAGE_V2:
        return begins_with_row(body[: header.repetition_bytes], max_repetition)
    if header.type != PageType.DATA_PAGE or header.level_encoding != Encoding.RLE:
        return False
    if memory_limit is not None and header.uncompressed_size > memory_limit:
        return False
    raw = decompress(body, codec, size=header.uncompressed_size)
    if raw is None:
        return False
    length = int.from_bytes(raw[:4].tobytes(), "little")
    return length <= len(raw) - 4 and begins_with_row(
        raw[4 : 4 + min(length, MOST_BYTES)].data, max_repetition
    )
