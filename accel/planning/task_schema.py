"""The columns of a scan task as an Arrow row, what tells such rows from a listing of files, and their checksum."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from accel.errors import AccelError

__all__ = ["PAGE_LISTS", "QUESTION_COLUMNS", "TASK_ARROW_SCHEMA", "are_tasks", "checksum_of"]

_LONGS = pa.list_(pa.int64())
QUESTION_COLUMNS = ("where", "data_schema", "output_schema")
"""The columns that say what was asked."""
PAGE_LISTS = ("ordinal", "offset", "size", "first_row", "stop_row")

_LEAF = pa.struct(
    [
        ("leaf", pa.int32()),
        ("column", pa.int32()),
        ("codec", pa.int32()),
        ("chunk_start", pa.int64()),
        ("chunk_end", pa.int64()),
        ("dictionary_start", pa.int64()),
        ("dictionary_end", pa.int64()),
        ("dictionary_pages", pa.int32()),
        ("num_values", pa.int64()),
        ("expansion", pa.float64()),
        ("for_filter", pa.bool_()),
        ("for_output", pa.bool_()),
        ("total_pages", pa.int32()),
        *((name, _LONGS) for name in PAGE_LISTS),
    ]
)

TASK_ARROW_SCHEMA = pa.schema(
    [
        ("version", pa.int32()),
        ("root", pa.string()),
        ("path", pa.string()),
        ("url", pa.string()),
        ("size", pa.int64()),
        ("etag", pa.string()),
        ("row_group", pa.int32()),
        ("num_rows", pa.int64()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("row_starts", _LONGS),
        ("row_stops", _LONGS),
        ("sure_starts", _LONGS),
        ("sure_stops", _LONGS),
        ("share", pa.float64()),
        ("footer", pa.binary()),
        ("arrow_schema", pa.binary()),
        ("where", pa.binary()),
        ("data_schema", pa.binary()),
        ("output_schema", pa.binary()),
        ("partition", pa.binary()),
        ("leaves", pa.list_(_LEAF)),
        ("checksum", pa.int64()),
    ]
)
"""The columns of a task row. `rows` and `bytes` are there to be looked at, and to balance by; `checksum` is that of all
others, for a task that is damaged on its way may well be one of other rows."""

# Columns that a listing of files may well have too: only the others tell tasks from one.
_OF_LISTINGS = frozenset(
    {"version", "root", "path", "url", "size", "etag", "num_rows", "rows", "bytes", "share", "partition"}
    | {"where", "checksum"}
)


def are_tasks(names: Collection[str]) -> bool:
    """Whether columns of these names are tasks, rather than a listing of files.

    Raises
    ------
    AccelError
        They are, but some columns of a task are missing: what is left names files too, and reading those
        whole would give rows that the plan left out.
    """
    due = TASK_ARROW_SCHEMA.names
    if not any(name in names for name in due if name not in _OF_LISTINGS):
        return False
    missing = [name for name in due if name not in names]
    if missing:
        raise AccelError(
            f"these are tasks of a plan without the columns {missing}",
            hint="keep the columns of a plan's tasks as they are, or give only their `path` to read whole files",
        )
    return True


def checksum_of(row: Mapping[str, Any]) -> int:
    """CRC-32 of a task's columns, whichever process has them, and whether it has read or is to write them."""
    crc = 0
    values: list[Any] = []
    for field in TASK_ARROW_SCHEMA:
        value = row[field.name] if field.name != "checksum" else None
        if isinstance(value, str):
            value = value.encode("utf-8", "surrogatepass")
        if isinstance(value, bytes):
            crc = zlib.crc32(value, crc)
            value = len(value)
        if field.name == "leaves":
            leaves = row["leaves"] or ()
            values += [[_plain(leaf[part.name]) for part in _LEAF] for leaf in leaves]
        else:
            values.append(_plain(value))
    # Numbers, none, and lists of them: as text they are the same everywhere.
    return zlib.crc32(repr(values).encode("ascii"), crc)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
