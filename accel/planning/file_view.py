"""A file while it is read: its metadata laid out, the indexes met so far, and what was worked out of both."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from accel.errors import IndexFormatError
from accel.format.domain import Bounds
from accel.format.model import ColumnIndex, FileMetadata, OffsetIndex
from accel.planning.chunk_pages import ChunkFacts, chunk_facts
from accel.planning.decoded_size import decoded_bytes

if TYPE_CHECKING:
    from accel.arrays import Int64s
    from accel.format.bloom import BloomState
    from accel.format.embedded import Toc
    from accel.indexes.kind import ParsedIndex
    from accel.planning.pages import LeafReads
    from accel.planning.remembered import PredicateCache
    from accel.planning.spread import Spread

__all__ = ["FileView", "Viewed"]


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
    remembered: PredicateCache | None = None
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
        return not (noted or self.indexes_held or self.remembered is not None)

    @property
    def nbytes(self) -> int:
        """What holding this costs beside the footer and the numbers in it."""
        if not (self.indexes_held or self.chunk_bounds or self.readable or self.decoded):
            return 0  # as after opening
        total = sum(i.nbytes for i in self.offset_indexes.values() if i is not None)
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
    def remembered(self) -> PredicateCache | None:
        return None if self._view is None else self._view.remembered

    @remembered.setter
    def remembered(self, value: PredicateCache | None) -> None:
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
