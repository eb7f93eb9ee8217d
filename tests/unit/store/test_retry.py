"""How long to wait, and when to stop."""

from __future__ import annotations

import pytest

from accel.errors import StoreError
from accel.options import Options
from accel.store.fetch import Retry


class Clock:
    def __init__(self, share: float = 1.0) -> None:
        self.slept: list[float] = []
        self.share = share

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def uniform(self, low: float, high: float) -> float:
        return low + (high - low) * self.share

    def retry(self, attempts: int = 6) -> Retry:
        return Retry(
            max_attempts=attempts, backoff_base=0.1, backoff_max=1.0, sleep=self.sleep, uniform=self.uniform
        )


@pytest.mark.parametrize(
    ("failures", "share", "retry_after", "expected"),
    [
        (1, 1.0, None, 0.1),
        (2, 1.0, None, 0.2),
        (3, 1.0, None, 0.4),
        (4, 1.0, None, 0.8),
        (5, 1.0, None, 1.0),
        (10_000, 1.0, None, 1.0),
        (3, 0.0, None, 0.0),
        (3, 0.5, None, 0.2),
        (1, 0.0, 0.7, 0.7),
        (1, 1.0, 0.05, 0.1),
        (1, 1.0, 3600.0, 1.0),
    ],
)
def test_pause(failures: int, share: float, retry_after: float | None, expected: float) -> None:
    assert Clock(share).retry().pause(failures, retry_after=retry_after) == pytest.approx(expected)


def test_it_is_made_of_the_options() -> None:
    it = Retry.of(Options(max_attempts=3, backoff_base=0.5, backoff_max=7.0))
    assert (it.max_attempts, it.backoff_base, it.backoff_max) == (3, 0.5, 7.0)


def transient(retry_after: float | None = None) -> StoreError:
    return StoreError("busy", transient=True, retry_after=retry_after)


async def attempt(clock: Clock, outcomes: list[StoreError | int], attempts: int = 6) -> tuple[int, int]:
    tries = repeats = 0

    async def once() -> int:
        nonlocal tries
        outcome = outcomes[tries]
        tries += 1
        if isinstance(outcome, StoreError):
            raise outcome
        return outcome

    def again() -> None:
        nonlocal repeats
        repeats += 1

    return await clock.retry(attempts).run(once, on_retry=again), repeats


async def test_it_goes_on_until_success() -> None:
    clock = Clock()
    assert await attempt(clock, [transient(), transient(0.9), 7]) == (7, 2)
    assert clock.slept == pytest.approx([0.1, 0.9])


async def test_it_gives_up_after_the_last_attempt() -> None:
    clock = Clock()
    with pytest.raises(StoreError, match="busy, 3 times"):
        await attempt(clock, [transient(), transient(), transient(), 7], attempts=3)
    assert clock.slept == pytest.approx([0.1, 0.2])


async def test_what_would_not_help_is_not_tried() -> None:
    clock = Clock()
    with pytest.raises(StoreError, match="^no$"):
        await attempt(clock, [StoreError("no"), 7])
    assert clock.slept == []
