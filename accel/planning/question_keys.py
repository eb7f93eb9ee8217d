"""Keys of predicates and results, as bytes: under equal keys one version of a file gives equal rows.

Keys that differ may mean the same, which then is worked out twice.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

from accel.arrays import repeat_scalar
from accel.memory import pool

if TYPE_CHECKING:
    from accel.planning.task import ScanTask, TaskFile

__all__ = ["predicate_key", "rows_key"]

# A longer predicate, such as a long IN, has no key.
_MOST_KEY = 4096
# Rows whose bounds take more bytes have none: the bounds of 1,024 rows that are all certain take 32 KiB.
_MOST_BOUNDS = 40 << 10
# A caller's own type may refuse to pickle.
_UNPICKLED = (pickle.PicklingError, AttributeError, TypeError)


def predicate_key(file: TaskFile) -> bytes | None:
    """Return the key of all that decides which rows of a file match; None where it is too long or does not
    pickle."""
    query = file.query
    if query.bound is None:
        return None
    constants = [(path, repeat_scalar(value, 1)) for path, value in query.constants.items()]
    try:
        bound = file.question.compiled.pickled(query.bound)
        if len(bound) > _MOST_KEY:
            return None
        # Under a column mapping one name may be another leaf.
        leaves = list(query.filter_paths.items())
        changed = list(query.conformed.items()), list(query.filled.items()), _evolution_key(file)
        return pickle.dumps((bound, *changed, leaves, constants, file.int96_unit), 5)
    except _UNPICKLED:
        return None


def _evolution_key(file: TaskFile) -> tuple[object, ...]:
    """Return all that decides what stands for values which the file does not have."""
    coalesced = [(name, repeat_scalar(value, 1)) for name, value in file.query.coalesced.items()]
    return *file.question.evolution.metadata.items(), *coalesced


def rows_key(task: ScanTask, *, batch_rows: int) -> tuple[bytes, ...] | None:
    """Return the key of all that decides the result of a task; None where it is too long or does not pickle.

    The second part is the schema. Where all rows are certain to match, the predicate is no part of it: other
    predicates that select the same rows share the result.
    """
    file = task.file
    query, predicate = file.query, b""
    bounds = (task.rows.starts, task.rows.stops, task.certain.starts, task.certain.stops)
    if sum(bound.nbytes for bound in bounds) > _MOST_BOUNDS:
        return None
    if task.rows.count > task.certain.count:
        found = predicate_key(file)
        if found is None:
            return None
        predicate = found
    constants = [(name, repeat_scalar(value, 1)) for name, value in query.output_constants.items()]
    # Serialized, an extension type is its storage with metadata.
    kinds = query.output.to_string(show_field_metadata=False, show_schema_metadata=False)
    try:
        shape = pickle.dumps(
            (
                *(task.row_group, batch_rows, file.int96_unit, query.output_leaves, constants, kinds),
                *(file.question.row_number, task.first_row, _evolution_key(file)),
            ),
            5,
        )
    except _UNPICKLED:
        return None
    schema = query.output.serialize(memory_pool=pool()).to_pybytes()
    return predicate, schema, shape, *(bound.tobytes() for bound in bounds)
