"""Users and bytes inside a gate: bounded, admitted by priority and then in the order of arrival."""

from __future__ import annotations

import asyncio
from typing import TypeAlias

import pytest

from accel.store.gate import Gate


class Users:
    """Tasks that hold a slot until told to go."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.inside: list[int] = []
        self._leave: dict[int, asyncio.Event] = {}
        self.tasks: dict[int, asyncio.Task[None]] = {}

    async def enter(self, number: int, length: int) -> None:
        self._leave[number] = asyncio.Event()
        self.tasks[number] = asyncio.ensure_future(self._use(number, length))
        await settle()

    async def leave(self, number: int) -> None:
        self._leave[number].set()
        await settle()

    async def _use(self, number: int, length: int) -> None:
        async with self.gate.slot(length):
            self.inside.append(number)
            try:
                await self._leave[number].wait()
            finally:
                self.inside.remove(number)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_requests_are_bounded_and_served_in_order() -> None:
    users = Users(Gate(2, max_bytes=1000))
    for number in range(4):
        await users.enter(number, 1)
    assert users.inside == [0, 1]
    await users.leave(1)
    assert users.inside == [0, 2]
    await users.leave(0)
    assert users.inside == [2, 3]
    for number in (2, 3):
        await users.leave(number)
    assert (users.gate.users, users.gate.bytes) == (0, 0)


async def test_bytes_are_bounded_and_nobody_overtakes() -> None:
    users = Users(Gate(10, max_bytes=100))
    await users.enter(0, 60)
    await users.enter(1, 50)
    await users.enter(2, 10)  # would fit, but 1 came first
    assert users.inside == [0]
    await users.leave(0)
    assert users.inside == [1, 2]
    assert users.gate.bytes == 60
    for number in (1, 2):
        await users.leave(number)


async def test_one_alone_may_exceed_the_bytes() -> None:
    users = Users(Gate(10, max_bytes=100))
    await users.enter(0, 5000)
    assert users.inside == [0]
    await users.enter(1, 1)
    assert users.inside == [0]
    await users.leave(0)
    assert users.inside == [1]
    await users.leave(1)


@pytest.mark.parametrize("released_first", [False, True], ids=["while waiting", "just as its turn came"])
async def test_a_cancelled_waiter_leaves_no_hole(released_first: bool) -> None:
    users = Users(Gate(1, max_bytes=100))
    for number in range(3):
        await users.enter(number, 10)
    if released_first:
        users._leave[0].set()
        while users.gate.users == 1 and 0 in users.inside:
            await asyncio.sleep(0)
    users.tasks[1].cancel()
    await users.leave(0)
    assert users.inside == [2]
    await users.leave(2)
    assert (users.gate.users, users.gate.bytes) == (0, 0)


async def test_who_waited_behind_one_that_is_cancelled_has_its_turn() -> None:
    users = Users(Gate(10, max_bytes=100))
    for number, length in enumerate((60, 50, 10)):
        await users.enter(number, length)
    assert users.inside == [0]
    users.tasks[1].cancel()
    await settle()
    assert (users.inside, users.gate.bytes) == ([0, 2], 70)
    for number in (0, 2):
        await users.leave(number)


async def test_a_failure_inside_gives_the_room_back() -> None:
    gate = Gate(1, max_bytes=100)
    with pytest.raises(RuntimeError):
        async with gate.slot(10):
            raise RuntimeError
    assert (gate.users, gate.bytes) == (0, 0)


async def test_room_is_taken_at_once_only_where_nobody_waits_for_it() -> None:
    gate = Gate(2, max_bytes=100)
    assert (gate.take_at_once(60), gate.take_at_once(60), gate.users, gate.bytes) == (True, False, 1, 60)
    users = Users(gate)
    await users.enter(1, 60)
    # It would fit, but another was first.
    assert (users.inside, gate.take_at_once(10)) == ([], False)
    gate.release(60)
    await settle()
    assert (users.inside, gate.take_at_once(10), gate.bytes) == ([1], True, 70)
    gate.release(10)
    await users.leave(1)
    assert (gate.users, gate.bytes) == (0, 0)


Priority: TypeAlias = tuple[int, tuple[int, ...]]


async def _enter(gate: Gate, priority: Priority, admitted: list[Priority], leave: asyncio.Event) -> None:
    async with gate.slot(priority=priority):
        admitted.append(priority)
        await leave.wait()


async def test_the_lowest_priority_goes_first() -> None:
    gate, admitted, leave = Gate(2), list[Priority](), asyncio.Event()
    priorities: list[Priority] = [
        (1, (0, 5)),
        (1, (0, 4)),
        (1, (0, 3)),
        (1, (0, 1, 2)),
        (1, (0, 1)),
        (0, (0, 9)),
        (1, (1, 0)),
    ]
    async with asyncio.TaskGroup() as group:
        for priority in priorities:
            group.create_task(_enter(gate, priority, admitted, leave))
        await settle()
        # There was room for the first two when they came.
        assert admitted == priorities[:2]
        leave.set()
    assert admitted == [*priorities[:2], *sorted(priorities[2:])]


async def test_two_of_one_priority_go_as_they_came() -> None:
    gate, admitted = Gate(1), list[int]()

    async def one(number: int) -> None:
        async with gate.slot(priority=(1, (0, 0))):
            admitted.append(number)
            await asyncio.sleep(0)

    await asyncio.gather(*map(one, range(5)))
    assert admitted == [0, 1, 2, 3, 4]


async def test_who_is_cancelled_leaves_its_room_to_the_next_priority() -> None:
    gate, admitted, leave = Gate(1), list[Priority](), asyncio.Event()
    first = asyncio.create_task(_enter(gate, (1, (0, 0)), admitted, leave))
    await settle()
    waiting = [asyncio.create_task(_enter(gate, (1, (0, at)), admitted, leave)) for at in (1, 2, 3)]
    await settle()
    # One that waits, the one that is inside, and the one that has just been admitted.
    waiting[0].cancel()
    first.cancel()
    await settle()
    assert admitted == [(1, (0, 0)), (1, (0, 2))]
    waiting[1].cancel()
    await settle()
    assert admitted[-1] == (1, (0, 3))
    leave.set()
    await waiting[2]
    assert (gate.users, gate.take_at_once(0)) == (0, True)


async def test_who_is_cancelled_just_as_it_is_admitted_gives_the_room_back() -> None:
    gate = Gate(1)
    await gate.take(0)
    waiting = asyncio.create_task(gate.take(0, priority=(1,)))
    await settle()
    gate.release()
    waiting.cancel()
    await asyncio.wait([waiting])
    assert (waiting.cancelled(), gate.users) == (True, 0)
