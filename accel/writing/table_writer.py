"""`write_table`: write a table as a Parquet file that is laid out for selective readers."""

from __future__ import annotations

import base64
import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accel.arrays import change_fields, integers, pack_bits, validity
from accel.cache.freshness import PART_BYTES, put_object
from accel.decode.dictionary_arrays import check_indices
from accel.errors import AccelError, StoreError
from accel.format.domain import Domain, storage_type
from accel.format.footer import ARROW_SCHEMA_KEY
from accel.options import KIB, Options, check_options
from accel.predicate.kinds import Family, kind_of, native
from accel.store import io_loop
from accel.store.client import Connector
from accel.store.local_store import write_beside
from accel.store.location import Location, parse_url
from accel.store.range_store import Writer
from accel.writing.report import EmbedReport, warn_of_idle
from accel.writing.source import LocalSource
from accel.writing.survey import PreparedFile, prepare, report_on
from accel.writing.wanted import Indexes

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetWriter, SortingColumn

__all__ = [
    "BloomColumns",
    "RowGroups",
    "SortBy",
    "SortKey",
    "arrow_schema_pairs",
    "bloom_options",
    "file_settings",
    "open_target",
    "parquet_writer",
    "read_ordering",
    "sort_table",
    "sorting_columns",
    "storable",
    "write_table",
]

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
    """Return a table in types that pyarrow can sort, cut, count and write; without `dictionaries` all of them are decoded.

    Views of text and binary become plain text and binary at any depth: pyarrow cannot take from views, nor from a
    dictionary of them, nor count them, and cuts none inside a struct. Dictionaries inside structs that may be null are
    decoded, because pyarrow does not count the nulls of the structs; so the order of their entries is lost. Dictionaries
    with an entry for null are decoded, because pyarrow does not write them.
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


SortBy = str | Sequence[str | tuple[str, str]]

_NAN = np.int64(0x7FF8 << 48)
"""The bits of the NaN that Python, numpy and Arrow make."""
_MAX = np.int64(2**63 - 1)


@dataclass(frozen=True, slots=True, eq=False)
class SortKey:
    """A column to sort by."""

    name: str
    direction: str
    """"ascending" or "descending"."""
    leaf: int
    """The number of its leaf in the file."""
    values: pa.ChunkedArray
    """Values that pyarrow sorts in the order of the column. pyarrow itself ignores narrow decimals among several keys,
    sorts no half floats, dictionaries and UUIDs, puts NaN last in either direction, and takes -0.0 for 0.0."""
    settled: bool
    """Whether readers agree about the order: it has no NaN but the common one, which some put below all numbers."""


def read_ordering(table: pa.Table, sort_by: SortBy) -> list[SortKey]:
    """Return the columns that `sort_by` names.

    Raises
    ------
    TypeError
        `sort_by` is neither a column nor a list of columns and pairs of a column and a direction.
    ValueError
        A column does not exist, or its type has no order; a direction is neither of the two.
    """
    keys = []
    for name, direction in _pairs(sort_by):
        at = table.schema.get_field_index(name)
        if at < 0:
            raise ValueError(f"sort_by: no column {name!r}, or more than one")
        if direction not in ("ascending", "descending"):
            raise ValueError(f"sort_by: {direction!r} is neither ascending nor descending")
        kind = kind_of(table.schema.field(at).type)
        if kind.domain is Domain.NONE and kind.family is not Family.NULL:
            raise ValueError(
                f"sort_by: column {name!r} is of type {table.schema.field(at).type}, which has no order"
            )
        leaf = sum(_count_leaves(field.type) for field in list(table.schema)[:at])
        keys.append(_key(name, direction, leaf, table.column(at)))
    return keys


def _pairs(sort_by: SortBy) -> list[tuple[str, str]]:
    given = [sort_by] if isinstance(sort_by, str) else sort_by
    if not isinstance(given, Sequence):
        raise _no_columns(sort_by)
    pairs = []
    for each in given:
        match each:
            case str():
                pairs.append((each, "ascending"))
            case [str() as name, str() as direction]:
                pairs.append((name, direction))
            case _:
                raise _no_columns(sort_by)
    return pairs


def _no_columns(sort_by: object) -> TypeError:
    return TypeError(
        f'sort_by is a column, or a list of columns and pairs ("a", "descending"), not {sort_by!r}'
    )


def _count_leaves(kind: pa.DataType) -> int:
    kind = storage_type(kind)
    if not pa.types.is_nested(kind):
        return 1
    return sum(_count_leaves(kind.field(i).type) for i in range(kind.num_fields))


def _key(name: str, direction: str, leaf: int, column: pa.ChunkedArray) -> SortKey:
    parts, settled = [], True
    for chunk in column.chunks or [pa.nulls(0, column.type)]:
        values = native(_stored(chunk))
        if pa.types.is_floating(values.type):
            values, common = _ranks(values)
            settled = settled and common
        parts.append(values)
    return SortKey(name, direction, leaf, pa.chunked_array(parts), settled)


def _stored(array: pa.Array) -> pa.Array:
    """Return the values that the file stores of an extension array: bytes for UUIDs, numbers for booleans of a byte."""
    while isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    return array


def _ranks(values: pa.Array) -> tuple[pa.Array, bool]:
    """Return integers in the order of doubles, -0.0 before 0.0 and NaN last, and whether all NaN are the common one."""
    numbers = integers(values)
    bits = numbers.view(np.int64)
    valid = validity(values)
    nan = np.isnan(numbers) & valid
    ranks = np.where(nan, _MAX, bits ^ ((bits >> 63) & _MAX))
    nulls = None if bool(valid.all()) else pack_bits(valid)
    ranked = pa.Array.from_buffers(pa.int64(), len(ranks), [nulls, pa.py_buffer(ranks)])
    return ranked, bool((bits[nan] == _NAN).all())


def sort_table(table: pa.Table, keys: Sequence[SortKey]) -> pa.Table:
    """Return the rows in the order of the keys, nulls last; the sort is stable."""
    if not keys:
        return table
    names = [str(turn) for turn in range(len(keys))]
    values = pa.Table.from_arrays([key.values for key in keys], names=names)
    # pyarrow puts nulls last.
    ordering = [(name, key.direction) for name, key in zip(names, keys, strict=True)]
    return table.take(pc.sort_indices(values, sort_keys=ordering))


def sorting_columns(keys: Sequence[SortKey], pyarrow_options: Mapping[str, Any]) -> list[SortingColumn]:
    """Return the order that the file declares: the keys up to the first whose order readers disagree about."""
    import pyarrow.parquet as pq

    declared: list[SortingColumn] = []
    for key in keys:
        if not key.settled:
            break
        declared.append(
            pq.SortingColumn(key.leaf, descending=key.direction == "descending", nulls_first=False)
        )
        if pyarrow_options.get("allow_truncated_timestamps"):
            # Truncated timestamps may become equal, and then the next keys are out of order.
            break
    return declared


BloomColumns = Sequence[str] | Mapping[str, float]
"""Names of columns, or the chance of a false positive by name."""

_CHANCE = 0.01


def bloom_options(table: pa.Table, blooms: BloomColumns, *, row_group_size: int) -> dict[str, dict[str, Any]]:
    """Return the option `bloom_filter_options` of pyarrow's writer.

    A filter covers one row group, so it is sized by the most distinct values of a row group. By default pyarrow assumes a
    million, which costs megabytes per column.

    Raises
    ------
    TypeError
        `blooms` does not name columns.
    ValueError
        A column does not exist, is boolean or nested, or a chance is not between 0 and 1.
    """
    names = [blooms] if isinstance(blooms, str) else blooms
    if not isinstance(names, Sequence | Mapping) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"blooms is a list of columns, or a mapping of them to chances, not {blooms!r}")
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        at = table.schema.get_field_index(name)
        if at < 0:
            raise ValueError(f"blooms: no column {name!r}, or more than one")
        kind = storage_type(table.schema.field(at).type)
        if pa.types.is_boolean(kind) or pa.types.is_nested(kind) or pa.types.is_null(kind):
            raise ValueError(f"blooms: column {name!r} is of type {kind}, which can have no bloom filter")
        chance = blooms[name] if isinstance(blooms, Mapping) else _CHANCE
        if not isinstance(chance, Real) or not 0 < chance < 1:
            raise ValueError(f"blooms: {chance!r} is not a chance between 0 and 1")
        found[name] = {"ndv": _most_distinct(table.column(at), row_group_size), "fpp": float(chance)}
    return found


def _most_distinct(column: pa.ChunkedArray, row_group_size: int) -> int:
    most = 1
    for start in range(0, len(column), row_group_size):
        parts = column.slice(start, row_group_size).chunks
        # pyarrow cannot count dictionaries or extensions.
        part = pa.chunked_array([native(each) for each in parts])
        most = max(most, int(pc.count_distinct(part, mode="only_valid").as_py()))
    return most


_PAGE_ROWS = 10_000
_PAGE_BYTES = 256 * KIB
_BATCH_ROWS = 256
"""pyarrow checks the size of a page once per batch: with its default of 1024, pages of wide texts grow far beyond."""
_GROUP_ROWS = 1_048_576
_COUNTS = ("max_rows_per_page", "write_batch_size")
"""Options of pyarrow that are numbers of rows; it never ends if one is below 1."""


class ArrowStream(Protocol):
    """An object with Arrow's C stream interface."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


def write_table(
    table: pa.Table | ArrowStream,
    path: str | os.PathLike[str],
    *,
    indexes: Indexes | None = None,
    sort_by: SortBy | None = None,
    blooms: BloomColumns | None = None,
    page_rows: int = _PAGE_ROWS,
    row_group_size: int = _GROUP_ROWS,
    storage_options: Mapping[str, Any] | None = None,
    store: object | None = None,
    options: Options | None = None,
    **pyarrow_options: Any,
) -> EmbedReport:
    """Write a table as one Parquet file.

    By default the file has what a selective reader needs: statistics, a page index, and small pages, of at most 10,000
    rows and about 256 KiB before compression, so that reading one row costs little.

    Parameters
    ----------
    table : pyarrow.Table, or any other Arrow stream
        The rows to write. A data frame of pandas or Polars is an Arrow stream, too.
    path : str or PathLike
        A local path, or a URL of a store that can be written to. A file of that name is replaced once all is written;
        readers see the old file or the new one.
    indexes : mapping, optional
        As for `accel.embed`.
    sort_by : str or sequence, optional
        A column, or columns and (column, "ascending" | "descending") pairs, by which the table is sorted before it is
        written. The file declares the order. Nulls come last, NaN is the greatest number.
    blooms : sequence of str or mapping, optional
        Columns that get Parquet's own bloom filters, sized by the distinct values of the data; a mapping gives the
        false positive chance of each, e.g. {"user": 0.01}.
    page_rows : int
        The most rows of a data page.
    row_group_size : int
        The most rows of a row group.
    storage_options, store, options
        As for `accel.scan`.
    **pyarrow_options
        Options of `pyarrow.parquet.ParquetWriter`, which override the defaults. Without `write_page_index` accel adds the
        page index itself.

    Returns
    -------
    EmbedReport
        The size of the file, its indexes, and warnings.

    Raises
    ------
    TypeError
        `table` is no Arrow stream, a number of rows is not a whole number, a column is not named by text, `indexes` does
        not map columns to kinds, or pyarrow has no such option.
    ValueError
        A column of `sort_by` or `blooms` does not exist, has no order, or cannot have a bloom filter; there is no such
        kind or level of index; pyarrow cannot write a type, or not in that encoding or compression.
    ColumnNotFoundError, SchemaMismatchError
        The column of an index does not exist, or cannot have it.
    MemoryLimitError
        A page, or the values of an index, take more than `options.memory_limit`; idx1 has too many texts.
    StoreError
        The store failed, or cannot be written to.
    AccelError
        A kind of index failed, or the index that it built does not read back.

    Warns
    -----
    UserWarning
        An index rules nothing out; the report says so, too.

    Examples
    --------
    >>> accel.write_table(table, "flights.parquet", sort_by="carrier", indexes={"flight": "bitmap"})
    """
    given = _as_table(table)
    counts = {name: pyarrow_options[name] for name in _COUNTS if pyarrow_options.get(name) is not None}
    _check_rows(page_rows=page_rows, row_group_size=row_group_size, **counts)
    location = parse_url(path, in_store=store is not None)
    if location.path.endswith("/") or not location.path:
        raise StoreError("the target is a directory", path=str(location), hint="name a file")
    options = check_options(options)
    connector = Connector(storage_options=storage_options, store=store, options=options)
    # Credentials must not stay in the variables of a frame that a traceback may show.
    del path, storage_options, store
    table = storable(given)
    keys = [] if sort_by is None else read_ordering(table, sort_by)
    table = sort_table(table, keys)
    settings = file_settings(page_rows=page_rows)
    if declared := sorting_columns(keys, pyarrow_options):
        settings["sorting_columns"] = declared
    if blooms is not None:
        settings["bloom_filter_options"] = bloom_options(table, blooms, row_group_size=row_group_size)
    with open_target(location, connector) as file:
        rows = RowGroups(file, table.schema, {**settings, **pyarrow_options}, original=given.schema)
        rows.write(table, row_group_size=row_group_size)
        prepared = rows.finish({} if indexes is None else indexes, name=str(location), options=options)
    report = report_on(prepared, path=str(location), written=True)
    warn_of_idle(report)
    return report


def _as_table(data: Any) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    if not hasattr(data, "__arrow_c_stream__"):
        raise TypeError(
            f"the first argument is the pyarrow.Table to write, not a {type(data).__name__}; "
            "pa.table(...) makes one of a dict of columns"
        )
    try:
        return pa.table(data)
    except pa.ArrowInvalid as error:  # an array, such as a series
        raise TypeError(f"a {type(data).__name__} is no Arrow stream of a table: {error}") from error


def _check_rows(**given: Any) -> None:
    for name, rows in given.items():
        if isinstance(rows, bool) or not isinstance(rows, Integral):
            raise TypeError(f"{name} is a whole number of rows, not {rows!r}")
        if not 0 < int(rows) < 1 << 63:
            raise ValueError(f"{name} is a number of rows above 0 and below 2**63, not {rows!r}")


def parquet_writer(
    sink: Any, schema: pa.Schema, *, page_rows: int = _PAGE_ROWS, **pyarrow_options: Any
) -> ParquetWriter:
    """Return pyarrow's writer with the layout of `write_table`, for rows that come in parts and are as they are stored."""
    import pyarrow.parquet as pq

    return pq.ParquetWriter(sink, schema, **{**file_settings(page_rows=page_rows), **pyarrow_options})


def file_settings(*, page_rows: int = _PAGE_ROWS) -> dict[str, Any]:
    """Return the options of pyarrow's writer by default."""
    return {
        "compression": "zstd",
        "write_page_index": True,
        "write_statistics": True,
        "max_rows_per_page": page_rows,
        "data_page_size": _PAGE_BYTES,
        "write_batch_size": _BATCH_ROWS,
    }


class RowGroups:
    """Writes a file row group by row group, and at the end its indexes.

    Parameters
    ----------
    file : BinaryIO
        A local file, open to be read and written.
    schema : pyarrow.Schema
        Of the tables to write, as `storable` returns them.
    settings : mapping
        Options of pyarrow's writer.
    original : pyarrow.Schema
        What readers of Arrow find.
    """

    def __init__(
        self, file: BinaryIO, schema: pa.Schema, settings: Mapping[str, Any], *, original: pa.Schema
    ) -> None:
        import pyarrow.parquet as pq

        self._file = file
        restored = schema != original and settings.get("store_schema", True)
        self._restored = original if restored else None
        if restored:
            settings = {**settings, "store_schema": False}
        with _refusals():
            self._writer = pq.ParquetWriter(pa.PythonFile(file, mode="w"), schema, **settings)

    def write(self, table: pa.Table, *, row_group_size: int) -> None:
        """Write a table as row groups."""
        with self._refusing():
            self._writer.write_table(table, row_group_size=row_group_size)

    def size(self) -> int:
        """Return the bytes of the row groups so far."""
        return self._file.tell()

    def finish(self, indexes: Indexes, *, name: str, options: Options) -> PreparedFile:
        """Write the footer, and the indexes; `name` is that of the file in errors."""
        with self._refusing():
            if self._restored is not None:
                self._writer.add_key_value_metadata(
                    arrow_schema_pairs(self._restored, self._writer.schema.names)
                )
            self._writer.close()
        file = self._file
        file.flush()
        # A second handle, because reading and writing have a position each.
        source = LocalSource(name, os.dup(file.fileno()), found=os.fstat(file.fileno()))
        try:
            prepared = prepare(source, indexes, options=options)
        finally:
            source.close()
        file.truncate(prepared.tail.start)
        file.seek(prepared.tail.start)
        for part in prepared.tail.read():
            file.write(part)
        return prepared

    def close(self) -> None:
        """Give up, if the file is not finished: pyarrow would write a footer when the writer is collected."""
        with contextlib.suppress(Exception):
            self._writer.close()

    @contextlib.contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            with _refusals():
                yield
        except BaseException:
            self.close()
            raise


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
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


@contextlib.contextmanager
def open_target(location: Location, connector: Connector) -> Iterator[BinaryIO]:
    """Open a local file to write: one beside the target, or a temporary one that is uploaded at the end."""
    if location.scheme == "file":
        with write_beside(os.path.realpath("/" + location.path)) as file:
            yield file
        return
    client = connector.client(location)
    if not isinstance(client.store, Writer):
        raise StoreError("this store cannot be written to", path=str(location))
    with tempfile.TemporaryFile() as scratch:
        yield scratch
        size = scratch.seek(0, os.SEEK_END)
        try:
            io_loop.run(put_object(client, location.path, parts=_blocks(scratch.fileno(), size), size=size))
        except AccelError as error:
            raise error.of(str(location)) from error.__cause__


async def _blocks(handle: int, size: int) -> AsyncIterator[bytes]:
    for start in range(0, size, PART_BYTES):
        yield os.pread(handle, min(PART_BYTES, size - start), start)
