"""The table `keys`: for each value of a column, the rows that may hold it, over all files of a segment.

For columns of many values in no order, of which bounds rule out nothing. The table is sorted by the value, and its page
index is in the head: one lookup reads one page of it. Hudi calls this a record index.

A row has a value and a place: the ordinal of the file times 2 ** 32, and the number of the unit in it. The units of a file follow from
its metadata: its pages of the column where the offset index tells them, else its row groups.

The table answers `=` and `IN` where every row that matches has to pass that test. It has the type that the column has in
the files; a file that has it in another one, or lacks it, is not covered, and is read as if there were no table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from accel.catalog.describing import column_text
from accel.errors import AccelError, ColumnNotFoundError, IndexFormatError
from accel.format.domain import Domain, storage_type
from accel.format.page_index import chunk_offset_index
from accel.planning.handle import FileHandle
from accel.planning.page_indexes import index_want
from accel.planning.projection import path_leaves, type_at
from accel.planning.selection import RowSelection
from accel.predicate.expr import And, Column, Compare, Expr, InArray, InList, Literal, Op
from accel.predicate.kinds import kind_of
from accel.ranges import Kind

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s

__all__ = [
    "KEYS",
    "KEYS_ORDER",
    "KEY_COLUMNS",
    "ColumnHits",
    "KeyConditions",
    "KeyHits",
    "KeysTable",
    "files_of_keys",
    "keys_table_name",
    "renumbered_keys",
]

KEYS: Final = "keys"
"""The kind, as in `indexes={"user_id": "keys"}`."""
_VALUE: Final = Column(("value",))
KEY_COLUMNS: Final = ("value", "place")
KEYS_ORDER: Final = [(name, "ascending") for name in KEY_COLUMNS]
_UNIT_BITS: Final = 32
_UNIT_MASK: Final = (1 << _UNIT_BITS) - 1


def keys_table_name(column: str) -> str:
    """Return the name that the head has for the table of a column, which is given by `column_text`."""
    return f"{KEYS} {column}"


# -- building ----------------------------------------------------------------------------------------


class KeysTable:
    """Collects the rows of one column's table.

    Parameters
    ----------
    path : tuple of str
        Of the column.
    """

    def __init__(self, path: tuple[str, ...]) -> None:
        self.path = path
        self._type: pa.DataType | None = None
        self._parts: list[pa.Table] = []
        self.uncovered: set[int] = set()
        """The ordinals of files of which the table says nothing."""

    def accepts(self, handle: FileHandle) -> bool:
        """Whether the column is in a file, flat, and of the type of the files before it, which the first file settles."""
        kind = _key_type(handle.arrow_schema, self.path)
        leaves = (
            path_leaves(handle.shared.schema, handle.arrow_schema, path=self.path)
            if kind is not None
            else None
        )
        if kind is None or leaves is None or len(leaves) != 1:
            return False
        if handle.shared.schema.leaves[leaves[0]].max_repetition:
            return False
        self._type = kind if self._type is None else self._type
        return bool(self._type == kind)

    def add(self, file: int, handle: FileHandle, values: pa.ChunkedArray) -> None:
        """Add the values of a file, in the order of its rows."""
        _, _, num_rows = _units(handle, self.path)
        if len(values) != int(num_rows.sum()):
            raise ValueError(f"{len(values)} values for {int(num_rows.sum())} rows")
        places = pa.array((np.int64(file) << _UNIT_BITS) + np.repeat(np.arange(len(num_rows)), num_rows))
        column = values.cast(self._type) if values.type != self._type else values
        table = pa.table([column, pa.chunked_array([places])], names=list(KEY_COLUMNS))
        self._parts.append(table.filter(column.is_valid()).group_by(list(KEY_COLUMNS)).aggregate([]))

    def finish(self) -> pa.Table | None:
        """Return the table, sorted by value; None where no file is covered."""
        if not self._parts:
            return None
        whole = pa.concat_tables(self._parts)
        self._parts = []
        return whole.sort_by(KEYS_ORDER)


def _key_type(schema: pa.Schema, path: tuple[str, ...]) -> pa.DataType | None:
    """The type of a column without dictionary; None where there is no such column, or its values are not looked up."""
    if len(schema.get_all_field_indices(path[0])) != 1:
        return None
    try:
        kind = storage_type(type_at(schema, path))
    except (KeyError, ValueError):
        return None
    if isinstance(type_at(schema, path), pa.BaseExtensionType):
        return None
    return kind if kind_of(kind).domain not in (Domain.NONE, Domain.BOOLEAN) else None


def _units(handle: FileHandle, path: tuple[str, ...]) -> tuple[Int64s, Int64s, Int64s]:
    """The units that keys refer to, pages where they are known: the row group, the first row and the rows of each.

    Every row belongs to one unit, whatever a page index says.
    """
    (leaf,) = path_leaves(handle.shared.schema, handle.arrow_schema, path=path) or (-1,)
    groups, firsts, sizes = [], [], []
    for group, size in enumerate(handle.group_rows.tolist()):
        first = _first_rows(handle, group, leaf, size)
        groups.append(np.full(len(first), group, np.int64))
        firsts.append(first)
        sizes.append(np.diff(np.append(first, size)))
    if not groups:
        nothing = np.zeros(0, np.int64)
        return nothing, nothing, nothing
    return np.concatenate(groups), np.concatenate(firsts), np.concatenate(sizes)


def _first_rows(handle: FileHandle, group: int, leaf: int, size: int) -> Int64s:
    for want in index_want(handle.metadata.chunks, Kind.OFFSET_INDEX, group, leaf):
        data = handle.in_tail(want.range)
        if data is None:
            continue
        try:
            first = chunk_offset_index(data, handle.metadata, group, leaf).first_row
        except AccelError:
            continue
        if len(first) and first[0] == 0 and bool((np.diff(first) > 0).all()) and first[-1] < size:
            return first
    return np.zeros(1, np.int64)


def files_of_keys(table: pa.Table) -> Sequence[int]:
    """Return the ordinals of the files that rows are about."""
    found: list[int] = np.unique(table.column("place").to_numpy() >> _UNIT_BITS).tolist()
    return found


def renumbered_keys(table: pa.Table, live: Bools, places: Int64s) -> pa.Table:
    """Return the rows about files that count, by the ordinals that these have now."""
    at = table.column("place").to_numpy()
    files = at >> _UNIT_BITS
    keep = live[files]
    moved = (places[files[keep]].astype(np.int64) << _UNIT_BITS) + (at[keep] & _UNIT_MASK)
    return table.filter(pa.array(keep)).set_column(1, table.schema.field(1), pa.array(moved))


# -- asking ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class ColumnHits:
    """What the table of one column says of the files of a segment."""

    path: tuple[str, ...]
    covered: Bools
    """Whether it speaks of each file."""
    units: Mapping[int, Int64s]
    """The units that may match, for each of these files that has any."""

    @classmethod
    def read(
        cls, table: pa.Table, path: tuple[str, ...], *, num_files: int, uncovered: frozenset[int]
    ) -> ColumnHits:
        """Make them of the column `place` of the rows that match.

        Raises
        ------
        IndexFormatError
            A row is of a file that the segment does not have.
        """
        places = np.unique(np.asarray(table.column("place").to_numpy(), np.int64))
        files = places >> _UNIT_BITS
        if bool(((files < 0) | (files >= num_files)).any()):
            raise IndexFormatError("the catalog has keys of files that it does not list")
        covered = np.ones(num_files, bool)
        covered[list(uncovered)] = False
        starts = np.flatnonzero(np.append(True, files[1:] != files[:-1])) if len(files) else files
        units = np.split(places & _UNIT_MASK, starts[1:])
        return cls(path, covered, dict(zip(files[starts].tolist(), units, strict=False)))

    def may_match(self) -> Bools:
        """Whether each file may hold rows that match."""
        may = ~self.covered
        may[list(self.units)] = True
        return may


@dataclass(frozen=True, slots=True, eq=False)
class KeyHits:
    """What the tables of keys of a segment say of a question."""

    columns: Sequence[ColumnHits]

    def may_match(self, num_files: int) -> Bools:
        """Whether each file may hold rows that match."""
        may = np.ones(num_files, bool)
        for column in self.columns:
            may &= column.may_match()
        return may

    def rows(self, file: int, handle: FileHandle) -> dict[int, RowSelection] | None:
        """Return the rows of a file that may match, by row group; None where no table speaks of it.

        Raises
        ------
        IndexFormatError
            A unit is not in the file.
        """
        found: dict[int, RowSelection] | None = None
        for column in self.columns:
            if not column.covered[file]:
                continue
            groups, first_rows, num_rows = _units(handle, column.path)
            units = column.units.get(file, np.zeros(0, np.int64))
            if len(units) and int(units.max()) >= len(groups):
                raise IndexFormatError("the catalog has keys of pages that a file does not have")
            ranges: dict[int, list[tuple[int, int]]] = {}
            for unit in units.tolist():
                first = int(first_rows[unit])
                ranges.setdefault(int(groups[unit]), []).append((first, first + int(num_rows[unit])))
            rows = {group: RowSelection.of(some) for group, some in sorted(ranges.items())}
            if found is not None:
                rows = {
                    group: rows[group].intersect(found[group]) for group in sorted(rows.keys() & found.keys())
                }
            found = rows
        return found


class KeyConditions:
    """The tests of a predicate that tables of keys can answer: every row that matches passes all of them.

    Parameters
    ----------
    where : Expr
    data_set : pyarrow.Schema
        Of the scan.
    constant : frozenset of str
        Top-level columns whose values do not come from the files.
    """

    def __init__(self, where: Expr, data_set: pa.Schema, *, constant: frozenset[str]) -> None:
        self._tests: dict[str, tuple[pa.DataType, list[Expr]]] = {}
        from accel.predicate.bind import resolve

        for test, column in _conjuncts(where):
            try:
                found = resolve(column, data_set)
            except (AccelError, ColumnNotFoundError):
                continue
            if found.path[0] not in constant:
                name = column_text(found.path)
                self._tests.setdefault(name, (found.type, []))[1].append(test)

    @property
    def columns(self) -> Sequence[str]:
        """The columns that are tested, by `column_text`."""
        return tuple(self._tests)

    def condition(self, column: str, stored: pa.DataType) -> Expr | None:
        """Return what is asked of the table of a column; None where its type differs from the scan's."""
        kind, tests = self._tests[column]
        if isinstance(kind, pa.BaseExtensionType) or storage_type(kind) != stored:
            return None
        return tests[0] if len(tests) == 1 else And(tuple(tests))


def _conjuncts(where: Expr) -> Iterator[tuple[Expr, Column]]:
    """The tests for equality that every matching row passes, over the column `value`, each with its column."""
    match where:
        case And():
            for operand in where.operands:
                yield from _conjuncts(operand)
        case Compare(op=Op.EQ, left=Column() as column, right=Literal()):
            yield replace(where, left=_VALUE), column
        case Compare(op=Op.EQ, left=Literal(), right=Column() as column):
            yield replace(where, right=_VALUE), column
        case InList(column=column) | InArray(column=column):
            yield replace(where, column=_VALUE), column
        case _:
            pass
