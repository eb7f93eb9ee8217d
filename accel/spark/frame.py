"""A Spark DataFrame of a scan: the driver plans, the executors read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Unpack

import numpy as np
import pyarrow as pa

from accel.decode.spark_types import Decimals, taken_schema
from accel.errors import AccelError
from accel.options import MIB, check_options
from accel.planning.plan import Plan
from accel.planning.task_arrow import TASK_ARROW_SCHEMA, take_out
from accel.predicate.where import to_expr
from accel.scanning.signatures import refuse_unknown, spells_out
from accel.scanning.spec import FrameOptions, OnError, check_count
from accel.spark.arrow_frames import arrow_frame, loses_rows_without_columns
from accel.spark.credentials import with_credentials
from accel.spark.estimates import decoded_bytes, with_size, without_broadcast
from accel.spark.executing import TaskReader, for_executors
from accel.spark.partitions import PACKED, enough_tasks, pack, parallelism_of, partition_count, spread
from accel.spark.planning import FilePlanner, FoundFiles, Planning, plan_or_find
from accel.spark.read_records import (
    NamedFunction,
    ReadRecord,
    describe_read,
    files_of,
    keep_record,
)
from accel.spark.schema import spark_ddl, spark_schema
from accel.spark.session import is_case_sensitive
from accel.tables.table_formats import settle_source

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from accel.metrics import Metrics
    from accel.predicate.where import Where
    from accel.scanning.spec import Paths

__all__ = ["TASK_SCHEMA", "PlannedRead", "check_partitions", "plan_read", "planned_frame", "read"]

_FILES_EACH = 10_000
"""The most files that one partition plans."""
_LOCAL_BYTES = 16 * MIB
"""Rows of more do not stay in the plan of a DataFrame; from 48 MiB on, Spark no longer slices them by their
number."""
_MOST_ROWS = 2**31 - 1
"""Spark counts the rows of a limit in 32 bits."""

TASK_SCHEMA = spark_ddl(TASK_ARROW_SCHEMA)
"""The Spark schema, as DDL text, of the tasks that `paths.mapInArrow(accel.plan, TASK_SCHEMA)` returns."""


@spells_out(FrameOptions, as_for="accel.scan")
def read(
    spark: SparkSession,
    url: Paths,
    *,
    where: Where = None,
    limit: int | None = None,
    partitions: int | None = None,
    planning: Literal["auto", "driver", "executors"] = "auto",
    on_error: Literal["raise", "skip"] = "raise",
    credentials: str | None = None,
    case_sensitive: bool | None = None,
    **arguments: Unpack[FrameOptions],
) -> DataFrame:
    """Return a DataFrame of the matching rows. Its files are found now, and read when Spark runs it.

    The driver alone reads an index. `storage_options`, `options`, `store` and `cache=None` travel to the
    executors in the pickled function, never in the tasks; without `storage_options` each executor uses its
    own environment. Of a cache with a directory or a server the settings travel: the workers of a machine
    share the directory, all workers the server.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        A session of Spark 3.5 or later, of Spark Connect too.
    url : str, path, or list
        As for `accel.scan`. The driver and every executor must be able to read it.
    where
        As for `accel.scan`. A later filter on the DataFrame is Spark's own and prunes nothing.
    limit : int, optional
        The most rows. No partition reads more than these.
    partitions : int, optional
        The number of Spark partitions, each a run of consecutive tasks of about equal bytes. By default as
        many as the session runs tasks at once, more if one would read over 64 MiB, and never more than there
        are tasks.
    planning : {"auto", "driver", "executors"}
        Where footers are read and pages chosen: on the driver, now; or on the executors, in a stage before
        the one that reads, so that the driver holds no more than the names of the files, and rows come in no
        order. "auto" is the driver up to 2,000 files, or 20,000 that an index knows.
    on_error : {"raise", "skip"}
        What happens to a file that is missing or broken: the job fails, naming it; or the rest of the file is
        left out, and `accel.spark.metrics` names it in `warnings`. A file that was replaced fails the job
        either way.
    credentials : str, optional
        A function that returns storage options, by its name, `"package.module:function"`: the driver and each
        executor import and call it, and no secret travels.
    case_sensitive : bool, optional
        As for `accel.scan`; by default as `spark.sql.caseSensitive` says, so that names are found in any
        case, as `spark.read.parquet` finds them.
    **arguments
        As for `accel.scan`.

    Returns
    -------
    pyspark.sql.DataFrame
        Rows in file order, in the types that docs/spark.md lists; every column is nullable. Spark's planner
        takes it for as large as the pages that it decodes, so that it sends no large one to every executor.

    Raises
    ------
    SchemaMismatchError
        A column has a type for which Spark has no counterpart.
    TypeError
        `spark` is no session, or an argument is of none of these types.
    ValueError
        `partitions` is less than 1, or `planning`, `on_error` or `credentials` is none of these.
    AccelError
        As `accel.plan` raises it. An executor raises `ObjectChangedError` if a file has changed since.
    """
    refuse_unknown("read", arguments, FrameOptions)
    _check_spark(spark)
    case = is_case_sensitive(spark) if case_sensitive is None else case_sensitive
    try:
        planned = plan_read(
            url,
            where=where,
            limit=limit,
            partitions=partitions,
            planning=planning,
            on_error=on_error,
            credentials=credentials,
            case_sensitive=case,
            **arguments,
        )
    except BaseException:
        # Credentials must not stay in the variables of a frame that a traceback may show.
        del url, arguments
        raise
    return planned.frame(spark)


def plan_read(
    url: Paths,
    *,
    where: Where = None,
    limit: int | None = None,
    partitions: int | None = None,
    planning: str = "auto",
    on_error: str = "raise",
    credentials: str | None = None,
    case_sensitive: bool,
    **arguments: Any,
) -> PlannedRead:
    """Return what a DataFrame of `read` reads, with the same arguments.

    It asks nothing of Spark, so that many may be planned at a time.
    """
    partitions = check_partitions(partitions)
    limit = None if limit is None else check_count(limit, "limit")
    skips, place = OnError(on_error), Planning(planning)
    source, arguments = settle_source(url, arguments)
    url = source
    del source
    try:
        options = check_options(arguments.get("options")).for_spark()
        plain = {**arguments, "options": options, "case_sensitive": case_sensitive}
        keywords = with_credentials(plain, credentials)
        found = plan_or_find(url, where, planning=place, on_error=skips, keywords=keywords)
    except BaseException:
        # Credentials must not stay in the variables of a frame that a traceback may show.
        del url, arguments
        plain, keywords = {}, {}
        raise
    return PlannedRead(
        found=found,
        source=url,
        where=where,
        limit=limit,
        partitions=partitions,
        planning=place,
        on_error=skips,
        credentials=credentials,
        case_sensitive=case_sensitive,
        arguments=arguments,
        keywords=keywords,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRead:
    """What a DataFrame reads, before Spark knows of it."""

    found: Plan | FoundFiles = field(repr=False)
    source: Paths = field(repr=False)
    where: Where
    limit: int | None
    partitions: int | None
    planning: Planning
    on_error: OnError
    credentials: str | None
    case_sensitive: bool
    arguments: Mapping[str, Any] = field(repr=False)
    """The arguments of a scan, as they were given."""
    keywords: Mapping[str, Any] = field(repr=False)
    """The same with what `credentials` gave, as the driver plans with them."""

    @property
    def columns(self) -> pa.Schema:
        """Its columns, in the types of the files."""
        return self.found.schema if isinstance(self.found, Plan) else self.found.question.output

    @property
    def nbytes(self) -> int:
        """The bytes that Spark's planner takes it for."""
        if isinstance(self.found, Plan):
            return decoded_bytes(self.found.tasks)
        return sum(file.size or 0 for file in self.found.entries)

    def record(self, decimals: Decimals = Decimals.SCALED) -> ReadRecord:
        """Return what `prune` makes it anew of."""
        given = dict(self.arguments)
        columns = given.pop("columns", None)
        again = {
            "partitions": self.partitions,
            "planning": self.planning.value,
            "on_error": self.on_error.value,
            "credentials": self.credentials,
            "case_sensitive": self.case_sensitive,
        }
        table = self.found.metrics.table
        return ReadRecord(
            source=self.source,
            where=to_expr(self.where),
            columns=self.columns,
            chosen=None if columns is None else list(columns),
            limit=self.limit,
            keywords={**given, **again},
            files=files_of(self.found),
            version=None if table is None else table.version,
            decimals=decimals,
        )

    def frame(self, spark: SparkSession, decimals: Decimals = Decimals.SCALED) -> DataFrame:
        """Return the DataFrame.

        Parameters
        ----------
        spark : SparkSession
        decimals : Decimals
            The form of columns of decimals: whole numbers are for a plan that makes decimals of them.
        """
        found, limit = self.found, self.limit
        if limit is not None and limit > _MOST_ROWS:
            limit = _MOST_ROWS
        result = _result_type(spark, taken_schema(self.columns, decimals))
        counts = _count(spark, found.metrics)
        sent = for_executors(self.arguments)
        reader = TaskReader(
            keywords=sent,
            credentials=self.credentials,
            limit=self.limit,
            on_error=self.on_error,
            counts=counts,
            decimals=decimals,
        )
        if isinstance(found, Plan):
            batches, shared = take_out(found)
            table = pa.Table.from_batches(batches)
            few = table if self.limit is None else enough_tasks(table, self.limit)
            tasks = _task_frame(spark, few, self.partitions)
            answer = reader.read_packed
        else:
            planner = _planner_of(
                found,
                self.where,
                keywords=self.keywords,
                sent=sent,
                credentials=self.credentials,
                on_error=self.on_error,
                counts=counts,
            )
            shared = planner.shared
            tasks = _planned_frame(spark, found, planner, self.partitions)
            answer = reader.read
        size = self.nbytes
        tasks = with_size(spark, tasks, size)
        record = self.record(decimals)
        name = describe_read(found, self.source, record.where, keep_record(record))
        named = NamedFunction(partial(answer, shared=shared), name)
        frame = without_broadcast(spark, tasks.mapInArrow(named, result), size)
        return frame if limit is None else frame.limit(limit)


def _check_spark(spark: Any) -> None:
    """Raise TypeError for what is no session."""
    if not hasattr(spark, "createDataFrame"):
        raise TypeError(f"the first argument is a SparkSession, not a {type(spark).__name__}")


def _count(spark: Any, planned: Metrics) -> Any:
    """Add the counts of planning to those of the session, if it keeps any, and return these."""
    from accel.spark.job_metrics import counts_of

    counts = counts_of(spark)
    if counts is not None:
        counts.add(planned)
    return counts


def _result_type(spark: SparkSession, columns: pa.Schema) -> StructType:
    if not len(columns) and loses_rows_without_columns(spark):
        raise AccelError(
            f"Spark {spark.version} loses rows without columns",
            hint="name a column, or use Spark 4.1; accel.scan(...).count_rows() counts without Spark",
        )
    return spark_schema(columns)


def _planner_of(
    found: FoundFiles,
    where: Where,
    *,
    keywords: Mapping[str, Any],
    sent: Mapping[str, Any],
    credentials: str | None,
    on_error: OnError,
    counts: Accumulator[Metrics] | None,
) -> FilePlanner:
    """Return what the executors plan files by: `keywords` are those of the scan, `sent` those that travel."""
    more = {
        "columns": keywords.get("columns"),
        "embedded": keywords.get("embedded"),
        "case_sensitive": keywords["case_sensitive"],
        "options": keywords["options"],
        **_described(found, {name: keywords.get(name) for name in ("file_path", "row_number")}),
        "on_error": on_error.value,
        "glob": False,
        "index": None,
    }
    return FilePlanner(
        where=to_expr(where), keywords={**sent, **more}, credentials=credentials, counts=counts
    )


def _described(found: FoundFiles, added: Mapping[str, str | None]) -> dict[str, Any]:
    """Return the columns of the files as the driver has found them, and what the executors add to these: the
    names of columns by argument."""
    names = set(added.values())
    schema, keys = (
        pa.schema([field for field in one if field.name not in names])
        for one in (found.question.schema, found.partition_schema)
    )
    return {"schema": schema, "partitioning": keys if len(keys) else None, **added}


def planned_frame(
    spark: SparkSession, planned: Plan, *, partitions: int | None, keywords: Mapping[str, Any]
) -> DataFrame:
    """Return a DataFrame of the rows of a plan, which the executors read.

    Parameters
    ----------
    partitions : int, optional
        As for `read`.
    keywords : Mapping of str to object
        Of the scan on the executors: `storage_options`, `options`, `store` and `cache`.
    """
    from accel.spark.job_metrics import counts_of

    counts = counts_of(spark)
    if counts is not None:
        counts.add(planned.metrics)
    batches, shared = take_out(planned)
    tasks = _task_frame(spark, pa.Table.from_batches(batches), partitions)
    reader = TaskReader(keywords=for_executors(keywords), counts=counts)
    return tasks.mapInArrow(partial(reader.read_packed, shared=shared), spark_schema(planned.schema))


def check_partitions(partitions: int | None) -> int | None:
    """Return the number of partitions that a caller wants.

    Raises ValueError where it is less than 1, TypeError where it is no integer.
    """
    if partitions is None:
        return None
    partitions = check_count(partitions, "partitions")
    if partitions < 1:
        raise ValueError(f"partitions is at least 1, not {partitions}")
    return partitions


def _planned_frame(
    spark: SparkSession, found: FoundFiles, planner: FilePlanner, partitions: int | None
) -> DataFrame:
    """Return the tasks that the executors plan, dealt out evenly."""
    files = found.entries
    sizes = np.array([file.size or 0 for file in files], dtype=np.int64)
    parallel = parallelism_of(spark)
    # How much of the files is left is known when it is too late: with a predicate, some partitions for each
    # core.
    count = partition_count(sizes, parallel) if planner.where is None else min(len(files), 4 * parallel)
    number = spread(np.zeros(len(files), dtype=np.int64), max(parallel, -(-len(files) // _FILES_EACH)))
    paths = pa.table(
        [pa.array([file.url for file in files], pa.string()), pa.array(number, pa.int32())],
        names=["path", "spark_partition"],
    )
    frame = _dealt_out(arrow_frame(spark, paths), int(number.max(initial=-1)) + 1)
    return frame.mapInArrow(planner.plan, TASK_SCHEMA).repartition(max(1, partitions or count))


def _dealt_out(frame: DataFrame, count: int) -> DataFrame:
    """Return the rows in the partitions that their column `spark_partition` numbers, below a count."""
    if not count:
        return frame
    if hasattr(frame, "repartitionById"):  # Spark 4.1
        return frame.repartitionById(count, "spark_partition")
    return frame.repartitionByRange(count, "spark_partition")


def _task_frame(spark: SparkSession, tasks: pa.Table, partitions: int | None) -> DataFrame:
    """Return the tasks of each partition as one row."""
    sizes, parallel = np.array(tasks["bytes"].to_pylist(), dtype=np.int64), parallelism_of(spark)
    packed = pack(tasks, spread(sizes, partitions or partition_count(sizes, parallel)))
    numbers = pa.array(np.arange(len(packed), dtype=np.int32))
    rows = pa.table([numbers, pa.array(packed, pa.binary())], names=["spark_partition", PACKED])
    frame = arrow_frame(spark, rows)
    # Spark slices that few rows of its own accord, one a partition, without a shuffle.
    sliced = len(packed) <= parallel and rows.nbytes <= _LOCAL_BYTES
    return frame if sliced else _dealt_out(frame, len(packed))
