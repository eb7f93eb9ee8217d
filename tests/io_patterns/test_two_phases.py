"""Late materialization, request by request: the filter's pages, then only the pages that hold a matching
row."""

from __future__ import annotations

import io
import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.ranges import ByteRange
from accel.reader.reader import Reader
from accel.testing import (
    DictStore,
    FaultStore,
    LatencyStore,
    Layout,
    RecordingStore,
    Status,
    table,
    write_file,
)

ROWS, GROUP, PAGE = 12_000, 6_000, 500
PATH = "wide.parquet"
MARKS = {GROUP + 1_200, GROUP + 1_499, GROUP + 3_000}
"""Rows with mark = 1: two of page 2 and one of page 6, all of the second row group."""


@pytest.fixture(scope="module")
def data() -> bytes:
    # The flag is 1 or 7 in every page but where marked, so no page bounds rule out `mark = 4`.
    mark = np.where(np.arange(ROWS) % 2, 1, 7)
    mark[sorted(MARKS)] = 4
    texts = pa.array([f"{i:08}" * 8 for i in range(ROWS)])
    wide = {f"w{i}": pa.array(np.arange(ROWS) * 31 % 997 + i * 1.5) for i in range(3)}
    return write_file(
        table(mark=pa.array(mark), text=texts, **wide),
        Layout(group_rows=GROUP, page_rows=PAGE, dictionary=False, codec="none"),
    )


@pytest.fixture
def store(data: bytes) -> RecordingStore:
    return RecordingStore(DictStore({PATH: data}))


def scan(store: Any, where: str, *, phases: str, cache: accel.Cache | None = None, **more: Any) -> accel.Scan:
    piece_bytes = more.pop("piece_bytes", 32 << 20)
    options = accel.Options(phases=phases, max_gap_bytes=0, tail_hint=32 << 10, piece_bytes=piece_bytes)
    return accel.scan(PATH, where, store=store, cache=cache or accel.Cache(), options=options, **more)


def pages(store: Any, where: str, leaf: int, group: int) -> dict[int, ByteRange]:
    """Where the pages of a column are, by ordinal, as a plan names them."""
    plan = accel.plan(PATH, where, store=store, cache=None, options=accel.Options(tail_hint=32 << 10))
    (task,) = [t for t in plan.tasks if t.row_group == group]
    (reads,) = [r for r in task.reads if r.leaf == leaf]
    return {
        int(o): ByteRange(int(a), int(a + n))
        for o, a, n in zip(reads.ordinal, reads.offset, reads.size, strict=True)
    }


def test_only_pages_with_a_match_are_asked_for(store: RecordingStore, data: bytes) -> None:
    cache = accel.Cache()
    scan(store, "mark = 4", phases="two", cache=cache).explain()
    store.clear()
    found = scan(store, "mark = 4", phases="two", cache=cache, columns=["text", "w1"])
    got = found.to_table()
    asked = store.fetched(PATH)
    full = pq.read_table(io.BytesIO(data))
    assert got.equals(full.take(sorted(MARKS)).select(["text", "w1"]))
    marks = [pages(store, "mark = 4", 0, group) for group in (0, 1)]
    first = [
        ByteRange(min(r.start for r in found.values()), max(r.end for r in found.values())) for found in marks
    ]
    second = [pages(store, "mark = 4", leaf, 1)[page] for leaf in (1, 3) for page in (2, 6)]
    assert asked == sorted([*first, *second])
    assert found.metrics.round_trips == 2
    assert found.metrics.late_pieces == 2


def test_nothing_more_where_nothing_matches(store: RecordingStore) -> None:
    cache = accel.Cache()
    scan(store, "mark = 5", phases="two", cache=cache).explain()
    store.clear()
    found = scan(store, "mark = 5", phases="two", cache=cache)
    assert found.to_table().num_rows == 0
    assert found.metrics.round_trips == 1
    assert store.requests == 2


def test_a_column_of_both_filter_and_result_comes_once(store: RecordingStore, data: bytes) -> None:
    found = scan(store, "mark = 4 and w0 >= 0", phases="two", columns=["w0", "mark", "text"])
    got = found.to_table()
    assert got.equals(pq.read_table(io.BytesIO(data)).take(sorted(MARKS)).select(["w0", "mark", "text"]))
    ranges = sorted(call.range for call in store.calls if call.range is not None)
    assert all(one.end <= other.start for one, other in itertools.pairwise(ranges))


@pytest.mark.parametrize("piece_bytes", [1, 9_000, 40_000])
@pytest.mark.parametrize("where", ["mark = 4", "mark = 4 or w1 < 3", "mark <> 7", "mark = 7 or w0 = 2.5"])
def test_pieces_share_the_pages_that_straddle_them(
    store: RecordingStore, data: bytes, piece_bytes: int, where: str
) -> None:
    """Wherever a task is cut, one phase and two give the same rows, and no page is asked for twice."""
    one = scan(store, where, phases="one", piece_bytes=piece_bytes).to_table()
    store.clear()
    two = scan(store, where, phases="two", piece_bytes=piece_bytes).to_table()
    assert two.equals(one)
    assert two.num_rows > 0
    asked = sorted(call.range for call in store.calls if call.range is not None)
    assert all(before.end <= later.start for before, later in itertools.pairwise(asked))


@pytest.mark.parametrize("piece_bytes", [1, 3_000, 40_000])
@pytest.mark.parametrize("edges", [(510, 3_777), (0, 2_010), (1_000, 4_000)], ids=["both", "last", "none"])
def test_pieces_that_match_as_a_whole_share_pages_with_those_in_doubt(
    monkeypatch: pytest.MonkeyPatch, edges: tuple[int, int], piece_bytes: int
) -> None:
    """They are read at once, and what straddles a cut may be wanted by them alone. It is fetched once all the
    same, unless the piece undecided comes to want it while it is on its way; and it is not held when all is
    read."""
    rows = 4_000
    full = table(
        key=pa.array(np.arange(rows)), text=pa.array([f"{i % 97:04}" * (1 + i % 9) for i in range(rows)])
    )
    sink = io.BytesIO()
    pq.write_table(
        full,
        sink,
        use_dictionary=False,
        compression="none",
        write_page_index=True,
        data_page_size=1_000,
        write_batch_size=20,
    )
    store = RecordingStore(DictStore({PATH: sink.getvalue()}))
    where = f"key >= {edges[0]} and key < {edges[1]}"
    read: list[Any] = []
    made = Reader.reads
    monkeypatch.setattr(Reader, "reads", lambda *a, **k: read.append(made(*a, **k)) or read[-1])
    found = scan(store, where, phases="two", piece_bytes=piece_bytes)
    assert found.to_table().equals(full.slice(edges[0], edges[1] - edges[0]))
    assert all(len(reads.carried) <= 1 for reads in read)
    asked = sorted(call.range for call in store.calls if call.range is not None)
    twice = sum(later.start < before.end for before, later in itertools.pairwise(asked))
    assert twice <= 2


@pytest.mark.parametrize("where", ["mark = 4", "mark = 4 or w1 < 3", "mark = 5", "mark <> 7 and w0 > 2"])
@pytest.mark.parametrize("cut", [True, False], ids=["too large to decode at once", "small enough"])
def test_without_page_index(monkeypatch: pytest.MonkeyPatch, data: bytes, where: str, cut: bool) -> None:
    """Chunks come whole: the filter's first, the others of row groups where a row matches, once each."""
    monkeypatch.setattr("accel.planning.task.DECODE_AT_ONCE", 0 if cut else 1 << 40)
    full = pq.read_table(io.BytesIO(data))
    plain = write_file(full, Layout(group_rows=GROUP, page_rows=PAGE, dictionary=["mark"], page_index=False))
    store = RecordingStore(DictStore({PATH: plain}))
    found = scan(store, where, phases="two", piece_bytes=20_000)
    got = found.to_table()
    assert got.equals(scan(DictStore({PATH: plain}), where, phases="one").to_table())
    assert found.metrics.late_pieces == 2
    asked = store.fetched(PATH)
    assert all(one.end <= other.start for one, other in itertools.pairwise(asked))
    if where == "mark = 4":
        # Of the first row group only the filter's chunk, and the metadata.
        assert sum(r.length for r in asked) < len(plain) * 0.6
    assert found.metrics.round_trips == (3 if got.num_rows else 2)


def test_auto_weighs_what_it_saves(store: RecordingStore) -> None:
    """Little to leave out: one round trip, whatever the filter keeps."""
    found = scan(store, "mark = 4", phases="auto", columns=["w0"])
    assert found.to_table().num_rows == len(MARKS)
    assert found.metrics.late_pieces == 0


def test_a_failing_second_phase_strands_nobody(data: bytes) -> None:
    """The first piece's late read fails: the scan raises, and ends."""
    calls = 0

    def script(attempt: Any) -> Any:
        nonlocal calls
        calls += 1
        return Status(403) if calls == 9 else None

    broken = FaultStore(DictStore({PATH: data}), script)
    with pytest.raises(accel.StoreError, match="403"):
        scan(broken, "mark = 4 or w1 < 3", phases="two", piece_bytes=9_000).to_table()


@pytest.mark.parametrize("phases", ["one", "two"])
@pytest.mark.parametrize("lost", [0, 1], ids=["all of it", "what no filter needs"])
def test_rows_before_a_group_that_cannot_be_read_come_out(data: bytes, phases: str, lost: int) -> None:
    """Though it was read ahead, and failed before they had come: the first row group, and then the error."""
    footer = pq.read_metadata(io.BytesIO(data))
    start = footer.row_group(1).column(lost).data_page_offset
    end = footer.row_group(1).column(4).data_page_offset

    def script(attempt: Any) -> Any:
        late = isinstance(attempt.want, ByteRange) and start <= attempt.want.start <= end
        return Status(403) if late else None

    # What is answered comes after what fails.
    store = FaultStore(LatencyStore(DictStore({PATH: data}), first_byte=0.005), script)
    full = pq.read_table(io.BytesIO(data))
    rows = []
    with pytest.raises(accel.StoreError, match="403"):
        for batch in scan(store, "mark > 0", phases=phases, piece_bytes=60_000):
            rows.append(batch)  # noqa: PERF402 - what came before the error is kept
    assert pa.Table.from_batches(rows).equals(full[:GROUP])
    for limit in (GROUP - 1, GROUP):
        found = scan(store, "mark > 0", phases=phases, piece_bytes=60_000, limit=limit)
        assert found.to_table().equals(full[:limit])


def test_first_phases_go_together_however_much_the_others_hold(store: RecordingStore, data: bytes) -> None:
    """A piece is as large as its filter's columns make it: two row groups, two waves, whatever the rest comes
    to."""
    cache = accel.Cache()
    scan(store, "mark = 4", phases="two", cache=cache).explain()
    store.clear()
    # Of the filter's column a row group has some 48,000 bytes, of the others 550,000.
    found = scan(
        store, "mark = 4 or w1 < 3", phases="two", cache=cache, piece_bytes=60_000, columns=["mark", "text"]
    )
    one = scan(
        DictStore({PATH: data}), "mark = 4 or w1 < 3", phases="one", columns=["mark", "text"]
    ).to_table()
    assert found.to_table().equals(one)
    assert found.metrics.late_pieces == 2 * 2
    first = [call for call in store.calls if call.wave == 1]
    marks = [pages(store, "mark = 4", 0, group) for group in (0, 1)]
    assert {min(found.values()).start for found in marks} <= {call.want.start for call in first}


@pytest.mark.parametrize("columns", [["mark", "text"], ["text", "w0"], None], ids=["both", "result", "all"])
@pytest.mark.parametrize("limit", [None, 1, 3_500])
def test_a_second_phase_that_holds_much_is_cut(
    store: RecordingStore, data: bytes, columns: list[str] | None, limit: int | None
) -> None:
    """Every row matches: what the first phase leaves is read in pieces of its own, each page once."""
    found = scan(
        store,
        "mark > 0",
        phases="two",
        piece_bytes=60_000,
        columns=columns,
        limit=limit,
        cache=accel.Cache(data=0),
    )
    full = pq.read_table(io.BytesIO(data))
    assert found.to_table().equals(full.select(columns or full.column_names)[: limit or ROWS])
    asked = sorted(call.range for call in store.calls if call.range is not None)
    assert all(one.end <= other.start for one, other in itertools.pairwise(asked))
