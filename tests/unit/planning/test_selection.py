"""Row selections against the dumbest model there is: a list of booleans."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel.planning.file_entry import FileEntry
from accel.planning.selection import RowSelection
from accel.scanning.selected_source import match_selection


def one_run(size: int) -> st.SearchStrategy[list[bool]]:
    """A lookup selects one range."""
    ends = st.tuples(st.integers(0, size), st.integers(0, size)).map(sorted)
    return ends.map(lambda run: [run[0] <= row < run[1] for row in range(size)])


def bits_of(size: int) -> st.SearchStrategy[list[bool]]:
    return one_run(size) | st.lists(st.booleans(), min_size=size, max_size=size)


masks = st.integers(0, 40).flatmap(bits_of).map(lambda bits: np.array(bits, bool))


@st.composite
def pairs(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    size = draw(st.integers(0, 40))
    return np.array(draw(bits_of(size)), bool), np.array(draw(bits_of(size)), bool)


def mask_of(selection: RowSelection, size: int) -> list[bool]:
    out = [False] * size
    for start, stop in selection:
        assert 0 <= start < stop <= size
        for row in range(start, stop):
            assert not out[row]
            out[row] = True
    return out


@given(masks)
def test_round_trip_and_count(mask: np.ndarray) -> None:
    selection = RowSelection.from_mask(mask)
    assert mask_of(selection, len(mask)) == mask.tolist()
    assert selection.count == int(mask.sum())
    # Canonical: neighbours never touch.
    assert all(a < b for a, b in zip(selection.stops[:-1], selection.starts[1:], strict=True))
    assert bool(selection) == bool(mask.any())


@given(pairs())
def test_set_algebra(pair: tuple[np.ndarray, np.ndarray]) -> None:
    left, right = pair
    a, b, n = RowSelection.from_mask(left), RowSelection.from_mask(right), len(left)
    assert a.intersect(b) == RowSelection.from_mask(left & right)
    assert a.union(b) == RowSelection.from_mask(left | right)
    assert a.invert(n) == RowSelection.from_mask(~left)


@given(masks, st.integers(0, 40), st.integers(0, 40))
def test_window_and_head(mask: np.ndarray, start: int, length: int) -> None:
    selection = RowSelection.from_mask(mask)
    inside = mask & (np.arange(len(mask)) >= start) & (np.arange(len(mask)) < start + length)
    assert mask_of(selection.within(start, start + length), len(mask)) == inside.tolist()
    first = mask & (np.cumsum(mask) <= length)
    assert mask_of(selection.head(length), len(mask)) == first.tolist()


@given(masks, st.randoms(use_true_random=False))
def test_refine_is_composition(mask: np.ndarray, random: object) -> None:
    selection = RowSelection.from_mask(mask)
    inner = np.array([random.random() < 0.5 for _ in range(selection.count)], bool)  # type: ignore[attr-defined]
    expected = np.zeros(len(mask), bool)
    expected[np.flatnonzero(mask)[inner]] = True
    assert selection.refine(inner) == RowSelection.from_mask(expected)


@given(masks, st.sets(st.integers(1, 39)))
def test_units(mask: np.ndarray, cuts: set[int]) -> None:
    if not len(mask):
        return
    n = len(mask)
    first = np.array([0, *sorted(c for c in cuts if c < n)], np.int64)
    stops = np.append(first[1:], n)
    selection = RowSelection.from_mask(mask)
    expected = [bool(mask[a:b].any()) for a, b in zip(first, stops, strict=True)]
    assert selection.overlaps(first, n).tolist() == expected
    keep = np.array(expected, bool)
    rebuilt = np.zeros(n, bool)
    for a, b, k in zip(first, stops, expected, strict=True):
        rebuilt[a:b] = k
    assert RowSelection.from_units(first, n, keep=keep) == RowSelection.from_mask(rebuilt)


@given(masks, st.sets(st.integers(1, 39)), st.tuples(st.integers(0, 40), st.integers(0, 40)).map(sorted))
def test_the_places_of_units(mask: np.ndarray, cuts: set[int], one: list[int]) -> None:
    n = len(mask)
    first = np.array([0, *sorted(c for c in cuts if c < n)], np.int64)
    for selection in (RowSelection.from_mask(mask), RowSelection.of([(min(one[0], n), min(one[1], n))])):
        places = np.arange(len(first))[selection.units(first, n)]
        assert places.tolist() == np.flatnonzero(selection.overlaps(first, n)).tolist()


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=12))
def test_units_may_have_no_rows(units: list[tuple[int, bool]]) -> None:
    sizes, keep = np.array([size for size, _ in units]), np.array([kept for _, kept in units])
    first, n = np.cumsum(sizes) - sizes, int(sizes.sum())
    assert RowSelection.from_units(first, n, keep=keep) == RowSelection.from_mask(np.repeat(keep, sizes))


def test_of_unites_and_drops_empty() -> None:
    assert list(RowSelection.of([(5, 7), (0, 2), (6, 9), (3, 3), (2, 3)])) == [(0, 3), (5, 9)]
    assert list(RowSelection.of([])) == []


@pytest.mark.parametrize(
    "ranges",
    [
        pytest.param([(-1, 2)], id="negative"),
        pytest.param([(3, 2)], id="ends before it starts"),
        pytest.param([(0, 2), (5, 4), (6, 8)], id="one of several"),
    ],
)
def test_of_refuses(ranges: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="row range"):
        RowSelection.of(ranges)


@given(masks, st.data())
def test_counts_of_any_spans(mask: np.ndarray, draw: st.DataObject) -> None:
    """Spans may overlap, be empty, and reach beyond the last row."""
    ends = st.tuples(st.integers(0, 45), st.integers(0, 45)).map(sorted)
    spans = np.array(draw.draw(st.lists(ends, max_size=6)), np.int64).reshape(-1, 2)
    found = RowSelection.from_mask(mask).counts(spans[:, 0], spans[:, 1])
    assert found.tolist() == [int(mask[a:b].sum()) for a, b in spans.tolist()]


@given(pairs())
def test_without(both: tuple[np.ndarray, np.ndarray]) -> None:
    one, other = both
    left = RowSelection.from_mask(one).without(RowSelection.from_mask(other), len(one))
    assert mask_of(left, len(one)) == (one & ~other).tolist()


@pytest.mark.parametrize("ranges", [[], [(0, 1)], [(2, 5)], [(0, 2), (7, 8), (10, 13)]], ids=str)
def test_row_numbers_are_all_rows_of_all_ranges(ranges: list[tuple[int, int]]) -> None:
    assert RowSelection.of(ranges).row_numbers().tolist() == [row for a, b in ranges for row in range(a, b)]


# -- the files that a selection names ------------------------------------------------------------

ROWS = {0: RowSelection.of([(0, 2)])}
SHARED = [
    FileEntry("s3://a", "d/x.parquet", "s3://a/d/x.parquet"),
    FileEntry("s3://b", "d/x.parquet", "s3://b/d/x.parquet"),
    FileEntry("s3://b", "y.parquet", "s3://b/y.parquet"),
    FileEntry("file://", "/z.parquet", "/z.parquet"),
    FileEntry("file://", "home/me/w.parquet", "w.parquet"),
]


@pytest.mark.parametrize(
    ("names", "urls"),
    [
        pytest.param(["s3://a/d/x.parquet"], ["s3://a/d/x.parquet"], id="a URL"),
        pytest.param(["y.parquet"], ["s3://b/y.parquet"], id="a path of one store"),
        pytest.param(["file:///z.parquet"], ["/z.parquet"], id="a local file's URL"),
        pytest.param(["w.parquet"], ["w.parquet"], id="a local file as its source has it"),
        pytest.param(["/home/me/w.parquet"], ["w.parquet"], id="the whole path of a local file"),
        pytest.param(
            ["file:///home/me/w.parquet"], ["w.parquet"], id="the URL of a local file named by a path"
        ),
        pytest.param(["y.parquet", "s3://b/y.parquet"], ["s3://b/y.parquet"], id="twice"),
        pytest.param([], [], id="nothing"),
    ],
)
def test_a_selection_names_files_by_url_or_path(names: list[str], urls: list[str]) -> None:
    found = match_selection(dict.fromkeys(names, ROWS), SHARED)
    assert {url: {group: list(rows) for group, rows in groups.items()} for url, groups in found.items()} == {
        url: {0: [(0, 2)]} for url in urls
    }


def test_the_rows_of_two_names_are_united() -> None:
    found = match_selection({"y.parquet": ROWS, "s3://b/y.parquet": {0: RowSelection.of([(5, 6)])}}, SHARED)
    assert list(found["s3://b/y.parquet"][0]) == [(0, 2), (5, 6)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param(
            "d/x.parquet",
            "selection names 'd/x.parquet', which is the path of 2 files of the scan; "
            "name them by their URLs, as 's3://a/d/x.parquet'",
            id="a path that two stores share",
        ),
        pytest.param(
            "y.parque",
            "selection names 'y.parque', which is not among the files of the scan; did you mean 'y.parquet'?",
            id="no file",
        ),
    ],
)
def test_a_selection_that_names_no_one_file_is_refused(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        match_selection({name: ROWS}, SHARED)


@pytest.mark.parametrize(
    ("ranges", "grown"),
    [
        ([], []),
        ([(0, 10)], [(0, 11)]),
        ([(0, 10), (11, 20), (30, 40)], [(0, 21), (30, 41)]),
        ([(0, 10), (12, 20)], [(0, 11), (12, 21)]),
    ],
    ids=str,
)
def test_one_row_more_after_each_range(ranges: list[tuple[int, int]], grown: list[tuple[int, int]]) -> None:
    assert list(RowSelection.of(ranges).grown()) == grown


def test_all_rows_are_one_selection_that_nobody_changes() -> None:
    rows = RowSelection.all(7)
    assert rows is RowSelection.all(7)
    assert list(rows) == [(0, 7)]
    with pytest.raises(ValueError, match="read-only"):
        rows.stops[0] = 8
    assert list(rows.without(rows, 7)) == []
    assert not RowSelection.all(0)
