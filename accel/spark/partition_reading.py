"""The partitions of `format("accel")`, of queries and of streams: made on the driver, read on the
executors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from accel.decode.spark_types import to_spark_batch
from accel.errors import ObjectChangedError, SchemaMismatchError
from accel.metrics import Metrics
from accel.planning.plan import Plan
from accel.planning.task_arrow import take_out
from accel.spark.executing import TaskReader, for_executors
from accel.spark.partitions import enough_tasks, pack, partition_count, spread, unpack
from accel.spark.read_records import name_of_source
from accel.spark.schema import spark_schema
from accel.spark.source_options import SourceOptions

if TYPE_CHECKING:
    from pyspark import Accumulator

__all__ = ["TaskPartition", "check_columns", "make_partitions", "read_partition"]


class TaskPartition(InputPartition):
    """The tasks of one Spark partition, as bytes."""

    def __init__(self, tasks: bytes, shared: Mapping[str, bytes], planned: Metrics | None = None) -> None:
        self.tasks = tasks
        self.shared = shared
        """See `TaskReader.read`."""
        self.planned = planned
        """The counts of planning, in one partition of a job: its executor reports them."""

    def __repr__(self) -> str:
        return f"TaskPartition({len(self.tasks)} bytes)"


def make_partitions(
    planned: Plan, settings: SourceOptions, parallelism: int, *, hint: int | None = None
) -> list[InputPartition]:
    """Return the tasks of a plan in partitions of even cost; at least one, which reports the counts of
    planning.

    Parameters
    ----------
    planned : Plan
    settings : SourceOptions
    parallelism : int
        The tasks that the session runs at once.
    hint : int, optional
        Rows that are enough.
    """
    batches, shared = take_out(planned)
    tasks = pa.Table.from_batches(batches)
    limits = [limit for limit in (settings.limit, hint) if limit is not None]
    if limits:
        tasks = enough_tasks(tasks, min(limits))
    sizes = np.array(tasks["bytes"].to_pylist(), dtype=np.int64)
    # With a limit there is one: of several, none would know how many rows the others have.
    count = 1 if settings.limit is not None else settings.partitions or partition_count(sizes, parallelism)
    packed = pack(tasks, spread(sizes, count)) or [b""]
    counts = [planned.metrics, *[None] * (len(packed) - 1)]
    return [TaskPartition(each, shared, of_plan) for each, of_plan in zip(packed, counts, strict=True)]


def read_partition(
    partition: InputPartition,
    settings: SourceOptions,
    schema: StructType,
    *,
    counts: Accumulator[Metrics] | None,
    changed: str,
    hint: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read the tasks of a partition, in the very types that Spark expects.

    Parameters
    ----------
    partition : InputPartition
    settings : SourceOptions
    schema : StructType
        The columns that Spark expects.
    counts : Accumulator or None
    changed : str
        What to do when a file was replaced since it was planned.
    hint : int, optional
        Rows that are enough.
    """
    limits = [limit for limit in (settings.limit, hint) if limit is not None]
    reader = TaskReader(
        keywords=for_executors({"storage_options": settings.storage_options, "options": settings.options}),
        credentials=settings.credentials,
        limit=min(limits, default=None),
        on_error=settings.on_error,
        counts=counts,
    )
    if not isinstance(partition, TaskPartition):
        return
    if partition.planned is not None:
        reader.count(partition.planned)
    if not partition.tasks:
        return
    types = to_arrow_schema(schema, timezone="UTC")
    try:
        for batch in reader.read(unpack(partition.tasks), partition.shared):
            yield batch if batch.schema.equals(types) else to_spark_batch(batch, types)
    except ObjectChangedError as error:
        error.hint = changed  # whoever writes SQL has no plan to make again
        raise


def check_columns(found: pa.Schema, expected: StructType, settings: SourceOptions, hint: str) -> None:
    """Refuse files whose columns are others than Spark expects.

    Raises
    ------
    SchemaMismatchError
        They are.
    """
    ours = spark_schema(found)
    if _texts(ours) != _texts(expected):
        message = f"the files have {ours.simpleString()}, and Spark expects {expected.simpleString()}"
        raise SchemaMismatchError(message, path=name_of_source(settings.source), hint=hint)


def _texts(schema: StructType) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in schema]
