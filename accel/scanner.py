"""Scan: one question over Parquet files, with its async, blocking and Arrow-stream faces."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from accel.arguments import check_arguments
from accel.engine import Engine, Running
from accel.io import runtime
from accel.io.cache import Cache
from accel.io.clients import client_for
from accel.metrics import Metrics
from accel.options import Options
from accel.planning.explain import Explain
from accel.planning.plan import Plan
from accel.session import ScanSpec

__all__ = ["Scan", "plan", "plan_async", "scan"]


class Scan:
    """A question over Parquet files: nothing is read before it is asked.

    Made by `accel.scan`. Iterate it (`async for` or `for`) for record batches in bounded memory, or call
    `to_table`, `head`, `count_rows`, `to_reader`; duckdb, polars and pyarrow take it as an Arrow stream.
    Each of them runs the scan anew (a scan over an iterator runs once). It may be used from several
    threads and event loops.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._metrics = Metrics()
        self._running: set[Running] = set()
        self._schema: pa.Schema | None = None

    # -- what it is ------------------------------------------------------------------------------

    @property
    def schema(self) -> pa.Schema:
        """The schema of what comes out. The first access reads one footer, if `schema=` was not given."""
        if self._schema is None:
            self._schema = runtime.run(self._engine.schema(Metrics()))
        return self._schema

    async def schema_async(self) -> pa.Schema:
        """`schema`, awaited."""
        if self._schema is None:
            self._schema = await runtime.bridge(self._engine.schema(Metrics()))
        return self._schema

    @property
    def metrics(self) -> Metrics:
        """The counts of the last run, also while it is under way."""
        return self._metrics

    def __repr__(self) -> str:
        return f"Scan({self._engine.describe()})"

    # -- running ---------------------------------------------------------------------------------

    def _run(self, engine: Engine, *, limit: int | None = None) -> Running:
        self._metrics = Metrics()
        running = engine.start(self._metrics, limit=limit)
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
            runtime.run(running.close())

    async def _end_async(self, running: Running) -> None:
        self._running.discard(running)
        if not running.ended:
            await runtime.bridge(running.close())

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
        total = 0
        for part in self._engine.parts():
            self._metrics = Metrics()
            total += runtime.run(part.count(self._metrics))
        return _capped(total, self._limit())

    async def count_rows_async(self) -> int:
        """`count_rows`, awaited."""
        total = 0
        for part in self._engine.parts():
            self._metrics = Metrics()
            total += await runtime.bridge(part.count(self._metrics))
        return _capped(total, self._limit())

    def _limit(self, limit: int | None = None) -> int | None:
        given = self._engine.spec.limit
        return limit if given is None else given if limit is None else min(limit, given)

    def explain(self, *, analyze: bool = False) -> Explain:
        """Plan the scan (reading metadata, no data) and tell what pruning did and what will be asked for.

        Parameters
        ----------
        analyze : bool
            Also run it, and add what really happened.
        """
        return runtime.run(self._explain(analyze))

    async def explain_async(self, *, analyze: bool = False) -> Explain:
        """`explain`, awaited."""
        return await runtime.bridge(self._explain(analyze))

    async def _explain(self, analyze: bool) -> Explain:
        planned = await self._engine.plan(Metrics())
        explained = planned.explain()
        if analyze:
            running = self._run(self._engine)
            try:
                while await running.take() is not None:
                    pass
            finally:
                self._running.discard(running)
                await running.close()
            counts = {k: v for k, v in self._metrics.as_dict().items() if v not in (0, [], {})}
            explained = dataclasses.replace(explained, analyzed=counts)
        return explained

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


def _left(limit: int | None, tables: Sequence[pa.Table]) -> int | None:
    return None if limit is None else limit - sum(table.num_rows for table in tables)


def _capped(total: int, limit: int | None) -> int:
    return total if limit is None else min(total, limit)


def _one_table(tables: Sequence[pa.Table]) -> pa.Table:
    if not tables:
        return pa.schema([]).empty_table()
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables)


def check_count(num_rows: int) -> int:
    if isinstance(num_rows, bool) or not isinstance(num_rows, int) or num_rows < 0:
        raise ValueError(f"a number of rows is a non-negative int, not {num_rows!r}")
    return num_rows


_DEFAULT = Cache()


def scan(
    source: Any,
    where: Any = None,
    *,
    columns: Sequence[str] | None = None,
    limit: int | None = None,
    selection: Mapping[str, Any] | None = None,
    schema: pa.Schema | None = None,
    partitioning: Any = "hive",
    glob: bool = True,
    order: bool = True,
    store: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    cache: Cache | None = _DEFAULT,
    options: Options | None = None,
) -> Scan:
    """Ask a question of Parquet files. No I/O happens before the result is used.

    Parameters
    ----------
    source : str, path, list, Plan, or iterator of record batches
        A URL or path, a list of them, a glob, a directory (hive partitions are recognised), a `Plan`; or what
        `mapInArrow` passes: record batches with a `path` column, or with the tasks of a plan.
    where : str, list, or expression, optional
        A SQL boolean expression (docs/predicates.md), pyarrow's filter lists, or `accel.col("a") > 1`.
    columns : sequence of str, optional
        Names, or dotted paths into structs, in the order wanted; None for all, [] for row counts only.
    limit : int, optional
        Stop after so many rows.
    selection : mapping, optional
        The caller's own access plan, `{path: {row group: [(start, stop), ...]}}`: half-open rows within each
        row group. Files and row groups not named are not read. It is intersected with what pruning finds.
    schema : pyarrow.Schema, optional
        Of the data set. By default the first file's, with the partition columns appended.
    partitioning : {"hive", None} or pyarrow.Schema
        How directory names are read; a schema gives the types of hive keys.
    glob : bool
        Whether `*`, `?` and `[` in a path form a pattern.
    order : bool
        Rows come in file order; False may interleave files.
    store : obstore store or RangeStore, optional
        Takes the place of the store that URLs name; paths then are relative to it.
    storage_options : mapping, optional
        obstore's keys (`endpoint`, `access_key_id`, `region`, ...); else the usual environment variables.
    cache : Cache or None
        By default one for the process; None for no caching beyond this scan.
    options : Options, optional
        Every tunable.

    Returns
    -------
    Scan

    Raises
    ------
    PredicateError
        `where` does not parse.
    ValueError
        Arguments that do not go together.
    """
    spec = check_arguments(
        source,
        where,
        columns=columns,
        limit=limit,
        selection=selection,
        schema=schema,
        partitioning=partitioning,
        glob=glob,
        order=order,
        options=options or Options(),
    )
    return Scan(_engine(spec, store=store, storage_options=storage_options, cache=cache))


def _engine(
    spec: ScanSpec, *, store: Any, storage_options: Mapping[str, Any] | None, cache: Cache | None
) -> Engine:
    def client(where: Any) -> Any:
        return client_for(where, storage_options=storage_options, store=store, options=spec.options)

    return Engine(spec, client, cache=cache, in_store=store is not None)


def plan(source: Any, where: Any = None, **keywords: Any) -> Plan:
    """Plan a scan: read its metadata and find the pages to read, but read no data.

    The arguments are those of `scan`, but for `limit` and `order`. Over an iterator of record batches with a
    `path` column (`mapInArrow`) it plans those files.

    Returns
    -------
    Plan
    """
    asked = _asked(source, where, keywords)
    return _one_plan([runtime.run(part.plan(Metrics())) for part in asked.parts()])


async def plan_async(source: Any, where: Any = None, **keywords: Any) -> Plan:
    """`plan`, awaited."""
    asked = _asked(source, where, keywords)
    return _one_plan([await runtime.bridge(part.plan(Metrics())) for part in asked.parts()])


def _asked(source: Any, where: Any, keywords: Mapping[str, Any]) -> Engine:
    refused = {"limit", "order"} & set(keywords)
    if refused:
        raise TypeError(f"plan() takes no {', '.join(sorted(refused))}")
    return scan(source, where, **keywords)._engine


def _one_plan(plans: Sequence[Plan]) -> Plan:
    if len(plans) == 1:
        return plans[0]
    tasks = [task for plan in plans for task in plan.tasks]
    return Plan(tasks, schema=plans[0].schema if plans else pa.schema([]))
