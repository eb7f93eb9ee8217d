"""One run of a scan: files planned and pieces read ahead, batches handed out in order.

Memory is bounded by admission: a piece is fetched only when what is held, with it, stays under
`options.memory_limit`. The piece that the consumer waits for is always admitted, so a run never stalls.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from accel.admission import Admission, Budget, Order
from accel.errors import AccelError, MemoryLimitError, ObjectChangedError, ParquetFormatError
from accel.options import MIB, Options
from accel.planning.pages import Piece, cut_pieces
from accel.planning.task import ScanTask
from accel.reader import Reader
from accel.task_reads import PieceRead, TaskReads

__all__ = ["FileWork", "Run", "single_error"]

# Ready batches that wait for the consumer beyond the piece they belong to.
_READY_BATCHES = 4
# Chunks without an offset index that would decode to more are cut after they were fetched.
_DECODE_AT_ONCE = 64 * MIB

_Started: TypeAlias = "asyncio.Queue[tuple[Order, asyncio.Task[list[pa.RecordBatch]]] | None]"
"""The pieces under way, in order; None after the last."""


def single_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error to show for a group: the first that accel raised on purpose, else the first."""
    flat: list[BaseException] = []
    stack: list[BaseException] = [group]
    while stack:
        error = stack.pop()
        if isinstance(error, BaseExceptionGroup):
            stack += reversed(error.exceptions)
        else:
            flat.append(error)
    for error in flat:
        if isinstance(error, AccelError):
            return error
    return flat[0]


@dataclass(slots=True)
class FileWork:
    """One file of a run: how its tasks come about, and how to start over when it changed."""

    tasks: Callable[[], Awaitable[tuple[Sequence[ScanTask], int]]]
    """Opens and plans: the tasks, and the round trips that lie before their data."""
    forget: Callable[[], bool] | None = None
    """Drops the file's cached metadata; None where the tasks are fixed and a change is final."""
    distrust: Callable[[], bool] | None = None
    """Gives up the file's page index; False where it had none that was used."""


@dataclass(slots=True)
class _Item:
    batch: pa.RecordBatch
    order: Order
    last: bool
    """The last batch of its piece: taking it ends what the piece holds."""


class _FileRun:
    """Reads one file: its pieces overlap, its batches come out in order."""

    def __init__(self, run: Run, index: int, work: FileWork) -> None:
        self._run = run
        self._index = index
        self._work = work
        self._sequence = 0
        self._spent = 0
        self._depth = 0
        self.outbox: asyncio.Queue[_Item | None] = asyncio.Queue()
        self.handed_out = False

    async def execute(self) -> None:
        try:
            await self._attempt()
        except (ObjectChangedError, ParquetFormatError) as error:
            self._drop()
            again = self._work.forget if isinstance(error, ObjectChangedError) else self._work.distrust
            # Only as long as no row of it was handed out: plan it again, once, as the version that is there
            # now, or without the page index that the pages contradict.
            if self.handed_out or again is None or not again():
                raise
            await self._attempt()
        self.outbox.put_nowait(None)

    def _drop(self) -> None:
        """Let go of what a failed attempt read."""
        while not self.outbox.empty():
            self.outbox.get_nowait()
        admission = self._run.admission
        for order in [o for o in (*admission.held, *admission.pinned) if o[0] == self._index]:
            admission.leave(order)
        self._run.budget.refund(self._spent)
        self._spent = 0

    async def _attempt(self) -> None:
        tasks, self._depth = await self._work.tasks()
        self._run.reader.metrics.deepest(self._depth)
        queue: _Started = asyncio.Queue()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._start(group, tasks, queue))
                while (started := await queue.get()) is not None:
                    order, piece = started
                    batches = await piece
                    for at, batch in enumerate(batches):
                        self.outbox.put_nowait(_Item(batch, order, at == len(batches) - 1))
                    if not batches:
                        self._run.admission.leave(order)
        except BaseExceptionGroup as errors:
            raise single_error(errors) from errors

    async def _start(
        self,
        group: asyncio.TaskGroup,
        tasks: Sequence[ScanTask],
        queue: _Started,
    ) -> None:
        run = self._run
        for planned in tasks:
            if run.budget.spent:
                break
            task = run.budget.cut(planned)
            self._spent += 0 if task.needs_filter else task.rows.count
            if task.reads_whole_chunks and self._decoded_bytes(task) > _DECODE_AT_ONCE:
                await self._start_whole(group, task, queue)
            else:
                await self._start_pieces(group, task, run.reader.reads(task), queue)
        queue.put_nowait(None)

    async def _start_pieces(
        self, group: asyncio.TaskGroup, task: ScanTask, reads: TaskReads, queue: _Started
    ) -> list[asyncio.Task[list[pa.RecordBatch]]]:
        run = self._run
        options = run.reader.options
        pieces = cut_pieces(
            task.reads, task.rows, task.sure, num_rows=task.num_rows, piece_bytes=options.piece_bytes
        )
        reads.expect(pieces)
        started = []
        for piece in pieces:
            order = await self._enter(task, piece.held_bytes)
            reading = group.create_task(run.read_piece(task, reads, piece, depth=self._depth))
            queue.put_nowait((order, reading))
            started.append(reading)
        return started

    async def _start_whole(self, group: asyncio.TaskGroup, task: ScanTask, queue: _Started) -> None:
        """Chunks without an offset index, too large to decode at once: fetch them, then cut what came."""
        admission = self._run.admission
        order = await self._enter(task, task.nbytes)
        admission.pin(order)
        reads = self._run.reader.reads(task)
        task = await reads.fetch_chunks()
        for reading in await self._start_pieces(group, task, reads.over(task), queue):
            await asyncio.wait([reading])
        admission.leave(order)

    async def _enter(self, task: ScanTask, nbytes: int) -> Order:
        order = (self._index, self._sequence)
        self._sequence += 1
        try:
            await self._run.admission.enter(order, nbytes)
        except MemoryLimitError as error:
            raise error.at(path=task.file.url, place=f"row group {task.row_group}") from None
        return order

    @staticmethod
    def _decoded_bytes(task: ScanTask) -> float:
        return sum(r.nbytes * r.expansion for r in task.reads)


class Run:
    """A running scan. `take` gives the next batch, None at the end; `close` stops everything."""

    def __init__(
        self,
        reader: Reader,
        work: AsyncIterator[FileWork],
        *,
        limit: int | None,
        ordered: bool,
    ) -> None:
        options: Options = reader.options
        self.reader = reader
        self.budget = Budget(limit)
        self._work = work
        self._limit = limit
        self._ordered = ordered
        self._files = 1 if limit is not None else options.max_files_in_flight
        pieces = 1 if limit is not None else options.max_tasks_in_flight
        self.admission = Admission(options.memory_limit, pieces)
        self._ready: asyncio.Queue[_Item | None] = asyncio.Queue(_READY_BATCHES)
        self._main: asyncio.Task[None] | None = None
        self._failed: BaseException | None = None
        self._rows = 0
        self._done = False

    def start(self) -> None:
        self._main = asyncio.get_running_loop().create_task(self._run())

    async def take(self) -> pa.RecordBatch | None:
        """The next batch in order; None when there is no more.

        Raises
        ------
        AccelError
            What ended the run; afterwards it stays ended.
        """
        if self._done or self._limit == 0:
            return None
        if self._main is None:
            self.start()
        try:
            item = await self._ready.get()
        except asyncio.CancelledError:
            await self.close()
            raise
        if item is None:
            await self.close()
            if self._failed is not None:
                raise self._failed
            return None
        if item.last:
            self.admission.leave(item.order)
        batch = item.batch
        if self._limit is not None:
            batch = batch.slice(0, self._limit - self._rows)
        self._rows += batch.num_rows
        self.reader.metrics.add("rows_out", batch.num_rows)
        if self._limit is not None and self._rows >= self._limit:
            await self.close()
        return batch

    async def close(self) -> None:
        """Stop: no request of this run is in flight and no task of it is left afterwards."""
        self._done = True
        main, self._main = self._main, None
        if main is not None and not main.done():
            main.cancel()
            await asyncio.wait([main])

    async def read_piece(
        self, task: ScanTask, reads: TaskReads, piece: Piece, *, depth: int
    ) -> list[pa.RecordBatch]:
        """Fetch and decode one piece; `depth` round trips lie before it."""
        read: PieceRead = await reads.fetch(piece)
        self.reader.metrics.deepest(depth + read.round_trips)
        batches = await self.reader.decode(task, read)
        if self._limit is not None:
            # Few rows were enough so far in vain: read further ahead.
            self.admission.grow(min(2 * self.admission.limit_pieces, self.reader.options.max_tasks_in_flight))
        return batches

    async def _run(self) -> None:
        try:
            if self._ordered:
                await self._in_order()
            else:
                await self._as_they_come()
        except asyncio.CancelledError:
            raise
        except BaseExceptionGroup as group:
            self._failed = single_error(group)
        except Exception as error:  # noqa: BLE001 - handed to whoever takes the next batch
            self._failed = error
        await self._ready.put(None)

    async def _in_order(self) -> None:
        async with asyncio.TaskGroup() as group:
            window: deque[tuple[_FileRun, asyncio.Task[None]]] = deque()
            index = 0
            more = True
            while True:
                while more and len(window) < self._files and not self.budget.spent:
                    work = await anext(self._work, None)
                    if work is None:
                        more = False
                        break
                    run = _FileRun(self, index, work)
                    window.append((run, group.create_task(run.execute())))
                    index += 1
                if not window:
                    return
                run, task = window.popleft()
                await self._drain(run, task)
                if self._limit is not None:
                    self._files = min(2 * self._files, self.reader.options.max_files_in_flight)

    async def _drain(self, run: _FileRun, task: asyncio.Task[None]) -> None:
        while True:
            item = await run.outbox.get()
            if item is None:
                return
            run.handed_out = True
            await self._ready.put(item)

    async def _as_they_come(self) -> None:
        slots = asyncio.Semaphore(self._files)
        async with asyncio.TaskGroup() as group:
            index = 0
            async for work in self._work:
                await slots.acquire()
                run = _FileRun(self, index, work)
                index += 1
                executing = group.create_task(run.execute())
                draining = group.create_task(self._drain(run, executing))
                draining.add_done_callback(lambda _: slots.release())
