"""What finding distinct values sends: exact requests and ranges, by what proves the values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.catalog.homes import objects
from accel.testing import DictStore, Layout, RecordingStore, write_file

ROWS, GROUP, PAGE = 60_000, 20_000, 1_000
NAME = "d/f.parquet"
# The first read brings the footer and the page indexes, and no data.
OPTIONS = accel.Options(tail_hint=16 << 10)


def rows() -> pa.Table:
    key = np.arange(ROWS)
    noise = np.random.default_rng(7)
    return pa.table({
        "key": key,
        # One value in a row group, in runs of three pages, and in no order.
        "group": pa.array(key // GROUP),
        "run": pa.array([f"run {number}" for number in (key // (3 * PAGE)).tolist()]),
        "word": pa.array([f"word {number}" for number in noise.integers(0, 50, ROWS).tolist()]),
        "noise": pa.array(noise.standard_normal(ROWS)),
    })  # fmt: skip


FILE = write_file(rows(), Layout(group_rows=GROUP, page_rows=PAGE, dictionary=["word"]))


def scan(data: bytes, where: str | None = None, **given: Any) -> tuple[accel.Scan, RecordingStore]:
    store = RecordingStore(DictStore({NAME: data}))
    return accel.scan(NAME, where, store=store, **({"cache": None, "options": OPTIONS} | given)), store


def sent(store: RecordingStore) -> list[int]:
    """The lengths of what was asked for, beside the footer."""
    return [call.range.length for call in store.calls[1:] if call.range is not None]


def test_statistics_answer_without_a_request(tmp_path: Path) -> None:
    asked, store = scan(FILE)
    assert asked.distinct("group").to_pylist() == [0, 1, 2]
    assert sent(store) == []
    assert asked.metrics.distinct_units == {"row groups by bounds": 3}
    assert asked.metrics.rows_from_metadata == ROWS


def test_page_bounds_answer_without_a_request() -> None:
    """Only the page at the edge of the rows that match would be read, and its value is known by then."""
    asked, store = scan(FILE, "key < 7500")
    assert asked.distinct("run").to_pylist() == ["run 0", "run 1", "run 2"]
    assert asked.metrics.distinct_units == {"pages by bounds": 8}
    assert sent(store) == []


def test_a_page_at_the_edge_is_read_where_it_may_add_a_value() -> None:
    asked, store = scan(FILE, "key < 6500")
    assert asked.distinct("run").to_pylist() == ["run 0", "run 1", "run 2"]
    assert asked.metrics.distinct_units == {"pages by bounds": 6, "row groups read": 1}
    # A page of each of two columns, in one request.
    assert asked.metrics.pages.kept == 2
    assert len(sent(store)) == 1
    assert sum(sent(store)) < 2 * PAGE * 10


def test_dictionaries_answer_in_one_round_trip() -> None:
    asked, store = scan(FILE)
    found = asked.distinct("word")
    assert len(found) == 50
    assert asked.metrics.distinct_units == {"row groups by dictionary": 3}
    assert asked.metrics.requests_by_kind.keys() == {"tail", "dictionary page"}
    assert asked.metrics.round_trips == store.depth == 2
    assert sum(sent(store)) < 3 * 1024
    whole, all_of_it = scan(FILE, columns=["word"])
    whole.to_table()
    assert sum(sent(store)) * 10 < sum(sent(all_of_it))
    # What explain predicts is what was sent.
    explained, _ = scan(FILE)
    said = explained.explain(distinct="word")
    assert said.distinct_units == asked.metrics.distinct_units
    assert (said.requests["indexes"], said.requests["data"]) == (len(sent(store)), 0)


def test_a_predicate_over_the_column_is_evaluated_on_its_dictionaries() -> None:
    asked, _ = scan(FILE, "word LIKE '%7'")
    assert asked.distinct("word").to_pylist() == ["word 17", "word 27", "word 37", "word 47", "word 7"]
    assert asked.metrics.requests_by_kind.keys() == {"tail", "dictionary page"}
    assert asked.metrics.rows.kept == 0


def test_an_embedded_index_answers_where_there_is_no_dictionary(tmp_path: Path) -> None:
    plain = write_file(rows(), Layout(group_rows=GROUP, page_rows=PAGE, dictionary=False))
    (tmp_path / "in.parquet").write_bytes(plain)
    accel.embed(
        tmp_path / "in.parquet", tmp_path / "out.parquet", indexes={"word": [("distinct", "row group")]}
    )
    asked, store = scan((tmp_path / "out.parquet").read_bytes())
    assert len(asked.distinct("word")) == 50
    assert asked.metrics.distinct_units == {"row groups by index": 3}
    assert asked.metrics.requests_by_kind.keys() <= {"tail", "embedded index"}
    assert sum(sent(store)) < 3 * 1024


def test_a_column_without_any_of_these_is_read() -> None:
    asked, _ = scan(FILE)
    assert len(asked.distinct("noise")) == ROWS
    assert asked.metrics.distinct_units == {"row groups read": 3}
    assert asked.metrics.rows.kept == ROWS


# -- the catalog -------------------------------------------------------------------------------------

FILES = 30


@pytest.fixture(params=["in the head", "in objects"])
def catalog(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[RecordingStore, bool]:
    """A catalog that its head holds, and one that it does not; and whether it does."""
    inline = request.param == "in the head"
    monkeypatch.setattr(objects, "INLINE_BYTES", objects.INLINE_BYTES if inline else 0)
    store = DictStore()
    for number in range(FILES):
        data = pa.table({
            "k": pa.array(range(100 * number, 100 * number + 100)),
            "c": [f"carrier {number % 4}"] * 100,
            "d": pa.array([None, *(f"place {(number + at) % 7}" for at in range(99))]),
            **{f"more {at}": range(at, at + 100) for at in range(10)},
        })  # fmt: skip
        store.put(f"d/{number:02}.parquet", write_file(data, Layout(group_rows=25)))
    accel.build_index("d/", store=store, indexes={"d": "distinct"})
    return RecordingStore(store), inline


def test_counts_extremes_and_distinct_values_read_no_metadata(catalog: tuple[RecordingStore, bool]) -> None:
    store, inline = catalog
    given: dict[str, Any] = {"store": store, "cache": None, "index": "d/_accel", "listing": "index"}
    for where, rows in ((None, 3000), ("k >= 1500", 1500)):
        for ask, expected in (
            (lambda scan: scan.count_rows(), rows),
            (lambda scan: scan.aggregate([("k", "max"), ("k", "count")]).to_pylist()[0], {"k_max": 2999, "k_count": rows}),
            (lambda scan: scan.distinct("c").to_pylist(), [f"carrier {number}" for number in range(4)]),
            (lambda scan: scan.distinct("d").to_pylist(), [*(f"place {number}" for number in range(7)), None]),
        ):  # fmt: skip
            store.clear()
            scan = accel.scan("d/", where, **given)
            assert ask(scan) == expected  # type: ignore[no-untyped-call]
            asked = {call.path.partition("-2")[0] for call in store.calls}
            tables = set() if inline else {"d/_accel/files", "d/_accel/bounds", "d/_accel/distinct"}
            assert asked <= {"d/_accel/head", *tables}
            assert store.calls[0].path == "d/_accel/head"
            if inline:
                assert store.requests == 1
            # The types are settled by the metadata of the first file, and that of no other is looked at.
            assert scan.metrics.row_groups.total == (0 if where is None else 4)
            assert scan.metrics.metadata_hits + scan.metrics.metadata_misses <= 3
            assert scan.metrics.files.total == FILES


def test_a_count_reads_less_of_a_large_catalog_than_a_scan(catalog: tuple[RecordingStore, bool]) -> None:
    store, inline = catalog
    given: dict[str, Any] = {"store": store, "cache": None, "index": "d/_accel", "listing": "index"}
    scan = accel.scan("d/", **given)
    assert scan.count_rows() == 3000
    counted = scan.metrics.bytes_by_kind["catalog"]  # type: ignore[index]
    read = accel.scan("d/", **given)
    read.to_table()
    planned = read.metrics.bytes_by_kind["catalog"]  # type: ignore[index]
    assert counted == planned if inline else counted < 0.7 * planned, (counted, planned)
