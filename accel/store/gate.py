"""A gate: how many requests, decodings or other pieces of work may be under way at once, and how many
bytes."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from types import TracebackType

__all__ = ["Gate", "Slot", "open_file_limit"]


def open_file_limit() -> int:
    """Return how many files the process may have open; 65,536 where the system sets no limit."""
    try:
        import resource
    except ImportError:
        return 1 << 16
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if 0 <= soft < 1 << 16 else 1 << 16


class Gate:
    """Bounds how many users are inside at once, and the bytes that they take. Used on one event loop.

    Whoever waits is admitted by priority, then in the order of arrival, and nobody overtakes.

    Parameters
    ----------
    max_users : int
        Users inside at once.
    max_bytes : int, optional
        Sum of the bytes that they take. One user alone may take more. None: no bound.
    """

    __slots__ = ("_arrivals", "_max_bytes", "_max_users", "_waiting", "bytes", "users")

    def __init__(self, max_users: int, *, max_bytes: int | None = None) -> None:
        self._max_users = max_users
        self._max_bytes = max_bytes
        self.users = 0
        self.bytes = 0
        # Two of one priority are ordered by their arrival, as futures cannot be compared.
        self._arrivals = itertools.count()
        self._waiting: list[tuple[tuple[object, ...], int, int, asyncio.Future[None]]] = []

    def slot(self, length: int = 0, *, priority: tuple[object, ...] = ()) -> Slot:
        """Return a context that waits for room for `length` bytes, and gives it back at its end.

        The lowest `priority` goes first; all priorities of one gate must be comparable.
        """
        return Slot(self, length, priority)

    def take_at_once(self, length: int) -> bool:
        """Take room if nobody waits and there is enough; return whether it was taken."""
        if self._waiting or not self._fits(length):
            return False
        self._take(length)
        return True

    async def take(self, length: int, *, priority: tuple[object, ...] = ()) -> None:
        """Wait for room, and take it: see `slot`."""
        if self.take_at_once(length):
            return
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (priority, next(self._arrivals), length, ready))
        try:
            await ready  # `_wake` has taken the room on behalf of this task
        except asyncio.CancelledError:
            if ready.done() and not ready.cancelled():
                self.release(length)
            else:
                ready.cancel()
                self._wake()
            raise

    def release(self, length: int = 0) -> None:
        """Give back what was taken."""
        self.users -= 1
        self.bytes -= length
        self._wake()

    def _fits(self, length: int) -> bool:
        if self.users == 0:
            return True
        fits = self._max_bytes is None or self.bytes + length <= self._max_bytes
        return fits and self.users < self._max_users

    def _take(self, length: int) -> None:
        self.users += 1
        self.bytes += length

    def _wake(self) -> None:
        while self._waiting:
            _, _, length, ready = self._waiting[0]
            if not ready.done():
                if not self._fits(length):
                    return
                self._take(length)
                ready.set_result(None)
            heapq.heappop(self._waiting)


class Slot:
    """A stay inside a gate. It is a class, as a generator would take twice as long, and each request enters
    one."""

    __slots__ = ("_gate", "_length", "_priority")

    def __init__(self, gate: Gate, length: int, priority: tuple[object, ...]) -> None:
        self._gate = gate
        self._length = length
        self._priority = priority

    async def __aenter__(self) -> None:
        await self._gate.take(self._length, priority=self._priority)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._gate.release(self._length)
