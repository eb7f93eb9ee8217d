"""The requests of one selective query, asserted exactly: how many, in how many round trips, of which bytes.

The file: 40,000 rows in 4 row groups of 10,000, pages of 1,000 rows, `key` = 3 * row sorted, one dictionary
column, one random double, one unique string; page indexes present. The whole tail (page indexes and footer)
fits the first read, and the file is longer than it, so that no data comes along by accident.
"""

from __future__ import annotations

import asyncio
import io
import itertools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.format.footer import parse_footer
from accel.format.model import FileMetadata
from accel.format.page_index import parse_offset_index
from accel.ranges import ByteRange, Kind, Suffix
from accel.runtime import io_loop
from accel.testing import DictStore, Layout, RecordingStore, bench_table, write_file

ROWS, GROUP, PAGE = 40_000, 10_000, 1_000
PATH = "lookups.parquet"
HINT = 64 * 1024
OPTIONS = accel.Options(tail_hint=HINT, max_gap_bytes=0)


@pytest.fixture(scope="module")
def data() -> bytes:
    return write_file(bench_table(ROWS), Layout(group_rows=GROUP, page_rows=PAGE, dictionary=["category"]))


@pytest.fixture(scope="module")
def layout(data: bytes) -> FileMetadata:
    length = int.from_bytes(data[-8:-4], "little")
    start = len(data) - 8 - length
    return parse_footer(data[start:-8], file_size=len(data), footer_start=start)


@pytest.fixture
def store(data: bytes) -> RecordingStore:
    return RecordingStore(DictStore({PATH: data}))


def column(layout: FileMetadata, name: str) -> int:
    return layout.schema.names.index(name)


def page_range(data: bytes, layout: FileMetadata, group: int, name: str, page: int) -> ByteRange:
    """Where a page is, straight from the file's own offset index."""
    at = (group, column(layout, name))
    chunks = layout.chunks
    start = int(chunks.offset_index_offset[at])
    blob = data[start : start + int(chunks.offset_index_length[at])]
    index = parse_offset_index(blob, num_rows=GROUP, lower=4, upper=layout.footer_start)
    return ByteRange(int(index.offset[page]), int(index.offset[page] + index.size[page]))


def dictionary_range(data: bytes, layout: FileMetadata, group: int, name: str) -> ByteRange:
    return ByteRange(
        int(layout.chunks.start[group, column(layout, name)]), page_range(data, layout, group, name, 0).start
    )


def lookup(
    store: RecordingStore, where: str, cache: accel.Cache, columns: list[str] | None = None
) -> accel.Scan:
    return accel.scan(
        PATH,
        where,
        columns=columns or ["key", "value", "category"],
        store=store,
        cache=cache,
        options=OPTIONS,
    )


@pytest.fixture
def started() -> Iterator[list[str]]:
    """The names of the coroutines that tasks of the I/O loop were started for."""
    names: list[str] = []

    def start(loop: asyncio.AbstractEventLoop, coroutine: Any, **named: Any) -> asyncio.Task[Any]:
        names.append(coroutine.__qualname__)
        return asyncio.Task(coroutine, loop=loop, **named)

    loop = io_loop.io_loop()
    loop.call_soon_threadsafe(loop.set_task_factory, start)
    yield names
    loop.call_soon_threadsafe(loop.set_task_factory, None)


def test_tasks_are_for_what_goes_on_side_by_side(store: RecordingStore, started: list[str]) -> None:
    """One is for the call, one for the run, one for the bytes, which others may share, and one for each
    request."""
    cache = accel.Cache()
    lookup(store, "key = 60000", cache).to_table()
    tasks, requests = [], []
    for key in (90000, 90000, 90000):
        started.clear()
        before = store.requests
        assert lookup(store, f"key = {key}", cache).to_table().num_rows == 1
        tasks.append(len(started))
        requests.append(store.requests - before)
    # The second is answered from cached pages, the third from the cached result.
    assert requests[1:] == [0, 0]
    assert tasks == [3 + requests[0], 2, 2]


def test_the_fixture_has_the_structure_the_rest_relies_on(data: bytes, layout: FileMetadata) -> None:
    assert layout.group_rows.tolist() == [GROUP] * 4
    pages = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(0).column(0)
    assert pages.has_offset_index
    assert pages.has_column_index
    first_index = min(
        int(layout.chunks.column_index_offset.min()), int(layout.chunks.offset_index_offset.min())
    )
    assert len(data) - first_index < HINT < len(data) // 4
    assert page_range(data, layout, 0, "key", 9).end > 0


def test_cold_then_warm_point_lookup(store: RecordingStore, data: bytes, layout: FileMetadata) -> None:
    cache = accel.Cache(data=0)
    row = 2 * GROUP + 3_456
    found = lookup(store, f"key = {3 * row}", cache)
    assert found.to_table().column("key").to_pylist() == [3 * row]
    # Cold: one suffix read; then the three columns' pages and the one dictionary, all at once.
    expected = sorted(
        [
            page_range(data, layout, 2, "key", 3),
            page_range(data, layout, 2, "value", 3),
            page_range(data, layout, 2, "category", 3),
            dictionary_range(data, layout, 2, "category"),
        ]
    )
    assert store.calls[0].want == Suffix(HINT)
    assert store.fetched(PATH)[:-1] == expected
    assert (store.requests, store.waves, store.depth) == (5, 2, 2)
    assert store.bytes == HINT + sum(r.length for r in expected)
    assert all(call.if_match is not None for call in store.calls[1:])
    metrics = found.metrics
    assert (metrics.requests, metrics.bytes, metrics.round_trips) == (5, store.bytes, 2)
    # Metadata warm, another page of the same row group: the dictionary is cached like metadata.
    store.clear()
    other = 2 * GROUP + 7_001
    assert lookup(store, f"key = {3 * other}", cache).count_rows() == 1
    store.clear()
    again = lookup(store, f"key = {3 * other}", cache)
    assert again.to_table().num_rows == 1
    assert store.fetched(PATH) == sorted(
        page_range(data, layout, 2, n, 7) for n in ("key", "value", "category")
    )
    assert (store.requests, store.waves) == (3, 1)
    assert again.metrics.round_trips == 1
    assert again.metrics.dictionary_hits == 1


@pytest.mark.parametrize(
    "where",
    [
        pytest.param("key = -3", id="below all"),
        pytest.param(f"key > {3 * ROWS}", id="above all"),
        pytest.param(f"key = {3 * GROUP - 1}", id="between two row groups"),
        pytest.param(f"key > {3 * (PAGE - 1)} AND key < {3 * PAGE}", id="between two pages"),
        pytest.param("key < 300 AND key > 90000", id="contradiction"),
        pytest.param("key = 1.5", id="no integer"),
        pytest.param("key IS NULL", id="no nulls"),
        pytest.param("name LIKE 'zz%'", id="prefix outside all"),
    ],
)
def test_a_miss_asks_for_no_data(store: RecordingStore, where: str) -> None:
    cache = accel.Cache()
    scan = lookup(store, where, cache)
    assert scan.to_table().num_rows == 0
    assert [call.want for call in store.calls] == [Suffix(HINT)]
    store.clear()
    assert lookup(store, where, cache).to_table().num_rows == 0
    assert store.requests == 0


def test_absent_key_inside_a_page_reads_that_page_only(
    store: RecordingStore, data: bytes, layout: FileMetadata
) -> None:
    cache = accel.Cache()
    scan = lookup(store, "key = 31", cache, ["value"])
    assert scan.to_table().num_rows == 0
    assert store.fetched(PATH)[:-1] == [page_range(data, layout, 0, n, 0) for n in ("key", "value")]


def test_a_range_reads_neighbouring_pages_as_one_request_a_column(
    store: RecordingStore, data: bytes, layout: FileMetadata
) -> None:
    cache = accel.Cache()
    scan = lookup(store, f"key BETWEEN {3 * 2_500} AND {3 * 4_499}", cache, ["key", "value"])
    assert scan.to_table().num_rows == 2_000
    runs = [
        ByteRange(page_range(data, layout, 0, n, 2).start, page_range(data, layout, 0, n, 4).end)
        for n in ("key", "value")
    ]
    assert store.fetched(PATH)[:-1] == runs
    assert (store.requests, store.waves) == (3, 2)


def test_pages_that_all_match_need_no_filter_column(
    store: RecordingStore, data: bytes, layout: FileMetadata
) -> None:
    scan = lookup(store, f"key >= {3 * 2_000} AND key < {3 * 5_000}", accel.Cache(), ["value"])
    assert scan.to_table().num_rows == 3_000
    assert store.fetched(PATH)[:-1] == [
        ByteRange(page_range(data, layout, 0, "value", 2).start, page_range(data, layout, 0, "value", 4).end)
    ]


def test_count_from_metadata_alone(store: RecordingStore) -> None:
    cache = accel.Cache()
    for where, expected in (
        (None, ROWS),
        (f"key >= {3 * GROUP}", ROWS - GROUP),
        (f"key >= {3 * 2_000} AND key < {3 * 5_000}", 3_000),
        ("key IS NOT NULL", ROWS),
        ("key < 0", 0),
    ):
        assert lookup(store, where, cache).count_rows() == expected, where  # type: ignore[arg-type]
    assert [call.want for call in store.calls] == [Suffix(HINT)]


def test_count_reads_only_the_pages_in_doubt(
    store: RecordingStore, data: bytes, layout: FileMetadata
) -> None:
    assert lookup(store, f"key >= {3 * 2_500}", accel.Cache()).count_rows() == ROWS - 2_500
    assert store.fetched(PATH)[:-1] == [page_range(data, layout, 0, "key", 2)]


def test_zero_columns_are_row_counts_without_data(store: RecordingStore) -> None:
    batches = list(accel.scan(PATH, columns=[], store=store, cache=accel.Cache(), options=OPTIONS))
    assert sum(b.num_rows for b in batches) == ROWS
    assert batches[0].schema == pa.schema([])
    assert store.requests == 1


def test_full_scan_reads_every_chunk_once(store: RecordingStore, data: bytes, layout: FileMetadata) -> None:
    scan = accel.scan(PATH, store=store, cache=accel.Cache(), options=accel.Options(tail_hint=HINT))
    assert scan.to_table().equals(pq.read_table(io.BytesIO(data)).replace_schema_metadata(None))
    fetched = store.fetched(PATH)[:-1]
    # All chunks lie side by side, and these row groups are read together: one request each at the most, and
    # nothing twice or between them. What of the last one came along with the footer is not asked for again.
    starts, ends = layout.chunks.start.min(axis=1), layout.chunks.end.max(axis=1)
    assert ends[3] > len(data) - HINT
    ends[3] = len(data) - HINT
    assert len(fetched) <= 4
    assert (fetched[0].start, fetched[-1].end) == (starts[0], ends[3])
    assert all(one.end == other.start for one, other in itertools.pairwise(fetched))
    assert store.depth == 2


def test_head_reads_the_first_pages_only(store: RecordingStore, data: bytes, layout: FileMetadata) -> None:
    scan = accel.scan(PATH, columns=["key", "category"], store=store, cache=accel.Cache(), options=OPTIONS)
    assert scan.head(7).column("key").to_pylist() == [0, 3, 6, 9, 12, 15, 18]
    assert store.fetched(PATH)[:-1] == [
        page_range(data, layout, 0, "key", 0),
        # The dictionary and the first page lie side by side.
        ByteRange(
            dictionary_range(data, layout, 0, "category").start,
            page_range(data, layout, 0, "category", 0).end,
        ),
    ]
    assert store.depth == 2


def test_tail_hint_boundaries(data: bytes, layout: FileMetadata) -> None:
    indexes = min(int(layout.chunks.column_index_offset.min()), int(layout.chunks.offset_index_offset.min()))
    footer = len(data) - layout.footer_start
    for hint, waves, first in (
        (len(data) - indexes, 2, [Suffix(len(data) - indexes)]),
        (footer, 3, [Suffix(footer)]),
        (footer - 1, 4, [Suffix(footer - 1), ByteRange(layout.footer_start, layout.footer_start + 1)]),
        (8, 4, [Suffix(8), ByteRange(layout.footer_start, len(data) - 8)]),
        (2 * len(data), 1, [Suffix(2 * len(data))]),
    ):
        store = RecordingStore(DictStore({PATH: data}))
        options = accel.Options(tail_hint=hint, max_gap_bytes=0)
        scan = accel.scan(
            PATH, "key = 300", columns=["value"], store=store, cache=accel.Cache(), options=options
        )
        assert scan.to_table().num_rows == 1
        assert store.waves == waves, f"hint {hint}\n{store.log()}"
        assert [call.want for call in store.calls[: len(first)]] == first
        assert scan.metrics.round_trips == waves


def test_the_hint_is_learned_for_the_prefix(data: bytes) -> None:
    store = RecordingStore(DictStore({f"dir/{i}.parquet": data for i in range(2)}))
    cache = accel.Cache()
    options = accel.Options(tail_hint=64, max_gap_bytes=0)
    for i, waves in ((0, 4), (1, 2)):
        store.clear()
        scan = accel.scan(
            f"dir/{i}.parquet", "key = 300", columns=["value"], store=store, cache=cache, options=options
        )
        assert scan.to_table().num_rows == 1
        assert store.waves == waves, store.log()


def test_a_small_file_is_one_request(data: bytes) -> None:
    small = write_file(bench_table(500), Layout(group_rows=200, page_rows=50))
    store = RecordingStore(DictStore({"small.parquet": small}))
    scan = accel.scan("small.parquet", "key = 300", store=store, cache=accel.Cache())
    assert scan.to_table().num_rows == 1
    assert [call.want for call in store.calls] == [Suffix(448 * 1024)]
    assert scan.metrics.requests_by_kind == {Kind.TAIL: 1}


def test_max_age_zero_revalidates_by_one_conditional_request(store: RecordingStore) -> None:
    cache = accel.Cache(max_age=0)
    lookup(store, "key = -3", cache).to_table()
    store.clear()
    lookup(store, "key = -3", cache).to_table()
    assert store.requests == 1
    assert store.calls[0].if_match is not None
    assert store.bytes <= 8


@pytest.mark.parametrize(
    "where", [None, "key = 30000", "value > 2.5", "category = 'category 0007' OR key < 100"]
)
@pytest.mark.parametrize("columns", [None, ["category"], []])
def test_explain_predicts_what_is_asked_for(
    store: RecordingStore, where: str | None, columns: list[str] | None
) -> None:
    cache = accel.Cache()
    scan = accel.scan(PATH, where, columns=columns, store=store, cache=cache, options=OPTIONS)
    explained = scan.explain()
    assert explained.requests["metadata"] + explained.requests["indexes"] == store.requests
    assert explained.bytes["metadata"] + explained.bytes["indexes"] == store.bytes
    store.clear()
    scan.to_table()
    assert explained.requests["data"] == store.requests, store.log()
    assert explained.bytes["data"] == store.bytes
    assert explained.round_trips["data"] == store.depth
