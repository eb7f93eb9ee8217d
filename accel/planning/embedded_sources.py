"""Which embedded indexes of a file can answer something of a predicate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from accel.errors import IndexFormatError
from accel.format.embedded import Entry, idx1_range, unpack_head
from accel.indexes.kind import IndexKind, Level
from accel.indexes.native import signature_of
from accel.indexes.question import LeafOp, LeafQuestion, question_of
from accel.indexes.registry import find_kind
from accel.planning.handle import FileHandle
from accel.planning.query import FileQuery
from accel.predicate.atoms import AllOf, AnyOf, IsTrue, Negation, Node, column_atoms
from accel.ranges import ByteRange, Kind, ReadKey, Want

__all__ = ["IndexSource", "asked_of", "labelled", "named", "unknown_kinds"]

Asked: TypeAlias = "Mapping[tuple[str, ...], Sequence[tuple[Node, LeafQuestion]]]"

# The place of IDX1 among a file's embedded indexes: the table of contents does not count it.
_IDX1 = -1
# An IDX1 that may be longer is not fetched.
_MOST_IDX1 = 8 << 20
# An index no longer than this comes whole, though it could be read in parts.
_SMALL = 64 << 10


@dataclass(frozen=True, slots=True, eq=False)
class IndexSource:
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
        if entry.head_again is not None:
            return ByteRange(entry.head_again[0], sum(entry.head_again))
        return ByteRange(entry.offset, entry.offset + entry.head)

    def head(self, data: memoryview) -> bytes:
        """What came for `first`, as the index begins."""
        if self.entry is None or self.entry.head_again is None or self.first == self.span:
            return bytes(data)
        return unpack_head(data, self.entry.head)

    def want(self, span: ByteRange) -> Want:
        return Want(ReadKey(Kind.INDEX, self.row_group, self.leaf, span.start), span)


def asked_of(query: FileQuery) -> Asked:
    """The atoms of a predicate that are questions about one plain column each, by its path."""
    asked: dict[tuple[str, ...], list[tuple[Node, LeafQuestion]]] = {}
    if query.bound is None:
        return asked
    plain = {path for path, _, _ in query.prunable}
    for node in column_atoms(query.bound.root):
        column = query.bound.columns[node.column]
        question = question_of(node, column)
        if question is not None and column.path in plain:
            asked.setdefault(column.path, []).append((node, question))
    return asked


def named(
    handle: FileHandle, query: FileQuery, asked: Asked, columns: Mapping[tuple[str, ...], str]
) -> Iterator[IndexSource]:
    """The file's IDX1, for each of the caller's `columns` that the predicate asks something it can answer.

    An IDX1 does not say which column it is of, so the caller does.
    """
    for path in columns:
        here = asked.get(path)
        span = idx1_range(handle.metadata) if here else None
        if here is None or span is None or span[1] - span[0] > _MOST_IDX1:
            continue
        from accel.indexes.idx1 import Idx1

        kind = Idx1()
        answerable = tuple((node, question) for node, question in here if question.op in kind.ops)
        if answerable:
            yield IndexSource(_IDX1, None, kind, ByteRange(*span), query.filter_paths[path][0], answerable)


def labelled(handle: FileHandle, query: FileQuery, *, asked: Asked) -> Iterator[IndexSource]:
    """The indexes of accel's table of contents, which names their columns, that can answer something of the predicate."""
    toc = handle.toc
    for ordinal, entry in enumerate(toc.entries if toc is not None else ()):
        here = [pair for path in entry.paths() for pair in asked.get(path, ())]
        kind = _kind_of(entry) if here else None
        if not here or kind is None:
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
            yield IndexSource(ordinal, entry, kind, span, leaf, answerable, together)


def unknown_kinds(handle: FileHandle, *, asked: Asked) -> Iterator[IndexFormatError]:
    """An error for each kind, version and level of index over the columns in question that this process does not read."""
    seen: set[tuple[str, int, str, tuple[str, ...]]] = set()
    for entry in handle.toc.entries if handle.toc is not None else ():
        what = (entry.kind, entry.version, entry.level, entry.column)
        if what in seen or not any(path in asked for path in entry.paths()) or _kind_of(entry) is not None:
            continue
        seen.add(what)
        yield IndexFormatError(
            f"an index of column {'.'.join(entry.column)} is of a kind that is not known here: {entry.kind!r}, "
            f"version {entry.version}, by {entry.level}",
            hint="install or register the kind, or a newer accel",
        )


def _kind_of(entry: Entry) -> IndexKind | None:
    """The kind of an index, where this process reads its version and its level."""
    kind = find_kind(entry.kind, entry.version)
    return kind if kind is not None and entry.level in set(kind.levels) else None


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
