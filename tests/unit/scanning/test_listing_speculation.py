"""Sources read as they were the last time, while their store is asked: a trip less, and the rows that are
there now."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.planning.file_entry import FileBlock, FileEntry, FileFacts
from accel.planning.handle import FileHandle
from accel.ranges import ByteRange, Kind, Suffix
from accel.runtime import io_loop
from accel.scanning.file_stream import ListingSpeculation
from accel.store.range_store import ObjectEntry, Payload
from accel.testing import DictStore, Layout, RecordingStore, table, write_file
from accel.versions import FileVersion

OPTIONS = accel.Options(tail_hint=4096, max_gap_bytes=0)
WAIT = 20
# Of the loop, in which a small directory in memory is read.
TURNS = 300


def file(first: int, rows: int = 3000) -> bytes:
    """Rows from `first` on, too long for any tail."""
    rng = np.random.default_rng(first)
    rows_of = table(k=pa.array(np.arange(first, first + rows)), noise=pa.array(rng.standard_normal(rows)))
    return write_file(rows_of, Layout(page_rows=500, dictionary=False, codec="none"))


class HeldListings(DictStore):
    """Lists once it is let, and what does not wait for it has been done; `reads` counts what was read of
    objects."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        super().__init__(objects)
        self.may_list = threading.Event()
        self.may_list.set()
        self.reads = 0
        self.failure: Exception | None = None

    async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
        payload = await super().read(path, want, if_match=if_match)
        self.reads += 1
        return payload

    async def list(self, prefix: str) -> AsyncIterator[ObjectEntry]:
        for _ in range(TURNS):
            await asyncio.sleep(0)
        while not self.may_list.is_set():
            await asyncio.sleep(0.001)
        if self.failure is not None:
            raise self.failure
        async for entry in super().list(prefix):
            yield entry


@pytest.fixture(scope="module")
def three() -> dict[str, bytes]:
    return {f"d/part-{i}": file(10_000 * i) for i in range(3)}


@pytest.fixture
def store(three: dict[str, bytes]) -> HeldListings:
    return HeldListings(three)


@pytest.fixture
def cache() -> accel.Cache:
    return accel.Cache()


def scan(
    store: object, cache: accel.Cache | None, where: str | None = "k < 25000", **keywords: object
) -> accel.Scan:
    settings: dict[str, object] = {"columns": ["k"], "options": OPTIONS}
    return accel.scan("d/", where, store=store, cache=cache, **{**settings, **keywords})  # type: ignore[arg-type]


def keys(scan: accel.Scan) -> list[int]:
    return scan.to_table().column("k").to_pylist()  # type: ignore[no-any-return]


def expected(*parts: int) -> list[int]:
    return [k for part in parts for k in range(10_000 * part, 10_000 * part + 3000) if k < 25_000]


def tasks_under_way() -> list[str]:
    async def look() -> list[str]:
        own = asyncio.current_task()
        return [str(task.get_coro()) for task in asyncio.all_tasks() if task is not own]

    return io_loop.run(look())


# A directory that stays as it is.


@pytest.mark.parametrize(
    "take",
    [
        lambda found: found.to_table().num_rows,
        lambda found: sum(batch.num_rows for batch in found),
        lambda found: asyncio.run(found.to_table_async()).num_rows,
        lambda found: found.aggregate([("k", "count")]).column(0)[0].as_py(),
    ],
    ids=["table", "batches", "async", "aggregate"],
)
def test_data_is_asked_for_beside_the_listing(
    three: dict[str, bytes], take: Callable[[accel.Scan], int]
) -> None:
    inner = RecordingStore(DictStore(three))
    held = accel.Cache(data=0)
    first = scan(inner, held, "noise > 0")
    rows = take(first)
    assert 4000 < rows < 5000
    assert (inner.depth, first.metrics.round_trips) == (3, 3)
    inner.clear()
    again = scan(inner, held, "noise > 0")
    assert take(again) == rows
    assert (inner.depth, again.metrics.round_trips, again.metrics.restarts) == (1, 1, 0)
    assert sum(call.want is None for call in inner.calls) == 1
    assert again.metrics.requests == len(inner.calls)
    assert again.metrics.files.total == 3


def test_without_a_cache_the_listing_comes_first(three: dict[str, bytes]) -> None:
    inner = RecordingStore(DictStore(three))
    for _ in range(2):
        inner.clear()
        assert keys(scan(inner, None)) == expected(0, 1, 2)
        assert inner.depth == 3


def test_what_is_cached_comes_out_when_it_has_been_listed(store: HeldListings, cache: accel.Cache) -> None:
    assert keys(scan(store, cache)) == keys(scan(store, cache)) == expected(0, 1, 2)
    store.reads = 0
    again = scan(store, cache)
    assert keys(again) == expected(0, 1, 2)
    assert (store.reads, again.metrics.requests, again.metrics.round_trips) == (0, 1, 1)


def test_nothing_comes_out_before_the_listing(store: HeldListings, cache: accel.Cache) -> None:
    keys(scan(store, cache))
    store.may_list.clear()
    store.reads = 0
    came: list[int] = []
    done = threading.Event()

    def take() -> None:
        came.extend(keys(scan(store, cache, "k >= 25000 or k < 25000", columns=["k", "noise"])))
        done.set()

    thread = threading.Thread(target=take)
    thread.start()
    try:
        while store.reads < 3:  # it is being read
            assert not done.wait(0.001)
        assert not done.wait(0.05)
        assert came == []
    finally:
        store.may_list.set()
        thread.join(WAIT)
    assert len(came) == 9000


def test_partitions_limits_and_selections(cache: accel.Cache) -> None:
    objects = {f"d/p={i}/part": file(10_000 * i) for i in range(3)}
    inner = RecordingStore(DictStore(objects))
    for depth in (3, 1):
        inner.clear()
        found = scan(inner, cache, "p = 1 AND k < 10003", columns=["k", "p"]).to_table()
        assert found.to_pydict() == {"k": [10_000, 10_001, 10_002], "p": [1, 1, 1]}
        assert inner.depth == depth
    assert keys(scan(inner, cache, None, limit=5)) == [0, 1, 2, 3, 4]
    assert scan(inner, cache, None, limit=0).to_table().num_rows == 0
    assert sorted(keys(scan(inner, cache, order=False))) == expected(0, 1, 2)
    selection = {"d/p=2/part": {0: [(1, 2), (4, 5)]}}
    assert keys(scan(inner, cache, None, selection=selection)) == [20_001, 20_004]


# One that does not.


def test_a_file_more(store: HeldListings, three: dict[str, bytes]) -> None:
    inner, cache = RecordingStore(store), accel.Cache(data=0)
    assert keys(scan(inner, cache)) == expected(0, 1, 2)
    store.put("d/part-15", file(15_000))
    changed = scan(inner, cache, None)
    assert keys(changed) == sorted(
        [*range(3000), *range(10_000, 13_000), *range(15_000, 18_000), *range(20_000, 23_000)]
    )
    metrics = changed.metrics
    assert (metrics.restarts, metrics.files.total, metrics.rows.total) == (1, 4, 12_000)
    assert metrics.requests > 4
    # Once it changes, it may again: it is read early when it has been the same twice.
    depths = []
    for _ in range(3):
        inner.clear()
        assert len(keys(scan(inner, cache, None))) == 12_000
        depths.append(inner.depth)
    assert depths == [2, 1, 1]


def test_rows_chosen_of_a_file_that_was_not_there(store: HeldListings, cache: accel.Cache) -> None:
    keys(scan(store, cache))
    store.put("d/part-7", file(70_000))
    assert keys(scan(store, cache, None, selection={"d/part-7": {0: [(2, 4)]}})) == [70_002, 70_003]
    assert keys(scan(store, cache, None, selection={"d/part-7": {0: [(2, 3)]}})) == [70_002]
    store.delete("d/part-7")
    with pytest.raises(ValueError, match="not among the files"):
        keys(scan(store, cache, None, selection={"d/part-7": {0: [(2, 4)]}}))


def test_a_file_of_the_same_name_and_size(store: HeldListings, cache: accel.Cache) -> None:
    for _ in range(2):
        keys(scan(store, cache))  # also kept as data
    new = file(13_000)
    assert len(new) == len(store.objects["d/part-1"])
    store.put("d/part-1", new)
    changed = scan(store, cache)
    assert keys(changed) == [*range(3000), *range(13_000, 16_000), *range(20_000, 23_000)]
    assert changed.metrics.restarts == 1


def test_a_file_less(store: HeldListings, cache: accel.Cache) -> None:
    keys(scan(store, cache))
    store.delete("d/part-0")
    assert keys(scan(store, cache)) == expected(1, 2)
    store.delete("d/part-1")
    store.delete("d/part-2")
    with pytest.raises(accel.ObjectNotFoundError, match="holds no data file"):
        keys(scan(store, cache))
    store.put("d/part-1", file(10_000))
    assert keys(scan(store, cache)) == expected(1)


def test_the_schema_is_that_of_what_is_there_now(store: HeldListings, cache: accel.Cache) -> None:
    keys(scan(store, cache))
    store.put("d/part-", write_file(table(k=pa.array([-1], pa.int64()), more=pa.array(["x"]))))
    found = scan(store, cache, "k < 1", columns=None)
    with pa.RecordBatchReader.from_stream(found) as reader:
        assert reader.schema.names == ["k", "more"]
        assert reader.read_all().to_pydict() == {"k": [-1, 0], "more": ["x", None]}


def test_aggregates_count_every_row_once(store: HeldListings) -> None:
    cache = accel.Cache()
    asked = [("k", "sum"), ("noise", "count"), ([], "count_all")]
    for more in (None, "d/part-8", "d/part-9"):
        for _ in range(3):
            if more is not None and more not in store.objects:
                store.put(more, file(10_000 * int(more[-1])))
            found = scan(store, cache, "k >= 1", columns=None)
            values = sorted(
                k
                for data in store.objects
                for k in range(10_000 * int(data[-1]), 10_000 * int(data[-1]) + 3000)
            )
            result = found.aggregate(asked)
            assert [column[0].as_py() for column in result.columns] == [
                sum(values),
                len(values) - 1,
                len(values) - 1,
            ]
            assert scan(store, cache, None).count_rows() == len(values)


@pytest.mark.parametrize("changes", [False, True])
def test_what_is_assumed_is_taken_for_checked_once_it_is_listed(store: HeldListings, changes: bool) -> None:
    """Else a file would be read by what is cached of it for another `max_age`, although nobody has asked for
    it."""
    cache = accel.Cache(max_age=1000)
    keys(scan(store, cache))
    handles = [value for value in cache.metadata_tier.values() if isinstance(value, FileHandle)]
    began = time.monotonic()
    for handle in handles:
        handle.checked_at -= 5000  # older than `max_age`
    if changes:
        store.put("d/part-0", file(0)[::-1])
        store.delete("d/part-2")
        with pytest.raises(accel.ParquetFormatError):
            keys(scan(store, cache))
    else:
        store.reads = 0
        assert keys(scan(store, cache)) == expected(0, 1, 2)
        assert store.reads == 0  # the data is cached as well
    checked = [handle.id.path for handle in handles if handle.checked_at >= began]
    assert checked == (["d/part-1"] if changes else ["d/part-0", "d/part-1", "d/part-2"])


def test_what_was_assumed_stands_for_the_whole_scan(cache: accel.Cache) -> None:
    """Its data too, however late it is read, and although nothing may be used unasked by the next scan."""
    cache.max_age = 0
    names = [f"d/part-{i:02d}" for i in range(20)]
    store = HeldListings({name: file(10_000 * i) for i, name in enumerate(names)})
    options = replace(OPTIONS, max_files_in_flight=1)
    for _ in range(2):  # the first time a part of the data comes with the footers
        found = keys(scan(store, cache, "noise > 0"))
    store.reads = 0
    assert keys(scan(store, cache, "noise > 0", options=options)) == found
    assert store.reads == 0


# A file that was known, and has not been asked after for longer than `max_age`.


def aged(cache: accel.Cache) -> None:
    for value in cache.metadata_tier.values():
        if isinstance(value, FileHandle):
            value.checked_at -= 1e6


def one(store: object, cache: accel.Cache, where: str = "noise > 0", **keywords: object) -> accel.Scan:
    return accel.scan(
        "d/f.parquet", where, columns=["k"], store=store, cache=cache, options=OPTIONS, **keywords
    )  # type: ignore[arg-type]


@pytest.mark.parametrize("max_age", [1000, 0])
def test_data_is_asked_for_beside_the_question_whether_the_file_is_the_same(max_age: int) -> None:
    store, cache = (
        RecordingStore(DictStore({"d/f.parquet": file(10_000)})),
        accel.Cache(data=0, max_age=max_age),
    )
    found = keys(one(store, cache))
    seen = []
    for _ in range(2):
        aged(cache)
        store.clear()
        again = one(store, cache)
        assert keys(again) == found
        assert (again.metrics.round_trips, again.metrics.restarts, again.metrics.metadata_hits) == (1, 0, 1)
        assert again.metrics.requests == len(store.calls)
        seen.append((store.depth, again.metrics.requests_by_kind[Kind.REVALIDATE]))
    assert seen == [(1, 1), (1, 1)]
    # Now it has been checked.
    store.clear()
    assert keys(one(store, cache)) == found
    assert (Kind.REVALIDATE in one(store, cache).metrics.requests_by_kind, store.depth) == (False, 1)


def test_what_is_cached_of_a_file_comes_out_when_the_store_has_answered() -> None:
    store, cache = RecordingStore(DictStore({"d/f.parquet": file(10_000)})), accel.Cache(max_age=1000)
    found = keys(one(store, cache))
    keys(one(store, cache))
    aged(cache)
    store.clear()
    again = one(store, cache)
    assert keys(again) == found
    assert dict(again.metrics.requests_by_kind) == {Kind.REVALIDATE: 1}
    aged(cache)
    assert one(store, cache).count_rows() == len(found)


def test_a_file_that_was_replaced() -> None:
    store, cache = DictStore({"d/f.parquet": file(10_000)}), accel.Cache(max_age=1000)
    keys(one(store, cache, "k >= 0"))
    store.put("d/f.parquet", file(15_000))
    aged(cache)
    changed = one(store, cache, "k >= 0")
    assert keys(changed) == list(range(15_000, 18_000))
    assert (changed.metrics.restarts, changed.metrics.files.total, changed.metrics.rows.total) == (1, 1, 3000)
    assert changed.metrics.requests_by_kind[Kind.REVALIDATE] == 1
    (sums,) = one(store, cache, "k >= 0").aggregate([("k", "min")]).to_pylist()
    assert list(sums.values()) == [15_000]
    store.put("d/f.parquet", file(17_000))
    aged(cache)
    (sums,) = one(store, cache, "k >= 1").aggregate([("k", "min"), ([], "count_all")]).to_pylist()
    assert list(sums.values()) == [17_000, 3000]


@pytest.mark.parametrize(("used", "holds"), [([], True), (["this"], True), (["this", "another"], False)])
async def test_it_is_of_the_version_that_was_used_that_the_store_is_asked(
    used: list[str], holds: bool
) -> None:
    """Whatever another scan has put into the cache in between."""
    handles: Any = {name: object() for name in ("this", "another")}
    entry = FileEntry("s3://b", "f", "s3://b/f")
    expected = FileBlock((entry,), pa.schema([]), 0)
    facts = FileFacts(version=FileVersion(1, '"1"'), handle=handles["this"], round_trips=1)

    async def confirm(_: FileBlock) -> FileBlock:
        return replace(expected, files=(replace(entry, facts=facts),), round_trips=1)

    held = SimpleNamespace(assumed=[handles[name] for name in used], confirm_assumed=lambda moment: None)
    assumed: Any = SimpleNamespace(
        answers=None,
        spec=SimpleNamespace(prunes_blocks=True),
        reader=SimpleNamespace(
            opener=SimpleNamespace(freshness=held), metrics=SimpleNamespace(deepest=lambda trips: None)
        ),
    )
    asking: Any = SimpleNamespace(confirm=confirm)
    assert await ListingSpeculation(asking, assumed, expected).holds() is holds


def test_a_file_that_was_deleted() -> None:
    store, cache = DictStore({"d/f.parquet": file(10_000)}), accel.Cache(max_age=1000)
    keys(one(store, cache))
    store.delete("d/f.parquet")
    aged(cache)
    for _ in range(2):
        with pytest.raises(accel.ObjectNotFoundError) as told:
            keys(one(store, cache))
        assert told.value.path == "d/f.parquet"
    store.put("d/f.parquet/x", file(70_000))
    assert keys(one(store, cache, "k < 70002")) == [70_000, 70_001]


class Unanswered(DictStore):
    """Does not answer questions of a few bytes."""

    failure: Exception | None = None
    reads = 0

    async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
        if isinstance(want, ByteRange) and want.length == 8 and self.failure is not None:
            while not self.reads:  # what does not wait for the answer has begun
                await asyncio.sleep(0)
            raise self.failure
        payload = await super().read(path, want, if_match=if_match)
        self.reads += 1
        return payload


def test_a_store_that_does_not_say_whether_it_is_the_same() -> None:
    store, cache = Unanswered({"d/f.parquet": file(10_000)}), accel.Cache(data=0, max_age=1000)
    keys(one(store, cache))
    store.failure = accel.StoreError("not yours any more", status=403)
    aged(cache)
    store.reads = 0
    with pytest.raises(accel.StoreError, match="not yours any more"):
        keys(one(store, cache))
    assert store.reads
    assert tasks_under_way() == []


def test_what_this_process_has_written_is_asked_for_first() -> None:
    class Written(DictStore):
        async def write(
            self, path: str, parts: AsyncIterator[bytes], *, size: int, if_match: str | None = None
        ) -> None:
            self.put(path, b"".join([part async for part in parts]))

    store, cache = Written(), accel.Cache()
    accel.write_table(table(k=pa.array([1, 2, 3])), "d/written.parquet", store=store)
    first = accel.scan("d/written.parquet", store=store, cache=cache)
    assert first.to_table()["k"].to_pylist() == [1, 2, 3]
    accel.write_table(table(k=pa.array([4])), "d/written.parquet", store=store)
    second = accel.scan("d/written.parquet", store=store, cache=cache)
    assert second.to_table()["k"].to_pylist() == [4]
    assert second.metrics.restarts == 0


# What fails.


def test_a_listing_that_fails_is_told(store: HeldListings, cache: accel.Cache) -> None:
    keys(scan(store, cache))
    store.failure = accel.StoreError("not today", status=403)
    for _ in range(2):
        with pytest.raises(accel.StoreError, match="not today"):
            keys(scan(store, cache))
    assert tasks_under_way() == []
    store.failure = None
    assert keys(scan(store, cache)) == expected(0, 1, 2)


def test_what_fails_of_files_that_are_gone_is_not_told(cache: accel.Cache) -> None:
    store = HeldListings({"d/a": file(0), "d/b": file(10_000)})
    assert keys(scan(store, cache)) == expected(0, 1)
    store.objects["d/c"] = b"no Parquet file"
    store.etags["d/c"] = '"c"'
    with pytest.raises(accel.ParquetFormatError, match="d/c"):
        keys(scan(store, cache))
    with pytest.raises(accel.ParquetFormatError, match="d/c"):  # as it was listed twice
        keys(scan(store, cache))
    with pytest.raises(accel.ParquetFormatError, match="d/c") as told:  # read early
        keys(scan(store, cache))
    assert told.value.path == "d/c"
    store.delete("d/c")
    changed = scan(store, cache)
    assert keys(changed) == expected(0, 1)
    assert changed.metrics.restarts == 1


# Whoever stops.


@pytest.fixture
def waiting(store: HeldListings, cache: accel.Cache) -> Iterator[HeldListings]:
    keys(scan(store, cache))
    store.may_list.clear()
    yield store
    store.may_list.set()


def test_a_caller_that_is_cancelled_leaves_nothing_under_way(
    waiting: HeldListings, cache: accel.Cache
) -> None:
    async def run() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await scan(waiting, cache, "noise > 0").to_table_async()

    asyncio.run(run())
    assert tasks_under_way() == []


def test_a_scan_that_is_closed_while_it_waits(waiting: HeldListings, cache: accel.Cache) -> None:
    found = scan(waiting, cache, "noise > 0")
    told: list[BaseException] = []

    def take() -> None:
        try:
            found.to_table()
        except accel.AccelError as error:
            told.append(error)

    thread = threading.Thread(target=take)
    waiting.reads = 0
    thread.start()
    while not waiting.reads:
        threading.Event().wait(0.001)
    found.close()
    thread.join(WAIT)
    assert not thread.is_alive()
    assert [str(error).split(" (")[0] for error in told] == ["the scan was closed before its end"]
    assert tasks_under_way() == []


class SlowToStop(HeldListings):
    """Once it is told to, reads objects for ever; a read that is cancelled takes a while to end."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        super().__init__(objects)
        self.reads_on = threading.Event()
        self.stopping = threading.Event()
        self.under_way = 0

    async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
        self.under_way += 1
        try:
            if self.reads_on.is_set():
                try:
                    await asyncio.sleep(WAIT)
                finally:
                    self.stopping.set()
                    await asyncio.sleep(0.1)
            return await super().read(path, want, if_match=if_match)
        finally:
            self.under_way -= 1


@pytest.mark.parametrize("changes", [True, False], ids=["while it is dropped", "by two"])
def test_a_scan_that_is_closed_leaves_nothing_under_way(three: dict[str, bytes], changes: bool) -> None:
    store, cache = SlowToStop(three), accel.Cache(data=0)
    keys(scan(store, cache))
    store.reads_on.set()
    if changes:
        store.put("d/part-0", file(1))
    else:
        store.may_list.clear()
    found = scan(store, cache, "noise > 0")
    left: list[int] = []

    def take() -> None:
        with pytest.raises(accel.AccelError, match="closed before its end"):
            found.to_table()

    def close() -> None:
        found.close()
        left.append(store.under_way)

    threads = [threading.Thread(target=take)]
    threads[0].start()
    while not store.under_way:
        threading.Event().wait(0.001)
    for _ in range(1 if changes else 2):
        if changes or len(threads) > 1:
            assert store.stopping.wait(WAIT)
        threads.append(threading.Thread(target=close))
        threads[-1].start()
    for thread in threads:
        thread.join(WAIT)
        assert not thread.is_alive()
    store.may_list.set()
    assert left == [0] * (len(threads) - 1)


def test_an_iterator_that_is_dropped(waiting: HeldListings, cache: accel.Cache) -> None:
    async def run() -> None:
        batches = aiter(scan(waiting, cache, "noise > 0"))
        task = asyncio.ensure_future(anext(batches))
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    for _ in range(1000):
        if not tasks_under_way():
            break
        threading.Event().wait(0.002)
    assert tasks_under_way() == []
