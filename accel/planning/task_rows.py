"""What all rows of a table of tasks share, sent once instead of in each of them.

A predicate with a long list of values is as long in every row. Left out of the rows it travels beside them; the
checksum of a row is that of the whole one, so a row that is filled in wrongly is found damaged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from accel.planning.task_schema import QUESTION_COLUMNS

__all__ = ["join_rows", "rows_of", "take_out"]

_LONG = 64 << 10
_PREFIX = b"accel.shared."


def take_out(batches: Iterable[pa.RecordBatch]) -> tuple[list[pa.RecordBatch], dict[str, bytes]]:
    """Batches of tasks without what their rows share, and that, by column; none where it comes to little."""
    import pyarrow.compute as pc

    shared: dict[str, bytes] | None = None
    out = []
    for batch in batches:
        if shared is None and batch.num_rows:
            shared = _first(batch)
        for name, value in (shared or {}).items():
            index = batch.schema.get_field_index(name)
            column = batch.column(index)
            # One that has nulls of its own keeps them: null stands for what was taken out.
            if column.null_count == 0 and pc.all(pc.equal(column, pa.scalar(value, column.type))).as_py():
                batch = batch.set_column(index, batch.schema.field(index), pa.nulls(len(batch), column.type))
        out.append(batch)
    return out, shared or {}


def _first(batch: pa.RecordBatch) -> dict[str, bytes]:
    values = {name: batch.column(name)[0].as_py() for name in QUESTION_COLUMNS}
    found = {name: value for name, value in values.items() if value is not None}
    return found if sum(map(len, found.values())) > _LONG else {}


def join_rows(batch: pa.RecordBatch, shared: Mapping[str, bytes]) -> pa.RecordBatch:
    """The batch with what was taken out of its rows, which `rows_of` puts back."""
    return batch.replace_schema_metadata({_PREFIX + name.encode(): value for name, value in shared.items()})


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows, whole."""
    metadata = batch.schema.metadata or {}
    shared = {name: metadata.get(_PREFIX + name.encode()) for name in QUESTION_COLUMNS}
    rows: list[dict[str, Any]] = batch.to_pylist()
    for name, value in shared.items():
        if value is not None:
            for row in rows:
                row[name] = value if row.get(name) is None else row[name]
    return rows
