"""The schema: its elements read from the footer, their annotations, and the tree of fields and leaves.

Source: parquet-format `parquet.thrift` (LogicalType, TimeUnit, ConvertedType).
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Final

from accel.errors import ParquetFormatError
from accel.format.model import Leaf, ParquetSchema, Physical, Repetition, SchemaElement
from accel.format.thrift import BINARY, FALSE, I8, I32, STRUCT, ThriftReader, encode_varint

__all__ = [
    "ConvertedType",
    "LogicalType",
    "build_schema",
    "read_elements",
    "rename_element",
    "time_unit",
]

# Plain numbers, because creating an enum takes a quarter of a millisecond in every process.


class LogicalType:
    """The field ids of the supported members of the LogicalType union."""

    STRING: Final = 1
    ENUM: Final = 4
    DECIMAL: Final = 5
    DATE: Final = 6
    TIME: Final = 7
    TIMESTAMP: Final = 8
    INTEGER: Final = 10
    JSON: Final = 12
    BSON: Final = 13
    UUID: Final = 14
    FLOAT16: Final = 15


class ConvertedType:
    """The older annotation, which is used only where there is no LogicalType."""

    UTF8: Final = 0
    ENUM: Final = 4
    DECIMAL: Final = 5
    DATE: Final = 6
    TIME_MILLIS: Final = 7
    TIME_MICROS: Final = 8
    TIMESTAMP_MILLIS: Final = 9
    TIMESTAMP_MICROS: Final = 10
    UINT_8: Final = 11
    UINT_16: Final = 12
    UINT_32: Final = 13
    UINT_64: Final = 14
    INT_8: Final = 15
    INT_16: Final = 16
    INT_32: Final = 17
    INT_64: Final = 18
    JSON: Final = 19
    BSON: Final = 20


_UNITS: Final = {1: "ms", 2: "us", 3: "ns"}
"""The units by the field ids of the TimeUnit union."""
_CONVERTED_UNITS: Final[dict[int | None, str]] = {
    ConvertedType.TIME_MILLIS: "ms",
    ConvertedType.TIME_MICROS: "us",
    ConvertedType.TIMESTAMP_MILLIS: "ms",
    ConvertedType.TIMESTAMP_MICROS: "us",
}


def time_unit(element: SchemaElement) -> str | None:
    """Return Arrow's name of the unit of a time or timestamp leaf; None where the annotation has no known
    unit."""
    if element.logical_type is not None:
        return _UNITS.get(element.logical_params.get("unit", 0))
    return _CONVERTED_UNITS.get(element.converted_type)


MAX_PATH_PARTS: Final = 4_000_000
"""Limit for the sum of the lengths of all leaves' paths. A schema may be deep or wide, but one with a leaf on
each of very many levels would take memory quadratic in its size."""

MAX_LEVEL: Final = 32_767
"""The highest definition level that readers support."""

_INTS = {1: "type", 2: "length", 3: "repetition", 5: "children", 6: "converted", 7: "scale", 8: "precision"}
_INTS[9] = "field_id"


def read_elements(reader: ThriftReader) -> list[SchemaElement]:
    """Read FileMetaData's list of SchemaElement; raises ParquetFormatError."""
    return [_read_element(reader, index) for index in range(reader.list_of(STRUCT))]


def _read_name(reader: ThriftReader, index: int) -> str:
    try:
        return reader.binary().decode()
    except UnicodeDecodeError:
        # pyarrow would accept it and fail wherever the name is used.
        raise ParquetFormatError(
            "a column name that is not UTF-8", place=f"footer, schema element {index}"
        ) from None


def _read_element(reader: ThriftReader, index: int) -> SchemaElement:
    start = reader.pos
    ints: dict[str, int] = {}
    name: str | None = None
    logical: int | None = None
    params: dict[str, int] = {}
    for field, ctype in reader.fields():
        # Fields of an unexpected type are skipped, as pyarrow does, which reads the same bytes.
        if field in _INTS and ctype == I32:
            ints[_INTS[field]] = reader.i32()
        elif field == 4 and ctype == BINARY:
            name = _read_name(reader, index)
        elif field == 10 and ctype == STRUCT:
            logical, params = _read_logical(reader)
        else:
            reader.skip(ctype)
    if name is None:
        raise ParquetFormatError("a schema element without a name", place=f"footer, schema element {index}")
    try:
        physical = Physical(ints["type"]) if "type" in ints else None
        repetition = Repetition(ints.get("repetition", 0))
    except ValueError as error:
        raise ParquetFormatError(str(error), place=f"footer, schema element {index}, {name!r}") from error
    length = ints.get("length", 0) if physical is Physical.FIXED_LEN_BYTE_ARRAY else 0
    if length < 0 or ints.get("children", 0) < 0:
        raise ParquetFormatError("a negative size", place=f"footer, schema element {index}, {name!r}")
    return SchemaElement(
        name=name,
        physical=physical,
        type_length=length,
        repetition=repetition,
        num_children=ints.get("children", 0),
        converted_type=ints.get("converted"),
        logical_type=logical,
        logical_params=params,
        scale=ints.get("scale", 0),
        precision=ints.get("precision", 0),
        field_id=ints.get("field_id"),
        raw=bytes(reader.buf[start : reader.pos]),
    )


def rename_element(element: SchemaElement, name: str) -> SchemaElement:
    """Return a node of the schema under another name, everything else in its encoding as it was."""
    reader = ThriftReader(element.raw)
    encoded = name.encode()
    for field, ctype in reader.fields():
        if field == 4 and ctype == BINARY:
            before = reader.pos
            reader.binary()
            raw = element.raw[:before] + encode_varint(len(encoded)) + encoded + element.raw[reader.pos :]
            return replace(element, name=name, raw=raw)
        reader.skip(ctype)
    raise ParquetFormatError("a schema element without a name", place="footer")


def _read_logical(reader: ThriftReader) -> tuple[int | None, dict[str, int]]:
    """Read the LogicalType union: the field id of its member, and the parameters that matter."""
    member: int | None = None
    params: dict[str, int] = {}
    for field, ctype in reader.fields():
        if ctype != STRUCT:
            reader.skip(ctype)
            continue
        member = field
        if field == LogicalType.DECIMAL:
            params = _read_params(reader, {1: "scale", 2: "precision"})
        elif field in (LogicalType.TIME, LogicalType.TIMESTAMP):
            params = _read_params(reader, {1: "utc", 2: "unit"})
        elif field == LogicalType.INTEGER:
            params = _read_params(reader, {1: "bits", 2: "signed"})
        else:
            reader.skip(ctype)
    return member, params


def _read_params(reader: ThriftReader, names: dict[int, str]) -> dict[str, int]:
    params: dict[str, int] = {}
    for field, ctype in reader.fields():
        name = names.get(field)
        if name is None:
            reader.skip(ctype)
        elif ctype <= FALSE:
            params[name] = 2 - ctype
        elif ctype == I8:
            params[name] = reader.byte()
        elif ctype == I32:
            params[name] = reader.i32()
        elif ctype == STRUCT:  # the TimeUnit union, whose member is the value
            for member, inner in reader.fields():
                params[name] = member
                reader.skip(inner)
        else:
            reader.skip(ctype)
    return params


class _Group:
    """A group whose children are still being read."""

    __slots__ = ("awaited", "definition", "index", "repetition")

    def __init__(self, index: int, awaited: int, definition: int, repetition: int) -> None:
        self.index = index
        self.awaited = awaited
        self.definition = definition
        self.repetition = repetition


def build_schema(elements: list[SchemaElement]) -> ParquetSchema:
    """Build the tree from the flattened elements; element 0 is the root.

    An element with a physical type is a leaf, one without is a group. A top-level field without leaves is
    left out, as pyarrow does, since it has no column chunk.

    Raises ParquetFormatError where the numbers of children do not add up to exactly these elements, a leaf
    has children, or the tree exceeds MAX_LEVEL or MAX_PATH_PARTS.
    """
    if not elements:
        raise ParquetFormatError("the schema is empty", place="footer")
    ends = list(range(1, len(elements) + 1))
    leaves: list[Leaf] = []
    fields: list[int] = []
    first_leaf: list[int] = []
    stack = [_Group(0, elements[0].num_children, 0, 0)]
    names: list[str] = []  # of the open groups below the root, outermost first
    parts = 0
    required, repeated = Repetition.REQUIRED, Repetition.REPEATED
    _close_groups(stack, names, ends, 1)
    for index in range(1, len(elements)):
        if not stack:
            raise ParquetFormatError("the schema has more elements than its groups claim", place="footer")
        element = elements[index]
        parent = stack[-1]
        parent.awaited -= 1
        if len(stack) == 1:
            fields.append(index)
            first_leaf.append(len(leaves))
        definition = parent.definition + (element.repetition is not required)
        repetition = parent.repetition + (element.repetition is repeated)
        if definition > MAX_LEVEL:
            raise ParquetFormatError(f"the schema has more than {MAX_LEVEL} levels", place="footer")
        if element.physical is None:
            names.append(element.name)
            stack.append(_Group(index, element.num_children, definition, repetition))
        elif element.num_children:
            raise ParquetFormatError(f"leaf {element.name!r} has children", place="footer")
        else:
            parts += len(stack)
            if parts > MAX_PATH_PARTS:
                raise ParquetFormatError("the schema is too deep and wide", place="footer")
            ancestors = tuple([group.index for group in stack[1:]]) if names else ()
            leaves.append(Leaf(len(leaves), (*names, element.name), index, ancestors, definition, repetition))
        if stack[-1].awaited == 0:
            _close_groups(stack, names, ends, index + 1)
    if stack:
        raise ParquetFormatError("the schema has fewer elements than its groups claim", place="footer")
    bounds = [*first_leaf, len(leaves)]
    empty = [at for at, (first, stop) in enumerate(itertools.pairwise(bounds)) if first == stop]
    if empty:
        return build_schema(_without_fields(elements, [(fields[at], ends[fields[at]]) for at in empty]))
    return ParquetSchema(
        elements=tuple(elements),
        leaves=tuple(leaves),
        fields=tuple(fields),
        subtree_ends=tuple(ends),
        field_leaves=tuple(itertools.pairwise(bounds)),
    )


def _without_fields(elements: list[SchemaElement], gone: list[tuple[int, int]]) -> list[SchemaElement]:
    """Return the elements without some top-level fields, given by the half-open ranges of their elements."""
    remaining = [replace(elements[0], num_children=elements[0].num_children - len(gone))]
    before = 1
    for start, end in gone:
        remaining += elements[before:start]
        before = end
    return remaining + elements[before:]


def _close_groups(stack: list[_Group], names: list[str], ends: list[int], end: int) -> None:
    while stack and stack[-1].awaited == 0:
        ends[stack.pop().index] = end
        if stack:
            names.pop()
