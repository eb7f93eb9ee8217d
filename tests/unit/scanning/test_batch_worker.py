"""What comes one by one is gone through in order, some at a time, by one task."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest

from accel.scanning.footer_prefetch import BatchWorker


class Play:
    """BatchWorker of numbers, and what became of them."""

    def __init__(self, most: int) -> None:
        self.tasks: list[asyncio.Task[None]] = []
        self.done: list[list[int]] = []
        self.under_way = 0
        self.ended = 0
        self.broken = False
        self.batches: BatchWorker[int] = BatchWorker(self.start, self.do, most=most, then=self.then)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))

    async def do(self, some: Sequence[int]) -> None:
        self.under_way += 1
        assert self.under_way == 1
        await asyncio.sleep(0)
        self.under_way -= 1
        if self.broken:
            raise ValueError("broken")
        self.done.append(list(some))

    def then(self) -> None:
        self.ended += 1
        self.batches.begin()

    async def end(self) -> None:
        while any(not task.done() for task in self.tasks):
            await asyncio.sleep(0)


@pytest.mark.parametrize(("most", "batches"), [(3, [3, 3, 1]), (7, [7]), (10, [7]), (1, [1] * 7)])
async def test_some_at_a_time_in_order(most: int, batches: list[int]) -> None:
    play = Play(most)
    play.batches.waiting += range(7)
    play.batches.begin()
    play.batches.begin()  # while some are gone through it does nothing
    await play.end()
    assert [len(some) for some in play.done] == batches
    assert [one for some in play.done for one in some] == list(range(7))
    assert (play.ended, len(play.tasks)) == (len(batches), len(batches))
    assert (play.batches.waiting, play.batches.busy) == ([], False)


async def test_what_comes_meanwhile_is_of_the_next() -> None:
    play = Play(10)
    play.batches.waiting.append(1)
    play.batches.begin()
    await asyncio.sleep(0)
    play.batches.waiting.append(2)
    await play.end()
    assert play.done == [[1], [2]]


async def test_nothing_is_begun_for_nothing() -> None:
    play = Play(3)
    play.batches.begin()
    assert play.tasks == []


async def test_a_failure_ends_that_time_only() -> None:
    play = Play(2)
    play.batches.waiting += [1, 2, 3]
    play.broken = True
    play.batches.begin()
    await asyncio.wait(play.tasks)
    assert str(play.tasks[0].exception()) == "broken"
    assert (play.ended, play.batches.busy, play.batches.waiting) == (0, False, [3])
    play.broken = False
    play.batches.begin()
    await play.end()
    assert play.done == [[3]]
