"""What a question is to one version of a file, as bytes: equal keys, equal rows.

Two that differ may mean the same, which then is found out twice.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import TYPE_CHECKING

from accel.arrays import repeat_scalar
from accel.memory import pool

if TYPE_CHECKING:
    from accel.planning.query import FileQuery
    from accel.planning.task import ScanTask
    from accel.predicate.bind import Bound

__all__ = ["predicate_key", "rows_key"]

# A predicate of more, as a long IN, has none.
_MOST_KEY = 4096
# Nor have rows whose bounds take more: those of 1,024 that all are sure take 32 KiB.
_MOST_BOUNDS = 40 << 10
# A type of the caller's own may be one that does not pickle.
_NOT_TOLD = (pickle.PicklingError, AttributeError, TypeError)


def predicate_key(
    query: FileQuery, int96_unit: str, *, pickled: Callable[[Bound], bytes] = pickle.dumps
) -> bytes | None:
    """All that says which rows of a file match; None where it is too long to be kept, or cannot be told."""
    if query.bound is None:
        return None
    constants = [(path, repeat_scalar(value, 1)) for path, value in query.constants.items()]
    try:
        said = pickled(query.bound)
        if len(said) > _MOST_KEY:
            return None
        return pickle.dumps((said, list(query.conformed.items()), constants, int96_unit), 5)
    except _NOT_TOLD:
        return None


def rows_key(task: ScanTask, *, batch_rows: int) -> tuple[bytes, ...] | None:
    """All that says what a task comes to, of a version of a file; None where it is too long to be kept, or cannot be
    told. The second is the schema.

    Of rows that are sure to match no predicate is a part of it: others that select the same find them.
    """
    file = task.file
    query, predicate = file.query, b""
    bounds = (task.rows.starts, task.rows.stops, task.sure.starts, task.sure.stops)
    if sum(bound.nbytes for bound in bounds) > _MOST_BOUNDS:
        return None
    if task.rows.count > task.sure.count:
        said = predicate_key(query, file.int96_unit, pickled=file.question.compiled.pickled)
        if said is None:
            return None
        predicate = said
    constants = [(name, repeat_scalar(value, 1)) for name, value in query.output_constants.items()]
    # Serialized, an extension type is its storage with metadata.
    kinds = query.output.to_string(show_field_metadata=False, show_schema_metadata=False)
    try:
        shape = pickle.dumps(
            (task.row_group, batch_rows, file.int96_unit, query.output_leaves, constants, kinds), 5
        )
    except _NOT_TOLD:
        return None
    schema = query.output.serialize(memory_pool=pool()).to_pybytes()
    return predicate, schema, shape, *(bound.tobytes() for bound in bounds)
