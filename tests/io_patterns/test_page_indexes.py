"""Page indexes, request by request: a few, then all that are left, then none; and small chunks do without."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.ranges import ByteRange, Kind
from accel.store.network import Network
from accel.testing import DictStore, Layout, RecordingStore, table, write_file

ROWS, GROUP, PAGE = 30_000, 10_000, 500
PATH = "rows.parquet"
HINT = accel.Options(tail_hint=2048, max_tail_hint=2048, max_gap_bytes=0)


@pytest.fixture(autouse=True)
def early(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes that may come early, whatever is learned of a store in memory."""
    most = [512 << 10]
    monkeypatch.setattr(Network, "early_bytes", property(lambda network: most[0]))
    return most


@pytest.fixture(scope="module")
def data() -> bytes:
    noise = np.random.default_rng(3).permutation(ROWS)
    return write_file(
        table(key=pa.array(np.arange(ROWS)), a=pa.array(noise), b=pa.array(noise * 3)),
        Layout(group_rows=GROUP, page_rows=PAGE, dictionary=False),
    )


@pytest.fixture
def store(data: bytes) -> RecordingStore:
    return RecordingStore(DictStore({PATH: data}))


def lookup(store: Any, key: int, cache: accel.Cache, **more: Any) -> accel.Scan:
    return accel.scan(PATH, f"key = {key}", store=store, cache=cache, options=HINT, **more)


def indexes(metrics: accel.Metrics) -> tuple[int, int]:
    """Requests for page indexes, and their bytes."""
    kinds = (Kind.COLUMN_INDEX, Kind.OFFSET_INDEX)
    return (
        sum(metrics.requests_by_kind.get(kind, 0) for kind in kinds),
        sum(metrics.bytes_by_kind.get(kind, 0) for kind in kinds),
    )


def test_who_asks_again_gets_them_all(store: RecordingStore, data: bytes) -> None:
    """The first lookup asks for its own, the second for all before the tail, the third for none."""
    cache = accel.Cache()
    seen = []
    for key in (5, GROUP + 5, 2 * GROUP + 5):
        store.clear()
        scan = lookup(store, key, cache)
        assert scan.to_table().column("key").to_pylist() == [key]
        seen.append((indexes(scan.metrics), scan.metrics.round_trips))
    (first, trips), second, third = seen
    assert (first[0], trips) == (2, 3)
    # One request, from the first page index to where the tail began, then the data.
    assert second[0][0] == 1
    assert second[1] == 2
    assert second[0][1] > 2 * first[1]
    assert third == ((0, 0), 1)


async def test_many_at_once_read_it_ahead_once(store: RecordingStore) -> None:
    cache = accel.Cache()
    await lookup(store, 5, cache).to_table_async()
    store.clear()
    scans = [lookup(store, group * GROUP + 7 * PAGE, cache) for group in (1, 2, 1, 2)]
    found = await asyncio.gather(*(scan.to_table_async() for scan in scans))
    assert [t.num_rows for t in found] == [1, 1, 1, 1]
    longest = sorted((indexes(scan.metrics) for scan in scans), key=lambda counted: counted[1])
    assert [requests for requests, _ in longest].count(1) == 1
    assert longest[-1][1] > 2 * longest[0][1]


def test_not_where_there_are_more_than_may_come_early(store: RecordingStore, early: list[int]) -> None:
    cache, early[0] = accel.Cache(), 1000
    for key in (5, GROUP + 5, 2 * GROUP + 5):
        scan = lookup(store, key, cache)
        assert scan.to_table().num_rows == 1
        assert indexes(scan.metrics)[0] == 2


def test_more_may_come_the_more_often_a_file_is_asked(store: RecordingStore, early: list[int]) -> None:
    """Twice as much after two reads of page indexes: then the rest comes at once."""
    cache = accel.Cache()
    lookup(store, 5, cache).to_table()
    scan = lookup(store, GROUP + 5, cache)
    scan.to_table()
    _, left = indexes(scan.metrics)
    cache, early[0] = accel.Cache(), left * 2 // 3
    requests = []
    for key in (2 * GROUP + 5, 5, GROUP + 5):
        scan = lookup(store, key, cache)
        assert scan.to_table().num_rows == 1
        requests.append(indexes(scan.metrics))
    assert [count for count, _ in requests] == [2, 2, 1]
    assert requests[2][1] == left


def test_a_failure_leaves_it_to_the_next(data: bytes) -> None:
    from accel.testing import FaultStore, Status

    broken: list[bool] = []
    store = FaultStore(DictStore({PATH: data}), lambda attempt: Status(403) if broken else None)
    cache = accel.Cache()
    lookup(store, 5, cache).to_table()
    broken.append(True)
    with pytest.raises(accel.StoreError):
        lookup(store, GROUP + 5, cache).to_table()
    broken.clear()
    gc.collect()  # the error held on to what had asked
    scan = lookup(store, GROUP + 5, cache)
    assert scan.to_table().num_rows == 1
    assert indexes(scan.metrics)[0] == 1


def test_small_chunks_are_read_without_them() -> None:
    """A lookup of a row group that holds a page or two of each column: metadata, then data."""
    rows = 4_000
    columns = {f"c{i:02}": pa.array(np.arange(rows) * (i + 1)) for i in range(40)}
    data = write_file(
        table(key=pa.array(np.arange(rows)), **columns),
        Layout(group_rows=200, page_rows=100, dictionary=False),
    )
    store = RecordingStore(DictStore({PATH: data}))
    options = accel.Options(tail_hint=1024, max_tail_hint=1024, max_gap_bytes=0)
    cache = accel.Cache()
    scan = accel.scan(PATH, "key = 777", columns=["key", "c07"], store=store, cache=cache, options=options)
    assert scan.to_table().to_pylist() == [{"key": 777, "c07": 777 * 8}]
    assert indexes(scan.metrics) == (0, 0)
    assert scan.metrics.fallbacks == 0
    plan = accel.plan(PATH, "key = 777", columns=["key", "c07"], store=store, cache=cache, options=options)
    (task,) = plan.tasks
    asked = store.fetched(PATH)
    assert {ByteRange(*reads.chunk) for reads in task.reads} <= set(asked)
    # A question about more of the file asks for them.
    scan = accel.scan(PATH, "key > 777", columns=["key", "c07"], store=store, cache=cache, options=options)
    assert scan.to_table().num_rows == rows - 778
    assert indexes(scan.metrics)[0] > 0


@pytest.fixture(scope="module")
def filtered() -> bytes:
    """`id` lies anywhere, `key` is sorted; both have bloom filters."""
    ids = np.random.default_rng(5).permutation(ROWS) * 2
    ndv = {"ndv": GROUP, "fpp": 0.001}
    return write_file(
        table(key=pa.array(np.arange(ROWS) * 2), id=pa.array(ids)),
        Layout(
            group_rows=GROUP,
            page_rows=PAGE,
            dictionary=False,
            more={"bloom_filter_options": {"key": ndv, "id": ndv}},
        ),
    )


def waves(store: RecordingStore, metrics: accel.Metrics) -> list[int]:
    """Requests of each wave; a wave of metadata is of one file."""
    assert metrics.round_trips == store.waves
    return [sum(call.wave == wave for call in store.calls) for wave in range(1, store.waves + 1)]


def test_filters_go_along_where_row_groups_are_all_alike(filtered: bytes) -> None:
    """An absent `id`: tail and footer, then page indexes and filters at once, and nothing is left."""
    store = RecordingStore(DictStore({PATH: filtered}))
    options = accel.Options(tail_hint=2048, max_gap_bytes=0, probe_min_bytes=0)
    scan = accel.scan(PATH, "id = 777", store=store, cache=accel.Cache(), options=options)
    assert scan.to_table().num_rows == 0
    # A header and a block of each of the three filters, and a column index and an offset index of each row
    # group.
    asked = waves(store, scan.metrics)[-1]
    assert asked == 3 * 2 + sum(indexes(scan.metrics)[:1])
    assert scan.metrics.requests_by_kind[Kind.BLOOM] == 6
    assert Kind.PAGE not in scan.metrics.requests_by_kind


def test_they_wait_where_a_row_group_stands_out(filtered: bytes) -> None:
    """An absent `key` between two present ones: its page is known first, and its filter asked then."""
    store = RecordingStore(DictStore({PATH: filtered}))
    options = accel.Options(tail_hint=2048, max_gap_bytes=0, probe_min_bytes=0)
    scan = accel.scan(PATH, "key = 777", store=store, cache=accel.Cache(), options=options)
    assert scan.to_table().num_rows == 0
    assert waves(store, scan.metrics)[-2:] == [2, 2]
    assert scan.metrics.requests_by_kind[Kind.BLOOM] == 2


def test_they_wait_where_they_are_much(filtered: bytes, early: list[int]) -> None:
    early[0] = 4 * 3 * 40  # three filters' headers and blocks come to some 47 bytes each
    store = RecordingStore(DictStore({PATH: filtered}))
    options = accel.Options(tail_hint=2048, max_gap_bytes=0, probe_min_bytes=0)
    scan = accel.scan(PATH, "id = 777", store=store, cache=accel.Cache(), options=options)
    assert scan.to_table().num_rows == 0
    assert waves(store, scan.metrics)[-1] == 6
