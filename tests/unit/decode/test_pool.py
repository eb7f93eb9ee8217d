"""The decode pool."""

from __future__ import annotations

import asyncio
import os
import threading
import time

import pytest

from accel.decode import pool as pool_module
from accel.decode.pool import DecodePool


async def test_calls_run_on_the_pools_threads_at_once() -> None:
    with DecodePool(2) as pool:
        barrier = threading.Barrier(2, timeout=10)

        def call(number: int, *, plus: int) -> tuple[int, str]:
            barrier.wait()
            return number + plus, threading.current_thread().name

        found = await asyncio.gather(pool.run(call, 1, plus=10), pool.run(call, 2, plus=10))
    assert [number for number, _ in found] == [11, 12]
    assert {name.rpartition("_")[0] for _, name in found} == {"accel-decode"}
    assert len({name for _, name in found}) == 2


async def test_what_a_call_raises_is_raised() -> None:
    with DecodePool(1) as pool:
        with pytest.raises(ZeroDivisionError):
            await pool.run(lambda: 1 // 0)
        assert await pool.run(lambda: 7) == 7


async def test_a_cancelled_call_that_has_not_begun_never_begins() -> None:
    with DecodePool(1) as pool:
        go = threading.Event()
        ran: list[int] = []
        first = asyncio.ensure_future(pool.run(go.wait, 10))
        second = asyncio.ensure_future(pool.run(ran.append, 1))
        await asyncio.sleep(0.05)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        go.set()
        assert await first is True
    assert ran == []


async def test_closing_waits_and_then_refuses() -> None:
    before = set(threading.enumerate())  # the process's own pool may be among them
    pool = DecodePool(1)
    done: list[int] = []
    begun = threading.Event()
    running = asyncio.ensure_future(pool.run(lambda: (begun.set(), time.sleep(0.1), done.append(1))))
    assert await asyncio.to_thread(begun.wait, 10)
    pool.close()
    assert done == [1]
    await running
    pool.close()
    assert not [t for t in set(threading.enumerate()) - before if t.name.startswith("accel-decode")]
    with pytest.raises(RuntimeError, match="the threads accel-decode are closed"):
        await pool.run(lambda: 1)


def test_from_two_event_loops() -> None:
    with DecodePool(1) as pool:
        assert [asyncio.run(pool.run(int, i)) for i in range(2)] == [0, 1]


def test_the_shared_pool_is_one_a_process_and_size() -> None:
    assert DecodePool.shared(3) is DecodePool.shared(3)
    assert DecodePool.shared(3) is not DecodePool.shared(4)
    cores = len(os.sched_getaffinity(0))
    assert DecodePool.shared(0).threads == cores
    assert DecodePool.shared(0) is DecodePool.shared(cores)


async def test_shared_pools_of_many_sizes_end_once_nobody_holds_them() -> None:
    def at_work() -> int:
        return sum(thread.name.startswith("accel-decode") for thread in threading.enumerate())

    before = at_work()
    held = DecodePool.shared(100)
    for size in range(101, 131):
        pool = DecodePool.shared(size)
        together = threading.Barrier(3, timeout=10)
        await asyncio.gather(*(pool.run(together.wait) for _ in range(3)))
    assert DecodePool.shared(100) is held
    assert await held.run(int) == 0
    del held, pool
    async with asyncio.timeout(10):
        while at_work() > before + 3 * 8:
            await asyncio.sleep(0.01)


MIB = 1 << 20


@pytest.mark.parametrize(
    ("beside", "releases"),
    [
        pytest.param([None] * 4, 2, id="the system does not tell"),
        pytest.param([100, 200, 228], 0, id="little is kept"),
        pytest.param([100, 229, 110, 200], 1, id="much is kept, and given back"),
        pytest.param([300, 100, 229, 100], 1, id="the least is what others hold"),
        pytest.param([100, 900, 900, 800, 901, 600], 2, id="others have come to hold more"),
    ],
)
def test_memory_is_released_when_much_is_kept(
    monkeypatch: pytest.MonkeyPatch, beside: list[int | None], releases: int
) -> None:
    released: list[int] = []

    class Pool:
        def release_unused(self) -> None:
            released.append(1)

    told = iter(beside)
    looks = []

    def look() -> int | None:
        looks.append(next(told))
        return None if looks[-1] is None else looks[-1] * MIB

    monkeypatch.setattr(pool_module, "pool", Pool)
    monkeypatch.setattr(pool_module, "decoded", threading.local())
    monkeypatch.setattr(pool_module, "slack", pool_module.Slack())
    monkeypatch.setattr(pool_module, "beside_arrow", look)
    with pytest.raises(StopIteration):
        while True:
            pool_module.release_now_and_then(128 * MIB)
    assert looks == beside
    assert len(released) == releases


def test_looks_each_time_that_much_was_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []

    class Slack:
        def is_much(self) -> bool:
            looks.append(1)
            return False

    monkeypatch.setattr(pool_module, "decoded", threading.local())
    monkeypatch.setattr(pool_module, "slack", Slack())
    for nbytes in (120, 7, 1, 127, 1):
        pool_module.release_now_and_then(nbytes * MIB)
    assert len(looks) == 2


def test_what_the_process_holds_beside_arrow() -> None:
    found = pool_module.beside_arrow()
    assert found is None or 1 * MIB < found < 1 << 40
