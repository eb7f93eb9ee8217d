"""The memory pool of fetched bytes and of Arrow arrays.

A scan allocates and frees a gigabyte a second in large pieces. Arrow's default allocator (mimalloc) asks the
system for huge pages, which a busy machine takes milliseconds to clear, and returns all free memory each
second. Most builds of Arrow also have jemalloc, which retains freed memory for a configurable time: one
second by Arrow's setting, ten by accel's. The setting applies to all users of that pool in the process.

It applies only to arenas that are made later, one for each thread. The first arena exists already with the
old setting (free memory is returned within a second, a free piece of 8 MiB at once), so an idle thread is
made to occupy it.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import Final

import pyarrow as pa

from accel.arrow_features import counts_allocations

__all__ = ["allocate", "choose_pool", "pool", "returning_pool", "unused_of"]

_CHOSEN: Final = "ARROW_DEFAULT_MEMORY_POOL"
"""Arrow's variable by which a user chooses an allocator."""
_DECAY_MS: Final = 10_000
"""Milliseconds in which freed memory is returned to the system, bit by bit."""
_LOOKS: Final = 3
_START_SECONDS: Final = 1.0
"""Seconds in which a thread should have begun."""


class Choice:
    """The chosen pool, and the jemalloc pool once it was looked for."""

    __slots__ = ("made", "other", "pool", "process")

    def __init__(self) -> None:
        self.made = False
        self.pool: pa.MemoryPool | None = None
        self.other: pa.MemoryPool | None = None
        self.process = 0
        """The process in which a thread occupies the first arena, as threads do not survive a fork."""


choice = Choice()


def pool() -> pa.MemoryPool | None:
    """Return the pool for accel's allocations; None for Arrow's default pool at the time of use."""
    if not choice.made:
        choose_pool()
    return choice.pool


def returning_pool() -> pa.MemoryPool:
    """Return the pool for large arrays that are made once: what is freed goes back to the system at once."""
    return pa.system_memory_pool()


def choose_pool() -> None:
    """Choose the pool: Arrow's default if the user has chosen that, else jemalloc."""
    choice.pool = _other_pool() if not os.environ.get(_CHOSEN) and _is_usual() else None
    choice.made = True


def _is_usual() -> bool:
    """Return whether Arrow's default pool is mimalloc itself, not a pool that wraps it.

    Pools cannot be compared, and a wrapper has the name of the wrapped pool; but it does not count
    allocations that go past it. A logging wrapper does, and is not recognised.
    """
    default = pa.default_memory_pool()
    if default.backend_name != "mimalloc" or not counts_allocations():
        return False
    usual = pa.mimalloc_memory_pool()
    for _ in range(_LOOKS):
        # Another thread may allocate meanwhile, but hardly each time.
        before = default.num_allocations()
        # No bytes, as the first byte of mimalloc in a process may take 6 ms to clear huge pages.
        pa.allocate_buffer(0, usual)
        if default.num_allocations() == before:
            return False
    return True


def _other_pool() -> pa.MemoryPool | None:
    if choice.other is None:
        try:
            choice.other = pa.jemalloc_memory_pool()
        except NotImplementedError:
            # Not built for every system.
            return None
    if choice.process != os.getpid():
        choice.process = os.getpid()
        _give_away_first_arena(choice.other)
    return choice.other


def _give_away_first_arena(jemalloc: pa.MemoryPool) -> None:
    """Start a thread that occupies the first arena, unless another thread does, until the process ends.

    The thread also sets the decay time, as the thread that sets it gets an arena.
    """
    taken = threading.Event()

    def hold() -> None:
        try:
            with suppress(pa.ArrowException):
                pa.jemalloc_set_decay_ms(_DECAY_MS)
            pa.allocate_buffer(1, jemalloc)
        finally:
            taken.set()
        threading.Event().wait()

    # Without this thread, some memory is returned early.
    with suppress(RuntimeError):
        threading.Thread(target=hold, name="accel-arena", daemon=True).start()
        taken.wait(_START_SECONDS)


def allocate(nbytes: int) -> pa.Buffer:
    """Return a buffer to be filled."""
    return pa.allocate_buffer(nbytes, pool())


def unused_of(resident: int) -> int:
    """Return the part of the resident bytes of the process that Arrow does not report as allocated."""
    own = choice.pool
    return int(resident - pa.total_allocated_bytes() - (own.bytes_allocated() if own is not None else 0))
