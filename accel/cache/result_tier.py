"""The result tier of the cache: the decoded rows of small results.

A lookup whose pages are cached still decompresses a page of every column to return one row, and a filter
evaluates all rows to find a few. This tier answers both when they are repeated. Every result is valid for one
version of a file. Large results are not stored, and rows are stored only the second time that a query is run.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from cachetools import FIFOCache, LRUCache

from accel.arrays import bytes_of
from accel.cache.cache_key import CacheKey, Entry
from accel.memory import pool
from accel.runtime.forks import lock_over_forks

if TYPE_CHECKING:
    from accel.planning.handle import FileHandle
    from accel.planning.pages import Piece
    from accel.planning.task import ScanTask
    from accel.ranges import ObjectId

__all__ = ["ResultCacheEntry", "ResultTier"]

# Larger results of one row group are not stored.
_MOST_ROWS = 1024
_MOST_BYTES = 64 << 10
_MOST_BATCHES = 8
# Estimated bytes of an entry besides its key and its buffers, of each batch, and of each column of a batch.
_OVERHEAD, _BATCH, _COLUMN = 600, 450, 300
# A schema takes about this many times the bytes of its serialized form.
_SCHEMA = 4
# Hashes of questions that are remembered.
_MOST_QUESTIONS = 4096


@dataclass(frozen=True, slots=True, eq=False)
class _Result:
    value: Any
    nbytes: int


class ResultTier:
    """Results, bounded in bytes; the least recently used is evicted first. Thread-safe.

    Parameters
    ----------
    limit : float
        Bytes that all results may take.
    """

    def __init__(self, limit: float) -> None:
        self._results: LRUCache[CacheKey, _Result] = LRUCache(limit, getsizeof=lambda result: result.nbytes)
        self._questions: FIFOCache[int, None] = FIFOCache(_MOST_QUESTIONS)
        self._lock = lock_over_forks()

    def __len__(self) -> int:
        return len(self._results)

    @property
    def limit(self) -> float:
        return float(self._results.maxsize)

    @property
    def nbytes(self) -> int:
        return int(self._results.currsize)

    def get(self, key: CacheKey) -> Any | None:
        """Return a result, which is then the most recently used."""
        with self._lock:
            result = self._results.get(key)
        return None if result is None else result.value

    def put(self, key: CacheKey, value: Any, nbytes: int) -> None:
        """Store a result in place of what was there, if it fits."""
        with self._lock:
            self._results.pop(key, None)
            if nbytes <= self._results.maxsize:
                self._results[key] = _Result(value, nbytes)

    def put_rows(self, key: CacheKey, batches: Sequence[pa.RecordBatch]) -> None:
        """Store decoded rows if they are few; `key.place` is a key that `planning.question_keys.rows_key`
        returned."""
        if len(batches) > _MOST_BATCHES or sum(batch.num_rows for batch in batches) > _MOST_ROWS:
            return
        around = _OVERHEAD + sum(map(len, key.place)) + _SCHEMA * len(key.place[1])
        around += sum(_BATCH + _COLUMN * batch.num_columns for batch in batches)
        nbytes = sum(map(bytes_of, batches))
        # Checked before anything is copied.
        if nbytes > _MOST_BYTES or around + nbytes > self.limit:
            return
        own = [copied for batch in batches if (copied := _own(batch)) is not None]
        nbytes = sum(batch.get_total_buffer_size() for batch in own)
        if len(own) == len(batches) and nbytes <= _MOST_BYTES:
            self.put(key, tuple(own), around + nbytes)

    def is_repeated(self, question: int) -> bool:
        """Return whether a query with this hash was run recently, and remember it. Hashes may collide."""
        with self._lock:
            repeated = question in self._questions
            if not repeated:
                self._questions[question] = None
        return repeated

    def forget(self, store: str, file: ObjectId) -> None:
        """Remove the results of one version of a file."""
        with self._lock:
            for key in [key for key in self._results if key[:3] == (store, file.path, file)]:
                del self._results[key]

    def clear(self) -> None:
        """Remove all results."""
        with self._lock:
            self._results.clear()
            self._questions.clear()


class ResultCacheEntry:
    """The cached batches of one task. They are looked up once, at the first call. Used on the I/O loop.

    Parameters
    ----------
    task : ScanTask
    tier : ResultTier
    token : str
        The token of the client that reads the file.
    handle : FileHandle or None
        None where earlier results may not be used, or nothing is to be stored.
    batch_rows : int
        Maximum rows of a batch.
    """

    __slots__ = ("_batch_rows", "_batches", "_handle", "_is_looked_up", "_key", "_task", "_tier", "_token")

    def __init__(
        self, task: ScanTask, tier: ResultTier, *, token: str, handle: FileHandle | None, batch_rows: int
    ) -> None:
        self._task = task
        self._tier = tier
        self._token = token
        self._handle = handle
        self._batch_rows = batch_rows
        self._is_looked_up = False
        self._key: CacheKey | None = None
        self._batches: Sequence[pa.RecordBatch] | None = None

    def get(self) -> Sequence[pa.RecordBatch] | None:
        """Return the batches of the whole task, or None if they are not cached."""
        if not self._is_looked_up:
            self._is_looked_up = True
            self._key = self._find_key()
            self._batches = None if self._key is None else self._tier.get(self._key)
        return self._batches

    def get_piece(self, piece: Piece) -> Sequence[pa.RecordBatch] | None:
        """Return the batches of a piece if it is the whole task and they are cached."""
        return self.get() if self._is_whole(piece) else None

    def put(self, piece: Piece, batches: Sequence[pa.RecordBatch]) -> None:
        """Store the few batches of a piece that is the whole task, if the query was run before."""
        if self._key is not None and self._is_whole(piece):
            self._tier.put_rows(self._key, batches)

    def _is_whole(self, piece: Piece) -> bool:
        return (piece.start, piece.stop) == (0, self._task.num_rows)

    def _find_key(self) -> CacheKey | None:
        """Return the key of the result; None where it must not be used, or the query was not run before."""
        task, handle, file = self._task, self._handle, self._task.file
        if handle is None or handle.distrusted:
            return None
        mark = file.question.compiled.mark(file.question.where)
        question: Hashable = (file.id, task.row_group, mark)
        if mark is None or not self._tier.is_repeated(hash(question)):
            return None
        from accel.planning.question_keys import rows_key

        place = None if task.certain.count > _MOST_ROWS else rows_key(task, batch_rows=self._batch_rows)
        return None if place is None else CacheKey(self._token, file.id.path, file.id, Entry.ROWS, place)


def _own(batch: pa.RecordBatch) -> pa.RecordBatch | None:
    """Return a copy of the rows, so that a few of them do not keep all pages that were read in memory.

    Return None for view types, which cannot be copied out.
    """
    if not batch.num_columns:
        return batch
    arrays = []
    for column in batch.columns:
        copy = pa.concat_arrays([column, column.slice(0, 0)], memory_pool=pool())
        shared = {buffer.address for buffer in column.buffers() if buffer is not None and buffer.size}
        if any(buffer is not None and buffer.size and buffer.address in shared for buffer in copy.buffers()):
            return None
        arrays.append(copy)
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)
