"""The few rows that questions came to, as they were decoded: asked for once more they are at hand.

A lookup whose pages are in memory still decompresses one in every column, to give a row; a filter whose rows are known
(`planning.remembered`) one for nearly each of them. What is kept holds for one version of a file.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
from cachetools import LRUCache

from accel.records import dataclass

if TYPE_CHECKING:
    from accel.planning.file import ObjectId

__all__ = ["MOST_ROWS", "KeptRows", "RowsKey"]

MOST_ROWS = 1024
"""Of a row group."""
# Of the rows of one row group.
_MOST_BYTES = 64 << 10
# What an entry costs beside its key and the buffers of its columns; and each column.
_OVERHEAD, _COLUMN = 600, 200

RowsKey: TypeAlias = "tuple[str, ObjectId, *tuple[bytes, ...]]"
"""Token of the client, file, and what `planning.question_keys` says."""


@dataclass(frozen=True, slots=True, eq=False)
class _Kept:
    batches: tuple[pa.RecordBatch, ...]
    nbytes: int


class KeptRows:
    """What was asked for longest ago goes first. For use by several threads.

    Parameters
    ----------
    most_bytes : int
        What all of them may hold.
    """

    __slots__ = ("_kept", "_lock")

    def __init__(self, most_bytes: int) -> None:
        self._kept: LRUCache[RowsKey, _Kept] = LRUCache(most_bytes, getsizeof=lambda kept: kept.nbytes)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def nbytes(self) -> int:
        return int(self._kept.currsize)

    def get(self, key: RowsKey) -> tuple[pa.RecordBatch, ...] | None:
        """What was kept under a key."""
        with self._lock:
            kept = self._kept.get(key)
        return None if kept is None else kept.batches

    def keep(self, key: RowsKey, batches: Sequence[pa.RecordBatch]) -> None:
        """Keep what was decoded, if it is little, and not a part of something larger."""
        if sum(batch.num_rows for batch in batches) > MOST_ROWS:
            return
        held = sum(batch.get_total_buffer_size() for batch in batches)
        nbytes = held + _OVERHEAD + sum(_COLUMN * batch.num_columns for batch in batches)
        nbytes += sum(map(len, key[2:]))
        if held <= _MOST_BYTES and nbytes <= self._kept.maxsize:
            with self._lock:
                self._kept[key] = _Kept(tuple(batches), nbytes)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._kept.clear()
