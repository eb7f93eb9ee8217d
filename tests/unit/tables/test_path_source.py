"""Names that may be a file's or a directory's: told apart by what the store says now, at once where that is
known to help."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.metrics import Metrics
from accel.planning.file_entry import FileBlock
from accel.ranges import Kind
from accel.reader.reader import Reader
from accel.scanning.file_source import SourceRequest
from accel.store.clients import Connector
from accel.store.range_store import ObjectEntry
from accel.tables.path_source import PathSource
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


@pytest.mark.parametrize("remembered", [False, True])
def test_an_empty_object_beside_objects_below_its_name_marks_a_directory(
    folder: Listed, cache: accel.Cache, remembered: bool
) -> None:
    """Consoles and some writers leave one behind; an object with bytes is the file itself."""
    if remembered:
        assert firsts(scan(folder, cache)) == [0, 1]
    folder.put(NAME, b"")
    for _ in range(3):
        assert firsts(scan(folder, cache)) == [0, 1]
    folder.put(NAME, file(50_000))
    for _ in range(3):
        assert firsts(scan(folder, cache)) == [5]


def test_an_empty_object_alone_is_an_empty_file(cache: accel.Cache) -> None:
    with pytest.raises(accel.ParquetFormatError, match=r"^t/x\.parquet: the file is empty$"):
        scan(Listed({NAME: b"", "t/y.parquet/part-0": file(0)}), cache).to_table()


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
    store, cache = RecordingStore(folder), accel.Cache(memory=300, data=0)  # has no room for a handle
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


def request(cache: accel.Cache, store: object) -> SourceRequest:
    reader = Reader(
        Connector(storage_options=None, store=store, options=OPTIONS),
        cache=cache,
        options=OPTIONS,
        metrics=Metrics(),
    )
    return SourceRequest(reader=reader)


def source(name: object, cache: accel.Cache | None, **given: Any) -> PathSource:
    return PathSource(name, in_store=True, cache=cache, **given)


async def only_block(found: PathSource, asked: SourceRequest) -> FileBlock:
    (block,) = [block async for block in found.blocks(asked)]
    assert not block.more
    return block


@pytest.mark.parametrize("name", ["t/", "t/*", "t/x.parquet"])
async def test_a_source_is_expected_to_be_what_it_was(name: str, folder: Listed, cache: accel.Cache) -> None:
    asked = request(cache, folder)
    assert source(name, cache).expected(asked) is None
    block = await only_block(source(name, cache), asked)
    assert [file.path for file in block.files] == [f"{NAME}/part-0", f"{NAME}/part-1"]
    again = source(name, cache)
    assert again.expected(asked) is block or again.expected(asked) == replace(block, round_trips=1)
    assert source(name, None).expected(asked) is None
    folder.put(f"{NAME}/part-2", file(20_000))
    other = source(name, cache)
    expected = other.expected(asked)
    assert expected is not None
    assert await other.confirm(asked, expected) is None
    assert len((await only_block(other, asked)).files) == 3


KEYED = [
    {},
    {"partitioning": None},
    {"partitioning": pa.schema([("a", pa.int8())])},
    {"text_columns": ["a"]},
    {"glob": False},
]


async def test_a_listing_is_expected_by_those_who_list_in_the_same_way(cache: accel.Cache) -> None:
    store = DictStore({f"d/a={i}/x": file(10_000 * i) for i in range(2)})
    asked = request(cache, store)
    for at, given in enumerate(KEYED):
        block = await only_block(source("d/", cache, **given), asked)
        for other in KEYED[: at + 1]:
            assert source("d/", cache, **other).expected(asked) is not None
        for other in KEYED[at + 1 :]:
            assert source("d/", cache, **other).expected(asked) is None
        assert source("d/", cache, **given).expected(asked) is block
