"""A piece alone waits for nothing; of many the pages are decompressed in few calls, and nobody is left waiting."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.decode import chunks
from accel.decode.chunks import LeafBytes, SinglePage, Unpacked
from accel.decode.pool import DecodePool
from accel.format.model import Codec
from accel.planning.pages import LeafReads, Piece, PieceLeaf
from accel.planning.selection import RowSelection
from accel.ranges import ByteRange
from accel.reader import unpacking
from accel.reader.unpacking import Unpacking, unpacking_of
from accel.testing import DictStore, Layout, table, write_file
from tests.unit.decode.test_ahead import NUMBERS, body_of, pages

PAGES = pages(NUMBERS)


def leaf(number: int, pages: int, codec: int = Codec.ZSTD) -> PieceLeaf:
    places = np.arange(pages)
    reads = LeafReads(
        leaf=number,
        column=number,
        codec=codec,
        chunk=ByteRange(0, 100),
        dictionary=None,
        dictionary_pages=0,
        num_values=100 * pages,
        expansion=3.0,
        for_filter=False,
        for_output=True,
        max_repetition=0,
        ordinal=places,
        offset=1000 * places,
        size=np.full(pages, 1000),
        first_row=100 * places,
        stop_row=100 * places + 100,
        total_pages=pages,
    )
    return PieceLeaf(reads, 0, pages, False)


def piece(*leaves: PieceLeaf) -> Piece:
    rows = RowSelection.all(100)
    return Piece(rows, rows, leaves, 0, 100)


ONE = piece(leaf(0, 1), leaf(1, 1), leaf(2, 2), leaf(3, 1, Codec.UNCOMPRESSED))
"""Of four leaves two have a single page that is compressed."""


def held(number: int) -> Mapping[int, LeafBytes]:
    first, second = PAGES[number % len(PAGES)], PAGES[(number + 1) % len(PAGES)]
    return {0: LeafBytes(None, (first,)), 1: LeafBytes(None, (second,)), **OTHERS}


OTHERS = {2: LeafBytes(None, (b"both",)), 3: LeafBytes(None, (b"as it is",))}


@pytest.fixture
def pool() -> Iterator[DecodePool]:
    with DecodePool(2) as threads:
        yield threads


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many pages each call was given."""
    made: list[int] = []
    real = chunks.unpack_pages

    def counted(given: Sequence[SinglePage]) -> list[Unpacked | None]:
        assert threading.current_thread().name.startswith("accel-decode")
        made.append(len(given))
        return real(given)

    monkeypatch.setattr(chunks, "unpack_pages", counted)
    return made


def asked(many: int, pool: DecodePool) -> list[asyncio.Task[Mapping[int, LeafBytes]]]:
    waits = unpacking_of(asyncio.get_running_loop())
    return [asyncio.create_task(waits.before(ONE, held(number), pool=pool)) for number in range(many)]


def held_up(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Have calls wait: told when one has begun, and for what it waits."""
    begun, go_on, real = threading.Event(), threading.Event(), chunks.unpack_pages

    def slow(given: Sequence[SinglePage]) -> list[Unpacked | None]:
        begun.set()
        assert go_on.wait(10)
        return real(given)

    monkeypatch.setattr(chunks, "unpack_pages", slow)
    return begun, go_on


async def test_one_alone_goes_on_at_once(pool: DecodePool, calls: list[int]) -> None:
    waits = Unpacking()
    for _ in range(3):
        given = held(0)
        going = waits.before(ONE, given, pool=pool)
        with pytest.raises(StopIteration) as done:
            going.send(None)
        assert done.value.value is given
        await asyncio.sleep(0)
    assert calls == []


async def test_few_go_on_as_they_are(pool: DecodePool, calls: list[int]) -> None:
    found = await asyncio.gather(*asked(unpacking._FEWEST, pool))
    assert found == [held(number) for number in range(unpacking._FEWEST)]
    assert calls == []


async def test_the_pages_of_many_are_decompressed_in_one_call(pool: DecodePool, calls: list[int]) -> None:
    many = unpacking._FEWEST + 5
    first, *found = await asyncio.gather(*asked(many, pool))
    assert first == held(0)
    assert calls == [2 * (many - 1)]
    for number, leaves in enumerate(found, 1):
        given = held(number)
        assert list(leaves) == list(given)
        assert {n: leaves[n] for n in OTHERS} == OTHERS
        for n in (0, 1):
            assert (leaves[n].dictionary, leaves[n].pages) == (None, given[n].pages)
            assert leaves[n].unpacked.body.tobytes() == body_of(bytes(given[n].pages[0]))  # type: ignore[union-attr]


async def test_a_call_has_no_more_than_its_bytes(
    pool: DecodePool, calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpacking, "_MOST_BYTES", 3 * ONE.held_bytes)
    found = await asyncio.gather(*asked(1 + 3 * 4, pool))
    # What is left after two calls is too little for a third.
    assert calls == [6, 6]
    assert [leaves[0].unpacked is not None for leaves in found] == [False] + 6 * [True] + 6 * [False]


async def test_one_larger_than_that_is_a_call(
    pool: DecodePool, calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpacking, "_MOST_BYTES", 1)
    await asyncio.gather(*asked(1 + unpacking._FEWEST + 1, pool))
    assert calls == [2, 2]


async def test_those_that_come_meanwhile_are_the_next_call(
    pool: DecodePool, calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = held_up(monkeypatch)
    first = asked(1 + 8, pool)
    await asyncio.to_thread(begun.wait, 10)
    second = asked(9, pool)
    await asyncio.sleep(0)
    assert not any(task.done() for task in (*first[1:], *second))
    go_on.set()
    assert all(leaves[0].unpacked is not None for leaves in await asyncio.gather(*first[1:], *second))
    assert calls == [16, 18]
    # And all is as it was before.
    await test_one_alone_goes_on_at_once(pool, [])


async def test_who_has_gone_is_not_waited_for(pool: DecodePool, calls: list[int]) -> None:
    tasks = asked(1 + 12, pool)
    await asyncio.sleep(0)
    for task in tasks[1:4]:
        task.cancel()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(one) for one in found[1:4]] == 3 * [asyncio.CancelledError]
    assert all(leaves[1].unpacked is not None for leaves in found[4:])  # type: ignore[index]
    assert calls == [2 * 9]


async def test_who_goes_while_a_thread_is_at_it(pool: DecodePool, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = held_up(monkeypatch)
    tasks = asked(1 + 10, pool)
    await asyncio.to_thread(begun.wait, 10)
    tasks[5].cancel()
    await asyncio.sleep(0)
    go_on.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(found[5], asyncio.CancelledError)
    others = [*found[1:5], *found[6:]]
    for number, leaves in zip([1, 2, 3, 4, 6, 7, 8, 9, 10], others, strict=True):
        assert leaves[0].unpacked.body.tobytes() == body_of(PAGES[number % len(PAGES)])  # type: ignore[index]


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("mine"), pa.ArrowInvalid("odd")])
async def test_what_fails_is_left_to_the_decoder(
    pool: DecodePool, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(given: Sequence[SinglePage]) -> list[Unpacked | None]:
        raise error

    monkeypatch.setattr(chunks, "unpack_pages", fail)
    assert await asyncio.gather(*asked(20, pool)) == [held(number) for number in range(20)]


async def test_a_page_that_does_not_decompress(pool: DecodePool) -> None:
    waits = Unpacking()
    odd = {0: LeafBytes(None, (b"none of a page",)), 1: LeafBytes(None, (PAGES[0],))}
    small = piece(leaf(0, 1), leaf(1, 1))
    found = await asyncio.gather(*(waits.before(small, odd, pool=pool) for _ in range(10)))
    assert all(leaves[0] == odd[0] for leaves in found)
    assert [leaves[1].unpacked is not None for leaves in found] == [False] + 9 * [True]


def one_thread() -> DecodePool:
    return DecodePool(1)


def closed() -> DecodePool:
    threads = DecodePool(2)
    threads.close()
    return threads


@pytest.mark.parametrize("make", [one_thread, closed])
async def test_without_a_thread_to_spare_nobody_waits(
    make: Callable[[], DecodePool], calls: list[int]
) -> None:
    pool = make()
    try:
        assert await asyncio.gather(*asked(20, pool)) == [held(number) for number in range(20)]
        assert calls == []
    finally:
        pool.close()


async def test_pieces_without_such_pages_wait_for_nothing(pool: DecodePool, calls: list[int]) -> None:
    waits, none = Unpacking(), piece(leaf(2, 2), leaf(3, 1, Codec.UNCOMPRESSED))
    found = await asyncio.gather(*(waits.before(none, OTHERS, pool=pool) for _ in range(20)))
    assert all(leaves is OTHERS for leaves in found)
    assert calls == []


def test_each_loop_has_its_own() -> None:
    found: list[Any] = []

    async def one() -> None:
        loop = asyncio.get_running_loop()
        found.append(unpacking_of(loop))
        assert unpacking_of(loop) is found[-1]

    asyncio.run(one())
    asyncio.run(one())
    assert found[0] is not found[1]


def test_pieces_of_one_file_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong with one is seen before rows of another go out."""
    asked: list[int] = []

    async def noted(self: Unpacking, piece: Piece, leaves: Any, **settings: Any) -> Any:
        asked.append(piece.rows.count)
        return leaves

    monkeypatch.setattr(Unpacking, "before", noted)
    numbers = pa.array(np.random.default_rng(1).permutation(40_000))
    store = DictStore({"f": write_file(table(x=numbers), Layout(group_rows=20_000, page_rows=20_000))})
    both, one = {0: [(0, 20_000)], 1: [(0, 20_000)]}, {1: [(0, 20_000)]}
    for selection, rows, waits in ((both, 40_000, []), (one, 20_000, [20_000])):
        scan = accel.scan("f", "x >= 0", selection={"f": selection}, store=store, cache=None)
        assert scan.to_table().num_rows == rows
        assert asked == waits
