"""How tasks are shared out over the partitions of a Spark job: even in cost, in the order of the files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel.errors import AccelError
from accel.options import MIB
from accel.planning.task_arrow import TASK_ARROW_SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "DEFAULT_PARALLELISM",
    "PACKED",
    "enough_tasks",
    "pack",
    "parallelism_of",
    "partition_count",
    "spread",
    "unpack",
]

DEFAULT_PARALLELISM = 16
"""The parallelism of a session that does not tell it (Spark Connect)."""
PACKED = "tasks"
"""The column of a DataFrame that has the tasks of one partition in each row, as `pack` makes them."""
_PARTITION_BYTES = 64 * MIB
"""About the most bytes that one Spark partition reads if there are enough tasks."""
_TASK_COST = MIB // 4
"""The weight of the round trip of a task, in bytes that could arrive meanwhile."""


def parallelism_of(spark: SparkSession) -> int:
    """Return the tasks that a session runs at once."""
    context = getattr(spark, "sparkContext", None)
    return DEFAULT_PARALLELISM if context is None else max(1, int(context.defaultParallelism))


def partition_count(nbytes: npt.NDArray[np.int64], parallelism: int) -> int:
    """Return the number of partitions for tasks that read these bytes each.

    Parameters
    ----------
    nbytes : array of int64
        The bytes of each task.
    parallelism : int
        The tasks that the session runs at once.

    Returns
    -------
    int
        At least 1, and never more than there are tasks.
    """
    weight = int(nbytes.sum()) + _TASK_COST * len(nbytes)
    return max(1, min(len(nbytes), max(parallelism, -(-weight // _PARTITION_BYTES))))


def spread(nbytes: npt.NDArray[np.int64], partitions: int) -> npt.NDArray[np.int32]:
    """Return the partition of each task: runs of consecutive tasks of about equal weight, numbered without
    gaps."""
    if len(nbytes) == 0:
        return np.zeros(0, dtype=np.int32)
    weights = nbytes + _TASK_COST
    middles = np.cumsum(weights) - weights / 2
    rough = (middles * partitions / weights.sum()).astype(np.int64)
    return np.unique(rough, return_inverse=True)[1].astype(np.int32)


def enough_tasks(tasks: pa.Table, limit: int) -> pa.Table:
    """Return the first tasks: as many as are certain to hold so many matching rows."""
    counted = 0
    for number, (starts, stops) in enumerate(
        zip(tasks["certain_starts"].to_pylist(), tasks["certain_stops"].to_pylist(), strict=True)
    ):
        if counted >= limit:
            return tasks.slice(0, number)
        counted += sum(stops) - sum(starts)
    return tasks


def pack(tasks: pa.Table, partition: npt.NDArray[np.int32]) -> list[bytes]:
    """Return the tasks of each partition as bytes, for `unpack`."""
    packed = []
    options = pa.ipc.IpcWriteOptions(compression="zstd")  # tasks of one file repeat its facts
    bounds = np.searchsorted(partition, np.arange(int(partition[-1]) + 2 if len(partition) else 1))
    for start, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, tasks.schema, options=options) as writer:
            writer.write_table(tasks.slice(start, stop - start))
        packed.append(sink.getvalue().to_pybytes())
    return packed


def unpack(packed: bytes) -> Sequence[pa.RecordBatch]:
    """Return the batches of tasks that `pack` packed.

    Raises
    ------
    AccelError
        The bytes are no tasks.
    """
    try:
        with pa.ipc.open_stream(pa.py_buffer(packed)) as reader:
            batches = list(reader)
    except (pa.ArrowException, OSError) as error:
        raise AccelError(f"the tasks of a Spark partition are damaged: {error}") from error
    return [batch.select(TASK_ARROW_SCHEMA.names) for batch in batches]
