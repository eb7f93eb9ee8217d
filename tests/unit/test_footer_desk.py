"""Footers that wait for each other: who is answered, when, and with what."""

from __future__ import annotations

import asyncio

import pytest

from accel.footer_desk import FooterDesk
from accel.format.footer import parse_footer
from accel.opener import shared_schema
from accel.planning.need import Tail
from bench.micro.footers import WRITERS


def file_of(groups: int, *, writer: str = "pyarrow") -> Tail:
    """The end of a file that holds a footer and little else."""
    footer = WRITERS[writer](3, groups)
    start = 1 << 20
    data = b"...." + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    return Tail(memoryview(data), start - 4, start + len(footer) + 8, '"e"')


async def parse_all(desk: FooterDesk, tails: list[Tail]) -> list[int | None]:
    """Hand all in at once; the row groups of each, None for what is left to the caller."""
    desk.expected += len(tails)
    found = await asyncio.gather(*(desk.parse(tail) for tail in tails))
    desk.expected -= len(tails)
    return [None if metadata is None else metadata.num_row_groups for metadata in found]


async def test_one_is_left_to_the_caller_at_once():
    assert await parse_all(FooterDesk(shared_schema), [file_of(1)]) == [None]


async def test_many_are_parsed_together_and_share_a_schema():
    desk = FooterDesk(shared_schema)
    tails = [file_of(1 + number % 3) for number in range(40)]
    assert await parse_all(desk, tails) == [1 + number % 3 for number in range(40)]
    desk.expected = 4
    first, *others = await asyncio.gather(*(desk.parse(tail) for tail in tails[:4]))
    assert first is not None
    assert all(other is not None and other.schema is first.schema for other in others)


async def test_what_is_not_like_the_others_is_left_to_the_caller():
    tails = [*(file_of(2) for _ in range(6)), file_of(2, writer="polars")]
    bad = Tail(memoryview(bytes(tails[0].data[:-4]) + b"PARX"), tails[0].start, tails[0].size, '"e"')
    assert await parse_all(FooterDesk(shared_schema), [*tails, bad]) == [2] * 6 + [None, None]


async def test_a_broken_footer_spoils_only_its_batch():
    desk = FooterDesk(shared_schema)
    good = [file_of(2) for _ in range(6)]
    assert await parse_all(desk, good) == [2] * 6
    data = bytearray(good[0].data)
    at = len(data) // 2
    data[at : at + 40] = b"\xff" * 40
    broken = Tail(memoryview(bytes(data)), good[0].start, good[0].size, '"e"')
    found = await parse_all(desk, [*good, broken])
    assert found[-1] is None
    assert set(found[:-1]) <= {2, None}
    assert await parse_all(desk, good) == [2] * 6


async def test_a_few_wait_no_longer_than_a_moment_for_others():
    desk = FooterDesk(shared_schema)
    desk.expected = 100
    async with asyncio.timeout(1):
        found = await asyncio.gather(*(desk.parse(file_of(2)) for _ in range(5)))
    assert all(metadata is not None for metadata in found)


async def test_one_that_is_cancelled_leaves_the_others_alone():
    desk = FooterDesk(shared_schema)
    desk.expected = 100
    tasks = [asyncio.ensure_future(desk.parse(file_of(2))) for _ in range(6)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await tasks[0]
    found = await asyncio.gather(*tasks[1:])
    tail = file_of(2)
    plain = parse_footer(bytes(tail.data[4:-8]), file_size=tail.size, footer_start=1 << 20)
    assert [metadata is not None and metadata.num_rows for metadata in found] == [plain.num_rows] * 5
