"""Long work in slices: whoever else is on the loop gets its turn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Self

import pytest

from accel.store import tasks as slices
from accel.store.tasks import breathe, each


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("accel.store.tasks.time.monotonic", clock)
    return clock


class PrioritySemaphore:
    """How often the loop went round."""

    def __init__(self) -> None:
        self.rounds = 0
        self._ended = False

    async def count(self) -> None:
        while not self._ended:
            self.rounds += 1
            await asyncio.sleep(0)

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self.count())
        await asyncio.sleep(0)
        await breathe()  # a slice begins
        self.rounds = 0
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ended = True
        await self._task


async def test_within_a_slice_nothing_is_waited_for(clock: Clock) -> None:
    async with PrioritySemaphore() as turns:
        for _ in range(100):
            await breathe()
            clock.now += 1e-5
        assert turns.rounds == 0


async def test_a_slice_that_is_used_up_lets_the_loop_go_round_once(clock: Clock) -> None:
    async with PrioritySemaphore() as turns:
        for rounds in range(5):
            assert turns.rounds == rounds
            clock.now += 0.01
            await breathe()


async def test_many_that_work_at_once_share_one_slice(clock: Clock) -> None:
    """With 20 of them, each with its own slice, the loop would be held up 20 times as long."""
    held: list[float] = []

    async def work() -> None:
        for _ in range(10):
            await breathe()
            clock.now += 0.0015

    async def watch() -> None:
        last = clock.now
        while len(held) < 2000:
            await asyncio.sleep(0)
            held.append(clock.now - last)
            last = clock.now

    watching = asyncio.create_task(watch())
    await asyncio.gather(*(work() for _ in range(20)))
    watching.cancel()
    assert sum(held) == pytest.approx(20 * 10 * 0.0015, abs=0.004)
    assert max(held) <= 0.0031


async def test_each_gives_everything_in_order() -> None:
    def numbers() -> Iterator[int]:
        yield from range(1000)

    assert await each(numbers(), lambda n: n * n) == [n * n for n in range(1000)]
    assert await each([], lambda n: n) == []


async def test_each_breathes() -> None:
    async with PrioritySemaphore() as turns:
        await each(range(640), lambda n: time.sleep(0.0005))
        assert turns.rounds >= 10


def test_every_loop_has_slices_of_its_own() -> None:
    async def seen() -> bool:
        await breathe()
        return asyncio.get_running_loop() in slices._of_loop

    # A slice kept from a loop that has ended would never begin again: the second run would hang.
    assert all(asyncio.run(seen()) for _ in range(3))
