"""A small result of a query is cached, and returned from the third time on that the query runs.

The second time it is kept, as only what is asked again may be asked once more. Where a filter goes through
many rows, the first scan finds which match, and the second decodes just these.
"""

from __future__ import annotations

import asyncio
import functools
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import accel
from accel.cache import result_tier
from accel.planning import question_keys
from accel.testing import DictStore, Layout, RecordingStore, table, write_file
from tests.io_patterns.scattered import (
    GROUPS,
    LAYOUT,
    PATH,
    scattered_file,
    scattered_rows,
    turned_rows,
)

WHERE = "code IN (70003, 77777, 90000)"


@pytest.fixture
def store() -> RecordingStore:
    return RecordingStore(DictStore({PATH: scattered_file()}))


@pytest.fixture
def expected() -> pa.Table:
    rows = scattered_rows()
    return rows.filter(pc.is_in(rows["code"], pa.array([70003, 77777, 90000])))


def ask(store: Any, cache: accel.Cache, where: Any = WHERE, **asked: Any) -> tuple[pa.Table, int]:
    """The rows, and how many of them were at hand."""
    scan = accel.scan(PATH, where, store=store, cache=cache, **asked)
    return scan.to_table(), scan.metrics.rows_recalled


LOOKUP_LAYOUT = Layout(group_rows=20_000, page_rows=1000)


@functools.cache
def sorted_rows() -> pa.Table:
    texts = [None if i % 7 == 2 else f"t{i % 50}" for i in range(40_000)]
    return table(key=range(40_000), text=texts, half=[i / 2 for i in range(40_000)])


@pytest.fixture
def lookups() -> RecordingStore:
    return RecordingStore(DictStore({PATH: write_file(sorted_rows(), LOOKUP_LAYOUT)}))


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ("key = 2", [2]),
        ("key IN (5, 9, 25000)", [5, 9, 25_000]),
        ("key BETWEEN 19990 AND 20010 AND half > 9998", range(19_997, 20_011)),
        ("key BETWEEN 1 AND 3000 AND text IS NULL AND half < 30", range(2, 60, 7)),
        ("key > 100 AND key < 900 AND text = 'no'", []),
    ],
    ids=["row", "rows", "both row groups", "nulls", "none"],
)
def test_a_lookup_from_the_third_time_on(lookups: RecordingStore, where: str, rows: Any) -> None:
    cache, expected = accel.Cache(), sorted_rows().take(pa.array(rows, pa.int64()))
    assert [ask(lookups, cache, where) for _ in range(2)] == [(expected, 0)] * 2
    lookups.clear()
    scan = accel.scan(PATH, where, store=lookups, cache=cache)
    assert scan.to_table() == expected
    found = scan.metrics
    assert found.rows_recalled == found.rows_out == len(rows)
    # Nothing was looked for in what is kept of the pages.
    assert (found.cached_bytes, found.data_hits, found.round_trips, lookups.calls) == (0, 0, 0, [])
    assert scan.count_rows() == len(rows)


@pytest.mark.parametrize(
    "other",
    [
        {"where": "key = 3"},
        {"where": "key = 2 AND half = 1"},
        {"columns": ["text"]},
        {"columns": ["text", "key", "half"]},
        {"options": accel.Options(batch_rows=1)},
        {"selection": {PATH: {0: [(0, 100)]}}},
        {"schema": sorted_rows().schema.set(1, pa.field("text", pa.large_string()))},
    ],
    ids=["key", "predicate", "column", "order", "batches", "selection", "type"],
)
def test_another_lookup_is_decoded_anew(lookups: RecordingStore, other: dict[str, Any]) -> None:
    cache = accel.Cache()
    for _ in range(3):
        ask(lookups, cache, "key = 2")
    asked = {"where": "key = 2", **other}
    found, recalled = ask(lookups, cache, **asked)
    fresh, _ = ask(lookups, accel.Cache(data=0), **asked)
    assert recalled == 0
    assert found.schema == fresh.schema
    assert found == fresh
    ask(lookups, cache, **asked)
    assert ask(lookups, cache, **asked) == (fresh, 1)
    assert ask(lookups, cache, "key = 2")[1] == 1


def test_lookups_by_values_of_the_path() -> None:
    some = sorted_rows().slice(0, 20_000)
    files = {f"d/month={month}/f.parquet": write_file(some, LOOKUP_LAYOUT) for month in (1, 2)}
    store, cache = DictStore(files), accel.Cache()

    def months(where: str) -> tuple[list[int], int]:
        scan = accel.scan("d/", where, columns=["month"], store=store, cache=cache)
        return scan.to_table()["month"].to_pylist(), scan.metrics.rows_recalled

    assert [months("key = 2") for _ in range(3)] == [([1, 2], 0), ([1, 2], 0), ([1, 2], 2)]
    assert [months("key = 2 AND month = 2") for _ in range(3)] == [([2], 0), ([2], 0), ([2], 1)]


@pytest.mark.parametrize("etag", ['W/"weak"', None], ids=["weak", "none"])
def test_without_a_strong_etag_nothing_is_kept(etag: str | None) -> None:
    store, cache = DictStore({PATH: write_file(sorted_rows(), LOOKUP_LAYOUT)}), accel.Cache()
    store.etags[PATH] = etag
    options = accel.Options(allow_unpinned=True)
    found = [ask(store, cache, "key = 2", options=options) for _ in range(4)]
    assert found == [(sorted_rows().slice(2, 1), 0)] * 4
    assert cache.stats().result_entries == 0


def test_many_lookups_at_once(lookups: RecordingStore) -> None:
    cache, keys = accel.Cache(), [*range(0, 40_000, 401)] * 2

    async def every() -> list[Any]:
        scans = [accel.scan(PATH, f"key = {key}", store=lookups, cache=cache) for key in keys]
        return await asyncio.gather(*(scan.to_table_async() for scan in scans))

    for _ in range(3):
        found = asyncio.run(every())
        assert [rows.to_pydict() for rows in found] == [
            sorted_rows().slice(key, 1).to_pydict() for key in keys
        ]
    assert cache.stats().result_entries == len(keys) // 2


def test_from_the_third_time_on(store: RecordingStore, expected: pa.Table) -> None:
    cache = accel.Cache()
    found = [ask(store, cache) for _ in range(4)]
    assert [recalled for _, recalled in found] == [0, 0, 3, 3]
    assert all(rows.equals(expected) for rows, _ in found)
    store.clear()
    scan = accel.scan(PATH, WHERE, store=store, cache=cache)
    assert scan.to_table().equals(expected)
    # Nothing was looked for in what is kept of the pages.
    assert (scan.metrics.cached_bytes, scan.metrics.data_hits, store.calls) == (0, 0, [])


@pytest.mark.parametrize(
    "asked",
    [
        {"columns": ["pad"]},
        {"columns": ["pad", "name", "code"]},
        {"options": accel.Options(batch_rows=1)},
    ],
    ids=["a column", "another order", "other batches"],
)
def test_what_else_is_asked_is_decoded_anew(
    store: RecordingStore, expected: pa.Table, asked: dict[str, Any]
) -> None:
    cache = accel.Cache()
    for _ in range(3):
        ask(store, cache)
    found, recalled = ask(store, cache, **asked)
    assert recalled == 0
    assert found.equals(expected.select(asked.get("columns", expected.column_names)))
    assert ask(store, cache, **asked)[1] == found.num_rows
    assert ask(store, cache)[1] == 3


def test_aggregates_take_them_too(store: RecordingStore, expected: pa.Table) -> None:
    cache = accel.Cache()
    totals = []
    for _ in range(3):
        scan = accel.scan(PATH, WHERE, store=store, cache=cache)
        totals.append(
            (scan.aggregate([("pad", "sum"), ("name", "min")]).to_pylist(), scan.metrics.rows_recalled)
        )
    assert [recalled for _, recalled in totals] == [0, 0, 3]
    assert totals[0][0] == totals[1][0] == totals[2][0]
    assert totals[0][0][0]["pad_sum"] == pytest.approx(pc.sum(expected["pad"]).as_py())


@pytest.mark.parametrize("max_age", [0.0, 60.0], ids=["asked", "believed"])
def test_another_version_of_the_file_has_its_own(max_age: float) -> None:
    objects, cache = DictStore({PATH: scattered_file()}), accel.Cache(max_age=max_age)
    for _ in range(3):
        ask(objects, cache)
    turned = turned_rows()
    objects.put(PATH, write_file(turned, LAYOUT))
    found, recalled = ask(objects, cache)
    expected = turned.filter(pc.is_in(turned["code"], pa.array([70003, 77777, 90000])))
    if max_age:
        # As what is cached of the pages would do, until the metadata is that old.
        assert recalled == 3
        cache.clear()
        found, recalled = ask(objects, cache)
    assert recalled == 0
    assert found.equals(expected)


def test_a_local_file_that_is_replaced(tmp_path: Path, expected: pa.Table) -> None:
    path, cache = tmp_path / "f.parquet", accel.Cache()
    path.write_bytes(scattered_file())

    def ask_here() -> tuple[pa.Table, int]:
        scan = accel.scan(str(path), WHERE, cache=cache)
        return scan.to_table(), scan.metrics.rows_recalled

    found = [ask_here() for _ in range(3)]
    assert [recalled for _, recalled in found] == [0, 0, 3]
    assert all(table.equals(expected) for table, _ in found)
    turned = turned_rows()
    (tmp_path / "new").write_bytes(write_file(turned, LAYOUT))
    os.replace(tmp_path / "new", path)
    assert ask_here() == (turned.filter(pc.is_in(turned["code"], pa.array([70003, 77777, 90000]))), 0)


@pytest.mark.parametrize("max_age", [0.0, 60.0], ids=["asked", "believed"])
def test_a_lookup_in_another_version_of_the_file(max_age: float) -> None:
    objects = DictStore({PATH: write_file(sorted_rows(), LOOKUP_LAYOUT)})
    cache = accel.Cache(max_age=max_age)
    assert [ask(objects, cache, "key = 2")[1] for _ in range(3)] == [0, 0, 1]
    turned = sorted_rows().append_column("more", pa.array(range(40_000)))
    objects.put(PATH, write_file(turned, LOOKUP_LAYOUT))
    found = ask(objects, cache, "key = 2")
    if max_age:
        assert found == (sorted_rows().slice(2, 1), 1)
        cache.clear()
        assert cache.stats().result_entries == 0
        found = ask(objects, cache, "key = 2")
    assert found == (turned.slice(2, 1), 0)


@pytest.mark.parametrize(
    ("limits", "recalled"),
    [({}, 600), ({"_MOST_ROWS": 200}, 0), ({"_MOST_BYTES": 2000}, 0)],
    ids=["few", "many rows", "many bytes"],
)
def test_many_rows_are_decoded_each_time(
    limits: dict[str, int],
    recalled: int,
    store: RecordingStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, limit in limits.items():
        monkeypatch.setattr(result_tier, name, limit)
    cache, rows = accel.Cache(), scattered_rows()
    some = rows.filter(pc.less(rows["code"], 600))
    # Some 300 of each row group, of some 30 bytes.
    found = [ask(store, cache, "code < 600") for _ in range(3)]
    assert [many for _, many in found] == [0, 0, recalled]
    assert all(table.equals(some) for table, _ in found)


def test_a_lookup_in_a_file_that_is_held_whole() -> None:
    some = sorted_rows().slice(0, 100)
    store, cache = DictStore({PATH: write_file(some)}), accel.Cache()
    assert [ask(store, cache, "key = 2") for _ in range(3)] == [
        (some.slice(2, 1), 0),
        (some.slice(2, 1), 0),
        (some.slice(2, 1), 1),
    ]


def test_a_lookup_in_a_local_file_that_is_replaced(tmp_path: Path) -> None:
    path, cache = tmp_path / "f.parquet", accel.Cache()
    path.write_bytes(write_file(sorted_rows(), LOOKUP_LAYOUT))

    def ask_here() -> tuple[pa.Table, int]:
        scan = accel.scan(str(path), "key = 2", cache=cache)
        return scan.to_table(), scan.metrics.rows_recalled

    row = sorted_rows().slice(2, 1)
    assert [ask_here() for _ in range(4)] == [(row, 0), (row, 0), (row, 1), (row, 1)]
    turned = sorted_rows().append_column("more", pa.array(range(40_000)))
    (tmp_path / "new").write_bytes(write_file(turned, LOOKUP_LAYOUT))
    os.replace(tmp_path / "new", path)
    assert ask_here() == (turned.slice(2, 1), 0)


def test_by_a_list_of_keys_in_an_array(lookups: RecordingStore) -> None:
    cache = accel.Cache()
    for recalled in (0, 0, 2):
        where = accel.col("key").isin(pa.array([2, 5]))
        assert ask(lookups, cache, where) == (sorted_rows().take(pa.array([2, 5])), recalled)
    # As many of that type are taken for what was asked before, and are another question all the same.
    for recalled in (0, 2):
        where = accel.col("key").isin(pa.array([3, 9]))
        assert ask(lookups, cache, where) == (sorted_rows().take(pa.array([3, 9])), recalled)
    for _ in range(3):
        assert ask(lookups, cache, accel.col("key").isin(pa.array(range(5000)))) == (
            sorted_rows().slice(0, 5000),
            0,
        )


def test_few_of_many_that_are_not_remembered(store: RecordingStore) -> None:
    """Of 80,000 rows of a row group more than one in 256 match, and no more than are kept."""
    cache, rows = accel.Cache(), scattered_rows()
    some = rows.filter(pc.less(rows["code"], 1300))
    found = [ask(store, cache, "code < 1300", columns=["code"]) for _ in range(3)]
    assert [many for _, many in found] == [0, 0, 1300]
    assert all(table.equals(some.select(["code"])) for table, _ in found)


def test_one_row_of_a_piece_that_two_phases_leave_out_most_of() -> None:
    """Found or not, it is never read as a whole, which takes several pieces."""
    size = 30_000
    rng = np.random.default_rng(3)
    wide = pa.array([bytes(one) for one in rng.integers(0, 256, (size, 200), np.uint8)])
    rows = table(code=pa.array(rng.permutation(size)), wide=wide)
    store = DictStore(
        {PATH: write_file(rows, Layout(group_rows=size, page_rows=500, dictionary=False, codec="none"))}
    )
    for limit in (None, 1):
        cache = accel.Cache()
        options = accel.Options(piece_bytes=1 << 20, phases="two")
        scans = [
            accel.scan(PATH, "code = 777", store=store, cache=cache, options=options, limit=limit)
            for _ in range(4)
        ]
        found = [scan.to_table() for scan in scans]
        assert all(one == rows.filter(pc.equal(rows["code"], 777)) for one in found)
        # The filter's pages, and a page of the other column, while its chunk is 6 MB.
        assert max(scan.metrics.bytes for scan in scans) < 1_500_000
        assert [scan.metrics.rows_recalled for scan in scans] == [0, 0, 1, 1]


def test_a_long_list_is_not_looked_through_again(
    lookups: RecordingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> bytes:
        raise AssertionError("a key was made")

    cache, where = accel.Cache(), f"key IN ({', '.join(map(str, range(0, 60_000, 11)))}) AND key < 500"
    monkeypatch.setattr(question_keys, "rows_key", refuse)
    for _ in range(3):
        assert ask(lookups, cache, where)[0].num_rows == 46
    assert cache.stats().result_entries == 0


def test_where_no_data_is_kept_neither_are_rows(store: RecordingStore, expected: pa.Table) -> None:
    cache = accel.Cache(data=0)
    found = [ask(store, cache) for _ in range(4)]
    assert [recalled for _, recalled in found] == [0, 0, 0, 0]
    assert all(rows.equals(expected) for rows, _ in found)


def test_a_plan_neither_keeps_nor_finds_them(store: RecordingStore, expected: pa.Table) -> None:
    cache = accel.Cache()
    ask(store, cache)
    for _ in range(3):
        plan = accel.plan(PATH, WHERE, store=store, cache=cache)
        scan = accel.scan(plan, store=store, cache=cache)
        assert scan.to_table().equals(expected)
        assert scan.metrics.rows_recalled == 0
    assert [ask(store, cache)[1] for _ in range(2)] == [0, 3]


def test_what_they_hold_is_told(store: RecordingStore, lookups: RecordingStore) -> None:
    cache = accel.Cache()
    ask(store, cache)
    assert cache.stats().result_entries == 0
    ask(store, cache)
    found = cache.stats()
    assert found.result_entries == GROUPS
    assert 1000 < found.result_nbytes < 8000
    ask(store, cache)
    assert cache.stats().result_nbytes == found.result_nbytes
    cache.clear()
    assert (cache.stats().result_entries, cache.stats().result_nbytes) == (0, 0)
    few = accel.Cache(memory=64 * 8000, data=64 * 9000)
    for key in range(40):
        for _ in range(2):
            ask(lookups, few, f"key = {key}")
    assert 5000 < few.stats().result_nbytes <= 17_000
