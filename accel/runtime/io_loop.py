"""The I/O loop: the private event loop of the process, in a thread of its own, on which all requests run.

Clients, gates and shared loads belong to one event loop, while callers bring several loops, or none. So all
these live on the I/O loop, and callers wait for it.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from accel.errors import AccelError
from accel.runtime import tasks as obstore_calls
from accel.runtime.forks import FORK_HINT, abandon_loop, keep_for_ever
from accel.runtime.tasks import Call, begin, see
from accel.runtime.threads import end_threads
from accel.runtime.time_limits import in_time, without_limit

__all__ = [
    "at_shutdown",
    "bridge",
    "bridge_to_end",
    "io_loop",
    "refuse_forked",
    "run",
    "run_to_end",
    "start_to_end",
]

T = TypeVar("T")

# Seconds that an interrupted or cancelled caller waits for its requests to end, and between two looks.
_CANCEL_SECONDS = 5.0
_CANCEL_LOOK = 0.05
_AGES = 365 * 86400.0
# Seconds that the end of the process waits for running tasks.
_DRAIN_SECONDS = 2.0
# Seconds that a daemon thread of the caller waits to be ended with the process: longer than the rest of the
# end takes.
_ENDING_SECONDS = 2.0
# Seconds that the end of the process waits for obstore's threads, and between two looks.
_LET_GO_SECONDS = 1.0
_LET_GO_LOOK = 0.001


class _State:
    """The state of this process, which a fork begins anew."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.thread: threading.Thread | None = None
        self.is_refused = False
        self.closing = False
        self.over = False
        self.closers: list[weakref.WeakMethod[Callable[[], Awaitable[None]]]] = []


loop_state = _State()


def refuse_forked() -> None:
    """Raise AccelError in a child whose parent had an I/O loop that cannot be abandoned, such as uvloop's."""
    if loop_state.is_refused:
        raise AccelError(
            "this process was forked from one that used accel on an event loop that is not asyncio's own",
            hint=FORK_HINT,
        )


def io_loop() -> asyncio.AbstractEventLoop:
    """Return the I/O loop, which the first call starts."""
    refuse_forked()
    loop = loop_state.loop
    if loop is not None:
        return loop
    with loop_state.lock:
        if loop_state.loop is None:
            if loop_state.closing:
                raise AccelError("the interpreter is exiting")
            loop_state.loop = asyncio.new_event_loop()
            loop_state.thread = threading.Thread(
                target=_serve, args=(loop_state.loop,), name="accel-io", daemon=True
            )
            loop_state.thread.start()
        return loop_state.loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        while not loop_state.over:
            # Code of the caller may raise SystemExit in a call; it is raised again where the call is awaited.
            with contextlib.suppress(SystemExit, KeyboardInterrupt):
                loop.run_forever()
    finally:
        loop.close()


def at_shutdown(closer: Callable[[], Awaitable[None]]) -> None:
    """Register a bound method to be awaited on the I/O loop at exit, if its object is still alive."""
    loop_state.closers = [each for each in loop_state.closers if each() is not None]
    loop_state.closers.append(weakref.WeakMethod(closer))


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the I/O loop and wait for it, also inside a running event loop.

    An interrupt (Ctrl-C) cancels the coroutine, and is raised when its requests have ended.

    Raises
    ------
    AccelError
        When called on the I/O loop itself.
    """
    try:
        if io_loop() is _running_loop():
            raise AccelError("a blocking call of accel was made on its own I/O loop")
        # A lock that is released once takes a dozen calls less than an event.
        running = threading.Lock()
        running.acquire()
        coroutine = in_time(coroutine)
        call = Call(io_loop(), coroutine, running.release)
    except BaseException:
        coroutine.close()
        _end_with_process()
        raise
    try:
        call.send()
        running.acquire()
    except BaseException:
        call.cancel()
        deadline = time.monotonic() + _CANCEL_SECONDS
        while not call.ended and time.monotonic() < deadline:
            running.acquire(timeout=_CANCEL_LOOK)
        raise
    try:
        return call.result()
    except BaseException:
        _end_with_process()
        raise


def _end_with_process() -> None:
    """Wait, in a daemon thread at exit, for the end of the process: an error would only be printed."""
    this = threading.current_thread()
    if loop_state.closing and this.daemon and this is not loop_state.thread:
        time.sleep(_ENDING_SECONDS)


def run_to_end(make: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine that cleans up, from any thread, also in a finalizer.

    On the I/O loop, which cannot wait for itself, the coroutine is only started. At exit
    nothing is done, as the loop and all of its tasks are gone.
    """
    if loop_state.closing or loop_state.is_refused:
        return
    if loop_state.loop is not None and loop_state.loop is _running_loop():
        _begin(make)
        return
    with without_limit():
        run(make())


def start_to_end(make: Callable[[], Coroutine[Any, Any, None]], begun_on: asyncio.AbstractEventLoop) -> None:
    """Start a coroutine that cleans up, without waiting, as a finalizer may run while locks are taken.

    Nothing is done unless `begun_on` is the I/O loop.
    """
    loop = loop_state.loop
    if loop is not begun_on or loop_state.closing or loop_state.is_refused:
        return
    # The loop may be closed meanwhile.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(_begin, make)


def _begin(make: Callable[[], Coroutine[Any, Any, None]]) -> None:
    begin(make())


async def bridge(coroutine: Coroutine[Any, Any, T]) -> T:
    """Await a coroutine that runs on the I/O loop, from any event loop.

    Cancelling the awaiting task cancels the coroutine, and waits until it has ended.
    """
    try:
        here = asyncio.get_running_loop()
        if io_loop() is here:
            return await coroutine
        ended: asyncio.Future[None] = here.create_future()
        waiting = _Waiting(ended)

        def deliver() -> None:
            with contextlib.suppress(RuntimeError):  # the caller's loop was closed meanwhile
                here.call_soon_threadsafe(waiting.settle)

        coroutine = in_time(coroutine)
        call = Call(io_loop(), coroutine, deliver)
    except BaseException:
        coroutine.close()
        raise
    # The timer makes the loop of the caller refer to the future: once that loop is closed, the call is
    # cancelled.
    timer = here.call_later(_AGES, lambda: ended)
    try:
        call.send()
        # A shield would take the caller's loop two more iterations.
        await ended
    except BaseException as error:
        call.cancel()
        # After any other exception the loop of the caller is gone, and nothing can be awaited.
        if isinstance(error, asyncio.CancelledError) and not waiting.settled:
            # The first future was cancelled with its task.
            end: asyncio.Future[None] = here.create_future()
            waiting.wait_by(end)
            await asyncio.wait((end,), timeout=_CANCEL_SECONDS)
        raise
    finally:
        timer.cancel()
    return call.result()


class _Waiting:
    """Refers weakly to the future by which a caller waits for its call. It is used on the caller's loop."""

    __slots__ = ("_future", "settled")

    def __init__(self, future: asyncio.Future[None]) -> None:
        self.settled = False
        """Whether the call has ended."""
        self.wait_by(future)

    def wait_by(self, future: asyncio.Future[None]) -> None:
        """Wait by this future from now on."""
        self._future = weakref.ref(future)

    def settle(self) -> None:
        """Note that the call has ended, and wake the caller."""
        self.settled = True
        future = self._future()
        if future is not None and not future.done():
            future.set_result(None)


async def bridge_to_end(make: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Await a coroutine that cleans up; being cancelled waits until it has ended, and does not cancel it."""

    async def shielded() -> None:
        await asyncio.shield(begin(make()))

    with without_limit():
        work = asyncio.ensure_future(bridge(shielded()))
    try:
        await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait((work,), timeout=_CANCEL_SECONDS)
        if work.done():
            see(work)
        raise


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _after_fork() -> None:
    is_refused = loop_state.is_refused
    if loop_state.loop is not None:
        keep_for_ever((loop_state.closers, loop_state.thread))
        is_refused = not abandon_loop(loop_state.loop)
    loop_state.__init__()  # type: ignore[misc]
    loop_state.is_refused = is_refused


async def _drain() -> None:
    """Cancel running tasks, and call the registered closers."""
    current = asyncio.current_task()
    tasks = [task for task in asyncio.all_tasks() if task is not current]
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=_DRAIN_SECONDS / 2)
    for each in loop_state.closers:
        closer = each()
        if closer is not None:
            with contextlib.suppress(Exception):
                await closer()
    # obstore's threads need the loop open to deliver their outcomes.
    deadline = time.monotonic() + _LET_GO_SECONDS
    while not obstore_calls.all_released() and time.monotonic() < deadline:
        await asyncio.sleep(_LET_GO_LOOK)


def shut_down() -> None:
    """End the loop and its thread, and all thread pools, at exit."""
    with loop_state.lock:
        loop_state.closing = True
        loop, thread = loop_state.loop, loop_state.thread
        loop_state.loop = None
    if loop is not None and thread is not None and thread.is_alive():

        async def finish() -> None:
            try:
                # Awaited in this task, as `_drain` in another one would cancel this one.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_DRAIN_SECONDS):
                        await _drain()
            finally:
                loop_state.over = True
                loop.stop()

        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(lambda: _ending.append(loop.create_task(finish())))
            thread.join(timeout=_DRAIN_SECONDS + 1.0)
    end_threads()
    deadline = time.monotonic() + _LET_GO_SECONDS
    while not obstore_calls.all_released() and time.monotonic() < deadline:
        time.sleep(_LET_GO_LOOK)


_ending: list[object] = []  # refers to the last task, as a loop refers to its tasks weakly

os.register_at_fork(after_in_child=_after_fork)
atexit.register(shut_down)
