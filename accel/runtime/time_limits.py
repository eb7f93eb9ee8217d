"""How long a call may take: a moment by which everything that it waits for has to end.

The limit belongs to the context of the caller, so that jobs which run in threads of their own keep it.
Whatever waits for the I/O loop is cancelled at that moment, as where a caller gives up: nothing is in flight
afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Coroutine, Iterator
from contextvars import ContextVar
from numbers import Real
from typing import Any, TypeVar

from accel.errors import ScanTimeoutError, redact

__all__ = ["check_time", "check_timeout", "in_time", "seconds_left", "time_limit", "without_limit"]

T = TypeVar("T")


class _Limit:
    """A moment, and the call that has to be done by then."""

    def __init__(self, seconds: float, path: object) -> None:
        self._seconds = seconds
        self._path = None if path is None else str(path)
        self.ends = time.monotonic() + seconds

    def error(self) -> ScanTimeoutError:
        return ScanTimeoutError(
            f"the call was not done within {self._seconds:g} seconds",
            path=self._path,
            hint="allow more seconds; what was complete by then stays",
        )


_current: ContextVar[_Limit | None] = ContextVar("accel_time_limit", default=None)


def check_timeout(timeout: Any) -> float:
    """Return a number of seconds that a caller gave.

    Raises
    ------
    TypeError
        It is no number.
    ValueError
        It is not above 0, or has no end.
    """
    if isinstance(timeout, bool) or not isinstance(timeout, Real):
        raise TypeError(f"timeout is a number of seconds, or None, not {timeout!r:.80}")
    seconds = float(timeout)
    if not 0 < seconds < math.inf:
        raise ValueError(f"timeout is a number of seconds above 0, or None for no end, not {timeout!r}")
    return seconds


@contextlib.contextmanager
def time_limit(seconds: float | None, path: object = None) -> Iterator[None]:
    """Let what the block waits for end after some seconds, with ScanTimeoutError.

    Parameters
    ----------
    seconds : float or None
        None for no limit but that of a call around this one, which holds in any case.
    path : object
        What the call is about, as the error names it.
    """
    path = None if path is None else redact(str(path))
    outer = _current.get()
    limit = None if seconds is None else _Limit(check_timeout(seconds), path)
    if limit is None or (outer is not None and outer.ends <= limit.ends):
        yield
        return
    token = _current.set(limit)
    try:
        yield
    finally:
        _current.reset(token)


@contextlib.contextmanager
def without_limit() -> Iterator[None]:
    """Let the block take its time: it brings to an end, or takes back, what a call has begun."""
    token = _current.set(None)
    try:
        yield
    finally:
        _current.reset(token)


def check_time() -> None:
    """Raise ScanTimeoutError where the time of the call is up; work that waits for nothing calls this now and
    then."""
    limit = _current.get()
    if limit is not None and time.monotonic() >= limit.ends:
        raise limit.error()


def seconds_left() -> float | None:
    """Return how long the call may still take; None where nothing limits it."""
    limit = _current.get()
    return None if limit is None else limit.ends - time.monotonic()


def in_time(coroutine: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
    """Return a coroutine that is cancelled when the time of the call is up; itself without a limit."""
    limit = _current.get()
    return coroutine if limit is None else _end_in_time(coroutine, limit)


async def _end_in_time(coroutine: Coroutine[Any, Any, T], limit: _Limit) -> T:
    left = limit.ends - time.monotonic()
    if left <= 0:
        coroutine.close()
        raise limit.error()
    try:
        async with asyncio.timeout(left) as timer:
            return await coroutine
    except TimeoutError:
        if not timer.expired():
            raise  # it is the error of a request
        raise limit.error() from None
