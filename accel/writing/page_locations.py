"""Offset indexes for chunks that have none, from their page headers, and offset indexes as bytes.

Sources: parquet-format `PageIndex.md`, `parquet.thrift` (OffsetIndex, PageLocation, PageHeader).
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import numpy as np

from accel.errors import ParquetFormatError
from accel.format.model import OffsetIndex, PageType
from accel.format.page_header import PageHeader, parse_page_header
from accel.format.thrift import I32, I64, LIST, STRUCT, Struct, ThriftList, write_struct
from accel.writing.source import Source

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = ["ChunkPageList", "encode_offset_index", "list_pages"]

_DATA = (PageType.DATA_PAGE, PageType.DATA_PAGE_V2)
# A header holds statistics, whose values may be long; one that is longer than this is damage.
_MOST_HEADER = 16 * 1024 * 1024


class ChunkPageList:
    """The data pages of one chunk, as their headers tell them; arrays over the pages."""

    def __init__(self, columns: Int64s) -> None:
        self.offset: Int64s = columns[0]
        """Of the header, in the file."""
        self.size: Int64s = columns[1]
        """Header and body, as stored."""
        self.num_values: Int64s = columns[2]
        self.num_rows: Int64s = columns[3]
        """-1 where the header does not say: version 1."""

    def locate(self, rows: Int64s, num_rows: int) -> OffsetIndex | None:
        """The offset index, given the rows of each page; None where they do not add up."""
        if not len(rows) or bool((rows <= 0).any()) or int(rows.sum()) != num_rows:
            return None
        return OffsetIndex(self.offset, self.size, np.cumsum(rows) - rows)

    def locate_flat(self, num_rows: int) -> OffsetIndex | None:
        """The same for a column that is not inside a list: its values are its rows."""
        return self.locate(self.num_values, num_rows)

    def locate_versioned(self, num_rows: int) -> OffsetIndex | None:
        """The same where every page says how many rows it holds, as version 2 does."""
        return self.locate(self.num_rows, num_rows)

    def locate_counted(self, levels: Int64s) -> OffsetIndex | None:
        """The same from the number of level values of each row, where pages begin with a row.

        `levels` has one entry a row. None where a page begins within a row.
        """
        ends = np.cumsum(levels)
        stops = np.cumsum(self.num_values)
        if not len(ends) or not len(stops) or int(ends[-1]) != int(stops[-1]):
            return None
        last = np.searchsorted(ends, stops)
        if bool((ends[last] != stops).any()):
            return None
        return self.locate(np.diff(last + 1, prepend=0), len(levels))


def list_pages(source: Source, start: int, *, end: int, num_values: int) -> ChunkPageList | None:
    """Walk the page headers of the chunk at bytes `start..end`; the bodies are not looked at.

    Returns None where they do not add up to the chunk's values.
    """
    table = array("q")
    pos, seen = start, 0
    window = _Window(source, end)
    while seen < num_values and pos < end:
        header = _read_header(window, pos, end - pos)
        if header is None:
            return None
        size = header.header_length + header.compressed_size
        if size > end - pos:
            return None
        if header.type in _DATA:
            seen += header.num_values
            # An empty page would share its first row with the next one.
            if header.num_values:
                table.extend((pos, size, header.num_values, header.num_rows))
        pos += size
    if seen != num_values:
        return None
    return ChunkPageList(np.array(table, np.int64).reshape(-1, 4).T.copy())


class _Window:
    """The bytes of a chunk from some place on, read some way ahead."""

    def __init__(self, source: Source, end: int) -> None:
        self.ahead = source.window
        self._source = source
        self._end = end
        self._start = 0
        self._data = memoryview(b"")

    def at(self, pos: int, size: int) -> memoryview:
        """What begins at `pos`: at least `size` bytes, or all up to the chunk's end."""
        if pos < self._start or min(self._end, pos + size) > self._start + len(self._data):
            [self._data] = self._source.read([(pos, min(self._end, pos + max(size, self.ahead)))])
            self._start = pos
        return self._data[pos - self._start :]


def _read_header(window: _Window, pos: int, left: int) -> PageHeader | None:
    # What is at hand comes first: a header is a few dozen bytes as a rule.
    for size in (64, window.ahead, 16 * window.ahead, _MOST_HEADER):
        data = window.at(pos, min(max(64, size), left))
        try:
            return parse_page_header(data)
        except ParquetFormatError:
            if len(data) >= left:
                return None
    return None


def encode_offset_index(index: OffsetIndex) -> bytes:
    """The OffsetIndex of one chunk in Thrift's compact protocol."""
    rows = zip(index.offset.tolist(), index.size.tolist(), index.first_row.tolist(), strict=True)
    pages: list[Struct] = [
        {1: (I64, offset), 2: (I32, size), 3: (I64, first)} for offset, size, first in rows
    ]
    return write_struct({1: (LIST, ThriftList(STRUCT, pages))})
