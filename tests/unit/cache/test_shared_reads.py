"""Reads under way are shared range by range; what happens to one reader happens to no other."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accel.cache.shared_reads import SharedReads
from accel.errors import StoreError
from accel.ranges import ByteRange, Kind, ReadKey, Stash, Want

DATA = bytes(range(200)) * 5


def want(start: int, stop: int, *, ordinal: int = 0) -> Want:
    return Want(ReadKey(Kind.PAGE, 0, start, ordinal), ByteRange(start, stop))


A, B, C = want(0, 10), want(10, 30), want(30, 60)


@dataclass
class Store:
    """Answers after some turns of the loop; fails as often as told."""

    turns: int = 5
    failures: int = 0
    asked: list[list[ByteRange]] = field(default_factory=list)

    async def load(self, wants: Sequence[Want]) -> Stash:
        self.asked.append([one.range for one in wants])
        fails, self.failures = self.failures > 0, max(0, self.failures - 1)
        for _ in range(self.turns):
            await asyncio.sleep(0)
        if fails:
            raise StoreError("no", path="x")
        return {one.key: memoryview(DATA)[one.range.start : one.range.end] for one in wants}


def check(found: Stash, wants: Sequence[Want]) -> None:
    assert {key: bytes(view) for key, view in found.items()} == {
        one.key: DATA[one.range.start : one.range.end] for one in wants
    }


async def test_each_range_is_read_once() -> None:
    shared, store = SharedReads(), Store()
    found = await asyncio.gather(
        shared.read("v", [A, B], store.load),
        shared.read("v", [A, B], store.load),
        shared.read("v", [B, C], store.load),
    )
    assert store.asked == [[A.range, B.range], [C.range]]
    for (stash, trips), wants in zip(found, ([A, B], [A, B], [B, C]), strict=True):
        check(stash, wants)
        assert trips == 1
    assert len(shared) == 0


async def test_two_versions_never_share() -> None:
    shared, store = SharedReads(), Store()
    await asyncio.gather(*(shared.read(version, [A], store.load) for version in ("v", "w", "v")))
    assert store.asked == [[A.range], [A.range]]


async def test_one_range_under_two_names() -> None:
    shared, store = SharedReads(), Store()
    wants = [A, want(0, 10, ordinal=7)]
    for stash, _ in await asyncio.gather(*(shared.read("v", wants, store.load) for _ in range(2))):
        check(stash, wants)


async def test_what_has_come_is_not_kept() -> None:
    shared, store = SharedReads(), Store()
    for _ in range(2):
        await shared.read("v", [A], store.load)
    assert len(store.asked) == 2


async def test_a_part_is_handed_on_without_the_whole() -> None:
    shared, store = SharedReads(), Store()
    _, (stash, _) = await asyncio.gather(*(shared.read("v", [A], store.load) for _ in range(2)))
    assert memoryview(stash[A.key].obj).nbytes == A.range.length


async def test_another_reads_on_where_the_reader_is_cancelled() -> None:
    shared, store = SharedReads(), Store()
    reader = asyncio.create_task(shared.read("v", [A, B], store.load))
    others = [asyncio.create_task(shared.read("v", [A, C], store.load)) for _ in range(3)]
    for _ in range(2):
        await asyncio.sleep(0)
    reader.cancel()
    async with asyncio.timeout(5):
        for stash, trips in await asyncio.gather(*others):
            check(stash, [A, C])
            assert trips == 2
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert store.asked == [[A.range, B.range], [C.range], [A.range]]
    assert len(shared) == 0


async def test_one_who_waits_and_is_cancelled_leaves_the_read_alone() -> None:
    shared, store = SharedReads(), Store()
    reader, other = (asyncio.create_task(shared.read("v", [A], store.load)) for _ in range(2))
    for _ in range(2):
        await asyncio.sleep(0)
    other.cancel()
    check((await reader)[0], [A])
    assert (other.cancelled(), len(store.asked)) == (True, 1)


async def test_each_reads_for_itself_where_the_reader_fails() -> None:
    shared, store = SharedReads(), Store(failures=1)
    first, *others = await asyncio.gather(
        *(shared.read("v", [A, B], store.load) for _ in range(3)), return_exceptions=True
    )
    assert isinstance(first, StoreError)
    for found in others:
        assert not isinstance(found, BaseException)
        check(found[0], [A, B])
        assert found[1] == 2
    assert len(store.asked) == 3


async def test_a_store_that_is_down_fails_all_at_once() -> None:
    shared, store = SharedReads(), Store(failures=100)
    readers = [shared.read("v", [A], store.load) for _ in range(20)]
    found = await asyncio.gather(*readers, return_exceptions=True)
    assert [type(one) for one in found] == [StoreError] * 20
    assert len(store.asked) == 20


def test_loops_do_not_share() -> None:
    shared, store = SharedReads(), Store()

    async def within() -> None:
        loop = asyncio.new_event_loop()
        try:
            other = asyncio.to_thread(loop.run_until_complete, shared.read("v", [A], store.load))
            (_, _), (stash, _) = await asyncio.gather(shared.read("v", [A], store.load), other)
        finally:
            loop.close()
        check(stash, [A])

    asyncio.run(within())
    assert len(store.asked) == 2


reads = st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True)


@settings(max_examples=150, deadline=None)
@given(
    readers=st.lists(
        st.tuples(reads, st.integers(0, 12), st.none() | st.integers(0, 25)), min_size=1, max_size=8
    ),
    failures=st.integers(0, 3),
    turns=st.integers(0, 8),
)
def test_nobody_fails_or_waits_for_ever_by_another(
    readers: list[tuple[list[int], int, int | None]], failures: int, turns: int
) -> None:
    """Readers that begin and are cancelled at any time, of a store that fails some reads: whoever was neither cancelled
    nor failed by its own read has its bytes; nothing stays."""
    shared, store = SharedReads(), Store(turns=turns, failures=failures)
    failed: set[int] = set()

    async def one(number: int, wants: list[Want], after: int) -> Stash:
        async def load(some: Sequence[Want]) -> Stash:
            try:
                return await store.load(some)
            except StoreError:
                failed.add(number)
                raise

        for _ in range(after):
            await asyncio.sleep(0)
        return (await shared.read("v", wants, load))[0]

    async def play() -> list[Any]:
        asked = [[want(20 * at, 20 * at + 20) for at in wanted] for wanted, _, _ in readers]
        tasks = [asyncio.create_task(one(i, asked[i], after)) for i, (_, after, _) in enumerate(readers)]
        for turn in range(26):
            for task, (_, _, cancelled) in zip(tasks, readers, strict=True):
                if cancelled == turn:
                    task.cancel()
            await asyncio.sleep(0)
        async with asyncio.timeout(20):
            found = await asyncio.gather(*tasks, return_exceptions=True)
        for i, outcome in enumerate(found):
            if isinstance(outcome, StoreError):
                assert i in failed
            elif isinstance(outcome, asyncio.CancelledError):
                assert readers[i][2] is not None
            else:
                check(outcome, asked[i])
        return found

    asyncio.run(play())
    assert len(shared) == 0
