"""How a scan is run, counted and planned: the private half of `Scan`."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeAlias

import pyarrow as pa

from accel.cache.cache import Cache
from accel.errors import AccelError, redact
from accel.metrics import Metrics
from accel.options import Options
from accel.planning.query import Question
from accel.planning.task import ScanTask, check_alike
from accel.reader.reader import Reader, Tails
from accel.scanning.file_jobs import PlannedTasks
from accel.scanning.file_source import FileSource
from accel.scanning.file_stream import FileStream, plan_files
from accel.scanning.resolved_source import MetadataAnswers, ResolvedSource
from accel.scanning.run import Run, RunHandle, converted_schema
from accel.scanning.spec import OnError, ScanSpec, is_planned, is_stream, refuse_beside_a_plan
from accel.store import io_loop
from accel.store.client import Client
from accel.store.request_errors import foremost

if TYPE_CHECKING:
    from accel.planning.plan import Plan

__all__ = [
    "NO_COLUMNS",
    "Engine",
    "Folding",
    "ScanRuns",
    "read_all",
]


SourceMaker: TypeAlias = "Callable[[ScanSpec], FileSource]"


class Folding(MetadataAnswers, Protocol):
    """A question about all rows of a scan, which folds those that metadata cannot answer for."""

    rows: int
    """Rows so far."""

    async def fold(self, running: RunHandle, *, decode_threads: int) -> None:
        """Take in all of one run."""
        ...


class Engine:
    """A `ScanSpec` with the means to run it.

    Parameters
    ----------
    spec : ScanSpec
    client_for : callable
        The client of a store, by its root.
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
        client_for: Callable[[Any], Client],
        *,
        cache: Cache | None,
        make_source: SourceMaker,
        for_spark: bool = False,
        names: list[str] | None = None,
        settle: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        self.settle = settle
        self.spec = spec
        self._client_for = client_for
        self._cache = cache
        self._make_source = make_source
        self._for_spark = for_spark
        self._names = names
        self._output: pa.Schema | None = None
        self._consumed = False
        self._sample: pa.RecordBatch | None = None
        self._last: ResolvedSource | None = None

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
        """Yield the engines to run one after the other: itself, or one for each record batch of the stream."""
        if not self.stream:
            yield self
            return
        if self._consumed:
            raise AccelError("a scan over an iterator runs once", hint="make the scan anew")
        self._consumed = True
        pinned: ScanSpec = self.spec
        self._peek()
        for batch in itertools.chain(() if self._sample is None else (self._sample,), self.spec.source):
            part = self._part(batch, pinned)
            if part is None:
                continue
            yield part
            self._names = part.first_names
            if part.settled is not None and self.spec.schema is None:
                pinned = replace(pinned, schema=part.settled.schema)

    def sample(self) -> Engine | None:
        """Return the engine that settles the schema: itself, or the first part of a stream; None for a stream without parts.

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
                f"record batches to scan have a `path` column, or are tasks of a plan; these have {sorted(names)}"
            )
        return Engine(
            replace(spec, source=source),
            self._client_for,
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
            self._client_for,
            self._cache,
            options=self.spec.options,
            metrics=metrics,
            tails=tails,
            learns=learns,
        )

    def _resolved(
        self,
        metrics: Metrics,
        tails: Tails = Tails.DROP,
        *,
        limit: int | None = None,
        answers: MetadataAnswers | None = None,
        on_error: OnError = OnError.RAISE,
    ) -> ResolvedSource:
        self._last = ResolvedSource(
            self.spec,
            self._reader_maker(metrics, tails),
            source=self._make_source(self.spec),
            limit=limit,
            answers=answers,
            first_names=self._names,
            on_error=on_error,
        )
        return self._last

    def start(
        self, metrics: Metrics, *, limit: int | None = None, aggregation: Folding | None = None
    ) -> RunHandle:
        """Begin a run; the first `take` sends the first request.

        With an aggregation only rows that metadata cannot answer for come out, in the files' own types.
        """
        spec, for_spark = self.spec, self._for_spark and aggregation is None
        limit = spec.at_most(limit)
        if not is_planned(spec.source):
            source = self._resolved(metrics, Tails.SERVE, limit=limit, answers=aggregation)
            run = Run(FileStream(source), limit=limit, ordered=spec.order, speculates=not self._for_spark)
            return RunHandle(run, schema=None, for_spark=for_spark, url=_only_path(spec.source))
        tasks: Sequence[ScanTask] = _tasks_of(spec.source)
        schema = _schema_of(spec.source)
        check_alike(tasks, schema)
        reader = self._reader_maker(metrics, Tails.SERVE, learns=False)()
        if aggregation is not None:
            tasks = aggregation.answer_planned(reader, tasks, schema)
        run = Run(PlannedTasks(reader, tasks), limit=limit, ordered=spec.order, speculates=False)
        urls = {task.file.url for task in tasks}
        return RunHandle(run, schema=schema, for_spark=for_spark, url=urls.pop() if len(urls) == 1 else None)

    async def schema(self, metrics: Metrics) -> pa.Schema:
        """Return the schema of the result."""
        if is_planned(self.spec.source):
            schema = _schema_of(self.spec.source)
        else:
            schema = (await self._resolved(metrics).question()).output
        return converted_schema(schema) if self._for_spark else schema

    # -- planning --------------------------------------------------------------------------------

    def resolve(self, metrics: Metrics) -> ResolvedSource:
        """Return the source, to take blocks of files from; no file is opened."""
        return self._resolved(metrics)

    async def find(self, metrics: Metrics, *, on_error: OnError = OnError.RAISE) -> ResolvedSource:
        """Find the first files of the source, and settle the question; `plan` goes on from there."""
        found = self._resolved(metrics, on_error=on_error)
        await found.first_block()
        await found.question()
        return found

    async def plan(
        self,
        metrics: Metrics,
        *,
        aggregation: Folding | None = None,
        found: ResolvedSource | None = None,
        on_error: OnError = OnError.RAISE,
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
        resolved = found or self._resolved(metrics, answers=aggregation, on_error=on_error)
        try:
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
        # Without a cache of the caller's the function would keep the metadata of all files alive as long as the plan.
        explanation = explained if self._cache is not None else explained()
        return Plan(tasks, schema=question.output, explained=explanation, metrics=metrics)


def _make_reader(
    client_for: Callable[[Any], Client],
    cache: Cache | None,
    *,
    options: Options,
    metrics: Metrics,
    tails: Tails,
    learns: bool,
) -> Reader:
    return Reader(
        _once_each(client_for, metrics),
        # One run reads nothing twice: in a cache that ends with it, data would only take up memory.
        cache=Cache(data=0) if cache is None else cache,
        options=options,
        metrics=metrics,
        tails=tails,
        learns=learns,
    )


def _once_each(client_for: Callable[[Any], Client], metrics: Metrics) -> Callable[[str], Client]:
    """`client_for`, called once for each store, as a run may read thousands of files; warnings of a client are noted."""
    clients: dict[str, Client] = {}

    def client(root: str) -> Client:
        found = clients.get(root)
        if found is None:
            found = clients[root] = client_for(root)
            if found.warning is not None and found.warning not in metrics.warnings:
                metrics.warn(found.warning)
        return found

    return client


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
    """The runs of a scan that are under way, and the counts of the last one. Several may run at once, from any thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._under_way: set[Run] = set()
        self.metrics = Metrics()
        """The counts of the run that was started last."""

    def start(
        self,
        part: Engine,
        *,
        limit: int | None = None,
        aggregation: Folding | None = None,
        metrics: Metrics | None = None,
    ) -> RunHandle:
        """Start a run, which `end` or `end_async` has to end. It counts in `metrics`, if given."""
        counts = self.metrics = Metrics() if metrics is None else metrics
        running = part.start(counts, limit=limit, aggregation=aggregation)
        running.enlist(self._under_way)
        return running

    def end(self, running: RunHandle) -> None:
        """End a run, if it has not ended by itself."""
        if not running.ended:
            io_loop.run_to_end(running.close)

    async def end_async(self, running: RunHandle) -> None:
        """`end`, awaited."""
        if not running.ended:
            await io_loop.bridge_to_end(running.close)

    def end_all(self) -> None:
        """End all runs, and wait for those that are being ended."""
        for run in list(self._under_way):
            io_loop.run_to_end(run.close)

    async def end_all_async(self) -> None:
        """`end_all`, awaited."""
        for run in list(self._under_way):
            await io_loop.bridge_to_end(run.close)

    def limit(self, limit: int | None = None) -> int | None:
        """Return the lesser of this limit and the scan's own."""
        return self._engine.spec.at_most(limit)

    # -- the whole result ------------------------------------------------------------------------

    def table(self, limit: int | None) -> pa.Table:
        """Return all rows, or at most `limit`."""
        # A stream is the caller's own iterator: it is pulled on the caller's thread, never on the I/O loop.
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
        return await read_all(self.start(part, limit=limit))

    async def fold(self, part: Engine, aggregation: Folding, *, metrics: Metrics | None = None) -> None:
        """Run one part of the scan for an aggregation."""
        limit = self.limit()
        left = None if limit is None else limit - aggregation.rows
        running = self.start(part, limit=left, aggregation=aggregation, metrics=metrics)
        try:
            await aggregation.fold(running, decode_threads=part.spec.options.decode_threads)
        finally:
            await running.close()

    async def exhaust(self, *, metrics: Metrics) -> None:
        """Run the scan for its counts."""
        running = self.start(self._engine, limit=self.limit(), metrics=metrics)
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


def _left(limit: int | None, tables: Sequence[pa.Table]) -> int | None:
    return None if limit is None else limit - sum(table.num_rows for table in tables)


def _one_table(tables: Sequence[pa.Table]) -> pa.Table:
    if not tables:
        return NO_COLUMNS.empty_table()
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables)
