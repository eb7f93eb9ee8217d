"""Timestamps stored as INT96, which a scan may read to another unit than what else is said of them is in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from accel.arrays import change_fields
from accel.format.model import INT96_UNIT, ParquetSchema, Physical, SchemaElement

__all__ = ["has_instants", "indexed_as_read", "int96_unit", "zoned_schema"]


def has_instants(schema: ParquetSchema, leaves: Sequence[int]) -> bool:
    """Whether a leaf among these is INT96."""
    elements = schema.elements
    return any(elements[schema.leaves[leaf].element].physical is Physical.INT96 for leaf in leaves)


def int96_unit(schema: ParquetSchema, arrow: pa.Schema) -> str:
    """What the INT96 columns of a file are read to, by its Arrow schema: "us", else "ns".

    Parameters
    ----------
    arrow : pyarrow.Schema
        Of the same columns, all leaves of each.
    """
    if not has_instants(schema, range(len(schema.leaves))):
        return INT96_UNIT
    for leaf, kind in zip(schema.leaves, _leaf_types(arrow.types), strict=False):
        if schema.elements[leaf.element].physical is Physical.INT96:
            return "us" if pa.types.is_timestamp(kind) and kind.unit == "us" else INT96_UNIT
    return INT96_UNIT


def indexed_as_read(element: SchemaElement, kind: pa.DataType) -> bool:
    """Whether indexes of a column tell of it in the type that it is read to: of INT96 they tell nanoseconds."""
    if element.physical is not Physical.INT96:
        return True
    return bool(pa.types.is_timestamp(kind) and kind.unit == INT96_UNIT)


def zoned_schema(schema: ParquetSchema, arrow: pa.Schema) -> pa.Schema | None:
    """`arrow`, whose INT96 timestamps have a zone: they are instants in UTC, of which Arrow is not told. None where
    there are none."""
    if not has_instants(schema, range(len(schema.leaves))):
        return None
    physical = iter([schema.elements[leaf.element].physical for leaf in schema.leaves])
    return pa.schema([field.with_type(_zoned(field.type, physical)) for field in arrow])


def _zoned(kind: pa.DataType, physical: Iterator[Physical | None]) -> pa.DataType:
    """`physical` goes on by the leaves of `kind`."""

    def zoned(field: pa.Field) -> pa.Field:
        return field.with_type(_zoned(field.type, physical))

    changed = None if pa.types.is_fixed_size_list(kind) else change_fields(kind, zoned, keys=zoned)
    if changed is not None:
        return changed
    stored = [next(physical, None) for _ in _leaf_types([kind])]
    return (
        pa.timestamp(kind.unit, "UTC") if stored == [Physical.INT96] and pa.types.is_timestamp(kind) else kind
    )


def _leaf_types(kinds: Sequence[pa.DataType]) -> Iterator[pa.DataType]:
    for kind in kinds:
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        if kind.num_fields or pa.types.is_struct(kind):
            yield from _leaf_types([kind.field(at).type for at in range(kind.num_fields)])
        else:
            yield kind
