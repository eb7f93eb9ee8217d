"""Threads that decode while the I/O loop goes on."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, Self, TypeVar

import pyarrow as pa

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
        # By process: the threads of a pool do not survive a fork.
        key = (os.getpid(), threads or _count_cores())
        with _shared_lock:
            if key not in _shared:
                _shared[key] = cls(threads)
            return _shared[key]

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
    """Give back what Arrow's allocator keeps for this thread, each time that it has decoded so much again.

    Else a long scan holds several times what it uses: 550 MB of resident memory for 170 MB in use.
    """
    total = getattr(_decoded, "nbytes", 0) + nbytes
    if total >= _RELEASE_EVERY:
        pa.default_memory_pool().release_unused()
        total = 0
    _decoded.nbytes = total


_RELEASE_EVERY = 128 << 20
_decoded = threading.local()
_shared: dict[tuple[int, int], DecodePool] = {}
_shared_lock = threading.Lock()


def _count_cores() -> int:
    try:
        return max(1, len(os.sched_getaffinity(0)))
    except AttributeError:
        # Not on macOS and Windows.
        return os.cpu_count() or 1
