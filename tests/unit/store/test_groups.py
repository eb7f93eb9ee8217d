"""A group that is cancelled while it ends for another reason."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine
from typing import Any

import pytest

from accel.store.tasks import Group


async def fail() -> None:
    raise ValueError("no")


async def end_slowly(go: asyncio.Event) -> None:
    try:
        await asyncio.sleep(60)
    finally:
        await go.wait()


async def cancel_after(turns: int, work: Coroutine[Any, Any, None], go: asyncio.Event) -> None:
    """It comes out cancelled, whatever else it met."""
    task = asyncio.create_task(work)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def test_a_cancellation_outlives_a_failure() -> None:
    """It comes while the group waits for what it has cancelled because of the failure."""
    go = asyncio.Event()

    async def work() -> None:
        async with Group() as group:
            group.create_task(end_slowly(go))
            await asyncio.sleep(0)
            group.create_task(fail())

    await cancel_after(5, work(), go)


async def test_a_cancellation_outlives_a_failure_that_came_before_the_end() -> None:
    """The group has ended its own body for the failure, and waits for the others when it is cancelled."""
    go = asyncio.Event()

    async def work() -> None:
        async with Group() as group:
            group.create_task(end_slowly(go))
            group.create_task(fail_after(1))
            await asyncio.sleep(60)

    await cancel_after(8, work(), go)


async def test_a_cancellation_comes_once() -> None:
    """What awaits something while it ends by it is not cut short."""
    go = asyncio.Event()
    ended: list[str] = []

    async def work() -> None:
        try:
            async with Group() as group:
                group.create_task(end_slowly(go))
                await asyncio.sleep(0)
                group.create_task(fail())
        finally:
            await asyncio.sleep(0)
            ended.append("in order")

    await cancel_after(5, work(), go)
    assert ended == ["in order"]


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
    ended: list[ExceptionGroup[Exception]] = []

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
    assert [str(error.exceptions[0]) for error in ended] == ["no"]


async def test_values_come_out_of_a_group() -> None:
    async with Group() as group:
        tasks = [group.create_task(asyncio.sleep(0, number)) for number in range(3)]
    assert [task.result() for task in tasks] == [0, 1, 2]


async def fail_after(turns: int, *, fails: bool = True) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)
    if fails:
        raise ValueError("no")


@pytest.mark.parametrize("inner", ["a task", "awaited", "inside", "caught"])
async def test_no_order_of_failures_is_a_cancellation(inner: str) -> None:
    """Groups within each other whose tasks fail in every order of a few rounds: nobody has cancelled anything."""

    async def lower(turns: int, fails: bool, others: int, body: int) -> None:
        async with Group() as group:
            group.create_task(fail_after(turns, fails=fails))
            group.create_task(fail_after(others))
            await fail_after(body, fails=False)

    async def upper(turns: tuple[int, ...], fails: tuple[bool, ...], body: int) -> None:
        async with Group() as group:
            for count, fail in zip(turns[:2], fails, strict=False):
                group.create_task(fail_after(count, fails=fail))
            below = lower(turns[2], fails[2], turns[3], body)
            if inner == "a task":
                group.create_task(below)
            elif inner == "awaited":
                await group.create_task(below)
            elif inner == "inside":
                await below
            else:
                try:
                    await below
                except* ValueError:
                    pass
            await fail_after(body, fails=False)

    for turns in itertools.product(range(3), repeat=4):
        for fails in itertools.product((False, True), repeat=3):
            for body in (0, 2):
                task = asyncio.create_task(upper(turns, fails, body))
                await asyncio.wait([task])
                assert not task.cancelled(), (turns, fails, body)
                assert not task.cancelling(), (turns, fails, body)
                assert task.exception() is not None or inner == "caught"
