"""One run of a scan: stages 2 to 5 over its files, side by side; then stage 6, batches handed out in order.

In: the files as jobs. Out: record batches, one for each `take`, which takes them from the file whose turn it
is. What bounds it: admission under `Options.memory_limit` (`run_limits`), and `Options.max_files_in_flight`.

An error is raised in its turn: the rows before it come out first, so that a `limit` which they satisfy does
not depend on files that were read ahead in vain.

A source that was listed before may be read by that listing while its store lists it again, which shows
whether that listing is still right.
Stage 6 waits at that gate: where the source holds something else, the pass that was begun is dropped, and the
files that are there now are read. So every scan sees what the store says, as a scan that asks first does.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from accel.errors import AccelError, ObjectChangedError
from accel.runtime import io_loop
from accel.runtime.tasks import CancellationGuard, begin, cancel_requests, closed_early, see
from accel.scanning.file_jobs import FileJobs, Speculation
from accel.scanning.file_run import FileRun, ReadyBatch
from accel.scanning.run_limits import FEW_PIECES, RunLimits
from accel.store.request_errors import foremost, raising_foremost

if TYPE_CHECKING:
    from accel.planning.query import Question

__all__ = ["AnyRun", "Run", "RunHandle", "converted_schema"]

Convert = Callable[[pa.RecordBatch], pa.RecordBatch]

_PLAN_AGAIN = "plan again, by accel.plan or a new accel.spark.read: a plan names the versions that it found"


class _Pass:
    """Opens, plans and reads files ahead, as far as the limits allow; `take` gives their batches."""

    def __init__(self, jobs: FileJobs, *, limit: int | None, ordered: bool, gradual: bool) -> None:
        self.jobs = jobs
        self._limit = limit
        self._ordered = ordered
        options = jobs.reader.options
        self._most_files = options.max_files_in_flight
        self._files = 1 if limit is not None else FEW_PIECES if gradual else self._most_files
        """Files side by side. They are few at first where these may be enough."""
        self.limits = RunLimits(jobs.reader, limit=limit, gradual=gradual)
        self._window: list[FileRun] = []
        """Files that have begun and are not handed out whole, in order."""
        self._changed = asyncio.Event()
        """Set where another file may begin, or never will."""
        self._news = asyncio.Event()
        """Set where there may be something for the consumer."""
        self._ended = False
        """All files have begun, or none does any more."""
        self.failed: BaseException | None = None
        """The error to raise when what comes before it was taken."""
        self._stopped = False
        self.main = begin(self._main())

    async def take(self) -> ReadyBatch | None:
        """Return the next batch; None after the last, also where `failed` says why there are no more, and
        where the pass was stopped."""
        if self.limits.widen():
            self._files = self._most_files
            self._changed.set()
        while not self._stopped:
            found = self._next_batch()
            if found is not None:
                return found
            if self.failed is not None or (self._ended and not self._window):
                return None
            self._news.clear()
            await self._news.wait()
        return None

    def _next_batch(self) -> ReadyBatch | None:
        """Return the next batch that may be handed out, if there is one by now."""
        while (run := self._next_run()) is not None:
            found = run.batches.popleft()
            if isinstance(found, Exception):
                # The files behind it are dropped, with what was read of them.
                self.failed = found
                self._window.clear()
            elif found is None:
                self._window.remove(run)
                if self._limit is not None:
                    self._files = min(2 * self._files, self._most_files)
                self._changed.set()
            else:
                run.handed_out = True
                self.limits.pieces_passed += found.last
                self.limits.rows_passed += found.batch.num_rows
                return found
        return None

    def _next_run(self) -> FileRun | None:
        """Return the file whose turn it is, if it has something to hand out."""
        for run in self._window[:1] if self._ordered else self._window:
            if run.batches:
                return run
        return None

    async def stop(self) -> None:
        """End all that is under way; whoever waits for a batch gets None."""
        is_first, self._stopped = not self._stopped, True
        if not self.main.done():
            if is_first:  # a second cancellation would end what the first is ending before its requests
                self.main.cancel()
            await asyncio.wait((self.main,))
            # A task that is cancelled before its first step closes nothing.
            await self.jobs.aclose()
        self._window.clear()
        self._news.set()

    async def _main(self) -> None:
        try:
            async with aclosing(self.jobs):
                await self._read_files()
        except (asyncio.CancelledError, GeneratorExit):
            if not self._stopped:
                self.failed = closed_early()
                self._window.clear()
            raise
        except BaseExceptionGroup as group:
            self.failed = foremost(group)
        except BaseException as error:  # noqa: BLE001 - raised by whoever takes the next batch
            self.failed = error
        finally:
            self._ended = True
            self._news.set()

    async def _read_files(self) -> None:
        """Begin one file after the other, as long as one more is worth it, and read them."""
        # A task group does not notice a task that ends by a cancellation.
        async with asyncio.TaskGroup() as group:
            for number in itertools.count():
                with CancellationGuard():
                    job = await anext(self.jobs, None) if await self._may_begin() else None
                if job is None or self.limits.failing:
                    break
                run = FileRun(self.limits, number, job=job, changed=self._look)
                alone = not self._window and (self._files == 1 or self.jobs.exhausted)
                self._window.append(run)
                if alone:
                    # Nothing begins before this file has been read: it needs no task of its own.
                    await self._read_alone(run)
                else:
                    group.create_task(run.execute())

    async def _read_alone(self, run: FileRun) -> None:
        before = cancel_requests()
        await run.execute()
        if cancel_requests() > before:
            # An error of the file may have taken the place of the cancellation.
            raise asyncio.CancelledError

    async def _may_begin(self) -> bool:
        """Wait until another file is to be read beside those that have begun; False where none is any
        more."""
        while True:
            wanted = self.limits.rows_wanted()
            if self.limits.failing or wanted == 0:
                return False
            enough = wanted is not None and sum(run.promised for run in self._window) >= wanted
            if len(self._window) < self._files and not enough:
                return True
            self._changed.clear()
            await self._changed.wait()

    def _look(self) -> None:
        """Note that a file has something to hand out, or has failed."""
        self._news.set()
        if self.limits.failing:
            self._changed.set()


class Run:
    """A running scan. `take` gives the next batch, None at the end; `close` stops everything.

    Parameters
    ----------
    jobs : FileJobs
    limit : int or None
        Rows after which the run ends.
    ordered : bool
        Files come out in order; else each as it comes, its own rows in order.
    speculates : bool
        Whether the files may be read as the cache knows them, while their store is queried.
    gradual : bool
        Whether little is read ahead before the first rows have been taken and more are asked for.
    """

    def __init__(
        self,
        jobs: FileJobs,
        *,
        limit: int | None,
        ordered: bool,
        speculates: bool,
        gradual: bool = False,
    ) -> None:
        self._jobs = jobs
        self._limit = limit
        self._ordered = ordered
        self._speculates = speculates
        self._gradual = gradual and limit is None
        self._metrics = jobs.reader.metrics
        self._pass: _Pass | None = None
        self._gate: asyncio.Task[None] | None = None
        self._rows = 0
        self._ended = False
        self._closed = False

    @property
    def main(self) -> asyncio.Task[None] | None:
        """The task under way that ends last; None where nothing is under way."""
        if self._gate is not None and not self._gate.done():
            return self._gate
        return None if self._pass is None else self._pass.main

    @property
    def limits(self) -> RunLimits:
        """The limits that the files being read share.

        Raises
        ------
        RuntimeError
            Nothing has been taken yet.
        """
        if self._pass is None:
            raise RuntimeError("the run has not begun")
        return self._pass.limits

    async def take(self) -> pa.RecordBatch | None:
        """Return the next batch in order; None when there is no more.

        Raises
        ------
        AccelError
            The error that ended the run, which stays ended; also where the run was closed before its end.
        """
        if self._ended or self._limit == 0:
            return None
        try:
            current = await self._started()
            found = await current.take()
        except asyncio.CancelledError:
            await self.close()
            raise
        if found is None:
            if self._closed:
                raise closed_early()
            self._ended = True
            await current.stop()
            if current.failed is not None:
                raise current.failed
            return None
        if found.last:
            current.limits.admission.leave(found.order)
        batch = found.batch
        if self._limit is not None:
            batch = batch.slice(0, self._limit - self._rows)
        self._rows += batch.num_rows
        self._metrics.add("rows_out", batch.num_rows)
        if self._limit is not None and self._rows >= self._limit:
            self._ended = True
            await current.stop()
        return batch

    async def question(self) -> Question:
        """Return the question, with its schema settled."""
        jobs = self._jobs if self._limit == 0 else (await self._started()).jobs
        return await jobs.question()

    async def close(self) -> None:
        """Stop: no request of this run is in flight and no task of it is left afterwards."""
        is_first, self._closed = not self._closed, True
        gate = self._gate
        if gate is not None and not gate.done():
            if is_first:
                gate.cancel()
            await asyncio.wait((gate,))
        if self._pass is not None:
            await self._pass.stop()

    async def _started(self) -> _Pass:
        """Return the pass whose batches may be handed out: begun where none is, and past the gate."""
        if self._closed and not self._ended:
            raise closed_early()
        if self._pass is None:
            speculation = self._jobs.speculate() if self._speculates else None
            if speculation is None:
                self._pass = self._begin(self._jobs)
            else:
                self._pass = self._begin(speculation.jobs)
                self._gate = begin(self._pass_gate(speculation))
                self._gate.add_done_callback(see)
        if self._gate is not None:
            await asyncio.wait((self._gate,))
            if self._closed and not self._ended:
                raise closed_early()
            self._gate.result()
        return self._pass

    def _begin(self, jobs: FileJobs) -> _Pass:
        return _Pass(jobs, limit=self._limit, ordered=self._ordered, gradual=self._gradual)

    async def _pass_gate(self, speculation: Speculation) -> None:
        """Check that the pass that was begun is the right one, or begin the one that is."""
        begun = self._pass
        with raising_foremost(), CancellationGuard():
            holds = await speculation.holds()
        if not holds and begun is not None:
            await begun.stop()
            self._metrics.begin_again()
            self._pass = self._begin(self._jobs)


class AnyRun(Protocol):
    """A run as its handle takes it: see `Run`."""

    @property
    def main(self) -> asyncio.Task[Any] | None:
        """The task under way that ends last; None where nothing is under way."""
        ...

    async def take(self) -> pa.RecordBatch | None:
        """Return the next batch in order; None when there is no more."""
        ...

    async def question(self) -> Question:
        """Return the question, with its schema settled."""
        ...

    async def close(self) -> None:
        """Stop."""
        ...


class RunHandle:
    """One run as its caller takes it: batches by `take`, then `close`. A handle that is dropped stops its
    run, and nobody waits for that.

    Parameters
    ----------
    run : Run
    schema : pyarrow.Schema or None
        The schema of the batches, where it is known before the run: that of a plan, whose tasks are fixed.
    for_spark : bool
        Whether the batches are for Spark.
    url : str, optional
        The file, where it is the only one.
    """

    def __init__(
        self, run: AnyRun, *, schema: pa.Schema | None, for_spark: bool, url: str | None = None
    ) -> None:
        self._run = run
        self._planned = schema is not None
        self._schema = schema
        self._for_spark = for_spark
        self._url = url
        self._converter: Convert | None = None
        self._under_way: set[AnyRun] = set()
        self.ended = False
        self.error: BaseException | None = None
        """What ended the run before its time."""
        self.on_end: Callable[[BaseException | None], None] | None = None
        """Is called once, when the run has ended."""

    async def schema(self) -> pa.Schema:
        """Return the schema of the batches."""
        if self._schema is None:
            self._schema = (await self._run.question()).output
        return converted_schema(self._schema) if self._for_spark else self._schema

    async def take(self) -> pa.RecordBatch | None:
        """Return the next batch, or None; whatever is raised, the run has ended then."""
        try:
            batch = await self._run.take()
            if batch is not None and self._for_spark:
                batch = self._converted(batch)
        except BaseException as error:
            if self._planned and isinstance(error, ObjectChangedError):
                # The hint of the layers below, to read again, does not help with a plan.
                error.hint = _PLAN_AGAIN
            self.error = error
            await self.close()
            raise
        if batch is None:
            await self.close()
        return batch

    def _converted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        try:
            if self._converter is None:
                self._converter = _conversion(batch.schema)
            return self._converter(batch)
        except AccelError as error:
            raise error.at(path=self._url)

    def enlist(self, under_way: set[AnyRun]) -> None:
        """Keep the run in that set until it has been stopped."""
        under_way.add(self._run)
        self._under_way = under_way

    async def close(self) -> None:
        """Stop; nothing of the run is under way afterwards."""
        self.ended = True
        await _stop(self._run, self._under_way)
        on_end, self.on_end = self.on_end, None
        if on_end is not None:
            on_end(self.error)

    def __del__(self) -> None:
        # The garbage collector calls this on any thread, which may hold what the I/O loop waits for.
        main = self._run.main
        if main is None or main.done():
            self._under_way.discard(self._run)
        elif not self.ended:
            io_loop.start_to_end(partial(_stop, self._run, self._under_way), main.get_loop())


async def _stop(run: AnyRun, under_way: set[AnyRun]) -> None:
    try:
        await run.close()
    finally:
        under_way.discard(run)


def _conversion(schema: pa.Schema) -> Convert:
    """Return the conversion to what mapInArrow takes."""
    from accel.decode.spark_types import spark_conversion

    return spark_conversion(schema) or (lambda same: same)


def converted_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of the batches that mapInArrow takes in place of batches of this one."""
    empty = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
    return _conversion(schema)(empty).schema
