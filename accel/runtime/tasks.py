"""Tasks on the I/O loop: how they stay alive, are cancelled, grouped, interleaved, and awaited at exit."""

from __future__ import annotations

import asyncio
import contextvars
import os
import sys
import time
import weakref
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from accel.errors import AccelError, StoreError, forget_frames
from accel.runtime.forks import FORK_HINT, keep_for_ever

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
    "end_stream",
    "ending",
    "foreign_cancellation",
    "obstore_is_lost",
    "refuse_lost_obstore",
    "see",
    "tracked",
]


def cancel_requests() -> int:
    """Return how often the current task has been asked to end."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


def foreign_cancellation() -> StoreError:
    """Return the error for a CancelledError that no waiting task was sent, so that these do not end
    silently."""
    return StoreError(
        "a request was cancelled, and by nobody who waits for it",
        hint="the store may share what it does with others, one of whom was cancelled",
        transient=True,
    )


def closed_early() -> AccelError:
    """Return the error for taking batches from a run that was closed."""
    return AccelError("the scan was closed before its end", hint="iterate it again to run it anew")


class CancellationGuard:
    """A context in which a CancelledError becomes a StoreError unless this very task was cancelled.

    It is a class, as a generator would be slower, and each request enters one.

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

# References to running tasks, as an event loop refers to its tasks weakly.
_tasks: set[asyncio.Task[Any]] = set()


def begin(coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start a task on the running event loop that lives until it ends, even if nobody refers to it."""
    task = asyncio.get_running_loop().create_task(coroutine)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    return task


def see(ended: asyncio.Future[Any]) -> None:
    """Mark the exception of a future as retrieved, so that asyncio does not log it if nobody waits any
    more."""
    if not ended.cancelled():
        ended.exception()


class Call(Generic[T]):
    """A coroutine on the I/O loop that another thread waits for. `deliver` is called on the I/O loop when it
    has ended."""

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
        """Start the coroutine. After an interrupt in this method it may run, and must be ended by
        `cancel`."""
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
        """Cancel the coroutine, on the thread that called `send`; the call ends soon after, and delivers."""
        try:
            self._loop.call_soon_threadsafe(self._cancel)
        except RuntimeError:  # the loop is closed: nothing runs there any more
            if self._task is None:
                self._cancel()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        elif not self.ended:  # `send` was not called, else `_start` would have run first
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
    """A task group that raises CancelledError if it was cancelled, even if one of its tasks has failed.

    Python's group raises the failure instead. Before 3.13 the cancellation is then lost, and a caller that
    handles the failure cannot be stopped any more. Since 3.13 it is raised at the next await, which may be
    part of an orderly end.
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
        before = self._asks
        try:
            await super().__aexit__(kind, error, traceback)
        except BaseExceptionGroup:
            if sys.version_info < (3, 13):
                task = asyncio.current_task()
                if task is not None and self._asks and not before:
                    # The group takes back its own request, unless the task was ending already.
                    task.uncancel()
            elif cancel_requests():
                # Python has cancelled the task again for its next await, which is this one.
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(0)
            if cancel_requests() > self._cancels:
                raise asyncio.CancelledError from None
            raise

    @property
    def _asks(self) -> bool:
        """Whether the group has cancelled its own task because of a failure."""
        return bool(getattr(self, "_parent_cancel_requested", False))


S = TypeVar("S")


async def end_stream(stream: AsyncIterator[Any]) -> None:
    """Close a stream that may not have come to its end.

    A generator that is dropped before its end leaves the event loop a task to close it, whenever the garbage
    collector finds it.
    """
    close = getattr(stream, "aclose", None)  # an iterator that is no generator need not have it
    if close is not None:
        await close()


@asynccontextmanager
async def ending(stream: AsyncIterator[S]) -> AsyncIterator[AsyncIterator[S]]:
    """Close a stream at the end of a block: see `end_stream`."""
    try:
        yield stream
    finally:
        await end_stream(stream)


# Seconds of one time slice; reading the clock costs a ten-thousandth of that.
_SLICE = 0.002
# Items after which `each` looks at the clock.
_BLOCK = 64


class _Slices:
    """The current time slice of one event loop, which all its tasks share, and those who wait for their turn
    in a later one."""

    __slots__ = ("_is_beginning", "_loop", "_waiting", "until")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.until = 0.0
        self._loop = weakref.ref(loop)
        self._is_beginning = False
        """The next slice begins with the next iteration of the loop."""
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def turn(self) -> None:
        """Wait for a turn in a later slice.

        One is woken when a slice begins, and each that is woken wakes the next while there is time. Hundreds
        that were all woken, to find the slice used up, would take more steps of the loop than their work.
        """
        if not self._is_beginning and not self._waiting:
            self._is_beginning = True
            try:
                await asyncio.sleep(0)
            finally:
                self._begin()
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._begin_soon()
        try:
            await turn
        finally:
            # Also whoever was woken and cancelled at the same time.
            if time.monotonic() < self.until:
                self._wake()
            else:
                self._begin_soon()

    def _begin_soon(self) -> None:
        loop = self._loop()
        if self._waiting and not self._is_beginning and loop is not None:
            self._is_beginning = True
            loop.call_soon(self._begin)

    def _begin(self) -> None:
        self.until = time.monotonic() + _SLICE
        self._is_beginning = False
        self._wake()

    def _wake(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return


slices_by_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Slices] = weakref.WeakKeyDictionary()


async def breathe() -> None:
    """Let the loop run other tasks if the current time slice is used up; long work awaits this between its
    steps.

    All callers on one loop share the slice, so that many delay the loop no longer than one.
    """
    loop = asyncio.get_running_loop()
    slices = slices_by_loop.get(loop)
    if slices is None:
        slices = slices_by_loop[loop] = _Slices(loop)
    if time.monotonic() >= slices.until:
        await slices.turn()


async def each(items: Iterable[S], do: Callable[[S], T]) -> list[T]:
    """Return `do(item)` for each item, in order, and let the loop run between blocks of items."""
    out: list[T] = []
    for item in items:
        out.append(do(item))
        if not len(out) % _BLOCK:
            await breathe()
    return out


A = TypeVar("A", bound=Awaitable[Any])

# Asynchronous calls of obstore whose futures its threads still refer to. A thread of obstore takes the
# interpreter lock to deliver the outcome of a call, even of a cancelled one. If the event loop is closed or
# the interpreter gone by then, the process aborts. So whoever ends these waits for `all_released`.
unfinished_calls: set[weakref.ref[Any]] = set()


class _ObstoreThreads:
    """Whether the threads of obstore were started in this process, or in its parent, where they stayed."""

    begun = False
    lost = False


def obstore_is_lost() -> bool:
    """Return whether a fork has left the threads of obstore behind. It starts them once, so that its
    asynchronous calls never end in this process."""
    return _ObstoreThreads.lost


def refuse_lost_obstore() -> None:
    """Raise AccelError where `obstore_is_lost`."""
    if _ObstoreThreads.lost:
        raise AccelError(
            "this process was forked from one that had used obstore, whose threads a fork leaves behind",
            hint=FORK_HINT,
        )


def tracked(call: A) -> A:
    """Track a call until obstore has released it, and return it. Every asynchronous call of obstore must be
    tracked."""
    unfinished_calls.add(weakref.ref(call, unfinished_calls.discard))
    _ObstoreThreads.begun = True
    return call


class TrackedStream(Generic[T]):
    """A stream of obstore whose steps are tracked."""

    __slots__ = ("_stream",)

    def __init__(self, stream: AsyncIterator[T]) -> None:
        self._stream = stream

    def __aiter__(self) -> TrackedStream[T]:
        return self

    def __anext__(self) -> Awaitable[T]:
        return tracked(self._stream.__anext__())


def all_released() -> bool:
    """Return whether no thread of obstore will take the interpreter lock any more. May be called from any
    thread."""
    if not unfinished_calls:
        return True
    from obstore.store import MemoryStore

    # Any call of obstore releases what its threads have dropped without the interpreter lock.
    MemoryStore()
    return not unfinished_calls


# The threads of the parent do not exist in the child.
def _after_fork() -> None:
    unfinished_calls.clear()
    _ObstoreThreads.lost = _ObstoreThreads.begun
    keep_for_ever(set(_tasks))
    _tasks.clear()


os.register_at_fork(after_in_child=_after_fork)
