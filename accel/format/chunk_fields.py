"""What a ColumnChunk usually holds, and how to read it from many of them in lockstep.

Source: parquet-format `parquet.thrift` (ColumnChunk, ColumnMetaData, Statistics, SizeStatistics,
PageEncodingStats). The names are those of `format.chunk.SLOTS`, and so is what they mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from accel.format.lanes import Field, Lanes, Value, Words
from accel.format.model import Encoding, PageType
from accel.format.thrift import BINARY, FALSE, I32, I64, LIST, STRUCT, TRUE

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = ["CHUNK_FIELDS"]

_FEW: Final = 6
"""Encodings that are looked at: what eight bytes hold besides two headers."""
_MANY: Final = 14
"""Elements of a list that is so short that its header is one byte."""


def _byte(word: Words, at: int) -> Int64s:
    return ((word >> np.uint64(8 * at)) & np.uint64(0xFF)).view(np.int64)


def _number(name: str) -> Value:
    return lambda lanes: {name: lanes.number()}


def _passed(lanes: Lanes) -> dict[str, Int64s]:
    lanes.number()
    return {}


def _span(name: str) -> Value:
    def read(lanes: Lanes) -> dict[str, Int64s]:
        start, length = lanes.span()
        return {f"{name}_start": start, f"{name}_length": length}

    return read


def _flag(name: str) -> Value:
    def read(lanes: Lanes) -> dict[str, Int64s]:
        value = _byte(lanes.word(1), 0) & 15
        lanes.skip(1)
        return {name: FALSE - value}

    return read


def _struct(*fields: Field) -> Value:
    return lambda lanes: lanes.nested(fields)


def _list_sizes(lanes: Lanes, etype: int, most: int) -> Int64s:
    """The sizes of short lists, whose header, behind the field's, is left where it is; 0 in odd lanes."""
    header = _byte(lanes.word(2), 1)
    size = header >> 4
    odd = (header & 15) != etype
    odd |= size > most
    if odd.any():
        lanes.odd |= odd
        size[odd] = 0
    return size


def _read_encodings(lanes: Lanes) -> dict[str, Int64s]:
    size = _list_sizes(lanes, I32, _FEW)
    word = lanes.word()
    bits = np.zeros(len(size), np.int64)
    for at in range(int(size.max(initial=0))):
        code = _byte(word, 2 + at)
        here = size > at
        lanes.odd |= here & ((code & 0xC1) != 0)  # negative, or of two bytes, or unknown
        bits |= np.where(here, 1 << (code >> 1), 0)
    lanes.move(size + 2)
    return {"encodings": bits}


def _pass_path(lanes: Lanes) -> dict[str, Int64s]:
    size = _list_sizes(lanes, BINARY, _MANY)
    lanes.odd |= size == 0
    lanes.skip(1)
    lanes.span()
    for at in range(1, int(size.max(initial=0))):
        index = np.flatnonzero(size > at)
        part = lanes.part(index)
        part.move(-1)  # a span has a byte before it
        part.span()
        lanes.join(index, part)
    return {}


def _read_encoding_stats(lanes: Lanes) -> dict[str, Int64s]:
    size = _list_sizes(lanes, STRUCT, _MANY)
    lanes.skip(2)
    dictionary = np.zeros(len(size), np.int64)
    plain = np.zeros(len(size), np.int64)
    for at in range(int(size.max(initial=0))):
        index = np.flatnonzero(size > at)
        part = lanes if len(index) == len(size) else lanes.part(index)
        kind, encoding, count = _encoding_stat(part)
        if part is not lanes:
            lanes.join(index, part)
        # As they stand, zigzag: twice their numbers.
        is_data = (kind == PageType.DATA_PAGE << 1) | (kind == PageType.DATA_PAGE_V2 << 1)
        is_dictionary = (encoding == Encoding.PLAIN_DICTIONARY << 1) | (
            encoding == Encoding.RLE_DICTIONARY << 1
        )
        dictionary[index] += np.where(is_data & is_dictionary, count, 0)
        plain[index] += np.where(is_data & ~is_dictionary, count, 0)
    return {"dictionary_pages": dictionary, "plain_pages": plain}


def _encoding_stat(lanes: Lanes) -> tuple[Int64s, Int64s, Int64s]:
    """A page type and an encoding, as they stand in one byte each, and their number of pages."""
    word = lanes.word()
    odd = (word & np.uint64(0xFF_80_FF_80_FF)) != 0x15_00_15_00_15
    kind, encoding, count, after = (_byte(word, at) for at in (1, 3, 5, 6))
    long = count > 127
    if long.any():
        odd |= long & (after > 127)
        count = np.where(long, count & 127 | after << 7, count)
        lanes.move(long.astype(np.int64) + 7)
        after = np.where(long, _byte(word, 7), after)
    else:
        lanes.skip(7)
    odd |= after != 0  # STOP
    odd |= (count & 1) != 0  # negative
    lanes.odd |= odd
    return kind, encoding, count >> 1


def _levels(name: str) -> Value:
    def read(lanes: Lanes) -> dict[str, Int64s]:
        size = _list_sizes(lanes, I64, _MANY)
        lanes.skip(2)
        lanes.pass_numbers(size)
        return {name: size}

    return read


_STATISTICS = _struct(
    (1, BINARY, _span("old_max")),
    (2, BINARY, _span("old_min")),
    (3, I64, _number("null_count")),
    (4, I64, _number("distinct_count")),
    (5, BINARY, _span("max")),
    (6, BINARY, _span("min")),
    (7, TRUE, _flag("max_exact")),
    (8, TRUE, _flag("min_exact")),
    (9, I64, _number("nan_count")),
)
_SIZES = _struct(
    (1, I64, _number("unencoded")),
    (2, LIST, _levels("repetitions")),
    (3, LIST, _levels("definitions")),
)
_METADATA = _struct(
    (1, I32, _number("physical")),
    (2, LIST, _read_encodings),
    (3, LIST, _pass_path),
    (4, I32, _number("codec")),
    (5, I64, _number("num_values")),
    (6, I64, _number("uncompressed")),
    (7, I64, _number("compressed")),
    (9, I64, _number("data_page_offset")),
    (10, I64, _passed),
    (11, I64, _number("dictionary_page_offset")),
    (12, STRUCT, _STATISTICS),
    (13, LIST, _read_encoding_stats),
    (14, I64, _number("bloom_offset")),
    (15, I32, _number("bloom_length")),
    (16, STRUCT, _SIZES),
)
CHUNK_FIELDS: Final[tuple[Field, ...]] = (
    (3, STRUCT, _METADATA),
    (4, I64, _number("offset_index_offset")),
    (5, I32, _number("offset_index_length")),
    (6, I64, _number("column_index_offset")),
    (7, I32, _number("column_index_length")),
)
"""Of a ColumnChunk, from its metadata on."""
