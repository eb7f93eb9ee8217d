"""The few rows that remembered predicates select, as they were decoded: asked for once more they are at hand.

Which rows match is known by then (`planning.remembered`), but they lie scattered: each costs the decompression of a page
in every column. It holds for one version of a file, as all that its handle does.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from cachetools import LRUCache

from accel.arrays import repeat_scalar
from accel.memory import pool
from accel.records import dataclass

if TYPE_CHECKING:
    from accel.planning.selection import RowSelection
    from accel.planning.task import TaskFile

__all__ = ["MOST_ROWS", "KeptRows", "rows_key"]

MOST_ROWS = 1024
"""Of a row group."""
# Of the rows of one row group.
_MOST_BYTES = 64 << 10
# What an entry costs beside its key and its columns.
_OVERHEAD = 600


@dataclass(frozen=True, slots=True, eq=False)
class _Kept:
    batches: tuple[pa.RecordBatch, ...]
    nbytes: int


class KeptRows:
    """Of one file, by what was asked; what was asked for longest ago goes first.

    Parameters
    ----------
    most_bytes : int
        What all of them may hold.
    """

    __slots__ = ("_kept",)

    def __init__(self, most_bytes: int) -> None:
        self._kept: LRUCache[bytes, _Kept] = LRUCache(most_bytes, getsizeof=lambda kept: kept.nbytes)

    @property
    def nbytes(self) -> int:
        return int(self._kept.currsize)

    def get(self, key: bytes) -> tuple[pa.RecordBatch, ...] | None:
        """What was kept under a key of `rows_key`."""
        kept = self._kept.get(key)
        return None if kept is None else kept.batches

    def keep(self, key: bytes, batches: Sequence[pa.RecordBatch]) -> bool:
        """Keep what was decoded, if it is little, and not a part of something larger; whether it is kept."""
        held = sum(batch.get_total_buffer_size() for batch in batches)
        nbytes = held + len(key) + _OVERHEAD
        if held > _MOST_BYTES or nbytes > self._kept.maxsize:
            return False
        self._kept[key] = _Kept(tuple(batches), nbytes)
        return True


def rows_key(file: TaskFile, row_group: int, rows: RowSelection, *, batch_rows: int) -> bytes:
    """All that says what rows of a version of a file look like, decoded without a filter."""
    query = file.query
    constants = [(name, repeat_scalar(value, 1)) for name, value in query.output_constants.items()]
    schema = query.output.serialize(memory_pool=pool()).to_pybytes()
    said = (row_group, batch_rows, file.int96_unit, schema, query.output_leaves, constants)
    return pickle.dumps((said, rows.starts.tobytes(), rows.stops.tobytes()), 5)
