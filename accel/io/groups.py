"""Groups of tasks whose caller can go away at any time."""

from __future__ import annotations

import asyncio
import sys
from types import TracebackType
from typing import Self

__all__ = ["Group"]


class Group(asyncio.TaskGroup):
    """A task group that has been cancelled says so, also where a task of it has failed.

    Python's own (before 3.13) raises the failure then, and of the cancellation nothing is left: whoever handles the
    failure, and goes on, cannot be stopped any more.
    """

    async def __aenter__(self) -> Self:
        self._cancels = _cancels()
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
                if _cancels() > self._cancels:
                    raise asyncio.CancelledError from None
            raise

    @property
    def _asks(self) -> bool:
        """Whether it has cancelled its own task, for that to hear of a failure."""
        return bool(getattr(self, "_parent_cancel_requested", False))


def _cancels() -> int:
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()
