"""How a scan is run, counted and planned: the private half of `Scan`, on the I/O loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from accel.arguments import is_planned, is_stream
from accel.errors import AccelError, redact
from accel.explaining import explain_plans
from accel.io.cache import Cache
from accel.io.client import Client
from accel.metrics import Metrics
from accel.planning.filing import FilePlan
from accel.planning.plan import Plan
from accel.planning.query import Question, compile_query
from accel.planning.task import ScanTask
from accel.planning.wire import decode_tasks
from accel.reader import Reader, Tails
from accel.run import FileWork, Run, single_error
from accel.session import ScanSpec, Session

__all__ = ["Engine", "Running"]

Convert = Callable[[pa.RecordBatch], pa.RecordBatch]


class Running:
    """One run under way: batches by `take`, then `close`."""

    def __init__(self, run: Run, session: Session | None, schema: pa.Schema | None, convert: bool) -> None:
        self._run = run
        self._session = session
        self._schema = schema
        self._convert = convert
        self._converter: Convert | None = None
        self.ended = False

    async def schema(self) -> pa.Schema:
        """The schema of the batches."""
        if self._schema is None and self._session is not None:
            self._schema = (await self._session.question()).output
        return self._schema if self._schema is not None else pa.schema([])

    async def take(self) -> pa.RecordBatch | None:
        """The next batch, or None; whatever is raised, the run has ended then."""
        if self.ended:
            return None
        try:
            batch = await self._run.take()
        except BaseException:
            await self.close()
            raise
        if batch is None:
            await self.close()
            return None
        if self._convert:
            batch = self._converted(batch)
        return batch

    def _converted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._converter is None:
            from accel.spark.types import spark_conversion

            self._converter = spark_conversion(batch.schema) or (lambda same: same)
        return self._converter(batch)

    async def close(self) -> None:
        """Stop; nothing of the run is under way afterwards."""
        self.ended = True
        await self._run.close()
        if self._session is not None:
            await self._session.close()


class Engine:
    """A `ScanSpec` with the means to run it."""

    def __init__(
        self,
        spec: ScanSpec,
        client_for: Callable[[Any], Client],
        *,
        cache: Cache | None,
        in_store: bool = False,
        convert: bool = False,
    ) -> None:
        self.spec = spec
        self._client_for = client_for
        self._cache = cache
        self._in_store = in_store
        self._convert = convert
        self._names: list[str] | None = None
        self._consumed = False

    @property
    def stream(self) -> bool:
        """Whether the source is an iterator of record batches, taken part by part."""
        return is_stream(self.spec.source)

    def describe(self) -> str:
        """The scan in a line, without credentials."""
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
        """The engines to run one after the other: itself, or one for each batch of the stream."""
        if not self.stream:
            yield self
            return
        if self._consumed:
            raise AccelError("a scan over an iterator runs once", hint="make the scan anew")
        self._consumed = True
        pinned: ScanSpec = self.spec
        for batch in self.spec.source:
            part = self._part(batch, pinned)
            if part is None:
                continue
            part._names = self._names
            yield part
            self._names = part._names
            if part.settled is not None and self.spec.schema is None:
                pinned = replace(pinned, schema=part.settled.schema)

    settled: Question | None = None
    """The question of the last run, once it was settled."""

    def _part(self, batch: pa.RecordBatch, spec: ScanSpec) -> Engine | None:
        if not isinstance(batch, pa.RecordBatch):
            raise TypeError(f"the iterator gives a {type(batch).__name__}, not record batches")
        if batch.num_rows == 0:
            return None
        names = set(batch.schema.names)
        source: Any
        if {"version", "footer", "leaves"} <= names:
            source = list(decode_tasks(batch))
            given = spec.where is not None or spec.columns is not None or spec.selection is not None
            if given:
                raise ValueError("where, columns, selection: tasks have their own; plan again with them")
        elif "path" in names:
            source = batch.column(batch.schema.get_field_index("path")).to_pylist()
        else:
            raise ValueError(
                f"record batches to scan have a `path` column, or are tasks of a plan; these have {sorted(names)}"
            )
        return Engine(
            replace(spec, source=source),
            self._client_for,
            cache=self._cache,
            in_store=self._in_store,
            convert=True,
        )

    # -- running ---------------------------------------------------------------------------------

    def _reader(self, metrics: Metrics, tails: Tails) -> Reader:
        cache = self._cache if self._cache is not None else Cache()
        return Reader(self._client_for, cache=cache, options=self.spec.options, metrics=metrics, tails=tails)

    def _session(self, metrics: Metrics, tails: Tails = Tails.DROP) -> Session:
        session = Session(self.spec, self._reader(metrics, tails), in_store=self._in_store)
        if self._names is not None:
            session.first_names = self._names
        return session

    def start(self, metrics: Metrics, *, limit: int | None = None) -> Running:
        """Begin a run; the first `take` sends the first request."""
        spec = self.spec
        if limit is None:
            limit = spec.limit
        elif spec.limit is not None:
            limit = min(limit, spec.limit)
        if is_planned(spec.source):
            tasks = _tasks_of(spec.source)
            run = Run(
                self._reader(metrics, Tails.SERVE), _planned_work(tasks), limit=limit, ordered=spec.order
            )
            return Running(run, None, _schema_of(spec.source), self._convert)
        session = self._session(metrics, Tails.SERVE)
        run = Run(session.reader, self._watched(session), limit=limit, ordered=spec.order)
        return Running(run, session, None, self._convert)

    async def _watched(self, session: Session) -> AsyncIterator[FileWork]:
        async for work in session.work():
            yield work
        self.settled = await session.question()
        self._names = session.first_names

    async def schema(self, metrics: Metrics) -> pa.Schema:
        """The schema of the result."""
        if is_planned(self.spec.source):
            return _schema_of(self.spec.source)
        session = self._session(metrics)
        try:
            return (await session.question()).output
        finally:
            await session.close()

    async def count(self, metrics: Metrics) -> int:
        """How many rows come out."""
        counting = self
        if is_planned(self.spec.source):
            counting = Engine(
                replace(self.spec, source=[_without_output(t) for t in _tasks_of(self.spec.source)]),
                self._client_for,
                cache=self._cache,
                in_store=self._in_store,
            )
            if not counting.spec.source:
                return 0
        else:
            counting = Engine(
                replace(self.spec, columns=()), self._client_for, cache=self._cache, in_store=self._in_store
            )
        running = counting.start(metrics)
        total = 0
        try:
            while (batch := await running.take()) is not None:
                total += batch.num_rows
        finally:
            await running.close()
        return total

    # -- planning --------------------------------------------------------------------------------

    async def plan(self, metrics: Metrics) -> Plan:
        """All tasks, from metadata alone."""
        if is_planned(self.spec.source):
            source = self.spec.source
            return source if isinstance(source, Plan) else Plan(_tasks_of(source), schema=_schema_of(source))
        session = self._session(metrics)
        try:
            plans = await self._plan_files(session)
            question = await session.question()
        except BaseExceptionGroup as group:
            raise single_error(group) from group
        finally:
            await session.close()
        self.settled, self._names = question, session.first_names
        tasks = [task for plan in plans for task in plan.tasks]
        explained = explain_plans(
            session, plans, question, source=self.describe(), listing=await session.listing()
        )
        return Plan(tasks, schema=question.output, explained=explained)

    async def _plan_files(self, session: Session) -> list[FilePlan]:
        slots = asyncio.Semaphore(self.spec.options.max_files_in_flight)

        async def one(make: Callable[[], Any]) -> FilePlan:
            async with slots:
                plan, _ = await make()
                return plan  # type: ignore[no-any-return]

        async with asyncio.TaskGroup() as group:
            started = [group.create_task(one(make)) async for make in session.file_plans()]
        return [task.result() for task in started]


def _tasks_of(source: Any) -> tuple[ScanTask, ...]:
    if isinstance(source, Plan):
        return source.tasks
    return (source,) if isinstance(source, ScanTask) else tuple(source)


def _schema_of(source: Any) -> pa.Schema:
    if isinstance(source, Plan):
        return source.schema
    return _tasks_of(source)[0].file.question.output


async def _planned_work(tasks: Sequence[ScanTask]) -> AsyncIterator[FileWork]:
    """Tasks of one file that follow each other are one piece of work."""
    at = 0
    while at < len(tasks):
        end = at + 1
        while end < len(tasks) and tasks[end].file is tasks[at].file:
            end += 1
        yield FileWork(_fixed(tasks[at:end]), None)
        at = end


def _fixed(tasks: Sequence[ScanTask]) -> Callable[[], Any]:
    async def give() -> tuple[Sequence[ScanTask], int]:
        return tasks, 0

    return give


def _without_output(task: ScanTask) -> ScanTask:
    """The task, to be counted only."""
    file = task.file
    question = replace(file.question, output=pa.schema([]))
    query = compile_query(
        question,
        file_schema=file.schema,
        arrow_schema=file.arrow_schema,
        partition=file.partition,
        url=file.url,
    )
    reads = tuple(r for r in task.reads if r.for_filter)
    return replace(task, file=replace(file, question=question, query=query), reads=reads)
