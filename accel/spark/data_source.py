"""`format("accel")`: the data source of Spark's Python API. Spark plans it in a Python worker of the driver.

The classes here are pickled: the source with its options goes to each worker that plans, the reader to each
executor. A task travels in its partition, without the options.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from accel.api import plan, scan
from accel.catalog.inspecting import check_index_exists
from accel.errors import AccelError, ObjectNotFoundError
from accel.metrics import Metrics
from accel.planning.plan import Plan
from accel.predicate.expr import And, Expr, join, name_key
from accel.predicate.where import to_expr
from accel.runtime import io_loop
from accel.spark.credentials import with_credentials
from accel.spark.executing import one_line_errors
from accel.spark.file_names import source_of
from accel.spark.job_metrics import READS_ALL
from accel.spark.partition_reading import check_columns, make_partitions, read_partition
from accel.spark.partitions import DEFAULT_PARALLELISM
from accel.spark.pushed_filters import translate
from accel.spark.read_records import name_of_source
from accel.spark.schema import spark_schema
from accel.spark.source_options import SourceOptions, read_options

if TYPE_CHECKING:
    from pyspark import Accumulator

    from accel.spark.streaming import AccelStreamReader

__all__ = [
    "AccelDataSource",
    "AccelReader",
    "PushdownReader",
    "RefusedStream",
    "declared_schema",
    "make_source",
    "pushes_soundly",
    "scan_schema",
]

_MUCH = 1 << 20
"""Bytes from which on it is worth a word that all columns are read."""
_LOAD_AGAIN = (
    "load the DataFrame again; a view has the files of its first query until it is made again by CREATE OR "
    "REPLACE TEMPORARY VIEW: REFRESH TABLE does not reach it"
)


class AccelDataSource(DataSource):
    """Parquet files, read by accel."""

    parallelism = DEFAULT_PARALLELISM
    """The tasks that the session runs at once."""
    pushdown = False
    """Whether Spark's filters are taken where the option `pushdown` does not say."""
    case_sensitive = False
    """Whether names of columns are compared exactly where the option `caseSensitive` does not say."""
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
            settings = self._settings()
            found = scan_schema(settings)
            self.inferred = found.serialize().to_pybytes()
            return spark_schema(found)

    def reader(self, schema: StructType) -> AccelReader:
        """Return the reader of one query."""
        with one_line_errors():
            inferred = None if self.inferred is None else pa.ipc.read_schema(pa.py_buffer(self.inferred))
            settings = self._settings()
            pushes = self.pushdown if settings.pushdown is None else settings.pushdown
            kind = PushdownReader if pushes else AccelReader
            return kind(settings, schema, inferred, parallelism=self.parallelism, counts=self.counts)

    def _settings(self) -> SourceOptions:
        return read_options(self.options, case_sensitive=self.case_sensitive)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of one stream; one that is refused says why when its first offset is read.

        Spark 4.3 reports another error in place of one that is raised here.
        """
        try:
            return self._stream_reader(schema)
        except (AccelError, ValueError) as error:
            return RefusedStream(error)

    def _stream_reader(self, schema: StructType) -> AccelStreamReader:
        try:
            from accel.spark.streaming import AccelStreamReader
        except ImportError:
            raise AccelError('this Spark is too old for readStream.format("accel"): it needs 4.2') from None
        settings = self._settings()
        if settings.names_table:
            raise ValueError("a stream reads files as they come: a table is read by spark.read")
        if self.inferred is None:
            columns = declared_schema(schema, settings)
        else:
            columns = pa.ipc.read_schema(pa.py_buffer(self.inferred))
        return AccelStreamReader(settings, schema, columns, parallelism=self.parallelism, counts=self.counts)

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        """Refuse to write."""
        with one_line_errors():
            raise AccelError(
                'format("accel") only reads', hint='write with format("parquet"), or by accel.write_table'
            )

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:
        """Refuse to write."""
        self.writer(schema, overwrite)


class RefusedStream(DataSourceStreamReader):
    """The reader of a stream that cannot be read: it raises an error whatever is called.

    Parameters
    ----------
    error : Exception
    """

    def __init__(self, error: Exception) -> None:
        self._error = error

    def initialOffset(self) -> NoReturn:
        """Raise the error."""
        with one_line_errors():
            raise self._error

    def latestOffset(self) -> NoReturn:  # type: ignore[override]
        """Raise the error."""
        self.initialOffset()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> NoReturn:
        """Raise the error: of a query that is restarted Spark asks for them first."""
        self.initialOffset()

    def read(self, partition: InputPartition) -> NoReturn:
        """Raise the error."""
        self.initialOffset()


class AccelReader(DataSourceReader):
    """Plans one query on the driver, and reads its partitions on the executors.

    Parameters
    ----------
    settings : SourceOptions
    schema : StructType
        The columns that Spark expects.
    inferred : pyarrow.Schema or None
        The same as the files had them; None where the user declared them.
    parallelism : int
    counts : Accumulator or None
    """

    def __init__(
        self,
        settings: SourceOptions,
        schema: StructType,
        inferred: pa.Schema | None,
        *,
        parallelism: int,
        counts: Accumulator[Metrics] | None,
    ) -> None:
        self._settings = settings
        self._schema = schema
        self._inferred = inferred
        self._parallelism = parallelism
        self._counts = counts
        self._pushed: list[Expr] = []
        self._hint: int | None = None
        if inferred is None and settings.columns is not None:
            raise ValueError("a schema of your own names the columns: leave the option columns out")

    # -- on the driver ---------------------------------------------------------------------------

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the query."""
        with one_line_errors():
            planned = self._plan()
            self._note_what_is_read(planned)
            return make_partitions(planned, self._settings, self._parallelism, hint=self._hint)

    def _plan(self) -> Plan:
        settings = self._settings
        own = to_expr(settings.where)
        conditions = [*([own] if own is not None else []), *self._pushed]
        where = join(And, conditions) if conditions else None
        source, planning = source_of(settings)
        keywords = with_credentials(planning, settings.credentials)
        keywords["on_error"] = settings.on_error.value
        if self._inferred is None:
            keywords["schema"] = settings.of_files(self._arrow_schema())
            planned = plan(source, where, columns=self._schema.names, **keywords)
        elif self._schema.names == [*self._inferred.names]:
            planned = plan(source, where, columns=settings.columns, **keywords)
        else:
            planned = plan(source, where, columns=self._schema.names, **keywords)
        changed = "they have changed since: load them again"
        hint = "their types do not widen to those" if self._inferred is None else changed
        check_columns(planned.schema, self._schema, settings, hint)
        if planned.metrics.indexes_ignored and settings.index not in (None, "auto"):
            # A warning of the process that plans is seen by nobody.
            check_index_exists(
                settings.index, options=settings.options, storage_options=keywords["storage_options"]
            )
        return planned

    def _note_what_is_read(self, planned: Plan) -> None:
        """Warn of a query that reads much because nothing tells a Python source what it needs."""
        settings = self._settings
        if self._inferred is None or settings.columns is not None or settings.limit is not None:
            return
        count, nbytes = len(planned.schema), sum(task.nbytes for task in planned.tasks)
        if count > 1 and nbytes >= _MUCH:
            planned.metrics.warn(
                f"{READS_ALL} {count} columns of {name_of_source(settings.source)}, {nbytes:,} bytes, "
                "whatever the query uses: Spark tells a Python source neither its columns nor its filters. "
                "accel.spark.sql(spark, …) and accel.spark.prune(df) read what a query needs, and so do the "
                "options columns and where"
            )

    def _arrow_schema(self) -> pa.Schema:
        """Return the columns in Arrow's types: the files' own, or as the user declared them."""
        if self._inferred is None:
            self._declared = getattr(self, "_declared", None) or declared_schema(self._schema, self._settings)
            return self._declared
        return self._inferred

    # -- on an executor --------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the tasks of a partition."""
        return read_partition(
            partition,
            self._settings,
            self._schema,
            counts=self._counts,
            changed=_LOAD_AGAIN,
            hint=self._hint,
        )


class PushdownReader(AccelReader):
    """Takes Spark's filters, and its columns and limit where Spark has any to give."""

    def _note_what_is_read(self, planned: Plan) -> None:
        pass

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        """Take the filters that accel answers as Spark does; yield the others, and those that only prune."""
        with one_line_errors():
            columns = self._settings.of_predicates(self._arrow_schema())
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


def declared_schema(schema: StructType, settings: SourceOptions) -> pa.Schema:
    """Return the Arrow schema of columns that the user declared in Spark's types.

    A column that the files have in a type which Spark shows as the declared one is read as they have it: a
    timestamp of nanoseconds, which is declared as `timestamp_ntz`, among them.
    """
    declared = to_arrow_schema(schema, timezone="UTC")
    try:
        found = scan_schema(settings)
    except ObjectNotFoundError:
        return declared  # of a stream, the first file may still be to come
    theirs = spark_schema(found)
    fields = []
    key = name_key(case_sensitive=settings.case_sensitive)
    names = list(map(key, found.names))
    for wanted, field in zip(schema, declared, strict=True):
        name = key(wanted.name)
        at = names.index(name) if names.count(name) == 1 else -1
        same = at >= 0 and theirs[at].dataType.simpleString() == wanted.dataType.simpleString()
        fields.append(found.field(at).with_name(wanted.name) if same else field)
    return pa.schema(fields)


def scan_schema(settings: SourceOptions) -> pa.Schema:
    """Return the schema of the files: that of the first one or, where files may be left out, of the first
    that can be read."""
    source, planning = source_of(settings)
    keywords = with_credentials(planning, settings.credentials)
    engine = scan(source, settings.where, columns=settings.columns, **keywords).engine

    async def find() -> pa.Schema:
        async with engine.find(Metrics(), on_error=settings.on_error) as found:
            return (await found.question()).output

    return io_loop.run(find())


def pushes_soundly() -> bool:
    """Return whether this Spark keeps what was pushed with the scan that it was pushed for.

    Spark 4.1 to 4.3 keep it with the loaded relation, and apply it to every other use of that: `df.where("id
    = 3").count()`, then `df.count()`, counts the rows with id 3 twice. Spark 4.4 mends that, and is the first
    to push limits.
    """
    return hasattr(DataSourceReader, "pushLimit")


def make_source(
    parallelism: int, counts: Accumulator[Metrics] | None, *, pushdown: bool, case_sensitive: bool = False
) -> type[AccelDataSource]:
    """Return the data source for one session."""
    members: Mapping[str, Any] = {
        "parallelism": parallelism,
        "counts": counts,
        "pushdown": pushdown,
        "case_sensitive": case_sensitive,
    }
    return type("AccelDataSource", (AccelDataSource,), dict(members))
