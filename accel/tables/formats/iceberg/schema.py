"""The schemas of an Iceberg table: its columns with their field ids, as Arrow has them, and where files have
them.

Source: the Iceberg specification, "Schemas and Data Types", "Default values", "Column Projection" and
appendices C and D.
"""

from __future__ import annotations

import datetime
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any, Final

import pyarrow as pa

from accel.errors import TableFormatError
from accel.planning.column_mapping import ColumnMapping, MappedColumn
from accel.planning.evolution import Evolution, FieldDefaults

__all__ = [
    "LINEAGE",
    "ROW_ID",
    "ROW_ID_FIELD",
    "SEQUENCE_NUMBER",
    "Field",
    "NameMapping",
    "TableSchema",
    "defaults_below",
    "field_mapping",
    "single_value",
]

_MOST_DEPTH: Final = 64
_MOST_FIELDS: Final = 100_000
_DECIMAL: Final = re.compile(r"decimal\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)")
_FIXED: Final = re.compile(r"fixed\[\s*(\d{1,9})\s*\]")
_PLAIN: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "timestamp_ns": pa.timestamp("ns"),
    "timestamptz_ns": pa.timestamp("ns", "UTC"),
    "string": pa.string(),
    "binary": pa.binary(),
    "unknown": pa.null(),
    "variant": pa.struct([pa.field("metadata", pa.binary()), pa.field("value", pa.binary())]),
}
ROW_ID: Final = "_row_id"
SEQUENCE_NUMBER: Final = "_last_updated_sequence_number"
LINEAGE: Final[Mapping[str, int]] = {ROW_ID: 2147483540, SEQUENCE_NUMBER: 2147483539}
"""The columns of row lineage, and their field ids."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Field:
    """One column, or a field below one: of a struct, the element of a list, the key or value of a map."""

    id: int
    name: str
    type: pa.DataType
    kind: str
    """The name of the type in the specification: "long", "struct", "timestamptz", ..."""
    children: tuple[Field, ...] = ()
    required: bool = False
    default: pa.Scalar | None = None
    """The value in the rows of files that lack it; None for null."""

    @property
    def arrow(self) -> pa.Field:
        """The field as Arrow has it."""
        return pa.field(self.name, self.type, nullable=not self.required)


ROW_ID_FIELD: Final = Field(id=LINEAGE[ROW_ID], name=ROW_ID, type=pa.int64(), kind="long")
"""Of files into which rows were moved: they keep their ids."""


@dataclass(frozen=True, eq=False)
class TableSchema:
    """One schema of a table."""

    id: int
    columns: tuple[Field, ...]
    paths: Mapping[int, tuple[str, ...]]
    """By field id, the path of a column, also in structs; fields below lists and maps are not in it."""
    fields: Mapping[int, Field]
    """All fields by their ids."""

    @classmethod
    def parse(cls, given: object) -> TableSchema:
        """Make a schema of its JSON.

        Raises
        ------
        TableFormatError
            It is none, two fields have one id, or a type is not supported.
        """
        if not isinstance(given, dict):
            raise TableFormatError(f"a schema is a JSON object, not {str(given)[:60]!r}")
        number = given.get("schema-id", 0)
        fields: dict[int, Field] = {}
        columns = _struct_fields(given, fields, 0)
        names = [column.name for column in columns]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise TableFormatError(f"two columns of the schema are called {twice!r}")
        paths: dict[int, tuple[str, ...]] = {}
        _add_paths(columns, (), paths)
        return cls(whole_number(number, "schema-id"), columns, paths, fields)

    @property
    def arrow(self) -> pa.Schema:
        """The columns as Arrow has them."""
        return pa.schema([column.arrow for column in self.columns])

    @cached_property
    def evolution(self) -> Evolution:
        """How the columns of files may differ from these."""
        moved = {SEQUENCE_NUMBER} if LINEAGE[SEQUENCE_NUMBER] in self.fields else ()
        return Evolution(
            defaults=FieldDefaults(dict(defaults_below(self.columns))), coalesced=frozenset(moved)
        )

    def with_sequence_numbers(self) -> TableSchema:
        """Return the schema with the column of the sequence numbers by which rows were changed last."""
        number = LINEAGE[SEQUENCE_NUMBER]
        if SEQUENCE_NUMBER in self.arrow.names:
            raise TableFormatError(f"the table has a column {SEQUENCE_NUMBER!r} of its own")
        field = Field(id=number, name=SEQUENCE_NUMBER, type=pa.int64(), kind="long")
        # It has no path: bounds of the values that a file has are none of those that nulls stand for.
        return TableSchema(self.id, (*self.columns, field), self.paths, {**self.fields, number: field})

    def type_of(self, path: Sequence[str]) -> pa.DataType:
        """Return the type of the column of a path."""
        kind = pa.struct([column.arrow for column in self.columns])
        for name in path:
            kind = kind.field(name).type
        return kind


class NameMapping:
    """The names by which the fields of files without field ids are known.

    Parameters
    ----------
    given : object
        The parsed JSON of the property `schema.name-mapping.default`.

    Raises
    ------
    TableFormatError
        It is no name mapping.
    """

    def __init__(self, given: object) -> None:
        self._names: dict[int, tuple[str, ...]] = {}
        self._add(given, 0)

    def _add(self, given: object, depth: int) -> None:
        if not isinstance(given, list) or depth > _MOST_DEPTH:
            raise TableFormatError("the property schema.name-mapping.default is no list of mappings")
        for each in given:
            if not isinstance(each, dict):
                raise TableFormatError("the property schema.name-mapping.default is no list of mappings")
            names, number = each.get("names") or (), each.get("field-id")
            if number is not None:
                self._names[whole_number(number, "field-id")] = tuple(str(name) for name in names)
            if each.get("fields"):
                self._add(each["fields"], depth + 1)

    def of(self, field: Field) -> tuple[str, ...]:
        """Return the names of a field in files; none where files without ids never have it."""
        return self._names.get(field.id, ())


def field_mapping(columns: Iterable[Field], names: NameMapping | None = None) -> ColumnMapping:
    """Return where files have some columns: by field id, and by name in files that have no ids.

    Parameters
    ----------
    columns : iterable of Field
    names : NameMapping, optional
        None refuses files without field ids.
    """
    columns = tuple(columns)

    def mapped(make: Callable[[Field], MappedColumn | None]) -> list[MappedColumn]:
        return [found for found in map(make, columns) if found is not None]

    def by_id(field: Field) -> MappedColumn:
        below = tuple(by_id(child) for child in field.children)
        is_struct = field.kind == "struct"
        return MappedColumn(
            field.name,
            field.id,
            below if is_struct else (),
            () if is_struct else below,
            field.default,
        )

    def by_name(field: Field) -> MappedColumn | None:
        given_names = names.of(field) if names is not None else ()
        is_struct = field.kind == "struct"
        # What has no name in files is not found under a name that no file can have.
        found = given_names or (f"\ufdd1{field.id}",)
        below = tuple(child for child in map(by_name, field.children) if child is not None)
        return MappedColumn(
            field.name,
            found[0],
            below if is_struct else (),
            () if is_struct else below,
            field.default,
            found[1:],
        )

    without_ids = None if names is None else ColumnMapping(mapped(by_name), int96_unit="us")
    return ColumnMapping(mapped(by_id), int96_unit="us", without_ids=without_ids, needs_ids=True)


def whole_number(given: object, what: str) -> int:
    """Return an integer of JSON that fits into 64 bits.

    Raises
    ------
    TableFormatError
        It is none.
    """
    if isinstance(given, bool) or not isinstance(given, int) or not -(1 << 63) <= given < 1 << 63:
        raise TableFormatError(f"{what} is {str(given)[:60]!r}, not a whole number of 64 bits")
    return given


def _struct_fields(given: Mapping[str, Any], fields: dict[int, Field], depth: int) -> tuple[Field, ...]:
    listed = given.get("fields")
    if not isinstance(listed, list):
        raise TableFormatError("a struct of the schema has no list of fields")
    return tuple(_field(each, fields, depth) for each in listed)


def _field(given: object, fields: dict[int, Field], depth: int) -> Field:
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        raise TableFormatError(f"a field of the schema has no name: {str(given)[:60]}")
    return _make(
        given.get("id"),
        given["name"],
        given.get("type"),
        fields,
        depth,
        required=given.get("required") is True,
        default=given.get("initial-default"),
    )


def _make(
    number: object,
    name: str,
    kind: object,
    fields: dict[int, Field],
    depth: int,
    *,
    required: bool,
    default: object = None,
) -> Field:
    if depth > _MOST_DEPTH or len(fields) > _MOST_FIELDS:
        raise TableFormatError(f"the schema is nested deeper, or has more fields, than is read, at {name!r}")
    known = whole_number(number, f"the id of the field {name!r}")
    children: tuple[Field, ...]
    if isinstance(kind, str):
        type_, label, children = _primitive(kind, name), kind.partition("(")[0].partition("[")[0], ()
    elif isinstance(kind, dict):
        type_, label, children = _nested(kind, name, fields, depth + 1)
    else:
        raise TableFormatError(f"the field {name!r} has no type")
    value = None
    if default is not None:
        if children:
            raise TableFormatError(f"{name!r}, which is nested, has a default, which is not supported")
        value = single_value(default, type_, name)
    field = Field(
        id=known, name=name, type=type_, kind=label, children=children, required=required, default=value
    )
    if known in fields:
        raise TableFormatError(
            f"two fields of the schema, {fields[known].name!r} and {name!r}, have the id {known}"
        )
    fields[known] = field
    return field


def _nested(
    kind: Mapping[str, Any], name: str, fields: dict[int, Field], depth: int
) -> tuple[pa.DataType, str, tuple[Field, ...]]:
    label = kind.get("type")
    if label == "struct":
        children = _struct_fields(kind, fields, depth)
        return pa.struct([child.arrow for child in children]), "struct", children
    if label == "list":
        element = _make(
            kind.get("element-id"),
            "element",
            kind.get("element"),
            fields,
            depth,
            required=kind.get("element-required") is True,
        )
        return pa.list_(element.arrow), "list", (element,)
    if label == "map":
        key = _make(kind.get("key-id"), "key", kind.get("key"), fields, depth, required=True)
        value = _make(
            kind.get("value-id"),
            "value",
            kind.get("value"),
            fields,
            depth,
            required=kind.get("value-required") is True,
        )
        return pa.map_(key.arrow, value.arrow), "map", (key, value)
    raise TableFormatError(f"the field {name!r} has the type {str(label)[:60]!r}, which is not supported")


def _primitive(kind: str, name: str) -> pa.DataType:
    found = _PLAIN.get(kind)
    if found is not None:
        return found
    if kind == "uuid":
        return pa.uuid() if hasattr(pa, "uuid") else pa.binary(16)
    if kind.startswith(("geometry", "geography")):
        return pa.binary()
    decimal, fixed = _DECIMAL.fullmatch(kind), _FIXED.fullmatch(kind)
    if decimal and 1 <= int(decimal[1]) <= 38 and int(decimal[2]) <= int(decimal[1]):
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    if fixed and 1 <= int(fixed[1]) < 1 << 30:
        return pa.binary(int(fixed[1]))
    raise TableFormatError(f"the column {name!r} has the type {kind[:60]!r}, which is not supported")


def _add_paths(columns: Sequence[Field], above: tuple[str, ...], paths: dict[int, tuple[str, ...]]) -> None:
    for column in columns:
        paths[column.id] = (*above, column.name)
        if column.kind == "struct":
            _add_paths(column.children, (*above, column.name), paths)


def single_value(given: object, kind: pa.DataType, name: str) -> pa.Scalar:
    """Return a value that the metadata have as JSON.

    Raises
    ------
    TableFormatError
        It is no value of the type.
    """
    try:
        return _scalar(given, kind)
    except (ValueError, TypeError, ArithmeticError, pa.ArrowException) as error:
        raise TableFormatError(
            f"the default of the column {name!r}, {str(given)[:60]!r}, is no {kind}"
        ) from error


def _scalar(given: Any, kind: pa.DataType) -> pa.Scalar:
    t = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionScalar.from_storage(kind, pa.scalar(uuid.UUID(given).bytes, kind.storage_type))
    if t.is_binary(kind) or t.is_fixed_size_binary(kind):
        return pa.scalar(bytes.fromhex(given), kind)
    if t.is_decimal(kind):
        return pa.scalar(Decimal(given), kind)
    if t.is_date(kind):
        return pa.scalar(datetime.date.fromisoformat(given), kind)
    if t.is_time(kind):
        return pa.scalar(datetime.time.fromisoformat(given), kind)
    if t.is_timestamp(kind):
        return _instant(str(given), kind)
    if t.is_boolean(kind) and not isinstance(given, bool):
        raise ValueError(given)
    if t.is_floating(kind):
        return pa.scalar(float(given), kind)
    return pa.scalar(given, kind)


def _instant(text: str, kind: pa.DataType) -> pa.Scalar:
    """Return a timestamp of its ISO text, whose fraction may have nine digits."""
    found = re.fullmatch(r"([^.]+?)(?:\.(\d{1,9}))?(Z|[+-]\d\d:?\d\d)?", text)
    if found is None:
        raise ValueError(text)
    whole = datetime.datetime.fromisoformat(found[1] + (found[3] or "+00:00").replace("Z", "+00:00"))
    since = whole - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    seconds = since.days * 86_400 + since.seconds
    nanos = seconds * 1_000_000_000 + int((found[2] or "").ljust(9, "0"))
    return pa.scalar(nanos if kind.unit == "ns" else nanos // 1000, pa.int64()).cast(kind)


def all_fields(schemas: Iterable[TableSchema]) -> Mapping[int, Field]:
    """Return the fields of all schemas by id; of one id, the last."""
    found: dict[int, Field] = {}
    for schema in schemas:
        found.update(schema.fields)
    return found


def defaults_below(
    fields: Iterable[Field], above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], pa.Scalar]]:
    """Yield the defaults of fields below columns, by path: see `FieldDefaults`."""
    for field in fields:
        path = (*above, field.name)
        if above and field.default is not None:
            yield path, field.default
        yield from defaults_below(field.children, path)
