"""A table in types that pyarrow can sort, cut and count, and the Arrow schema by which readers give its own again."""

from __future__ import annotations

import base64
from collections.abc import Sequence

import pyarrow as pa

from accel.format.footer import ARROW_SCHEMA_KEY

__all__ = ["arrow_schema_pairs", "storable"]


def storable(table: pa.Table) -> pa.Table:
    """The same values, views of text and binary at any depth as what they are views of: pyarrow cannot take from views,
    nor from a dictionary of them, nor count them, and cuts none inside a struct."""
    fields, columns = [], []
    for field, column in zip(table.schema, table.columns, strict=True):
        to = _storable_type(field.type)
        fields.append(field.with_type(to))
        columns.append(column if to == field.type else column.cast(to))
    return pa.Table.from_arrays(columns, schema=pa.schema(fields, metadata=table.schema.metadata))


def _storable_type(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_string_view(kind):
        return pa.large_string()
    if types.is_binary_view(kind):
        return pa.large_binary()
    if types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _storable_type(kind.value_type), kind.ordered)
    if types.is_struct(kind):
        return pa.struct([_storable_field(field) for field in kind])
    if types.is_map(kind):
        key, item = _storable_field(kind.key_field), _storable_field(kind.item_field)
        return pa.map_(key, item, keys_sorted=kind.keys_sorted)
    if types.is_list(kind):
        return pa.list_(_storable_field(kind.value_field))
    if types.is_large_list(kind):
        return pa.large_list(_storable_field(kind.value_field))
    if types.is_fixed_size_list(kind):
        return pa.list_(_storable_field(kind.value_field), kind.list_size)
    return kind


def _storable_field(field: pa.Field) -> pa.Field:
    return field.with_type(_storable_type(field.type))


def arrow_schema_pairs(original: pa.Schema, names: Sequence[str]) -> dict[str | bytes, bytes]:
    """The footer's key-value pairs that pyarrow would write of a table of this schema, its columns named so."""
    fields = [field.with_name(name) for field, name in zip(original, names, strict=True)]
    schema = pa.schema(fields, metadata=original.metadata)
    return {
        **(original.metadata or {}),
        ARROW_SCHEMA_KEY: base64.b64encode(schema.serialize().to_pybytes()),
    }
