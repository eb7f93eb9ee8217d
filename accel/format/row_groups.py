"""The row groups of a footer as they are read, before anything is checked against the schema.

Source: parquet-format `parquet.thrift` (RowGroup, SortingColumn).
"""

from __future__ import annotations

from array import array
from dataclasses import field

from accel.errors import ParquetFormatError
from accel.format.chunk import chunk_arrays, read_chunks, read_ints
from accel.format.model import Int64s, SortingColumn
from accel.format.thrift import I16, I64, LIST, STRUCT, TRUE, Reader
from accel.records import dataclass

__all__ = ["RowGroups", "read_group", "read_group_on"]


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

    def chunks(self, num_leaves: int) -> dict[str, Int64s]:
        """The chunks' numbers as `chunk_arrays` has them, given that each group has so many chunks."""
        if self.numbers is not None:
            return self.numbers
        return chunk_arrays(self.table, len(self.rows), num_leaves)


def read_group(reader: Reader, into: RowGroups) -> None:
    """Read one RowGroup; raises ParquetFormatError, or IndexError where the data ends early."""
    _read(reader, into, 0, -1)


def read_group_on(reader: Reader, into: RowGroups, columns: int) -> None:
    """Read a RowGroup of which the list of `columns` chunks has been read."""
    _read(reader, into, 1, columns)


def _read(reader: Reader, into: RowGroups, last: int, count: int) -> None:
    found: list[tuple[SortingColumn, ...]] = [()]

    def columns(reader: Reader, row: list[int]) -> None:
        if row[0] >= 0:
            reader.fail("a second list of column chunks")
        row[0] = read_chunks(reader, into.table)

    def sorting(reader: Reader, row: list[int]) -> None:
        found[0] = tuple(_read_sorting(reader) for _ in range(reader.list_of(STRUCT)))

    row = [count, -1, 0]
    try:
        read_ints(reader, row, {3: 1, 2: 2}, {1 << 4 | LIST: columns, 4 << 4 | LIST: sorting}, field=last)
    except ParquetFormatError as error:
        raise error.at(place=f"footer, row group {len(into.rows)}")
    into.columns.append(max(row[0], 0))
    into.rows.append(row[1])
    into.sizes.append(row[2])
    into.sorting.append(found[0])


def _read_sorting(reader: Reader) -> SortingColumn:
    column, flags = -1, {2: False, 3: False}
    for number, ctype in reader.fields():
        if number == 1 and I16 <= ctype <= I64:
            column = reader.i32()
        elif number in flags and ctype <= 2:
            flags[number] = ctype == TRUE
        else:
            reader.skip(ctype)
    return SortingColumn(column, flags[2], flags[3])
