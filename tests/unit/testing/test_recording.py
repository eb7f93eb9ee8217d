"""The recorder counts what passes, whatever the clock does."""

from __future__ import annotations

import asyncio

import pytest

from accel.errors import ObjectNotFoundError
from accel.ranges import ByteRange, Suffix
from accel.store.range_store import Lister, Payload, RangeStore
from accel.testing.memory import DictStore
from accel.testing.recording import RecordingStore


class OnlyReads:
    """A store that cannot list."""

    async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
        return Payload(b"x", ByteRange(0, 1), 1, None)


async def two_waves(store: RangeStore) -> None:
    """A suffix, then three ranges at once."""
    await store.read("f", Suffix(8))
    async with asyncio.TaskGroup() as group:
        for start in (40, 20, 0):
            group.create_task(store.read("f", ByteRange(start, start + 10), if_match=None))


async def test_requests_bytes_and_waves() -> None:
    store = RecordingStore(DictStore({"f": bytes(50)}))
    await two_waves(store)
    # 8 + 3 * 10 bytes; the three ranges overlap and are one wave after the suffix.
    assert (store.requests, store.bytes, store.waves, store.depth) == (4, 38, 2, 2)
    assert (store.peak, store.in_flight) == (3, 0)
    assert store.fetched("f") == [ByteRange(0, 10), ByteRange(20, 30), ByteRange(40, 50), ByteRange(42, 50)]
    assert store.touches("f", ByteRange(29, 31))
    assert not store.touches("f", ByteRange(30, 40))
    assert not store.touches("g", ByteRange(0, 50))


async def test_the_log_is_sorted_within_a_wave() -> None:
    store = RecordingStore(DictStore({"f": bytes(50)}))
    await two_waves(store)
    assert store.log() == (
        "wave 1: f last 8 bytes -> 8 bytes\n"
        "wave 2: f bytes 0..10 -> 10 bytes\n"
        "wave 2: f bytes 20..30 -> 10 bytes\n"
        "wave 2: f bytes 40..50 -> 10 bytes"
    )


async def test_the_log_tells_pins_failures_and_cancellation() -> None:
    inner = DictStore({"f": bytes(50)})
    store = RecordingStore(inner)
    await store.read("f", ByteRange(0, 1), if_match=inner.etags["f"])
    with pytest.raises(ObjectNotFoundError):
        await store.read("g", Suffix(8))
    task = asyncio.create_task(store.read("f", ByteRange(1, 3)))
    await asyncio.sleep(0)
    assert store.in_flight == 1
    with pytest.raises(RuntimeError, match="1 requests are in flight"):
        store.clear()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert store.log() == (
        "wave 1: f bytes 0..1 if-match -> 1 bytes\n"
        "wave 2: g last 8 bytes -> ObjectNotFoundError\n"
        "wave 3: f bytes 1..3 -> CancelledError"
    )
    assert store.in_flight == 0


async def test_depth_sees_chains_that_overlapping_waves_hide() -> None:
    gate = asyncio.Event()

    class Slow(DictStore):
        async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
            if path == "slow":
                await gate.wait()
            return await super().read(path, want, if_match=if_match)

    store = RecordingStore(Slow({"slow": b"1", "fast": b"2"}))
    async with asyncio.TaskGroup() as group:
        group.create_task(store.read("slow", Suffix(1)))
        for _ in range(3):
            await store.read("fast", Suffix(1))
        gate.set()
    assert (store.requests, store.waves, store.depth) == (4, 1, 3)


async def test_listing_is_a_request_and_only_where_the_inner_store_lists() -> None:
    store = RecordingStore(DictStore({"d/a": b"1", "d/b": b"2"}))
    assert isinstance(store, Lister)
    assert [entry.path async for entry in store.list("d")] == ["d/a", "d/b"]
    assert store.log() == "wave 1: d list -> 0 bytes"
    assert not isinstance(RecordingStore(OnlyReads()), Lister)


async def test_clear_starts_anew() -> None:
    store = RecordingStore(DictStore({"f": bytes(50)}))
    await two_waves(store)
    store.clear()
    assert (store.requests, store.bytes, store.waves, store.depth, store.log()) == (0, 0, 0, 0, "")
    await store.read("f", Suffix(8))
    assert store.waves == 1
