"""Lookups of names: shared, bounded, and never in the way of anything else."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from accel.errors import StoreError
from accel.options import Options
from accel.ranges import ByteRange
from accel.store.http_connections import Connections, Origin, Timeouts, UnreachableError
from accel.store.http_store import HttpStore
from accel.store.threads import resolve
from tests.unit.store.test_connections import BODY, ask

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
    """Neither other names nor work that is given to the event loop's threads, of which there are 32 at most."""
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
    await web.close()


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
    # aiohttp's are other questions: of the kinds of address that this machine has.
    assert lookups.asked == ["dead.example", "dead.example"]
    await pool.close()
    await web.close()


STUCK = """
import asyncio, os, socket, sys, threading
import accel
from accel.store import io_loop
from accel.store.threads import resolve

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
