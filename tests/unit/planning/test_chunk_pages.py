"""The pages that hold rows: shared work gives what each chunk would have by itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from accel.format.model import OffsetIndex, Physical
from accel.planning.pages import LeafReads, PagesOf
from accel.planning.selection import RowSelection
from accel.ranges import ByteRange

ROWS = 100


def metadata(start: int, end: int, *, max_repetition: int = 0) -> Any:
    """What `PagesOf.reads` takes of a file of four chunks, all in one place."""
    numbers = {
        "start": start,
        "end": end,
        "codec": 1,
        "dictionary_pages": 2,
        "num_values": ROWS,
        "compressed": 1000,
        "uncompressed": 1500,
        "unencoded": 0,
    }
    chunks = SimpleNamespace(**{name: np.full((1, 4), value, np.int64) for name, value in numbers.items()})
    leaf = SimpleNamespace(element=0, max_repetition=max_repetition, max_definition=max_repetition)
    element = SimpleNamespace(physical=Physical.INT32, type_length=0)
    return SimpleNamespace(chunks=chunks, schema=SimpleNamespace(leaves=[leaf] * 4, elements=[element]))


def chunk(first_row: np.ndarray, *, max_repetition: int = 0) -> tuple[Any, OffsetIndex]:
    pages = len(first_row)
    index = OffsetIndex(1000 + 10 * np.arange(pages), np.full(pages, 10, np.int64), first_row)
    return metadata(990, 1000 + 10 * pages, max_repetition=max_repetition), index


def reads_of(
    wanted: PagesOf, of: tuple[Any, OffsetIndex | None], leaf: int, *, for_filter: bool = False
) -> LeafReads:
    described, index = of
    return wanted.reads(described, 0, leaf, index=index, for_filter=for_filter, for_output=not for_filter)


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
    reads = reads_of(wanted, chunk(first_row), 0, for_filter=True)
    same = reads_of(wanted, chunk(first_row), 3)
    equal = reads_of(wanted, chunk(first_row.copy()), 3)
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
    assert reads_of(wanted, chunk(np.array([0, 40], np.int64)), 0).ordinal.tolist() == [1]
    assert reads_of(wanted, chunk(np.array([0, 40, 55, 70], np.int64)), 1).ordinal.tolist() == [1, 2]


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
    first_row = np.array([0, 30, 60, 90], np.int64)
    for max_repetition, pages in ((0, flat), (1, lists), (0, flat)):
        reads = reads_of(wanted, chunk(first_row, max_repetition=max_repetition), 0)
        assert reads.ordinal.tolist() == pages
        assert reads.max_repetition == max_repetition


def test_a_chunk_without_pages_is_read_whole() -> None:
    reads = reads_of(PagesOf(RowSelection.all(ROWS), ROWS), (metadata(4, 90), None), 0)
    assert reads.whole and reads.nbytes == 86 and not len(reads.ordinal)
