"""The jobs of an index outside the files on Spark: the driver lists and commits, the executors open the files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from accel.arrays import from_ipc, to_ipc
from accel.catalog.published import index_beside
from accel.catalog.shares import commit_shares, describe_shares, plan_shares
from accel.catalog.verbs import compact_index as compact_here
from accel.maintenance.progress import Progress
from accel.options import Options
from accel.spark.executing import for_executors
from accel.spark.partitions import parallelism_of
from accel.spark.stages import (
    SHARES,
    Piece,
    collect,
    run_shares,
    session_of_pieces,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from accel.catalog.building import IndexReport
    from accel.catalog.verbs import Indexes
    from accel.scanning.spec import Path

__all__ = ["build_index", "compact_index", "refresh_index"]


def build_index(
    spark: SparkSession,
    source: Path,
    *,
    to: Path | None = None,
    columns: Sequence[str] | None = None,
    indexes: Indexes | None = None,
    shares: int | None = None,
    progress: Progress | None = None,
    store: object | None = None,
    storage_options: Mapping[str, Any] | None = None,
    options: Options | None = None,
) -> IndexReport:
    """Build an index outside the files on Spark, or bring the one that is there up to date, as `accel.build_index` does.

    The driver lists the directory and cuts the files that the index lacks into shares. The executors open them, and write what
    the index is to hold of each share; one commit of the driver makes all of it visible. A job that is killed leaves the index as
    it was, and a task that runs twice leaves objects that `accel.vacuum_index` removes.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        A session of Spark 4.0 or later.
    source, to, columns, indexes
        As for `accel.build_index`. The driver and every executor must be able to reach the files and the index.
    shares : int, optional
        How many shares there are; by default four for each task that the session runs at once. None has more than 20,000 files.
    progress : callable, optional
        Called with a `JobProgress` on the driver now and then, from another thread: it counts tasks of Spark. On Spark Connect it is not called.
    store, storage_options, options
        As for `accel.build_index`. `storage_options` reach the executors in the pickled function, and only if they are given.

    Returns
    -------
    IndexReport
        The changes to the index, and what it covers now.

    Raises
    ------
    AccelError, TypeError, ValueError
        As `accel.build_index` raises them. An executor that fails raises Spark's error, which has the text of accel's.

    Examples
    --------
    >>> accel.spark.build_index(spark, "s3://bucket/flights/", indexes={"tailnum": "keys"})
    """
    own = session_of_pieces(spark)
    given = for_executors({"store": store, "storage_options": storage_options, "options": options})
    del store, storage_options  # so that no traceback shows what they hold
    return _build(own, source, to, shares, given=given, progress=progress, columns=columns, indexes=indexes)


def refresh_index(
    spark: SparkSession,
    index: Path,
    *,
    shares: int | None = None,
    progress: Progress | None = None,
    store: object | None = None,
    storage_options: Mapping[str, Any] | None = None,
    options: Options | None = None,
) -> IndexReport:
    """Bring an index outside the files up to date on Spark, as `accel.refresh_index` does.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        A session of Spark 4.0 or later.
    index : str or PathLike
        The directory of the index.
    shares, progress, store, storage_options, options
        As for `build_index`.

    Returns
    -------
    IndexReport
        The changes to the index, and what it covers now.

    Raises
    ------
    AccelError, TypeError, ValueError
        As `build_index` raises them.
    """
    own = session_of_pieces(spark)
    given = for_executors({"store": store, "storage_options": storage_options, "options": options})
    del store, storage_options  # so that no traceback shows what they hold
    return _build(own, None, index, shares, given=given, progress=progress)


def compact_index(
    spark: SparkSession,
    index: Path,
    *,
    store: object | None = None,
    storage_options: Mapping[str, Any] | None = None,
    options: Options | None = None,
) -> IndexReport:
    """Merge the segments of an index, as `accel.compact_index` does, on the driver: they are read in groups, in bounded memory.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        A session, for the sake of the other jobs: no task of Spark is run.
    index : str or PathLike
        The directory of the index.
    store, storage_options, options
        As for `accel.compact_index`.

    Returns
    -------
    IndexReport
        The changes to the index, and what it covers now.

    Raises
    ------
    AccelError
        As `accel.compact_index` raises it.
    """
    del spark
    return compact_here(index, store=store, storage_options=storage_options, options=options)


def _build(
    spark: SparkSession,
    source: Path | None,
    to: Path | None,
    shares: int | None,
    *,
    given: Mapping[str, Any],
    progress: Progress | None,
    columns: Sequence[str] | None = None,
    indexes: Indexes | None = None,
) -> IndexReport:
    """Cut the files that an index lacks into shares, have the executors describe these, and commit what they wrote."""
    count = SHARES * parallelism_of(spark) if shares is None else shares
    planned = plan_shares(source, shares=count, to=to, columns=columns, indexes=indexes, **given)
    index = index_beside(source or "") if to is None else to
    pieces = [to_ipc(planned.slice(at, 1)) for at in range(planned.num_rows)]
    rows: list[Any] = []
    if pieces:
        work = partial(_describe_share, index=index, given=given)
        rows = collect(spark, run_shares(spark, pieces, work), progress, stage="describe")
    batches = [batch for row in rows for batch in from_ipc(row.piece).to_batches()]
    return commit_shares(index, batches, **given)


def _describe_share(
    number: int, pieces: Iterator[bytes], *, index: Path, given: Mapping[str, Any]
) -> Iterator[Piece]:
    """Describe the files of one share, in an executor."""
    for piece in pieces:
        for batch in describe_shares(from_ipc(piece).to_batches(), index=index, **given):
            yield number, to_ipc(pa.Table.from_batches([batch]))
