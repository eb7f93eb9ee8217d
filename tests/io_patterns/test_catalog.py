"""What a scan with an index outside the files sends: exact requests, round trips and bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.testing import DictStore, Layout, RecordingStore, table, write_file

FILES, ROWS, PAGE_ROWS = 40, 3000, 500
BESIDE, ELSEWHERE = "d/_accel", "x/index"
ONE = "k = 20100"
"""A row of the third file, in its first page."""
NONE = "k = 5000"
"""A key that no file holds, between the keys of two."""


def file(first: int) -> bytes:
    noise = np.random.default_rng(first).standard_normal(ROWS)
    data = table(k=pa.array(np.arange(first, first + ROWS)), noise=pa.array(noise))
    return write_file(data, Layout(page_rows=PAGE_ROWS, dictionary=False))


def name(number: int) -> str:
    return f"d/part-{number:02}.parquet"


@pytest.fixture(scope="module")
def indexed() -> DictStore:
    store = DictStore({name(number): file(10_000 * number) for number in range(FILES)})
    accel.build_index("d/", store=store)
    accel.build_index("d/", to=ELSEWHERE, store=store)
    return store


@pytest.fixture
def store(indexed: DictStore) -> Iterator[RecordingStore]:
    yield RecordingStore(DictStore(indexed.objects))


class Sent:
    """What a scan sent: paths by wave, listings as "list"."""

    def __init__(
        self, store: RecordingStore, where: str | None, *, again: bool = False, **given: Any
    ) -> None:
        store.clear()
        scan = accel.scan("d/", where, store=store, **({"cache": None} | given))
        found = scan.to_table()
        self.rows, self.metrics, self.log = found.num_rows, scan.metrics, store.log()
        self.keys = found.column("k").to_pylist()
        self.waves: list[list[str]] = []
        for call in store.calls:
            while len(self.waves) < call.wave:
                self.waves.append([])
            self.waves[call.wave - 1].append("list" if call.want is None else call.path)
        self.waves = [sorted(wave) for wave in self.waves]
        self.requests, self.bytes, self.depth = store.requests, store.bytes, store.depth
        # What the metrics tell is what was sent.
        assert (scan.metrics.requests, scan.metrics.bytes) == (self.requests, self.bytes)
        # What was read in vain, of a file that is planned once more, counts for no depth.
        assert again or scan.metrics.round_trips == self.depth
        assert store.in_flight == 0


def head_of(index: str) -> str:
    return f"{index}/head"


# -- cold --------------------------------------------------------------------------------------------


def test_without_an_index_every_footer_is_read(store: RecordingStore) -> None:
    sent = Sent(store, ONE, index=None)
    assert sent.keys == [20_100]
    assert sent.requests == 1 + FILES
    assert not any("_accel" in path for wave in sent.waves for path in wave)


def test_an_index_beside_the_files_is_found_in_the_listing(store: RecordingStore) -> None:
    sent = Sent(store, ONE)
    assert sent.keys == [20_100]
    assert sent.waves == [["list"], [head_of(BESIDE)], [name(2)]]
    assert (sent.metrics.catalog.total, sent.metrics.catalog.kept) == (FILES, 2)
    assert (sent.metrics.files.total, sent.metrics.files.kept) == (FILES, 1)


@pytest.mark.parametrize("index", [BESIDE, ELSEWHERE, BESIDE + "/"])
def test_an_index_that_is_named_is_read_while_the_store_lists(store: RecordingStore, index: str) -> None:
    sent = Sent(store, ONE, index=index)
    assert sent.keys == [20_100]
    assert sent.waves == [sorted(["list", head_of(index.rstrip("/"))]), [name(2)]]


def test_with_its_list_of_files_there_are_two_requests(store: RecordingStore) -> None:
    sent = Sent(store, ONE, index=BESIDE, listing="index")
    assert sent.keys == [20_100]
    assert sent.waves == [[head_of(BESIDE)], [name(2)]]
    head = len(store.inner.objects[head_of(BESIDE)])  # type: ignore[attr-defined]
    assert sent.metrics.bytes_by_kind["catalog"] == head  # type: ignore[index]
    # A page of each column, not the file.
    assert sent.bytes - head < 10_000


def test_the_data_is_what_is_read_without_an_index(store: RecordingStore) -> None:
    """Bytes of pages, beside the footers: the index only saves requests."""
    options = accel.Options(tail_hint=4096, max_gap_bytes=0)
    plain = Sent(store, "k >= 21000 AND k < 21600", index=None, options=options)
    data = [str(span) for span in store.fetched(name(2)) if span.start < 20_000]
    sent = Sent(store, "k >= 21000 AND k < 21600", index=BESIDE, options=options)
    assert sent.keys == plain.keys == list(range(21_000, 21_600))
    assert [str(span) for span in store.fetched(name(2))] == data


@pytest.mark.parametrize(
    ("given", "waves"),
    [
        ({}, [["list"], [head_of(BESIDE)]]),
        ({"index": ELSEWHERE}, [["list", head_of(ELSEWHERE)]]),
        ({"index": BESIDE, "listing": "index"}, [[head_of(BESIDE)]]),
    ],
    ids=["found", "named", "its list"],
)
@pytest.mark.parametrize("where", [NONE, "k < 0", "k IS NULL", "k > 1000000"])
def test_a_key_that_is_nowhere_costs_no_data(
    store: RecordingStore, given: dict[str, Any], where: str, waves: list[list[str]]
) -> None:
    sent = Sent(store, where, **given)
    assert sent.rows == 0
    assert sent.waves == waves


def test_counts_and_extremes_need_no_footer(store: RecordingStore) -> None:
    given: dict[str, Any] = {"store": store, "cache": None, "index": BESIDE, "listing": "index"}
    assert accel.scan("d/", **given).count_rows() == FILES * ROWS
    assert accel.scan("d/", "k >= 390000", **given).count_rows() == ROWS
    found = accel.scan("d/", **given).aggregate([("k", "min"), ("k", "max")])
    assert found.to_pylist() == [{"k_min": 0, "k_max": 392_999}]
    assert {call.path for call in store.calls} == {head_of(BESIDE)}
    assert store.requests == 3


# -- warm --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "warm"),
    [
        ({}, [sorted(["list"]), [name(2)]]),
        ({"index": ELSEWHERE}, [sorted(["list"]), [name(2)]]),
        ({"index": BESIDE, "listing": "index"}, [[name(2)]]),
    ],
    ids=["found", "named", "its list"],
)
def test_warm_lookups_send_the_data_request_and_the_listing(
    store: RecordingStore, given: dict[str, Any], warm: list[list[str]]
) -> None:
    cache = accel.Cache(data=0)
    Sent(store, "k = 7", cache=cache, **given)
    for _ in range(2):
        sent = Sent(store, ONE, cache=cache, **given)
        assert sent.keys == [20_100]
        assert sent.waves == warm
    absent = Sent(store, NONE, cache=cache, **given)
    assert absent.rows == 0
    assert absent.waves == warm[:-1]


def test_a_cache_that_trusts_nothing_asks_whether_the_head_is_the_same(store: RecordingStore) -> None:
    cache = accel.Cache(max_age=0, data=0)
    Sent(store, ONE, cache=cache, index=BESIDE, listing="index")
    sent = Sent(store, ONE, cache=cache, index=BESIDE, listing="index")
    assert sent.waves == [[head_of(BESIDE)], [name(2)]]
    # A few bytes of it, on condition.
    assert sent.metrics.bytes_by_kind["catalog"] <= 8  # type: ignore[index]


def test_a_listing_that_shows_another_head_has_it_read_anew(store: RecordingStore) -> None:
    cache = accel.Cache(data=0)
    Sent(store, ONE, cache=cache)
    assert isinstance(store.inner, DictStore)
    store.inner.put(name(50), file(500_000))
    # Another process commits.
    other = DictStore(store.inner.objects)
    accel.refresh_index(BESIDE, store=other)
    for path, data in other.objects.items():
        if path not in store.inner.objects or path.endswith("head"):
            store.inner.put(path, data)
    sent = Sent(store, "k = 500100", cache=cache)
    assert sent.keys == [500_100]
    assert sent.waves == [["list"], [head_of(BESIDE)], [name(50)]]
    assert sent.metrics.catalog_stale == 0


# -- files that the index does not know --------------------------------------------------------------


@pytest.mark.parametrize("where", [ONE, NONE])
def test_a_new_file_is_opened(store: RecordingStore, where: str) -> None:
    assert isinstance(store.inner, DictStore)
    store.inner.put(name(50), file(500_000))
    sent = Sent(store, where, index=ELSEWHERE)
    assert sent.rows == (where == ONE)
    expected = [name(2), name(50)] if where == ONE else [name(50)]
    assert sorted(path for wave in sent.waves[1:] for path in wave) == expected
    assert sent.metrics.catalog_stale == 1
    assert Sent(store, "k = 500100", index=ELSEWHERE).keys == [500_100]
    # Its own list does not have it.
    assert Sent(store, "k = 500100", index=ELSEWHERE, listing="index").requests == 1


def test_a_replaced_file_is_opened(store: RecordingStore) -> None:
    assert isinstance(store.inner, DictStore)
    store.inner.put(name(7), file(500_000))
    sent = Sent(store, "k = 500100", index=ELSEWHERE)
    assert sent.keys == [500_100]
    assert {path for wave in sent.waves[1:] for path in wave} == {name(7)}
    assert sent.metrics.catalog_stale == 1
    assert Sent(store, "k = 70100", index=ELSEWHERE).rows == 0
    # The list of the index is about the version of before: here that says that there is nothing.
    assert Sent(store, "k = 500100", index=ELSEWHERE, listing="index").requests == 1
    # Where it is read at all, it is read as it is, and that is told.
    with pytest.warns(UserWarning, match="a file was replaced since the index at x/index/ was refreshed"):
        sent = Sent(store, "k = 70100", again=True, index=ELSEWHERE, listing="index")
    assert (sent.rows, sent.metrics.catalog_stale) == (0, 1)
    assert [name(7) in text for text in sent.metrics.warnings] == [True]


def test_a_removed_file_is_not_missed(store: RecordingStore) -> None:
    assert isinstance(store.inner, DictStore)
    store.inner.delete(name(7))
    sent = Sent(store, "k = 70100", index=ELSEWHERE)
    assert sent.rows == 0
    assert sent.waves == [["list", head_of(ELSEWHERE)]]
    assert sent.metrics.catalog_stale == 0
    with pytest.raises(accel.ObjectNotFoundError):
        Sent(store, "k = 70100", index=ELSEWHERE, listing="index")


def test_a_first_file_that_the_index_does_not_know_is_opened_for_its_schema(store: RecordingStore) -> None:
    assert isinstance(store.inner, DictStore)
    store.inner.put("d/a.parquet", file(700_000))
    sent = Sent(store, ONE, index=ELSEWHERE)
    assert sent.keys == [20_100]
    assert sent.waves == [["list", head_of(ELSEWHERE)], ["d/a.parquet"], [name(2)]]
    assert sent.metrics.catalog_stale == 1


# -- keeping -----------------------------------------------------------------------------------------


def test_a_refresh_opens_what_is_new(store: RecordingStore) -> None:
    assert isinstance(store.inner, DictStore)

    class Recorded(RecordingStore):
        """It takes objects, as the store below does."""

        async def write(self, path: str, *given: Any, **more: Any) -> None:
            written.append(path)
            await store.inner.write(path, *given, **more)  # type: ignore[attr-defined]

    written: list[str] = []
    recorded = Recorded(store.inner)
    report = accel.refresh_index(BESIDE, store=recorded)
    # The head and the listing; nothing is written.
    assert [call.path for call in recorded.calls] == [head_of(BESIDE), "d"]
    assert (report.unchanged, report.added, report.requests, written) == (FILES, 0, 2, [])
    store.inner.put(name(50), file(500_000))
    recorded.clear()
    report = accel.refresh_index(BESIDE, store=recorded)
    assert report.added == 1
    files = [call.path for call in recorded.calls if call.path.startswith("d/part")]
    assert set(files) == {name(50)}
    # Two tables, then the head that names them.
    assert [path.split("/")[-1].partition("-")[0] for path in written] == ["files", "bounds", "head"]
    # The ends of the new objects are read beside, for their etags.
    assert report.requests == recorded.requests - 2


def test_explain_shows_what_the_index_took_and_left(store: RecordingStore) -> None:
    found = accel.scan("d/", ONE, store=store, cache=None, index=ELSEWHERE).explain()
    assert found.catalog == (2, FILES)
    assert [level.name for level in found.levels][:2] == ["listing", "catalog"]
    assert [call.path for call in store.calls if call.want is not None] == [head_of(ELSEWHERE)]
    assert "catalog" in str(found)


# -- an index that is larger than its head -----------------------------------------------------------


@pytest.fixture(scope="module")
def large() -> DictStore:
    """An index whose tables its head does not hold: the columns are many, and their bounds are long."""
    store = DictStore()
    rng = np.random.default_rng(5)
    for number in range(60):
        texts = {f"c{at}": pa.array([rng.bytes(40).hex() for _ in range(4)]) for at in range(60)}
        keys = pa.array(np.arange(10 * number, 10 * number + 4))
        store.put(name(number), write_file(table(k=keys, **texts), Layout(group_rows=1)))
    accel.build_index("d/", to=ELSEWHERE, store=store)
    return store


def test_parts_of_a_large_index_are_read(large: DictStore) -> None:
    sizes = {path: len(data) for path, data in large.objects.items() if path.startswith(ELSEWHERE)}
    files, bounds = (next(path for path in sizes if f"/{kind}-" in path) for kind in ("files", "bounds"))
    assert sum(sizes.values()) > 1_500_000
    store = RecordingStore(large)
    cache = accel.Cache(data=0)
    cold = Sent(store, "k = 203", cache=cache, index=ELSEWHERE, columns=["k"])
    assert cold.keys == [203]
    # The head; which files there are; the metadata of the first; the bounds of the column; the metadata of
    # the file that is left; its data.
    assert cold.depth <= 6
    asked = {path for wave in cold.waves for path in wave}
    assert asked == {"list", head_of(ELSEWHERE), files, bounds, name(20)}
    assert sum(call.received for call in store.calls if call.path == bounds) < sizes[bounds] / 4
    # Other keys: at most their metadata and their data.
    warm = Sent(store, "k = 301", cache=cache, index=ELSEWHERE, columns=["k"])
    assert warm.keys == [301]
    assert {path for wave in warm.waves for path in wave} <= {"list", files, name(30)}
    absent = Sent(store, "k = 205", cache=cache, index=ELSEWHERE, columns=["k"])
    assert {path for wave in absent.waves for path in wave} <= {"list", files}


def test_a_lookup_in_a_large_index_reads_the_metadata_of_its_files(large: DictStore) -> None:
    store = RecordingStore(large)
    cache = accel.Cache(data=0)
    cold = Sent(store, "k = 203", cache=cache, index=ELSEWHERE, columns=["k"])
    warm = Sent(store, "k = 301", cache=cache, index=ELSEWHERE, columns=["k"])
    # docs/catalog.md: the head, the bounds, the metadata, the data; once it is warm, the metadata and the
    # data.
    assert (cold.depth, warm.depth) <= (4, 3)
    assert warm.bytes < 200_000
