"""A lookup that is repeated sends nothing, and explain knows it."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import accel
from accel.errors import ObjectChangedError
from accel.options import Phases
from accel.testing import DictStore, RecordingStore, write_bench_file

PATH = "f.parquet"
ROWS = 100_000
COLUMNS = ["key", "value", "category"]
# In two phases what is predicted is a bound.
OPTIONS = accel.Options(tail_hint=16 * 1024, max_gap_bytes=0, phases=Phases.ONE)


@functools.cache
def bench_data() -> bytes:
    return write_bench_file(rows=ROWS)


@pytest.fixture(scope="module")
def data() -> bytes:
    return bench_data()


@pytest.fixture
def store(data: bytes) -> RecordingStore:
    return RecordingStore(DictStore({PATH: data}))


def scan(store: RecordingStore, where: str | None, cache: accel.Cache | None) -> accel.Scan:
    return accel.scan(PATH, where=where, columns=COLUMNS, store=store, cache=cache, options=OPTIONS)


def test_a_repeated_lookup_asks_for_nothing(store: RecordingStore) -> None:
    cache = accel.Cache()
    first = scan(store, "key = 3000", cache).to_table()
    store.clear()
    again = scan(store, "key = 3000", cache)
    predicted = again.explain()
    assert (predicted.requests["data"], predicted.bytes["data"], predicted.round_trips["data"]) == (0, 0, 0)
    assert again.to_table().equals(first)
    assert (store.requests, again.metrics.requests, again.metrics.round_trips) == (0, 0, 0)
    assert again.metrics.data_hits == 3
    assert again.metrics.cached_bytes > 0
    # Its neighbour in the same pages too.
    assert scan(store, "key = 3003", cache).to_table().num_rows == 1
    assert store.requests == 0


@pytest.mark.parametrize(
    "where", ["key = 9000", "key BETWEEN 0 AND 60000", "key > 100000 AND value < 0.5", None]
)
def test_explain_subtracts_what_is_cached(store: RecordingStore, where: str | None) -> None:
    """Whatever was read before: what explain predicts is what is asked for then, to the byte."""
    cache = accel.Cache()
    expected = scan(store, where, None).to_table()
    for before in ("key = 9000", "key BETWEEN 20000 AND 40000", "key = 290000"):
        scan(store, before, cache).to_table()
        asked = scan(store, where, cache)
        predicted = asked.explain()
        store.clear()
        assert asked.to_table().equals(expected)
        assert predicted.requests["data"] == asked.metrics.requests
        assert predicted.bytes["data"] == store.bytes
        assert predicted.round_trips["data"] == asked.metrics.round_trips


@pytest.mark.parametrize(
    "cache", [accel.Cache(data=0), accel.Cache(memory=0), None], ids=["no data", "nothing", "None"]
)
def test_without_one(store: RecordingStore, cache: accel.Cache | None) -> None:
    for _ in range(2):
        store.clear()
        found = scan(store, "key = 3000", cache)
        assert found.to_table().num_rows == 1
        assert store.requests > 0
        assert (found.metrics.data_hits, found.metrics.cached_bytes) == (0, 0)


def test_at_age_zero_the_store_is_asked_once_and_data_is_not(store: RecordingStore) -> None:
    cache = accel.Cache(max_age=0)
    scan(store, "key = 3000", cache).to_table()
    store.clear()
    assert scan(store, "key = 3000", cache).to_table().num_rows == 1
    assert (store.requests, store.bytes) == (1, 8)


def test_a_plan_of_an_old_version_does_not_live_on_cached_data(store: RecordingStore, data: bytes) -> None:
    """Tasks are pinned: with nothing to say that their version is current, the store is asked."""
    cache = accel.Cache(max_age=0)
    plan = accel.plan(PATH, where="key = 3000", columns=COLUMNS, store=store, cache=cache, options=OPTIONS)
    assert accel.scan(plan, store=store, cache=cache, options=OPTIONS).to_table().num_rows == 1
    inner = store.inner
    assert isinstance(inner, DictStore)
    inner.put(PATH, data[:-9] + bytes(9))
    with pytest.raises(ObjectChangedError):
        accel.scan(plan, store=store, cache=cache, options=OPTIONS).to_table()
    assert cache.stats().data_entries == 0


async def test_many_lookups_of_one_key_at_once(store: RecordingStore) -> None:
    cache = accel.Cache()
    await scan(store, "key = 30000", cache).to_table_async()  # metadata and dictionary
    cache.byte_tier.clear()
    store.clear()
    scans = [scan(store, "key = 30000", cache) for _ in range(256)]
    tables = await asyncio.gather(*(one.to_table_async() for one in scans))
    assert all(isinstance(found, pa.Table) and found.num_rows == 1 for found in tables)
    assert store.requests == 3
    assert sum(one.metrics.requests for one in scans) == 3


def test_a_large_scan_leaves_little_trace(store: RecordingStore, data: bytes) -> None:
    cache = accel.Cache(data=4 * len(data))
    for _ in range(2):
        scan(store, "key = 3000", cache).to_table()
    assert scan(store, None, cache).to_table().num_rows == ROWS
    assert cache.stats().data_nbytes < len(data) // 16  # the last row group is small, and kept
    store.clear()
    assert scan(store, "key = 3000", cache).to_table().num_rows == 1
    assert store.requests == 0


spans = st.tuples(st.integers(0, 3 * ROWS), st.sampled_from([0, 3, 3000, 90_000]))


@settings(max_examples=25, deadline=None)
@given(st.lists(spans, min_size=2, max_size=8), st.sampled_from([64 * 20_000, 64 * 60_000, 1 << 28]))
def test_with_and_without_it_rows_are_the_same(asked: list[tuple[int, int]], limit: int) -> None:
    """Whatever is held, evicted, or held in part; and what explain says is what is asked for."""
    cache, store = accel.Cache(data=limit), RecordingStore(DictStore({PATH: bench_data()}))
    for low, length in asked:
        where = f"key BETWEEN {low} AND {low + length}"
        cached = scan(store, where, cache)
        predicted = cached.explain()
        found = cached.to_table()
        assert found.equals(scan(store, where, None).to_table())
        assert predicted.bytes["data"] == cached.metrics.bytes  # explain has left its metadata
        assert cache.stats().data_nbytes <= limit


@pytest.mark.parametrize("scanned", [1000, 1 << 30], ids=["a scan", "a lookup"])
@pytest.mark.parametrize("where", [None, "value < 0.9", "key < 250000"])
def test_a_large_question_is_kept_when_it_is_asked_again(
    store: RecordingStore, data: bytes, where: str | None, scanned: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read, remembered, read again and kept: the third time nothing is asked for, as explain knows each time.

    Dictionaries of what counts as a scan are kept with its data, those of others among the metadata.
    """
    monkeypatch.setattr("accel.reader.shared_pages.SCANNED", scanned)
    cache = accel.Cache(data=len(data))
    tables, asked = [], []
    for _ in range(4):
        again = scan(store, where, cache)
        predicted = again.explain()
        store.clear()
        tables.append(again.to_table())
        assert predicted.requests["data"] == again.metrics.requests
        assert predicted.bytes["data"] == store.bytes
        asked.append(store.bytes)
    assert asked[0] >= asked[1] > 0
    assert asked[2:] == [0, 0]
    assert all(table.equals(tables[0]) for table in tables)


@pytest.mark.parametrize(
    ("times", "asks_again"),
    [pytest.param(16, False, id="within its share"), pytest.param(4, True, id="beyond it")],
)
def test_a_large_question_is_kept_at_once_where_there_is_room(
    store: RecordingStore, data: bytes, times: int, asks_again: bool
) -> None:
    cache = accel.Cache(data=times * len(data))
    first = scan(store, None, cache).to_table()
    held = cache.stats()
    assert held.data_nbytes <= cache.data // 16
    store.clear()
    again = scan(store, None, cache)
    predicted = again.explain()
    assert again.to_table().equals(first)
    assert (store.requests > 0) == asks_again
    assert predicted.bytes["data"] == again.metrics.bytes == store.bytes
    assert held.data_evictions == 0


def test_a_question_larger_than_half_the_cache_is_asked_each_time(store: RecordingStore, data: bytes) -> None:
    cache = accel.Cache(data=len(data) // 2)
    for _ in range(2):
        scan(store, "key = 3000", cache).to_table()
    for _ in range(4):
        assert scan(store, None, cache).to_table().num_rows == ROWS
        assert cache.stats().data_nbytes < len(data) // 8
        store.clear()
        assert scan(store, "key = 3000", cache).to_table().num_rows == 1
        assert store.requests == 0


def test_an_overwrite_is_read_anew_twice(store: RecordingStore, data: bytes) -> None:
    """What is remembered of one version says nothing of the next."""
    cache = accel.Cache(data=len(data), max_age=0)
    scan(store, None, cache).to_table()
    inner = store.inner
    assert isinstance(inner, DictStore)
    inner.put(PATH, bytes(data))
    inner.etags[PATH] = '"another"'
    held = []
    for _ in range(3):
        assert scan(store, None, cache).to_table().num_rows == ROWS
        held.append(cache.stats().data_nbytes > len(data) // 3)
    assert held == [False, True, True]


@functools.cache
def small_version(seed: int) -> bytes:
    return write_bench_file(rows=12_000, groups=3, seed=seed)


changes = st.one_of(
    st.sampled_from([1, 2]).map(lambda seed: ("put", seed)),
    st.tuples(st.integers(0, 36_000), st.sampled_from([3, 3_000, 40_000])).map(lambda span: ("ask", span)),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(changes, min_size=4, max_size=14), st.sampled_from([100_000, 300_000, 1_000_000]))
def test_rows_are_of_the_version_that_is_there(steps: list[tuple[str, Any]], limit: int) -> None:
    """Asked small and large, again and again, while the object is overwritten, over caches that hold a part
    of it."""
    inner = DictStore({PATH: small_version(1)})
    cache, store = accel.Cache(data=limit, max_age=0), RecordingStore(inner)
    for what, value in steps:
        if what == "put":
            inner.put(PATH, small_version(value))
            continue
        where = f"key BETWEEN {value[0]} AND {value[0] + value[1]}"
        for _ in range(3):
            assert scan(store, where, cache).to_table().equals(scan(store, where, None).to_table())
            assert cache.stats().data_nbytes <= limit
