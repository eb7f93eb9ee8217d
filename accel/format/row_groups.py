"""The row groups of a footer as they are read, before anything is checked against the schema.

Source: parquet-format `parquet.thrift` (RowGroup, SortingColumn).
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from accel.errors import ParquetFormatError
from accel.format.chunk import Handler, chunk_arrays, read_chunks, read_ints
from accel.format.model import SortingColumn
from accel.format.thrift import I16, I64, LIST, STRUCT, TRUE, ThriftReader

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = ["LEAST_BYTES", "GroupReader", "RowGroups", "read_sorting_columns"]

LEAST_BYTES: Final = 3
"""Of a RowGroup that can be valid: it has a number of rows, and ends."""
_INTS: Final = {3: 1, 2: 2}


@dataclass(slots=True)
class RowGroups:
    """The row groups: of each its number of chunks, its rows, its bytes, its sorting."""

    columns: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    sorting: list[tuple[SortingColumn, ...]] = field(default_factory=list)
    table: array[int] = field(default_factory=lambda: array("q"))
    """The chunks by row, where they were read one after another."""
    numbers: dict[str, Int64s] | None = None
    """The chunks by number, where they were read all at once."""
    ends: list[int] = field(default_factory=list)
    """Where each row group ends in the bytes, likewise."""

    def add(self, columns: int, rows: int, size: int, sorting: tuple[SortingColumn, ...] = ()) -> None:
        """Add a row group."""
        self.columns.append(columns)
        self.rows.append(rows)
        self.sizes.append(size)
        self.sorting.append(sorting)

    def chunks(self, num_leaves: int) -> dict[str, Int64s]:
        """The chunks' numbers as `chunk_arrays` has them, given that each group has so many chunks."""
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
        """Read a RowGroup of which the list of `columns` chunks has been read."""
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
