"""Things that come one by one and are gone through some at a time, by one task."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Generic, TypeVar

__all__ = ["Batches"]

T = TypeVar("T")


class Batches(Generic[T]):
    """What waits is gone through in the order it came in.

    Parameters
    ----------
    start : callable
        Makes a task of a coroutine, and owns it.
    do : callable
        Awaited with some of them.
    most : int
        So many at a time, at most.
    then : callable
        Called after each time that has not failed.
    """

    def __init__(
        self,
        start: Callable[[Coroutine[Any, Any, None]], None],
        do: Callable[[Sequence[T]], Awaitable[None]],
        *,
        most: int,
        then: Callable[[], None],
    ) -> None:
        self._start = start
        self._do = do
        self._most = most
        self._then = then
        self.waiting: list[T] = []
        self.busy = False

    def begin(self) -> None:
        """Go through the first of them, unless some are being gone through."""
        if self.waiting and not self.busy:
            self.busy = True
            self._start(self._go())

    async def _go(self) -> None:
        some, self.waiting = self.waiting[: self._most], self.waiting[self._most :]
        try:
            await self._do(some)
        finally:
            self.busy = False
        self._then()
