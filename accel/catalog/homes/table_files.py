"""The Parquet files of a segment's tables: how each is laid out and written, and the end of it that a head
holds."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa

from accel.catalog.head import Table
from accel.catalog.kinds.registry import index_of_table
from accel.decode.arrow import arrow_schema, shared_schema
from accel.format.footer import parse_tail
from accel.options import MIB
from accel.planning.opening import open_file
from accel.planning.read_request import Tail

__all__ = [
    "MOST_PAGE_INDEX",
    "Rows",
    "tail_of_file",
    "without_page_index",
    "write_table_file",
]

Rows: TypeAlias = pa.Table | pa.RecordBatchReader
"""The rows of a table; a reader where they may not fit into memory."""

MOST_PAGE_INDEX: Final = MIB
"""Bytes of page indexes that a head holds of an object; larger ones are read, as far as a question needs
them."""
_SMALL: Final = MIB
"""Bytes of a table `files` that a head may hold."""
_LENGTH_BYTES: Final = 8
"""At the end of a Parquet file: the length of the footer, and the magic."""
_GROUP_ROWS: Final = 1 << 20
_GROUP_BYTES: Final = 64 * MIB
"""Bytes of a row group of a table that comes in parts."""
_PAGE_ROWS: Final = 4096
_INLINE_PAGE_ROWS: Final = 64
"""Files of a page of metadata where all of them are read at once: they compress well together."""
_PAGE_FILES: Final = 8
"""Files of a page of metadata where each is read by itself."""
_SHRINKS: Final = 16
"""Metadata of files is compressed to a sixteenth at the most."""
_LEVEL: Final = 9
"""Of Zstandard: the tables are written once and read often."""
_INDEX_LEVEL: Final = 3
"""Values in no order, and places, gain nothing from a higher one."""


def write_table_file(name: str, rows: Rows, path: Path) -> int:
    """Write a table of a segment, in the layout that its name stands for; returns the number of its rows."""
    if name == Table.FILES:
        # The rows are large, and of a large index they are taken one by one. They are found by their place:
        # bounds of the pages would be footers.
        plain: dict[str, Any] = {"use_dictionary": False, "write_statistics": False}
        small = isinstance(rows, pa.Table) and rows.nbytes <= _SHRINKS * _SMALL
        if small:
            count = _write(rows, path, page_rows=_INLINE_PAGE_ROWS, **plain)
            if path.stat().st_size <= _SMALL:
                return count
        return _write(rows, path, page_rows=_PAGE_FILES, **plain)
    if name == Table.BOUNDS:
        return _write(rows, path, page_rows=_PAGE_ROWS, use_dictionary=["column", "family"])
    index = index_of_table(name)
    if index is None:
        raise ValueError(f"there is no table {name!r}")
    how = index.encoding(rows.schema, rows.num_rows if isinstance(rows, pa.Table) else None)
    return _write(rows, path, level=_INDEX_LEVEL, **dataclasses.asdict(how))


def _write(rows: Rows, path: Path, *, page_rows: int, level: int = _LEVEL, **encoding: Any) -> int:
    from accel.writing.table_writer import parquet_writer

    count = 0
    settings = {"compression_level": level, "write_page_checksum": True, **encoding}
    with parquet_writer(str(path), rows.schema, page_rows=page_rows, **settings) as writer:
        for part in [rows] if isinstance(rows, pa.Table) else _in_groups(rows):
            writer.write_table(part, row_group_size=_GROUP_ROWS)
            count += len(part)
    return count


def _in_groups(rows: pa.RecordBatchReader) -> Iterator[pa.Table]:
    """Yield the rows in parts that make row groups."""
    waiting: list[pa.RecordBatch] = []
    for batch in rows:
        waiting.append(batch)
        if sum(map(len, waiting)) >= _GROUP_ROWS or sum(one.nbytes for one in waiting) >= _GROUP_BYTES:
            yield pa.Table.from_batches(waiting).slice(0, _GROUP_ROWS)
            rest = pa.Table.from_batches(waiting).slice(_GROUP_ROWS)
            waiting = rest.to_batches()
    while waiting:
        table = pa.Table.from_batches(waiting)
        yield table.slice(0, _GROUP_ROWS)
        waiting = table.slice(_GROUP_ROWS).to_batches()


def tail_of_file(path: Path) -> bytes:
    """Return the end of a Parquet file: page indexes, where they are not too large, and footer."""
    size = path.stat().st_size
    footer = _footer_bytes(_end_of(path, _LENGTH_BYTES))
    steps = open_file("", footer, max_footer_bytes=size, arrow_schema=arrow_schema, shared=shared_schema)
    next(steps)
    try:
        steps.send(Tail(memoryview(_end_of(path, footer)), size - footer, size, None))
    except StopIteration as done:
        wanted = done.value.suggested_tail_bytes()
        return _end_of(path, wanted if wanted - footer <= MOST_PAGE_INDEX else footer)
    raise TypeError("a footer needs nothing more")


def without_page_index(tail: bytes) -> bytes:
    """Return the footer alone of the end of a Parquet file."""
    return tail[-_footer_bytes(tail) :]


def _footer_bytes(tail: bytes) -> int:
    return parse_tail(memoryview(tail)[-_LENGTH_BYTES:]).length + _LENGTH_BYTES


def _end_of(path: Path, length: int) -> bytes:
    with path.open("rb") as file:
        file.seek(-length, os.SEEK_END)
        return file.read()
