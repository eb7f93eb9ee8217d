"""Groups of tasks whose caller can go away at any time."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from types import TracebackType
from typing import Self

from accel.store.cancels import cancels

__all__ = ["Group"]


class Group(asyncio.TaskGroup):
    """A task group that has been cancelled says so, also where a task of it has failed.

    Python's own raises the failure then. Before 3.13 nothing is left of the cancellation, so whoever handles the
    failure, and goes on, cannot be stopped any more; since then it comes at the next await, which one who raises
    the failure again never reaches, and which may be part of an orderly end.
    """

    async def __aenter__(self) -> Self:
        self._cancels = cancels()
        await super().__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        asked = self._asks
        try:
            await super().__aexit__(kind, error, traceback)
        except BaseExceptionGroup:
            if sys.version_info < (3, 13):
                task = asyncio.current_task()
                if task is not None and self._asks and not asked:
                    # What it has asked of its own task it takes back, but not where that was ending already.
                    task.uncancel()
            elif cancels():
                # Python has cancelled the task anew, for its next await: that is here, and no one else's.
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(0)
            if cancels() > self._cancels:
                raise asyncio.CancelledError from None
            raise

    @property
    def _asks(self) -> bool:
        """Whether it has cancelled its own task, for that to hear of a failure."""
        return bool(getattr(self, "_parent_cancel_requested", False))
