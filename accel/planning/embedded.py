"""Indexes inside the file: found through the footer, asked about the atoms of a predicate.

What they rule out is ruled out besides what statistics do. An index that does not verify, is of an unknown kind,
or fails while it is asked, is passed over: it can never cost a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from accel.errors import IndexFormatError
from accel.format.embedded import Entry, verify_blob, verify_head
from accel.format.idx1 import idx1_range
from accel.indexes.ask import ask, ask_all
from accel.indexes.kind import IndexKind, Level, ParsedIndex, first_rows_of
from accel.indexes.native import signature_of
from accel.indexes.question import LeafOp, LeafQuestion, question_of
from accel.indexes.registry import find_kind
from accel.planning.handle import FileHandle
from accel.planning.page_indexes import take_page_indexes
from accel.planning.query import FileQuery
from accel.planning.witness import Statement, Witnesses
from accel.predicate.atoms import AllOf, AnyOf, IsTrue, Negation, Node, column_atoms
from accel.ranges import ByteRange, Kind, ReadKey, Stash, Want
from accel.records import dataclass

__all__ = ["Embedded"]

OnBad = Callable[[IndexFormatError], None]
Int64s = npt.NDArray[np.int64]
Asked = Mapping[tuple[str, ...], Sequence[tuple[Node, LeafQuestion]]]

# The place of IDX1 among a file's embedded indexes: the table of contents does not count it.
_IDX1 = -1
# An IDX1 that may be longer is not fetched.
_MOST_IDX1 = 8 << 20
# An index no longer than this comes whole, though it could be read in parts.
_SMALL = 64 << 10


@dataclass(frozen=True, slots=True, eq=False)
class _Source:
    """One index that can answer something of the predicate."""

    ordinal: int
    entry: Entry | None
    """None for an IDX1 that the caller named."""
    kind: IndexKind
    span: ByteRange
    leaf: int
    asked: tuple[tuple[Node, LeafQuestion], ...]
    together: tuple[tuple[Node, tuple[tuple[LeafQuestion, bool], ...]], ...] = ()
    """Conjunctions of leaves over the columns of an index of several."""

    @property
    def level(self) -> Level:
        return Level.FILE if self.entry is None else Level(self.entry.level)

    @property
    def row_group(self) -> int:
        return -1 if self.entry is None else self.entry.row_group

    @property
    def units(self) -> int:
        return 1 if self.entry is None else self.entry.units

    def signature_of(self, question: LeafQuestion) -> str:
        """What the question's column was stored as when the index was built; who named an IDX1 vouches for it."""
        if self.entry is None:
            return signature_of(question.arrow_type)
        return self.entry.signature_of(question.path) or ""

    @property
    def first(self) -> ByteRange:
        """What is fetched first: the part that finds the others, or all of it."""
        entry = self.entry
        if entry is None or not entry.head or entry.head_checksum is None or entry.length <= _SMALL:
            return self.span
        return ByteRange(self.span.start, self.span.start + entry.head)

    def want(self, span: ByteRange) -> Want:
        return Want(ReadKey(Kind.INDEX, self.row_group, self.leaf, span.start), span)


@dataclass(slots=True)
class Embedded:
    """The embedded indexes that a predicate can ask, of one file."""

    handle: FileHandle
    sources: list[_Source]

    @classmethod
    def of(
        cls, handle: FileHandle, query: FileQuery, named: Mapping[str, str], on_bad: OnBad
    ) -> Embedded | None:
        """None where the file has no index that could say anything of the predicate."""
        if query.bound is None or (handle.toc is None and not named) or handle.distrusted:
            return None
        asked: dict[tuple[str, ...], list[tuple[Node, LeafQuestion]]] = {}
        for node in column_atoms(query.bound.root):
            column = query.bound.columns[node.column]
            question = question_of(node, column)
            if question is not None and len(query.filter_paths.get(column.path, ())) == 1:
                asked.setdefault(column.path, []).append((node, question))
        found = list(_labelled(handle, query, asked)) if handle.toc is not None else []
        try:
            found += _named(handle, query, asked, named)
        except IndexFormatError as error:
            on_bad(_at(error, handle, "embedded index idx1"))
        return cls(handle, found) if found else None

    @property
    def by_page(self) -> bool:
        """Whether one of them speaks of pages: their locations are needed then."""
        return any(source.level is Level.PAGE for source in self.sources)

    def wants(self, groups: Iterable[int], *, most_bytes: int) -> list[Want]:
        """What of these row groups' indexes the next round trip should bring: what the first read brought along,
        and what is worth its bytes."""
        wanted = set(groups)
        out: dict[ReadKey, Want] = {}
        for source in self.sources:
            if source.row_group >= 0 and source.row_group not in wanted:
                continue
            for span in self._spans(source):
                if span.length <= most_bytes or self.handle.in_tail(span) is not None:
                    want = source.want(span)
                    out[want.key] = want
                    out |= {want.key: want for want in self._places(source, wanted)}
        return list(out.values())

    def _places(self, source: _Source, groups: Iterable[int]) -> list[Want]:
        """Where the pages are that an index speaks of in these row groups, if nobody else asked for that column's."""
        if source.level is not Level.PAGE:
            return []
        chunks = self.handle.metadata.chunks
        wants = []
        for group in groups if source.row_group < 0 else (source.row_group,):
            at = (group, source.leaf)
            if at not in self.handle.offset_indexes:
                start, length = int(chunks.offset_index_offset[at]), int(chunks.offset_index_length[at])
                if start > 0 and length > 0:
                    wants.append(Want(ReadKey(Kind.OFFSET_INDEX, *at), ByteRange(start, start + length)))
        return wants

    def _spans(self, source: _Source) -> list[ByteRange]:
        if source.ordinal not in self.handle.indexes:
            return [source.first]
        parsed: Any = self.handle.indexes[source.ordinal]
        if parsed is None or source.first == source.span:
            return []
        base = source.span.start
        spans = {span for _, question in source.asked for span in parsed.wants(question)}
        return [ByteRange(base + start, base + end) for start, end in sorted(spans)]

    def learn(self, stash: Stash, on_bad: OnBad) -> None:
        """Take in what came; what does not verify is passed over from now on."""
        for source in self.sources:
            every = range(self.handle.metadata.num_row_groups)
            places = [want for want in self._places(source, every) if want.key in stash]
            take_page_indexes(self.handle, places, stash, on_bad)
            try:
                self._take(source, stash)
            except IndexFormatError as error:
                self.handle.indexes[source.ordinal] = None
                on_bad(_at(error, self.handle, _name(source)))

    def _take(self, source: _Source, stash: Stash) -> None:
        held: Any = self.handle.indexes.get(source.ordinal)
        if held is not None:
            base = source.span.start
            parts = {
                (span.start - base, span.end - base): stash[source.want(span).key]
                for span in self._spans(source)
                if source.want(span).key in stash
            }
            if parts:
                self.handle.indexes[source.ordinal] = _guarded(held.with_parts, parts)
            return
        data = stash.get(source.want(source.first).key)
        if data is None or source.ordinal in self.handle.indexes:
            return
        kind: Any = source.kind
        parse = kind.parse if source.first == source.span else kind.parse_head
        if source.entry is not None:
            verify = verify_blob if source.first == source.span else verify_head
            verify(source.entry, data)
        self.handle.indexes[source.ordinal] = _guarded(
            parse, bytes(data), level=source.level, units=source.units
        )

    def testify(self, groups: Iterable[int], witnesses: Witnesses, on_bad: OnBad) -> None:
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
                self.handle.indexes[source.ordinal] = None
                on_bad(_at(error, self.handle, _name(source)))

    def _state(self, source: _Source, parsed: Any, group: int, witnesses: Witnesses) -> None:
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
        self, source: _Source, parsed: Any, groups: Sequence[int], witnesses: Witnesses
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

    def _first_rows(self, source: _Source, parsed: ParsedIndex, group: int) -> Int64s | None:
        if source.level in (Level.FILE, Level.ROW_GROUP):
            return np.zeros(1, np.int64)
        if source.level is Level.ROW_RANGE:
            starts = first_rows_of(parsed)
            rows = int(self.handle.metadata.group_rows[group])
            return np.arange(rows, dtype=np.int64) if starts is None else starts
        offsets = self.handle.offset_indexes.get((group, source.leaf))
        return None if offsets is None or offsets.num_pages != source.units else offsets.first_row


def _at(error: IndexFormatError, handle: FileHandle, place: str) -> IndexFormatError:
    error.at(path=handle.id.path, place=place)
    return error


def _name(source: _Source) -> str:
    where = "" if source.row_group < 0 else f", row group {source.row_group}"
    return f"embedded {source.kind.name} index{where}, column {source.leaf}"


def _guarded(call: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """A kind may be anybody's: whatever it raises says that its index is not to be used."""
    try:
        return call(*given, **named)
    except IndexFormatError:
        raise
    except Exception as error:
        raise IndexFormatError(f"an index failed while parsing: {type(error).__name__}: {error}") from error


def _named(handle: FileHandle, query: FileQuery, asked: Asked, named: Mapping[str, str]) -> Iterator[_Source]:
    for name in named:
        path = (name,) if (name,) in asked else tuple(name.split("."))
        here = asked.get(path)
        span = idx1_range(handle.metadata) if here else None
        kind = find_kind("idx1") or _idx1()
        if here is None or span is None or span[1] - span[0] > _MOST_IDX1:
            continue
        answerable = tuple((node, question) for node, question in here if question.op in kind.ops)
        if answerable:
            yield _Source(_IDX1, None, kind, ByteRange(*span), query.filter_paths[path][0], answerable)


def _idx1() -> IndexKind:
    from accel.indexes.idx1 import Idx1

    return Idx1()


def _labelled(handle: FileHandle, query: FileQuery, asked: Asked) -> Iterator[_Source]:
    toc = handle.toc
    for ordinal, entry in enumerate(toc.entries if toc is not None else ()):
        here = [pair for path in entry.paths() for pair in asked.get(path, ())]
        kind = find_kind(entry.kind, entry.version) if here else None
        if not here or kind is None or entry.level not in set(kind.levels):
            continue
        leaf = _leaf_of(handle, query, entry.column)
        if leaf is None:
            continue
        ops = getattr(kind, "ops", frozenset(LeafOp))
        answerable = tuple((node, question) for node, question in here if question.op in ops)
        if answerable:
            span = ByteRange(entry.offset, entry.offset + entry.length)
            questions = {id(node): question for node, question in answerable}
            several = len(entry.paths()) > 1 and query.bound is not None
            together = tuple(_conjunctions(query.bound.root, questions)) if several and query.bound else ()
            yield _Source(ordinal, entry, kind, span, leaf, answerable, together)


def _leaf_of(handle: FileHandle, query: FileQuery, path: tuple[str, ...]) -> int | None:
    """The column of an index, which the predicate need not name where the index is of several."""
    known = query.filter_paths.get(path)
    if known is not None:
        return known[0]
    for leaf in handle.metadata.schema.leaves:
        if leaf.path == path:
            return leaf.ordinal if not leaf.max_repetition else None
    return None


def _conjunctions(
    node: Node, questions: Mapping[int, LeafQuestion]
) -> Iterator[tuple[Node, tuple[tuple[LeafQuestion, bool], ...]]]:
    """Every AND of a tree that has two leaves or more among these, and with each whether it is to be true."""
    match node:
        case AllOf():
            leaves = [
                (each.operand, False) if isinstance(each, Negation) else (each, True)
                for each in node.operands
            ]
            found = tuple((questions[id(leaf)], truth) for leaf, truth in leaves if id(leaf) in questions)
            if len(found) > 1:
                yield node, found
            for operand in node.operands:
                yield from _conjunctions(operand, questions)
        case AnyOf():
            for operand in node.operands:
                yield from _conjunctions(operand, questions)
        case Negation() | IsTrue():
            yield from _conjunctions(node.operand, questions)
