"""Headers of many pages read at once, where the offset index says where each of them lies.

Read one by one they cost as much as a small page takes to decode. Nearly all data pages have a header of one form: a v1
page's, without statistics, in the order of the fields' numbers. Those of all columns of a call are read in lockstep, a
lane each; a header of any other form, or that ends its page elsewhere than the offset index does, leaves its
neighbours to `walk_pages`, which gives the same tables.

Source: parquet-format `parquet.thrift` (PageHeader, DataPageHeader); Thrift's compact protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from accel.decode.chunks import ChunkPages
from accel.format.model import PageTable
from accel.ranges import Buffer

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s

__all__ = ["LEAST_PAGES", "read_lone", "read_tables"]

Words: TypeAlias = npt.NDArray[np.uint64]

LEAST_PAGES: Final = 32
"""Fewer are walked sooner: each step takes as long for one lane as for a hundred."""
_HEAD: Final = 40
"""Bytes of which no header of that form has more, with those that are looked at behind it."""
_TAIL: Final = 8
"""The last bytes of such a header: three encodings, and the ends of both structs."""
_BEGIN, _BEGIN_MASK = np.uint64(0x150015), np.uint64(0xFFFFFF)
"""The type of a v1 data page, and what comes before its first size."""
_NEXT_I32, _BYTE = np.uint64(0x15), np.uint64(0xFF)
_OPENS_AFTER_SIZES, _OPENS_AFTER_CRC, _TWO_BYTES = np.uint64(0x152C), np.uint64(0x151C), np.uint64(0xFFFF)
"""The header of a data page, and its first field: the values."""
_END, _END_MASK = np.uint64(0x0000001500150015), np.uint64(0xFFFF81FF81FF81FF)
"""Its other fields, each an encoding below 64."""
_CONTINUED: Final = np.uint64(0x8080808080)
_ENDS: Final = np.uint64(1) << np.arange(7, 40, 8, dtype=np.uint64)
_LIMIT: Final = np.uint64(1 << 32)
_ONE: Final = np.uint64(1)
_SEVENS: Final = tuple((np.uint64(place), np.uint64(0x7F << 7 * place)) for place in range(1, 5))
_GROUP: Final = np.uint64(0x7F)


class _Stretch(NamedTuple):
    """One buffer of a chunk, and its pages among all lanes."""

    leaf: int
    start: int
    stop: int


def read_tables(
    chunks: Sequence[ChunkPages], *, least_pages: int = LEAST_PAGES
) -> dict[int, list[PageTable | None]]:
    """The page headers of chunks whose pages' sizes are known, where they have so many pages.

    Returns
    -------
    dict of int to list of (PageTable or None)
        By leaf, for each of its buffers, what `walk_pages` would give; None where it is to be asked. A leaf whose
        sizes are not known, or are not those of its buffers, is left out.
    """
    if sum([len(chunk.sizes) for chunk in chunks if chunk.sizes is not None]) < least_pages:
        return {}
    heads: list[bytes | memoryview] = []
    starts: list[int] = []
    sizes: list[int] = []
    found: list[_Stretch] = []
    for chunk in chunks:
        if chunk.sizes is None:
            continue
        held = len(starts)
        stretches = _place_pages(chunk, heads, starts, sizes)
        if stretches is None:
            del heads[held:], starts[held:], sizes[held:]
        else:
            found.extend(stretches)
    tables: dict[int, list[PageTable | None]] = {}
    if not found:
        return tables
    columns, known = _read(heads, np.array(starts, np.int64), np.array(sizes, np.int64))
    every = bool(known.all())
    for leaf, start, stop in found:
        whole = every or bool(known[start:stop].all())
        tables.setdefault(leaf, []).append(_cut(columns, start, stop) if whole else None)
    return tables


def read_lone(pages: Sequence[Buffer]) -> list[PageTable | None]:
    """The headers of pages that fill a buffer each: what `walk_pages` would give of it; None where it is to be asked."""
    views = [memoryview(page) for page in pages]
    heads = [view[:_HEAD] if len(view) >= _HEAD else bytes(view).ljust(_HEAD, b"\0") for view in views]
    sizes = np.array([len(view) for view in views], np.int64)
    columns, known = _read(heads, np.zeros(len(views), np.int64), sizes)
    return [_cut(columns, at, at + 1) if fits else None for at, fits in enumerate(known.tolist())]


def _place_pages(
    chunk: ChunkPages, heads: list[bytes | memoryview], starts: list[int], sizes: list[int]
) -> list[_Stretch] | None:
    """Add the head, place and size of each page; None where the sizes are not those of the buffers."""
    due = [] if chunk.sizes is None else chunk.sizes.tolist()
    stretches: list[_Stretch] = []
    number = 0
    for buffer in chunk.buffers:
        view, at, first = memoryview(buffer), 0, len(starts)
        length = len(view)
        while at < length:
            if number == len(due) or due[number] <= 0:
                return None
            starts.append(at)
            head = view[at : at + _HEAD]
            heads.append(head if at + _HEAD <= length else bytes(head).ljust(_HEAD, b"\0"))
            at += due[number]
            number += 1
        if at != length:
            return None
        stretches.append(_Stretch(chunk.leaf, first, len(starts)))
    sizes.extend(due)
    return stretches if number == len(due) else None


def _read(heads: list[bytes | memoryview], starts: Int64s, sizes: Int64s) -> tuple[PageTable, Bools]:
    """The headers of all pages, and which of them are of that form and end where they should."""
    data = b"".join((*heads, bytes(8)))
    count = len(starts)
    # Eight bytes from any place on.
    words: Words = np.ndarray((len(data) - 7,), "<u8", data, 0, (1,))
    base = np.arange(0, count * _HEAD, _HEAD)
    word = words[base]
    known = (word & _BEGIN_MASK) == _BEGIN
    at = base + 3
    uncompressed, at, fits = _read_int(words[at], at)
    known &= fits
    word = words[at]
    known &= (word & _BYTE) == _NEXT_I32
    compressed, at, fits = _read_int(word >> np.uint64(8), at + 1)
    known &= fits
    word = words[at]
    has_crc = (word & _BYTE) == _NEXT_I32
    crc = None
    if has_crc.any():
        crc, behind, fits = _read_int(word >> np.uint64(8), at + 1)
        known &= fits | ~has_crc
        at = np.where(has_crc, behind, at)
        word = words[at]
    known &= (word & _TWO_BYTES) == np.where(has_crc, _OPENS_AFTER_CRC, _OPENS_AFTER_SIZES)
    values, at, fits = _read_int(word >> np.uint64(16), at + 2)
    known &= fits
    tail = words[at]
    known &= (tail & _END_MASK) == _END
    # A negative number is odd; no size and no count of values is.
    known &= ((uncompressed | compressed | values) & _ONE) == 0
    body = starts + (at - base) + _TAIL
    stored = (compressed >> _ONE).astype(np.int64)
    ends = starts + sizes
    known &= body + stored == ends
    none = np.full(count, -1, np.int64)
    zeros = np.zeros(count, np.int64)
    return PageTable(
        start=starts,
        body=body,
        end=ends,
        uncompressed=(uncompressed >> _ONE).astype(np.int64),
        crc=none if crc is None else np.where(has_crc, _unsigned(crc), -1),
        num_values=(values >> _ONE).astype(np.int64),
        type=np.zeros(count, np.int8),
        num_rows=none,
        num_nulls=none,
        encoding=(tail >> np.uint64(9) & np.uint64(63)).astype(np.int8),
        level_bytes=zeros,
        definition_bytes=zeros,
        is_compressed=np.ones(count, np.bool_),
        level_encoding=(tail >> np.uint64(25) & np.uint64(63)).astype(np.int8),
    ), known


def _read_int(words: Words, at: Int64s) -> tuple[Words, Int64s, Bools]:
    """Varints that the words begin with and that lie at these places: their values, the places behind them, and
    which have no more than 32 bits."""
    ends = ~words & _CONTINUED
    # The first byte that nothing follows: its highest bit, alone.
    last = ends & (~ends + _ONE)
    words = words & (last - _ONE)
    value = words & _GROUP
    for place, mask in _SEVENS:
        value |= words >> place & mask
    length = _ENDS.searchsorted(last) + 1
    return value, at + np.minimum(length, 5), (ends != 0) & (value < _LIMIT)


def _unsigned(crc: Words) -> Int64s:
    """Checksums as they stand, zigzag, as 32 bits."""
    signed = (crc >> _ONE).astype(np.int64) ^ -(crc & _ONE).astype(np.int64)
    return signed & 0xFFFFFFFF


def _cut(table: PageTable, start: int, stop: int) -> PageTable:
    """The rows of a table from one page to another."""
    return PageTable(
        start=table.start[start:stop],
        body=table.body[start:stop],
        end=table.end[start:stop],
        uncompressed=table.uncompressed[start:stop],
        crc=table.crc[start:stop],
        num_values=table.num_values[start:stop],
        type=table.type[start:stop],
        num_rows=table.num_rows[start:stop],
        num_nulls=table.num_nulls[start:stop],
        encoding=table.encoding[start:stop],
        level_bytes=table.level_bytes[start:stop],
        definition_bytes=table.definition_bytes[start:stop],
        is_compressed=table.is_compressed[start:stop],
        level_encoding=table.level_encoding[start:stop],
    )
