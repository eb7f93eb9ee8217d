"""One file of a run: stages 3 to 5 for it. Its pieces are read side by side, and its batches come out in
order.

In: a job that opens and plans the file. Out: batches in a queue, then None, or the error that ended the file.
What bounds it: each piece waits for admission before it is fetched (`run_limits`).

Tasks are for what goes on side by side: a file that is read as one piece is read in the task of its caller.

A file that turns out to have changed is planned and read once more, as long as no row of it has been handed
out.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa

from accel.errors import MemoryLimitError, ObjectChangedError, ObjectNotFoundError, ParquetFormatError
from accel.format.page_index import PageIndexMismatchError
from accel.planning.pages import Piece, PieceSize
from accel.planning.task import ScanTask
from accel.planning.two_phase import cut_task, filter_phase
from accel.reader.admission import Budget, Priority
from accel.reader.piece_reads import Neighbours, filter_piece, finish_piece, join_neighbours, narrow_task
from accel.reader.task_reads import TaskReads
from accel.runtime.tasks import CancellationGuard, Group, breathe
from accel.scanning.file_jobs import FileJob
from accel.scanning.run_limits import RunLimits
from accel.store.request_errors import foremost

__all__ = ["FileRun", "PieceQueue", "ReadyBatch"]

T = TypeVar("T")

_PieceTask: TypeAlias = "asyncio.Task[list[pa.RecordBatch] | Exception]"
"""Reads a piece. It returns an error that is to be raised when the turn of the piece has come."""


@dataclass(slots=True, repr=False)
class ReadyBatch:
    """A batch that may be handed out, and the piece that it comes from."""

    batch: pa.RecordBatch
    order: Priority
    last: bool
    """The last batch of its piece: whoever takes it releases the memory that the piece was admitted for."""


class PieceQueue:
    """Pieces under way, in order. A piece that is cut later stands in it as the queue of its parts."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[tuple[Priority, _PieceTask] | PieceQueue | Exception | None] = (
            asyncio.Queue()
        )
        self.put = self._queue.put_nowait
        """None follows the last piece, or the error that keeps the rest from coming."""
        self._parts: PieceQueue | None = None
        """The parts of the piece whose turn it is, where it was cut."""

    async def next(self) -> tuple[Priority, _PieceTask] | None:
        """Return the next piece; None after the last.

        It is no generator: one that a cancelled file leaves leaves the event loop a task to close it.
        """
        while True:
            if self._parts is not None:
                part = await self._parts.next()
                if part is not None:
                    return part
                self._parts = None
            found = await self._queue.get()
            if isinstance(found, Exception):
                raise found
            if not isinstance(found, PieceQueue):
                return found
            self._parts = found


@dataclass(frozen=True, slots=True)
class _CutTask:
    """A task and the pieces that it is read in."""

    task: ScanTask
    reads: TaskReads
    pieces: list[Piece]

    @classmethod
    def of(cls, task: ScanTask, reads: TaskReads, size: PieceSize) -> _CutTask:
        """Cut a task; called before any of its pieces is fetched."""
        pieces = cut_task(task, size=size, two_phases=reads.two_phases)
        reads.expect(pieces)
        return cls(task, reads, pieces)

    @property
    def is_whole(self) -> bool:
        """Whether it is one piece, which is read in one phase."""
        return len(self.pieces) == 1 and not self.reads.in_phases(self.pieces[0])


class FileRun:
    """Reads one file of a run.

    Parameters
    ----------
    limits : RunLimits
        Shared by the files of the run.
    index : int
        Place of the file in the run: files with a lower one are admitted first.
    job : FileJob
    changed : callable
        Called when there is more in `batches`, also its end, and when the file has failed: none after it need
        begin.
    """

    def __init__(self, limits: RunLimits, index: int, *, job: FileJob, changed: Callable[[], None]) -> None:
        self._limits = limits
        self._index = index
        self._job = job
        self._changed = changed
        self._sequence = 0
        self._depth = 0
        self._delivered: set[Priority] = set()
        self._budget = Budget(None)
        self.promised = 0
        """Rows that are certain to come out of the file."""
        self.batches: deque[ReadyBatch | Exception | None] = deque()
        """Batches in order, for whoever hands them out; then None, or the error that ended the file."""
        self.handed_out = False
        """Whether a row of the file has been handed out: set by whoever takes the batches."""
        self._repeated = False
        self._failing = False
        """A piece has failed: none after it need begin."""
        self._again = False
        """The error that ended the attempt is to be followed by another attempt."""

    async def execute(self) -> None:
        """Read the file. An error is put in the queue, to be raised in its turn."""
        try:
            with CancellationGuard():  # a task group does not notice a task that ends by a cancellation
                await self._read()
        except Exception as error:  # noqa: BLE001 - raised when its turn comes
            if self._job.skip is not None and self._job.skip(error):
                self._release()
                self._put(None)
            else:
                self._fail(error)
        else:
            self._put(None)

    def _put(self, item: ReadyBatch | Exception | None) -> None:
        self.batches.append(item)
        self._changed()

    def _fail(self, error: Exception) -> None:
        table = self._limits.reader.metrics.table
        if table is not None and isinstance(error, ObjectNotFoundError):
            error = table.named_in(error)
        if isinstance(error, PageIndexMismatchError) and self._limits.reader.options.strict:
            refused = error.as_index_error()
            refused.__cause__ = error
            error = refused
        self._limits.failing = True
        self._release()
        self._put(error)

    async def _read(self) -> None:
        try:
            await self._attempt()
        except Exception as error:
            again = self._again if self._failing else self._may_repeat(error)
            if not again:
                raise
            self._start_over()
            await self._attempt()

    def _may_repeat(self, error: Exception) -> bool:
        """Return whether to plan the file again, which is done once and only if no row of it was handed out.

        It is planned as the version that is there now, or without the page index that the pages contradict.
        """
        if self._repeated:
            return False
        if isinstance(error, ObjectChangedError):
            return self._job.forget() and not self.handed_out
        if self.handed_out or not isinstance(error, ParquetFormatError):
            return False
        return self._job.distrust is not None and self._job.distrust()

    def _start_over(self) -> None:
        self._repeated = True
        self._failing = self._again = False
        self.batches.clear()
        self._delivered.clear()
        self._release()

    def _release(self) -> None:
        """Release the memory that a failed attempt was admitted for and did not deliver."""
        admission = self._limits.admission
        for order in (*admission.admitted, *admission.pinned):
            if order[0] == self._index and order not in self._delivered:
                admission.leave(order)

    # -- one attempt -----------------------------------------------------------------------------

    async def _attempt(self) -> None:
        self.promised = 0
        tasks, self._depth = await self._job.tasks()
        self._limits.reader.metrics.deepest(self._depth)
        self._budget = Budget(self._limits.rows_wanted())
        if not tasks:
            return
        self._limits.read_ahead(tasks[0])
        alone = None
        if len(tasks) == 1 and not tasks[0].cut_when_read and not self._budget.spent:
            await breathe()
            alone = self._cut(self._spend(tasks[0]), concurrent=1)
            if alone.is_whole:
                await self._read_at_once(alone)
                return
        queue = PieceQueue()
        try:
            async with Group() as group:
                start: Callable[[], Awaitable[object]] = partial(self._start, group, tasks, queue)
                if alone is not None:
                    start = partial(self._start_pieces, group, alone, queue, depth=self._depth)
                group.create_task(self._fill(queue, start))
                while (following := await queue.next()) is not None:
                    order, piece = following
                    found = await piece
                    if isinstance(found, Exception):
                        raise found
                    self._deliver(order, found)
        except BaseExceptionGroup as errors:
            raise foremost(errors) from errors

    def _deliver(self, order: Priority, batches: list[pa.RecordBatch]) -> None:
        """Hand over the batches of a piece in its turn; none while the attempt that read it is being
        ended."""
        if self._again:
            return
        self._delivered.add(order)
        for at, batch in enumerate(batches):
            self._put(ReadyBatch(batch, order, at == len(batches) - 1))
        if not batches:
            self._limits.pieces_passed += 1
            self._limits.admission.leave(order)

    async def _caught(self, read: Callable[[], Awaitable[T]]) -> T | Exception:
        """Return what a read returns, or its error, to be raised in its turn. The error is raised at once
        where the file is going to be read over again."""
        try:
            with CancellationGuard():
                return await read()
        except Exception as error:
            self._failing = True
            if not self._may_repeat(error):
                return error
            self._again = True
            self.batches.clear()
            raise

    async def _fill(self, queue: PieceQueue, start: Callable[[], Awaitable[object]]) -> None:
        """Have pieces put in a queue, then the mark of its end, or the error that ended it."""
        found = await self._caught(start)
        queue.put(found if isinstance(found, Exception) else None)

    async def _read_at_once(self, cut: _CutTask) -> None:
        """Read the only piece of the file, in this task."""
        limits, task, (piece,) = self._limits, cut.task, cut.pieces
        order = await self._enter(task, cut.reads.held_bytes(piece), limits.part(piece.weight))
        found = await self._caught(
            partial(limits.read_piece, task, cut.reads, piece, depth=self._depth, order=order)
        )
        if isinstance(found, Exception):
            raise found
        self._deliver(order, found)

    # -- pieces ----------------------------------------------------------------------------------

    async def _start(self, group: asyncio.TaskGroup, tasks: Sequence[ScanTask], queue: PieceQueue) -> None:
        limits = self._limits
        # With a limit the first task may be enough: they are read one after the other.
        limited = limits.rows_wanted() is not None
        concurrent = 1 if limited else len(tasks)
        joined = join_neighbours(limits.reader, tasks, concurrent=concurrent, size=limits.size)
        for part in tasks if limited or len(tasks) == 1 else joined:
            await breathe()
            if self._budget.spent or self._failing:
                break
            if isinstance(part, Neighbours):
                await self._start_neighbours(group, part, queue)
            else:
                await self._start_task(group, part, queue, concurrent=concurrent)

    async def _start_neighbours(
        self, group: asyncio.TaskGroup, joined: Neighbours, queue: PieceQueue
    ) -> None:
        limits = self._limits
        self.promised += joined.certain_rows
        order = await self._enter(joined.each[0].task, joined.held_bytes, limits.part(joined.weight))
        if not self._failing:
            read = partial(limits.read_neighbours, joined, depth=self._depth, order=order)
            queue.put((order, group.create_task(self._caught(read))))

    async def _start_task(
        self, group: asyncio.TaskGroup, planned: ScanTask, queue: PieceQueue, *, concurrent: int
    ) -> None:
        task = self._spend(planned)
        if task.cut_when_read:
            await self._start_whole(group, task, queue, concurrent=concurrent)
        else:
            await self._start_pieces(group, self._cut(task, concurrent=concurrent), queue, depth=self._depth)

    def _spend(self, planned: ScanTask) -> ScanTask:
        """Return a task without the rows for which no budget is left."""
        task = self._budget.cut(planned)
        self.promised += task.certain.count
        return task

    def _cut(self, task: ScanTask, *, concurrent: int) -> _CutTask:
        return _CutTask.of(task, self._limits.reader.reads(task, concurrent=concurrent), self._limits.size)

    async def _start_pieces(
        self,
        group: asyncio.TaskGroup,
        cut: _CutTask,
        queue: PieceQueue,
        *,
        depth: int,
        within: Priority = (),
    ) -> set[asyncio.Task[Any]]:
        """Start the pieces of a task as they are admitted. The set that is returned empties as they end."""
        limits, task, reads, pieces = self._limits, cut.task, cut.reads, cut.pieces
        # A task that has ended refers to the batches that it read, so none may stay in this set.
        reading: set[asyncio.Task[Any]] = set()
        for number, piece in enumerate(pieces):
            place = (*within, number) if within else None
            if reads.in_phases(piece):
                first = filter_phase(piece)
                order = await self._enter(task, reads.held_bytes(first), limits.part(first.weight), place)
                if self._failing:
                    break
                parts = PieceQueue()
                queue.put(parts)
                phases = partial(self._read_phases, group, task, reads, piece, order, parts, depth)
                begun: asyncio.Task[Any] = group.create_task(self._fill(parts, phases))
            else:
                order = await self._enter(task, reads.held_bytes(piece), limits.part(piece.weight), place)
                if self._failing:
                    break
                read = partial(limits.read_piece, task, reads, piece, depth=depth, order=order)
                queue.put((order, begun := group.create_task(self._caught(read))))
            _track(begun, reading)
        return reading

    async def _read_phases(
        self,
        group: asyncio.TaskGroup,
        task: ScanTask,
        reads: TaskReads,
        piece: Piece,
        order: Priority,
        queue: PieceQueue,
        depth: int,
    ) -> None:
        """Read the filter's columns of a piece, then start reading the other columns where rows match."""
        limits, reader, admission = self._limits, self._limits.reader, self._limits.admission
        permit = limits.decode_permits.slot(priority=(0, order))
        first, parts = await filter_piece(
            reader, task, reads=reads, piece=piece, size=limits.size, permit=permit
        )
        limits.has_read(depth + first.round_trips)

        async def finish(part: Piece, own: Priority) -> list[pa.RecordBatch]:
            permit = limits.decode_permits.slot(priority=(1, own))
            batches, trips = await finish_piece(
                reader, task, reads=reads, first=first, part=part, permit=permit
            )
            limits.has_read(depth + trips)
            return batches

        sizes = [reads.held_bytes(part) for part in parts]
        if len(parts) == 1 and sizes[0] <= admission.admitted[order]:
            # The second phase takes the room of the first.
            queue.put((order, group.create_task(self._caught(partial(finish, parts[0], order)))))
            return
        admission.pin(order)
        reading: set[asyncio.Task[Any]] = set()
        for number, part in enumerate(parts):
            own = await self._enter(task, sizes[number], limits.part(part.weight), (*order, number))
            queue.put((own, begun := group.create_task(self._caught(partial(finish, part, own)))))
            _track(begun, reading)
        await self._leave_after(order, reading)

    async def _start_whole(
        self, group: asyncio.TaskGroup, task: ScanTask, queue: PieceQueue, *, concurrent: int
    ) -> None:
        """Fetch chunks that have no offset index and are too large to decode at once, then cut them into
        pieces."""
        reader, admission = self._limits.reader, self._limits.admission
        order = await self._enter(task, task.nbytes, 1.0)
        admission.pin(order)
        reads = reader.reads(task, concurrent=concurrent)
        depth = self._depth + 1
        if reads.two_phases:
            task = await narrow_task(reader, task, reads=reads, size=self._limits.size)
            reader.metrics.deepest(depth)
            depth += 1
            if not task.rows:
                admission.leave(order)
                return
            reads = reads.over(task)
        task = await reads.fetch_chunks()
        reader.metrics.deepest(depth)
        cut = _CutTask.of(task, reads.over(task), self._limits.size)
        reading = await self._start_pieces(group, cut, queue, depth=depth, within=order)
        await self._leave_after(order, reading)

    async def _leave_after(self, order: Priority, reading: set[asyncio.Task[Any]]) -> None:
        """Release the memory of `order` when all that was cut from it has been read."""
        while reading:
            await asyncio.wait([next(iter(reading))])
        self._limits.admission.leave(order)

    async def _enter(
        self, task: ScanTask, nbytes: int, part: float, order: Priority | None = None
    ) -> Priority:
        """Wait for admission, as the next piece of the file or at the place `order`; returns the place."""
        if order is None:
            order = (self._index, self._sequence)
            self._sequence += 1
        try:
            await self._limits.admission.enter(order, nbytes, part)
        except MemoryLimitError as error:
            raise error.at(path=task.file.url, place=f"row group {task.row_group}") from None
        return order


def _track(begun: asyncio.Task[Any], reading: set[asyncio.Task[Any]]) -> None:
    """Keep a task in a set until it is done."""
    reading.add(begun)
    begun.add_done_callback(reading.discard)
