"""How far a job is, and how a job that blocks is run from a coroutine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from accel.runtime.tasks import see

__all__ = ["JobProgress", "Progress", "run_to_end"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JobProgress:
    """How far a job over a directory is."""

    stage: str
    """"sample", "read" or "write" (rows), "files"; on Spark "sample", "write", "embed" or "describe"
    (tasks)."""
    done: int
    """Rows, files or tasks that are done in this stage."""
    total: int
    """All of them."""


Progress = Callable[[JobProgress], None]


async def run_to_end(work: Callable[[], T], cancelled: threading.Event) -> T:
    """Run blocking work in a thread; where the caller is cancelled, set `cancelled` and wait until the work
    has ended."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        cancelled.set()
        # Even if it is cancelled again it waits: the thread may be putting a new file in place.
        while not running.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait((running,))
        see(running)
        raise
