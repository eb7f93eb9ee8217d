"""Pages that straddle a cut: who fetches, who waits, and when one is let go."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from accel.planning.pages import LeafReads
from accel.ranges import ByteRange
from accel.reader.shared_pages import CarriedPages

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
