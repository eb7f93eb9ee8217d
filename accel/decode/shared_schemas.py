"""Schemas, of which thousands of files often have one: made once for all that are alike."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from accel.decode.arrow import file_schema
from accel.decode.schema_memo import SchemaMemo
from accel.format.model import INT96_UNIT, ParquetSchema
from accel.planning.projection import has_instants

__all__ = ["arrow_schema", "holds_instants", "shared_schema"]

# Of the files that are held anywhere: a schema goes with the last of them. Its key is the bytes it was parsed from.
_schemas: weakref.WeakValueDictionary[tuple[bytes, ...], ParquetSchema] = weakref.WeakValueDictionary()
_arrow_schemas: SchemaMemo[pa.Schema] = SchemaMemo(64)
_holds: SchemaMemo[bool] = SchemaMemo(64)
_NOTHING: Final[Mapping[str, bytes]] = {}


def shared_schema(schema: ParquetSchema) -> ParquetSchema:
    """The schema that a file met before has, where it is the same."""
    return _schemas.setdefault(tuple(element.raw for element in schema.elements), schema)


def holds_instants(schema: ParquetSchema) -> bool:
    """Whether any column is INT96."""
    known = _holds.get(schema, _NOTHING, None)
    if known is None:
        known = _holds.put(schema, _NOTHING, None, has_instants(schema, range(len(schema.leaves))))
    return known


def arrow_schema(
    schema: ParquetSchema, key_value: Mapping[str, bytes], *, int96_unit: str = INT96_UNIT
) -> pa.Schema:
    """`file_schema`, once for files that agree on all that it depends on."""
    known = _arrow_schemas.get(schema, key_value, int96_unit)
    if known is not None:
        return known
    found = file_schema(schema, key_value, int96_unit=int96_unit)
    return _arrow_schemas.put(schema, key_value, int96_unit, found)
