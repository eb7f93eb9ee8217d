"""Pieces of tasks are read: in one phase or two, one by one or with those of neighbouring row groups."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from accel.errors import ParquetFormatError
from accel.planning.pages import Piece, PieceLeaf, PieceSize, cut_pieces
from accel.planning.selection import RowSelection
from accel.planning.task import ScanTask, adjacent_tasks
from accel.planning.two_phase import at_once, cut_output, cut_task, filter_phase, output_phase
from accel.ranges import ReadKey, Want
from accel.reader.reader import Reader
from accel.reader.task_reads import PieceRead, TaskReads
from accel.runtime.tasks import breathe
from accel.store.gate import Slot

if TYPE_CHECKING:
    from accel.decode.chunks import LeafBytes
    from accel.decode.stack import StackKind

__all__ = [
    "Neighbour",
    "Neighbours",
    "decode_read",
    "filter_piece",
    "finish_piece",
    "join_neighbours",
    "narrow_task",
    "read_neighbours",
    "read_piece",
    "recall_piece",
]

T = TypeVar("T")


async def read_piece(
    reader: Reader,
    task: ScanTask,
    reads: TaskReads,
    piece: Piece,
    *,
    permit: Slot | None = None,
) -> tuple[list[pa.RecordBatch], int]:
    """Fetch and decode one piece; return its batches and the round trips."""
    cached = recall_piece(reader, reads, piece)
    if cached is not None:
        return cached, 0
    if reads.two_phases:
        piece = at_once(piece, reads.carried.claim)
        reads.share([piece])
    read = await reads.fetch(piece)
    batches, trips = await decode_read(reader, task, reads, read, permit=permit)
    reads.result.put(piece, batches)
    return batches, trips


def recall_piece(reader: Reader, reads: TaskReads, piece: Piece) -> list[pa.RecordBatch] | None:
    """Return the batches of one piece, if the result cache has them."""
    cached = reads.result.get_piece(piece)
    if cached is None:
        return None
    matched = sum(batch.num_rows for batch in cached)
    reader.metrics.add("rows_recalled", matched)
    _see(reader, piece, matched)
    return list(cached)


async def decode_read(
    reader: Reader, task: ScanTask, reads: TaskReads, read: PieceRead, *, permit: Slot | None = None
) -> tuple[list[pa.RecordBatch], int]:
    """Decode the fetched bytes of a piece; return its batches and the round trips."""
    piece = read.piece
    together = await reader.decode_alike(task, read, permit)
    if together is not None:
        batches = together
    else:
        batches, read = await _decoded(reads, read, partial(reader.decode, task), permit)
    _see(reader, piece, sum(batch.num_rows for batch in batches))
    return batches, read.round_trips


async def filter_piece(
    reader: Reader,
    task: ScanTask,
    *,
    reads: TaskReads,
    piece: Piece,
    size: PieceSize,
    permit: Slot | None = None,
) -> tuple[PieceRead, list[Piece]]:
    """Read the first phase of a piece; return those of its pages that the result needs, and the pieces left
    to read."""
    first = await reads.fetch(filter_phase(piece))
    rows, first = await _decoded(reads, first, partial(reader.match, task), permit)
    _see(reader, piece, rows.count)
    reader.metrics.add("late_pieces")
    cached = {
        part.reads.leaf: first.leaves[part.reads.leaf]
        for part in first.piece.leaves
        if part.reads.for_output and rows
    }
    rest = output_phase(piece, rows, is_carried=reads.carried.claim) if rows else None
    reads.carried.pass_by(piece.stop)
    parts: list[Piece] = []
    if rest is not None:
        parts = cut_output(rest, num_rows=task.num_rows, size=size)
    reads.share(parts)
    if not parts:
        reads.result.put(piece, [])
    return PieceRead(first.piece, cached, first.round_trips), parts


async def finish_piece(
    reader: Reader,
    task: ScanTask,
    *,
    reads: TaskReads,
    first: PieceRead,
    part: Piece,
    permit: Slot | None = None,
) -> tuple[list[pa.RecordBatch], int]:
    """Read the second phase of a piece, or a part of it; return its batches and the round trips of both
    phases."""
    rest = await reads.fetch(part)
    whole = _join_phases(first, rest, part.rows)
    batches, read = await _decoded(reads, whole, partial(reader.decode, task), permit)
    reads.result.put(part, batches)
    return batches, first.round_trips + read.round_trips


async def narrow_task(reader: Reader, task: ScanTask, *, reads: TaskReads, size: PieceSize) -> ScanTask:
    """Read the filter's chunks, which have no offset index, and narrow the task to the rows that match.

    The task keeps the chunks that were read; those of other columns are read later if any row is left.
    """
    filters = replace(task, reads=tuple(leaf for leaf in task.reads if leaf.for_filter))
    located = await reads.over(filters).fetch_chunks()
    steps = reads.over(located)
    pieces = cut_pieces(located.reads, task.rows, certain=task.certain, num_rows=task.num_rows, size=size)
    steps.expect(pieces)
    rows = RowSelection.none()
    for piece in pieces:
        matched, _ = await _decoded(steps, await steps.fetch(piece), partial(reader.match, located))
        rows = rows.union(matched)
    _see(reader, task, rows.count)
    reader.metrics.add("late_pieces")
    paged = {leaf.leaf: leaf for leaf in located.reads}
    left = [paged.get(leaf.leaf, leaf) for leaf in task.reads if leaf.for_output]
    return replace(located, rows=rows, certain=rows, reads=tuple(leaf.narrow(rows) for leaf in left))


def _see(reader: Reader, read: Piece | ScanTask, matched: int) -> None:
    """Count the rows that match, for the forecasts of later tasks."""
    certain = read.certain.count
    reader.seen.add(tested=read.rows.count - certain, matched=matched - certain)


async def _decoded(
    reads: TaskReads,
    read: PieceRead,
    decode: Callable[[PieceRead], Awaitable[T]],
    permit: Slot | None = None,
) -> tuple[T, PieceRead]:
    """Decode the fetched bytes, and again with a dictionary page that turns out to be missing."""
    try:
        if permit is None:
            return await decode(read), read
        async with permit:
            return await decode(read), read
    except ParquetFormatError:
        whole = await reads.complete(read)
        if whole is None:
            raise
    return await decode(whole), whole


def _join_phases(first: PieceRead, rest: PieceRead, rows: RowSelection) -> PieceRead:
    """Return both phases as one piece, with the rows that match."""
    parts: list[PieceLeaf] = list(rest.piece.leaves)
    leaves: dict[int, LeafBytes] = dict(rest.leaves)
    for part in first.piece.leaves:
        if part.reads.for_output:
            parts.append(part)
            leaves[part.reads.leaf] = first.leaves[part.reads.leaf]
    piece = Piece(rows, rows, tuple(parts), rest.piece.start, rest.piece.stop)
    return PieceRead(piece, leaves, rest.round_trips)


# Row groups below which they are decoded one by one: pyarrow's reader would use memory that a fresh process
# has not touched yet.
_LEAST = 4
# Bytes of pages that are decoded together at most, so that each thread has some.
_DECODED_TOGETHER = 2 << 20
# Row groups of one piece at most: to begin more at once holds an event loop up for milliseconds.
_MOST_TOGETHER = 64
# The part of the memory limit that one piece of several row groups may take, as others are read beside it.
_LEAST_PIECES = 8


@dataclass(frozen=True, slots=True)
class Neighbour:
    """One of several tasks that are read together; it has a single piece."""

    task: ScanTask
    reads: TaskReads
    piece: Piece
    kind: StackKind | None
    """The pieces that it may be decoded with."""


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Tasks of neighbouring row groups that are read as one piece."""

    each: Sequence[Neighbour]
    held_bytes: int
    """The sum of `Piece.held_bytes`."""
    weight: float
    """The sum of `Piece.weight`."""
    certain_rows: int
    """The number of rows that match without a filter."""
    kind: StackKind | None
    """The kind that all of them share, or None."""

    @classmethod
    def of(cls, each: Sequence[Neighbour]) -> Neighbours:
        """Return these tasks with their sums."""
        kind = each[0].kind
        return cls(
            each,
            held_bytes=sum(one.piece.held_bytes for one in each),
            weight=sum(one.piece.weight for one in each),
            certain_rows=sum(one.task.certain.count for one in each),
            kind=kind if all(one.kind == kind for one in each) else None,
        )

    def and_then(self, other: Neighbours) -> Neighbours:
        """Return these tasks and others of the same kind."""
        return Neighbours(
            [*self.each, *other.each],
            held_bytes=self.held_bytes + other.held_bytes,
            weight=self.weight + other.weight,
            certain_rows=self.certain_rows + other.certain_rows,
            kind=self.kind,
        )


def join_neighbours(
    reader: Reader, tasks: Sequence[ScanTask], *, concurrent: int, size: PieceSize
) -> Iterator[Neighbours | ScanTask]:
    """Yield the tasks of one file in order, joining those of small neighbouring row groups: what one request
    brings, and several of these if they are decoded together."""
    begun: Neighbours | None = None
    for some in adjacent_tasks(tasks):
        joined = None
        if len(some) > 1 or (len(tasks) >= _LEAST and _is_small(some[0])):
            joined = _joined(reader, some, concurrent=concurrent, size=size)
        if begun is not None:
            both = None if joined is None else _both(reader, begun, joined, size=size)
            if both is not None:
                begun = both
                continue
            yield _unless_alone(begun)
            begun = None
        if joined is None:
            yield from some
        elif joined.kind is None:
            yield _unless_alone(joined)
        else:
            begun = joined
    if begun is not None:
        yield _unless_alone(begun)


def _is_small(task: ScanTask) -> bool:
    """Return whether a task reads whole chunks, so few bytes that another one fits beside it."""
    if 2 * task.nbytes > _DECODED_TOGETHER:
        return False
    return all(leaf.whole or len(leaf.ordinal) == leaf.total_pages for leaf in task.reads)


def _unless_alone(joined: Neighbours) -> Neighbours | ScanTask:
    return joined if len(joined.each) > 1 else joined.each[0].task


def _both(reader: Reader, one: Neighbours, other: Neighbours, *, size: PieceSize) -> Neighbours | None:
    """Join row groups that are decoded together; None where they are of different kinds or too many."""
    if one.kind is None or one.kind != other.kind or len(one.each) + len(other.each) > _MOST_TOGETHER:
        return None
    if one.weight + other.weight > min(_DECODED_TOGETHER, size.usual):
        return None
    if one.held_bytes + other.held_bytes > reader.options.memory_limit // _LEAST_PIECES:
        return None
    return one.and_then(other)


def _joined(
    reader: Reader, tasks: Sequence[ScanTask], *, concurrent: int, size: PieceSize
) -> Neighbours | None:
    """Join tasks; None if one takes two phases or several pieces, or all together are larger than a piece."""
    from accel.decode.stack import stack_kind

    each: list[Neighbour] = []
    first: TaskReads | None = None
    for task in tasks:
        if task.cut_when_read or reader.forecast(task, concurrent=concurrent) is not None:
            return None
        reads = reader.reads(task, concurrent=concurrent) if first is None else first.beside(task)
        first = first or reads
        pieces = cut_task(task, size=size, two_phases=False)
        if len(pieces) != 1:
            return None
        each.append(Neighbour(task, reads, pieces[0], stack_kind(task, pieces[0])))
    joined = Neighbours.of(each)
    if joined.weight > size.usual or joined.held_bytes > reader.options.memory_limit:
        return None
    return joined


async def read_neighbours(
    reader: Reader, joined: Neighbours, *, permit: Callable[[], Slot]
) -> tuple[list[pa.RecordBatch], int]:
    """Read all of them; return their batches in order and the round trips."""
    stacks = [(stack, _cached_batches(reader, stack)) for stack in _stacks(joined.each)]
    left = [one for stack, cached in stacks if cached is None for one in stack]
    wants = _longest([one.reads.wants(one.piece) for one in left])
    came, trips = await left[0].reads.ask(wants) if wants else ({}, 0)
    for one in left:
        one.reads.give(came)
    batches: list[pa.RecordBatch] = []
    more = 0
    for stack, cached in stacks:
        if cached is not None:
            batches += cached
            continue
        await breathe()  # small pieces are decoded on this loop
        if len(stack) > 1:
            found, own_trips = await _read_stack(reader, stack, permit=permit())
        else:
            (one,) = stack
            found, own_trips = await read_piece(reader, one.task, one.reads, one.piece, permit=permit())
        batches += found
        more = max(more, own_trips)
    return batches, trips + more


def _longest(wants: Iterable[Sequence[Want]]) -> list[Want]:
    """Return the wanted ranges, each once.

    Two tasks of a row group, as an aggregate makes them, may want runs of different length that begin with
    one page.
    """
    longest: dict[ReadKey, Want] = {}
    for want in itertools.chain.from_iterable(wants):
        other = longest.get(want.key)
        if other is None or other.range.end < want.range.end:
            longest[want.key] = want
    return list(longest.values())


def _cached_batches(reader: Reader, stack: Sequence[Neighbour]) -> list[pa.RecordBatch] | None:
    """Return the batches of neighbours, if the result cache has those of each."""
    # Each notes that it was asked for, so all are asked.
    if None in [one.reads.result.get_piece(one.piece) for one in stack]:
        return None
    return [batch for one in stack for batch in recall_piece(reader, one.reads, one.piece) or ()]


def _stacks(joined: Sequence[Neighbour]) -> Iterator[list[Neighbour]]:
    """Yield the neighbours in order, in groups that are decoded together."""
    for kind, stack in itertools.groupby(joined, lambda one: one.kind):
        some = list(stack)
        if kind is None or len(some) < _LEAST:
            yield from ([one] for one in some)
        else:
            yield some


async def _read_stack(
    reader: Reader, stack: Sequence[Neighbour], *, permit: Slot
) -> tuple[list[pa.RecordBatch], int]:
    from accel.decode.stack import Layer

    reads: list[PieceRead] = []
    for one in stack:
        await breathe()
        reads.append(await one.reads.fetch(one.piece))
    layers = [Layer(one.task, read.piece, read.leaves) for one, read in zip(stack, reads, strict=True)]
    async with permit:
        matched: list[int] = []
        batches = await reader.decode_stack(layers, matched)
    trips = max(read.round_trips for read in reads)
    if batches is None:
        batches = []
        for one, read in zip(stack, reads, strict=True):
            await breathe()
            found, own_trips = await decode_read(reader, one.task, one.reads, read)
            batches += found
            trips = max(trips, own_trips)
        return batches, trips
    if not stack[0].piece.certain:
        reader.seen.add(tested=sum(one.piece.rows.count for one in stack), matched=sum(matched))
    if len(batches) <= 1:
        _keep_each(stack, batches, matched)
    return batches, trips


def _keep_each(stack: Sequence[Neighbour], batches: Sequence[pa.RecordBatch], matched: Sequence[int]) -> None:
    """Store the rows of each neighbour, which follow one another in up to one batch."""
    start = 0
    for one, count in zip(stack, matched, strict=True):
        one.reads.result.put(one.piece, [batches[0].slice(start, count)] if count else [])
        start += count
