"""Look-ups beside statistics for undecided row groups: embedded indexes, bloom filters, dictionaries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from accel.arrays import mask
from accel.errors import AccelError, IndexFormatError
from accel.format.bloom import (
    BLOCK_BYTES,
    HEADER_BYTES,
    BloomHeader,
    BloomState,
    expected_header,
    hash_keys,
    holds,
    parse_bloom_header,
    plain_keys,
    probe_block,
)
from accel.format.domain import BoundEncoding, Domain, bound_encoding
from accel.format.model import Physical, SchemaElement
from accel.format.writers import doubts_about
from accel.planning.handle import FileHandle
from accel.planning.index_evidence import IndexStatements, Statement
from accel.planning.pruning import RemainingGroups, group_bounds
from accel.planning.query import FileQuery
from accel.planning.read_request import OnBadIndex, Steps, read_ranges
from accel.planning.task import ScanTask
from accel.predicate.atoms import (
    Against,
    Among,
    Bound,
    BoundColumn,
    Node,
    Order,
    column_atoms,
    over_first_column,
    single_column_parts,
)
from accel.predicate.prune import Evidence
from accel.ranges import ByteRange, Kind, ReadKey, Stash, Want

if TYPE_CHECKING:
    from accel.planning.embedded import Embedded

__all__ = [
    "Blooms",
    "Dictionaries",
    "IndexLookup",
    "ReadDictionary",
    "find_embedded",
]

# An index that is read in parts takes a second round; so does a filter with an unusual header or a block
# without a bit.
_ROUNDS = 3
# An embedded index is fetched when the undecided pages are so many times its size.
_WORTH = 2
# At most one part in this many of the bytes that may come early may turn out to be needless.
_ALONG = 4
# More row groups are not drafted twice to save a round trip.
_MOST_GROUPS = 64


class IndexLookup:
    """The index look-ups of one file for one question, where they may save more than they cost."""

    def __init__(
        self,
        handle: FileHandle,
        query: FileQuery,
        *,
        embedded: Embedded | None,
        probe_min_bytes: int,
        read_dictionary: ReadDictionary,
        on_bad_index: OnBadIndex,
    ) -> None:
        self._handle = handle
        self._query = query
        self._embedded = embedded
        self._blooms = _find_blooms(handle, query)
        self._probe_min_bytes = probe_min_bytes
        self._read_dictionary = read_dictionary
        self._on_bad_index = on_bad_index
        self._found: dict[ReadKey, memoryview] = {}

    def comes_early(self, wants: Sequence[Want], groups: RemainingGroups, early_bytes: int) -> bool:
        """Return whether to fetch look-ups along with the page indexes `wants`, which may make them needless.

        They may where page indexes have to be fetched and statistics left all of several row groups, which
        makes it unlikely that page bounds exclude much.
        """
        alike = 1 < len(groups) <= _MOST_GROUPS and len(groups) == self._handle.metadata.num_row_groups
        if not early_bytes or not alike or any(certain for _, certain in groups):
            return False
        return any(self._handle.in_tail(want.range) is None for want in wants)

    def wants_along(self, drafts: Mapping[int, ScanTask], early_bytes: int) -> list[Want]:
        """Return the look-ups to fetch along with page indexes: none where they are more than a quarter of
        `early_bytes`."""
        nbytes = _nbytes(drafts)
        dictionaries = self._dictionaries(nbytes)
        first = self._wants(drafts, nbytes, dictionaries)
        loaded = {want.key: data for want in first if (data := self._handle.in_tail(want.range)) is not None}
        if loaded:  # the head of an index, which says which parts of it to read
            self.learn(loaded)
            first = self._wants(drafts, nbytes, dictionaries)
        return first if _ALONG * sum(want.range.length for want in first) <= early_bytes else []

    def learn(self, stash: Stash) -> None:
        """Take in the bytes that were read."""
        self._found |= stash
        for error in self._blooms.learn(stash) if self._blooms is not None else ():
            error.at(path=self._handle.id.path, place="bloom filter")
            self._on_bad_index(error)
        if self._embedded is not None:
            self._embedded.learn(stash, self._on_bad_index)

    def run(self, drafts: Mapping[int, ScanTask], into: IndexStatements) -> Steps[int]:
        """Look up the undecided row groups, and return the number of round trips."""
        trips = 0
        nbytes = _nbytes(drafts)
        dictionaries = self._dictionaries(nbytes)
        for _ in range(_ROUNDS):
            wants = self._wants(drafts, nbytes, dictionaries)
            if not wants:
                break
            stash, trip = yield from read_ranges(self._handle, wants)
            trips += trip
            self.learn(stash)
        if self._embedded is not None:
            self._embedded.add_evidence(drafts, into, self._on_bad_index)
        if self._blooms is not None:
            self._blooms.add_evidence(drafts, into)
        if dictionaries is not None:
            dictionaries.add_evidence(drafts, self._found, into)
        return trips

    def _dictionaries(self, nbytes: int) -> Dictionaries | None:
        if nbytes < self._probe_min_bytes:
            return None
        return Dictionaries.of(self._handle, self._query, self._read_dictionary)

    def _wants(
        self, drafts: Mapping[int, ScanTask], nbytes: int, dictionaries: Dictionaries | None
    ) -> list[Want]:
        """Return what to fetch next for row groups whose undecided pages have so many bytes."""
        costly = nbytes >= self._probe_min_bytes
        wants = self._blooms.wants(drafts) if self._blooms is not None and costly else []
        if self._embedded is not None:
            wants += self._embedded.wants(
                drafts, self._on_bad_index, most_bytes=nbytes // _WORTH if costly else 0
            )
        if dictionaries is not None:
            wants += [want for want in dictionaries.wants(drafts) if want.key not in self._found]
        return wants


def _nbytes(drafts: Mapping[int, ScanTask]) -> int:
    return sum(draft.nbytes for draft in drafts.values())


def find_embedded(
    handle: FileHandle,
    query: FileQuery,
    *,
    named: Mapping[tuple[str, ...], str],
    on_bad_index: OnBadIndex,
) -> Embedded | None:
    """Return the embedded indexes of a file that answer something in the predicate, if there are any."""
    if handle.toc is None and not named:
        return None
    from accel.planning.embedded import Embedded

    return Embedded.of(handle, query, named, on_bad_index)


def _find_blooms(handle: FileHandle, query: FileQuery) -> Blooms | None:
    if not bool((handle.metadata.chunks.bloom_offset > 0).any()):
        return None
    return Blooms.of(handle, query)


# Predicates with more keys skip the filter: the blocks add up, and seldom do all keys miss.
_MOST_KEYS = 256
# A filter no longer than this comes whole.
_SMALL = 4096


@dataclass(frozen=True, slots=True, eq=False)
class _Question:
    """One atom that blooms can answer: its keys, as stored, hashed. Each value may have two."""

    node: Node
    leaf: int
    hashes: tuple[tuple[int, ...], ...]
    narrow: bool
    """The Parquet type holds more than the Arrow type: values may have wrapped."""


@dataclass(slots=True)
class Blooms:
    """The bloom filters of one file that can answer something of a predicate."""

    handle: FileHandle
    questions: list[_Question]

    @classmethod
    def of(cls, handle: FileHandle, query: FileQuery) -> Blooms | None:
        """Return the filters of a file; None where no atom of the predicate can be put to one."""
        offsets = handle.metadata.chunks.bloom_offset
        if query.bound is None or handle.distrusted or not bool((offsets > 0).any()):
            return None
        plain = {path: leaf for path, leaf, _ in query.prunable}
        questions = []
        for node in column_atoms(query.bound.root):
            if not isinstance(node, Against | Among):
                continue
            column = query.bound.columns[node.column]
            ordinal = plain.get(column.path)
            if ordinal is None or not bool((offsets[:, ordinal] > 0).any()):
                continue
            leaf = handle.metadata.schema.leaves[ordinal]
            reading = bound_encoding(handle.metadata.schema.elements[leaf.element], column.type)
            if reading is None:
                continue
            if doubts_about(handle.metadata, ordinal, arrow_type=column.type).bloom_filters:
                continue
            hashes = _hashes(reading, _values(node))
            if hashes is not None:
                narrow = reading.least is not None or reading.greatest is not None
                questions.append(_Question(node, leaf.ordinal, hashes, narrow))
        return cls(handle, questions) if questions else None

    def wants(self, groups: Iterable[int]) -> list[Want]:
        """Return the next reads: blocks, with headers that were not read yet, or headers alone."""
        wants: dict[ReadKey, Want] = {}
        for question, group, state in self._states(groups):
            chunks = self.handle.metadata.chunks
            start = int(chunks.bloom_offset[group, question.leaf])
            length = int(chunks.bloom_length[group, question.leaf])
            header = state.header or (expected_header(length) if length > 0 else None)
            for first, end in _ranges(question, state, header, start):
                end = min(end, self.handle.metadata.footer_start)
                if end <= first:
                    state.unusable = True
                    continue
                key = ReadKey(Kind.BLOOM, group, question.leaf, first - start)
                wants[key] = Want(key, ByteRange(first, end))
        return list(wants.values())

    def learn(self, stash: Stash) -> list[IndexFormatError]:
        """Parse the bytes that were read; return the errors of filters that are passed over from now on."""
        errors = []
        for key in sorted(stash, key=lambda k: k.ordinal):
            if key.kind is not Kind.BLOOM:
                continue
            state = self._state(key.row_group, key.column)
            try:
                self._take(state, key, bytes(stash[key]))
            except IndexFormatError as error:
                state.unusable = True
                errors.append(error)
        return errors

    def _take(self, state: BloomState, key: ReadKey, data: bytes) -> None:
        chunks = self.handle.metadata.chunks
        at = (key.row_group, key.column)
        if key.ordinal == 0:
            state.header = parse_bloom_header(data)
            length = int(chunks.bloom_length[at])
            if length > 0 and state.header.length + state.header.num_bytes != length:
                raise IndexFormatError("the bloom filter's length is not what its header says")
            expected = expected_header(length) if length > 0 else None
            if expected is not None and expected != state.header:
                state.blocks.clear()
            data, first = data[state.header.length :], 0
            if len(data) < state.header.num_bytes:
                return
        elif state.header is None:
            return
        else:
            first, rest = divmod(key.ordinal - state.header.length, BLOCK_BYTES)
            if rest:
                return  # requested when a header of another length was expected
        state.has_bits = state.has_bits or any(data)
        for number in range(len(data) // BLOCK_BYTES):
            state.blocks[first + number] = data[number * BLOCK_BYTES : (number + 1) * BLOCK_BYTES]

    def add_evidence(self, groups: Iterable[int], into: IndexStatements) -> None:
        """Add what the blocks in memory prove about each atom and row group."""
        for question, group, state in self._states(groups):
            if any(question.hashes) and (state.header is None or not state.has_bits):
                continue
            if question.narrow and not self._within(question.leaf, group):
                continue
            found = [self._may_hold(state, value) for value in question.hashes]
            if None in found or any(found):
                continue
            # No key is there: the atom cannot be true of any row.
            one = np.ones(1, bool)
            evidence = Evidence(np.zeros(1, bool), one, one)
            into.add(question.node, group, Statement(np.zeros(1, np.int64), evidence, "bloom filter"))

    def _within(self, leaf: int, group: int) -> bool:
        bounds = self.handle.view.chunk_bounds.get(leaf)
        return bounds is not None and bool(bounds.has_lower[group] and bounds.has_upper[group])

    def _may_hold(self, state: BloomState, hashes: tuple[int, ...]) -> bool | None:
        header = state.header
        for hashed in hashes:
            if header is None:
                return None
            block = state.blocks.get(probe_block(hashed, header.num_blocks))
            if block is None:
                return None
            if holds(block, hashed):
                return True
        return False

    def _states(self, groups: Iterable[int]) -> Iterator[tuple[_Question, int, BloomState]]:
        chunks = self.handle.metadata.chunks
        for group in groups:
            for question in self.questions:
                if chunks.bloom_offset[group, question.leaf] > 0:
                    state = self._state(group, question.leaf)
                    if not state.unusable:
                        yield question, group, state

    def _state(self, group: int, leaf: int) -> BloomState:
        return self.handle.view.blooms.setdefault((group, leaf), BloomState())


def _values(node: Against | Among) -> list[Any] | None:
    if isinstance(node, Against):
        return [node.value] if node.order is Order.EQ else None
    if node.keys.nan or len(node.keys.sorted) > _MOST_KEYS:
        return None
    return [v.item() if isinstance(v, np.generic) else v for v in node.keys.sorted]


def _hashes(reading: BoundEncoding, values: list[Any] | None) -> tuple[tuple[int, ...], ...] | None:
    if values is None:
        return None
    out = []
    for value in values:
        keys = plain_keys(reading, value)
        if keys is None:
            return None
        out.append(tuple(int(h) for h in hash_keys(keys)))
    return tuple(out)


def _ranges(
    question: _Question, state: BloomState, header: BloomHeader | None, start: int
) -> Iterator[tuple[int, int]]:
    """Yield the bytes of a filter that answering the question still takes."""
    if header is None:
        yield start, start + HEADER_BYTES
        return
    numbers = {probe_block(h, header.num_blocks) for value in question.hashes for h in value}
    missing = sorted(number for number in numbers if number not in state.blocks)
    if not missing:
        if state.header is not None and not state.has_bits:
            yield from _more_blocks(state, state.header, start, min(numbers, default=0))
        return
    if header.length + header.num_bytes <= _SMALL:
        yield start, start + header.length + header.num_bytes
        return
    if state.header is None:
        yield start, start + header.length
    for number in missing:
        at = start + header.length + BLOCK_BYTES * number
        yield at, at + BLOCK_BYTES


def _more_blocks(
    state: BloomState, header: BloomHeader, start: int, number: int
) -> Iterator[tuple[int, int]]:
    """Yield the blocks around one that has no bit, where none that was met has: a filter that is empty
    throughout says nothing, however it came about."""
    count = min(_SMALL // BLOCK_BYTES, header.num_blocks)
    if len(state.blocks) >= count:
        return
    first = min(max(number - count // 2, 0), header.num_blocks - count)
    at = start + header.length + BLOCK_BYTES * first
    yield at, at + BLOCK_BYTES * count


# A dictionary is fetched for pruning only when the pages that it may save are so many times its size.
_DICTIONARY_WORTH = 4

# The bytes of a dictionary page that are its header.
_HEADER = 32

# Smaller dictionaries, in bytes, stay in memory with the metadata of the file.
_MOST_CACHED_DICTIONARY = 64 << 10

ReadDictionary: TypeAlias = Callable[[memoryview, int, SchemaElement, pa.DataType], pa.Array]
"""Decodes a dictionary page (its bytes, codec, leaf, and the column's type); it lives in a room below."""


@dataclass(frozen=True, slots=True)
class _Column:
    leaf: int
    column: BoundColumn
    nodes: tuple[Node, ...]


@dataclass(slots=True)
class Dictionaries:
    """The dictionaries of one file that can answer something of a predicate."""

    handle: FileHandle
    columns: list[_Column]
    read: ReadDictionary

    @classmethod
    def of(cls, handle: FileHandle, query: FileQuery, read: ReadDictionary) -> Dictionaries | None:
        """Return the dictionaries that the predicate can be put to.

        None where no column of it is dictionary-encoded throughout any row group.
        """
        chunks = handle.metadata.chunks
        if query.bound is None or handle.distrusted:
            return None
        nodes: dict[int, list[Node]] = {}
        for ordinal, node in single_column_parts(query.bound.root):
            nodes.setdefault(ordinal, []).append(node)
        # A struct of one field is excluded: it is null in other rows than its field.
        plain = {path: leaf for path, leaf, _ in query.prunable}
        columns = []
        for ordinal, own in nodes.items():
            column = query.bound.columns[ordinal]
            leaf = plain.get(column.path)
            if leaf is None:
                continue
            throughout = (chunks.plain_pages[:, leaf] == 0) & (chunks.dictionary_pages[:, leaf] > 0)
            # Decoded as they are, INT96 entries may have wrapped around: decode/instants.py handles that when
            # pages are read.
            schema = handle.metadata.schema
            if schema.elements[schema.leaves[leaf].element].physical is Physical.INT96:
                continue
            if bool(throughout.any()):
                columns.append(_Column(leaf, column, tuple(own)))
        return cls(handle, columns, read) if columns else None

    def wants(self, drafts: Mapping[int, ScanTask]) -> list[Want]:
        """Return the dictionaries that cost less than they may save."""
        wants = []
        for group, column, place in self._places(drafts):
            if (group, column.leaf) in self.handle.view.dictionaries:
                continue
            if place.length * _DICTIONARY_WORTH <= drafts[group].nbytes and not self._is_dense(
                group, column, place
            ):
                wants.append(Want(ReadKey(Kind.DICTIONARY, group, column.leaf), place))
        return wants

    def _is_dense(self, group: int, column: _Column, place: ByteRange) -> bool:
        """Return whether a dictionary of integers lists nearly all of its range.

        Then it excludes next to nothing more than the bounds.
        """
        bounds = self.handle.view.chunk_bounds.get(column.leaf)
        if bounds is None or bounds.domain is not Domain.INTEGER:
            return False
        if not (bounds.has_lower[group] and bounds.has_upper[group]):
            return False
        return int(bounds.upper[group]) - int(bounds.lower[group]) < place.length - _HEADER

    def add_evidence(self, drafts: Mapping[int, ScanTask], stash: Stash, into: IndexStatements) -> None:
        """Add what the dictionaries prove about each atom in its row group."""
        metadata = self.handle.metadata
        for group, column, _ in self._places(drafts):
            cached = self.handle.view.dictionaries
            values = cached.get((group, column.leaf))
            page = stash.get(ReadKey(Kind.DICTIONARY, group, column.leaf))
            if values is None and page is not None:
                element = metadata.schema.elements[metadata.schema.leaves[column.leaf].element]
                try:
                    codec = int(metadata.chunks.codec[group, column.leaf])
                    values = self.read(page, codec, element, column.column.type)
                except AccelError:
                    continue  # reading the pages raises the error
                if values.nbytes <= _MOST_CACHED_DICTIONARY:
                    cached[group, column.leaf] = values
            if values is None:
                continue
            for node in column.nodes:
                into.add(node, group, self._statement(column, node, values, group))

    def _statement(self, column: _Column, node: Node, values: pa.Array, group: int) -> Statement:
        # Evaluation loads functions of Arrow that most scans do without.
        from accel.predicate.evaluate import outcome

        bounds = group_bounds(self.handle, column.leaf, kind=column.column.type)
        if bounds.null_count[group] != 0:
            values = pa.concat_arrays([values, pa.nulls(1, values.type)])
        alone = Bound((BoundColumn(column.column.path, values.type),), over_first_column(node))

        result = outcome(alone, {column.column.path: values}, len(values))
        true, nulls = int(mask(result).sum()), result.null_count
        found = (true > 0, true + nulls < len(values), nulls > 0)
        evidence = Evidence(*(np.array([flag]) for flag in found))
        return Statement(np.zeros(1, np.int64), evidence, "dictionary")

    def _places(self, drafts: Mapping[int, ScanTask]) -> Iterator[tuple[int, _Column, ByteRange]]:
        chunks = self.handle.metadata.chunks
        for group in drafts:
            for column in self.columns:
                at = (group, column.leaf)
                if chunks.plain_pages[at] != 0 or chunks.dictionary_pages[at] <= 0:
                    continue
                start, data = int(chunks.start[at]), int(chunks.data_page_offset[at])
                if 4 <= start < data <= int(chunks.end[at]):
                    yield group, column, ByteRange(start, data)
