"""Runs of pages that follow one another, walked header by header.

Source: parquet-format `parquet.thrift` (PageHeader and the headers in it).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from accel.errors import ParquetFormatError
from accel.format.model import PageTable, PageType
from accel.format.page_header import (
    COMPRESSED,
    CRC,
    DEFINITION,
    ENCODING,
    IS_COMPRESSED,
    LEVELS,
    NO_CRC,
    NULLS,
    REPETITION,
    ROWS,
    TYPE,
    UNCOMPRESSED,
    VALUES,
    read_row,
)
from accel.ranges import Buffer

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = ["walk_chunks", "walk_pages"]

_V1_HEAD = b"\x15\x00\x15"
"""The type of a v1 data page, and what comes before its first size."""
_NEXT_I32 = 0x15
_OPENS_AFTER_SIZES, _OPENS_AFTER_CRC = b"\x2c\x15", b"\x1c\x15"
"""The header of a data page, and its first field: the values."""
_LONGEST_ALIKE = 48
_COLUMNS = 14
"""Numbers of a page in a table under way."""

_Alike: TypeAlias = tuple[bytes, tuple[int, ...]]
"""What follows the count of values in the header of a v1 data page, and the numbers of the page that it tells."""
_NOTHING_ALIKE: _Alike = (b"", ())


def walk_pages(buf: Buffer, *, max_pages: int, num_values: int | None = None) -> PageTable:
    """The pages that follow one another in `buf`, from its first byte.

    Parameters
    ----------
    buf : Buffer
        Whole pages: a chunk, or a piece of one.
    max_pages : int
        More pages than this are refused.
    num_values : int, optional
        Stop, as readers of whole chunks do, once the data pages have this many values; what follows
        them is padding. By default pages must fill `buf` exactly.

    Raises
    ------
    ParquetFormatError
        As `parse_page_header`, and when a body reaches beyond `buf`. The place is the position in it.
    """
    table = array("q")
    _walk(buf, table, max_pages=max_pages, num_values=num_values)
    return _table(table)


def walk_chunks(
    bufs: Sequence[Buffer], *, num_values: Sequence[int | None], max_pages: int
) -> tuple[PageTable, Int64s]:
    """The pages of several chunks, or pieces of them, as one table, and how many of them each has.

    Parameters and errors are those of `walk_pages`, for each; positions are relative to its own first byte.
    """
    table = array("q")
    counts: list[int] = []
    alike = _NOTHING_ALIKE
    for buf, values in zip(bufs, num_values, strict=True):
        before = len(table)
        alike = _walk(buf, table, max_pages=max_pages, num_values=values, alike=alike, more=True)
        counts.append((len(table) - before) // _COLUMNS)
    return _table(table), np.array(counts, np.int64)


def _walk(
    buf: Buffer,
    table: array[int],
    *,
    max_pages: int,
    num_values: int | None,
    alike: _Alike = _NOTHING_ALIKE,
    more: bool = False,
) -> _Alike:
    """Add the pages of `buf` to a table, as `walk_pages` says; what the next chunk's may repeat, if `more` are to come."""
    size = len(buf)
    pos = pages = seen = 0
    tail, shape = alike
    while pos < size and (num_values is None or seen < num_values):
        if pages == max_pages:
            raise ParquetFormatError(f"more than {max_pages} pages", place="page headers")
        numbers = _read_numbers(buf, pos, tail) if tail else None
        if numbers is None:
            row, body = read_row(buf, pos)
            numbers = row[UNCOMPRESSED], row[COMPRESSED], row[CRC], row[VALUES], body
            own, is_data = _shape(row), row[TYPE] in (PageType.DATA_PAGE, PageType.DATA_PAGE_V2)
            if row[TYPE] == PageType.DATA_PAGE and (more or body + row[COMPRESSED] < size):
                tail, shape = _tail(buf, pos, numbers), own
        else:
            own, is_data = shape, True
        uncompressed, compressed, crc, values, body = numbers
        end = body + compressed
        if end > size:
            raise ParquetFormatError(
                f"a page of {compressed} bytes where {size - body} are left",
                place=f"page header at byte {pos}",
            )
        if is_data:
            seen += values
        checksum = -1 if crc == NO_CRC else crc & 0xFFFFFFFF
        table.extend((pos, body, end, uncompressed, checksum, values, *own))
        pos = end
        pages += 1
    return tail, shape


def _table(numbers: array[int]) -> PageTable:
    columns = np.array(numbers, np.int64).reshape(-1, _COLUMNS).T.copy()
    return PageTable(
        start=columns[0],
        body=columns[1],
        end=columns[2],
        uncompressed=columns[3],
        crc=columns[4],
        num_values=columns[5],
        type=columns[6].astype(np.int8),
        num_rows=columns[7],
        num_nulls=columns[8],
        encoding=columns[9].astype(np.int8),
        level_bytes=columns[10],
        definition_bytes=columns[11],
        is_compressed=columns[12] != 0,
        level_encoding=columns[13].astype(np.int8),
    )


def _shape(row: list[int]) -> tuple[int, ...]:
    """What of a page's numbers its neighbours may have too."""
    return (
        row[TYPE],
        row[ROWS],
        row[NULLS],
        row[ENCODING],
        row[DEFINITION] + row[REPETITION],
        row[DEFINITION],
        row[IS_COMPRESSED],
        # No such encoding has a number beyond 127: whatever it was, it is none.
        min(max(row[LEVELS], -1), 127),
    )


def _tail(buf: Buffer, pos: int, numbers: tuple[int, int, int, int, int]) -> bytes:
    """What of a v1 data page's header follows the count of its values, as most pages of a chunk repeat it; empty where
    the header is of another form, or long."""
    body = numbers[-1]
    if body - pos > _LONGEST_ALIKE:
        return b""
    head = bytes(buf[pos:body])
    begun = _begin(head)
    return head[begun[4] :] if begun is not None and begun[:4] == numbers[:4] else b""


def _read_numbers(buf: Buffer, pos: int, tail: bytes) -> tuple[int, int, int, int, int] | None:
    """Sizes, checksum and values of a header that ends as the last one did, and where its body begins; None where it
    may not."""
    head = bytes(buf[pos : pos + _LONGEST_ALIKE])
    begun = _begin(head)
    if begun is None or not head.startswith(tail, begun[4]):
        return None
    return (*begun[:4], pos + begun[4] + len(tail))


def _begin(head: bytes) -> tuple[int, int, int, int, int] | None:
    """Both sizes, the checksum and the values of a v1 data page, as writers begin its header with them, and where
    they end."""
    if head[:3] != _V1_HEAD:
        return None
    try:
        uncompressed, at = _read_five(head, 3)
        if head[at] != _NEXT_I32:
            return None
        compressed, at = _read_five(head, at + 1)
        crc, opens = NO_CRC, _OPENS_AFTER_SIZES
        if head[at] == _NEXT_I32:
            number, at = _read_five(head, at + 1)
            crc, opens = (number >> 1) ^ -(number & 1), _OPENS_AFTER_CRC
        if head[at : at + 2] != opens:
            return None
        values, at = _read_five(head, at + 2)
    except IndexError:
        return None
    if (uncompressed | compressed | values) & 1:
        return None
    return uncompressed >> 1, compressed >> 1, crc, values >> 1, at


def _read_five(head: bytes, at: int) -> tuple[int, int]:
    """An unsigned number of 32 bits, and where it ends. Raises IndexError where it has more, or the data ends."""
    byte = head[at]
    if byte < 128:
        return byte, at + 1
    value = byte & 127
    byte = head[at + 1]
    if byte < 128:
        return value | byte << 7, at + 2
    value |= (byte & 127) << 7
    byte = head[at + 2]
    if byte < 128:
        return value | byte << 14, at + 3
    value |= (byte & 127) << 14
    byte = head[at + 3]
    if byte < 128:
        return value | byte << 21, at + 4
    value |= (byte & 127) << 21
    byte = head[at + 4]
    if byte > 15:
        raise IndexError
    return value | byte << 28, at + 5
