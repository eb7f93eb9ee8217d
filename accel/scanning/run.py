"""One run of a scan: files planned and pieces read ahead, batches handed out in order.

What fails is told in its turn: the rows before it come out first, so that a `limit` that they satisfy does
not depend on what was read ahead in vain.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing

import pyarrow as pa

from accel.reader.reader import Reader
from accel.scanning.file_run import FileRun
from accel.scanning.intake import Intake
from accel.scanning.outbox import Item, Outbox
from accel.scanning.works import FileWork, WorkSource
from accel.store.request_errors import foremost
from accel.store.tasks import CancellationGuard, StoppableStart, begin, closed_early

__all__ = ["Run"]

# Ready batches that wait for the consumer beyond the piece they belong to.
_READY_BATCHES = 4


class Run:
    """A running scan. `take` gives the next batch, None at the end; `close` stops everything.

    Parameters
    ----------
    reader : Reader
    work : callable
        Awaited once: the files, in order.
    limit : int or None
        Rows after which the run ends.
    ordered : bool
        Files come out in order; else each as it comes, its own rows in order.
    """

    def __init__(
        self,
        reader: Reader,
        work: Callable[[], Awaitable[WorkSource]],
        *,
        limit: int | None,
        ordered: bool,
    ) -> None:
        self.reader = reader
        self._work = work
        self._limit = limit
        self._ordered = ordered
        self._files = 1 if limit is not None else reader.options.max_files_in_flight
        self.intake = Intake(reader, limit=limit)
        self._beginning: StoppableStart | None = None
        self._alone: Outbox | None = None
        """Of the only file, where it could be read at once."""
        self._ready: asyncio.Queue[Item | None] | None = None
        self._works: WorkSource | None = None
        self.main: asyncio.Task[None] | None = None
        self._failed: BaseException | None = None
        self._rows = 0
        self._ended = False
        self._closed = False

    async def take(self) -> pa.RecordBatch | None:
        """The next batch in order; None when there is no more.

        Raises
        ------
        AccelError
            What ended the run; afterwards it stays ended. Also where it was closed before its end.
        """
        if self._ended or self._limit == 0:
            return None
        if self._closed:
            raise closed_early()
        try:
            item = await self._next()
        except asyncio.CancelledError:
            await self.close()
            raise
        if item is None:
            if self._closed:
                raise closed_early()
            self._ended = True
            await self._stop()
            if self._failed is not None:
                raise self._failed
            return None
        if item.last:
            self.intake.admission.leave(item.order)
        batch = item.batch
        if self._limit is not None:
            batch = batch.slice(0, self._limit - self._rows)
        self._rows += batch.num_rows
        self.reader.metrics.add("rows_out", batch.num_rows)
        if self._limit is not None and self._rows >= self._limit:
            self._ended = True
            await self._stop()
        return batch

    async def close(self) -> None:
        """Stop: no request of this run is in flight and no task of it is left afterwards."""
        self._closed = True
        await self._stop()
        if self._ready is not None:
            _end(self._ready)

    async def _stop(self) -> None:
        if self._beginning is not None:
            self._closed = True
            self._beginning.stop()
            await asyncio.wait((self._beginning.left,))
        main = self.main
        if main is not None and not main.done():
            self._closed = True
            main.cancel()
            await asyncio.wait([main])
            if self._works is not None:
                # A task that is cancelled before its first step closes nothing.
                await self._works.aclose()

    async def _next(self) -> Item | None:
        """What comes out next; None at the end, which `_failed` may explain."""
        await self.start()
        if self._ready is not None:
            return await self._ready.get()
        item = None if self._alone is None else await self._alone.get()
        if isinstance(item, Exception):
            self._failed = foremost(item) if isinstance(item, ExceptionGroup) else item
            return None
        return item

    async def start(self) -> None:
        """Have it begun, or failed, or closed; `take` does so by itself."""
        while self._ready is None and self._alone is None and self._failed is None:
            if self._beginning is not None:
                await asyncio.wait((self._beginning.left,))
            elif self._closed:
                return
            else:
                await self._begin()

    async def _begin(self) -> None:
        """Find out what there is to do. A single piece of a single file is read here; for more a task is started."""
        self._beginning = beginning = StoppableStart()
        try:
            with CancellationGuard():
                self._works = works = await self._work()
                only = works.only if self._limit is None else None  # a limit is read up to in smaller pieces
                first = None if only is None else FileRun(self.intake, 0, work=only)
                if first is not None and await first.begin():
                    self._alone = first.outbox
                else:
                    self._ready = asyncio.Queue(_READY_BATCHES)
                    self.main = begin(self._run(works, first, self._ready))
        except asyncio.CancelledError:
            if beginning.was_stopped():
                raise closed_early() from None
            raise
        except BaseExceptionGroup as group:
            self._failed = foremost(group)
        except BaseException as error:  # noqa: BLE001 - raised by `take`
            self._failed = error
        finally:
            self._beginning = None
            beginning.left.set_result(None)

    async def _run(self, works: WorkSource, first: FileRun | None, ready: asyncio.Queue[Item | None]) -> None:
        try:
            async with aclosing(works):
                if first is not None:
                    await self._rest_of(first)
                elif not self._ordered:
                    await self._as_they_come(works)
                elif works.waits:
                    await self._in_order_meanwhile(works)
                else:
                    await self._in_order(works)
        except (asyncio.CancelledError, GeneratorExit):
            if not self._closed:
                self._failed = closed_early()
                _end(ready)
            raise
        except BaseExceptionGroup as group:
            self._failed = foremost(group)
        except BaseException as error:  # noqa: BLE001 - handed to whoever takes the next batch
            self._failed = error
        if not self._closed:
            # Else nobody takes any more, and a full queue would hold this up for ever.
            await ready.put(None)

    async def _rest_of(self, run: FileRun) -> None:
        """Read what is left of the only file."""
        async with asyncio.TaskGroup() as group:
            group.create_task(run.execute())
            await self._drain(run)

    async def _in_order(self, works: AsyncIterator[FileWork]) -> None:
        """Read files ahead, as many as are allowed; hand on what comes out of the earliest."""
        async with asyncio.TaskGroup() as group:
            window: deque[FileRun] = deque()
            numbers = itertools.count()
            async for work in works:
                run = FileRun(self.intake, next(numbers), work=work)
                window.append(run)
                group.create_task(run.execute())
                while window and not self._starts_more(window):
                    await self._drain(window.popleft())
                if self.intake.rows_wanted() == 0:
                    break
            while window:
                await self._drain(window.popleft())

    async def _in_order_meanwhile(self, works: AsyncIterator[FileWork]) -> None:
        """`_in_order`, without a limit, where the next file may be long in coming: what is ready goes out meanwhile."""
        slots = asyncio.Semaphore(self._files)
        started: asyncio.Queue[FileRun | None] = asyncio.Queue()

        async def start(group: asyncio.TaskGroup) -> None:
            numbers = itertools.count()
            async for work in works:
                await slots.acquire()
                if self.intake.failing:
                    break
                run = FileRun(self.intake, next(numbers), work=work)
                group.create_task(run.execute())
                started.put_nowait(run)
            started.put_nowait(None)

        async with asyncio.TaskGroup() as group:
            group.create_task(start(group))
            while (run := await started.get()) is not None:
                await self._drain(run)
                slots.release()

    def _starts_more(self, window: deque[FileRun]) -> bool:
        """Whether one more file is to be read beside these."""
        if self.intake.failing or len(window) >= self._files:
            return False
        wanted = self.intake.rows_wanted()
        return wanted is None or sum(run.promised for run in window) < wanted

    async def _drain(self, run: FileRun) -> None:
        """Pass on what comes out of a file."""
        ready = self._ready
        if ready is None:
            raise RuntimeError("the run has not begun")
        while (item := await run.outbox.get()) is not None:
            if isinstance(item, Exception):
                raise item
            run.handed_out = True
            self.intake.passed += item.batch.num_rows
            await ready.put(item)
        if self._limit is not None:
            self._files = min(2 * self._files, self.reader.options.max_files_in_flight)

    async def _as_they_come(self, works: AsyncIterator[FileWork]) -> None:
        """Read files side by side, and hand on what comes out of any."""
        slots = asyncio.Semaphore(self._files)
        async with asyncio.TaskGroup() as group:
            given, numbers = self._files, itertools.count()
            async for work in works:
                await slots.acquire()
                if self.intake.rows_wanted() == 0:
                    break
                run = FileRun(self.intake, next(numbers), work=work)
                group.create_task(run.execute())
                group.create_task(self._drain(run)).add_done_callback(lambda _: slots.release())
                while given < self._files:
                    given += 1
                    slots.release()


def _end(ready: asyncio.Queue[Item | None]) -> None:
    """Whoever waits for a batch shall not wait for ever, nor be given what came before."""
    while not ready.empty():
        ready.get_nowait()
    ready.put_nowait(None)
