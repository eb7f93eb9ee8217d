"""Page headers: one, or those of all pages that follow one another.

Source: parquet-format `parquet.thrift` (PageHeader and the headers in it).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from accel.errors import ParquetFormatError
from accel.format.model import PageTable, PageType
from accel.format.thrift import FALSE, STRUCT, TRUE, Handler, ThriftReader, read_ints
from accel.ranges import Buffer

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = [
    "PageHeader",
    "parse_page_header",
    "walk_chunks",
    "walk_pages",
]

# Slots of a header's row.
TYPE, UNCOMPRESSED, COMPRESSED, CRC, KIND = range(5)
VALUES, NULLS, ROWS, ENCODING, DEFINITION, REPETITION, IS_COMPRESSED, LEVELS = range(5, 13)
NO_CRC = 1 << 40
"""The value of the checksum's slot where there is none."""
_EMPTY = [-1, -1, -1, NO_CRC, -1, -1, -1, -1, -1, -1, -1, 1, -1]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageHeader:
    """A page header whose numbers are consistent with each other.

    `type` and `encoding` are numbers as in `PageType` and `Encoding`. Readers skip pages of other
    types. An index page has no values and encoding -1.
    """

    type: int
    uncompressed_size: int
    """Bytes of the decompressed body, including the levels of v2."""
    compressed_size: int
    """Bytes of the body as stored."""
    header_length: int
    num_values: int
    """Values including nulls, or a dictionary page's entries."""
    num_rows: int
    """-1 where the page is not v2."""
    num_nulls: int
    """-1 where the page is not v2."""
    encoding: int
    repetition_bytes: int
    """Bytes of v2's repetition levels, which come first and are never compressed; else 0."""
    definition_bytes: int
    """Bytes of v2's definition levels, which follow."""
    is_compressed: bool
    """False only for a v2 page marked uncompressed; otherwise the chunk's codec applies."""
    crc: int | None
    """CRC-32 of the stored body, unsigned."""
    level_encoding: int
    """Encoding of a v1 page's definition levels; -1 for other pages, whose levels are RLE."""


def parse_page_header(buf: Buffer, pos: int = 0) -> PageHeader:
    """Parse the page header at `pos`; the body need not be in `buf`.

    Raises ParquetFormatError where the bytes do not decode or end early, a size is missing or
    negative, levels are longer than the page, or nulls or rows exceed the values.
    """
    row, end = read_row(buf, pos)
    crc = row[CRC]
    return PageHeader(
        type=row[TYPE],
        uncompressed_size=row[UNCOMPRESSED],
        compressed_size=row[COMPRESSED],
        header_length=end - pos,
        num_values=row[VALUES],
        num_rows=row[ROWS],
        num_nulls=row[NULLS],
        encoding=row[ENCODING],
        repetition_bytes=row[REPETITION],
        definition_bytes=row[DEFINITION],
        is_compressed=bool(row[IS_COMPRESSED]),
        crc=None if crc == NO_CRC else crc & 0xFFFFFFFF,
        level_encoding=row[LEVELS],
    )


def read_row(buf: Buffer, pos: int) -> tuple[list[int], int]:
    """Read and check the header at `pos`; return its numbers by slot, and the offset behind the header."""
    place = f"page header at byte {pos}"
    row = _EMPTY.copy()
    try:
        reader = ThriftReader(buf, pos)
        read_ints(reader, row, slots=_HEADER_INTS, handlers=_HEADER_OTHERS)
        problem = _find_problem(row)
    except IndexError as error:
        raise ParquetFormatError("the page header ends early", place=place) from error
    except ParquetFormatError as error:
        raise error.at(place=place)
    if problem is not None:
        raise ParquetFormatError(problem, place=place)
    return row, reader.pos


def _find_problem(row: list[int]) -> str | None:
    """Return what is inconsistent in the numbers, or None; fill in those that the type of page does not have."""
    kind = row[TYPE]
    if not 0 <= kind <= 127:
        return f"no page can be of type {kind}"
    for slot in (UNCOMPRESSED, COMPRESSED):
        if not 0 <= row[slot] <= 0x7FFFFFFF:
            return f"no page can have {row[slot]} bytes"
    if not -0x80000000 <= row[CRC] <= 0xFFFFFFFF and row[CRC] != NO_CRC:
        return f"no checksum can be {row[CRC]}"
    if kind not in _KINDS:
        row[VALUES] = 0
        row[NULLS] = row[ROWS] = row[ENCODING] = -1
        row[DEFINITION] = row[REPETITION] = 0
        return None
    if row[KIND] != kind:
        return f"a page of type {kind} without its own header"
    if not 0 <= row[VALUES] <= 0x7FFFFFFF:
        return f"no page can have {row[VALUES]} values"
    if not 0 <= row[ENCODING] <= 127:
        return f"no encoding can be {row[ENCODING]}"
    if kind == PageType.DATA_PAGE_V2:
        levels = row[DEFINITION], row[REPETITION]
        if min(levels) < 0 or sum(levels) > min(row[COMPRESSED], row[UNCOMPRESSED]):
            return f"levels of {levels[0]} and {levels[1]} bytes in a page of {row[COMPRESSED]}"
        if not (0 <= row[NULLS] <= row[VALUES] and 0 <= row[ROWS] <= row[VALUES]):
            return f"{row[NULLS]} nulls and {row[ROWS]} rows of {row[VALUES]} values"
        return None
    if kind == PageType.DATA_PAGE and -1 in (row[LEVELS], row[REPETITION]):
        return "a page that does not say how its levels are encoded"
    row[DEFINITION] = row[REPETITION] = 0
    return None


def _of_kind(kind: PageType, slots: dict[int, int]) -> Handler:
    def read(reader: ThriftReader, row: list[int]) -> None:
        inner = _EMPTY.copy()
        read_ints(reader, inner, slots=slots, handlers=_V2_FLAGS if kind == PageType.DATA_PAGE_V2 else {})
        if row[TYPE] == kind or row[TYPE] == -1:
            row[KIND] = kind
            row[VALUES:] = inner[VALUES:]

    return read


def _is_compressed(value: int) -> Handler:
    def read(reader: ThriftReader, row: list[int]) -> None:
        row[IS_COMPRESSED] = value

    return read


_KINDS = (PageType.DATA_PAGE, PageType.DICTIONARY_PAGE, PageType.DATA_PAGE_V2)
_V2_FLAGS = {7 << 4 | TRUE: _is_compressed(1), 7 << 4 | FALSE: _is_compressed(0)}
_V2_INTS = {1: VALUES, 2: NULLS, 3: ROWS, 4: ENCODING, 5: DEFINITION, 6: REPETITION}
_HEADER_INTS = {1: TYPE, 2: UNCOMPRESSED, 3: COMPRESSED, 4: CRC}
_HEADER_OTHERS: dict[int, Handler] = {
    # v1 has the encoding of its repetition levels where v2 has their length; only its presence is checked.
    5 << 4 | STRUCT: _of_kind(PageType.DATA_PAGE, {1: VALUES, 2: ENCODING, 3: LEVELS, 4: REPETITION}),
    7 << 4 | STRUCT: _of_kind(PageType.DICTIONARY_PAGE, {1: VALUES, 2: ENCODING}),
    8 << 4 | STRUCT: _of_kind(PageType.DATA_PAGE_V2, _V2_INTS),
}


_COLUMNS = 14
"""Numbers for each page while the table is built."""


def walk_pages(buf: Buffer, *, max_pages: int, num_values: int | None = None) -> PageTable:
    """Read the headers of consecutive pages, from the first byte of `buf`.

    Parameters
    ----------
    buf : Buffer
        Whole pages: a chunk, or a part of one.
    max_pages : int
        The most pages to accept.
    num_values : int, optional
        Stop once the data pages have this many values; padding may follow. By default pages must fill
        `buf` exactly.

    Raises
    ------
    ParquetFormatError
        As for `parse_page_header`, and where a body exceeds `buf`. The place is the position in `buf`.
    """
    table = array("q")
    _walk(buf, table, max_pages=max_pages, num_values=num_values)
    return _table(table)


def walk_chunks(
    bufs: Sequence[Buffer], *, num_values: Sequence[int | None], max_pages: int
) -> tuple[PageTable, Int64s]:
    """Read the pages of several chunks, or parts of them; return one table, and the number of pages of each.

    Parameters and errors are those of `walk_pages`. Positions are relative to each buffer's first byte.
    """
    table = array("q")
    counts: list[int] = []
    for buf, values in zip(bufs, num_values, strict=True):
        before = len(table)
        _walk(buf, table, max_pages=max_pages, num_values=values)
        counts.append((len(table) - before) // _COLUMNS)
    return _table(table), np.array(counts, np.int64)


def _walk(buf: Buffer, table: array[int], *, max_pages: int, num_values: int | None) -> None:
    """Append the numbers of each page of `buf` to `table`, as `walk_pages` describes."""
    size = len(buf)
    pos = pages = seen = 0
    while pos < size and (num_values is None or seen < num_values):
        if pages == max_pages:
            raise ParquetFormatError(f"more than {max_pages} pages", place="page headers")
        row, body = read_row(buf, pos)
        end = body + row[COMPRESSED]
        if end > size:
            raise ParquetFormatError(
                f"a page of {row[COMPRESSED]} bytes where {size - body} are left",
                place=f"page header at byte {pos}",
            )
        if row[TYPE] in (PageType.DATA_PAGE, PageType.DATA_PAGE_V2):
            seen += row[VALUES]
        checksum = -1 if row[CRC] == NO_CRC else row[CRC] & 0xFFFFFFFF
        level_bytes = row[DEFINITION] + row[REPETITION]
        # No encoding has a number beyond 127: a greater one stands for an unknown encoding.
        level_encoding = min(max(row[LEVELS], -1), 127)
        table.extend((pos, body, end, row[UNCOMPRESSED], checksum, row[VALUES], row[TYPE], row[ROWS]))
        table.extend(
            (row[NULLS], row[ENCODING], level_bytes, row[DEFINITION], row[IS_COMPRESSED], level_encoding)
        )
        pos = end
        pages += 1


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
