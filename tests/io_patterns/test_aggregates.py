"""The requests of aggregates: what metadata proves is not read.

The file: 40,000 rows in 4 row groups, pages of 500 rows; `key` ascends; `x` and `f` have zone maps by page;
`s` is text without one, and long.
"""

from __future__ import annotations

import itertools
import pathlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.ranges import Kind
from accel.testing import DictStore, Layout, RecordingStore, table, write_file

ROWS, GROUP, PAGE = 40_000, 10_000, 500
OPTIONS = accel.Options(tail_hint=256 * 1024, max_gap_bytes=0, probe_min_bytes=0)
ALL = [
    ("x", "sum"),
    ("x", "min"),
    ("x", "max"),
    ("x", "count"),
    ("f", "sum"),
    ("f", "max"),
    ([], "count_all"),
]


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    rng = np.random.default_rng(11)
    x = pa.array(rng.integers(-1000, 1000, ROWS), mask=rng.random(ROWS) < 0.1)
    return table(
        key=pa.array(np.arange(ROWS)),
        x=x,
        f=pa.array(rng.random(ROWS)),
        s=pa.array([f"{'long ' * 20}{i % 977}" for i in range(ROWS)]),
    )


@pytest.fixture(scope="module")
def files(rows: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("files")
    layout = Layout(group_rows=GROUP, page_rows=PAGE, dictionary=False)
    (folder / "plain").write_bytes(write_file(rows, layout))
    accel.embed(str(folder / "plain"), str(folder / "zoned"), indexes={"x": "zonemap", "f": "zonemap"})
    return {f"{name}.parquet": (folder / name).read_bytes() for name in ("plain", "zoned")}


@pytest.fixture
def store(files: dict[str, bytes]) -> RecordingStore:
    return RecordingStore(DictStore(files))


def ask(store: RecordingStore, where: str | None = None, name: str = "zoned", **keywords: Any) -> accel.Scan:
    return accel.scan(
        f"{name}.parquet", where, store=store, **{"options": OPTIONS, "cache": accel.Cache(), **keywords}
    )


def check(scan: accel.Scan, asked: list[Any], rows: pa.Table) -> None:
    """The answer is pyarrow's over the rows that are meant."""
    found = scan.aggregate(asked).to_pylist()[0]
    wanted = rows.group_by([]).aggregate(asked).to_pylist()[0]
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert found[name] == (pytest.approx(value, rel=1e-12) if isinstance(value, float) else value), name


def test_a_whole_file_is_answered_by_its_first_read(store: RecordingStore, rows: pa.Table) -> None:
    scan = ask(store)
    check(scan, ALL, rows)
    assert [str(call.want) for call in store.calls] == ["last 262144 bytes"]
    assert scan.metrics.rows_from_metadata == ROWS
    assert scan.metrics.pages.kept == scan.metrics.rows.kept == 0


def test_known_metadata_answers_without_a_request(store: RecordingStore, rows: pa.Table) -> None:
    cache = accel.Cache()
    ask(store, cache=cache).aggregate(ALL)
    store.clear()
    check(ask(store, cache=cache), ALL, rows)
    check(ask(store, "key >= 500 AND key < 20000", cache=cache), ALL, rows.slice(500, 19_500))
    assert store.requests == 0


def test_only_pages_in_doubt_are_read(store: RecordingStore, rows: pa.Table) -> None:
    cache = accel.Cache()
    ask(store, cache=cache).aggregate(ALL)
    store.clear()
    scan = ask(store, "key BETWEEN 700 AND 20099", cache=cache)
    check(scan, ALL, rows.slice(700, 19_400))
    # The first page in part, and the last: three columns each.
    assert scan.metrics.requests_by_kind == {Kind.PAGE: 6}
    assert store.waves == 1
    fetched = store.fetched("zoned.parquet")
    assert all(before.end <= after.start for before, after in itertools.pairwise(fetched))
    assert scan.metrics.rows_from_metadata == 19_000
    assert (scan.metrics.pages.kept, scan.metrics.rows.kept) == (6, 2 * PAGE)


def test_zone_maps_are_fetched_where_they_cost_less_than_the_pages(
    store: RecordingStore, rows: pa.Table
) -> None:
    small = accel.Options(tail_hint=8 * 1024, max_gap_bytes=0, probe_min_bytes=1 << 20)
    scan = ask(store, options=small)
    check(scan, ALL, rows)
    kinds = scan.metrics.requests_by_kind
    assert set(kinds) <= {Kind.TAIL, Kind.FOOTER, Kind.INDEX}
    assert kinds[Kind.INDEX] >= 1
    assert scan.metrics.rows_from_metadata == ROWS


@pytest.mark.parametrize("probe", [0, 1 << 20])
def test_for_a_part_of_a_file_they_are_worth_a_round_trip_above_a_size(
    store: RecordingStore, rows: pa.Table, probe: int
) -> None:
    options = accel.Options(tail_hint=8 * 1024, max_gap_bytes=0, probe_min_bytes=probe)
    scan = ask(store, "key < 9999", options=options)
    check(scan, [("f", "sum")], rows.slice(0, 9999))
    assert (Kind.INDEX in scan.metrics.requests_by_kind) is (probe == 0)
    assert scan.metrics.rows_from_metadata == (9500 if probe == 0 else 0)


def test_statistics_answer_what_they_prove(store: RecordingStore, rows: pa.Table) -> None:
    scan = ask(store, name="plain")
    check(scan, [("key", "min"), ("key", "max"), ("x", "count"), ("s", "min")], rows)
    assert store.requests == 1
    # No column counts NaN here: a float's bounds prove no minimum, and no statistics hold sums.
    scan = ask(store, name="plain")
    check(scan, [("f", "min")], rows)
    assert scan.metrics.rows_from_metadata == 0
    check(ask(store, name="plain"), [("key", "sum")], rows)


def test_the_column_index_answers_pages(store: RecordingStore, rows: pa.Table) -> None:
    scan = ask(store, "key BETWEEN 700 AND 9099", "plain")
    check(scan, [("x", "min"), ("x", "max"), ("x", "count")], rows.slice(700, 8400))
    assert scan.metrics.rows_from_metadata == 8000
    # Of a text they may be cut short.
    scan = ask(store, "key BETWEEN 700 AND 9099", "plain")
    check(scan, [("s", "min")], rows.slice(700, 8400))
    assert scan.metrics.rows_from_metadata == 0


@pytest.mark.parametrize("asked", ["count_rows", "count_all"])
def test_counting_reads_rows_in_doubt_only(store: RecordingStore, asked: str) -> None:
    for where, rows, pages in ((None, ROWS, 0), ("key < 10000", GROUP, 0), ("key < 10100", 10_100, 1)):
        scan = ask(store, where)
        found = (
            scan.count_rows() if asked == "count_rows" else scan.aggregate([([], "count_all")])[0][0].as_py()
        )
        assert found == rows
        assert scan.metrics.requests_by_kind.get(Kind.PAGE, 0) == pages
        assert scan.metrics.rows_from_metadata == rows - pages * 100


def test_explaining_tells_what_will_be_asked_for(store: RecordingStore) -> None:
    scan = ask(store, "key BETWEEN 700 AND 20099")
    told = scan.explain(aggregates=ALL)
    assert (told.rows_from_metadata, told.columns) == (19_000, ("x", "f"))
    assert (told.requests["data"], told.round_trips["data"], told.pages[0]) == (6, 1, 6)
    assert "19,000 rows answered from metadata" in str(told)
    store.clear()
    analyzed = scan.explain(aggregates=ALL, analyze=True).analyzed
    assert analyzed is not None
    assert (store.requests, analyzed["rows_from_metadata"]) == (6, 19_000)
    assert scan.explain().rows_from_metadata == 0
    plan = accel.plan("zoned.parquet", store=store, options=OPTIONS)
    with pytest.raises(accel.AccelError, match="aggregates of a plan"):
        accel.scan(plan, store=store).explain(aggregates=ALL)


def test_a_selection_is_answered_by_pages(store: RecordingStore, rows: pa.Table) -> None:
    chosen = {"zoned.parquet": {0: [(0, 1250), (1750, 2000)]}}
    scan = ask(store, selection=chosen)
    check(scan, ALL, pa.concat_tables([rows.slice(0, 1250), rows.slice(1750, 250)]))
    assert scan.metrics.rows_from_metadata == 1000
    assert scan.metrics.pages.kept == 4


def test_with_a_limit_the_rows_are_read(store: RecordingStore, rows: pa.Table) -> None:
    scan = ask(store, limit=30)
    check(scan, ALL, rows.slice(0, 30))
    assert scan.metrics.rows_from_metadata == 0


def test_a_plan_is_counted_without_metadata(store: RecordingStore, rows: pa.Table) -> None:
    plan = accel.plan("zoned.parquet", "key < 10100", store=store, options=OPTIONS)
    store.clear()
    scan = accel.scan(plan, store=store, options=OPTIONS)
    assert scan.count_rows() == 10_100
    assert store.requests == 1
    check(scan, ALL, rows.slice(0, 10_100))


@pytest.mark.parametrize("level", ["page", "row group", "file"])
def test_a_zone_map_of_several_things_answers_for_each(
    files: dict[str, bytes], rows: pa.Table, tmp_path: pathlib.Path, level: str
) -> None:
    (tmp_path / "a.parquet").write_bytes(files["plain.parquet"])
    kind = (accel.indexes.Zonemap(columns=["x", "f", "lower(s)", "(x, f)"]), level)
    accel.embed(str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet"), indexes={"x": kind})
    store = RecordingStore(DictStore({"zoned.parquet": (tmp_path / "b.parquet").read_bytes()}))
    scan = ask(store)
    check(scan, [*ALL, ("key", "max")], rows)
    assert (store.requests, scan.metrics.rows_from_metadata) == (1, ROWS)
    found = ask(store).aggregate([("lower(s)", "count")])
    assert found.to_pylist() == [{"lower(s)_count": ROWS}]


def test_a_damaged_zone_map_is_read_past(files: dict[str, bytes], rows: pa.Table) -> None:
    damaged = files["zoned.parquet"].replace(b"AIZ4", b"AIZ9")
    store = RecordingStore(DictStore({"zoned.parquet": damaged}))
    scan = ask(store)
    check(scan, ALL, rows)
    assert scan.metrics.indexes_ignored == 8
    assert scan.metrics.rows_from_metadata == 0
    with pytest.raises(accel.AccelError, match="checksum"):
        ask(store, options=accel.Options(tail_hint=256 * 1024, strict=True)).aggregate(ALL)
