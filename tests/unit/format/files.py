"""Files of pyarrow's making, and footers of our own, for this folder's tests."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from accel.format.footer import parse_footer, parse_tail
from accel.format.model import FileMetadata
from accel.format.thrift import Struct, read_struct, write_struct


def write(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def footer_of(raw: bytes) -> tuple[bytes, int]:
    """The footer's bytes and where they start."""
    start = len(raw) - 8 - parse_tail(raw[-8:]).length
    return raw[start:-8], start


def parse(raw: bytes) -> FileMetadata:
    data, start = footer_of(raw)
    return parse_footer(data, file_size=len(raw), footer_start=start)


def edited(raw: bytes, edit: Any) -> FileMetadata:
    """Parse the file with its footer changed: `edit` takes the generic struct and changes it in place.

    The file counts as long as its footer says, so that any length of footer fits.
    """
    data, start = footer_of(raw)
    fields: Struct = read_struct(data)[0]
    edit(fields)
    footer = write_struct(fields)
    return parse_footer(footer, file_size=start + len(footer) + 8, footer_start=start)


def chunk(fields: Struct, group: int = 0, column: int = 0) -> Struct:
    """The ColumnChunk in a FileMetaData."""
    return fields[4][1].items[group][1][1].items[column]
