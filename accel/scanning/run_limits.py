"""What the files of one run share: how much of them is read at once, in which turn it is decoded, how many rows are wanted.

Memory is bounded by admission: a piece is fetched only when what is held, with it, stays under
`options.memory_limit`. The piece that the consumer waits for is always admitted, so a run never stalls.
"""

from __future__ import annotations

import math

import pyarrow as pa

from accel.decode.pool import DecodePool
from accel.planning.pages import Piece, PieceSize
from accel.planning.task import ScanTask
from accel.reader.admission import Admission, Priority, PrioritySemaphore, part_of
from accel.reader.piece_reads import Neighbours, read_neighbours, read_piece
from accel.reader.reader import Reader
from accel.reader.task_reads import TaskReads

__all__ = ["RunLimits"]

# Pieces for each thread that are being decoded or next: while one is decoded nobody has to be asked for another.
_DECODED_EACH = 2
# Pieces under way, in multiples of `max_tasks_in_flight`, however many the network would hold.
_DEEPEST = 4


class RunLimits:
    """Reads the pieces of one run's files. Used on one event loop.

    Parameters
    ----------
    reader : Reader
    limit : int or None
        Rows after which the run ends.
    """

    def __init__(self, reader: Reader, *, limit: int | None) -> None:
        options = reader.options
        self.reader = reader
        self._limit = limit
        self.size = PieceSize.under(options, limit=limit)
        """Of the pieces that tasks are cut into."""
        pieces = 1 if limit is not None else options.max_tasks_in_flight
        self.admission = Admission(options.memory_limit, pieces)
        self.decode_permits = PrioritySemaphore(
            _DECODED_EACH * DecodePool.shared(options.decode_threads).threads
        )
        """In which pieces are decoded."""
        self.rows_passed = 0
        """Rows that have come out of files."""
        self.failing = False
        """A file has failed: nothing that comes after it is worth a start."""

    def rows_wanted(self) -> int | None:
        """The most rows that a file which starts now may be asked for; None for all."""
        return None if self._limit is None else max(0, self._limit - self.rows_passed)

    def read_ahead(self, task: ScanTask) -> None:
        """Have as many pieces under way as the network of a task's store holds, if those are more."""
        if self._limit is not None:
            return
        self.admission.limit_pieces = min(self.admission.limit_pieces, self.reader.max_pieces(task.file.root))
        options = self.reader.options
        cover = self.reader.client(task.file.root).network.bytes_to_cover()
        most = _DEEPEST * options.max_tasks_in_flight
        self.admission.grow(min(1 + math.ceil(cover / self.size.usual), most))

    def part(self, weight: float) -> float:
        """How much of a piece of full size one of that weight counts as. With a limit each counts as one."""
        if self._limit is not None:
            return 1.0
        return part_of(weight, self.size.usual)

    async def read_piece(
        self,
        task: ScanTask,
        reads: TaskReads,
        piece: Piece,
        *,
        depth: int,
        order: Priority,
        lone: bool = False,
    ) -> list[pa.RecordBatch]:
        """Fetch and decode one piece; `depth` round trips lie before it. `lone`: see `read_piece`."""
        permit = self.decode_permits.at((1, order))
        batches, trips = await read_piece(self.reader, task, reads, piece, permit=permit, lone=lone)
        self.has_read(depth + trips)
        return batches

    async def read_neighbours(
        self, joined: Neighbours, *, depth: int, order: Priority
    ) -> list[pa.RecordBatch]:
        """`read_piece` of several tasks, as if they were one."""
        batches, trips = await read_neighbours(
            self.reader, joined, permit=lambda: self.decode_permits.at((1, order))
        )
        self.has_read(depth + trips)
        return batches

    def has_read(self, round_trips: int) -> None:
        """Told when something has been read, so many round trips deep."""
        self.reader.metrics.deepest(round_trips)
        if self._limit is not None:
            # Few rows were enough so far in vain: read further ahead.
            self.admission.grow(min(2 * self.admission.limit_pieces, self.reader.options.max_tasks_in_flight))
