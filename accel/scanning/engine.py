"""How a scan is run, counted and planned: the private half of `Scan`."""

from __future__ import annotations

import dataclasses
import itertools
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import pyarrow as pa

from accel.cache.cache import Cache
from accel.errors import AccelError, ObjectChangedError, redact
from accel.events import listens
from accel.metrics import Metrics
from accel.options import Options
from accel.planning.query import Question
from accel.planning.task import ScanTask, check_alike
from accel.reader.reader import Reader, Tails
from accel.runtime import io_loop
from accel.scanning.deadline import Deadline, TimedRun
from accel.scanning.file_jobs import PlannedTasks
from accel.scanning.file_path_source import FilePathSource
from accel.scanning.file_source import FileSource
from accel.scanning.file_stream import FileStream, plan_files
from accel.scanning.resolved_source import ResolvedSource
from accel.scanning.run import AnyRun, Run, RunHandle, converted_schema
from accel.scanning.spec import OnError, ScanSpec, is_planned, is_stream, refuse_beside_a_plan
from accel.store.client import Client
from accel.store.clients import Clients, RunClients
from accel.store.request_errors import foremost

if TYPE_CHECKING:
    from accel.planning.ordered_reads import OrderedReads
    from accel.planning.plan import Plan
    from accel.planning.selection import RowSelection
    from accel.scanning.aggregating import Aggregation
    from accel.scanning.ordering import TopRows

__all__ = [
    "NO_COLUMNS",
    "Engine",
    "ScanRuns",
    "read_all",
]


SourceMaker: TypeAlias = "Callable[[ScanSpec], FileSource]"


class Engine:
    """A `ScanSpec` with the means to run it.

    Parameters
    ----------
    spec : ScanSpec
    clients : Clients
        Those that the call has.
    cache : Cache or None
        None: each run has a cache of its own.
    make_source : callable
        Makes the FileSource of a run, for a `ScanSpec` whose source is not planned.
    for_spark : bool
        Whether batches are converted to the types that `mapInArrow` takes.
    names : list of str, optional
        The columns that all files must have, in order, where the consumer matches them by position.
    settle : callable, optional
        Awaited when the scan is closed: what runs beside its answers has ended then.
    """

    def __init__(
        self,
        spec: ScanSpec,
        clients: Clients[Client],
        *,
        cache: Cache | None,
        make_source: SourceMaker,
        for_spark: bool = False,
        names: list[str] | None = None,
        settle: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        self.settle = settle
        self.spec = spec
        self._clients = clients
        self._cache = cache
        self._make_source = make_source
        self._for_spark = for_spark
        self._names = names
        self._output: pa.Schema | None = None
        self._consumed = False
        self._sample: pa.RecordBatch | None = None
        self._last: ResolvedSource | None = None
        self._deadline: Deadline | None = None
        """That of the whole run of a stream, of which this is a part."""

    def changed(self, **changes: Any) -> Engine:
        """Return the engine of another question about the same source; `changes` are fields of its
        `ScanSpec`."""
        spec = dataclasses.replace(self.spec, **changes)
        return Engine(
            spec, self._clients, cache=self._cache, make_source=self._make_source, settle=self.settle
        )

    @property
    def stream(self) -> bool:
        """Whether the source is an iterator of record batches, which is run part by part."""
        return is_stream(self.spec.source)

    def describe(self) -> str:
        """Return one line about the source, without credentials."""
        source = self.spec.source
        if self.stream:
            shown = "record batches"
        elif is_planned(source):
            shown = f"{len(_tasks_of(source))} tasks"
        elif isinstance(source, list | tuple):
            shown = f"{len(source)} sources"
        else:
            shown = redact(str(source))
        return shown

    # -- parts of a stream -----------------------------------------------------------------------

    def parts(self) -> Iterator[Engine]:
        """Yield the engines to run one after the other: itself, or one for each record batch of the
        stream."""
        if not self.stream:
            yield self
            return
        if self._consumed:
            raise AccelError("a scan over an iterator runs once", hint="make the scan anew")
        self._consumed = True
        pinned: ScanSpec = self.spec
        deadline = self._new_deadline()
        self._peek()
        for batch in itertools.chain(() if self._sample is None else (self._sample,), self.spec.source):
            part = self._part(batch, pinned)
            if part is None:
                continue
            part._deadline = deadline
            yield part
            self._names = part.first_names
            if part.settled is not None and self.spec.schema is None:
                pinned = pinned.with_settled(part.settled.schema)

    def sample(self) -> Engine | None:
        """Return the engine that settles the schema: itself, or the first part of a stream; None for a stream
        without parts.

        The first record batch of a stream is pulled at once, and remembered for the run.
        """
        if not self.stream:
            return self
        self._peek()
        return None if self._sample is None else self._part(self._sample, self.spec)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a scan does not pickle: pickle accel.plan(...), or functools.partial(accel.scan, ...)"
        )

    def _peek(self) -> None:
        if self._sample is None:
            source = self.spec.source
            self._sample = next((b for b in source if self._part(b, self.spec) is not None), None)

    @property
    def settled(self) -> Question | None:
        """The question of the last run, if that settled it."""
        return None if self._last is None else self._last.settled

    @property
    def first_names(self) -> list[str] | None:
        """The columns that all files must have, in order, where the consumer matches them by position."""
        return self._names if self._last is None else self._last.first_names

    def _part(self, batch: pa.RecordBatch, spec: ScanSpec) -> Engine | None:
        if not isinstance(batch, pa.RecordBatch):
            hint = "; give paths as a list" if isinstance(batch, str | os.PathLike) else ""
            raise TypeError(f"the iterator gives a {type(batch).__name__}, not record batches{hint}")
        if batch.num_rows == 0:
            return None
        from accel.planning.task_arrow import are_tasks

        names = set(batch.schema.names)
        source: Any
        if are_tasks(names):
            from accel.planning.task_arrow import decode_tasks

            refuse_beside_a_plan(
                where=spec.where,
                columns=spec.columns,
                selection=spec.selection,
                schema=spec.schema,
                embedded=spec.embedded or None,
                partitioning=spec.partitioning,
                file_path=spec.file_path,
                row_number=spec.row_number,
            )
            source = list(decode_tasks(batch))
            self._output = self._output or _schema_of(source)
            check_alike(source, self._output)
        elif "path" in names:
            source = batch.column(batch.schema.get_field_index("path")).to_pylist()
            if not all(isinstance(path, str) for path in source):
                raise ValueError("the `path` column of the record batches to scan holds other than text")
        else:
            raise ValueError(
                "record batches to scan have a `path` column, or are tasks of a plan; these have "
                f"{sorted(names)}"
            )
        return Engine(
            replace(spec, source=source),
            self._clients,
            cache=self._cache,
            make_source=self._make_source,
            for_spark=True,
            names=self._names,
        )

    # -- running ---------------------------------------------------------------------------------

    def _reader_maker(self, metrics: Metrics, tails: Tails, *, learns: bool = True) -> Callable[[], Reader]:
        # A reference to the engine would form a cycle that outlives the scan.
        return partial(
            _make_reader,
            self._clients,
            self._cache,
            options=self.spec.options,
            metrics=metrics,
            tails=tails,
            learns=learns,
        )

    def resolved(
        self,
        metrics: Metrics,
        tails: Tails = Tails.DROP,
        *,
        limit: int | None = None,
        answers: Aggregation | TopRows | None = None,
        on_error: OnError | None = None,
    ) -> ResolvedSource:
        self._last = ResolvedSource(
            self.spec,
            self._reader_maker(metrics, tails),
            source=FilePathSource.over(self._make_source, self.spec),
            limit=limit,
            answers=answers,
            first_names=self._names,
            on_error=self.spec.on_error if on_error is None else on_error,
        )
        return self._last

    def start(
        self, metrics: Metrics, *, limit: int | None = None, aggregation: Aggregation | None = None
    ) -> RunHandle:
        """Begin a run; the first `take` sends the first request.

        With an aggregation only rows that metadata cannot answer for come out, in the files' own types.
        """
        spec, for_spark = self.spec, self._for_spark and aggregation is None
        limit = spec.at_most(limit)
        if spec.order_by and aggregation is None:
            return self._start_top(metrics, limit)
        if not is_planned(spec.source):
            source = self.resolved(metrics, Tails.SERVE, limit=limit, answers=aggregation)
            run = Run(
                FileStream(source),
                limit=limit,
                ordered=spec.order,
                speculates=not self._for_spark,
                gradual=spec.gradual,
            )
            return self._handle(run, source, schema=None, for_spark=for_spark, url=_only_path(spec.source))
        tasks: Sequence[ScanTask] = _tasks_of(spec.source)
        schema = _schema_of(spec.source)
        check_alike(tasks, schema)
        reader = self._reader_maker(metrics, Tails.SERVE, learns=False)()
        if aggregation is not None:
            tasks = aggregation.answer_planned(reader, tasks, schema)
        skips = spec.on_error is OnError.SKIP
        run = Run(PlannedTasks(reader, tasks, skips=skips), limit=limit, ordered=spec.order, speculates=False)
        urls = {task.file.url for task in tasks}
        url = urls.pop() if len(urls) == 1 else None
        return self._handle(run, None, schema=schema, for_spark=for_spark, url=url)

    async def open_window(self, metrics: Metrics, rows: RowSelection) -> RunHandle:
        """Begin a run of rows by their numbers over all files."""
        from accel.scanning.row_window import open_window

        return await open_window(self.resolved(metrics, Tails.SERVE), rows)

    async def preview_order(self, metrics: Metrics) -> OrderedReads | None:
        """Return in which order a run would read the first rows; None without a number of rows."""
        from accel.scanning.bound_search import BoundSearch

        if self.spec.limit is None:
            return None
        top = self._top_rows(self.spec.limit)
        async with self.in_time():
            return await BoundSearch(self.resolved(metrics, answers=top), top).preview()

    def _top_rows(self, limit: int) -> TopRows:
        from accel.scanning.ordering import TopRows

        return TopRows(self.spec.order_by, limit, case_sensitive=self.spec.case_sensitive)

    def _start_top(self, metrics: Metrics, limit: int | None) -> RunHandle:
        """Begin a run for the first rows in an order."""
        from accel.scanning.top_rows import TopRun

        spec = self.spec
        if limit is None:
            raise ValueError("`order_by=` takes a `limit=`: the number of rows that are wanted")
        top = self._top_rows(limit)
        run = TopRun(
            lambda: self.resolved(metrics, Tails.SERVE, answers=top), top, batch_rows=spec.options.batch_rows
        )
        return self._handle(
            run, run.source, schema=None, for_spark=self._for_spark, url=_only_path(spec.source)
        )

    def _handle(self, run: AnyRun, found: ResolvedSource | None, **keywords: Any) -> RunHandle:
        deadline = self._new_deadline()
        if deadline is None:
            return RunHandle(run, **keywords)
        return TimedRun(run, **keywords, deadline=deadline, found=lambda: found)

    def with_one_deadline(self) -> Engine:
        """Return the same question, whose runs and plans all end by one deadline, which begins now."""
        other = self.changed()
        other._deadline = self._new_deadline()
        return other

    def _new_deadline(self) -> Deadline | None:
        """Return the deadline of a run or of planning that begins now; None where it may take its time."""
        timeout = self.spec.timeout
        return self._deadline or (None if timeout is None else Deadline(timeout, self.describe()))

    def in_time(self) -> AbstractAsyncContextManager[None]:
        """Return a block that ends with ScanTimeoutError where it takes longer than the scan may."""
        deadline = self._new_deadline()
        return nullcontext() if deadline is None else deadline.watch(lambda: self._last)

    async def schema(self, metrics: Metrics) -> pa.Schema:
        """Return the schema of the result."""
        if is_planned(self.spec.source):
            schema = _schema_of(self.spec.source)
        else:
            async with self.in_time(), aclosing(self.resolved(metrics)) as source:
                schema = (await source.question()).output
        return converted_schema(schema) if self._for_spark else schema

    # -- planning --------------------------------------------------------------------------------

    def resolve(self, metrics: Metrics) -> ResolvedSource:
        """Return the source, to take blocks of files from; no file is opened."""
        return self.resolved(metrics)

    @asynccontextmanager
    async def find(
        self, metrics: Metrics, *, on_error: OnError | None = None
    ) -> AsyncIterator[ResolvedSource]:
        """Find the first files of the source, and settle the question; `plan` goes on from there. The source
        is closed at the end of the context."""
        async with aclosing(self.resolved(metrics, on_error=on_error)) as found:
            await found.first_block()
            await found.question()
            yield found

    async def plan(
        self,
        metrics: Metrics,
        *,
        aggregation: Aggregation | None = None,
        found: ResolvedSource | None = None,
        on_error: OnError | None = None,
    ) -> Plan:
        """Return all tasks, from metadata alone; with an aggregation, the tasks that it leaves to be read."""
        from accel.planning.plan import Plan

        if is_planned(self.spec.source):
            source = self.spec.source
            if aggregation is not None:
                raise AccelError(
                    "the aggregates of a plan are not explained", hint="explain those of the scan"
                )
            return source if isinstance(source, Plan) else Plan(_tasks_of(source), schema=_schema_of(source))
        resolved = found or self.resolved(metrics, answers=aggregation, on_error=on_error)
        try:
            async with self.in_time():
                plans = await plan_files(resolved)
                question = await resolved.question()
        except BaseExceptionGroup as group:
            raise foremost(group) from group
        tasks = [task for plan in plans for task in plan.tasks]
        from accel.scanning.explaining import explain_plans

        explained = explain_plans(
            resolved,
            plans,
            question=question,
            source=self.describe(),
            block=await resolved.first_block(),
            forgets=self._cache is None,
        )
        # Without a cache of the caller's the function would keep the metadata of all files alive as long as
        # the plan.
        explanation = explained if self._cache is not None else explained()
        return Plan(tasks, schema=question.output, explained=explanation, metrics=metrics)


def _make_reader(
    clients: Clients[Client],
    cache: Cache | None,
    *,
    options: Options,
    metrics: Metrics,
    tails: Tails,
    learns: bool,
) -> Reader:
    metrics.listener = options.on_event
    return Reader(
        RunClients(clients, metrics),
        # One run reads nothing twice: in a cache that ends with it, data would only take up memory.
        cache=Cache(data=0) if cache is None else cache,
        options=options,
        metrics=metrics,
        tails=tails,
        learns=learns,
    )


def _tasks_of(source: Any) -> tuple[ScanTask, ...]:
    from accel.planning.plan import Plan

    if isinstance(source, Plan):
        return source.tasks
    return (source,) if isinstance(source, ScanTask) else tuple(source)


def _schema_of(source: Any) -> pa.Schema:
    from accel.planning.plan import Plan

    if isinstance(source, Plan):
        return source.schema
    return _tasks_of(source)[0].file.question.output


def _only_path(source: Any) -> str | None:
    """Return the path of a source of one path, which may be a directory."""
    paths = source if isinstance(source, list | tuple) else [source]
    return str(paths[0]) if len(paths) == 1 else None


NO_COLUMNS = pa.schema([])


class ScanRuns:
    """The runs of a scan that are under way, and the counts of the last one. Several may run at once, from
    any thread."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._under_way: set[AnyRun] = set()
        self._metrics: Metrics | None = None

    @property
    def metrics(self) -> Metrics:
        """The counts of the run that was started last."""
        if self._metrics is None:
            self._metrics = Metrics()
        return self._metrics

    def start(
        self,
        part: Engine,
        *,
        limit: int | None = None,
        aggregation: Aggregation | None = None,
        metrics: Metrics | None = None,
    ) -> RunHandle:
        """Start a run, which `end` or `end_async` has to end. It counts in `metrics`, if given."""
        counts = self._metrics = Metrics() if metrics is None else metrics
        counts.listener = part.spec.options.on_event
        began, source = time.perf_counter(), part.describe()
        if listens(counts.listener):
            counts.emit("scan started", path=source)
        running = part.start(counts, limit=limit, aggregation=aggregation)
        running.enlist(self._under_way)
        if listens(counts.listener):
            running.on_end = partial(_report_end, counts, source, began)
        return running

    def end(self, running: RunHandle) -> None:
        """End a run, if it has not ended by itself."""
        if not running.ended:
            io_loop.run_to_end(running.close)

    async def end_async(self, running: RunHandle) -> None:
        """End a run, as `end` does, and await it."""
        if not running.ended:
            await io_loop.bridge_to_end(running.close)

    def end_all(self) -> None:
        """End all runs, and wait for those that are being ended."""
        for run in list(self._under_way):
            io_loop.run_to_end(run.close)

    async def end_all_async(self) -> None:
        """End all runs, as `end_all` does, and await them."""
        for run in list(self._under_way):
            await io_loop.bridge_to_end(run.close)

    def limit(self, limit: int | None = None) -> int | None:
        """Return the lesser of this limit and the scan's own."""
        return self.engine.spec.at_most(limit)

    # -- the whole result ------------------------------------------------------------------------

    def table(self, limit: int | None) -> pa.Table:
        """Return all rows, or at most `limit`."""
        # A stream is the caller's own iterator: it is pulled on the caller's thread, never on the I/O loop.
        tables: list[pa.Table] = []
        for part in self.engine.parts():
            tables.append(io_loop.run(self._collect(part, _left(limit, tables))))
            if _left(limit, tables) == 0:
                break
        return _one_table(tables)

    async def table_async(self, limit: int | None) -> pa.Table:
        """Return the rows as a table, as `table` does, without blocking."""
        tables: list[pa.Table] = []
        for part in self.engine.parts():
            tables.append(await io_loop.bridge(self._collect(part, _left(limit, tables))))
            if _left(limit, tables) == 0:
                break
        return _one_table(tables)

    # -- on the I/O loop -------------------------------------------------------------------------

    async def _collect(self, part: Engine, limit: int | None) -> pa.Table:
        return await read_all(self.start(part, limit=limit))

    async def fold(self, part: Engine, aggregation: Aggregation, *, metrics: Metrics | None = None) -> None:
        """Run one part of the scan for an aggregation."""
        limit = self.limit()
        left = None if limit is None else limit - aggregation.rows
        running = self.start(part, limit=left, aggregation=aggregation, metrics=metrics)
        try:
            await aggregation.fold(running, decode_threads=part.spec.options.decode_threads)
        finally:
            await running.close()

    async def window(self, rows: RowSelection) -> pa.Table:
        """Return rows by their numbers, over all files in order."""
        metrics = self._metrics = Metrics()
        async with self.engine.in_time():
            for again in (False, True):
                try:
                    running = await self.engine.open_window(metrics, rows)
                    running.enlist(self._under_way)
                    return await read_all(running)
                except ObjectChangedError:
                    # The version that is there now has other rows; none has been handed out.
                    if again:
                        raise
        raise RuntimeError("a second attempt returns or raises")

    async def exhaust(self, part: Engine, *, metrics: Metrics) -> None:
        """Run one part of the scan for its counts."""
        running = self.start(part, limit=self.limit(), metrics=metrics)
        try:
            while await running.take() is not None:
                pass
        finally:
            await running.close()


async def read_all(running: RunHandle) -> pa.Table:
    """Take all batches of a run, and close it."""
    batches: list[pa.RecordBatch] = []
    try:
        while (batch := await running.take()) is not None:
            batches.append(batch)
        schema = batches[0].schema if batches else await running.schema()
    finally:
        await running.close()
    return pa.Table.from_batches(batches, schema)


def _report_end(metrics: Metrics, source: str, began: float, error: BaseException | None) -> None:
    metrics.emit(
        "scan ended",
        path=source,
        seconds=time.perf_counter() - began,
        text=None if error is None else redact(f"{type(error).__name__}: {error}"),
        counts=metrics.as_dict(),
    )


def _left(limit: int | None, tables: Sequence[pa.Table]) -> int | None:
    return None if limit is None else limit - sum(table.num_rows for table in tables)


def _one_table(tables: Sequence[pa.Table]) -> pa.Table:
    if not tables:
        return NO_COLUMNS.empty_table()
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables)
