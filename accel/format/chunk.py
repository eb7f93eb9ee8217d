"""Column chunks: the bulk of a footer, decoded into the arrays of a `ChunkTable`.

Source: parquet-format `parquet.thrift` (ColumnChunk, ColumnMetaData, Statistics, PageEncodingStats).
Like generated Thrift code, a known field of another type is passed over as an unknown one.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from accel.format.model import Encoding, PageType
from accel.format.thrift import BINARY, FALSE, I32, I64, LIST, STRUCT, TRUE, ThriftReader

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = [
    "SLOTS",
    "WIDTH",
    "Handler",
    "allows",
    "chunk_arrays",
    "empty_row",
    "read_chunk_on",
    "read_chunks",
    "read_ints",
]

# The slots of a chunk's row, in the order of ChunkTable's fields as far as these are read as they stand.
_NAMES = (
    "codec",
    "num_values",
    "compressed",
    "uncompressed",
    "data_page_offset",
    "dictionary_page_offset",
    "encodings",
    "dictionary_pages",
    "plain_pages",
    "unencoded",
    "column_index_offset",
    "column_index_length",
    "offset_index_offset",
    "offset_index_length",
    "bloom_offset",
    "bloom_length",
    "null_count",
    "distinct_count",
    "nan_count",
    "min_start",
    "min_length",
    "max_start",
    "max_length",
    "min_exact",
    "max_exact",
    "old_min_start",
    "old_min_length",
    "old_max_start",
    "old_max_length",
    "external",
    "encrypted",
)
_SLOT: Final = {name: slot for slot, name in enumerate(_NAMES)}
PHYSICAL, REPETITIONS, DEFINITIONS = range(len(_NAMES), len(_NAMES) + 3)
"""The slots of what is checked against the schema and not kept: the physical type, and the lengths of
the two level histograms."""
WIDTH: Final = DEFINITIONS + 1
SLOTS: Final = _SLOT | {"physical": PHYSICAL, "repetitions": REPETITIONS, "definitions": DEFINITIONS}
"""The place in a row of each number of a chunk: ChunkTable's names, and what is only checked."""
_LEAST_BYTES = 16
"""No real chunk has fewer; keeps what a hostile footer can make us allocate near its own size."""

# Plain numbers: an enum's members take longer to compare with.
_DATA_PAGES = (int(PageType.DATA_PAGE), int(PageType.DATA_PAGE_V2))
_DICTIONARY_ENCODINGS = (int(Encoding.PLAIN_DICTIONARY), int(Encoding.RLE_DICTIONARY))

_EMPTY = [-1] * WIDTH
for _name in ("encodings", "external", "encrypted"):
    _EMPTY[_SLOT[_name]] = 0

Handler: TypeAlias = Callable[[ThriftReader, list[int]], None]


def read_ints(
    reader: ThriftReader,
    row: list[int],
    *,
    slots: Mapping[int, int],
    handlers: Mapping[int, Handler],
    field: int = 0,
) -> None:
    """Read one struct: integer fields into `row` by `slots`, others by the handler of `field << 4 | type`.

    What neither names is passed over. `field` is the last one that has been read already. Raises
    IndexError where the data ends early.
    """
    buf = reader.buf
    pos = reader.pos
    while True:
        head = buf[pos]
        pos += 1
        if head > 15:
            field += head >> 4
        elif head == 0:
            reader.pos = pos
            return
        else:
            reader.pos = pos
            field = reader.zigzag()
            pos = reader.pos
        ctype = head & 15
        if 4 <= ctype <= 6:
            value = buf[pos]
            pos += 1
            if value > 127:
                value &= 127
                shift = 7
                while True:
                    byte = buf[pos]
                    pos += 1
                    if byte < 128:
                        value |= byte << shift
                        break
                    value |= (byte & 127) << shift
                    shift += 7
                    if shift > 63:
                        reader.fail("a number of more than ten bytes")
            slot = slots.get(field)
            if slot is not None:
                row[slot] = (value >> 1) ^ -(value & 1)
        else:
            reader.pos = pos
            handler = handlers.get(field << 4 | ctype)
            if handler is None:
                reader.skip(ctype)
            else:
                handler(reader, row)
            pos = reader.pos


def allows(reader: ThriftReader, count: int) -> bool:
    """Whether a footer of that size can have so many chunks."""
    return count * _LEAST_BYTES <= reader.size


def empty_row() -> list[int]:
    """What a chunk is without any field: a number for each of `SLOTS`."""
    return _EMPTY.copy()


def read_chunk_on(reader: ThriftReader) -> list[int]:
    """Read a ColumnChunk whose first two fields have been passed; returns its row."""
    row = _EMPTY.copy()
    read_ints(reader, row, slots=_CHUNK_INTS, handlers=_CHUNK_OTHERS, field=2)
    return row


def read_chunks(reader: ThriftReader, table: array[int]) -> int:
    """Read a row group's list of ColumnChunk; appends a row of WIDTH numbers each, returns how many.

    Raises ParquetFormatError, or IndexError where the data ends early.
    """
    size = reader.list_of(STRUCT)
    if not allows(reader, size):
        reader.fail(f"{size} column chunks in a footer of {reader.size} bytes")
    for ordinal in range(size):
        row = _EMPTY.copy()
        read_ints(reader, row, slots=_CHUNK_INTS, handlers=_CHUNK_OTHERS)
        if row[PHYSICAL] < 0 and not (row[_EXTERNAL] or row[_ENCRYPTED]):
            reader.fail(f"column chunk {ordinal} has no metadata")
        try:
            table.fromlist(row)
        except OverflowError:
            reader.fail(f"a number of column chunk {ordinal} is beyond 64 bits")
    if not allows(reader, len(table) // WIDTH):
        reader.fail(f"{len(table) // WIDTH} column chunks in a footer of {reader.size} bytes")
    return size


def chunk_arrays(table: array[int], num_groups: int, *, num_leaves: int) -> dict[str, Int64s]:
    """The rows as int64 arrays of shape (row groups, leaves), by ChunkTable's names, and what is only checked:
    `physical`, and `repetitions` and `definitions`, the lengths of the level histograms (-1: none)."""
    rows = np.frombuffer(table, np.int64) if table else np.zeros(0, np.int64)
    columns = np.ascontiguousarray(rows.reshape(num_groups, num_leaves, WIDTH).transpose(2, 0, 1))
    return {name: columns[slot] for name, slot in SLOTS.items()}


def _read_metadata(reader: ThriftReader, row: list[int]) -> None:
    read_ints(reader, row, slots=_METADATA_INTS, handlers=_METADATA_OTHERS)


def _read_statistics(reader: ThriftReader, row: list[int]) -> None:
    read_ints(reader, row, slots=_STATISTICS_INTS, handlers=_STATISTICS_OTHERS)


def _read_encodings(reader: ThriftReader, row: list[int]) -> None:
    bits = 0
    for _ in range(reader.list_of(I32)):
        encoding = reader.zigzag()
        if 0 <= encoding < 32:
            bits |= 1 << encoding
    row[_ENCODINGS] = bits


def _read_encoding_stats(reader: ThriftReader, row: list[int]) -> None:
    dictionary = plain = 0
    known = True
    stats = [0, 0, 0]
    for _ in range(reader.list_of(STRUCT)):
        stats[0] = stats[1] = stats[2] = -1
        read_ints(reader, stats, slots=_ENCODING_STATS_INTS, handlers=_NO_OTHERS)
        known &= stats[2] >= 0
        if stats[0] in _DATA_PAGES:
            if stats[1] in _DICTIONARY_ENCODINGS:
                dictionary += stats[2]
            else:
                plain += stats[2]
    # Where a count is missing or negative, all stay unknown.
    row[_DICTIONARY_PAGES] = min(dictionary, 0x7FFFFFFF) if known else -1
    row[_PLAIN_PAGES] = min(plain, 0x7FFFFFFF) if known else -1


def _pass_path(reader: ThriftReader, row: list[int]) -> None:
    """Columns are matched with the schema by position, as every reader does."""
    for _ in range(reader.list_of(BINARY)):
        reader.span()


def _pass_sizes(reader: ThriftReader, row: list[int]) -> None:
    read_ints(reader, row, slots=_SIZES_INTS, handlers=_SIZES_OTHERS)


def _length_into(slot: int) -> Handler:
    def read(reader: ThriftReader, row: list[int]) -> None:
        row[slot] = reader.list_of(I64)
        for _ in range(row[slot]):
            reader.varint()

    return read


def _span_into(start: str) -> Handler:
    slot = _SLOT[start]

    def read(reader: ThriftReader, row: list[int]) -> None:
        row[slot], row[slot + 1] = reader.span()

    return read


def _flag(name: str, value: int) -> Handler:
    slot = _SLOT[name]

    def read(reader: ThriftReader, row: list[int]) -> None:
        row[slot] = value

    return read


def _read_file_path(reader: ThriftReader, row: list[int]) -> None:
    if reader.span()[1]:
        row[_EXTERNAL] = 1


def _read_crypto(reader: ThriftReader, row: list[int]) -> None:
    reader.skip(STRUCT)
    row[_ENCRYPTED] = 1


def _read_encrypted_metadata(reader: ThriftReader, row: list[int]) -> None:
    reader.span()
    row[_ENCRYPTED] = 1


_EXTERNAL, _ENCRYPTED, _ENCODINGS = _SLOT["external"], _SLOT["encrypted"], _SLOT["encodings"]
_DICTIONARY_PAGES, _PLAIN_PAGES = _SLOT["dictionary_pages"], _SLOT["plain_pages"]

_CHUNK_INTS = {4: _SLOT["offset_index_offset"], 5: _SLOT["offset_index_length"]}
_CHUNK_INTS |= {6: _SLOT["column_index_offset"], 7: _SLOT["column_index_length"]}
_CHUNK_OTHERS: dict[int, Handler] = {
    1 << 4 | BINARY: _read_file_path,
    3 << 4 | STRUCT: _read_metadata,
    8 << 4 | STRUCT: _read_crypto,
    9 << 4 | BINARY: _read_encrypted_metadata,
}
_NO_OTHERS: dict[int, Handler] = {}
_SIZES_INTS = {1: _SLOT["unencoded"]}
_SIZES_OTHERS: dict[int, Handler] = {
    2 << 4 | LIST: _length_into(REPETITIONS),
    3 << 4 | LIST: _length_into(DEFINITIONS),
}
_ENCODING_STATS_INTS = {1: 0, 2: 1, 3: 2}
_METADATA_INTS = {
    1: PHYSICAL,
    4: _SLOT["codec"],
    5: _SLOT["num_values"],
    6: _SLOT["uncompressed"],
    7: _SLOT["compressed"],
    9: _SLOT["data_page_offset"],
    11: _SLOT["dictionary_page_offset"],
    14: _SLOT["bloom_offset"],
    15: _SLOT["bloom_length"],
}
_METADATA_OTHERS: dict[int, Handler] = {
    2 << 4 | LIST: _read_encodings,
    3 << 4 | LIST: _pass_path,
    12 << 4 | STRUCT: _read_statistics,
    13 << 4 | LIST: _read_encoding_stats,
    16 << 4 | STRUCT: _pass_sizes,
}
_STATISTICS_INTS = {3: _SLOT["null_count"], 4: _SLOT["distinct_count"], 9: _SLOT["nan_count"]}
_STATISTICS_OTHERS: dict[int, Handler] = {
    1 << 4 | BINARY: _span_into("old_max_start"),
    2 << 4 | BINARY: _span_into("old_min_start"),
    5 << 4 | BINARY: _span_into("max_start"),
    6 << 4 | BINARY: _span_into("min_start"),
    7 << 4 | TRUE: _flag("max_exact", 1),
    7 << 4 | FALSE: _flag("max_exact", 0),
    8 << 4 | TRUE: _flag("min_exact", 1),
    8 << 4 | FALSE: _flag("min_exact", 0),
}
