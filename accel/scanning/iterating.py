"""Iterators over the batches of a scan, blocking and awaited.

They are objects and not generators: the garbage collector may finalize a dropped iterator on any thread and
under any lock, where nothing may wait for the I/O loop. `RunHandle` ends its run then.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator

import pyarrow as pa

from accel.errors import ObjectChangedError
from accel.runtime import io_loop
from accel.scanning.engine import Engine, ScanRuns
from accel.scanning.run import RunHandle

__all__ = ["AwaitedBatches", "BlockingBatches", "FixedSchemaBatches"]


class _Position:
    """The position of a caller among the parts of a scan."""

    def __init__(self, engine: Engine, runs: ScanRuns) -> None:
        self._parts = engine.parts()
        self._runs = runs
        self._left = runs.limit()
        self._running: RunHandle | None = None
        self._over = False
        self._taking = threading.Lock()

    def _enter(self) -> None:
        if not self._taking.acquire(blocking=False):
            raise ValueError("a batch of this iterator is being taken already")

    def _next_run(self) -> RunHandle | None:
        """Return the run to take the next batch from; None at the end."""
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

    def _leave(self) -> RunHandle | None:
        """Stop here; returns the run that is to be ended."""
        self._over = True
        running, self._running = self._running, None
        return running


class BlockingBatches(_Position, Iterator[pa.RecordBatch]):
    """The iterator of `for`. It is over once it has raised. `close` stops it early and waits until nothing is
    in flight."""

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
        """End the run; there is no further batch."""
        running = self._leave()
        if running is not None:
            self._runs.end(running)


class FixedSchemaBatches(BlockingBatches):
    """`BlockingBatches` for a caller who reads their buffers by a schema that was announced before the run
    began.

    Parameters
    ----------
    engine : Engine
    runs : ScanRuns
    schema : pyarrow.Schema
        The announced schema.
    forget : callable
        Called where the batches have another schema.

    Raises
    ------
    ObjectChangedError
        From `next`: the files have other columns than when the schema was announced.
    """

    def __init__(
        self, engine: Engine, runs: ScanRuns, *, schema: pa.Schema, forget: Callable[[], None]
    ) -> None:
        super().__init__(engine, runs)
        self.engine = engine
        self._announced = schema
        self._forget = forget

    def __next__(self) -> pa.RecordBatch:
        batch = super().__next__()
        if not batch.schema.equals(self._announced):
            self._forget()
            self.close()
            raise ObjectChangedError(
                "there are other columns than when the schema of the scan was told",
                path=self.engine.describe(),
                hint="read it again",
            )
        return batch


class AwaitedBatches(_Position, AsyncIterator[pa.RecordBatch]):
    """The iterator of `async for`."""

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
        """End the run; there is no further batch."""
        running = self._leave()
        if running is not None:
            await self._runs.end_async(running)
