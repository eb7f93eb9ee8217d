"""Stages of a job on Spark: shares of work go to the executors, and what comes of each comes back as rows of
Arrow."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from accel.maintenance.progress import JobProgress, Progress
from accel.spark.arrow_frames import arrow_frame
from accel.spark.executing import one_line_errors
from accel.spark.job_limits import jobs_in_time

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "PIECE_BYTES",
    "SHARES",
    "Piece",
    "Work",
    "collect",
    "group_pieces",
    "run_shares",
    "session_of_pieces",
]

PIECE_BYTES: Final = 2 << 20
"""About the bytes of a piece. A row of Spark holds one, and some rows are in memory at once."""
_PIECES_AT_ONCE: Final = "8"
_PIECES: Final = "number INT, piece BINARY"
_PIECES_ARROW: Final = pa.schema([("number", pa.int32()), ("piece", pa.binary())])
SHARES: Final = 4
"""Shares of work for each task that Spark runs at once, so that they end at about the same time."""
_DESCRIPTION: Final = "spark.job.description"
_LOOK_SECONDS: Final = 1.0
"""Between two looks at the tasks of a job."""

Piece = tuple[int, bytes]
"""Bytes, and the number of the share that they are of."""
Work = Callable[[int, Iterator[bytes]], Iterator[Piece]]
"""Is called in an executor with the number of a share and its pieces; yields pieces of the same or of other
numbers."""


def session_of_pieces(spark: SparkSession) -> SparkSession:
    """Return a session in which few rows are in memory at once, as each is large; other sessions keep their
    settings.

    Raises
    ------
    TypeError
        `spark` is no session.
    """
    if not hasattr(spark, "createDataFrame"):
        raise TypeError(f"the first argument is a SparkSession, not a {type(spark).__name__}")
    own = spark.newSession()
    own.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", _PIECES_AT_ONCE)
    # Otherwise Spark merges small partitions, and one task does the work of many.
    own.conf.set("spark.sql.adaptive.enabled", "false")
    return own


def run_shares(spark: SparkSession, shares: Sequence[bytes], work: Work) -> DataFrame:
    """Return the pieces that come of all shares, each of which is one task. The shares are numbered from
    0."""
    numbers = pa.array(range(len(shares)), pa.int32())
    table = pa.Table.from_arrays([numbers, pa.array(shares, pa.binary())], schema=_PIECES_ARROW)
    return group_pieces(arrow_frame(spark, table), len(shares), work)


def group_pieces(frame: DataFrame, count: int, work: Work) -> DataFrame:
    """Return what comes of the pieces of each number, which one task has all of."""
    if hasattr(frame, "repartitionById"):  # Spark 4.1
        frame = frame.repartitionById(count, "number")
    else:
        frame = frame.repartitionByRange(count, "number").sortWithinPartitions("number")
    return frame.mapInArrow(_Worker(work), _PIECES)


class _Worker:
    """Runs the work of one Spark partition."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with one_line_errors():
            for number, rows in itertools.groupby(_rows(batches), key=itemgetter(0)):
                for found in self._work(number, (piece for _, piece in rows)):
                    columns = [pa.array([found[0]], pa.int32()), pa.array([found[1]], pa.binary())]
                    yield pa.RecordBatch.from_arrays(columns, schema=_PIECES_ARROW)


def collect(spark: SparkSession, frame: DataFrame, progress: Progress | None, *, stage: str) -> list[Any]:
    """Run a job and return its rows. `progress` is called with the tasks of the stage that are done, and with
    all of them, now and then; Spark's web UI has the name of the stage as the description of the job."""
    context = getattr(spark, "sparkContext", None)
    with jobs_in_time(spark):
        if context is None:
            return list(frame.collect())
        with _described(context, f"accel: {stage}"):
            return _run(context, frame, progress, stage)


@contextlib.contextmanager
def _described(context: Any, description: str) -> Iterator[None]:
    before = context.getLocalProperty(_DESCRIPTION)
    context.setLocalProperty(_DESCRIPTION, description)
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, before)


def _run(context: Any, frame: DataFrame, progress: Progress | None, stage: str) -> list[Any]:
    if progress is None:
        return list(frame.collect())
    ended = threading.Event()
    before = set(context.statusTracker().getJobIdsForGroup(None))
    watch = threading.Thread(
        target=_watch,
        args=(context, before, progress, stage, ended),
        name="accel-spark-progress",
        daemon=True,
    )
    watch.start()
    try:
        return list(frame.collect())
    finally:
        ended.set()
        watch.join()


def _watch(context: Any, before: set[int], progress: Progress, stage: str, ended: threading.Event) -> None:
    tracker = context.statusTracker()
    while not ended.wait(_LOOK_SECONDS):
        jobs = [tracker.getJobInfo(job) for job in set(tracker.getJobIdsForGroup(None)) - before]
        numbers = {stage for job in jobs if job is not None for stage in job.stageIds}
        stages = [found for found in map(tracker.getStageInfo, numbers) if found is not None]
        if stages:
            done, total = sum(one.numCompletedTasks for one in stages), sum(one.numTasks for one in stages)
            progress(JobProgress(stage, done, total))


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[Piece]:
    for batch in batches:
        for at in range(batch.num_rows):
            yield batch.column(0)[at].as_py(), batch.column(1)[at].as_py()
