"""Parquet's bloom filters, asked by the block: 32 bytes a key, not the whole filter.

A filter's header is of one usual shape, so its length follows from the filter's; header and blocks are
asked for together, and the header is checked when it comes. What was met is kept on the handle, so that the
same question costs nothing the next time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from accel.errors import IndexFormatError
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
from accel.format.domain import BoundEncoding, bound_encoding
from accel.format.writers import doubts_about
from accel.planning.handle import FileHandle
from accel.planning.query import FileQuery
from accel.planning.witness import Statement, Witnesses
from accel.predicate.atoms import Against, Among, Node, Order, column_atoms
from accel.predicate.prune import Evidence
from accel.ranges import ByteRange, Kind, ReadKey, Stash, Want

__all__ = ["Blooms"]

# More keys than this are not asked for: their blocks add up, and seldom all of them miss.
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
    """The blooms that a predicate can ask, over the row groups of one file."""

    handle: FileHandle
    questions: list[_Question]

    @classmethod
    def of(cls, handle: FileHandle, query: FileQuery) -> Blooms | None:
        """None where no atom of the predicate can be put to a filter of the file."""
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
        """What the next round trip should bring: blocks (with headers not seen yet), or headers alone."""
        wants: dict[ReadKey, Want] = {}
        for question, group, state in self._asked(groups):
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
        """Take in what came; the errors of filters that are passed over from now on."""
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
                return  # asked for where a header of another length was expected
        state.has_bits = state.has_bits or any(data)
        for number in range(len(data) // BLOCK_BYTES):
            state.blocks[first + number] = data[number * BLOCK_BYTES : (number + 1) * BLOCK_BYTES]

    def testify(self, groups: Iterable[int], witnesses: Witnesses) -> None:
        """State for every atom and row group what the blocks at hand prove."""
        for question, group, state in self._asked(groups):
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
            witnesses.add(question.node, group, Statement(np.zeros(1, np.int64), evidence))

    def _within(self, leaf: int, group: int) -> bool:
        bounds = self.handle.chunk_bounds.get(leaf)
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

    def _asked(self, groups: Iterable[int]) -> Iterator[tuple[_Question, int, BloomState]]:
        chunks = self.handle.metadata.chunks
        for group in groups:
            for question in self.questions:
                if chunks.bloom_offset[group, question.leaf] > 0:
                    state = self._state(group, question.leaf)
                    if not state.unusable:
                        yield question, group, state

    def _state(self, group: int, leaf: int) -> BloomState:
        return self.handle.blooms.setdefault((group, leaf), BloomState())


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
    """The bytes of a filter that answering the question still takes."""
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
    """The blocks around one that has no bit, where none that was met has: a filter that is empty throughout says
    nothing, however it came about."""
    count = min(_SMALL // BLOCK_BYTES, header.num_blocks)
    if len(state.blocks) >= count:
        return
    first = min(max(number - count // 2, 0), header.num_blocks - count)
    at = start + header.length + BLOCK_BYTES * first
    yield at, at + BLOCK_BYTES * count
