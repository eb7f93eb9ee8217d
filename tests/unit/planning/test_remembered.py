"""What is remembered of a predicate: exactly what was tested, for exactly that predicate, and no more than fits."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel.planning import remembered
from accel.planning.query import FileQuery
from accel.planning.remembered import Evaluation, Remembered, is_selective, predicate_key
from accel.planning.selection import RowSelection
from accel.predicate.bind import bind
from accel.predicate.where import to_expr

ROWS = 40
CACHE = 256 << 20
SCHEMA = pa.schema(
    {
        "i": pa.int64(),
        "small": pa.int32(),
        "f": pa.float64(),
        "s": pa.string(),
        "b": pa.binary(),
        "d": pa.decimal128(9, 2),
        "t": pa.timestamp("us"),
        "z": pa.timestamp("us", "UTC"),
    }
)


def query(where: Any, **changed: Any) -> FileQuery:
    fields: dict[str, Any] = {
        "bound": None if where is None else bind(to_expr(where), changed.pop("schema", SCHEMA)),
        "filter_paths": {},
        "constants": {},
        "output": pa.schema([]),
        "output_leaves": (),
        "filter_leaves": (),
        "output_constants": {},
        "prunable": (),
    }
    return FileQuery(**{**fields, **changed})


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


def test_predicates_that_select_other_rows_have_other_keys() -> None:
    texts = [
        "i = 1",
        "i = 2",
        "i <> 1",
        "i < 1",
        "i <= 1",
        "small = 1",
        "f = 1",
        "f = 1.5",
        "f = -0.0",
        "f < 0.0",
        "s = '1'",
        "s = ' 1'",
        "s LIKE '1%'",
        "s LIKE '1_'",
        "s LIKE '%1'",
        "b = X'31'",
        "d = 1.00",
        "d = 1.01",
        "t = TIMESTAMP '2020-01-01'",
        "t = TIMESTAMP '2020-01-01 00:00:00.000001'",
        "z = TIMESTAMP '2020-01-01'",
        "i IS NULL",
        "i IS NOT NULL",
        "NOT (i = 1)",
        "i = 1 AND small = 1",
        "i = 1 OR small = 1",
        "i IN (1, 2)",
        "i IN (1, 3)",
        "i = small",
        "i < small",
    ]
    keys = {text: predicate_key(query(text), "ns") for text in texts}
    assert None not in keys.values()
    same = [(a, b) for a, b in itertools.combinations(texts, 2) if keys[a] == keys[b]]
    # Without nulls or NaN in the way these are the same atoms.
    assert same == [("i <> 1", "NOT (i = 1)")]
    assert keys == {text: predicate_key(query(text), "ns") for text in texts}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {"constants": {("month",): pa.scalar(7)}}),
        ({"constants": {("month",): pa.scalar(7)}}, {"constants": {("month",): pa.scalar(8)}}),
        (
            {"constants": {("month",): pa.scalar(7)}},
            {"constants": {("month",): pa.scalar(7, pa.int32())}},
        ),
        ({"constants": {("month",): pa.scalar(7)}}, {"constants": {("month",): pa.scalar(None, pa.int64())}}),
        (
            {"constants": {("p",): pa.scalar("a" * 60 + "b")}},
            {"constants": {("p",): pa.scalar("a" * 60 + "c")}},
        ),
        (
            {"constants": {("p",): pa.scalar(1, pa.timestamp("ns"))}},
            {"constants": {("p",): pa.scalar(2, pa.timestamp("ns"))}},
        ),
        ({"conformed": {("i",): pa.float64()}}, {}),
        ({"conformed": {("i",): pa.float64()}}, {"conformed": {("i",): pa.int64()}}),
        ({}, {"schema": SCHEMA.set(0, pa.field("i", pa.int32()))}),
    ],
    ids=[
        "none",
        "value",
        "width",
        "null",
        "text",
        "nanoseconds",
        "conformed",
        "conformed to",
        "the file's type",
    ],
)
def test_what_else_says_which_rows_match_is_in_the_key(one: dict[str, Any], other: dict[str, Any]) -> None:
    keys = [predicate_key(query("i = 1", **changed), "ns") for changed in (one, dict(one), other)]
    assert None not in keys
    assert keys[0] == keys[1]
    assert keys[0] != keys[2]


def test_the_unit_of_int96_is_in_the_key() -> None:
    asked = query("i = 1")
    assert predicate_key(asked, "ns") != predicate_key(asked, "us")


def test_what_is_no_predicate_or_a_long_one_has_no_key() -> None:
    assert predicate_key(query(None), "ns") is None
    assert predicate_key(query(f"i IN ({', '.join(map(str, range(0, 9000, 7)))})"), "ns") is None
