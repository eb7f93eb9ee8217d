"""`format("accel")`: the data source of Spark's Python API. Spark plans it in a Python worker of the driver.

The classes here are pickled: the source with its options goes to each worker that plans, the reader to each executor. A
task travels in its partition, without the options.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from accel.api import plan, scan
from accel.decode.spark_types import to_spark_batch
from accel.errors import SchemaMismatchError, redact
from accel.metrics import Metrics
from accel.planning.plan import Plan
from accel.planning.task_arrow import take_out
from accel.predicate.expr import And, Expr, join
from accel.predicate.where import to_expr
from accel.spark.credentials import with_credentials
from accel.spark.executing import TaskReader, for_executors, one_line_errors
from accel.spark.partitions import (
    DEFAULT_PARALLELISM,
    enough_tasks,
    pack,
    partition_count,
    spread,
    unpack,
)
from accel.spark.pushed_filters import translate
from accel.spark.schema import spark_schema
from accel.spark.source_options import SourceOptions, read_options

if TYPE_CHECKING:
    from pyspark import Accumulator

__all__ = [
    "AccelDataSource",
    "AccelReader",
    "PushdownReader",
    "TaskPartition",
    "make_source",
    "pushes_soundly",
]


class TaskPartition(InputPartition):
    """The tasks of one Spark partition, as bytes."""

    def __init__(self, tasks: bytes, shared: Mapping[str, bytes], planned: Metrics | None = None) -> None:
        self.tasks = tasks
        self.shared = shared
        """See `TaskReader.read`."""
        self.planned = planned
        """The counts of planning, in one partition of a job: its executor reports them."""

    def __repr__(self) -> str:
        return f"TaskPartition({len(self.tasks)} bytes)"


class AccelDataSource(DataSource):
    """Parquet files, read by accel."""

    parallelism = DEFAULT_PARALLELISM
    """The tasks that the session runs at once."""
    pushdown = False
    """Whether Spark's filters are taken where the option `pushdown` does not say."""
    counts: Accumulator[Metrics] | None = None
    """Where the counts of the session's jobs are collected."""
    inferred: bytes | None = None
    """The Arrow schema that was found when the DataFrame was made; None where its user gave one."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "accel"

    def schema(self) -> StructType:
        """Return the schema of the files, or of the columns that the options name."""
        with one_line_errors():
            asked = read_options(self.options)
            found = _scan_schema(asked)
            self.inferred = found.serialize().to_pybytes()
            return spark_schema(found)

    def reader(self, schema: StructType) -> AccelReader:
        """Return the reader of one query."""
        with one_line_errors():
            inferred = None if self.inferred is None else pa.ipc.read_schema(pa.py_buffer(self.inferred))
            asked = read_options(self.options)
            pushes = self.pushdown if asked.pushdown is None else asked.pushdown
            kind = PushdownReader if pushes else AccelReader
            return kind(asked, schema, inferred, parallelism=self.parallelism, counts=self.counts)


class AccelReader(DataSourceReader):
    """Plans one query on the driver, and reads its partitions on the executors.

    Parameters
    ----------
    asked : SourceOptions
    schema : StructType
        The columns that Spark expects.
    inferred : pyarrow.Schema or None
        The same as the files had them; None where the user declared them.
    parallelism : int
    counts : Accumulator or None
    """

    def __init__(
        self,
        asked: SourceOptions,
        schema: StructType,
        inferred: pa.Schema | None,
        *,
        parallelism: int,
        counts: Accumulator[Metrics] | None,
    ) -> None:
        self._asked = asked
        self._schema = schema
        self._inferred = inferred
        self._parallelism = parallelism
        self._counts = counts
        self._pushed: list[Expr] = []
        self._limit = asked.limit
        self._hint: int | None = None
        if inferred is None and asked.columns is not None:
            raise ValueError("a schema of your own names the columns: leave the option columns out")

    # -- on the driver ---------------------------------------------------------------------------

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the query."""
        with one_line_errors():
            planned = self._plan()
            batches, shared = take_out(planned)
            tasks = pa.Table.from_batches(batches)
            limit = self._rows()
            if limit is not None:
                tasks = enough_tasks(tasks, limit)
            packed = pack(tasks, self._partition_of(tasks)) or [b""]
            counts = [planned.metrics, *[None] * (len(packed) - 1)]
            return [
                TaskPartition(each, shared, of_plan) for each, of_plan in zip(packed, counts, strict=True)
            ]

    def _rows(self) -> int | None:
        """Return the most rows that a partition needs to give."""
        limits = [limit for limit in (self._limit, self._hint) if limit is not None]
        return min(limits, default=None)

    def _partition_of(self, tasks: pa.Table) -> Any:
        sizes = np.array(tasks["bytes"].to_pylist(), dtype=np.int64)
        if self._limit is not None:
            # One partition after the other would not know how many rows the others have.
            return spread(sizes, 1)
        return spread(sizes, self._asked.partitions or partition_count(sizes, self._parallelism))

    def _plan(self) -> Plan:
        asked = self._asked
        own = to_expr(asked.where)
        conditions = [*([own] if own is not None else []), *self._pushed]
        where = join(And, conditions) if conditions else None
        keywords = with_credentials(asked.planning(), asked.credentials)
        if self._inferred is None:
            planned = plan(
                asked.source, where, schema=self._arrow_schema(), columns=self._schema.names, **keywords
            )
        elif self._schema.names == [*self._inferred.names]:
            planned = plan(asked.source, where, columns=asked.columns, **keywords)
        else:
            planned = plan(asked.source, where, columns=self._schema.names, **keywords)
        self._check(planned.schema)
        return planned

    def _check(self, found: pa.Schema) -> None:
        """Refuse files whose columns are others than Spark expects."""
        ours = spark_schema(found)
        if [(f.name, f.dataType.simpleString()) for f in ours] == [
            (f.name, f.dataType.simpleString()) for f in self._schema
        ]:
            return
        message = f"the files have {ours.simpleString()}, and Spark expects {self._schema.simpleString()}"
        hint = (
            "their types do not widen to those"
            if self._inferred is None
            else "they have changed since: load them again"
        )
        raise SchemaMismatchError(message, path=_name(self._asked.source), hint=hint)

    def _arrow_schema(self) -> pa.Schema:
        """Return the columns in Arrow's types: the files' own, or as the user declared them."""
        if self._inferred is None:
            self._declared = getattr(self, "_declared", None) or declared_schema(self._schema, self._asked)
            return self._declared
        return self._inferred

    # -- on an executor --------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the tasks of a partition."""
        asked = self._asked
        reader = TaskReader(
            keywords=for_executors({"storage_options": asked.storage_options, "options": asked.options}),
            credentials=asked.credentials,
            limit=self._rows(),
            on_error=asked.on_error,
            counts=self._counts,
        )
        if not isinstance(partition, TaskPartition):
            return
        if partition.planned is not None:
            reader.count(partition.planned)
        if not partition.tasks:
            return
        types = to_arrow_schema(self._schema, timezone="UTC")
        for batch in reader.read(unpack(partition.tasks), partition.shared):
            yield batch if batch.schema.equals(types) else to_spark_batch(batch, types)


class PushdownReader(AccelReader):
    """Takes Spark's filters, and its columns and limit where Spark has any to give."""

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        """Take the filters that accel answers as Spark does; yield the others, and those that only prune."""
        with one_line_errors():
            columns = self._arrow_schema()
            for each in filters:
                translated = translate(each, columns, self._schema)
                if translated.expr is not None:
                    self._pushed.append(translated.expr)
                if not translated.exact:
                    yield each

    def pruneColumns(self, required: StructType) -> None:
        """Read these columns alone. Spark 4.3 does not call it."""
        self._schema = required

    def pushLimit(self, limit: int) -> bool:
        """Read no more rows than so many in a partition. Spark calls it from version 4.4 on."""
        self._hint = limit
        return True


def declared_schema(schema: StructType, asked: SourceOptions) -> pa.Schema:
    """Return the Arrow schema of columns that the user declared in Spark's types.

    A column that the files have in a type which Spark shows as the declared one is read as they have it: a timestamp of
    nanoseconds, which is declared as `timestamp_ntz`, among them.
    """
    found = _scan_schema(asked)
    theirs = spark_schema(found)
    declared = to_arrow_schema(schema, timezone="UTC")
    fields = []
    for wanted, field in zip(schema, declared, strict=True):
        at = found.get_field_index(wanted.name)
        same = at >= 0 and theirs[at].dataType.simpleString() == wanted.dataType.simpleString()
        fields.append(found.field(at) if same else field)
    return pa.schema(fields)


def _scan_schema(asked: SourceOptions) -> pa.Schema:
    keywords = with_credentials(asked.planning(), asked.credentials)
    return scan(asked.source, asked.where, columns=asked.columns, **keywords).schema


def _name(source: str | Sequence[str]) -> str:
    return redact(source) if isinstance(source, str) else f"{len(source)} sources"


def pushes_soundly() -> bool:
    """Whether this Spark keeps what was pushed with the scan that it was pushed for.

    Spark 4.1 to 4.3 keep it with the loaded relation, and apply it to every other use of that: `df.where("id = 3").count()`,
    then `df.count()`, counts the rows with id 3 twice. Spark 4.4 mends that, and is the first to push limits.
    """
    return hasattr(DataSourceReader, "pushLimit")


def make_source(
    parallelism: int, counts: Accumulator[Metrics] | None, *, pushdown: bool
) -> type[AccelDataSource]:
    """Return the data source for one session."""
    members: Mapping[str, Any] = {"parallelism": parallelism, "counts": counts, "pushdown": pushdown}
    return type("AccelDataSource", (AccelDataSource,), dict(members))
