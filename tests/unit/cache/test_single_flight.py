"""Loads under way are shared key by key; one waiter cancelled leaves the others what they wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accel.cache.single_flight import SingleFlight
from accel.errors import StoreError


@dataclass
class Source:
    """Answers after some turns of the loop; fails as often as told."""

    turns: int = 5
    failures: int = 0
    asked: list[list[str]] = field(default_factory=list)
    cancelled: int = 0

    async def load(self, keys: Sequence[str]) -> dict[str, str]:
        self.asked.append(list(keys))
        fails, self.failures = self.failures > 0, max(0, self.failures - 1)
        try:
            for _ in range(self.turns):
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if fails:
            raise StoreError("no", path="x")
        return {key: key.upper() for key in keys}


async def test_each_key_is_loaded_once() -> None:
    flight, source = SingleFlight(), Source()
    found = await asyncio.gather(*(flight.share_all(keys, source.load) for keys in ("ab", "ab", "bc", "aa")))
    assert found == [{"a": "A", "b": "B"}, {"a": "A", "b": "B"}, {"b": "B", "c": "C"}, {"a": "A"}]
    assert (source.asked, len(flight)) == ([["a", "b"], ["c"]], 0)
    await flight.share_all("a", source.load)  # nothing is stored
    assert len(source.asked) == 3


async def test_one_key_alone_joins_a_batch() -> None:
    flight, source = SingleFlight(), Source()

    async def load() -> str:
        raise AssertionError("it is under way")

    many, one = await asyncio.gather(flight.share_all("ab", source.load), flight.share("b", load))
    assert (many, one) == ({"a": "A", "b": "B"}, "B")


async def test_a_failure_goes_to_all_who_wait_for_it_as_a_copy_and_to_no_others() -> None:
    flight, source = SingleFlight(), Source(failures=1)
    found: list[Any] = await asyncio.gather(
        *(flight.share_all(keys, source.load) for keys in ("ab", "bc", "c")), return_exceptions=True
    )
    assert [type(one) for one in found] == [StoreError, StoreError, dict]
    assert found[0] is not found[1]
    assert (source.asked, len(flight)) == ([["a", "b"], ["c"]], 0)


async def test_the_load_goes_on_for_others_and_ends_with_the_last() -> None:
    flight, source = SingleFlight(), Source(turns=100)
    tasks = [asyncio.create_task(flight.share_all(keys, source.load)) for keys in ("ab", "bc", "c")]
    for _ in range(3):
        await asyncio.sleep(0)
    for task in tasks[:2]:
        task.cancel()
    await asyncio.gather(*tasks[:2], return_exceptions=True)
    assert source.cancelled == 1  # nobody waits for "a" and "b" any more
    assert await tasks[2] == {"c": "C"}
    assert (source.asked, len(flight)) == ([["a", "b"], ["c"]], 0)


@pytest.mark.parametrize("first", [0, 1])
async def test_of_two_who_leave_at_once_neither_leaves_a_load_to_the_other(first: int) -> None:
    flight, source = SingleFlight(), Source(turns=1000)
    waiters = [asyncio.create_task(flight.share_all(keys, source.load)) for keys in ("a", "ab")]
    await asyncio.sleep(0)
    assert source.asked == [] and len(flight) == 2
    waiters[first].cancel()
    waiters[1 - first].cancel()
    await asyncio.wait(waiters)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert len(flight) == 0


async def test_who_asks_when_a_load_has_just_ended_begins_a_new_one() -> None:
    flight, source = SingleFlight(), Source(turns=0)
    led = flight.lead("a")
    assert led is not None
    flight.land(led, value="old")
    assert flight.join("a") is None  # before the loop has gone round
    assert await flight.share_all("a", source.load) == {"a": "A"}
    assert len(flight) == 0


def test_loops_do_not_share() -> None:
    flight, source = SingleFlight(), Source()

    async def within() -> None:
        loop = asyncio.new_event_loop()
        try:
            other = asyncio.to_thread(loop.run_until_complete, flight.share_all("a", source.load))
            assert await asyncio.gather(flight.share_all("a", source.load), other) == [{"a": "A"}] * 2
        finally:
            loop.close()

    asyncio.run(within())
    assert len(source.asked) == 2


@settings(max_examples=150, deadline=None)
@given(
    waiters=st.lists(
        st.tuples(
            st.lists(st.sampled_from("abcdef"), min_size=1, max_size=4, unique=True),
            st.integers(0, 12),
            st.none() | st.integers(0, 25),
        ),
        min_size=1,
        max_size=8,
    ),
    failures=st.integers(0, 3),
    turns=st.integers(0, 8),
)
def test_nobody_waits_for_ever_or_is_cancelled_by_another(
    waiters: list[tuple[list[str], int, int | None]], failures: int, turns: int
) -> None:
    """Waiters that begin and are cancelled at any time, of a source that fails some loads; nothing stays
    behind."""
    flight, source = SingleFlight(), Source(turns=turns, failures=failures)

    async def wait(keys: list[str], after: int) -> dict[str, str]:
        for _ in range(after):
            await asyncio.sleep(0)
        return await flight.share_all(keys, source.load)

    async def play() -> None:
        tasks = [asyncio.create_task(wait(keys, after)) for keys, after, _ in waiters]
        for turn in range(26):
            for task, (_, _, cancelled) in zip(tasks, waiters, strict=True):
                if cancelled == turn:
                    task.cancel()
            await asyncio.sleep(0)
        async with asyncio.timeout(20):
            found = await asyncio.gather(*tasks, return_exceptions=True)
        for outcome, (keys, _, cancelled) in zip(found, waiters, strict=True):
            if isinstance(outcome, StoreError):
                assert failures
            elif isinstance(outcome, asyncio.CancelledError):
                assert cancelled is not None
            else:
                assert outcome == {key: key.upper() for key in keys}
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(play())
    assert len(flight) == 0


@pytest.mark.parametrize("cancel", [False, True], ids=["landed", "a waiter leaves"])
async def test_a_load_that_is_led(cancel: bool) -> None:
    flight, source = SingleFlight(), Source()
    led = flight.lead("a")
    assert led is not None
    assert flight.lead("a") is None
    waiter = asyncio.create_task(flight.share_all("ab", source.load))
    await asyncio.sleep(0)
    if cancel:
        waiter.cancel()
        await asyncio.wait((waiter,))
    assert (flight.join("a") is led, led.cancelled()) == (True, False)
    flight.land(led, value="led")
    if not cancel:
        assert await waiter == {"a": "led", "b": "B"}
    await asyncio.sleep(0)
    assert (source.asked, flight.join("a"), len(flight)) == ([["b"]], None, 0)
