"""`timeout=`: a call that takes longer ends with an error that says what it waited for, and leaves nothing in
flight."""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pyarrow as pa
import pytest

import accel
from accel.ranges import ByteRange, Suffix
from accel.runtime import io_loop
from accel.store.range_store import ObjectEntry, Payload, RangeStore
from accel.testing import DictStore, RecordingStore, table, write_file
from accel.testing.stores import StoreWrapper

FILES = {
    f"d/{at}.parquet": write_file(table(id=list(range(at * 9, at * 9 + 9)), name=["x" * 9] * 9))
    for at in range(3)
}
ROOMY = accel.Options(tail_hint=64)
"""So small a tail that rows are requests of their own."""


class StallingStore(StoreWrapper):
    """Answers so many reads and listings, and leaves the others waiting for ever."""

    def __init__(self, inner: RangeStore, *, answers: int) -> None:
        super().__init__(inner)
        self.left = answers

    async def _pass(self) -> None:
        self.left -= 1
        if self.left < 0:
            await asyncio.Event().wait()

    async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
        await self._pass()
        return await self.inner.read(path, want, if_match=if_match)

    async def _list_inner(self, prefix: str) -> AsyncIterator[ObjectEntry]:
        await self._pass()
        async for entry in super()._list_inner(prefix):
            yield entry


async def drain(scan: accel.Scan) -> None:
    async for _ in scan:
        pass


def blocking(call: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda source, **keywords: call(accel.scan(source, **keywords))


def awaited(call: Callable[[Any], Any]) -> Callable[..., Any]:
    async def run(source: Any, keywords: Any) -> Any:
        return await call(accel.scan(source, **keywords))

    return lambda source, **keywords: asyncio.run(run(source, keywords))


CALLS: dict[str, Callable[..., Any]] = {
    "to_table": blocking(lambda scan: scan.to_table()),
    "to_table_async": awaited(lambda scan: scan.to_table_async()),
    "for": blocking(list),
    "async for": awaited(drain),
    "reader": blocking(lambda scan: scan.to_reader().read_all()),
    "schema": blocking(lambda scan: scan.schema),
    "schema_async": awaited(lambda scan: scan.schema_async()),
    "head": blocking(lambda scan: scan.head(3)),
    "count": blocking(lambda scan: scan.count_rows()),
    "aggregate": blocking(lambda scan: scan.aggregate([("id", "sum")])),
    "aggregate_async": awaited(lambda scan: scan.aggregate_async([("id", "sum")])),
    "scan.distinct": blocking(lambda scan: scan.distinct("id")),
    "explain": blocking(lambda scan: scan.explain()),
    "explain_async": awaited(lambda scan: scan.explain_async(analyze=True)),
    "plan": lambda source, **keywords: accel.plan(source, **keywords),
    "plan_async": lambda source, **keywords: asyncio.run(accel.plan_async(source, **keywords)),
    "distinct": lambda source, **keywords: accel.distinct(source, "id", **keywords),
    "distinct_async": lambda source, **keywords: asyncio.run(accel.distinct_async(source, "id", **keywords)),
}


def running_tasks() -> set[asyncio.Task[Any]]:
    async def others() -> set[asyncio.Task[Any]]:
        return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]

    return io_loop.run(others())


def check_nothing_is_left(store: RecordingStore, cache: accel.Cache, before: set[Any]) -> None:
    assert store.in_flight == 0
    assert len(cache.single_flight) == 0
    assert running_tasks() <= before


@pytest.mark.parametrize("answers", [0, 1])
@pytest.mark.parametrize("call", CALLS)
def test_every_call_ends_in_time_and_leaves_nothing(call: str, answers: int) -> None:
    # What is imported for the first time is not to take the time of the requests.
    CALLS[call]("d/", store=DictStore(FILES), cache=None, options=ROOMY, index=None)
    store = RecordingStore(StallingStore(DictStore(FILES), answers=answers))
    cache, before, began = accel.Cache(), running_tasks(), time.monotonic()
    with pytest.raises(accel.ScanTimeoutError) as caught:
        CALLS[call]("d/", store=store, cache=cache, timeout=0.1, options=ROOMY, index=None)
    assert 0.1 <= time.monotonic() - began < 5
    assert isinstance(caught.value, accel.AccelError) and isinstance(caught.value, TimeoutError)
    assert (caught.value.path, "not done within 0.1 seconds" in str(caught.value)) == ("d/", True)
    assert len(store.calls) > answers and store.calls[-1].error == "CancelledError"
    check_nothing_is_left(store, cache, before)


@pytest.mark.parametrize(
    ("answers", "awaited"),
    [
        (0, "it was waiting for the names of the files"),
        (1, "it was waiting for the metadata of the first file"),
        (4, "it was waiting for the metadata or rows of 3 files"),
    ],
)
def test_the_error_says_what_was_awaited(answers: int, awaited: str) -> None:
    store = StallingStore(DictStore(FILES), answers=answers)
    with pytest.raises(accel.ScanTimeoutError, match=awaited):
        accel.scan("d/", store=store, cache=None, timeout=1.0, options=ROOMY, index=None).to_table()


def test_the_rows_of_a_plan_are_awaited_no_longer() -> None:
    planned = accel.plan("d/", store=DictStore(FILES), cache=None, options=ROOMY)
    store, cache = RecordingStore(StallingStore(DictStore(FILES), answers=0)), accel.Cache()
    before = running_tasks()
    with pytest.raises(accel.ScanTimeoutError, match="it was waiting for rows") as caught:
        accel.scan(planned, store=store, cache=cache, timeout=0.1, options=ROOMY).to_table()
    assert caught.value.path == "3 tasks"
    check_nothing_is_left(store, cache, before)


def test_time_counts_from_the_start_of_the_run() -> None:
    scan = accel.scan("d/", store=DictStore(FILES), cache=None, timeout=1.0)
    time.sleep(1.1)  # nothing runs yet
    batches = scan.to_batches()
    assert next(batches).num_rows == 9
    time.sleep(1.1)
    with pytest.raises(accel.ScanTimeoutError):
        next(batches)
    assert list(batches) == []
    assert scan.to_table().num_rows == 27  # each run has its own time


def test_the_parts_of_an_iterator_share_one_deadline() -> None:
    def paths() -> Any:
        for name in FILES:
            yield pa.RecordBatch.from_pydict({"path": [name]})
            time.sleep(0.2)

    with pytest.raises(accel.ScanTimeoutError):
        list(accel.scan(paths(), store=DictStore(FILES), cache=None, timeout=0.3))


def test_who_is_in_time_sees_nothing_of_it() -> None:
    store = DictStore(FILES)
    for timeout in (None, 60, 1e9):
        scan = accel.scan("d/", "id > 20", store=store, cache=None, timeout=timeout)
        assert (scan.to_table().num_rows, scan.count_rows()) == (6, 6)


def test_another_caller_of_the_same_bytes_goes_on() -> None:
    """What two scans share is cancelled with the last of them."""
    release = asyncio.Event()

    class Gate(StoreWrapper):
        async def read(self, path: str, want: Any, *, if_match: str | None = None) -> Payload:
            await release.wait()
            return await self.inner.read(path, want, if_match=if_match)

    async def both() -> tuple[Any, Any]:
        keywords: dict[str, Any] = {"store": Gate(DictStore(FILES)), "cache": accel.Cache()}
        patient = asyncio.create_task(accel.scan("d/0.parquet", **keywords).to_table_async())
        hasty = asyncio.create_task(accel.scan("d/0.parquet", timeout=0.1, **keywords).to_table_async())
        failed = (await asyncio.gather(hasty, return_exceptions=True))[0]
        release.set()
        return failed, (await patient).num_rows

    failed, rows = io_loop.run(both())
    assert (type(failed), rows) == (accel.ScanTimeoutError, 9)


@pytest.mark.parametrize("timeout", [True, "5", (1,)])
def test_what_is_no_number_is_refused(timeout: Any) -> None:
    with pytest.raises(TypeError, match="timeout is a number of seconds"):
        accel.scan("d/", timeout=timeout)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf")])
def test_what_is_no_time_is_refused(timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout is a number of seconds above 0"):
        accel.plan("d/", timeout=timeout)


def test_the_error_pickles() -> None:
    error = accel.ScanTimeoutError("late", path="s3://b/x", hint="wait")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (accel.ScanTimeoutError, str(error))


def test_explain_with_a_run_has_the_time_once() -> None:
    class Slow(StoreWrapper):
        async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
            await asyncio.sleep(0.3)
            return await self.inner.read(path, want, if_match=if_match)

    # Planning waits for the footer, and the run for the footer and the rows: less than a second each.
    scan = accel.scan("d/0.parquet", store=Slow(DictStore(FILES)), timeout=0.8, options=ROOMY, cache=None)
    with pytest.raises(accel.ScanTimeoutError, match=r"within 0\.8 seconds"):
        scan.explain(analyze=True)
    assert scan.explain().requests
