"""What accel adds to a Spark session: its data source, and the counts of its jobs."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from accel.errors import AccelError
from accel.metrics import Metrics
from accel.spark.partitions import parallelism_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["is_case_sensitive", "metrics", "register"]

_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession, *, pushdown: bool | None = None) -> None:
    """Register the data source `accel` in a session.

    Afterwards `spark.read.format("accel")`, `spark.readStream.format("accel")` and `CREATE TEMPORARY VIEW …
    USING accel` read Parquet files by accel. The options are listed in docs/spark.md.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        A session of Spark 4.1 or later, of Spark Connect too.
    pushdown : bool, optional
        Whether Spark's filters prune and are answered by accel; it turns
        `spark.sql.python.filterPushdown.enabled` on. By default from Spark 4.4 on. **Spark 4.1 to 4.3 give
        wrong rows with it** where one loaded DataFrame or view is used with more than one filter: see
        docs/spark.md. The option `where` prunes in any version.

    Raises
    ------
    AccelError
        This Spark has no Python data sources with filters, or the session was made by `newSession` from one
        that had accel.
    TypeError
        `spark` is no session.

    Examples
    --------
    >>> accel.spark.register(spark)
    >>> spark.read.format("accel").load("s3://bucket/flights/").where("carrier = 'UA'").count()
    """
    if not hasattr(spark, "createDataFrame"):
        raise TypeError(f"the first argument is a SparkSession, not a {type(spark).__name__}")
    try:
        from accel.spark.data_source import make_source, pushes_soundly
    except ImportError:
        raise AccelError(
            'this Spark is too old for format("accel"): it needs 4.1', hint="accel.spark.read does without"
        ) from None
    from accel.spark.job_metrics import counts_of

    pushes = pushes_soundly() if pushdown is None else pushdown
    if pushes:
        spark.conf.set(_PUSHDOWN, "true")
    source = make_source(
        parallelism_of(spark), counts_of(spark), pushdown=pushes, case_sensitive=is_case_sensitive(spark)
    )
    try:
        spark.dataSource.register(source)
    except Exception as error:
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise
        raise AccelError(
            "Spark does not register accel in a session if the session it was made from had it then",
            hint="use that session, or make the new one before you register accel",
        ) from None


def metrics(spark: SparkSession) -> AbstractContextManager[Metrics]:
    """Count what accel does in the Spark jobs of a session that run within a `with` block.

    Planning and tasks are counted, of `accel.spark.read` and of `format("accel")` alike; tasks that Spark ran
    in vain are not. Files that `on_error="skip"` left out are in `warnings`.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        A classic session. Spark Connect brings no counts of tasks back to its client.

    Returns
    -------
    context manager of Metrics
        Its counts are complete when the last job of the block has ended. A task that Spark ends early,
        because a `limit` of the DataFrame has its rows, counts nothing.

    Raises
    ------
    AccelError
        On entering the block: it is a session of Spark Connect.

    Examples
    --------
    >>> with accel.spark.metrics(spark) as counts:
    ...     late.count()
    >>> counts.requests, counts.bytes, counts.pages.kept
    """
    from accel.spark.job_metrics import collect_metrics

    return collect_metrics(spark)


def is_case_sensitive(spark: SparkSession) -> bool:
    """Return whether the session tells names of columns apart by their case."""
    return spark.conf.get("spark.sql.caseSensitive", "false") == "true"
