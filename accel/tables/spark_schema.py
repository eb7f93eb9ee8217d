"""Spark's schemas, as JSON: in the log of a Delta table, and in the parameters of a table of a metastore.

Sources: Spark's `DataType.json`; the Delta protocol, "Schema Serialization Format".
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from accel.errors import TableFormatError

__all__ = ["DEEPEST", "SparkField", "read_spark_schema"]

DEEPEST: Final = 64
"""How deep types may be nested."""
_PLAIN: Final[Mapping[str, pa.DataType]] = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
    "null": pa.null(),
    "variant": pa.struct([pa.field("metadata", pa.binary()), pa.field("value", pa.binary())]),
}
_DECIMAL: Final = re.compile(r"decimal\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)", re.ASCII)
_TEXT: Final = re.compile(r"(?:string collate .*|(?:char|varchar)\(\s*\d{1,10}\s*\))", re.ASCII)


@dataclass(frozen=True, slots=True, eq=False)
class SparkField:
    """A column, a field of a struct, or what a list or a map consists of."""

    name: str
    """The name; "element" of what has none."""
    type: pa.DataType
    metadata: Mapping[str, Any] = field(default_factory=dict)
    fields: tuple[SparkField, ...] = ()
    """Of a struct."""
    elements: tuple[SparkField, ...] = ()
    """Of a list its values, of a map its keys and its values."""


def read_spark_schema(text: str) -> list[SparkField]:
    """Read a schema.

    Raises
    ------
    TableFormatError
        It is no schema, or has a type that is not read.
    """
    try:
        found = json.loads(text)
        if found["type"] != "struct":
            raise TypeError("it is no struct")
        return [_field(one, 0) for one in found["fields"]]
    except TableFormatError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise TableFormatError(f"the schema of the table cannot be read: {error!r:.200}") from error


def _field(found: Mapping[str, Any], depth: int) -> SparkField:
    name, metadata = found["name"], found.get("metadata") or {}
    if not isinstance(name, str) or not isinstance(metadata, Mapping):
        raise TypeError("a column has a name, which is a text")
    return _typed(name, found["type"], metadata, depth + 1)


def _typed(name: str, found: Any, metadata: Mapping[str, Any], depth: int) -> SparkField:
    if depth > DEEPEST:
        raise TableFormatError(f"the schema is nested more than {DEEPEST} deep")
    if isinstance(found, str):
        return SparkField(name, _plain(found), metadata)
    kind = found["type"]
    if kind == "struct":
        fields = tuple(_field(one, depth) for one in found["fields"])
        if len({one.name for one in fields}) < len(fields):
            raise TableFormatError("two fields of a struct have the same name")
        struct = pa.struct([pa.field(one.name, one.type) for one in fields])
        return SparkField(name, struct, metadata, fields)
    if kind == "array":
        element = _typed("element", found["elementType"], {}, depth + 1)
        return SparkField(name, pa.list_(element.type), metadata, elements=(element,))
    if kind == "map":
        key, value = (_typed("element", found[part], {}, depth + 1) for part in ("keyType", "valueType"))
        return SparkField(name, pa.map_(key.type, value.type), metadata, elements=(key, value))
    raise TableFormatError(f"accel does not read columns of Spark's type {kind!r:.80}")


def _plain(name: str) -> pa.DataType:
    kind = _PLAIN.get(name)
    if kind is not None:
        return kind
    decimal = _DECIMAL.fullmatch(name)
    if decimal is not None and 1 <= int(decimal[1]) <= 38 and int(decimal[2]) <= int(decimal[1]):
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    if _TEXT.fullmatch(name):
        return pa.string()
    raise TableFormatError(f"accel does not read columns of Spark's type {name!r:.80}")
