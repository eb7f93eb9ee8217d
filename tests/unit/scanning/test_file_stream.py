"""Files that cached metadata excludes: passed over without a request, counted all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import obstore
import pyarrow as pa
import pytest
from obstore.store import MemoryStore

import accel
from accel.cache.cache_key import file_key
from accel.errors import IndexFormatError, SchemaMismatchError
from accel.metrics import Metrics
from accel.planning.handle import FileHandle
from accel.runtime import io_loop
from accel.scanning.file_stream import FileStream
from accel.store.clients import client_for
from accel.testing import DictStore, Layout, RecordingStore, table, write_file
from tests.unit.scanning.many_files import ROWS, many_files

FILES = 300


@pytest.fixture(scope="module")
def objects() -> dict[str, bytes]:
    return many_files(FILES)


@pytest.fixture
def store(objects: dict[str, bytes]) -> RecordingStore:
    return RecordingStore(DictStore(objects))


@pytest.fixture
def cache(store: RecordingStore) -> accel.Cache:
    """One that holds all of them."""
    cache = accel.Cache(data=0)
    accel.plan("d/", columns=[], store=store, cache=cache)
    store.clear()
    return cache


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that are planned one by one."""
    from accel.scanning.resolved_source import ResolvedSource

    seen: list[str] = []
    plain = ResolvedSource.plan_file

    async def plan_file(self: ResolvedSource, file: Any, opened: Any = None) -> Any:
        seen.append(file.path)
        return await plain(self, file, opened)

    monkeypatch.setattr(ResolvedSource, "plan_file", plan_file)
    return seen


def test_only_what_may_match_is_planned(
    store: RecordingStore, cache: accel.Cache, planned: list[str]
) -> None:
    plan = accel.plan("d/", "key IN (801, 402)", store=store, cache=cache)
    assert [(task.path, task.row_group) for task in plan.tasks] == [
        ("d/0100.parquet", 1),
        ("d/0200.parquet", 0),
    ]
    # The first is the question's.
    assert planned == ["d/0000.parquet", "d/0100.parquet", "d/0200.parquet"]
    assert store.requests == 1  # the listing
    told = plan.explain()
    assert (told.files, told.row_groups, told.rows) == ((2, FILES), (2, 2 * FILES), (4, ROWS * FILES))
    assert told.round_trips == {"listing": 1, "metadata": 0, "indexes": 0, "data": 0}


def test_a_scan_counts_them(store: RecordingStore, cache: accel.Cache, planned: list[str]) -> None:
    scan = accel.scan("d/", "key = 801", store=store, cache=cache)
    assert scan.to_table().to_pylist() == [{"key": 801}]
    assert planned == ["d/0000.parquet", "d/0200.parquet"]
    metrics = scan.metrics
    assert (metrics.files.total, metrics.files.kept) == (FILES, 1)
    assert (metrics.row_groups.total, metrics.row_groups.kept) == (2 * FILES, 1)
    assert metrics.rows.total == ROWS * FILES
    assert (metrics.metadata_hits, metrics.metadata_misses) == (FILES, 0)


def test_a_scan_that_finds_nothing_has_waited_for_the_listing(
    store: RecordingStore, cache: accel.Cache
) -> None:
    scan = accel.scan("d/", "key = -1", store=store, cache=cache)
    assert scan.to_table().num_rows == 0
    assert (scan.metrics.round_trips, scan.metrics.requests) == (1, 1)
    named = accel.scan(list(store.inner.objects), "key = -1", store=store, cache=cache)  # type: ignore[attr-defined]
    assert named.count_rows() == 0
    assert (named.metrics.round_trips, named.metrics.requests) == (0, 0)


def test_files_that_are_not_cached_are_opened(
    store: RecordingStore, objects: dict[str, bytes], planned: list[str]
) -> None:
    cache = accel.Cache()
    some = list(objects)[:10]
    accel.plan([*some[:4], *some[6:]], columns=[], store=store, cache=cache)
    planned.clear()
    store.clear()
    plan = accel.plan(some, "key = 39", store=store, cache=cache)
    assert [task.path for task in plan.tasks] == [some[9]]
    # What has just been opened is judged as what is cached is.
    assert planned == [some[0], some[9]]
    assert {call.path for call in store.calls} == {some[4], some[5]}


def test_nothing_waits_for_the_question_of_a_cold_directory(store: RecordingStore) -> None:
    """The footers are one wave, though the first of them settles what is asked."""
    scan = accel.scan("d/", "key = 801", store=store, cache=accel.Cache())
    assert scan.to_table().num_rows == 1
    assert scan.metrics.round_trips <= 3


def test_stale_metadata_is_not_used_unasked(
    store: RecordingStore, objects: dict[str, bytes], planned: list[str]
) -> None:
    cache = accel.Cache(max_age=0)
    # A second request for a late answer would be counted.
    exact = accel.Options()
    some = list(objects)[:5]
    accel.plan(some, columns=[], store=store, cache=cache, options=exact)
    store.clear()
    planned.clear()
    assert accel.plan(some, "key = -1", store=store, cache=cache, options=exact).tasks == ()
    assert planned == some
    assert store.requests == 5
    # A listing that has just shown the same etags is as good.
    store.clear()
    planned.clear()
    assert accel.plan("d/", "key = -1", store=store, cache=cache, options=exact).tasks == ()
    assert store.requests == 1 + FILES - 5
    assert set(some[1:]).isdisjoint(planned)


def test_what_a_slow_scan_passes_over_is_known_since_it_was_listed(objects: dict[str, bytes]) -> None:
    """And not since it was passed over: what was written in between would go unnoticed for a `max_age`."""
    store, last = MemoryStore(), f"d/{FILES - 1:04d}.parquet"
    for name, data in objects.items():
        obstore.put(store, name, data)
    cache, options = accel.Cache(), accel.Options(max_files_in_flight=1, batch_rows=1)
    accel.plan("d/", columns=[], store=store, cache=cache)
    batches = iter(accel.scan("d/", f"key < {ROWS * (FILES - 1)}", store=store, cache=cache, options=options))
    next(batches)
    accel.write_table(table(key=pa.array([-1], pa.int64())), last, store=store)
    for _ in batches:
        pass
    assert accel.scan(last, store=store, cache=cache).to_table().to_pylist() == [{"key": -1}]


@pytest.mark.parametrize(
    "keywords",
    [
        {"where": None},
        {"where": "key = 801", "selection": {"d/0200.parquet": {0: [(0, 2)]}}},
        {"where": "key = 801", "embedded": {"key": "idx1"}},
    ],
    ids=["no predicate", "a selection", "a named IDX1"],
)
def test_what_has_more_to_say_is_planned_one_by_one(
    store: RecordingStore, cache: accel.Cache, planned: list[str], keywords: dict[str, Any]
) -> None:
    accel.plan("d/", store=store, cache=cache, **keywords)
    assert len(planned) == (1 if "selection" in keywords else FILES)


def test_a_selection_past_a_file_is_told_of_whatever_its_statistics_say(
    store: RecordingStore, cache: accel.Cache
) -> None:
    selection = {"d/0100.parquet": {0: [(0, 1)]}, "d/0200.parquet": {9: [(0, 1)]}}
    with pytest.raises(ValueError, match=r"selection names row group 9; d/0200\.parquet has 2"):
        accel.plan("d/", "key = 400", selection=selection, store=store, cache=cache)


def test_a_bad_table_of_indexes_is_told_of_whatever_the_statistics_say(
    store: RecordingStore, cache: accel.Cache
) -> None:
    token = client_for("store:", store=store, options=accel.Options()).token
    handle = cache.get(file_key(token, "d/0007.parquet"))
    assert isinstance(handle, FileHandle)
    handle.bad_toc = IndexFormatError("the table of indexes is damaged")
    scan = accel.scan("d/", "key = 801", store=store, cache=cache)
    assert scan.to_table().num_rows == 1
    assert scan.metrics.indexes_ignored == 1


def paths(*names: str) -> Iterator[pa.RecordBatch]:
    """What mapInArrow passes: columns then go by their position."""
    return iter([pa.RecordBatch.from_pydict({"path": list(names)})])


def test_columns_by_position_are_checked_of_every_file(store: RecordingStore) -> None:
    inner = DictStore({})
    for name, column in (("a", "key"), ("b", "key"), ("c", "other")):
        inner.put(name, write_file(table(**{column: pa.array([1], pa.int64())})))
    cache = accel.Cache()
    for name in "abc":
        accel.plan(name, store=inner, cache=cache)
    with pytest.raises(SchemaMismatchError, match="differ in name or order"):
        accel.plan(paths("a", "b", "c"), "key = 5", store=inner, cache=cache)


async def test_columns_by_position_are_those_of_the_first_file_whichever_comes_first() -> None:
    one = pa.array([1], pa.int64())
    inner = DictStore({"a": write_file(table(x=one, y=one)), "b": write_file(table(y=one, x=one))})

    class FirstIsLate(RecordingStore):
        async def read(self, path: str, want: Any, *, if_match: str | None = None) -> Any:
            if path == "a":
                await asyncio.sleep(0.2)
            return await super().read(path, want, if_match=if_match)

    scan = accel.scan(paths("a", "b"), store=FirstIsLate(inner), cache=None)
    with pytest.raises(SchemaMismatchError, match="differ in name or order"):
        await scan.to_table_async()


@pytest.mark.parametrize("cold", [True, False], ids=["opened", "cached"])
def test_columns_by_position_are_checked_of_what_statistics_exclude(cold: bool) -> None:
    """Whether a file has just been opened, ahead of its turn, or was known."""
    columns = ["key", "key", "key", "key", "key", "other"]
    inner = DictStore(
        {str(at): write_file(table(**{name: pa.array([1], pa.int64())})) for at, name in enumerate(columns)}
    )
    cache = accel.Cache()
    if not cold:
        accel.plan(list(inner.objects), columns=[], store=inner, cache=cache)
    with pytest.raises(SchemaMismatchError, match="differ in name or order"):
        accel.plan(paths(*inner.objects), "key = 5", store=inner, cache=cache)


def test_a_partition_that_does_not_fit_is_told_in_its_turn() -> None:
    """It seems to exclude its file, and the schema has it for what it cannot be."""
    store = DictStore({f"d/p={p}/a": write_file(table(key=pa.array([p], pa.int64()))) for p in (3, 4, 500)})
    cache = accel.Cache()
    accel.plan("d/", columns=[], store=store, cache=cache)
    schema = pa.schema([("key", pa.int64()), ("p", pa.int8())])
    seen: list[int] = []
    with pytest.raises(SchemaMismatchError, match="does not fit") as caught:
        for batch in accel.scan("d/", "p <= 4", schema=schema, store=store, cache=cache):
            seen += batch.column(0).to_pylist()
    assert (seen, caught.value.path) == ([3, 4], "d/p=500/a")


def test_a_limit_ends_the_sweep(store: RecordingStore, cache: accel.Cache) -> None:
    scan = accel.scan("d/", "key >= 400", limit=3, store=store, cache=cache)
    assert scan.to_table()["key"].to_pylist() == [400, 401, 402]
    # What comes after the files that were enough, one of them ahead, is not looked at.
    assert 101 <= scan.metrics.files.total <= 103


def test_long_sweeps_leave_the_loop_to_others(objects: dict[str, bytes]) -> None:
    """By the count of the loop's rounds: several thousand files are not judged in one go."""
    store = DictStore({f"d/{at:05d}.parquet": objects["d/0001.parquet"] for at in range(3000)})
    cache = accel.Cache()
    accel.plan("d/", columns=[], store=store, cache=cache)
    rounds = 0

    async def count() -> None:
        nonlocal rounds
        while True:
            await asyncio.sleep(0)
            rounds += 1

    async def both() -> int:
        counting = asyncio.create_task(count())
        await accel.plan_async("d/", "key = -1", store=store, cache=cache)
        counting.cancel()
        return rounds

    assert io_loop.run(both()) > 5


async def test_many_may_take_from_one_stream(store: RecordingStore, cache: accel.Cache) -> None:
    taken: list[int] = []

    async def take(stream: FileStream) -> None:
        while (left := await stream.next()) is not None:
            taken.append(left[0])
            await asyncio.sleep(0)

    async def work() -> None:
        engine = accel.scan("d/", "key IN (5, 801, 1100)", store=store, cache=cache).engine
        from accel.reader.reader import Tails

        source = engine.resolved(Metrics(), Tails.DROP)
        pruned: dict[int, Any] = {}
        stream = FileStream(source, pruned=pruned)
        async with asyncio.TaskGroup() as group:
            for _ in range(7):
                group.create_task(take(stream))
        assert sorted([*taken, *pruned]) == list(range(FILES))

    await io_loop.bridge(work())
    assert sorted(taken) == [0, 1, 200, 275]


# -- counting ----------------------------------------------------------------------------------------


class ChangesOnce:
    """A store whose object is replaced once its metadata has been read."""

    def __init__(self, first: bytes, then: bytes) -> None:
        self.inner = DictStore({"f.parquet": first})
        self._then = then

    async def read(self, path: str, want: Any, *, if_match: str | None = None) -> Any:
        if if_match is not None and self.inner.objects[path] is not self._then:
            self.inner.put(path, self._then)
        return await self.inner.read(path, want, if_match=if_match)


def test_a_file_that_is_planned_again_counts_once() -> None:
    def version(first: int) -> bytes:
        keys = pa.array(range(first, first + 4000), pa.int64())
        return write_file(
            table(key=keys), Layout(group_rows=1000, page_rows=100, dictionary=False, codec="none")
        )

    store = ChangesOnce(version(0), version(500))
    scan = accel.scan(
        "f.parquet", "key < 1200", store=store, cache=accel.Cache(), options=accel.Options(tail_hint=4096)
    )
    assert scan.to_table()["key"].to_pylist() == list(range(500, 1200))
    metrics = scan.metrics
    assert metrics.replans == 1
    assert (metrics.files.total, metrics.files.kept) == (1, 1)
    assert (metrics.row_groups.total, metrics.row_groups.kept) == (4, 1)
    assert (metrics.pages.total, metrics.pages.kept) == (10, 7)
    assert (metrics.rows.total, metrics.rows.kept) == (4000, 700)
