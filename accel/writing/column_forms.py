"""The nodes of a Parquet schema by the paths of the Arrow types that they are read to, and what a leaf stores
as readers understand it.

Sources: parquet-format `LogicalTypes.md`; the rules for lists of Arrow C++ `parquet/arrow/schema.cc`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

import pyarrow as pa

from accel.errors import ParquetFormatError
from accel.format.model import ParquetSchema, Physical, Repetition, SchemaElement
from accel.format.schema import ConvertedType, LogicalType, time_unit
from accel.format.thrift import read_struct, write_struct

__all__ = [
    "ITEM",
    "KEY",
    "VALUE",
    "Form",
    "NodePath",
    "agree",
    "child_paths",
    "form_of",
    "leaf_types",
    "nodes_of",
    "spelled",
]

NodePath: TypeAlias = tuple[str, ...]
"""Names from the top-level column down; lists and maps have ITEM, KEY and VALUE in place of the names of
their groups."""
Form: TypeAlias = tuple[object, ...]
"""What a node stores: a word, and its parameters. Nodes of equal forms are read alike by every reader."""

ITEM: Final = "[]"
KEY: Final = "[key]"
VALUE: Final = "[value]"

_MAP, _LIST, _UNKNOWN = 2, 3, 11
"""Members of the LogicalType union."""
_INTERVAL: Final = 21
"""A ConvertedType."""
_CONTAINERS: Final = frozenset({1, 2, 3})
"""MAP, MAP_KEY_VALUE and LIST among the ConvertedTypes."""
_CONVERTED_LOGICAL: Final = {
    ConvertedType.UTF8: LogicalType.STRING,
    ConvertedType.ENUM: LogicalType.ENUM,
    ConvertedType.DECIMAL: LogicalType.DECIMAL,
    ConvertedType.DATE: LogicalType.DATE,
    ConvertedType.TIME_MILLIS: LogicalType.TIME,
    ConvertedType.TIME_MICROS: LogicalType.TIME,
    ConvertedType.TIMESTAMP_MILLIS: LogicalType.TIMESTAMP,
    ConvertedType.TIMESTAMP_MICROS: LogicalType.TIMESTAMP,
    ConvertedType.JSON: LogicalType.JSON,
    ConvertedType.BSON: LogicalType.BSON,
}
_INTEGERS: Final = {
    ConvertedType.UINT_8: (8, False),
    ConvertedType.UINT_16: (16, False),
    ConvertedType.UINT_32: (32, False),
    ConvertedType.UINT_64: (64, False),
    ConvertedType.INT_8: (8, True),
    ConvertedType.INT_16: (16, True),
    ConvertedType.INT_32: (32, True),
    ConvertedType.INT_64: (64, True),
}
_WORDS: Final = {
    LogicalType.STRING: "text",
    LogicalType.ENUM: "ENUM",
    LogicalType.DATE: "date",
    LogicalType.JSON: "JSON",
    LogicalType.BSON: "BSON",
    LogicalType.UUID: "UUID",
    LogicalType.FLOAT16: "FLOAT16",
}
_LOGICAL_FIELD: Final = 10


def form_of(element: SchemaElement) -> Form:
    """Return what a node stores, whichever of the two annotations says so."""
    physical, logical, converted = element.physical, element.logical_type, element.converted_type
    if physical is None:
        if logical in (None, _MAP, _LIST) and (converted is None or converted in _CONTAINERS):
            return ("group",)
        return ("group", converted, _logical_bytes(element))
    if physical is Physical.INT96:
        return ("INT96",)
    params = element.logical_params
    if logical is None and converted is not None:
        if converted in _INTEGERS:
            return ("integer", *_INTEGERS[converted])
        if converted == _INTERVAL:
            return ("INTERVAL", element.type_length)
        logical = _CONVERTED_LOGICAL.get(converted)
        if logical is None:
            return ("annotation", physical, element.type_length, converted, None)
        params = {"utc": 1, "scale": element.scale, "precision": element.precision}
    if logical is None:
        if physical in (Physical.INT32, Physical.INT64):
            return ("integer", 32 if physical is Physical.INT32 else 64, True)
        if physical in (Physical.BYTE_ARRAY, Physical.FIXED_LEN_BYTE_ARRAY):
            return ("bytes", element.type_length)
        return ("number", physical)
    if logical == LogicalType.DECIMAL:
        integer = physical in (Physical.INT32, Physical.INT64)
        # Of decimals in bytes no reader minds the length.
        return ("decimal", physical if integer else None, params.get("precision"), params.get("scale", 0))
    if logical == LogicalType.INTEGER:
        return ("integer", params.get("bits"), bool(params.get("signed")))
    if logical in (LogicalType.TIME, LogicalType.TIMESTAMP):
        word = "time" if logical == LogicalType.TIME else "timestamp"
        return (word, time_unit(element), bool(params.get("utc")))
    if logical == _UNKNOWN:
        return ("null",)
    word_of = _WORDS.get(logical)
    if word_of is not None:
        return (word_of,)
    return ("annotation", physical, element.type_length, converted, _logical_bytes(element))


def _logical_bytes(element: SchemaElement) -> bytes | None:
    fields, _ = read_struct(element.raw)
    return write_struct({1: fields[_LOGICAL_FIELD]}) if _LOGICAL_FIELD in fields else None


_NUMBERS: Final = frozenset({"integer", "decimal", "number", "FLOAT16"})


def agree(form: Form, wide: Form) -> bool:
    """Return whether values of one form mean the same in another, into which Arrow widens them."""
    one, other = form[0], wide[0]
    if form == wide or one == "null":
        return True
    if one in ("time", "timestamp") and one == other:
        return form[2] == wide[2]
    if one == "date" and other == "timestamp":
        return not wide[2]
    return (one in _NUMBERS and other in _NUMBERS) or (one == other == "bytes")


def spelled(form: Form) -> str:
    """Return the form in the words of Parquet."""
    word, *details = form
    match word, details:
        case "integer", [bits, signed]:
            return f"{'INT' if signed else 'UINT'}_{bits}"
        case ("time" | "timestamp") as kind, [unit, utc]:
            return f"{str(kind).upper()} in {unit}, {'UTC' if utc else 'local'}"
        case "decimal", [_, precision, scale]:
            return f"DECIMAL({precision}, {scale})"
        case "number", [Physical() as physical]:
            return physical.name
        case "annotation", _:
            return "of a type that pyarrow does not know"
    return str(word)


# -- paths ---------------------------------------------------------------------------------------


def _stored(kind: pa.DataType) -> pa.DataType:
    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return kind


def _is_list(kind: pa.DataType) -> bool:
    return bool(kind.num_fields == 1 and not pa.types.is_struct(kind) and not pa.types.is_map(kind))


def child_paths(kind: pa.DataType, path: NodePath) -> list[tuple[NodePath, pa.DataType]]:
    """Return the paths and types right below a type, in the order of their leaves; none for a leaf."""
    kind = _stored(kind)
    if pa.types.is_struct(kind):
        seen: dict[str, int] = {}
        found = []
        for field in kind:
            count = seen[field.name] = seen.get(field.name, 0) + 1
            name = field.name if count == 1 else f"{field.name}#{count}"
            found.append(((*path, name), field.type))
        return found
    if pa.types.is_map(kind):
        return [((*path, KEY), kind.key_type), ((*path, VALUE), kind.item_type)]
    if _is_list(kind):
        return [((*path, ITEM), kind.value_type)]
    return []


def leaf_types(kind: pa.DataType, path: NodePath) -> Iterator[tuple[NodePath, pa.DataType]]:
    """Yield the paths and types of the leaves of a type, in their order."""
    inside = child_paths(kind, path)
    if not inside and not pa.types.is_struct(_stored(kind)):
        yield path, kind
    for below, child in inside:
        yield from leaf_types(child, below)


def nodes_of(schema: ParquetSchema, arrow: pa.Schema) -> dict[NodePath, int]:
    """Return the numbers of the elements by their paths: leaves, and groups that have a path.

    Parameters
    ----------
    schema : ParquetSchema
    arrow : pyarrow.Schema
        The types that it is read to.

    Raises
    ------
    ParquetFormatError
        The two do not have the same leaves.
    """
    nodes: dict[NodePath, int] = {}
    for top, field, (start, stop) in zip(schema.fields, arrow, schema.field_leaves, strict=True):
        leaves = [schema.leaves[at].element for at in range(start, stop)]
        paths = [path for path, _ in leaf_types(field.type, (field.name,))]
        if len(paths) != len(leaves):
            raise ParquetFormatError(
                f"{len(leaves)} leaves are read to a type of {len(paths)}", place=f"column {field.name}"
            )
        found: dict[NodePath, int] = {}
        try:
            _pair(schema, top, field.type, (field.name,), found, is_item=False)
        except ValueError:
            found = {}
        by_order = dict(zip(paths, leaves, strict=True))
        if {path: found.get(path) for path in by_order} != by_order:
            found = {(field.name,): top}  # a list of another form: its groups are not looked at
        nodes.update(found | by_order)
    return nodes


def _pair(
    schema: ParquetSchema,
    element: int,
    kind: pa.DataType,
    path: NodePath,
    nodes: dict[NodePath, int],
    *,
    is_item: bool,
) -> None:
    """Pair a node and all below it. A repeated node is a list, unless it is the item of one."""
    inside, elements = child_paths(kind, path), schema.elements
    kind = _stored(kind)
    bare = _is_list(kind) and elements[element].repetition is Repetition.REPEATED and not is_item
    if not bare:  # of a list without groups of its own the node is the item
        nodes[path] = element
    if not inside:
        return
    if pa.types.is_struct(kind):
        below = [(child, False) for child in _children(schema, element)]
    elif pa.types.is_map(kind):
        [entries] = _children(schema, element)
        below = [(child, False) for child in _children(schema, entries)]
    elif bare:
        below = [(element, True)]
    else:
        [repeated] = _children(schema, element)
        within = _children(schema, repeated)
        name = elements[repeated].name
        is_struct = name == "array" or name.endswith("_tuple")
        below = [(repeated, True)] if len(within) != 1 or is_struct else [(within[0], False)]
    for (child, as_item), (where, type_below) in zip(below, inside, strict=True):
        _pair(schema, child, type_below, where, nodes, is_item=as_item)


def _children(schema: ParquetSchema, element: int) -> list[int]:
    found = []
    child = element + 1
    while child < schema.subtree_ends[element]:
        found.append(child)
        child = schema.subtree_ends[child]
    return found
