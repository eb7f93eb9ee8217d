"""Threads that decode while the I/O loop goes on."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, Self, TypeVar

import pyarrow as pa

from accel.memory import choose_pool, pool, unused_of

__all__ = ["DecodePool", "release_now_and_then"]

P = ParamSpec("P")
R = TypeVar("R")


class DecodePool:
    """A thread pool that is made at first use.

    Parameters
    ----------
    threads : int
        0 means one a core (`options.decode_threads`).

    pyarrow lets go of the GIL while it decodes, so that threads help.
    """

    def __init__(self, threads: int = 0) -> None:
        self.threads = threads or _count_cores()
        self._lock = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None
        self._closed = False

    @classmethod
    def shared(cls, threads: int = 0) -> DecodePool:
        """The process's pool of that many threads. Nobody closes it: its threads end with the process."""
        # A scan begins: whose memory it is put into may have been settled anew.
        choose_pool()
        # By process: the threads of a pool do not survive a fork.
        process = os.getpid()
        with _shared_lock:
            found = _shared.get((process, threads))
            if found is None:
                # To count cores takes longer than all else here.
                counted = threads or _count_cores()
                found = _shared.setdefault((process, counted), cls(counted))
                _shared[process, threads] = found
            return found

    async def run(self, fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call `fn` on a thread of the pool, from any event loop; raises what it raises.

        A cancelled caller does not wait: a call that has begun ends unheard, one that has not never
        begins.

        Raises
        ------
        RuntimeError
            The pool is closed.
        """
        future = self._start().submit(fn, *args, **kwargs)
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Drop the calls that have not begun, and wait for those that have. May be called twice."""
        with self._lock:
            self._closed = True
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _start(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._closed:
                raise RuntimeError("the decode pool is closed")
            if self._executor is None:
                self._executor = ThreadPoolExecutor(self.threads, thread_name_prefix="accel-decode")
            return self._executor


def release_now_and_then(nbytes: int) -> None:
    """Give back what Arrow's allocator keeps for this thread when that may be much; told what is decoded next.

    Not each time: what was given back is met again as fresh pages of the system, and each costs more than what is
    decoded into it.
    """
    total = getattr(_decoded, "nbytes", 0) + nbytes
    if total >= _LOOK_EVERY:
        total = 0
        if _slack.is_much():
            (pool() or pa.default_memory_pool()).release_unused()
            _slack.settle()
    _decoded.nbytes = total


class _Slack:
    """What the process holds beyond what Arrow says is in use, less what that was at its least.

    The least is what others than Arrow hold: the interpreter, libraries, the caller.
    """

    def __init__(self) -> None:
        self._least: int | None = None

    def is_much(self) -> bool:
        """Whether the allocator seems to keep more than it may; yes where the system does not tell."""
        beside = _beside_arrow()
        if beside is None:
            return True
        if self._least is None or beside < self._least:
            self._least = beside
        return beside - self._least > _MOST_UNUSED

    def settle(self) -> None:
        """After a release: if as much is held still, it is somebody else's who has come to hold more."""
        beside = _beside_arrow()
        if beside is not None and self._least is not None:
            self._least = max(self._least, beside - _MOST_UNUSED)


def _beside_arrow() -> int | None:
    try:
        with open("/proc/self/statm", "rb") as file:
            resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None
    return unused_of(resident)


_LOOK_EVERY = 128 << 20
_MOST_UNUSED = 128 << 20
_decoded = threading.local()
_slack = _Slack()
_shared: dict[tuple[int, int], DecodePool] = {}
_shared_lock = threading.Lock()


def _count_cores() -> int:
    try:
        return max(1, len(os.sched_getaffinity(0)))
    except AttributeError:
        # Not on macOS and Windows.
        return os.cpu_count() or 1
