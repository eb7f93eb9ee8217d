"""A table in types that pyarrow can sort, cut and count, and the Arrow schema by which readers give its own again."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from accel.arrays import change_fields
from accel.decode.dictionary_arrays import check_indices
from accel.format.footer import ARROW_SCHEMA_KEY

__all__ = ["arrow_schema_pairs", "storable"]

# By ids: extension types that are written in Python have no hash.
_VIEWED = {pa.string_view().id: pa.large_string(), pa.binary_view().id: pa.large_binary()}
_SPELT_OUT = {
    pa.string().id: pa.large_string(),
    pa.large_string().id: pa.large_string(),
    pa.binary().id: pa.large_binary(),
    pa.large_binary().id: pa.large_binary(),
}
"""What entries of dictionaries become, of which there are more then."""


def storable(table: pa.Table) -> pa.Table:
    """The same values, some as another type.

    Views of text and binary, at any depth, are what they are views of: pyarrow cannot take from views, nor from a
    dictionary of them, nor count them, and cuts none inside a struct. Dictionaries inside structs that may be null are
    decoded, since pyarrow does not count the structs' nulls among theirs; so the order of their entries is not kept.
    Dictionaries that have an entry for null are decoded, since pyarrow does not write them.
    """
    fields, columns = [], []
    for field, column in zip(table.schema, table.columns, strict=True):
        # In two steps: pyarrow decodes no dictionary of views.
        without_views = _changed(field, _without_views).type
        to = _changed(field.with_type(without_views), _decoded).type
        if pa.types.is_dictionary(to) and any(chunk.dictionary.null_count for chunk in column.chunks):
            to = to.value_type
        if pa.types.is_nested(to) and to != field.type:
            column = check_indices(column)
        for step in (without_views, to):
            column = column if step == column.type else column.cast(step)
        fields.append(field.with_type(to))
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=pa.schema(fields, metadata=table.schema.metadata))


def _without_views(kind: pa.DataType, *, in_nulls: bool) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        entries = _without_views(kind.value_type, in_nulls=in_nulls)
        return pa.dictionary(kind.index_type, entries, kind.ordered)
    return _VIEWED.get(kind.id, kind)


def _decoded(kind: pa.DataType, *, in_nulls: bool) -> pa.DataType:
    return _SPELT_OUT.get(kind.value_type.id, kind) if in_nulls and pa.types.is_dictionary(kind) else kind


class _Change(Protocol):
    """What becomes of a type that has none inside it; `in_nulls` says that it is inside a struct that may be null."""

    def __call__(self, kind: pa.DataType, *, in_nulls: bool) -> pa.DataType: ...


def _changed(field: pa.Field, change: _Change, *, in_nulls: bool = False) -> pa.Field:
    """The field with the types at its ends changed."""
    kind = field.type
    in_nulls = in_nulls or bool(field.nullable and pa.types.is_struct(kind))

    def inside(part: pa.Field) -> pa.Field:
        return _changed(part, change, in_nulls=in_nulls)

    to = change_fields(kind, inside, keys=inside)
    return field.with_type(change(kind, in_nulls=in_nulls) if to is None else to)


def arrow_schema_pairs(original: pa.Schema, names: Sequence[str]) -> dict[str | bytes, bytes]:
    """The footer's key-value pairs that pyarrow would write of a table of this schema, its columns named so."""
    fields = [field.with_name(name) for field, name in zip(original, names, strict=True)]
    schema = pa.schema(fields, metadata=original.metadata)
    return {
        **(original.metadata or {}),
        ARROW_SCHEMA_KEY: base64.b64encode(schema.serialize().to_pybytes()),
    }
