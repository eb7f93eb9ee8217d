"""Which columns of a file are meant by the names of a data set: columns that were renamed, dropped, or added
later.

A mapped file is planned and read under the names of the data set: its schema is relabelled, leaf for leaf,
and everything behind it goes by leaves. Columns that are not mapped get names that no query can spell.

Sources: the Delta protocol, "Column Mapping"; the Iceberg specification, "Column Projection".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import pyarrow as pa

from accel.errors import TableFormatError
from accel.format.model import ParquetSchema, Repetition, SchemaElement
from accel.format.schema import build_schema, rename_element
from accel.planning.projection import children_of
from accel.predicate.expr import name_key

__all__ = ["FIELD_ID_KEY", "ColumnMapping", "MappedColumn"]

FIELD_ID_KEY: Final = b"PARQUET:field_id"
"""The metadata of an Arrow field in which pyarrow has the field id of Parquet."""
_HIDDEN: Final = "\ufdd0"
"""A noncharacter of Unicode, which begins the names of columns that are not mapped."""
_MOST_KNOWN: Final = 64


@dataclass(frozen=True, slots=True)
class MappedColumn:
    """One column of a data set, and the column of a file that holds it.

    Examples
    --------
    >>> MappedColumn("price", "col-7f3a")
    MappedColumn(name='price', source='col-7f3a', fields=(), elements=(), default=None)
    """

    name: str
    """The name in the data set; of the elements of a list or map it is not used."""
    source: str | int
    """The name in the file, or the field id; of the elements of a list or map it is not used."""
    fields: tuple[MappedColumn, ...] = ()
    """Of a struct all fields; none where they have the same names in the file."""
    elements: tuple[MappedColumn, ...] = ()
    """Of a list its element, of a map key and value; none where what is below has the same names in the
    file."""
    default: pa.Scalar | None = None
    """The value of a top-level column in every row of a file that lacks it; None for null."""
    other_sources: tuple[str | int, ...] = ()
    """Other names that the column may have in a file."""


class ColumnMapping:
    """The columns of a data set, and where files have them. One object serves all files that are mapped
    alike.

    Parameters
    ----------
    columns : sequence of MappedColumn
        All columns that files may have; others are not read.
    int96_unit : {"ns", "us"}, optional
        The unit in which INT96 timestamps of the files are read; None for that of the scan.
    without_ids : ColumnMapping, optional
        Where a file has these columns whose schema has no field id at all.
    needs_ids : bool
        Whether the columns go by field ids, so that a file without any is refused, where `without_ids` does
        not say where it has them: each column would be missing from it.
    case_sensitive : bool
        Whether names in the files are those of the mapping in case, too. If not, two columns of a file that
        differ in case alone are refused where the mapping means them.

    Examples
    --------
    >>> mapping = ColumnMapping([MappedColumn("price", "p"), MappedColumn("id", 1)])
    """

    __slots__ = (
        "_known",
        "_stored",
        "case_sensitive",
        "columns",
        "defaults",
        "int96_unit",
        "needs_ids",
        "without_ids",
    )

    def __init__(
        self,
        columns: Sequence[MappedColumn],
        *,
        int96_unit: Literal["ns", "us"] | None = None,
        without_ids: ColumnMapping | None = None,
        needs_ids: bool = False,
        case_sensitive: bool = True,
    ) -> None:
        self.columns = tuple(columns)
        self.int96_unit = int96_unit
        self.case_sensitive = case_sensitive
        self.without_ids = without_ids
        self.needs_ids = needs_ids or (
            bool(self.columns) and all(isinstance(column.source, int) for column in self.columns)
        )
        self.defaults: Mapping[str, pa.Scalar] = {
            column.name: column.default for column in self.columns if column.default is not None
        }
        """By name, the value of a column in the rows of a file that lacks it."""
        self._known: dict[int, tuple[ParquetSchema, ParquetSchema]] = {}
        self._stored: ColumnMapping | None = None
        _refuse_twice([column.name for column in self.columns], "name")

    @classmethod
    def by_field_id(cls, schema: pa.Schema, defaults: Mapping[str, pa.Scalar] | None = None) -> ColumnMapping:
        """Map columns by the field ids that a schema has in its fields' metadata, as pyarrow writes them.

        Parameters
        ----------
        schema : pyarrow.Schema
            Every field, also below structs, lists and maps, has the metadata `PARQUET:field_id`.
        defaults : mapping of str to pyarrow.Scalar, optional
            The values of columns that a file lacks.

        Returns
        -------
        ColumnMapping

        Raises
        ------
        TableFormatError
            A field has no field id, or two have the same.
        """
        ids: list[int] = []
        columns = [_by_id(field, ids) for field in schema]
        _refuse_twice(ids, "field id")
        given = defaults or {}
        return cls([replace(column, default=given.get(column.name)) for column in columns])

    @classmethod
    def by_name(
        cls, names: Mapping[str, str], defaults: Mapping[str, pa.Scalar] | None = None
    ) -> ColumnMapping:
        """Map top-level columns by their names in the files.

        Parameters
        ----------
        names : mapping of str to str
            By the name in the data set, the name in the files.
        defaults : mapping of str to pyarrow.Scalar, optional
            The values of columns that a file lacks.

        Returns
        -------
        ColumnMapping
        """
        given = defaults or {}
        return cls([MappedColumn(name, source, default=given.get(name)) for name, source in names.items()])

    def with_defaults(self, defaults: Mapping[str, pa.Scalar]) -> ColumnMapping:
        """Return the same mapping with the values of some columns in files that lack them.

        Parameters
        ----------
        defaults : mapping of str to pyarrow.Scalar

        Returns
        -------
        ColumnMapping
            It shares with this one what is known of the schemas of files.
        """
        columns = [replace(one, default=defaults.get(one.name, one.default)) for one in self.columns]
        found = self._with_columns(columns)
        found._known = self._known
        return found

    def _with_columns(self, columns: Sequence[MappedColumn]) -> ColumnMapping:
        return _mapping(columns, self.int96_unit, self.without_ids, self.needs_ids, self.case_sensitive)

    def defaults_of(self, schema: pa.Schema) -> Mapping[str, pa.Scalar]:
        """Return the defaults of the columns that a data set has, in its types.

        Raises
        ------
        TableFormatError
            A default is not of the type.
        """
        out = {}
        for name, value in self.defaults.items():
            if name not in schema.names:
                continue
            kind = schema.field(name).type
            try:
                out[name] = value if value.type.equals(kind) else value.cast(kind)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise TableFormatError(f"the default of the column {name!r} is no {kind}: {error}") from error
        return out

    @property
    def stored(self) -> ColumnMapping:
        """The same columns under names that a rename leaves alone: those in the files, or their field ids."""
        if self._stored is None:
            without_ids = None
            if self.without_ids is not None:
                without_ids = ColumnMapping(
                    [_stored(one, like) for one, like in _alike(self.without_ids.columns, self.columns)]
                )
            self._stored = ColumnMapping(
                [_stored(column, column) for column in self.columns],
                int96_unit=self.int96_unit,
                without_ids=without_ids,
                needs_ids=self.needs_ids,
                case_sensitive=self.case_sensitive,
            )
        return self._stored

    @property
    def of_relabelled(self) -> ColumnMapping:
        """The same columns of a file that is seen under their names already: there each is what it is
        called."""
        return ColumnMapping([_as_named(column) for column in self.columns], int96_unit=self.int96_unit)

    def stored_path(self, path: Sequence[str]) -> tuple[str, ...] | None:
        """Return what `stored` calls a column, or a field of a struct; None where there is none.

        Parameters
        ----------
        path : sequence of str
            The names in the data set from the top level down.
        """
        found: list[str] = []
        fields: Sequence[MappedColumn] = self.columns
        for depth, name in enumerate(path):
            column = next((one for one in fields if one.name == name), None)
            if column is None:
                return None
            found.append(_stored_name(column))
            fields = column.fields
            if not fields:
                return (*found, *path[depth + 1 :])  # the same names in the files, if it is a struct
        return tuple(found)

    def relabel(self, schema: ParquetSchema) -> ParquetSchema:
        """Return the schema of a file under the names of the data set. The same schema gives the same object.

        Raises
        ------
        TableFormatError
            Two columns of the file are the same one of the data set, or columns are meant by their ids and
            the file has none.
        """
        found = self._known.get(id(schema))
        if found is None:
            columns = self.columns
            if (self.needs_ids or self.without_ids is not None) and not _has_ids(schema):
                if self.without_ids is None:
                    raise TableFormatError(
                        "the columns of the data set are meant by field ids, and the file has none"
                    )
                columns = self.without_ids.columns
            elements = list(schema.elements)
            key = name_key(case_sensitive=self.case_sensitive)
            _relabel_fields(schema, elements, schema.fields, columns, key)
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            # The entry keeps the schema alive: its id stays its own.
            found = self._known[id(schema)] = schema, build_schema(elements)
        return found[1]

    def __reduce__(self) -> tuple[Any, ...]:
        return _mapping, (
            self.columns,
            self.int96_unit,
            self.without_ids,
            self.needs_ids,
            self.case_sensitive,
        )

    def __repr__(self) -> str:
        return f"ColumnMapping({list(self.columns)!r})"


def _mapping(
    columns: Sequence[MappedColumn],
    int96_unit: Literal["ns", "us"] | None,
    without_ids: ColumnMapping | None,
    needs_ids: bool,
    case_sensitive: bool,
) -> ColumnMapping:
    return ColumnMapping(
        columns,
        int96_unit=int96_unit,
        without_ids=without_ids,
        needs_ids=needs_ids,
        case_sensitive=case_sensitive,
    )


def _has_ids(schema: ParquetSchema) -> bool:
    """Return whether any field has an id; the root's counts for nothing. A file without columns has nothing
    that could be missed."""
    return len(schema.elements) < 2 or any(element.field_id is not None for element in schema.elements[1:])


def _stored_name(column: MappedColumn) -> str:
    return column.source if isinstance(column.source, str) else f"field {column.source}"


def _stored(column: MappedColumn, like: MappedColumn) -> MappedColumn:
    """Return a column under the name that files have another for, or the same."""
    return replace(
        column,
        name=_stored_name(like),
        fields=tuple(_stored(one, other) for one, other in _alike(column.fields, like.fields)),
        elements=tuple(
            _stored(one, other) for one, other in zip(column.elements, like.elements, strict=False)
        ),
        default=None,
    )


def _as_named(column: MappedColumn) -> MappedColumn:
    return replace(
        column,
        source=column.name,
        other_sources=(),
        fields=tuple(map(_as_named, column.fields)),
        elements=tuple(map(_as_named, column.elements)),
    )


def _alike(
    columns: Sequence[MappedColumn], others: Sequence[MappedColumn]
) -> list[tuple[MappedColumn, MappedColumn]]:
    """Return columns with those of the same names among others."""
    by_name = {other.name: other for other in others}
    return [(one, by_name[one.name]) for one in columns if one.name in by_name]


def _by_id(field: pa.Field, ids: list[int]) -> MappedColumn:
    given = (field.metadata or {}).get(FIELD_ID_KEY)
    try:
        number = int(given or b"")
    except ValueError:
        raise TableFormatError(f"the field {field.name!r} has no field id, but {given!r}") from None
    ids.append(number)
    kind = field.type
    fields: tuple[MappedColumn, ...] = ()
    elements: tuple[MappedColumn, ...] = ()
    if pa.types.is_map(kind):
        elements = _by_id(kind.key_field, ids), _by_id(kind.item_field, ids)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        elements = (_by_id(kind.value_field, ids),)
    elif pa.types.is_struct(kind):
        fields = tuple(_by_id(child, ids) for child in kind)
    return MappedColumn(field.name, number, fields, elements)


def _refuse_twice(values: Sequence[str | int], what: str) -> None:
    if len(set(values)) < len(values):
        twice = next(value for value in values if values.count(value) > 1)
        raise TableFormatError(f"two columns of the data set have the {what} {twice!r}")


def _relabel_fields(
    schema: ParquetSchema,
    elements: list[SchemaElement],
    fields: Sequence[int],
    columns: Sequence[MappedColumn],
    key: Callable[[str], str],
) -> None:
    """Rename the fields of a struct, or of the file, and what is below them; names of equal keys are the
    same."""
    places = {
        key(source) if isinstance(source, str) else source: column
        for column in columns
        for source in (column.source, *column.other_sources)
    }
    taken: dict[str, str] = {}
    for at in fields:
        element = schema.elements[at]
        column = places.get(key(element.name))
        if column is None and element.field_id is not None:
            column = places.get(element.field_id)
        if column is None:
            elements[at] = rename_element(element, f"{_HIDDEN}{at} {element.name}")
            continue
        if column.name in taken:
            raise TableFormatError(
                f"the columns {taken[column.name]!r} and {element.name!r} of the file are both "
                f"{column.name!r}"
            )
        taken[column.name] = element.name
        if element.name != column.name:
            elements[at] = rename_element(element, column.name)
        _relabel_below(schema, elements, at, column, key)


def _relabel_below(
    schema: ParquetSchema,
    elements: list[SchemaElement],
    at: int,
    column: MappedColumn,
    key: Callable[[str], str],
) -> None:
    """Rename what is below a field: the fields of a struct, or those below the elements of a list or map."""
    if schema.elements[at].physical is not None:
        return
    if column.fields:
        _relabel_fields(schema, elements, children_of(schema, at), column.fields, key)
    elif column.elements:
        below = children_of(schema, at)
        if schema.elements[at].repetition is Repetition.REPEATED:
            inner = [at]  # a repeated field without an annotation is itself the element
        else:
            inner = [x for group in below for x in children_of(schema, group)]
            if len(column.elements) == 1 and len(inner) != 1:
                inner = below  # the repeated group is the element, as old writers of lists have it
        for element, child in zip(inner, column.elements, strict=False):
            _relabel_below(schema, elements, element, child, key)


def is_hidden(name: str) -> bool:
    """Return whether a relabelled column is one that its mapping leaves out."""
    return name.startswith(_HIDDEN)
