"""`format("accel")`: the data source of Spark's Python API. Spark plans it in a Python worker of the driver.

The classes here are pickled: the source with its options goes to each worker that plans, the reader to each executor. A
task travels in its partition, without the options.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from accel.api import plan, scan
from accel.errors import AccelError, ObjectNotFoundError
from accel.metrics import Metrics
from accel.planning.plan import Plan
from accel.predicate.expr import And, Expr, join
from accel.predicate.where import to_expr
from accel.spark.credentials import with_credentials
from accel.spark.executing import one_line_errors
from accel.spark.partition_reading import check_columns, make_partitions, read_partition
from accel.spark.partitions import DEFAULT_PARALLELISM
from accel.spark.pushed_filters import translate
from accel.spark.schema import spark_schema
from accel.spark.source_options import SourceOptions, read_options

if TYPE_CHECKING:
    from pyspark import Accumulator

    from accel.spark.streaming import AccelStreamReader

__all__ = [
    "AccelDataSource",
    "AccelReader",
    "PushdownReader",
    "make_source",
    "pushes_soundly",
]


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

    def streamReader(self, schema: StructType) -> AccelStreamReader:
        """Return the reader of one stream."""
        with one_line_errors():
            try:
                from accel.spark.streaming import AccelStreamReader
            except ImportError:
                raise AccelError(
                    'this Spark is too old for readStream.format("accel"): it needs 4.2'
                ) from None
            asked = read_options(self.options)
            if self.inferred is None:
                columns = declared_schema(schema, asked)
            else:
                columns = pa.ipc.read_schema(pa.py_buffer(self.inferred))
            return AccelStreamReader(asked, schema, columns, parallelism=self.parallelism, counts=self.counts)


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
        self._hint: int | None = None
        if inferred is None and asked.columns is not None:
            raise ValueError("a schema of your own names the columns: leave the option columns out")

    # -- on the driver ---------------------------------------------------------------------------

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the query."""
        with one_line_errors():
            return make_partitions(self._plan(), self._asked, self._parallelism, hint=self._hint)

    def _plan(self) -> Plan:
        asked = self._asked
        own = to_expr(asked.where)
        conditions = [*([own] if own is not None else []), *self._pushed]
        where = join(And, conditions) if conditions else None
        keywords = with_credentials(asked.planning(), asked.credentials)
        keywords["on_error"] = asked.on_error.value
        if self._inferred is None:
            planned = plan(
                asked.source, where, schema=self._arrow_schema(), columns=self._schema.names, **keywords
            )
        elif self._schema.names == [*self._inferred.names]:
            planned = plan(asked.source, where, columns=asked.columns, **keywords)
        else:
            planned = plan(asked.source, where, columns=self._schema.names, **keywords)
        changed = "they have changed since: load them again"
        hint = "their types do not widen to those" if self._inferred is None else changed
        check_columns(planned.schema, self._schema, asked, hint)
        return planned

    def _arrow_schema(self) -> pa.Schema:
        """Return the columns in Arrow's types: the files' own, or as the user declared them."""
        if self._inferred is None:
            self._declared = getattr(self, "_declared", None) or declared_schema(self._schema, self._asked)
            return self._declared
        return self._inferred

    # -- on an executor --------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the tasks of a partition."""
        return read_partition(partition, self._asked, self._schema, counts=self._counts, hint=self._hint)


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
    declared = to_arrow_schema(schema, timezone="UTC")
    try:
        found = _scan_schema(asked)
    except ObjectNotFoundError:
        return declared  # of a stream, the first file may still be to come
    theirs = spark_schema(found)
    fields = []
    for wanted, field in zip(schema, declared, strict=True):
        at = found.get_field_index(wanted.name)
        same = at >= 0 and theirs[at].dataType.simpleString() == wanted.dataType.simpleString()
        fields.append(found.field(at) if same else field)
    return pa.schema(fields)


def _scan_schema(asked: SourceOptions) -> pa.Schema:
    keywords = with_credentials(asked.planning(), asked.credentials)
    return scan(asked.source, asked.where, columns=asked.columns, **keywords).schema


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
