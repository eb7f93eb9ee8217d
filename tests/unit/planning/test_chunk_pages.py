"""The pages that hold rows: shared work gives what each chunk would have by itself."""

from __future__ import annotations

import numpy as np
import pytest

from accel.format.model import OffsetIndex
from accel.planning.pages import ChunkFacts, PagesOf
from accel.planning.selection import RowSelection
from accel.ranges import ByteRange

ROWS = 100


def facts(first_row: np.ndarray) -> tuple[ChunkFacts, OffsetIndex]:
    pages = len(first_row)
    index = OffsetIndex(1000 + 10 * np.arange(pages), np.full(pages, 10, np.int64), first_row)
    return (1000, 990, 1000 + 10 * pages, 1, 2, ROWS, 1.5), index


@pytest.mark.parametrize(
    ("ranges", "ordinals", "stops"),
    [
        ([(0, 100)], [0, 1, 2, 3], [30, 60, 90, 100]),
        ([(30, 31)], [1], [60]),
        ([(0, 1), (95, 96)], [0, 3], [30, 100]),
    ],
    ids=["all", "one", "apart"],
)
def test_chunks_cut_alike_share_what_is_found(
    ranges: list[tuple[int, int]], ordinals: list[int], stops: list[int]
) -> None:
    first_row = np.array([0, 30, 60, 90], np.int64)
    wanted = PagesOf(RowSelection.of(ranges), ROWS)
    reads = wanted.reads(*facts(first_row), 0, for_filter=True, for_output=False, max_repetition=0)
    same = wanted.reads(*facts(first_row), 3, for_filter=False, for_output=True, max_repetition=0)
    equal = wanted.reads(*facts(first_row.copy()), 3, for_filter=False, for_output=True, max_repetition=0)
    assert reads.ordinal.tolist() == same.ordinal.tolist() == equal.ordinal.tolist() == ordinals
    assert same.first_row is reads.first_row and equal.first_row is not reads.first_row
    assert reads.stop_row.tolist() == stops
    assert reads.offset.tolist() == [1000 + 10 * page for page in ordinals]
    assert (same.leaf, same.column, same.for_filter, same.for_output) == (3, 3, False, True)
    assert (reads.codec, reads.dictionary, reads.dictionary_pages, reads.expansion, reads.total_pages) == (
        1,
        ByteRange(990, 1000),
        2,
        1.5,
        4,
    )


def test_other_pages_are_looked_at_by_themselves() -> None:
    wanted = PagesOf(RowSelection.of([(50, 60)]), ROWS)
    assert wanted.reads(
        *facts(np.array([0, 40], np.int64)), 0, for_filter=False, for_output=True, max_repetition=0
    ).ordinal.tolist() == [1]
    assert wanted.reads(
        *facts(np.array([0, 40, 55, 70], np.int64)), 1, for_filter=False, for_output=True, max_repetition=0
    ).ordinal.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("ranges", "flat", "lists"),
    [
        pytest.param([(50, 59)], [1], [1], id="within a page"),
        pytest.param([(50, 60)], [1], [1, 2], id="to the end of one"),
        pytest.param([(29, 30), (59, 60)], [0, 1], [0, 1, 2], id="two of them"),
        pytest.param([(95, 100)], [3], [3], id="to the last row"),
        pytest.param([(0, 100)], [0, 1, 2, 3], [0, 1, 2, 3], id="all"),
    ],
)
def test_inside_a_list_the_next_page_shows_that_the_last_row_has_ended(
    ranges: list[tuple[int, int]], flat: list[int], lists: list[int]
) -> None:
    wanted = PagesOf(RowSelection.of(ranges), ROWS)
    of_chunk = facts(np.array([0, 30, 60, 90], np.int64))
    for max_repetition, pages in ((0, flat), (1, lists), (0, flat)):
        reads = wanted.reads(*of_chunk, 0, for_filter=False, for_output=True, max_repetition=max_repetition)
        assert reads.ordinal.tolist() == pages
        assert reads.max_repetition == max_repetition


def test_a_chunk_without_pages_is_read_whole() -> None:
    bare = (-1, 4, 90, 1, 0, ROWS, 1.0)
    reads = PagesOf(RowSelection.all(ROWS), ROWS).reads(
        bare, None, 0, for_filter=False, for_output=True, max_repetition=0
    )
    assert reads.whole and reads.nbytes == 86 and not len(reads.ordinal)
