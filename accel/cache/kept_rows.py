"""The few rows that questions came to, as they were decoded: asked for once more they are at hand.

A lookup whose pages are in memory still decompresses one in every column, to give a row; a filter whose rows are known
(`planning.remembered`) one for nearly each of them. What is kept holds for one version of a file.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
from cachetools import LRUCache

from accel.memory import pool

if TYPE_CHECKING:
    from accel.planning.file import ObjectId

__all__ = ["MOST_ROWS", "KeptRows", "RowsKey"]

MOST_ROWS = 1024
"""Of a row group."""
# Of the rows of one row group.
_MOST_BYTES = 64 << 10
_MOST_BATCHES = 8
# What an entry costs beside its key and the buffers of its columns; each batch of it, and each of their columns.
_OVERHEAD, _BATCH, _COLUMN = 600, 450, 300
# A schema takes so many times its serialized form.
_SCHEMA = 4

RowsKey: TypeAlias = "tuple[str, ObjectId, tuple[bytes, ...]]"
"""Token of the client, file, and what `planning.question_keys` says: of that the second is the schema."""


@dataclass(frozen=True, slots=True, eq=False)
class _Kept:
    batches: tuple[pa.RecordBatch, ...]
    nbytes: int


class KeptRows:
    """What was asked for longest ago goes first. For use by several threads.

    Parameters
    ----------
    most_bytes : float
        What all of them may hold.
    """

    __slots__ = ("_kept", "_lock")

    def __init__(self, most_bytes: float) -> None:
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
        """Keep what was decoded, if it is little."""
        if len(batches) > _MOST_BATCHES or sum(batch.num_rows for batch in batches) > MOST_ROWS:
            return
        _, _, said = key
        around = _OVERHEAD + sum(map(len, said)) + _SCHEMA * len(said[1])
        around += sum(_BATCH + _COLUMN * batch.num_columns for batch in batches)
        held = sum(batch.nbytes for batch in batches)
        # Before anything is copied.
        if held > _MOST_BYTES or around + held > self._kept.maxsize:
            return
        own = [copied for batch in batches if (copied := _own(batch)) is not None]
        held = sum(batch.get_total_buffer_size() for batch in own)
        if len(own) == len(batches) and held <= _MOST_BYTES and around + held <= self._kept.maxsize:
            with self._lock:
                self._kept[key] = _Kept(tuple(own), around + held)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._kept.clear()


def _own(batch: pa.RecordBatch) -> pa.RecordBatch | None:
    """The same rows by themselves, where few of them may lie in all that was read; None of views, which do not leave."""
    if not batch.num_columns:
        return batch
    arrays = []
    for column in batch.columns:
        copy = pa.concat_arrays([column, column.slice(0, 0)], memory_pool=pool())
        lies = {buffer.address for buffer in column.buffers() if buffer is not None and buffer.size}
        if any(buffer is not None and buffer.size and buffer.address in lies for buffer in copy.buffers()):
            return None
        arrays.append(copy)
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)
