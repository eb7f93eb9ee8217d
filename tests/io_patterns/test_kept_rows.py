"""The rows that a remembered predicate selects are at hand from the third time on that they are asked for.

The first scan finds which rows match, the second decodes just these.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import accel
from accel.planning import kept_rows
from accel.testing import DictStore, RecordingStore, write_file
from tests.io_patterns.scattered import (
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


def ask(store: Any, cache: accel.Cache, where: str = WHERE, **asked: Any) -> tuple[pa.Table, int]:
    """The rows, and how many of them were at hand."""
    scan = accel.scan(PATH, where, store=store, cache=cache, **asked)
    return scan.to_table(), scan.metrics.rows_recalled


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
        {"limit": 1},
    ],
    ids=["a column", "another order", "other batches", "fewer"],
)
def test_what_else_is_asked_is_decoded_anew(
    store: RecordingStore, expected: pa.Table, asked: dict[str, Any]
) -> None:
    cache = accel.Cache()
    for _ in range(3):
        ask(store, cache)
    found, recalled = ask(store, cache, **asked)
    assert recalled == 0
    assert found.equals(expected.select(asked.get("columns", expected.column_names))[: asked.get("limit", 3)])
    assert ask(store, cache, **asked)[1] == found.num_rows
    assert ask(store, cache)[1] == 3


def test_another_predicate_that_selects_the_same_finds_them(
    store: RecordingStore, expected: pa.Table
) -> None:
    cache = accel.Cache()
    for _ in range(2):
        ask(store, cache)
    other = "code IN (70003, 77777, 90000, 160001)"
    assert [ask(store, cache, other)[1] for _ in range(2)] == [0, 3]


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


@pytest.mark.parametrize(
    ("limits", "recalled"),
    [({}, 600), ({"MOST_ROWS": 200}, 0), ({"_MOST_BYTES": 2000}, 0)],
    ids=["few", "many rows", "many bytes"],
)
def test_many_rows_are_decoded_each_time(
    limits: dict[str, int],
    recalled: int,
    store: RecordingStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, limit in limits.items():
        monkeypatch.setattr(kept_rows, name, limit)
    cache, rows = accel.Cache(), scattered_rows()
    some = rows.filter(pc.less(rows["code"], 600))
    # Some 300 of each row group, of some 30 bytes.
    found = [ask(store, cache, "code < 600") for _ in range(3)]
    assert [many for _, many in found] == [0, 0, recalled]
    assert all(table.equals(some) for table, _ in found)


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


def test_they_count_as_memory(store: RecordingStore) -> None:
    cache = accel.Cache()
    ask(store, cache)
    before = cache.stats().nbytes
    ask(store, cache)
    assert 100 < cache.stats().nbytes - before < 4096
    again = cache.stats().nbytes
    ask(store, cache)
    assert cache.stats().nbytes == again
