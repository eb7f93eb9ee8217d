"""pyarrow's Parquet reader over bytes in memory, and the Arrow schemas that it returns."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow._parquet import ParquetReader

from accel.arrow_features import later_reads, projects_without_rows, reader_options
from accel.decode.extensions import is_composite
from accel.decode.splice import SchemaMemo, SplicePlan, plan_splice, splice
from accel.errors import AccelError, ColumnNotFoundError, MemoryLimitError, ParquetFormatError
from accel.format.model import INT96_UNIT, ParquetSchema
from accel.memory import pool
from accel.planning.projection import has_instants
from accel.ranges import Kind

if TYPE_CHECKING:
    from accel.planning.task import TaskFile

__all__ = [
    "ParquetReader",
    "arrow_schema",
    "columns_of",
    "fields_of",
    "file_schema",
    "holds_instants",
    "open_reader",
    "projected_schema",
    "schema_of",
    "shared_schema",
    "translate_errors",
]

# pyarrow.parquet would import pyarrow.fs and ssl (60 ms), so the class that it wraps is used.


class translate_errors:
    """Turn what pyarrow raises over bad bytes into an AccelError.

    Parameters
    ----------
    place : str or callable, optional
        Where it happened; a callable is called only if an error occurs.
    """

    __slots__ = ("_place",)

    def __init__(self, *, place: str | Callable[[], str] | None = None) -> None:
        self._place = place

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            return
        place = self._place() if callable(self._place) else self._place
        if isinstance(error, AccelError):
            if place is not None and error.place == _DICTIONARY:
                error.within(place)
            error.at(place=place)
        elif isinstance(error, MemoryError):
            # ArrowMemoryError is a subclass.
            raise MemoryLimitError(f"no memory to decode into: {error}", place=place) from error
        elif isinstance(error, _BAD_BYTES):
            # ArrowInvalid is a ValueError, and text that is not UTF-8 a UnicodeDecodeError.
            hint = later_reads(error)
            raise ParquetFormatError(f"pyarrow cannot decode it: {error}", place=place, hint=hint) from error


_DICTIONARY = Kind.DICTIONARY.value
"""The place of errors in a dictionary page, whichever column it belongs to."""
_BAD_BYTES = (pa.ArrowException, OSError, ValueError, TypeError, OverflowError, NotImplementedError)


def open_reader(
    data: bytes, *, int96_unit: str = INT96_UNIT, coded: Sequence[int] = (), verify_checksums: bool = True
) -> ParquetReader:
    """Return a reader with the settings of `pyarrow.parquet.read_table`, which also verifies the checksums of
    pages.

    INT96 is decoded to timestamps of `int96_unit`, and the texts of the columns `coded` to dictionary
    indices.
    """
    reader = ParquetReader(memory_pool=pool())
    reader.open(
        pa.BufferReader(data),
        pre_buffer=False,
        read_dictionary=coded,
        coerce_int96_timestamp_unit=int96_unit,
        page_checksum_verification=verify_checksums,
        **reader_options(),
    )
    return reader


def file_schema(
    schema: ParquetSchema, key_value: Mapping[str, bytes], *, int96_unit: str = INT96_UNIT
) -> pa.Schema:
    """Return the Arrow schema of pyarrow's full read of a file, metadata included.

    pyarrow makes it from a footer without row groups, so it reads no column metadata that has not been
    verified.

    Raises
    ------
    ParquetFormatError
        pyarrow refuses the schema, or the Arrow schema that the writer stored.
    """
    plan = plan_splice(schema, key_value, fields=range(len(schema.fields)), carry_metadata=True)
    with translate_errors(place="schema"):
        return open_reader(splice(plan, {}, num_rows=0), int96_unit=int96_unit).schema_arrow


def projected_schema(
    schema: ParquetSchema,
    key_value: Mapping[str, bytes],
    *,
    leaves: Sequence[int],
    whole: pa.Schema | None = None,
    int96_unit: str = INT96_UNIT,
) -> pa.Schema:
    """Return the Arrow schema of some leaves (by ordinal, in any order), as pyarrow reads just those.

    It has each top-level field with one of the leaves, in the file's order. Structs have the chosen children
    only, and a map of which only keys or only values are chosen is a list.

    Parameters
    ----------
    whole : pyarrow.Schema, optional
        What `file_schema` returns for the file, if it is available: columns that are not nested are its
        fields.

    Raises
    ------
    ColumnNotFoundError
        There is no such leaf.
    ParquetFormatError
        As `file_schema`.
    """
    question = (int96_unit, *leaves)
    cached = _projected.get(schema, key_value, question)
    if cached is not None:
        return cached
    fields = fields_of(schema, leaves)
    if whole is not None and not any(schema.leaves[leaf].ancestors for leaf in leaves):
        projected = pa.schema([whole.field(field) for field in fields], metadata=whole.metadata)
        return _projected.put(schema, key_value, question, projected)
    plan = plan_splice(schema, key_value, fields=fields, carry_metadata=True)
    with translate_errors(place="schema"):
        reader = open_reader(splice(plan, {}, num_rows=0), int96_unit=int96_unit)
        full = reader.schema_arrow
        if any(map(is_composite, full.types)) or not projects_without_rows():
            from accel.planning.projection import leaves_type

            leaf_set = frozenset(leaves)
            chosen = [
                field.with_type(leaves_type(schema, schema.fields[ordinal], field.type, leaves=leaf_set))
                for ordinal, field in zip(fields, full, strict=True)
            ]
            projected = pa.schema(chosen, metadata=full.metadata)
        else:
            projected = reader.read_row_groups([], columns_of(plan, leaves), False).schema
    return _projected.put(schema, key_value, question, projected)


_projected: SchemaMemo[pa.Schema] = SchemaMemo(64)


def schema_of(file: TaskFile, leaves: Sequence[int]) -> pa.Schema:
    """Return the `projected_schema` of a file's tasks."""
    return projected_schema(
        file.schema, file.key_value, leaves=leaves, whole=file.arrow_schema, int96_unit=file.int96_unit
    )


def fields_of(schema: ParquetSchema, leaves: Sequence[int]) -> list[int]:
    """Return the top-level fields, ascending, that have these leaves."""
    wanted = sorted(set(leaves))
    if wanted and not 0 <= wanted[0] <= wanted[-1] < len(schema.leaves):
        raise ColumnNotFoundError(f"no leaf {wanted[-1]} among {len(schema.leaves)}")
    found: list[int] = []
    field = 0
    for leaf in wanted:
        while schema.field_leaves[field][1] <= leaf:
            field += 1
        if not found or found[-1] != field:
            found.append(field)
    return found


def columns_of(plan: SplicePlan, leaves: Sequence[int]) -> list[int]:
    """Return the columns of the spliced file for these leaves."""
    return [plan.column(leaf) for leaf in sorted(set(leaves))]


# The schemas of all files in memory, by the bytes that they were parsed from; a schema goes with the last of
# its files.
_schemas: weakref.WeakValueDictionary[tuple[bytes, ...], ParquetSchema] = weakref.WeakValueDictionary()
_arrow_schemas: SchemaMemo[pa.Schema] = SchemaMemo(64)


def shared_schema(schema: ParquetSchema) -> ParquetSchema:
    """Return the equal schema of another file in memory, or else this one."""
    return _schemas.setdefault(tuple(element.raw for element in schema.elements), schema)


def holds_instants(schema: ParquetSchema) -> bool:
    """Return whether any column is INT96."""
    return has_instants(schema, range(len(schema.leaves)))


def arrow_schema(
    schema: ParquetSchema, key_value: Mapping[str, bytes], *, int96_unit: str = INT96_UNIT
) -> pa.Schema:
    """Return the `file_schema`, computed once for files that agree on everything it depends on."""
    cached = _arrow_schemas.get(schema, key_value, int96_unit)
    if cached is not None:
        return cached
    found = file_schema(schema, key_value, int96_unit=int96_unit)
    return _arrow_schemas.put(schema, key_value, int96_unit, found)
