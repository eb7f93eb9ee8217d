"""The distinct values of a column answered from metadata: which units of a file need not be read, and by
which source.

A unit (file, row group, page) is answered where its set of values is known exactly: every value in it occurs.
Its values are then taken if all of its rows are known to match, or filtered by the predicate if that looks at
no other column. What is left is for `metadata_answers`, as the rest of any aggregate.

A dictionary page is such a set only where the whole chunk is encoded by it and its writer lists no other
entries. Bounds are where both are one value, or two neighbours that both occur.
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
from accel.errors import AccelError
from accel.format.domain import Bounds
from accel.format.embedded import Entry
from accel.format.model import Physical
from accel.format.writers import lists_used_values
from accel.indexes.distinct import Distinct, ParsedDistinct
from accel.indexes.kind import Level
from accel.indexes.native import code_values, native_values, tag_of
from accel.planning.distinct_values import DistinctSet, as_column
from accel.planning.exact_figures import exact_values
from accel.planning.handle import FileHandle
from accel.planning.pruning import group_bounds
from accel.planning.query import FileQuery
from accel.planning.read_request import Steps, read_ranges
from accel.planning.selection import RowSelection
from accel.planning.task import ScanTask
from accel.planning.zone_sources import LeafMeasure, ZoneSources, want_index
from accel.ranges import ByteRange, Kind, ReadKey, Stash, Want

if TYPE_CHECKING:
    from accel.planning.index_lookup import ReadDictionary

__all__ = ["DistinctValues", "DistinctWay"]

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
    """Return the predicate where it is over the column alone, or none; None where rows are chosen in another
    way, too."""
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
class DistinctValues:
    """The distinct values that the metadata of one file gives.

    Parameters
    ----------
    sources : ZoneSources
    column : LeafMeasure
    tasks : sequence of ScanTask
        All of the file's, in order.
    units : Counter
        Counts units by their level and the way in which they are answered.
    selected : bool
        The caller chooses rows: what pruning has left out may match.
    """

    sources: ZoneSources
    column: LeafMeasure
    tasks: Sequence[ScanTask]
    units: Counter[str]
    selected: bool = field(kw_only=True)
    found: DistinctSet = field(init=False)
    open_to: dict[int, RowSelection] = field(init=False)
    """By the place of a task, the rows that are not answered."""
    handle: FileHandle = field(init=False)
    filter: _Filter | None = field(init=False)

    def __post_init__(self) -> None:
        self.found = DistinctSet(self.column.measure.type)
        self.open_to = {place: task.rows for place, task in enumerate(self.tasks)}
        self.handle = self.sources.handle
        query = self.tasks[0].file.query
        self.filter = _filter_of(query, self.column, selected=self.selected)

    def find(self, probe_min_bytes: int, read_dictionary: ReadDictionary) -> Steps[None]:
        """Find the values, as far as that pays.

        Parameters
        ----------
        probe_min_bytes : int
            Page indexes are fetched when the pages that they may save are more.
        read_dictionary : callable
            Decodes a dictionary page.
        """
        if not self.column.same_form:
            return
        self._take_bounds()
        wants = self._index_wants()
        self.sources.learn(wants, (yield from _read(self.handle, wants)))
        self._take_indexes()
        self._take_dictionaries((yield from _read(self.handle, self._dictionary_wants())), read_dictionary)
        wants = self._page_index_wants(probe_min_bytes)
        self.sources.learn(wants, (yield from _read(self.handle, wants)))
        self._take_pages()

    # -- sets ------------------------------------------------------------------------------------

    def _covers(self, task: ScanTask) -> bool:
        """Return whether the set of values of a whole row group answers its task."""
        return self.filter is not None or task.is_certain

    def _accept(self, values: pa.Array, *, null: bool) -> None:
        """Take the exact set of values of a unit."""
        if self.filter is not None:
            values, null = self.filter.matching(values, null=null)
        self.found.add(values, null=null)

    def _close(self, place: int, way: DistinctWay, *, level: str = "row groups") -> None:
        del self.open_to[place]
        self.units[f"{level} by {way}"] += 1

    # -- bounds ----------------------------------------------------------------------------------

    def _accept_unit(self, bounds: Bounds, unit: int) -> bool:
        found = exact_values(bounds, unit)
        if found is None:
            return False
        natives, null = found
        one = DistinctSet(self.found.kind)
        one.add_natives(natives)
        self._accept(one.values(), null=null)
        return True

    def _take_bounds(self) -> None:
        """Answer the row groups whose bounds, or zone map, leave no choice."""
        for place, task in enumerate(self.tasks):
            if not self._covers(task):
                continue
            for bounds in self.sources.available(self.column, task.row_group, whole=True):
                if len(bounds) == 1 and self._accept_unit(bounds, 0):
                    self._close(place, DistinctWay.BOUNDS)
                    break

    def _page_index_wants(self, probe_min_bytes: int) -> list[Want]:
        """Return the page indexes to read: those in memory, and all if they may save enough."""
        places = [place for place in self.open_to if not self._reads_whole(self.tasks[place])]
        groups = {self.tasks[place].row_group for place in places}
        if self.handle.distrusted or not groups:
            return []
        wants = self.sources.page_index_wants(self.column.leaf, groups)
        free = [want for want in wants if self.handle.in_tail(want.range) is not None]
        cost = sum(want.range.length for want in wants) - sum(want.range.length for want in free)
        savable = sum(self._savable(place) for place in places if self.tasks[place].certain)
        return wants if savable >= max(_WORTH * cost, probe_min_bytes) else free

    def _take_pages(self) -> None:
        """Answer pages whose bounds leave no choice, where all of their rows match, or where what may match
        adds nothing."""
        for place in list(self.open_to):
            task = self.tasks[place]
            for whole in (False, True):
                if not whole and self._reads_whole(task):
                    continue
                for bounds in self.sources.available(self.column, task.row_group, whole=whole):
                    self._take_units(place, bounds)
            if not self.open_to[place]:
                del self.open_to[place]

    def _take_units(self, place: int, bounds: Bounds) -> None:
        task = self.tasks[place]
        stops = np.cumsum(bounds.num_values)
        starts = stops - bounds.num_values
        inside = np.ones(len(bounds), bool) if self.filter is not None else task.certain.covers(starts, stops)
        still = self.open_to[place]
        wanted = np.asarray(still.counts(starts, stops) > 0)
        taken = np.zeros(len(bounds), bool)
        for unit in np.flatnonzero(wanted & inside).tolist():
            taken[unit] = self._accept_unit(bounds, unit)
        proven = set(native_values(self.found.values()).tolist()) if bool((wanted & ~taken).any()) else set()
        for unit in np.flatnonzero(wanted & ~taken).tolist():
            taken[unit] = self._adds_nothing(bounds, unit, proven)
        if bool(taken.any()):
            rows = RowSelection.from_units(starts, task.num_rows, keep=taken)
            self.open_to[place] = still.without(rows, task.num_rows)
            self.units[f"pages by {DistinctWay.BOUNDS}"] += int(taken.sum())

    def _adds_nothing(self, bounds: Bounds, unit: int, proven: set[Any]) -> bool:
        """Return whether all that a unit holds was found elsewhere in the file, whichever rows match."""
        found = exact_values(bounds, unit)
        if found is None:
            return False
        natives, null = found
        return all(value in proven for value in natives) and (self.found.null or not null)

    def _reads_whole(self, task: ScanTask) -> bool:
        return any(reads.whole and reads.column == self.column.leaf for reads in task.reads)

    # -- embedded indexes ------------------------------------------------------------------------

    def _entries(self) -> Iterator[tuple[int, Entry]]:
        """Yield the `distinct` indexes of the column, those of larger units first."""
        found = self.sources.entries(self.column, Distinct.name)
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
            whole = len(self.tasks) == every and all(task.is_certain for task in self.tasks)
            return list(self.open_to) if self.filter is not None or whole else []
        return [
            place
            for place in self.open_to
            if self.tasks[place].row_group == entry.row_group and self._covers(self.tasks[place])
        ]

    def _index_wants(self) -> list[Want]:
        """Return the indexes to fetch: those that are smaller than the pages that they make needless."""
        wants: list[Want] = []
        seen_places: set[int] = set()
        for at, entry in self._entries():
            places = [place for place in self._places_of(entry) if place not in seen_places]
            missing = at not in self.handle.view.indexes
            if places and missing and entry.length <= sum(self._savable(place) for place in places):
                wants.append(want_index(entry, self.column.leaf))
                seen_places.update(places)
        return wants

    def _savable(self, place: int) -> int:
        return sum(reads.nbytes for reads in self.tasks[place].reads if reads.column == self.column.leaf)

    def _take_indexes(self) -> None:
        """Answer the units that indexes list the values of."""
        for at, entry in self._entries():
            places = self._places_of(entry)
            parsed = self.handle.view.indexes.get(at) if places else None
            if not isinstance(parsed, ParsedDistinct) or (
                parsed.values is None and bool(parsed.presence.value.any())
            ):
                continue
            values = pa.nulls(0, pa.int64()) if parsed.values is None else parsed.values
            if len(values) and tag_of(values.type) is not tag_of(self.column.kind):
                continue
            self._accept(values, null=bool(parsed.presence.null.any()))
            for place in places:
                del self.open_to[place]
            one = entry.row_group < 0
            self.units[f"{'files' if one else 'row groups'} by {DistinctWay.INDEX}"] += 1

    # -- dictionaries ----------------------------------------------------------------------------

    def _dictionaries(self) -> Iterator[tuple[int, ByteRange, bool]]:
        """Yield the open tasks whose chunk is its dictionary: the place, where that is, and whether it has
        nulls."""
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

    def _dictionary_wants(self) -> list[Want]:
        """Return the dictionaries to fetch. Reading the pages would take them, too."""
        cached = self.handle.view.dictionaries
        return [
            Want(ReadKey(Kind.DICTIONARY, group, self.column.leaf), span)
            for place, span, _ in self._dictionaries()
            if (group := self.tasks[place].row_group, self.column.leaf) not in cached
        ]

    def _take_dictionaries(self, stash: Stash, read_dictionary: ReadDictionary) -> None:
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


def _read(handle: FileHandle, wants: Sequence[Want]) -> Steps[Stash]:
    if not wants:
        return {}
    stash, _ = yield from read_ranges(handle, wants)
    return stash
