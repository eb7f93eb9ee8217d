"""The first rows in an order: `order_by=` with a limit.

In: the order, and the files of a source. Out: the rows, in order, in batches; `bound_search` finds them. No
row is handed out before all are found, so a file that changes meanwhile is read anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa

from accel.errors import AccelError, ObjectChangedError, ParquetFormatError
from accel.planning.query import Question
from accel.runtime.tasks import begin, closed_early, see
from accel.scanning.bound_search import BoundSearch
from accel.scanning.ordering import TopRows
from accel.scanning.resolved_source import ResolvedSource

__all__ = ["TopRun"]

T = TypeVar("T")


class TopRun:
    """A running scan of the first rows in an order: takes the place of a `Run`.

    Parameters
    ----------
    resolve : callable
        Makes the source, and is called again where a file changes meanwhile: no row has been handed out then.
    top : TopRows
    batch_rows : int
        The most rows of a batch.
    """

    def __init__(self, resolve: Callable[[], ResolvedSource], top: TopRows, *, batch_rows: int) -> None:
        self._resolve = resolve
        self._top = top
        self._batch_rows = batch_rows
        self.source = resolve()
        self._batches: list[pa.RecordBatch] | None = None
        self._closed = False
        self.main: asyncio.Task[pa.Table] | None = None
        """The search, once it has begun."""

    async def question(self) -> Question:
        """Return the question, with its schema settled."""
        await self.source.question()
        if self._top.whole is None:
            raise RuntimeError("a question is narrowed when it is settled")
        return self._top.whole

    async def take(self) -> pa.RecordBatch | None:
        """Return the next batch in order; None when there is no more."""
        if self._batches is None:
            if self._closed:
                raise closed_early()
            if self.main is None:
                self.main = begin(self._search())
                self.main.add_done_callback(see)
            try:
                await asyncio.wait((self.main,))
            except asyncio.CancelledError:
                await self.close()
                raise
            if self._closed or self.main.cancelled():
                raise closed_early()
            rows = self.main.result()
            self._batches = rows.to_batches(max_chunksize=self._batch_rows)[::-1]
        return self._batches.pop() if self._batches else None

    async def close(self) -> None:
        """Stop: no request of this run is in flight and no task of it is left afterwards."""
        is_first = not self._closed
        self._closed = self._closed or self._batches is None
        if self.main is not None and not self.main.done():
            if is_first:  # a second cancellation would end what the first is ending before its requests
                self.main.cancel()
            await asyncio.wait((self.main,))

    async def _search(self) -> pa.Table:
        try:
            return await BoundSearch(self.source, self._top).run()
        except (ObjectChangedError, ParquetFormatError) as error:
            if not self._may_repeat(error):
                raise
        self.source.reader.metrics.begin_again()
        self._top.begin_again()
        self.source = self._resolve()
        return await BoundSearch(self.source, self._top).run()

    def _may_repeat(self, error: AccelError) -> bool:
        """Return whether the files may be read as they are now, or without a page index that lies."""
        reader, opened = self.source.reader, list(self._top.opened.values())
        if isinstance(error, ObjectChangedError):
            for file, _, _ in opened:
                reader.forget(file.root, file.path)
            reader.metrics.add("replans")
            return True
        distrusted = [reader.distrust(file, handle, plan.tasks) for file, handle, plan in opened]
        return True in distrusted
