"""A Spark DataFrame of a scan: the driver plans, the executors read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from accel.api import AUTO, DEFAULT_CACHE
from accel.errors import AccelError
from accel.options import MIB, Options, check_options
from accel.planning.plan import Plan
from accel.planning.task_arrow import TASK_ARROW_SCHEMA, take_out
from accel.predicate.where import to_expr
from accel.scanning.spec import OnError, check_count
from accel.spark.credentials import with_credentials
from accel.spark.executing import TaskReader, for_executors
from accel.spark.partitions import PACKED, enough_tasks, pack, parallelism_of, partition_count, spread
from accel.spark.planning import FilePlanner, FoundFiles, Planning, plan_or_find
from accel.spark.schema import spark_ddl, spark_schema

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from accel.cache.cache import Cache
    from accel.catalog.own_index import FilesIndex
    from accel.metrics import Metrics
    from accel.predicate.where import Where
    from accel.scanning.spec import Partitioning, Path, PathKey, Paths

__all__ = ["TASK_SCHEMA", "check_partitions", "planned_frame", "read"]

_FILES_EACH = 10_000
"""The most files that one partition plans."""
_LOCAL_BYTES = 16 * MIB
"""Rows of more do not stay in the plan of a DataFrame; from 48 MiB on, Spark no longer slices them by their number."""
_MOST_ROWS = 2**31 - 1
"""Spark counts the rows of a limit in 32 bits."""

TASK_SCHEMA = spark_ddl(TASK_ARROW_SCHEMA)
"""The Spark schema, as DDL text, of the tasks that `paths.mapInArrow(accel.plan, TASK_SCHEMA)` returns."""


def read(
    spark: SparkSession,
    url: Paths,
    *,
    where: Where = None,
    columns: Sequence[str] | None = None,
    limit: int | None = None,
    partitions: int | None = None,
    selection: Mapping[PathKey, Any] | None = None,
    schema: pa.Schema | None = None,
    partitioning: Partitioning = "auto",
    glob: bool = True,
    embedded: Mapping[str, str] | None = None,
    index: Path | FilesIndex | None = AUTO,
    listing: str = "store",
    planning: Literal["auto", "driver", "executors"] = "auto",
    on_error: Literal["raise", "skip"] = "raise",
    store: object | None = None,
    storage_options: Mapping[str, Any] | None = None,
    credentials: str | None = None,
    cache: Cache | None = DEFAULT_CACHE,
    options: Options | None = None,
) -> DataFrame:
    """Return a DataFrame of the matching rows. Its files are found now, and read when Spark runs it.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        A session of Spark 3.5 or later, of Spark Connect too.
    url : str, path, or list
        As for `accel.scan`. The driver and every executor must be able to read it.
    where, columns
        As for `accel.scan`. A later filter on the DataFrame is Spark's own and prunes nothing.
    limit : int, optional
        The most rows. No partition reads more than these.
    partitions : int, optional
        The number of Spark partitions, each a run of consecutive tasks of about equal bytes. By default as many as the
        session runs tasks at once, more if one would read over 64 MiB, and never more than there are tasks.
    selection, schema, partitioning, glob, embedded, index, listing
        As for `accel.scan`. The driver alone reads the index.
    planning : {"auto", "driver", "executors"}
        Where footers are read and pages chosen: on the driver, now; or on the executors, in a stage before the one that reads,
        so that the driver holds no more than the names of the files, and rows come in no order. "auto" is the driver up to
        2,000 files, or 20,000 that an index knows.
    on_error : {"raise", "skip"}
        What happens to a file that is missing or broken: the job fails, naming it; or the rest of the file is left out, and
        `accel.spark.metrics` names it in `warnings`. A file that was replaced fails the job either way.
    store, storage_options, cache, options
        As for `accel.scan`. `storage_options`, `options`, `store` and `cache=None` travel to the executors in the pickled
        function, never in the tasks; without `storage_options` each executor uses its own environment. Of a cache with a
        directory or a server the settings travel: the workers of a machine share the directory, all workers the server.
    credentials : str, optional
        A function that returns storage options, by its name, `"package.module:function"`: the driver and each executor
        import and call it, and no secret travels.

    Returns
    -------
    pyspark.sql.DataFrame
        Rows in file order, in the types that docs/spark.md lists; every column is nullable.

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
    partitions = check_partitions(partitions)
    if limit is not None:
        limit = check_count(limit, "limit")
    if not hasattr(spark, "createDataFrame"):
        raise TypeError(f"the first argument is a SparkSession, not a {type(spark).__name__}")
    skips, place = OnError(on_error), Planning(planning)
    travelling = {"storage_options": storage_options, "options": options, "store": store, "cache": cache}
    try:
        asked = {"columns": columns, "selection": selection, "schema": schema, "partitioning": partitioning}
        asked |= {"glob": glob, "embedded": embedded, "index": index, "listing": listing, **travelling}
        asked["options"] = check_options(options).for_spark()
        keywords = with_credentials(asked, credentials)
        planned = plan_or_find(url, where, planning=place, on_error=skips, keywords=keywords)
        result = _result_type(spark, planned)
    except BaseException:
        # Credentials must not stay in the variables of a frame that a traceback may show.
        del url, index, storage_options, store, travelling
        asked, keywords = {}, {}
        raise
    from accel.spark.job_metrics import counts_of

    counts = counts_of(spark)
    if counts is not None:
        counts.add(planned.metrics)
    sent = for_executors(travelling)
    reader = TaskReader(keywords=sent, credentials=credentials, limit=limit, on_error=skips, counts=counts)
    if isinstance(planned, Plan):
        batches, shared = take_out(planned)
        table = pa.Table.from_batches(batches)
        tasks = _task_frame(spark, table if limit is None else enough_tasks(table, limit), partitions)
        answer = reader.read_packed
    else:
        planner = _planner_of(
            planned,
            where,
            keywords=keywords,
            sent=sent,
            credentials=credentials,
            on_error=skips,
            counts=counts,
        )
        shared = planner.shared
        tasks = _planned_frame(spark, planned, planner, partitions)
        answer = reader.read
    frame = tasks.mapInArrow(partial(answer, shared=shared), result)
    return frame if limit is None else frame.limit(min(limit, _MOST_ROWS))


def _result_type(spark: SparkSession, planned: Plan | FoundFiles) -> StructType:
    output = planned.schema if isinstance(planned, Plan) else planned.question.output
    if not len(output) and _takes_rows_only(spark):
        raise AccelError("Spark 3.5 loses rows without columns", hint="name a column, or use Spark 4")
    return spark_schema(output)


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
        "columns": keywords["columns"],
        "embedded": keywords["embedded"],
        "options": keywords["options"],
        "schema": found.question.schema,
        "partitioning": found.partition_schema if len(found.partition_schema) else None,
        "on_error": on_error.value,
        "glob": False,
        "index": None,
    }
    return FilePlanner(
        where=to_expr(where), keywords={**sent, **more}, credentials=credentials, counts=counts
    )


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
    # How much of the files is left is known when it is too late: with a predicate, some partitions for each core.
    count = partition_count(sizes, parallel) if planner.where is None else min(len(files), 4 * parallel)
    number = spread(np.zeros(len(files), dtype=np.int64), max(parallel, -(-len(files) // _FILES_EACH)))
    paths = pa.table(
        [pa.array([file.url for file in files], pa.string()), pa.array(number, pa.int32())],
        names=["path", "spark_partition"],
    )
    frame = _dealt_out(_arrow_frame(spark, paths), int(number.max(initial=-1)) + 1)
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
    frame = _arrow_frame(spark, rows)
    # Spark slices that few rows of its own accord, one a partition, without a shuffle.
    sliced = len(packed) <= parallel and rows.nbytes <= _LOCAL_BYTES
    return frame if sliced else _dealt_out(frame, len(packed))


def _arrow_frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Return a table as a DataFrame."""
    if not _takes_rows_only(spark):
        return spark.createDataFrame(table)
    return spark.createDataFrame(
        list(zip(*(column.to_pylist() for column in table), strict=True)), spark_ddl(table.schema)
    )


def _takes_rows_only(spark: SparkSession) -> bool:
    """Whether Spark is older than 4.0, which is the first to make a DataFrame of Arrow data."""
    return int(spark.version.partition(".")[0]) < 4
