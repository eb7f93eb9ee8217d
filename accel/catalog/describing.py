"""What a catalog says of a file, taken from its metadata: the rows of the tables `files` and `bounds`."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from accel.arrays import bytes_array, from_numpy, integers_array, one
from accel.format.bounds import exact_joined_bounds, joined_chunk_bounds
from accel.format.domain import Bounds
from accel.format.footer import MAGIC
from accel.indexes.stored_bounds import BOUND_FIELDS, StoredBounds
from accel.planning.handle import FileHandle
from accel.planning.projection import indexed_as_read, path_leaves, type_at
from accel.predicate.expr import quoted_name

if TYPE_CHECKING:
    import numpy.typing as npt

    from accel.arrays import Int64s

    Int32s = npt.NDArray[np.int32]

__all__ = [
    "BOUNDS_ORDER",
    "BOUNDS_SCHEMA",
    "FILES_SCHEMA",
    "MOST_METADATA",
    "WHOLE_FILE",
    "BoundsTable",
    "FilesTable",
    "column_text",
    "leaf_columns",
    "metadata_bytes",
    "path_of_text",
    "paths_of_text",
    "schema_fingerprint",
]

WHOLE_FILE: Final = -1
"""Stands for the row group in rows of `bounds` that are about a whole file."""
MOST_METADATA: Final = 1 << 20
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
"""One row for each file, sorted by `path`, which is relative to the directory that the catalog covers.
`metadata` are the last bytes of the file: its footer, and the page indexes before it."""

BOUNDS_SCHEMA: Final = pa.schema(
    [
        pa.field("column", pa.string(), nullable=False),
        pa.field("row_group", pa.int32(), nullable=False),
        pa.field("file", pa.int32(), nullable=False),
        *BOUND_FIELDS,
    ]
)
"""One row for each column of each file (`row_group` is -1) and of each row group, sorted by `column`,
`row_group`, `lower` and `file`, which is the place of the file in the table `files` of the segment. Bounds of
one `family` have one encoding (`bound_bytes`)."""
BOUNDS_ORDER: Final = [(name, "ascending") for name in ("column", "row_group", "lower", "file")]


def column_text(path: Sequence[str]) -> str:
    """Return the name of a column in the table `bounds`: the names of its path, with dots between them,
    quoted where a name holds a dot, a comma, a parenthesis or a quotation mark."""
    return ".".join(_quoted(name) for name in path)


def path_of_text(text: str) -> tuple[str, ...]:
    """Return the path that `column_text` made the name of."""
    names = re.findall(r'"(?:[^"]|"")*"|[^."]+', text)
    return tuple(n[1:-1].replace('""', '"') if n.startswith('"') else n for n in names)


def paths_of_text(text: str) -> tuple[tuple[str, ...], ...]:
    """Return the paths of several columns, which `column_text` made the names of, with commas between
    them."""
    return tuple(path_of_text(one.strip()) for one in re.findall(r'(?:"(?:[^"]|"")*"|[^,"])+', text))


def _quoted(name: str) -> str:
    if name and name == name.strip() and not re.search(r'[.",()]', name):
        return name
    return quoted_name(name)


def leaf_columns(handle: FileHandle) -> Iterator[tuple[tuple[str, ...], int, pa.DataType]]:
    """Yield the columns of a file that statistics can describe: path, leaf and type.

    They are the plain leaves: flat columns, and fields of structs, at any depth. Of several columns of one
    path there is none.
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
            yield path, number, kind


class FilesTable:
    """Collects rows of the table `files`."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, int, str, int, int, str, bytes]] = []
        self._fingerprints: dict[int, tuple[pa.Schema, str]] = {}
        self.metadata_bytes = 0
        """The bytes of the metadata of all files."""

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, path: str, handle: FileHandle) -> None:
        """Add a file, whose etag must be strong."""
        if handle.etag is None:
            raise ValueError(f"{path}: a file without an etag has no version")
        metadata = metadata_bytes(handle)
        self.metadata_bytes += len(metadata)
        self._rows.append(
            (
                path,
                handle.size,
                handle.etag,
                handle.num_rows,
                handle.num_row_groups,
                self._fingerprint(handle.arrow_schema),
                metadata,
            )
        )

    def _fingerprint(self, schema: pa.Schema) -> str:
        # The entry keeps the schema alive, so that its id stays its own.
        found = self._fingerprints.get(id(schema))
        if found is None:
            found = self._fingerprints[id(schema)] = schema, schema_fingerprint(schema)
        return found[1]

    @property
    def fingerprints(self) -> frozenset[str]:
        """The fingerprints of the schemas of its files."""
        return frozenset(row[5] for row in self._rows)

    def finish(self) -> pa.Table:
        """Return the table."""
        columns = list(zip(*self._rows, strict=True)) if self._rows else [()] * len(FILES_SCHEMA)
        arrays = [_array(column, f.type) for column, f in zip(columns, FILES_SCHEMA, strict=True)]
        return pa.Table.from_arrays(arrays, schema=FILES_SCHEMA)


def _array(values: Sequence[Any], to: pa.DataType) -> pa.Array:
    if pa.types.is_integer(to):
        return integers_array(values, to)
    return bytes_array([value.encode() if isinstance(value, str) else value for value in values], to)


class BoundsTable:
    """Collects rows of the table `bounds`.

    Parameters
    ----------
    columns : iterable of str or None
        The columns to take, by `column_text`; None for all. A struct stands for all of its fields.
    """

    def __init__(self, columns: Iterable[str] | None = None) -> None:
        self._columns = None if columns is None else frozenset(columns)
        self._parts: list[pa.Table] = []

    def add(self, files: Sequence[tuple[int, FileHandle]]) -> None:
        """Add the columns of files, each with its ordinal. Files of one writer and schema are taken
        together."""
        blocks: dict[object, list[tuple[int, FileHandle]]] = {}
        for ordinal, handle in files:
            shared = handle.shared
            alike = (
                id(shared.schema),
                id(handle.arrow_schema),
                shared.created_by,
                shared.column_orders.tobytes(),
                tuple(sorted(shared.key_value)),
            )
            blocks.setdefault(alike, []).append((ordinal, handle))
        for block in blocks.values():
            self._add_alike(block)

    def _add_alike(self, files: Sequence[tuple[int, FileHandle]]) -> None:
        ordinals = np.array([ordinal for ordinal, _ in files], np.int32)
        packed = [handle.pack() for _, handle in files]
        sizes = np.array([one.num_row_groups for one in packed], np.int64)
        rows = np.concatenate([one.group_rows for one in packed])
        groups = _counting(sizes)
        for path, leaf, arrow_type in leaf_columns(files[0][1]):
            name = column_text(path)
            above = {column_text(path[:depth]) for depth in range(1, len(path) + 1)}
            if self._columns is not None and not self._columns & above:
                continue
            bounds = joined_chunk_bounds(packed, leaf, arrow_type=arrow_type)
            bounds = exact_joined_bounds(packed, leaf, bounds, arrow_type=arrow_type)
            of_files = np.full(len(files), WHOLE_FILE, np.int32)
            self._parts.append(
                _table(name, bounds.fold(sizes), arrow_type, row_groups=of_files, files=ordinals)
            )
            if len(rows):
                of_groups = np.repeat(ordinals, sizes)
                self._parts.append(_table(name, bounds, arrow_type, row_groups=groups, files=of_groups))

    def finish(self) -> pa.Table:
        """Return the table, in its order."""
        if not self._parts:
            return BOUNDS_SCHEMA.empty_table()
        table = pa.concat_tables(self._parts)
        self._parts = []
        return table.sort_by(BOUNDS_ORDER).combine_chunks()


def _counting(sizes: Int64s) -> Int32s:
    """Return 0, 1, ... up to each size, one run after the other."""
    starts = np.cumsum(sizes) - sizes
    return (np.arange(int(sizes.sum())) - np.repeat(starts, sizes)).astype(np.int32)


def _table(name: str, bounds: Bounds, kind: pa.DataType, *, row_groups: Int32s, files: Int32s) -> pa.Table:
    arrays = [
        pa.repeat(one(name.encode(), pa.string()), len(bounds)),
        from_numpy(row_groups),
        from_numpy(files),
        *StoredBounds.of(bounds, kind).arrays(),
    ]
    return pa.Table.from_arrays(arrays, schema=BOUNDS_SCHEMA)


def metadata_bytes(handle: FileHandle) -> bytes:
    """Return the last bytes of a file from which its handle can be made again: the footer, and the page
    indexes and embedded indexes before it as far as they are in memory."""
    packed = handle.pack()
    footer = packed.footer
    end = b"".join((footer, struct.pack("<I", len(footer)), MAGIC))
    page_indexes = packed.footer_start - handle.page_index_bytes
    for first in (handle.size - handle.suggested_tail_bytes(), page_indexes):
        if handle.tail_start <= first and packed.footer_start - first <= MOST_METADATA:
            return bytes(handle.tail[first - handle.tail_start :]) + end
    return end


def schema_fingerprint(schema: pa.Schema) -> str:
    """Return a text that is equal for files of equal columns and types."""
    import xxhash

    return xxhash.xxh3_64_hexdigest(schema.remove_metadata().serialize().to_pybytes())
