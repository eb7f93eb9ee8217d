"""The runs of one scan: started, taken from until they end, and stopped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from accel.metrics import Metrics
from accel.scanning.engine import Engine
from accel.scanning.taking import AnyRun, Running
from accel.store import io_loop

if TYPE_CHECKING:
    from accel.scanning.aggregating import Aggregation

__all__ = ["NO_COLUMNS", "ScanRuns"]

NO_COLUMNS = pa.schema([])


class ScanRuns:
    """What runs of a scan, and the counts of what ran last. Several may run at once, from any thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._under_way: set[AnyRun] = set()
        self.metrics = Metrics()
        """Of the run that was started last."""

    def start(
        self,
        part: Engine,
        *,
        limit: int | None = None,
        answering: Aggregation | None = None,
        metrics: Metrics | None = None,
    ) -> Running:
        """One run, to be ended by `end` or `end_async`; counted in `metrics`, if somebody has to know which these are."""
        counts = self.metrics = Metrics() if metrics is None else metrics
        running = part.start(counts, limit=limit, answering=answering)
        running.enlist(self._under_way)
        return running

    def end(self, running: Running) -> None:
        """Stop one run, if it has not ended by itself."""
        if not running.ended:
            io_loop.run_to_end(running.close)

    async def end_async(self, running: Running) -> None:
        """`end`, awaited."""
        if not running.ended:
            await io_loop.bridge_to_end(running.close)

    def end_all(self) -> None:
        """Stop whatever runs, and wait for what is being stopped."""
        for run in list(self._under_way):
            io_loop.run_to_end(run.close)

    async def end_all_async(self) -> None:
        """`end_all`, awaited."""
        for run in list(self._under_way):
            await io_loop.bridge_to_end(run.close)

    def limit(self, limit: int | None = None) -> int | None:
        """The lesser of this limit and the scan's own."""
        return self._engine.spec.at_most(limit)

    # -- the whole result ------------------------------------------------------------------------

    def table(self, limit: int | None) -> pa.Table:
        """All rows, or so many."""
        # The caller's own iterator is pulled on the caller's thread, never on the I/O loop.
        tables: list[pa.Table] = []
        for part in self._engine.parts():
            tables.append(io_loop.run(self._collect(part, _left(limit, tables))))
            if _left(limit, tables) == 0:
                break
        return _one_table(tables)

    async def table_async(self, limit: int | None) -> pa.Table:
        """`table`, awaited."""
        tables: list[pa.Table] = []
        for part in self._engine.parts():
            tables.append(await io_loop.bridge(self._collect(part, _left(limit, tables))))
            if _left(limit, tables) == 0:
                break
        return _one_table(tables)

    # -- on the I/O loop -------------------------------------------------------------------------

    async def _collect(self, part: Engine, limit: int | None) -> pa.Table:
        running = self.start(part, limit=limit)
        batches: list[pa.RecordBatch] = []
        try:
            while (batch := await running.take()) is not None:
                batches.append(batch)
            schema = batches[0].schema if batches else await running.schema()
        finally:
            await running.close()
        return pa.Table.from_batches(batches, schema)

    async def fold(self, part: Engine, aggregation: Aggregation, *, metrics: Metrics | None = None) -> None:
        """Have an aggregation take in one part of the scan."""
        limit = self.limit()
        left = None if limit is None else limit - aggregation.rows
        running = self.start(part, limit=left, answering=aggregation, metrics=metrics)
        try:
            await aggregation.fold(running, decode_threads=part.spec.options.decode_threads)
        finally:
            await running.close()

    async def exhaust(self, *, metrics: Metrics) -> None:
        """Run it for its counts."""
        running = self.start(self._engine, limit=self.limit(), metrics=metrics)
        try:
            while await running.take() is not None:
                pass
        finally:
            await running.close()


def _left(limit: int | None, tables: Sequence[pa.Table]) -> int | None:
    return None if limit is None else limit - sum(table.num_rows for table in tables)


def _one_table(tables: Sequence[pa.Table]) -> pa.Table:
    if not tables:
        return NO_COLUMNS.empty_table()
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables)
