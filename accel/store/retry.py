"""How long to wait before a request is sent again, and how often."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from accel.errors import StoreError
from accel.options import Options

__all__ = ["Retry"]

T = TypeVar("T")


def _uniform(least: float, most: float) -> float:
    import random  # takes a millisecond, which a process that repeats nothing need not spend

    return random.uniform(least, most)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Exponential backoff with full jitter. All times are seconds."""

    max_attempts: int
    """Tries, the first included."""
    backoff_base: float
    backoff_max: float
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    uniform: Callable[[float, float], float] = _uniform

    @classmethod
    def of(cls, options: Options) -> Retry:
        return cls(
            max_attempts=options.max_attempts,
            backoff_base=options.backoff_base,
            backoff_max=options.backoff_max,
        )

    def pause(self, failures: int, *, retry_after: float | None = None) -> float:
        """The wait after so many failures: random, but no shorter than the server asks for.

        Never longer than `backoff_max`, whatever the server asks for.
        """
        most = min(self.backoff_max, self.backoff_base * 2.0 ** min(failures - 1, 60))
        wait = self.uniform(0.0, most)
        if retry_after is not None and retry_after > wait:
            wait = retry_after
        return min(wait, self.backoff_max)

    async def wait(self, failures: int, failure: StoreError) -> None:
        """Wait before the next try, or raise the failure when there is none left or it would not help."""
        if not failure.transient or failures >= self.max_attempts:
            if failure.transient and self.max_attempts > 1:
                failure.message = f"{failure.message}, {failures} times"
                failure.hint = failure.hint or "options.max_attempts says how often to try"
            raise failure
        await self.sleep(self.pause(failures, retry_after=failure.retry_after))

    async def run(self, attempt: Callable[[], Awaitable[T]], *, on_retry: Callable[[], None]) -> T:
        """Call `attempt` until it succeeds, or fails for good. `on_retry` is called before each repetition."""
        failures = 0
        while True:
            try:
                return await attempt()
            except StoreError as error:
                failures += 1
                failure = error
            await self.wait(failures, failure)
            on_retry()
