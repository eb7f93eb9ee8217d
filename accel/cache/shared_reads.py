"""Ranges that are being read, each by one for all who want it meanwhile."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import TypeAlias

from accel.arrays import own_copy
from accel.ranges import ByteRange, ReadKey, Stash, Want

__all__ = ["SharedReads"]

Load: TypeAlias = Callable[[Sequence[Want]], Awaitable[Stash]]

# A range that is handed on as a part of something so many times as long is copied, that the rest may go.
_SLACK = 2


class _Outcome(enum.Enum):
    CAME = enum.auto()
    FAILED = enum.auto()
    CANCELLED = enum.auto()


class _Reading:
    """One read, and who waits for it."""

    __slots__ = ("came", "joined", "outcome", "waiting")

    def __init__(self) -> None:
        self.outcome: _Outcome | None = None
        """None while it is under way."""
        self.joined = False
        """Somebody will want what comes."""
        self.came: dict[ByteRange, memoryview] = {}
        self.waiting: list[asyncio.Future[None]] = []

    async def ended(self) -> _Outcome:
        """Wait for it; who is cancelled meanwhile leaves it alone."""
        while self.outcome is None:
            told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.waiting.append(told)
            await told
        return self.outcome

    def end(self, outcome: _Outcome) -> None:
        self.outcome = outcome
        for told in self.waiting:
            if not told.done():
                told.set_result(None)


class SharedReads:
    """The reads of pinned versions that are under way. Loops do not share; threads may.

    Notes
    -----
    Whoever first wants a range reads it, and hands it to those who want the very same before it has come. Where that
    read is cancelled, one of them reads for the others; where it fails, each reads for itself: nobody fails or ends
    by what happened to another. What was read is handed out before its reader waits for others, so that none waits
    for ever.
    """

    def __init__(self) -> None:
        self._under_way: dict[Hashable, dict[ByteRange, _Reading]] = {}

    def __len__(self) -> int:
        return len(self._under_way)

    async def read(self, version: Hashable, wants: Sequence[Want], load: Load) -> tuple[Stash, int]:
        """The wanted bytes, by `load` those that nobody is reading yet; and the round trips that this took.

        Parameters
        ----------
        version : hashable
            The version of the object, and who reads it.
        wants : sequence of Want
        load : callable
            Reads some of them.
        """
        place = (id(asyncio.get_running_loop()), version)
        if place not in self._under_way:
            return await self._lead(place, wants, load), 1
        found: dict[ReadKey, memoryview] = {}
        trips = 0
        while wants:
            under_way = self._under_way.get(place, {})
            joined: list[tuple[Want, _Reading]] = []
            others: list[Want] = []
            for want in wants:
                reading = under_way.get(want.range)
                if reading is None:
                    others.append(want)
                else:
                    reading.joined = True
                    joined.append((want, reading))
            if others:
                found |= await self._lead(place, others, load)
            wants, alone = await _take(joined, found)
            if alone:
                found |= await load(alone)
                trips += 1
            trips += 1
        return found, trips

    async def _lead(self, place: Hashable, wants: Sequence[Want], load: Load) -> Stash:
        """Read, and hand out."""
        reading = _Reading()
        under_way = self._under_way.setdefault(place, {})
        for want in wants:
            under_way[want.range] = reading
        outcome = _Outcome.CANCELLED
        try:
            came = await load(wants)
            if reading.joined:
                reading.came = {want.range: came[want.key] for want in wants}
            outcome = _Outcome.CAME
        except Exception:
            outcome = _Outcome.FAILED
            raise
        finally:
            for want in wants:
                under_way.pop(want.range, None)
            if not under_way:
                self._under_way.pop(place, None)
            reading.end(outcome)
        return came


async def _take(
    joined: Sequence[tuple[Want, _Reading]], found: dict[ReadKey, memoryview]
) -> tuple[list[Want], list[Want]]:
    """Add what others read, once it has come; what is to be read after all, for others too and by itself."""
    again: list[Want] = []
    alone: list[Want] = []
    for want, reading in joined:
        outcome = await reading.ended()
        if outcome is _Outcome.CAME:
            found[want.key] = _apart(reading.came[want.range])
        else:
            (again if outcome is _Outcome.CANCELLED else alone).append(want)
    return again, alone


def _apart(view: memoryview) -> memoryview:
    """The range, not holding much else in memory."""
    if memoryview(view.obj).nbytes <= _SLACK * view.nbytes:
        return view
    return memoryview(own_copy(view))
