"""The jobs of an index outside the files on Spark: the driver lists and commits, the executors open the
files."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from accel.arrays import from_ipc, to_ipc
from accel.catalog.asking.published import index_beside
from accel.catalog.shares import commit_shares, describe_shares, plan_shares
from accel.catalog.verbs import compact_index as compact_here
from accel.maintenance.progress import Progress
from accel.options import Options
from accel.runtime.time_limits import time_limit
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

    from accel.catalog.building.builder import IndexReport
    from accel.catalog.verbs import Indexes
    from accel.scanning.spec import Path

__all__ = ["build_index", "compact_index", "refresh_index"]

COMMITTED_FILES: Final = 5_000
"""Files that are committed together: the work of so many is lost where a job is killed."""


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
    timeout: float | None = None,
) -> IndexReport:
    """Build an index outside the files on Spark, or bring the one that is there up to date, as
    `accel.build_index` does.

    The driver lists the directory and cuts the files that the index lacks into shares. The executors open
    them, and write what the index is to hold of each share; a commit of the driver makes all of it visible.
    Of more than 5,000 files, each so many are committed by themselves: a job that is killed leaves the index
    whole, and the next one goes on from the last commit. A task that runs twice leaves objects that
    `accel.vacuum_index` removes.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        A session of Spark 3.5 or later.
    source, to, columns, indexes
        As for `accel.build_index`. The driver and every executor must be able to reach the files and the
        index.
    shares : int, optional
        How many shares there are; by default four for each task that the session runs at once, of each 5,000
        files. None has more than 20,000 files.
    progress : callable, optional
        Called with a `JobProgress` on the driver now and then, from another thread: it counts tasks of Spark.
        On Spark Connect it is not called.
    store, storage_options, options
        As for `accel.build_index`. `storage_options` reach the executors in the pickled function, and only if
        they are given.
    timeout : float, optional
        Seconds after which ScanTimeoutError is raised: the driver ends what it waits for, and cancels the job
        of Spark, whose tasks end within seconds. What was committed by then stays.

    Returns
    -------
    IndexReport
        The changes to the index, and what it covers now.

    Raises
    ------
    AccelError, TypeError, ValueError
        As `accel.build_index` raises them. An executor that fails raises Spark's error, which has the text of
        accel's.

    Examples
    --------
    >>> accel.spark.build_index(spark, "s3://bucket/flights/", indexes={"tailnum": "keys"})
    """
    own = session_of_pieces(spark)
    given = for_executors({"store": store, "storage_options": storage_options, "options": options})
    del store, storage_options  # so that no traceback shows what they hold
    with time_limit(timeout, source):
        return _build(
            own, source, to, shares, given=given, progress=progress, columns=columns, indexes=indexes
        )


def refresh_index(
    spark: SparkSession,
    index: Path,
    *,
    shares: int | None = None,
    progress: Progress | None = None,
    store: object | None = None,
    storage_options: Mapping[str, Any] | None = None,
    options: Options | None = None,
    timeout: float | None = None,
) -> IndexReport:
    """Bring an index outside the files up to date on Spark, as `accel.refresh_index` does.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        A session of Spark 3.5 or later.
    index : str or PathLike
        The directory of the index.
    shares, progress, store, storage_options, options, timeout
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
    with time_limit(timeout, index):
        return _build(own, None, index, shares, given=given, progress=progress)


def compact_index(
    spark: SparkSession,
    index: Path,
    *,
    store: object | None = None,
    storage_options: Mapping[str, Any] | None = None,
    options: Options | None = None,
    timeout: float | None = None,
) -> IndexReport:
    """Merge the segments of an index, as `accel.compact_index` does, on the driver: they are read in groups,
    in bounded memory.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        A session, for the sake of the other jobs: no task of Spark is run.
    index : str or PathLike
        The directory of the index.
    store, storage_options, options, timeout
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
    return compact_here(index, store=store, storage_options=storage_options, options=options, timeout=timeout)


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
    """Cut the files that an index lacks into shares, have the executors describe these, and commit what they
    wrote."""
    began = time.monotonic()
    keywords: dict[str, Any] = {"to": to, "columns": columns, "indexes": indexes, **given}
    if shares is None:
        shares = SHARES * parallelism_of(spark)
        keywords["most_files"] = max(1, COMMITTED_FILES // shares)
    planned = plan_shares(source, shares=shares, **keywords)
    index = index_beside(source or "") if to is None else to
    work = partial(_describe_share, index=index, given=given)
    reports: list[IndexReport] = []
    committed: list[int] = []
    for together in _committed_together(planned):
        pieces = [to_ipc(planned.slice(at, 1)) for at in together]
        rows = collect(spark, run_shares(spark, pieces, work), progress, stage="describe")
        batches = [batch for row in rows for batch in from_ipc(row.piece).to_batches()]
        reports.append(commit_shares(index, batches, committed=committed, **given))
        committed += together
    return _sum(reports, time.monotonic() - began) if reports else commit_shares(index, (), **given)


def _committed_together(planned: pa.Table) -> Iterator[range]:
    """Yield the numbers of the shares that are to be committed at once, as far as there are several."""
    start = files = 0
    for at, paths in enumerate(planned.column("path")):
        if files and files + len(paths) > COMMITTED_FILES:
            yield range(start, at)
            start, files = at, 0
        files += len(paths)
    if files:
        yield range(start, planned.num_rows)


def _sum(reports: Sequence[IndexReport], seconds: float) -> IndexReport:
    """Return the report of several commits, one after the other."""
    last = reports[-1]
    added = sum(one.added for one in reports)
    return replace(
        last,
        added=added,
        removed=sum(one.removed for one in reports),
        unchanged=last.files - added,
        skipped={path: reason for one in reports for path, reason in one.skipped.items()},
        notes=tuple(dict.fromkeys(note for one in reports for note in one.notes)),
        requests=sum(one.requests for one in reports),
        seconds=seconds,
    )


def _describe_share(
    number: int, pieces: Iterator[bytes], *, index: Path, given: Mapping[str, Any]
) -> Iterator[Piece]:
    """Describe the files of one share, in an executor."""
    for piece in pieces:
        for batch in describe_shares(from_ipc(piece).to_batches(), index=index, **given):
            yield number, to_ipc(pa.Table.from_batches([batch]))
