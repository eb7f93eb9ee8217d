"""Reads of one version: from what is cached, shared while under way, never in part, never of another
version."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from accel.cache.cache import Cache
from accel.cache.pinned_reads import PinnedReads
from accel.coalesce import Merging
from accel.errors import ObjectChangedError, StoreError
from accel.metrics import Metrics
from accel.options import Options
from accel.ranges import ByteRange, Kind, ObjectId, ReadKey, Want
from accel.store.client import Client
from accel.testing import DictStore, FaultStore, RecordingStore, Status

DATA = bytes(i % 251 for i in range(2_000_000))


class Bench:
    """A store, a client over it, and reads of one object of it."""

    def __init__(self, etag: str | None = "strong", root: str = "store:", inner: Any = None) -> None:
        self.objects = DictStore({"f": DATA})
        if etag != "strong":
            self.objects.etags["f"] = etag
        self.store = RecordingStore(inner(self.objects) if inner else self.objects)
        options = Options(max_gap_bytes=0, max_attempts=1, allow_unpinned=True)
        self.client = Client(self.store, root=root, token="t", options=options)
        self.cache = Cache()
        self.file = ObjectId("f", len(DATA), self.objects.etags["f"])
        self.metrics = Metrics()
        self.merging: Merging | None = None

    def reads(self, *, current: bool = True) -> PinnedReads:
        return PinnedReads(
            self.client,
            self.cache,
            file=self.file,
            metrics=self.metrics,
            current=current,
            merging=self.merging,
        )

    async def read(self, *spans: tuple[int, int], current: bool = True, kind: Kind = Kind.PAGE) -> int:
        """Read, check what came, and tell the round trips."""
        wants = [want(*span, kind=kind) for span in spans]
        stash, trips = await self.reads(current=current).read(wants)
        assert set(stash) == {w.key for w in wants}
        for w in wants:
            assert stash[w.key] == DATA[w.range.start : w.range.end]
        return trips

    def asked(self) -> list[tuple[int, int]]:
        """The ranges asked for since the last time."""
        found = [(r.start, r.end) for r in self.store.fetched("f")]
        self.store.clear()
        return found


def cached(bench: Bench, *spans: tuple[int, int]) -> list[bool]:
    """Whether each span is cached whole."""
    tier = bench.cache.byte_tier
    return [tier.missing("t", bench.file, ByteRange(*span)) is None for span in spans]


def want(start: int, end: int, kind: Kind = Kind.PAGE) -> Want:
    return Want(ReadKey(kind, 0, 0, start), ByteRange(start, end))


async def test_what_was_read_is_not_asked_for_again() -> None:
    bench = Bench()
    assert await bench.read((100, 200), (300, 500)) == 1
    assert bench.asked() == [(100, 200), (300, 500)]
    assert await bench.read((100, 200), (300, 500)) == 0
    assert await bench.read((150, 180)) == 0
    assert bench.asked() == []
    assert (bench.metrics.requests, bench.metrics.data_hits, bench.metrics.cached_bytes) == (2, 3, 330)


async def test_only_what_is_missing_is_asked_for() -> None:
    bench = Bench()
    await bench.read((100, 200), (300, 500))
    bench.asked()
    reads = bench.reads()
    wants = [want(50, 150), want(100, 400), want(320, 330), want(600, 700)]
    assert [reads.missing(w) for w in wants] == [
        ByteRange(50, 100),
        ByteRange(200, 300),
        None,
        ByteRange(600, 700),
    ]
    assert await bench.read((50, 150), (100, 400), (320, 330), (600, 700)) == 1
    assert bench.asked() == [(50, 100), (200, 300), (600, 700)]
    assert await bench.read((50, 500)) == 0


@pytest.mark.parametrize(
    "bench",
    [
        pytest.param(lambda: Bench(etag='W/"a"'), id="weak etag"),
        pytest.param(lambda: Bench(etag=None), id="no etag"),
        pytest.param(lambda: Bench(root="file://"), id="local file"),
    ],
)
async def test_what_is_never_cached(bench: Any) -> None:
    made = bench()
    for _ in range(2):
        assert await made.read((0, 100)) == 1
        assert made.asked() == [(0, 100)]
    assert made.cache.stats().data_entries == 0
    assert made.reads().missing(want(0, 100)) == ByteRange(0, 100)


async def test_a_version_of_unknown_age_is_asked_for_and_not_kept() -> None:
    bench = Bench()
    assert await bench.read((0, 100), current=False) == 1
    assert bench.cache.stats().data_entries == 0
    await bench.read((0, 100))
    bench.asked()
    assert await bench.read((0, 100), current=False) == 1
    assert bench.asked() == [(0, 100)]


async def test_dictionaries_have_a_place_of_their_own() -> None:
    bench = Bench()
    await bench.read((0, 100), kind=Kind.DICTIONARY)
    assert bench.cache.stats().data_entries == 0
    assert bench.reads().missing(want(0, 100, Kind.DICTIONARY)) == ByteRange(0, 100)


async def test_a_read_of_more_than_its_share_is_kept_the_second_time() -> None:
    bench = Bench()
    bench.cache = Cache(data=16 * 1000)
    spans = [(0, 501), (1000, 1500)]
    for asked, entries in ((spans, 0), (spans, 2), ([], 2)):
        assert await bench.read(*spans) == (1 if asked else 0)
        assert bench.asked() == asked
        assert bench.cache.stats().data_entries == entries
    bench.metrics = Metrics()
    await bench.read((5000, 5125), (6000, 6125))  # no more than its share
    assert bench.cache.stats().data_entries == 4


async def test_a_read_of_more_than_its_share_is_kept_at_once_where_there_is_room() -> None:
    """Its scan has read no more than a sixteenth of the limit, and half the cache stays empty."""
    bench = Bench()
    bench.cache = Cache(data=64 * 1000)
    spans = [(0, 1500), (2000, 3500)]
    assert await bench.read(*spans) == 1
    assert await bench.read(*spans) == 0
    assert await bench.read((4000, 5001)) == 1  # its scan has read too much
    assert bench.asked() == [*spans, (4000, 5001)]
    assert await bench.read((4000, 5001)) == 1  # but is known now
    assert await bench.read((4000, 5001)) == 0
    other = ObjectId("other", 30_000, '"1"')
    bench.cache.byte_tier.put("t", other, 0, memoryview(bytes(27_000)))
    for number in range(3):
        bench.metrics = Metrics()
        assert await bench.read((10_000, 11_500)) == (0 if number == 2 else 1)
    assert all(cached(bench, *spans, (4000, 5001), (10_000, 11_500)))
    assert bench.cache.stats().data_evictions == 0


async def test_small_reads_of_one_scan_are_kept_up_to_its_share() -> None:
    bench = Bench()
    bench.cache = Cache(data=1_000_000)
    spans = [(at, at + 10_000) for at in range(0, 300_000, 10_000)]
    for stored in (12, 30):
        bench.metrics = Metrics()
        for span in spans:
            await bench.read(span)
        assert cached(bench, *spans) == [True] * stored + [False] * (30 - stored)
    bench.asked()
    for span in spans:
        assert await bench.read(span) == 0
    assert bench.asked() == []


async def test_a_scan_of_more_than_half_is_never_kept() -> None:
    bench = Bench()
    bench.cache = Cache(data=1_000_000)
    other = ObjectId("other", 600_000, '"1"')
    bench.cache.byte_tier.put("t", other, 0, memoryview(bytes(500_000)))  # else its beginning were
    spans = [(at, at + 20_000) for at in range(0, 600_000, 20_000)]
    for _ in range(3):
        for span in spans:
            assert await bench.read(span) == 1
        assert bench.asked() == spans
        stats = bench.cache.stats()
        assert (stats.data_entries, stats.data_evictions) == (1, 0)


async def test_dictionaries_of_a_scan_are_kept_with_its_data() -> None:
    bench = Bench()
    wants = [want(0, 100, Kind.DICTIONARY), want(100, 200)]
    scanning = PinnedReads(
        bench.client, bench.cache, file=bench.file, metrics=bench.metrics, current=True, dictionaries=True
    )
    await scanning.read(wants)
    assert bench.asked() == [(0, 200)]
    stash, trips = await scanning.read(wants)
    assert (trips, stash[wants[0].key], stash[wants[1].key]) == (0, DATA[:100], DATA[100:200])
    assert await bench.read((0, 100), kind=Kind.DICTIONARY) == 0  # a lookup finds it too
    assert bench.asked() == []


@pytest.mark.parametrize("length", [10_000, 900_000])
@pytest.mark.parametrize("times", [1, 2])
async def test_no_more_is_kept_alive_than_is_counted(length: int, times: int) -> None:
    """A part of a merged answer is a copy."""
    bench = Bench()
    bench.cache = Cache(data=4_000_000)
    bench.merging = Merging(max_gap_bytes=1000, max_coalesced_bytes=1 << 20)
    spans = [(0, length), (length, 2 * length), (2 * length + 100, 2 * length + 110)]
    for _ in range(times):
        bench.metrics = Metrics()
        await bench.read(*spans)
    for cached_range in bench.cache.byte_tier.find("t", bench.file, [ByteRange(*span) for span in spans]):
        for part in cached_range.before:
            assert memoryview(part.obj).nbytes == part.nbytes
    assert bench.cache.stats().data_nbytes <= 2 * length + 10 + 3 * 256


async def test_one_request_for_all_who_want_the_same() -> None:
    bench = Bench()
    trips = await asyncio.gather(*(bench.read((0, 100), (500, 600)) for _ in range(256)))
    assert trips == [1] * 256
    assert bench.asked() == [(0, 100), (500, 600)]
    assert bench.metrics.requests == 2
    assert len(bench.cache.single_flight) == 0


async def test_a_failure_leaves_nothing_behind() -> None:
    """Of two parallel requests one fails: the part that came is not kept either."""

    def script(attempt: Any) -> Status | None:
        return Status(403) if attempt.want == ByteRange(500, 600) else None

    bench = Bench(inner=lambda inner: FaultStore(inner, script))
    outcomes = await asyncio.gather(
        *(bench.read((0, 100), (500, 600)) for _ in range(3)), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [StoreError] * 3
    assert bench.cache.stats().data_entries == 0
    assert (bench.store.in_flight, len(bench.cache.single_flight)) == (0, 0)


async def test_cancelled_it_leaves_nothing_behind() -> None:
    bench = Bench()
    tasks = [asyncio.ensure_future(bench.read((0, 100), (500, 600))) for _ in range(3)]
    for _ in range(8):  # the store holds a request for 25 turns
        await asyncio.sleep(0)
    assert bench.store.in_flight == 2
    for task in tasks[:2]:
        task.cancel()
    await asyncio.gather(*tasks[:2], return_exceptions=True)
    assert bench.store.in_flight == 2  # the third still waits
    tasks[2].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert (bench.store.in_flight, bench.cache.stats().data_entries, len(bench.cache.single_flight)) == (
        0,
        0,
        0,
    )
    assert await bench.read((0, 100)) == 1


async def test_two_versions_share_no_read() -> None:
    bench = Bench()
    other = Bench()
    other.client, other.cache, other.store = bench.client, bench.cache, bench.store
    other.file = ObjectId("f", len(DATA), '"another"')
    trips, refused = await asyncio.gather(bench.read((0, 100)), other.read((0, 100)), return_exceptions=True)
    assert (trips, type(refused)) == (1, ObjectChangedError)


async def test_a_changed_object_is_forgotten() -> None:
    bench = Bench()
    await bench.read((0, 100))
    bench.objects.put("f", DATA[::-1])
    with pytest.raises(ObjectChangedError):
        await bench.read((50, 150))
    assert bench.cache.stats().data_entries == 0
    bench.file = ObjectId("f", len(DATA), bench.objects.etags["f"])
    stash, _ = await bench.reads().read([want(0, 100)])
    assert stash[want(0, 100).key] == DATA[::-1][:100]


async def test_clear_forgets_data_too() -> None:
    bench = Bench()
    await bench.read((0, 100))
    bench.cache.clear()
    assert bench.cache.stats().data_nbytes == 0
    assert await bench.read((0, 100)) == 1
