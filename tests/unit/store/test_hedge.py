"""A small request that is late gets a twin: the first answer wins, the budget holds, nobody is left behind."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from accel.errors import ObjectChangedError, StoreError
from accel.metrics import Metrics
from accel.options import MIB, Options
from accel.ranges import ByteRange, Kind, ObjectId, ReadKey, Suffix, Want
from accel.store.client import Client
from accel.store.hedge import Hedge, Race
from accel.store.network import Network
from accel.store.range_store import Payload
from accel.testing import CutBody, DictStore, FaultStore, RecordingStore, Stall, Status

DATA = bytes(range(256)) * 4096
NEVER = 3600.0
Script = Callable[[Any], Any]


def client_over(script: Script, *, root: str = "store:", **options: Any) -> tuple[Client, RecordingStore]:
    """A client that knows its store to answer in a millisecond, and may send a twin for each request."""
    store = RecordingStore(FaultStore(DictStore({"f": DATA}), script), settle=0)
    given = {"hedge_share": 1.0, "hedge_floor": 0.02, "max_attempts": 1, "max_gap_bytes": 0, **options}
    client = Client(store, root=root, token="t", options=Options(**given))
    for _ in range(100):
        client.network.observe(100, 0.001)
    return client, store


def only(number: int, fault: object) -> Script:
    return lambda attempt: fault if attempt.number == number else None


async def read(client: Client, metrics: Metrics, *spans: tuple[int, int]) -> None:
    pin = ObjectId("f", len(DATA), DictStore({"f": DATA}).etags["f"])
    wants = [Want(ReadKey(Kind.PAGE, 0, 0, start), ByteRange(start, end)) for start, end in spans]
    async with asyncio.timeout(20):
        stash = await client.read("f", wants, pin=pin, metrics=metrics)
    assert [bytes(stash[w.key]) for w in wants] == [DATA[w.range.start : w.range.end] for w in wants]


@pytest.mark.parametrize("fault", [Stall(NEVER), Stall(NEVER, after=50)], ids=["no answer", "half an answer"])
async def test_the_straggler_is_beaten(fault: object) -> None:
    client, store = client_over(only(0, fault))
    metrics = Metrics()
    await read(client, metrics, (0, 100))
    first, second = store.calls
    assert (first.want, first.if_match, first.error) == (second.want, second.if_match, "CancelledError")
    assert (second.received, second.if_match is not None) == (100, True)
    assert (metrics.hedged, metrics.requests, metrics.bytes, metrics.retries) == (1, 2, 100, 0)
    assert (store.in_flight, client.gate.requests, client.gate.bytes) == (0, 0, 0)


async def test_the_first_may_still_win() -> None:
    """Late, but before its twin, which is given up."""
    client, store = client_over(lambda attempt: Stall(NEVER) if attempt.number else Stall(0.2))
    metrics = Metrics()
    await read(client, metrics, (0, 100))
    assert [call.error for call in store.calls] == [None, "CancelledError"]
    assert (metrics.hedged, metrics.requests, store.in_flight) == (1, 2, 0)


async def test_what_is_in_time_has_no_twin() -> None:
    client, store = client_over(lambda attempt: None)
    metrics = Metrics()
    for _ in range(50):
        await read(client, metrics, (0, 100), (500, 600))
    assert (metrics.hedged, store.requests) == (0, 100)


async def test_the_budget() -> None:
    """All requests are late; one in ten at most has a twin."""
    options = {"hedge_share": 0.1, "hedge_floor": 0.01, "hedge_factor": 0.1}
    client, store = client_over(lambda attempt: Stall(0.04), **options)
    metrics = Metrics()
    for start in range(0, 80_000, 2_000):
        await read(client, metrics, (start, start + 10), (start + 1000, start + 1010))
    assert 80 < store.requests <= 88
    assert metrics.hedged == store.requests - 80


def budgeted(share: float, *, seconds: float = 0.03) -> Hedge:
    network, client = Network(latency=0.03, bandwidth=90e6), client_over(lambda attempt: None)[0]
    for _ in range(100):
        network.observe(0, seconds)
    return Hedge(network, client.gate, share=share, factor=2.0, floor=0.05)


@pytest.mark.parametrize(
    ("nbytes", "seconds", "delay"),
    [
        pytest.param(0, 0.04, 0.08, id="twice what most take"),
        pytest.param(450_000, 0.04, 0.09, id="and the time of its bytes"),
        pytest.param(0, 0.001, 0.05, id="never sooner than that"),
        pytest.param(512 * 1024 + 1, 0.04, None, id="large"),
    ],
)
def test_when_a_request_is_late(nbytes: int, seconds: float, delay: float | None) -> None:
    found = budgeted(1.0, seconds=seconds).delay(nbytes)
    assert found == (None if delay is None else pytest.approx(delay))


def test_none_before_enough_is_known() -> None:
    client, _ = client_over(lambda attempt: None)
    hedge = Hedge(Network(latency=0.03, bandwidth=90e6), client.gate, share=1.0, factor=2.0, floor=0.05)
    assert [hedge.delay(10) for _ in range(10)] == [None] * 10


def test_what_is_saved_is_little() -> None:
    """After a long time without any, four at once; large requests save nothing."""
    hedge = budgeted(0.25)
    for _ in range(1000):
        hedge.delay(MIB)
    assert not hedge.take()
    for _ in range(1000):
        hedge.delay(10)
    assert [hedge.take() for _ in range(5)] == [True] * 4 + [False]


@pytest.mark.parametrize(
    "options",
    [{"hedge_share": 0.0}, {"root": "file://"}, {"max_requests_in_flight": 1}],
    ids=["switched off", "local", "no room for one more"],
)
async def test_no_twin(options: dict[str, Any]) -> None:
    client, store = client_over(only(0, Stall(0.1)), **options)
    metrics = Metrics()
    await read(client, metrics, (0, 100))
    assert (metrics.hedged, store.requests) == (0, 1)


async def test_the_first_fails_and_its_twin_answers() -> None:
    """What may pass is not told when there is an answer; 0.1 s are long enough for the twin to be sent."""

    def script(attempt: Any) -> object:
        return Stall(0.2) if attempt.number else None

    client, store = client_over(script)
    inner = store.inner
    store.inner = _Breaks(inner, 0.1)  # type: ignore[assignment]
    metrics = Metrics()
    await read(client, metrics, (0, 100))
    assert (metrics.hedged, metrics.retries, store.in_flight) == (1, 0, 0)


class _Breaks:
    """The first request fails after a while."""

    def __init__(self, inner: Any, seconds: float) -> None:
        self.inner, self.seconds, self.requests = inner, seconds, 0

    async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
        self.requests += 1
        if self.requests == 1:
            await asyncio.sleep(self.seconds)
            raise StoreError("the connection failed", path=path, transient=True)
        found: Payload = await self.inner.read(path, want, if_match=if_match)
        return found


@pytest.mark.parametrize(
    ("twin", "expected"),
    [(Status(412), ObjectChangedError), (Status(403), StoreError), (CutBody(3), StoreError)],
    ids=["changed", "refused", "cut"],
)
async def test_a_failing_twin_leaves_the_first_alone(twin: object, expected: type[Exception]) -> None:
    client, store = client_over(lambda attempt: twin if attempt.number else Stall(0.15))
    metrics = Metrics()
    await read(client, metrics, (0, 100))
    assert (metrics.hedged, store.calls[1].error is not None, store.in_flight) == (1, True, 0)


async def test_both_fail() -> None:
    client, store = client_over(lambda attempt: Status(503))
    store.inner = _Breaks(store.inner, 0.1)  # type: ignore[assignment]
    with pytest.raises(StoreError, match="the connection failed"):
        await read(client, Metrics(), (0, 100))
    assert (store.requests, store.in_flight, client.gate.requests) == (2, 0, 0)


@pytest.mark.parametrize("seconds", [0.0, 0.01, 0.06], ids=["at once", "before the twin", "with the twin"])
async def test_cancelled(seconds: float) -> None:
    client, store = client_over(lambda attempt: Stall(NEVER))
    task = asyncio.ensure_future(read(client, Metrics(), (0, 100)))
    await asyncio.sleep(seconds)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (store.in_flight, client.gate.requests) == (0, 0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_cancelled_while_the_twin_wins() -> None:
    """Both cancels are told apart: the one from outside is never lost, whenever it comes."""
    for late in range(12):
        client, store = client_over(only(0, Stall(NEVER)), hedge_floor=0.001)
        task = asyncio.ensure_future(read(client, Metrics(), (0, 100)))
        while len(store.calls) < 2:
            await asyncio.sleep(0)
        for _ in range(late):
            await asyncio.sleep(0)
        if task.cancel():
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            await task
        assert (store.in_flight, client.gate.requests) == (0, 0)


class _Sulks:
    """PrioritySemaphore a cancellation into an error of its own."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
        try:
            found: Payload = await self.inner.read(path, want, if_match=if_match)
        except asyncio.CancelledError:
            raise StoreError("interrupted", path=path, transient=False) from None
        return found


async def test_a_store_that_hides_its_cancellation() -> None:
    client, store = client_over(only(0, Stall(NEVER)))
    store.inner = _Sulks(store.inner)  # type: ignore[assignment]
    await read(client, Metrics(), (0, 100))
    task = asyncio.current_task()
    assert (store.requests, task is not None and task.cancelling()) == (2, 0)


async def test_a_loop_that_was_busy_is_no_late_store() -> None:
    client, store = client_over(only(0, Stall(0.001)))

    async def busy() -> None:
        await asyncio.sleep(0)
        time.sleep(0.1)  # noqa: ASYNC251

    metrics = Metrics()
    await asyncio.gather(read(client, metrics, (0, 100)), busy())
    assert (metrics.hedged, store.requests) == (0, 1)


async def test_one_timer_tells_each_in_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Watched together: the sooner one though it came later, none that was dropped, and those of the running loop only."""
    monkeypatch.setattr("accel.store.hedge._LATE", 60.0)  # the machine may be busy
    hedge = budgeted(1.0)
    told: list[tuple[str, float]] = []
    loop = asyncio.get_running_loop()
    began = loop.time()

    class Told(Race[None]):
        def __init__(self, name: str, delay: float) -> None:
            super().__init__(hedge, delay, send=lambda **_: asyncio.sleep(0), metrics=Metrics())
            self.name = name

        def late(self) -> None:
            told.append((self.name, loop.time() - began))

    races = [Told("third", 0.09), Told("first", 0.03), Told("dropped", 0.05), Told("second", 0.06)]
    for race in races:
        race.sent()
    assert not races[2].end()
    async with asyncio.timeout(20):
        while len(told) < 3:
            await asyncio.sleep(0.01)
    assert {name for name, _ in told} == {"first", "second", "third"}
    delays = {race.name: race.delay for race in races}
    assert all(at >= delays[name] for name, at in told)
    races[0].sent()  # and its loop does nothing more

    async def elsewhere() -> None:
        Told("elsewhere", 0.01).sent()
        while len(told) < 4:
            await asyncio.sleep(0.01)

    thread = threading.Thread(target=asyncio.run, args=(asyncio.wait_for(elsewhere(), 20),))
    thread.start()
    thread.join()
    assert told[3][0] == "elsewhere"


def test_on_a_loop_whose_timers_do_not_tell_when_they_are_due() -> None:
    """uvloop's do not where that is at once: a service may have set its policy."""
    uvloop = pytest.importorskip("uvloop")
    told: list[str] = []

    class Told(Race[None]):
        def late(self) -> None:
            told.append("late")

    async def watch() -> None:
        hedge = budgeted(1.0)
        for delay in (0.0, 0.0001, 0.01):
            Told(hedge, delay, send=lambda **_: asyncio.sleep(0), metrics=Metrics()).sent()
        async with asyncio.timeout(20):
            while len(told) < 3:
                await asyncio.sleep(0.001)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(watch())
    assert told == ["late"] * 3


async def test_the_tail_of_a_file_too() -> None:
    client, store = client_over(only(0, Stall(NEVER)))
    metrics = Metrics()
    payload = await client.read_tail("f", 100, metrics=metrics)
    assert (bytes(payload.data), metrics.hedged) == (DATA[-100:], 1)
    assert [call.want for call in store.calls] == [Suffix(100)] * 2


async def test_stragglers_count_among_all() -> None:
    """Given up, a slow request still tells that requests are slow at times."""
    client, _ = client_over(lambda attempt: None if attempt.number % 2 else Stall(NEVER), hedge_floor=0.01)
    before = client.network.p95
    for start in range(0, 2_000, 100):
        await read(client, Metrics(), (start, start + 10))
    assert before is not None
    assert client.network.p95 is not None
    assert client.network.p95 > 5 * before
