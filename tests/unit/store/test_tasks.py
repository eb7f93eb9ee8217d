"""Tasks on the I/O loop: time slices, groups that are cancelled, and tracked calls of obstore."""

from __future__ import annotations

import ast
import asyncio
import gc
import itertools
import os
import time
import types
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, Self

import obstore
import pytest
from obstore.store import LocalStore, MemoryStore

import accel
from accel.errors import AccelError, StoreError
from accel.ranges import ByteRange
from accel.runtime import tasks
from accel.runtime.tasks import Group, TrackedStream, all_released, breathe, each, tracked
from accel.store import obstore_store
from accel.store.obstore_store import ObstoreStore
from accel.store.request_errors import IncompleteBodyError
from tests.support.object_server import ObjectServer, Reply, s3_at

pytestmark = pytest.mark.usefixtures("few_to_collect")


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("accel.runtime.tasks.time.monotonic", clock)
    return clock


class LoopRounds:
    """Counts the rounds of the event loop."""

    def __init__(self) -> None:
        self.rounds = 0
        self._ended = False

    async def count(self) -> None:
        while not self._ended:
            self.rounds += 1
            await asyncio.sleep(0)

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self.count())
        await asyncio.sleep(0)
        await breathe()  # a slice begins
        self.rounds = 0
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ended = True
        await self._task


async def test_within_a_slice_nothing_is_waited_for(clock: Clock) -> None:
    async with LoopRounds() as turns:
        for _ in range(100):
            await breathe()
            clock.now += 1e-5
        assert turns.rounds == 0


async def test_a_slice_that_is_used_up_lets_the_loop_go_round_once(clock: Clock) -> None:
    async with LoopRounds() as turns:
        for rounds in range(5):
            assert turns.rounds == rounds
            clock.now += 0.01
            await breathe()


async def test_a_slice_wakes_few_of_those_who_wait(clock: Clock) -> None:
    """Each that is woken in vain is a step of the loop, and hundreds of lookups wait at once."""
    waits = 0

    @types.coroutine
    def counted() -> Iterator[Any]:
        nonlocal waits
        for future in breathe().__await__():
            waits += 1
            yield future

    async def work() -> None:
        for _ in range(5):
            await counted()
            clock.now += 0.001

    await asyncio.gather(*(work() for _ in range(100)))
    # Of 500 steps, two fit in a slice.
    assert waits <= 500


async def test_whoever_waits_for_a_slice_gets_a_turn_beside_others_that_work_on(clock: Clock) -> None:
    turns: list[int] = []

    async def work(number: int) -> None:
        while len(turns) < 400:
            await breathe()
            turns.append(number)
            clock.now += 0.003

    await asyncio.gather(*(work(number) for number in range(10)))
    assert min(turns.count(number) for number in range(10)) >= 20


async def test_who_is_cancelled_while_waiting_for_a_slice_holds_up_nobody(clock: Clock) -> None:
    done: list[int] = []

    async def work(number: int) -> None:
        for _ in range(3):
            clock.now += 0.01
            await breathe()
        done.append(number)

    working = [asyncio.create_task(work(number)) for number in range(60)]
    for task in working[::2]:
        await asyncio.sleep(0)
        task.cancel()
    await asyncio.wait_for(asyncio.wait(working), 20)
    assert set(range(1, 60, 2)) <= set(done)


async def test_many_that_work_at_once_share_one_slice(clock: Clock) -> None:
    """With 20 of them, each with its own slice, the loop would be held up 20 times as long."""
    held: list[float] = []

    async def work() -> None:
        for _ in range(10):
            await breathe()
            clock.now += 0.0015

    async def watch() -> None:
        last = clock.now
        while len(held) < 2000:
            await asyncio.sleep(0)
            held.append(clock.now - last)
            last = clock.now

    watching = asyncio.create_task(watch())
    await asyncio.gather(*(work() for _ in range(20)))
    watching.cancel()
    assert sum(held) == pytest.approx(20 * 10 * 0.0015, abs=0.004)
    assert max(held) <= 0.0031


async def test_each_gives_everything_in_order() -> None:
    def numbers() -> Iterator[int]:
        yield from range(1000)

    assert await each(numbers(), lambda n: n * n) == [n * n for n in range(1000)]
    assert await each([], lambda n: n) == []


async def test_each_breathes() -> None:
    async with LoopRounds() as turns:
        await each(range(640), lambda n: time.sleep(0.0005))
        assert turns.rounds >= 10


def test_every_loop_has_slices_of_its_own() -> None:
    async def seen() -> bool:
        await breathe()
        return asyncio.get_running_loop() in tasks.slices_by_loop

    # A slice kept from a loop that has ended would never begin again: the second run would hang.
    assert all(asyncio.run(seen()) for _ in range(3))


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
    """Groups within each other whose tasks fail in every order of a few rounds: nobody has cancelled
    anything."""

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


@pytest.fixture(autouse=True)
def nothing_collects() -> Iterator[None]:
    """What only a collection of cycles would let go of is not let go of by the end of a process."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def soon(seconds: float = 5.0) -> bool:
    patience = time.monotonic() + seconds
    while not all_released():
        if time.monotonic() > patience:
            return False
        time.sleep(0.001)
    return True


def test_a_call_is_known_while_somebody_holds_it() -> None:
    async def one() -> None:
        call: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        assert tracked(call) is call
        assert not all_released()
        del call
        assert all_released()

    asyncio.run(one())


def test_what_was_read_is_let_go_of(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(bytes(100))
    store = ObstoreStore(LocalStore(str(tmp_path)))
    payload = asyncio.run(store.read("x", ByteRange(10, 20)))
    assert bytes(payload.data) == bytes(10)
    assert soon()


def test_a_failure_that_is_kept_keeps_no_call(tmp_path: Path) -> None:
    with pytest.raises(AccelError) as caught:
        asyncio.run(ObstoreStore(LocalStore(str(tmp_path))).read("missing", ByteRange(0, 1)))
    assert soon(), caught.value


@pytest.mark.parametrize("how", ["refused", "given up"])
async def test_a_listing_that_fails_keeps_no_call(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    def edit(reply: Reply) -> None:
        reply.status, reply.delay, reply.body = 403, 0.0 if how == "refused" else 0.3, b""

    monkeypatch.setattr(obstore_store, "CHUNK_TIMEOUTS", 1)
    server.always = edit
    with pytest.raises(StoreError) as caught:
        await anext(ObstoreStore(s3_at(server.url), read_timeout=0.1).pages("d"))
    assert ("listed nothing more" in str(caught.value)) == (how == "given up")
    assert await asyncio.to_thread(soon), caught.value


async def test_a_body_that_is_cut_keeps_no_call(server: ObjectServer) -> None:
    def cut(reply: Reply) -> None:
        reply.cut = 5

    server.objects["/b/f"] = bytes(600 * 1024)
    server.always = cut
    store = ObstoreStore(s3_at(server.url))
    for _ in range(2):  # in one piece, and then in parts
        with pytest.raises(IncompleteBodyError) as caught:
            await store.read("f", ByteRange(0, 600 * 1024))
        assert await asyncio.to_thread(soon), caught.value


def test_cancelled_calls_are_known_until_their_threads_have_ended(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(bytes(100))
    store = ObstoreStore(LocalStore(str(tmp_path)))
    known = []

    async def many() -> None:
        reads = [asyncio.ensure_future(store.read("x", ByteRange(0, 1))) for _ in range(20)]
        await asyncio.sleep(0)
        known.append(len(tasks.unfinished_calls))
        for read in reads:
            read.cancel()
        await asyncio.wait(reads)

    asyncio.run(many())
    assert known == [20]
    assert soon()


def test_each_step_of_a_stream_is_watched() -> None:
    store = MemoryStore()
    store.put("x", bytes(range(200)))

    async def parts() -> bytes:
        result = await obstore.get_async(store, "x")
        stream = TrackedStream(result.stream(min_chunk_size=1))
        step = anext(stream)
        assert not all_released()
        taken = bytes(await step)
        del step
        return taken + b"".join([bytes(part) async for part in stream])

    assert asyncio.run(parts()) == bytes(range(200))
    assert soon()


def test_a_fork_knows_nothing_of_its_parents_calls() -> None:
    class Call:
        def __await__(self) -> Iterator[None]:
            yield

    call = tracked(Call())
    child = os.fork()
    if child == 0:
        os._exit(0 if all_released() else 1)
    assert not all_released()
    del call
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def unwatched(source: str) -> list[int]:
    """Lines of asynchronous calls of obstore's that do not go through `tracked` or `TrackedStream`."""
    tree = ast.parse(source)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    seen = {
        id(inside)
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id in ("tracked", "TrackedStream")
        for inside in ast.walk(call.args[0])
    }
    return sorted(
        call.lineno
        for call in calls
        if isinstance(call.func, ast.Attribute)
        and (
            (ast.unparse(call.func.value) == "obstore" and call.func.attr.endswith("_async"))
            or call.func.attr in ("bytes_async", "stream", "__anext__")
        )
        and id(call) not in seen
    )


def test_every_call_is_watched() -> None:
    assert unwatched("a = obstore.get_async(s)\nb = tracked(obstore.get_async(s))\nc = r.stream()\n") == [
        1,
        3,
    ]
    users = [
        path
        for path in sorted(Path(accel.__file__).parent.rglob("*.py"))
        if "import obstore\n" in path.read_text()
    ]
    assert len(users) >= 2
    assert {path.name: unwatched(path.read_text()) for path in users} == {path.name: [] for path in users}
