"""A group that is cancelled while it ends for another reason."""

from __future__ import annotations

import asyncio

import pytest

from accel.io.groups import Group


async def fail() -> None:
    raise ValueError("no")


async def end_slowly(go: asyncio.Event) -> None:
    try:
        await asyncio.sleep(60)
    finally:
        await go.wait()


async def test_a_cancellation_outlives_a_failure() -> None:
    """It comes while the group waits for what it has cancelled because of the failure."""
    go = asyncio.Event()

    async def work() -> None:
        async with Group() as group:
            group.create_task(end_slowly(go))
            await asyncio.sleep(0)
            group.create_task(fail())

    task = asyncio.create_task(work())
    for _ in range(5):
        await asyncio.sleep(0)
    task.cancel()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def test_a_failure_alone_comes_out() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        async with Group() as group:
            group.create_task(fail())
    assert [str(error) for error in caught.value.exceptions] == ["no"]
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()


async def test_an_earlier_cancellation_does_not_count() -> None:
    """That the caller has caught, and chosen not to end by."""
    ended: list[BaseException] = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            try:
                async with Group() as group:
                    group.create_task(fail())
            except ExceptionGroup as error:
                ended.append(error)

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    await task
    assert len(ended) == 1


async def test_values_come_out_of_a_group() -> None:
    async with Group() as group:
        tasks = [group.create_task(asyncio.sleep(0, number)) for number in range(3)]
    assert [task.result() for task in tasks] == [0, 1, 2]
