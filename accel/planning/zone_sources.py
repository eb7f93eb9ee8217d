"""Where exact figures of a file come from: its chunks' statistics, page indexes and embedded zone maps."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from accel.errors import IndexFormatError
from accel.format.bounds import exact_chunk_bounds, exact_page_bounds
from accel.format.domain import Bounds, Domain
from accel.format.embedded import Entry, verify_blob
from accel.indexes.expressions import Expression, output_type
from accel.indexes.kind import Level
from accel.indexes.native import signature_of, tag_of
from accel.indexes.registry import find_kind, guarded
from accel.planning.aggregates import Function, Measure
from accel.planning.handle import FileHandle
from accel.planning.page_indexes import index_want, take_page_indexes
from accel.planning.promotion import promotes
from accel.planning.pruning import bounds_of_pages, group_bounds
from accel.planning.read_request import OnBadIndex
from accel.predicate.kinds import kind_of
from accel.ranges import ByteRange, Kind, ReadKey, Stash, Want

__all__ = ["LeafMeasure", "ZoneSources", "want_index"]


@dataclass(frozen=True, slots=True)
class LeafMeasure:
    """A measure of a column that one file holds as one plain leaf."""

    ordinal: int
    measure: Measure
    leaf: int
    kind: pa.DataType
    """The type of the leaf in this file."""

    @property
    def same_values(self) -> bool:
        """Whether the file's values are the result's, and need no widening."""
        here, there = kind_of(self.kind), kind_of(self.measure.column_type)
        alike = here.domain is there.domain and here.step == there.step
        return alike and not promotes(self.kind, self.measure.column_type)

    @property
    def same_form(self) -> bool:
        """Whether they are stored in the same form, too."""
        return self.same_values and tag_of(self.kind) is tag_of(self.measure.type)

    @property
    def counted(self) -> bool:
        """Whether only a count is wanted: types do not matter then."""
        return self.measure.functions == {Function.COUNT}


@dataclass(slots=True)
class ZoneSources:
    """The figures that a file's metadata can give."""

    handle: FileHandle
    on_bad_index: OnBadIndex
    _places: dict[tuple[int, str], list[tuple[int, Entry]]] = field(default_factory=dict)
    """By the ordinal of a measure and the kind: the indexes of it, with their places in the table of
    contents."""
    _chunks: dict[int, Bounds] = field(default_factory=dict)

    def available(self, column: LeafMeasure, group: int, *, whole: bool) -> Iterator[Bounds]:
        """Yield figures that need no fetching, each of all rows of a row group, in units of its own.

        `whole` says that every row of it is to be answered for.
        """
        if not (column.same_values or column.counted):
            return
        if whole and column.measure.of is Expression.VALUE:
            yield self._of_chunk(column, group)
        for at, entry in self.entries(column):
            if entry.row_group == group and (whole or entry.level == Level.PAGE):
                found = self._of_map(column, at, int(self.handle.metadata.group_rows[group]))
                if found is not None:
                    yield found
        if column.measure.of is Expression.VALUE:
            paged = self._of_pages(column, group)
            if paged is not None:
                yield paged

    def of_file(self, column: LeafMeasure) -> Bounds | None:
        """Return the figures of all rows of the file as one unit, where they are in memory."""
        if column.same_values or column.counted:
            for at, entry in self.entries(column):
                if entry.level == Level.FILE:
                    found = self._of_map(column, at, int(self.handle.metadata.group_rows.sum()))
                    if found is not None:
                        return found
        return None

    def wants(
        self, column: LeafMeasure, groups: Collection[int], *, whole: bool, all_rows: bool
    ) -> list[Want]:
        """Return what to fetch to answer these row groups: the smallest kind of source that may do.

        `all_rows` says that every row of the file is to be answered for.
        """
        if not (column.same_values or column.counted) or self.handle.distrusted:
            return []
        levels = [Level.FILE] if all_rows else []
        levels += [Level.ROW_GROUP, Level.PAGE] if whole else [Level.PAGE]
        for level in levels:
            found = [
                want_index(entry, column.leaf)
                for at, entry in self.entries(column)
                if entry.level == level and at not in self.handle.view.indexes
                if level is Level.FILE or entry.row_group in groups
            ]
            if found:
                return found
        bounded = Function.SUM not in column.measure.functions and column.measure.of is Expression.VALUE
        exact = kind_of(column.kind).domain in (Domain.INTEGER, Domain.BOOLEAN) or column.counted
        return [] if whole or not (bounded and exact) else self.page_index_wants(column.leaf, groups)

    def learn(self, wants: Sequence[Want], stash: Stash) -> None:
        """Take in the bytes that were read."""
        pages = [want for want in wants if want.key.kind is not Kind.INDEX]
        take_page_indexes(self.handle, pages, stash=stash, on_bad_index=self.on_bad_index)
        came = {want.range: stash[want.key] for want in wants if want.key.kind is Kind.INDEX}
        entries = self.handle.toc.entries if self.handle.toc is not None else ()
        for at, entry in enumerate(entries):
            data = came.get(ByteRange(entry.offset, entry.offset + entry.length))
            if data is None or at in self.handle.view.indexes:
                continue
            try:
                self.handle.view.indexes[at] = _parse(entry, data)
            except IndexFormatError as error:
                self.handle.view.indexes[at] = None
                place = f"embedded index {entry.kind}, column {'.'.join(entry.column)}"
                error.at(path=self.handle.id.path, place=place)
                self.on_bad_index(error)

    # -- one source each -------------------------------------------------------------------------

    def entries(self, column: LeafMeasure, kind: str = "zonemap") -> list[tuple[int, Entry]]:
        """Return the indexes of a kind for a measure, with their places in the table of contents."""
        found = self._places.get((column.ordinal, kind))
        if found is None:
            toc = None if self.handle.distrusted else self.handle.toc
            # A table may call the column otherwise.
            path = self.handle.metadata.schema.leaves[column.leaf].path
            found = [
                (at, entry)
                for at, entry in enumerate(toc.entries if toc is not None else ())
                if entry.kind == kind and _is_about(entry, column, path)
            ]
            self._places[column.ordinal, kind] = found
        return found

    def _of_chunk(self, column: LeafMeasure, group: int) -> Bounds:
        metadata, leaf = self.handle.metadata, column.leaf
        found = self._chunks.get(leaf)
        if found is None:
            bounds = group_bounds(self.handle, leaf, kind=column.kind)
            found = self._chunks[leaf] = exact_chunk_bounds(metadata, leaf, bounds, arrow_type=column.kind)
        return found.part(group, group + 1)

    def _of_pages(self, column: LeafMeasure, group: int) -> Bounds | None:
        handle, leaf = self.handle, column.leaf
        found = bounds_of_pages(handle, leaf, kind=column.kind, row_group=group)
        index = handle.view.column_indexes.get((group, leaf))
        if handle.distrusted or found is None or index is None:
            return None
        return exact_page_bounds(handle.metadata, leaf, index, found[1], arrow_type=column.kind)

    def _of_map(self, column: LeafMeasure, at: int, num_rows: int) -> Bounds | None:
        parsed: Any = self.handle.view.indexes.get(at)
        if parsed is None:
            return None
        kind = output_type(column.measure.of, column.kind)
        bounds: Bounds | None = parsed.bounds(column.measure.path, kind, column.measure.of)
        if bounds is None or bool((bounds.num_values > num_rows).any()):
            return None
        return bounds if int(bounds.num_values.sum()) == num_rows else None

    def page_index_wants(self, leaf: int, groups: Collection[int]) -> list[Want]:
        """Return the missing halves of page indexes, for chunks that have both."""
        handle = self.handle
        wants: list[Want] = []
        for group in sorted(groups):
            at = (group, leaf)
            places = index_want(handle.metadata.chunks, Kind.OFFSET_INDEX, *at)
            bounds = index_want(handle.metadata.chunks, Kind.COLUMN_INDEX, *at)
            if places and bounds:
                wants += [] if at in handle.view.offset_indexes else places
                wants += [] if at in handle.view.column_indexes else bounds
        return wants


def _is_about(entry: Entry, column: LeafMeasure, path: tuple[str, ...]) -> bool:
    signature = entry.signature_of(path, column.measure.of)
    return signature == signature_of(column.kind) and find_kind(entry.kind, entry.version) is not None


def want_index(entry: Entry, leaf: int) -> Want:
    """Return what to fetch for an index."""
    span = ByteRange(entry.offset, entry.offset + entry.length)
    return Want(ReadKey(Kind.INDEX, entry.row_group, leaf, span.start), span)


def _parse(entry: Entry, data: memoryview) -> Any:
    kind = find_kind(entry.kind, entry.version)
    if kind is None:
        raise IndexFormatError(f"no index kind {entry.kind!r}")
    verify_blob(entry, data)
    return guarded(kind.parse, bytes(data), level=Level(entry.level), units=entry.units)
