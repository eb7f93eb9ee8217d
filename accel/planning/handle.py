"""An opened file: its identity, its parsed footer, and the indexes met so far."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

import pyarrow as pa

from accel.errors import IndexFormatError
from accel.format.domain import Bounds
from accel.format.footer import IDX1_KEY
from accel.format.model import ColumnIndex, FileMetadata, Int64s, OffsetIndex
from accel.planning.chunk_pages import ChunkFacts
from accel.planning.decoded_size import decoded_bytes
from accel.planning.file import ObjectId
from accel.ranges import ByteRange
from accel.records import dataclass

if TYPE_CHECKING:
    from accel.format.bloom import BloomState
    from accel.format.embedded import Toc
    from accel.indexes.kind import ParsedIndex
    from accel.planning.shelf import Shelf

__all__ = ["FileHandle"]

# The first read is not grown for more than this of embedded indexes.
_MOST_EMBEDDED = 256 << 10


@dataclass(slots=True, eq=False)
class FileHandle:
    """What is known of one version of one file. Cached; grows as scans meet its page indexes.

    It is touched on the I/O loop only. Everything in it is derived from the bytes of `id`, so it is
    never updated for another version: a changed object gets a new handle.
    """

    id: ObjectId
    metadata: FileMetadata
    arrow_schema: pa.Schema
    """Of all columns, as pyarrow's full read would have it."""
    tail: bytes
    """What lies from `tail_start` up to the footer that the first read brought along. `bytes`: the garbage collector follows none."""
    tail_start: int
    offset_indexes: dict[tuple[int, int], OffsetIndex | None] = field(default_factory=dict)
    """By (row group, leaf); None where it is absent, or did not verify."""
    column_indexes: dict[tuple[int, int], ColumnIndex | None] = field(default_factory=dict)
    chunk_bounds: dict[int, Bounds] = field(default_factory=dict)
    """By leaf, units are the row groups. Those on the shelf are not among them, until they are asked for."""
    shelf: Shelf | None = None
    """Where its chunk bounds are kept with those of others, from this row group on."""
    shelf_at: int = 0
    page_bounds: dict[tuple[int, int], Bounds] = field(default_factory=dict)
    joined_bounds: dict[tuple[str, ...], tuple[list[Bounds], Bounds]] = field(default_factory=dict)
    """By column path: bounds of the pages of several row groups, as last asked together, and these joined."""
    blooms: dict[tuple[int, int], BloomState] = field(default_factory=dict)
    """By (row group, leaf): the blocks of bloom filters met so far."""
    toc: Toc | None = None
    """Of the indexes embedded in the file."""
    bad_toc: IndexFormatError | None = None
    """Why the table of embedded indexes is not used."""
    indexes: dict[int, ParsedIndex | None] = field(default_factory=dict)
    """Those met so far, by their place in the table; None where one did not verify."""
    checked_at: float = 0.0
    """When the store last said that this is the current version (monotonic clock)."""
    dictionaries: dict[tuple[int, int], pa.Array] = field(default_factory=dict)
    """By (row group, leaf): the values of small dictionaries that planning has asked."""
    readable: dict[tuple[int, int], bool] = field(default_factory=dict)
    """By (row group, leaf): the chunks whose footer entries were found good enough to be read by."""
    decoded: dict[tuple[int, int], int] = field(default_factory=dict)
    """By (row group, leaf), for those that were asked for: see `decoded_bytes`."""
    facts: dict[tuple[int, int], ChunkFacts] = field(default_factory=dict)
    """By (row group, leaf), for those that were planned: see `chunk_facts`."""
    first_rows: dict[int, Int64s] = field(default_factory=dict)
    """By row group: where the pages of the first offset index met begin. Others that are equal share it."""
    schema_nbytes: int = 0
    index_reads: int = 0
    """How often page indexes of it were asked for."""
    reading_ahead: int = 0
    """By which of these all of them are on their way: see `index_region`; 0 where none is."""
    distrusted: bool = False
    """Its page index contradicts its pages: chunks are read whole."""

    def decoded_bytes(self, row_group: int, leaf: int) -> int:
        """How large a chunk is once decoded, as far as the footer tells."""
        found = self.decoded.get((row_group, leaf))
        if found is None:
            found = self.decoded[row_group, leaf] = decoded_bytes(self.metadata, row_group, leaf)
        return found

    def chunk_facts(self, row_group: int, leaf: int) -> ChunkFacts:
        """What reading a chunk takes, whatever rows of it are wanted."""
        at = (row_group, leaf)
        found, index = self.facts.get(at), self.offset_indexes.get(at)
        # An offset index may have come since, or have been given up.
        if found is None or found.index is not index:
            decoded = self.decoded_bytes(row_group, leaf)
            found = ChunkFacts.of(self.metadata.chunks, index, row_group, leaf, decoded)
            self.facts[at] = found
        return found

    def has_offset_index(self, row_group: int, leaf: int) -> bool:
        """Whether the file has one for a chunk, that has not been met."""
        untried = (row_group, leaf) not in self.offset_indexes and not self.distrusted
        return untried and bool(self.metadata.chunks.offset_index_offset[row_group, leaf] > 0)

    def in_tail(self, wanted: ByteRange) -> memoryview | None:
        """The bytes of a range that the first read already brought, else None."""
        start = wanted.start - self.tail_start
        end = wanted.end - self.tail_start
        if start < 0 or end > len(self.tail):
            return None
        return memoryview(self.tail)[start:end]

    def index_region(self, most_bytes: int) -> ByteRange | None:
        """What lies between the first page index and the tail, where that is not more; None where nothing does."""
        start = self._page_indexes_start()
        return ByteRange(start, self.tail_start) if 0 < self.tail_start - start <= most_bytes else None

    def grow_tail(self, data: memoryview) -> None:
        """Keep the bytes that lie just before the tail with it."""
        self.tail = b"".join((data, self.tail))
        self.tail_start -= len(data)

    def _page_indexes_start(self) -> int:
        """Where the first page index is, or the footer where there is none."""
        chunks = self.metadata.chunks
        first = self.metadata.footer_start
        for offset in (chunks.offset_index_offset, chunks.column_index_offset):
            placed = offset[offset > 0]
            if placed.size:
                first = min(first, int(placed.min()))
        return first

    def suggested_tail_bytes(self) -> int:
        """The suffix length that would have brought footer and page indexes at once."""
        first = self._page_indexes_start()
        # Of what lies in front of the page indexes, as much as is small: large indexes are read in parts.
        entries = self.toc.entries if self.toc is not None else ()
        offsets = [entry.offset for entry in entries]
        offsets += [entry.head_again[0] for entry in entries if entry.head_again is not None]
        listed = self._idx1_start()
        offsets += [] if listed is None else [listed]
        near = [offset for offset in offsets if first - offset <= _MOST_EMBEDDED]
        first = min([first, *near])
        return self.id.size - first

    def _idx1_start(self) -> int | None:
        """Where the seeds' index starts, if the file has one: a scan may name its column."""
        if IDX1_KEY not in self.metadata.key_value:
            return None
        from accel.format.idx1 import idx1_range

        try:
            found = idx1_range(self.metadata)
        except IndexFormatError:
            return None
        return None if found is None else found[0]

    @property
    def pieces(self) -> int:
        """How many indexes and dictionaries it holds: a change says that `nbytes` has changed, for less."""
        pages = len(self.offset_indexes) + len(self.column_indexes)
        return pages + len(self.indexes) + len(self.blooms) + len(self.dictionaries)

    @property
    def nbytes(self) -> int:
        """What holding this costs, for the cache's limit."""
        total = self.metadata.nbytes + len(self.tail) + self.schema_nbytes + 1024
        if self.shelf is not None:
            total += 64 * self.metadata.num_row_groups * len(self.shelf.bounds)
        if not (self.pieces or self.chunk_bounds or self.readable or self.decoded):
            return total  # as after opening
        total += sum(i.nbytes for i in self.offset_indexes.values() if i is not None)
        total += sum(i.nbytes for i in self.column_indexes.values() if i is not None)
        joined = [bounds for _, bounds in self.joined_bounds.values()]
        for bounds in (*self.chunk_bounds.values(), *self.page_bounds.values(), *joined):
            total += 64 * len(bounds) + 256
        total += sum(int(values.nbytes) + 200 for values in self.dictionaries.values())
        total += 120 * (len(self.readable) + len(self.decoded)) + 400 * len(self.facts)
        total += sum(state.nbytes for state in self.blooms.values())
        for index in self.indexes.values():
            if index is not None:
                total += index.nbytes
        return total
