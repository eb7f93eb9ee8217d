"""One piece of a task, read: all columns at once, or the filter's first and the others where rows match."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from accel.errors import ParquetFormatError
from accel.planning.pages import Piece, PieceLeaf, PieceSize, cut_pieces
from accel.planning.selection import RowSelection
from accel.planning.task import ScanTask
from accel.planning.two_phase import at_once, cut_output, filter_phase, output_phase
from accel.reader.reader import Reader
from accel.reader.task_reads import PieceRead, TaskReads
from accel.reader.turns import Turn

if TYPE_CHECKING:
    from accel.decode.leaf_bytes import LeafBytes

__all__ = [
    "decode_read",
    "filter_piece",
    "finish_piece",
    "narrow_task",
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
    turn: Turn | None = None,
    lone: bool = False,
) -> tuple[list[pa.RecordBatch], int]:
    """The batches of one piece, fetched and decoded at once, the latter in its turn, if they are not kept; and the
    round trips that it took. `lone`: nothing else is read of its file."""
    kept = recall_piece(reader, reads, piece)
    if kept is not None:
        return kept, 0
    if reads.two_phases:
        piece = at_once(piece, reads.carried.claim)
        reads.share([piece])
    read = await reads.fetch(piece)
    if lone:
        read = await reader.unpack(read)
    batches, trips = await decode_read(reader, task, reads, read, turn=turn)
    reads.result.put(piece, batches)
    return batches, trips


def recall_piece(reader: Reader, reads: TaskReads, piece: Piece) -> list[pa.RecordBatch] | None:
    """The batches of one piece, if they are kept."""
    kept = reads.result.get_piece(piece)
    if kept is None:
        return None
    matched = sum(batch.num_rows for batch in kept)
    reader.metrics.add("rows_recalled", matched)
    _see(reader, piece, matched)
    return list(kept)


async def decode_read(
    reader: Reader, task: ScanTask, reads: TaskReads, read: PieceRead, *, turn: Turn | None = None
) -> tuple[list[pa.RecordBatch], int]:
    """The second half of `read_piece`: what was fetched of it, decoded."""
    piece = read.piece
    doubtful = piece.rows.count - piece.sure.count
    found: list[RowSelection] | None = [] if doubtful and reads.remembers else None
    batches, read = await _decoded(reads, read, partial(reader.decode, task, found=found), turn)
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
    turn: Turn | None = None,
) -> tuple[PieceRead, list[Piece]]:
    """The first phase of a piece: what came of it that the result needs too, and what is left to be read."""
    first = await reads.fetch(filter_phase(piece))
    rows, first = await _decoded(reads, first, partial(reader.match, task), turn)
    _see(reader, piece, rows.count)
    reads.remember(piece.rows, sure=piece.sure, matched=rows)
    reader.metrics.add("late_pieces")
    kept = {
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
    return PieceRead(first.piece, kept, first.round_trips), parts


async def finish_piece(
    reader: Reader,
    task: ScanTask,
    *,
    reads: TaskReads,
    first: PieceRead,
    part: Piece,
    turn: Turn | None = None,
) -> tuple[list[pa.RecordBatch], int]:
    """The second phase of a piece, or a part of it; and the round trips that both took."""
    rest = await reads.fetch(part)
    whole = _joined(first, rest, part.rows)
    batches, read = await _decoded(reads, whole, partial(reader.decode, task), turn)
    reads.result.put(part, batches)
    return batches, first.round_trips + read.round_trips


async def narrow_task(reader: Reader, task: ScanTask, *, reads: TaskReads, size: PieceSize) -> ScanTask:
    """Read the filter's chunks, which have no offset index, and cut the task down to the rows that match.

    What came stays at hand; chunks of other columns are still to be read whole, unless no row is left.
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
    """Have it known for what comes next how many of the rows that were read match."""
    sure = read.sure.count
    reader.seen.add(tested=read.rows.count - sure, matched=matched - sure)


async def _decoded(
    reads: TaskReads,
    read: PieceRead,
    decode: Callable[[PieceRead], Awaitable[T]],
    turn: Turn | None = None,
) -> tuple[T, PieceRead]:
    """What was fetched, decoded; once more where that shows that a dictionary is needed after all."""
    try:
        if turn is None:
            return await decode(read), read
        async with turn:
            return await decode(read), read
    except ParquetFormatError:
        whole = await reads.complete(read)
        if whole is None:
            raise
    return await decode(whole), whole


def _joined(first: PieceRead, rest: PieceRead, rows: RowSelection) -> PieceRead:
    """Both phases as one piece, of the rows that match."""
    parts: list[PieceLeaf] = list(rest.piece.leaves)
    leaves: dict[int, LeafBytes] = dict(rest.leaves)
    for part in first.piece.leaves:
        if part.reads.for_output:
            parts.append(part)
            leaves[part.reads.leaf] = first.leaves[part.reads.leaf]
    piece = Piece(rows, rows, tuple(parts), rest.piece.start, rest.piece.stop)
    return PieceRead(piece, leaves, rest.round_trips)
