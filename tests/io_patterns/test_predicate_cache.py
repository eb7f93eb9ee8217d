"""A predicate asked again reads the rows that it selected before, and nothing of its own columns."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import accel
from accel.options import Phases
from accel.planning import predicate_cache
from accel.ranges import Kind
from accel.reader import task_reads
from accel.testing import DictStore, Layout, RecordingStore, table, write_file
from tests.io_patterns.scattered import (
    GROUP,
    GROUPS,
    LAYOUT,
    PATH,
    ROWS,
    scattered_file,
    scattered_rows,
    turned_rows,
)

OPTIONS = accel.Options(tail_hint=64 * 1024, max_gap_bytes=0, phases=Phases.ONE)


@pytest.fixture
def rows() -> pa.Table:
    return scattered_rows()


@pytest.fixture
def data() -> bytes:
    return scattered_file()


@pytest.fixture
def store(data: bytes) -> RecordingStore:
    return RecordingStore(DictStore({PATH: data}))


def ask(store: Any, where: Any, cache: accel.Cache, **asked: Any) -> accel.Scan:
    return accel.scan(PATH, where, store=store, cache=cache, **{"options": OPTIONS, **asked})


def no_data() -> accel.Cache:
    """What is asked for is then seen in the requests."""
    return accel.Cache(data=0)


def among(column: pa.ChunkedArray, low: int, high: int) -> pa.ChunkedArray:
    return pc.and_(pc.greater_equal(column, low), pc.less_equal(column, high))


def pages(scan: accel.Scan) -> int:
    return scan.metrics.requests_by_kind.get(Kind.PAGE, 0)


@pytest.mark.parametrize("phases", Phases)
def test_only_the_rows_that_matched_are_read(store: RecordingStore, rows: pa.Table, phases: Phases) -> None:
    options = accel.Options(tail_hint=64 * 1024, max_gap_bytes=0, phases=phases)
    cache, where = no_data(), "code IN (70003, 77777, 90000)"
    expected = rows.filter(pc.is_in(rows["code"], pa.array([70003, 77777, 90000])))
    first = ask(store, where, cache, options=options)
    assert first.to_table().equals(expected)
    assert first.metrics.row_groups_remembered == 0
    again = ask(store, where, cache, options=options)
    assert again.to_table().equals(expected)
    assert again.metrics.row_groups_remembered == GROUPS
    assert again.metrics.rows.kept == 3
    # A page of each of three columns for each row.
    assert again.metrics.pages.kept == 9
    store.clear()
    other = ask(store, where, cache, columns=["pad"], options=options)
    assert other.to_table().equals(expected.select(["pad"]))
    assert len(store.calls) == pages(other) == 3
    store.clear()
    assert ask(store, where, cache, options=options).count_rows() == 3
    assert store.calls == []


def test_a_row_group_without_a_match_is_not_read(store: RecordingStore, rows: pa.Table) -> None:
    cache, code = no_data(), 80009
    for expected in (0, GROUPS):
        scan = ask(store, f"code = {code}", cache)
        assert scan.to_table().to_pylist() == rows.filter(pc.equal(rows["code"], code)).to_pylist()
        assert scan.metrics.row_groups_remembered == expected
    assert scan.metrics.row_groups.kept == 1
    assert scan.metrics.round_trips == 1


def test_explain_says_so(store: RecordingStore) -> None:
    cache = no_data()
    note = "which rows match is remembered from an earlier scan, for 2 of the row groups"
    assert note not in ask(store, "code = 80009", cache).explain().notes
    ask(store, "code = 80009", cache).to_table()
    told = ask(store, "code = 80009", cache).explain()
    assert note in told.notes
    assert (told.rows, told.rows_sure) == ((1, ROWS), 1)


@pytest.mark.parametrize(
    "asked",
    ["code = 80010", "code <= 80009", "name = 'n80009'", "code = 80009 OR pad = 0.5", "code = 80009.5"],
)
def test_another_predicate_knows_nothing_of_it(store: RecordingStore, asked: str) -> None:
    cache = no_data()
    ask(store, "code = 80009", cache).to_table()
    scan = ask(store, asked, cache)
    found = scan.to_table()
    assert scan.metrics.row_groups_remembered == 0
    assert found.equals(ask(store, asked, accel.Cache()).to_table())


@pytest.mark.parametrize(("max_age", "replans"), [(0.0, 0), (60.0, 1)], ids=["asked", "believed"])
def test_another_version_of_the_file_knows_nothing_of_it(
    data: bytes, rows: pa.Table, max_age: float, replans: int
) -> None:
    """Whether the cached version is known to be gone, or found to be when pages of it are asked for."""
    objects = DictStore({PATH: data})
    cache = accel.Cache(data=0, max_age=max_age)
    ask(objects, "code = 80009", cache).to_table()
    turned = turned_rows()
    objects.put(PATH, write_file(turned, LAYOUT))
    scan = ask(objects, "code = 80009", cache)
    assert scan.to_table().equals(turned.filter(pc.equal(turned["code"], 80009)))
    assert (scan.metrics.row_groups_remembered, scan.metrics.replans) == (0, replans)


def test_what_many_rows_match_is_not_remembered(store: RecordingStore, rows: pa.Table) -> None:
    cache = no_data()
    for _ in range(2):
        scan = ask(store, "pad < 0.02", cache)
        assert scan.to_table().equals(rows.filter(pc.less(rows["pad"], 0.02)))
        assert scan.metrics.row_groups_remembered == 0


def test_a_lookup_of_a_page_is_not_remembered(store: RecordingStore, data: bytes, rows: pa.Table) -> None:
    """It costs no more than to look up what was remembered."""
    by_code = rows.sort_by("code")
    objects = DictStore({PATH: write_file(by_code, Layout(group_rows=GROUP, page_rows=1000))})
    cache = no_data()
    for _ in range(2):
        scan = ask(objects, "code = 9", cache)
        assert scan.to_table().equals(by_code.slice(9, 1))
        assert (scan.metrics.rows.kept, scan.metrics.row_groups_remembered) == (1000, 0)


def test_a_scan_that_stopped_early_has_tested_less(store: RecordingStore, rows: pa.Table) -> None:
    cache, where = no_data(), "code BETWEEN 80000 AND 80099"
    some = ask(store, where, cache, limit=1).to_table()
    expected = rows.filter(among(rows["code"], 80000, 80099))
    assert some.equals(expected.slice(0, 1))
    assert ask(store, where, cache).to_table().equals(expected)
    scan = ask(store, where, cache, limit=7)
    assert scan.to_table().equals(expected.slice(0, 7))
    assert scan.metrics.row_groups_remembered == GROUPS


def test_a_selection_is_still_a_selection(store: RecordingStore, rows: pa.Table) -> None:
    cache, where = no_data(), "code BETWEEN 80000 AND 80299"
    half = {PATH: {0: [(0, 70_000)], 1: [(500, 80_000)]}}
    mine = np.r_[0:70_000, GROUP + 500 : ROWS]
    expected = rows.take(pa.array(mine)).filter(among(rows["code"].take(pa.array(mine)), 80000, 80299))
    assert ask(store, where, cache, selection=half).to_table().equals(expected)
    # The rest was not tested: it is read again.
    whole = ask(store, where, cache)
    assert whole.to_table().equals(rows.filter(among(rows["code"], 80000, 80299)))
    assert whole.metrics.row_groups_remembered == 0
    again = ask(store, where, cache, selection=half)
    assert again.to_table().equals(expected)
    assert again.metrics.row_groups_remembered == GROUPS


def test_chunks_without_a_page_index_too(rows: pa.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    store = RecordingStore(
        DictStore({PATH: write_file(rows, Layout(group_rows=GROUP, page_rows=1000, page_index=False))})
    )
    expected = rows.filter(pc.equal(rows["code"], 80009))
    for phases in Phases:
        for at_once in (1 << 26, 1 << 10):
            monkeypatch.setattr("accel.planning.task.DECODE_AT_ONCE", at_once)
            cache = no_data()
            options = accel.Options(phases=phases)
            for known in (0, GROUPS):
                scan = ask(store, "code = 80009", cache, options=options)
                assert scan.to_table().equals(expected)
                assert scan.metrics.row_groups_remembered == known


def test_plans_carry_what_is_remembered(store: RecordingStore, rows: pa.Table) -> None:
    cache, where = no_data(), "code = 80009"
    ask(store, where, cache).to_table()
    plan = accel.plan(PATH, where, store=store, cache=cache, options=OPTIONS)
    assert sum(task.rows.count for task in plan.tasks) == 1
    found = accel.scan(plan, store=store, cache=None).to_table()
    assert found.equals(rows.filter(pc.equal(rows["code"], 80009)))


def test_nothing_is_learned_from_a_plan_which_somebody_else_may_have_made(store: RecordingStore) -> None:
    cache, where = no_data(), "code = 80009"
    plan = accel.plan(PATH, where, store=store, cache=cache, options=OPTIONS)
    for _ in range(2):
        scan = accel.scan(plan, store=store, cache=cache, options=OPTIONS)
        assert scan.to_table().num_rows == 1
    scan = ask(store, where, cache)
    assert scan.to_table().num_rows == 1
    assert scan.metrics.row_groups_remembered == 0


def test_without_a_cache_nothing_is_remembered(store: RecordingStore) -> None:
    for cache in (None, accel.Cache(memory=0)):
        for _ in range(2):
            scan = ask(store, "code = 80009", cache)
            assert scan.to_table().num_rows == 1
            assert scan.metrics.row_groups_remembered == 0


def test_what_is_remembered_counts_as_memory(store: RecordingStore) -> None:
    cache = no_data()
    ask(store, "code = 80009", cache).to_table()
    before = cache.stats().result_nbytes
    ask(store, "code BETWEEN 80000 AND 80199", cache).to_table()
    assert 200 * 16 < cache.stats().result_nbytes - before < 200 * 16 + 4096


VALUES = [*range(-1, 60), 7.5, 30.0, 1e9]
PREDICATES = st.recursive(
    st.builds(
        lambda column, op, value: f"{column} {op} {value}",
        st.sampled_from(["a", "b"]),
        st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM"]),
        st.sampled_from(VALUES),
    )
    | st.sampled_from(["a IS NULL", "b IS NOT NULL", "c LIKE '%1%'", "c = 'x3'", "a = b", "a IN (1, 5, 9)"]),
    lambda inner: (
        st.builds("({} {} {})".format, inner, st.sampled_from(["AND", "OR"]), inner)
        | st.builds("NOT ({})".format, inner)
    ),
    max_leaves=4,
)


@functools.cache
def small() -> bytes:
    rng = np.random.default_rng(8)
    n = 600
    columns = table(
        a=pa.array(rng.integers(0, 60, n), mask=rng.random(n) < 0.1),
        b=pa.array(rng.integers(0, 60, n).astype(np.float64), mask=rng.random(n) < 0.1),
        c=pa.array([f"x{i}" for i in rng.integers(0, 40, n)]),
    )
    return write_file(columns, Layout(group_rows=250, page_rows=50))


@given(
    asked=st.lists(
        st.tuples(
            PREDICATES,
            st.sampled_from([None, ["c"], ["a", "c"], []]),
            st.none() | st.integers(1, 20),
            st.sampled_from(list(Phases)),
            st.none() | st.tuples(st.integers(0, 240), st.integers(1, 10)),
        ),
        min_size=2,
        max_size=5,
    ),
    order=st.randoms(use_true_random=False),
)
@settings(max_examples=30, deadline=None)
def test_whatever_was_asked_before_the_rows_are_the_same(asked: Any, order: Any) -> None:
    """All of it remembered, however little it is: the rows are those of a scan that knows nothing."""
    store, cache = DictStore({PATH: small()}), accel.Cache()
    questions = [*asked, *asked, *asked]
    order.shuffle(questions)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task_reads, "_LEAST_TESTED", 1)
        patch.setattr(predicate_cache, "_MOST_SHARE", 1)
        for where, columns, limit, phases, chosen in questions:
            options = accel.Options(phases=phases)
            selection = None
            if chosen is not None:
                start, length = chosen
                ranges = [(start, start + length), (20, 40)]
                selection = {PATH: {0: ranges, 1: ranges}}
            keywords = {"columns": columns, "limit": limit, "options": options, "selection": selection}
            mine = ask(store, where, cache, **keywords).to_table()
            fresh = ask(store, where, accel.Cache(), **keywords).to_table()
            assert mine.equals(fresh)
            if limit is None:
                asked_for = [("a", "sum"), ("b", "min"), ("c", "max"), ("c", "count"), ([], "count_all")]
                totals = [
                    ask(store, where, held, options=options, selection=selection).aggregate(asked_for)
                    for held in (cache, accel.Cache())
                ]
                assert totals[0].equals(totals[1])
                assert totals[0]["count_all"][0].as_py() == fresh.num_rows
