"""`write_table`: write a table as a Parquet file that is laid out for selective readers."""

from __future__ import annotations

import contextlib
import itertools
import os
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, TypeAlias, overload

import pyarrow as pa
import pyarrow.compute as pc

from accel.arrow_features import known_writer_options, require_writer_options
from accel.errors import AccelError, StoreError
from accel.format.domain import storage_type
from accel.options import KIB, Options, check_options
from accel.predicate.kinds import native
from accel.runtime import io_loop
from accel.runtime.time_limits import check_time, time_limit
from accel.store.clients import Connector
from accel.store.local_store import write_beside
from accel.store.location import Location, parse_url
from accel.store.range_store import Writer
from accel.store.writes import PART_BYTES, put_object
from accel.writing.named_columns import find_column
from accel.writing.partitioned import check_partition_columns, write_partitions
from accel.writing.report import EmbedReport, warn_of_idle
from accel.writing.row_streams import Rows, rows_of
from accel.writing.sort_order import SortBy, read_ordering, sort_table, sorting_columns
from accel.writing.source import LocalSource
from accel.writing.storable import arrow_schema_pairs, refusals, storable
from accel.writing.stored_footer import restore_footer
from accel.writing.stored_types import StoredTypes
from accel.writing.survey import PreparedFile, prepare, report_on
from accel.writing.wanted import Indexes

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetWriter

__all__ = [
    "BloomColumns",
    "RowGroups",
    "arrow_schema_pairs",
    "bloom_options",
    "check_writer_settings",
    "file_settings",
    "open_target",
    "parquet_writer",
    "storable",
    "write_table",
]


BloomColumns = Sequence[str] | Mapping[str, float]
"""Names of columns, or the chance of a false positive by name."""

_CHANCE = 0.01


def bloom_options(table: pa.Table, blooms: BloomColumns, *, row_group_size: int) -> dict[str, dict[str, Any]]:
    """Return the option `bloom_filter_options` of pyarrow's writer.

    A filter covers one row group, so it is sized by the most distinct values of a row group. By default
    pyarrow assumes a million, which costs megabytes per column.

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
        at = find_column(name, table.schema, "blooms")
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
"""pyarrow checks the size of a page once per batch: with its default of 1024, pages of wide texts grow far
beyond."""
_GROUP_ROWS = 1_048_576
_COUNTS = ("max_rows_per_page", "write_batch_size")
"""Options of pyarrow that are numbers of rows; it never ends if one is below 1."""


class ArrowStream(Protocol):
    """An object with Arrow's C stream interface."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


RowSource: TypeAlias = "pa.Table | ArrowStream | Iterable[pa.RecordBatch | pa.Table]"
"""What `write_table` takes."""


@overload
def write_table(
    table: RowSource, path: str | os.PathLike[str], *, partition_by: None = None, **more: Any
) -> EmbedReport: ...


@overload
def write_table(
    table: RowSource, path: str | os.PathLike[str], *, partition_by: str | Sequence[str], **more: Any
) -> list[EmbedReport]: ...


def write_table(
    table: RowSource,
    path: str | os.PathLike[str],
    *,
    indexes: Indexes | None = None,
    sort_by: SortBy | None = None,
    blooms: BloomColumns | None = None,
    partition_by: str | Sequence[str] | None = None,
    page_rows: int | None = None,
    row_group_size: int = _GROUP_ROWS,
    storage_options: Mapping[str, Any] | None = None,
    store: object | None = None,
    options: Options | None = None,
    timeout: float | None = None,
    **pyarrow_options: Any,
) -> EmbedReport | list[EmbedReport]:
    """Write rows as one Parquet file, or with `partition_by` as one for each partition.

    By default a file has what a selective reader needs: statistics, a page index, and small pages, of at most
    10,000 rows and about 256 KiB before compression, so that reading one row costs little. Of a stream no
    more than a row group is in memory, and the row group ends after 128 MiB of Arrow; `sort_by` and `blooms`
    need all rows at once (`accel.optimize` sorts what does not fit into memory).

    Parameters
    ----------
    table : pyarrow.Table, any other Arrow stream, or an iterable of record batches or tables
        The rows to write. A data frame of pandas or Polars is an Arrow stream, too, and so are a
        `pyarrow.RecordBatchReader`, a query of DuckDB and an `accel.Scan`; a generator of record batches is
        an iterable. The columns of a scan are stored as its files store them: INT96 as INT96, not as the
        nanoseconds that it is read to.
    path : str or PathLike
        A local path, or a URL of a store that can be written to. A file of that name is replaced once all is
        written; readers see the old file or the new one. With `partition_by`, a directory.
    indexes : mapping, optional
        As for `accel.embed`.
    sort_by : str or sequence, optional
        A column, or columns and (column, "ascending" | "descending") pairs, by which the rows are sorted
        before they are written. The file declares the order. Nulls come last, NaN is the greatest number.
    blooms : sequence of str or mapping, optional
        Columns that get Parquet's own bloom filters, sized by the distinct values of the data; a mapping
        gives the false positive chance of each, e.g. {"user": 0.01}. Needs pyarrow 24.
    partition_by : str or sequence of str, optional
        Columns of text, integers, dates or booleans whose values name directories, `year=2024/month=1/`, and
        that are not in the files. A null is `__HIVE_DEFAULT_PARTITION__`. Files that are there already stay;
        the new ones have names of their own, and appear one by one, each whole.
    page_rows : int, optional
        The most rows of a data page, by default 10,000. Needs pyarrow 23; before, pages are limited by bytes
        alone.
    row_group_size : int
        The most rows of a row group.
    storage_options, store, options
        As for `accel.scan`.
    timeout : float, optional
        Seconds after which the call ends with ScanTimeoutError; `path` is then as it was, or written whole.
    **pyarrow_options
        Options of `pyarrow.parquet.ParquetWriter`, which override the defaults. Without `write_page_index`
        accel adds the page index itself.

    Returns
    -------
    EmbedReport, or list of EmbedReport
        The size of the file, its indexes, and warnings; with `partition_by` of each file.

    Raises
    ------
    TypeError
        `table` is no Arrow stream, a number of rows is not a whole number, a column is not named by text,
        `indexes` does not map columns to kinds, or pyarrow has no such option.
    ValueError
        A column of `sort_by`, `blooms` or `partition_by` does not exist, has no order, cannot have a bloom
        filter, or names no directory; there is no such kind or level of index; the parts of an iterable
        differ; pyarrow cannot write a type, or not in that encoding or compression; a setting needs a later
        pyarrow than the installed one.
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
    >>> accel.write_table(reader, "s3://bucket/flights/", partition_by=["year", "month"])  # doctest: +SKIP
    """
    check_writer_settings(page_rows=page_rows, blooms=blooms, pyarrow_options=pyarrow_options)
    page_rows = _PAGE_ROWS if page_rows is None else page_rows
    counts = {name: pyarrow_options[name] for name in _COUNTS if pyarrow_options.get(name) is not None}
    _check_rows(page_rows=page_rows, row_group_size=row_group_size, **counts)
    location = parse_url(path, in_store=store is not None)
    is_directory = location.path.endswith("/") or not location.path
    if is_directory and partition_by is None:
        raise StoreError("the target is a directory", path=str(location), hint="name a file")
    options = check_options(options)
    connector = Connector(storage_options=storage_options, store=store, options=options)
    # Credentials must not stay in the variables of a frame that a traceback may show.
    del path, storage_options, store
    with time_limit(timeout, location):
        call = _Call(
            connector=connector,
            location=location,
            indexes={} if indexes is None else indexes,
            sort_by=sort_by,
            blooms=blooms,
            settings=file_settings(page_rows=page_rows),
            row_group_size=row_group_size,
            pyarrow_options=pyarrow_options,
            options=options,
        )
        if partition_by is None:
            report = call.write(rows_of(table))
            warn_of_idle(report)
            return report
        reports = call.write_partitions(rows_of(table), partition_by)
        for each in reports:
            warn_of_idle(each)
        return reports


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """One call of `write_table`, whose arguments are checked."""

    connector: Connector
    location: Location
    indexes: Indexes
    sort_by: SortBy | None
    blooms: BloomColumns | None
    settings: dict[str, Any]
    row_group_size: int
    pyarrow_options: Mapping[str, Any]
    options: Options

    def write(self, rows: Rows) -> EmbedReport:
        """Write all rows as one file."""
        rows = rows.without(())
        settings, tables = self._order(rows)
        if rows.streams:
            tables = rows.groups(self.row_group_size)
        with self._open(self.location, rows, settings) as file:
            for table in tables:
                check_time()
                file.write(table)
            return file.finish()

    def write_partitions(self, rows: Rows, by: str | Sequence[str]) -> list[EmbedReport]:
        """Write each partition as a file of its own."""
        names = check_partition_columns(rows.schema, by)
        # Whoever writes with them has files of other names.
        name = f"part-{os.urandom(8).hex()}"
        numbers = itertools.count()
        rows = rows.without(names)
        settings, tables = self._order(rows)
        base = self.location.path.rstrip("/")

        @contextlib.contextmanager
        def open_file(directory: str) -> Iterator[_OpenFile]:
            path = f"{base}/{directory}{name}-{next(numbers)}.parquet".lstrip("/")
            location = replace(self.location, path=path)
            if location.scheme == "file":
                os.makedirs(os.path.dirname(f"/{path}"), exist_ok=True)
            with self._open(location, rows, settings) as file:
                yield file

        return write_partitions(tables, names, row_group_size=self.row_group_size, open_file=open_file)

    def _order(self, rows: Rows) -> tuple[dict[str, Any], Iterator[pa.Table]]:
        """Return the options of pyarrow's writer, and the rows in their order, as they come."""
        settings = dict(self.settings)
        if self.sort_by is None and self.blooms is None and rows.streams:
            return {**settings, **self.pyarrow_options}, rows.tables
        gone = set(rows.names) - set(rows.schema.names)
        collected = rows.collect()
        table = plain = rows.in_files(collected)
        if gone:
            # The columns that name directories are sorted along.
            beside = storable(collected.select([name for name in rows.names if name in gone]))
            for name, column in zip(beside.column_names, beside.columns, strict=True):
                table = table.append_column(name, column)
        if self.sort_by is not None:
            keys = read_ordering(plain, self.sort_by)
            table = sort_table(table, keys)
            if declared := sorting_columns(keys, self.pyarrow_options):
                settings["sorting_columns"] = declared
        if self.blooms is not None:
            size = self.row_group_size
            settings["bloom_filter_options"] = bloom_options(plain, self.blooms, row_group_size=size)
        return {**settings, **self.pyarrow_options}, iter((table,))

    @contextlib.contextmanager
    def _open(self, location: Location, rows: Rows, settings: Mapping[str, Any]) -> Iterator[_OpenFile]:
        with open_target(location, self.connector) as file:
            opened = _OpenFile(self, location, rows, settings, file)
            try:
                yield opened
            except BaseException:
                opened.give_up()
                raise


class _OpenFile:
    """A file of a call that takes rows."""

    def __init__(
        self, call: _Call, location: Location, rows: Rows, settings: Mapping[str, Any], file: BinaryIO
    ) -> None:
        self._call = call
        self._name = str(location)
        self._rows = rows
        self._settings = settings
        self._file = file
        self._groups: RowGroups | None = None

    def write(self, table: pa.Table) -> None:
        """Write rows, as row groups."""
        self._write(table)

    def _write(self, table: pa.Table) -> RowGroups:
        table, rows = self._rows.in_files(table), self._rows
        groups = self._groups
        if groups is None:
            groups = self._groups = RowGroups(
                self._file, table.schema, self._settings, original=rows.original, stored=rows.stored
            )
        groups.write(table, row_group_size=self._call.row_group_size)
        return groups

    def finish(self) -> EmbedReport:
        """Write the footer and the indexes."""
        groups = self._groups or self._write(self._rows.schema.empty_table())
        prepared = groups.finish(self._call.indexes, name=self._name, options=self._call.options)
        return report_on(prepared, path=self._name, written=True)

    def give_up(self) -> None:
        """Write no more."""
        if self._groups is not None:
            self._groups.close()


def _check_rows(**given: Any) -> None:
    for name, rows in given.items():
        if isinstance(rows, bool) or not isinstance(rows, Integral):
            raise TypeError(f"{name} is a whole number of rows, not {rows!r}")
        if not 0 < int(rows) < 1 << 63:
            raise ValueError(f"{name} is a number of rows above 0 and below 2**63, not {rows!r}")


def check_writer_settings(
    *, page_rows: int | None, blooms: BloomColumns | None, pyarrow_options: Mapping[str, Any]
) -> None:
    """Raise ValueError for a setting that needs a later pyarrow than the installed one."""
    required = {option: option for option in pyarrow_options}
    if page_rows is not None:
        required["max_rows_per_page"] = "page_rows"
    if blooms:
        required["bloom_filter_options"] = "blooms"
    require_writer_options(required)


def parquet_writer(
    sink: Any, schema: pa.Schema, *, page_rows: int = _PAGE_ROWS, **pyarrow_options: Any
) -> ParquetWriter:
    """Return pyarrow's writer with the layout of `write_table`, for rows that come in parts and are as they
    are stored."""
    import pyarrow.parquet as pq

    return pq.ParquetWriter(sink, schema, **{**file_settings(page_rows=page_rows), **pyarrow_options})


def file_settings(*, page_rows: int = _PAGE_ROWS) -> dict[str, Any]:
    """Return the options of pyarrow's writer by default, as far as it has them."""
    return known_writer_options(
        {
            "compression": "zstd",
            "write_page_index": True,
            "write_statistics": True,
            "max_rows_per_page": page_rows,
            "data_page_size": _PAGE_BYTES,
            "write_batch_size": _BATCH_ROWS,
        }
    )


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
    stored : StoredTypes, optional
        What the footer says that pyarrow does not write.
    """

    def __init__(
        self,
        file: BinaryIO,
        schema: pa.Schema,
        settings: Mapping[str, Any],
        *,
        original: pa.Schema,
        stored: StoredTypes | None = None,
    ) -> None:
        import pyarrow.parquet as pq

        self._file = file
        self._stored = stored
        stores = settings.get("store_schema", True if stored is None else stored.arrow_schema)
        self._pairs: dict[str | bytes, bytes] = {}
        if stored is not None:
            settings = stored.writer_settings(settings)
        if stored is not None:
            self._pairs = replace(stored, arrow_schema=bool(stores)).key_value()
        elif stores and schema != original:
            self._pairs = arrow_schema_pairs(original, original.names)
        if stored is not None or self._pairs:
            settings = {**settings, "store_schema": False}
            schema = schema.remove_metadata()
        with refusals():
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
            if self._pairs:
                self._writer.add_key_value_metadata(self._pairs)
            self._writer.close()
        file = self._file
        file.flush()
        if self._stored is not None:
            restore_footer(file, self._stored)
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
            with refusals():
                yield
        except BaseException:
            self.close()
            raise


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
