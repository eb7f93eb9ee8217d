"""Columns that are found without regard to case: how files have those of a data set, and how a schema is
spelled.

Names are compared in lower case, as Spark and Hive compare them. A name that means several columns is an
error, where one of these is asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final, Literal

import pyarrow as pa

from accel.arrays import change_fields
from accel.errors import SchemaMismatchError, TableFormatError
from accel.format.model import ParquetSchema
from accel.planning.column_mapping import ColumnMapping, MappedColumn, is_hidden

__all__ = ["CaselessNames", "caseless_mapping", "refuse_alike", "spelled_like"]

_EXACTLY: Final = "`case_sensitive=True` takes names as they are written"
_MOST_KNOWN: Final = 64


def caseless_mapping(
    schema: Iterable[pa.Field], *, int96_unit: Literal["ns", "us"] | None = None
) -> ColumnMapping:
    """Return the mapping of the columns of a schema to those of files, whatever their case, at every depth.

    Columns of the schema that differ in case alone are left out.

    Parameters
    ----------
    schema : iterable of pyarrow.Field
    int96_unit : {"ns", "us"}, optional
        As for `ColumnMapping`.
    """
    return ColumnMapping(_mapped(schema), int96_unit=int96_unit, case_sensitive=False)


def _mapped(fields: Iterable[pa.Field]) -> tuple[MappedColumn, ...]:
    fields = list(fields)
    counts = Counter(field.name.lower() for field in fields)
    single = (field for field in fields if counts[field.name.lower()] == 1)
    return tuple(MappedColumn(field.name, field.name.lower(), *_below(field.type)) for field in single)


def _below(kind: pa.DataType) -> tuple[tuple[MappedColumn, ...], tuple[MappedColumn, ...]]:
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _below(kind.storage_type)
    if types.is_struct(kind):
        return _mapped(kind), ()
    if types.is_map(kind):
        pairs = (("key", kind.key_type), ("value", kind.item_type))
        return (), tuple(MappedColumn(name, name, *_below(one)) for name, one in pairs)
    if types.is_nested(kind) and kind.num_fields == 1:  # a list of any sort
        return (), (MappedColumn("element", "element", *_below(kind.value_type)),)
    return (), ()


class CaselessNames:
    """How the files of a scan have the columns that it asks for, whatever their case.

    Parameters
    ----------
    schema : pyarrow.Schema
        The schema of the data set, which has one column of each of these names, case aside.
    used : collection of str
        The columns that the scan asks for; what others are called does not matter.
    """

    def __init__(self, schema: pa.Schema, used: Collection[str]) -> None:
        self._schema = schema
        self._used = caseless_mapping(field for field in schema if field.name in used)
        self._all: ColumnMapping | None = None
        """The mapping of all columns, once a file has been seen that spells some otherwise."""
        self._names = {column.name.lower(): column.name for column in self._used.columns}
        self._nested = any(column.fields or column.elements for column in self._used.columns)
        # By identity; the schema is kept alive, so its id stays its own.
        self._known: dict[int, tuple[ParquetSchema, ParquetSchema]] = {}

    @classmethod
    def of(cls, schema: pa.Schema, used: Collection[str]) -> CaselessNames:
        """Return the same object for the same schema object and columns: scans share what it knows of
        files."""
        key = id(schema), frozenset(used)
        found = _made.get(key)
        if found is None:
            # The entry keeps the schema alive: its id stays its own.
            found = schema, cls(schema, used)
            if len(_made) >= _MOST_MADE:
                _made.clear()
            _made[key] = found
        return found[1]

    def relabel(self, schema: ParquetSchema) -> ParquetSchema:
        """Return the schema of a file under the names of the data set: itself, where it spells them so.

        Raises
        ------
        SchemaMismatchError
            Columns of the file that the scan asks for differ in case alone.
        """
        found = self._known.get(id(schema))
        if found is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            found = self._known[id(schema)] = schema, self._relabelled(schema)
        return found[1]

    def _relabelled(self, schema: ParquetSchema) -> ParquetSchema:
        alike = self._is_spelled_alike(schema)
        if alike and (not self._nested or _is_same(schema, self._relabel_used(schema))):
            return schema
        self._all = self._all or caseless_mapping(self._schema)
        try:
            # A file that then has all columns of the data set takes no look at each of them.
            return self._all.relabel(schema)
        except TableFormatError:
            return self._relabel_used(schema)

    def _relabel_used(self, schema: ParquetSchema) -> ParquetSchema:
        try:
            return self._used.relabel(schema)
        except TableFormatError as error:
            raise SchemaMismatchError(f"{error.message}, case aside", hint=_EXACTLY) from None

    def _is_spelled_alike(self, schema: ParquetSchema) -> bool:
        """Return whether the names of the top level are those of the data set: a schema of thousands of
        columns takes milliseconds to be made anew."""
        seen: set[str] = set()
        for at in schema.fields:
            name = schema.elements[at].name
            wanted = self._names.get(name.lower())
            if wanted is None:
                continue
            if name != wanted or name in seen:
                return False
            seen.add(name)
        return True


# Those made last, by the schema object and the columns.
_MOST_MADE: Final = 16
_made: dict[tuple[int, frozenset[str]], tuple[pa.Schema, CaselessNames]] = {}


def _is_same(schema: ParquetSchema, spelled: ParquetSchema) -> bool:
    """Return whether no column was renamed; those that nobody asks for do not count."""
    pairs = zip(schema.elements, spelled.elements, strict=True)
    return all(one.name == other.name or is_hidden(other.name) for one, other in pairs)


def refuse_alike(schema: pa.Schema) -> None:
    """Raise SchemaMismatchError where columns, or fields of a struct at any depth, differ in case alone, or
    not even in that."""
    _refuse_alike(schema, "")


def _refuse_alike(fields: Iterable[pa.Field], above: str) -> None:
    first: dict[str, str] = {}
    for field in fields:
        other, name = first.get(field.name.lower()), field.name
        if other is not None:
            alike = "have one name" if other == name else "differ in case alone"
            raise SchemaMismatchError(
                f"the columns {above + other!r} and {above + name!r} {alike}",
                hint=f"name other columns in `columns=`; {_EXACTLY}",
            )
        first[name.lower()] = name
        kind = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type
        if pa.types.is_nested(kind):
            _refuse_alike([kind.field(at) for at in range(kind.num_fields)], f"{above}{name}.")


def spelled_like(field: pa.Field, like: pa.Field) -> pa.Field:
    """Return a field with the names of another one, at every depth, where they differ from these in case
    alone."""
    return field.with_name(like.name).with_type(_spelled_type(field.type, like.type))


def _spelled_type(kind: pa.DataType, like: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_struct(kind) and types.is_struct(like):
        names = {one.name.lower(): one for one in like}
        return pa.struct([spelled_like(one, names.get(one.name.lower(), one)) for one in kind])
    if types.is_map(kind) and types.is_map(like):
        return pa.map_(
            kind.key_field.with_type(_spelled_type(kind.key_type, like.key_type)),
            kind.item_field.with_type(_spelled_type(kind.item_type, like.item_type)),
            keys_sorted=kind.keys_sorted,
        )
    if types.is_nested(kind) and types.is_nested(like) and kind.num_fields == like.num_fields == 1:
        inner = like.field(0).type
        return change_fields(kind, lambda one: one.with_type(_spelled_type(one.type, inner))) or kind
    return kind
