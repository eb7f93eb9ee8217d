"""What is remembered of a predicate: exactly what was tested, for exactly that predicate, and no more than fits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel.planning import remembered
from accel.planning.remembered import Evaluation, Remembered, is_selective
from accel.planning.selection import RowSelection

ROWS = 40
CACHE = 256 << 20


def rows(mask: list[bool]) -> RowSelection:
    return RowSelection.from_mask(np.array(mask, bool))


masks = st.lists(st.booleans(), min_size=ROWS, max_size=ROWS)


@given(masks, masks, masks, masks, st.booleans())
def test_what_is_settled_is_what_matches(
    match: list[bool], may: list[bool], sure: list[bool], test: list[bool], covers: bool
) -> None:
    """Whatever is asked for, the rows are those that match; unless some in doubt were never tested."""
    truth, asked = rows(match), rows(may)
    tested = rows(test).union(asked) if covers else rows(test)
    known = rows(sure).intersect(truth).intersect(asked)
    found = Evaluation(tested, tested.intersect(truth)).settle(asked, known, ROWS)
    if asked.without(known, ROWS).without(tested, ROWS):
        assert found is None
    else:
        assert found == asked.intersect(truth)


def test_several_pieces_of_a_row_group_add_up() -> None:
    it = Remembered(CACHE)
    for start, matched in ((0, [(3, 4)]), (10, []), (20, [(20, 22), (29, 30)])):
        tested = RowSelection.of([(start, start + 10)])
        it.learn(b"k", 2, tested=tested, matched=RowSelection.of(matched))
    (group, known), *others = it.under(b"k").items()
    assert (group, others) == (2, [])
    assert known.tested == RowSelection.of([(0, 30)])
    assert known.matched == RowSelection.of([(3, 4), (20, 22), (29, 30)])
    assert it.under(b"other") == {}
    assert it.under(None) == {}


def test_the_predicate_that_was_not_asked_for_goes_first() -> None:
    few = RowSelection.of([(1, 2)])
    one = Remembered(CACHE)
    one.learn(b"0", 0, tested=few, matched=few)
    room = 3 * one.nbytes
    it = Remembered(64 * room)
    for key in (b"0", b"1", b"2"):
        it.learn(key, 0, tested=few, matched=few)
    assert it.nbytes == room
    assert sorted(it.under(b"0")) == [0]
    it.learn(b"3", 0, tested=few, matched=few)
    assert [key for key in (b"0", b"1", b"2", b"3") if it.under(key)] == [b"0", b"2", b"3"]
    it.learn(b"0", 1, tested=few, matched=few)
    assert sorted(it.under(b"0")) == [0, 1]
    assert it.nbytes <= room


@pytest.mark.parametrize(
    ("most", "cache_bytes"), [(10_000, CACHE), (1 << 20, 64 * 10_000)], ids=["file", "cache"]
)
def test_no_more_is_held_than_is_allowed(
    monkeypatch: pytest.MonkeyPatch, most: int, cache_bytes: int
) -> None:
    monkeypatch.setattr(remembered, "_MOST_BYTES", most)
    it = Remembered(cache_bytes)
    many = RowSelection.of([(2 * i, 2 * i + 1) for i in range(200)])
    for number in range(10):
        it.learn(b"%d" % number, 0, tested=many, matched=many)
        assert 0 < it.nbytes <= 10_000
    assert [number for number in range(10) if it.under(b"%d" % number)] == [9]
    huge = RowSelection.of([(2 * i, 2 * i + 1) for i in range(2000)])
    it.learn(b"huge", 0, tested=huge, matched=huge)
    assert it.under(b"huge") == {}
    assert sorted(it.under(b"9")) == [0]
    # Grown too large, it is given up.
    it.learn(b"9", 1, tested=many, matched=many)
    assert (it.under(b"9"), it.nbytes) == ({}, 0)


@pytest.mark.parametrize(("tested", "matched", "worth"), [(2560, 10, True), (2559, 10, False), (1, 0, True)])
def test_only_what_selects_little_is_worth_it(tested: int, matched: int, worth: bool) -> None:
    assert is_selective(tested, matched) == worth
