"""How many requests, and how many bytes, may be under way at once."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from types import TracebackType

__all__ = ["Gate", "Slot"]


class Gate:
    """First come, first served. Used on one event loop.

    Parameters
    ----------
    max_requests : int
        Requests under way at once.
    max_bytes : int
        Sum of the bytes that they have asked for. One request alone may ask for more.
    """

    def __init__(self, max_requests: int, *, max_bytes: int) -> None:
        self.max_requests = max_requests
        self._max_bytes = max_bytes
        self.requests = 0
        self.bytes = 0
        self._queue: deque[tuple[asyncio.Future[None], int]] = deque()

    @property
    def has_room(self) -> bool:
        """Whether one more request would be sent at once."""
        return not self._queue and self.requests < self.max_requests

    def slot(self, length: int) -> Slot:
        """Entered, waits for room for a request of `length` bytes, and holds it."""
        return Slot(self, length)

    def take_at_once(self, length: int) -> bool:
        """Take room for a request if nobody waits and there is enough."""
        if self._queue or not self._fits(length):
            return False
        self._take(length)
        return True

    async def take(self, length: int) -> None:
        """Wait for room, and take it: see `slot`."""
        if not self.take_at_once(length):
            await self._wait(length)

    async def _wait(self, length: int) -> None:
        turn = asyncio.get_running_loop().create_future()
        ticket = (turn, length)
        self._queue.append(ticket)
        try:
            await turn  # whoever wakes it has taken the room on its behalf
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release(length)
            else:
                with suppress(ValueError):  # a waker may have dropped it already
                    self._queue.remove(ticket)
                self._wake()
            raise

    def _fits(self, length: int) -> bool:
        if self.requests == 0:
            return True
        return self.requests < self.max_requests and self.bytes + length <= self._max_bytes

    def _take(self, length: int) -> None:
        self.requests += 1
        self.bytes += length

    def release(self, length: int) -> None:
        """Give back what was taken."""
        self.requests -= 1
        self.bytes -= length
        if self._queue:
            self._wake()

    def _wake(self) -> None:
        while self._queue and self._fits(self._queue[0][1]):
            turn, length = self._queue.popleft()
            if not turn.done():
                self._take(length)
                turn.set_result(None)


class Slot:
    """Room for one request, taken by entering it: each request does, and a generator would take twice as long."""

    __slots__ = ("_gate", "_length")

    def __init__(self, gate: Gate, length: int) -> None:
        self._gate = gate
        self._length = length

    async def __aenter__(self) -> None:
        await self._gate.take(self._length)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._gate.release(self._length)
