"""The page index: the locations of a chunk's data pages and the bounds of their values.

Sources: parquet-format `PageIndex.md`, `parquet.thrift` (OffsetIndex, PageLocation, ColumnIndex).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from accel.errors import IndexFormatError, ParquetFormatError
from accel.format.model import ColumnIndex, FileMetadata, OffsetIndex
from accel.format.thrift import (
    BINARY,
    FALSE,
    I16,
    I64,
    LIST,
    STRUCT,
    TRUE,
    ThriftReader,
    read_ints,
    read_zigzags,
)
from accel.ranges import Buffer

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s

__all__ = ["PageIndexMismatchError", "chunk_offset_index", "parse_column_index", "parse_offset_index"]


class PageIndexMismatchError(ParquetFormatError):
    """The pages contradict the page index."""

    def as_index_error(self) -> IndexFormatError:
        """Return it as an IndexFormatError, for callers that cannot read without the index."""
        return IndexFormatError(
            f"the page index contradicts the pages: {self.message}", path=self.path, place=self.place
        )


def parse_offset_index(data: Buffer, *, num_rows: int, lower: int, upper: int) -> OffsetIndex:
    """Parse the OffsetIndex of one column chunk.

    Parameters
    ----------
    data : Buffer
        The Thrift bytes. Fields after the page locations are not read.
    num_rows : int
        Rows of the row group.
    lower, upper : int
        The half-open range of file bytes of the chunk, within which every page must lie.

    Raises
    ------
    IndexFormatError
        The bytes do not decode; a page is empty, lies outside the chunk or overlaps the page before it;
        the first rows do not start at 0 or do not strictly increase below `num_rows`.
    """
    raw = bytes(data)
    try:
        reader = ThriftReader(raw)
        locations = _find_locations(reader)
        offset, size, first_row = _read_locations(reader, locations)
    except (ParquetFormatError, IndexError) as error:
        raise IndexFormatError(_reason(error), place="offset index") from error
    _check_locations(offset, size, first_row, num_rows=num_rows, lower=lower, upper=upper)
    return OffsetIndex(offset, size, first_row)


def chunk_offset_index(data: Buffer, metadata: FileMetadata, row_group: int, leaf: int) -> OffsetIndex:
    """Parse the OffsetIndex of a chunk, with the rows and the range of bytes that the footer gives."""
    chunks = metadata.chunks
    return parse_offset_index(
        data,
        num_rows=int(metadata.group_rows[row_group]),
        lower=int(chunks.start[row_group, leaf]),
        upper=int(chunks.end[row_group, leaf]),
    )


def _reason(error: Exception) -> str:
    return error.message if isinstance(error, ParquetFormatError) else "the data ends early"


def _find_locations(reader: ThriftReader) -> int:
    """Move to the page locations; return their number."""
    for field, ctype in reader.fields():
        if field == 1 and ctype == LIST:
            return reader.list_of(STRUCT)
        reader.skip(ctype)
    reader.fail("no page locations")


def _read_locations(reader: ThriftReader, count: int) -> tuple[Int64s, Int64s, Int64s]:
    rows = np.full((3, count), -1, np.int64)
    for index in range(count):
        row = [-1, -1, -1]
        read_ints(reader, row, slots={1: 0, 2: 1, 3: 2}, handlers={})
        if any(not -1 <= value < 1 << 63 for value in row):
            reader.fail(f"page {index} has the location {row}")
        rows[:, index] = row
    return rows[0], rows[1], rows[2]


def _check_locations(
    offset: Int64s, size: Int64s, first_row: Int64s, *, num_rows: int, lower: int, upper: int
) -> None:
    def refuse(message: str) -> None:
        raise IndexFormatError(message, place="offset index")

    if not len(offset):
        if num_rows:
            refuse(f"no pages for {num_rows} rows")
        return
    # The order of the checks prevents overflow in the sums below.
    if (offset < lower).any() or (offset > upper).any() or (size <= 0).any():
        refuse(f"a page outside of the chunk, bytes {lower}..{upper}, or empty")
    if (size > upper - offset).any():
        refuse(f"a page that reaches beyond the chunk, bytes {lower}..{upper}")
    if (offset[1:] < offset[:-1] + size[:-1]).any():
        refuse("pages that overlap")
    if first_row[0] != 0 or (first_row[1:] <= first_row[:-1]).any() or first_row[-1] >= num_rows:
        refuse(f"first rows that do not increase from 0 to below {num_rows}")


def parse_column_index(data: Buffer, *, num_pages: int) -> ColumnIndex:
    """Parse the ColumnIndex of one column chunk whose offset index has `num_pages` pages.

    Size statistics are skipped. An unknown boundary order counts as unordered, a negative count as
    absent.

    Raises IndexFormatError where the bytes do not decode, or the length of a list is not the number of pages.
    """
    raw = bytes(data)
    reader = ThriftReader(raw)
    order = 0
    nulls: Bools | None = None
    bounds: dict[int, tuple[Int64s, Int64s]] = {}
    counts: dict[int, Int64s] = {}
    try:
        for field, ctype in reader.fields():
            if field == 1 and ctype == LIST:
                nulls = _read_bools(reader, num_pages)
            elif field in (2, 3) and ctype == LIST:
                bounds[field] = _read_spans(reader, _list_size(reader, BINARY, num_pages))
            elif field == 4 and I16 <= ctype <= I64:
                order = reader.zigzag()
            elif field in (5, 8) and ctype == LIST:
                counts[field] = read_zigzags(reader, _list_size(reader, I64, num_pages))
            elif field in (6, 7) and ctype == LIST:
                read_zigzags(reader, reader.list_of(I64))
            else:
                reader.skip(ctype)
    except (ParquetFormatError, IndexError) as error:
        raise IndexFormatError(_reason(error), place="column index") from error
    if nulls is None or len(bounds) != 2:
        raise IndexFormatError("null pages, lower or upper bounds are missing", place="column index")
    absent = np.full(num_pages, -1, np.int64)
    return ColumnIndex(
        null_pages=nulls,
        boundary_order=order if order in (1, 2) else 0,
        null_count=np.maximum(counts.get(5, absent), -1),
        nan_count=np.maximum(counts.get(8, absent), -1),
        blob=raw,
        min_start=bounds[2][0],
        min_length=bounds[2][1],
        max_start=bounds[3][0],
        max_length=bounds[3][1],
    )


def _list_size(reader: ThriftReader, etype: int, num_pages: int) -> int:
    size = reader.list_of(etype)
    if size != num_pages:
        reader.fail(f"{size} entries for {num_pages} pages")
    return size


def _read_bools(reader: ThriftReader, num_pages: int) -> Bools:
    etype, size = reader.list_header()
    if size != num_pages or (size and etype not in (TRUE, FALSE)):
        reader.fail(f"{size} entries of type {etype} for the null pages of {num_pages} pages")
    bools: Bools = np.frombuffer(reader.buf, np.uint8, size, reader.pos) == TRUE
    reader.pos += size
    return bools


def _read_spans(reader: ThriftReader, count: int) -> tuple[Int64s, Int64s]:
    """Read `count` consecutive binaries; return their starts and lengths."""
    buf = reader.buf
    pos = reader.pos
    begins: list[int] = []
    ends: list[int] = []
    for _ in range(count):
        length = buf[pos]
        if length < 128:
            pos += 1
        else:
            reader.pos = pos
            pos, length = reader.span()
        begins.append(pos)
        pos += length
        ends.append(pos)
    reader.pos = pos
    if pos > reader.size:
        reader.fail("the data ends within a binary")
    start = np.array(begins, np.int64)
    return start, np.array(ends, np.int64) - start
