"""The rows that are written: a table, or a stream of which one row group at a time is held."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa

from accel.options import MIB
from accel.scanning.scan import Scan
from accel.writing.scanned_rows import find_stored_types, plain_rows, with_way_out
from accel.writing.storable import storable
from accel.writing.stored_types import StoredTypes

__all__ = ["GROUP_BYTES", "Rows", "rows_of"]

GROUP_BYTES: Final = 128 * MIB
"""Bytes of Arrow after which the row group of a stream ends."""
_IN_MEMORY: Final = ("pandas", "polars")
"""Packages whose Arrow streams are data frames."""


@dataclass(slots=True, kw_only=True)
class Rows:
    """Rows to be written, once."""

    schema: pa.Schema
    """As they come, without the columns of which the paths tell."""
    tables: Iterator[pa.Table]
    """All columns, in parts of any size; one part where the rows are in memory."""
    scan: Scan | None = None
    """The scan that they are of, if its files tell how they store them."""
    streams: bool = True
    """Whether the rows come bit by bit."""
    stored: StoredTypes | None = None
    names: Sequence[str] = ()
    """Of all columns."""

    def __post_init__(self) -> None:
        self.names = self.schema.names

    def without(self, names: Iterable[str]) -> Rows:
        """Take columns out of the files, and settle how these store the others."""
        gone = set(names)
        self.schema = pa.schema(
            [field for field in self.schema if field.name not in gone], metadata=self.schema.metadata
        )
        if self.scan is not None:
            self.stored = find_stored_types(self.scan, self.schema)
        return self

    @property
    def original(self) -> pa.Schema:
        """What readers of Arrow find in the files."""
        return self.schema if self.stored is None else self.stored.original

    def in_files(self, table: pa.Table) -> pa.Table:
        """Return a part of the rows in the types that files store."""
        if table.schema.names != self.schema.names:
            table = table.select(self.schema.names)
        if self.stored is not None:
            table = plain_rows(table, self.stored)
        # Dictionaries of a stream may differ from part to part.
        return storable(table, dictionaries=not self.streams and self.stored is None)

    def collect(self) -> pa.Table:
        """Return all rows at once."""
        parts = list(self.tables)
        self.streams = False
        return pa.concat_tables(parts) if parts else self.schema.empty_table()

    def groups(self, row_group_size: int) -> Iterator[pa.Table]:
        """Yield the rows in parts of a row group each, which ends early where its rows are wide."""
        waiting: list[pa.Table] = []
        rows = nbytes = 0
        for table in self.tables:
            while table.num_rows:
                part = table.slice(0, row_group_size - rows)
                table = table.slice(part.num_rows)
                waiting.append(part)
                rows, nbytes = rows + part.num_rows, nbytes + part.nbytes
                if rows >= row_group_size or nbytes >= GROUP_BYTES:
                    yield pa.concat_tables(waiting)
                    waiting, rows, nbytes = [], 0, 0
        if waiting:
            yield pa.concat_tables(waiting)


def rows_of(data: Any) -> Rows:
    """Return the rows of what a caller gave: a table, a data frame, a scan, any other Arrow stream, or an
    iterable of record batches and tables.

    Raises
    ------
    TypeError
        It is none of these.
    ValueError
        An iterable gives nothing, or parts of other columns than the first.
    """
    if isinstance(data, pa.Table):
        return Rows(schema=data.schema, tables=iter((data,)), streams=False)
    if isinstance(data, Scan):
        return _of_scan(data)
    if isinstance(data, pa.RecordBatch):
        return rows_of(pa.Table.from_batches([data]))
    if hasattr(data, "__arrow_c_stream__"):
        return _of_arrow_stream(data)
    if isinstance(data, Iterable) and not isinstance(data, str | bytes | Mapping):
        return _of_iterable(data)
    raise TypeError(
        f"the first argument is the pyarrow.Table to write, not a {type(data).__name__}; "
        "pa.table(...) makes one of a dict of columns"
    )


def _of_arrow_stream(data: Any) -> Rows:
    try:
        if type(data).__module__.partition(".")[0] in _IN_MEMORY:
            return rows_of(pa.table(data))
        reader = pa.RecordBatchReader.from_stream(data)
    except (pa.ArrowInvalid, TypeError) as error:  # an array, such as a series
        raise TypeError(f"a {type(data).__name__} is no Arrow stream of a table: {error}") from error
    tables = (pa.Table.from_batches([batch]) for batch in reader)
    return Rows(schema=reader.schema, tables=tables)


def _of_scan(scan: Scan) -> Rows:
    batches = with_way_out(scan.to_batches())
    first = next(batches, None)
    schema = scan.schema if first is None else first.schema

    def tables() -> Iterator[pa.Table]:
        with closing(batches):
            if first is not None:
                yield pa.Table.from_batches([first])
            yield from (pa.Table.from_batches([batch]) for batch in batches)

    return Rows(schema=schema, tables=tables(), scan=scan)


def _of_iterable(data: Iterable[Any]) -> Rows:
    parts = iter(data)
    first = _table(next(parts, None), type(data).__name__)
    if first is None:
        raise ValueError(
            "the iterable gives no record batch, so its columns are unknown: a pyarrow.RecordBatchReader has "
            "a schema"
        )
    check = partial(_check_alike, first.schema)

    def tables() -> Iterator[pa.Table]:
        yield first
        for part in parts:
            table = _table(part, type(data).__name__)
            if table is None:
                raise TypeError(f"the {type(data).__name__} gives None, not record batches")
            yield check(table)

    return Rows(schema=first.schema, tables=tables())


def _table(part: Any, source: str) -> pa.Table | None:
    if part is None or isinstance(part, pa.Table):
        return part
    if isinstance(part, pa.RecordBatch):
        return pa.Table.from_batches([part])
    if hasattr(part, "__arrow_c_stream__"):
        return pa.table(part)
    raise TypeError(f"the {source} gives a {type(part).__name__}, not record batches or tables")


def _check_alike(schema: pa.Schema, table: pa.Table) -> pa.Table:
    if table.schema.equals(schema):
        return table
    for one, other in zip(schema, table.schema, strict=False):
        if not one.equals(other):
            raise ValueError(f"the parts differ: first {one!s:.80}, then {other!s:.80}")
    raise ValueError(f"the parts differ: first {len(schema)} columns, then {len(table.schema)}")
