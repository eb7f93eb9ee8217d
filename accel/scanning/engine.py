"""How a scan is run, counted and planned: the private half of `Scan`, on the I/O loop."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa

from accel.cache.cache import Cache
from accel.errors import AccelError, redact
from accel.metrics import Metrics
from accel.planning.query import Question
from accel.planning.task import ScanTask, check_alike
from accel.reader.reader import Reader, Tails
from accel.scanning.arguments import is_planned, is_stream, refuse_beside_a_plan
from accel.scanning.finder import Finder
from accel.scanning.run import Run
from accel.scanning.scan_spec import ScanSpec
from accel.scanning.session import Session
from accel.scanning.taking import Running, converted_schema
from accel.store.client import Client
from accel.store.request_errors import foremost

if TYPE_CHECKING:
    from accel.planning.plan import Plan
    from accel.scanning.answering import Answering

__all__ = ["Engine"]


class Engine:
    """A `ScanSpec` with the means to run it.

    Parameters
    ----------
    spec : ScanSpec
    client_for : callable
        The client of a store, by its root.
    cache : Cache or None
        None: what a run reads is forgotten with it.
    in_store : bool
        Paths are relative to a store that the caller gave.
    for_spark : bool
        The batches are what `mapInArrow` takes.
    names : list of str, optional
        The columns that all files must have, in order, where they are matched by position.
    """

    def __init__(
        self,
        spec: ScanSpec,
        client_for: Callable[[Any], Client],
        *,
        cache: Cache | None,
        in_store: bool = False,
        for_spark: bool = False,
        names: list[str] | None = None,
    ) -> None:
        self.spec = spec
        self._client_for = client_for
        self._cache = cache
        self._in_store = in_store
        self._for_spark = for_spark
        self._names = names
        self._output: pa.Schema | None = None
        self._consumed = False
        self._sample: pa.RecordBatch | None = None
        self._last: Session | None = None

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
        """What tells the schema: itself, or the first part of a stream; None for one without parts.

        A stream's first batch is pulled for it, here and now, and kept for the run.
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
        """The question of the last run, if it was settled."""
        return None if self._last is None else self._last.settled

    @property
    def first_names(self) -> list[str] | None:
        """The columns that all files must have, in order, where they are matched by position."""
        return self._names if self._last is None else self._last.first_names

    def _part(self, batch: pa.RecordBatch, spec: ScanSpec) -> Engine | None:
        if not isinstance(batch, pa.RecordBatch):
            hint = "; give paths as a list" if isinstance(batch, str | os.PathLike) else ""
            raise TypeError(f"the iterator gives a {type(batch).__name__}, not record batches{hint}")
        if batch.num_rows == 0:
            return None
        from accel.planning.task_schema import are_tasks

        names = set(batch.schema.names)
        source: Any
        if are_tasks(names):
            from accel.planning.wire import decode_tasks

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
            in_store=self._in_store,
            for_spark=True,
            names=self._names,
        )

    # -- running ---------------------------------------------------------------------------------

    def _reader(self, metrics: Metrics, tails: Tails, *, learns: bool = True) -> Reader:
        # One run reads nothing twice: of a cache that ends with it, data would only take up memory.
        cache = self._cache if self._cache is not None else Cache(data=0)
        return Reader(
            _once_each(self._client_for, metrics),
            cache=cache,
            options=self.spec.options,
            metrics=metrics,
            tails=tails,
            learns=learns,
        )

    def _session(
        self,
        metrics: Metrics,
        tails: Tails = Tails.DROP,
        *,
        limit: int | None = None,
        answering: Answering | None = None,
    ) -> Session:
        reader = self._reader(metrics, tails)
        finder = Finder(self.spec, reader, in_store=self._in_store, cache=self._cache)
        self._last = Session(
            self.spec,
            reader,
            finder=finder,
            limit=limit,
            answering=answering,
            first_names=self._names,
        )
        return self._last

    def start(
        self, metrics: Metrics, *, limit: int | None = None, answering: Answering | None = None
    ) -> Running:
        """Begin a run; the first `take` sends the first request.

        With `answering` only what cannot be answered without being read comes out, in the files' own types.
        """
        spec, for_spark = self.spec, self._for_spark and answering is None
        limit = spec.at_most(limit)
        if is_planned(spec.source):
            from accel.scanning.planned_work import planned_work

            tasks: Sequence[ScanTask] = _tasks_of(spec.source)
            check_alike(tasks, _schema_of(spec.source))
            reader = self._reader(metrics, Tails.SERVE, learns=False)
            if answering is not None:
                tasks = answering.answer_planned(reader, tasks, _schema_of(spec.source))
            run = Run(reader, partial(planned_work, reader, tasks), limit=limit, ordered=spec.order)
            urls = {task.file.url for task in tasks}
            url = urls.pop() if len(urls) == 1 else None
            return Running(run, None, schema=_schema_of(spec.source), for_spark=for_spark, url=url)
        assuming = partial(self._session, metrics, Tails.SERVE, limit=limit, answering=answering)
        session, url = assuming(), _only_path(spec.source)

        def run_of(session: Session) -> Run:
            return Run(session.reader, session.work, limit=limit, ordered=spec.order)

        if not session.assumes or limit == 0 or self._for_spark:
            return Running(run_of(session), session, schema=None, for_spark=for_spark, url=url)
        from accel.scanning.early_run import EarlyRun

        early = EarlyRun(session, assuming=assuming, run_of=run_of)
        return Running(early, early, schema=None, for_spark=for_spark, url=url)

    async def schema(self, metrics: Metrics) -> pa.Schema:
        """The schema of the result."""
        if is_planned(self.spec.source):
            schema = _schema_of(self.spec.source)
        else:
            schema = (await self._session(metrics).question()).output
        return converted_schema(schema) if self._for_spark else schema

    # -- planning --------------------------------------------------------------------------------

    async def plan(self, metrics: Metrics, *, answering: Answering | None = None) -> Plan:
        """All tasks, from metadata alone; with `answering`, of what that leaves to be read."""
        from accel.planning.plan import Plan

        if is_planned(self.spec.source):
            source = self.spec.source
            if answering is not None:
                raise AccelError(
                    "the aggregates of a plan are not explained", hint="explain those of the scan"
                )
            return source if isinstance(source, Plan) else Plan(_tasks_of(source), schema=_schema_of(source))
        from accel.scanning.sweep import plan_files

        session = self._session(metrics, answering=answering)
        try:
            plans = await plan_files(session)
            question = await session.question()
        except BaseExceptionGroup as group:
            raise foremost(group) from group
        tasks = [task for plan in plans for task in plan.tasks]
        from accel.scanning.explaining import explain_plans

        explained = explain_plans(
            session, plans, question=question, source=self.describe(), listing=await session.listing()
        )
        # Without a cache of the caller's it would hold the metadata of all files for as long as the plan lives.
        return Plan(
            tasks, schema=question.output, explained=explained if self._cache is not None else explained()
        )


def _once_each(client_for: Callable[[Any], Client], metrics: Metrics) -> Callable[[str], Client]:
    """The same, asked once for each store: a run may read thousands of files of one. What is odd about one is told."""
    known: dict[str, Client] = {}

    def client(root: str) -> Client:
        found = known.get(root)
        if found is None:
            found = known[root] = client_for(root)
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
    """What a source of one path names, which may be a folder."""
    paths = source if isinstance(source, list | tuple) else [source]
    return str(paths[0]) if len(paths) == 1 else None
