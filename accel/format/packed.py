"""A file's metadata as two buffers: what thousands of cached files are held as.

Python's garbage collector goes through every object of every file that is cached, time and again, and through all that
these point to. An array and the footer's bytes it passes over; what is read of a file is taken out of them again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from accel.format.model import ChunkTable, FileMetadata, ParquetSchema, SortingColumn

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = ["Kin", "PackedMetadata", "chunks_of_leaf", "pack_chunks", "rows_of", "unpack"]

_FIELDS: Final = tuple(ChunkTable.__slots__)
_SLOT: Final = {name: slot for slot, name in enumerate(_FIELDS)}
_ROWS, _BYTES, _CHUNKS = 0, 1, 2
"""Of a row group's numbers: its rows, its bytes, where those of its chunks begin."""
_TYPES: Final = tuple(
    {
        "codec": np.int8,
        "encodings": np.uint32,
        "dictionary_pages": np.int32,
        "plain_pages": np.int32,
        "min_exact": np.int8,
        "max_exact": np.int8,
        "external": np.bool_,
        "encrypted": np.bool_,
    }.get(name)
    for name in _FIELDS
)
"""Those of a ChunkTable's columns that are not int64."""


@dataclass(frozen=True, slots=True, eq=False)
class Kin:
    """What the footers of files of one writer and one schema share: their metadata but for the row groups."""

    version: int
    created_by: str
    schema: ParquetSchema
    key_value: Mapping[str, bytes]
    column_orders: npt.NDArray[np.int8]

    @classmethod
    def of(cls, metadata: FileMetadata) -> Kin:
        """Of one footer."""
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

    kin: Kin
    numbers: Int64s
    """Of shape (row groups, 2 + 33 x leaves): rows, bytes, and the columns of a ChunkTable one after the other."""
    sorting: tuple[tuple[SortingColumn, ...], ...] | None
    """Of each row group; None where none says that it is sorted."""
    footer: bytes
    file_size: int
    footer_start: int
    num_rows: int

    @classmethod
    def of(cls, metadata: FileMetadata, kin: Kin | None = None) -> PackedMetadata:
        """Of what was parsed; `kin`, where another has just that in common with it."""
        return cls(
            Kin.of(metadata) if kin is None else kin,
            pack_chunks(metadata.chunks, metadata.group_rows, sizes=metadata.group_bytes),
            metadata.sorting if any(metadata.sorting) else None,
            metadata.footer,
            metadata.file_size,
            metadata.footer_start,
            metadata.num_rows,
        )

    @property
    def schema(self) -> ParquetSchema:
        return self.kin.schema

    @property
    def num_row_groups(self) -> int:
        return len(self.numbers)

    @property
    def group_rows(self) -> Int64s:
        """Rows of each row group."""
        return rows_of(self.numbers)

    def column(self, name: str) -> Int64s:
        """A column of the ChunkTable, of shape (row groups, leaves), as int64."""
        leaves = len(self.kin.schema.leaves)
        start = _CHUNKS + _SLOT[name] * leaves
        return self.numbers[:, start : start + leaves]


def rows_of(numbers: Int64s) -> Int64s:
    """Of packed row groups."""
    return numbers[:, _ROWS]


def pack_chunks(chunks: ChunkTable, rows: Int64s, *, sizes: Int64s) -> Int64s:
    """The numbers of some row groups: of each its rows, its bytes, and those of its chunks."""
    groups, leaves = chunks.start.shape
    numbers = np.empty((groups, _CHUNKS + len(_FIELDS) * leaves), np.int64)
    numbers[:, _ROWS] = rows
    numbers[:, _BYTES] = sizes
    for slot, name in enumerate(_FIELDS):
        start = _CHUNKS + slot * leaves
        numbers[:, start : start + leaves] = getattr(chunks, name)
    return numbers


def unpack(packed: PackedMetadata) -> FileMetadata:
    """What was packed."""
    kin, numbers = packed.kin, packed.numbers
    leaves = len(kin.schema.leaves)
    rows = numbers[:, _ROWS].copy()
    table = numbers[:, _CHUNKS:].reshape(len(rows), len(_FIELDS), leaves)
    table = np.ascontiguousarray(table.transpose(1, 0, 2))
    columns: list[npt.NDArray[Any]] = [
        column if kind is None else column.astype(kind) for column, kind in zip(table, _TYPES, strict=True)
    ]
    return FileMetadata(
        version=kin.version,
        num_rows=packed.num_rows,
        created_by=kin.created_by,
        schema=kin.schema,
        key_value=kin.key_value,
        column_orders=kin.column_orders,
        group_rows=rows,
        group_first_row=np.cumsum(rows) - rows,
        group_bytes=numbers[:, _BYTES].copy(),
        sorting=((),) * len(rows) if packed.sorting is None else packed.sorting,
        chunks=ChunkTable(*columns),
        footer=packed.footer,
        file_size=packed.file_size,
        footer_start=packed.footer_start,
    )


def chunks_of_leaf(files: Sequence[PackedMetadata], leaf: int) -> dict[str, Int64s]:
    """The columns of the ChunkTables of files of one schema, of one leaf, one file's row groups after the other's."""
    step = len(files[0].kin.schema.leaves)
    parts = [file.numbers[:, _CHUNKS + leaf :: step] for file in files]
    joined = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return dict(zip(_FIELDS, joined.T, strict=True))
