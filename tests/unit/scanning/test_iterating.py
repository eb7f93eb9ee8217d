"""The iterators of a scan: how they end, closed, dropped or by an error."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import get_type_hints

import pyarrow as pa
import pytest

import accel
from accel.ranges import ByteRange
from accel.runtime import io_loop
from accel.testing import DictStore, Layout, table, write_file

pytestmark = pytest.mark.usefixtures("few_to_collect")

ROWS = 1000
BLOB = write_file(table(key=pa.array(range(ROWS))), Layout(group_rows=100, dictionary=False))


class Held(DictStore):
    """Answers no data of the file "held" until it is let go."""

    def __init__(self) -> None:
        super().__init__({"f": BLOB, "g": BLOB, "held": BLOB})
        self.asked, self.go = threading.Event(), threading.Event()

    async def read(self, path, want, *, if_match=None):  # type: ignore[no-untyped-def]
        if path == "held" and isinstance(want, ByteRange):
            self.asked.set()
            while not self.go.is_set():
                await asyncio.sleep(0.001)
        return await super().read(path, want, if_match=if_match)


def scan_of(*paths: str, store: DictStore | None = None) -> accel.Scan:
    options = accel.Options(batch_rows=10, piece_bytes=1000, tail_hint=8, max_tasks_in_flight=1)
    return accel.scan(list(paths), store=store or Held(), cache=None, options=options)


def tasks_left() -> int:
    async def count() -> int:
        return len(asyncio.all_tasks()) - 1

    return io_loop.run(count())


def tasks_end(before: int) -> bool:
    """Whether they do, of what nobody waits for."""
    deadline = time.monotonic() + 10
    while tasks_left() > before and time.monotonic() < deadline:
        time.sleep(0.001)
    return tasks_left() <= before


def drop(batches: object) -> None:
    """By the garbage collector, as what is in a cycle is dropped."""
    cycle: list[object] = [batches]
    cycle.append(cycle)


@pytest.mark.parametrize("collected", [True, False], ids=["collected", "at once"])
def test_one_is_dropped_under_a_lock_that_the_io_loop_waits_for(collected: bool) -> None:
    before = tasks_left()
    batches = iter(scan_of("f", "g"))
    next(batches)
    lock, waits = threading.Lock(), threading.Event()
    came: list[bool] = []

    def wait() -> None:
        waits.set()
        came.append(lock.acquire(timeout=10))

    with lock:
        io_loop.io_loop().call_soon_threadsafe(wait)
        assert waits.wait(10)
        if collected:
            drop(batches)
        del batches
        gc.collect()
    assert tasks_end(before)
    assert came == [True]


class Silent(DictStore):
    """No data of the file "held" comes; notes how those who waited for it were ended."""

    def __init__(self, ended: list[str]) -> None:
        super().__init__({"f": BLOB, "held": BLOB})
        self._ended = ended

    async def read(self, path, want, *, if_match=None):  # type: ignore[no-untyped-def]
        if path == "held" and isinstance(want, ByteRange):
            try:
                await asyncio.get_running_loop().create_future()
            except BaseException as error:
                self._ended.append(type(error).__name__)
                raise
        return await super().read(path, want, if_match=if_match)


@pytest.mark.parametrize("face", ["for", "async for"])
def test_collected_with_its_store_it_is_cancelled_and_not_destroyed(
    face: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = tasks_left()
    ended: list[str] = []
    scan = scan_of("f", "held", store=Silent(ended))

    async def go(batches: AsyncIterator[pa.RecordBatch]) -> None:
        for _ in range(ROWS // 10):
            await anext(batches)
        drop(batches)

    def take(batches: Iterator[pa.RecordBatch]) -> None:
        for _ in range(ROWS // 10):
            next(batches)
        drop(batches)

    if face == "for":
        take(iter(scan))
    else:
        asyncio.run(go(aiter(scan)))
    while not tasks_left() > before:
        time.sleep(0.001)
    del scan
    gc.collect()
    assert tasks_end(before)
    assert set(ended) == {"CancelledError"}
    assert caplog.messages == []


EXITS = """
import asyncio, sys
import accel
from accel.testing import DictStore, Layout, table, write_file
import pyarrow as pa
blob = write_file(table(key=pa.array(range(1000))), Layout(group_rows=100))
async def main():
    async for batch in accel.scan(["f", "f"], store=DictStore({"f": blob}), options=accel.Options(batch_rows=10)):
        sys.exit(7)
asyncio.run(main())
"""


def test_an_exit_inside_async_for_is_quiet() -> None:
    done = subprocess.run(
        [sys.executable, "-c", EXITS], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")


def test_closing_a_scan_waits_for_what_was_dropped() -> None:
    before = tasks_left()
    with scan_of("f", "g") as scan:
        for _ in scan:
            break
    assert tasks_left() == before


def test_closed_it_gives_no_more() -> None:
    before = tasks_left()
    batches = iter(scan_of("f", "g"))
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert tasks_left() == before
    assert list(batches) == []
    batches.close()  # type: ignore[attr-defined]


async def test_aclosed_it_gives_no_more() -> None:
    before = tasks_left()
    batches = aiter(scan_of("f", "g"))
    await anext(batches)
    await batches.aclose()  # type: ignore[attr-defined]
    assert tasks_left() == before
    assert [batch async for batch in batches] == []


def test_closed_before_it_has_begun() -> None:
    store = Held()
    batches = iter(scan_of("held", store=store))
    batches.close()  # type: ignore[attr-defined]
    assert list(batches) == []
    assert not store.asked.is_set()


@pytest.mark.parametrize("face", ["for", "async for"])
def test_an_error_ends_it(face: str) -> None:
    scan = scan_of("f", "missing")
    rows = 0

    async def go() -> None:
        nonlocal rows
        batches = aiter(scan)
        with pytest.raises(accel.ObjectNotFoundError):
            while True:
                rows += (await anext(batches)).num_rows
        assert [batch async for batch in batches] == []

    if face == "async for":
        asyncio.run(go())
    else:
        batches = iter(scan)
        with pytest.raises(accel.ObjectNotFoundError):
            while True:
                rows += next(batches).num_rows
        assert list(batches) == []
    assert rows == ROWS


def test_two_do_not_take_from_it_at_once() -> None:
    store = Held()
    batches = iter(scan_of("held", store=store))
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(next, batches)
        assert store.asked.wait(10)
        with pytest.raises(ValueError, match="is being taken already"):
            next(batches)
        store.go.set()
        assert first.result(10).num_rows == 10
    assert sum(batch.num_rows for batch in batches) == ROWS - 10


def test_closed_by_another_thread_it_says_so() -> None:
    before = tasks_left()
    store = Held()
    batches = iter(scan_of("held", store=store))
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(next, batches)
        assert store.asked.wait(10)
        batches.close()  # type: ignore[attr-defined]
        with pytest.raises(accel.AccelError, match="closed before its end"):
            first.result(10)
    assert tasks_left() == before


def test_a_type_checker_knows_how_to_stop_early() -> None:
    assert hasattr(get_type_hints(accel.Scan.to_batches)["return"], "close")
    assert hasattr(get_type_hints(accel.Scan.__aiter__)["return"], "aclose")


@pytest.mark.parametrize("values", [["a", "b"], [0.5, 1.5], [[1], [2]]], ids=["texts", "as wide", "lists"])
def test_a_stream_has_the_schema_that_was_told(values: list[object]) -> None:
    """Whoever takes a C stream reads the buffers by the schema: of other types they would be read as what
    they are not."""
    store = DictStore({"f": BLOB})
    scan = accel.scan("f", store=store, cache=accel.Cache(max_age=0))
    assert scan.schema.types == [pa.int64()]
    store.put("f", write_file(table(key=values)))
    with pytest.raises(accel.ObjectChangedError, match=r"^f: there are other columns"):
        scan.to_reader().read_all()
    assert pa.table(scan)["key"].to_pylist() == values
    store.put("f", BLOB)
    with pytest.raises(OSError, match="there are other columns"):
        pa.table(scan)
    assert pa.table(scan)["key"].to_pylist() == list(range(ROWS))
