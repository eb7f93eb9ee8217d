"""One I/O loop behind many callers: threads, event loops, cancellations and interrupts."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import inspect
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from accel.cache.cache import Cache
from accel.errors import AccelError, ObjectNotFoundError, StoreError
from accel.metrics import Metrics
from accel.options import Options
from accel.ranges import ByteRange, Kind, ObjectId, ReadKey, Want
from accel.runtime import io_loop
from accel.runtime.tasks import Call
from accel.store.client import Client
from accel.store.clients import client_for
from accel.store.location import parse_url
from accel.testing import DictStore

pytestmark = pytest.mark.usefixtures("few_to_collect")

BODY = bytes(i % 251 for i in range(1000))


class Work:
    """A coroutine that waits on the I/O loop until told to go on, and notes how it ended."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.ended = threading.Event()
        self.cancelled = False
        self.go = threading.Event()

    async def wait(self) -> str:
        self.started.set()
        try:
            while not self.go.is_set():
                await asyncio.sleep(0.001)
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        finally:
            self.ended.set()
        return "done"


async def where() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def test_everything_runs_on_the_one_loop() -> None:
    async def bridged() -> asyncio.AbstractEventLoop:
        return await io_loop.bridge(where())

    loops = {io_loop.run(where()), asyncio.run(bridged()), asyncio.run(bridged())}
    with ThreadPoolExecutor(4) as pool:
        loops |= set(pool.map(lambda _: io_loop.run(where()), range(8)))
    assert loops == {io_loop.io_loop()}


async def test_a_blocking_call_works_inside_a_running_loop() -> None:
    assert io_loop.run(where()) is not asyncio.get_running_loop()


def test_a_blocking_call_on_the_io_loop_itself_is_refused() -> None:
    async def nested() -> object:
        return io_loop.run(where())

    with pytest.raises(AccelError, match="on its own I/O loop"):
        io_loop.run(nested())


def test_a_bridge_on_the_io_loop_itself_just_awaits() -> None:
    async def nested() -> object:
        return await io_loop.bridge(where())

    assert io_loop.run(nested()) is io_loop.io_loop()


def test_one_client_serves_many_threads_and_loops() -> None:
    store = DictStore({"f": BODY})
    client = client_for(parse_url("f", in_store=True), store=store)

    async def read() -> bytes:
        return bytes((await client.read_tail("f", 10, metrics=Metrics())).data)

    async def several() -> list[bytes]:
        return list(await asyncio.gather(*(io_loop.bridge(read()) for _ in range(5))))

    def in_thread(number: int) -> list[bytes]:
        return asyncio.run(several()) if number % 2 else [io_loop.run(read()) for _ in range(5)]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(in_thread, range(16))) == [[BODY[-10:]] * 5] * 16


async def test_errors_come_through_with_their_type() -> None:
    client = client_for(parse_url("f", in_store=True), store=DictStore())
    with pytest.raises(ObjectNotFoundError):
        await io_loop.bridge(client.read_tail("f", 10, metrics=Metrics()))
    with pytest.raises(ObjectNotFoundError):
        io_loop.run(client.read_tail("f", 10, metrics=Metrics()))


async def test_cancelling_the_caller_cancels_the_work_and_waits_for_its_end() -> None:
    work = Work()
    task = asyncio.ensure_future(io_loop.bridge(work.wait()))
    while not work.started.is_set():
        await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert work.cancelled
    assert work.ended.is_set()


async def test_what_fails_as_its_caller_goes_is_not_complained_about() -> None:
    """asyncio logs an exception that nobody has looked at."""
    said: list[Any] = []

    async def fail() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            raise StoreError("the connection broke just now")

    async def listen(handler: Any) -> None:
        asyncio.get_running_loop().set_exception_handler(handler)

    await io_loop.bridge(listen(lambda loop, context: said.append(context)))
    try:
        caller = asyncio.create_task(io_loop.bridge(fail()))
        await asyncio.sleep(0.02)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        del caller
        gc.collect()
        await io_loop.bridge(asyncio.sleep(0))
    finally:
        await io_loop.bridge(listen(None))
    assert said == []


async def test_cancelled_at_once_it_never_starts_or_ends_at_once() -> None:
    for _ in range(50):
        work = Work()
        task = asyncio.ensure_future(io_loop.bridge(work.wait()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert work.ended.is_set() == work.started.is_set()


async def test_a_timeout_of_the_caller_reaches_the_work() -> None:
    work = Work()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await io_loop.bridge(work.wait())
    assert work.cancelled


def test_a_loop_that_ends_takes_its_work_with_it() -> None:
    work = Work()

    async def main() -> None:
        task = asyncio.ensure_future(io_loop.bridge(work.wait()))
        while not work.started.is_set():
            await asyncio.sleep(0.001)
        del task  # asyncio.run cancels what is left

    asyncio.run(main())
    assert work.cancelled


def test_a_loop_that_is_closed_midway_takes_its_work_with_it() -> None:
    work = Work()
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda loop, context: None)  # it complains of the task that it leaves

    async def begin() -> None:
        tasks.append(asyncio.ensure_future(io_loop.bridge(work.wait())))
        while not work.started.is_set():
            await asyncio.sleep(0.001)

    tasks: list[asyncio.Task[str]] = []
    loop.run_until_complete(begin())
    loop.close()
    tasks.clear()
    gc.collect()
    assert work.ended.wait(10)
    assert work.cancelled


async def test_who_waits_is_there_until_its_end_though_nobody_else_holds_it() -> None:
    work = Work()
    came = asyncio.Event()

    async def wait() -> None:
        await io_loop.bridge(work.wait())
        came.set()

    asyncio.ensure_future(wait())
    while not work.started.is_set():
        await asyncio.sleep(0.001)
    gc.collect()
    work.go.set()
    async with asyncio.timeout(10):
        await came.wait()


@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt()], ids=["exit", "interrupt"])
@pytest.mark.parametrize("deep", [False, True], ids=["itself", "in a task of a group"])
def test_what_would_end_the_process_ends_the_call_alone(raised: BaseException, deep: bool) -> None:
    async def fail() -> None:
        raise raised

    async def group() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())

    slow = Work()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(io_loop.run, slow.wait())
        with pytest.raises(type(raised)) as caught:
            io_loop.run(group() if deep else fail())
        slow.go.set()
        assert waiting.result(10) == "done"
    assert caught.value is raised
    assert io_loop.run(where()) is io_loop.io_loop()


@pytest.mark.parametrize("sent", [True, False], ids=["sent", "not sent"])
def test_an_interrupt_while_it_is_sent(sent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work()
    send = Call.send

    def interrupted(call: Call[Any]) -> None:
        if sent:
            send(call)
            assert work.started.wait(10)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Call, "send", interrupted)
        coroutine = work.wait()
        with pytest.raises(KeyboardInterrupt):
            io_loop.run(coroutine)
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED
    assert (work.cancelled, work.ended.is_set()) == (sent, sent)


def test_a_cancellation_from_within_is_an_error_to_the_caller() -> None:
    async def give_up() -> None:
        raise asyncio.CancelledError

    with pytest.raises(AccelError, match="was cancelled"):
        io_loop.run(give_up())


def test_context_variables_come_along() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")
    variable.set("mine")

    async def look() -> str:
        return variable.get()

    assert io_loop.run(look()) == "mine"


def test_two_callers_do_not_wait_for_each_other() -> None:
    slow = Work()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(io_loop.run, slow.wait())
        assert io_loop.run(where()) is io_loop.io_loop()
        slow.go.set()
        assert waiting.result(5) == "done"


class Slow(DictStore):
    """Takes a few turns of the loop for each read, and every third fails once."""

    def __init__(self) -> None:
        super().__init__({"f": BODY})
        self.inside = self.calls = 0

    async def read(self, path: str, want: Any, *, if_match: str | None = None) -> Any:
        self.inside += 1
        self.calls += 1
        try:
            for _ in range(3):
                await asyncio.sleep(0)
            if self.calls % 3 == 0:
                raise StoreError("busy", transient=True)
            return await super().read(path, want, if_match=if_match)
        finally:
            self.inside -= 1


@pytest.mark.parametrize("turns", range(40))
async def test_cancelled_at_every_turn_a_read_leaves_nothing_behind(turns: int) -> None:
    store = Slow()
    options = Options(max_gap_bytes=0, max_requests_in_flight=2, backoff_base=1e-9)
    client = Client(store, root="mem://box", token="t", options=options)
    cache = Cache(memory=1000)
    pin = ObjectId("f", 1000, store.etags["f"])
    wants = [Want(ReadKey(Kind.PAGE, 0, 0, i), ByteRange(i * 20, i * 20 + 5)) for i in range(5)]

    async def load() -> tuple[int, int]:
        return len(await client.read("f", wants, pin=pin, metrics=Metrics())), 10

    task = asyncio.ensure_future(cache.load("k", load))
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    outcome = (await asyncio.gather(task, return_exceptions=True))[0]
    assert outcome == 5 or isinstance(outcome, asyncio.CancelledError)
    assert (store.inside, client.gate.users, client.gate.bytes) == (0, 0, 0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    # And the client is as good as new.
    assert await cache.load("k", load) == 5


INTERRUPTED = """
import asyncio, sys, time
from accel.runtime import io_loop
async def work():
    print("started", flush=True)
    try:
        await asyncio.sleep(60)
    finally:
        print("ended", flush=True)
try:
    io_loop.run(work())
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(9)
"""


def test_an_interrupt_cancels_the_work() -> None:
    process = subprocess.Popen([sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=30)
    assert (rest, process.returncode) == ("ended\ninterrupted\n", 9)
    assert time.monotonic() - begun < 10


async def test_nothing_is_left_behind() -> None:
    work = Work()
    work.go.set()
    assert await io_loop.bridge(work.wait()) == "done"

    async def others() -> list[Any]:
        return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]

    assert await io_loop.bridge(others()) == []
