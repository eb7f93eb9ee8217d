"""One pass over the columns of a file: each chunk is read and decoded once, for the places and bounds of its
pages and for its indexes; then the new end of the file."""

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
from accel.writing.index_building import BuiltIndex, IndexSet, in_wanted_order, join_groups
from accel.writing.original import Original, open_original
from accel.writing.page_indexes import BoundsBuilder, PageIndexBuilder, PageIndexes
from accel.writing.report import EmbeddedIndex, EmbedReport, idle_warnings
from accel.writing.scratch import Scratch
from accel.writing.source import BufferedSource, LocalSource, Source
from accel.writing.tail import NewTail, make_tail, verify_tail
from accel.writing.values import ColumnValues, Texts, flat_leaf, join_parts
from accel.writing.wanted import Indexes, WantedIndex, read_wanted

__all__ = ["PreparedFile", "Survey", "prepare", "report_on"]

_BUFFER_BYTES = 64 * MIB
"""A longer remote chunk without an offset index is read twice: for its page headers, and for its pages."""


Note = Callable[[int], None]
"""Called with the bytes of each part that is done."""
Counter = Callable[[str, int], Note]
"""Returns what to call for the parts of a stage, given its name and all of its bytes."""


def _ignore(count: int) -> None:
    """Do nothing."""


class Survey:
    """Reads the columns of a file, and builds its page indexes and the wanted indexes, whose bytes go into
    `scratch`."""

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
        self.note: Note = _ignore
        self.wanted = wanted
        self.by_leaf: dict[int, list[WantedIndex]] = {}
        for index in wanted:
            if not index.leaves:
                self.by_leaf.setdefault(index.leaf.ordinal, []).append(index)
        self.source = BufferedSource(original.source, capacity=min(_BUFFER_BYTES, options.memory_limit // 4))
        self.pages = PageIndexBuilder(original, self.source, options=options)

    def run(self, note: Note) -> tuple[PageIndexes, list[BuiltIndex]]:
        """Return the page indexes of the new file, and its indexes in the order of `wanted`.

        `note` is called with the stored bytes of each chunk that is done.

        Raises
        ------
        AccelError
            A kind failed, or does not take the type of a column, which is named.
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
                built += self._build_together(index)
        joined = join_groups(built, self.scratch, path=self.source.name)
        return self.pages.finish(), in_wanted_order(joined, self.wanted)

    def stored_bytes(self) -> int:
        """Return the stored bytes of all chunks that `run` reads."""
        chunks = self.metadata.chunks
        total = 0
        for leaf in self.metadata.schema.leaves:
            for group in range(self.metadata.num_row_groups):
                at = (group, leaf.ordinal)
                if leaf.ordinal in self.by_leaf or self.pages.lacks(at):
                    total += int(chunks.compressed[at])
        return total + sum(
            int(chunks.compressed[:, leaf.ordinal].sum()) for index in self.wanted for leaf in index.leaves
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
            lacks = self.pages.lacks(at)
            if not lacks and indexes is None:
                continue
            if lacks and not isinstance(self.original.source, LocalSource):
                self.source.fill(int(chunks.start[at]), int(chunks.end[at]))
            try:
                index = self.pages.locate(at) if lacks else self.pages.offset_indexes.get(at)
                if lacks and values is None and flat_leaf(leaf):
                    values = self._values(leaf, Texts.PLAIN)
                bounds = None if values is None else self.pages.bounds_of(at, values.type)
                if values is not None and (indexes is not None or bounds is not None):
                    self._decode(values, group, index, indexes, bounds)
                if bounds is not None:
                    self.pages.take_bounds(at, bounds)
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

    def _build_together(self, wanted: WantedIndex) -> list[BuiltIndex]:
        """Build one index of several columns."""
        columns = [self._values(leaf, Texts.CODED) for leaf in wanted.leaves]
        with self._set([wanted], columns) as indexes:
            for group, num_rows in enumerate(self.metadata.group_rows.tolist()):
                index = self.pages.offset_indexes.get((group, wanted.leaf.ordinal))
                indexes.begin(group, paged=index is not None or not num_rows)
                for run in self._rows_of(columns, group, wanted.leaf):
                    indexes.add(run)
                indexes.end(num_rows, pages=0 if index is None else index.num_pages)
                for leaf in wanted.leaves:
                    self.note(int(self.metadata.chunks.compressed[group, leaf.ordinal]))
            return indexes.finish()

    def _rows_of(self, columns: Sequence[ColumnValues], group: int, anchor: Leaf) -> Iterator[ChunkValues]:
        """Yield the rows of a row group as structs, a run of pages of the column `anchor` at a time."""
        num_rows = int(self.metadata.group_rows[group])
        indexes = self.pages.offset_indexes
        index = indexes.get((group, anchor.ordinal))
        first = np.zeros(1, np.int64) if index is None else index.first_row
        readers = [
            _RowReader(column.read_runs(group, indexes.get((group, column.leaf.ordinal))))
            for column in columns
        ]
        begun = 0
        while begun < num_rows:
            # The run ends with the last page of the anchor that the next run of the first column reaches.
            reached = begun + readers[0].ready()
            stop = int(first[np.searchsorted(first, reached, "right") - 1])
            if reached >= num_rows:
                stop = num_rows
            elif stop <= begun:
                after = int(np.searchsorted(first, begun, "right"))
                stop = int(first[after]) if after < len(first) else num_rows
            arrays = [reader.take(stop - begun) for reader in readers]
            fields = [pa.field(str(i), array.type) for i, array in enumerate(arrays)]
            structs = pa.StructArray.from_arrays(arrays, fields=fields)
            here = first[(first >= begun) & (first < stop)] - begun
            yield ChunkValues(structs, here, stop - begun)
            begun = stop


class _RowReader:
    """Reads any number of rows of one column from its runs."""

    def __init__(self, runs: Iterator[ChunkValues]) -> None:
        self._runs = runs
        self._left: list[pa.Array] = []
        self._count = 0

    def ready(self) -> int:
        """Return the number of rows in memory: at least one run, unless there are no more."""
        if not self._count:
            self._pull()
        return self._count

    def take(self, rows: int) -> pa.Array:
        """Return the next rows."""
        while self._count < rows:
            if not self._pull():
                raise ValueError("a column has fewer rows than its row group")
        taken, missing = [], rows
        while missing:
            part = self._left.pop(0)
            if len(part) > missing:
                self._left.insert(0, part.slice(missing))
                part = part.slice(0, missing)
            taken.append(part)
            missing -= len(part)
        self._count -= rows
        return join_parts(taken)

    def _pull(self) -> bool:
        run = next(self._runs, None)
        if run is None:
            return False
        self._left.append(run.array)
        self._count += run.num_rows
        return True


@dataclass(frozen=True, slots=True, eq=False)
class PreparedFile:
    """The verified new end of a file, and what it is made of."""

    original: Original
    built: list[BuiltIndex]
    pages: PageIndexes
    tail: NewTail
    scratch: Scratch
    """Referenced, because the tail reads from it."""
    begun: float


def prepare(
    source: Source, indexes: Indexes, *, options: Options, counter: Counter | None = None
) -> PreparedFile:
    """Read a file, build its indexes and its missing page indexes, and lay out its new end. Raises as `embed`
    does."""
    begun = time.perf_counter()
    original = open_original(source, options=options)
    metadata = original.metadata
    wanted = read_wanted(indexes, metadata)
    try:
        pages, built, scratch = _survey(original, wanted, options=options, counter=counter)
    except ParquetFormatError as error:
        if not original.offset_indexes:
            raise
        # The page index may be wrong; if it is not, the second survey raises the same error.
        original = original.without_page_index(error)
        pages, built, scratch = _survey(original, wanted, options=options, counter=counter)
        if options.strict:
            raise PageIndexMismatchError(
                error.message, path=error.path, place=error.place
            ).as_index_error() from error
    tail = make_tail(metadata, built, found=pages, idx1=any(index.kind is None for index in wanted))
    verify_tail(tail, metadata, built=built)
    return PreparedFile(original, built, pages, tail, scratch, begun)


def _survey(
    original: Original, wanted: Sequence[WantedIndex], *, options: Options, counter: Counter | None
) -> tuple[PageIndexes, list[BuiltIndex], Scratch]:
    scratch = Scratch()
    survey = Survey(original, wanted, options=options, scratch=scratch)
    note = _ignore if counter is None else counter("index", survey.stored_bytes())
    pages, built = survey.run(note)
    return pages, built, scratch


def report_on(prepared: PreparedFile, *, path: str, written: bool) -> EmbedReport:
    """Report what was built."""
    tail, metadata = prepared.tail, prepared.original.metadata
    indexes = _summaries(prepared.built)
    return EmbedReport(
        path=path,
        written=written,
        rows=metadata.num_rows,
        size_before=metadata.file_size,
        size_after=tail.file_size,
        indexes=indexes,
        page_indexes_added=prepared.pages.added,
        column_indexes_added=prepared.pages.added_bounds,
        pages_unknown=tuple(prepared.pages.unknown),
        index_bytes=tail.index_bytes,
        page_index_bytes=tail.page_index_bytes,
        seconds=time.perf_counter() - prepared.begun,
        warnings=(*prepared.original.warnings, *idle_warnings(indexes, path=path)),
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
