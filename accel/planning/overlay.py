"""What a predicate is bound to in one file: the data set's columns, of the file's own types where these say the same."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from accel.errors import SchemaMismatchError
from accel.planning.conform import widens
from accel.predicate.atoms import Bound
from accel.predicate.kinds import Family, kind_of, reads_alike

__all__ = ["conformed_columns", "overlay"]


def overlay(schema: pa.Schema, file: pa.Schema) -> pa.Schema:
    """The data set's columns, with the file's own types where the file has them and they can be compared as they are."""
    fields = []
    for field in schema:
        index = file.get_field_index(field.name)
        if index >= 0:
            field = field.with_type(_type(field.type, file.field(index).type))
        fields.append(field)
    return pa.schema(fields)


def _type(kind: pa.DataType, file: pa.DataType) -> pa.DataType:
    if not (pa.types.is_struct(kind) and pa.types.is_struct(file)):
        return kind if not _compares(file, kind) and widens(file, kind) else file
    fields = []
    for field in file:
        index = kind.get_field_index(field.name)
        fields.append(field if index < 0 else field.with_type(_type(kind.field(index).type, field.type)))
    present = {field.name for field in fields}
    return pa.struct(fields + [field for field in kind if field.name not in present])


def _compares(file: pa.DataType, kind: pa.DataType) -> bool:
    """Whether the file's values can be compared as they are with what is meant for the data set's type."""
    own, meant = kind_of(file), kind_of(kind)
    if meant.family is Family.FLOAT and own.family in (Family.INTEGER, Family.DECIMAL):
        # `bind` has literals rounded as they would be beside floats.
        return True
    return reads_alike(own, meant)


def conformed_columns(
    bound: Bound, schema: pa.Schema, *, file: pa.Schema
) -> Mapping[tuple[str, ...], pa.DataType]:
    """The columns of a predicate bound to an overlay that are to be brought to the data set's type, which is given.

    Raises
    ------
    SchemaMismatchError
        The file's durations, or UUIDs, do not widen to the data set's type: a literal would not mean the same.
    """
    out = {}
    for column in bound.columns:
        have, to = _type_at(file, column.path), _type_at(schema, column.path)
        if have is None or to is None or _compares(have, to):
            continue
        if not have.equals(column.type):
            out[column.path] = to
        elif not {kind_of(have).family, kind_of(to).family}.isdisjoint({Family.DURATION, Family.UUID}):
            raise SchemaMismatchError(
                f"column {'.'.join(column.path)!r} is {have} here and {to} in the scan's schema",
                hint="give schema= with a type that holds both",
            )
    return out


def _type_at(schema: pa.Schema, path: tuple[str, ...]) -> pa.DataType | None:
    kind = pa.struct(list(schema))
    for name in path:
        index = kind.get_field_index(name) if pa.types.is_struct(kind) else -1
        if index < 0:
            return None
        kind = kind.field(index).type
    return kind
