"""The types that pyarrow can sort, cut and write, and its errors about others in the words of the caller."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from accel.arrays import change_fields
from accel.decode.dictionary_arrays import check_indices
from accel.errors import AccelError
from accel.format.footer import ARROW_SCHEMA_KEY

__all__ = ["arrow_schema_pairs", "plain_schema", "refusals", "storable"]

# By id: extension types that are written in Python have no hash.
_WITHOUT_VIEW = {pa.string_view().id: pa.large_string(), pa.binary_view().id: pa.large_binary()}
_DECODED = {
    pa.string().id: pa.large_string(),
    pa.large_string().id: pa.large_string(),
    pa.binary().id: pa.large_binary(),
    pa.large_binary().id: pa.large_binary(),
}
"""The types of decoded dictionaries, whose values take more bytes than their entries."""


def storable(table: pa.Table, *, dictionaries: bool = True) -> pa.Table:
    """Return a table in types that pyarrow can sort, cut, count and write; without `dictionaries` all of them
    are decoded.

    Views of text and binary become plain text and binary at any depth: pyarrow cannot take from views, nor
    from a dictionary of them, nor count them, and cuts none inside a struct. Dictionaries inside structs that
    may be null are decoded, because pyarrow does not count the nulls of the structs; so the order of their
    entries is lost. Dictionaries with an entry for null are decoded, because pyarrow does not write them.
    """
    fields, columns = [], []
    for field, column in zip(table.schema, table.columns, strict=True):
        # In two steps: pyarrow cannot decode a dictionary of views.
        without_views = _changed(field, _without_views).type
        to = _changed(field.with_type(without_views), _decoded if dictionaries else _all_decoded).type
        if pa.types.is_dictionary(to) and any(chunk.dictionary.null_count for chunk in column.chunks):
            to = to.value_type
        if pa.types.is_nested(to) and to != field.type:
            column = check_indices(column)
        for step in (without_views, to):
            column = column if step == column.type else column.cast(step)
        fields.append(field.with_type(to))
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=pa.schema(fields, metadata=table.schema.metadata))


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of `storable` rows without dictionaries."""
    return storable(schema.empty_table(), dictionaries=False).schema


def _without_views(kind: pa.DataType, *, in_nulls: bool) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        entries = _without_views(kind.value_type, in_nulls=in_nulls)
        return pa.dictionary(kind.index_type, entries, kind.ordered)
    return _WITHOUT_VIEW.get(kind.id, kind)


def _decoded(kind: pa.DataType, *, in_nulls: bool) -> pa.DataType:
    return _DECODED.get(kind.value_type.id, kind) if in_nulls and pa.types.is_dictionary(kind) else kind


def _all_decoded(kind: pa.DataType, *, in_nulls: bool) -> pa.DataType:
    return _DECODED.get(kind.value_type.id, kind.value_type) if pa.types.is_dictionary(kind) else kind


class _Change(Protocol):
    """Changes a type without inner types; `in_nulls` says that it is inside a struct that may be null."""

    def __call__(self, kind: pa.DataType, *, in_nulls: bool) -> pa.DataType: ...


def _changed(field: pa.Field, change: _Change, *, in_nulls: bool = False) -> pa.Field:
    """Return a field with its innermost types changed."""
    kind = field.type
    in_nulls = in_nulls or bool(field.nullable and pa.types.is_struct(kind))

    def inside(part: pa.Field) -> pa.Field:
        return _changed(part, change, in_nulls=in_nulls)

    to = change_fields(kind, inside, keys=inside)
    return field.with_type(change(kind, in_nulls=in_nulls) if to is None else to)


def arrow_schema_pairs(original: pa.Schema, names: Sequence[str]) -> dict[str | bytes, bytes]:
    """Return the key-value pairs that pyarrow would write for a table of a schema with these column names."""
    fields = [field.with_name(name) for field, name in zip(original, names, strict=True)]
    schema = pa.schema(fields, metadata=original.metadata)
    return {
        **(original.metadata or {}),
        ARROW_SCHEMA_KEY: base64.b64encode(schema.serialize().to_pybytes()),
    }


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """Turn the errors of pyarrow about a table or its options into errors in the words of the caller."""
    try:
        yield
    except TypeError as error:  # it names a function of the C layer
        raise TypeError(str(error).replace("__cinit__()", "pyarrow.parquet.ParquetWriter")) from None
    except NotImplementedError as error:
        raise _unwritable(error) from error
    except OSError as error:
        # Errors of the operating system have a number, those of Parquet have none.
        if error.errno is not None or isinstance(error, AccelError):
            raise
        raise _unwritable(error) from error
    except pa.ArrowException as error:
        if type(error) is not pa.ArrowException:
            raise
        raise _unwritable(error) from error


def _unwritable(error: Exception) -> ValueError:
    return ValueError(f"pyarrow cannot write this table: {error}")
