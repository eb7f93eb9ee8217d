"""Thread pools for calls that would block the I/O loop, such as name lookups."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

__all__ = ["CREDENTIALS", "DATABASES", "DISK", "FILES", "WORK", "Threads", "end_threads", "resolve"]

P = ParamSpec("P")
R = TypeVar("R")


class Threads:
    """A pool of threads that are started as they are needed.

    The pools of `concurrent.futures` do not serve: they take no work once the main thread has ended, and the
    end of a process waits for their calls, even for one that never returns. There are several pools, as calls
    to a file system whose server is gone never return, and nothing else may wait behind these.

    Parameters
    ----------
    name : str
    most : int
        Maximum calls under way at once; others wait.
    patience : float
        Seconds that the end of the process waits for calls that have begun.
    """

    def __init__(self, name: str, most: int, *, patience: float) -> None:
        self._name = name
        self._most = most
        self.patience = patience
        self._forget()
        all_threads.add(self)

    def _forget(self) -> None:
        """Set up, or reset after a fork, the state that does not survive a fork."""
        self._lock = threading.Lock()
        self._waiting: SimpleQueue[_Call | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._unfinished = 0
        self._closed = False

    async def run(self, fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call `fn` on one of the threads, from any event loop, and return or raise its outcome.

        A cancelled caller does not wait; a call that has begun runs to its end, and its outcome is dropped.

        Raises
        ------
        RuntimeError
            The pool has been closed.
        """
        future = self.begin(fn, *args, **kwargs)
        try:
            return await future
        finally:
            del future  # else an error would refer to itself through its frames

    def begin(self, fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[R]:
        """Start the call that `run` awaits, and return its future, which belongs to the running loop."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._put(_Call(partial(fn, *args, **kwargs), future, self._finished))
        return future

    def close(self, timeout: float | None = None) -> None:
        """Drop calls that have not begun, and wait for those that have. May be called twice."""
        with self._lock:
            self._closed = True
            threads, self._threads = self._threads, []
        with contextlib.suppress(Empty):
            while (call := self._waiting.get_nowait()) is not None:
                call.drop()
        for _ in threads:
            self._waiting.put(None)
        until = None if timeout is None else time.monotonic() + timeout
        for thread in threads:
            thread.join(None if until is None else max(0.0, until - time.monotonic()))

    def end(self) -> None:
        """Let the threads end after the calls that wait. No call may be made after this.

        It takes no lock, so that a finalizer may call it on any thread.
        """
        self._waiting.put(None)

    def _put(self, call: _Call) -> None:
        with self._lock:
            if self._closed:
                raise RuntimeError(f"the threads {self._name} are closed")
            if self._unfinished >= len(self._threads) < self._most:
                self._start()
            self._unfinished += 1
            self._waiting.put(call)

    def _start(self) -> None:
        # Daemons, as Python waits for all other threads at exit.
        name = f"{self._name}_{len(self._threads)}"
        thread = threading.Thread(target=self._serve, name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            if not self._threads:
                raise
        else:
            self._threads.append(thread)

    def _serve(self) -> None:
        waiting = self._waiting
        while (call := waiting.get()) is not None:
            call.make()
            del call  # so that it does not keep its outcome alive
        waiting.put(None)  # for the next

    def _finished(self) -> None:
        with self._lock:
            self._unfinished -= 1


class _Call:
    """One call, and the future of its caller."""

    __slots__ = ("_finished", "_future", "_work")

    def __init__(
        self, work: Callable[[], Any], future: asyncio.Future[Any], finished: Callable[[], None]
    ) -> None:
        self._work = work
        self._future = future
        self._finished = finished

    def make(self) -> None:
        if self._future.cancelled():
            self._finished()
            return
        try:
            result = self._work()
        except StopIteration as error:
            self._deliver(_fail, RuntimeError(f"a call raised {error!r}"))  # a future takes none
        except BaseException as error:  # noqa: BLE001 - raised by whoever waits for it
            self._deliver(_fail, error)
        else:
            self._deliver(_give, result)

    def drop(self) -> None:
        self._deliver(asyncio.Future.cancel)

    def _deliver(self, how: Callable[..., object], *what: Any) -> None:
        # Before the outcome is delivered, as the caller may have the next call for this thread.
        self._finished()
        future = self._future
        # Else an error would refer to itself through its frames.
        del self._future, self._work
        with contextlib.suppress(RuntimeError):  # the caller's loop was closed meanwhile
            future.get_loop().call_soon_threadsafe(how, future, *what)


def _give(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


def end_threads() -> None:
    """End all threads at exit, when no event loop waits for them any more."""
    for threads in list(all_threads):
        threads.close(threads.patience)


def _after_fork() -> None:
    for threads in list(all_threads):
        threads._forget()


all_threads: weakref.WeakSet[Threads] = weakref.WeakSet()
os.register_at_fork(after_in_child=_after_fork)

FILES = Threads("accel-file", 64, patience=0.5)
"""For calls to file systems, which never return if the server is gone."""
DISK = Threads("accel-disk", 4, patience=0.5)
"""For the files of the disk cache."""
WORK = Threads("accel-work", min(32, (os.cpu_count() or 1) + 4), patience=10.0)
"""For copying and decompressing."""
DATABASES = Threads("accel-database", 16, patience=2.0)
"""For statements of databases that hold an index."""
CREDENTIALS = Threads("accel-credentials", 4, patience=0.0)
"""For programs and servers that give credentials, and may never answer."""
NAMES = Threads("accel-name", 64, patience=0.0)
"""For lookups of host names. One that is not answered takes half a minute, and nothing may wait behind it."""

_lookups: dict[tuple[object, ...], asyncio.Future[list[Any]]] = {}


async def resolve(host: str, port: int, *, family: int = 0, flags: int = 0) -> list[Any]:
    """Return the addresses of a TCP server as `socket.getaddrinfo` does; concurrent callers share one lookup.

    If a caller is cancelled, the lookup goes on, for other callers.

    Raises
    ------
    OSError, ValueError
        As `getaddrinfo` does.
    """
    key = (asyncio.get_running_loop(), host, port, family, flags)
    lookup = _lookups.get(key)
    if lookup is None:
        lookup = NAMES.begin(lambda: socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, 0, flags))
        lookup.add_done_callback(lambda _: _lookups.pop(key, None))
        _lookups[key] = lookup
    return await asyncio.shield(lookup)
