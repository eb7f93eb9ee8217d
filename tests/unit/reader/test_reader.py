"""Whether cached metadata may be used, and that no two versions of a file ever meet."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import weakref
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.decode.pool import DecodePool
from accel.errors import ObjectChangedError, ObjectNotFoundError
from accel.metrics import Metrics
from accel.planning.file_entry import FileEntry
from accel.planning.handle import FileHandle
from accel.planning.query import Question
from accel.ranges import ByteRange, Kind, Suffix
from accel.reader.reader import Reader, Tails
from accel.runtime import io_loop
from accel.store.clients import Connector
from accel.testing import DictStore, Layout, RecordingStore, table, write_file

OPTIONS = accel.Options(tail_hint=4096, max_gap_bytes=0)
PATH = "d/f.parquet"


def version(first: int, rows: int = 2000, **layout: Any) -> bytes:
    """A file whose data is longer than its tail; equal lengths for equal numbers of rows."""
    keys = pa.array(np.arange(first, first + rows))
    return write_file(table(key=keys), Layout(page_rows=100, dictionary=False, codec="none", **layout))


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0
        self.step = 0.0
        """Seconds that a look at it takes."""

    def __call__(self) -> float:
        self.now += self.step
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("accel.reader.opener.time.monotonic", clock)
    return clock


@pytest.fixture
def inner() -> DictStore:
    return DictStore({PATH: version(0)})


@pytest.fixture
def store(inner: DictStore) -> RecordingStore:
    return RecordingStore(inner)


def open_file(
    store: object, cache: accel.Cache, *, etag: str | None = None, size: int | None = None
) -> tuple[Any, int, Metrics]:
    metrics = Metrics()

    clients = Connector(storage_options=None, store=store, options=OPTIONS)

    reader = Reader(clients, cache=cache, options=OPTIONS, metrics=metrics)
    handle, trips = io_loop.run(reader.open(FileEntry("store:", PATH, PATH, size, etag)))
    return handle, trips, metrics


def hits(metrics: Metrics) -> tuple[int, int]:
    return metrics.metadata_hits, metrics.metadata_misses


def test_a_young_handle_is_used_without_asking(store: RecordingStore, clock: Clock) -> None:
    cache = accel.Cache(max_age=60)
    first, trips, metrics = open_file(store, cache)
    assert (trips, hits(metrics), store.requests) == (1, (0, 1), 1)
    clock.now += 59
    again, trips, metrics = open_file(store, cache)
    assert again is first
    assert (trips, hits(metrics), store.requests) == (0, (1, 0), 1)


def test_an_old_one_is_asked_for_once_by_its_etag(store: RecordingStore, clock: Clock) -> None:
    cache = accel.Cache(max_age=60)
    first, _, _ = open_file(store, cache)
    clock.now += 61
    store.clear()
    again, trips, metrics = open_file(store, cache)
    assert again is first
    assert (trips, hits(metrics)) == (1, (1, 0))
    (call,) = store.calls
    assert (call.want, call.if_match) == (ByteRange(first.id.size - 8, first.id.size), first.id.etag)
    # And is young again.
    clock.now += 59
    assert open_file(store, cache)[1] == 0


def test_an_old_one_that_changed_is_read_anew(store: RecordingStore, inner: DictStore, clock: Clock) -> None:
    cache = accel.Cache(max_age=60)
    first, _, _ = open_file(store, cache)
    clock.now += 61
    inner.put(PATH, version(7))
    again, trips, metrics = open_file(store, cache)
    assert again.id.etag == inner.etags[PATH] != first.id.etag
    assert (trips, hits(metrics)) == (1, (0, 1))


def test_max_age_zero_always_asks(store: RecordingStore, clock: Clock) -> None:
    cache = accel.Cache(max_age=0)
    open_file(store, cache)
    store.clear()
    open_file(store, cache)
    open_file(store, cache)
    assert [call.want for call in store.calls] == [store.calls[0].want] * 2
    assert isinstance(store.calls[0].want, ByteRange)


@pytest.mark.parametrize("quotes", [True, False])
def test_a_listing_that_shows_the_same_etag_is_as_good_as_asking(
    store: RecordingStore, inner: DictStore, clock: Clock, quotes: bool
) -> None:
    cache = accel.Cache(max_age=0)
    open_file(store, cache)
    clock.now += 1
    store.clear()
    etag = str(inner.etags[PATH])
    _, trips, _ = open_file(
        store, cache, etag=etag if quotes else etag.strip('"'), size=len(inner.objects[PATH])
    )
    assert (trips, store.requests) == (0, 0)


def test_a_listing_that_shows_another_etag_makes_a_young_handle_doubtful(
    store: RecordingStore, inner: DictStore, clock: Clock
) -> None:
    cache = accel.Cache(max_age=60)
    open_file(store, cache)
    inner.put(PATH, version(7))
    again, _, _ = open_file(store, cache, etag=inner.etags[PATH], size=len(inner.objects[PATH]))
    assert again.id.etag == inner.etags[PATH]
    # Stores whose listings spell etags otherwise cost a request, not the cache.
    store.clear()
    same, trips, metrics = open_file(store, cache, etag="spelt otherwise")
    assert same is again
    assert (trips, hits(metrics)) == (1, (1, 0))


def test_another_size_in_a_listing_needs_no_question(
    store: RecordingStore, inner: DictStore, clock: Clock
) -> None:
    cache = accel.Cache(max_age=60)
    open_file(store, cache)
    inner.put(PATH, version(7, rows=1999))
    store.clear()
    again, _, _ = open_file(store, cache, size=len(inner.objects[PATH]))
    assert again.id.size == len(inner.objects[PATH])
    assert all(isinstance(call.want, Suffix) for call in store.calls)


def test_without_an_etag_nothing_is_taken_from_the_cache(inner: DictStore, clock: Clock) -> None:
    small = DictStore({PATH: version(0, rows=10)})
    small.etags[PATH] = None
    cache = accel.Cache(max_age=60)
    first, _, _ = open_file(small, cache)
    again, trips, metrics = open_file(small, cache)
    assert again is not first
    assert (trips, hits(metrics)) == (1, (0, 1))


def test_a_deleted_file_is_not_found_once_its_metadata_is_old(
    store: RecordingStore, inner: DictStore, clock: Clock
) -> None:
    cache = accel.Cache(max_age=60)
    open_file(store, cache)
    inner.delete(PATH)
    clock.now += 61
    with pytest.raises(ObjectNotFoundError) as caught:
        open_file(store, cache)
    assert caught.value.path == PATH


class Gated(DictStore):
    """Answers its first read as of when it was asked, but only when the gate opens."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        super().__init__(objects)
        self.reads: list[ByteRange | Suffix] = []
        self.gate: asyncio.Event | None = None

    async def read(self, path, want, *, if_match=None):  # type: ignore[no-untyped-def]
        self.reads.append(want)
        payload = await super().read(path, want, if_match=if_match)
        if len(self.reads) == 1 and self.gate is not None:
            await self.gate.wait()
        return payload


@pytest.mark.parametrize(("max_age", "reads"), [(60.0, 1), (0.0, 3)])
def test_who_joins_a_load_that_began_before_asks_whether_it_still_holds(
    max_age: float, reads: int, clock: Clock
) -> None:
    """A writer that then scans with max_age=0 must see its own write."""
    store = Gated({PATH: version(0)})
    cache = accel.Cache(max_age=max_age)

    async def play() -> list[str | None]:
        store.gate = asyncio.Event()
        readers = [
            Reader(
                Connector(storage_options=None, store=store, options=OPTIONS),
                cache=cache,
                options=OPTIONS,
                metrics=Metrics(),
            )
            for _ in range(2)
        ]
        file = FileEntry("store:", PATH, PATH)
        first = asyncio.create_task(readers[0].open(file))
        await turns()
        store.put(PATH, version(7))
        clock.now += 1
        second = asyncio.create_task(readers[1].open(file))
        await turns()
        store.gate.set()
        return [(await first)[0].id.etag, (await second)[0].id.etag]

    old = store.etags[PATH]
    found = io_loop.run(play())
    assert found == [old, old if max_age else store.etags[PATH]]
    assert len(store.reads) == reads


@pytest.mark.parametrize(("max_age", "questions"), [(60.0, 1), (0.0, 2)])
@pytest.mark.parametrize("overwritten", [False, True])
def test_many_who_doubt_a_version_ask_once(
    max_age: float, questions: int, overwritten: bool, clock: Clock
) -> None:
    """But for those that began after the question was sent, where each scan is to ask for itself."""
    store = Gated({PATH: version(0)})
    cache = accel.Cache(max_age=max_age)
    file = FileEntry("store:", PATH, PATH)
    old = store.etags[PATH]
    sent: list[Metrics] = [Metrics() for _ in range(6)]

    def reader(metrics: Metrics) -> Reader:
        clients = Connector(storage_options=None, store=store, options=OPTIONS)

        return Reader(clients, cache=cache, options=OPTIONS, metrics=metrics)

    async def play() -> list[tuple[str | None, int]]:
        await reader(Metrics()).open(file)
        clock.now, clock.step = clock.now + 61, 1e-6
        store.reads.clear()
        store.gate = asyncio.Event()
        opened = [asyncio.create_task(reader(sent[0]).open(file))]
        await turns()
        clock.now += 1
        if overwritten:
            store.put(PATH, version(7))
        opened += [asyncio.create_task(reader(metrics).open(file)) for metrics in sent[1:]]
        await turns()
        store.gate.set()
        return [(handle.id.etag, trips) for handle, trips in [await task for task in opened]]

    found = io_loop.run(play())
    current = store.etags[PATH] if overwritten and not max_age else old
    # Whoever asked before the object was overwritten was told that it is current.
    assert found == [(old, 1)] + [(current, 1)] * 5
    asked = [metrics.requests_by_kind.get(Kind.REVALIDATE, 0) for metrics in sent]
    assert sum(asked) == questions
    assert len(store.reads) == questions + (current != old)


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


class Swapping(DictStore):
    """Becomes another version just before the read of a given number."""

    def __init__(self, objects: dict[str, bytes], swap_at: int, to: bytes) -> None:
        super().__init__(objects)
        self.swap_at, self.to, self.count = swap_at, to, 0

    async def read(self, path, want, *, if_match=None):  # type: ignore[no-untyped-def]
        if self.count == self.swap_at:
            self.put(path, self.to)
        self.count += 1
        return await super().read(path, want, if_match=if_match)


ASKED = {
    "to_table": lambda store, **k: accel.scan(PATH, store=store, **k).to_table().column("key").to_pylist(),
    "plan": lambda store, **k: (
        accel.scan(accel.plan(PATH, store=store, **k), store=store).to_table().column("key").to_pylist()
    ),
    "schema": lambda store, **k: accel.scan(PATH, store=store, **k).schema.names,
}


@pytest.mark.parametrize("verb", ["to_table", "plan", "schema"])
def test_replaced_between_the_tail_and_the_rest_of_the_footer(verb: str) -> None:
    store = Swapping({PATH: version(0)}, swap_at=1, to=version(5000))
    found = ASKED[verb](store, cache=None, options=accel.Options(tail_hint=8))
    assert found == (["key"] if verb == "schema" else list(range(5000, 7000)))


@pytest.mark.parametrize("swap_at", range(1, 5))
def test_replaced_before_any_request(swap_at: int) -> None:
    """Whichever request it precedes: rows of one version, or the error that says so."""
    store = Swapping({PATH: version(0)}, swap_at=swap_at, to=version(5000))
    options = accel.Options(tail_hint=8, piece_bytes=4000, max_gap_bytes=0, max_coalesced_bytes=4000)
    try:
        found = accel.scan(PATH, "key >= 0", store=store, cache=None, options=options).to_table()
    except ObjectChangedError:
        assert swap_at > 2
        return
    keys = found.column("key").to_pylist()
    assert keys in (list(range(2000)), list(range(5000, 7000)))


def test_planning_a_file_that_changed_since_it_was_cached(inner: DictStore, store: RecordingStore) -> None:
    """The footer is cached and young, its page indexes are not: they are of another version now."""
    cache = accel.Cache()
    options = accel.Options(tail_hint=8, max_gap_bytes=0)
    assert accel.scan(PATH, store=store, cache=cache, options=options).schema.names == ["key"]
    inner.put(PATH, version(1))
    plan = accel.plan(PATH, "key = 1005", store=store, cache=cache, options=options)
    assert [task.file.id.etag for task in plan.tasks] == [inner.etags[PATH]]
    assert accel.scan(plan, store=store, cache=cache).to_table().column("key").to_pylist() == [1005]


def test_a_plan_of_another_version_is_final_and_the_next_plan_is_not_of_it(
    inner: DictStore, store: RecordingStore
) -> None:
    cache = accel.Cache()
    plan = accel.plan(PATH, store=store, cache=cache, options=OPTIONS)
    inner.put(PATH, version(5000))
    with pytest.raises(ObjectChangedError):
        accel.scan(plan, store=store, cache=cache, options=OPTIONS).to_table()
    anew = accel.plan(PATH, store=store, cache=cache, options=OPTIONS)
    assert accel.scan(anew, store=store, cache=cache).count_rows() == 2000


def test_a_tail_is_used_only_with_the_metadata_of_its_own_version() -> None:
    """This reader reads the tail of one version, then another scan's metadata of the next takes its place."""
    store = DictStore({PATH: version(0)})
    cache = accel.Cache(max_age=60)
    options = accel.Options(tail_hint=8192)

    clients = Connector(storage_options=None, store=store, options=options)

    async def play() -> tuple[str | None, int]:
        reader = Reader(clients, cache=cache, options=options, metrics=Metrics(), tails=Tails.SERVE)
        file = FileEntry("store:", PATH, PATH)
        old, _ = await reader.open(file)
        store.put(PATH, version(5000))
        reader.forget("store:", PATH)
        await Reader(clients, cache=cache, options=options, metrics=Metrics()).open(file)
        handle, _ = await reader.open(file)
        assert handle.id != old.id
        schema = handle.arrow_schema
        plan, _ = await reader.plan(file, handle, Question(None, schema, schema, ()), partition={})
        return plan.tasks[0].file.id.etag, len(plan.tasks[0].file.loaded)

    assert io_loop.run(play()) == (store.etags[PATH], 0)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What is decoded in threads from now on."""
    found: list[object] = []
    run = DecodePool.run

    async def spy(self: DecodePool, fn: Any, *args: Any, **keywords: Any) -> Any:
        found.append(fn)
        return await run(self, fn, *args, **keywords)

    monkeypatch.setattr(DecodePool, "run", spy)
    return found


def test_little_is_decoded_on_the_loop_and_much_in_a_thread(ran: list[object]) -> None:
    """By what it decodes to, too: run-length encoding makes a small page a large array. And by
    dictionaries."""
    store = DictStore(
        {
            "little": write_file(table(x=pa.array(np.arange(1000)))),
            "constant": write_file(table(x=pa.array(np.zeros(3_000_000, np.int64)))),
        }
    )
    assert len(store.objects["constant"]) < OPTIONS.inline_decode_bytes
    options = accel.Options(inline_decode_bytes=100_000)
    assert accel.scan("little", store=store, cache=None, options=options).to_table().num_rows == 1000
    assert ran == []
    assert accel.scan("constant", store=store, cache=None, options=options).to_table().num_rows == 3_000_000
    assert len(ran) >= 1
    ran.clear()
    distinct = table(x=pa.array(np.arange(40_000)))
    store.put("named", write_file(distinct, Layout(page_rows=1000, codec="none")))
    few = {"selection": {"named": {0: [(5, 7)]}}, "store": store, "cache": None}
    for inline, threads in ((81_000, 0), (79_000, 1)):
        small = accel.Options(inline_decode_bytes=inline)
        assert accel.scan("named", options=small, **few).to_table()["x"].to_pylist() == [5, 6]
        assert len(ran) == threads


@pytest.mark.parametrize(
    ("where", "dense", "inline", "threads"),
    [
        # 80,000 bytes, which come to as many more.
        (None, True, 81_000, 0),
        (None, True, 79_000, 1),
        ("x >= 1", True, 79_000, 0),
        ("x >= 1", True, 21_000, 0),
        ("x >= 1", True, 19_000, 1),
        # Some 70,000, which come to 640,000.
        ("x >= 1", False, 72_000, 0),
        ("x >= 1", False, 60_000, 1),
    ],
    ids=["all, little", "all, much", "sought", "sought, much", "sought, too much", "packed", "packed, much"],
)
def test_what_is_looked_through_for_some_rows_may_be_more(
    where: str | None, dense: bool, inline: int, threads: int, ran: list[object]
) -> None:
    rng = np.random.default_rng(1)
    numbers = rng.permutation(10_000) if dense else rng.integers(0, 32, 80_000)
    layout = Layout(page_rows=len(numbers), codec="none" if dense else "zstd", dictionary=False)
    store = DictStore({"f": write_file(table(x=pa.array(numbers.astype(np.int64))), layout)})
    options = accel.Options(inline_decode_bytes=inline)
    scan = accel.scan("f", where, store=store, cache=None, options=options)
    assert scan.to_table().num_rows == int((numbers >= (0 if where is None else 1)).sum())
    assert len(ran) == threads


@pytest.mark.parametrize(
    ("groups", "rows", "values", "inline", "threads"),
    [
        (48, 10, "distinct", 256 << 10, 0),
        (49, 10, "distinct", 256 << 10, 1),
        # Some 2 KB each, which come to 8.
        (8, 1000, "distinct", 17_000, 0),
        (8, 1000, "distinct", 15_000, 1),
        # 69 bytes each, which come to 16,000.
        (8, 2000, "one", 8_100, 0),
        (8, 2000, "one", 8_000, 1),
    ],
    ids=["few chunks", "many chunks", "few bytes", "many bytes", "few decoded", "many decoded"],
)
def test_small_row_groups_are_decoded_together_where_there_is_time(
    groups: int, rows: int, values: str, inline: int, threads: int, ran: list[object]
) -> None:
    count = groups * rows
    numbers = np.random.default_rng(1).permutation(count) if values == "distinct" else np.zeros(count, int)
    data = write_file(
        table(x=pa.array(numbers)), Layout(group_rows=rows, page_rows=rows, dictionary=values == "one")
    )
    options = accel.Options(inline_decode_bytes=inline)
    found = accel.scan("f", store=DictStore({"f": data}), cache=None, options=options).to_table()
    assert found["x"].to_numpy().tolist() == numbers.tolist()
    assert [call.func.__name__ for call in ran] == ["decode_stack"] * threads


def test_a_few_entries_of_a_large_dictionary_are_picked_on_the_loop(ran: list[object]) -> None:
    """Once it is kept in the form that is not decompressed."""
    rows = 20_000
    names = [hashlib.md5(b"%d" % n, usedforsecurity=False).hexdigest() for n in range(rows)]
    texts = table(key=pa.array(np.arange(rows)), name=pa.array(names))
    store = DictStore({PATH: write_file(texts, Layout(page_rows=1000, dictionary=("name",)))})
    options, cache = accel.Options(inline_decode_bytes=50_000), accel.Cache()
    for first, last, threads in ((5, 5, 1), (7, 7, 0), (15_000, 15_100, 0)):
        ran.clear()
        scan = accel.scan(
            PATH,
            f"key BETWEEN {first} AND {last}",
            columns=["name"],
            store=store,
            cache=cache,
            options=options,
        )
        assert scan.to_table()["name"].to_pylist() == names[first : last + 1]
        assert len(ran) == threads, first


def test_requests_of_a_revalidation_are_counted(store: RecordingStore) -> None:
    cache = accel.Cache(max_age=0)
    accel.scan(PATH, "key = 3", store=store, cache=cache, options=OPTIONS).to_table()
    store.clear()
    scan = accel.scan(PATH, "key = 3", store=store, cache=cache, options=OPTIONS)
    assert scan.to_table().num_rows == 1
    assert scan.metrics.requests_by_kind[Kind.REVALIDATE] == 1
    assert scan.metrics.requests == store.requests


def test_files_of_one_schema_share_it() -> None:
    other = write_file(table(key=pa.array([1.0])))
    store = DictStore({"a": version(0), "b": version(7), "c": other})
    cache = accel.Cache()
    found = []

    clients = Connector(storage_options=None, store=store, options=OPTIONS)

    for path in "abc":
        reader = Reader(clients, cache=cache, options=OPTIONS, metrics=Metrics())
        found.append(io_loop.run(reader.open(FileEntry("store:", path, path)))[0])
    first, second, third = found
    assert first.metadata.schema is second.metadata.schema
    assert first.arrow_schema is second.arrow_schema
    assert third.metadata.schema != first.metadata.schema
    assert third.arrow_schema.field("key").type == pa.float64()


def test_a_schema_goes_with_the_last_file_that_has_it() -> None:
    data = write_file(table(seldom_seen=pa.array([1])))
    store = DictStore({PATH: data})
    handle, _, _ = open_file(store, accel.Cache())
    gone = weakref.ref(handle.metadata.schema)
    del handle
    for seldom in range(80):  # what is worked out of schemas is kept for the last of them
        open_file(DictStore({PATH: write_file(table(**{f"c{seldom}": pa.array([1])}))}), accel.Cache())
    gc.collect()
    assert gone() is None


# -- what a handle weighs ------------------------------------------------------------------------


class Writable(DictStore):
    async def write(self, path: str, parts: Any, *, size: int, if_match: str | None = None) -> None:
        self.put(path, b"".join([bytes(part) async for part in parts]))


@pytest.mark.parametrize(
    "keywords",
    [
        {"blooms": ["key"]},
        {"indexes": {"key": "bitmap"}},
        {"indexes": {"key": "bloom"}},
        {"indexes": {"key": "ngram"}},
        {"indexes": {"key": "zonemap"}},
        {"compression": "none", "use_dictionary": True},
    ],
    ids=["blooms", "bitmap", "bloom", "ngram", "zonemap", "dictionaries"],
)
def test_what_lookups_add_to_a_file_counts_towards_the_limit(keywords: dict[str, Any]) -> None:
    """Each of a long-lived process asks for other parts of its indexes."""
    store, cache = Writable(), accel.Cache(data=0)
    keys = pa.array([f"key-{n * 7919 % 20_011:05d}" for n in range(20_000)])
    accel.write_table(
        table(key=keys, pad=keys), PATH, store=store, row_group_size=5000, page_rows=100, **keywords
    )
    options = accel.Options(tail_hint=64, probe_min_bytes=1)
    for n in range(0, 4000, 130):
        accel.scan(PATH, f"key = 'key-{n:05d}'", store=store, cache=cache, options=options).to_table()
        assert unsaid(cache) == [0]


@pytest.mark.parametrize("columns", [["key"], ["pad", "key"], []], ids=["filter", "both", "none"])
def test_what_reading_teaches_counts_towards_the_limit(inner: DictStore, columns: list[str]) -> None:
    """A file without page index: where its pages are is learned from the chunks that were read."""
    values = np.random.default_rng(5).random(20_000)
    layout = Layout(group_rows=5000, page_rows=100, page_index=False, dictionary=False, codec="none")
    inner.put(PATH, write_file(table(key=values, pad=values), layout))
    cache = accel.Cache(data=0)
    for where in (None, "key > 0.999", "key > 0.5 AND pad < 0.1"):
        accel.scan(PATH, where, columns=columns, store=inner, cache=cache).to_table()
        assert unsaid(cache) == [0]


def unsaid(cache: accel.Cache) -> list[int]:
    """By how much each handle is heavier than its cache was told."""
    entries = cache.metadata_tier
    handles = {key: one for key, one in entries.items() if isinstance(one, FileHandle)}
    return [one.nbytes - entries._Cache__size[key] for key, one in handles.items()]
