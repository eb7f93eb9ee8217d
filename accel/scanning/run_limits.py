"""The limits that the files of one run share: bytes and pieces under way, permits to decode, rows that are
still wanted.

Admission bounds memory: a piece is fetched only when the bytes in memory, with its own, stay under
`options.memory_limit`. The piece that the consumer waits for is always admitted, so a run never stalls.
"""

from __future__ import annotations

import math

import pyarrow as pa

from accel.decode.pool import DecodePool
from accel.planning.pages import Piece, PieceSize
from accel.planning.task import ScanTask
from accel.reader.admission import Admission, Priority, part_of
from accel.reader.piece_reads import Neighbours, read_neighbours, read_piece
from accel.reader.reader import Reader
from accel.reader.task_reads import TaskReads
from accel.store.gate import Gate

__all__ = ["FEW_PIECES", "RunLimits"]

FEW_PIECES = 2
"""Pieces and files under way before the rows of so many pieces have been taken and more are asked for, where
a run is gradual."""

# Pieces for each thread that are decoded or next, so that a thread finds another piece when it is done with
# one.
_DECODED_EACH = 2
# Pieces under way at most, in multiples of `max_tasks_in_flight`, however many the network would take.
_DEEPEST = 4


class RunLimits:
    """Admits and reads the pieces of one run. Used on one event loop.

    Parameters
    ----------
    reader : Reader
    limit : int or None
        Rows after which the run ends.
    gradual : bool
        Whether few pieces are read ahead at first.
    """

    def __init__(self, reader: Reader, *, limit: int | None, gradual: bool = False) -> None:
        options = reader.options
        self.reader = reader
        self._limit = limit
        self.size = PieceSize.under(options, limit=limit)
        """The size of the pieces that tasks are cut into."""
        pieces = options.max_tasks_in_flight
        if limit is not None or gradual:
            pieces = min(pieces, 1 if limit is not None else FEW_PIECES)
        self._gradual = gradual
        self._last_begun: ScanTask | None = None
        self.admission = Admission(options.memory_limit, pieces)
        self.decode_permits = Gate(_DECODED_EACH * DecodePool.shared(options.decode_threads).threads)
        """Permits to decode, given in the order of the pieces. Given in the order of their answers, the first
        piece of a file could be decoded last, and delay its consumer and the requests of later pieces."""
        self.pieces_passed = 0
        """Pieces whose rows have been handed out, and those without rows."""
        self.rows_passed = 0
        """Rows that files have handed out."""
        self.failing = False
        """A file has failed: no file after it need begin."""

    def rows_wanted(self) -> int | None:
        """Return the most rows that are wanted of a file which starts now; None for all."""
        return None if self._limit is None else max(0, self._limit - self.rows_passed)

    def read_ahead(self, task: ScanTask) -> None:
        """Allow as many pieces under way as the network to a task's store can carry, if that is more."""
        if self._limit is not None:
            return
        self._last_begun = task
        if self._gradual:
            return
        self.admission.limit_pieces = min(self.admission.limit_pieces, self.reader.max_pieces(task.file.root))
        options = self.reader.options
        cover = self.reader.client(task.file.root).network.bytes_to_cover()
        most = _DEEPEST * options.max_tasks_in_flight
        self.admission.grow(min(1 + math.ceil(cover / self.size.usual), most))

    def widen(self) -> bool:
        """Read ahead as usual from now on, if a gradual run has handed out its first pieces; return whether
        this was the moment."""
        if not self._gradual or self.pieces_passed < FEW_PIECES:
            return False
        self._gradual = False
        self.admission.limit_pieces = self.reader.options.max_tasks_in_flight
        if self._last_begun is not None:
            self.read_ahead(self._last_begun)
        return True

    def part(self, weight: float) -> float:
        """Return the part of a full-size piece that a piece of this weight counts as. With a limit of rows
        each counts as one."""
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
    ) -> list[pa.RecordBatch]:
        """Fetch and decode one piece, after `depth` round trips."""
        permit = self.decode_permits.slot(priority=(1, order))
        batches, trips = await read_piece(self.reader, task, reads, piece, permit=permit)
        self.has_read(depth + trips)
        return batches

    async def read_neighbours(
        self, joined: Neighbours, *, depth: int, order: Priority
    ) -> list[pa.RecordBatch]:
        """Fetch and decode small row groups that lie side by side as one piece."""
        batches, trips = await read_neighbours(
            self.reader, joined, permit=lambda: self.decode_permits.slot(priority=(1, order))
        )
        self.has_read(depth + trips)
        return batches

    def has_read(self, round_trips: int) -> None:
        """Note that a piece has been read, after so many round trips in all."""
        self.reader.metrics.deepest(round_trips)
        if self._limit is not None:
            # The rows that came so far did not suffice: read further ahead.
            self.admission.grow(min(2 * self.admission.limit_pieces, self.reader.options.max_tasks_in_flight))
