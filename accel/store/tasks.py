"""Tasks on the I/O loop: kept alive, cancelled, grouped, cut into slices, and waited for at exit."""

from __future__ import annotations

import asyncio
import contextvars
import os
import sys
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from accel.errors import AccelError, StoreError, forget_frames

__all__ = [
    "Call",
    "CancellationGuard",
    "Group",
    "TrackedStream",
    "all_released",
    "begin",
    "breathe",
    "cancel_requests",
    "closed_early",
    "each",
    "foreign_cancellation",
    "see",
    "tracked",
]


def cancel_requests() -> int:
    """Return how often the current task has been asked to end."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


def foreign_cancellation() -> StoreError:
    """Return the error for a CancelledError that nobody who waits has asked for: the waiting task must not end silently."""
    return StoreError(
        "a request was cancelled, and by nobody who waits for it",
        hint="the store may share what it does with others, one of whom was cancelled",
        transient=True,
    )


def closed_early() -> AccelError:
    """Return the error for who takes batches from a run that was stopped."""
    return AccelError("the scan was closed before its end", hint="iterate it again to run it anew")


class CancellationGuard:
    """A context in which a CancelledError becomes a StoreError unless this very task was cancelled.

    It is no generator, as one is entered for each request.

    Raises
    ------
    StoreError
    """

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before = cancel_requests()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, asyncio.CancelledError) and cancel_requests() <= self._before:
            raise foreign_cancellation() from None


T = TypeVar("T")

# A loop holds its tasks weakly.
_tasks: set[asyncio.Task[Any]] = set()


def begin(coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start a task on the running event loop, and keep a reference to it until it ends.

    The loop itself holds tasks weakly: one whose waiters are dropped would be destroyed midway.
    """
    task = asyncio.get_running_loop().create_task(coroutine)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    return task


def see(ended: asyncio.Future[Any]) -> None:
    """Mark the failure of a future as retrieved, so that asyncio does not log it: whoever waited may be gone."""
    if not ended.cancelled():
        ended.exception()


class Call(Generic[T]):
    """One coroutine on the I/O loop, seen from another thread. `deliver` is called on the I/O loop when it has ended."""

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
        """Start it. Whatever interrupts this, only `cancel` ends the coroutine from here on: it may run already."""
        self._loop.call_soon_threadsafe(self._start, context=contextvars.copy_context())

    def _start(self) -> None:
        self._task = self._loop.create_task(self._coroutine)
        _tasks.add(self._task)
        self._task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[T] | None = None) -> None:
        self.ended = True
        if task is not None:
            _tasks.discard(task)
            see(task)
        self._deliver()

    def cancel(self) -> None:
        """Cancel it, from the thread that sent it; the call ends soon after, and delivers."""
        try:
            self._loop.call_soon_threadsafe(self._cancel)
        except RuntimeError:  # the loop is closed: nothing runs there any more
            if self._task is None:
                self._cancel()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        elif not self.ended:  # it was never sent: `_start` would have run first
            self._coroutine.close()
            self._end()

    def result(self) -> T:
        """Return the value of an ended call, or raise what it raised."""
        if self._task is None or self._task.cancelled():
            raise AccelError("the operation was cancelled")
        failure = self._task.exception()
        if failure is None:
            return self._task.result()
        forget_frames(failure)
        raise failure


class Group(asyncio.TaskGroup):
    """A task group that raises CancelledError when it was cancelled, also where one of its tasks has failed.

    Python's own group raises the failure then. Before 3.13 the cancellation is lost, so a caller that handles the failure
    and goes on cannot be stopped any more. Since 3.13 it comes at the next await, which a caller that raises the failure
    again never reaches, and which may be part of an orderly end.
    """

    async def __aenter__(self) -> Self:
        self._cancels = cancel_requests()
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
                    # The group takes back its own request, but not where the task was ending already.
                    task.uncancel()
            elif cancel_requests():
                # Python has cancelled the task anew for its next await: take that here.
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(0)
            if cancel_requests() > self._cancels:
                raise asyncio.CancelledError from None
            raise

    @property
    def _asks(self) -> bool:
        """Whether it has cancelled its own task because of a failure."""
        return bool(getattr(self, "_parent_cancel_requested", False))


S = TypeVar("S")

# Seconds of one slice; reading the clock costs a ten-thousandth of that.
_SLICE = 0.002
# Items after which `each` looks at the clock.
_BLOCK = 64


class _Slices:
    """The current slice of one loop, whoever works in it."""

    def __init__(self) -> None:
        self.until = 0.0
        self.ending = False

    def begin(self) -> None:
        self.until = time.monotonic() + _SLICE
        self.ending = False


_of_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Slices] = weakref.WeakKeyDictionary()


async def breathe() -> None:
    """Let the loop run other work if the current slice is used up; to be awaited between the steps of long work.

    All callers on one loop share the slice, so many that work at once delay the loop no longer than one.
    """
    loop = asyncio.get_running_loop()
    slices = _of_loop.get(loop)
    if slices is None:
        slices = _of_loop[loop] = _Slices()
    while time.monotonic() >= slices.until:
        if not slices.ending:
            slices.ending = True
            # The next slice begins with the next round of the loop, before anybody who waits for it.
            loop.call_soon(slices.begin)
        await asyncio.sleep(0)


async def each(items: Iterable[S], do: Callable[[S], T]) -> list[T]:
    """Return what `do` makes of each item, in order, and yield to the loop between blocks of items."""
    out: list[T] = []
    for item in items:
        out.append(do(item))
        if not len(out) % _BLOCK:
            await breathe()
    return out


A = TypeVar("A", bound=Awaitable[Any])

# The asynchronous calls of obstore that its threads have not released yet. Each call ends on a thread that Python does
# not know of, which takes the interpreter to hand over the outcome, also of a call that was cancelled. One that comes too
# late finds its event loop closed, or the interpreter gone, and aborts the process: who ends these waits for
# `all_released`. A thread holds the future of a call until it is done with it.
_unfinished_calls: set[weakref.ref[Any]] = set()


def tracked(call: A) -> A:
    """Track a call until obstore has released it, and return it. Every asynchronous call of obstore goes through here."""
    _unfinished_calls.add(weakref.ref(call, _unfinished_calls.discard))
    return call


class TrackedStream(Generic[T]):
    """A stream of obstore, each step of it tracked."""

    __slots__ = ("_stream",)

    def __init__(self, stream: AsyncIterator[T]) -> None:
        self._stream = stream

    def __aiter__(self) -> TrackedStream[T]:
        return self

    def __anext__(self) -> Awaitable[T]:
        return tracked(self._stream.__anext__())


def all_released() -> bool:
    """Return whether no thread of obstore will take the interpreter any more. May be called from any thread."""
    if not _unfinished_calls:
        return True
    from obstore.store import MemoryStore

    # Its next call drops what its threads have dropped without the interpreter.
    MemoryStore()
    return not _unfinished_calls


# The threads of the parent do not exist in the child.
os.register_at_fork(after_in_child=_unfinished_calls.clear)
