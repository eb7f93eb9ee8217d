"""The distinct values of a column answered from metadata: which units of a file need not be read, and by which source.

A unit (file, row group, page) is answered where its set of values is known exactly: every value in it occurs. Its values are
then taken if all of its rows are known to match, or filtered by the predicate if that looks at no other column. What is
left are ordinary tasks for fewer rows and no other column.

A dictionary page is such a set only where the whole chunk is encoded by it and its writer lists no other entries. Bounds
are where both are one value, or two neighbours that both occur.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from accel.arrays import mask, repeat_scalar
from accel.errors import AccelError, IndexFormatError
from accel.format.domain import Domain
from accel.format.embedded import Entry, verify_blob
from accel.format.model import Physical
from accel.format.writers import lists_used_values
from accel.indexes.distinct import Distinct, ParsedDistinct
from accel.indexes.kind import Level
from accel.indexes.native import code_values, native_values, signature_of, tag_of
from accel.indexes.registry import find_kind, guarded
from accel.planning.aggregates import Aggregates, Measure
from accel.planning.distinct_values import DistinctSet, as_column
from accel.planning.handle import FileHandle
from accel.planning.metadata_answers import (
    RemainingReads,
    covered_units,
    is_whole,
    place_measures,
    remaining_tasks,
)
from accel.planning.pruning import group_bounds
from accel.planning.query import FileQuery
from accel.planning.read_request import OnBadIndex, Steps, read_ranges
from accel.planning.selection import RowSelection
from accel.planning.task import ScanTask
from accel.planning.zones import LeafMeasure, Zones, ZoneSources
from accel.predicate.kinds import kind_of
from accel.ranges import ByteRange, Kind, ReadKey, Stash, Want

if TYPE_CHECKING:
    from accel.planning.index_lookup import ReadDictionary

__all__ = ["DistinctAnswer", "DistinctWay", "answer_distinct", "narrow_distinct", "one_measure"]

_WORTH: Final = 4
"""Page indexes are fetched when the pages that they may save are so many times their size."""
_MOST_CACHED: Final = 64 << 10
"""Bytes of a dictionary that stays in memory with the metadata of the file."""


class DistinctWay(enum.StrEnum):
    """Where the distinct values of a unit come from."""

    PATH = "path"
    """The path spells the value, or the file lacks the column."""
    CATALOG = "catalog"
    """Bounds of an index outside the files, which need not be opened then."""
    BOUNDS = "bounds"
    """Statistics, a column index or a zone map, whose bounds are one value."""
    INDEX = "index"
    """An embedded index of kind `distinct`."""
    DICTIONARY = "dictionary"
    READ = "read"
    """The rows are read."""


@dataclass(slots=True)
class DistinctAnswer:
    """The distinct values that metadata gives for the tasks of one file, and the tasks that remain to be read."""

    found: DistinctSet
    tasks: list[ScanTask] = field(default_factory=list)
    rows: int = 0
    """Rows that are not read."""
    units: Counter[str] = field(default_factory=Counter)
    """Units by their level and the way in which they are answered."""

    def count(self, level: str, way: DistinctWay, number: int = 1) -> None:
        """Count units of a level that are answered in one way."""
        self.units[f"{level} by {way}" if way is not DistinctWay.READ else f"{level} read"] += number


def one_measure(measure: Measure, schema: pa.Schema) -> Aggregates:
    """Return a measure as aggregates of which there is no other."""
    return Aggregates((), (measure,), (), schema)


def narrow_distinct(tasks: Sequence[ScanTask], aggregates: Aggregates) -> list[ScanTask]:
    """Return the tasks of a plan with no more columns than have to be read."""
    out = []
    for task in tasks:
        out += remaining_tasks(_leftover(task, aggregates), task, read={0: task.rows})
    return out


def answer_distinct(
    handle: FileHandle,
    tasks: Sequence[ScanTask],
    *,
    aggregates: Aggregates,
    selected: bool,
    probe_min_bytes: int,
    read_dictionary: ReadDictionary,
    on_bad_index: OnBadIndex,
) -> Steps[DistinctAnswer]:
    """Answer what can be answered of one file.

    Parameters
    ----------
    handle : FileHandle
    tasks : sequence of ScanTask
        All of the file's, in order, with the column as their output.
    aggregates : Aggregates
        The column, as `one_measure` has it.
    selected : bool
        The caller chooses rows: what pruning has left out may match.
    probe_min_bytes : int
        Page indexes are fetched when the pages that they may save are more.
    read_dictionary : callable
        Decodes a dictionary page.
    on_bad_index : callable
        Called with each index that does not verify; it may raise.
    """
    measure = aggregates.measures[0]
    answer = DistinctAnswer(DistinctSet(measure.type))
    if not tasks:
        return answer
    file = tasks[0].file
    place = place_measures(file, aggregates)
    if place.constants or place.absent or pa.types.is_null(measure.type):
        _answer_constant(answer, tasks, measure, place.constants.get(0))
        return answer
    column = place.columns[0] if place.columns else None
    if column is None or not column.same_values or tag_of(column.kind) is not tag_of(measure.type):
        answer.tasks = narrow_distinct(tasks, aggregates)
        answer.count("row groups", DistinctWay.READ, len(tasks))
        return answer
    if handle.bad_toc is not None and file.query.bound is None:
        # With a predicate, planning has reported it.
        on_bad_index(handle.bad_toc)
    work = _Work(
        handle, column, tasks, answer, _filter_of(file.query, column, selected=selected), on_bad_index
    )
    work.take_bounds()
    work.take_indexes((yield from _read(handle, work.index_wants())))
    work.take_dictionaries((yield from _read(handle, work.dictionary_wants())), read_dictionary)
    wants = work.page_index_wants(probe_min_bytes)
    work.sources.learn(wants, (yield from _read(handle, wants)))
    work.take_pages()
    work.settle(aggregates)
    return answer


def _read(handle: FileHandle, wants: Sequence[Want]) -> Steps[Stash]:
    if not wants:
        return {}
    stash, _ = yield from read_ranges(handle, wants)
    return stash


def _leftover(task: ScanTask, aggregates: Aggregates) -> RemainingReads:
    place = place_measures(task.file, aggregates)
    return RemainingReads(
        aggregates,
        leaves={column.ordinal: column.leaf for column in place.columns},
        by_rows=(),
        constants=tuple(place.constants),
        absent=tuple(place.absent),
    )


def _answer_constant(
    answer: DistinctAnswer, tasks: Sequence[ScanTask], measure: Measure, value: pa.Scalar | None
) -> None:
    """One row that is sure to match proves the value of all rows; else the filter is evaluated."""
    if not any(task.sure for task in tasks):
        answer.tasks = list(tasks)
        answer.count("row groups", DistinctWay.READ, len(tasks))
        return
    array = pa.nulls(1, measure.type) if value is None else repeat_scalar(value, 1)
    answer.found.add_column(array)
    answer.rows = sum(task.rows.count for task in tasks)
    answer.count("files", DistinctWay.PATH)


@dataclass(frozen=True, slots=True, eq=False)
class _Filter:
    """A predicate over the column alone: whether a row matches depends on its value."""

    query: FileQuery
    path: tuple[str, ...]
    kind: pa.DataType

    def matching(self, values: pa.Array, *, null: bool) -> tuple[pa.Array, bool]:
        """Return the uniform values that match, and whether null is there and does."""
        bound = self.query.bound
        if bound is None:
            return values, null
        from accel.predicate.evaluate import outcome

        given = as_column(values, self.kind)
        given = pa.concat_arrays([given, pa.nulls(1, given.type)])
        columns = {path: repeat_scalar(value, len(given)) for path, value in self.query.constants.items()}
        found = mask(outcome(bound, {**columns, self.path: given}, len(given)))
        return values.filter(pa.array(found[:-1])), null and bool(found[-1])


def _filter_of(query: FileQuery, column: LeafMeasure, *, selected: bool) -> _Filter | None:
    """Return the predicate where it is over the column alone, or none; None where rows are chosen in another way, too."""
    path = column.measure.path
    if selected:
        return None
    for bound in query.bound.columns if query.bound is not None else ():
        if bound.path in query.constants:
            continue
        here = any(each == (path, column.leaf, bound.type) for each in query.prunable)
        if bound.path != path or not here or bound.path in query.conformed or bound.type != column.kind:
            return None
    return _Filter(query, path, column.kind)


@dataclass(slots=True)
class _Work:
    """The answering of one file."""

    handle: FileHandle
    column: LeafMeasure
    tasks: Sequence[ScanTask]
    answer: DistinctAnswer
    filter: _Filter | None
    on_bad_index: OnBadIndex
    open_to: dict[int, RowSelection] = field(default_factory=dict)
    """By the place of a task, the rows that are not answered."""
    sources: ZoneSources = field(init=False)

    def __post_init__(self) -> None:
        self.open_to = {place: task.rows for place, task in enumerate(self.tasks)}
        self.sources = ZoneSources(self.handle, self.on_bad_index)

    # -- sets ------------------------------------------------------------------------------------

    def _covers(self, task: ScanTask) -> bool:
        """Whether the set of values of a whole row group answers its task."""
        return self.filter is not None or is_whole(task)

    def _accept(self, values: pa.Array, *, null: bool) -> None:
        """Take the exact set of values of a unit."""
        if self.filter is not None:
            values, null = self.filter.matching(values, null=null)
        self.answer.found.add(values, null=null)

    def _close(self, place: int, way: DistinctWay, *, level: str = "row groups") -> None:
        del self.open_to[place]
        self.answer.count(level, way)

    # -- bounds ----------------------------------------------------------------------------------

    @property
    def _discrete(self) -> bool:
        return kind_of(self.column.kind).domain in (Domain.INTEGER, Domain.BOOLEAN)

    def _accept_unit(self, zones: Zones, unit: int) -> bool:
        found = zones.values_of(unit, discrete=self._discrete)
        if found is None:
            return False
        natives, null = found
        one = DistinctSet(self.answer.found.kind)
        one.add_natives(natives)
        self._accept(one.values(), null=null)
        return True

    def take_bounds(self) -> None:
        """Answer the row groups whose bounds, or zone map, leave no choice."""
        for place, task in enumerate(self.tasks):
            if not self._covers(task):
                continue
            for zones in self.sources.at_hand(self.column, task.row_group, whole=True):
                if len(zones) == 1 and self._accept_unit(zones, 0):
                    self._close(place, DistinctWay.BOUNDS)
                    break

    def page_index_wants(self, probe_min_bytes: int) -> list[Want]:
        """Return the page indexes to read: those in memory, and all if they may save enough."""
        places = [place for place in self.open_to if not self._reads_whole(self.tasks[place])]
        groups = {self.tasks[place].row_group for place in places}
        if self.handle.distrusted or not groups:
            return []
        wants = self.sources.page_index_wants(self.column.leaf, groups)
        free = [want for want in wants if self.handle.in_tail(want.range) is not None]
        cost = sum(want.range.length for want in wants) - sum(want.range.length for want in free)
        savable = sum(self._savable(place) for place in places if self.tasks[place].sure)
        return wants if savable >= max(_WORTH * cost, probe_min_bytes) else free

    def take_pages(self) -> None:
        """Answer pages whose bounds leave no choice, where all of their rows match, or where what may match adds nothing."""
        for place in list(self.open_to):
            task = self.tasks[place]
            for whole in (False, True):
                if not whole and self._reads_whole(task):
                    continue
                for zones in self.sources.at_hand(self.column, task.row_group, whole=whole):
                    self._take_units(place, zones)
            if not self.open_to[place]:
                del self.open_to[place]

    def _take_units(self, place: int, zones: Zones) -> None:
        task = self.tasks[place]
        stops = np.cumsum(zones.rows)
        starts = stops - zones.rows
        inside = (
            np.ones(len(zones), bool) if self.filter is not None else covered_units(task.sure, starts, stops)
        )
        still = self.open_to[place]
        wanted = np.asarray(still.counts(starts, stops) > 0)
        taken = np.zeros(len(zones), bool)
        for unit in np.flatnonzero(wanted & inside).tolist():
            taken[unit] = self._accept_unit(zones, unit)
        proven = (
            set(native_values(self.answer.found.values()).tolist())
            if bool((wanted & ~taken).any())
            else set()
        )
        for unit in np.flatnonzero(wanted & ~taken).tolist():
            taken[unit] = self._adds_nothing(zones, unit, proven)
        if bool(taken.any()):
            rows = RowSelection.from_units(starts, task.num_rows, keep=taken)
            self.open_to[place] = still.without(rows, task.num_rows)
            self.answer.count("pages", DistinctWay.BOUNDS, int(taken.sum()))

    def _adds_nothing(self, zones: Zones, unit: int, proven: set[Any]) -> bool:
        """Whether all that a unit holds was found elsewhere in the file, whichever of its rows match."""
        found = zones.values_of(unit, discrete=self._discrete)
        if found is None:
            return False
        natives, null = found
        return all(value in proven for value in natives) and (self.answer.found.null or not null)

    def _reads_whole(self, task: ScanTask) -> bool:
        return any(reads.whole and reads.column == self.column.leaf for reads in task.reads)

    # -- embedded indexes ------------------------------------------------------------------------

    def _entries(self) -> Iterator[tuple[int, Entry]]:
        """Yield the `distinct` indexes of the column, those of larger units first."""
        toc = None if self.handle.distrusted else self.handle.toc
        if toc is None:
            return
        signature = signature_of(self.column.kind)
        found = [
            (at, entry)
            for at, entry in enumerate(toc.entries)
            if entry.kind == Distinct.name
            and entry.signature_of(self.column.measure.path) == signature
            and find_kind(entry.kind, entry.version) is not None
        ]
        order = {Level.FILE: 0, Level.ROW_GROUP: 1, Level.PAGE: 2}
        for at, entry in sorted(found, key=lambda each: order.get(Level(each[1].level), 3)):
            if entry.level in order:
                yield at, entry

    def _places_of(self, entry: Entry) -> list[int]:
        """Return the open tasks that an index answers as a whole."""
        if entry.row_group < 0:
            if entry.level != Level.FILE or not self.open_to:
                return []
            every = int((self.handle.metadata.group_rows > 0).sum())
            whole = len(self.tasks) == every and all(map(is_whole, self.tasks))
            return list(self.open_to) if self.filter is not None or whole else []
        return [
            place
            for place in self.open_to
            if self.tasks[place].row_group == entry.row_group and self._covers(self.tasks[place])
        ]

    def index_wants(self) -> list[Want]:
        """Return the indexes to fetch: those that are smaller than the pages that they make needless."""
        wants: list[Want] = []
        asked: set[int] = set()
        for at, entry in self._entries():
            places = [place for place in self._places_of(entry) if place not in asked]
            missing = at not in self.handle.view.indexes
            if places and missing and entry.length <= sum(self._savable(place) for place in places):
                wants.append(_index_want(entry, self.column.leaf))
                asked.update(places)
        return wants

    def _savable(self, place: int) -> int:
        return sum(reads.nbytes for reads in self.tasks[place].reads if reads.column == self.column.leaf)

    def take_indexes(self, stash: Stash) -> None:
        """Answer the units that indexes list the values of."""
        for at, entry in self._entries():
            places = self._places_of(entry)
            parsed = self._parsed(at, entry, stash) if places else None
            if parsed is None or (parsed.values is None and bool(parsed.presence.value.any())):
                continue
            values = pa.nulls(0, pa.int64()) if parsed.values is None else parsed.values
            if len(values) and tag_of(values.type) is not tag_of(self.column.kind):
                continue
            self._accept(values, null=bool(parsed.presence.null.any()))
            for place in places:
                del self.open_to[place]
            one = entry.row_group < 0
            self.answer.count("files" if one else "row groups", DistinctWay.INDEX)

    def _parsed(self, at: int, entry: Entry, stash: Stash) -> ParsedDistinct | None:
        indexes = self.handle.view.indexes
        data = stash.get(_index_want(entry, self.column.leaf).key)
        if at not in indexes and data is not None:
            kind = find_kind(entry.kind, entry.version)
            try:
                verify_blob(entry, data)
                if kind is not None:
                    indexes[at] = guarded(
                        kind.parse, bytes(data), level=Level(entry.level), units=entry.units
                    )
            except IndexFormatError as error:
                indexes[at] = None
                error.at(path=self.handle.id.path, place="embedded index distinct")
                self.on_bad_index(error)
        parsed = indexes.get(at)
        return parsed if isinstance(parsed, ParsedDistinct) else None

    # -- dictionaries ----------------------------------------------------------------------------

    def _dictionaries(self) -> Iterator[tuple[int, ByteRange, bool]]:
        """Yield the open tasks whose chunk is its dictionary: the place, where that is, and whether it has nulls."""
        metadata, leaf, kind = self.handle.metadata, self.column.leaf, self.column.kind
        element = metadata.schema.elements[metadata.schema.leaves[leaf].element]
        if (
            self.handle.distrusted
            or element.physical is Physical.INT96
            or not lists_used_values(metadata, arrow_type=kind)
        ):
            return
        chunks = metadata.chunks
        nulls = group_bounds(self.handle, leaf, kind=kind).null_count
        for place in list(self.open_to):
            at = (self.tasks[place].row_group, leaf)
            covered = self._covers(self.tasks[place]) and int(nulls[at[0]]) >= 0
            if not covered or chunks.plain_pages[at] != 0 or chunks.dictionary_pages[at] <= 0:
                continue
            start, data = int(chunks.start[at]), int(chunks.data_page_offset[at])
            if 4 <= start < data <= int(chunks.end[at]):
                yield place, ByteRange(start, data), int(nulls[at[0]]) > 0

    def dictionary_wants(self) -> list[Want]:
        """Return the dictionaries to fetch. Reading the pages would take them, too."""
        cached = self.handle.view.dictionaries
        return [
            Want(ReadKey(Kind.DICTIONARY, group, self.column.leaf), span)
            for place, span, _ in self._dictionaries()
            if (group := self.tasks[place].row_group, self.column.leaf) not in cached
        ]

    def take_dictionaries(self, stash: Stash, read_dictionary: ReadDictionary) -> None:
        """Answer the row groups whose dictionaries are there."""
        metadata, leaf = self.handle.metadata, self.column.leaf
        element = metadata.schema.elements[metadata.schema.leaves[leaf].element]
        for place, _, null in self._dictionaries():
            group = self.tasks[place].row_group
            values = self.handle.view.dictionaries.get((group, leaf))
            page = stash.get(ReadKey(Kind.DICTIONARY, group, leaf))
            if values is None and page is not None:
                try:
                    codec = int(metadata.chunks.codec[group, leaf])
                    values = read_dictionary(page, codec, element, self.column.kind)
                except AccelError:
                    continue  # reading the pages raises the error
                if values.nbytes <= _MOST_CACHED:
                    self.handle.view.dictionaries[group, leaf] = values
            if values is not None:
                self._accept(code_values(values).values, null=null)
                self._close(place, DistinctWay.DICTIONARY)

    # -- the rest --------------------------------------------------------------------------------

    def settle(self, aggregates: Aggregates) -> None:
        """Make the tasks of the rows that are left."""
        for place, task in enumerate(self.tasks):
            rows = self.open_to.get(place)
            if rows is None:
                self.answer.rows += task.rows.count
                continue
            left = remaining_tasks(_leftover(task, aggregates), task, read={0: rows})
            self.answer.tasks += left
            self.answer.rows += task.rows.count - rows.count
            self.answer.count("row groups", DistinctWay.READ)


def _index_want(entry: Entry, leaf: int) -> Want:
    span = ByteRange(entry.offset, entry.offset + entry.length)
    return Want(ReadKey(Kind.INDEX, entry.row_group, leaf, span.start), span)
