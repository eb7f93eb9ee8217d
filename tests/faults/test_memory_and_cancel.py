"""A scan holds no more than it may, and lets go of everything when nobody wants the rest."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel import memory
from accel.ranges import ByteRange, Suffix
from accel.runtime import io_loop
from accel.store.range_store import Payload, RangeStore
from accel.testing import DictStore, LatencyStore, Layout, RecordingStore, table, write_file
from accel.testing.stores import StoreWrapper
from tests.support.arrow import counting_pool

pytestmark = pytest.mark.usefixtures("few_to_collect")

ROWS = 400_000
PATH = "big.parquet"
MIB = 1 << 20


class Ledger:
    """Bytes that were handed out and are still held by somebody."""

    def __init__(self) -> None:
        self.now = self.peak = self.total = 0
        self._lock = threading.Lock()

    def add(self, amount: int) -> None:
        with self._lock:
            self.now += amount
            self.peak = max(self.peak, self.now)
            self.total += max(amount, 0)


class Held(bytes):
    """A body that tells when the last reference to it goes."""

    ledger: Ledger | None = None

    def __del__(self) -> None:
        if self.ledger is not None:
            self.ledger.add(-len(self))


class HeldStore(StoreWrapper):
    """Counts the bodies that are alive."""

    def __init__(self, inner: RangeStore) -> None:
        super().__init__(inner)
        self.ledger = Ledger()

    async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
        payload = await self.inner.read(path, want, if_match=if_match)
        body = Held(payload.data)
        body.ledger = self.ledger
        self.ledger.add(len(body))
        return Payload(body, payload.range, payload.size, payload.etag)


def big_table() -> pa.Table:
    """One row group of some 13 MB; what is random does not compress."""
    rng = np.random.default_rng(3)
    return table(
        key=pa.array(np.arange(ROWS)),
        value=pa.array(rng.standard_normal(ROWS)),
        number=pa.array(rng.integers(0, 1 << 60, ROWS)),
        name=pa.array([f"{n:016x}" for n in rng.integers(0, 1 << 60, ROWS)]),
    )


@pytest.fixture(scope="module")
def paged() -> bytes:
    return write_file(big_table(), Layout(page_rows=4000, dictionary=False))


@pytest.fixture(scope="module")
def pageless() -> bytes:
    return write_file(big_table(), Layout(page_rows=4000, dictionary=False, page_index=False))


@pytest.fixture
def pool() -> Iterator[pa.MemoryPool]:
    """What pyarrow allocates meanwhile, counted from zero; accel too, which has a pool of its own
    otherwise."""
    before = pa.default_memory_pool()
    counting = counting_pool()
    pa.set_memory_pool(counting)
    memory.choose_pool()
    assert memory.pool() is None
    yield counting
    pa.set_memory_pool(before)
    memory.choose_pool()


SMALL = accel.Options(memory_limit=8 * MIB, piece_bytes=MIB // 2, max_coalesced_bytes=MIB, tail_hint=4096)


def tasks_left() -> list[str]:
    """What the tasks of the I/O loop run, but for the one that looks at them."""

    async def look() -> list[str]:
        for _ in range(5):
            await asyncio.sleep(0)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        return sorted(task.get_coro().__qualname__ for task in others)  # type: ignore[union-attr]

    return io_loop.run(look())


# Memory.


def test_a_row_group_larger_than_the_limit_streams_through(paged: bytes, pool: pa.MemoryPool) -> None:
    store = HeldStore(DictStore({PATH: paged}))
    scan = accel.scan(PATH, store=store, cache=accel.Cache(), options=SMALL)
    rows = 0
    for batch in scan:
        assert batch.column(0)[0].as_py() == rows
        rows += batch.num_rows
    assert rows == ROWS
    assert store.ledger.total > SMALL.memory_limit
    assert store.ledger.peak < SMALL.memory_limit
    # Decoding needs room of its own beside what it makes; but not what the whole file would need.
    assert MIB < pool.max_memory() < 1.5 * SMALL.memory_limit


def test_a_consumer_that_sleeps_stops_the_reading(paged: bytes, pool: pa.MemoryPool) -> None:
    store = HeldStore(DictStore({PATH: paged}))
    scan = accel.scan(PATH, store=store, cache=accel.Cache(), options=SMALL)
    batches = scan.to_batches()
    first = next(batches)
    seen = -1
    while seen != store.ledger.total:
        seen = store.ledger.total
        time.sleep(0.1)
    assert seen < SMALL.memory_limit
    assert store.ledger.now + pool.bytes_allocated() < SMALL.memory_limit
    rest = sum(batch.num_rows for batch in batches)
    assert first.num_rows + rest == ROWS


def test_what_is_decoded_does_not_wait_for_the_collector(paged: bytes) -> None:
    """A circle of references would hold the bytes of pages beyond the limit, as long as Python pleases."""
    store, cache = DictStore({PATH: paged}), accel.Cache(data=0)

    def look_up(key: int) -> None:
        assert accel.scan(PATH, where=f"key = {key}", store=store, cache=cache).to_table().num_rows == 1

    look_up(1)
    gc.collect()
    gc.disable()
    try:
        gc.set_debug(gc.DEBUG_SAVEALL)
        look_up(ROWS // 2)
        gc.collect()
        # The stores of other tests refer to themselves, by a method that they were given.
        found = [o for o in gc.garbage if not isinstance(o, DictStore)]
        circular = [o for o in found if type(o).__module__.startswith("accel") or type(o) is memoryview]
        assert circular == []
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def test_many_files_share_one_limit(paged: bytes, pool: pa.MemoryPool) -> None:
    store = HeldStore(DictStore({f"dir/{i:02d}.parquet": paged for i in range(12)}))
    for order in (True, False):
        scan = accel.scan("dir/", store=store, cache=accel.Cache(), options=SMALL, order=order)
        assert sum(batch.num_rows for batch in scan) == 12 * ROWS
    assert store.ledger.peak < SMALL.memory_limit
    assert MIB < pool.max_memory() < 1.5 * SMALL.memory_limit


def test_nothing_is_held_after_a_scan(paged: bytes) -> None:
    store = HeldStore(DictStore({PATH: paged}))
    scan = accel.scan(PATH, columns=["key"], store=store, cache=None, options=SMALL)
    assert scan.to_table().num_rows == ROWS
    gc.collect()
    assert store.ledger.now == 0


def test_a_piece_that_cannot_be_cut_is_refused_before_it_is_read(pageless: bytes) -> None:
    store = RecordingStore(DictStore({PATH: pageless}))
    scan = accel.scan(PATH, store=store, cache=accel.Cache(), options=SMALL)
    with pytest.raises(accel.MemoryLimitError, match="cannot be cut") as caught:
        scan.to_table()
    assert isinstance(caught.value, MemoryError)
    assert caught.value.path == PATH
    assert caught.value.place == "row group 0"
    assert caught.value.hint is not None
    assert "memory_limit" in caught.value.hint
    assert store.bytes < 64 * 1024
    # One of its columns fits.
    found = accel.scan(
        PATH, "key >= 399990", columns=["key"], store=store, cache=accel.Cache(), options=SMALL
    )
    assert found.to_table().column("key").to_pylist() == list(range(399_990, ROWS))


def test_texts_that_a_dictionary_repeats_stream_through(pool: pa.MemoryPool) -> None:
    """Some kilobytes that decode to fifty megabytes, and say so: cut into pieces as what they are."""
    rows = 100_000
    texts = pa.array([f"{i % 3}" * 500 for i in range(rows)])
    constant = pa.array(np.full(rows, 7))
    data = write_file(table(text=texts, constant=constant), Layout(page_rows=1000))
    assert len(data) < 200_000
    del texts
    scan = accel.scan(PATH, store=DictStore({PATH: data}), cache=accel.Cache(), options=SMALL)
    counting = counting_pool()
    pa.set_memory_pool(counting)
    assert sum(batch.num_rows for batch in scan) == rows
    assert MIB < counting.max_memory() < 2 * SMALL.memory_limit


def test_a_page_that_decodes_to_far_more_is_refused() -> None:
    """Two hundred bytes of pages that name one long text a hundred thousand times."""
    data = write_file(table(text=pa.array(["x" * 2000] * 100_000)), Layout(page_rows=100_000))
    assert len(data) < 20_000
    scan = accel.scan(PATH, store=DictStore({PATH: data}), cache=accel.Cache(), options=SMALL)
    with pytest.raises(accel.MemoryLimitError, match="cannot be cut") as caught:
        scan.to_table()
    assert caught.value.path == PATH


# Stopping early.

SLOW = accel.Options(piece_bytes=64 * 1024, max_coalesced_bytes=64 * 1024, max_gap_bytes=0, tail_hint=4096)


def slow_store(data: bytes, latency: float = 0.02) -> RecordingStore:
    return RecordingStore(LatencyStore(DictStore({PATH: data}), first_byte=latency, bandwidth=None))


def slow_scan(store: RecordingStore) -> accel.Scan:
    return accel.scan(PATH, store=store, cache=accel.Cache(), options=SLOW)


def check_quiet(store: RecordingStore, before: list[str]) -> None:
    assert store.in_flight == 0
    assert tasks_left() == before
    asked = store.requests
    time.sleep(0.1)
    assert store.requests == asked


def await_quiet(store: RecordingStore, before: list[str]) -> None:
    """After what is dropped: nobody waits for that close."""
    while store.in_flight or tasks_left() != before:
        time.sleep(0.01)
    check_quiet(store, before)


async def test_breaking_out_of_async_for(paged: bytes) -> None:
    before = tasks_left()
    store = slow_store(paged)
    async with slow_scan(store) as scan:
        async for batch in scan:
            assert batch.num_rows > 0
            break
    check_quiet(store, before)


async def test_aclose_of_the_iterator(paged: bytes) -> None:
    before = tasks_left()
    store = slow_store(paged)
    batches = aiter(slow_scan(store))
    await anext(batches)
    await batches.aclose()  # type: ignore[attr-defined]
    check_quiet(store, before)


@pytest.mark.parametrize("turns", [1, 2, 3, 4])
@pytest.mark.parametrize("whole", [True, False], ids=["the scan", "its iterator"])
async def test_an_aclose_that_is_cancelled_ends_all_the_same(paged: bytes, turns: int, whole: bool) -> None:
    before = tasks_left()
    store = slow_store(paged)
    scan = slow_scan(store)
    batches = aiter(scan)
    await anext(batches)
    closing = asyncio.ensure_future(scan.aclose() if whole else batches.aclose())  # type: ignore[attr-defined]
    for _ in range(turns):
        await asyncio.sleep(0)
    closing.cancel()
    with suppress(asyncio.CancelledError):
        await closing
    check_quiet(store, before)


class LingeringStore(StoreWrapper):
    """A request that is cancelled takes a while to end."""

    def __init__(self, inner: RangeStore) -> None:
        super().__init__(inner)
        self.lingering = 0

    async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
        try:
            return await self.inner.read(path, want, if_match=if_match)
        except asyncio.CancelledError:
            self.lingering += 1
            await asyncio.sleep(0.1)
            self.lingering -= 1
            raise


@pytest.mark.parametrize("apart", [0.0, 0.03], ids=["at once", "one after the other"])
@pytest.mark.parametrize("in_order", [False, True], ids=["all rows", "the first in an order"])
async def test_whoever_closes_a_scan_that_is_being_closed_waits_for_its_end(
    paged: bytes, apart: float, in_order: bool
) -> None:
    before = tasks_left()
    store = LingeringStore(slow_store(paged, latency=0.5))
    order = {"order_by": "value", "limit": 10} if in_order else {}
    scan = accel.scan(PATH, store=store, cache=accel.Cache(), options=SLOW, **order)  # type: ignore[arg-type]
    batches = aiter(scan)
    taking = asyncio.ensure_future(anext(batches))
    await asyncio.sleep(0.7)  # it reads pages
    taking.cancel()
    await asyncio.sleep(apart)
    await scan.aclose()
    assert store.lingering == 0
    assert tasks_left() == before
    with suppress(asyncio.CancelledError):
        await taking


def test_closing_the_blocking_iterator(paged: bytes) -> None:
    before = tasks_left()
    store = slow_store(paged)
    batches = slow_scan(store).to_batches()
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    check_quiet(store, before)


def test_dropping_the_blocking_iterator(paged: bytes) -> None:
    before = tasks_left()
    store = slow_store(paged)
    for _ in slow_scan(store):
        break
    gc.collect()
    await_quiet(store, before)


def test_collecting_an_abandoned_iterator_on_the_io_loop_itself(paged: bytes) -> None:
    """The garbage collector runs where it likes; that loop cannot wait for what it is to do itself."""
    before = tasks_left()
    store = slow_store(paged)
    batches = slow_scan(store).to_batches()
    next(batches)
    abandoned = weakref.ref(batches)
    cycle: list[object] = [batches]
    cycle.append(cycle)

    async def collect() -> None:
        gc.collect()

    gc.disable()  # or it is collected on this thread
    try:
        del batches, cycle
        assert abandoned() is not None
        io_loop.run(collect())
    finally:
        gc.enable()
    assert abandoned() is None
    await_quiet(store, before)


def test_leaving_with(paged: bytes) -> None:
    before = tasks_left()
    store = slow_store(paged)
    with slow_scan(store) as scan:
        batches = scan.to_batches()
        next(batches)
    check_quiet(store, before)
    # A part of the rows must not pass for all of them.
    with pytest.raises(accel.AccelError, match="closed"):
        list(batches)


def test_an_error_of_the_consumer_inside_with(paged: bytes) -> None:
    before = tasks_left()
    store = slow_store(paged)
    with pytest.raises(ZeroDivisionError), slow_scan(store) as scan:
        for batch in scan:
            batch.num_rows / 0
    check_quiet(store, before)


def test_head_and_limit_stop(paged: bytes) -> None:
    before = tasks_left()
    store = slow_store(paged)
    assert slow_scan(store).head(3).column("key").to_pylist() == [0, 1, 2]
    check_quiet(store, before)
    assert store.bytes < len(paged) // 4


@pytest.mark.parametrize("when", [0.0, 0.01, 0.03, 0.05, 0.1])
async def test_cancelling_at_any_time(paged: bytes, when: float) -> None:
    before = tasks_left()
    store = slow_store(paged)
    task = asyncio.create_task(slow_scan(store).to_table_async())
    await asyncio.sleep(when)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    check_quiet(store, before)


async def test_a_timeout_around_each_face(paged: bytes) -> None:
    before = tasks_left()
    store = slow_store(paged, latency=30.0)
    scan = slow_scan(store)
    for ask in (
        scan.to_table_async,
        scan.head_async,
        scan.count_rows_async,
        scan.schema_async,
        scan.explain_async,
        lambda: anext(aiter(scan)),
    ):
        begun = time.monotonic()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(ask(), 0.05)  # type: ignore[arg-type]
        assert time.monotonic() - begun < 5.0
        assert store.in_flight == 0
    check_quiet(store, before)
    # None of them has spoiled the scan, nor what it shares with others.
    store.inner.first_byte = 0.0  # type: ignore[attr-defined]
    assert await scan.count_rows_async() == ROWS


async def test_one_of_two_who_wait_for_a_footer_is_cancelled(paged: bytes) -> None:
    """Both wait for one request; it is not the canceller's alone."""
    store = slow_store(paged, latency=0.1)
    cache = accel.Cache()
    scans = [accel.scan(PATH, store=store, cache=cache, options=SLOW) for _ in range(2)]
    impatient, patient = (asyncio.create_task(scan.head_async(2)) for scan in scans)
    await asyncio.sleep(0.03)
    impatient.cancel()
    assert (await patient).column("key").to_pylist() == [0, 1]
    assert impatient.cancelled()
    assert sum(isinstance(call.want, Suffix) for call in store.calls) == 1


def test_closing_from_another_thread_frees_the_consumer(paged: bytes) -> None:
    before = tasks_left()
    store = slow_store(paged, latency=30.0)
    scan = slow_scan(store)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(lambda: list(scan.to_batches()))
        while store.requests == 0:
            time.sleep(0.01)
        scan.close()
        with pytest.raises(accel.AccelError, match="closed"):
            waiting.result(10)
    check_quiet(store, before)


# One scan, many users.


def test_one_scan_from_several_threads_and_loops_at_once(paged: bytes) -> None:
    before = tasks_left()
    store = RecordingStore(DictStore({PATH: paged}))
    scan = accel.scan(PATH, "key < 100000", columns=["key"], store=store, options=SLOW)
    total = sum(range(100_000))

    async def stream() -> int:
        return sum([int(np.sum(batch.column(0).to_numpy())) async for batch in scan])

    def blocking() -> int:
        return sum(int(np.sum(batch.column(0).to_numpy())) for batch in scan)

    def whole() -> int:
        return int(np.sum(scan.to_table().column(0).to_numpy()))

    jobs = [blocking, whole, lambda: asyncio.run(stream())] * 4
    with ThreadPoolExecutor(len(jobs)) as threads:
        answers = [job.result(60) for job in [threads.submit(job) for job in jobs]]
    assert answers == [total] * len(jobs)
    check_quiet(store, before)


async def test_a_blocking_call_inside_a_running_loop(paged: bytes) -> None:
    store = RecordingStore(DictStore({PATH: paged}))
    assert accel.scan(PATH, "key < 7", store=store, cache=accel.Cache()).to_table().num_rows == 7


def test_an_abandoned_scan_does_not_keep_the_process(tmp_path: Path, paged: bytes) -> None:
    """Neither a half-read scan nor its reader delays or spoils the exit."""
    path = tmp_path / PATH
    path.write_bytes(paged)
    code = (
        "import sys, accel\n"
        "scan = accel.scan(sys.argv[1], options=accel.Options(piece_bytes=65536, batch_rows=1000))\n"
        "batches = scan.to_batches(); next(batches)\n"
        "reader = scan.to_reader(); reader.read_next_batch()\n"
        "sys.exit(7)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(path)], timeout=60, capture_output=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (7, b"")
