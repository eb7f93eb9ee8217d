"""The schema of a data set: given, that of its first file, or the union of all; and a predicate bound to it.

One place settles that for scans, the catalog and jobs. What is settled here is the same for all files; each
file is brought to it by `planning.query`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from accel.errors import SchemaMismatchError
from accel.planning.caseless_names import refuse_alike, spelled_like
from accel.planning.conform import joined_type
from accel.predicate.expr import name_key

__all__ = ["DataSet", "UnionSchema", "generated_field", "name_clash"]

_GENERATED: Final = b"accel:generated"


def generated_field(name: str, kind: pa.DataType, argument: str) -> pa.Field:
    """Return a column that a source adds because an argument names it; no other column may have that name."""
    return pa.field(name, kind, metadata={_GENERATED: argument})


def name_clash(field: pa.Field) -> SchemaMismatchError:
    """Return the error for a column that is called like one that a source adds."""
    argument = (field.metadata or {}).get(_GENERATED, b"a source").decode()
    return SchemaMismatchError(
        f"{argument} adds a column {field.name!r}, and there is one of that name already",
        hint=f"give it another name, such as 'source_{field.name}'",
    )


@dataclass(frozen=True, slots=True, eq=False)
class DataSet:
    """The columns of a data set, and which of them are no columns of its files."""

    schema: pa.Schema
    """All columns: those of the files, then the partition columns that it did not have before."""
    partition_names: tuple[str, ...]
    """Columns whose values come from the source."""

    @classmethod
    def of(
        cls,
        schema: pa.Schema,
        partition_schema: pa.Schema,
        *,
        own: Collection[str],
        case_sensitive: bool = True,
    ) -> DataSet:
        """Settle which columns are partition columns.

        Parameters
        ----------
        schema : pyarrow.Schema
            The columns as the caller, the source or the files give them. Those among them that are partition
            columns are typed and placed by it.
        partition_schema : pyarrow.Schema
            The columns that the source has values of.
        own : collection of str
            The columns of the files: one of them wins over a partition column of its name.
        case_sensitive : bool
            Whether names that differ in case alone are those of different columns.

        Raises
        ------
        SchemaMismatchError
            A column that the source generates is called like another one.
        """
        key = name_key(case_sensitive=case_sensitive)
        taken, before = set(map(key, own)), set(map(key, schema.names))
        partitions = []
        for field in partition_schema:
            generated = field.metadata is not None and _GENERATED in field.metadata
            if generated and (key(field.name) in taken or key(field.name) in before):
                raise name_clash(field)
            if key(field.name) not in taken:
                partitions.append(field.name)
        last = [
            f.remove_metadata()
            for f in partition_schema
            if f.name in partitions and f.name not in schema.names
        ]
        return cls(pa.schema([*schema, *last]) if last else schema, tuple(partitions))


class UnionSchema:
    """The union of the schemas of files: all columns in the order in which they were met, in types that hold
    all values.

    Parameters
    ----------
    case_sensitive : bool
        Whether names that differ in case alone are those of different columns. If not, the file that was met
        first says how a column is spelled.
    """

    def __init__(self, *, case_sensitive: bool = True) -> None:
        self._case_sensitive = case_sensitive
        self._key = name_key(case_sensitive=case_sensitive)
        self._fields: dict[str, pa.Field] = {}
        """By name, or by the name in lower case."""
        self._everywhere: frozenset[str] | None = None
        # By identity; the schema is kept alive, so its id stays its own.
        self._seen: dict[int, pa.Schema] = {}

    def add(self, schema: pa.Schema, *, url: str) -> None:
        """Add the schema of one file.

        Raises
        ------
        SchemaMismatchError
            Two columns of the file have one name, or no type holds the values of a column here and in other
            files.
        """
        if id(schema) in self._seen:
            return
        self._seen[id(schema)] = schema
        names = frozenset(map(self._key, schema.names))
        if len(names) < len(schema.names):
            if not self._case_sensitive:
                _name_alike(schema, url)
            raise SchemaMismatchError(
                "two columns of the file have one name, and one would be lost", path=url
            )
        self._everywhere = names if self._everywhere is None else self._everywhere & names
        for field in schema:
            first = self._fields.get(self._key(field.name), field)
            if not self._case_sensitive and first is not field:
                field = spelled_like(field, first)
            kind = joined_type(first.type, field.type)
            if kind is None:
                raise SchemaMismatchError(
                    f"column {field.name!r} is {field.type} here and {first.type} in files before",
                    path=url,
                    hint="no type holds both: take these files by themselves",
                )
            self._fields[self._key(field.name)] = first.with_type(kind).with_nullable(
                first.nullable or field.nullable
            )

    @property
    def schema(self) -> pa.Schema:
        """The union so far, without metadata; a column that some file lacks is nullable."""
        always = self._everywhere or frozenset()
        fields = self._fields.items()
        return pa.schema([f if key in always else f.with_nullable(True) for key, f in fields])


def _name_alike(schema: pa.Schema, url: str) -> None:
    try:
        refuse_alike(schema)
    except SchemaMismatchError as error:
        raise error.at(path=url) from None
