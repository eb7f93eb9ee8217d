"""Small row groups side by side, read together: fetched in one round trip, and decoded together where they can be."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from accel.planning.neighbours import neighbours
from accel.planning.pages import Piece, PieceSize
from accel.planning.task import ScanTask
from accel.planning.two_phase import cut_task
from accel.ranges import ReadKey, Want
from accel.reader.piece_reads import decode_read, read_piece, recall_piece
from accel.reader.reader import Reader
from accel.reader.task_reads import PieceRead, TaskReads
from accel.reader.turns import Turn
from accel.store.tasks import breathe

__all__ = ["Neighbour", "Neighbours", "join_neighbours", "read_neighbours"]

# Fewer are decoded one by one: accel itself decompresses what little is picked of a few, for which pyarrow's reader
# would use memory that a fresh process has not touched yet.
_LEAST = 4


@dataclass(frozen=True, slots=True)
class Neighbour:
    """One of several tasks that are read as if they were one piece: it is a single piece by itself."""

    task: ScanTask
    reads: TaskReads
    piece: Piece


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Tasks of neighbouring row groups that are read as if they were one piece."""

    each: Sequence[Neighbour]

    @property
    def held_bytes(self) -> int:
        """See `Piece`; as of it all."""
        return sum(one.piece.held_bytes for one in self.each)

    @property
    def weight(self) -> float:
        """See `Piece`; as of it all."""
        return sum(one.piece.weight for one in self.each)

    @property
    def sure_rows(self) -> int:
        """Rows that are known to match."""
        return sum(one.task.sure.count for one in self.each)


def join_neighbours(
    reader: Reader, tasks: Sequence[ScanTask], *, abreast: int, size: PieceSize
) -> Iterator[Neighbours | ScanTask]:
    """The tasks of one file in order: those of small neighbouring row groups joined, the others by themselves."""
    for some in neighbours(tasks):
        joined = _joined(reader, some, abreast=abreast, size=size)
        if joined is None:
            yield from some
        else:
            yield joined


def _joined(reader: Reader, tasks: Sequence[ScanTask], *, abreast: int, size: PieceSize) -> Neighbours | None:
    """None where each is to be read by itself: one takes two phases or several pieces, or they come to more than a piece."""
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
    reader: Reader, joined: Neighbours, *, turn: Callable[[], Turn]
) -> tuple[list[pa.RecordBatch], int]:
    """The batches of all of them, in order, and the round trips that they took."""
    stacks = [(stack, _kept(reader, stack)) for stack in _stacks(joined.each)]
    left = [one for stack, kept in stacks if kept is None for one in stack]
    lacking = [one.reads.lacking(one.piece) for one in left]
    wants = _longest(lacking)
    came, trips = await left[0].reads.ask(wants) if wants else ({}, 0)
    for one, own in zip(left, lacking, strict=True):
        one.reads.give({want.key: came[want.key][: want.range.length] for want in own})
    del came  # what has been decoded is not held on to
    batches: list[pa.RecordBatch] = []
    more = 0
    for stack, kept in stacks:
        if kept is not None:
            batches += kept
            continue
        await breathe()  # what is little is decoded here
        if len(stack) > 1:
            found, own_trips = await _read_stack(reader, stack, turn=turn())
        else:
            (one,) = stack
            found, own_trips = await read_piece(reader, one.task, one.reads, one.piece, turn=turn())
        batches += found
        more = max(more, own_trips)
    return batches, trips + more


def _longest(lacking: Iterable[Sequence[Want]]) -> list[Want]:
    """What all of them lack, each once: two tasks of a row group, as an aggregate leaves them, may want runs of a
    different length from the same page on."""
    longest: dict[ReadKey, Want] = {}
    for want in itertools.chain.from_iterable(lacking):
        known = longest.get(want.key)
        if known is None or known.range.end < want.range.end:
            longest[want.key] = want
    return list(longest.values())


def _kept(reader: Reader, stack: Sequence[Neighbour]) -> list[pa.RecordBatch] | None:
    """The batches of a neighbour that is decoded by itself, if they are kept."""
    return recall_piece(reader, stack[0].reads, stack[0].piece) if len(stack) == 1 else None


def _stacks(joined: Sequence[Neighbour]) -> Iterator[list[Neighbour]]:
    """The neighbours in order, in the groups that are decoded together."""
    from accel.decode.stack import stack_kind

    for kind, stack in itertools.groupby(joined, lambda one: stack_kind(one.task, one.piece)):
        some = list(stack)
        if kind is None or len(some) < _LEAST:
            yield from ([one] for one in some)
        else:
            yield some


async def _read_stack(
    reader: Reader, stack: Sequence[Neighbour], *, turn: Turn
) -> tuple[list[pa.RecordBatch], int]:
    from accel.decode.stack import Layer

    reads: list[PieceRead] = []
    for one in stack:
        await breathe()
        reads.append(await one.reads.fetch(one.piece))
    layers = [Layer(one.task, read.piece, read.leaves) for one, read in zip(stack, reads, strict=True)]
    async with turn:
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
