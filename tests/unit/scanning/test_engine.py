"""Runs end to end over stores in memory: page indexes that lie, memory, changes under way, cancellation."""

from __future__ import annotations

import asyncio
import itertools
import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.planning.task_arrow import TASK_ARROW_SCHEMA
from accel.runtime import io_loop
from accel.testing import (
    DictStore,
    FaultStore,
    Layout,
    RecordingStore,
    Status,
    bench_table,
    table,
    write_file,
)
from tests.io_patterns.test_no_page_index import lying_offset_index

PATHS = [f"{i}.parquet" for i in range(4)]


def make_file(first: int, rows: int = 400) -> bytes:
    keys = pa.array(np.arange(first, first + rows))
    return write_file(table(key=keys), Layout(group_rows=100, page_rows=10, dictionary=False))


@pytest.fixture
def inner() -> DictStore:
    return DictStore({path: make_file(1000 * i) for i, path in enumerate(PATHS)})


def keys(store: object, source: Any = PATHS, where: Any = None, **keywords: Any) -> list[int]:
    found = accel.scan(source, where, store=store, **({"cache": None} | keywords)).to_table()
    return list(found.column("key").to_pylist())


# -- page indexes that lie -----------------------------------------------------------------------


def test_two_scans_at_once_of_a_file_whose_index_lies() -> None:
    """Both planned with it; the second to find out must not be left with the error."""
    rows = bench_table(40_000)
    store = DictStore(
        {
            "f.parquet": lying_offset_index(
                write_file(rows, Layout(group_rows=10_000, page_rows=1_000)), "sizes"
            )
        }
    )
    cache = accel.Cache()
    options = accel.Options(tail_hint=64 * 1024, max_gap_bytes=0)

    def ask() -> Any:
        where = "key BETWEEN 8700 AND 12297"
        return accel.scan("f.parquet", where, columns=["value"], store=store, cache=cache, options=options)

    ask().schema  # noqa: B018 - opens the file, for both
    expected = rows.column("value").slice(2_900, 1_200).to_pylist()

    async def both() -> list[pa.Table]:
        return list(await asyncio.gather(*(ask().to_table_async() for _ in range(4))))

    for found in asyncio.run(both()):
        assert found.column("value").to_pylist() == expected


# -- memory --------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [20_000, 60_000, 1 << 20])
def test_a_small_limit_cuts_pieces_instead_of_refusing(limit: int) -> None:
    """With the default `piece_bytes`: what can be cut is cut to what may be held."""
    rows = 20_000
    values = pa.array(np.random.default_rng(4).integers(0, 1 << 60, rows))
    layout = Layout(page_rows=100, dictionary=False, codec="none")
    store = DictStore({"f.parquet": write_file(table(key=values), layout)})
    options = accel.Options(memory_limit=limit, tail_hint=64)
    assert options.cut_bytes == min(options.piece_bytes, limit // 8)
    assert keys(store, "f.parquet", options=options) == values.to_pylist()


def test_booleans_are_cut_by_what_they_decode_to() -> None:
    """They take next to nothing of the file."""
    rows = pa.table({f"b{i}": pa.nulls(100_000, pa.bool_()) for i in range(8)})
    store = DictStore({"f.parquet": write_file(rows, Layout(page_rows=1_000))})
    options = accel.Options(memory_limit=200_000, tail_hint=64)
    scan = accel.scan("f.parquet", store=store, options=options, cache=None)
    assert [batch.num_rows for batch in scan] == [7_000] * 14 + [2_000]


def test_what_cannot_be_cut_is_refused_with_its_place() -> None:
    values = pa.array(np.random.default_rng(4).integers(0, 1 << 60, 20_000))
    layout = Layout(page_index=False, dictionary=False, codec="none", page_rows=20_000)
    store = DictStore({"f.parquet": write_file(table(key=values), layout)})
    with pytest.raises(accel.MemoryLimitError) as caught:
        keys(store, "f.parquet", options=accel.Options(memory_limit=50_000, tail_hint=64))
    assert caught.value.path == "f.parquet"
    assert str(caught.value.place).startswith("row group 0")


# -- changes under way ---------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["to_table", "count_rows", "plan", "explain"])
def test_a_file_replaced_since_it_was_cached(
    inner: DictStore, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its footer is cached and young; the first request of the new scan finds another version."""
    # So that planning has one to send.
    monkeypatch.setattr("accel.reader.reader.WHOLE_BYTES", 0)
    store = RecordingStore(inner)
    cache, options = accel.Cache(), accel.Options(tail_hint=8)
    assert accel.scan(PATHS, store=store, cache=cache, options=options).count_rows() == 1600
    inner.put(PATHS[2], make_file(2000, 300))
    asked = accel.scan(PATHS, "key >= 2050", store=store, cache=cache, options=options)
    if verb == "to_table":
        assert asked.to_table().num_rows == 250 + 400
        assert asked.metrics.replans == 1
    elif verb == "count_rows":
        assert asked.count_rows() == 650
    elif verb == "plan":
        plan = accel.plan(PATHS, "key >= 2050", store=store, cache=cache, options=options)
        assert {t.path: t.file.id.etag for t in plan.tasks}[PATHS[2]] == inner.etags[PATHS[2]]
    else:
        assert asked.explain().rows[1] == 1500


OTHER = {"key": [7, 8], "note": ["a", "b"]}
NO_KEY = {"note": ["a", "b"]}


@pytest.mark.parametrize(
    ("columns", "where", "found"),
    [
        (OTHER, None, OTHER),
        (OTHER, "key > 7", {"key": [8], "note": ["b"]}),
        ({"key": ["7", "8"]}, None, {"key": ["7", "8"]}),
        ({"key": ["7", "8"]}, "key > 7", accel.PredicateError),
        (NO_KEY, None, NO_KEY),
        (NO_KEY, "key IS NULL OR key > 3", accel.ColumnNotFoundError),
    ],
    ids=["more", "more, filtered", "other types", "other types, filtered", "fewer", "without the filter's"],
)
def test_a_file_replaced_by_one_of_other_columns(columns: Any, where: Any, found: Any) -> None:
    """The question is settled by a cached footer, whose version is no longer there: rows and columns are of
    one."""
    store, keywords = replaced_by(columns)
    scan = accel.scan("f.parquet", where, store=store, **keywords)
    if isinstance(found, type):
        with pytest.raises(found):
            scan.to_table()
    else:
        assert scan.to_table().to_pydict() == found
        assert scan.metrics.replans == 1


def test_aggregates_of_a_file_replaced_by_one_of_other_types() -> None:
    store, keywords = replaced_by({"key": [7.0, 8.5]})
    scan = accel.scan("f.parquet", "key > 7", store=store, **keywords)
    found = scan.aggregate([("key", "max"), ([], "count_all")])
    assert found.to_pydict() == {"key_max": [8.5], "count_all": [1]}
    assert found.schema.field("key_max").type == pa.float64()


def replaced_by(columns: dict[str, list[Any]]) -> tuple[DictStore, dict[str, Any]]:
    """A store whose file is another by now than the one whose footer is cached."""
    store = DictStore({"f.parquet": make_file(0)})
    keywords: dict[str, Any] = {"cache": accel.Cache(), "options": accel.Options(tail_hint=8)}
    accel.scan("f.parquet", columns=[], store=store, **keywords).to_table()
    store.put("f.parquet", write_file(table(**columns)))
    return store, keywords


@pytest.mark.parametrize("given", [False, True], ids=["by the first file", "by the caller"])
def test_columns_of_another_first_file_are_not_those_of_the_others(inner: DictStore, given: bool) -> None:
    keywords: dict[str, Any] = {
        "store": inner,
        "cache": accel.Cache(),
        "options": accel.Options(tail_hint=8),
    }
    accel.scan(PATHS, columns=[], **keywords).to_table()
    inner.put(PATHS[0], write_file(table(**OTHER)))
    if given:
        schema = pa.schema([("key", pa.int64())])
        assert accel.scan(PATHS, "key < 9", schema=schema, **keywords).to_table()["key"].to_pylist() == [7, 8]
        return
    with pytest.raises(accel.ObjectChangedError, match="which settled the schema") as caught:
        accel.scan(PATHS, **keywords).to_table()
    assert caught.value.path == PATHS[0]
    assert accel.scan(PATHS, **keywords).to_table().schema.names == ["key", "note"]


def test_a_limit_over_files_of_different_speeds(inner: DictStore) -> None:
    """The second file's footer comes after the third's, and the first rows are still its."""

    class Slow(DictStore):
        def __init__(self, other: DictStore) -> None:
            super().__init__(other.objects)
            self.third = asyncio.Event()

        async def read(self, path, want, *, if_match=None):  # type: ignore[no-untyped-def]
            if path == PATHS[1]:
                await self.third.wait()
            payload = await super().read(path, want, if_match=if_match)
            if path == PATHS[2]:
                for _ in range(50):
                    await asyncio.sleep(0)
                self.third.set()
            return payload

    expected = [1000 * i + row for i in range(2) for row in range(400)][:500]
    assert keys(Slow(inner), limit=500) == expected


# -- failures and cancellation -------------------------------------------------------------------


def test_the_rows_before_a_failure_come_out(inner: DictStore) -> None:
    store = FaultStore(inner, lambda attempt: Status(404) if attempt.path == PATHS[2] else None)
    scan = accel.scan(PATHS, store=store, cache=None)
    got: list[int] = []
    with pytest.raises(accel.ObjectNotFoundError) as caught:
        for batch in scan:
            got += batch.column(0).to_pylist()
    assert got == [1000 * i + row for i in range(2) for row in range(400)]
    assert caught.value.path == PATHS[2]
    # And a limit that they satisfy knows nothing of it.
    assert keys(store, limit=800) == got


class SlowStore(DictStore):
    """Takes some turns of the loop for every answer, and counts what is under way."""

    under_way = 0

    async def read(self, path, want, *, if_match=None):  # type: ignore[no-untyped-def]
        self.under_way += 1
        try:
            for _ in range(3):
                await asyncio.sleep(0)
            return await super().read(path, want, if_match=if_match)
        finally:
            self.under_way -= 1


@pytest.mark.parametrize("ordered", [True, False])
def test_cancelled_at_every_turn_nothing_is_left(inner: DictStore, ordered: bool) -> None:
    store = SlowStore(inner.objects)
    scan = accel.scan(
        PATHS,
        "key >= 5",
        order=ordered,
        store=store,
        cache=None,
        options=accel.Options(tail_hint=8, piece_bytes=300),
    )
    ended = 0

    async def cancel_after(turns: int) -> bool:
        before = asyncio.all_tasks()
        running = scan.engine.start(accel.Metrics())

        async def take_all() -> None:
            while await running.take() is not None:
                pass

        task = asyncio.create_task(take_all())
        for _ in range(turns):
            await asyncio.sleep(0)
        done = task.done()
        task.cancel()
        await asyncio.wait([task])
        await running.close()
        assert store.under_way == 0
        for _ in range(3):
            await asyncio.sleep(0)
        assert asyncio.all_tasks() == before
        return done

    for turns in range(0, 400, 7):
        ended += io_loop.run(cancel_after(turns))
    assert 0 < ended < 57


def test_threads_and_loops_at_once(inner: DictStore) -> None:
    scan = accel.scan(PATHS, "key >= 100", store=inner, cache=accel.Cache())
    want = [1000 * i + row for i in range(4) for row in range(400)][100:]
    failures: list[BaseException] = []

    def work(i: int) -> None:
        try:
            for _ in range(3):
                found = asyncio.run(scan.to_table_async()) if i % 2 else scan.to_table()
                assert found.column("key").to_pylist() == want
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []


# -- tasks of several plans ----------------------------------------------------------------------


def two_plans(**other: Any) -> tuple[DictStore, list[accel.Plan]]:
    store = DictStore({"f": write_file(table(a=pa.array([1, 2]), b=pa.array([3, 4])), Layout())})
    return store, [
        accel.plan("f", store=store, cache=None, **named) for named in ({"columns": ["a", "b"]}, other)
    ]


@pytest.mark.parametrize("columns", [["b", "a"], ["a"]], ids=["in another order", "fewer"])
def test_tasks_of_other_columns_do_not_mix(columns: list[str]) -> None:
    """In Spark columns go by their position: `b` would come out as `a`."""
    store, plans = two_plans(columns=columns)
    rows = pa.concat_tables([plan.to_arrow().replace_schema_metadata() for plan in plans])
    sources = {
        "a list": lambda: [task for plan in plans for task in plan.tasks],
        "a plan": lambda: accel.Plan.from_arrow(rows),
        "one batch": lambda: iter(rows.combine_chunks().to_batches()),
        "two batches": lambda: itertools.chain(*plans),
    }
    for source in sources.values():
        with pytest.raises(accel.SchemaMismatchError, match="its task has the columns"):
            list(accel.scan(source(), store=store, cache=None).to_batches())


def test_tasks_of_like_columns_are_read_together() -> None:
    store, plans = two_plans(where="a = 2", columns=["a", "b"])
    found = accel.scan(itertools.chain(*plans), store=store, cache=None).to_table()
    assert found.to_pydict() == {"a": [1, 2, 2], "b": [3, 4, 4]}


@pytest.mark.parametrize("lost", [*TASK_ARROW_SCHEMA.names, "Footer"])
def test_tasks_without_one_of_their_columns_are_not_taken_for_paths(lost: str) -> None:
    """They name their file: without its predicate all of its rows would come out."""
    store, (_, plan) = two_plans(where="a = 2", columns=["a", "b"])
    (batch,) = plan
    gone = lost.lower()
    if lost == gone:
        batch = batch.drop_columns([gone])
    else:
        batch = batch.rename_columns([lost if name == gone else name for name in batch.schema.names])
    with pytest.raises(accel.AccelError) as caught:
        accel.scan(iter([batch]), store=store, cache=None).to_table()
    assert str(caught.value) == (
        f"these are tasks of a plan without the columns ['{gone}'] (keep the columns of a plan's tasks as they "
        "are, or give only their `path` to read whole files)"
    )


def test_a_listing_may_have_columns_of_the_names_of_a_tasks() -> None:
    store, _ = two_plans()
    listing = pa.RecordBatch.from_pydict(
        {
            "path": ["f"],
            "size": [1],
            "etag": ["x"],
            "version": [7],
            "checksum": [0],
            "rows": [2],
            "where": [""],
        }
    )
    found = accel.scan(iter([listing]), store=store, cache=None).to_table()
    assert found.to_pydict() == {"a": [1, 2], "b": [3, 4]}
