"""A file while it is read: its metadata laid out, the indexes met so far, and what was worked out of both."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa

from accel.errors import IndexFormatError
from accel.format.domain import Bounds
from accel.format.footer import IDX1_KEY
from accel.format.model import ColumnIndex, FileMetadata, OffsetIndex, SortingColumn
from accel.planning.pages import ChunkFacts, chunk_facts, decoded_bytes
from accel.ranges import ByteRange, ObjectId

if TYPE_CHECKING:
    from accel.arrays import Int64s
    from accel.format.bloom import BloomState
    from accel.format.embedded import Toc
    from accel.format.packed import Kin, PackedMetadata
    from accel.indexes.kind import ParsedIndex
    from accel.planning.pages import LeafReads
    from accel.planning.pruning import Shelf
    from accel.planning.remembered import Remembered
    from accel.planning.selectivity import Spread

__all__ = [
    "FileHandle",
    "FileView",
    "Viewed",
]


@dataclass(slots=True, eq=False)
class FileView:
    """Some of it is made again for nothing but time, and some would have to be fetched again."""

    metadata: FileMetadata
    offset_indexes: dict[tuple[int, int], OffsetIndex | None] = field(default_factory=dict)
    """By (row group, leaf); None where it is absent, or did not verify."""
    column_indexes: dict[tuple[int, int], ColumnIndex | None] = field(default_factory=dict)
    chunk_bounds: dict[int, Bounds] = field(default_factory=dict)
    """By leaf, units are the row groups. Those on the shelf are not among them, until they are asked for."""
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
    dictionaries: dict[tuple[int, int], pa.Array] = field(default_factory=dict)
    """By (row group, leaf): the values of small dictionaries that planning has asked."""
    readable: dict[tuple[int, int], bool] = field(default_factory=dict)
    """By (row group, leaf): the chunks whose footer entries were found good enough to be read by."""
    decoded: dict[tuple[int, int], int] = field(default_factory=dict)
    """By (row group, leaf), for those that were asked for: see `decoded_bytes`."""
    facts: dict[tuple[int, int], ChunkFacts] = field(default_factory=dict)
    """By (row group, leaf), for those that were planned: see `chunk_facts`."""
    all_pages: dict[tuple[int, int, bool, bool], LeafReads] = field(default_factory=dict)
    """By row group, leaf, and whether filter and output are what it is for: the reads of a chunk of which all rows were
    wanted, where an offset index cuts it into pages."""
    spreads: dict[tuple[int, int], Spread] = field(default_factory=dict)
    """By (row group, leaf), for those whose predicate was guessed at: see `spread_of`."""
    first_rows: dict[int, Int64s] = field(default_factory=dict)
    """By row group: where the pages of the first offset index met begin. Others that are equal share it."""
    index_reads: int = 0
    """How often page indexes of it were asked for."""
    reading_ahead: int = 0
    """By which of these all of them are on their way: see `index_region`; 0 where none is."""
    passed_over: IndexFormatError | None = None
    """Why the first index that is not used any more is not used; a strict scan refuses the file for it."""
    distrusted: bool = False
    """Its page index contradicts its pages: chunks are read whole."""
    remembered: Remembered | None = None
    """Which rows matched what was asked."""
    weighed: int = 0
    """What `weighty` was when the cache was last told of `nbytes`."""

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
        first_page = -1 if index is None else index.offset.item(0)
        # An offset index may have come since, or have been given up.
        if found is None or found[0] != first_page:
            decoded = self.decoded_bytes(row_group, leaf)
            found = self.facts[at] = chunk_facts(self.metadata.chunks, first_page, row_group, leaf, decoded)
        return found

    @property
    def indexes_held(self) -> int:
        """How many indexes and dictionaries it holds."""
        pages = len(self.offset_indexes) + len(self.column_indexes)
        return pages + len(self.indexes) + len(self.blooms) + len(self.dictionaries)

    @property
    def weighty(self) -> int:
        """How much of what `nbytes` goes through it holds: whoever keeps it weighs it again when that has changed."""
        worked_out = len(self.facts) + len(self.readable) + len(self.decoded) + len(self.spreads)
        bounds = len(self.chunk_bounds) + len(self.page_bounds)
        return self.indexes_held + worked_out + bounds + len(self.all_pages)

    @property
    def grows_within(self) -> bool:
        """Whether some of what it holds is read part by part: then any read of its indexes may add to `nbytes`."""
        return bool(self.blooms or self.indexes)

    @property
    def is_plain(self) -> bool:
        """Whether the footer says all that is in it."""
        passed_over = self.distrusted or self.passed_over is not None
        noted = self.index_reads or passed_over or self.toc is not None or self.bad_toc is not None
        return not (noted or self.indexes_held or self.remembered)

    @property
    def nbytes(self) -> int:
        """What holding this costs beside the footer and the numbers in it."""
        if not (self.indexes_held or self.chunk_bounds or self.readable or self.decoded or self.remembered):
            return 0  # as after opening
        total = 0 if self.remembered is None else self.remembered.nbytes
        total += sum(i.nbytes for i in self.offset_indexes.values() if i is not None)
        total += sum(i.nbytes for i in self.column_indexes.values() if i is not None)
        joined = [bounds for _, bounds in self.joined_bounds.values()]
        for bounds in (*self.chunk_bounds.values(), *self.page_bounds.values(), *joined):
            total += 64 * len(bounds) + 256
        total += sum(int(values.nbytes) + 200 for values in self.dictionaries.values())
        total += 120 * (len(self.readable) + len(self.decoded)) + 320 * len(self.facts)
        total += 280 * len(self.spreads)
        total += sum(600 + 16 * reads.total_pages for reads in self.all_pages.values())
        total += sum(state.nbytes for state in self.blooms.values())
        for index in self.indexes.values():
            if index is not None:
                total += index.nbytes
        return total


class Viewed:
    """What has a view, where that is asked for: each of its attributes as one of its own."""

    __slots__ = ()
    _view: FileView | None

    @property
    def view(self) -> FileView:
        """The view, made if there is none."""
        raise NotImplementedError

    @property
    def metadata(self) -> FileMetadata:
        return (self._view or self.view).metadata

    @property
    def offset_indexes(self) -> dict[tuple[int, int], OffsetIndex | None]:
        return (self._view or self.view).offset_indexes

    @property
    def column_indexes(self) -> dict[tuple[int, int], ColumnIndex | None]:
        return (self._view or self.view).column_indexes

    @property
    def chunk_bounds(self) -> dict[int, Bounds]:
        return (self._view or self.view).chunk_bounds

    @property
    def page_bounds(self) -> dict[tuple[int, int], Bounds]:
        return (self._view or self.view).page_bounds

    @property
    def joined_bounds(self) -> dict[tuple[str, ...], tuple[list[Bounds], Bounds]]:
        return (self._view or self.view).joined_bounds

    @property
    def blooms(self) -> dict[tuple[int, int], BloomState]:
        return (self._view or self.view).blooms

    @property
    def indexes(self) -> dict[int, ParsedIndex | None]:
        return (self._view or self.view).indexes

    @property
    def dictionaries(self) -> dict[tuple[int, int], pa.Array]:
        return (self._view or self.view).dictionaries

    @property
    def readable(self) -> dict[tuple[int, int], bool]:
        return (self._view or self.view).readable

    @property
    def facts(self) -> dict[tuple[int, int], ChunkFacts]:
        return (self._view or self.view).facts

    @property
    def first_rows(self) -> dict[int, Int64s]:
        return (self._view or self.view).first_rows

    @property
    def index_reads(self) -> int:
        return (self._view or self.view).index_reads

    @index_reads.setter
    def index_reads(self, value: int) -> None:
        self.view.index_reads = value

    @property
    def reading_ahead(self) -> int:
        return (self._view or self.view).reading_ahead

    @reading_ahead.setter
    def reading_ahead(self, value: int) -> None:
        self.view.reading_ahead = value

    @property
    def distrusted(self) -> bool:
        return (self._view or self.view).distrusted

    @distrusted.setter
    def distrusted(self, value: bool) -> None:
        self.view.distrusted = value

    @property
    def passed_over(self) -> IndexFormatError | None:
        return None if self._view is None else self._view.passed_over

    @passed_over.setter
    def passed_over(self, value: IndexFormatError | None) -> None:
        self.view.passed_over = value

    @property
    def remembered(self) -> Remembered | None:
        return None if self._view is None else self._view.remembered

    @remembered.setter
    def remembered(self, value: Remembered | None) -> None:
        self.view.remembered = value

    @property
    def toc(self) -> Toc | None:
        return None if self._view is None else self._view.toc

    @toc.setter
    def toc(self, value: Toc | None) -> None:
        self.view.toc = value

    @property
    def bad_toc(self) -> IndexFormatError | None:
        return None if self._view is None else self._view.bad_toc

    @bad_toc.setter
    def bad_toc(self, value: IndexFormatError | None) -> None:
        self.view.bad_toc = value


# The first read is not grown for more than this of embedded indexes.
_MOST_EMBEDDED = 256 << 10

_Sorting: TypeAlias = tuple[tuple[SortingColumn, ...], ...] | None
_Held: TypeAlias = tuple[str, int, str | None, bytes, int, bytes, int, int, "Int64s | None", _Sorting]
_FOOTER: Final = 3
_FOOTER_START: Final = 4
_TAIL: Final = 5
_TAIL_START: Final = 6
_NUM_ROWS: Final = 7
_NUMBERS: Final = 8


class FileHandle(Viewed):
    """What is known of one version of one file. Cached; grows as scans meet its page indexes.

    It is touched on the I/O loop only. Everything in it is derived from the bytes of `id`, so it is
    never updated for another version: a changed object gets a new handle.

    Of thousands of cached files most are only looked at together with others (`planning.pruning`). Such a file is one
    object that the garbage collector follows, which points to a few; its `FileView` is made once more is asked of it.

    Parameters
    ----------
    id : ObjectId
    metadata : FileMetadata or PackedMetadata
    arrow_schema : pyarrow.Schema
        Of all columns, as pyarrow's full read would have it.
    tail_start : int
        Where the footer starts, or the tail that is kept of it.
    """

    __slots__ = ("_held", "_view", "arrow_schema", "checked_at", "kin", "shelf", "shelf_at")

    def __init__(
        self,
        id: ObjectId,
        metadata: FileMetadata | PackedMetadata,
        *,
        arrow_schema: pa.Schema,
        tail_start: int,
    ) -> None:
        self.arrow_schema = arrow_schema
        self.checked_at = 0.0
        """When the store last said that this is the current version (monotonic clock)."""
        self.shelf: Shelf | None = None
        """Where its chunk bounds are kept with those of others, from this row group on."""
        self.shelf_at = 0
        self._view = None
        self.kin: Kin | FileMetadata
        """Metadata shared with files of the same writer; the whole FileMetadata until it is folded."""
        numbers = None
        if isinstance(metadata, FileMetadata):
            self.kin, self._view = metadata, FileView(metadata)
        else:
            self.kin, numbers = metadata.kin, metadata.numbers
        # A tuple of what the garbage collector need not follow is not followed itself.
        self._held: _Held = (
            id.path,
            id.size,
            id.etag,
            metadata.footer,
            metadata.footer_start,
            b"",
            tail_start,
            metadata.num_rows,
            numbers,
            metadata.sorting if metadata.sorting and any(metadata.sorting) else None,
        )

    # -- identity --------------------------------------------------------------------------------

    @property
    def id(self) -> ObjectId:
        """Which version of which object."""
        return ObjectId(*self._held[:3])

    @property
    def path(self) -> str:
        return self._held[0]

    @property
    def size(self) -> int:
        """Of the file, in bytes."""
        return self._held[1]

    @property
    def etag(self) -> str | None:
        return self._held[2]

    # -- what it is made of ----------------------------------------------------------------------

    @property
    def tail(self) -> bytes:
        """What lies from `tail_start` up to the footer that the first read brought along."""
        return self._held[_TAIL]

    @property
    def tail_start(self) -> int:
        return self._held[_TAIL_START]

    def keep_tail(self, tail: bytes, start: int) -> None:
        """Hold these bytes as the tail."""
        path, size, etag, footer, footer_start, _, _, num_rows, numbers, sorting = self._held
        self._held = path, size, etag, footer, footer_start, tail, start, num_rows, numbers, sorting

    @property
    def num_rows(self) -> int:
        return self._held[_NUM_ROWS]

    @property
    def num_row_groups(self) -> int:
        numbers = self._held[_NUMBERS]
        return len(self.view.metadata.group_rows) if numbers is None else len(numbers)

    @property
    def group_rows(self) -> Int64s:
        """Rows of each row group."""
        return self.view.metadata.group_rows if self._held[_NUMBERS] is None else self.pack().group_rows

    @property
    def footer_bytes(self) -> int:
        """Of the footer, without the eight bytes after it."""
        return len(self._held[_FOOTER])

    def pack(self) -> PackedMetadata:
        """The metadata in few objects, which it holds from now on."""
        from accel.format.packed import PackedMetadata

        _, size, _, footer, footer_start, _, _, num_rows, numbers, sorting = self._held
        kin = self.kin
        if numbers is None or isinstance(kin, FileMetadata):
            packed = PackedMetadata.of(self.view.metadata)
            self.kin = packed.kin
            self._held = (*self._held[:_NUMBERS], packed.numbers, sorting)
            return packed
        return PackedMetadata(kin, numbers, sorting, footer, size, footer_start, num_rows)

    @property
    def view(self) -> FileView:
        """The file laid out to be planned by itself."""
        view = self._view
        if view is None:
            from accel.format.packed import unpack

            view = self._view = FileView(unpack(self.pack()))
        return view

    def fold(self) -> None:
        """Let go of the view, where the footer says all that is in it."""
        if self._view is not None and self._view.is_plain:
            if self._held[_NUMBERS] is None:
                self.pack()
            self._view = None

    def kept_bounds(self, leaf: int) -> Bounds | None:
        """The bounds of its chunks of one column that it keeps itself."""
        return None if self._view is None else self._view.chunk_bounds.get(leaf)

    @property
    def keeps_bounds(self) -> bool:
        """Whether it keeps those of any."""
        return self._view is not None and bool(self._view.chunk_bounds)

    def drop_bounds(self, leaf: int) -> None:
        """They are kept elsewhere."""
        if self._view is not None:
            self._view.chunk_bounds.pop(leaf, None)

    def decoded_bytes(self, row_group: int, leaf: int) -> int:
        """How large a chunk is once decoded, as far as the footer tells."""
        return self.view.decoded_bytes(row_group, leaf)

    def chunk_facts(self, row_group: int, leaf: int) -> ChunkFacts:
        """What reading a chunk takes, whatever rows of it are wanted."""
        return self.view.chunk_facts(row_group, leaf)

    def has_offset_index(self, row_group: int, leaf: int) -> bool:
        """Whether the file has one for a chunk, that has not been met."""
        view = self.view
        untried = (row_group, leaf) not in view.offset_indexes and not view.distrusted
        return untried and bool(view.metadata.chunks.offset_index_offset[row_group, leaf] > 0)

    def in_tail(self, wanted: ByteRange) -> memoryview | None:
        """The bytes of a range that the first read already brought, else None."""
        tail, tail_start = self.tail, self.tail_start
        start, end = wanted.start - tail_start, wanted.end - tail_start
        if start < 0 or end > len(tail):
            return None
        return memoryview(tail)[start:end]

    def index_region(self, most_bytes: int) -> ByteRange | None:
        """What lies between the first page index and the tail, where that is not more; None where nothing does."""
        start = self._page_indexes_start()
        return ByteRange(start, self.tail_start) if 0 < self.tail_start - start <= most_bytes else None

    def grow_tail(self, data: memoryview) -> None:
        """Keep the bytes that lie just before the tail with it."""
        self.keep_tail(b"".join((data, self.tail)), self.tail_start - len(data))

    def _page_indexes_start(self) -> int:
        """Where the first page index is, or the footer where there is none."""
        first = self._held[_FOOTER_START]
        for name in ("offset_index_offset", "column_index_offset"):
            offset = self._column(name)
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
        return self.size - first

    def _column(self, name: str) -> Int64s:
        """A column of the ChunkTable, without laying out the others."""
        if self._view is None:
            return self.pack().column(name)
        found: Int64s = getattr(self._view.metadata.chunks, name)
        return found

    def _idx1_start(self) -> int | None:
        """Where an `IDX1` index starts, if the file has one: a scan may name its column."""
        if IDX1_KEY not in self.kin.key_value:
            return None
        from accel.format.idx1 import idx1_range

        try:
            found = idx1_range(self.metadata)
        except IndexFormatError:
            return None
        return None if found is None else found[0]

    def weigh(self) -> int:
        """`nbytes`, for the cache that is told of it."""
        if self._view is not None:
            self._view.weighed = self._view.weighty
        return self.nbytes

    def has_grown(self, *, read: bool) -> bool:
        """Whether `nbytes` is another than when it was weighed, for less than adding it up; `read` says that indexes
        were read since."""
        view = self._view
        return view is not None and (view.weighty != view.weighed or (read and view.grows_within))

    @property
    def nbytes(self) -> int:
        """What holding this costs, for the cache's limit."""
        numbers = self._held[_NUMBERS]
        total = 1024 + 200 * len(self.arrow_schema) + len(self.tail)
        if numbers is None:
            total += self.view.metadata.nbytes
        else:
            total += 4096 + self.footer_bytes + numbers.nbytes + 600 * len(self.kin.schema.elements)
        if self.shelf is not None:
            total += 64 * self.num_row_groups * len(self.shelf.bounds)
        return total if self._view is None else total + self._view.nbytes
