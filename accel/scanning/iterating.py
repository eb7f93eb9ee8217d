"""The batches of a scan one by one, blocking and awaited.

Objects and not generators: one that is dropped may be finalized by the garbage collector, on any thread and under any
lock, where nothing may wait for the I/O loop. What it ran is ended by `Running` then.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator

import pyarrow as pa

from accel.errors import ObjectChangedError
from accel.scanning.engine import Engine
from accel.scanning.scan_runs import ScanRuns
from accel.scanning.taking import Running
from accel.store import io_loop

__all__ = ["AwaitedBatches", "BlockingBatches", "ToldBatches"]


class _Way:
    """How far a caller has come through the parts of a scan."""

    def __init__(self, engine: Engine, runs: ScanRuns) -> None:
        self._parts = engine.parts()
        self._runs = runs
        self._left = runs.limit()
        self._running: Running | None = None
        self._over = False
        self._taking = threading.Lock()

    def _enter(self) -> None:
        if not self._taking.acquire(blocking=False):
            raise ValueError("a batch of this iterator is being taken already")

    def _next_run(self) -> Running | None:
        """What to take from next; None at the end."""
        if self._over:
            return None
        if self._running is None:
            part = next(self._parts, None)
            if part is None or self._left == 0:
                self._over = True
                return None
            self._running = self._runs.start(part, limit=self._left)
        return self._running

    def _count(self, batch: pa.RecordBatch) -> None:
        if self._left is not None:
            self._left -= batch.num_rows

    def _leave(self) -> Running | None:
        """Stop here; returns what is to be ended."""
        self._over = True
        running, self._running = self._running, None
        return running


class BlockingBatches(_Way, Iterator[pa.RecordBatch]):
    """`for`: an iterator that ends with what it raises. `close` stops it early and waits until nothing is in flight."""

    def __next__(self) -> pa.RecordBatch:
        self._enter()
        try:
            while (running := self._next_run()) is not None:
                batch = io_loop.run(running.take())
                if batch is not None:
                    self._count(batch)
                    return batch
                self._running = None
                self._runs.end(running)
        except BaseException:
            self.close()
            raise
        finally:
            self._taking.release()
        raise StopIteration

    def close(self) -> None:
        """Stop what runs; there is no further batch."""
        running = self._leave()
        if running is not None:
            self._runs.end(running)


class ToldBatches(BlockingBatches):
    """`BlockingBatches` for one who was told their schema before the run began, and reads their buffers by it.

    Parameters
    ----------
    engine : Engine
    runs : ScanRuns
    schema : pyarrow.Schema
        What was told.
    forget : callable
        Called where that does not hold any more.

    Raises
    ------
    ObjectChangedError
        From `next`: the files have other columns by now.
    """

    def __init__(
        self, engine: Engine, runs: ScanRuns, *, schema: pa.Schema, forget: Callable[[], None]
    ) -> None:
        super().__init__(engine, runs)
        self._engine = engine
        self._told = schema
        self._forget = forget

    def __next__(self) -> pa.RecordBatch:
        batch = super().__next__()
        if not batch.schema.equals(self._told):
            self._forget()
            self.close()
            raise ObjectChangedError(
                "there are other columns than when the schema of the scan was told",
                path=self._engine.describe(),
                hint="read it again",
            )
        return batch


class AwaitedBatches(_Way, AsyncIterator[pa.RecordBatch]):
    """`async for`: `BlockingBatches`, awaited."""

    async def __anext__(self) -> pa.RecordBatch:
        self._enter()
        try:
            while (running := self._next_run()) is not None:
                batch = await io_loop.bridge(running.take())
                if batch is not None:
                    self._count(batch)
                    return batch
                self._running = None
                await self._runs.end_async(running)
        except GeneratorExit:
            # Its event loop is gone: nothing can be awaited. The call has been cancelled, which ends the run.
            self._leave()
            raise
        except BaseException:
            await self.aclose()
            raise
        finally:
            self._taking.release()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Stop what runs; there is no further batch."""
        running = self._leave()
        if running is not None:
            await self._runs.end_async(running)
