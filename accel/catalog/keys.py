"""The table `keys`: for each value of a column, the rows that may hold it, over all files of a segment.

For columns of many values in no order, of which bounds rule out nothing. The table is sorted by the value, and its page
index is in the head: one lookup reads one page of it. Hudi calls this a record index.

The table answers `=` and `IN` where every row that matches has to pass that test. It has the type that the column has in
the files; a file that has it in another one, or lacks it, is not covered, and is read as if there were no table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from accel.catalog.describing import column_text
from accel.errors import AccelError, ColumnNotFoundError, IndexFormatError
from accel.format.domain import Domain
from accel.format.page_index import chunk_offset_index
from accel.planning.handle import FileHandle
from accel.planning.page_indexes import index_want
from accel.planning.projection import path_leaves, type_at
from accel.planning.selection import RowSelection
from accel.predicate.expr import And, Column, Compare, Expr, InArray, InList, Literal, Op
from accel.predicate.kinds import kind_of, plain_type
from accel.ranges import Kind

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s

__all__ = ["KEYS", "KEY_PLACES", "KeyConditions", "KeyHits", "KeysTable", "keys_table_name", "read_hits"]

KEYS: Final = "keys"
"""The kind, as in `indexes={"user_id": "keys"}`."""
_VALUE: Final = Column(("value",))
KEY_PLACES: Final = ("file", "row_group", "first_row", "num_rows")


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
        groups, first_rows, num_rows = _units(handle, self.path)
        if len(values) != int(num_rows.sum()):
            raise ValueError(f"{len(values)} values for {int(num_rows.sum())} rows")
        units = pa.array(np.repeat(np.arange(len(num_rows)), num_rows))
        column = values.cast(self._type) if values.type != self._type else values
        table = pa.table([column, pa.chunked_array([units])], names=["value", "unit"])
        table = table.filter(table.column("value").is_valid()).group_by(["value", "unit"]).aggregate([])
        at = table.column("unit").to_numpy()
        self._parts.append(
            pa.table(
                [
                    table.column("value"),
                    pa.array(np.full(len(at), file, np.int32)),
                    pa.array(groups[at].astype(np.int32)),
                    pa.array(first_rows[at]),
                    pa.array(num_rows[at]),
                ],
                names=["value", *KEY_PLACES],
            )
        )

    def finish(self) -> pa.Table | None:
        """Return the table, sorted by value; None where no file is covered."""
        if not self._parts:
            return None
        import pyarrow.compute as pc

        whole = pa.concat_tables(self._parts)
        self._parts = []
        order = [(name, "ascending") for name in ("value", "file", "row_group", "first_row")]
        return whole.take(pc.sort_indices(whole, sort_keys=order))


def _key_type(schema: pa.Schema, path: tuple[str, ...]) -> pa.DataType | None:
    """The type of a column without dictionary; None where there is no such column, or its values are not looked up."""
    if len(schema.get_all_field_indices(path[0])) != 1:
        return None
    try:
        kind = plain_type(type_at(schema, path))
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


# -- asking ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class KeyHits:
    """What the tables of a segment say of a question."""

    covered: Bools
    """Whether they speak of each file."""
    rows: Mapping[int, Mapping[int, RowSelection]]
    """For each of these files that may match, the rows that may, by row group."""

    def meet(self, other: KeyHits) -> KeyHits:
        """Return what both leave possible."""
        rows: dict[int, Mapping[int, RowSelection]] = {}
        for file in self.rows.keys() | other.rows.keys():
            mine, its = self.rows.get(file), other.rows.get(file)
            if mine is None or its is None:
                # One of them rules the file out, or says nothing of it.
                found = mine if its is None else its
                speaks = other.covered[file] if its is None else self.covered[file]
                if found is not None and not speaks:
                    rows[file] = found
                continue
            rows[file] = {
                group: mine[group].intersect(its[group]) for group in sorted(mine.keys() & its.keys())
            }
        return KeyHits(self.covered | other.covered, rows)

    def may_match(self) -> Bools:
        """Whether each file may hold rows that match."""
        may = ~self.covered
        may[list(self.rows)] = True
        return may


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
        if isinstance(kind, pa.BaseExtensionType) or plain_type(kind) != stored:
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


def read_hits(table: pa.Table, *, num_files: int, uncovered: frozenset[int]) -> KeyHits:
    """Turn rows of a table of keys into the rows of files.

    Raises
    ------
    IndexFormatError
        They are of files that the segment does not have, or of no rows.
    """
    files, groups, first_rows, num_rows = (
        np.asarray(table.column(name).to_numpy(), np.int64) for name in KEY_PLACES
    )
    bad = (files < 0) | (files >= num_files) | (groups < 0) | (first_rows < 0) | (num_rows < 1)
    if bool(bad.any()):
        raise IndexFormatError("the catalog has keys of rows that cannot be")
    rows: dict[int, dict[int, Any]] = {}
    places = zip(files.tolist(), groups.tolist(), first_rows.tolist(), num_rows.tolist(), strict=True)
    for file, group, first, size in places:
        rows.setdefault(file, {}).setdefault(group, []).append((first, first + size))
    covered = np.ones(num_files, bool)
    covered[list(uncovered)] = False
    return KeyHits(
        covered,
        {
            file: {group: RowSelection.of(ranges) for group, ranges in sorted(found.items())}
            for file, found in rows.items()
            if covered[file]
        },
    )
