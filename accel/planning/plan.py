"""A Plan: the tasks of a scan, to be looked at, sent elsewhere, and scanned later."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from accel.errors import AccelError
from accel.planning.task import ScanTask

if TYPE_CHECKING:
    from accel.planning.explain import Explain
    from accel.planning.query import Question

__all__ = ["Plan"]

_TASKS_PER_BATCH = 256
_BATCH_BYTES = 256 << 20
"""A column of a batch holds 2 GiB at most, and a long predicate is in every row."""


class Plan:
    """The tasks of a scan, in order.

    It pickles, and `to_arrow` gives it as a table with one row a task (`from_arrow` reads that back).
    Iterating gives the same rows as record batches, which is what `mapInArrow` takes. Scan it by
    `accel.scan(plan)`; `where`, `columns`, `selection`, `schema`, `embedded` and `partitioning` are part of it and cannot
    be given again.
    """

    def __init__(
        self,
        tasks: Sequence[ScanTask],
        *,
        schema: pa.Schema,
        explained: Explain | Callable[[], Explain] | None = None,
    ) -> None:
        self.tasks: tuple[ScanTask, ...] = tuple(tasks)
        strange = set(map(type, self.tasks)) - {ScanTask}
        if strange:
            raise TypeError(f"a plan is made of tasks, not of a {strange.pop().__name__}")
        self.schema = schema
        self._explained = explained

    @classmethod
    def from_arrow(cls, data: pa.Table | pa.RecordBatch) -> Plan:
        """Read back what `to_arrow` gave.

        Raises
        ------
        AccelError
            The rows are no tasks of this version.
        TypeError
            This is no table or record batch.
        """
        from accel.planning.wire import decode_tasks

        if not isinstance(data, pa.Table | pa.RecordBatch):
            raise TypeError(f"tasks come as a pyarrow.Table or RecordBatch, not as a {type(data).__name__}")

        batches = [data] if isinstance(data, pa.RecordBatch) else data.to_batches()
        tasks = [task for batch in batches for task in decode_tasks(batch)]
        schema = tasks[0].file.question.output if tasks else pa.schema([])
        metadata = data.schema.metadata or {}
        if not tasks and b"accel.schema" in metadata:
            schema = pa.ipc.read_schema(pa.py_buffer(metadata[b"accel.schema"]))
        return cls(tasks, schema=schema)

    def to_arrow(self) -> pa.Table:
        """One row a task, of `accel.spark.TASK_SCHEMA`'s columns."""
        from accel.planning.task_schema import TASK_ARROW_SCHEMA

        schema = TASK_ARROW_SCHEMA.with_metadata({"accel.schema": self.schema.serialize().to_pybytes()})
        return pa.Table.from_batches([b.replace_schema_metadata(schema.metadata) for b in self], schema)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        from accel.planning.wire import encode_batches

        if not self.tasks:
            # Consumers take the columns from the first batch.
            yield _no_tasks()
        yield from encode_batches(self.tasks, most_rows=_TASKS_PER_BATCH, most_bytes=_BATCH_BYTES)

    def __len__(self) -> int:
        return len(self.tasks)

    def __repr__(self) -> str:
        rows = sum(task.rows.count for task in self.tasks)
        return f"Plan({len(self.tasks)} tasks, {rows} rows)"

    def __getstate__(self) -> dict[str, object]:
        explained = None if self._explained is None else self.explain()
        return {"table": self.to_arrow(), "explained": explained}

    def __setstate__(self, state: dict[str, object]) -> None:
        other = Plan.from_arrow(state["table"])
        self.tasks, self.schema = other.tasks, other.schema
        from accel.planning.explain import Explain

        explained = state["explained"]
        self._explained = explained if isinstance(explained, Explain) else None

    def explain(self) -> Explain:
        """What planning did, and what scanning the plan would ask for, as things stood when this was first called.

        Raises
        ------
        AccelError
            The plan was read back from Arrow, which does not tell.
        """
        if self._explained is None:
            raise AccelError(
                "a plan read back from Arrow does not know how it came about",
                hint="explain the scan, or accel.scan(plan)",
            )
        if callable(self._explained):
            self._explained = self._explained()
        return self._explained

    @property
    def question(self) -> Question | None:
        """What all of its tasks ask; None for a plan without tasks."""
        return self.tasks[0].file.question if self.tasks else None


def _no_tasks() -> pa.RecordBatch:
    from accel.planning.task_schema import TASK_ARROW_SCHEMA

    columns = [pa.nulls(0, field.type) for field in TASK_ARROW_SCHEMA]
    return pa.RecordBatch.from_arrays(columns, schema=TASK_ARROW_SCHEMA)
