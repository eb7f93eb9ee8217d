"""The memory that Arrow's arrays, and what they are decoded from, are put into.

A scan allocates and frees a gigabyte a second in large pieces. Arrow's usual allocator (mimalloc) asks the system for
huge pages, which a busy machine takes milliseconds to clear, and gives all that is free back each second, to touch it
anew. Arrow has another in most of its builds (jemalloc), which keeps what was freed for as long as it is told.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Final

import pyarrow as pa

__all__ = ["allocate", "pool", "unused_of"]

_CHOSEN: Final = "ARROW_DEFAULT_MEMORY_POOL"
"""Who sets this variable of Arrow's has chosen an allocator."""
_KEPT_MS: Final = 10_000
"""How long freed memory is kept, less and less of it."""


@cache
def pool() -> pa.MemoryPool | None:
    """Where accel's own allocations go; None for Arrow's default, whichever that is by then."""
    if os.environ.get(_CHOSEN):
        return None
    try:
        found = pa.jemalloc_memory_pool()
        pa.jemalloc_set_decay_ms(_KEPT_MS)
    except (NotImplementedError, pa.ArrowException):
        # Not built for every system.
        return None
    return found


def allocate(nbytes: int) -> pa.Buffer:
    """A buffer to be filled."""
    return pa.allocate_buffer(nbytes, pool())


def unused_of(resident: int) -> int:
    """Of so many bytes that the process holds, those that Arrow does not say are in use."""
    own = pool()
    return int(resident - pa.total_allocated_bytes() - (own.bytes_allocated() if own is not None else 0))
