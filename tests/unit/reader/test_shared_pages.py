"""Pages that straddle a cut, and dictionary pages: each is fetched once."""

from __future__ import annotations

import asyncio
import dataclasses
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.decode.codecs import StoredPage, store_page
from accel.errors import StoreError
from accel.planning.pages import LeafReads
from accel.ranges import ByteRange
from accel.reader.shared_pages import SCANNED, CarriedPages
from accel.testing import (
    DictStore,
    FaultStore,
    LatencyStore,
    Layout,
    RecordingStore,
    Status,
    table,
    write_file,
)

_NONE = np.zeros(0, np.int64)
READS = LeafReads(
    leaf=2,
    column=5,
    codec=0,
    chunk=ByteRange(4, 104),
    dictionary=None,
    dictionary_pages=0,
    num_values=100,
    expansion=1.0,
    for_filter=False,
    for_output=True,
    max_repetition=0,
    ordinal=np.array([3, 4, 7]),
    offset=np.array([4, 14, 44]),
    size=np.array([10, 10, 10]),
    first_row=np.array([0, 10, 40]),
    stop_row=np.array([10, 20, 50]),
    total_pages=9,
)
PAGE = memoryview(b"0123456789")


async def test_an_expected_page_is_held_until_the_last_has_taken_it() -> None:
    carried = CarriedPages()
    carried.expect(READS, 1)
    carried.expect(READS, 1)
    first = asyncio.create_task(carried.take(READS, 1, until=30))
    await asyncio.sleep(0)
    assert not first.done()
    carried.bring(READS, 1, PAGE)
    assert await first == PAGE
    assert len(carried) == 1
    assert await carried.take(READS, 1, until=40) == PAGE
    assert len(carried) == 0


async def test_what_nobody_takes_is_not_kept() -> None:
    carried = CarriedPages()
    carried.bring(READS, 0, PAGE)
    carried.fail(READS, 0)
    assert len(carried) == 0
    assert not carried.claim(2, 3)


async def test_an_offered_page_is_there_for_pieces_up_to_its_end() -> None:
    carried = CarriedPages()
    carried.offer(READS, 2)
    carried.bring(READS, 2, PAGE)
    assert not carried.claim(2, 4)
    assert carried.claim(2, 7)
    assert await carried.take(READS, 2, until=45) == PAGE
    assert carried.claim(2, 7)
    carried.pass_by(60)
    assert len(carried) == 1
    assert await carried.take(READS, 2, until=60) == PAGE
    assert len(carried) == 0


async def test_an_offer_that_none_took_up_is_let_go() -> None:
    carried = CarriedPages()
    carried.offer(READS, 1)
    carried.offer(READS, 2)
    carried.pass_by(20)
    assert not carried.claim(2, 4)
    assert carried.claim(2, 7)
    # Fetched all the same, for who offered it.
    carried.bring(READS, 1, PAGE)
    assert len(carried) == 1


async def test_leaves_are_told_apart_and_bytes_are_copied() -> None:
    carried = CarriedPages()
    other = replace(READS, leaf=3)
    source = bytearray(b"abc")
    for reads in (READS, other):
        carried.expect(reads, 0)
    carried.bring(other, 0, memoryview(source))
    source[:] = b"xyz"
    assert await carried.take(other, 0, until=10) == b"abc"
    assert len(carried) == 1


async def test_who_waits_for_a_page_that_fails_is_cancelled() -> None:
    carried = CarriedPages()
    carried.expect(READS, 0)
    waiting = asyncio.create_task(carried.take(READS, 0, until=10))
    await asyncio.sleep(0)
    carried.fail(READS, 0)
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert len(carried) == 0


async def test_one_who_gives_up_leaves_it_to_the_others() -> None:
    carried = CarriedPages()
    carried.expect(READS, 0)
    carried.expect(READS, 0)
    one, other = (asyncio.create_task(carried.take(READS, 0, until=10)) for _ in range(2))
    await asyncio.sleep(0)
    one.cancel()
    await asyncio.wait((one,))
    carried.bring(READS, 0, PAGE)
    assert await other == PAGE
    assert len(carried) == 0


ROWS = 2000
NAMES = [f"name {i % 400:04}" for i in range(ROWS)]
DATA = write_file(
    table(key=pa.array(range(ROWS)), x=pa.array(NAMES)), Layout(page_rows=70, dictionary=["x"], codec="zstd")
)
OPTIONS = accel.Options(tail_hint=8, max_gap_bytes=0, max_attempts=1)
KEYS = range(100, 1700, 200)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The pages that were put into the form that is not decompressed."""
    made: list[int] = []

    def counted(page: Any, codec: int) -> StoredPage:
        made.append(codec)
        return store_page(page, codec)

    monkeypatch.setattr("accel.reader.shared_pages.WORTH_STORING", 0)
    monkeypatch.setattr("accel.reader.reader.WHOLE_BYTES", 0)
    monkeypatch.setattr("accel.reader.shared_pages.store_page", counted)
    return made


def dictionary() -> ByteRange:
    store = DictStore({"f.parquet": DATA})
    plan = accel.plan("f.parquet", "key = 3", store=store, cache=None, options=OPTIONS)
    found = plan.tasks[0].reads[1].dictionary
    assert found is not None
    return found


async def look_up(store: Any, cache: accel.Cache, key: int) -> list[str]:
    scan = accel.scan("f.parquet", f"key = {key}", store=store, cache=cache, options=OPTIONS)
    found: list[str] = (await scan.to_table_async()).column("x").to_pylist()
    return found


async def opened(store: Any) -> accel.Cache:
    """A cache that knows the file, and none of its data."""
    cache = accel.Cache()
    await accel.plan_async("f.parquet", "key = 3", store=store, cache=cache, options=OPTIONS)
    return cache


async def test_lookups_at_once_ask_for_a_dictionary_once(made: list[int]) -> None:
    store = RecordingStore(LatencyStore(DictStore({"f.parquet": DATA}), first_byte=0.05))
    cache = await opened(store)
    store.clear()
    found = await asyncio.gather(*(look_up(store, cache, key) for key in KEYS))
    assert found == [[NAMES[key]] for key in KEYS]
    asked = [call.range for call in store.calls if call.range is not None]
    assert sum(part.covers(dictionary()) for part in asked) == 1
    assert len(made) == 1
    # Nothing is read twice, whichever pages the lookups have in common.
    assert sum(part.length for part in asked) == store.bytes == len(set().union(*map(_places, asked)))


async def test_equal_lookups_at_once_are_one(made: list[int]) -> None:
    store = RecordingStore(LatencyStore(DictStore({"f.parquet": DATA}), first_byte=0.05))
    alone, cache = await opened(store), await opened(store)
    store.clear()
    await look_up(store, alone, 700)
    requests = store.requests
    store.clear()
    assert await asyncio.gather(*(look_up(store, cache, 700) for _ in range(9))) == [[NAMES[700]]] * 9
    assert store.requests == requests


async def test_one_cancelled_leaves_the_others_their_dictionary(made: list[int]) -> None:
    store = LatencyStore(DictStore({"f.parquet": DATA}), first_byte=0.2)
    cache = await opened(store)
    first, *others = [asyncio.create_task(look_up(store, cache, key)) for key in KEYS]
    await asyncio.sleep(0.1)
    first.cancel()
    async with asyncio.timeout(20):
        assert await asyncio.gather(*others) == [[NAMES[key]] for key in KEYS[1:]]
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_one_that_fails_leaves_the_others_their_dictionary(made: list[int]) -> None:
    place = dictionary()
    failures = iter([Status(403)])

    def script(attempt: Any) -> Status | None:
        asked = attempt.want
        return next(failures, None) if isinstance(asked, ByteRange) and asked.covers(place) else None

    inner = LatencyStore(DictStore({"f.parquet": DATA}), first_byte=0.05)
    cache = await opened(inner)
    store = FaultStore(inner, script)
    await accel.plan_async("f.parquet", "key = 3", store=store, cache=cache, options=OPTIONS)
    found = await asyncio.gather(*(look_up(store, cache, key) for key in KEYS), return_exceptions=True)
    assert [isinstance(one, StoreError) for one in found].count(True) == 1
    assert [one for one in found if not isinstance(one, StoreError)] == [
        [NAMES[key]] for key, one in zip(KEYS, found, strict=True) if not isinstance(one, StoreError)
    ]


def _places(part: ByteRange) -> range:
    return range(part.start, part.end)


@pytest.mark.parametrize("forged_first", [True, False])
def test_a_task_that_names_another_row_group_gives_and_takes_no_dictionary_of_its(forged_first: bool) -> None:
    """Whoever can make tasks can make their checksums: what one has cached is nothing to another."""
    columns = table(key=pa.array(range(ROWS)), x=pa.array([f"{i // 1000} {i % 40:04}" for i in range(ROWS)]))
    data = write_file(columns, Layout(group_rows=1000, page_rows=70, dictionary=["x"], codec="zstd"))
    keywords: dict[str, Any] = {"store": DictStore({"f.parquet": data}), "options": OPTIONS}
    plan = accel.plan("f.parquet", "key IN (3, 1003)", cache=None, **keywords)
    first, second = plan.tasks
    forged = dataclasses.replace(first, row_group=second.row_group)
    cache = accel.Cache()
    answers = [
        accel.scan([task], cache=cache, **keywords).to_table().column("x").to_pylist()
        for task in ([forged, second] if forged_first else [second, forged])
    ]
    assert answers == ([["0 0003"], ["1 0003"]] if forged_first else [["1 0003"], ["0 0003"]])


def test_whether_pages_are_kept_is_found_out_once_for_a_task_of_many_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    class Counted(int):
        def __gt__(self, nbytes: int) -> bool:
            asked.append(nbytes)
            return int(self) > nbytes

    monkeypatch.setattr("accel.reader.shared_pages.SCANNED", Counted(SCANNED))
    counts = []
    for columns in (2, 40):
        asked.clear()
        names = table(**{f"x{i}": pa.array(NAMES) for i in range(columns)})
        data = write_file(names, Layout(page_rows=70, dictionary=True, codec="zstd"))
        scan = accel.scan(
            "f.parquet", "x0 = 'name 0003'", store=DictStore({"f.parquet": data}), cache=accel.Cache()
        )
        assert scan.to_table().num_columns == columns
        counts.append(len(asked))
    assert counts[0] == counts[1]
