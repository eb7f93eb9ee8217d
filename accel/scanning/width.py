"""How many requests for files' ends are under way at once: more while it is the network that is waited for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

__all__ = ["Width"]

_AT_FIRST: Final = 128
"""Requests under way at once until it is seen that the loop has time for more."""
_LOOK: Final = 0.005
"""Seconds after which that is looked at, while files wait."""
_MORE: Final = 32
"""How much the limit of requests is raised at a time."""
_BUSY: Final = 0.75
"""A loop that works for more than this share of the time would not be through sooner: more connections only cost it."""


class Width:
    """A limit that grows while the loop is idle. Used on one event loop; `close` ends its timer.

    Parameters
    ----------
    most : int
        It never grows beyond.
    widened : callable
        Called each time that was looked at, whether the limit has grown or not.
    """

    def __init__(self, most: int, *, widened: Callable[[], None]) -> None:
        self._most = most
        self._widened = widened
        self.now = min(most, _AT_FIRST)
        """The limit."""
        self._timer: asyncio.TimerHandle | None = None
        self._since = 0.0
        self._worked = 0.0

    def ask(self) -> None:
        """Somebody waits for the limit to grow: look soon whether it may."""
        if self._timer is None and self.now < self._most:
            self._since, self._worked = time.monotonic(), time.thread_time()
            self._timer = asyncio.get_running_loop().call_later(_LOOK, self._look)

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        if time.thread_time() - self._worked < _BUSY * (time.monotonic() - self._since):
            self.now = min(self.now + _MORE, self._most)
        self._widened()
