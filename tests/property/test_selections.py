"""Rows chosen by the caller: whatever form the ranges come in, just these come out, or what is wrong is
said."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import accel
from accel.planning.selection import RowSelection
from accel.testing import DictStore, Layout, write_file

ROWS, GROUP = 70, 30
GROUPS = [range(30), range(30, 60), range(60, 70)]
LAYOUTS = {
    "pages": {"page_rows": 7},
    "one page": {"page_rows": 100},
    "no page index": {"page_rows": 7, "page_index": False},
}
Ranges = list[tuple[int, int]]


@cache
def table() -> pa.Table:
    keys = pa.array(np.arange(ROWS))
    words = pa.array([None if n % 11 == 0 else f"w{n % 5}" for n in range(ROWS)])
    items = pa.array(
        [None if n % 7 == 0 else [{"a": n, "b": str(m)} for m in range(n % 4)] for n in range(ROWS)]
    )
    return pa.Table.from_arrays([keys, words, items], names=["k", "w", "l"])


@cache
def store(layout: str) -> DictStore:
    settings: dict[str, Any] = {"group_rows": GROUP, "dictionary": ["w"], "codec": "zstd", **LAYOUTS[layout]}
    return DictStore({name: write_file(table(), Layout(**settings)) for name in ("a", "b")})


def as_array(ranges: Ranges) -> Any:
    return np.array(ranges, np.int32).reshape(-1, 2)


def as_iterator(ranges: Ranges) -> Iterator[tuple[int, int]]:
    return iter(ranges)


def as_numbers(ranges: Ranges) -> Any:
    return tuple([np.uint16(start), np.int8(stop)] for start, stop in ranges)


FORMS = [list, as_array, as_iterator, as_numbers, RowSelection.of]
WHERES = {
    None: lambda row: True,
    "k >= 25 AND w <> 'w3'": lambda r: r["k"] >= 25 and r["w"] not in (None, "w3"),
}

ranges_within = st.lists(
    st.tuples(st.integers(0, GROUP), st.integers(0, GROUP)).map(lambda pair: (min(pair), max(pair))),
    max_size=6,
)
selections = st.dictionaries(
    st.sampled_from(["a", "b"]),
    st.dictionaries(st.integers(0, 2), st.tuples(ranges_within, st.sampled_from(FORMS)), max_size=3),
    max_size=2,
)


def cut(group: int, ranges: Ranges) -> Ranges:
    """To the rows that the row group has."""
    size = len(GROUPS[group])
    return [(min(start, size), min(stop, size)) for start, stop in ranges]


@pytest.mark.parametrize("layout", LAYOUTS)
@given(chosen=selections, where=st.sampled_from(list(WHERES)), limit=st.none() | st.integers(0, 40))
@settings(max_examples=60, deadline=None)
def test_just_the_rows_that_are_named(layout: str, chosen: Any, where: str | None, limit: int | None) -> None:
    rows = table().to_pylist()
    expected = []
    for name in ("a", "b"):
        for group in sorted(chosen.get(name, {})):
            inside = {n for start, stop in cut(group, chosen[name][group][0]) for n in range(start, stop)}
            expected += [rows[GROUPS[group][n]] for n in sorted(inside)]
    expected = [row for row in expected if WHERES[where](row)][:limit]

    def selection() -> dict[str, dict[int, Any]]:
        return {
            name: {np.int64(group): form(cut(group, ranges)) for group, (ranges, form) in groups.items()}
            for name, groups in chosen.items()
        }

    keywords = {"where": where, "store": store(layout), "cache": None}
    scan = accel.scan(["a", "b"], limit=limit, selection=selection(), **keywords)
    assert scan.to_table().to_pylist() == expected
    assert scan.to_table().to_pylist() == expected  # an iterator of ranges is read once
    assert scan.count_rows() == len(expected)
    if limit is None:
        plan = accel.plan(["a", "b"], selection=selection(), **keywords)
        again = accel.Plan.from_arrow(plan.to_arrow())
        assert accel.scan(again, store=store(layout), cache=None).to_table().to_pylist() == expected


def test_the_callers_mapping_may_change_meanwhile() -> None:
    groups: dict[int, Ranges] = {0: [(3, 5)]}
    selection = {"a": groups}
    scan = accel.scan("a", selection=selection, columns=["k"], store=store("pages"), cache=None)
    groups[0].append((9, 12))
    groups[1] = [(0, 30)]
    selection["zzz"] = {}
    assert scan.to_table()["k"].to_pylist() == [3, 4]


def test_one_file_by_two_names() -> None:
    scan = accel.scan("a", columns=["k"], store=store("pages"), cache=None)
    (file,) = {task.file.url for task in accel.plan("a", store=store("pages"), cache=None).tasks}
    assert scan.count_rows() == ROWS
    selection = {"a": {0: [(3, 5)], 1: [(0, 1)]}, f"file://{file}": {0: [(4, 7)], 2: [(9, 10)]}}
    both = accel.scan("a", columns=["k"], selection=selection, store=store("pages"), cache=None)
    assert both.to_table()["k"].to_pylist() == [3, 4, 5, 6, 30, 69]


# What is no list of ranges, and numbers that no row has.
_BIG = 1 << 70
bad_ends = st.sampled_from(
    [-1, -_BIG, _BIG, 0.5, 2.0, "3", None, b"1", float("nan"), (1,), 1j, np.float32(1)]
)
bad_ranges = st.one_of(
    st.tuples(bad_ends, st.just(5)),
    st.tuples(st.just(0), bad_ends),
    st.sampled_from([(5, 4), (0,), (0, 1, 2), 7, None, "05", "ab", slice(0, 5), range(3), {}, [[0, 1]]]),
)
bad_lists = st.one_of(
    st.lists(bad_ranges, min_size=1, max_size=3),
    st.sampled_from(
        [5, None, slice(0, 3), range(4), "01", np.zeros(ROWS, bool), np.arange(6), np.array([[0.0, 2.5]])]
    ),
)


@given(bad=bad_lists)
@settings(max_examples=150, deadline=None)
def test_what_is_no_range_is_said_at_the_call(bad: Any) -> None:
    with pytest.raises(
        ValueError, match=r"selection\['a'\]\[1\] is a list of \(start, stop\) with 0 <= start <= stop"
    ):
        accel.scan("a", selection={"a": {0: [(0, 3)], 1: bad}}, store=store("pages"), cache=None)


@given(group=st.one_of(st.integers(3, 1 << 80), st.integers(-(1 << 80), -1)), rows=st.integers(1, 9))
@settings(max_examples=40, deadline=None)
def test_a_row_group_that_is_not_there(group: int, rows: int) -> None:
    scan = accel.scan(
        "a", selection={"a": {0: [(0, 3)], group: [(0, rows)]}}, store=store("pages"), cache=None
    )
    with pytest.raises(ValueError, match=f"selection names row group {group}; a has 3"):
        scan.to_table()


@given(group=st.integers(0, 2), over=st.integers(1, (1 << 63) - 31), start=st.integers(0, 5))
@settings(max_examples=40, deadline=None)
def test_rows_that_are_not_there(group: int, over: int, start: int) -> None:
    stop = len(GROUPS[group]) + over
    scan = accel.scan("a", selection={"a": {group: [(start, stop)]}}, store=store("pages"), cache=None)
    with pytest.raises(
        ValueError, match=f"selection goes to row {stop} of row group {group} of a, which has"
    ):
        scan.count_rows()
