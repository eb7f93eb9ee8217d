"""Row groups and column chunks of a footer: read from Thrift, checked, and turned into a `ChunkTable`.

Source: parquet-format `parquet.thrift` (RowGroup, SortingColumn, ColumnChunk, ColumnMetaData, Statistics,
PageEncodingStats), PARQUET-816. As in generated Thrift code, a field of an unexpected type is skipped.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from accel.errors import ParquetFormatError
from accel.format.model import (
    CHUNK_TYPES,
    MISPLACED,
    ChunkTable,
    Encoding,
    PageType,
    ParquetSchema,
    SortingColumn,
)
from accel.format.thrift import (
    BINARY,
    FALSE,
    I16,
    I32,
    I64,
    LIST,
    STRUCT,
    TRUE,
    Handler,
    ThriftReader,
    read_ints,
)
from accel.format.writers import leaves_out_dictionary_header

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s

__all__ = [
    "LEAST_BYTES",
    "SLOTS",
    "GroupReader",
    "RowGroups",
    "allows",
    "build_chunks",
    "empty_row",
    "read_chunk_on",
    "read_sorting_columns",
]

_NAMES: Final = tuple(name for name in CHUNK_TYPES if name not in ("start", "end"))
"""The slots of a chunk's row, named as the columns of ChunkTable."""
_SLOT: Final = {name: slot for slot, name in enumerate(_NAMES)}
PHYSICAL, REPETITIONS, DEFINITIONS = range(len(_NAMES), len(_NAMES) + 3)
"""Slots that are only checked against the schema: the physical type, and the lengths of the two level
histograms."""
WIDTH: Final = DEFINITIONS + 1
SLOTS: Final = _SLOT | {"physical": PHYSICAL, "repetitions": REPETITIONS, "definitions": DEFINITIONS}
"""The slot of each number of a chunk, by name."""
_LEAST_BYTES = 16
"""The fewest bytes of a real chunk; it bounds what a hostile footer can make the reader allocate."""

# Plain numbers, because comparing with enum members takes longer.
_DATA_PAGES = (int(PageType.DATA_PAGE), int(PageType.DATA_PAGE_V2))
_DICTIONARY_ENCODINGS = (int(Encoding.PLAIN_DICTIONARY), int(Encoding.RLE_DICTIONARY))

_EMPTY = [-1] * WIDTH
for _name in ("encodings", "external", "encrypted"):
    _EMPTY[_SLOT[_name]] = 0


def allows(reader: ThriftReader, count: int) -> bool:
    """Return whether a footer of this size can have `count` chunks."""
    return count * _LEAST_BYTES <= reader.size


def empty_row() -> list[int]:
    """Return the row of a chunk without any field."""
    return _EMPTY.copy()


def read_chunk_on(reader: ThriftReader) -> list[int]:
    """Read a ColumnChunk from its third field on; return its row."""
    row = _EMPTY.copy()
    read_ints(reader, row, slots=_CHUNK_INTS, handlers=_CHUNK_OTHERS, field=2)
    return row


def read_chunks(reader: ThriftReader, table: array[int]) -> int:
    """Read a row group's list of ColumnChunk; append a row of WIDTH numbers for each, and return their
    number.

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
    """Return the rows as int64 arrays of shape (row groups, leaves), by the names of `SLOTS`."""
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
    complete = True
    stats = [0, 0, 0]
    for _ in range(reader.list_of(STRUCT)):
        stats[0] = stats[1] = stats[2] = -1
        read_ints(reader, stats, slots=_ENCODING_STATS_INTS, handlers=_NO_OTHERS)
        complete &= stats[2] >= 0
        if stats[0] in _DATA_PAGES:
            if stats[1] in _DICTIONARY_ENCODINGS:
                dictionary += stats[2]
            else:
                plain += stats[2]
    # If one count is missing or negative, both are unknown.
    row[_DICTIONARY_PAGES] = min(dictionary, 0x7FFFFFFF) if complete else -1
    row[_PLAIN_PAGES] = min(plain, 0x7FFFFFFF) if complete else -1


def _pass_path(reader: ThriftReader, row: list[int]) -> None:
    """Skip the path: chunks belong to leaves by position, as in every reader."""
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
_STATISTICS_INTS = {3: _SLOT["null_count"], 9: _SLOT["nan_count"]}
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


LEAST_BYTES: Final = 3
"""The fewest bytes of a valid RowGroup: its number of rows, and STOP."""
_INTS: Final = {3: 1, 2: 2}


@dataclass(slots=True)
class RowGroups:
    """The row groups as read: for each its number of chunks, rows, bytes and sorting columns."""

    columns: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    sorting: list[tuple[SortingColumn, ...]] = field(default_factory=list)
    table: array[int] = field(default_factory=lambda: array("q"))
    """The chunks as rows, where they were read one by one."""
    numbers: dict[str, Int64s] | None = None
    """The chunks as arrays by name, where they were read together."""
    ends: list[int] = field(default_factory=list)
    """The end of each row group in the bytes, where they were read together."""

    def add(self, columns: int, rows: int, size: int, sorting: tuple[SortingColumn, ...] = ()) -> None:
        """Add a row group."""
        self.columns.append(columns)
        self.rows.append(rows)
        self.sizes.append(size)
        self.sorting.append(sorting)

    def chunks(self, num_leaves: int) -> dict[str, Int64s]:
        """Return the chunks as `chunk_arrays` does, given that each group has `num_leaves` chunks."""
        if self.numbers is not None:
            return self.numbers
        return chunk_arrays(self.table, len(self.rows), num_leaves=num_leaves)


class GroupReader:
    """Reads RowGroups into a `RowGroups`.

    Its methods raise ParquetFormatError, or IndexError where the data ends early.
    """

    __slots__ = ("_handlers", "groups")

    def __init__(self, groups: RowGroups) -> None:
        self.groups = groups
        self._handlers: dict[int, Handler] = {
            1 << 4 | LIST: self._read_columns,
            4 << 4 | LIST: self._read_sorting,
        }

    def read(self, reader: ThriftReader) -> None:
        """Read a RowGroup from its start."""
        self._read(reader, 0, -1)

    def read_on(self, reader: ThriftReader, columns: int) -> None:
        """Read the rest of a RowGroup behind its list of `columns` chunks."""
        self._read(reader, 1, columns)

    def _read(self, reader: ThriftReader, last: int, columns: int) -> None:
        groups = self.groups
        row = [columns, -1, 0]
        groups.sorting.append(())
        try:
            read_ints(reader, row, slots=_INTS, handlers=self._handlers, field=last)
        except ParquetFormatError as error:
            raise error.at(place=f"footer, row group {len(groups.rows)}")
        groups.columns.append(max(row[0], 0))
        groups.rows.append(row[1])
        groups.sizes.append(row[2])

    def _read_columns(self, reader: ThriftReader, row: list[int]) -> None:
        if row[0] >= 0:
            reader.fail("a second list of column chunks")
        row[0] = read_chunks(reader, self.groups.table)

    def _read_sorting(self, reader: ThriftReader, row: list[int]) -> None:
        self.groups.sorting[-1] = read_sorting_columns(reader)


def read_sorting_columns(reader: ThriftReader) -> tuple[SortingColumn, ...]:
    """Read a RowGroup's list of SortingColumn; raises ParquetFormatError."""
    return tuple([_read_sorting(reader) for _ in range(reader.list_of(STRUCT))])


def _read_sorting(reader: ThriftReader) -> SortingColumn:
    column, flags = -1, {2: False, 3: False}
    for number, ctype in reader.fields():
        if number == 1 and I16 <= ctype <= I64:
            column = reader.i32()
        elif number in flags and ctype <= 2:
            flags[number] = ctype == TRUE
        else:
            reader.skip(ctype)
    return SortingColumn(column, flags[2], flags[3])


DICTIONARY_HEADER: Final = 100
"""The longest dictionary page header of the writers of PARQUET-816."""


def build_chunks(
    found: dict[str, Int64s], schema: ParquetSchema, *, footer_start: int | Int64s, created_by: str
) -> ChunkTable:
    """Check the arrays of `chunk_arrays`, which are modified, and make a ChunkTable of them.

    `footer_start` may be an array of shape (row groups, 1), for row groups of several files, unless the
    writer is one of `leaves_out_dictionary_header`.

    Raises ParquetFormatError naming the first invalid chunk: with a physical type other than the schema's, a
    negative size or count, or a range outside the file or within the footer.
    """
    external, encrypted = found["external"] != 0, found["encrypted"] != 0
    physical = found["physical"]
    present = physical >= 0
    checks = _Checks(schema)
    wanted = np.array([schema.elements[leaf.element].physical for leaf in schema.leaves], np.int64)
    checks.refuse(present & (physical != wanted), "a physical type that is not the schema's", physical)
    # pyarrow refuses these too: it would read levels that the schema does not have as values.
    for name, most in (
        ("repetitions", [leaf.max_repetition for leaf in schema.leaves]),
        ("definitions", [leaf.max_definition for leaf in schema.leaves]),
    ):
        length = found.pop(name)
        checks.refuse(
            (length > 0) & (length != np.array(most, np.int64) + 1),
            f"a histogram of {name} that does not fit the schema, of length",
            length,
        )
    # A chunk in another file, or with encrypted metadata, has no range in this file.
    local = present & ~external
    for name in ("codec", "num_values", "compressed", "uncompressed", "data_page_offset"):
        checks.refuse(present & (found[name] < 0), f"no valid {name}", found[name])
    checks.refuse(present & (found["codec"] > 127), "no valid codec", found["codec"])

    data = found["data_page_offset"]
    dictionary = found["dictionary_page_offset"]
    dictionary = np.where((dictionary > 0) & (dictionary < data), dictionary, -1)
    start = np.where(dictionary > 0, dictionary, data)
    compressed = found["compressed"]
    checks.refuse(local & (start > footer_start), "pages that start after the footer", start)
    checks.refuse(local & (compressed > footer_start - start), "pages that reach into the footer", compressed)
    end = np.where(local, start + np.where(local, compressed, 0), -1)
    start = np.where(local, start, -1)
    checks.refuse(local & (compressed > 0) & (data >= end), "data pages after the chunk's end", data)
    if leaves_out_dictionary_header(created_by):
        if not isinstance(footer_start, int):
            raise TypeError("the footer of one file starts at one place")
        end = _pad(start, end, local & (compressed > 0), footer_start)
    for name in ("column_index", "offset_index", "bloom"):
        _place_index(found, name, external, footer_start)
    for name in ("null_count", "nan_count", "unencoded"):
        np.maximum(found[name], -1, out=found[name])
    found |= {"dictionary_page_offset": dictionary, "start": start, "end": end}
    found |= {"external": external, "encrypted": encrypted}
    return ChunkTable(**{name: found[name].astype(kind, copy=False) for name, kind in CHUNK_TYPES.items()})


class _Checks:
    """Raises errors that name the row group and the column."""

    def __init__(self, schema: ParquetSchema) -> None:
        self.schema = schema

    def refuse(self, wrong: Bools, message: str, values: Int64s) -> None:
        if not wrong.any():
            return
        group, ordinal = (int(i) for i in np.argwhere(wrong)[0])
        path = ".".join(self.schema.leaves[ordinal].path)
        value = int(values[group, ordinal])
        raise ParquetFormatError(
            f"{message}: {'it is missing' if value == -1 else value}",
            place=f"footer, row group {group}, column {path[:200]}",
        )


def _place_index(found: dict[str, Int64s], name: str, external: Bools, footer_start: int | Int64s) -> None:
    """Set the offset of absent indexes to -1, and of those outside the file to MISPLACED."""
    offset, length = found[f"{name}_offset"], found[f"{name}_length"]
    misplaced = (offset < -1) | (length < -1) | (offset > footer_start)
    misplaced |= (offset > 0) & (length > footer_start - offset)
    absent = (offset <= 0) | (length == 0) | external
    if name != "bloom":
        absent |= length < 0
    misplaced &= ~external
    offset[absent] = -1
    length[absent] = -1
    offset[misplaced] = MISPLACED
    length[misplaced] = -1


def _pad(start: Int64s, end: Int64s, local: Bools, footer_start: int) -> Int64s:
    """Extend the ends by a dictionary header, but not into the next chunk or the footer."""
    starts = np.append(np.sort(start[local]), footer_start)
    following = starts[np.minimum(np.searchsorted(starts, start, "right"), len(starts) - 1)]
    padded = np.minimum(end + DICTIONARY_HEADER, following)
    return np.where(local, np.maximum(end, padded), end)
