"""Which embedded indexes of a file can answer something of a predicate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np

from accel.errors import IndexFormatError
from accel.format.embedded import Entry, idx1_range, unpack_head, verify_blob, verify_head
from accel.indexes.kind import IndexKind, Level, ParsedIndex, first_rows_of
from accel.indexes.native import signature_of
from accel.indexes.question import LeafQuestion, question_of
from accel.indexes.registry import ask, ask_all, find_kind, guarded
from accel.indexes.sketch import ParsedSketch, Sketch
from accel.planning.handle import FileHandle
from accel.planning.index_evidence import IndexStatements, Statement
from accel.planning.page_indexes import index_want, take_page_indexes
from accel.planning.query import FileQuery
from accel.planning.read_request import OnBadIndex
from accel.predicate.atoms import AllOf, AnyOf, IsTrue, Negation, Node, column_atoms
from accel.ranges import ByteRange, Kind, ReadKey, Stash, Want

if TYPE_CHECKING:
    from accel.arrays import Int64s
    from accel.indexes.kind import PartedIndex

__all__ = [
    "Embedded",
    "IndexSource",
    "Sketches",
    "labelled",
    "named_idx1",
    "questions_of",
    "unknown_kinds",
]

Questions: TypeAlias = "Mapping[tuple[str, ...], Sequence[tuple[Node, LeafQuestion]]]"

# The place of IDX1 among a file's embedded indexes: the table of contents does not count it.
_IDX1 = -1
# An IDX1 that may be longer is not fetched.
_MOST_IDX1 = 8 << 20
# An index no longer than this comes whole, though it could be read in parts.
SMALL = 64 << 10


@dataclass(frozen=True, slots=True, eq=False)
class IndexSource:
    """One index that can answer something of the predicate."""

    ordinal: int
    entry: Entry | None
    """None for an IDX1 that the caller named."""
    kind: IndexKind
    span: ByteRange
    leaf: int
    questions: tuple[tuple[Node, LeafQuestion], ...]
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
        """Return the stored type of the question's column when the index was built; the caller vouches for a
        named IDX1."""
        if self.entry is None:
            return signature_of(question.arrow_type)
        return self.entry.signature_of(question.path) or ""

    @property
    def first(self) -> ByteRange:
        """The range to fetch first: the part that locates the others, or the whole index."""
        entry = self.entry
        if entry is None or not entry.head or entry.head_checksum is None or entry.length <= SMALL:
            return self.span
        if entry.head_again is not None:
            return ByteRange(entry.head_again[0], sum(entry.head_again))
        return ByteRange(entry.offset, entry.offset + entry.head)

    def head(self, data: memoryview) -> bytes:
        """Return the bytes of `first` as the head of the index."""
        if self.entry is None or self.entry.head_again is None or self.first == self.span:
            return bytes(data)
        return unpack_head(data, self.entry.head)

    def want(self, span: ByteRange) -> Want:
        return Want(ReadKey(Kind.INDEX, self.row_group, self.leaf, span.start), span)


def questions_of(handle: FileHandle, query: FileQuery) -> Questions:
    """Return the atoms of a predicate that are questions about one plain column each, by its path in the
    file: indexes that travel in a file name its columns as they were written, whatever a table calls them."""
    questions: dict[tuple[str, ...], list[tuple[Node, LeafQuestion]]] = {}
    if query.bound is None:
        return questions
    plain = own_paths(handle, query)
    for node in column_atoms(query.bound.root):
        column = query.bound.columns[node.column]
        own = plain.get(column.path)
        question = None if own is None else question_of(node, column)
        if own is not None and question is not None:
            questions.setdefault(own, []).append((node, replace(question, path=own)))
    return questions


def own_paths(handle: FileHandle, query: FileQuery) -> Mapping[tuple[str, ...], tuple[str, ...]]:
    """Return the paths that the columns of a predicate which metadata can describe have in the file."""
    leaves = handle.metadata.schema.leaves
    return {path: leaves[leaf].path for path, leaf, _ in query.prunable}


def named_idx1(
    handle: FileHandle, query: FileQuery, questions: Questions, columns: Mapping[tuple[str, ...], str]
) -> Iterator[IndexSource]:
    """Yield the file's IDX1, for each of the caller's `columns` that the predicate asks something it can
    answer.

    An IDX1 does not say which column it is of, so the caller does.
    """
    own = own_paths(handle, query)
    for path in columns:
        here = questions.get(own.get(path, ()))
        span = idx1_range(handle.metadata) if here else None
        if here is None or span is None or span[1] - span[0] > _MOST_IDX1:
            continue
        from accel.indexes.idx1 import Idx1

        kind = Idx1()
        answerable = tuple((node, question) for node, question in here if question.op in kind.ops)
        if answerable:
            yield IndexSource(_IDX1, None, kind, ByteRange(*span), query.filter_paths[path][0], answerable)


def labelled(handle: FileHandle, query: FileQuery, *, questions: Questions) -> Iterator[IndexSource]:
    """Yield the indexes of accel's table of contents, which names their columns, that can answer something of
    the predicate."""
    toc = handle.toc
    leaves = {handle.metadata.schema.leaves[leaf].path: leaf for _, leaf, _ in query.prunable}
    for ordinal, entry in enumerate(toc.entries if toc is not None else ()):
        here = [pair for path in entry.paths() for pair in questions.get(path, ())]
        kind = _kind_of(entry) if here else None
        if not here or kind is None:
            continue
        leaf = leaves.get(entry.column)
        leaf = _leaf_of(handle, entry.column) if leaf is None else leaf
        if leaf is None:
            continue
        answerable = tuple((node, question) for node, question in here if question.op in kind.ops)
        if answerable:
            span = ByteRange(entry.offset, entry.offset + entry.length)
            by_node = {id(node): question for node, question in answerable}
            several = len(entry.paths()) > 1 and query.bound is not None
            together = tuple(_conjunctions(query.bound.root, by_node)) if several and query.bound else ()
            yield IndexSource(ordinal, entry, kind, span, leaf, answerable, together)


def unknown_kinds(handle: FileHandle, *, questions: Questions) -> Iterator[IndexFormatError]:
    """Yield an error for each kind, version and level of index over the columns in question that this process
    does not read."""
    seen: set[tuple[str, int, str, tuple[str, ...]]] = set()
    for entry in handle.toc.entries if handle.toc is not None else ():
        what = (entry.kind, entry.version, entry.level, entry.column)
        if (
            what in seen
            or not any(path in questions for path in entry.paths())
            or _kind_of(entry) is not None
        ):
            continue
        seen.add(what)
        yield IndexFormatError(
            f"an index of column {'.'.join(entry.column)} is of a kind that is not known here: "
            f"{entry.kind!r}, version {entry.version}, by {entry.level}",
            hint="install or register the kind, or a newer accel",
        )


def _kind_of(entry: Entry) -> IndexKind | None:
    """Return the kind of an index, where this process reads its version and its level."""
    kind = find_kind(entry.kind, entry.version)
    return kind if kind is not None and entry.level in set(kind.levels) else None


def _leaf_of(handle: FileHandle, path: tuple[str, ...]) -> int | None:
    """Return the column of an index, which the predicate need not name where the index is of several."""
    for leaf in handle.metadata.schema.leaves:
        if leaf.path == path:
            return leaf.ordinal if not leaf.max_repetition else None
    return None


def _conjunctions(
    node: Node, questions: Mapping[int, LeafQuestion]
) -> Iterator[tuple[Node, tuple[tuple[LeafQuestion, bool], ...]]]:
    """Yield every AND of a tree that has two leaves or more among these, and with each whether it is to be
    true."""
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


@dataclass(slots=True)
class Embedded:
    """The embedded indexes of one file that can answer something of a predicate."""

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
        """Return None where no index of the file answers anything in the predicate."""
        if query.bound is None or (handle.toc is None and not named) or handle.distrusted:
            return None
        questions = questions_of(handle, query)
        found = list(labelled(handle, query, questions=questions)) if handle.toc is not None else []
        for error in unknown_kinds(handle, questions=questions):
            on_bad_index(_at(error, handle, "embedded indexes"))
        try:
            found += named_idx1(handle, query, questions, named)
        except IndexFormatError as error:
            on_bad_index(_at(error, handle, "embedded index idx1"))
        return cls(handle, found) if found else None

    @property
    def by_page(self) -> bool:
        """Whether an index covers pages, whose locations are needed then."""
        return any(source.level is Level.PAGE for source in self.sources)

    def answered(self, query: FileQuery) -> frozenset[int]:
        """Return the columns for which an index of the pages of all row groups answers every atom."""
        atoms = column_atoms(query.bound.root) if query.bound is not None else ()
        counts = Counter(
            query.filter_paths.get(query.bound.columns[node.column].path) for node in atoms if query.bound
        )
        return frozenset(
            source.leaf
            for source in self.sources
            if source.row_group < 0
            and source.level is Level.PAGE
            and len(source.questions) == counts[(source.leaf,)]
        )

    def wants(self, groups: Iterable[int], on_bad_index: OnBadIndex, *, most_bytes: int) -> list[Want]:
        """Return the index reads for the next round trip: those in the tail, and those that are worth their
        bytes."""
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
        """Return the offset indexes that an index of pages takes for these row groups, where they are
        missing."""
        if source.level is not Level.PAGE:
            return []
        chunks = self.handle.metadata.chunks
        wants: list[Want] = []
        for group in groups if source.row_group < 0 else (source.row_group,):
            at = (group, source.leaf)
            if at not in self.handle.view.offset_indexes:
                wants += index_want(chunks, Kind.OFFSET_INDEX, *at)
        return wants

    def _spans(self, source: IndexSource) -> list[ByteRange]:
        if source.ordinal not in self.handle.view.indexes:
            return [source.first]
        parsed = self.handle.view.indexes[source.ordinal]
        if parsed is None or source.first == source.span:
            return []
        base = source.span.start
        spans: set[tuple[int, int]] = guarded(_wanted_spans, parsed, source)
        return [ByteRange(base + start, base + end) for start, end in sorted(spans)]

    def _pass_over(self, source: IndexSource, error: IndexFormatError, on_bad_index: OnBadIndex) -> None:
        """Use the index no more."""
        self.handle.view.indexes[source.ordinal] = None
        on_bad_index(_at(error, self.handle, _name(source)))

    def learn(self, stash: Stash, on_bad_index: OnBadIndex) -> None:
        """Parse the bytes that were read; an index that does not verify is passed over from now on."""
        for source in self.sources:
            every = range(self.handle.metadata.num_row_groups)
            places = [want for want in self._places(source, every) if want.key in stash]
            take_page_indexes(self.handle, places, stash=stash, on_bad_index=on_bad_index)
            try:
                self._take(source, stash)
            except IndexFormatError as error:
                self._pass_over(source, error, on_bad_index)

    def _take(self, source: IndexSource, stash: Stash) -> None:
        parsed = self.handle.view.indexes.get(source.ordinal)
        if parsed is not None:
            parted = cast("PartedIndex", parsed)
            base = source.span.start
            parts = {
                (span.start - base, span.end - base): stash[source.want(span).key]
                for span in self._spans(source)
                if source.want(span).key in stash
            }
            if parts:
                self.handle.view.indexes[source.ordinal] = guarded(parted.with_parts, parts)
            return
        data = stash.get(source.want(source.first).key)
        if data is None or source.ordinal in self.handle.view.indexes:
            return
        kind = source.kind
        parse = kind.parse if source.first == source.span else kind.parse_head
        head = source.head(data)
        if source.entry is not None:
            verify = verify_blob if source.first == source.span else verify_head
            verify(source.entry, head)
        self.handle.view.indexes[source.ordinal] = guarded(
            parse, head, level=source.level, units=source.units
        )

    def add_evidence(self, groups: Iterable[int], into: IndexStatements, on_bad_index: OnBadIndex) -> None:
        """Add what the indexes in memory prove about each atom in these row groups."""
        wanted = sorted(groups)
        for source in self.sources:
            parsed = self.handle.view.indexes.get(source.ordinal)
            if parsed is None:
                continue
            about = wanted if source.row_group < 0 else [g for g in wanted if g == source.row_group]
            try:
                if source.row_group < 0 and source.level is Level.PAGE:
                    self._state_of_all(source, parsed, about, into)
                    continue
                for group in about:
                    self._state(source, parsed, group, into)
            except IndexFormatError as error:
                self._pass_over(source, error, on_bad_index)

    def _state(self, source: IndexSource, parsed: ParsedIndex, group: int, into: IndexStatements) -> None:
        first_rows = self._first_rows(source, parsed, group)
        if first_rows is None:
            return
        for node, question in source.questions:
            evidence = ask(parsed, question, units=len(first_rows), signature=source.signature_of(question))
            if evidence is not None:
                into.add(node, group, Statement(first_rows, evidence))
        for node, questions in source.together:
            comparable = [
                (question, truth)
                for question, truth in questions
                if source.signature_of(question) == signature_of(question.arrow_type)
            ]
            evidence = ask_all(parsed, comparable, units=len(first_rows))
            if evidence is not None:
                into.add(node, group, Statement(first_rows, evidence))

    def _state_of_all(
        self, source: IndexSource, parsed: ParsedIndex, groups: Sequence[int], into: IndexStatements
    ) -> None:
        """Add the evidence of an index of the pages of all row groups with one look-up."""
        sizes = getattr(parsed, "group_units", None)
        if sizes is None or len(sizes) != self.handle.metadata.num_row_groups:
            raise IndexFormatError("an index of the pages of all row groups is not of these")
        stops = np.cumsum(sizes).tolist()
        placed = {group: self.handle.view.offset_indexes.get((group, source.leaf)) for group in groups}
        for node, question in source.questions:
            evidence = ask(parsed, question, units=source.units, signature=source.signature_of(question))
            for group, offsets in placed.items():
                if evidence is not None and offsets is not None and offsets.num_pages == sizes[group]:
                    part = evidence.part(stops[group] - offsets.num_pages, stops[group])
                    into.add(node, group, Statement(offsets.first_row, part))

    def _first_rows(self, source: IndexSource, parsed: ParsedIndex, group: int) -> Int64s | None:
        if source.level in (Level.FILE, Level.ROW_GROUP):
            return np.zeros(1, np.int64)
        if source.level is Level.ROW_RANGE:
            starts = first_rows_of(parsed)
            if starts is not None:
                return starts
            # Each row is a unit. The index has been parsed with so many, and the footer may claim any number
            # of rows.
            rows = int(self.handle.metadata.group_rows[group])
            return np.arange(rows, dtype=np.int64) if rows == source.units else None
        offsets = self.handle.view.offset_indexes.get((group, source.leaf))
        return None if offsets is None or offsets.num_pages != source.units else offsets.first_row


def _wanted_spans(parsed: PartedIndex, source: IndexSource) -> set[tuple[int, int]]:
    length = source.span.length
    spans = {(int(a), int(b)) for _, question in source.questions for a, b in parsed.wants(question)}
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


@dataclass(slots=True)
class Sketches:
    """The sketches of one file that describe columns of a predicate.

    Only what the first read already brought is used: a guess is not worth a request.
    """

    handle: FileHandle
    on_bad_index: OnBadIndex
    entries: list[tuple[int, Entry]]
    names: Mapping[tuple[str, ...], tuple[str, ...]]
    """By the path of a column in the file, that in the data set."""

    @classmethod
    def of(cls, handle: FileHandle, query: FileQuery, on_bad_index: OnBadIndex) -> Sketches | None:
        """Return the sketches of a file; None where it has none for the predicate's columns."""
        if query.bound is None or handle.toc is None or handle.distrusted:
            return None
        names = {own: path for path, own in own_paths(handle, query).items()}
        entries = [
            (ordinal, entry)
            for ordinal, entry in enumerate(handle.toc.entries)
            if entry.kind == Sketch.name and entry.version == Sketch.version and entry.column in names
        ]
        return cls(handle, on_bad_index, entries, names) if entries else None

    def of_group(self, row_group: int) -> dict[tuple[str, ...], ParsedSketch]:
        """Return the sketches of a row group by column path; its own goes before the file's."""
        found: dict[tuple[str, ...], ParsedSketch] = {}
        for ordinal, entry in sorted(self.entries, key=lambda item: item[1].row_group):
            if entry.row_group in (-1, row_group) and (sketch := self._parsed(ordinal, entry)) is not None:
                found[self.names[entry.column]] = sketch
        return found

    def _parsed(self, ordinal: int, entry: Entry) -> ParsedSketch | None:
        indexes = self.handle.view.indexes
        if ordinal not in indexes:
            data = self.handle.in_tail(ByteRange(entry.offset, entry.offset + entry.length))
            kind = find_kind(entry.kind, entry.version)
            if data is None or kind is None:
                return None
            try:
                verify_blob(entry, data)
                indexes[ordinal] = guarded(
                    kind.parse, bytes(data), level=Level(entry.level), units=entry.units
                )
            except IndexFormatError as error:
                indexes[ordinal] = None
                error.at(path=self.handle.id.path, place=f"embedded sketch, column {'.'.join(entry.column)}")
                self.on_bad_index(error)
        sketch = indexes[ordinal]
        return sketch if isinstance(sketch, ParsedSketch) else None
