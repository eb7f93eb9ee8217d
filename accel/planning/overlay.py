"""What a predicate is bound to in one file: the data set's columns, of the file's own types where these say the same."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from accel.predicate.atoms import Bound
from accel.predicate.kinds import Family, kind_of, reads_alike

__all__ = ["conformed_columns", "overlay"]


def overlay(schema: pa.Schema, file: pa.Schema) -> pa.Schema:
    """The data set's columns, with the file's own types where the file has them and they can be compared as they are.

    The file's types widen to the data set's: `check_paths` refuses others before.
    """
    fields = []
    for field in schema:
        index = file.get_field_index(field.name)
        if index >= 0:
            field = field.with_type(_type(field.type, file.field(index).type))
        fields.append(field)
    return pa.schema(fields)


def _type(kind: pa.DataType, file: pa.DataType) -> pa.DataType:
    if not (pa.types.is_struct(kind) and pa.types.is_struct(file)):
        # Of a column without a type, all fields are null.
        return file if _compares(file, kind) and not pa.types.is_struct(kind) else kind
    fields = []
    for field in file:
        index = kind.get_field_index(field.name)
        fields.append(field if index < 0 else field.with_type(_type(kind.field(index).type, field.type)))
    present = {field.name for field in fields}
    return pa.struct(fields + [field for field in kind if field.name not in present])


def _compares(file: pa.DataType, kind: pa.DataType) -> bool:
    """Whether the file's values can be compared as they are with what is meant for the data set's type."""
    own, meant = kind_of(file), kind_of(kind)
    if meant.family is Family.FLOAT and own.family is Family.INTEGER:
        # `bind` has literals rounded as they would be beside floats.
        return True
    return reads_alike(own, meant)


def conformed_columns(
    bound: Bound, schema: pa.Schema, *, file: pa.Schema
) -> Mapping[tuple[str, ...], pa.DataType]:
    """The columns of a predicate bound to an overlay that are to be brought to the data set's type, which is given."""
    out = {}
    for column in bound.columns:
        have, to = _type_at(file, column.path), _type_at(schema, column.path)
        if have is not None and to is not None and not _compares(have, to):
            out[column.path] = to
    return out


def _type_at(schema: pa.Schema, path: tuple[str, ...]) -> pa.DataType | None:
    kind = pa.struct(list(schema))
    for name in path:
        index = kind.get_field_index(name) if pa.types.is_struct(kind) else -1
        if index < 0:
            return None
        kind = kind.field(index).type
    return kind
