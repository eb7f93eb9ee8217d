"""`timeout=` of every verb: TimeoutError in time, the old files as they were, nothing in flight."""

from __future__ import annotations

import asyncio
import pathlib
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.catalog.inspecting import inspect_index, verify_index
from accel.runtime import io_loop
from accel.runtime.time_limits import check_time, time_limit, without_limit
from accel.testing import DictStore

SOON = 0.2


class SlowStore(DictStore):
    """A store in memory that answers only when it is let."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        super().__init__(objects)
        self.waits = 0
        self.waiting = 0

    async def _wait(self) -> None:
        self.waits += 1
        self.waiting += 1
        try:
            await asyncio.sleep(60)
        finally:
            self.waiting -= 1

    async def read(self, path: str, want: Any, *, if_match: str | None = None) -> Any:
        await self._wait()

    async def head(self, path: str) -> Any:
        await self._wait()

    async def write(self, path: str, parts: Any, *, size: int, **conditions: Any) -> None:
        await self._wait()

    async def pages(self, prefix: str, *, after: str | None = None) -> AsyncIterator[Any]:
        await self._wait()
        yield ()


@pytest.fixture
def store(tmp_path: pathlib.Path) -> SlowStore:
    pq.write_table(pa.table({"a": range(100)}), tmp_path / "f.parquet")
    return SlowStore({"d/f.parquet": (tmp_path / "f.parquet").read_bytes()})


TABLE = pa.table({"a": list(range(100))})
BLOCKING: dict[str, Callable[..., object]] = {
    "scan": lambda **given: accel.scan("d/f.parquet", **given).to_table(),
    "count_rows": lambda **given: accel.scan("d/f.parquet", "a > 1", **given).count_rows(),
    "schema": lambda **given: accel.scan("d/f.parquet", **given).schema,
    "explain": lambda **given: accel.scan("d/f.parquet", **given).explain(),
    "plan": lambda **given: accel.plan("d/f.parquet", **given),
    "distinct": lambda **given: accel.distinct("d/f.parquet", "a", **given),
    "rows": lambda **given: accel.rows("d/f.parquet", 0, 1, **given),
    "embed": lambda **given: accel.embed("d/f.parquet", indexes={"a": "distinct"}, **given),
    "embed_files": lambda **given: accel.embed_files("d/", indexes={"a": "distinct"}, **given),
    "optimize": lambda **given: accel.optimize("d/", **given),
    "build_index": lambda **given: accel.build_index("d/", **given),
    "refresh_index": lambda **given: accel.refresh_index("d/_accel/", **given),
    "compact_index": lambda **given: accel.compact_index("d/_accel/", **given),
    "vacuum_index": lambda **given: accel.vacuum_index("d/_accel/", **given),
    "inspect_index": lambda **given: inspect_index("d/_accel/", **given),
    "verify_index": lambda **given: verify_index("d/_accel/", **given),
    "spark.compact_index": lambda **given: accel.spark.compact_index(None, "d/_accel/", **given),  # type: ignore[arg-type]
    "write_table": lambda **given: accel.write_table(TABLE, "d/g.parquet", **given),
}
ASYNC: dict[str, Callable[..., Any]] = {
    "scan": lambda **given: accel.scan("d/f.parquet", **given).to_table_async(),
    "plan": lambda **given: accel.plan_async("d/f.parquet", **given),
    "distinct": lambda **given: accel.distinct_async("d/f.parquet", "a", **given),
    "rows": lambda **given: accel.rows_async("d/f.parquet", 0, 1, **given),
    "embed": lambda **given: accel.embed_async("d/f.parquet", indexes={"a": "distinct"}, **given),
    "embed_files": lambda **given: accel.embed_files_async("d/", indexes={"a": "distinct"}, **given),
    "optimize": lambda **given: accel.optimize_async("d/", **given),
    "build_index": lambda **given: accel.build_index_async("d/", **given),
    "refresh_index": lambda **given: accel.refresh_index_async("d/_accel/", **given),
    "compact_index": lambda **given: accel.compact_index_async("d/_accel/", **given),
    "vacuum_index": lambda **given: accel.vacuum_index_async("d/_accel/", **given),
}


def still_in_flight(store: SlowStore) -> int:
    until = time.monotonic() + 10
    while store.waiting and time.monotonic() < until:
        time.sleep(0.01)
    return store.waiting


@pytest.mark.parametrize("verb", BLOCKING.values(), ids=BLOCKING.keys())
def test_a_blocking_call_ends_in_time(verb: Callable[..., object], store: SlowStore) -> None:
    before = dict(store.objects)
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"not done within 0\.2 seconds") as caught:
        verb(store=store, timeout=SOON)
    assert isinstance(caught.value, accel.ScanTimeoutError)
    assert time.monotonic() - began < 30
    assert store.waits > 0
    assert still_in_flight(store) == 0
    assert store.objects == before


@pytest.mark.parametrize("verb", ASYNC.values(), ids=ASYNC.keys())
async def test_an_async_call_ends_in_time(verb: Callable[..., Any], store: SlowStore) -> None:
    before = dict(store.objects)
    with pytest.raises(TimeoutError, match=r"not done within 0\.2 seconds"):
        await verb(store=store, timeout=SOON)
    assert store.waits > 0
    assert await asyncio.to_thread(still_in_flight, store) == 0
    assert store.objects == before


@pytest.mark.parametrize("verb", BLOCKING.values(), ids=BLOCKING.keys())
@pytest.mark.parametrize(
    ("timeout", "wrong"), [(0, ValueError), (float("inf"), ValueError), ("1", TypeError)]
)
def test_what_is_no_time_is_refused(
    verb: Callable[..., object], timeout: Any, wrong: type[Exception], store: SlowStore
) -> None:
    with pytest.raises(wrong, match="timeout is a number of seconds"):
        verb(store=store, timeout=timeout)
    assert store.waits == 0


def test_a_call_that_is_done_in_time_returns(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "f.parquet")
    assert accel.write_table(TABLE, path, timeout=60).rows == 100
    assert accel.embed(path, indexes={"a": "distinct"}, timeout=60).rows == 100
    assert accel.embed_files(str(tmp_path), indexes={"a": "distinct"}, timeout=60).skipped == 1
    assert accel.optimize(str(tmp_path), timeout=60).rows == 100
    assert accel.build_index(str(tmp_path), timeout=60).files == 1


def test_the_nearer_of_two_limits_holds() -> None:
    async def wait() -> None:
        await asyncio.sleep(60)

    with (
        pytest.raises(accel.ScanTimeoutError, match=r"within 0\.05 seconds"),
        time_limit(0.05),
        time_limit(60),
    ):
        io_loop.run(wait())
    with (
        pytest.raises(accel.ScanTimeoutError, match=r"within 0\.05 seconds"),
        time_limit(60),
        time_limit(0.05),
    ):
        io_loop.run(wait())


def test_what_ends_a_call_is_not_limited() -> None:
    async def clean_up() -> str:
        await asyncio.sleep(0.05)
        return "clean"

    with time_limit(0.01):
        time.sleep(0.02)
        with pytest.raises(accel.ScanTimeoutError):
            check_time()
        with pytest.raises(accel.ScanTimeoutError):
            io_loop.run(clean_up())
        with without_limit():
            check_time()
            assert io_loop.run(clean_up()) == "clean"
    check_time()


def test_other_threads_have_their_own() -> None:
    said: list[str] = []

    def other() -> None:
        check_time()
        said.append("free")

    with time_limit(0.001):
        time.sleep(0.01)
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert said == ["free"]


def test_a_timeout_of_the_work_itself_stays_that() -> None:
    async def fail() -> None:
        raise TimeoutError("of the work")

    with time_limit(60), pytest.raises(TimeoutError, match="of the work") as caught:
        io_loop.run(fail())
    assert not isinstance(caught.value, accel.ScanTimeoutError)
