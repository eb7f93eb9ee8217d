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
from accel.store.gate import Slot
from accel.store.tasks import breathe

if TYPE_CHECKING:
    from accel.decode.chunks import LeafBytes

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
    doubtful = piece.rows.count - piece.sure.count
    found: list[RowSelection] | None = [] if doubtful and reads.remembers else None
    batches, read = await _decoded(reads, read, partial(reader.decode, task, found=found), permit)
    _see(reader, piece, sum(batch.num_rows for batch in batches))
    if found:
        reads.remember(piece.rows, sure=piece.sure, matched=found[-1])
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
    """Read the first phase of a piece; return those of its pages that the result needs, and the pieces left to read."""
    first = await reads.fetch(filter_phase(piece))
    rows, first = await _decoded(reads, first, partial(reader.match, task), permit)
    _see(reader, piece, rows.count)
    reads.remember(piece.rows, sure=piece.sure, matched=rows)
    reader.metrics.add("late_pieces")
    cached = {
        part.reads.leaf: first.leaves[part.reads.leaf]
        for part in first.piece.leaves
        if part.reads.for_output and rows
    }
    rest = output_phase(piece, rows, at_hand=reads.carried.claim) if rows else None
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
    """Read the second phase of a piece, or a part of it; return its batches and the round trips of both phases."""
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
    pieces = cut_pieces(located.reads, task.rows, sure=task.sure, num_rows=task.num_rows, size=size)
    steps.expect(pieces)
    rows = RowSelection.none()
    for piece in pieces:
        matched, _ = await _decoded(steps, await steps.fetch(piece), partial(reader.match, located))
        rows = rows.union(matched)
    _see(reader, task, rows.count)
    reads.remember(task.rows, sure=task.sure, matched=rows)
    reader.metrics.add("late_pieces")
    paged = {leaf.leaf: leaf for leaf in located.reads}
    left = [paged.get(leaf.leaf, leaf) for leaf in task.reads if leaf.for_output]
    return replace(located, rows=rows, sure=rows, reads=tuple(leaf.narrow(rows) for leaf in left))


def _see(reader: Reader, read: Piece | ScanTask, matched: int) -> None:
    """Count the rows that match, for the forecasts of later tasks."""
    sure = read.sure.count
    reader.seen.add(tested=read.rows.count - sure, matched=matched - sure)


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


# Row groups below which they are decoded one by one: pyarrow's reader would use memory that a fresh process has not
# touched yet.
_LEAST = 4


@dataclass(frozen=True, slots=True)
class Neighbour:
    """One of several tasks that are read together; it has a single piece."""

    task: ScanTask
    reads: TaskReads
    piece: Piece


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Tasks of neighbouring row groups that are read as one piece."""

    each: Sequence[Neighbour]

    @property
    def held_bytes(self) -> int:
        """The sum of `Piece.held_bytes`."""
        return sum(one.piece.held_bytes for one in self.each)

    @property
    def weight(self) -> float:
        """The sum of `Piece.weight`."""
        return sum(one.piece.weight for one in self.each)

    @property
    def sure_rows(self) -> int:
        """The number of rows that match without a filter."""
        return sum(one.task.sure.count for one in self.each)


def join_neighbours(
    reader: Reader, tasks: Sequence[ScanTask], *, abreast: int, size: PieceSize
) -> Iterator[Neighbours | ScanTask]:
    """Yield the tasks of one file in order, joining those of small neighbouring row groups."""
    for some in adjacent_tasks(tasks):
        joined = _joined(reader, some, abreast=abreast, size=size)
        if joined is None:
            yield from some
        else:
            yield joined


def _joined(reader: Reader, tasks: Sequence[ScanTask], *, abreast: int, size: PieceSize) -> Neighbours | None:
    """Join tasks; None if one takes two phases or several pieces, or all together are larger than a piece."""
    if len(tasks) == 1:
        return None
    each: list[Neighbour] = []
    for task in tasks:
        reads = reader.reads(task, abreast=abreast)
        if reads.two_phases or task.cut_when_read:
            return None
        pieces = cut_task(task, size=size, two_phases=False)
        if len(pieces) != 1:
            return None
        each.append(Neighbour(task, reads, pieces[0]))
    joined = Neighbours(each)
    if joined.weight > size.usual or joined.held_bytes > reader.options.memory_limit:
        return None
    return joined


async def read_neighbours(
    reader: Reader, joined: Neighbours, *, permit: Callable[[], Slot]
) -> tuple[list[pa.RecordBatch], int]:
    """Read all of them; return their batches in order and the round trips."""
    stacks = [(stack, _cached_batches(reader, stack)) for stack in _stacks(joined.each)]
    left = [one for stack, cached in stacks if cached is None for one in stack]
    lacking = [one.reads.lacking(one.piece) for one in left]
    wants = _longest(lacking)
    came, trips = await left[0].reads.ask(wants) if wants else ({}, 0)
    for one, own in zip(left, lacking, strict=True):
        one.reads.give({want.key: came[want.key][: want.range.length] for want in own})
    del came  # bytes are freed as soon as they have been decoded
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


def _longest(lacking: Iterable[Sequence[Want]]) -> list[Want]:
    """Return the wanted ranges, each once.

    Two tasks of a row group, as an aggregate makes them, may want runs of different length that begin with one page.
    """
    longest: dict[ReadKey, Want] = {}
    for want in itertools.chain.from_iterable(lacking):
        other = longest.get(want.key)
        if other is None or other.range.end < want.range.end:
            longest[want.key] = want
    return list(longest.values())


def _cached_batches(reader: Reader, stack: Sequence[Neighbour]) -> list[pa.RecordBatch] | None:
    """Return the batches of a neighbour that is decoded by itself, if the result cache has them."""
    return recall_piece(reader, stack[0].reads, stack[0].piece) if len(stack) == 1 else None


def _stacks(joined: Sequence[Neighbour]) -> Iterator[list[Neighbour]]:
    """Yield the neighbours in order, in groups that are decoded together."""
    from accel.decode.stack import stack_kind

    for kind, stack in itertools.groupby(joined, lambda one: stack_kind(one.task, one.piece)):
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
        batches = await reader.decode_stack(layers)
    trips = max(read.round_trips for read in reads)
    if batches is None:
        batches = []
        for one, read in zip(stack, reads, strict=True):
            await breathe()
            found, own_trips = await decode_read(reader, one.task, one.reads, read)
            batches += found
            trips = max(trips, own_trips)
    elif not stack[0].piece.sure:
        tested = sum(one.piece.rows.count for one in stack)
        reader.seen.add(tested=tested, matched=sum(batch.num_rows for batch in batches))
    return batches, trips
