"""Long work on an event loop in slices, so that what else runs there is not kept waiting."""

from __future__ import annotations

import asyncio
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeVar

__all__ = ["breathe", "each"]

S = TypeVar("S")
T = TypeVar("T")

# Seconds of one slice. A look at the clock costs a ten-thousandth of that.
_SLICE = 0.002
# So many that have waited are called in a round of the loop, at most.
_MOST = 64
# Items after which `each` looks at the clock.
_BLOCK = 64


class _Slices:
    """Whose turn it is on one loop, whoever works there."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)
        self.until = 0.0
        self.waiting: deque[asyncio.Future[None]] = deque()
        self._again: list[asyncio.Future[None]] = []
        """Those for whom nothing was left of the slice that they were called in."""
        self._most = _MOST
        self._begins = False
        self._called = False

    async def turn(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wait for one: first come, first served."""
        turn = loop.create_future()
        self.waiting.append(turn)
        while True:
            if not self._called:
                self._called = True
                loop.call_soon(self._call)
            await turn
            now = time.monotonic()
            if self._begins or now < self.until:
                break
            turn = loop.create_future()
            self._again.append(turn)
        if self._begins:
            self._begins = False
            self.until = now + _SLICE

    def _call(self) -> None:
        """As many as should fit into a slice, once in each round of the loop: asked one by one, all would ask again."""
        again, waiting = self._again, self.waiting
        left = self._most = max(1, self._most - len(again)) if again else min(self._most + 1, _MOST)
        waiting.extendleft(reversed(again))
        again.clear()
        while waiting and left:
            turn = waiting.popleft()
            if not turn.done():  # cancelled
                turn.set_result(None)
                left -= 1
                self._begins = True
        loop = self._loop()
        self._called = bool(waiting) and loop is not None
        if self._called and loop is not None:
            loop.call_soon(self._call)


_of_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Slices] = weakref.WeakKeyDictionary()


async def breathe() -> None:
    """Awaited between two steps of long work: lets the loop do what else there is once a slice has been used up.

    All that call it on one loop share the slice: many that work at once hold the loop up no longer than one, and go on
    in the order in which they came to wait.
    """
    loop = asyncio.get_running_loop()
    slices = _of_loop.get(loop)
    if slices is None:
        slices = _of_loop[loop] = _Slices(loop)
    if slices.waiting or time.monotonic() >= slices.until:
        await slices.turn(loop)


async def each(items: Iterable[S], do: Callable[[S], T]) -> list[T]:
    """What `do` makes of every item, in order; a few of them at a time where they are many."""
    out: list[T] = []
    for item in items:
        out.append(do(item))
        if not len(out) % _BLOCK:
            await breathe()
    return out
