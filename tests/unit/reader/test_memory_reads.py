"""What is in memory of a file is not read; the rest is, once, and put together with it."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from accel.planning.task import TaskFile
from accel.ranges import ByteRange, Kind, ReadKey, Stash, Want
from accel.reader.memory_reads import GivenPages, LoadedBytes

DATA = bytes(range(200))


class Last:
    """The last source of a chain, which notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    def missing(self, want: Want) -> ByteRange | None:
        return want.range

    async def read(self, wants: Sequence[Want]) -> tuple[Stash, int]:
        self.asked += [(want.range.start, want.range.end) for want in wants]
        return {want.key: memoryview(DATA)[want.range.start : want.range.end] for want in wants}, 1


def want(start: int, end: int) -> Want:
    return Want(ReadKey(Kind.PAGE, 0, 0, start), ByteRange(start, end))


def file_with(*spans: tuple[int, int]) -> TaskFile:
    anything: Any = SimpleNamespace(path="f", size=len(DATA))
    held = tuple((start, memoryview(DATA)[start:end]) for start, end in spans)
    return TaskFile(
        root="store:",
        url="f",
        id=anything,
        schema=anything,
        arrow_schema=anything,
        key_value={},
        created_by="",
        partition={},
        question=anything,
        query=anything,
        loaded=held,
    )


async def test_bytes_loaded_are_not_read() -> None:
    last = Last()
    source = LoadedBytes(file_with((50, 100)), last)
    wants = [want(0, 20), want(40, 60), want(60, 100)]
    assert [source.missing(one) for one in wants] == [ByteRange(0, 20), ByteRange(40, 50), None]
    found, trips = await source.read(wants)
    assert trips == 1
    assert last.asked == [(0, 20), (40, 50)]
    assert [bytes(found[one.key]) for one in wants] == [DATA[0:20], DATA[40:60], DATA[60:100]]


async def test_nothing_is_asked_where_all_is_loaded() -> None:
    last = Last()
    found, trips = await LoadedBytes(file_with((0, 200)), last).read([want(3, 9)])
    assert (trips, last.asked, bytes(found[want(3, 9).key])) == (0, [], DATA[3:9])


async def test_given_pages_are_not_read() -> None:
    last = Last()
    source = GivenPages({want(10, 20).key: memoryview(DATA)[10:20]}, last)
    wants = [want(10, 20), want(30, 40)]
    assert [source.missing(one) for one in wants] == [None, ByteRange(30, 40)]
    found, trips = await source.read(wants)
    assert (trips, last.asked) == (1, [(30, 40)])
    assert [bytes(found[one.key]) for one in wants] == [DATA[10:20], DATA[30:40]]


async def test_a_shorter_run_is_a_part_of_the_given_one() -> None:
    last, given = Last(), want(10, 40)
    source = GivenPages({given.key: memoryview(DATA)[10:40]}, last)
    found, trips = await source.read([Want(given.key, ByteRange(10, 20))])
    assert (trips, last.asked, bytes(found[given.key])) == (0, [], DATA[10:20])


async def test_bytes_of_which_a_part_is_loaded_are_given_whole() -> None:
    """What one task reads along with others' is joined with what is in memory before it is given."""
    last, file, wanted = Last(), file_with((50, 100)), want(40, 60)
    came, trips = await LoadedBytes(file, last).read([wanted])
    assert (trips, last.asked) == (1, [(40, 50)])
    found, trips = await GivenPages(came, LoadedBytes(file, last)).read([wanted])
    assert (trips, last.asked, bytes(found[wanted.key])) == (0, [(40, 50)], DATA[40:60])
