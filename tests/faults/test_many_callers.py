"""Many scans at once, over objects that change meanwhile and a store that fails, by callers that go away.

Whatever comes of a scan is of one version of each file, or an error of accel's; afterwards no task, request
or shared read is left. Longer runs of this found a closed scan that never ended.
"""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.errors import StoreError
from accel.ranges import ByteRange, Suffix
from accel.runtime import io_loop
from accel.store.range_store import ObjectEntry, Payload
from accel.store.request_errors import IncompleteBodyError
from accel.testing import DictStore, Layout, write_file

ROWS, FILES = 120, 4
Source = str | list[str]


class Wild(DictStore):
    """Answers in any order, or not at all."""

    def __init__(self, rng: random.Random, faults: float) -> None:
        super().__init__()
        self.rng, self.faults, self.under_way = rng, faults, 0
        self.rests = threading.Event()  # no object is replaced any more
        self.numbers = [-1] * FILES
        """Of the versions that are there."""

    def replace(self, file: int, number: int, layout: Layout) -> None:
        self.put(f"d/{file}", version(file, number, layout))
        self.numbers[file] = number

    async def list(self, prefix: str) -> AsyncIterator[ObjectEntry]:
        await asyncio.sleep(self.rng.choice([0, 0, 0.001, 0.005]))
        if self.rng.random() < self.faults:
            raise StoreError("busy", path=prefix, status=503, transient=True)
        async for entry in super().list(prefix):
            yield entry

    async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
        self.under_way += 1
        rng = self.rng
        try:
            for _ in range(rng.choice([0, 1, 3])):
                await asyncio.sleep(0)
            if rng.random() < 0.2:
                await asyncio.sleep(rng.random() / 500)
            if rng.random() < self.faults:
                raise StoreError("busy", path=path, status=503, transient=rng.random() < 0.7)
            came = await super().read(path, want, if_match=if_match)
            if rng.random() < self.faults:
                part = came.data[: rng.randrange(len(came.data))]
                raise IncompleteBodyError(
                    "cut", path=path, range=came.range, partial=part, size=came.size, etag=came.etag
                )
            return came
        finally:
            self.under_way -= 1


def version(file: int, number: int, layout: Layout) -> bytes:
    """Of a file: its keys, and in every other column the number of the version."""
    keys = np.arange(ROWS) + 1000 * file
    columns = [pa.array(keys), pa.array([f"w{number}"] * ROWS), pa.array([f"{key}-{number}" for key in keys])]
    return write_file(pa.Table.from_arrays(columns, names=["k", "w", "s"]), layout)


def check(found: pa.Table, first: int, stop: int, *, least: Sequence[int]) -> None:
    """One version of each file, none older than these, and of that all rows."""
    rows = found.to_pylist()
    keys = [1000 * file + key for file in range(FILES) for key in range(first, stop)]
    assert [row["k"] for row in rows] == keys
    for file in range(FILES):
        own = [row for row in rows if row["k"] // 1000 == file]
        (number,) = {row["w"] for row in own}
        assert [row["s"] for row in own] == [f"{row['k']}-{number[1:]}" for row in own]
        assert int(number[1:]) >= least[file]


def question(rng: random.Random, store: Wild, cache: Any, source: Source) -> tuple[accel.Scan, int, int]:
    first = rng.choice([0, 0, 30])
    stop = rng.choice([ROWS, first + 1, first + 40])
    ranges = [f"(k >= {1000 * file + first} AND k < {1000 * file + stop})" for file in range(FILES)]
    options = accel.Options(
        phases=rng.choice(["auto", "one", "two"]),
        piece_bytes=rng.choice([1, 1000, 1 << 20]),
        tail_hint=rng.choice([None, 8]),
        max_gap_bytes=rng.choice([0, None]),
        max_attempts=rng.choice([1, 4]),
        backoff_base=0.001,
    )
    scan = accel.scan(source, " OR ".join(ranges), store=store, cache=cache, options=options)
    return scan, first, stop


async def call(rng: random.Random, store: Wild, cache: Any, source: Source) -> bool:
    """A caller that takes all, or a batch, or goes away, and asks again where a file changed; whether it had
    all."""
    scan, first, stop = question(rng, store, cache, source)
    whole = rng.random() >= 0.3

    async def take() -> pa.Table | None:
        if whole:
            # Of named files metadata is believed for a while; a directory is listed each time.
            least = list(store.numbers) if source == "d/" else [-1] * FILES
            found = await scan.to_table_async()
            check(found, first, stop, least=least)
            return found
        async for _ in scan:
            break
        await scan.aclose()
        return None

    async def persist() -> pa.Table | None:
        # Who asks when nothing changes any more may still share a read that began before.
        left = 3
        while True:
            left -= store.rests.is_set()
            try:
                return await take()
            except accel.ObjectChangedError:
                if left < 0:
                    raise

    task = asyncio.create_task(persist())
    if rng.random() < 0.5:
        for _ in range(rng.randrange(60)):
            await asyncio.sleep(0)
        task.cancel()
    with suppress(asyncio.CancelledError, *([accel.AccelError] if store.faults else [])):
        return await task is not None
    return False


async def calls(seed: int, store: Wild, cache: Any, source: Source) -> int:
    """How many callers had all."""
    rng = random.Random(seed)
    async with asyncio.timeout(60):
        return sum(await asyncio.gather(*(call(rng, store, cache, source) for _ in range(10))))


@pytest.mark.parametrize("source", [[f"d/{file}" for file in range(FILES)], "d/"], ids=["list", "directory"])
@pytest.mark.parametrize("seed", range(6))
def test_one_version_or_an_error_and_nothing_left(seed: int, source: Source) -> None:
    rng = random.Random(seed)
    store = Wild(rng, rng.choice([0.0, 0.0, 0.05]))
    layout = Layout(group_rows=rng.choice([30, 120]), page_rows=10, page_index=seed % 3 > 0, dictionary=["w"])
    for file in range(FILES):
        store.replace(file, 0, layout)
    cache = [accel.Cache(), accel.Cache(max_age=0), None][seed % 3]
    failures: list[BaseException] = []
    answers: list[int] = []

    def serve(number: int) -> None:
        try:
            answers.append(asyncio.run(calls(100 * seed + number, store, cache, source)))
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=serve, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for number in range(1, 20):
        file = number % FILES
        store.replace(file, number, layout)
        time.sleep(0.01)
    store.rests.set()
    for thread in threads:
        thread.join(90)
    assert failures == []
    assert not any(thread.is_alive() for thread in threads)
    if not store.faults:
        assert sum(answers) >= 5
    gc.collect()

    async def left() -> int:
        """Tasks of the I/O loop beside this one; those that are ending are waited for."""
        for _ in range(100):
            if len(asyncio.all_tasks()) == 1:
                break
            await asyncio.sleep(0.02)
        return len(asyncio.all_tasks()) - 1

    assert io_loop.run(left()) == 0
    assert store.under_way == 0
    if cache is not None:
        assert len(cache.single_flight) == 0


class Late(DictStore):
    """Hands out what it has read of an object when it is let."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        super().__init__(objects)
        self.asked, self.may_answer = threading.Event(), threading.Event()

    async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
        payload = await super().read(path, want, if_match=if_match)
        self.asked.set()
        while not self.may_answer.is_set():
            await asyncio.sleep(0.001)
        return payload


def test_metadata_that_another_had_asked_for_is_older_than_the_listing() -> None:
    """Whoever lists a directory, and finds its file being opened, shares that, unless it was replaced
    meanwhile."""
    layout, cache = Layout(), accel.Cache()
    store = Late({"d/f": version(0, 0, layout)})
    counts: dict[str, int] = {}

    def count(source: str) -> None:
        counts[source] = accel.scan(source, store=store, cache=cache).count_rows()

    threads = [threading.Thread(target=count, args=(source,)) for source in ("d/f", "d/")]
    threads[0].start()
    assert store.asked.wait(20)
    more = pa.Table.from_arrays([pa.array(range(ROWS + 1))], names=["k"])
    store.put("d/f", write_file(more, layout))
    threads[1].start()
    time.sleep(0.05)  # it waits for what the other has asked for
    store.may_answer.set()
    for thread in threads:
        thread.join(20)
    assert counts == {"d/f": ROWS, "d/": ROWS + 1}
