"""Cancellation: whether a task was asked to end, or something in it has ended by itself."""

from __future__ import annotations

import asyncio
from types import TracebackType

from accel.errors import AccelError, StoreError

__all__ = ["Beginning", "UnaskedTold", "cancelled_within", "cancels", "closed_early"]


def cancels() -> int:
    """How often the current task has been asked to end."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


def cancelled_within() -> StoreError:
    """What a CancelledError means that nobody has asked for: whoever waits for a task must hear of it."""
    return StoreError(
        "a request was cancelled, and by nobody who waits for it",
        hint="the store may share what it does with others, one of whom was cancelled",
        transient=True,
    )


def closed_early() -> AccelError:
    """What whoever takes from a run that was stopped is told."""
    return AccelError("the scan was closed before its end", hint="iterate it again to run it anew")


class UnaskedTold:
    """Within it, a CancelledError is raised as what it is where this task has not been cancelled.

    No generator: one is entered for each request.

    Raises
    ------
    StoreError
    """

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before = cancels()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, asyncio.CancelledError) and cancels() <= self._before:
            raise cancelled_within() from None


class Beginning:
    """A task that begins something, which another may stop."""

    __slots__ = ("_cancels", "_stopped", "_task", "left")

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self._cancels = cancels()
        self._stopped = False
        self.left: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when it has begun, or failed to."""

    def stop(self) -> None:
        if self._task is not None and not self._stopped:
            self._stopped = True
            self._task.cancel()

    def was_stopped(self) -> bool:
        """Told once, of a task that is cancelled: whether that was `stop`, and nobody else."""
        return self._stopped and self._task is not None and self._task.uncancel() <= self._cancels
