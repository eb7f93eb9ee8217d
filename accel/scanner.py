"""Scan: one question over Parquet files, with its async, blocking and Arrow-stream faces."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from accel.arguments import check_count
from accel.engine import Engine, Running
from accel.errors import AccelError
from accel.io import runtime
from accel.metrics import Metrics

if TYPE_CHECKING:
    from accel.aggregating import Aggregation
    from accel.planning.explain import Explain

__all__ = ["Scan"]

Asked = Sequence[tuple[str | Sequence[str], str]]
"""Aggregates: a column and a function each."""


class Scan:
    """A question over Parquet files: nothing is read before it is asked.

    Made by `accel.scan`. Iterate it (`async for` or `for`) for record batches in bounded memory, or call
    `to_table`, `head`, `count_rows`, `to_reader`; duckdb, polars and pyarrow take it as an Arrow stream.
    Each of them runs the scan anew (a scan over an iterator runs once). It may be used from several
    threads and event loops. What goes wrong is an `AccelError` that names the file, the place and what to do.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._metrics = Metrics()
        self._running: set[Running] = set()
        self._schema: pa.Schema | None = None

    # -- what it is ------------------------------------------------------------------------------

    @property
    def schema(self) -> pa.Schema:
        """The schema of what comes out. The first access reads one footer, if `schema=` was not given.

        Of an iterator the first record batch is pulled for it; one without any has no columns.
        """
        if self._schema is None:
            sample = self._engine.sample()
            self._schema = _NO_COLUMNS if sample is None else runtime.run(sample.schema(Metrics()))
        return self._schema

    async def schema_async(self) -> pa.Schema:
        """`schema`, awaited."""
        if self._schema is None:
            sample = self._engine.sample()
            self._schema = _NO_COLUMNS if sample is None else await runtime.bridge(sample.schema(Metrics()))
        return self._schema

    @property
    def metrics(self) -> Metrics:
        """The counts of the last run, also while it is under way."""
        return self._metrics

    def __repr__(self) -> str:
        spec = self._engine.spec
        told = [self._engine.describe()]
        if spec.where is not None:
            from accel.predicate.sql import to_sql

            told.append(f"where={_short(to_sql(spec.where, max_values=3))}")
        if spec.columns is not None:
            told.append(f"columns=[{_short(', '.join(map(str, spec.columns)))}]")
        if spec.selection is not None:
            told.append(f"selection={len(spec.selection)} files")
        if spec.limit is not None:
            told.append(f"limit={spec.limit}")
        return f"Scan({', '.join(told)})"

    # -- running ---------------------------------------------------------------------------------

    def _run(
        self, engine: Engine, *, limit: int | None = None, answering: Aggregation | None = None
    ) -> Running:
        self._metrics = Metrics()
        running = engine.start(self._metrics, limit=limit, answering=answering)
        self._running.add(running)
        return running

    async def __aiter__(self) -> AsyncIterator[pa.RecordBatch]:
        left = self._limit()
        for part in self._engine.parts():
            if left == 0:
                break
            running = self._run(part, limit=left)
            try:
                while (batch := await runtime.bridge(running.take())) is not None:
                    left = None if left is None else left - batch.num_rows
                    yield batch
            finally:
                await self._end_async(running)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The record batches, one by one; close the iterator to stop early."""
        left = self._limit()
        for part in self._engine.parts():
            if left == 0:
                break
            running = self._run(part, limit=left)
            try:
                while (batch := runtime.run(running.take())) is not None:
                    left = None if left is None else left - batch.num_rows
                    yield batch
            finally:
                self._end(running)

    __iter__ = to_batches

    def _end(self, running: Running) -> None:
        self._running.discard(running)
        if not running.ended:
            runtime.run_to_end(running.close)

    async def _end_async(self, running: Running) -> None:
        self._running.discard(running)
        if not running.ended:
            await runtime.bridge_to_end(running.close)

    async def _collect(self, part: Engine, limit: int | None) -> pa.Table:
        running = self._run(part, limit=limit)
        batches: list[pa.RecordBatch] = []
        try:
            while (batch := await running.take()) is not None:
                batches.append(batch)
            schema = batches[0].schema if batches else await running.schema()
        finally:
            self._running.discard(running)
            await running.close()
        return pa.Table.from_batches(batches, schema)

    def _table(self, limit: int | None) -> pa.Table:
        # The caller's own iterator is pulled on the caller's thread, never on the I/O loop.
        tables: list[pa.Table] = []
        for part in self._engine.parts():
            tables.append(runtime.run(self._collect(part, _left(limit, tables))))
            if _left(limit, tables) == 0:
                break
        return _one_table(tables)

    async def _table_async(self, limit: int | None) -> pa.Table:
        tables: list[pa.Table] = []
        for part in self._engine.parts():
            tables.append(await runtime.bridge(self._collect(part, _left(limit, tables))))
            if _left(limit, tables) == 0:
                break
        return _one_table(tables)

    def to_table(self) -> pa.Table:
        """The whole result. Works inside a running event loop too, which it blocks meanwhile."""
        return self._table(self._limit())

    async def to_table_async(self) -> pa.Table:
        """`to_table`, awaited."""
        return await self._table_async(self._limit())

    def head(self, num_rows: int = 10) -> pa.Table:
        """The first rows; reading stops when they are there."""
        return self._table(self._limit(check_count(num_rows)))

    async def head_async(self, num_rows: int = 10) -> pa.Table:
        """`head`, awaited."""
        return await self._table_async(self._limit(check_count(num_rows)))

    def count_rows(self) -> int:
        """How many rows match; from metadata alone where the metadata proves it."""
        return int(self.aggregate(_COUNT)["count_all"][0].as_py())

    async def count_rows_async(self) -> int:
        """`count_rows`, awaited."""
        return int((await self.aggregate_async(_COUNT))["count_all"][0].as_py())

    def aggregate(self, aggregates: Asked) -> pa.Table:
        """Counts, sums, minima and maxima of the result, in one row.

        What the metadata proves is not read: see docs/aggregates.md.

        Parameters
        ----------
        aggregates : sequence of (column, function)
            As `pyarrow.Table.group_by([]).aggregate` takes them: a column of the result and "count" (of values that
            are not null), "sum", "min" or "max"; or `([], "count_all")` for the rows. A column may be a dotted path
            into structs, or an expression that a zone map can hold: `lower(x)`, `year(x)`, `month(x)`, `day(x)`, `hour(x)`.

        Returns
        -------
        pyarrow.Table
            One row; columns in the order given, named `x_sum` or `count_all`, of pyarrow's types. Nulls are left out;
            of no values, a sum, minimum or maximum is null.

        Raises
        ------
        ColumnNotFoundError
            A column is not in the scan's result.
        SchemaMismatchError
            A function has no meaning for its column's type.
        """
        aggregation = self._aggregation(aggregates)
        for part in self._engine.parts():
            runtime.run(self._fold(part, aggregation))
            if aggregation.rows == self._limit():
                break
        return aggregation.result()

    async def aggregate_async(self, aggregates: Asked) -> pa.Table:
        """`aggregate`, awaited."""
        aggregation = self._aggregation(aggregates)
        for part in self._engine.parts():
            await runtime.bridge(self._fold(part, aggregation))
            if aggregation.rows == self._limit():
                break
        return aggregation.result()

    def _aggregation(self, aggregates: Asked) -> Aggregation:
        from accel.aggregating import Aggregation

        return Aggregation(aggregates, limited=self._limit() is not None)

    async def _fold(self, part: Engine, aggregation: Aggregation) -> None:
        limit = self._limit()
        left = None if limit is None else limit - aggregation.rows
        running = self._run(part, limit=left, answering=aggregation)
        try:
            await aggregation.fold(running, decode_threads=part.spec.options.decode_threads)
        finally:
            self._running.discard(running)
            await running.close()

    def _limit(self, limit: int | None = None) -> int | None:
        given = self._engine.spec.limit
        return limit if given is None else given if limit is None else min(limit, given)

    def explain(self, *, analyze: bool = False, aggregates: Asked | None = None) -> Explain:
        """Plan the scan (reading metadata, no data) and tell what pruning did and what will be asked for.

        Parameters
        ----------
        analyze : bool
            Also run it, and add what really happened.
        aggregates : sequence of (column, function), optional
            Explain `aggregate` with these, and not the reading of all rows.
        """
        return runtime.run(self._explain(analyze, aggregates))

    async def explain_async(self, *, analyze: bool = False, aggregates: Asked | None = None) -> Explain:
        """`explain`, awaited."""
        return await runtime.bridge(self._explain(analyze, aggregates))

    async def _explain(self, analyze: bool, aggregates: Asked | None) -> Explain:
        if self._engine.stream:
            raise AccelError(
                "a scan over an iterator cannot be explained", hint="explain a scan of the paths as a list"
            )
        asking = None if aggregates is None else self._aggregation(aggregates)
        planned = await self._engine.plan(Metrics(), answering=asking)
        explained = planned.explain()
        if asking is not None:
            explained = dataclasses.replace(explained, rows_from_metadata=asking.answered)
        if analyze:
            if aggregates is None:
                await self._exhaust()
            else:
                await self._fold(self._engine, self._aggregation(aggregates))
            counts = {k: v for k, v in self._metrics.as_dict().items() if v not in (0, [], {})}
            explained = dataclasses.replace(explained, analyzed=counts)
        return explained

    async def _exhaust(self) -> None:
        running = self._run(self._engine)
        try:
            while await running.take() is not None:
                pass
        finally:
            self._running.discard(running)
            await running.close()

    # -- Arrow -----------------------------------------------------------------------------------

    def to_reader(self) -> pa.RecordBatchReader:
        """The result as a stream of record batches that other libraries read from."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    # -- ending ----------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop whatever runs of this scan: no request of it is in flight afterwards."""
        for running in list(self._running):
            self._end(running)

    async def aclose(self) -> None:
        """`close`, awaited."""
        for running in list(self._running):
            await self._end_async(running)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


_NO_COLUMNS = pa.schema([])
_COUNT = (((), "count_all"),)


def _left(limit: int | None, tables: Sequence[pa.Table]) -> int | None:
    return None if limit is None else limit - sum(table.num_rows for table in tables)


def _one_table(tables: Sequence[pa.Table]) -> pa.Table:
    if not tables:
        return _NO_COLUMNS.empty_table()
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables)


def _short(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:117]}..."
