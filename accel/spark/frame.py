"""A Spark DataFrame of a scan: the driver plans, the executors read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel.api import AUTO, DEFAULT_CACHE, plan, scan
from accel.options import MIB, Options, check_options
from accel.planning.task_arrow import TASK_ARROW_SCHEMA, join_rows, take_out
from accel.scanning.spec import Path, check_count
from accel.spark.schema import spark_ddl, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from accel.cache.cache import Cache
    from accel.catalog.own_index import FilesIndex
    from accel.planning.plan import Plan
    from accel.predicate.where import Where
    from accel.scanning.spec import Partitioning, Path, PathKey, Paths

__all__ = ["TASK_SCHEMA", "check_partitions", "for_executors", "planned_frame", "read", "spread"]

TASK_SCHEMA = spark_ddl(TASK_ARROW_SCHEMA)
"""The Spark schema, as DDL text, of the tasks that `paths.mapInArrow(accel.plan, TASK_SCHEMA)` returns."""

_PARTITION_BYTES = 64 * MIB
"""About the most bytes that one Spark partition reads if there are enough tasks."""
_TASK_COST = MIB // 4
"""The weight of the round trip of a task, in bytes that could arrive meanwhile."""
_DEFAULT_PARALLELISM = 16
"""The parallelism of a session that does not tell it (Spark Connect)."""
_FOR_EXECUTORS = ("storage_options", "options", "store")


def read(
    spark: SparkSession,
    url: Paths,
    *,
    where: Where = None,
    columns: Sequence[str] | None = None,
    partitions: int | None = None,
    selection: Mapping[PathKey, Any] | None = None,
    schema: pa.Schema | None = None,
    partitioning: Partitioning = "auto",
    glob: bool = True,
    embedded: Mapping[str, str] | None = None,
    index: Path | FilesIndex | None = AUTO,
    listing: str = "store",
    store: object | None = None,
    storage_options: Mapping[str, Any] | None = None,
    cache: Cache | None = DEFAULT_CACHE,
    options: Options | None = None,
) -> DataFrame:
    """Return a DataFrame of the matching rows. It is planned now on the driver, and read later on the executors.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        A session of Spark 4.0 or later; tested with 4.3, and not with Connect.
    url : str, path, or list
        As for `accel.scan`. The driver and every executor must be able to read it.
    where, columns
        As for `accel.scan`. A later filter on the DataFrame is Spark's own and prunes nothing.
    partitions : int, optional
        The number of Spark partitions, each a run of consecutive tasks of about equal bytes. By default as many as the
        session runs tasks at once, more if one would read over 64 MiB, and never more than there are tasks.
    selection, schema, partitioning, glob, embedded, index, listing
        As for `accel.scan`. The driver alone reads the index.
    store, storage_options, cache, options
        As for `accel.scan`. `storage_options`, `options`, `store` and `cache=None` travel to the executors in the pickled
        function, never in the tasks; without `storage_options` each executor uses its own environment.

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
        `partitions` is less than 1.
    AccelError
        As `accel.plan` raises it. An executor raises `ObjectChangedError` if a file has changed since.
    """
    partitions = check_partitions(partitions)
    if not hasattr(spark, "createDataFrame"):
        raise TypeError(f"the first argument is a SparkSession, not a {type(spark).__name__}")
    try:
        planned = plan(
            url,
            where,
            columns=columns,
            selection=selection,
            schema=schema,
            partitioning=partitioning,
            glob=glob,
            embedded=embedded,
            index=index,
            listing=listing,
            store=store,
            storage_options=storage_options,
            cache=cache,
            options=check_options(options).for_spark(),
        )
        spark_schema(planned.schema)
    except BaseException:
        # Credentials must not stay in the variables of a frame that a traceback may show.
        del url, index, storage_options, store
        raise
    given = {"storage_options": storage_options, "options": options, "store": store, "cache": cache}
    return planned_frame(spark, planned, partitions=partitions, keywords=given)


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
    batches, shared = take_out(planned)
    tasks = _task_frame(spark, pa.Table.from_batches(batches), partitions)
    read_tasks = partial(_read_tasks, keywords=for_executors(keywords), shared=shared)
    return tasks.mapInArrow(read_tasks, spark_schema(planned.schema))


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


def for_executors(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords of a scan that its tasks need on an executor, without those that have their default.

    A cache belongs to its process and is not sent, but `cache=None` is.
    """
    given = {name: keywords[name] for name in _FOR_EXECUTORS if keywords.get(name) is not None}
    if "cache" in keywords and keywords["cache"] is None:
        given["cache"] = None
    return given


def spread(nbytes: npt.NDArray[np.int64], partitions: int) -> npt.NDArray[np.int32]:
    """Return the partition of each task: runs of consecutive tasks of about equal weight, numbered without gaps."""
    if len(nbytes) == 0:
        return np.zeros(0, dtype=np.int32)
    weights = nbytes + _TASK_COST
    middles = np.cumsum(weights) - weights / 2
    rough = (middles * partitions / weights.sum()).astype(np.int64)
    return np.unique(rough, return_inverse=True)[1].astype(np.int32)


def _task_frame(spark: SparkSession, table: pa.Table, partitions: int | None) -> DataFrame:
    sizes = np.array(table["bytes"].to_pylist(), dtype=np.int64)
    number = spread(sizes, partitions or _default_partitions(spark, sizes))
    places = pa.schema([("spark_partition", pa.int32()), ("spark_position", pa.int32())])
    position = np.arange(table.num_rows, dtype=np.int32)
    # createDataFrame requires a chunk in every column, which a plan without tasks lacks.
    columns = table.columns if table.num_rows else [pa.nulls(0, f.type) for f in TASK_ARROW_SCHEMA]
    numbered = pa.Table.from_arrays(
        [*columns, pa.array(number), pa.array(position)],
        schema=pa.schema([*TASK_ARROW_SCHEMA, *places]),
    )
    frame = spark.createDataFrame(numbered)
    if table.num_rows == 0:
        return frame
    count = int(number[-1]) + 1
    if hasattr(frame, "repartitionById"):  # Spark 4.1
        frame = frame.repartitionById(count, "spark_partition")
    else:
        frame = frame.repartitionByRange(count, "spark_partition")
    return frame.sortWithinPartitions("spark_position")


def _default_partitions(spark: SparkSession, sizes: npt.NDArray[np.int64]) -> int:
    context = getattr(spark, "sparkContext", None)
    parallel = _DEFAULT_PARALLELISM if context is None else int(context.defaultParallelism)
    weight = int(sizes.sum()) + _TASK_COST * len(sizes)
    return max(1, min(len(sizes), max(parallel, -(-weight // _PARTITION_BYTES))))


def _read_tasks(
    batches: Iterator[pa.RecordBatch], *, keywords: Mapping[str, Any], shared: Mapping[str, bytes]
) -> Iterator[pa.RecordBatch]:
    """Read the tasks of one partition, on an executor; `shared` holds the parts that the tasks share."""
    tasks = (join_rows(batch.select(TASK_ARROW_SCHEMA.names), shared) for batch in batches)
    return iter(scan(tasks, **keywords))
