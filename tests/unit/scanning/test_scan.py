"""The faces of a scan: every one gives the same rows, from any thread and loop, and ends cleanly."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.predicate.literal import literal_value
from accel.ranges import ByteRange
from accel.runtime import io_loop
from accel.testing import DictStore, Layout, RecordingStore, table, write_file

FILES, ROWS = 4, 100
PATHS = [f"{i}.parquet" for i in range(FILES)]
KEYS = list(range(FILES * ROWS))


def make_file(first: int, rows: int = ROWS, **layout: object) -> bytes:
    column = pa.array(np.arange(first, first + rows))
    settings = {"group_rows": 50, "page_rows": 10, "dictionary": False} | layout
    return write_file(
        table(key=column, half=pa.array(np.arange(first, first + rows) / 2)), Layout(**settings)
    )  # type: ignore[arg-type]


@pytest.fixture
def store() -> RecordingStore:
    return RecordingStore(DictStore({path: make_file(ROWS * i) for i, path in enumerate(PATHS)}))


def ask(store: object, where: str | None = None, **keywords: object) -> accel.Scan:
    return accel.scan(PATHS, where, store=store, cache=accel.Cache(), **{"columns": ["key"], **keywords})  # type: ignore[arg-type]


def keys(data: pa.Table | pa.RecordBatch) -> list[int]:
    return list(data.column("key").to_pylist())


async def gather_async(scan: accel.Scan) -> list[int]:
    return [key async for batch in scan for key in keys(batch)]


FACES: dict[str, Callable[[accel.Scan], list[int]]] = {
    "to_table": lambda scan: keys(scan.to_table()),
    "to_table_async": lambda scan: keys(asyncio.run(scan.to_table_async())),
    "async for": lambda scan: asyncio.run(gather_async(scan)),
    "for": lambda scan: [key for batch in scan for key in keys(batch)],
    "to_batches": lambda scan: [key for batch in scan.to_batches() for key in keys(batch)],
    "to_reader": lambda scan: keys(scan.to_reader().read_all()),
    "pa.table": lambda scan: keys(pa.table(scan)),
    "to_pandas": lambda scan: scan.to_pandas()["key"].tolist(),
    "to_pandas_async": lambda scan: asyncio.run(scan.to_pandas_async())["key"].tolist(),
    "to_polars": lambda scan: scan.to_polars()["key"].to_list(),
    "to_polars_async": lambda scan: asyncio.run(scan.to_polars_async())["key"].to_list(),
    "to_pylist": lambda scan: [row["key"] for row in scan.to_pylist()],
    "to_pylist_async": lambda scan: [row["key"] for row in asyncio.run(scan.to_pylist_async())],
    "head": lambda scan: keys(scan.head(10_000)),
    "head_async": lambda scan: keys(asyncio.run(scan.head_async(10_000))),
}
COUNTS: dict[str, Callable[[accel.Scan], int]] = {
    "count_rows": lambda scan: scan.count_rows(),
    "count_rows_async": lambda scan: asyncio.run(scan.count_rows_async()),
}


@pytest.mark.parametrize("face", FACES)
def test_every_face_gives_all_rows(store: RecordingStore, face: str) -> None:
    assert FACES[face](ask(store)) == KEYS


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("limit", [0, 1, 150, 1000, 2**63 - 1, 2**63, 10**30])
def test_every_face_keeps_the_limit(store: RecordingStore, face: str, limit: int) -> None:
    assert FACES[face](ask(store, limit=limit)) == KEYS[:limit]


@pytest.mark.parametrize("face", COUNTS)
@pytest.mark.parametrize(
    ("where", "limit", "want"),
    [
        (None, None, 400),
        ("key >= 95", None, 305),
        (None, 7, 7),
        (None, 2**63, 400),
        ("key >= 95", 10**30, 305),
    ],
)
def test_counts(store: RecordingStore, face: str, where: str | None, limit: int | None, want: int) -> None:
    assert COUNTS[face](ask(store, where, limit=limit)) == want


@pytest.mark.parametrize("face", FACES)
def test_every_face_runs_again(store: RecordingStore, face: str) -> None:
    scan = ask(store, "key >= 390")
    assert FACES[face](scan) == FACES[face](scan) == KEYS[390:]


@pytest.mark.parametrize("asked", ["x.parquet", "", "*.parquet"], ids=["file", "directory", "pattern"])
def test_a_local_file_that_was_written_anew_is_seen_at_once(tmp_path: Path, asked: str) -> None:
    cache = accel.Cache(max_age=1000)
    for values in ([1], [2], [3, 4], [5, 6]):
        (tmp_path / "x.parquet").write_bytes(write_file(table(a=values)))
        scan = accel.scan(str(tmp_path / asked), cache=cache)
        assert scan.to_table()["a"].to_pylist() == values
        assert scan.count_rows() == len(values)


def test_the_smaller_of_limit_and_head(store: RecordingStore) -> None:
    assert keys(ask(store, limit=3).head(5)) == [0, 1, 2]
    assert keys(ask(store, limit=5).head(3)) == [0, 1, 2]
    assert keys(ask(store, limit=5).head(2**63)) == [0, 1, 2, 3, 4]
    assert keys(ask(store, "key < 5", limit=10**30).head(2**63)) == [0, 1, 2, 3, 4]
    assert keys(ask(store).head()) == list(range(10))


def test_no_columns(store: RecordingStore) -> None:
    scan = ask(store, "key < 30", columns=[])
    found = scan.to_table()
    assert (found.num_rows, found.num_columns) == (30, 0)
    assert sum(batch.num_rows for batch in scan) == 30
    assert scan.to_reader().read_all().num_rows == 30
    assert scan.schema == pa.schema([])


@pytest.mark.parametrize("columns", [None, []])
def test_batches_have_at_most_so_many_rows(store: RecordingStore, columns: list[str] | None) -> None:
    scan = ask(store, columns=columns, options=accel.Options(batch_rows=30))
    assert [batch.num_rows for batch in scan] == [30, 20] * 2 * FILES


def test_zero_rows() -> None:
    none = make_file(0, 0)
    groups = make_file(0, 30, group_rows=[10, 0, 20])
    store = DictStore({"none": none, "groups": groups, "only": none})
    found = accel.scan(["none", "groups", "only"], store=store, cache=None).to_table()
    assert keys(found) == list(range(30))
    empty = accel.scan("none", "key = 1", store=store, cache=None)
    assert empty.to_table().schema == pa.schema([("key", pa.int64()), ("half", pa.float64())])
    assert (empty.count_rows(), list(empty), empty.head(3).num_rows) == (0, [], 0)


def test_a_thousand_row_groups() -> None:
    store = DictStore({"f": make_file(0, 2000, group_rows=2)})
    scan = accel.scan("f", "key >= 1990", columns=["key"], store=store, cache=accel.Cache())
    assert keys(scan.to_table()) == list(range(1990, 2000))
    assert (scan.metrics.row_groups.total, scan.metrics.row_groups.kept) == (1000, 5)
    assert keys(accel.scan("f", store=store, cache=None).to_table()) == list(range(2000))


def test_from_threads_at_once(store: RecordingStore) -> None:
    scan = ask(store, "key >= 150")
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda face: FACES[face](scan), list(FACES) * 2))
    assert found == [KEYS[150:]] * 2 * len(FACES)


async def test_inside_a_running_loop(store: RecordingStore) -> None:
    scan = ask(store)
    assert keys(scan.to_table()) == KEYS
    blocking, awaited, counted = await asyncio.gather(
        asyncio.to_thread(scan.to_table), scan.to_table_async(), scan.count_rows_async()
    )
    assert (keys(blocking), keys(awaited), counted) == (KEYS, KEYS, len(KEYS))
    assert await gather_async(scan) == KEYS
    assert (await scan.schema_async()).names == ["key"]


def test_closed_under_its_reader_it_says_so(store: RecordingStore) -> None:
    with ask(store, options=accel.Options(batch_rows=5)) as scan:
        batches = iter(scan)
        assert keys(next(batches)) == [0, 1, 2, 3, 4]
    with pytest.raises(accel.AccelError, match="the scan was closed before its end"):
        list(batches)
    # It is the run that was closed.
    assert keys(scan.to_table()) == KEYS


async def test_aclosed_under_its_reader_it_says_so(store: RecordingStore) -> None:
    async with ask(store, options=accel.Options(batch_rows=5)) as scan:
        batches = aiter(scan)
        assert keys(await anext(batches)) == [0, 1, 2, 3, 4]
    with pytest.raises(accel.AccelError, match="the scan was closed before its end"):
        await anext(batches)


class Held(DictStore):
    """Answers nothing but tails until it is let go."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        super().__init__(objects)
        self.asked = threading.Event()
        self.cancelled = threading.Event()

    async def read(self, path, want, *, if_match=None):  # type: ignore[no-untyped-def]
        if if_match is None:
            return await super().read(path, want, if_match=if_match)
        self.asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


def held() -> tuple[Held, accel.Scan]:
    store = Held({path: make_file(ROWS * i) for i, path in enumerate(PATHS)})
    # A tail too short to hold any data.
    return store, ask(store, options=accel.Options(tail_hint=8))


class HeldAtItsLast(DictStore):
    """Answers no data of the last file until it is let go."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        super().__init__(objects)
        self.asked, self.go = threading.Event(), threading.Event()

    async def read(self, path, want, *, if_match=None):  # type: ignore[no-untyped-def]
        if path == PATHS[-1] and isinstance(want, ByteRange) and want.start < 100:
            self.asked.set()
            await asyncio.to_thread(self.go.wait, 20)
        return await super().read(path, want, if_match=if_match)


@pytest.mark.parametrize("aggregates", [None, [("key", "sum")]], ids=["rows", "aggregates"])
def test_what_is_analyzed_is_the_run_made_for_it(aggregates: list[tuple[str, str]] | None) -> None:
    """Another run of the same scan starts and ends in the middle of it."""
    store = HeldAtItsLast({path: make_file(ROWS * i) for i, path in enumerate(PATHS)})
    scan = ask(store, options=accel.Options(tail_hint=8))
    with ThreadPoolExecutor(1) as pool:
        explaining = pool.submit(lambda: scan.explain(analyze=True, aggregates=aggregates))
        assert store.asked.wait(20)
        try:
            assert keys(scan.head(1)) == [0]
        finally:
            store.go.set()
        analyzed = explaining.result(20).analyzed
    assert analyzed is not None
    assert analyzed["rows_out"] == len(KEYS)
    assert scan.metrics.rows_out == 1


def tasks_left() -> int:
    async def count() -> int:
        for _ in range(10):
            await asyncio.sleep(0)
        return len(asyncio.all_tasks()) - 1

    return io_loop.run(count())


def test_closing_wakes_a_thread_that_waits() -> None:
    before = tasks_left()
    store, scan = held()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(scan.to_table)
        assert store.asked.wait(20)
        scan.close()
        with pytest.raises(accel.AccelError, match="closed before its end"):
            waiting.result(20)
    assert store.cancelled.is_set()
    assert tasks_left() == before


async def test_cancelling_an_await_cancels_its_requests() -> None:
    before = tasks_left()
    store, scan = held()
    reading = asyncio.create_task(scan.to_table_async())
    assert await asyncio.to_thread(store.asked.wait, 20)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert store.cancelled.is_set()
    assert tasks_left() == before


def test_an_iterator_dropped_midway_leaves_nothing(store: RecordingStore) -> None:
    before = tasks_left()
    batches = iter(ask(store, options=accel.Options(batch_rows=5)))
    next(batches)
    del batches
    gc.collect()
    assert tasks_left() == before


async def test_an_async_iterator_dropped_midway_leaves_nothing(store: RecordingStore) -> None:
    before = tasks_left()
    async for _ in ask(store, options=accel.Options(batch_rows=5)):
        break
    gc.collect()
    for _ in range(100):
        await asyncio.sleep(0.001)
        if tasks_left() == before:
            break
    assert tasks_left() == before


# -- iterators of record batches, as mapInArrow passes them ---------------------------------------


def paths(*groups: list[str]) -> Iterator[pa.RecordBatch]:
    for group in groups:
        yield pa.RecordBatch.from_arrays([pa.array(group, pa.string())], names=["path"])


def stream(store: object, source: Iterator[pa.RecordBatch], **keywords: object) -> accel.Scan:
    return accel.scan(source, store=store, cache=accel.Cache(), **{"columns": ["key"], **keywords})  # type: ignore[arg-type]


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("limit", [None, 0, 120, 250])
def test_a_stream_of_paths(store: RecordingStore, face: str, limit: int | None) -> None:
    source = paths(PATHS[:2], [], PATHS[2:])
    assert FACES[face](stream(store, source, limit=limit)) == KEYS[:limit]


@pytest.mark.parametrize("face", FACES)
def test_a_stream_of_tasks(store: RecordingStore, face: str) -> None:
    tasks = iter(accel.plan(PATHS, "key >= 20", columns=["key"], store=store))
    assert FACES[face](accel.scan(tasks, store=store)) == KEYS[20:]


@pytest.mark.parametrize("source", [[], [[]]], ids=["no batch", "a batch without rows"])
def test_a_stream_without_files(store: RecordingStore, source: list[list[str]]) -> None:
    assert stream(store, paths(*source)).to_table() == pa.schema([]).empty_table()
    assert stream(store, paths(*source)).schema == pa.schema([])
    assert stream(store, paths(*source)).to_reader().read_all().num_rows == 0
    assert list(stream(store, paths(*source))) == []
    assert len(accel.plan(paths(*source), store=store)) == 0


def test_the_schema_of_a_stream_pulls_one_batch_and_loses_none(store: RecordingStore) -> None:
    pulled = []

    def source() -> Iterator[pa.RecordBatch]:
        for batch in paths([], PATHS[:1], PATHS[1:]):
            pulled.append(batch.num_rows)
            yield batch

    scan = stream(store, source())
    assert scan.schema == pa.schema([("key", pa.int64())])
    assert pulled == [0, 1]
    assert keys(scan.to_table()) == KEYS
    with pytest.raises(accel.AccelError, match="a scan over an iterator runs once"):
        scan.to_table()
    assert scan.schema == pa.schema([("key", pa.int64())])


def test_a_stream_whose_first_part_has_no_row_has_the_converted_schema() -> None:
    """Seconds are what Spark does not take: they come as microseconds, with or without rows."""
    when = pa.array([1, 2], pa.timestamp("ms", "UTC"))
    data = {path: write_file(table(at=when, n=pa.array([i, i]))) for i, path in enumerate("ab")}
    scan = accel.scan(paths(["a"], ["b"]), "n = 1", store=DictStore(data), cache=None)
    assert scan.schema.field("at").type == pa.timestamp("us", "UTC")
    found = scan.to_table()
    assert found.schema.field("at").type == pa.timestamp("us", "UTC")
    assert found.column("n").to_pylist() == [1, 1]


def test_a_stream_ended_early_by_its_limit_keeps_its_schema() -> None:
    """The second batch's file lacks a column and widens: the first file's schema holds."""
    one = write_file(table(key=pa.array([1, 2], pa.int64()), x=pa.array([1, 2])))
    two = write_file(table(key=pa.array([3, 4], pa.int32())))
    store = DictStore({"a": one, "b": two})
    found = accel.scan(paths(["a"], ["b"]), columns=["key", "x"], limit=3, store=store, cache=None).to_table()
    assert found.to_pylist() == [{"key": 1, "x": 1}, {"key": 2, "x": 2}, {"key": 3, "x": None}]


def test_files_that_mapinarrow_would_match_wrongly_are_refused() -> None:
    one = write_file(table(a=[1], b=[2]))
    two = write_file(table(b=[2], a=[1]))
    store = DictStore({"a": one, "b": two})
    for source in (paths(["a", "b"]), paths(["a"], ["b"])):
        with pytest.raises(accel.SchemaMismatchError) as caught:
            accel.scan(source, store=store, cache=None).to_table()
        assert (caught.value.path, "position" in str(caught.value.hint)) == ("b", True)
    assert (
        accel.scan(paths(["a"], ["b"]), columns=["a", "b"], store=store, cache=None).to_table().num_rows == 2
    )


def test_a_stream_from_another_scan_runs_where_it_is_asked(store: RecordingStore) -> None:
    """The source blocks on accel itself: it must not be pulled on accel's own loop."""
    listing = write_file(table(path=PATHS))
    source = iter(accel.scan("l", store=DictStore({"l": listing}), cache=None))
    assert keys(stream(store, source).to_table()) == KEYS


# -- plans ---------------------------------------------------------------------------------------


def test_a_plan_travels(store: RecordingStore) -> None:
    planned = accel.plan(PATHS, "key >= 30", columns=["key"], store=store)
    copy = pickle.loads(pickle.dumps(planned))
    back = accel.Plan.from_arrow(planned.to_arrow())
    for plan in (planned, copy, back, list(planned.tasks)):
        assert keys(accel.scan(plan, store=store).to_table()) == KEYS[30:]
        assert accel.scan(plan, store=store).count_rows() == 370
        assert keys(accel.scan(plan, limit=5, store=store).to_table()) == KEYS[30:35]
        assert accel.scan(plan, store=store).schema == pa.schema([("key", pa.int64())])


async def test_plan_async(store: RecordingStore) -> None:
    planned = await accel.plan_async(PATHS, "key < 10", store=store)
    assert [task.rows.count for task in planned.tasks] == [10]


def test_planning_over_an_iterator(store: RecordingStore) -> None:
    planned = accel.plan(paths(PATHS[:2], PATHS[2:]), "key >= 95", columns=["key"], store=store)
    assert keys(accel.scan(planned, store=store).to_table()) == KEYS[95:]


def test_of_a_long_list_explain_makes_no_more_values_text_than_it_tells(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Any] = []

    def counted(scalar: Any) -> Any:
        made.append(scalar)
        return literal_value(scalar)

    monkeypatch.setattr("accel.predicate.sql.literal_value", counted)
    store = DictStore({"f.parquet": write_file(table(a=[1, 2, 3]))})
    scan = accel.scan("f.parquet", accel.col("a").isin(range(5000)), store=store, cache=None)
    told = scan.explain().where
    assert told == f"a IN ({', '.join(map(str, range(5000)))}"[:397] + "..."
    assert len(made) <= 400


def test_results_of_other_libraries(store: RecordingStore) -> None:
    """Whole values and types, as of the table; options reach pyarrow."""
    import pandas as pd
    import polars as pl

    scan = ask(store, "key >= 398", columns=["half", "key"])
    expected = pa.table({"half": [199.0, 199.5], "key": [398, 399]})
    assert scan.to_pylist() == [{"half": 199.0, "key": 398}, {"half": 199.5, "key": 399}]
    pd.testing.assert_frame_equal(scan.to_pandas(), pd.DataFrame({"half": [199.0, 199.5], "key": [398, 399]}))
    arrow = scan.to_pandas(types_mapper=pd.ArrowDtype)
    assert list(arrow.dtypes) == [pd.ArrowDtype(pa.float64()), pd.ArrowDtype(pa.int64())]
    assert scan.to_polars().equals(pl.DataFrame({"half": [199.0, 199.5], "key": [398, 399]}))
    assert scan.to_table().equals(expected)
    none = ask(store, "key < 0")
    assert none.to_pylist() == []
    assert (none.to_pandas().columns.tolist(), none.to_polars().schema) == (["key"], {"key": pl.Int64})


@pytest.mark.parametrize("library", ["pandas", "polars"])
async def test_a_missing_library_is_told_before_anything_is_read(
    store: RecordingStore, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    scan = ask(store)
    with pytest.raises(ModuleNotFoundError, match=f"to_{library} needs {library}: pip install {library}"):
        getattr(scan, f"to_{library}")()
    with pytest.raises(ModuleNotFoundError, match=f"to_{library}_async needs {library}"):
        await getattr(scan, f"to_{library}_async")()
    assert store.calls == []


def test_no_library_is_imported_before_it_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "f.parquet").write_bytes(make_file(0))
    program = (
        "import sys, accel; scan = accel.scan('f.parquet', 'key < 3'); scan.to_table(); scan.to_pylist()\n"
        "there = lambda: sorted({'pandas', 'polars'} & sys.modules.keys())\n"
        "before = there(); scan.to_polars(); between = there(); scan.to_pandas(); print(before, between, there())"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.strip() == "[] ['polars'] ['pandas', 'polars']"


def test_a_scan_is_taken_for_no_array(store: RecordingStore) -> None:
    """pandas would make a frame of one column of batches, numpy a value of one object."""
    import pandas as pd

    scan = ask(store)
    for take in (pd.DataFrame, np.asarray, np.array):
        with pytest.raises(TypeError, match="a Scan is no array: use to_pandas"):
            take(scan)
    assert store.calls == []


def test_what_reads_the_arrow_stream_still_does(store: RecordingStore) -> None:
    import duckdb
    import polars as pl

    scan = ask(store)
    assert pl.DataFrame(scan)["key"].to_list() == KEYS
    assert duckdb.sql("SELECT sum(key) FROM scan").fetchall() == [(sum(KEYS),)]
    assert pa.chunked_array(scan).num_chunks > 0
    # As docs/first-steps.md says: it cannot be told from pl.DataFrame, and gives the rows as structs.
    assert pl.from_arrow(scan).struct.unnest()["key"].to_list() == KEYS
