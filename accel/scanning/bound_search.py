"""The search for the first rows of an order, from the best bounds down.

In: the files of a source, and what is known of the first key in each: bounds of a table or an index,
statistics of row groups, page indexes. Out: the rows, in order. Files are opened, row groups divided into
pages, and pages read, as long as one of them may hold a row that comes before those found. What is read there
are the columns of the order and of the predicate; the other columns follow in the end, for the rows of the
result alone.

What bounds memory is the number of rows of the result, and the admission of `run_limits` for what is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from accel import kernels
from accel.arrays import from_numpy, integers, whole
from accel.decode.trim import holds_views
from accel.errors import redact
from accel.format.domain import Bounds
from accel.planning.column_bounds import ColumnBounds, known_counts
from accel.planning.file_entry import FileBlock, FileEntry
from accel.planning.file_planner import FilePlan
from accel.planning.handle import FileHandle
from accel.planning.ordered_reads import FirstRead, OrderedReads, show_best, show_last
from accel.planning.page_indexes import index_want, take_page_indexes
from accel.planning.projection import indexed_as_read, path_leaves, type_at
from accel.planning.pruning import bounds_of_pages, group_bounds
from accel.planning.query import Question
from accel.planning.read_request import OnBadIndex, Steps, read_ranges
from accel.planning.row_order import ANY, Rank, best_ranks, order_rows, rank_of, worst_ranks
from accel.planning.selection import RowSelection
from accel.planning.task import ScanTask
from accel.predicate.kinds import kind_of
from accel.ranges import Kind
from accel.runtime.tasks import Group
from accel.scanning.block_pruning import known_files
from accel.scanning.file_jobs import PlannedTasks, skips_over
from accel.scanning.resolved_source import ResolvedSource
from accel.scanning.run import Run
from accel.scanning.spec import SKIPPED, OnError
from accel.store.request_errors import foremost

if TYPE_CHECKING:
    from accel.arrays import Int64s
    from accel.scanning.ordering import TopRows

__all__ = ["BoundSearch"]

T = TypeVar("T")

_MOST_SHOWN = 8
"""Units that `explain` shows."""


@dataclass(slots=True, eq=False)
class _Unit:
    """Rows that may hold some of the first: a file that is not opened, a row group, or pages to be read."""

    best: Rank
    """No row of it comes before."""
    file: int
    first_row: int = 0
    """Within the file; no row of it is before."""
    certain: tuple[int, Rank | None] = (0, None)
    """A number of its rows that match for certain, and a rank that none of these comes after."""
    task: ScanTask | None = None
    rows: RowSelection | None = None
    """Those of a row group that are to be read; None where it may be divided into pages first."""
    expected: float = 0.0
    """The number of rows that match, as far as it can be guessed."""


@dataclass(slots=True, eq=False)
class _Opened:
    """A file, and what is needed to read rows of it."""

    file: FileEntry
    handle: FileHandle | None = None
    leaf: int | None = None
    """The leaf of the first key, where metadata can describe it."""
    kind: pa.DataType | None = None
    partition: Mapping[str, pa.Scalar] = field(default_factory=dict)
    constant: pa.Scalar | None = None
    """The value of the first key in all rows of the file, where it is no column of it."""
    tasks: Sequence[ScanTask] = ()


class BoundSearch:
    """One search through the files of a source, from the best bounds down. Used on the I/O loop."""

    def __init__(self, source: ResolvedSource, top: TopRows) -> None:
        self._source = source
        self._reader = source.reader
        self._top = top
        self._key = top.order[0]
        self._files: list[_Opened] = []
        self._units: list[_Unit] = []
        self._found: pa.Table | None = None
        self._depth = 0
        """Round trips so far, one after the other."""
        self._permit = asyncio.Semaphore(source.spec.options.max_files_in_flight)

    async def run(self) -> pa.Table:
        """Return the rows in their order, with the columns of the result."""
        async with aclosing(self._source):
            question = await self._find_files()
            width = 1
            while (chosen := await self._next(width)) is not None:
                await self._read(chosen, question)
                width *= 2
        rows = await self._finish()
        metrics = self._reader.metrics
        metrics.add("rows_out", rows.num_rows - metrics.rows_out)
        return rows

    async def preview(self) -> OrderedReads:
        """Return in which order rows would be read: what lies before the first read is done, and no row is
        read."""
        async with aclosing(self._source):
            question = await self._find_files()
            first = await self._next(1) or []
        self._units += first
        certain, is_left = self._certain(), self._is_left()
        top, kind = self._top, type_at(question.schema, self._top.paths[0])

        return OrderedReads(
            order=tuple(map(str, top.order)),
            limit=top.limit,
            files=(sum(one.handle is not None for one in self._files), len(self._files)),
            first=tuple(self._shown(unit, kind) for unit in first[:_MOST_SHOWN]),
            first_parts=len(first),
            left_parts=sum(map(is_left, self._units)) if top.limit else 0,
            bound=None if certain is None else show_last(self._key, certain, kind),
        )

    def _shown(self, unit: _Unit, kind: pa.DataType) -> FirstRead:
        """Return what `explain` says of a unit that is read."""
        task, opened = unit.task, self._files[unit.file]
        if task is None or unit.rows is None or opened.handle is None:
            raise RuntimeError("a file is opened before its rows are read")
        begins = int(opened.handle.metadata.group_rows[: task.row_group].sum())
        return FirstRead(
            file=redact(opened.file.url),
            row_group=task.row_group,
            rows=(begins + int(unit.rows.starts[0]), begins + int(unit.rows.stops[-1])),
            bound=show_best(self._key, unit.best, kind),
        )

    async def _find_files(self) -> Question:
        """Take in all files of the source; return the question."""
        question = await self._source.question()
        block: FileBlock | None = await self._source.first_block()
        while block is not None:
            self._depth = max(self._depth, block.round_trips)
            self._take(block, question)
            block = await self._source.next_block()
        return question

    # -- which units -----------------------------------------------------------------------------

    async def _next(self, width: int) -> list[_Unit] | None:
        """Return the units to read next, whose files are open; None where no other can hold a row of the
        result."""
        while (chosen := self._choose(width)) is not None:
            unread = [unit for unit in chosen if unit.rows is None]
            gone = {id(unit) for unit in unread or chosen}
            self._units = [unit for unit in self._units if id(unit) not in gone]
            if not unread:
                return chosen
            await self._divide(unread)
        return None

    def _choose(self, width: int) -> list[_Unit] | None:
        """Return the units to look at next; None where no other can hold a row of the result."""
        wanted = self._top.limit
        is_left = self._is_left()
        self._units = [unit for unit in self._units if is_left(unit)]
        if not self._units or not wanted:
            return None
        unknown = [unit for unit in self._units if unit.best == ANY]
        if unknown:
            # They have to be looked at, whatever is found elsewhere.
            unopened = [unit for unit in unknown if unit.rows is None]
            return unopened or unknown

        self._units.sort(key=lambda unit: (unit.file, unit.first_row))
        self._units = self._key.sort(self._units, lambda unit: unit.best)
        chosen: list[_Unit] = []
        expected = 0.0
        for unit in self._units:
            if len(chosen) >= width and expected >= wanted:
                break
            chosen.append(unit)
            expected += unit.expected
        return chosen

    def _is_left(self) -> Callable[[_Unit], bool]:
        """Return a function that tells whether a unit may hold a row of the result."""
        key, certain = self._key, self._certain()
        found, last, place = self._found, None, (0, 0)
        if found is not None and found.num_rows == self._top.limit:
            end = found.num_rows - 1
            last = rank_of(key, self._keys_of(found)[0], end)
            place = found[self._top.ordinal][end].as_py(), found[self._top.number][end].as_py()
        alone = len(self._top.order) == 1

        def is_left(unit: _Unit) -> bool:
            if unit.best == ANY:
                return True
            if certain is not None and key.is_before(certain, unit.best):
                return False
            if last is None or key.is_before(unit.best, last):
                return True
            if key.is_before(last, unit.best):
                return False
            return not alone or (unit.file, unit.first_row) < place

        return is_left

    def _certain(self) -> Rank | None:
        """Return a rank that the last row of the result does not come after, by the counts of units; None
        where these are too few."""
        counted = [
            (rank, count) for unit in self._units for count, rank in (unit.certain,) if rank is not None
        ]
        rows = 0
        for rank, count in self._key.sort(counted, lambda one: one[0]):
            rows += count
            if rows >= self._top.limit:
                return rank
        return None

    # -- files -----------------------------------------------------------------------------------

    def _take(self, block: FileBlock, question: Question) -> None:
        """Add the files of a block that may hold matching rows."""
        source, key, path = self._source, self._key, self._top.paths[0]
        kind = type_at(question.schema, path)
        ranks: dict[int, tuple[Rank, tuple[int, Rank | None], int]] = {}
        whole_files = source.spec.where is None and source.spec.selection is None
        bounds = _block_bounds(block, path, kind)
        if bounds is not None:
            rows = bounds.num_values.tolist()
            best, worst = best_ranks(key, bounds), worst_ranks(key, bounds)
            ranks = {
                id(block.files[at]): (best[at], worst[at], rows[at])
                for at in np.flatnonzero(known_files(block)).tolist()
            }
        for file in source.chosen(block, question):
            if source.paths.exclude_as_listed(file) and source.paths.exclude(file, question):
                source.count(FilePlan(), 1)
                continue
            self._files.append(_Opened(file))
            known = ranks.get(id(file)) or self._by_facts(file, kind)
            unit = _Unit(ANY, len(self._files) - 1)
            if known is not None:
                unit.best, certain, num_rows = known
                unit.expected = max(0, num_rows)
                if whole_files and file.deleted is None:
                    unit.certain = certain
            self._units.append(unit)

    def _by_facts(
        self, file: FileEntry, kind: pa.DataType
    ) -> tuple[Rank, tuple[int, Rank | None], int] | None:
        """Return the ranks of a file by what an index outside the files has of it, and its rows."""
        facts = file.facts
        figures = None if facts is None else facts.figures.get(self._top.paths[0])
        if facts is None or figures is None or figures.bounds is None:
            return None
        here, there, bounds = kind_of(figures.type), kind_of(kind), figures.bounds
        if (
            not file.version.is_same(facts.version)
            or here.domain is not there.domain
            or here.step != there.step
        ):
            return None
        rows = -1 if facts.num_rows is None else facts.num_rows
        return best_ranks(self._key, bounds)[0], worst_ranks(self._key, bounds)[0], rows

    async def _divide(self, units: Sequence[_Unit]) -> None:
        """Open files, and divide row groups into pages."""
        groups: dict[int, list[_Unit]] = {}
        for unit in units:
            if unit.task is not None:
                groups.setdefault(unit.file, []).append(unit)
        trips = await _all(
            [
                *(self._open(unit.file) for unit in units if unit.task is None),
                *(self._find_pages(at, some) for at, some in groups.items()),
            ]
        )
        self._depth += max(trips)

    async def _open(self, at: int) -> int:
        """Open and plan a file; return the round trips that it took."""
        opened, top = self._files[at], self._top
        file = opened.file
        try:
            async with self._permit:
                await self._source.plan_current(file)
        except SKIPPED as error:
            skips = self._source.on_error is OnError.SKIP
            if not skips or not skips_over(error, file.url, self._reader):
                raise
            return 1
        # The entry that was planned may be another one, with its deleted rows loaded.
        found = top.opened.get(file.url)
        if found is None:
            return 0  # its path excludes it
        opened.file, opened.handle, plan = found
        opened.tasks = plan.tasks
        counts = self._source.counts
        trips = counts.opening_trips + counts.index_trips
        if not plan.tasks:
            return trips
        _, arrow_schema = self._reader.opener.schemas.under_names(opened.file, opened.handle)
        question = await self._source.question()
        opened.partition = self._source.constants_of(opened.file, arrow_schema, question=question)
        self._locate(opened, plan.tasks[0])
        bounds = self._group_bounds(opened)
        first_rows = np.cumsum(opened.handle.metadata.group_rows) - opened.handle.metadata.group_rows
        best = worst = None
        if bounds is not None:
            best, worst = best_ranks(self._key, bounds), worst_ranks(self._key, bounds)
        for task in plan.tasks:
            group = task.row_group
            unit = _Unit(ANY if best is None else best[group], at, int(first_rows[group]), task=task)
            unit.expected = task.certain.count + (task.rows.count - task.certain.count) * task.share
            if worst is not None and task.certain.count == task.num_rows:
                unit.certain = worst[group]
            if not self._has_pages(opened, group):
                unit.rows = task.rows
            self._units.append(unit)
        return trips

    def _locate(self, opened: _Opened, task: ScanTask) -> None:
        """Find the first key in an opened file."""
        path, file = self._top.paths[0], task.file
        constant = file.query.output_constants.get(path[0])
        if constant is not None:
            opened.constant = constant if len(path) == 1 else None
            return
        leaves = path_leaves(file.schema, file.arrow_schema, path=path)
        if leaves is None or len(leaves) != 1:
            return
        leaf, kind = file.schema.leaves[leaves[0]], type_at(file.arrow_schema, path)
        here, there = kind_of(kind), kind_of(type_at(file.question.schema, path))
        same = here.domain is there.domain and here.step == there.step
        plain = leaf.max_repetition == 0 and len(leaf.path) == len(path)
        if plain and same and indexed_as_read(file.schema.elements[leaf.element], kind):
            opened.leaf, opened.kind = leaf.ordinal, kind

    def _group_bounds(self, opened: _Opened) -> Bounds | None:
        if opened.handle is None:
            return None
        if opened.leaf is not None and opened.kind is not None:
            return group_bounds(opened.handle, opened.leaf, kind=opened.kind)
        if opened.constant is None:
            return None
        from accel.predicate.value_bounds import constant_bounds

        return constant_bounds(opened.constant, opened.handle.metadata.group_rows)

    @staticmethod
    def _has_pages(opened: _Opened, group: int) -> bool:
        handle, leaf = opened.handle, opened.leaf
        if handle is None or leaf is None or handle.distrusted:
            return False
        return int(handle.metadata.chunks.column_index_offset[group, leaf]) > 0

    async def _find_pages(self, at: int, units: Sequence[_Unit]) -> int:
        """Split row groups of one file by the page index of the first key; return the round trips that it
        took."""
        opened = self._files[at]
        handle, leaf, kind = opened.handle, opened.leaf, opened.kind
        if handle is None or leaf is None or kind is None:
            raise RuntimeError("a file is opened before its pages are found")

        def steps(on_bad_index: OnBadIndex) -> Steps[None]:
            view, chunks = handle.view, handle.metadata.chunks
            wants = [
                want
                for unit in units
                if unit.task is not None
                for kind, have in (
                    (Kind.OFFSET_INDEX, view.offset_indexes),
                    (Kind.COLUMN_INDEX, view.column_indexes),
                )
                if (unit.task.row_group, leaf) not in have
                for want in index_want(chunks, kind, unit.task.row_group, leaf)
            ]
            if wants:
                stash, _ = yield from read_ranges(handle, wants)
                take_page_indexes(handle, wants, stash=stash, on_bad_index=on_bad_index)

        _, trips = await self._reader.ask(opened.file, handle, steps)
        for unit in units:
            task = unit.task
            if task is None:
                continue
            found = bounds_of_pages(handle, leaf, kind=kind, row_group=task.row_group)
            if found is None:
                unit.rows = task.rows
                self._units.append(unit)
                continue
            self._units += self._pages(unit, task, *found)
        return trips

    def _pages(self, unit: _Unit, task: ScanTask, starts: Int64s, bounds: Bounds) -> list[_Unit]:
        """Return the pages of a row group that hold rows which may match."""
        stops = np.append(starts[1:], task.num_rows)
        rows, certain = task.rows.counts(starts, stops), task.certain.counts(starts, stops)
        best, worst = best_ranks(self._key, bounds), worst_ranks(self._key, bounds)
        out = []
        for at in np.flatnonzero(rows).tolist():
            start, stop = int(starts[at]), int(stops[at])
            page = _Unit(best[at], unit.file, unit.first_row + start, task=task)
            page.rows = task.rows.within(start, stop)
            page.expected = float(certain[at] + (rows[at] - certain[at]) * task.share)
            if certain[at] == stop - start:
                page.certain = worst[at]
            out.append(page)
        return out

    # -- rows ------------------------------------------------------------------------------------

    async def _read(self, units: Sequence[_Unit], question: Question) -> None:
        """Read the keys of units, and take in the first of their rows."""
        by_file: dict[int, dict[int, RowSelection]] = {}
        for unit in units:
            if unit.task is not None and unit.rows is not None:
                groups = by_file.setdefault(unit.file, {})
                group = unit.task.row_group
                groups[group] = groups[group].union(unit.rows) if group in groups else unit.rows
        run = await self._started(by_file, question, ordered=False)
        try:
            while (batch := await run.take()) is not None:
                self._add(pa.Table.from_batches([batch]))
        finally:
            await run.close()
        self._depth = max(self._depth, self._reader.metrics.round_trips)

    async def _started(
        self, selected: Mapping[int, Mapping[int, RowSelection]], question: Question, *, ordered: bool
    ) -> Run:
        """Begin to read some rows of files."""
        tasks: list[ScanTask] = []
        depth = 0
        for at in sorted(selected):
            opened = self._files[at]
            if opened.handle is None:
                raise RuntimeError("a file is opened before its rows are read")
            plan, trips = await self._reader.plan(
                opened.file,
                opened.handle,
                question,
                partition={**opened.partition, self._top.ordinal: pa.scalar(at, pa.int64())},
                selection=selected[at],
            )
            tasks += plan.tasks
            depth += trips
        jobs = PlannedTasks(self._reader, tasks, question=question, depth=self._depth + depth)
        return Run(jobs, limit=None, ordered=ordered, speculates=False)

    def _keys_of(self, rows: pa.Table) -> list[pa.Array]:
        columns = []
        for path in self._top.paths:
            array = whole(rows[path[0]])
            for name in path[1:]:
                array = array.flatten()[array.type.get_field_index(name)]
            columns.append(_plain(array))
        return columns

    def _add(self, rows: pa.Table) -> None:
        """Take in rows, and keep the first."""
        top = self._top
        if self._found is not None:
            rows = pa.concat_tables([self._found, rows]).unify_dictionaries()
        places = [integers(whole(rows[name])) for name in (top.ordinal, top.number)]
        order = order_rows(top.order, self._keys_of(rows), places)[: top.limit]
        self._found = _take(rows, order)

    async def _finish(self) -> pa.Table:
        """Read the columns of the result at the rows that were found."""
        whole_question = self._top.whole
        if whole_question is None:
            raise RuntimeError("the question is settled before rows are read")
        found = self._found
        if found is None or not found.num_rows:
            return whole_question.output.empty_table()
        output = whole_question.output
        # The keys have been read.
        have = {field.name for field in found.schema if field.type == _type_in(output, field.name)}
        rest = pa.schema([field for field in output if field.name not in have])
        rows = found
        if len(rest) or not len(output):
            rows = await self._read_at(found, replace(whole_question, where=None, output=rest))
        if not len(output):
            return rows
        columns = [found[field.name] if field.name in have else rows[field.name] for field in output]
        return pa.Table.from_arrays(columns, schema=output)

    async def _read_at(self, found: pa.Table, question: Question) -> pa.Table:
        """Read other columns of the rows that were found, in their order."""
        files = integers(whole(found[self._top.ordinal]))
        numbers = integers(whole(found[self._top.number]))
        selected: dict[int, dict[int, RowSelection]] = {}
        for at in np.unique(files).tolist():
            handle = self._files[at].handle
            if handle is None:
                raise RuntimeError("a file is opened before its rows are found")
            selected[at] = _by_group(np.sort(numbers[files == at]), handle.metadata.group_rows)
        run = await self._started(selected, question, ordered=True)
        batches = []
        try:
            while (batch := await run.take()) is not None:
                batches.append(batch)
        finally:
            await run.close()
        rows = pa.Table.from_batches(batches, question.output)
        if not rows.num_columns:
            return rows
        # The rows came in the order of the files.
        places = np.lexsort((numbers, files))
        order = np.empty(len(places), np.int64)
        order[places] = np.arange(len(places))
        return _take(rows.unify_dictionaries(), order)


def _type_in(schema: pa.Schema, name: str) -> pa.DataType | None:
    at = schema.get_field_index(name)
    return None if at < 0 else schema.field(at).type


def _by_group(rows: Int64s, group_rows: Int64s) -> dict[int, RowSelection]:
    """Return ascending rows of a file by row group."""
    stops = np.cumsum(group_rows)
    groups = np.searchsorted(stops, rows, side="right")
    out = {}
    for group in np.unique(groups).tolist():
        inside = rows[groups == group] - (stops[group] - group_rows[group])
        out[group] = RowSelection.of((row, row + 1) for row in inside.tolist())
    return out


def _plain(array: pa.Array) -> pa.Array:
    if pa.types.is_run_end_encoded(array.type):
        import pyarrow.compute as pc

        return pc.run_end_decode(array)
    return array


def _take(rows: pa.Table, order: Int64s) -> pa.Table:
    """Return rows by their places."""
    places = from_numpy(np.asarray(order, np.int64))
    columns = []
    for column in rows.columns:
        array = whole(column)
        if holds_views(array.type):
            # pyarrow takes nothing from views.
            array = pa.concat_arrays([array.slice(at, 1) for at in order.tolist()] or [array.slice(0, 0)])
        else:
            array = kernels.take(array, places)
        columns.append(array)
    return pa.Table.from_arrays(columns, schema=rows.schema)


def _block_bounds(block: FileBlock, path: tuple[str, ...], kind: pa.DataType) -> Bounds | None:
    """Return what a source knows of a column in the files of a block."""
    rows = known_counts(block.num_rows, len(block.files))
    if len(path) == 1 and path[0] in block.partition_values:
        given = block.partition_values[path[0]]
        return ColumnBounds(lower=given, upper=given).judged(kind, rows)
    found = block.bounds.get(path)
    return None if found is None else found.judged(kind, rows)


async def _all(works: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Do all at the same time and return their results; of several errors raise the foremost."""
    try:
        async with Group() as group:
            tasks = [group.create_task(work) for work in works]
        return [task.result() for task in tasks]
    except BaseExceptionGroup as failures:
        raise foremost(failures) from failures
