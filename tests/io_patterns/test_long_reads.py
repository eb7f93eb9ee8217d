"""Long runs of pages, request by request: over how many responses they go, and that nothing of them is joined
or lost."""

from __future__ import annotations

import io
import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel import coalesce
from accel.options import KIB
from accel.ranges import ByteRange
from accel.store.network import Network
from accel.testing import DictStore, Layout, RecordingStore, table, write_file

PATH = "long.parquet"
ROWS, GROUP, PAGE = 900_000, 450_000, 5_000
MATCHES = [7, 100_003, 110_003, 444_000, 450_009, 899_999]


@pytest.fixture(scope="module")
def data() -> bytes:
    """Two row groups; in each 3.6 MB of marks in 90 pages of 40 KB, as many of values behind them."""
    mark = 2 * np.random.default_rng(1).integers(3, 50_000, ROWS)
    # No page can be left out by its bounds.
    mark[::PAGE], mark[1::PAGE] = 0, 100_000
    mark[MATCHES] = 4
    return write_file(
        table(mark=pa.array(mark), value=pa.array(np.arange(ROWS) * 0.5)),
        Layout(group_rows=GROUP, page_rows=PAGE, dictionary=False, codec="none"),
    )


@pytest.fixture
def store(data: bytes) -> RecordingStore:
    return RecordingStore(DictStore({PATH: data}))


def scan(store: Any, where: str | None = None, **options: Any) -> accel.Scan:
    """Nothing is asked for twice, late as an answer may be."""
    return accel.scan(PATH, where, store=store, cache=accel.Cache(), options=accel.Options(**options))


def asked(store: RecordingStore) -> list[ByteRange]:
    """What was asked for after the footer."""
    found = sorted(call.range for call in store.calls[1:] if call.range is not None)
    assert all(one.end <= other.start for one, other in itertools.pairwise(found))
    return found


def page_starts(data: bytes) -> list[set[int]]:
    """Where the pages of marks start, by row group."""
    plan = accel.plan(PATH, "mark = 4", store=DictStore({PATH: data}), cache=None)
    return [set(task.reads[0].offset.tolist()) for task in plan.tasks]


def test_the_filter_of_two_phases_goes_over_many_responses(
    store: RecordingStore, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its 7.2 MB by eight are 900 KB, however much the other columns hold; runs are cut between pages, about
    every 512 KiB, so each comes alone and nothing is joined."""
    joined: list[int] = []
    monkeypatch.setattr(coalesce, "join_buffers", lambda parts: joined.append(len(parts)) or b"".join(parts))
    found = scan(store, "mark = 4", phases="two")
    rows = found.to_table()
    whole = pq.read_table(io.BytesIO(data))
    assert rows.equals(whole.take(MATCHES))
    first = asked(store)
    starts = page_starts(data)
    long = [r for r in first if r.length > 100_000]
    assert [sum(r.start in group for r in long) for group in starts] == [7, 7]
    assert max(r.length for r in long) <= 512 * KIB + 41_000
    assert sum(r.length for r in long) == sum(len(group) for group in starts) * 40_029
    # Of each match one page of the other column; that of the last came along with the footer.
    assert found.metrics.requests == 1 + len(long) + len(MATCHES) - 1
    assert found.metrics.round_trips == 3
    assert joined == []


@pytest.mark.parametrize("piece_bytes", [1 << 20, 8 << 20])
@pytest.mark.parametrize("limit", [None, ROWS])
def test_prediction_is_fact(store: RecordingStore, data: bytes, piece_bytes: int, limit: int | None) -> None:
    cache, options = accel.Cache(), accel.Options(piece_bytes=piece_bytes)
    predicted = accel.scan(PATH, limit=limit, store=store, cache=cache, options=options).explain()
    found = accel.scan(PATH, limit=limit, store=store, cache=cache, options=options)
    assert found.to_table().equals(pq.read_table(io.BytesIO(data)))
    assert found.metrics.requests == predicted.levels[-1].requests
    assert found.metrics.bytes == predicted.levels[-1].bytes


@pytest.mark.parametrize("long_run", [1, 50_000, 1 << 30])
@pytest.mark.parametrize("piece_bytes", [1 << 20, 8 << 20])
@pytest.mark.parametrize("where", [None, "mark < 60000", "value > 100000 and mark <> 8"])
def test_wherever_runs_are_cut_the_rows_and_requests_are_the_same(
    store: RecordingStore,
    data: bytes,
    monkeypatch: pytest.MonkeyPatch,
    long_run: int,
    piece_bytes: int,
    where: str | None,
) -> None:
    expected = scan(DictStore({PATH: data}), where, phases="one").to_table()
    # As far away as is assumed of a store that is not known: how long the first read is, is learned from the
    # clock too.
    monkeypatch.setattr(Network, "early_bytes", property(lambda network: 512 * KIB))
    fixed: dict[str, Any] = {"piece_bytes": piece_bytes, "max_coalesced_bytes": 64 << 20, "max_gap_bytes": 0}
    # Which phases pay is learned from the clock.
    fixed["phases"] = "one"
    with monkeypatch.context() as cut:
        cut.setattr("accel.planning.pages.LONG_RUN", long_run)
        assert scan(store, where, **fixed).to_table().equals(expected)
    apart = asked(store)
    store.clear()
    scan(store, where, **fixed).to_table()
    assert asked(store) == apart
