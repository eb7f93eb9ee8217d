"""Files of pyarrow whose footers and column indexes are edited to be as other writers have them."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from accel.format.footer import parse_tail
from accel.format.thrift import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    TRUE,
    Struct,
    ThriftList,
    read_struct,
    write_struct,
)

__all__ = ["chunk_of", "edit_footer", "rewrite_index", "statistics", "write", "written_by"]

TYPE_DEFINED: Struct = {1: (STRUCT, {})}


def write(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def _split(raw: bytes) -> tuple[bytes, Struct]:
    start = len(raw) - 8 - parse_tail(raw[-8:]).length
    return raw[:start], read_struct(raw[start:-8])[0]


def edit_footer(raw: bytes, edit: Callable[[Struct], None]) -> bytes:
    """The file with another footer: `edit` changes the generic struct in place."""
    body, fields = _split(raw)
    edit(fields)
    footer = write_struct(fields)
    return body + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def chunk_of(fields: Struct, group: int = 0, column: int = 0) -> Struct:
    """The ColumnChunk in a FileMetaData."""
    found: Struct = fields[4][1].items[group][1][1].items[column]
    return found


def written_by(raw: bytes, created_by: str) -> bytes:
    """The file as if another had written it."""

    def edit(fields: Struct) -> None:
        fields[6] = (BINARY, created_by.encode())

    return edit_footer(raw, edit)


def statistics(raw: bytes, column: int = 0, group: int = 0, **changed: bytes | int | None) -> bytes:
    """The file with other statistics of a chunk: `nulls`, `low` and `high`; None for none."""

    def edit(fields: Struct) -> None:
        metadata = chunk_of(fields, group, column)[3][1]
        found = metadata.setdefault(12, (STRUCT, {}))[1]
        for name, value in changed.items():
            number = {"nulls": 3, "high": 5, "low": 6}[name]
            for old in (number, {6: 2, 5: 1}.get(number, number), {6: 8, 5: 7}.get(number, number)):
                found.pop(old, None)
            if value is not None:
                found[number] = (I64, value) if isinstance(value, int) else (BINARY, value)

    return edit_footer(raw, edit)


def rewrite_index(
    raw: bytes,
    column: int,
    group: int = 0,
    *,
    change: Callable[[dict[str, list[Any]]], None],
) -> bytes:
    """The file with another column index of a chunk: `change` takes its lists, "null_pages", "low", "high"
    and "nulls"."""
    body, fields = _split(raw)
    chunk = chunk_of(fields, group, column)
    offset, length = chunk[6][1], chunk[7][1]
    index = read_struct(raw[offset : offset + length])[0]
    names = {"null_pages": 1, "low": 2, "high": 3, "nulls": 5}
    lists = {name: list(index[number][1].items) for name, number in names.items() if number in index}
    change(lists)
    lists["null_pages"] = [bool(flag) for flag in lists["null_pages"]]
    kinds: Mapping[str, int] = {"null_pages": TRUE, "low": BINARY, "high": BINARY, "nulls": I64}
    new: Struct = {4: (I32, 0)}
    for name, values in lists.items():
        new[names[name]] = (LIST, ThriftList(kinds[name], values))
    data = write_struct(new)
    chunk[6], chunk[7] = (I64, len(body)), (I32, len(data))
    footer = write_struct(fields)
    return body + data + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def clear_bytes(raw: bytes, spans: Sequence[tuple[int, int]]) -> bytes:
    """The file with zeros there."""
    out = bytearray(raw)
    for start, end in spans:
        out[start:end] = bytes(end - start)
    return bytes(out)
