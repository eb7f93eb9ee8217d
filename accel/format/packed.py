"""A file's metadata as two buffers, the form in which thousands of files are cached.

Python's garbage collector visits every object of every cached file again and again. It does not visit the
contents of an array or of bytes, so the cache holds those, and `unpack` makes a `FileMetadata` of them when
the file is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from accel.format.model import CHUNK_TYPES, ChunkTable, FileMetadata, ParquetSchema, SortingColumn

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = [
    "PackedMetadata",
    "SharedMetadata",
    "chunks_of_leaf",
    "pack_chunks",
    "unpack",
]

_SLOT: Final = {name: slot for slot, name in enumerate(CHUNK_TYPES)}
_ROWS, _BYTES, _CHUNKS = 0, 1, 2
"""The places in a row group's numbers: its rows, its bytes, the first number of its chunks."""


@dataclass(frozen=True, slots=True, eq=False)
class SharedMetadata:
    """The metadata that the footers of one writer and one schema share: all but the row groups."""

    version: int
    created_by: str
    schema: ParquetSchema
    key_value: Mapping[str, bytes]
    column_orders: npt.NDArray[np.int8]

    @classmethod
    def of(cls, metadata: FileMetadata) -> SharedMetadata:
        """Take it from a footer."""
        return cls(
            metadata.version,
            metadata.created_by,
            metadata.schema,
            metadata.key_value,
            metadata.column_orders,
        )


@dataclass(frozen=True, slots=True, eq=False)
class PackedMetadata:
    """A `FileMetadata` in few objects."""

    shared: SharedMetadata
    numbers: Int64s
    """Shape (row groups, 2 + 32 x leaves): rows, bytes, then the columns of a ChunkTable one after the
    other."""
    sorting: tuple[tuple[SortingColumn, ...], ...] | None
    """The sorting columns of each row group; None where no row group is sorted."""
    footer: bytes
    file_size: int
    footer_start: int
    num_rows: int

    @classmethod
    def of(cls, metadata: FileMetadata, shared: SharedMetadata | None = None) -> PackedMetadata:
        """Pack parsed metadata; `shared` is the part of another file that is equal to this file's."""
        return cls(
            SharedMetadata.of(metadata) if shared is None else shared,
            pack_chunks(metadata.chunks, metadata.group_rows, sizes=metadata.group_bytes),
            metadata.sorting if any(metadata.sorting) else None,
            metadata.footer,
            metadata.file_size,
            metadata.footer_start,
            metadata.num_rows,
        )

    @property
    def schema(self) -> ParquetSchema:
        return self.shared.schema

    @property
    def num_row_groups(self) -> int:
        return len(self.numbers)

    @property
    def group_rows(self) -> Int64s:
        """Rows of each row group."""
        return rows_of(self.numbers)

    def column(self, name: str) -> Int64s:
        """Return a column of the ChunkTable as int64, of shape (row groups, leaves)."""
        leaves = len(self.shared.schema.leaves)
        start = _CHUNKS + _SLOT[name] * leaves
        return self.numbers[:, start : start + leaves]


def rows_of(numbers: Int64s) -> Int64s:
    """Return the rows of packed row groups."""
    return numbers[:, _ROWS]


def pack_chunks(chunks: ChunkTable, rows: Int64s, *, sizes: Int64s) -> Int64s:
    """Pack row groups: for each its rows, its bytes, and the numbers of its chunks."""
    groups, leaves = chunks.start.shape
    numbers = np.empty((groups, _CHUNKS + len(CHUNK_TYPES) * leaves), np.int64)
    numbers[:, _ROWS] = rows
    numbers[:, _BYTES] = sizes
    for slot, name in enumerate(CHUNK_TYPES):
        start = _CHUNKS + slot * leaves
        numbers[:, start : start + leaves] = getattr(chunks, name)
    return numbers


def unpack(packed: PackedMetadata) -> FileMetadata:
    """Restore the metadata that was packed."""
    shared, numbers = packed.shared, packed.numbers
    leaves = len(shared.schema.leaves)
    rows = numbers[:, _ROWS].copy()
    table = numbers[:, _CHUNKS:].reshape(len(rows), len(CHUNK_TYPES), leaves)
    table = np.ascontiguousarray(table.transpose(1, 0, 2))
    columns: list[npt.NDArray[Any]] = [
        column.astype(kind, copy=False) for column, kind in zip(table, CHUNK_TYPES.values(), strict=True)
    ]
    return FileMetadata(
        version=shared.version,
        num_rows=packed.num_rows,
        created_by=shared.created_by,
        schema=shared.schema,
        key_value=shared.key_value,
        column_orders=shared.column_orders,
        group_rows=rows,
        group_bytes=numbers[:, _BYTES].copy(),
        sorting=((),) * len(rows) if packed.sorting is None else packed.sorting,
        chunks=ChunkTable(*columns),
        footer=packed.footer,
        file_size=packed.file_size,
        footer_start=packed.footer_start,
    )


def chunks_of_leaf(files: Sequence[PackedMetadata], leaf: int) -> dict[str, Int64s]:
    """Return the ChunkTable columns of one leaf, the row groups of all files (of one schema) concatenated."""
    step = len(files[0].shared.schema.leaves)
    parts = [file.numbers[:, _CHUNKS + leaf :: step] for file in files]
    joined = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return dict(zip(CHUNK_TYPES, joined.T, strict=True))
