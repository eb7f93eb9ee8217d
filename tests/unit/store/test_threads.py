"""Threads for calls that would hold up the I/O loop."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Iterator

import pytest

from accel.store import threads as threads_module
from accel.store.threads import Threads, end_threads


@pytest.fixture
def two() -> Iterator[Threads]:
    threads = Threads("test", 2, patience=10.0)
    yield threads
    threads.close()


def names() -> list[str]:
    return sorted(t.name for t in threading.enumerate() if t.name.startswith("test_"))


async def test_no_more_are_started_than_are_needed(two: Threads) -> None:
    assert names() == []
    for number in range(3):
        assert await two.run(int, number) == number
    assert names() == ["test_0"]
    both = threading.Barrier(2, timeout=10)
    found = await asyncio.gather(*(two.run(lambda n: (both.wait(), n)[1], n) for n in range(10)))
    assert found == list(range(10))
    assert names() == ["test_0", "test_1"]
    assert {thread.daemon for thread in threading.enumerate() if thread.name in names()} == {True}


@pytest.mark.parametrize("raised", [ValueError("mine"), SystemExit(3), KeyboardInterrupt()])
async def test_what_a_call_raises_is_raised(two: Threads, raised: BaseException) -> None:
    def call() -> None:
        raise raised

    with pytest.raises(type(raised)) as caught:
        await two.run(call)
    assert caught.value is raised
    assert await two.run(lambda: 7) == 7


async def test_what_a_future_cannot_raise_is_told(two: Threads) -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        await two.run(next, iter(()))


async def test_who_does_not_wait_has_the_future(two: Threads) -> None:
    told = two.begin(int, "12", base=3)
    assert not told.done()
    assert await told == 5
    wrong = two.begin(int, "x")
    with pytest.raises(ValueError, match="invalid literal"):
        await wrong
    two.close()
    with pytest.raises(RuntimeError, match="closed"):
        two.begin(int)


class Thing:
    pass


async def test_nothing_of_a_call_is_kept(two: Threads) -> None:
    """What has come belongs to who asked; an error holds nothing that holds it."""

    async def fail(thing: Thing) -> weakref.ref[Thing]:
        def call(thing: Thing) -> None:
            raise ValueError

        try:
            await two.run(call, thing)
        except ValueError:
            pass
        return weakref.ref(thing)

    gc.collect()
    gc.disable()
    try:
        made = weakref.ref(await two.run(Thing))
        failed = await fail(Thing())
        await two.run(int)
        assert (made(), failed()) == (None, None)
    finally:
        gc.enable()


def test_a_call_whose_loop_was_closed_ends_unheard(two: Threads) -> None:
    begun, go, ended = threading.Event(), threading.Event(), threading.Event()

    def call() -> None:
        begun.set()
        go.wait(10)
        ended.set()

    async def leave() -> None:
        task = asyncio.ensure_future(two.run(call))
        while not begun.is_set():
            await asyncio.sleep(0.001)
        task.cancel()

    asyncio.run(leave())
    go.set()
    assert ended.wait(10)
    assert asyncio.run(two.run(int, 3)) == 3


async def test_closing_drops_what_has_not_begun() -> None:
    threads = Threads("test", 1, patience=10.0)
    begun, go = threading.Event(), threading.Event()
    ran: list[int] = []
    first = asyncio.ensure_future(threads.run(lambda: (begun.set(), go.wait(10))[1]))
    second = asyncio.ensure_future(threads.run(ran.append, 1))
    while not begun.is_set():
        await asyncio.sleep(0.001)
    closing = asyncio.get_running_loop().run_in_executor(None, threads.close)
    with pytest.raises(asyncio.CancelledError):
        await second
    go.set()
    assert await first is True
    await closing
    assert (ran, names()) == ([], [])
    with pytest.raises(RuntimeError, match="the threads test are closed"):
        await threads.run(int)


async def test_the_end_waits_so_long_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    quick, stuck = Threads("test_quick", 1, patience=10.0), Threads("test_stuck", 1, patience=0.01)
    monkeypatch.setattr(threads_module, "_all", {quick, stuck})
    begun, go = threading.Semaphore(0), threading.Event()
    ended: list[str] = []

    def call(name: str, seconds: float) -> None:
        begun.release()
        go.wait(seconds)
        ended.append(name)

    calls = [
        asyncio.ensure_future(quick.run(call, "quick", 0.1)),
        asyncio.ensure_future(stuck.run(call, "stuck", 20)),
    ]
    await asyncio.sleep(0)
    for _ in calls:
        assert begun.acquire(timeout=10)
    end_threads()
    assert ended == ["quick"]
    go.set()
    await asyncio.gather(*calls)
