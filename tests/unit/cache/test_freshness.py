"""Freshness: cached metadata is confirmed, and not used after this process has written the file."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.cache.cache import Cache
from accel.cache.freshness import MetadataFreshness
from accel.errors import ObjectChangedError, StoreError
from accel.metrics import Metrics
from accel.options import Options
from accel.planning.file_entry import FileEntry
from accel.ranges import ObjectId
from accel.store import writes
from accel.store.client import Client
from accel.store.writes import put_object, written_since
from accel.testing import DictStore, RecordingStore


@pytest.mark.parametrize(
    ("etag", "listed_size", "listed_etag", "usable"),
    [
        pytest.param('"v1"', None, None, True, id="not listed"),
        pytest.param('"v1"', 100, None, True, id="of its size"),
        pytest.param('"v1"', 101, None, False, id="of another size"),
        pytest.param('"v1"', 100, '"v1"', True, id="of its version"),
        pytest.param('"v1"', 101, '"v1"', False, id="of its version and another size"),
        pytest.param('"v1"', 100, '"v2"', False, id="of another version"),
        pytest.param(None, 100, None, False, id="of no version"),
    ],
)
def test_a_young_handle_is_used_unless_a_listing_shows_another_file(
    etag: str | None, listed_size: int | None, listed_etag: str | None, usable: bool
) -> None:
    freshness = MetadataFreshness(Cache(max_age=60), Metrics())
    client = Client(DictStore(), root="store:", token="t", options=Options())
    handle: Any = SimpleNamespace(id=ObjectId("f", 100, etag), etag=etag, size=100, checked_at=1000.0)
    file = FileEntry("store:", "f", "f", listed_size, listed_etag, ())
    assert freshness.is_usable(client, handle, file=file, now=1001.0) is usable


@pytest.mark.parametrize(
    ("listed_at", "now", "checked_at"),
    [
        pytest.param(2000.0, 2000.1, 2000.0, id="used at once"),
        pytest.param(2000.0, 9000.0, 2000.0, id="used long after"),
        pytest.param(500.0, 2000.0, 1000.0, id="listed before it was checked"),
    ],
)
def test_a_listing_is_a_check_of_when_it_was_begun(listed_at: float, now: float, checked_at: float) -> None:
    freshness = MetadataFreshness(Cache(max_age=60), Metrics())
    client = Client(DictStore(), root="store:", token="t", options=Options())
    handle: Any = SimpleNamespace(id=ObjectId("f", 100, '"v1"'), etag='"v1"', size=100, checked_at=1000.0)
    freshness.note_listing(listed_at)
    assert freshness.is_usable(client, handle, file=FileEntry("store:", "f", "f", 100, '"v1"', ()), now=now)
    assert handle.checked_at == checked_at


@pytest.fixture(autouse=True)
def nothing_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writes, "recent_writes", writes.RecentWrites(3))


class Shelf(DictStore):
    """Takes objects, unless told to fail when it has them."""

    lost = False

    async def write(
        self, path: str, parts: AsyncIterator[bytes], *, size: int, if_match: str | None = None
    ) -> None:
        self.put(path, b"".join([part async for part in parts]))
        if self.lost:
            raise StoreError("the answer was lost", path=path)


def client(store: DictStore, root: str = "s3://one") -> Client:
    return Client(store, root=root, token="t", options=Options())


async def parts(data: bytes = b"abc") -> AsyncIterator[bytes]:
    yield data


def put(to: Client, path: str) -> None:
    asyncio.run(put_object(to, path, parts=parts(), size=3))


def test_what_was_known_before_is_in_doubt() -> None:
    store = Shelf()
    before = time.monotonic()
    assert not written_since("s3://one", "a", moment=before)
    put(client(store), "a")
    assert store.objects == {"a": b"abc"}
    assert written_since("s3://one", "a", moment=before)
    assert not written_since("s3://one", "a", moment=time.monotonic() + 1e-3)
    assert not written_since("s3://one", "b", moment=before)
    assert not written_since("s3://two", "a", moment=before)


def test_a_write_that_failed_may_have_been_done() -> None:
    store = Shelf()
    store.lost = True
    before = time.monotonic()
    with pytest.raises(StoreError, match="the answer was lost"):
        put(client(store), "a")
    assert written_since("s3://one", "a", moment=before)


def test_more_than_are_remembered_leave_all_older_ones_in_doubt() -> None:
    to, before = client(Shelf()), time.monotonic()
    for path in "abcd":
        put(to, path)
    # "a" is remembered no more; so what was known before it was written is asked for anew, of any object.
    assert all(written_since("s3://one", path, moment=before) for path in "abcdz")
    assert not written_since("s3://one", "z", moment=time.monotonic() + 1e-3)
    assert len(writes.recent_writes) == 3


def test_what_was_asked_for_is_remembered_longer_and_leaves_younger_ones_in_doubt() -> None:
    to = client(Shelf())
    put(to, "a")
    put(to, "b")
    between = time.monotonic()
    put(to, "c")
    written_since("s3://one", "a", moment=between)
    for path in "def":  # in the places of "b", "c", and at last "a", which was written before these
        put(to, path)
    assert list(writes.recent_writes) == [("s3://one", path) for path in "def"]
    assert written_since("s3://one", "c", moment=between)


def test_a_store_that_takes_nothing() -> None:
    with pytest.raises(StoreError, match="cannot be written to"):
        put(client(RecordingStore(DictStore())), "a")
    assert not writes.recent_writes


@pytest.mark.parametrize("disk", [False, True])
def test_rows_after_an_overwrite(bucket: str, s3_options: dict[str, str], tmp_path: Path, disk: bool) -> None:
    """A cache that trusts what it holds for an hour, in memory or on disk, shows this process's own rows."""
    url = f"s3://{bucket}/a.parquet"
    cache = accel.Cache(max_age=3600.0, disk=tmp_path if disk else None)

    def values() -> tuple[list[int], int]:
        scan = accel.scan(url, "x >= 0", storage_options=s3_options, cache=cache)
        return scan.to_table()["x"].to_pylist(), scan.metrics.requests

    for first in (0, 100, 200):
        table = pa.table({"x": np.arange(first, first + 50)})
        accel.write_table(table, url, storage_options=s3_options)
        assert values()[0] == list(range(first, first + 50))
        assert values() == (list(range(first, first + 50)), 0)
        if disk:
            cache = accel.Cache(max_age=3600.0, disk=tmp_path)


def noisy(first: int) -> pa.Table:
    """More than comes with a file's footer."""
    x = np.arange(first, first + 300_000)
    return pa.table({"x": x, "y": np.random.default_rng(first).random(len(x))})


def test_a_plan_of_the_version_before(bucket: str, s3_options: dict[str, str]) -> None:
    """Its data is cached whole, and yet it is told that the object has changed."""
    url, cache = f"s3://{bucket}/a.parquet", accel.Cache(max_age=3600.0)
    accel.write_table(noisy(0), url, storage_options=s3_options)
    asked: dict[str, Any] = {"storage_options": s3_options, "cache": cache}
    plan = accel.plan(url, "x >= 1000 AND x < 1010", **asked)
    for requests in (4, 0):
        scan = accel.scan(plan, **asked)
        assert scan.to_table()["x"].to_pylist() == list(range(1000, 1010))
        assert scan.metrics.requests == requests
    accel.write_table(noisy(7), url, storage_options=s3_options)
    with pytest.raises(ObjectChangedError):
        accel.scan(plan, **asked).to_table()
    assert accel.scan(url, "x < 9", **asked).to_table()["x"].to_pylist() == [7, 8]


def test_an_index_put_into_a_file_that_is_cached(bucket: str, s3_options: dict[str, str]) -> None:
    url = f"s3://{bucket}/a.parquet"
    asked: dict[str, Any] = {
        "storage_options": s3_options,
        "cache": accel.Cache(max_age=3600.0),
        "options": accel.Options(probe_min_bytes=0),
    }
    x = np.random.default_rng(5).permutation(100_000) * 2
    accel.write_table(pa.table({"x": x}), url, storage_options=s3_options)
    before = accel.scan(url, "x = 77", **asked)
    assert before.to_table().num_rows == 0
    assert before.metrics.pages.kept > 0
    accel.embed(url, indexes={"x": "bitmap"}, storage_options=s3_options)
    after = accel.scan(url, "x = 77", **asked)
    assert after.to_table().num_rows == 0
    # The index says that it is nowhere.
    assert after.metrics.pages.kept == 0
