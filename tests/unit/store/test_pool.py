"""Small reads that wait for room: sent together, each gets its own bytes, and nobody suffers from another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accel.errors import ObjectChangedError, ParquetFormatError, StoreError
from accel.metrics import Metrics
from accel.options import MIB, Options
from accel.planning.file import ObjectId
from accel.ranges import ByteRange, Kind, ReadKey, Stash, Suffix, Want
from accel.store.client import Client
from accel.store.range_store import Payload
from accel.testing import DictStore

BODY = bytes(i % 251 for i in range(4 * MIB))
ONE = Options(max_gap_bytes=10, max_requests_in_flight=1, max_attempts=1, hedge_share=0.0)


class HeldStore(DictStore):
    """Answers when it is let go; notes what was asked, what was cancelled, and fails where it is told to."""

    def __init__(self, body: bytes = BODY, *, held: bool = True) -> None:
        super().__init__({"f": body})
        self.go = asyncio.Event()
        self.asked: list[str] = []
        self.cancelled: list[str] = []
        self.fails: Callable[[ByteRange], Exception | None] = lambda _: None
        if not held:
            self.go.set()

    async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
        assert isinstance(want, ByteRange) and if_match == self.etags["f"]
        name = f"{want.start}..{want.end}"
        self.asked.append(name)
        try:
            await asyncio.sleep(0)
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled.append(name)
            raise
        failure = self.fails(want)
        if failure is not None:
            raise failure
        return await super().read(path, want, if_match=if_match)


def client_over(store: Any, options: Options = ONE) -> Client:
    return Client(store, root="mem://box", token="t", options=options)


def pin_of(store: DictStore) -> ObjectId:
    return ObjectId("f", len(store.objects["f"]), store.etags["f"])


def wants_of(*ranges: tuple[int, int]) -> list[Want]:
    return [Want(ReadKey(Kind.PAGE, 0, 0, start), ByteRange(start, end)) for start, end in ranges]


class Reads:
    """Reads of one client, started one after the other; the first takes the only slot."""

    def __init__(self, store: HeldStore, options: Options = ONE) -> None:
        self.store = store
        self.client = client_over(store, options)
        self.metrics: list[Metrics] = []
        self.tasks: list[asyncio.Task[Stash]] = []

    async def start(self, *ranges: tuple[int, int]) -> asyncio.Task[Stash]:
        self.metrics.append(Metrics())
        read = self.client.read(
            "f", wants_of(*ranges), pin=pin_of(self.store), metrics=self.metrics[-1], merging=None
        )
        self.tasks.append(asyncio.create_task(read))
        for _ in range(5):
            await asyncio.sleep(0)
        return self.tasks[-1]


@pytest.fixture(autouse=True)
async def no_task_is_left() -> Any:
    yield
    assert asyncio.all_tasks() == {asyncio.current_task()}


def right(stash: Stash, *ranges: tuple[int, int]) -> bool:
    return {key.ordinal: bytes(view) for key, view in stash.items()} == {s: BODY[s:e] for s, e in ranges}


async def test_what_waits_is_merged_and_asked_for_once() -> None:
    store = HeldStore()
    reads = Reads(store)
    first = await reads.start((0, 10))
    second = await reads.start((100, 200), (900, 950))
    third = await reads.start((200, 260), (100, 200))
    fourth = await reads.start((955, 990))
    assert store.asked == ["0..10"]
    store.go.set()
    assert right(await first, (0, 10))
    assert right(await second, (100, 200), (900, 950))
    assert right(await third, (200, 260), (100, 200))
    assert right(await fourth, (955, 990))
    assert store.asked == ["0..10", "100..260", "900..990"]
    # They count for who asked first.
    assert [(m.requests, m.bytes) for m in reads.metrics] == [(1, 10), (2, 250), (0, 0), (0, 0)]


async def test_reads_that_begin_in_the_same_round_of_the_loop_see_each_other() -> None:
    store = HeldStore(held=False)
    client, pin = client_over(store, Options(max_gap_bytes=10, max_requests_in_flight=2)), pin_of(store)
    ranges = [(100 * i, 100 * i + 100) for i in range(10)]
    found = await asyncio.gather(*(client.read("f", wants_of(r), pin=pin, metrics=Metrics()) for r in ranges))
    assert all(right(stash, r) for stash, r in zip(found, ranges, strict=True))
    assert store.asked == ["0..100", "100..200", "200..1000"]


async def test_a_large_read_is_left_alone() -> None:
    store = HeldStore()
    reads = Reads(store)
    first = await reads.start((0, 10))
    large = await reads.start((0, MIB + 1))
    small = await reads.start((0, 20))
    store.go.set()
    assert right(await first, (0, 10)) and right(await small, (0, 20))
    assert right(await large, (0, MIB + 1))
    assert store.asked[0] == "0..10" and min(store.asked[1:]) == "0..20"


async def test_another_version_is_another_batch() -> None:
    store = HeldStore()
    reads = Reads(store)
    first = await reads.start((0, 10))
    await reads.start((20, 30))
    old = ObjectId("f", len(BODY), '"old"')
    other = asyncio.create_task(reads.client.read("f", wants_of((30, 40)), pin=old, metrics=Metrics()))
    await asyncio.sleep(0)
    store.go.set()
    with pytest.raises(AssertionError):  # the store was asked for the other version
        await other
    assert right(await first, (0, 10)) and right(await reads.tasks[1], (20, 30))
    assert store.asked == ["0..10", "20..30"]


async def test_a_request_fails_for_those_who_want_of_it_and_no_others() -> None:
    store = HeldStore()
    store.fails = lambda r: StoreError("broken", path="f") if r.start == 1000 else None
    reads = Reads(store)
    first = await reads.start((0, 10))
    fine = await reads.start((100, 200))
    both = await reads.start((100, 200), (1000, 1100))
    failed = await reads.start((1050, 1100))
    store.go.set()
    assert right(await first, (0, 10)) and right(await fine, (100, 200))
    for task in (both, failed):
        with pytest.raises(StoreError, match="broken") as error:
            await task
        assert error.value.path == "mem://box/f"


async def test_a_range_beyond_the_end_fails_alone() -> None:
    store = HeldStore(BODY[:1000])
    reads = Reads(store)
    first = await reads.start((0, 10))
    fine = await reads.start((100, 200))
    bad = await reads.start((990, 1010))
    store.go.set()
    with pytest.raises(ParquetFormatError, match="past the end"):
        await bad
    assert right(await first, (0, 10)) and right(await fine, (100, 200))


async def test_each_has_an_error_of_its_own() -> None:
    store = HeldStore()
    reads = Reads(store)
    await reads.start((0, 10))
    twins = [await reads.start((100, 200)), await reads.start((100, 200))]
    store.fails = lambda _: StoreError("broken", path="f", status=503, hint="later")
    store.go.set()
    await asyncio.wait(reads.tasks)
    one, other = (task.exception() for task in twins)
    assert isinstance(one, StoreError) and isinstance(other, StoreError)
    assert one is not other and vars(one) == vars(other) and one.status == 503
    assert reads.tasks[0].exception() is not None


async def test_nobody_waits_for_a_sender_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    store = HeldStore()
    reads = Reads(store)
    first = await reads.start((0, 10))
    waiting = [await reads.start((100, 200)), await reads.start((300, 400))]

    def fail(*_: object) -> None:
        raise RuntimeError("no requests")

    monkeypatch.setattr("accel.store.pool._start", fail)
    store.go.set()
    for task in waiting:
        with pytest.raises(RuntimeError, match="no requests"):
            await asyncio.wait_for(task, 5)
    assert right(await first, (0, 10))
    assert reads.client.gate.requests == 0


async def test_nobody_waits_for_a_sender_that_was_cancelled() -> None:
    store = HeldStore()
    reads = Reads(store)
    first = await reads.start((0, 10))
    waiting = [await reads.start((100, 200)), await reads.start((300, 400))]
    (batch,) = reads.client._pool._waiting.values()
    assert batch.sender is not None
    batch.sender.cancel()  # as the loop does at exit
    for task in waiting:
        with pytest.raises(StoreError, match="by nobody who waits for it"):
            await asyncio.wait_for(task, 5)
    assert not reads.client._pool._waiting
    store.go.set()
    assert right(await first, (0, 10))


async def test_a_changed_object_is_told_to_all() -> None:
    store = HeldStore()
    reads = Reads(store)
    await reads.start((0, 10))
    await reads.start((100, 200))
    await reads.start((150, 250))
    store.fails = lambda _: ObjectChangedError("another version", path="f")
    store.go.set()
    for task in reads.tasks:
        with pytest.raises(ObjectChangedError):
            await task


class TestCancelled:
    async def test_before_it_is_sent_it_is_not_asked_for(self) -> None:
        store = HeldStore()
        reads = Reads(store)
        first = await reads.start((0, 10))
        gone = await reads.start((100, 200))
        stays = await reads.start((5000, 5100))
        gone.cancel()
        await asyncio.wait((gone,))
        store.go.set()
        assert right(await first, (0, 10)) and right(await stays, (5000, 5100))
        assert store.asked == ["0..10", "5000..5100"]

    async def test_the_last_one_takes_the_turn_along(self) -> None:
        store = HeldStore()
        reads = Reads(store)
        first = await reads.start((0, 10))
        gone = [await reads.start((100, 200)), await reads.start((100, 300))]
        for task in gone:
            task.cancel()
        await asyncio.wait(gone)
        assert asyncio.all_tasks() == {asyncio.current_task(), first}
        later = await reads.start((400, 500))
        store.go.set()
        assert right(await first, (0, 10)) and right(await later, (400, 500))
        assert store.asked == ["0..10", "400..500"]

    async def test_what_only_it_wanted_is_cancelled_and_has_ended(self) -> None:
        store, options = HeldStore(), Options(max_gap_bytes=10, max_requests_in_flight=3, hedge_share=0.0)
        reads = Reads(store, options)
        full = [await reads.start((i, i + 1)) for i in range(3)]
        gone = await reads.start((100, 200), (5000, 5100))
        stays = await reads.start((150, 250))
        for task in full[1:]:
            task.cancel()
        await asyncio.wait(full[1:])
        for _ in range(5):
            await asyncio.sleep(0)
        assert store.asked[3:] == ["100..250", "5000..5100"]
        gone.cancel()
        await asyncio.wait((gone,))
        assert store.cancelled[2:] == ["5000..5100"]
        stays.cancel()
        await asyncio.wait((stays,))
        assert store.cancelled[3:] == ["100..250"]
        store.go.set()
        assert right(await full[0], (0, 1))
        assert reads.client.gate.requests == 0 and reads.client.gate.bytes == 0


spans = st.tuples(st.integers(0, 3000), st.integers(1, 400)).map(lambda s: (s[0], s[0] + s[1]))


def distinct(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    return list({start: (start, end) for start, end in ranges}.values())


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(spans, min_size=1, max_size=4).map(distinct), min_size=1, max_size=12),
    st.integers(1, 4),
    st.integers(0, 300),
)
def test_all_get_what_they_would_get_alone(
    lookups: list[list[tuple[int, int]]], requests: int, gap: int
) -> None:
    async def run() -> None:
        store = HeldStore(BODY[:4000], held=False)
        options = Options(max_requests_in_flight=requests, max_gap_bytes=gap)
        client, pin = client_over(store, options), pin_of(store)
        found = await asyncio.gather(
            *(client.read("f", wants_of(*ranges), pin=pin, metrics=Metrics()) for ranges in lookups)
        )
        for stash, ranges in zip(found, lookups, strict=True):
            assert right(stash, *ranges)
        assert client.gate.requests == 0 and client._pool._passed == 0 and not client._pool._waiting

    asyncio.run(run())
