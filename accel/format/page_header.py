"""Page headers: one, or those of all pages that follow one another.

Source: parquet-format `parquet.thrift` (PageHeader and the headers in it).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

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
    "parse_sole_page",
    "walk_chunks",
    "walk_pages",
]

# Slots of a header's row.
TYPE, UNCOMPRESSED, COMPRESSED, CRC, KIND = range(5)
VALUES, NULLS, ROWS, ENCODING, DEFINITION, REPETITION, IS_COMPRESSED, LEVELS = range(5, 13)
NO_CRC = 1 << 40
"""The value of the checksum's slot where there is none."""
_EMPTY = [-1, -1, -1, NO_CRC, -1, -1, -1, -1, -1, -1, -1, 1, -1]


class PageHeader(NamedTuple):
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
    known = _read_front(bytes(memoryview(buf)[pos : pos + _FRONT]))
    if known is not None:
        return _header(*known[:2])
    row, end = read_row(buf, pos)
    return _header(row, end - pos)


def parse_sole_page(buf: Buffer) -> PageHeader:
    """Parse the header of the one page that fills `buf`.

    Parameters
    ----------
    buf : Buffer
        Not empty.

    Raises
    ------
    ParquetFormatError
        As for `walk_pages` with one page.
    """
    sole = _known_sole(buf)
    if sole is not None:
        return sole.header
    row, body = read_row(buf, 0)
    if body + row[COMPRESSED] != len(buf):
        _check_end(row[COMPRESSED], at=0, left=len(buf) - body)
        raise _too_many(1)
    return _header(row, body)


def _header(row: list[int], length: int) -> PageHeader:
    crc = row[CRC]
    return PageHeader(
        type=row[TYPE],
        uncompressed_size=row[UNCOMPRESSED],
        compressed_size=row[COMPRESSED],
        header_length=length,
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
    """Return what is inconsistent in the numbers, or None; fill in those that the type of page does not
    have."""
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


_COLUMNS = len(PageTable._fields)
MIN_BATCH_CHUNKS: Final = 96
"""Fewest chunks whose headers are read together; reading fewer one by one is faster."""


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
    sole = _known_sole(buf) if num_values is None and max_pages else None
    if sole is not None:
        return sole.table
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
    counts = np.zeros(len(bufs), np.int64)
    if len(bufs) < MIN_BATCH_CHUNKS:
        left: Sequence[int] = range(len(bufs))
    else:
        from accel.format.page_header_batch import walk_usual

        numbers, owners, is_left = walk_usual(bufs, num_values=num_values, max_pages=max_pages)
        counts += np.bincount(owners, minlength=len(bufs))
        left = np.flatnonzero(is_left).tolist()
    for chunk in left:
        before = len(table)
        _walk(bufs[chunk], table, max_pages=max_pages, num_values=num_values[chunk])
        counts[chunk] = (len(table) - before) // _COLUMNS
    rest = _table(table)
    if len(left) == len(bufs):
        return rest, counts
    order = np.argsort(np.concatenate((owners, np.repeat(left, counts[left]))), kind="stable")
    return PageTable._make(np.concatenate((numbers, rest), axis=1)[:, order]), counts


def _walk(buf: Buffer, table: array[int], *, max_pages: int, num_values: int | None) -> None:
    """Append the numbers of each page of `buf` to `table`, as `walk_pages` describes."""
    size, view = len(buf), memoryview(buf)
    pos = pages = seen = 0
    are_short = True
    while pos < size and (num_values is None or seen < num_values):
        if pages == max_pages:
            raise _too_many(max_pages)
        known = _read_front(bytes(view[pos : pos + _FRONT])) if are_short else None
        if known is None:
            # Where one header is long, so are the others.
            are_short = False
            row, body = read_row(buf, pos)
            numbers = _numbers(row)
        else:
            row, length, numbers = known
            body = pos + length
        end = body + row[COMPRESSED]
        if end > size:
            _check_end(row[COMPRESSED], at=pos, left=size - body)
        if row[TYPE] in _DATA:
            seen += row[VALUES]
        table.append(pos)
        table.append(body)
        table.append(end)
        table.extend(numbers)  # arrays are copied into arrays as they are
        pos = end
        pages += 1


_DATA: Final = (int(PageType.DATA_PAGE), int(PageType.DATA_PAGE_V2))


def _numbers(row: list[int]) -> array[int]:
    """Return the numbers of one page in the order of a PageTable's columns, behind those of its place."""
    checksum = -1 if row[CRC] == NO_CRC else row[CRC] & 0xFFFFFFFF
    level_bytes = row[DEFINITION] + row[REPETITION]
    # No encoding has a number beyond 127: a greater one stands for an unknown encoding.
    level_encoding = min(max(row[LEVELS], -1), 127)
    numbers = (
        *(row[UNCOMPRESSED], checksum, row[VALUES], row[TYPE], row[ROWS], row[NULLS], row[ENCODING]),
        *(level_bytes, row[DEFINITION], row[IS_COMPRESSED], level_encoding),
    )
    return array("q", numbers)


class _SolePage(NamedTuple):
    """What is known of a page that fills its buffer."""

    table: PageTable
    header: PageHeader


_FRONT: Final = 96
"""Bytes that hold any header without statistics, which writers of page indexes leave out."""


def _known_sole(buf: Buffer) -> _SolePage | None:
    """Return the facts of the one page that fills `buf`; None where there is no such page, or its header is
    long.

    They are remembered by the first bytes of the page, header and all: lookups come back to the same pages.
    """
    size = len(buf)
    return _read_sole(bytes(memoryview(buf)[:_FRONT]), size) if size else None


@lru_cache(4096)
def _read_front(front: bytes) -> tuple[list[int], int, array[int]] | None:
    """Return what `read_row` and `_numbers` do; None where the header is longer, or damaged: whoever reads
    all of it says which. None of it is to be changed."""
    try:
        row, length = read_row(front, 0)
    except ParquetFormatError:
        return None
    return row, length, _numbers(row)


@lru_cache(1024)
def _read_sole(front: bytes, size: int) -> _SolePage | None:
    """Read the header at the beginning of a page of `size` bytes."""
    known = _read_front(front)
    if known is None:
        return None
    row, body, numbers = known
    if body + row[COMPRESSED] != size:
        return None
    columns = _table(array("q", (0, body, size, *numbers)))
    for column in columns:
        column.flags.writeable = False
    return _SolePage(columns, _header(row, body))


def _too_many(max_pages: int) -> ParquetFormatError:
    return ParquetFormatError(f"more than {max_pages} pages", place="page headers")


def _check_end(size: int, *, at: int, left: int) -> None:
    """Refuse a body of more bytes than are left behind its header."""
    if size > left:
        raise ParquetFormatError(
            f"a page of {size} bytes where {left} are left", place=f"page header at byte {at}"
        )


def _table(numbers: array[int]) -> PageTable:
    columns = np.array(numbers, np.int64).reshape(-1, _COLUMNS).T.copy()
    return PageTable._make(columns)
