"""Merging and splitting of ranges, and giving each want its bytes back."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel.coalesce import Fetch, Merging, assemble, coalesce, joined_bytes
from accel.ranges import ByteRange, Kind, ReadKey, Want


def want(start: int, end: int, ordinal: int = 0) -> Want:
    return Want(ReadKey(Kind.PAGE, 0, 0, ordinal), ByteRange(start, end))


def spans(fetches: list[Fetch]) -> list[tuple[int, int]]:
    return [(fetch.range.start, fetch.range.end) for fetch in fetches]


CASES = {
    "nothing": ([], 10, 100, []),
    "one": ([(5, 9)], 10, 100, [(5, 9)]),
    "gap of the limit": ([(0, 10), (20, 30)], 10, 100, [(0, 30)]),
    "gap above the limit": ([(0, 10), (21, 30)], 10, 100, [(0, 10), (21, 30)]),
    "no gap allowed, adjacent": ([(0, 10), (10, 30)], 0, 100, [(0, 30)]),
    "no gap allowed, apart": ([(0, 10), (11, 30)], 0, 100, [(0, 10), (11, 30)]),
    "unsorted": ([(20, 30), (0, 10)], 10, 100, [(0, 30)]),
    "merged up to the limit": ([(0, 50), (50, 100)], 10, 100, [(0, 100)]),
    "merged a little beyond it, if nothing else is near": ([(0, 95), (100, 140)], 10, 100, [(0, 140)]),
    "not merged further beyond it": ([(0, 95), (100, 141)], 10, 100, [(0, 95), (100, 141)]),
    "not merged beyond it in a long run": (
        [(0, 50), (50, 101), (110, 150)],
        10,
        100,
        [(0, 50), (50, 150)],
    ),
    "overlap beyond the limit is cut evenly": ([(0, 90), (80, 200)], 10, 100, [(0, 100), (100, 200)]),
    "contained": ([(0, 90), (10, 20), (30, 95)], 10, 100, [(0, 95)]),
    "repeated": ([(3, 9), (3, 9)], 10, 100, [(3, 9)]),
    "1.4 limits stay whole": ([(0, 140)], 10, 100, [(0, 140)]),
    "above 1.4 limits: two halves": ([(0, 141)], 10, 100, [(0, 70), (70, 141)]),
    "three nearly equal": ([(7, 262)], 10, 100, [(7, 92), (92, 177), (177, 262)]),
}


@pytest.mark.parametrize(("ranges", "gap", "limit", "expected"), CASES.values(), ids=CASES.keys())
def test_spans(ranges: list[tuple[int, int]], gap: int, limit: int, expected: list[tuple[int, int]]) -> None:
    wants = [want(start, end, i) for i, (start, end) in enumerate(ranges)]
    assert spans(coalesce(wants, max_gap_bytes=gap, max_coalesced_bytes=limit)) == expected


# Five ranges of 100 bytes, with gaps of 20, 130, 30 and 110 bytes between them.
APART = [(0, 100), (120, 220), (350, 450), (480, 580), (690, 790)]
MANY = {
    "few enough": (5, 200, APART),
    "one too many: over the narrowest gap": (4, 200, [(0, 220), (350, 450), (480, 580), (690, 790)]),
    "two too many": (3, 200, [(0, 220), (350, 580), (690, 790)]),
    "no wider than is worth it": (1, 40, [(0, 220), (350, 580), (690, 790)]),
    "no more in vain than half of what is wanted": (1, 200, [(0, 220), (350, 790)]),
}


@pytest.mark.parametrize(("few", "wide", "expected"), MANY.values(), ids=MANY.keys())
def test_many_requests_are_merged_further(few: int, wide: int, expected: list[tuple[int, int]]) -> None:
    wants = [want(start, end, i) for i, (start, end) in enumerate(APART)]
    limits = {"max_gap_bytes": 10, "max_coalesced_bytes": 1000}
    found = coalesce(wants, **limits, wide_gap_bytes=wide, few_requests=few)
    assert spans(found) == expected
    assert spans(Merging(10, 1000, wide, few).requests(wants[::-1])) == expected


def test_a_want_appears_in_every_fetch_that_brings_a_part_of_it() -> None:
    long, short = want(0, 200, 0), want(10, 20, 1)
    first, second = coalesce([short, long], max_gap_bytes=0, max_coalesced_bytes=100)
    assert first == Fetch(ByteRange(0, 100), (long, short))
    assert second == Fetch(ByteRange(100, 200), (long,))


@st.composite
def wants_and_limits(draw: st.DrawFn) -> tuple[list[Want], int, int]:
    pairs = draw(st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 400)), max_size=30))
    wants = [want(start, start + length, i) for i, (start, length) in enumerate(pairs)]
    return wants, draw(st.integers(0, 100)), draw(st.integers(1, 500))


@given(wants_and_limits(), st.integers(0, 300), st.integers(1, 10))
def test_merging_further_reads_no_more_than_it_may(
    case: tuple[list[Want], int, int], wide: int, few: int
) -> None:
    wants, gap, limit = case
    narrow = coalesce(wants, max_gap_bytes=gap, max_coalesced_bytes=limit)
    further = coalesce(
        wants, max_gap_bytes=gap, max_coalesced_bytes=limit, wide_gap_bytes=wide, few_requests=few
    )
    needed = covered([w.range for w in wants])
    asked, before = covered([f.range for f in further]), covered([f.range for f in narrow])
    assert asked >= needed
    assert all(a.range.end <= b.range.start for a, b in pairwise(further))
    if len(wants) <= few:
        assert spans(further) == spans(narrow)
    # What is read on top of the narrow gaps is at most half of what is wanted, but for what the limit shifts.
    if limit > 4000:
        assert len(asked - before) <= len(needed) // 2


def covered(ranges: list[ByteRange]) -> set[int]:
    return {byte for r in ranges for byte in range(r.start, r.end)}


@given(wants_and_limits())
def test_coalesce_against_sets_of_bytes(case: tuple[list[Want], int, int]) -> None:
    wants, gap, limit = case
    fetches = coalesce(wants, max_gap_bytes=gap, max_coalesced_bytes=limit)
    asked, needed = covered([f.range for f in fetches]), covered([w.range for w in wants])
    assert asked >= needed
    # Ascending, without overlap: nothing is fetched twice.
    assert all(a.range.end <= b.range.start for a, b in pairwise(fetches))
    # What nobody wants lies in gaps of at most `gap` bytes between wanted bytes of one merged run.
    run = 0
    for byte in range(max(asked, default=0) + 1):
        run = run + 1 if byte in asked and byte not in needed else 0
        assert run <= gap
    for fetch in fetches:
        assert 10 * fetch.range.length <= 14 * limit or limit < 3
        assert set(fetch.wants) == {
            w for w in wants if w.range.start < fetch.range.end and fetch.range.start < w.range.end
        }
        assert fetch.wants


@given(wants_and_limits())
def test_assemble_gives_each_want_exactly_its_bytes(case: tuple[list[Want], int, int]) -> None:
    wants, gap, limit = case
    blob = bytes(i * 7 % 251 for i in range(4000))
    fetches = coalesce(wants, max_gap_bytes=gap, max_coalesced_bytes=limit)
    parts = [(f.range, blob[f.range.start : f.range.end]) for f in reversed(fetches)]
    stash = assemble(wants, parts)
    assert {key: bytes(view) for key, view in stash.items()} == {
        w.key: blob[w.range.start : w.range.end] for w in wants
    }


def test_how_many_bytes_are_to_be_joined() -> None:
    whole, cut = want(0, 40, 1), want(40, 250, 2)
    apart = coalesce([whole, want(200, 240, 2)], max_gap_bytes=10, max_coalesced_bytes=100)
    assert joined_bytes(apart) == 0
    fetches = coalesce([whole, cut], max_gap_bytes=10, max_coalesced_bytes=1000)
    assert joined_bytes(fetches) == 0
    fetches = coalesce([cut], max_gap_bytes=10, max_coalesced_bytes=130)
    assert len(fetches) == 2
    assert joined_bytes(fetches) == 210


def test_assemble_does_not_copy_what_one_part_holds() -> None:
    part = bytes(range(100))
    view = assemble([want(10, 20)], [(ByteRange(0, 100), part)])[ReadKey(Kind.PAGE, 0, 0, 0)]
    assert view.obj is part
    assert bytes(view) == part[10:20]


@pytest.mark.parametrize(
    ("wants", "parts", "message"),
    [
        ([want(0, 10)], [(ByteRange(0, 9), bytes(9))], "no part holds bytes 9..10"),
        ([want(0, 10)], [], "no part holds bytes 0..10"),
        (
            [want(0, 10)],
            [(ByteRange(0, 4), bytes(4)), (ByteRange(5, 10), bytes(5))],
            "no part holds bytes 4..10",
        ),
        ([want(0, 10)], [(ByteRange(0, 10), bytes(9))], "9 bytes came for bytes 0..10"),
        (
            [want(0, 10), want(1, 10)],
            [(ByteRange(0, 10), bytes(10))],
            "names both bytes 0..10 and bytes 1..10",
        ),
    ],
    ids=["short", "nothing", "hole", "lying part", "one key, two ranges"],
)
def test_assemble_refuses(wants: list[Want], parts: list[tuple[ByteRange, bytes]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        assemble(wants, parts)
