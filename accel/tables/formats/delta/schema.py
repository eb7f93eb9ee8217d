"""The schema of a Delta table, as Arrow has it, and where files and statistics have its columns.

Source: the Delta protocol, "Column Mapping", "Type Widening".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from accel.errors import TableFormatError
from accel.planning.column_mapping import ColumnMapping, MappedColumn
from accel.tables.spark_schema import SparkField, read_spark_schema

__all__ = ["MappingMode", "StatisticsLeaf", "TableSchema"]

_ID: Final = "delta.columnMapping.id"
_PHYSICAL: Final = "delta.columnMapping.physicalName"
_TYPE_CHANGES: Final = "delta.typeChanges"

MappingMode = str
""""none", "name" or "id"."""


@dataclass(frozen=True, slots=True)
class StatisticsLeaf:
    """A column of which statistics may be there."""

    path: tuple[str, ...]
    """Its path in the table."""
    physical: tuple[str, ...]
    """Its path in the statistics."""
    type: pa.DataType
    widened: bool = False
    """Whether it had another type before."""


@dataclass(frozen=True, slots=True, eq=False)
class TableSchema:
    """The columns of a table in one version."""

    arrow: pa.Schema
    partition_columns: tuple[str, ...]
    physical: Mapping[str, str]
    """By a top-level column, its name in partition values and statistics."""
    mapping: ColumnMapping
    """Which columns of the files are meant. Partition columns may be in the files, too, and do not count."""
    leaves: Mapping[tuple[str, ...], StatisticsLeaf]
    """By path, the columns outside lists and maps that are no partition columns."""

    @property
    def partition_types(self) -> dict[str, pa.DataType]:
        """The types of the partition columns."""
        return {name: self.arrow.field(name).type for name in self.partition_columns}

    @classmethod
    def parse(cls, text: str, partition_columns: Sequence[str], mode: MappingMode) -> TableSchema:
        """Read the schema of a table.

        Parameters
        ----------
        text : str
            The `schemaString` of its metadata.
        partition_columns : sequence of str
        mode : {"none", "name", "id"}
            How columns are mapped.

        Raises
        ------
        TableFormatError
            It is no schema, or has a type that is not read.
        """
        if mode not in ("none", "name", "id"):
            raise TableFormatError(f"columns are mapped by {mode!r}, which accel does not know")
        columns = [_column(found, mode, ((), ())) for found in read_spark_schema(text)]
        names = [column.field.name for column in columns]
        missing = [name for name in partition_columns if name not in names]
        if missing or len(set(partition_columns)) < len(partition_columns):
            raise TableFormatError(
                f"the partition columns {list(partition_columns)} are not all in the schema"
            )
        if len(set(names)) < len(names):
            raise TableFormatError("two columns of the schema have the same name")
        in_files = [column.mapped for column in columns if column.field.name not in partition_columns]
        return cls(
            pa.schema([column.field for column in columns]),
            tuple(partition_columns),
            {column.field.name: column.physical for column in columns},
            ColumnMapping(in_files, int96_unit="us"),
            {
                leaf.path: leaf
                for column in columns
                if column.field.name not in partition_columns
                for leaf in column.leaves
            },
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Column:
    field: pa.Field
    physical: str
    mapped: MappedColumn
    leaves: tuple[StatisticsLeaf, ...]


def _column(found: SparkField, mode: MappingMode, above: tuple[tuple[str, ...], tuple[str, ...]]) -> _Column:
    """Return a column, and the fields below it, as files and statistics have them.

    Raises
    ------
    TableFormatError
        It lacks what its mapping needs.
    """
    name, metadata = found.name, found.metadata
    physical = metadata.get(_PHYSICAL, name) if mode != "none" else name
    number = metadata.get(_ID)
    if mode != "none" and _PHYSICAL not in metadata:
        raise TableFormatError(
            f"the column {name!r} has no physical name, though columns are mapped by {mode}"
        )
    if mode == "id" and (isinstance(number, bool) or not isinstance(number, int)):
        raise TableFormatError(f"the column {name!r} has no id, though columns are mapped by id")
    if not isinstance(physical, str):
        raise TableFormatError(f"the physical name of the column {name!r} is no text")
    path, there = (*above[0], name), (*above[1], physical)
    fields = tuple(_column(one, mode, (path, there)) for one in found.fields)
    elements = tuple(_element(one, mode, (path, there)) for one in found.elements)
    source: str | int = number if mode == "id" and number is not None else physical
    mapped = MappedColumn(name, source, tuple(child.mapped for child in fields), elements)
    if fields:
        leaves = tuple(leaf for child in fields for leaf in child.leaves)
    elif pa.types.is_nested(found.type):
        leaves = ()
    else:
        leaves = (StatisticsLeaf(path, there, found.type, widened=bool(metadata.get(_TYPE_CHANGES))),)
    return _Column(pa.field(name, found.type), physical, mapped, leaves)


def _element(
    found: SparkField, mode: MappingMode, above: tuple[tuple[str, ...], tuple[str, ...]]
) -> MappedColumn:
    fields = tuple(_column(one, mode, above).mapped for one in found.fields)
    return MappedColumn(
        "element", "element", fields, tuple(_element(one, mode, above) for one in found.elements)
    )
