"""Coroutines on the I/O loop, which are there until they end."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from accel.errors import AccelError, forget_frames

__all__ = ["Call", "begin", "see"]

T = TypeVar("T")

# A loop holds its tasks weakly.
_held: set[asyncio.Task[Any]] = set()


def begin(coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task on the running event loop that is there until it ends: else one whose waiters are dropped with it would be
    destroyed midway."""
    task = asyncio.get_running_loop().create_task(coroutine)
    _held.add(task)
    task.add_done_callback(_held.discard)
    return task


def see(ended: asyncio.Future[Any]) -> None:
    """Have nobody told that nobody has asked why it failed: whoever would have may be gone."""
    if not ended.cancelled():
        ended.exception()


class Call(Generic[T]):
    """One coroutine on the I/O loop, seen from another thread. `deliver` is called there when it has ended."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        coroutine: Coroutine[Any, Any, T],
        deliver: Callable[[], None],
    ) -> None:
        self._coroutine = coroutine
        self._deliver = deliver
        self._task: asyncio.Task[T] | None = None
        self._loop = loop
        self.ended = False

    def send(self) -> None:
        """Have it started. Whatever interrupts this, from here on only `cancel` ends the coroutine: it may run already."""
        self._loop.call_soon_threadsafe(self._start, context=contextvars.copy_context())

    def _start(self) -> None:
        self._task = self._loop.create_task(self._coroutine)
        _held.add(self._task)
        self._task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[T] | None = None) -> None:
        self.ended = True
        if task is not None:
            _held.discard(task)
            see(task)
        self._deliver()

    def cancel(self) -> None:
        """From the thread that sent it; the call ends soon after, and says so."""
        try:
            self._loop.call_soon_threadsafe(self._cancel)
        except RuntimeError:  # the loop is closed: nothing runs there any more
            if self._task is None:
                self._cancel()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        elif not self.ended:  # it was not sent: that would have come first
            self._coroutine.close()
            self._end()

    def result(self) -> T:
        """Of an ended call: its value, or raise what it raised."""
        if self._task is None or self._task.cancelled():
            raise AccelError("the operation was cancelled")
        failure = self._task.exception()
        if failure is None:
            return self._task.result()
        forget_frames(failure)
        raise failure
