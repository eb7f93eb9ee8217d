"""The executor's side of a Spark job: the tasks of one partition become record batches for Spark.

A `TaskReader` travels in the pickled function of the job. It holds no task and no secret beyond the
`storage_options` that a caller gave; an executor reads with its own cache and loop, which its Python worker
shares among all tasks that it runs.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from accel.api import scan
from accel.decode.spark_types import Decimals, spark_conversion
from accel.errors import AccelError, redact
from accel.metrics import Metrics
from accel.planning.plan import Plan
from accel.planning.task import ScanTask
from accel.planning.task_arrow import TASK_ARROW_SCHEMA, decode_tasks, join_rows
from accel.scanning.spec import SKIPPED, OnError
from accel.spark.credentials import with_credentials
from accel.spark.partitions import PACKED, unpack

if TYPE_CHECKING:
    from pyspark import Accumulator

    from accel.cache.cache import Cache

__all__ = ["DEFAULT_BATCH_ROWS", "TaskReader", "batch_rows", "for_executors", "one_line_errors"]

DEFAULT_BATCH_ROWS = 10_000
"""Spark's own default of the setting below."""
_BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_FOR_EXECUTORS = ("storage_options", "options", "store")


def for_executors(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords of a scan that its tasks need on an executor, without those that have their
    default.

    A cache belongs to its process and is not sent, but `cache=None` is. Of one with a directory or a server
    each Python worker gets one with the same settings.
    """
    given = {name: keywords[name] for name in _FOR_EXECUTORS if keywords.get(name) is not None}
    if "cache" in keywords:
        cache = keywords["cache"]
        if cache is None:
            given["cache"] = None
        elif cache.outlives_process:
            given["cache"] = _SentCache(cache)
    return given


class _SentCache:
    """A cache that all tasks of a Python worker find again, where it is unpickled."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def __reduce__(self) -> tuple[Callable[..., Cache], tuple[object, ...]]:
        return _cache_of_process, self._cache.__reduce__()


@functools.lru_cache(maxsize=4)
def _cache_of_process(make: Callable[..., Cache], settings: tuple[object, ...]) -> Cache:
    return make(*settings)


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """Have Spark report an error by its own line alone, which names the file, and not below a traceback of
    the worker.

    The Python worker ends with the error, so that the setting holds for nothing else.
    """
    try:
        yield
    except (AccelError, ValueError):
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def batch_rows() -> int:
    """Return the most rows of a batch in the session that runs this task: its
    `spark.sql.execution.arrow.maxRecordsPerBatch`."""
    from pyspark import TaskContext

    context = TaskContext.get()
    text = None if context is None else context.getLocalProperty(_BATCH_ROWS)
    rows = DEFAULT_BATCH_ROWS if text is None else int(text)
    return rows if rows > 0 else 1 << 31


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReader:
    """Reads the tasks of a partition on an executor."""

    keywords: Mapping[str, Any] = field(repr=False)
    """What `for_executors` returns."""
    credentials: str | None = None
    """The name of a function that gives further storage options: see `with_credentials`."""
    limit: int | None = None
    """The most rows of one partition."""
    on_error: OnError = OnError.RAISE
    counts: Accumulator[Metrics] | None = None
    """Where the counts of the job are collected."""
    decimals: Decimals = Decimals.SCALED
    """The form in which the plan wants columns of decimals."""

    def read(
        self, batches: Iterable[pa.RecordBatch], shared: Mapping[str, bytes]
    ) -> Iterator[pa.RecordBatch]:
        """Read batches of tasks, as `mapInArrow` passes them.

        Parameters
        ----------
        batches : iterable of RecordBatch
            The tasks.
        shared : mapping
            The values that all tasks share, which travel once: see `task_arrow.take_out`.

        Yields
        ------
        RecordBatch
            Rows in types that Spark takes.
        """
        left, most = self.limit, batch_rows()
        with one_line_errors():
            keywords = with_credentials(self.keywords, self.credentials)
            for batch in batches:
                if batch.num_rows == 0 or left == 0:
                    continue
                tasks = list(decode_tasks(join_rows(batch.select(TASK_ARROW_SCHEMA.names), shared)))
                for found in self._read(tasks, keywords, left):
                    left = None if left is None else left - found.num_rows
                    for start in range(0, max(found.num_rows, 1), most):
                        yield found.slice(start, most)

    def read_packed(
        self, batches: Iterable[pa.RecordBatch], shared: Mapping[str, bytes]
    ) -> Iterator[pa.RecordBatch]:
        """Read batches whose column `PACKED` has the tasks of a partition in each row; otherwise as
        `read`."""
        packed = (row.as_py() for batch in batches for row in batch.column(PACKED))
        return self.read((tasks for one in packed for tasks in unpack(one)), shared)

    def _read(
        self, tasks: Sequence[ScanTask], keywords: Mapping[str, Any], limit: int | None
    ) -> Iterator[pa.RecordBatch]:
        while tasks:
            schema = tasks[0].file.question.output
            convert = spark_conversion(schema, self.decimals)
            running = scan(Plan(tasks, schema=schema), limit=limit, **keywords)
            skipped: AccelError | None = None
            try:
                for batch in running:
                    limit = None if limit is None else limit - batch.num_rows
                    yield batch if convert is None else convert(batch)
            except SKIPPED as error:
                if self.on_error is OnError.RAISE:
                    raise
                skipped = error
            finally:
                running.close()
                counts = running.metrics
                if skipped is not None:
                    counts.warn(f"skipped: {skipped}")
                self.count(counts)
            if skipped is None:
                return
            # Rows come in order, so that all files before this one have been handed out.
            tasks = _after(tasks, skipped)

    def count(self, counts: Metrics) -> None:
        """Add to the counts of the job."""
        if self.counts is not None:
            self.counts.add(counts)


def _after(tasks: Sequence[ScanTask], error: AccelError) -> Sequence[ScanTask]:
    """Return the tasks behind the file that an error names."""
    last = max((at for at, task in enumerate(tasks) if redact(task.file.url) == error.path), default=None)
    if last is None:
        raise error
    return tasks[last + 1 :]
