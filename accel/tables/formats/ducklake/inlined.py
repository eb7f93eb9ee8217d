"""Inlined rows: small inserts and updates, which the catalog has itself, brought into a Parquet object that
carries its rows in its path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from accel.errors import TableFormatError
from accel.planning.conform import conform_array, widens
from accel.planning.evolution import Evolution
from accel.planning.file_entry import FileEntry
from accel.store.carried_store import carried_path
from accel.store.location import CARRIED_ROOT
from accel.tables.formats.ducklake.databases import Session
from accel.tables.formats.ducklake.metadata import InlinedTable, LakeVersion, visible
from accel.tables.formats.ducklake.types import LakeColumn
from accel.tables.formats.ducklake.values import decode_value, named_value

__all__ = ["carried_rows", "default_of", "defaults_below", "read_inlined", "scalar_of"]

_ROWS: Final = 20_000
"""Rows of one object."""


def read_inlined(
    session: Session, found: LakeVersion, schema: pa.Schema, evolution: Evolution
) -> list[pa.RecordBatch]:
    """Return the inlined rows of a version, under its names and types.

    Raises
    ------
    TableFormatError
        A value cannot be decoded, or a column has changed in a way that accel does not follow.
    """
    defaults = {column.id: default_of(column) for column in found.columns}
    return [
        _batch(page, table, found.columns, schema, defaults, evolution)
        for table in found.inlined
        for page in _pages(session, table, found.version)
    ]


def _pages(session: Session, table: InlinedTable, version: int) -> Iterator[list[tuple[Any, ...]]]:
    columns = ", ".join(
        session.inlined(column.name, raw=column.type.lower() in ("varchar", "json", "blob"))
        for column in table.columns
    )
    return session.pages(
        f"SELECT {columns} FROM {table.name} i WHERE {visible('i', version)} ORDER BY i.row_id"
    )


def _batch(
    page: Sequence[tuple[Any, ...]],
    table: InlinedTable,
    columns: Sequence[LakeColumn],
    schema: pa.Schema,
    defaults: Mapping[int, pa.Scalar | None],
    evolution: Evolution,
) -> pa.RecordBatch:
    places = {column.id: (at, column) for at, column in enumerate(table.columns)}
    arrays = []
    for column, field in zip(columns, schema, strict=True):
        place = places.get(column.id)
        if place is None:
            default = defaults[column.id]
            arrays.append(
                pa.nulls(len(page), field.type) if default is None else pa.repeat(default, len(page))
            )
            continue
        at, have = place
        values = [decode_value(row[at], have) for row in page]
        arrays.append(_evolved(values, have, column, field.type, evolution))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _evolved(
    values: Sequence[Any], have: LakeColumn, column: LakeColumn, to: pa.DataType, evolution: Evolution
) -> pa.Array:
    """Return values of a column as it was, under its later type; fields of structs go by their ids."""
    before = have.under_names_of(column)
    kind = before.arrow()
    if not widens(kind, to, evolution.promotion):
        raise TableFormatError(
            f"the column {column.name!r} was {kind} and has become {to}, which accel does not follow",
            hint="copy the column in DuckDB into one of the new type, and drop it",
        )
    array = _array([named_value(value, before) for value in values], kind, column)
    below = evolution.defaults.below(column.name)
    return conform_array(array, to, url="inlined rows", name=column.name, defaults=below)


def default_of(column: LakeColumn) -> pa.Scalar | None:
    """Return the value of a column in files that lack it; None for null.

    Raises
    ------
    TableFormatError
        It is no such value.
    """
    if column.initial_default is None:
        return None
    return scalar_of(column.initial_default, column)


def scalar_of(text: str, column: LakeColumn) -> pa.Scalar:
    """Return the value of a column that a text is.

    Raises
    ------
    TableFormatError
        It is none.
    """
    value = named_value(decode_value(text, column), column)
    return _array([value], column.arrow(), column)[0]


def defaults_below(
    columns: Sequence[LakeColumn], above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], pa.Scalar]]:
    """Yield the values of fields below columns in files that lack them, by path: see `FieldDefaults`.

    Raises
    ------
    TableFormatError
        One is no value of its field.
    """
    for column in columns:
        path = (*above, column.name)
        if above and column.initial_default is not None:
            yield path, scalar_of(column.initial_default, column)
        children = column.children
        if column.type.lower() != "struct":
            # By their places: a list has an element, a map a key and a value.
            names = ("element",) if len(children) == 1 else ("key", "value")
            children = tuple(replace(child, name=name) for child, name in zip(children, names, strict=False))
        yield from defaults_below(children, path)


def _array(values: Sequence[Any], kind: pa.DataType, column: LakeColumn) -> pa.Array:
    try:
        stored = pa.array(values, _storage(kind))
        return stored if stored.type.equals(kind) else stored.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
        raise TableFormatError(
            f"a value that the catalog has for the column {column.name!r} is no {kind}: {str(error)[:100]}"
        ) from None


def _storage(kind: pa.DataType) -> pa.DataType:
    """Return a type without extension types in it."""
    if isinstance(kind, pa.BaseExtensionType):
        return kind.storage_type
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_storage(field.type)) for field in kind])
    if pa.types.is_map(kind):
        key, item = kind.key_field, kind.item_field
        return pa.map_(key.with_type(_storage(key.type)), item.with_type(_storage(item.type)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_storage(kind.value_type)))
    return kind


def carried_rows(batches: Sequence[pa.RecordBatch], schema: pa.Schema, name: str) -> list[FileEntry]:
    """Return rows as files whose paths are their content.

    Parameters
    ----------
    batches : sequence of RecordBatch
    schema : pyarrow.Schema
    name : str
        What messages call the files; a number follows.
    """
    rows = pa.Table.from_batches(batches, schema)
    files: list[FileEntry] = []
    for start in range(0, rows.num_rows, _ROWS):
        out = pa.BufferOutputStream()
        pq.write_table(rows.slice(start, _ROWS), out, compression="zstd", write_page_index=True)
        content = out.getvalue().to_pybytes()
        files.append(
            FileEntry(
                CARRIED_ROOT,
                carried_path(content),
                f"{name}/{len(files)}",
                len(content),
                immutable=True,
                footer_bytes=len(content),
            )
        )
    return files
