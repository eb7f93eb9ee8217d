"""The one pass over a file's columns that all of its new end is made in: every chunk that has something to give is read
and decoded once, for its pages' places and bounds and for its indexes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from accel.errors import ParquetFormatError
from accel.format.model import Leaf, OffsetIndex
from accel.format.page_index import PageIndexMismatchError
from accel.indexes.kind import ChunkValues
from accel.options import MIB, Options
from accel.writing.index_building import BuiltIndex, IndexSet, in_asked_order, join_groups
from accel.writing.original import Original, open_original
from accel.writing.page_indexes import BoundsBuilder, PageIndexes, PageIndexMaking
from accel.writing.report import EmbeddedIndex, EmbedReport, idle_warnings
from accel.writing.scratch import Scratch
from accel.writing.source import HeldSource, LocalSource, Source
from accel.writing.tail import NewTail, make_tail, verify_tail
from accel.writing.values import ColumnValues, Texts, flat_leaf, join_parts
from accel.writing.wanted import Indexes, WantedIndex, read_wanted

__all__ = [
    "Made",
    "Survey",
    "prepare",
    "report_on",
]

_MOST_HELD = 64 * MIB
"""A remote chunk without an offset index is read twice where it is longer: for its page headers, and for its pages."""


class Survey:
    """Looks through a file.

    Parameters
    ----------
    wanted : sequence of WantedIndex
        The indexes to build.
    scratch : Scratch
        Keeps their bytes.
    """

    def __init__(
        self,
        original: Original,
        wanted: Sequence[WantedIndex],
        *,
        options: Options,
        scratch: Scratch,
    ) -> None:
        self.original = original
        self.metadata = original.metadata
        self.options = options
        self.scratch = scratch
        self.note: Callable[[int], None] = lambda count: None
        self.wanted = wanted
        self.by_leaf: dict[int, list[WantedIndex]] = {}
        for index in wanted:
            if not index.leaves:
                self.by_leaf.setdefault(index.leaf.ordinal, []).append(index)
        self.source = HeldSource(original.source, most_held=min(_MOST_HELD, options.memory_limit // 4))
        self.making = PageIndexMaking(original, self.source, options=options)

    def run(self, note: Callable[[int], None]) -> tuple[PageIndexes, list[BuiltIndex]]:
        """The page indexes that the file is to have, and its indexes in the order that they were asked for.

        `note` is told the stored bytes of each chunk that was looked through.

        Raises
        ------
        AccelError
            A kind failed, or a column is not of a type that it takes; the column is named.
        """
        self.note = note
        built: list[BuiltIndex] = []
        for leaf in self.metadata.schema.leaves:
            wanted = self.by_leaf.get(leaf.ordinal, [])
            if wanted:
                values = self._values(leaf, Texts.CODED)
                with self._set(wanted, [values]) as indexes:
                    self._look_through(leaf, values, indexes)
                    built += indexes.finish()
            else:
                self._look_through(leaf, None, None)
        for index in self.wanted:
            if index.leaves:
                built += self._together(index)
        joined = join_groups(built, self.scratch, path=self.source.name)
        return self.making.finish(), in_asked_order(joined, self.wanted)

    def stored_bytes(self) -> int:
        """What `run` will tell of in all."""
        chunks = self.metadata.chunks
        total = 0
        for leaf in self.metadata.schema.leaves:
            for group in range(self.metadata.num_row_groups):
                at = (group, leaf.ordinal)
                if leaf.ordinal in self.by_leaf or self.making.lacks(at):
                    total += int(chunks.compressed[at])
        sets = [index.leaves for index in self.wanted]
        return total + sum(
            int(chunks.compressed[:, leaf.ordinal].sum()) for leaves in sets for leaf in leaves
        )

    def _values(self, leaf: Leaf, texts: Texts) -> ColumnValues:
        return ColumnValues(self.source, self.metadata, leaf=leaf, options=self.options, texts=texts)

    def _set(self, wanted: Sequence[WantedIndex], values: Sequence[ColumnValues]) -> IndexSet:
        return IndexSet(
            wanted,
            [each.type for each in values],
            scratch=self.scratch,
            path=self.source.name,
            memory_limit=self.options.memory_limit,
        )

    def _look_through(self, leaf: Leaf, values: ColumnValues | None, indexes: IndexSet | None) -> None:
        chunks = self.metadata.chunks
        for group in range(self.metadata.num_row_groups):
            at = (group, leaf.ordinal)
            lacks = self.making.lacks(at)
            if not lacks and indexes is None:
                continue
            if lacks and not isinstance(self.original.source, LocalSource):
                self.source.hold(int(chunks.start[at]), int(chunks.end[at]))
            try:
                index = self.making.locate(at) if lacks else self.making.offset_indexes.get(at)
                if lacks and values is None and flat_leaf(leaf):
                    values = self._values(leaf, Texts.PLAIN)
                bounds = None if values is None else self.making.bounds_of(at, values.type)
                if values is not None and (indexes is not None or bounds is not None):
                    self._decode(values, group, index, indexes, bounds)
                if bounds is not None:
                    self.making.take_bounds(at, bounds)
            finally:
                self.source.release()
            self.note(int(chunks.compressed[at]))

    def _decode(
        self,
        values: ColumnValues,
        group: int,
        index: OffsetIndex | None,
        indexes: IndexSet | None,
        bounds: BoundsBuilder | None,
    ) -> None:
        if indexes is not None:
            indexes.begin(group, paged=index is not None or not self.metadata.group_rows[group])
        for run in values.read_runs(group, index):
            if bounds is not None:
                bounds.add_run(run.array, run.first_rows)
                if bounds.void and indexes is None:
                    return
            if indexes is not None:
                indexes.add(run)
        if indexes is not None:
            indexes.end(int(self.metadata.group_rows[group]), pages=0 if index is None else index.num_pages)

    def _together(self, wanted: WantedIndex) -> list[BuiltIndex]:
        """One index of several columns."""
        columns = [self._values(leaf, Texts.CODED) for leaf in wanted.leaves]
        with self._set([wanted], columns) as indexes:
            for group, num_rows in enumerate(self.metadata.group_rows.tolist()):
                index = self.making.offset_indexes.get((group, wanted.leaf.ordinal))
                indexes.begin(group, paged=index is not None or not num_rows)
                for run in self._rows_of(columns, group, wanted.leaf):
                    indexes.add(run)
                indexes.end(num_rows, pages=0 if index is None else index.num_pages)
                for leaf in wanted.leaves:
                    self.note(int(self.metadata.chunks.compressed[group, leaf.ordinal]))
            return indexes.finish()

    def _rows_of(self, columns: Sequence[ColumnValues], group: int, anchor: Leaf) -> Iterator[ChunkValues]:
        """The rows of a row group as structs, a run of the anchor's pages at a time."""
        num_rows = int(self.metadata.group_rows[group])
        indexes = self.making.offset_indexes
        index = indexes.get((group, anchor.ordinal))
        first = np.zeros(1, np.int64) if index is None else index.first_row
        fed = [
            _Feed(column.read_runs(group, indexes.get((group, column.leaf.ordinal)))) for column in columns
        ]
        begun = 0
        while begun < num_rows:
            # Up to the last page of the anchor that the first column's next run reaches.
            reached = begun + fed[0].ready()
            stop = int(first[np.searchsorted(first, reached, "right") - 1])
            if reached >= num_rows:
                stop = num_rows
            elif stop <= begun:
                after = int(np.searchsorted(first, begun, "right"))
                stop = int(first[after]) if after < len(first) else num_rows
            arrays = [feed.take(stop - begun) for feed in fed]
            fields = [pa.field(str(i), array.type) for i, array in enumerate(arrays)]
            structs = pa.StructArray.from_arrays(arrays, fields=fields)
            here = first[(first >= begun) & (first < stop)] - begun
            yield ChunkValues(structs, here, stop - begun)
            begun = stop


class _Feed:
    """Rows of one column, as many as are asked for."""

    def __init__(self, runs: Iterator[ChunkValues]) -> None:
        self._runs = runs
        self._left: list[pa.Array] = []
        self._count = 0

    def ready(self) -> int:
        """Rows that are at hand; one run at least, unless there are no more."""
        if not self._count:
            self._pull()
        return self._count

    def take(self, rows: int) -> pa.Array:
        while self._count < rows:
            if not self._pull():
                raise ValueError("a column has fewer rows than its row group")
        taken, need = [], rows
        while need:
            part = self._left.pop(0)
            if len(part) > need:
                self._left.insert(0, part.slice(need))
                part = part.slice(0, need)
            taken.append(part)
            need -= len(part)
        self._count -= rows
        return join_parts(taken)

    def _pull(self) -> bool:
        run = next(self._runs, None)
        if run is None:
            return False
        self._left.append(run.array)
        self._count += run.num_rows
        return True


Counter = Callable[[str, int], Callable[[int], None]]
"""Given the name of a stage and its bytes, what is to be told of each part of them."""


@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """The new end of a file, verified, and what it is made of."""

    original: Original
    built: list[BuiltIndex]
    pages: PageIndexes
    tail: NewTail
    scratch: Scratch
    """Kept, since the tail reads from it."""
    begun: float


def prepare(source: Source, indexes: Indexes, *, options: Options, counter: Counter | None = None) -> Made:
    """Read a file, build its indexes and its missing page indexes, and lay out its new end.

    Raises as `embed` does.
    """
    begun = time.perf_counter()
    original = open_original(source, options=options)
    metadata = original.metadata
    wanted = read_wanted(indexes, metadata)
    try:
        pages, built, scratch = _look_through(original, wanted, options=options, counter=counter)
    except ParquetFormatError as error:
        if not original.offset_indexes:
            raise
        # As a scan does: the page index may be wrong, and if it is not, this ends with the same error.
        original = original.without_page_index(error)
        pages, built, scratch = _look_through(original, wanted, options=options, counter=counter)
        if options.strict:
            raise PageIndexMismatchError(
                error.message, path=error.path, place=error.place
            ).as_index_error() from error
    tail = make_tail(metadata, built, found=pages, idx1=any(index.kind is None for index in wanted))
    verify_tail(tail, metadata, built=built)
    return Made(original, built, pages, tail, scratch, begun)


def _look_through(
    original: Original, wanted: Sequence[WantedIndex], *, options: Options, counter: Counter | None
) -> tuple[PageIndexes, list[BuiltIndex], Scratch]:
    scratch = Scratch()
    survey = Survey(original, wanted, options=options, scratch=scratch)
    note = _ignore if counter is None else counter("index", survey.stored_bytes())
    pages, built = survey.run(note)
    return pages, built, scratch


def _ignore(count: int) -> None:
    """Nobody wants to know."""


def report_on(made: Made, *, path: str, written: bool) -> EmbedReport:
    """What was made, in numbers."""
    tail, metadata = made.tail, made.original.metadata
    indexes = _summaries(made.built)
    return EmbedReport(
        path=path,
        written=written,
        rows=metadata.num_rows,
        size_before=metadata.file_size,
        size_after=tail.file_size,
        indexes=indexes,
        page_indexes_added=made.pages.added,
        column_indexes_added=made.pages.added_bounds,
        pages_unknown=tuple(made.pages.unknown),
        index_bytes=tail.index_bytes,
        page_index_bytes=tail.page_index_bytes,
        seconds=time.perf_counter() - made.begun,
        warnings=(*made.original.warnings, *idle_warnings(path, indexes)),
    )


def _summaries(built: list[BuiltIndex]) -> tuple[EmbeddedIndex, ...]:
    found: dict[tuple[str, str, str], list[BuiltIndex]] = {}
    for index in built:
        key = (index.wanted.column, index.wanted.kind_name, str(index.wanted.level))
        found.setdefault(key, []).append(index)
    return tuple(
        EmbeddedIndex(
            column=column,
            kind=kind,
            level=level,
            count=len(parts),
            units=sum(part.units for part in parts),
            nbytes=sum(part.data.length for part in parts),
            seconds=sum(part.seconds for part in parts),
            idle=sum(part.shortcoming is not None for part in parts),
            shortcoming=next((part.shortcoming for part in parts if part.shortcoming is not None), None),
        )
        for (column, kind, level), parts in found.items()
    )
