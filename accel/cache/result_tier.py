"""What questions came to: the few rows of a task as they were decoded, and which rows of a row group matched.

A lookup whose pages are in memory still decompresses one in every column, to give a row; a filter evaluates all rows to
find a few. Asked again, both are answered from here. Everything holds for one version of a file, and large results are
not stored: rows are stored the second time that a question is asked.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from cachetools import FIFOCache, LRUCache

from accel.cache.cache import CacheKey, Entry
from accel.memory import pool
from accel.planning.predicate_cache import Evaluation

if TYPE_CHECKING:
    from accel.cache.cache import Cache
    from accel.planning.handle import FileHandle
    from accel.planning.pages import Piece
    from accel.planning.selection import RowSelection
    from accel.planning.task import ScanTask
    from accel.ranges import ObjectId

__all__ = ["MatchedRows", "ResultCacheEntry", "ResultTier"]

# The rows of one row group are stored up to these.
_MOST_ROWS = 1024
_MOST_BYTES = 64 << 10
_MOST_BATCHES = 8
# What an entry costs beside its key and the buffers of its columns; each batch of it, and each of their columns.
_OVERHEAD, _BATCH, _COLUMN = 600, 450, 300
# A schema takes so many times its serialized form.
_SCHEMA = 4
# Questions that are known to have been asked.
_MOST_ASKED = 4096


@dataclass(frozen=True, slots=True, eq=False)
class _Result:
    value: Any
    nbytes: int


class ResultTier:
    """Results bounded in bytes; the one that was asked for longest ago is evicted first. For use by several threads.

    Parameters
    ----------
    limit : float
        Bytes that all results may hold.
    """

    def __init__(self, limit: float) -> None:
        self._results: LRUCache[CacheKey, _Result] = LRUCache(limit, getsizeof=lambda result: result.nbytes)
        self._asked: FIFOCache[int, None] = FIFOCache(_MOST_ASKED)
        self._lock = threading.Lock()

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
        """Store what was decoded, if it is little; `key.place` is what `planning.question_keys.rows_key` says."""
        if len(batches) > _MOST_BATCHES or sum(batch.num_rows for batch in batches) > _MOST_ROWS:
            return
        around = _OVERHEAD + sum(map(len, key.place)) + _SCHEMA * len(key.place[1])
        around += sum(_BATCH + _COLUMN * batch.num_columns for batch in batches)
        nbytes = sum(batch.nbytes for batch in batches)
        # Before anything is copied.
        if nbytes > _MOST_BYTES or around + nbytes > self.limit:
            return
        own = [copied for batch in batches if (copied := _own(batch)) is not None]
        nbytes = sum(batch.get_total_buffer_size() for batch in own)
        if len(own) == len(batches) and nbytes <= _MOST_BYTES:
            self.put(key, tuple(own), around + nbytes)

    def was_asked(self, question: int) -> bool:
        """Return whether a question of that hash was asked lately, and note that it is. Another may have the same."""
        with self._lock:
            was_asked = question in self._asked
            if not was_asked:
                self._asked[question] = None
        return was_asked

    def forget(self, store: str, file: ObjectId) -> None:
        """Drop the results of one version of a file."""
        with self._lock:
            for key in [key for key in self._results if key[:3] == (store, file.path, file)]:
                del self._results[key]

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._results.clear()
            self._asked.clear()

    def rows(self) -> tuple[int, int]:
        """Return the number of results that are rows, and their bytes."""
        with self._lock:
            found = [result.nbytes for key, result in self._results.items() if key.kind is Entry.ROWS]
        return len(found), sum(found)


class MatchedRows:
    """Which rows of one version of a file matched the predicates that were put to it: a predicate cache.

    A view of the result tier, by predicate and row group.

    Parameters
    ----------
    tier : ResultTier
    store : str
        The token of the client that reads the file.
    file : ObjectId
    """

    __slots__ = ("_file", "_store", "_tier")

    def __init__(self, tier: ResultTier, store: str, file: ObjectId) -> None:
        self._tier = tier
        self._store = store
        self._file = file

    def under(self, predicate: bytes | None) -> Mapping[int, Evaluation]:
        """Return what is known by row group under the predicate of that key."""
        return (None if predicate is None else self._tier.get(self._key(predicate))) or {}

    def learn(self, predicate: bytes, row_group: int, *, tested: RowSelection, matched: RowSelection) -> None:
        """Take in what one evaluation has found: `matched` is a part of `tested`."""
        groups = dict(self.under(predicate))
        known = groups.get(row_group)
        groups[row_group] = Evaluation(tested, matched) if known is None else known.with_more(tested, matched)
        nbytes = len(predicate) + _OVERHEAD + sum(evaluation.nbytes for evaluation in groups.values())
        self._tier.put(self._key(predicate), groups, nbytes)

    def forget(self) -> None:
        """Drop all that is known of this version."""
        self._tier.forget(self._store, self._file)

    def _key(self, predicate: bytes) -> CacheKey:
        return CacheKey(self._store, self._file.path, self._file, Entry.MATCHES, predicate)


class ResultCacheEntry:
    """The batches of one task, if they are cached: looked up once, when first asked for. Used on the I/O loop.

    Parameters
    ----------
    task : ScanTask
    cache : Cache
    token : str
        Of the client that reads the file.
    handle : FileHandle or None
        None where nothing that was read before may stand for what is asked.
    batch_rows : int
        The most rows of a batch.
    """

    __slots__ = ("_batch_rows", "_batches", "_cache", "_handle", "_is_looked_up", "_key", "_task", "_token")

    def __init__(
        self, task: ScanTask, cache: Cache, *, token: str, handle: FileHandle | None, batch_rows: int
    ) -> None:
        self._task = task
        self._cache = cache
        self._token = token
        self._handle = handle
        self._batch_rows = batch_rows
        self._is_looked_up = False
        self._key: CacheKey | None = None
        self._batches: Sequence[pa.RecordBatch] | None = None

    def get(self) -> Sequence[pa.RecordBatch] | None:
        """Return the batches of the whole task, None where they are not cached."""
        if not self._is_looked_up:
            self._is_looked_up = True
            self._key = self._find_key()
            self._batches = None if self._key is None else self._cache.result_tier.get(self._key)
        return self._batches

    def get_piece(self, piece: Piece) -> Sequence[pa.RecordBatch] | None:
        """Return the batches of a piece that is all of the task."""
        return self.get() if self._is_whole(piece) else None

    def put(self, piece: Piece, batches: Sequence[pa.RecordBatch]) -> None:
        """Store what a piece, or its second phase, came to: if it is all of the task, little, and was asked for before."""
        if self._key is not None and self._is_whole(piece):
            self._cache.result_tier.put_rows(self._key, batches)

    def _is_whole(self, piece: Piece) -> bool:
        return (piece.start, piece.stop) == (0, self._task.num_rows)

    def _find_key(self) -> CacheKey | None:
        """Return None where nothing is stored: somebody else may get another answer, or nobody has asked before."""
        task, handle, file = self._task, self._handle, self._task.file
        if handle is None or handle.distrusted or not self._cache.data:
            return None
        mark = file.question.compiled.mark(file.question.where)
        question: Hashable = (file.id, task.row_group, mark)
        was_asked = mark is not None and self._cache.result_tier.was_asked(hash(question))
        # Where it is known which rows match, somebody has asked.
        if not was_asked and (handle.predicate_cache is None or task.rows.count != task.sure.count):
            return None
        from accel.planning.question_keys import rows_key

        place = None if task.sure.count > _MOST_ROWS else rows_key(task, batch_rows=self._batch_rows)
        return None if place is None else CacheKey(self._token, file.id.path, file.id, Entry.ROWS, place)


def _own(batch: pa.RecordBatch) -> pa.RecordBatch | None:
    """Return the same rows in memory of their own: few of them may lie in all that was read.

    None for views, which cannot be copied out.
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
