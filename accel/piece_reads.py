"""One piece of a task, read: all columns at once, or the filter's first and the others where rows match."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from accel.decode.piece import LeafBytes
from accel.planning.pages import Piece, PieceLeaf, cut_pieces
from accel.planning.selection import RowSelection
from accel.planning.task import ScanTask
from accel.planning.two_phase import filter_phase, output_phase
from accel.reader import Reader
from accel.task_reads import PieceRead, TaskReads

__all__ = ["narrow_task", "read_piece"]


async def read_piece(
    reader: Reader, task: ScanTask, reads: TaskReads, piece: Piece
) -> tuple[list[pa.RecordBatch], int]:
    """Fetch and decode one piece; its batches, and the round trips it took."""
    doubtful = piece.rows.count - piece.sure.count
    if not reads.two_phases or not doubtful:
        read = await reads.fetch(piece)
        batches = await reader.decode(task, read)
        if doubtful:
            passed = sum(batch.num_rows for batch in batches) - piece.sure.count
            reader.seen.add(tested=doubtful, matched=passed)
        return batches, read.round_trips
    first = await reads.fetch(filter_phase(piece))
    rows = await reader.match(task, first)
    reader.seen.add(tested=doubtful, matched=rows.count - piece.sure.count)
    reader.metrics.add("late_pieces")
    if not rows:
        return [], first.round_trips
    second = reads.share(output_phase(piece, rows, reads.shares))
    rest = await reads.fetch(second)
    read = _joined(first, rest, rows)
    return await reader.decode(task, read), first.round_trips + rest.round_trips


async def narrow_task(reader: Reader, task: ScanTask, reads: TaskReads, *, piece_bytes: int) -> ScanTask:
    """Read the filter's chunks, which have no offset index, and cut the task down to the rows that match.

    What came stays at hand; chunks of other columns are still to be read whole, unless no row is left.
    """
    filters = replace(task, reads=tuple(leaf for leaf in task.reads if leaf.for_filter))
    located = await reads.over(filters).fetch_chunks()
    steps = reads.over(located)
    pieces = cut_pieces(located.reads, task.rows, task.sure, num_rows=task.num_rows, piece_bytes=piece_bytes)
    steps.expect(pieces)
    rows = RowSelection.none()
    for piece in pieces:
        rows = rows.union(await reader.match(located, await steps.fetch(piece)))
    reader.seen.add(tested=task.rows.count - task.sure.count, matched=rows.count - task.sure.count)
    reader.metrics.add("late_pieces")
    paged = {leaf.leaf: leaf for leaf in located.reads}
    left = [paged.get(leaf.leaf, leaf) for leaf in task.reads if leaf.for_output]
    narrowed = [
        leaf if leaf.whole else leaf.take(rows.counts(leaf.first_row, leaf.stop_row) > 0) for leaf in left
    ]
    return replace(located, rows=rows, sure=rows, reads=tuple(narrowed))


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
