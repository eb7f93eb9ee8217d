"""A file's metadata as columns: numpy arrays over row groups and chunks, never an object a page.

Sources: parquet-format `parquet.thrift` (FileMetaData, RowGroup, ColumnChunk, ColumnMetaData),
`PageIndex.md`.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s

__all__ = [
    "ARROW_SCHEMA_KEY",
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


_CHUNK_BYTES: Final = 217
"""Of one chunk in all columns of a ChunkTable."""
INT96_UNIT: Final = "ns"
"""What INT96 timestamps count, and what they are read to by default."""


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
"""Under this key of a footer writers store the Arrow schema: base64 of an IPC schema message."""


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
        """What Arrow calls it."""
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
    """Absent, or a union member that this reader does not know: bounds are unusable."""
    TYPE_DEFINED = 1
    IEEE754_TOTAL = 2


@dataclass(frozen=True, slots=True)
class SchemaElement:
    """One node of the schema as the footer has it; `raw` is its Thrift encoding, kept verbatim."""

    name: str
    physical: Physical | None
    """None for a group."""
    type_length: int
    """Bytes of FIXED_LEN_BYTE_ARRAY, else 0."""
    repetition: Repetition
    num_children: int
    converted_type: int | None
    """As `annotations.ConvertedType`, or a number that is not known."""
    logical_type: int | None
    """The field id of the LogicalType union's member, known (`annotations.LogicalType`) or not."""
    logical_params: Mapping[str, int]
    """Of that member: `scale`, `precision`, `utc` (0/1), `unit` (1 ms, 2 us, 3 ns), `bits`, `signed`."""
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
"""In place of the offset of an index that the footer places outside the file."""


@dataclass(frozen=True, slots=True, eq=False)
class ChunkTable:
    """All column chunks, each array of shape (row groups, leaves).

    -1 stands for absent, and an index whose offset is MISPLACED is as good as absent. Statistics are kept as positions in `FileMetadata.footer` (start and
    length of each raw bound), decoded on demand by `format.bounds`.
    """

    codec: npt.NDArray[np.int8]
    num_values: Int64s
    compressed: Int64s
    uncompressed: Int64s
    data_page_offset: Int64s
    dictionary_page_offset: Int64s
    """-1 where absent, zero, or not before the data page offset; see `format.footer`."""
    start: Int64s
    """Where the chunk's bytes start: the dictionary page where there is one, else the first data page."""
    end: Int64s
    """The exclusive end; from `compressed`, corrected for writers that left out the dictionary header
    (PARQUET-816), clipped to the footer's start."""
    encodings: npt.NDArray[np.uint32]
    """Bit e is set where encoding e is listed."""
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
    distinct_count: Int64s
    unencoded: Int64s
    """Bytes of the texts themselves, each as often as it occurs (SizeStatistics); a hint, never checked."""
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
    """`file_path` is set: the data lives in another file."""
    encrypted: Bools
    """`crypto_metadata` is set."""

    @property
    def nbytes(self) -> int:
        return _CHUNK_BYTES * self.start.size


@dataclass(frozen=True, slots=True, eq=False)
class FileMetadata:
    """One parsed footer. Immutable; shared between scans through the cache."""

    version: int
    num_rows: int
    created_by: str
    schema: ParquetSchema
    key_value: Mapping[str, bytes]
    """Values as bytes: they need not be text."""
    column_orders: npt.NDArray[np.int8]
    """Of each leaf, as `ColumnOrder`."""
    group_rows: Int64s
    """Rows of each row group, in the footer's order."""
    group_first_row: Int64s
    """The row of the file that each row group starts with."""
    group_bytes: Int64s
    sorting: tuple[tuple[SortingColumn, ...], ...]
    chunks: ChunkTable
    footer: bytes
    """The Thrift bytes, kept because bounds point into them."""
    file_size: int
    footer_start: int
    """Offset in the file of the Thrift bytes."""

    @property
    def num_row_groups(self) -> int:
        return len(self.group_rows)

    def misplaced_indexes(self, leaves: Collection[int]) -> Iterator[tuple[str, int, int]]:
        """What each index of these leaves is that the footer places outside the file, its row group and its leaf."""
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
        """What holding this costs, for the cache's limit."""
        fixed = 4096 + len(self.footer) + self.chunks.nbytes
        return fixed + 600 * len(self.schema.elements) + 24 * self.num_row_groups


@dataclass(frozen=True, slots=True, eq=False)
class OffsetIndex:
    """Where the data pages of one chunk are, arrays over its pages."""

    offset: Int64s
    """Of the page header, in the file."""
    size: Int64s
    """Compressed size, page header included."""
    first_row: Int64s
    """Within the row group; strictly increasing, first is 0."""

    @property
    def num_pages(self) -> int:
        return len(self.offset)

    @property
    def nbytes(self) -> int:
        return int(self.offset.nbytes + self.size.nbytes + self.first_row.nbytes) + 128


@dataclass(frozen=True, slots=True, eq=False)
class ColumnIndex:
    """The bounds of the data pages of one chunk, arrays over its pages; raw bounds in `blob`."""

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


@dataclass(frozen=True, slots=True, eq=False)
class PageTable:
    """What the page headers of a piece of a chunk say, arrays over all pages met (any type)."""

    type: npt.NDArray[np.int8]
    """As `PageType`."""
    start: Int64s
    """Of the header, relative to the bytes that were walked."""
    body: Int64s
    """Of the body, likewise."""
    end: Int64s
    """After the body."""
    uncompressed: Int64s
    """Body bytes after decompression (as the header has it)."""
    num_values: Int64s
    """Values of a data or dictionary page, nulls included."""
    num_rows: Int64s
    """Rows of a v2 data page; -1 for v1."""
    num_nulls: Int64s
    """Of a v2 data page; -1 for v1."""
    encoding: npt.NDArray[np.int8]
    level_bytes: Int64s
    """Of a v2 data page: repetition plus definition levels, uncompressed; else 0."""
    definition_bytes: Int64s
    """Of those, the definition levels."""
    is_compressed: npt.NDArray[np.bool_]
    """False only for a v2 page that says so; else it is as the chunk's codec says."""
    level_encoding: npt.NDArray[np.int8]
    """Of a v1 page's definition levels; -1 in all others."""
    crc: Int64s
    """CRC-32 of the stored body, unsigned; -1 without one."""

    @property
    def num_pages(self) -> int:
        return len(self.start)
