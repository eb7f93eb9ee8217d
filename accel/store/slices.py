"""Long work on an event loop in slices, so that what else runs there is not kept waiting."""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Callable, Iterable
from typing import TypeVar

__all__ = ["breathe", "each"]

S = TypeVar("S")
T = TypeVar("T")

# Seconds of one slice. A look at the clock costs a ten-thousandth of that.
_SLICE = 0.002
# Items after which `each` looks at the clock.
_BLOCK = 64


class _Slices:
    """The slice of one loop that is running, whoever works in it."""

    def __init__(self) -> None:
        self.until = 0.0
        self.ending = False

    def begin(self) -> None:
        self.until = time.monotonic() + _SLICE
        self.ending = False


_of_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Slices] = weakref.WeakKeyDictionary()


async def breathe() -> None:
    """Awaited between two steps of long work: lets the loop do what else there is once a slice has been used up.

    All that call it on one loop share the slice: many that work at once hold the loop up no longer than one.
    """
    loop = asyncio.get_running_loop()
    slices = _of_loop.get(loop)
    if slices is None:
        slices = _of_loop[loop] = _Slices()
    while time.monotonic() >= slices.until:
        if not slices.ending:
            slices.ending = True
            # The next slice begins with the next round of the loop, before anybody who waits for it.
            loop.call_soon(slices.begin)
        await asyncio.sleep(0)


async def each(items: Iterable[S], do: Callable[[S], T]) -> list[T]:
    """What `do` makes of every item, in order; a few of them at a time where they are many."""
    out: list[T] = []
    for item in items:
        out.append(do(item))
        if not len(out) % _BLOCK:
            await breathe()
    return out
