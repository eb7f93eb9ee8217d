"""Names that may be a file's or a directory's: told apart by what the store says now, at once where that is known to help."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.metrics import Metrics
from accel.ranges import Kind
from accel.reader.reader import Reader
from accel.scanning.finder import Finder
from accel.scanning.scan_spec import ScanSpec
from accel.store.client import client_for
from accel.store.range_store import ObjectEntry
from accel.testing import DictStore, Layout, RecordingStore, table, write_file

OPTIONS = accel.Options(tail_hint=4096, max_gap_bytes=0)
NAME = "t/x.parquet"


def file(first: int, rows: int = 3000) -> bytes:
    noise = np.random.default_rng(first).standard_normal(rows)
    columns = table(k=pa.array(np.arange(first, first + rows)), noise=pa.array(noise))
    return write_file(columns, Layout(page_rows=500, dictionary=False))


class Listed(DictStore):
    """A store whose listings can fail."""

    failure: Exception | None = None

    async def list(self, prefix: str) -> AsyncIterator[ObjectEntry]:
        if self.failure is not None:
            raise self.failure
        async for entry in super().list(prefix):
            yield entry


@pytest.fixture
def folder() -> Listed:
    return Listed({f"{NAME}/part-{i}": file(10_000 * i) for i in range(2)})


@pytest.fixture
def cache() -> accel.Cache:
    return accel.Cache(data=0)


def scan(store: object, cache: accel.Cache | None, where: str = "noise > 0") -> accel.Scan:
    return accel.scan(NAME, where, columns=["k"], store=store, cache=cache, options=OPTIONS)  # type: ignore[arg-type]


def firsts(scan: accel.Scan) -> list[int]:
    """The thousands that rows come from."""
    return list(dict.fromkeys(k // 10_000 for k in scan.to_table()["k"].to_pylist()))


def test_a_directory_named_like_a_file_is_known_as_one_afterwards(folder: Listed, cache: accel.Cache) -> None:
    store = RecordingStore(folder)
    seen = []
    for _ in range(3):
        store.clear()
        found = scan(store, cache)
        assert firsts(found) == [0, 1]
        assert found.metrics.round_trips == store.depth
        seen.append((store.depth, found.metrics.requests_by_kind[Kind.LISTING], found.metrics.restarts))
    # The name, the listing, the footers, the data; then all at once.
    assert seen == [(4, 1, 0), (1, 1, 0), (1, 1, 0)]


def test_what_is_below_is_asked_for_along_with_the_name_where_nothing_is_kept_of_it(folder: Listed) -> None:
    store, cache = RecordingStore(folder), accel.Cache(memory=0, data=0)
    depths = []
    for _ in range(2):
        store.clear()
        assert firsts(scan(store, cache)) == [0, 1]
        depths.append(store.depth)
    assert depths == [4, 3]
    for _ in range(2):
        store.clear()
        assert firsts(scan(store, None)) == [0, 1]
        assert store.depth == 4


def test_plans_do_so_too(folder: Listed, cache: accel.Cache) -> None:
    store = RecordingStore(folder)
    depths = []
    for _ in range(2):
        store.clear()
        plan = accel.plan(NAME, "k < 5", store=store, cache=cache, options=OPTIONS)
        assert [task.path for task in plan.tasks] == [f"{NAME}/part-0"]
        depths.append((store.depth, plan.explain().round_trips["listing"]))
    assert depths == [(3, 2), (1, 1)]


def test_an_object_of_that_name_goes_first(folder: Listed, cache: accel.Cache) -> None:
    for _ in range(2):
        assert firsts(scan(folder, cache)) == [0, 1]
    folder.put(NAME, file(70_000))
    store = RecordingStore(folder)
    assert firsts(scan(store, cache)) == [7]
    store.clear()
    found = scan(store, cache)
    assert firsts(found) == [7]
    # It is no directory for all that is known.
    assert Kind.LISTING not in found.metrics.requests_by_kind
    assert store.depth == 1


def test_a_directory_that_is_gone(folder: Listed, cache: accel.Cache) -> None:
    for _ in range(2):
        firsts(scan(folder, cache))
    for path in list(folder.objects):
        folder.delete(path)
    for _ in range(2):
        with pytest.raises(accel.ObjectNotFoundError, match="no such object") as told:
            firsts(scan(folder, cache))
        assert told.value.path == NAME
    folder.put(NAME, file(10_000))
    assert firsts(scan(folder, cache)) == [1]


def test_a_listing_that_fails_is_told_unless_there_is_such_a_file(folder: Listed, cache: accel.Cache) -> None:
    for _ in range(2):
        firsts(scan(folder, cache))
    folder.failure = accel.StoreError("not yours", status=403)
    with pytest.raises(accel.StoreError, match="not yours"):
        firsts(scan(folder, cache))
    folder.put(NAME, file(70_000))
    assert firsts(scan(folder, cache)) == [7]


def test_a_file_that_cannot_be_read_is_told_whatever_is_below(folder: Listed, cache: accel.Cache) -> None:
    for _ in range(2):
        firsts(scan(folder, cache))
    folder.put(NAME, b"no Parquet file, though it has that name")
    with pytest.raises(accel.ParquetFormatError) as told:
        firsts(scan(folder, cache))
    assert told.value.path == NAME


def test_a_source_without_files() -> None:
    with pytest.raises(accel.ObjectNotFoundError, match="names no files"):
        accel.scan([], store=DictStore({}), cache=None).to_table()


def looked_for(source: object, cache: accel.Cache | None, *, store: object = None, **asked: Any) -> Finder:
    spec = ScanSpec(source=source, options=OPTIONS, **asked)
    reader = Reader(
        lambda root: client_for(root, store=store, options=OPTIONS),  # type: ignore[arg-type]
        cache=cache,
        options=OPTIONS,
        metrics=Metrics(),
    )
    return Finder(spec, reader, in_store=store is not None, cache=cache)


@pytest.mark.parametrize(
    "source",
    [
        "s3://b/d/",
        "s3://b/d",
        "s3://b/d/*.parquet",
        "s3://b",
        "gs://b/a=1/",
        "s3://b/d.parquet",
        "https://h/d",
    ],
)
def test_something_may_be_known_of_what_a_store_holds(source: str, cache: accel.Cache) -> None:
    assert looked_for(source, cache).assumes
    assert not looked_for(source, None).assumes


@pytest.mark.parametrize(
    "source",
    ["data/", "/data/*.parquet", "data.parquet", "file:///data/", "nothing://b/", ["s3://b/d/"], []],
)
def test_nothing_of_local_sources_lists_and_what_is_not_understood(
    source: object, cache: accel.Cache
) -> None:
    assert not looked_for(source, cache).assumes


def test_bare_names_are_of_the_store_that_the_caller_gave(folder: Listed, cache: accel.Cache) -> None:
    for source in ("t/", "t/x.parquet", "t/*"):
        assert looked_for(source, cache, store=folder).assumes


KEYED = [
    {},
    {"partitioning": None},
    {"partitioning": pa.schema([("a", pa.int8())])},
    {"schema": pa.schema([("a", pa.string())])},
    {"glob": False},
]


async def test_a_listing_is_known_to_those_who_ask_for_it_in_the_same_way(cache: accel.Cache) -> None:
    store = DictStore({f"d/a={i}/x": file(10_000 * i) for i in range(2)})
    for at, asked in enumerate(KEYED):
        listing = await looked_for("d/", cache, store=store, **asked).find()
        for other in KEYED[: at + 1]:
            assert looked_for("d/", cache, store=store, **other).recall() is not None
        for other in KEYED[at + 1 :]:
            assert looked_for("d/", cache, store=store, **other).recall() is None
        assert looked_for("d/", cache, store=store, **asked).recall() is listing


def test_a_file_whose_path_may_spell_a_column_is_asked_for_first(cache: accel.Cache) -> None:
    assert not looked_for("s3://b/a=1/d.parquet", cache).assumes
    keys = pa.schema([("a", pa.int8())])
    assert not looked_for("s3://b/1/d.parquet", cache, partitioning=keys).assumes
