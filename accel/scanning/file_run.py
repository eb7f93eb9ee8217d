"""One file of a run: planned, its pieces read ahead, and once over again where it changed meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa

from accel.errors import MemoryLimitError, ObjectChangedError, ParquetFormatError
from accel.planning.pages import Piece
from accel.planning.task import ScanTask
from accel.planning.two_phase import cut_task, filter_phase
from accel.reader.admission import Budget, Priority
from accel.reader.neighbour_reads import Neighbours, join_neighbours
from accel.reader.piece_reads import filter_piece, finish_piece, narrow_task
from accel.reader.task_reads import TaskReads
from accel.scanning.intake import Intake
from accel.scanning.outbox import Item, Line, Outbox
from accel.scanning.works import FileWork
from accel.store.request_errors import foremost
from accel.store.tasks import CancellationGuard, Group, breathe

__all__ = ["FileRun"]

T = TypeVar("T")

# A task that reads no more is small enough to be looked at twice.
_ALONE = 1 << 20


class FileRun:
    """Reads one file: its pieces overlap, its batches come out in order, then None or what ended it."""

    def __init__(self, intake: Intake, index: int, *, work: FileWork) -> None:
        self._intake = intake
        self._index = index
        self._work = work
        self._sequence = 0
        self._depth = 0
        self._delivered: set[Priority] = set()
        self._budget = Budget(None)
        self.promised = 0
        """Rows that are sure to come out of it."""
        self.outbox = Outbox()
        self.handed_out = False
        self._planned: Sequence[ScanTask] | None = None
        self._repeated = False
        self._failing = False
        """A piece has failed: none after it is worth a start."""
        self._again = False
        """What ended the attempt is to be followed by another."""

    async def begin(self) -> bool:
        """Plan the file, and read it here and now if it is a single piece: there is nothing to overlap.

        Whether that was all, and is in the outbox; else `execute` goes on.
        """
        try:
            await self._plan()
            if not await self._read_alone():
                return False
        except Exception as error:  # noqa: BLE001 - raised when its turn comes
            if self._may_repeat(error):
                self._start_over()
                return False
            self._fail(error)
        else:
            self.outbox.put(None)
        return True

    async def execute(self) -> None:
        """Read the file, or what `begin` has left of it."""
        try:
            with CancellationGuard():  # a task that ends so is not missed by its group
                await self._read()
        except Exception as error:  # noqa: BLE001 - raised when its turn comes
            self._fail(error)
        else:
            self.outbox.put(None)

    async def _read(self) -> None:
        try:
            await self._attempt()
        except Exception as error:
            again = self._again if self._failing else self._may_repeat(error)
            if not again:
                raise
            self._start_over()
            await self._attempt()

    def _fail(self, error: Exception) -> None:
        self._intake.failing = True
        self._release()
        self.outbox.put(error)

    def _may_repeat(self, error: Exception) -> bool:
        """Whether to plan it again: once, as the version that is there now, or without the page index that the pages
        contradict, and only as long as no row of it was handed out."""
        if self._repeated:
            return False
        if isinstance(error, ObjectChangedError):
            return self._work.forget() and not self.handed_out
        if self.handed_out or not isinstance(error, ParquetFormatError):
            return False
        return self._work.distrust is not None and self._work.distrust()

    def _start_over(self) -> None:
        self._repeated = True
        self._failing = self._again = False
        self._planned = None
        self.outbox.clear()
        self._delivered.clear()
        self._release()

    def _release(self) -> None:
        """Let go of what a failed attempt holds and did not deliver."""
        admission = self._intake.admission
        for order in (*admission.held, *admission.pinned):
            if order[0] == self._index and order not in self._delivered:
                admission.leave(order)

    async def _plan(self) -> None:
        self.promised = 0
        self._planned, self._depth = await self._work.tasks()
        self._intake.reader.metrics.deepest(self._depth)
        self._budget = Budget(self._intake.rows_wanted())

    async def _attempt(self) -> None:
        if self._planned is None:
            await self._plan()
            if await self._read_alone():
                return
        tasks, line = self._planned or (), Line()
        try:
            async with Group() as group:
                group.create_task(self._fill(line, partial(self._start, group, tasks, line)))
                async for order, piece in line:
                    found = await piece
                    if isinstance(found, Exception):
                        raise found
                    self._deliver(order, found)
        except BaseExceptionGroup as errors:
            raise foremost(errors) from errors

    async def _told(self, read: Callable[[], Awaitable[T]]) -> T | Exception:
        """What a read comes to, or the error that it ends with, to be raised in its turn; raised at once where the file is
        going to be read over again."""
        try:
            with CancellationGuard():
                return await read()
        except Exception as error:
            self._failing = True
            if not self._may_repeat(error):
                return error
            self._again = True
            self.outbox.clear()
            raise

    async def _fill(self, line: Line, read: Callable[[], Awaitable[None]]) -> None:
        """Have a line filled, and say that it is at its end, or what has ended it."""
        line.put(await self._told(read))

    def _deliver(self, order: Priority, batches: list[pa.RecordBatch]) -> None:
        """What came of a piece, in its turn; nothing while the attempt is being ended that read it."""
        if self._again:
            return
        self._delivered.add(order)
        for at, batch in enumerate(batches):
            self.outbox.put(Item(batch, order, at == len(batches) - 1))
        if not batches:
            self._intake.admission.leave(order)

    async def _read_alone(self) -> bool:
        """Read what was planned, if it is nothing or a single piece. Else do nothing."""
        intake, tasks = self._intake, self._planned
        if not tasks:
            return True
        planned = tasks[0]
        if len(tasks) > 1 or planned.nbytes > _ALONE or planned.cut_when_read:
            return False
        reads = intake.reader.reads(planned)
        pieces = cut_task(planned, size=intake.size, two_phases=reads.two_phases)
        if len(pieces) != 1 or reads.two_phases or self._budget.left is not None:
            return False
        self.promised += planned.sure.count
        (piece,) = pieces
        order = await self._enter(planned, reads.held_bytes(piece), intake.part(piece.weight))
        found = await intake.read_piece(planned, reads, piece, depth=self._depth, order=order, lone=True)
        self._deliver(order, found)
        return True

    async def _start(self, group: asyncio.TaskGroup, tasks: Sequence[ScanTask], line: Line) -> None:
        intake = self._intake
        intake.read_ahead(tasks[0])
        # With a limit the first may be enough: they are read one after the other.
        limited = intake.rows_wanted() is not None
        abreast = 1 if limited else len(tasks)
        found = join_neighbours(intake.reader, tasks, abreast=abreast, size=intake.size)
        for one in tasks if limited or len(tasks) == 1 else found:
            await breathe()
            if self._budget.spent or self._failing:
                break
            if isinstance(one, Neighbours):
                await self._start_neighbours(group, one, line)
            else:
                await self._start_task(group, one, line, abreast=abreast)

    async def _start_neighbours(self, group: asyncio.TaskGroup, joined: Neighbours, line: Line) -> None:
        intake = self._intake
        self.promised += joined.sure_rows
        order = await self._enter(joined.each[0].task, joined.held_bytes, intake.part(joined.weight))
        if not self._failing:
            read = partial(intake.read_neighbours, joined, depth=self._depth, order=order)
            line.put((order, group.create_task(self._told(read))))

    async def _start_task(
        self, group: asyncio.TaskGroup, planned: ScanTask, line: Line, *, abreast: int
    ) -> None:
        task = self._budget.cut(planned)
        self.promised += task.sure.count
        if task.cut_when_read:
            await self._start_whole(group, task, line, abreast=abreast)
        else:
            reads = self._intake.reader.reads(task, abreast=abreast)
            await self._start_pieces(group, task, reads, line, depth=self._depth)

    async def _start_pieces(
        self,
        group: asyncio.TaskGroup,
        task: ScanTask,
        reads: TaskReads,
        line: Line,
        *,
        depth: int,
        within: Priority = (),
    ) -> set[asyncio.Task[Any]]:
        """Start the pieces of a task as they are admitted; what is returned empties as they end."""
        intake = self._intake
        pieces = cut_task(task, size=intake.size, two_phases=reads.two_phases)
        reads.expect(pieces)
        # A task that has ended holds the batches that it read: none may be kept here.
        reading_on: set[asyncio.Task[Any]] = set()
        for number, piece in enumerate(pieces):
            place = (*within, number) if within else None
            if reads.in_phases(piece):
                first = filter_phase(piece)
                order = await self._enter(task, reads.held_bytes(first), intake.part(first.weight), place)
                if self._failing:
                    break
                parts = Line()
                line.put(parts)
                phases = partial(self._read_phases, group, task, reads, piece, order, parts, depth)
                reading: asyncio.Task[Any] = group.create_task(self._fill(parts, phases))
            else:
                order = await self._enter(task, reads.held_bytes(piece), intake.part(piece.weight), place)
                if self._failing:
                    break
                read = partial(intake.read_piece, task, reads, piece, depth=depth, order=order)
                line.put((order, reading := group.create_task(self._told(read))))
            _track(reading, reading_on)
        return reading_on

    async def _read_phases(
        self,
        group: asyncio.TaskGroup,
        task: ScanTask,
        reads: TaskReads,
        piece: Piece,
        order: Priority,
        line: Line,
        depth: int,
    ) -> None:
        """Read the filter's columns of a piece, then start what that leaves of the others."""
        intake, reader, admission = self._intake, self._intake.reader, self._intake.admission
        turn = intake.turns.at((0, order))
        first, parts = await filter_piece(reader, task, reads=reads, piece=piece, size=intake.size, turn=turn)
        intake.has_read(depth + first.round_trips)

        async def finish(part: Piece, own: Priority) -> list[pa.RecordBatch]:
            turn = intake.turns.at((1, own))
            batches, trips = await finish_piece(reader, task, reads=reads, first=first, part=part, turn=turn)
            intake.has_read(depth + trips)
            return batches

        held = [reads.held_bytes(part) for part in parts]
        if len(parts) == 1 and held[0] <= admission.held[order]:
            # It takes the room of what it follows.
            line.put((order, group.create_task(self._told(partial(finish, parts[0], order)))))
        else:
            admission.pin(order)
            reading_on: set[asyncio.Task[Any]] = set()
            for number, part in enumerate(parts):
                own = await self._enter(task, held[number], intake.part(part.weight), (*order, number))
                line.put((own, reading := group.create_task(self._told(partial(finish, part, own)))))
                _track(reading, reading_on)
            await self._leave_after(order, reading_on)

    async def _start_whole(
        self, group: asyncio.TaskGroup, task: ScanTask, line: Line, *, abreast: int
    ) -> None:
        """Chunks without an offset index, too large to decode at once: fetch them, then cut what came."""
        reader, admission = self._intake.reader, self._intake.admission
        order = await self._enter(task, task.nbytes, 1.0)
        admission.pin(order)
        reads = reader.reads(task, abreast=abreast)
        depth = self._depth + 1
        if reads.two_phases:
            task = await narrow_task(reader, task, reads=reads, size=self._intake.size)
            reader.metrics.deepest(depth)
            depth += 1
            if not task.rows:
                admission.leave(order)
                return
            reads = reads.over(task)
        task = await reads.fetch_chunks()
        reader.metrics.deepest(depth)
        reading_on = await self._start_pieces(group, task, reads.over(task), line, depth=depth, within=order)
        await self._leave_after(order, reading_on)

    async def _leave_after(self, order: Priority, reading_on: set[asyncio.Task[Any]]) -> None:
        """Hold what `order` does until all that was cut from it has been read."""
        while reading_on:
            await asyncio.wait([next(iter(reading_on))])
        self._intake.admission.leave(order)

    async def _enter(
        self, task: ScanTask, nbytes: int, part: float, order: Priority | None = None
    ) -> Priority:
        """Wait until so much more may be read, as the next in the file or as `order`, which tells its place."""
        if order is None:
            order = (self._index, self._sequence)
            self._sequence += 1
        try:
            await self._intake.admission.enter(order, nbytes, part)
        except MemoryLimitError as error:
            raise error.at(path=task.file.url, place=f"row group {task.row_group}") from None
        return order


def _track(reading: asyncio.Task[Any], reading_on: set[asyncio.Task[Any]]) -> None:
    """Have a task among those that are not done."""
    reading_on.add(reading)
    reading.add_done_callback(reading_on.discard)
