"""The memory that Arrow's arrays, and what they are decoded from, are put into.

A scan allocates and frees a gigabyte a second in large pieces. Arrow's usual allocator (mimalloc) asks the system for
huge pages, which a busy machine takes milliseconds to clear, and gives all that is free back each second, to touch it
anew. Arrow has another in most of its builds (jemalloc), which keeps what was freed for as long as it is told: Arrow
has it give all back within a second, accel after ten. That holds for whoever else uses that pool in the process.

The setting holds only for arenas made afterwards, one a thread while they last. The first arena exists already and
keeps the old setting (free memory goes back within a second, a free piece of 8 MiB at once), so an idle thread is
made to occupy it.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import Final

import pyarrow as pa

__all__ = ["allocate", "choose_pool", "pool", "unused_of"]

_CHOSEN: Final = "ARROW_DEFAULT_MEMORY_POOL"
"""Who sets this variable of Arrow's has chosen an allocator."""
_KEPT_MS: Final = 10_000
"""How long freed memory is kept, less and less of it."""
_LOOKS: Final = 3
_PATIENCE: Final = 1.0
"""Seconds in which a thread should have begun."""


class _Choice:
    """Which pool it is, and Arrow's other one once it was looked for."""

    __slots__ = ("made", "other", "pool", "process")

    def __init__(self) -> None:
        self.made = False
        self.pool: pa.MemoryPool | None = None
        self.other: pa.MemoryPool | None = None
        self.process = 0
        """In which a thread has the first arena: threads do not survive a fork."""


_choice = _Choice()


def pool() -> pa.MemoryPool | None:
    """Where accel's own allocations go; None for Arrow's default, whichever that is by then."""
    if not _choice.made:
        choose_pool()
    return _choice.pool


def choose_pool() -> None:
    """See which pool it is from now on: the caller's, where one was named or set in place of Arrow's usual one."""
    _choice.pool = _other_pool() if not os.environ.get(_CHOSEN) and _is_usual() else None
    _choice.made = True


def _is_usual() -> bool:
    """Whether Arrow's default pool is mimalloc itself.

    Pools cannot be compared, and one that counts for another bears its name; but it does not count what goes past it.
    A pool that only logs does, and is not told apart.
    """
    default = pa.default_memory_pool()
    if default.backend_name != "mimalloc":
        return False
    usual = pa.mimalloc_memory_pool()
    for _ in range(_LOOKS):
        # Another thread may allocate meanwhile, but hardly each time.
        before = default.num_allocations()
        # Counted as any other; but mimalloc's first byte of a process may have 6 ms of huge pages cleared.
        pa.allocate_buffer(0, usual)
        if default.num_allocations() == before:
            return False
    return True


def _other_pool() -> pa.MemoryPool | None:
    if _choice.other is None:
        try:
            _choice.other = pa.jemalloc_memory_pool()
        except NotImplementedError:
            # Not built for every system.
            return None
    if _choice.process != os.getpid():
        _choice.process = os.getpid()
        _give_away_first_arena(_choice.other)
    return _choice.other


def _give_away_first_arena(jemalloc: pa.MemoryPool) -> None:
    """Start a thread that has it until the process ends, if no other thread has it already, and that tells jemalloc how
    long to keep memory: who tells it anything has an arena from then on."""
    taken = threading.Event()

    def hold() -> None:
        try:
            with suppress(pa.ArrowException):
                pa.jemalloc_set_decay_ms(_KEPT_MS)
            pa.allocate_buffer(1, jemalloc)
        finally:
            taken.set()
        threading.Event().wait()

    # Without it some memory is given back early.
    with suppress(RuntimeError):
        threading.Thread(target=hold, name="accel-arena", daemon=True).start()
        taken.wait(_PATIENCE)


def allocate(nbytes: int) -> pa.Buffer:
    """A buffer to be filled."""
    return pa.allocate_buffer(nbytes, pool())


def unused_of(resident: int) -> int:
    """Of so many bytes that the process holds, those that Arrow does not say are in use."""
    own = _choice.pool
    return int(resident - pa.total_allocated_bytes() - (own.bytes_allocated() if own is not None else 0))
