"""Page headers: one parsed, or those of a run of pages walked.

Source: parquet-format `parquet.thrift` (PageHeader and the headers in it).
"""

from __future__ import annotations

from array import array

import numpy as np

from accel.errors import ParquetFormatError
from accel.format.chunk import Handler, read_ints
from accel.format.model import PageTable, PageType
from accel.format.thrift import FALSE, STRUCT, TRUE, ThriftReader
from accel.ranges import Buffer
from accel.records import dataclass

__all__ = ["PageHeader", "parse_page_header", "walk_pages"]

# Slots of a header's row.
_TYPE, _UNCOMPRESSED, _COMPRESSED, _CRC, _KIND = range(5)
_VALUES, _NULLS, _ROWS, _ENCODING, _DEFINITION, _REPETITION, _IS_COMPRESSED, _LEVELS = range(5, 13)
_NO_CRC = 1 << 40
_V1_HEAD = b"\x15\x00\x15"
"""The type of a v1 data page, and what comes before its first size."""
_NEXT_I32 = 0x15
_OPENS_AFTER_SIZES, _OPENS_AFTER_CRC = b"\x2c\x15", b"\x1c\x15"
"""The header of a data page, and its first field: the values."""
_LONGEST_ALIKE = 48
_EMPTY = [-1, -1, -1, _NO_CRC, -1, -1, -1, -1, -1, -1, -1, 1, -1]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageHeader:
    """One page header, its numbers checked against each other.

    `type` and `encoding` are numbers as in `PageType` and `Encoding`; other types of page may be
    met and are to be passed over. An index page has no values and encoding -1.
    """

    type: int
    uncompressed_size: int
    """Bytes of the body once decompressed; for v2, levels included."""
    compressed_size: int
    """Bytes of the body as stored."""
    header_length: int
    num_values: int
    """Nulls included; of a dictionary page, its entries."""
    num_rows: int
    """-1 where the page is not v2."""
    num_nulls: int
    """-1 where the page is not v2."""
    encoding: int
    repetition_bytes: int
    """Of v2's repetition levels, which come first and are never compressed; else 0."""
    definition_bytes: int
    """Of v2's definition levels, likewise."""
    is_compressed: bool
    """False only for a v2 page that says so; else it is as the chunk's codec says."""
    crc: int | None
    """CRC-32 of the stored body, unsigned."""
    level_encoding: int
    """Of a v1 page's definition levels; -1 in all others, whose levels are RLE if there are any."""


def parse_page_header(buf: Buffer, pos: int = 0) -> PageHeader:
    """Parse the page header at `pos`; the body need not be in `buf`.

    Raises ParquetFormatError when the bytes do not decode or end early, a size is missing or
    negative, levels are longer than the page, or nulls or rows outnumber the values.
    """
    row, end = _read_row(buf, pos)
    crc = row[_CRC]
    return PageHeader(
        type=row[_TYPE],
        uncompressed_size=row[_UNCOMPRESSED],
        compressed_size=row[_COMPRESSED],
        header_length=end - pos,
        num_values=row[_VALUES],
        num_rows=row[_ROWS],
        num_nulls=row[_NULLS],
        encoding=row[_ENCODING],
        repetition_bytes=row[_REPETITION],
        definition_bytes=row[_DEFINITION],
        is_compressed=bool(row[_IS_COMPRESSED]),
        crc=None if crc == _NO_CRC else crc & 0xFFFFFFFF,
        level_encoding=row[_LEVELS],
    )


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
    size = len(buf)
    table = array("q")
    pos = pages = seen = 0
    tail, is_data = b"", False
    shape: tuple[int, ...] = ()
    while pos < size and (num_values is None or seen < num_values):
        if pages == max_pages:
            raise ParquetFormatError(f"more than {max_pages} pages", place="page headers")
        numbers = _read_numbers(buf, pos, tail) if tail else None
        if numbers is None:
            row, body = _read_row(buf, pos)
            numbers = row[_UNCOMPRESSED], row[_COMPRESSED], row[_CRC], row[_VALUES], body
            shape, is_data = _shape(row), row[_TYPE] in (PageType.DATA_PAGE, PageType.DATA_PAGE_V2)
            more = row[_TYPE] == PageType.DATA_PAGE and body + row[_COMPRESSED] < size
            tail = _tail(buf, pos, numbers) if more else b""
        uncompressed, compressed, crc, values, body = numbers
        end = body + compressed
        if end > size:
            raise ParquetFormatError(
                f"a page of {compressed} bytes where {size - body} are left",
                place=f"page header at byte {pos}",
            )
        if is_data:
            seen += values
        checksum = -1 if crc == _NO_CRC else crc & 0xFFFFFFFF
        table.extend((pos, body, end, uncompressed, checksum, values, *shape))
        pos = end
        pages += 1
    columns = np.array(table, np.int64).reshape(-1, 14).T.copy()
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
        row[_TYPE],
        row[_ROWS],
        row[_NULLS],
        row[_ENCODING],
        row[_DEFINITION] + row[_REPETITION],
        row[_DEFINITION],
        row[_IS_COMPRESSED],
        # No such encoding has a number beyond 127: whatever it was, it is none.
        min(max(row[_LEVELS], -1), 127),
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
        crc, opens = _NO_CRC, _OPENS_AFTER_SIZES
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


def _read_row(buf: Buffer, pos: int) -> tuple[list[int], int]:
    place = f"page header at byte {pos}"
    row = _EMPTY.copy()
    try:
        reader = ThriftReader(buf, pos)
        read_ints(reader, row, slots=_HEADER_INTS, handlers=_HEADER_OTHERS)
        problem = _find_lie(row)
    except IndexError as error:
        raise ParquetFormatError("the page header ends early", place=place) from error
    except ParquetFormatError as error:
        raise error.at(place=place)
    if problem is not None:
        raise ParquetFormatError(problem, place=place)
    return row, reader.pos


def _find_lie(row: list[int]) -> str | None:
    """Check the numbers against each other, and settle those that the type of page does not have."""
    kind = row[_TYPE]
    if not 0 <= kind <= 127:
        return f"no page can be of type {kind}"
    for slot in (_UNCOMPRESSED, _COMPRESSED):
        if not 0 <= row[slot] <= 0x7FFFFFFF:
            return f"no page can have {row[slot]} bytes"
    if not -0x80000000 <= row[_CRC] <= 0xFFFFFFFF and row[_CRC] != _NO_CRC:
        return f"no checksum can be {row[_CRC]}"
    if kind not in _KINDS:
        row[_VALUES] = 0
        row[_NULLS] = row[_ROWS] = row[_ENCODING] = -1
        row[_DEFINITION] = row[_REPETITION] = 0
        return None
    if row[_KIND] != kind:
        return f"a page of type {kind} without its own header"
    if not 0 <= row[_VALUES] <= 0x7FFFFFFF:
        return f"no page can have {row[_VALUES]} values"
    if not 0 <= row[_ENCODING] <= 127:
        return f"no encoding can be {row[_ENCODING]}"
    if kind == PageType.DATA_PAGE_V2:
        levels = row[_DEFINITION], row[_REPETITION]
        if min(levels) < 0 or sum(levels) > min(row[_COMPRESSED], row[_UNCOMPRESSED]):
            return f"levels of {levels[0]} and {levels[1]} bytes in a page of {row[_COMPRESSED]}"
        if not (0 <= row[_NULLS] <= row[_VALUES] and 0 <= row[_ROWS] <= row[_VALUES]):
            return f"{row[_NULLS]} nulls and {row[_ROWS]} rows of {row[_VALUES]} values"
        return None
    if kind == PageType.DATA_PAGE and -1 in (row[_LEVELS], row[_REPETITION]):
        return "a page that does not say how its levels are encoded"
    row[_DEFINITION] = row[_REPETITION] = 0
    return None


def _of_kind(kind: PageType, slots: dict[int, int]) -> Handler:
    def read(reader: ThriftReader, row: list[int]) -> None:
        inner = _EMPTY.copy()
        read_ints(reader, inner, slots=slots, handlers=_V2_FLAGS if kind == PageType.DATA_PAGE_V2 else {})
        if row[_TYPE] == kind or row[_TYPE] == -1:
            row[_KIND] = kind
            row[_VALUES:] = inner[_VALUES:]

    return read


def _is_compressed(value: int) -> Handler:
    def read(reader: ThriftReader, row: list[int]) -> None:
        row[_IS_COMPRESSED] = value

    return read


_KINDS = (PageType.DATA_PAGE, PageType.DICTIONARY_PAGE, PageType.DATA_PAGE_V2)
_V2_FLAGS = {7 << 4 | TRUE: _is_compressed(1), 7 << 4 | FALSE: _is_compressed(0)}
_V2_INTS = {1: _VALUES, 2: _NULLS, 3: _ROWS, 4: _ENCODING, 5: _DEFINITION, 6: _REPETITION}
_HEADER_INTS = {1: _TYPE, 2: _UNCOMPRESSED, 3: _COMPRESSED, 4: _CRC}
_HEADER_OTHERS: dict[int, Handler] = {
    # v1 has an encoding of its repetition levels where v2 has their length: only whether it is there is looked at.
    5 << 4 | STRUCT: _of_kind(PageType.DATA_PAGE, {1: _VALUES, 2: _ENCODING, 3: _LEVELS, 4: _REPETITION}),
    7 << 4 | STRUCT: _of_kind(PageType.DICTIONARY_PAGE, {1: _VALUES, 2: _ENCODING}),
    8 << 4 | STRUCT: _of_kind(PageType.DATA_PAGE_V2, _V2_INTS),
}
