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


def predicate_key(
    query: FileQuery, int96_unit: str, *, pickled: Callable[[Bound], bytes] = pickle.dumps
) -> bytes | None:
    """All that says which rows of a file match; None where it is too long to be kept."""
    if query.bound is None:
        return None
    said = pickled(query.bound)
    if len(said) > _MOST_KEY:
        return None
    constants = [(path, repeat_scalar(value, 1)) for path, value in query.constants.items()]
    return pickle.dumps((said, list(query.conformed.items()), constants, int96_unit), 5)


def rows_key(task: ScanTask, *, batch_rows: int) -> tuple[bytes, ...] | None:
    """All that says what a task comes to, of a version of a file; None where that is too long to be kept.

    Of rows that are sure to match no predicate is a part of it: others that select the same find them.
    """
    file = task.file
    query, predicate = file.query, b""
    if task.rows.count > task.sure.count:
        said = predicate_key(query, file.int96_unit, pickled=file.question.compiled.pickled)
        if said is None:
            return None
        predicate = said
    constants = [(name, repeat_scalar(value, 1)) for name, value in query.output_constants.items()]
    shape = (task.row_group, batch_rows, file.int96_unit, query.output_leaves, constants)
    bounds = (task.rows.starts, task.rows.stops, task.sure.starts, task.sure.stops)
    return (
        predicate,
        query.output.serialize(memory_pool=pool()).to_pybytes(),
        pickle.dumps(shape, 5),
        *(bound.tobytes() for bound in bounds),
    )
