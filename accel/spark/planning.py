"""Planning a DataFrame: on the driver, or as a stage of the executors where the files are many.

Either way the driver lists the files, or asks an index for them, and settles the schema by one footer. Then
it plans all files itself, or sends their names: the executors open and plan them, a thousand at a time, so
that the driver holds names alone.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from accel.api import plan, scan
from accel.errors import AccelError
from accel.metrics import Metrics
from accel.planning.file_entry import FileBlock, FileEntry
from accel.planning.plan import Plan
from accel.planning.query import Question
from accel.predicate import codec
from accel.predicate.expr import Expr
from accel.runtime import io_loop
from accel.scanning.resolved_source import ResolvedSource
from accel.scanning.spec import OnError, is_source
from accel.spark.credentials import with_credentials
from accel.spark.executing import one_line_errors

if TYPE_CHECKING:
    from pyspark import Accumulator

__all__ = ["FilePlanner", "FoundFiles", "Planning", "plan_or_find"]

MOST_FILES = 2_000
"""Files that the driver plans: it opens them in about the time that a Spark stage takes to start."""
_MOST_INDEXED = 20_000
"""The same where an index outside the files has their metadata: none is opened then."""
_FILES_AT_ONCE = 1_000
"""Files that an executor plans together."""
_LONG = 64 << 10
"""Bytes of a predicate from which on it travels once, and not in every task."""


class Planning(enum.StrEnum):
    """Where the files of a DataFrame are planned."""

    AUTO = "auto"
    """On the driver up to 2,000 files, or 20,000 that an index knows; on the executors beyond."""
    DRIVER = "driver"
    """On the driver, which holds all tasks."""
    EXECUTORS = "executors"
    """On the executors, as a stage before the one that reads. Rows then come in no order."""

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        raise ValueError(f'planning is "auto", "driver" or "executors", not {value!r:.80}')


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFiles:
    """The files to plan elsewhere."""

    entries: Sequence[FileEntry] = field(repr=False)
    partition_schema: pa.Schema
    question: Question = field(repr=False)
    metrics: Metrics
    """The counts of finding them."""


def plan_or_find(
    source: Any, where: Any, *, planning: Planning, on_error: OnError, keywords: Mapping[str, Any]
) -> Plan | FoundFiles:
    """Plan a scan, or find its files only, where they are planned on the executors.

    Parameters
    ----------
    source, where
        As for `accel.scan`.
    planning : Planning
        Where to plan.
    on_error : OnError
        Whether missing and broken files are left out.
    keywords : mapping
        The other arguments of `accel.scan`.

    Returns
    -------
    Plan or FoundFiles
        The tasks, or the files to plan.

    Raises
    ------
    ValueError
        The executors cannot plan that.
    AccelError
        As `accel.plan` raises it.
    """
    names_files = keywords.get("selection") is not None or is_source(source)
    if planning is Planning.EXECUTORS and names_files:
        raise ValueError(
            "selection= names files of the whole scan, and a source of your own says more of files than "
            "their paths: "
            'they go with planning="driver"'
        )
    try:
        if planning is Planning.DRIVER or names_files:
            return plan(source, where, on_error=on_error.value, **keywords)
        engine = scan(source, where, **keywords).engine
    finally:
        # Credentials must not stay in the variables of a frame that a traceback may show.
        keywords, source = {}, None
    metrics = Metrics()

    async def find() -> Plan | FoundFiles:
        async with engine.in_time(), engine.find(metrics, on_error=on_error) as found:
            block = await found.first_block()
            indexed = block.catalog_trips > 0 or any(file.facts is not None for file in block.files[:1])
            few = not block.more and len(block.files) <= (_MOST_INDEXED if indexed else MOST_FILES)
            if planning is Planning.AUTO and few:
                return await engine.plan(metrics, found=found, on_error=on_error)
            return await _find_all(found)

    return io_loop.run(find())


async def _find_all(found: ResolvedSource) -> FoundFiles:
    """Return all files of a source that its paths and its index leave."""
    first, question = await found.first_block(), await found.question()
    entries: list[FileEntry] = []
    block: FileBlock | None = first
    while block is not None:
        for file in found.chosen(block, question):
            left_out = _by_path(found, file, question)
            found.reader.metrics.files.add(total=int(left_out), kept=0)
            if not left_out:
                entries.append(file)
        block = await found.next_block()
    return FoundFiles(
        entries=entries,
        partition_schema=first.partition_schema,
        question=question,
        metrics=found.reader.metrics,
    )


def _by_path(found: ResolvedSource, file: FileEntry, question: Question) -> bool:
    try:
        return found.paths.exclude(file, question)
    except AccelError:
        return False  # the error is raised where the file is planned


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePlanner:
    """Plans files on an executor, which `mapInArrow` passes by their paths."""

    where: Expr | None = field(repr=False)
    keywords: Mapping[str, Any] = field(repr=False)
    """The other arguments of `accel.plan`."""
    credentials: str | None = None
    counts: Accumulator[Metrics] | None = None
    """Where the counts of the job are collected."""

    @property
    def shared(self) -> dict[str, bytes]:
        """The values that `plan` leaves out of the tasks, for `TaskReader.read`."""
        where = b"" if self.where is None else codec.encode(self.where)
        return {"where": where} if len(where) > _LONG else {}

    def plan(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the tasks of the files."""
        shared = self.shared
        with one_line_errors():
            keywords = with_credentials(self.keywords, self.credentials)
            for batch in batches:
                for start in range(0, batch.num_rows, _FILES_AT_ONCE):
                    planned = plan(iter([batch.slice(start, _FILES_AT_ONCE)]), self.where, **keywords)
                    if self.counts is not None:
                        self.counts.add(planned.metrics)
                    for tasks in planned:
                        yield _without(tasks, shared)


def _without(tasks: pa.RecordBatch, shared: Mapping[str, bytes]) -> pa.RecordBatch:
    for name, value in shared.items():
        at = tasks.schema.get_field_index(name)
        column = tasks.column(at)
        if len(column) and not pc.all(pc.equal(column, pa.scalar(value, column.type))).as_py():
            raise AccelError(
                f"the tasks of a plan do not share their {name}", hint="this is a fault of accel"
            )
        tasks = tasks.set_column(at, tasks.schema.field(at), pa.nulls(len(column), column.type))
    return tasks
