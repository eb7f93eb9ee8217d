"""The size that Spark's planner takes a DataFrame of accel for: about that of the pages it decodes, and not
that of its tasks.

Spark sends what it takes for small to every executor. Of a function in Python it only knows what goes in,
which here are a few bytes of tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from accel.options import MIB

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession

    from accel.planning.task import ScanTask

__all__ = ["BROADCAST_BYTES", "decoded_bytes", "with_size", "without_broadcast"]

BROADCAST_BYTES: Final = 64 * MIB
"""Most bytes, decoded, of the pages of which Spark may send the matching rows to all executors where it knows
no size."""
_SMALL: Final = 4 * MIB
"""Bytes that may be sent anywhere: below Spark's own bound for a broadcast, 10 MB."""
_OF_RDD: Final = 2.0**63
"""Bytes that Spark takes an RDD for (`spark.sql.defaultSizeInBytes`)."""
_ROW: Final = 8
"""Bytes that Spark adds for each row."""


def decoded_bytes(tasks: Iterable[ScanTask]) -> int:
    """Return about the bytes of the pages of some tasks when they are decoded, and of their rows in Spark."""
    return int(
        sum(
            _ROW * task.rows.count + sum(reads.nbytes * reads.expansion for reads in task.reads)
            for task in tasks
        )
    )


def with_size(spark: SparkSession, tasks: DataFrame, nbytes: int) -> DataFrame:
    """Return a DataFrame of tasks that Spark takes for so many bytes, and with it what `mapInArrow` makes of
    it.

    An empty RDD without a partition is put beside the tasks: Spark takes any RDD for very large, and a sample
    of it for a share of that.

    Parameters
    ----------
    spark : SparkSession
    tasks : DataFrame
    nbytes : int
    """
    context = getattr(spark, "sparkContext", None)
    if context is None or nbytes <= _SMALL:
        return tasks
    empty = spark.createDataFrame(context.emptyRDD(), tasks.schema)
    return tasks.union(empty.sample(fraction=min(1.0, nbytes / _OF_RDD), seed=0))


def without_broadcast(spark: SparkSession, rows: DataFrame, nbytes: int) -> DataFrame:
    """Return rows that Spark does not send to all executors if they are many: where `with_size` can do
    nothing, by a hint."""
    connected = getattr(spark, "sparkContext", None) is None
    return rows.hint("merge") if connected and nbytes > BROADCAST_BYTES else rows
