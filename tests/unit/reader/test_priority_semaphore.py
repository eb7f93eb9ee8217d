"""PrioritySemaphore: the place that is wanted soonest goes first, and nobody who leaves takes a turn along."""

from __future__ import annotations

import asyncio

import pytest

from accel.reader.admission import Place, PrioritySemaphore


async def entered(
    semaphore: PrioritySemaphore, place: Place, gone: list[Place], leave: asyncio.Event
) -> None:
    async with semaphore.at(place):
        gone.append(place)
        await leave.wait()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_the_lowest_place_goes_first() -> None:
    semaphore, gone = PrioritySemaphore(2), list[Place]()
    leave = asyncio.Event()
    places: list[Place] = [
        (1, (0, 5)),
        (1, (0, 4)),
        (1, (0, 3)),
        (1, (0, 1, 2)),
        (1, (0, 1)),
        (0, (0, 9)),
        (1, (1, 0)),
    ]
    async with asyncio.TaskGroup() as group:
        for place in places:
            group.create_task(entered(semaphore, place, gone, leave))
        await settle()
        # There was room for the first two as they came.
        assert gone == places[:2]
        leave.set()
    assert gone == [*places[:2], (0, (0, 9)), (1, (0, 1)), (1, (0, 1, 2)), (1, (0, 3)), (1, (1, 0))]


async def test_two_of_one_place_go_as_they_came() -> None:
    semaphore, gone = PrioritySemaphore(1), list[int]()

    async def one(number: int) -> None:
        async with semaphore.at((1, (0, 0))):
            gone.append(number)
            await asyncio.sleep(0)

    await asyncio.gather(*map(one, range(5)))
    assert gone == [0, 1, 2, 3, 4]


async def test_who_is_cancelled_leaves_its_turn_to_the_next() -> None:
    semaphore, gone = PrioritySemaphore(1), list[Place]()
    leave = asyncio.Event()
    first = asyncio.create_task(entered(semaphore, (1, (0, 0)), gone, leave))
    await settle()
    waiting = [asyncio.create_task(entered(semaphore, (1, (0, at)), gone, leave)) for at in (1, 2, 3)]
    await settle()
    # One that waits, the one that has just been let in, and the one that holds the turn.
    waiting[0].cancel()
    first.cancel()
    await settle()
    assert gone == [(1, (0, 0)), (1, (0, 2))]
    waiting[1].cancel()
    await settle()
    assert gone[-1] == (1, (0, 3))
    leave.set()
    await waiting[2]
    async with asyncio.timeout(1), semaphore.at((1, (9, 9))):
        pass


async def test_cancelled_in_the_moment_it_was_let_in() -> None:
    semaphore = PrioritySemaphore(1)
    await semaphore.acquire((1, (0, 0)))
    waiting = asyncio.create_task(semaphore.acquire((1, (0, 1))))
    await settle()
    semaphore.release()
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    async with asyncio.timeout(1), semaphore.at((1, (0, 2))):
        pass


async def test_an_error_inside_lets_the_next_one_in() -> None:
    semaphore = PrioritySemaphore(1)
    for _ in range(3):
        with pytest.raises(KeyError):
            async with asyncio.timeout(1), semaphore.at((0, (0,))):
                raise KeyError
