"""What a catalog says of a file, taken from its metadata: the rows of the tables `files` and `bounds`."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from accel.catalog.bound_bytes import End, encode_bounds
from accel.format.domain import Bounds, Domain
from accel.format.footer import MAGIC
from accel.planning.handle import FileHandle
from accel.planning.projection import indexed_as_read, path_leaves, type_at
from accel.planning.pruning import group_bounds
from accel.predicate.kinds import Kind, kind_of

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = [
    "BOUNDS_SCHEMA",
    "FILES_SCHEMA",
    "WHOLE_FILE",
    "BoundsTable",
    "FilesTable",
    "column_text",
    "leaf_columns",
    "path_of_text",
]

WHOLE_FILE: Final = -1
"""Stands for the row group in rows of `bounds` that are about a whole file."""
_MOST_METADATA: Final = 1 << 20
"""Bytes of metadata that a catalog holds of a file beside its footer."""

FILES_SCHEMA: Final = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("etag", pa.string(), nullable=False),
        pa.field("num_rows", pa.int64(), nullable=False),
        pa.field("num_row_groups", pa.int32(), nullable=False),
        pa.field("schema_fingerprint", pa.string(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False),
    ]
)
"""One row for each file, sorted by `path`, which is relative to the directory that the catalog covers. `metadata` are the
last bytes of the file: its footer, and the page indexes before it."""

BOUNDS_SCHEMA: Final = pa.schema(
    [
        pa.field("column", pa.string(), nullable=False),
        pa.field("family", pa.string(), nullable=False),
        pa.field("row_group", pa.int32(), nullable=False),
        pa.field("file", pa.int32(), nullable=False),
        pa.field("lower", pa.binary()),
        pa.field("upper", pa.binary()),
        pa.field("null_count", pa.int64()),
        pa.field("nan_count", pa.int64()),
        pa.field("num_rows", pa.int64(), nullable=False),
    ]
)
"""One row for each column of each file (`row_group` is -1) and of each row group, sorted by `column`, `row_group`, `lower`
and `file`, which is the place of the file in the table `files` of the segment. `family` says what values compare with:
bounds of one family have one encoding (`bound_bytes`)."""


def column_text(path: Sequence[str]) -> str:
    """Return the name of a column in the table `bounds`: the names of its path, with dots between them, quoted where a name
    holds a dot or a quotation mark."""
    return ".".join(_quoted(name) for name in path)


def path_of_text(text: str) -> tuple[str, ...]:
    """Return the path that `column_text` made the name of."""
    names = re.findall(r'"(?:[^"]|"")*"|[^."]+', text)
    return tuple(n[1:-1].replace('""', '"') if n.startswith('"') else n for n in names)


def _quoted(name: str) -> str:
    if "." not in name and '"' not in name and name:
        return name
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def leaf_columns(handle: FileHandle) -> Iterator[tuple[tuple[str, ...], int, Kind, pa.DataType]]:
    """Yield the columns of a file that statistics can speak of: the path, the leaf, and how its values compare.

    They are the plain leaves: flat columns, and fields of structs, at any depth. Of several columns of one path there is
    none.
    """
    schema, arrow = handle.shared.schema, handle.arrow_schema
    for number, leaf in enumerate(schema.leaves):
        if leaf.max_repetition:
            continue
        path = leaf.path
        tops = arrow.get_all_field_indices(path[0])
        if len(tops) != 1 or path_leaves(schema, arrow, path=path) != [number]:
            continue
        kind = type_at(arrow, path)
        if indexed_as_read(schema.elements[leaf.element], kind):
            yield path, number, kind_of(kind), kind


@dataclass(frozen=True, slots=True, eq=False)
class _Column:
    """The bounds of one column in one file: of the whole file first, then of each row group."""

    name: str
    kind: Kind
    lower: pa.Array
    upper: pa.Array
    nulls: Int64s
    nans: Int64s
    rows: Int64s


class FilesTable:
    """Collects rows of the table `files`."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, int, str, int, int, str, bytes]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, path: str, handle: FileHandle) -> None:
        """Add a file, whose etag must be strong."""
        if handle.etag is None:
            raise ValueError(f"{path}: a file without an etag has no version")
        self._rows.append(
            (
                path,
                handle.size,
                handle.etag,
                handle.num_rows,
                handle.num_row_groups,
                schema_fingerprint(handle.arrow_schema),
                metadata_bytes(handle),
            )
        )

    def finish(self) -> pa.Table:
        """Return the table."""
        columns = list(zip(*self._rows, strict=True)) if self._rows else [()] * len(FILES_SCHEMA)
        arrays = [pa.array(column, f.type) for column, f in zip(columns, FILES_SCHEMA, strict=True)]
        return pa.Table.from_arrays(arrays, schema=FILES_SCHEMA)


class BoundsTable:
    """Collects rows of the table `bounds`.

    Parameters
    ----------
    columns : collection of str or None
        The columns to take, by `column_text`; None for all.
    """

    def __init__(self, columns: frozenset[str] | None = None) -> None:
        self._columns = columns
        self._found: list[tuple[int, _Column]] = []

    def add(self, file: int, handle: FileHandle) -> None:
        """Add the columns of the file with that ordinal."""
        for path, leaf, kind, arrow_type in leaf_columns(handle):
            name = column_text(path)
            if (
                self._columns is not None
                and name not in self._columns
                and column_text(path[:1]) not in self._columns
            ):
                continue
            bounds = group_bounds(handle, leaf, kind=arrow_type)
            if bounds.domain is not kind.domain and bounds.domain is not Domain.NONE:
                continue
            self._found.append((file, _of_column(name, kind, bounds, handle.group_rows)))

    def finish(self) -> pa.Table:
        """Return the table, in its order."""
        if not self._found:
            return BOUNDS_SCHEMA.empty_table()
        names, families, groups, files = [], [], [], []
        for file, column in self._found:
            n = len(column.rows)
            names += [column.name] * n
            families += [column.kind.family.group.value] * n
            groups.append(np.arange(-1, n - 1, dtype=np.int32))
            files.append(np.full(n, file, np.int32))
        found = [column for _, column in self._found]
        nulls = np.concatenate([column.nulls for column in found])
        nans = np.concatenate([column.nans for column in found])
        arrays = [
            pa.array(names, pa.string()),
            pa.array(families, pa.string()),
            pa.array(np.concatenate(groups)),
            pa.array(np.concatenate(files)),
            pa.concat_arrays([column.lower for column in found]),
            pa.concat_arrays([column.upper for column in found]),
            pa.array(nulls, pa.int64(), mask=nulls < 0),
            pa.array(nans, pa.int64(), mask=nans < 0),
            pa.array(np.concatenate([column.rows for column in found])),
        ]
        table = pa.Table.from_arrays(arrays, schema=BOUNDS_SCHEMA)
        order = [
            ("column", "ascending"),
            ("row_group", "ascending"),
            ("lower", "ascending"),
            ("file", "ascending"),
        ]
        return table.take(_sorted_places(table, order))


def _sorted_places(table: pa.Table, order: Sequence[tuple[str, str]]) -> pa.Array:
    import pyarrow.compute as pc

    return pc.sort_indices(table, sort_keys=list(order))


def _of_column(name: str, kind: Kind, bounds: Bounds, rows: Int64s) -> _Column:
    has_lower, has_upper = bounds.has_lower, bounds.has_upper
    if bounds.domain is Domain.NONE:
        has_lower = has_upper = np.zeros(len(rows), bool)
    lower = encode_bounds(bounds.lower, has_lower, kind=kind, end=End.LOWER)
    upper = encode_bounds(bounds.upper, has_upper, kind=kind, end=End.UPPER)
    # A row group without values that bounds could bound does not widen those of the file.
    valued = ~((bounds.null_count == rows) | (rows == 0))
    lowers, uppers = lower.to_pylist(), upper.to_pylist()
    least: bytes | None = None
    greatest: bytes | None = None
    if bool(valued.any()):
        low = [lowers[at] for at in np.flatnonzero(valued).tolist()]
        high = [uppers[at] for at in np.flatnonzero(valued).tolist()]
        least = None if None in low else min(low)
        greatest = None if None in high else max(high)
    return _Column(
        name,
        kind,
        pa.concat_arrays([pa.array([least], pa.binary()), lower]),
        pa.concat_arrays([pa.array([greatest], pa.binary()), upper]),
        np.concatenate([[_total(bounds.null_count)], bounds.null_count]),
        np.concatenate([[_total(bounds.nan_count)], bounds.nan_count]),
        np.concatenate([[int(rows.sum())], rows]),
    )


def _total(counts: Int64s) -> int:
    return -1 if bool((counts < 0).any()) else int(counts.sum())


def metadata_bytes(handle: FileHandle) -> bytes:
    """Return the last bytes of a file from which its handle can be made again: the footer, and the page indexes before it where
    they are in memory."""
    packed = handle.pack()
    footer = packed.footer
    end = b"".join((footer, struct.pack("<I", len(footer)), MAGIC))
    first = handle.size - handle.suggested_tail_bytes()
    if handle.tail_start <= first and len(handle.tail) - (first - handle.tail_start) <= _MOST_METADATA:
        return bytes(handle.tail[first - handle.tail_start :]) + end
    return end


def schema_fingerprint(schema: pa.Schema) -> str:
    """Return a text that is equal for files of equal columns and types."""
    import xxhash

    return xxhash.xxh3_64_hexdigest(schema.remove_metadata().serialize().to_pybytes())
