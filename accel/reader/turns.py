"""Which of the pieces that have come are decoded next: those wanted soonest, not those that came first.

Answers of many requests come in any order, about together. Decoded in that order, the first piece of a file could be
the last to be ready, and hold back all that it keeps waiting: the consumer, and the requests of pieces not admitted yet.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from types import TracebackType
from typing import TypeAlias

from accel.reader.admission import Priority

__all__ = ["Place", "Turn", "Turns"]

Place: TypeAlias = tuple[int, Priority]
"""Lower goes first: filters before what their result has to be asked for, then pieces in order."""


class Turns:
    """So many at once, the lowest place first. Used on one event loop."""

    __slots__ = ("_came", "_free", "_waiting")

    def __init__(self, at_once: int) -> None:
        self._free = at_once
        # Two of one place go as they came: futures have no order.
        self._came = itertools.count()
        self._waiting: list[tuple[Place, int, asyncio.Future[None]]] = []

    def at(self, place: Place) -> Turn:
        """Entered, waits for its turn; left, lets the next one in."""
        return Turn(self, place)

    async def take(self, place: Place) -> None:
        """Wait for the turn of a place: see `at`."""
        if self._free:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (place, next(self._came), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give()
            raise

    def give(self) -> None:
        """Let the next one in."""
        while self._waiting:
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


class Turn:
    """One stay: see `Turns.at`."""

    __slots__ = ("_place", "_turns")

    def __init__(self, turns: Turns, place: Place) -> None:
        self._turns = turns
        self._place = place

    async def __aenter__(self) -> None:
        await self._turns.take(self._place)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._turns.give()
