"""The kind `keys`: for each value of a column, or combination of values of several, the rows that may hold
it.

For columns of many values in no order, of which bounds rule out nothing. The table is sorted by the values,
and its page index is in the head: one lookup reads one page of it. Hudi calls this a record index.

It answers `=` and `IN` of the leading column, or of several from the first on, where every row that matches
has to pass these tests. It has the types that the columns have in the first file; a file that has others, or
lacks one, is not covered, and is read as if there were no table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
import pyarrow as pa

from accel.arrays import from_numpy, integers
from accel.catalog.kinds.kind import (
    CatalogQuestion,
    FileRowsBuilder,
    Hits,
    IndexTableBuilder,
    Lookup,
    RowwiseIndex,
    TableEncoding,
)
from accel.catalog.kinds.units import UnitHits, file_units, files_of_places, is_flat, moved_places, places_of
from accel.format.domain import Domain, storage_type
from accel.planning.handle import FileHandle
from accel.planning.projection import type_at
from accel.predicate.expr import And, Column, Compare, Expr, InArray, InList, Op, join
from accel.predicate.kinds import kind_of

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s

__all__ = ["Keys", "key_type", "place_column", "stored_type"]

_PAGE_ROWS: Final = 4096
_MOST_COLUMNS: Final = 8


class Keys(RowwiseIndex):
    """Places of the values of columns."""

    kind: ClassVar[str] = "keys"
    most_columns: ClassVar[int] = _MOST_COLUMNS

    @property
    def names(self) -> Sequence[str]:
        """The columns of its table that hold the values."""
        return tuple(f"value_{at}" if at else "value" for at in range(len(self.columns)))

    @property
    def order(self) -> Sequence[tuple[str, str]]:
        """The columns that its table is sorted by; see `CatalogIndex.order`."""
        return tuple((name, "ascending") for name in (*self.names, "place"))

    def encoding(self, schema: pa.Schema, num_rows: int | None) -> TableEncoding:
        """Return how a table is written; see `CatalogIndex.encoding`."""
        # The values ascend.
        encodings = {
            name: "DELTA_BINARY_PACKED" if pa.types.is_integer(schema.field(name).type) else "PLAIN"
            for name in self.names
        }
        return TableEncoding(
            page_rows=_PAGE_ROWS, column_encoding={**encodings, "place": "BYTE_STREAM_SPLIT"}
        )

    def builder(self) -> IndexTableBuilder:
        """Begin the table of a segment; see `CatalogIndex.builder`."""
        return _Builder(self)

    def ordinals(self, table: pa.Table) -> Int64s:
        """Return the ordinal of the file that each row is about; see `RowwiseIndex.ordinals`."""
        return files_of_places(place_column(table))

    def with_ordinals(self, table: pa.Table, ordinals: Int64s) -> pa.Table:
        """Return the rows with other ordinals of their files; see `RowwiseIndex.with_ordinals`."""
        at = table.schema.get_field_index("place")
        moved = moved_places(place_column(table), ordinals)
        return table.set_column(at, table.schema.field(at), from_numpy(moved))

    def ask(self, question: CatalogQuestion, stored: pa.Schema) -> Lookup | None:
        """Return what a question needs of a table; see `CatalogIndex.ask`."""
        conditions: list[Expr] = []
        for path, name in zip(self.columns, self.names, strict=True):
            tests = [_over(name, test) for test in question.tests.get(path, ())]
            usable = [test for test in tests if test is not None]
            if not usable:
                break
            kind = question.type_of(path)
            if isinstance(kind, pa.BaseExtensionType) or stored_type(kind) != stored.field(name).type:
                break
            conditions += usable
        if not conditions:
            return None
        return Lookup(("place",), join(And, conditions), self._hits)

    def _hits(self, rows: pa.Table, covered: Bools) -> Hits:
        return UnitHits.of(place_column(rows), self.columns, covered=covered)


def place_column(table: pa.Table) -> Int64s:
    """Return the column `place` of a table."""
    chunks = [integers(chunk) for chunk in table.column("place").chunks]
    return np.concatenate(chunks).astype(np.int64) if chunks else np.zeros(0, np.int64)


def _over(name: str, test: Expr) -> Expr | None:
    """Return a test for equality over the column of a table; None for another test."""
    column = Column((name,))
    match test:
        case Compare(op=Op.EQ):
            return replace(test, left=column)
        case InList() | InArray():
            return replace(test, column=column)
        case _:
            return None


class _Builder(FileRowsBuilder):
    def __init__(self, index: Keys) -> None:
        super().__init__(index.order)
        self._index = index
        self._types: list[pa.DataType] | None = None

    def accepts(self, handle: FileHandle) -> bool:
        """Return whether the file has the columns, flat and of the types that the first file settled."""
        kinds = [key_type(handle, path) for path in self._index.columns]
        if None in kinds:
            return False
        self._types = kinds if self._types is None else self._types
        return bool(self._types == kinds)

    def add(self, file: int, handle: FileHandle, values: Sequence[pa.ChunkedArray]) -> bool:
        units = file_units(handle, self._index.columns)
        if any(len(column) != int(units.num_rows.sum()) for column in values):
            raise ValueError(f"{len(values[0])} values for {int(units.num_rows.sum())} rows")
        columns = [
            column.cast(kind) if column.type != kind else column
            for column, kind in zip(values, self._types or (), strict=True)
        ]
        names = [*self._index.names, "place"]
        places = pa.chunked_array([from_numpy(places_of(file, units.of_rows()))])
        table = pa.table([*columns, places], names=names)
        # A row whose first value is null matches nothing; one of which another is may match a test of those
        # before it.
        self.rows.add(table.filter(columns[0].is_valid()))
        return True


def key_type(handle: FileHandle, path: tuple[str, ...]) -> pa.DataType | None:
    """Return the type in which the values of a flat column are looked up; None where there is no such column,
    or they are not."""
    schema = handle.arrow_schema
    if len(schema.get_all_field_indices(path[0])) != 1:
        return None
    try:
        own = type_at(schema, path)
        kind = stored_type(own)
    except (KeyError, ValueError):
        return None
    if isinstance(own, pa.BaseExtensionType) or not is_flat(handle, path):
        return None
    return kind if kind_of(kind).domain not in (Domain.NONE, Domain.BOOLEAN) else None


def stored_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which a table has the values of a type: the widest of texts and of integers, as
    writers of one table differ in that, and one that pyarrow sorts, as it does no views, half floats and
    short decimals."""
    kind = storage_type(kind)
    if pa.types.is_string(kind) or pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary(kind) or pa.types.is_binary_view(kind):
        return pa.large_binary()
    if pa.types.is_integer(kind):
        return pa.int64() if pa.types.is_signed_integer(kind) else pa.uint64()
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_decimal32(kind) or pa.types.is_decimal64(kind):
        return pa.decimal128(kind.precision, kind.scale)
    return kind
