"""Indexes inside the file: found through the footer, asked about the atoms of a predicate.

What they rule out is ruled out besides what statistics do. An index that does not verify, is of an unknown kind,
or fails while it is asked, is passed over: it can never cost a row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from accel.errors import IndexFormatError
from accel.format.embedded import verify_blob, verify_head
from accel.indexes.kind import Level, ParsedIndex, first_rows_of
from accel.indexes.native import signature_of
from accel.indexes.registry import ask, ask_all, guarded
from accel.planning.embedded_sources import IndexSource, asked_of, labelled, unknown_kinds
from accel.planning.embedded_sources import named as named_sources
from accel.planning.handle import FileHandle
from accel.planning.need import OnBadIndex
from accel.planning.page_indexes import index_want, take_page_indexes
from accel.planning.query import FileQuery
from accel.planning.witness import Statement, Witnesses
from accel.predicate.atoms import column_atoms
from accel.ranges import ByteRange, Kind, ReadKey, Stash, Want

if TYPE_CHECKING:
    from accel.arrays import Int64s
    from accel.indexes.kind import PartedIndex, PartedKind

__all__ = ["Embedded"]


@dataclass(slots=True)
class Embedded:
    """The embedded indexes that a predicate can ask, of one file."""

    handle: FileHandle
    sources: list[IndexSource]

    @classmethod
    def of(
        cls,
        handle: FileHandle,
        query: FileQuery,
        named: Mapping[tuple[str, ...], str],
        on_bad_index: OnBadIndex,
    ) -> Embedded | None:
        """None where the file has no index that could say anything of the predicate."""
        if query.bound is None or (handle.toc is None and not named) or handle.distrusted:
            return None
        asked = asked_of(query)
        found = list(labelled(handle, query, asked=asked)) if handle.toc is not None else []
        for error in unknown_kinds(handle, asked=asked):
            on_bad_index(_at(error, handle, "embedded indexes"))
        try:
            found += named_sources(handle, query, asked, named)
        except IndexFormatError as error:
            on_bad_index(_at(error, handle, "embedded index idx1"))
        return cls(handle, found) if found else None

    @property
    def by_page(self) -> bool:
        """Whether one of them speaks of pages: their locations are needed then."""
        return any(source.level is Level.PAGE for source in self.sources)

    def answered(self, query: FileQuery) -> frozenset[int]:
        """The columns of which an index of all row groups' pages answers all that is asked."""
        atoms = column_atoms(query.bound.root) if query.bound is not None else ()
        asked = Counter(
            query.filter_paths.get(query.bound.columns[node.column].path) for node in atoms if query.bound
        )
        return frozenset(
            source.leaf
            for source in self.sources
            if source.row_group < 0
            and source.level is Level.PAGE
            and len(source.asked) == asked[(source.leaf,)]
        )

    def wants(self, groups: Iterable[int], on_bad_index: OnBadIndex, *, most_bytes: int) -> list[Want]:
        """What of these row groups' indexes the next round trip should bring: what the first read brought along,
        and what is worth its bytes."""
        wanted = set(groups)
        out: dict[ReadKey, Want] = {}
        for source in self.sources:
            if source.row_group >= 0 and source.row_group not in wanted:
                continue
            try:
                spans = self._spans(source)
            except IndexFormatError as error:
                self._pass_over(source, error, on_bad_index)
                continue
            for span in spans:
                if span.length <= most_bytes or self.handle.in_tail(span) is not None:
                    want = source.want(span)
                    out[want.key] = want
                    out |= {want.key: want for want in self._places(source, wanted)}
        return list(out.values())

    def _places(self, source: IndexSource, groups: Iterable[int]) -> list[Want]:
        """Where the pages are that an index speaks of in these row groups, if nobody else asked for that column's."""
        if source.level is not Level.PAGE:
            return []
        chunks = self.handle.metadata.chunks
        wants: list[Want] = []
        for group in groups if source.row_group < 0 else (source.row_group,):
            at = (group, source.leaf)
            if at not in self.handle.offset_indexes:
                wants += index_want(chunks, Kind.OFFSET_INDEX, *at)
        return wants

    def _spans(self, source: IndexSource) -> list[ByteRange]:
        if source.ordinal not in self.handle.indexes:
            return [source.first]
        parsed = self.handle.indexes[source.ordinal]
        if parsed is None or source.first == source.span:
            return []
        base = source.span.start
        spans: set[tuple[int, int]] = guarded(_asked_for, parsed, source)
        return [ByteRange(base + start, base + end) for start, end in sorted(spans)]

    def _pass_over(self, source: IndexSource, error: IndexFormatError, on_bad_index: OnBadIndex) -> None:
        """Ask it nothing from now on."""
        self.handle.indexes[source.ordinal] = None
        on_bad_index(_at(error, self.handle, _name(source)))

    def learn(self, stash: Stash, on_bad_index: OnBadIndex) -> None:
        """Take in what came; what does not verify is passed over from now on."""
        for source in self.sources:
            every = range(self.handle.metadata.num_row_groups)
            places = [want for want in self._places(source, every) if want.key in stash]
            take_page_indexes(self.handle, places, stash=stash, on_bad_index=on_bad_index)
            try:
                self._take(source, stash)
            except IndexFormatError as error:
                self._pass_over(source, error, on_bad_index)

    def _take(self, source: IndexSource, stash: Stash) -> None:
        held = self.handle.indexes.get(source.ordinal)
        if held is not None:
            parted = cast("PartedIndex", held)
            base = source.span.start
            parts = {
                (span.start - base, span.end - base): stash[source.want(span).key]
                for span in self._spans(source)
                if source.want(span).key in stash
            }
            if parts:
                self.handle.indexes[source.ordinal] = guarded(parted.with_parts, parts)
            return
        data = stash.get(source.want(source.first).key)
        if data is None or source.ordinal in self.handle.indexes:
            return
        kind = cast("PartedKind", source.kind)
        parse = kind.parse if source.first == source.span else kind.parse_head
        head = source.head(data)
        if source.entry is not None:
            verify = verify_blob if source.first == source.span else verify_head
            verify(source.entry, head)
        self.handle.indexes[source.ordinal] = guarded(parse, head, level=source.level, units=source.units)

    def testify(self, groups: Iterable[int], witnesses: Witnesses, on_bad_index: OnBadIndex) -> None:
        """State for every atom what the indexes at hand prove of these row groups."""
        wanted = sorted(groups)
        for source in self.sources:
            parsed = self.handle.indexes.get(source.ordinal)
            if parsed is None:
                continue
            about = wanted if source.row_group < 0 else [g for g in wanted if g == source.row_group]
            try:
                if source.row_group < 0 and source.level is Level.PAGE:
                    self._state_of_all(source, parsed, about, witnesses)
                    continue
                for group in about:
                    self._state(source, parsed, group, witnesses)
            except IndexFormatError as error:
                self._pass_over(source, error, on_bad_index)

    def _state(self, source: IndexSource, parsed: ParsedIndex, group: int, witnesses: Witnesses) -> None:
        first_rows = self._first_rows(source, parsed, group)
        if first_rows is None:
            return
        for node, question in source.asked:
            evidence = ask(parsed, question, units=len(first_rows), signature=source.signature_of(question))
            if evidence is not None:
                witnesses.add(node, group, Statement(first_rows, evidence))
        for node, questions in source.together:
            known = [
                (question, truth)
                for question, truth in questions
                if source.signature_of(question) == signature_of(question.arrow_type)
            ]
            evidence = ask_all(parsed, known, units=len(first_rows))
            if evidence is not None:
                witnesses.add(node, group, Statement(first_rows, evidence))

    def _state_of_all(
        self, source: IndexSource, parsed: ParsedIndex, groups: Sequence[int], witnesses: Witnesses
    ) -> None:
        """The same for an index of the pages of all row groups, which is asked once."""
        sizes = getattr(parsed, "group_units", None)
        if sizes is None or len(sizes) != self.handle.metadata.num_row_groups:
            raise IndexFormatError("an index of the pages of all row groups is not of these")
        stops = np.cumsum(sizes).tolist()
        placed = {group: self.handle.offset_indexes.get((group, source.leaf)) for group in groups}
        for node, question in source.asked:
            told = ask(parsed, question, units=source.units, signature=source.signature_of(question))
            for group, offsets in placed.items():
                if told is not None and offsets is not None and offsets.num_pages == sizes[group]:
                    part = told.part(stops[group] - offsets.num_pages, stops[group])
                    witnesses.add(node, group, Statement(offsets.first_row, part))

    def _first_rows(self, source: IndexSource, parsed: ParsedIndex, group: int) -> Int64s | None:
        if source.level in (Level.FILE, Level.ROW_GROUP):
            return np.zeros(1, np.int64)
        if source.level is Level.ROW_RANGE:
            starts = first_rows_of(parsed)
            rows = int(self.handle.metadata.group_rows[group])
            return np.arange(rows, dtype=np.int64) if starts is None else starts
        offsets = self.handle.offset_indexes.get((group, source.leaf))
        return None if offsets is None or offsets.num_pages != source.units else offsets.first_row


def _asked_for(parsed: PartedIndex, source: IndexSource) -> set[tuple[int, int]]:
    length = source.span.length
    spans = {(int(a), int(b)) for _, question in source.asked for a, b in parsed.wants(question)}
    for start, end in spans:
        if not 0 <= start < end <= length:
            raise IndexFormatError(f"an index of {length} bytes asks for [{start}, {end}) of them")
    return spans


def _at(error: IndexFormatError, handle: FileHandle, place: str) -> IndexFormatError:
    error.at(path=handle.id.path, place=place)
    return error


def _name(source: IndexSource) -> str:
    where = "" if source.row_group < 0 else f", row group {source.row_group}"
    return f"embedded {source.kind.name} index{where}, column {source.leaf}"
