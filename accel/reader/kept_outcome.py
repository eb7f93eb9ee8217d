"""What one task comes to, where that is kept as it was decoded: see `cache.kept_rows`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from accel.cache.cache import Cache
from accel.planning.handle import FileHandle
from accel.planning.pages import Piece
from accel.planning.task import ScanTask

if TYPE_CHECKING:
    from accel.cache.kept_rows import RowsKey

__all__ = ["KeptOutcome"]


class KeptOutcome:
    """The batches of one task, if they are kept: looked for once, when first asked. Used on the I/O loop.

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

    __slots__ = ("_batch_rows", "_cache", "_handle", "_kept", "_key", "_sought", "_task", "_token")

    def __init__(
        self, task: ScanTask, cache: Cache, *, token: str, handle: FileHandle | None, batch_rows: int
    ) -> None:
        self._task = task
        self._cache = cache
        self._token = token
        self._handle = handle
        self._batch_rows = batch_rows
        self._sought = False
        self._key: RowsKey | None = None
        self._kept: Sequence[pa.RecordBatch] | None = None

    def recall(self) -> Sequence[pa.RecordBatch] | None:
        """The batches of the whole task, if they are kept."""
        if not self._sought:
            self._sought = True
            self._key = self._find_key()
            self._kept = None if self._key is None else self._cache.rows.get(self._key)
        return self._kept

    def recall_piece(self, piece: Piece) -> Sequence[pa.RecordBatch] | None:
        """Those of a piece that is all of the task."""
        return self.recall() if self._is_whole(piece) else None

    def keep(self, piece: Piece, batches: Sequence[pa.RecordBatch]) -> None:
        """Keep what a piece came to, or its second phase, that is all of the task: if that is little, and was asked
        for before."""
        if self._key is not None and self._is_whole(piece):
            self._cache.rows.keep(self._key, batches)

    def _is_whole(self, piece: Piece) -> bool:
        return (piece.start, piece.stop) == (0, self._task.num_rows)

    def _find_key(self) -> RowsKey | None:
        """None where nothing is kept: somebody else may be told something else, or nobody has asked before."""
        task, handle, file = self._task, self._handle, self._task.file
        if handle is None or handle.distrusted or not self._cache.data:
            return None
        mark = file.question.compiled.mark(file.question.where)
        met = mark is not None and self._cache.meet(hash((file.id, task.row_group, mark)))
        # Where it is remembered which rows match, somebody has asked.
        if not met and (handle.remembered is None or task.rows.count != task.sure.count):
            return None
        from accel.cache.kept_rows import MOST_ROWS
        from accel.planning.question_keys import rows_key

        said = None if task.sure.count > MOST_ROWS else rows_key(task, batch_rows=self._batch_rows)
        return None if said is None else (self._token, file.id, said)
