"""`write_table`: a table as a Parquet file that is laid out for selective reading, indexes included."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from numbers import Integral
from typing import Any, BinaryIO, Protocol

import pyarrow as pa

from accel.cache.freshness import PART_BYTES, put_object
from accel.errors import AccelError, StoreError
from accel.options import KIB, Options, check_options
from accel.store import io_loop
from accel.store.client import Connector
from accel.store.local_store import write_beside
from accel.store.location import Location, parse_url
from accel.store.range_store import Writer
from accel.writing.blooms import BloomColumns, bloom_options
from accel.writing.preparation import prepare, report_on
from accel.writing.report import EmbedReport, warn_of_idle
from accel.writing.sorting import SortBy, SortKey, read_ordering, sort_table, sorting_columns
from accel.writing.source import LocalSource
from accel.writing.storable import arrow_schema_pairs, storable
from accel.writing.wanted import Indexes

__all__ = ["write_table"]

_PAGE_ROWS = 10_000
_PAGE_BYTES = 256 * KIB
_BATCH_ROWS = 256
"""pyarrow looks at a page's size once a batch: its own 1024 would let pages of wide texts grow far beyond."""
_GROUP_ROWS = 1_048_576
_COUNTS = ("max_rows_per_page", "write_batch_size")
"""Options of pyarrow's that are numbers of rows: with one below 1 it never ends."""


class ArrowStream(Protocol):
    """What speaks Arrow's C stream interface."""

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

    By default it has what a selective reader needs: statistics, a page index, and pages small enough that
    one row costs little: at most 10,000 rows and about 256 KiB (before compression) each.

    Parameters
    ----------
    table : pyarrow.Table, or any other Arrow stream
        What is written: a data frame of pandas or Polars is an Arrow stream, too.
    path : str or PathLike
        A local path, or a URL of a store that can be written to. What has the name is replaced once
        all is written; a reader sees the old file or the new one.
    indexes : mapping, optional
        As of `accel.embed`.
    sort_by : str or sequence, optional
        A column, or columns and (column, "ascending" | "descending") pairs, to sort the table by before it
        is written; the file says that it is sorted. Nulls come last, NaN is the greatest number.
    blooms : sequence of str or mapping, optional
        Columns that get Parquet's own bloom filters, sized by the number of distinct values that the
        data has; a mapping gives each its false positive chance, e.g. {"user": 0.01}.
    page_rows : int
        Rows of a data page at most.
    row_group_size : int
        Rows of a row group at most.
    storage_options, store, options
        As of `accel.scan`.
    **pyarrow_options
        Of `pyarrow.parquet.ParquetWriter`; they win over the defaults here. Without `write_page_index` accel adds
        the page index by itself.

    Returns
    -------
    EmbedReport

    Warns
    -----
    UserWarning
        An index rules nothing out. So says `warnings` of the report, too.

    Raises
    ------
    TypeError
        What is to be written is no Arrow stream, rows are not counted by a whole number, columns are not named by
        text, `indexes` does not map columns to kinds, or pyarrow has no such option.
    ValueError
        A column to sort by or to filter by is not there, has no order, or cannot have a bloom filter; there is no
        such kind or level of index; pyarrow cannot write a type, or not in that encoding or
        compression.
    ColumnNotFoundError, SchemaMismatchError
        An index is asked for of a column that is not there, or that cannot have it.
    MemoryLimitError
        A page, or what an index is built of, takes more than `options.memory_limit`; idx1 has too many texts.
    StoreError
        The store failed, or cannot be written to.
    AccelError
        A kind of index failed, or what it built does not read back.
    """
    given = _as_table(table)
    counts = {name: pyarrow_options[name] for name in _COUNTS if pyarrow_options.get(name) is not None}
    _check_rows(page_rows=page_rows, row_group_size=row_group_size, **counts)
    location = parse_url(path, in_store=store is not None)
    if location.path.endswith("/") or not location.path:
        raise StoreError("the target is a directory", path=str(location), hint="name a file")
    options = check_options(options)
    connector = Connector(storage_options=storage_options, store=store, options=options)
    # They may be credentials, and whoever shows a failure may show the variables of its frames.
    del path, storage_options, store
    table = storable(given)
    keys = [] if sort_by is None else read_ordering(table, sort_by)
    table = sort_table(table, keys)
    settings = _settings(table, keys, blooms, page_rows, row_group_size, pyarrow_options)
    with _target(location, connector) as file:
        _write(table, file, settings, row_group_size, original=given.schema)
        # Through a handle of its own: reading and writing then have a position each.
        source = LocalSource(str(location), os.dup(file.fileno()), found=os.fstat(file.fileno()))
        try:
            made = prepare(source, {} if indexes is None else indexes, options=options)
        finally:
            source.close()
        file.truncate(made.tail.start)
        file.seek(made.tail.start)
        for part in made.tail.read():
            file.write(part)
    report = report_on(made, path=str(location), written=True)
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
    except pa.ArrowInvalid as error:  # a series, say: an array and no table
        raise TypeError(f"a {type(data).__name__} is no Arrow stream of a table: {error}") from error


def _check_rows(**given: Any) -> None:
    for name, rows in given.items():
        if isinstance(rows, bool) or not isinstance(rows, Integral):
            raise TypeError(f"{name} is a whole number of rows, not {rows!r}")
        if not 0 < int(rows) < 1 << 63:
            raise ValueError(f"{name} is a number of rows above 0 and below 2**63, not {rows!r}")


def _settings(
    table: pa.Table,
    keys: Sequence[SortKey],
    blooms: BloomColumns | None,
    page_rows: int,
    row_group_size: int,
    given: Mapping[str, Any],
) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "compression": "zstd",
        "write_page_index": True,
        "write_statistics": True,
        "max_rows_per_page": page_rows,
        "data_page_size": _PAGE_BYTES,
        "write_batch_size": _BATCH_ROWS,
    }
    if told := sorting_columns(keys, given):
        settings["sorting_columns"] = told
    if blooms is not None:
        settings["bloom_filter_options"] = bloom_options(table, blooms, row_group_size=row_group_size)
    return {**settings, **given}


def _write(
    table: pa.Table,
    file: BinaryIO,
    settings: Mapping[str, Any],
    row_group_size: int,
    *,
    original: pa.Schema,
) -> None:
    import pyarrow.parquet as pq

    restored = table.schema != original and settings.get("store_schema", True)
    if restored:
        settings = {**settings, "store_schema": False}
    sink = pa.PythonFile(file, mode="w")
    with _refusals(), pq.ParquetWriter(sink, table.schema, **settings) as writer:
        writer.write_table(table, row_group_size=row_group_size)
        if restored:
            writer.add_key_value_metadata(arrow_schema_pairs(original, writer.schema.names))
    file.flush()


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """What pyarrow says of a table or of its options, as errors in the caller's terms."""
    try:
        yield
    except TypeError as error:  # of the C layer, whose name says nothing to the caller
        raise TypeError(str(error).replace("__cinit__()", "pyarrow.parquet.ParquetWriter")) from None
    except NotImplementedError as error:
        raise _unwritable(error) from error
    except OSError as error:
        # Parquet's own refusals have no number, unlike what the operating system says.
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
def _target(location: Location, connector: Connector) -> Iterator[BinaryIO]:
    """A local file to write: the one beside the target, or one that is uploaded in the end."""
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
