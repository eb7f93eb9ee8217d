"""The threads that decode while the I/O loop goes on, and when they return unused memory."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable
from typing import ParamSpec, Self, TypeVar

import pyarrow as pa
from cachetools import LRUCache

from accel.memory import choose_pool, pool, unused_of
from accel.runtime.forks import lock_over_forks
from accel.runtime.threads import Threads

__all__ = ["DecodePool", "release_now_and_then"]

P = ParamSpec("P")
R = TypeVar("R")


class DecodePool:
    """A pool of threads, which start when they are needed. pyarrow releases the GIL while it decodes.

    Parameters
    ----------
    threads : int
        0 means one for each core (`options.decode_threads`).
    """

    def __init__(self, threads: int = 0) -> None:
        self.threads = threads or _count_cores()
        self._threads = Threads("accel-decode", self.threads, patience=_PATIENCE)
        weakref.finalize(self, self._threads.end).atexit = False

    @classmethod
    def shared(cls, threads: int = 0) -> DecodePool:
        """Return the process's pool of that many threads, which nobody closes.

        Its threads end with the process, or once the pool is unused and pools of other sizes have taken its
        place.
        """
        # A scan begins here, and the allocator may have been chosen anew.
        choose_pool()
        # The key has the process in it, because threads do not survive a fork.
        process = os.getpid()
        with _shared_lock:
            found = _recent.get((process, threads))
            if found is None:
                # Counting cores takes longer than everything else here.
                counted = threads or _count_cores()
                found = _alive.get((process, counted))
                if found is None:
                    found = _alive[process, counted] = cls(counted)
                _recent[process, threads] = found
            return found

    async def run(self, fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call `fn` on a thread of the pool: see `Threads.run`."""
        return await self._threads.run(fn, *args, **kwargs)

    def begin(self, fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[R]:
        """Start the call that `run` awaits, and return its future; see `Threads.begin`."""
        return self._threads.begin(fn, *args, **kwargs)

    def close(self) -> None:
        """Drop calls that have not begun, and wait for the others; see `Threads.close`."""
        self._threads.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def release_now_and_then(nbytes: int) -> None:
    """Return memory that Arrow's allocator keeps unused to the system, if it may be much.

    This is not done for each piece: memory that was returned comes back as fresh pages of the system, which
    cost more than decoding into them.

    Parameters
    ----------
    nbytes : int
        The bytes that this thread is about to decode.
    """
    total = getattr(decoded, "nbytes", 0) + nbytes
    if total >= _LOOK_EVERY:
        total = 0
        if slack.is_much():
            (pool() or pa.default_memory_pool()).release_unused()
            slack.settle()
    decoded.nbytes = total


class Slack:
    """Estimates how much memory the allocator keeps unused.

    It is the resident memory beyond what Arrow has in use, minus the least that this has been: the
    interpreter, the libraries and the caller take that much.
    """

    def __init__(self) -> None:
        self._least: int | None = None

    def is_much(self) -> bool:
        """Return whether the allocator seems to keep too much; True where the system reports no resident
        memory."""
        beside = beside_arrow()
        if beside is None:
            return True
        if self._least is None or beside < self._least:
            self._least = beside
        return beside - self._least > _MOST_UNUSED

    def settle(self) -> None:
        """Note after a release that memory which is still resident belongs to somebody else."""
        beside = beside_arrow()
        if beside is not None and self._least is not None:
            self._least = max(self._least, beside - _MOST_UNUSED)


def beside_arrow() -> int | None:
    try:
        with open("/proc/self/statm", "rb") as file:
            resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None
    return unused_of(resident)


# Seconds that an idle thread waits for work.
_PATIENCE = 10.0
# Bytes that a thread decodes between two looks at the resident memory.
_LOOK_EVERY = 128 << 20
_MOST_UNUSED = 128 << 20
decoded = threading.local()
slack = Slack()
# Pools that stay while nobody uses them, because the next scan will.
_MOST_SHARED = 8
_recent: LRUCache[tuple[int, int], DecodePool] = LRUCache(_MOST_SHARED)
_alive: weakref.WeakValueDictionary[tuple[int, int], DecodePool] = weakref.WeakValueDictionary()
_shared_lock = lock_over_forks()


def _count_cores() -> int:
    try:
        return max(1, len(os.sched_getaffinity(0)))
    except AttributeError:
        # Not on macOS and Windows.
        return os.cpu_count() or 1
