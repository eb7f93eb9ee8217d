"""Selected rows to page reads, and the cutting of tasks into pieces."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel.format.model import OffsetIndex, Physical
from accel.planning.leaf_chunks import LeafChunks, level_bytes
from accel.planning.pages import (
    LeafReads,
    PagesOf,
    Piece,
    PieceSize,
    cut_pieces,
    piece_wants,
)
from accel.planning.selection import RowSelection
from accel.ranges import ByteRange, Kind, ReadKey, Want
from accel.testing import Layout, write_file
from tests.unit.decode.selected import open_metadata

ROWS = 100


def reads(
    *,
    leaf: int = 0,
    first_rows: list[int],
    rows: RowSelection,
    page_bytes: int = 10,
    start: int = 1000,
    dictionary: int = 0,
    dictionary_pages: int = 0,
    for_filter: bool = False,
    for_output: bool = True,
    max_repetition: int = 0,
) -> LeafReads:
    """A chunk of pages of `page_bytes` each, back to back behind a dictionary of `dictionary` bytes."""
    first = np.array(first_rows, np.int64)
    keep = np.flatnonzero(rows.overlaps(first, ROWS))
    offset = start + dictionary + page_bytes * np.arange(len(first))
    return LeafReads(
        leaf=leaf,
        column=leaf,
        codec=0,
        chunk=ByteRange(start, start + dictionary + page_bytes * len(first)),
        dictionary=ByteRange(start, start + dictionary) if dictionary else None,
        dictionary_pages=dictionary_pages,
        num_values=ROWS,
        expansion=1.0,
        for_filter=for_filter,
        for_output=for_output,
        max_repetition=max_repetition,
        ordinal=keep,
        offset=offset[keep],
        size=np.full(len(keep), page_bytes, np.int64),
        first_row=first[keep],
        stop_row=np.append(first[1:], ROWS)[keep],
        total_pages=len(first),
    )


def whole(leaf: int = 0) -> LeafReads:
    empty = np.empty(0, np.int64)
    return LeafReads(
        leaf=leaf,
        column=leaf,
        codec=0,
        chunk=ByteRange(4, 504),
        dictionary=None,
        dictionary_pages=0,
        num_values=ROWS,
        expansion=1.0,
        for_filter=False,
        for_output=True,
        max_repetition=0,
        ordinal=empty,
        offset=empty,
        size=empty,
        first_row=empty,
        stop_row=empty,
        total_pages=0,
    )


def cut(leaves: list[LeafReads], rows: RowSelection, piece_bytes: int) -> list[Piece]:
    return cut_pieces(leaves, rows, certain=RowSelection.none(), num_rows=ROWS, size=PieceSize(piece_bytes))


def no_dictionary(_: ReadKey) -> bool:
    return False


def test_neighbouring_pages_are_one_want_and_a_gap_splits() -> None:
    rows = RowSelection.of([(0, 21), (55, 56)])
    (piece,) = cut([reads(first_rows=[0, 10, 20, 30, 50], rows=rows)], rows, 10**6)
    pages, dictionaries = piece_wants(piece, 3, have_dictionary=no_dictionary)
    assert pages == [
        Want(ReadKey(Kind.PAGE, 3, 0, 0), ByteRange(1000, 1030)),
        Want(ReadKey(Kind.PAGE, 3, 0, 4), ByteRange(1040, 1050)),
    ]
    assert dictionaries == []
    assert piece.fetched_bytes == 40


@pytest.mark.parametrize(
    ("dictionary_pages", "rows", "cached", "wanted"),
    [
        pytest.param(2, [(15, 16)], False, True, id="page 1 of 2 encoded ones"),
        pytest.param(2, [(25, 26)], False, False, id="page 2 is plain"),
        pytest.param(-1, [(25, 26)], False, True, id="unknown: fetch it"),
        pytest.param(0, [(0, 100)], False, False, id="none is encoded"),
        pytest.param(2, [(15, 16)], True, False, id="cached"),
        pytest.param(1, [(5, 95)], False, True, id="the first of many"),
    ],
)
def test_dictionary_only_for_pages_that_use_it(
    dictionary_pages: int, rows: list[tuple[int, int]], cached: bool, wanted: bool
) -> None:
    selection = RowSelection.of(rows)
    leaf = reads(first_rows=[0, 10, 20, 30], rows=selection, dictionary=77, dictionary_pages=dictionary_pages)
    (piece,) = cut([leaf], selection, 10**6)
    _, dictionaries = piece_wants(piece, 0, have_dictionary=lambda key: cached)
    expected = [Want(ReadKey(Kind.DICTIONARY, 0, 0), ByteRange(1000, 1077))]
    assert dictionaries == (expected if wanted else [])


def test_a_chunk_without_offset_index_is_one_want_and_never_cut() -> None:
    rows = RowSelection.of([(3, 99)])
    pieces = cut([whole(), reads(leaf=1, first_rows=list(range(0, 100, 5)), rows=rows)], rows, 1)
    assert len(pieces) == 1
    pages, _ = piece_wants(pieces[0], 0, have_dictionary=no_dictionary)
    assert pages[0] == Want(ReadKey(Kind.CHUNK, 0, 0), ByteRange(4, 504))


def test_a_page_across_a_cut_is_asked_for_once_and_carried() -> None:
    rows = RowSelection.all(ROWS)
    fine = reads(leaf=0, first_rows=list(range(0, 100, 10)), rows=rows, page_bytes=20)
    coarse = reads(leaf=1, first_rows=[0, 45], rows=rows, page_bytes=20, start=5000)
    pieces = cut([fine, coarse], rows, 80)
    assert [(p.start, p.stop) for p in pieces] == [(0, 30), (30, 60), (60, 100)]
    assert [[(part.lo, part.hi, part.carried) for part in p.leaves] for p in pieces] == [
        [(0, 3, False), (0, 1, False)],
        [(3, 6, False), (0, 2, True)],
        [(6, 10, False), (1, 2, True)],
    ]
    asked = [want.range for p in pieces for want in piece_wants(p, 0, have_dictionary=no_dictionary)[0]]
    assert sum(r.length for r in asked) == 10 * 20 + 2 * 20


def test_filter_leaf_covers_only_what_is_unsure() -> None:
    rows, certain = RowSelection.all(ROWS), RowSelection.of([(0, 50)])
    maybe = RowSelection.of([(50, 100)])
    leaf = reads(first_rows=[0, 25, 50, 75], rows=maybe, for_filter=True, for_output=False)
    (piece,) = cut_pieces([leaf], rows, certain=certain, num_rows=ROWS, size=PieceSize(10**6))
    pages, _ = piece_wants(piece, 0, have_dictionary=no_dictionary)
    assert [w.range for w in pages] == [ByteRange(1020, 1040)]
    assert piece.certain == certain


@st.composite
def layouts(draw: st.DrawFn) -> tuple[list[LeafReads], RowSelection, int]:
    bits = np.array(draw(st.lists(st.booleans(), min_size=ROWS, max_size=ROWS)), bool)
    rows = RowSelection.from_mask(bits)
    leaves = []
    for leaf in range(draw(st.integers(1, 4))):
        cuts = sorted(draw(st.sets(st.integers(1, ROWS - 1), max_size=30)))
        size = draw(st.integers(1, 50))
        leaves.append(
            reads(leaf=leaf, first_rows=[0, *cuts], rows=rows, page_bytes=size, start=10_000 * (leaf + 1))
        )
    return leaves, rows, draw(st.integers(1, 2000))


@given(layouts())
def test_pieces_cover_all_rows_once_and_ask_for_every_page_once(
    layout: tuple[list[LeafReads], RowSelection, int],
) -> None:
    leaves, rows, piece_bytes = layout
    pieces = cut(leaves, rows, piece_bytes)
    covered = RowSelection.none()
    for piece in pieces:
        assert not covered.intersect(piece.rows)
        covered = covered.union(piece.rows)
        for part in piece.leaves:
            # Every selected row of the piece lies in the pages that it has.
            have = RowSelection.of(
                zip(
                    part.reads.first_row[part.lo : part.hi],
                    part.reads.stop_row[part.lo : part.hi],
                    strict=True,
                )
            )
            assert piece.rows.intersect(have) == piece.rows
    assert covered == rows
    asked = [want.range for p in pieces for want in piece_wants(p, 0, have_dictionary=no_dictionary)[0]]
    bytes_asked = sorted(b for r in asked for b in range(r.start, r.end))
    bytes_needed = sorted(
        b for leaf in leaves for o, s in zip(leaf.offset, leaf.size, strict=True) for b in range(o, o + s)
    )
    assert bytes_asked == bytes_needed


@pytest.mark.parametrize(
    ("columns", "most", "starts"),
    [
        pytest.param(96, 1 << 20, [0, 50], id="many"),
        pytest.param(200, 0, [0, 25, 50, 75], id="more, as for few"),
        pytest.param(200, 1 << 20, [0, 50], id="more: larger pieces"),
        pytest.param(200, 3_000, [0, 50], id="within what they may come to"),
        pytest.param(200, 2_000, [0, 25, 50, 75], id="which may be little"),
        pytest.param(400, 1 << 20, [0, 50], id="in proportion"),
    ],
)
def test_pieces_of_many_columns_are_larger(columns: int, most: int, starts: list[int]) -> None:
    """So that what is wanted of each does not become less than a request is worth: two pages of ten bytes."""
    every = RowSelection.all(ROWS)
    leaves = [reads(leaf=leaf, first_rows=[0, 25, 50, 75], rows=every) for leaf in range(columns)]
    pieces = cut_pieces(
        leaves, every, certain=RowSelection.none(), num_rows=ROWS, size=PieceSize(1_920, most)
    )
    assert [piece.start for piece in pieces] == starts


def test_a_filter_of_few_columns_is_cut_as_ever() -> None:
    every = RowSelection.all(ROWS)
    leaves = [reads(leaf=leaf, first_rows=[0, 25, 50, 75], rows=every) for leaf in range(400)]
    pieces = cut_pieces(
        leaves,
        every,
        certain=RowSelection.none(),
        num_rows=ROWS,
        size=PieceSize(20, most=1 << 20),
        weighed=leaves[:2],
    )
    assert [piece.start for piece in pieces] == [0, 25, 50, 75]


# -- chunk pages ------------------------------------------------------------------------------------


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
    return wanted.reads(
        described, 0, leaf, index=index, expansion=1.5, for_filter=for_filter, for_output=not for_filter
    )


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


# -- decoded size -----------------------------------------------------------------------------------


DECODED_SIZE_ROWS = 5_000
KINDS = {
    "booleans": (pa.bool_(), 2, 2),
    "required booleans": (pa.bool_(), 2, 0),
    "integers": (pa.int32(), 4, 2),
    "required doubles": (pa.float64(), 8, 0),
    "of fixed length": (pa.binary(5), 5, 2),
    "texts": (pa.string(), 4, 2),
    "lists of booleans": (pa.list_(pa.bool_()), 2, 4),
    "structs of booleans": (pa.struct({"a": pa.bool_()}), 2, 2),
}


@pytest.mark.parametrize("name", KINDS)
def test_values_are_counted_where_pages_hold_next_to_nothing(name: str) -> None:
    kind, width, levels = KINDS[name]
    required = name.startswith("required")
    values = (
        pa.array([0] * DECODED_SIZE_ROWS, pa.int8()).cast(kind)
        if required
        else pa.nulls(DECODED_SIZE_ROWS, kind)
    )
    rows = pa.Table.from_arrays([values], schema=pa.schema([pa.field("c", kind, nullable=not required)]))
    metadata = open_metadata(write_file(rows, Layout()))
    assert level_bytes(metadata.schema.leaves[0]) == levels
    chunks = LeafChunks.of(metadata, [0])
    of_lists = levels if pa.types.is_list(kind) else 0
    assert chunks.decoded.tolist() == [[DECODED_SIZE_ROWS * (width + of_lists)]]
