"""Thread pools, and lookups of host names, which are shared and bounded."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from accel.errors import StoreError
from accel.options import Options
from accel.ranges import ByteRange
from accel.runtime import threads as threads_module
from accel.runtime.threads import Threads, end_threads, resolve
from accel.store.http_connections import Connections, Origin, Timeouts, UnreachableError
from accel.store.http_store import HttpStore
from tests.unit.store.test_http_connections import BODY, ask


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
    monkeypatch.setattr(threads_module, "all_threads", {quick, stuck})
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


FOUND = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 9))]


class Lookups:
    """Names that begin with "dead" are waited for until `release` is set."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.asked: list[str] = []
        self._real = socket.getaddrinfo

    def __call__(self, host: str, port: int, *more: Any) -> Any:
        self.asked.append(host)
        if host.startswith("dead"):
            self.release.wait()
            raise socket.gaierror(socket.EAI_AGAIN, "nobody answers")
        return self._real("127.0.0.1", port, *more)


@pytest.fixture
async def lookups(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Lookups]:
    it = Lookups()
    monkeypatch.setattr(socket, "getaddrinfo", it)
    yield it
    it.release.set()


async def test_what_is_found() -> None:
    assert await resolve("127.0.0.1", 9) == FOUND
    with pytest.raises(UnicodeError):
        await resolve("a..b", 9)


async def test_dead_names_keep_nothing_else_waiting(server: Any, lookups: Lookups) -> None:
    """Neither other names nor work that is given to the event loop's threads, of which there are 32 at
    most."""
    pools = [Connections(Origin(f"dead{n}", 80, False), Timeouts(30.0, 30.0)) for n in range(40)]
    dead = [asyncio.ensure_future(ask(pool)) for pool in pools]
    port = int(server.url.rpartition(":")[2])
    alive = Connections(Origin("alive.example", port, False), Timeouts(5.0, 5.0))
    web = HttpStore(f"http://alive.example:{port}", storage_options={}, options=Options())
    async with asyncio.timeout(10):
        assert bytes((await ask(alive)).body) == BODY[10:20]
        assert bytes((await web.read("f", ByteRange(10, 20))).data) == BODY[10:20]
        assert await asyncio.to_thread(lambda: "done") == "done"
    assert sorted(lookups.asked) == sorted(
        [*(f"dead{n}" for n in range(40)), "alive.example", "alive.example"]
    )
    lookups.release.set()
    failures = await asyncio.gather(*dead, return_exceptions=True)
    assert {(type(failure), str(failure)) for failure in failures} == {(UnreachableError, "gaierror")}
    await alive.close()


async def test_a_dead_name_is_given_up_in_time_and_asked_for_once(lookups: Lookups) -> None:
    pool = Connections(Origin("dead.example", 80, False), Timeouts(0.05, 5.0))
    web = HttpStore(
        "http://dead.example", storage_options={}, options=Options(connect_timeout=0.05, read_timeout=60.0)
    )
    async with asyncio.timeout(5):
        for _ in range(3):
            with pytest.raises(UnreachableError):
                await ask(pool)
            with pytest.raises(StoreError) as caught:
                await web.read("f", ByteRange(0, 1))
            assert caught.value.transient
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert lookups.asked == ["dead.example"]
    await pool.close()


STUCK = """
import asyncio, os, socket, sys, threading
import accel
from accel.runtime import io_loop
from accel.runtime.threads import resolve

real, forked = socket.getaddrinfo, os.getpid()
def stuck(*question):
    if os.getpid() == forked:
        threading.Event().wait()
    return real(*question)
socket.getaddrinfo = stuck

async def give_up():
    try:
        async with asyncio.timeout(0.05):
            await resolve("127.0.0.1", 9)
    except TimeoutError:
        print("given up", flush=True)
io_loop.run(give_up())
"""
FORK = """
child = os.fork()
if child == 0:
    asyncio.run(resolve("127.0.0.1", 9))
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_process_ends_though_a_lookup_does_not() -> None:
    assert run(STUCK) == "given up\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_waits_for_no_lookup_of_its_parents() -> None:
    assert run(STUCK + FORK) == "given up\n7\n"
