"""Aggregates answered from metadata: which of a task's rows, from which figures, and what is left to be read.

Only rows that provably match are answered, in whole units (pages, row groups) of exact figures; a fast path
past reading them, never another way to count. What is left are ordinary tasks for fewer rows and columns.
Distinct values are found by `distinct_answers`; what is left of them is read as for any aggregate.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from accel.format.domain import Bounds
from accel.planning.aggregates import Aggregates, Function, Tally, tally_constant
from accel.planning.distinct_answers import DistinctValues, DistinctWay
from accel.planning.exact_figures import answerable, tally_units
from accel.planning.handle import FileHandle
from accel.planning.projection import field_leaves, indexed_as_read, path_leaves, type_at
from accel.planning.query import FileQuery
from accel.planning.read_request import OnBadIndex, Steps, read_ranges
from accel.planning.selection import RowSelection
from accel.planning.task import ScanTask, TaskFile
from accel.planning.zone_sources import LeafMeasure, ZoneSources
from accel.ranges import ByteRange, Want

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s
    from accel.planning.index_lookup import ReadDictionary

__all__ = [
    "MEASURES_KEY",
    "MetadataAnswer",
    "PlacedMeasures",
    "RemainingReads",
    "answer_tasks",
    "narrow_tasks",
    "place_measures",
    "remaining_tasks",
]

# Figures are fetched when the pages that they may save are so many times their size.
_WORTH = 2


@dataclass(slots=True)
class MetadataAnswer:
    """The figures that metadata gives for the tasks of one file, and the tasks that remain to be read."""

    tasks: list[ScanTask]
    tallies: tuple[Tally, ...]
    """By measure."""
    rows: int = 0
    """Rows of which nothing is read."""
    units: Counter[str] = field(default_factory=Counter)
    """Where distinct values come from: units by their level and the way in which they are answered."""


@dataclass(frozen=True, slots=True, eq=False)
class _Unit:
    """Figures, and which of their units are answered."""

    bounds: Bounds
    units: Bools


@dataclass(slots=True)
class PlacedMeasures:
    """The sources of the figures for the tasks of a file, and the figures that were chosen."""

    columns: list[LeafMeasure]
    by_rows: list[int]
    """Measures that only count rows: of columns that are never null here."""
    constants: dict[int, pa.Scalar]
    absent: list[int]
    """Measures of columns that the file has not: all null."""
    unknown: list[int]
    """Measures of nested or foreign columns: always read."""
    open_to: dict[int, dict[int, RowSelection]] = field(default_factory=dict)
    """By the ordinal of a measure of distinct values and the place of a task, the rows that are not
    answered."""
    chosen: dict[tuple[int, int], _Unit] = field(default_factory=dict)
    """By the place of a task and the ordinal of a measure."""
    of_file: dict[int, Bounds] = field(default_factory=dict)


def answer_tasks(
    handle: FileHandle,
    tasks: Sequence[ScanTask],
    *,
    aggregates: Aggregates,
    selected: bool,
    probe_min_bytes: int,
    read_dictionary: ReadDictionary,
    on_bad_index: OnBadIndex,
) -> Steps[MetadataAnswer]:
    """Answer what can be answered of one file.

    Parameters
    ----------
    handle : FileHandle
    tasks : sequence of ScanTask
        All of the file's, in order, with the aggregates' columns as their output.
    aggregates : Aggregates
    selected : bool
        The caller chooses rows: what pruning has left out may match.
    probe_min_bytes : int
        Figures are requested when what they may save is more, or when nothing would be left to read.
    read_dictionary : callable
        Decodes a dictionary page.
    on_bad_index : callable
        Called with each index that does not verify; it may raise.
    """
    answer = MetadataAnswer([], aggregates.tallies())
    if not tasks:
        return answer
    found = place_measures(tasks[0].file, aggregates)
    if handle.bad_toc is not None and found.columns and tasks[0].file.query.bound is None:
        # With a predicate, planning has reported it.
        on_bad_index(handle.bad_toc)
    sources = ZoneSources(handle, on_bad_index)
    for column in found.columns:
        if column.measure.distinct:
            values = DistinctValues(sources, column, tasks, answer.units, selected=selected)
            answer.tallies[column.ordinal].values = values.found
            yield from values.find(probe_min_bytes, read_dictionary)
            found.open_to[column.ordinal] = values.open_to
    complete = _complete(handle, tasks)
    open_to = _choose(sources, tasks, found, complete=complete)
    if open_to:
        wants = _worth_fetching(
            sources, tasks, found, open_to, complete=complete, probe_min_bytes=probe_min_bytes
        )
        if wants:
            stash, _ = yield from read_ranges(handle, wants)
            sources.learn(wants, stash)
            _choose(sources, tasks, found, complete=complete)
    return _settle(tasks, aggregates, found, answer)


def narrow_tasks(tasks: Sequence[ScanTask], aggregates: Aggregates) -> MetadataAnswer:
    """Answer tasks that come without their file's metadata: only rows and constants are counted."""
    total = MetadataAnswer([], aggregates.tallies())
    for _, run in itertools.groupby(tasks, lambda task: id(task.file)):
        mine = list(run)
        _settle(mine, aggregates, place_measures(mine[0].file, aggregates), total)
    return total


def place_measures(file: TaskFile, aggregates: Aggregates) -> PlacedMeasures:
    """Find the columns of the measures in one file."""
    found = PlacedMeasures([], [], {}, [], [])
    schema = file.schema
    for ordinal, measure in enumerate(aggregates.measures):
        if measure.path[0] == file.question.row_number:
            found.unknown.append(ordinal)
            continue
        constant = file.query.output_constants.get(measure.path[0])
        if constant is not None and constant.is_valid:
            found.constants[ordinal] = constant
            continue
        leaves = None if constant is not None else path_leaves(schema, file.arrow_schema, path=measure.path)
        if measure.path[0] in file.query.coalesced or (leaves is None and _is_filled(file, measure.path)):
            found.unknown.append(ordinal)
            continue
        if leaves is None or (measure.distinct and pa.types.is_null(measure.type)):
            found.absent.append(ordinal)
            continue
        leaf = schema.leaves[leaves[0]] if len(leaves) == 1 else None
        if leaf is None or leaf.max_repetition > 0 or len(leaf.path) != len(measure.path):
            found.unknown.append(ordinal)
            continue
        kind = type_at(file.arrow_schema, measure.path)
        never_null = leaf.max_definition == 0 and not pa.types.is_null(kind)
        if never_null and measure.functions == {Function.COUNT}:
            found.by_rows.append(ordinal)
        elif indexed_as_read(schema.elements[leaf.element], kind):
            found.columns.append(LeafMeasure(ordinal, measure, leaf.ordinal, kind))
        else:
            found.unknown.append(ordinal)
    return found


def _is_filled(file: TaskFile, path: tuple[str, ...]) -> bool:
    """Return whether what a file lacks, at a path or below it, has a default in structs that are there."""
    for other in file.question.evolution.defaults.values:
        above = path_leaves(file.schema, file.arrow_schema, path=other[:-1])
        if other[: len(path)] == path and above:
            return True
    return False


def _complete(handle: FileHandle, tasks: Sequence[ScanTask]) -> bool:
    """Return whether every row of the file is known to match."""
    groups = {task.row_group for task in tasks if task.is_certain}
    rows = handle.metadata.group_rows
    return len(groups) == len(tasks) == int((rows > 0).sum())


def _choose(
    sources: ZoneSources, tasks: Sequence[ScanTask], found: PlacedMeasures, *, complete: bool
) -> dict[int, list[int]]:
    """Take the best figures in memory, and return by measure the tasks with rows that have none."""
    open_to: dict[int, list[int]] = {}
    for column in found.columns:
        if column.ordinal in found.open_to:
            continue
        functions = column.measure.functions
        of_file = sources.of_file(column) if complete else None
        if of_file is not None and bool(answerable(of_file, functions).all()):
            found.of_file[column.ordinal] = of_file
            continue
        for place, task in enumerate(tasks):
            best = 0
            for bounds in sources.available(column, task.row_group, whole=task.is_certain):
                units = answerable(bounds, functions) & _inside(bounds.num_values, task.certain)
                rows = int(bounds.num_values[units].sum())
                if rows > best:
                    best = rows
                    found.chosen[place, column.ordinal] = _Unit(bounds, units)
                if rows == task.certain.count:
                    break
            if best < task.certain.count:
                open_to.setdefault(column.ordinal, []).append(place)
    return open_to


def _inside(rows: Int64s, certain: RowSelection) -> Bools:
    """Return which units, one after the other from row 0, hold none but selected rows."""
    stops = np.cumsum(rows)
    return certain.covers(stops - rows, stops) & (rows > 0)


def _worth_fetching(
    sources: ZoneSources,
    tasks: Sequence[ScanTask],
    found: PlacedMeasures,
    open_to: Mapping[int, Sequence[int]],
    *,
    complete: bool,
    probe_min_bytes: int,
) -> list[Want]:
    """Return the figures to fetch: those that the first read brought along, and the others if they pay
    together."""
    wanted: dict[ByteRange, Want] = {}
    saved = 0
    for column in found.columns:
        places = open_to.get(column.ordinal, ())
        for whole in (True, False):
            here = [tasks[place] for place in places if tasks[place].is_certain is whole]
            groups = {task.row_group for task in here}
            wants = sources.wants(column, groups, whole=whole, all_rows=complete) if groups else []
            wanted |= {want.range: want for want in wants}
            if wants:
                saved += sum(_savable(task, column.leaf) for task in here)
    free = [want for want in wanted.values() if sources.handle.in_tail(want.range) is not None]
    cost = sum(span.length for span in wanted) - sum(want.range.length for want in free)
    pays = saved >= _WORTH * cost and (saved >= probe_min_bytes or complete)
    return list(wanted.values()) if pays else free


def _savable(task: ScanTask, leaf: int) -> int:
    """Return the bytes of a leaf that need not be read if all rows that are known to match are answered."""
    total = 0
    for reads in task.reads:
        if reads.column == leaf and reads.whole:
            total += reads.nbytes if task.is_certain else 0
        elif reads.column == leaf:
            inside = task.certain.covers(reads.first_row, reads.stop_row)
            total += int(reads.size[inside].sum())
    return total


def _settle(
    tasks: Sequence[ScanTask], aggregates: Aggregates, found: PlacedMeasures, answer: MetadataAnswer
) -> MetadataAnswer:
    """Add what is answered to an answer, and make the tasks of the rest."""
    measures = aggregates.measures
    distinct = any(measure.distinct for measure in measures)
    # One row that is certain to match has all values that there are.
    constant = len(measures) == len(found.constants) + len(found.absent)
    proven = constant and distinct and all(measure.distinct for measure in measures)
    proven = proven and any(bool(task.certain) for task in tasks)
    if proven:
        answer.units[f"files by {DistinctWay.PATH}"] += 1
    for ordinal, bounds in found.of_file.items():
        every = np.ones(len(bounds), bool)
        answer.tallies[ordinal].add(tally_units(bounds, every, measures[ordinal].functions))
    leftover = RemainingReads(
        aggregates,
        leaves={column.ordinal: column.leaf for column in found.columns},
        by_rows=tuple(found.by_rows),
        constants=tuple(found.constants),
        absent=tuple(found.absent),
    )
    for place, task in enumerate(tasks):
        answered: dict[int, RowSelection] = {ordinal: task.rows for ordinal in found.of_file}
        for ordinal, still in found.open_to.items():
            rest = still.get(place)
            answered[ordinal] = task.rows if rest is None else task.rows.without(rest, task.num_rows)
        for column in found.columns:
            unit = found.chosen.get((place, column.ordinal))
            if unit is not None and column.ordinal not in answered:
                starts = np.cumsum(unit.bounds.num_values) - unit.bounds.num_values
                answered[column.ordinal] = RowSelection.from_units(starts, task.num_rows, keep=unit.units)
        read = leftover.rows_to_read(task, answered, unknown=found.unknown)
        left = [] if proven else remaining_tasks(leftover, task, read=read)
        if left and distinct:
            answer.units["row groups read"] += 1
        for column in found.columns:
            unit = found.chosen.get((place, column.ordinal))
            taken = read[column.ordinal].count < task.rows.count
            if unit is not None and taken and column.ordinal not in found.of_file:
                told = tally_units(unit.bounds, unit.units, column.measure.functions)
                answer.tallies[column.ordinal].add(told)
        rows = task.rows.count - sum(part.rows.count for part in left)
        for ordinal in found.by_rows:
            answer.tallies[ordinal].count += rows
        for ordinal, value in found.constants.items():
            answer.tallies[ordinal].add(tally_constant(measures[ordinal], value, rows=rows))
        for ordinal in found.absent:
            null = pa.nulls(1, measures[ordinal].type)[0]
            answer.tallies[ordinal].add(tally_constant(measures[ordinal], null, rows=rows))
        answer.rows += rows
        answer.tasks += left
    return answer


MEASURES_KEY = b"accel.measures"
"""The key in the schema of a remaining task that lists the measures that its rows count for."""

# With more kinds of rows in a row group than this, its measures are read together.
_MOST_TASKS = 8


@dataclass(slots=True)
class RemainingReads:
    """The parts that the remaining tasks of one file share."""

    aggregates: Aggregates
    leaves: Mapping[int, int]
    """The leaf of each measure that may be answered by units."""
    by_rows: tuple[int, ...]
    """Measures that only count rows."""
    constants: tuple[int, ...]
    """Measures of partition columns."""
    absent: tuple[int, ...]
    """Measures of columns that the file has not: all null."""
    _files: dict[tuple[int, ...], TaskFile] = field(default_factory=dict)

    def rows_to_read(
        self, task: ScanTask, answered: Mapping[int, RowSelection], *, unknown: Sequence[int]
    ) -> dict[int, RowSelection]:
        """Return, for each measure with a column of its own, the rows of the task that have no answer.

        A chunk that can only be read whole is either left alone or read once, for all measures that are not
        answered completely.
        """
        read = {ordinal: task.rows for ordinal in (*self.leaves, *unknown)}
        for ordinal, rows in answered.items():
            read[ordinal] = task.rows.without(rows, task.num_rows)
        rest = {ordinal for ordinal, rows in read.items() if rows}
        chunks = {self.leaves[ordinal] for ordinal in rest if ordinal in self.leaves}
        if (
            any(reads.whole and reads.column in chunks for reads in task.reads)
            or len(_split(task, read)) > _MOST_TASKS
        ):
            read |= {ordinal: task.rows for ordinal in rest}
        return read

    def file(self, task: ScanTask, measures: tuple[int, ...]) -> TaskFile:
        """Return the task's file, with the columns of these measures as its output, and those that take no
        reading."""
        file = self._files.get(measures)
        if file is None:
            file = replace(task.file, query=self._query(task.file, measures))
            self._files[measures] = file
        return file

    def _query(self, file: TaskFile, measures: tuple[int, ...]) -> FileQuery:
        chosen = (*measures, *self.constants, *self.absent)
        output = self.aggregates.project(chosen)
        present = {self.aggregates.measures[ordinal].path[0] for ordinal in (*measures, *self.constants)}
        leaves: set[int] = set()
        constants: dict[str, pa.Scalar] = {}
        for column in output:
            value = file.query.output_constants.get(column.name)
            if column.name == file.question.row_number:
                continue
            if column.name not in present:
                constants[column.name] = pa.nulls(1, column.type)[0]
            elif value is not None:
                constants[column.name] = value
            else:
                leaves.update(field_leaves(file.schema, file.arrow_schema, column.name, column.type))
        listed = f"{_listed(chosen)};{_listed(self.by_rows)}"
        return replace(
            file.query,
            output=output.with_metadata({MEASURES_KEY: listed.encode()}),
            output_leaves=tuple(sorted(leaves)),
            output_constants=constants,
        )


def _listed(ordinals: Sequence[int]) -> str:
    return ",".join(map(str, ordinals))


def remaining_tasks(
    leftover: RemainingReads, task: ScanTask, *, read: Mapping[int, RowSelection]
) -> list[ScanTask]:
    """Return the tasks that read, for each measure, the rows in `read`; every undecided row is among them."""
    out = []
    for measures, rows in _split(task, read).items():
        file = leftover.file(task, measures)
        certain = rows.intersect(task.certain)
        maybe = rows.without(certain, task.num_rows)
        filters = frozenset(file.query.filter_leaves) if maybe else frozenset[int]()
        outputs = frozenset(file.query.output_leaves)
        reads = [
            replace(
                leaf.narrow(rows if leaf.leaf in outputs else maybe),
                for_filter=leaf.leaf in filters,
                for_output=leaf.leaf in outputs,
            )
            for leaf in task.reads
            if leaf.leaf in filters or leaf.leaf in outputs
        ]
        out.append(replace(task, file=file, rows=rows, certain=certain, reads=tuple(reads)))
    return out


def _split(task: ScanTask, read: Mapping[int, RowSelection]) -> dict[tuple[int, ...], RowSelection]:
    """Return the rows to read, by the measures that they are read for."""
    doubtful = task.rows.without(task.certain, task.num_rows)
    if not read:
        return {(): doubtful} if doubtful else {}
    ordinals = sorted(read)
    ends = [edge for rows in read.values() for edge in (rows.starts, rows.stops)]
    cuts = np.unique(np.concatenate([np.array([0, task.num_rows], np.int64), *ends]))
    wanted = np.array([read[ordinal].overlaps(cuts[:-1], int(cuts[-1])) for ordinal in ordinals], bool)
    parts: dict[tuple[int, ...], list[int]] = {}
    for at, flags in enumerate(wanted.T.tolist()):
        measures = tuple(ordinal for ordinal, flag in zip(ordinals, flags, strict=True) if flag)
        if measures:
            parts.setdefault(measures, []).append(at)
    return {
        measures: RowSelection.of([(int(cuts[at]), int(cuts[at + 1])) for at in places])
        for measures, places in parts.items()
    }
