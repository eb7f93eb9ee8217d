"""The one private event loop of this process, in a thread of its own, behind every face of accel.

Clients, gates and shared loads belong to one event loop, and callers bring several, or none. So all of them live on
this one, and callers wait for it."""

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
from accel.store import tasks as obstore_calls
from accel.store.tasks import Call, begin, see
from accel.store.threads import end_threads

__all__ = [
    "at_shutdown",
    "bridge",
    "bridge_to_end",
    "check_fork",
    "io_loop",
    "refuse_forked",
    "run",
    "run_to_end",
    "start_to_end",
]

T = TypeVar("T")

# How long an interrupted or cancelled call may take to end its requests before its caller goes on.
_CANCEL_SECONDS = 5.0
_CANCEL_LOOK = 0.05
_AGES = 365 * 86400.0
# How long the end of a process waits for what still runs.
_DRAIN_SECONDS = 2.0
# How long a daemon thread of the caller's waits to be ended with it: longer than the rest of the end takes.
_ENDING_SECONDS = 2.0
# And for obstore's threads, and how often it looks.
_LET_GO_SECONDS = 1.0
_LET_GO_LOOK = 0.001


class _State:
    """All that does not survive a fork."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.thread: threading.Thread | None = None
        self.used = False
        self.forked_after_use = False
        self.closing = False
        self.over = False
        self.closers: list[weakref.WeakMethod[Callable[[], Awaitable[None]]]] = []


_state = _State()


def check_fork() -> None:
    """`refuse_forked`, and note that this process uses accel from now on."""
    refuse_forked()
    _state.used = True


def refuse_forked() -> None:
    """Raise if this process was forked from one that had used accel.

    The threads of the parent do not survive a fork, and what waits for them would wait for ever.
    """
    if _state.forked_after_use:
        raise AccelError(
            "this process was forked from one that had already used accel",
            hint="use multiprocessing's spawn or forkserver, or fork before the first use",
        )


def io_loop() -> asyncio.AbstractEventLoop:
    """The I/O loop, started when first asked for."""
    check_fork()
    loop = _state.loop
    if loop is not None:
        return loop
    with _state.lock:
        if _state.loop is None:
            if _state.closing:
                raise AccelError("the interpreter is exiting")
            _state.loop = asyncio.new_event_loop()
            _state.thread = threading.Thread(target=_serve, args=(_state.loop,), name="accel-io", daemon=True)
            _state.thread.start()
        return _state.loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        while not _state.over:
            # Code of the caller may raise SystemExit in a call: whoever waits for the call gets it.
            with contextlib.suppress(SystemExit, KeyboardInterrupt):
                loop.run_forever()
    finally:
        loop.close()


def at_shutdown(closer: Callable[[], Awaitable[None]]) -> None:
    """Register a bound method to be awaited on the I/O loop at exit, if its object still lives then."""
    _state.closers = [known for known in _state.closers if known() is not None]
    _state.closers.append(weakref.WeakMethod(closer))


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the I/O loop and wait for it; works inside a running event loop too.

    An interrupt (Ctrl-C) cancels the coroutine, waits for its requests to end, and goes on to the caller.

    Raises
    ------
    AccelError
        In a process that was forked after accel was used, or when called on the I/O loop itself.
    """
    try:
        if io_loop() is _running_loop():
            raise AccelError("a blocking call of accel was made on its own I/O loop")
        # A lock, released once: an event takes a dozen calls more, of which half delay the answer.
        running = threading.Lock()
        running.acquire()
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
        patience = time.monotonic() + _CANCEL_SECONDS
        while not call.ended and time.monotonic() < patience:
            running.acquire(timeout=_CANCEL_LOOK)
        raise
    try:
        return call.result()
    except BaseException:
        _end_with_process()
        raise


def _end_with_process() -> None:
    """At exit, wait to be ended in a daemon thread: an error raised here would be printed and help nobody."""
    this = threading.current_thread()
    if _state.closing and this.daemon and this is not _state.thread:
        time.sleep(_ENDING_SECONDS)


def run_to_end(make: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine that cleans up, also from a finalizer, on any thread at any time.

    On the I/O loop, which cannot wait for itself, the coroutine is only started; at exit and in a fork, when
    that loop is gone and all of its tasks with it, there is nothing left to do.
    """
    if _state.closing or _state.forked_after_use:
        return
    if _state.loop is not None and _state.loop is _running_loop():
        _begin(make)
        return
    run(make())


def start_to_end(make: Callable[[], Coroutine[Any, Any, None]], begun_on: asyncio.AbstractEventLoop) -> None:
    """Start a coroutine that cleans up, and do not wait: a finalizer may run while locks are held.

    Does nothing unless what it cleans up was begun on the I/O loop.
    """
    loop = _state.loop
    if loop is not begun_on or _state.closing or _state.forked_after_use:
        return
    # It may end at this very moment.
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
        told = weakref.ref(ended)

        def deliver() -> None:
            with contextlib.suppress(RuntimeError):  # the caller's loop was closed meanwhile
                here.call_soon_threadsafe(_settle, told)

        call = Call(io_loop(), coroutine, deliver)
    except BaseException:
        coroutine.close()
        raise
    # The loop of the caller refers to the future, as it would to a socket: once it is closed, the call is cancelled.
    timer = here.call_later(_AGES, _settle, lambda: ended)
    try:
        call.send()
        await asyncio.shield(ended)
    except BaseException as error:
        call.cancel()
        # Else the caller's loop is gone, and nothing can be waited for.
        if isinstance(error, asyncio.CancelledError):
            await asyncio.wait((ended,), timeout=_CANCEL_SECONDS)
        raise
    finally:
        timer.cancel()
    return call.result()


def _settle(told: Callable[[], asyncio.Future[None] | None]) -> None:
    ended = told()
    if ended is not None and not ended.done():
        ended.set_result(None)


async def bridge_to_end(make: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Await a coroutine that cleans up: being cancelled does not cancel it, and waits until it has ended."""

    async def shielded() -> None:
        await asyncio.shield(begin(make()))

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
    used = _state.used or _state.forked_after_use
    _state.__init__()  # type: ignore[misc]
    _state.forked_after_use = used


async def _drain() -> None:
    """Cancel what still runs, and close what was registered."""
    current = asyncio.current_task()
    tasks = [task for task in asyncio.all_tasks() if task is not current]
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=_DRAIN_SECONDS / 2)
    for known in _state.closers:
        closer = known()
        if closer is not None:
            with contextlib.suppress(Exception):
                await closer()
    # Those that hand over to this loop need it open.
    patience = time.monotonic() + _LET_GO_SECONDS
    while not obstore_calls.all_released() and time.monotonic() < patience:
        await asyncio.sleep(_LET_GO_LOOK)


def _shut_down() -> None:
    """At exit: end the loop and its thread, and all other threads."""
    with _state.lock:
        _state.closing = True
        loop, thread = _state.loop, _state.thread
        _state.loop = None
    if loop is not None and thread is not None and thread.is_alive():

        async def finish() -> None:
            try:
                # In this very task: one of its own would find this one among all others, and cancel it.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_DRAIN_SECONDS):
                        await _drain()
            finally:
                _state.over = True
                loop.stop()

        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(lambda: _ending.append(loop.create_task(finish())))
            thread.join(timeout=_DRAIN_SECONDS + 1.0)
    end_threads()
    patience = time.monotonic() + _LET_GO_SECONDS
    while not obstore_calls.all_released() and time.monotonic() < patience:
        time.sleep(_LET_GO_LOOK)


_ending: list[object] = []  # a loop holds its tasks weakly

os.register_at_fork(after_in_child=_after_fork)
atexit.register(_shut_down)
