"""The recorder counts what passes, whatever the clock does."""

from __future__ import annotations

import asyncio
import threading

import pytest

from accel.errors import ObjectChangedError, ObjectNotFoundError, StoreError
from accel.ranges import ByteRange, Suffix
from accel.store.range_store import Lister, ObjectEntry, Payload, RangeStore
from accel.testing.stores import DictStore, LatencyStore, RecordingStore, content_etag


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


DATA = bytes(range(100))
ETAG = content_etag(DATA)


@pytest.mark.parametrize(
    ("want", "span"),
    [
        pytest.param(ByteRange(0, 100), ByteRange(0, 100), id="whole"),
        pytest.param(ByteRange(7, 9), ByteRange(7, 9), id="inner"),
        pytest.param(Suffix(10), ByteRange(90, 100), id="suffix"),
        pytest.param(Suffix(101), ByteRange(0, 100), id="suffix longer than the object"),
    ],
)
async def test_read_answers_exactly_the_range(want: ByteRange | Suffix, span: ByteRange) -> None:
    payload = await DictStore({"a": DATA}).read("a", want)
    assert payload == Payload(DATA[span.start : span.end], span, 100, ETAG)


@pytest.mark.parametrize(
    ("path", "want", "pin", "error", "status"),
    [
        pytest.param("b", ByteRange(0, 1), None, ObjectNotFoundError, 404, id="no such object"),
        pytest.param("a", ByteRange(99, 101), None, StoreError, 416, id="past the end"),
        pytest.param("empty", Suffix(8), None, StoreError, 416, id="suffix of nothing"),
        pytest.param("a", ByteRange(0, 1), '"old"', ObjectChangedError, 412, id="another version"),
        pytest.param(
            "weak", ByteRange(0, 1), 'W/"w"', ObjectChangedError, 412, id="a weak etag never matches"
        ),
    ],
)
async def test_read_refuses(
    path: str, want: ByteRange | Suffix, pin: str | None, error: type[StoreError], status: int
) -> None:
    store = DictStore({"a": DATA, "empty": b"", "weak": DATA})
    store.etags["weak"] = 'W/"w"'
    with pytest.raises(error) as caught:
        await store.read(path, want, if_match=pin)
    assert type(caught.value) is error
    assert caught.value.status == status


async def test_an_overwritten_object_changes_its_etag() -> None:
    store = DictStore({"a": DATA})
    store.put("a", DATA[::-1])
    assert (await store.read("a", Suffix(1))).etag == content_etag(DATA[::-1]) != ETAG


async def test_bytes_and_etag_are_of_one_version_whatever_is_put_meanwhile() -> None:
    """A checksum lets other threads run: one that read then had the new bytes under the old etag."""
    versions = [bytes([number]) * 100_000 for number in range(2)]
    etags = {content_etag(data): data for data in versions}
    store = DictStore({"a": versions[0]})
    ended = threading.Event()

    def replace() -> None:
        while not ended.is_set():
            for data in versions:
                store.put("a", data)

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        for _ in range(3_000):
            payload = await store.read("a", ByteRange(0, 10))
            assert payload.etag is not None
            assert etags[payload.etag][:10] == payload.data
    finally:
        ended.set()
        thread.join()


async def test_list_takes_whole_segments_in_order() -> None:
    store = DictStore({"d/b": b"1", "d/a": b"22", "dd/c": b"", "d": b"4"})
    assert isinstance(store, RangeStore)
    assert isinstance(store, Lister)
    assert [e async for e in store.list("d")] == [
        ObjectEntry("d", 1, content_etag(b"4")),
        ObjectEntry("d/a", 2, content_etag(b"22")),
        ObjectEntry("d/b", 1, content_etag(b"1")),
    ]
    assert [e.path async for e in store.list("")] == ["d", "d/a", "d/b", "dd/c"]


class Clock:
    def __init__(self) -> None:
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


@pytest.mark.parametrize(
    ("bandwidth", "slept"),
    [pytest.param(1000.0, [0.03, 0.05], id="paced"), pytest.param(None, [0.03], id="first byte only")],
)
async def test_read_waits_for_the_first_byte_and_the_body(
    bandwidth: float | None, slept: list[float]
) -> None:
    clock = Clock()
    store = LatencyStore(DictStore({"f": bytes(50)}), first_byte=0.03, bandwidth=bandwidth, sleep=clock.sleep)
    payload = await store.read("f", Suffix(100))
    assert len(payload.data) == 50
    assert clock.slept == slept


async def test_failures_and_listings_wait_too() -> None:
    clock = Clock()
    store = LatencyStore(DictStore({"f": b"1"}), first_byte=0.03, sleep=clock.sleep)
    with pytest.raises(ObjectNotFoundError):
        await store.read("g", Suffix(1))
    assert isinstance(store, Lister)
    assert [entry.path async for entry in store.list("")] == ["f"]
    assert clock.slept == [0.03, 0.03]
