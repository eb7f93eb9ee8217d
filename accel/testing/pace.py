"""When a paced answer may go on, and in what pieces."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from accel.ranges import Buffer

__all__ = ["NOW", "lead", "piece_size", "pieces", "until"]

NOW = 0.0005
"""What is due within so many seconds is done at once: loops wait in whole milliseconds."""
_LEAST = 64 * 1024
_UNPACED = 1 << 20
# A piece is sent when its last byte is due; so much later than a network's its first one comes.
_PIECE_SECONDS = 0.002


def lead(loop: asyncio.AbstractEventLoop) -> float:
    """Seconds by which to aim early, so that the mean is right: asyncio rounds waits up, uvloop to the nearest."""
    return 0.0 if type(loop).__module__.startswith("uvloop") else NOW


def piece_size(bandwidth: float | None) -> int:
    """Bytes to hand over at once, at `bandwidth` bytes a second (None: no limit)."""
    return _UNPACED if bandwidth is None else max(_LEAST, int(bandwidth * _PIECE_SECONDS))


async def pieces(
    body: AsyncIterator[Buffer], bandwidth: float | None, stop_at: int | None = None
) -> AsyncIterator[memoryview]:
    """The body in pieces small enough to pace, with an edge exactly at `stop_at`."""
    done, most = 0, piece_size(bandwidth)
    async for chunk in body:
        view = memoryview(chunk)
        while len(view):
            size = len(view) if bandwidth is None else most
            if stop_at is not None and done < stop_at:
                size = min(size, stop_at - done)
            yield view[:size]
            done += len(view[:size])
            view = view[size:]


async def until(due: float) -> None:
    """Sleep until `due` of `time.monotonic`, give or take half a millisecond."""
    # uvloop counts from when its turn began, so that a busy one wakes early.
    while (delay := due - time.monotonic()) > NOW:
        await asyncio.sleep(delay - lead(asyncio.get_running_loop()))
