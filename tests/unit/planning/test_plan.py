"""Plans: what they are made of, how they travel, what they say."""

from __future__ import annotations

import pathlib
import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.planning.plan import Explain, RequestLevel
from accel.planning.task_arrow import TASK_ARROW_SCHEMA
from accel.ranges import Kind
from accel.testing import DictStore, Layout, RecordingStore, bench_table, table, write_file

STORE = DictStore({"f": write_file(table(x=pa.array(np.arange(600))), Layout(group_rows=2, page_rows=2))})


def test_a_plan_of_many_tasks() -> None:
    plan = accel.plan("f", store=STORE)
    assert (len(plan), len(plan.tasks), repr(plan)) == (300, 300, "Plan(300 tasks, 600 rows)")
    assert [batch.num_rows for batch in plan] == [256, 44]
    sent = plan.to_arrow()
    assert (sent.num_rows, sent.schema.remove_metadata()) == (300, TASK_ARROW_SCHEMA)
    for back in (accel.Plan.from_arrow(sent), pickle.loads(pickle.dumps(plan))):
        assert [t.row_group for t in back.tasks] == list(range(300))
        assert back.schema == plan.schema


def test_a_plan_is_made_of_tasks() -> None:
    with pytest.raises(TypeError, match="not of a int"):
        accel.Plan([1], schema=pa.schema([]))  # type: ignore[list-item]


def test_a_batch_ends_before_it_holds_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """A predicate of megabytes is in every row, and a column of a batch holds 2 GiB."""
    plan = accel.plan("f", accel.col("x").isin(np.arange(0, 600, 2)), store=STORE)
    row = sum(len(value) for value in plan.to_arrow().to_pylist()[0].values() if isinstance(value, bytes))
    monkeypatch.setattr("accel.planning.plan.BATCH_BYTES", 100 * row + row // 2)
    assert [batch.num_rows for batch in plan] == [100, 100, 100]
    monkeypatch.setattr("accel.planning.plan.BATCH_BYTES", 1)
    assert [batch.num_rows for batch in plan] == [1] * 300
    assert accel.scan(accel.Plan.from_arrow(plan.to_arrow()), store=STORE).count_rows() == 300


def test_a_plan_without_tasks_keeps_its_schema() -> None:
    plan = accel.plan("f", "x = -1", store=STORE)
    assert (len(plan), plan.question) == (0, None)
    want = pa.schema([("x", pa.int64())])
    for back in (plan, accel.Plan.from_arrow(plan.to_arrow()), pickle.loads(pickle.dumps(plan))):
        assert (back.schema, len(back)) == (want, 0)
        found = accel.scan(back, store=STORE)
        assert found.to_table() == want.empty_table()
        assert found.count_rows() == 0
        assert found.schema == want


def test_explained_where_it_was_planned() -> None:
    plan = accel.plan("f", "x < 4", store=STORE)
    assert plan.explain().rows == (4, 600)
    assert pickle.loads(pickle.dumps(plan)).explain() == plan.explain()
    with pytest.raises(accel.AccelError, match="does not know how it came about"):
        accel.Plan.from_arrow(plan.to_arrow()).explain()


def test_keys_that_no_literal_can_hold_travel_in_plans() -> None:
    moments = pa.array([-(2**62), 0], pa.timestamp("ms"))
    store = DictStore({"f": write_file(pa.table({"a": moments}))})
    where = accel.col("a").isin(moments)
    plan = accel.plan("f", where, store=store)
    sent = pickle.loads(pickle.dumps(plan))
    shown = f"a IN ({-(2**62)} timestamp[ms], TIMESTAMP '1970-01-01 00:00:00')"
    assert (sent.explain().where, repr(where)) == (shown, f"<{shown}>")
    for back in (plan, sent, accel.Plan.from_arrow(plan.to_arrow())):
        assert accel.scan(back, store=store).to_table()["a"].cast(pa.int64()).to_pylist() == [-(2**62), 0]


def test_tables_that_are_no_plans() -> None:
    for data in (table(x=[1]), table(version=[99])):
        with pytest.raises(accel.AccelError, match="not a scan task of version"):
            accel.Plan.from_arrow(data)


@pytest.mark.parametrize("rows", [10, 200_000], ids=["all of it at hand", "more than the first read brings"])
def test_a_task_pickles_whatever_is_loaded(rows: int) -> None:
    store = DictStore({"f.parquet": write_file(table(i=pa.array(range(rows))))})
    (task,) = accel.plan("f.parquet", "i = 7", store=store).tasks
    assert accel.scan(pickle.loads(pickle.dumps(task)), store=store).to_table()["i"].to_pylist() == [7]


# -- plan explain -----------------------------------------------------------------------------------


ROWS = 20_000
TABLE = bench_table(ROWS)
LAYOUTS = {
    "pages": Layout(group_rows=5_000, page_rows=500, dictionary=["category"]),
    "no page index": Layout(group_rows=5_000, page_rows=500, page_index=False),
    "plain": Layout(group_rows=10_000, page_rows=500, dictionary=False, codec="none"),
}
QUESTIONS: dict[str, dict[str, Any]] = {
    "lookup": {"where": "key = 30000", "columns": ["key", "value"]},
    "range": {"where": "key BETWEEN 14000 AND 16000"},
    "miss": {"where": "key = 7"},
    "nothing to prune by": {"where": "value > 0.5", "columns": ["name"]},
    "all": {},
    "count": {"columns": []},
    "dictionary": {"where": "category IS NOT NULL AND key < 300", "columns": ["category"]},
}
# No second request for an answer that is late: requests are counted.
OPTIONS = {
    "wide": accel.Options(tail_hint=30_000),
    "gaps": accel.Options(tail_hint=8, max_gap_bytes=0, max_coalesced_bytes=20_000),
    "pieces": accel.Options(tail_hint=8, piece_bytes=10_000),
}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_prediction_is_the_fact(layout: str, question: str, options: str) -> None:
    store = RecordingStore(DictStore({"f.parquet": write_file(TABLE, LAYOUTS[layout])}))
    keywords = {"store": store, "cache": accel.Cache(), "options": OPTIONS[options]} | QUESTIONS[question]
    scan = accel.scan("f.parquet", **keywords)
    explained = scan.explain()
    asked = sum(explained.requests[name] for name in ("listing", "metadata", "indexes"))
    assert store.requests == asked
    store.clear()
    scan.to_table()
    bound = sum(note.startswith("up to") for note in explained.notes)
    if not bound:
        assert store.requests == explained.requests["data"]
        assert store.bytes == explained.bytes["data"]
        assert scan.metrics.round_trips == explained.round_trips["data"]
    assert explained.rows == (scan.metrics.rows.kept, ROWS)
    assert explained.pages == (scan.metrics.pages.kept, scan.metrics.pages.total)
    assert explained.row_groups == (scan.metrics.row_groups.kept, scan.metrics.row_groups.total)


WORDS = table(
    id=pa.array(range(ROWS)),
    word=pa.array([f"{at % 300:0200d}" for at in range(ROWS)]),
    x=np.random.default_rng(0).random(ROWS),
)


@pytest.mark.parametrize("tail_hint", [8 << 10, 32 << 10, 128 << 10, 1 << 20])
@pytest.mark.parametrize("page_index", [True, False])
@pytest.mark.parametrize("where", ["id BETWEEN 19000 AND 19100", "id < 100 OR id > 19900"])
def test_what_a_scan_without_a_cache_asks_for(where: str, page_index: bool, tail_hint: int) -> None:
    """Of what came with the footer nothing is asked for again, and that is told."""
    data = write_file(WORDS, Layout(group_rows=5_000, page_rows=500, page_index=page_index))
    options = accel.Options(tail_hint=tail_hint)
    scan = accel.scan(
        "f", where, columns=["word", "x"], store=DictStore({"f": data}), cache=None, options=options
    )
    explained = scan.explain(analyze=True)
    notes = [note for note in explained.notes if "come with the footers" in note]
    run: Any = explained.analyzed
    asked = sum(run["bytes_by_kind"].get(kind, 0) for kind in ("data page", "column chunk"))
    indexes = sum(run["bytes_by_kind"].get(kind, 0) for kind in ("column index", "offset index"))
    assert (run["bytes_by_kind"]["tail"], indexes) == (
        explained.bytes["metadata"],
        explained.bytes["indexes"],
    )
    assert asked + indexes + run["bytes_by_kind"]["tail"] == run["bytes"]
    came = explained.bytes["data"] - asked
    note = (
        f"{came:,} bytes of the data level come with the footers where a scan reads these itself, as it does "
        f"without a cache: then it asks for {asked:,}"
    )
    assert notes == [note] * (came > 0)


def test_a_dictionary_page_that_comes_with_data_pages_is_part_of_them() -> None:
    data = write_file(WORDS, Layout(group_rows=5_000, page_rows=500))
    scan = accel.scan(
        "f", "id BETWEEN 6000 AND 6100", columns=["word"], store=DictStore({"f": data}), cache=accel.Cache()
    )
    explained = scan.explain(analyze=True)
    run: Any = explained.analyzed
    found = [
        {kind: run[name][kind] for kind in run[name] if kind != "listing"}
        for name in ("bytes_by_kind", "requests_by_kind")
    ]
    assert found == [{"data page": explained.bytes["data"]}, {"data page": explained.requests["data"]}]


def test_the_levels_of_several_files() -> None:
    store = RecordingStore(DictStore({f"d/p={i}/f": write_file(TABLE, LAYOUTS["plain"]) for i in range(3)}))
    explained = accel.scan("d/", "p = 1 AND key < 300", columns=["key"], store=store, cache=None).explain()
    assert explained.files == (1, 3)
    assert explained.requests["listing"] == explained.round_trips["listing"] == 1
    assert explained.requests["metadata"] == 2
    assert [level.measured for level in explained.levels] == [True, True, True, False]
    assert explained.columns == ("key",)
    assert explained.notes == ()


def test_of_a_source_that_was_listed_before_it_is_told_that_it_is_read_early() -> None:
    store = RecordingStore(DictStore({f"d/{i}": write_file(TABLE, LAYOUTS["plain"]) for i in range(2)}))
    scan = accel.scan("d/", "key < 300", columns=["key"], store=store, cache=accel.Cache())
    (note,) = scan.explain().notes
    assert note.startswith("the source was listed before: a scan reads the files of that listing")
    store.clear()
    assert scan.to_table().num_rows == 200
    assert store.depth == scan.metrics.round_trips == 1


def test_analyzed() -> None:
    store = DictStore({"f.parquet": write_file(TABLE, LAYOUTS["plain"])})
    explained = accel.scan("f.parquet", "key < 300", store=store, cache=None).explain(analyze=True)
    assert explained.analyzed is not None
    assert explained.analyzed["rows_out"] == 100
    assert "rows_out" in str(explained)


def test_a_limit_is_told() -> None:
    """Without a filter the pages of so many rows are all that is read, each by itself."""
    store = RecordingStore(DictStore({"f.parquet": write_file(TABLE, LAYOUTS["plain"])}))
    options = OPTIONS["wide"]
    scan = accel.scan("f.parquet", limit=5, store=store, cache=accel.Cache(), options=options)
    explained = scan.explain()
    assert explained.notes[-1] == (
        "limit 5: reading stops when that many rows have come; "
        "it asks for no more bytes than the data level tells"
    )
    store.clear()
    assert scan.to_table().num_rows == 5
    assert (store.requests, store.bytes) == (explained.requests["data"], explained.bytes["data"])


def test_as_text() -> None:
    levels = tuple(
        RequestLevel(name=name, requests=i, round_trips=1, bytes=1000 * i, measured=name != "data")
        for i, name in enumerate(("listing", "metadata", "indexes", "data"))
    )
    explained = Explain(
        source="s3://b/t/",
        where="a = 1",
        columns=("a", "b"),
        files=(1, 2),
        row_groups=(3, 4),
        pages=(5, 6),
        rows=(7000, 80000),
        rows_certain=12,
        levels=levels,
        notes=("take note",),
    )
    assert str(explained) == (
        "scan s3://b/t/\n"
        "  columns  a, b\n"
        "  where    a = 1\n"
        "pruning    kept of total\n"
        "  files                   1 of 2\n"
        "  row groups              3 of 4\n"
        "  pages                   5 of 6\n"
        "  rows                7,000 of 80,000\n"
        "                         12 rows proved to match without being read\n"
        "requests     count  trips          bytes\n"
        "  listing        0      1              0\n"
        "  metadata       1      1          1,000\n"
        "  indexes        2      1          2,000\n"
        "  data           3      1          3,000  (predicted)\n"
        "  note: take note"
    )
    assert repr(explained) == str(explained)
    assert explained.bytes == {"listing": 0, "metadata": 1000, "indexes": 2000, "data": 3000}


WIDE = {
    "mark": pa.array([i * 7919 % ROWS for i in range(ROWS)]),
    **{f"w{i}": pa.array([float(i * j) for j in range(ROWS)]) for i in range(8)},
}


def wide_store(tmp_path: pathlib.Path, indexes: dict[str, str]) -> RecordingStore:
    source, target = tmp_path / "a.parquet", tmp_path / "b.parquet"
    source.write_bytes(write_file(table(**WIDE), Layout(dictionary=False, page_rows=2_000, codec="none")))
    accel.embed(str(source), str(target), indexes=indexes)
    return RecordingStore(DictStore({"f.parquet": target.read_bytes()}))


@pytest.mark.parametrize(
    ("indexes", "phases", "by"),
    [
        pytest.param({}, "two", "statistics", id="statistics, two phases"),
        pytest.param({"mark": "sketch"}, "two", "sketches", id="sketches, two phases"),
        pytest.param({"mark": "sketch"}, "auto", "sketches", id="sketches, not worth it"),
    ],
)
def test_two_phases_are_told_with_a_bound(
    tmp_path: pathlib.Path, indexes: dict[str, str], phases: str, by: str
) -> None:
    """The guess and what it decides; the first phase and the most of the second."""
    store = wide_store(tmp_path, indexes)
    options = accel.Options(phases=phases, max_gap_bytes=0)
    scan = accel.scan("f.parquet", "mark = 4711", store=store, cache=accel.Cache(), options=options)
    explained = scan.explain()
    (note,) = [note for note in explained.notes if "expected to match" in note]
    assert note.startswith(f"about 1 of {ROWS:,} undecided rows are expected to match (by {by}): ")
    store.clear()
    assert scan.to_table().num_rows == 1
    if phases == "auto":
        assert note.endswith(
            "all columns are read at once, a second round trip would save less than it costs"
        )
        assert explained.round_trips["data"] == scan.metrics.round_trips == 1
        assert store.bytes == explained.bytes["data"]
        return
    assert "1 of 1 tasks read the filter's columns first" in note
    assert explained.round_trips["data"] == scan.metrics.round_trips == 2
    # All of the filter's column, and of each of the others one page of ten.
    assert store.bytes < explained.bytes["data"] / 4


def test_of_two_phases_the_bytes_are_bounded_and_not_the_requests() -> None:
    """Every second page of the late column holds a match: one run of pages was predicted, and many come."""
    rows = np.arange(ROWS)
    matches = (rows // 100 % 2 == 0) & (rows % 100 == 7)
    mark = pa.array(np.where(matches, 4, rows % 2 * 9))
    data = write_file(
        table(mark=mark, wide=pa.array([f"{row:08}" * 10 for row in rows])),
        Layout(dictionary=False, page_rows=100, codec="none"),
    )
    options = accel.Options(phases="two", max_gap_bytes=0, tail_hint=8)
    store = DictStore({"f.parquet": data})
    scan = accel.scan("f.parquet", "mark = 4", store=store, cache=accel.Cache(), options=options)
    explained = scan.explain()
    (note,) = [note for note in explained.notes if "expected to match" in note]
    assert note.endswith(
        "it asks for no more bytes than the data level tells, in more requests where matching pages lie apart"
    )
    assert scan.to_table().num_rows == int(matches.sum())
    asked = [
        kind for kind in (Kind.PAGE, Kind.CHUNK, Kind.DICTIONARY) if kind in scan.metrics.requests_by_kind
    ]
    assert sum(scan.metrics.requests_by_kind[kind] for kind in asked) > explained.requests["data"]
    assert sum(scan.metrics.bytes_by_kind[kind] for kind in asked) < explained.bytes["data"]


@pytest.mark.parametrize("at_once", [0, 1 << 40])
def test_where_only_some_columns_have_an_offset_index(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    """What is too large to decode at once is fetched first and cut, the pages of the other columns after
    it."""
    monkeypatch.setattr("accel.planning.task.DECODE_AT_ONCE", at_once)
    data = write_file(TABLE, Layout(group_rows=ROWS, page_rows=500, page_index=False, dictionary=False))
    store = RecordingStore(DictStore({"f.parquet": data}))
    named = {"store": store, "cache": accel.Cache(data=0), "options": accel.Options(tail_hint=8)}
    # Reading a chunk whole tells where its pages are.
    accel.scan("f.parquet", columns=["key"], **named).to_table()
    scan = accel.scan("f.parquet", "key < 300", columns=["key", "value"], **named)
    explained = scan.explain()
    store.clear()
    assert scan.to_table().num_rows == 100
    assert explained.round_trips["data"] == scan.metrics.round_trips == (2 if at_once == 0 else 1)
    assert explained.bytes["data"] == store.bytes
