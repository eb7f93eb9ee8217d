"""An opened file: its identity, its parsed footer, and the indexes that were read so far."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel.errors import IndexFormatError
from accel.format.domain import Bounds
from accel.format.footer import IDX1_KEY
from accel.format.model import ColumnIndex, FileMetadata, OffsetIndex, SortingColumn
from accel.planning.leaf_chunks import unreadable_chunks
from accel.ranges import ByteRange, ObjectId
from accel.versions import FileVersion

if TYPE_CHECKING:
    from accel.arrays import Int64s
    from accel.format.bloom import BloomState
    from accel.format.embedded import Toc
    from accel.format.packed import PackedMetadata, SharedMetadata
    from accel.indexes.kind import ParsedIndex
    from accel.planning.query import FileQuery

__all__ = ["FileHandle", "FileView", "SharedStatistics", "group_starts"]

# The suggested tail reaches back over embedded indexes that lie within this many bytes of the page indexes.
_MOST_EMBEDDED = 256 << 10

T = TypeVar("T")
Verdicts: TypeAlias = npt.NDArray[np.int8]
_Chunk: TypeAlias = tuple[int, int]
"""A row group and a leaf."""


@dataclass(slots=True, eq=False)
class FileView:
    """A file's metadata as columns, the indexes that were read so far, and the bounds found in both."""

    metadata: FileMetadata
    offset_indexes: dict[_Chunk, OffsetIndex | None] = field(default_factory=dict)
    """None for an index that is absent or did not verify."""
    column_indexes: dict[_Chunk, ColumnIndex | None] = field(default_factory=dict)
    chunk_bounds: dict[int, Bounds] = field(default_factory=dict)
    """The statistics of a leaf's chunks, one unit a row group."""
    page_bounds: dict[_Chunk, Bounds] = field(default_factory=dict)
    blooms: dict[_Chunk, BloomState] = field(default_factory=dict)
    """The blocks of bloom filters that were read."""
    toc: Toc | None = None
    """The table of contents of the embedded indexes."""
    bad_toc: IndexFormatError | None = None
    """Why that table is not used."""
    indexes: dict[int, ParsedIndex | None] = field(default_factory=dict)
    """Embedded indexes by their place in the table; None for one that did not verify."""
    dictionaries: dict[_Chunk, pa.Array] = field(default_factory=dict)
    """The values of small dictionaries that planning has read."""
    index_reads: int = 0
    """How often page indexes of the file were requested."""
    reading_ahead: int = 0
    """The number of the index read that brings all page indexes and is under way; 0 where none is."""
    passed_over: IndexFormatError | None = None
    """Why the first unusable index is not used; a strict scan refuses the file for it."""
    distrusted: bool = False
    """The page index contradicts the pages, so chunks are read whole."""
    reported: int = 0
    """`size` when the cache last took `nbytes`."""
    reported_within: int = 0
    """`within_bytes` at that time."""
    _has_unreadable: bool | None = None

    @property
    def has_unreadable(self) -> bool:
        """Whether any chunk of the file cannot be read: see `leaf_chunks.unreadable_chunks`."""
        if self._has_unreadable is None:
            self._has_unreadable = bool(unreadable_chunks(self.metadata.chunks).any())
        return self._has_unreadable

    @property
    def num_indexes(self) -> int:
        """The number of indexes and dictionaries in memory."""
        pages = len(self.offset_indexes) + len(self.column_indexes)
        return pages + len(self.indexes) + len(self.blooms) + len(self.dictionaries)

    @property
    def size(self) -> int:
        """The number of entries that `nbytes` adds up: the cache weighs the file again when it changes."""
        return self.num_indexes + len(self.chunk_bounds) + len(self.page_bounds)

    @property
    def within_bytes(self) -> int:
        """The bytes of bloom filters and embedded indexes, which grow within their entries. Few files have
        any."""
        if not self.blooms and not self.indexes:
            return 0
        found = (*self.blooms.values(), *self.indexes.values())
        return sum(each.nbytes for each in found if each is not None)

    @property
    def is_plain(self) -> bool:
        """Whether the view can be made again from the footer alone."""
        found = (self.toc, self.bad_toc, self.passed_over)
        noted = self.index_reads or self.distrusted or any(each is not None for each in found)
        return not (noted or self.num_indexes)

    @property
    def nbytes(self) -> int:
        """The memory that it takes, beside the footer and the packed metadata."""
        if not self.size:
            return 0
        bounds = (*self.chunk_bounds.values(), *self.page_bounds.values())
        total = 256 * len(bounds) + 64 * sum(map(len, bounds)) + 200 * len(self.dictionaries)
        found = (self.offset_indexes, self.column_indexes, self.indexes, self.blooms, self.dictionaries)
        for by_place in found:
            total += sum(map(attrgetter("nbytes"), [x for x in by_place.values() if x is not None]))
        return total


_Sorting: TypeAlias = tuple[tuple[SortingColumn, ...], ...] | None
_Packed: TypeAlias = tuple[str, int, str | None, bytes, int, bytes, int, int, "Int64s | None", _Sorting]
_FOOTER: Final = 3
_FOOTER_START: Final = 4
_TAIL: Final = 5
_TAIL_START: Final = 6
_NUM_ROWS: Final = 7
_NUMBERS: Final = 8


class _OfView(Generic[T]):
    """An attribute of the view: where there is no view, it has its default."""

    def __init__(self, name: str, default: T) -> None:
        self._name = name
        self._default = default

    def __get__(self, handle: FileHandle, owner: type[FileHandle] | None = None) -> T:
        return getattr(handle.view, self._name) if handle.has_view else self._default

    def __set__(self, handle: FileHandle, value: T) -> None:
        setattr(handle.view, self._name, value)


class FileHandle:
    """One version of one file, opened. It is cached, and grows as scans read its indexes.

    Only the I/O loop touches it. Everything in it derives from the bytes of `id`, so it never changes to
    another version: a changed object gets a new handle.

    Most of thousands of cached files are only pruned with others (`planning.pruning`). Such a file is a
    single object for the garbage collector; its `FileView` is made when the file is planned by itself.

    Parameters
    ----------
    id : ObjectId
    metadata : FileMetadata or PackedMetadata
    arrow_schema : pyarrow.Schema
        All columns, as pyarrow's full read types them.
    tail_start : int
        Where the footer starts, or the bytes before it that are in memory.
    """

    __slots__ = ("_packed", "_view", "arrow_schema", "checked_at", "shared", "statistics", "statistics_start")

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
        """When the store last confirmed that this is the current version (monotonic clock)."""
        self.statistics: SharedStatistics | None = None
        """The chunk bounds of this file and others; this file's start at row group `statistics_start`."""
        self.statistics_start = 0
        self._view = None
        self.shared: SharedMetadata | FileMetadata
        """Metadata shared with files of the same writer; the whole FileMetadata until it is packed."""
        numbers = None
        if isinstance(metadata, FileMetadata):
            self.shared, self._view = metadata, FileView(metadata)
        else:
            self.shared, numbers = metadata.shared, metadata.numbers
        # The garbage collector does not track a tuple of objects that it does not track.
        self._packed: _Packed = (
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

    def relabelled(self, shared: SharedMetadata, arrow_schema: pa.Schema) -> FileHandle:
        """Return the same file under other names of its columns; its leaves are in the same order."""
        other = FileHandle.__new__(FileHandle)
        for name in self.__slots__:
            setattr(other, name, getattr(self, name))
        other.shared, other.arrow_schema = shared, arrow_schema
        return other

    # -- identity --------------------------------------------------------------------------------

    @property
    def id(self) -> ObjectId:
        """The version of the object."""
        return ObjectId(*self._packed[:3])

    @property
    def version(self) -> FileVersion:
        """The version, without the path."""
        return FileVersion(*self._packed[1:3])

    @property
    def path(self) -> str:
        return self._packed[0]

    @property
    def size(self) -> int:
        """The size of the file in bytes."""
        return self._packed[1]

    @property
    def etag(self) -> str | None:
        return self._packed[2]

    # -- metadata --------------------------------------------------------------------------------

    @property
    def num_rows(self) -> int:
        return self._packed[_NUM_ROWS]

    @property
    def num_row_groups(self) -> int:
        numbers = self._packed[_NUMBERS]
        return len(self.view.metadata.group_rows) if numbers is None else len(numbers)

    @property
    def group_rows(self) -> Int64s:
        """The rows of each row group."""
        return self.metadata.group_rows if self._packed[_NUMBERS] is None else self.pack().group_rows

    @property
    def footer_bytes(self) -> int:
        """The length of the footer, without the eight bytes after it."""
        return len(self._packed[_FOOTER])

    def pack(self) -> PackedMetadata:
        """Hold the metadata in few objects from now on, and return it."""
        from accel.format.packed import PackedMetadata

        _, size, _, footer, footer_start, _, _, num_rows, numbers, sorting = self._packed
        shared = self.shared
        if numbers is None or isinstance(shared, FileMetadata):
            packed = PackedMetadata.of(self.view.metadata)
            self.shared = packed.shared
            self._packed = (*self._packed[:_NUMBERS], packed.numbers, sorting)
            return packed
        return PackedMetadata(shared, numbers, sorting, footer, size, footer_start, num_rows)

    @property
    def view(self) -> FileView:
        """The file laid out to be planned by itself."""
        view = self._view
        if view is None:
            from accel.format.packed import unpack

            view = self._view = FileView(unpack(self.pack()))
        return view

    @property
    def has_view(self) -> bool:
        return self._view is not None

    def fold(self) -> None:
        """Drop the view, where it can be made again from the footer."""
        if self._view is not None and self._view.is_plain:
            if self._packed[_NUMBERS] is None:
                self.pack()
            self._view = None

    @property
    def metadata(self) -> FileMetadata:
        return self.view.metadata

    # -- what reading found ----------------------------------------------------------------------

    toc = _OfView["Toc | None"]("toc", None)
    """The table of contents of the embedded indexes."""
    bad_toc = _OfView["IndexFormatError | None"]("bad_toc", None)
    """Why that table is not used."""
    distrusted = _OfView("distrusted", False)
    """The page index contradicts the pages, so chunks are read whole."""
    passed_over = _OfView["IndexFormatError | None"]("passed_over", None)
    """Why the first unusable index is not used."""

    def has_offset_index(self, row_group: int, leaf: int) -> bool:
        """Return whether the file has an offset index for a chunk that was not read yet."""
        view = self.view
        untried = (row_group, leaf) not in view.offset_indexes and not view.distrusted
        return untried and bool(view.metadata.chunks.offset_index_offset[row_group, leaf] > 0)

    # -- the tail --------------------------------------------------------------------------------

    @property
    def tail(self) -> bytes:
        """The bytes from `tail_start` to the footer that the first read brought along."""
        return self._packed[_TAIL]

    @property
    def tail_start(self) -> int:
        return self._packed[_TAIL_START]

    def set_tail(self, tail: bytes, start: int) -> None:
        """Replace the tail."""
        before, after = self._packed[:_TAIL], self._packed[_NUM_ROWS:]
        self._packed = (*before, tail, start, *after)

    def grow_tail(self, data: memoryview) -> None:
        """Put bytes that lie just before the tail in front of it."""
        self.set_tail(b"".join((data, self.tail)), self.tail_start - len(data))

    def in_tail(self, wanted: ByteRange) -> memoryview | None:
        """Return the bytes of a range, where the first read already brought them, else None."""
        tail, tail_start = self.tail, self.tail_start
        start, end = wanted.start - tail_start, wanted.end - tail_start
        if start < 0 or end > len(tail):
            return None
        return memoryview(tail)[start:end]

    @property
    def page_index_bytes(self) -> int:
        """The bytes from the first page index to the footer."""
        return int(self._packed[_FOOTER_START] - self._page_indexes_start())

    def index_region(self, most_bytes: int) -> ByteRange | None:
        """Return the bytes from the first page index to the tail; None where there are none, or more than
        `most_bytes`."""
        start = self._page_indexes_start()
        return ByteRange(start, self.tail_start) if 0 < self.tail_start - start <= most_bytes else None

    def _page_indexes_start(self) -> int:
        """Return where the first page index is, or the footer where there is none."""
        first = self._packed[_FOOTER_START]
        for name in ("offset_index_offset", "column_index_offset"):
            offset = self._column(name)
            placed = offset[offset > 0]
            if placed.size:
                first = min(first, int(placed.min()))
        return first

    def _column(self, name: str) -> Int64s:
        """Return a column of the ChunkTable, without laying out the others."""
        if self._view is None:
            return self.pack().column(name)
        found: Int64s = getattr(self._view.metadata.chunks, name)
        return found

    def suggested_tail_bytes(self) -> int:
        """Return the suffix length that would have brought footer, page indexes and small embedded indexes at
        once."""
        first = self._page_indexes_start()
        entries = self.toc.entries if self.toc is not None else ()
        offsets = [entry.offset for entry in entries]
        offsets += [entry.head_again[0] for entry in entries if entry.head_again is not None]
        idx1 = self._idx1_start()
        offsets += [] if idx1 is None else [idx1]
        near = [offset for offset in offsets if first - offset <= _MOST_EMBEDDED]
        return self.size - min([first, *near])

    def _idx1_start(self) -> int | None:
        """Return where an `IDX1` index starts, if the file has one: a scan may name its column."""
        if IDX1_KEY not in self.shared.key_value:
            return None
        from accel.format.embedded import idx1_range

        try:
            found = idx1_range(self.metadata)
        except IndexFormatError:
            return None
        return None if found is None else found[0]

    # -- the cache -------------------------------------------------------------------------------

    def weigh(self) -> int:
        """Return `nbytes` for the cache, and note that it has it."""
        if self._view is not None:
            self._view.reported = self._view.size
            self._view.reported_within = self._view.within_bytes
        return self.nbytes

    def has_grown(self) -> bool:
        """Return whether `nbytes` changed since it was weighed, without adding it up."""
        view = self._view
        if view is None:
            return False
        return view.size != view.reported or view.within_bytes != view.reported_within

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""
        numbers = self._packed[_NUMBERS]
        total = 1024 + 200 * len(self.arrow_schema) + len(self.tail)
        if numbers is None:
            total += self.view.metadata.nbytes
        else:
            total += 4096 + self.footer_bytes + numbers.nbytes + 600 * len(self.shared.schema.elements)
        if self.statistics is not None:
            total += 64 * self.num_row_groups * len(self.statistics.bounds)
        return total if self._view is None else total + self._view.nbytes


class SharedStatistics:
    """The chunk bounds of several files, one file's row groups after the other's.

    Python's garbage collector visits every object of every cached file; these are a few objects for all of
    them. Each file refers to its statistics and knows where its own start.
    """

    __slots__ = ("_judged", "bounds", "num_files", "rows", "starts")

    def __init__(self, handles: Sequence[FileHandle], rows: Int64s, bounds: dict[int, Bounds]) -> None:
        self.num_files = len(handles)
        self.rows = rows
        """The rows of each row group."""
        self.starts = group_starts(handles)
        """The first row group of each file."""
        self.bounds = bounds
        """By leaf."""
        self._judged: tuple[weakref.ref[FileQuery], Verdicts] | None = None
        """The verdicts of the question that was judged last. The question ends with its scan."""
        for handle, start in zip(handles, self.starts.tolist(), strict=True):
            handle.statistics, handle.statistics_start = self, start
            if handle.has_view:
                for leaf in bounds:
                    handle.view.chunk_bounds.pop(leaf, None)

    def of(self, handle: FileHandle, leaf: int) -> Bounds | None:
        """Return the bounds of one file's chunks."""
        found = self.bounds.get(leaf)
        if found is None:
            return None
        return found.part(handle.statistics_start, handle.statistics_start + handle.num_row_groups)

    def note_verdicts(self, query: FileQuery, verdicts: Verdicts) -> None:
        """Note one `Verdict` for each row group, which planning each file asks for again."""
        self._judged = weakref.ref(query), verdicts

    def verdicts(self, handle: FileHandle, query: FileQuery) -> Verdicts | None:
        """Return the verdicts of one file's row groups; None where another question was judged last."""
        if self._judged is None or self._judged[0]() is not query:
            return None
        return self._judged[1][handle.statistics_start : handle.statistics_start + handle.num_row_groups]

    def holds(self, handles: Sequence[FileHandle]) -> bool:
        """Return whether they are those of exactly these files, in this order."""
        if len(handles) != self.num_files:
            return False
        starts: list[int] = self.starts.tolist()
        return [handle.statistics_start if handle.statistics is self else -1 for handle in handles] == starts


def group_starts(handles: Sequence[FileHandle]) -> Int64s:
    """Return the first row group of each file, where one file's row groups follow the other's."""
    counts = np.array([handle.num_row_groups for handle in handles], np.int64)
    starts: Int64s = np.cumsum(counts) - counts
    return starts
