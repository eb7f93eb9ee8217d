"""The types of DuckLake's columns as Arrow has them, and its columns as trees.

Files that DuckDB writes have no type for some: 128-bit integers are doubles there, and seconds microseconds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from accel.errors import TableFormatError
from accel.planning.column_mapping import MappedColumn

__all__ = ["LakeColumn", "arrow_type", "column_tree"]

_SIMPLE: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "int128": pa.float64(),
    "uint128": pa.float64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "time": pa.time64("us"),
    "time_ns": pa.time64("ns"),
    "timetz": pa.time64("us"),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamp_us": pa.timestamp("us"),
    "timestamp_ms": pa.timestamp("ms"),
    "timestamp_ns": pa.timestamp("ns"),
    "timestamp_s": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "timestamptz_ns": pa.timestamp("ns", "UTC"),
    "interval": pa.binary(12),
    "varchar": pa.string(),
    "json": pa.string(),
    "blob": pa.binary(),
}
_DECIMAL: Final = re.compile(r"decimal\((\d{1,2}), ?(\d{1,2})\)")
_DROPPED: Final = "\ufdd2"
"""A noncharacter of Unicode, which begins the names of fields that a later version has dropped."""
_DEEPEST: Final = 100
"""Columns within columns; deeper ones are a mistake, or an attack."""


@dataclass(frozen=True, slots=True, eq=False)
class LakeColumn:
    """A column of a table in one version, and what is below it."""

    id: int
    """Also the field id in files."""
    name: str
    type: str
    """As the catalog has it: "int64", "decimal(9,2)", "struct"."""
    nullable: bool
    initial_default: str | None
    """The value in files that lack it, as text."""
    children: tuple[LakeColumn, ...] = field(default=())

    def arrow(self) -> pa.DataType:
        """Return its type.

        Raises
        ------
        TableFormatError
            accel does not read such columns, or the catalog contradicts itself.
        """
        kind = self.type.lower()
        expected = {"list": 1, "map": 2}.get(kind)
        if kind == "struct" and self.children:
            return pa.struct([child.arrow_field() for child in self.children])
        if expected is not None and len(self.children) == expected:
            if kind == "list":
                return pa.list_(self.children[0].arrow_field())
            key, value = self.children
            return pa.map_(pa.field("key", key.arrow(), nullable=False), value.arrow_field())
        if self.children or expected is not None:
            raise TableFormatError(f"the column {self.name!r} is a {kind} of {len(self.children)} columns")
        return arrow_type(kind, self.name)

    def arrow_field(self) -> pa.Field:
        """Return it as a field of a schema."""
        return pa.field(self.name, self.arrow(), nullable=True)

    def under_names_of(self, later: LakeColumn) -> LakeColumn:
        """Return the column with the names that a later version has for it and for what is below it.

        Fields that the later version lacks get names that it has not.
        """
        below = {child.id: child for child in later.children}
        if self.type.lower() != "struct":
            # The elements of lists and maps go by their places.
            pairs = zip(self.children, later.children, strict=False)
            children = tuple(child.under_names_of(other) for child, other in pairs)
            return replace(self, name=later.name, children=children or self.children)
        children = tuple(
            child.under_names_of(below[child.id])
            if child.id in below
            else replace(child, name=f"{_DROPPED}{child.id}")
            for child in self.children
        )
        return replace(self, name=later.name, children=children)

    def mapped(self, default: pa.Scalar | None = None) -> MappedColumn:
        """Return where files have it: by field id."""
        below = tuple(child.mapped() for child in self.children)
        if self.type.lower() == "struct":
            return MappedColumn(self.name, self.id, fields=below, default=default)
        return MappedColumn(self.name, self.id, elements=below, default=default)


def arrow_type(kind: str, column: str) -> pa.DataType:
    """Return the type of a column that has none below it.

    Raises
    ------
    TableFormatError
        accel does not read such columns.
    """
    found = _SIMPLE.get(kind)
    if found is not None:
        return found
    if kind == "uuid":
        return pa.uuid() if hasattr(pa, "uuid") else pa.binary(16)
    digits = _DECIMAL.fullmatch(kind)
    if digits is not None and 1 <= int(digits[1]) <= 38 and int(digits[2]) <= int(digits[1]):
        return pa.decimal128(int(digits[1]), int(digits[2]))
    raise TableFormatError(
        f"the column {column!r} is of the type {kind[:80]!r}, which accel does not read",
        hint="it reads the scalar types of DuckLake, structs, lists and maps, and no variant and geometry",
    )


def column_tree(rows: Sequence[tuple[Any, ...]]) -> tuple[LakeColumn, ...]:
    """Return the columns of a table in one version.

    Parameters
    ----------
    rows : sequence of tuple
        Id, parent, order, name, type, whether nulls are allowed, and the initial default of each column.

    Raises
    ------
    TableFormatError
        They form no tree, or two have one id or one name.
    """
    below: dict[int | None, list[tuple[Any, ...]]] = {}
    ids = set()
    for row in sorted(rows, key=lambda row: (row[2], row[0])):
        if row[0] in ids:
            raise TableFormatError(f"two columns have the id {row[0]}")
        ids.add(row[0])
        below.setdefault(row[1], []).append(row)
    used = 0

    def build(parent: int | None, depth: int) -> tuple[LakeColumn, ...]:
        nonlocal used
        if depth > _DEEPEST:
            raise TableFormatError(f"columns lie deeper than {_DEEPEST} in each other")
        found = []
        for number, _, _, name, kind, nullable, default in below.get(parent, ()):
            used += 1
            children = build(number, depth + 1)
            found.append(LakeColumn(number, name, kind, bool(nullable), default, children))
        names = [column.name for column in found]
        if len(set(names)) < len(names):
            raise TableFormatError(f"two columns have one name among {names[:20]}")
        return tuple(found)

    columns = build(None, 0)
    if used < len(rows):
        raise TableFormatError("a column lies in one that is not there")
    return columns
