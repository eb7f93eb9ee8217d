"""A file's metadata as columns: numpy arrays over row groups, chunks and pages instead of an object for each.

Sources: parquet-format `parquet.thrift` (FileMetaData, RowGroup, ColumnChunk, ColumnMetaData),
`PageIndex.md`.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s

__all__ = [
    "ARROW_SCHEMA_KEY",
    "CHUNK_TYPES",
    "INT96_UNIT",
    "MISPLACED",
    "ChunkTable",
    "Codec",
    "ColumnIndex",
    "ColumnOrder",
    "Encoding",
    "FileMetadata",
    "Leaf",
    "OffsetIndex",
    "PageTable",
    "PageType",
    "ParquetSchema",
    "Physical",
    "Repetition",
    "SchemaElement",
    "SortingColumn",
]

Int32s = npt.NDArray[np.int32]


INT96_UNIT: Final = "ns"
"""The unit of INT96 timestamps, and the one that they decode to by default."""


class Physical(enum.IntEnum):
    BOOLEAN = 0
    INT32 = 1
    INT64 = 2
    INT96 = 3
    FLOAT = 4
    DOUBLE = 5
    BYTE_ARRAY = 6
    FIXED_LEN_BYTE_ARRAY = 7


class Repetition(enum.IntEnum):
    REQUIRED = 0
    OPTIONAL = 1
    REPEATED = 2


ARROW_SCHEMA_KEY: Final = "ARROW:schema"
"""The footer key of the Arrow schema, a base64 IPC schema message."""


class Codec(enum.IntEnum):
    UNCOMPRESSED = 0
    SNAPPY = 1
    GZIP = 2
    LZO = 3
    BROTLI = 4
    LZ4 = 5
    ZSTD = 6
    LZ4_RAW = 7

    @property
    def arrow_name(self) -> str:
        """The name of the codec in Arrow."""
        return self.name.lower()


class Encoding(enum.IntEnum):
    PLAIN = 0
    PLAIN_DICTIONARY = 2
    RLE = 3
    BIT_PACKED = 4
    DELTA_BINARY_PACKED = 5
    DELTA_LENGTH_BYTE_ARRAY = 6
    DELTA_BYTE_ARRAY = 7
    RLE_DICTIONARY = 8
    BYTE_STREAM_SPLIT = 9


class PageType(enum.IntEnum):
    DATA_PAGE = 0
    INDEX_PAGE = 1
    DICTIONARY_PAGE = 2
    DATA_PAGE_V2 = 3


class ColumnOrder(enum.IntEnum):
    UNDEFINED = 0
    """Absent, or an unknown union member: bounds are unusable."""
    TYPE_DEFINED = 1
    IEEE754_TOTAL = 2


@dataclass(frozen=True, slots=True)
class SchemaElement:
    """One node of the schema in the footer; `raw` is its Thrift encoding."""

    name: str
    physical: Physical | None
    """None for a group."""
    type_length: int
    """Bytes of FIXED_LEN_BYTE_ARRAY, else 0."""
    repetition: Repetition
    num_children: int
    converted_type: int | None
    """A `schema.ConvertedType`, or an unknown number."""
    logical_type: int | None
    """The field id of the LogicalType union's member, which may be unknown (`schema.LogicalType`)."""
    logical_params: Mapping[str, int]
    """Its parameters: `scale`, `precision`, `utc` (0/1), `unit` (1 ms, 2 us, 3 ns), `bits`, `signed`."""
    scale: int
    precision: int
    field_id: int | None
    raw: bytes


@dataclass(frozen=True, slots=True)
class Leaf:
    """One primitive column."""

    ordinal: int
    path: tuple[str, ...]
    """Names from the top-level field down, the groups of lists and maps included."""
    element: int
    """Index in `ParquetSchema.elements`."""
    ancestors: tuple[int, ...]
    """Element indexes from the top-level field (not the root) down to, not including, the leaf."""
    max_definition: int
    max_repetition: int


@dataclass(frozen=True, slots=True, weakref_slot=True)
class ParquetSchema:
    """The schema tree, flattened depth first as in the footer; element 0 is the root."""

    elements: tuple[SchemaElement, ...]
    leaves: tuple[Leaf, ...]
    fields: tuple[int, ...]
    """Element indexes of the top-level fields, in order."""
    subtree_ends: tuple[int, ...]
    """For each element, the index after its last descendant."""
    field_leaves: tuple[tuple[int, int], ...]
    """For each top-level field, the half-open range of its leaves' ordinals."""

    @property
    def names(self) -> tuple[str, ...]:
        """The top-level fields' names."""
        return tuple(self.elements[i].name for i in self.fields)


@dataclass(frozen=True, slots=True)
class SortingColumn:
    column: int
    descending: bool
    nulls_first: bool


MISPLACED: Final = -2
"""Stands for the offset of an index that the footer places outside the file."""


@dataclass(frozen=True, slots=True, eq=False)
class ChunkTable:
    """All column chunks, each array of shape (row groups, leaves).

    -1 means absent, and an index whose offset is MISPLACED counts as absent. Raw bounds are stored as
    positions (start and length) in `FileMetadata.footer`; `format.bounds` decodes them on demand.
    """

    codec: npt.NDArray[np.int8]
    num_values: Int64s
    compressed: Int64s
    uncompressed: Int64s
    data_page_offset: Int64s
    dictionary_page_offset: Int64s
    """-1 where absent, zero, or not before the data page offset; see `format.footer`."""
    start: Int64s
    """The chunk's first byte: that of the dictionary page where there is one, else of the first data page."""
    end: Int64s
    """The exclusive end, from `compressed`; corrected for writers that left out the dictionary header
    (PARQUET-816)."""
    encodings: npt.NDArray[np.uint32]
    """Bit e is set where the chunk lists encoding e."""
    dictionary_pages: Int32s
    """Data pages that are dictionary-encoded, from `encoding_stats`; -1 where unknown."""
    plain_pages: Int32s
    """Data pages that are not, from `encoding_stats`; -1 where unknown."""
    column_index_offset: Int64s
    column_index_length: Int64s
    offset_index_offset: Int64s
    offset_index_length: Int64s
    bloom_offset: Int64s
    bloom_length: Int64s
    null_count: Int64s
    unencoded: Int64s
    """Unencoded bytes of the values of BYTE_ARRAY columns (SizeStatistics); a hint, never checked."""
    nan_count: Int64s
    min_start: Int64s
    """`min_value` (field 6); -1 where absent."""
    min_length: Int64s
    max_start: Int64s
    max_length: Int64s
    min_exact: npt.NDArray[np.int8]
    """`is_min_value_exact`: 1, 0, or -1 where absent."""
    max_exact: npt.NDArray[np.int8]
    old_min_start: Int64s
    """The deprecated `min` (field 2)."""
    old_min_length: Int64s
    old_max_start: Int64s
    old_max_length: Int64s
    external: Bools
    """`file_path` is set: the data is in another file."""
    encrypted: Bools
    """`crypto_metadata` is set."""

    @property
    def nbytes(self) -> int:
        return sum(np.dtype(kind).itemsize for kind in CHUNK_TYPES.values()) * self.start.size


CHUNK_TYPES: Final[Mapping[str, type[np.generic]]] = {
    **dict.fromkeys(ChunkTable.__slots__, np.int64),
    **dict.fromkeys(("codec", "min_exact", "max_exact"), np.int8),
    **dict.fromkeys(("dictionary_pages", "plain_pages"), np.int32),
    "encodings": np.uint32,
    **dict.fromkeys(("external", "encrypted"), np.bool_),
}
"""The columns of a ChunkTable in order, and their numpy types."""


@dataclass(frozen=True, slots=True, eq=False)
class FileMetadata:
    """One parsed footer. Immutable; shared between scans through the cache."""

    version: int
    num_rows: int
    created_by: str
    schema: ParquetSchema
    key_value: Mapping[str, bytes]
    """The values are bytes, since they need not be UTF-8."""
    column_orders: npt.NDArray[np.int8]
    """The `ColumnOrder` of each leaf."""
    group_rows: Int64s
    """Rows of each row group, in the footer's order."""
    group_bytes: Int64s
    sorting: tuple[tuple[SortingColumn, ...], ...]
    chunks: ChunkTable
    footer: bytes
    """The Thrift bytes, into which the positions of bounds point."""
    file_size: int
    footer_start: int
    """File offset of the Thrift bytes."""

    @property
    def num_row_groups(self) -> int:
        return len(self.group_rows)

    def misplaced_indexes(self, leaves: Collection[int]) -> Iterator[tuple[str, int, int]]:
        """Yield kind, row group and leaf of each index of these leaves that the footer places outside the
        file."""
        chunks = self.chunks
        for words, offset in (
            ("column index", chunks.column_index_offset),
            ("offset index", chunks.offset_index_offset),
            ("bloom filter", chunks.bloom_offset),
        ):
            if offset.min(initial=-1) == MISPLACED:
                for group, leaf in np.argwhere(offset == MISPLACED).tolist():
                    if leaf in leaves:
                        yield words, group, leaf

    @property
    def nbytes(self) -> int:
        """Approximate memory, which counts against the cache's limit."""
        fixed = 4096 + len(self.footer) + self.chunks.nbytes
        return fixed + 600 * len(self.schema.elements) + 24 * self.num_row_groups


@dataclass(frozen=True, slots=True, eq=False)
class OffsetIndex:
    """The locations of a chunk's data pages, as arrays over the pages."""

    offset: Int64s
    """File offset of the page header."""
    size: Int64s
    """Compressed size, including the page header."""
    first_row: Int64s
    """First row within the row group: 0 for the first page, then strictly increasing."""

    @property
    def num_pages(self) -> int:
        return len(self.offset)

    @property
    def nbytes(self) -> int:
        return int(self.offset.nbytes + self.size.nbytes + self.first_row.nbytes) + 128


@dataclass(frozen=True, slots=True, eq=False)
class ColumnIndex:
    """The bounds of a chunk's data pages, as arrays over the pages; the raw bounds are in `blob`."""

    null_pages: Bools
    boundary_order: int
    """0 unordered, 1 ascending, 2 descending."""
    null_count: Int64s
    """-1 where absent."""
    nan_count: Int64s
    """-1 where absent."""
    blob: bytes
    """The Thrift bytes that the positions below point into."""
    min_start: Int64s
    min_length: Int64s
    max_start: Int64s
    max_length: Int64s

    @property
    def num_pages(self) -> int:
        return len(self.null_pages)

    @property
    def nbytes(self) -> int:
        return len(self.blob) + 57 * self.num_pages + 256


class PageTable(NamedTuple):
    """The page headers of a part of a chunk, as arrays over the pages of any type."""

    start: Int64s
    """Offset of the header in the bytes that were walked."""
    body: Int64s
    """Offset of the body."""
    end: Int64s
    """Offset behind the body."""
    uncompressed: Int64s
    """Body bytes after decompression, according to the header."""
    crc: Int64s
    """CRC-32 of the stored body, unsigned; -1 without one."""
    num_values: Int64s
    """Values of a data or dictionary page, including nulls."""
    type: Int64s
    """The `PageType`."""
    num_rows: Int64s
    """Rows of a v2 data page; -1 for v1."""
    num_nulls: Int64s
    """Nulls of a v2 data page; -1 for v1."""
    encoding: Int64s
    level_bytes: Int64s
    """Bytes of a v2 page's repetition and definition levels, which are uncompressed; else 0."""
    definition_bytes: Int64s
    """Bytes of the definition levels among them."""
    is_compressed: Int64s
    """0 only for a v2 page marked uncompressed, else 1: the chunk's codec applies."""
    level_encoding: Int64s
    """Encoding of a v1 page's definition levels; -1 for other pages."""

    @property
    def num_pages(self) -> int:
        return len(self.start)
