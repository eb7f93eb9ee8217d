"""Two phases: what each asks for, and when the second is worth its round trip."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from accel.options import REQUEST_SECONDS
from accel.planning.pages import Piece, PieceLeaf, PieceSize, cut_pieces
from accel.planning.selection import RowSelection
from accel.planning.task import ScanTask
from accel.planning.two_phase import (
    ObservedSelectivity,
    at_once,
    cut_output,
    filter_phase,
    forecast,
    output_phase,
)
from accel.ranges import ByteRange
from tests.unit.planning.test_pages import ROWS, reads, whole

ALL = RowSelection.all(ROWS)
NONE = RowSelection.none()
FIRST_ROWS = [0, 25, 50, 75]


def task(*, page_bytes: int, rows: RowSelection = ALL, certain: RowSelection = NONE) -> ScanTask:
    filtered = reads(leaf=0, first_rows=FIRST_ROWS, rows=rows, for_filter=True, for_output=False)
    late = reads(leaf=1, first_rows=FIRST_ROWS, rows=rows, start=9000, page_bytes=page_bytes)
    return ScanTask(None, 0, ROWS, rows, certain, (filtered, late))  # type: ignore[arg-type]


def weigh(task: ScanTask, share: float, **network: float) -> tuple[int, bool]:
    given = {"latency": 0.03, "bandwidth": 90e6, "concurrent": 1} | network
    found = forecast(task, share, **given)  # type: ignore[arg-type]
    return found.expected_bytes, found.pays


@pytest.mark.parametrize(
    ("page_bytes", "share", "expected", "pays"),
    [
        pytest.param(10_000_000, 0.0, 0, True, id="nothing matches: all of it is saved"),
        pytest.param(10_000_000, 1.0, 40_000_000, False, id="all match: nothing is"),
        pytest.param(10_000_000, 0.01, 8_887_000, True, id="one in a hundred, pages of 25"),
        pytest.param(1_000, 0.0, 0, False, id="too little to be worth a round trip"),
    ],
)
def test_bytes_against_a_round_trip(page_bytes: int, share: float, expected: int, pays: bool) -> None:
    found, verdict = weigh(task(page_bytes=page_bytes), share)
    assert found == pytest.approx(expected, rel=0.01)
    assert verdict is pays


@pytest.mark.parametrize("certain", [NONE, ALL], ids=["undecided", "settled"])
def test_what_each_phase_comes_to(certain: RowSelection) -> None:
    found = forecast(task(page_bytes=1_000, certain=certain), 0.0, latency=0.03, bandwidth=90e6, concurrent=1)
    assert (found.first_bytes, found.late_bytes) == (40, 4_000)
    assert (found.expected_bytes, found.pays) == (4_000 if certain else 0, False)


def test_each_run_of_pages_is_a_request() -> None:
    """Half of the pages are kept, one beside the other or not: what is saved pays for one request, not for
    two."""
    second = 1 / 1e9 + 2e-9  # a byte received
    page_bytes = int(1.5 * 1.25 * REQUEST_SECONDS / second / 2)
    verdicts = [
        weigh(task(page_bytes=page_bytes, certain=RowSelection.of(certain)), 0.0, latency=0.0, bandwidth=1e9)
        for certain in ([(0, 50)], [(50, 100)], [(0, 25), (50, 75)], [(25, 50), (75, 100)])
    ]
    assert verdicts == [(2 * page_bytes, pays) for pays in (True, True, False, False)]


def test_what_is_left_out_of_a_whole_chunk_need_not_be_decoded() -> None:
    """One row in a hundred undecided, hundred rows: a chance of 0.634 that the chunk is read."""
    filtered = reads(leaf=0, first_rows=FIRST_ROWS, rows=ALL, for_filter=True, for_output=False)
    chunk = dataclasses.replace(whole(leaf=1), chunk=ByteRange(0, 10_000_000), expansion=10.0)
    some = ScanTask(None, 0, ROWS, ALL, NONE, (filtered, chunk))  # type: ignore[arg-type]
    saved = 0.99**ROWS * 10e6 * (1 / 90e6 + 2e-9 + 10 * 1e-9)
    for latency, pays in ((0.99 * saved / 1.25 - REQUEST_SECONDS, True), (1.01 * saved / 1.25, False)):
        assert weigh(some, 0.01, latency=latency)[1] is pays


def test_the_network_decides() -> None:
    some = task(page_bytes=500_000)
    assert weigh(some, 0.0, latency=0.001)[1]
    assert not weigh(some, 0.0, latency=0.2)[1]
    assert not weigh(some, 0.0, bandwidth=1e12)[1]
    # Eight tasks wait for their second round trips together.
    assert weigh(some, 0.0, latency=0.1, concurrent=8)[1]


def test_what_is_decoded_counts_where_it_comes_whole() -> None:
    """In one trip, too, only pages with a row that matches are decoded; a chunk without index is, once it is
    here."""
    filtered = reads(leaf=0, first_rows=FIRST_ROWS, rows=ALL, for_filter=True, for_output=False)
    paged = dataclasses.replace(
        reads(leaf=1, first_rows=FIRST_ROWS, rows=ALL, start=9000, page_bytes=500_000), expansion=20.0
    )
    chunk = dataclasses.replace(whole(leaf=1), chunk=ByteRange(9000, 2_009_000), expansion=20.0)
    verdicts = [
        weigh(ScanTask(None, 0, ROWS, ALL, NONE, (filtered, late)), 0.0, bandwidth=360e6)  # type: ignore[arg-type]
        for late in (paged, chunk)
    ]
    assert verdicts == [(0, False), (0, True)]


def test_a_byte_costs_something_over_any_network() -> None:
    much = task(page_bytes=10_000_000)
    assert weigh(much, 0.0, bandwidth=1e12)[1]
    assert not weigh(much, 0.0, bandwidth=1e12, latency=0.1)[1]


def test_pages_with_sure_rows_are_read_anyway() -> None:
    some = task(page_bytes=1_000_000, certain=RowSelection.of([(0, 25)]))
    assert weigh(some, 0.0)[0] == 1_000_000
    assert weigh(some, 1.0)[0] == 4_000_000


def test_rows_in_doubt_are_what_counts() -> None:
    """Two undecided rows in the last page, none elsewhere."""
    some = task(page_bytes=1_000_000, rows=RowSelection.of([(98, 100)]))
    assert weigh(some, 0.5)[0] == 750_000


def test_nothing_to_weigh() -> None:
    both = reads(leaf=0, first_rows=FIRST_ROWS, rows=ALL, for_filter=True)
    assert not weigh(ScanTask(None, 0, ROWS, ALL, NONE, (both,)), 0.0)[1]  # type: ignore[arg-type]
    settled = task(page_bytes=10_000_000, certain=ALL)
    assert not weigh(settled, 0.0)[1]


def test_a_chunk_without_index_comes_or_does_not() -> None:
    filtered = reads(leaf=0, first_rows=FIRST_ROWS, rows=ALL, for_filter=True, for_output=False)
    late = dataclasses.replace(whole(leaf=1), for_output=True)
    some = ScanTask(None, 0, ROWS, ALL, NONE, (filtered, late))  # type: ignore[arg-type]
    assert weigh(some, 0.0)[0] == 0
    assert weigh(some, 0.01)[0] == pytest.approx(late.nbytes * (1 - 0.99**ROWS), abs=1)


def pieces(piece_bytes: int = 1 << 20) -> list[Piece]:
    filtered = reads(leaf=0, first_rows=FIRST_ROWS, rows=ALL, for_filter=True, for_output=False)
    late = reads(leaf=1, first_rows=[0, 40, 80], rows=ALL, start=9000)
    return cut_pieces((filtered, late), ALL, certain=NONE, num_rows=ROWS, size=PieceSize(piece_bytes))


def test_first_the_filter() -> None:
    (piece,) = pieces()
    first = filter_phase(piece)
    assert [part.reads.leaf for part in first.leaves] == [0]
    assert (first.rows, first.certain, first.start, first.stop) == (piece.rows, piece.certain, 0, ROWS)


def test_then_the_pages_that_hold_what_matched() -> None:
    (piece,) = pieces()
    rows = RowSelection.of([(3, 5), (99, 100)])
    second = output_phase(piece, rows, is_carried=lambda leaf, ordinal: False)
    (part,) = second.leaves
    assert second.rows == second.certain == rows
    assert part.reads.ordinal.tolist() == [0, 2]
    assert part.runs() == [(0, 1), (1, 2)]
    assert (part.lo, part.hi, part.carried) == (0, 2, False)


@pytest.mark.parametrize("here", [False, True], ids=["nobody fetches it", "the piece before does"])
def test_a_page_that_straddles_the_cut(here: bool) -> None:
    """The cut is at row 25 or 50, where a page of the late column goes on."""
    second = next(p for p in pieces(piece_bytes=20)[1:] if any(part.carried for part in p.leaves))
    asked: list[tuple[int, int]] = []

    def is_carried(leaf: int, ordinal: int) -> bool:
        asked.append((leaf, ordinal))
        return here

    late: PieceLeaf = next(p for p in second.leaves if p.reads.leaf == 1)
    found = output_phase(second, second.rows, is_carried=is_carried)
    assert asked == [(1, int(late.reads.ordinal[late.lo]))]
    assert found.leaves[0].carried is here
    assert found.leaves[0].reads.ordinal.tolist() == late.reads.ordinal[late.lo : late.hi].tolist()
    # Where no row of that page matched, nobody is asked.
    beyond = second.rows.within(int(late.reads.stop_row[late.lo]), ROWS)
    if beyond:
        asked.clear()
        output_phase(second, beyond, is_carried=is_carried)
        assert asked == []


@pytest.mark.parametrize("here", [False, True], ids=["nobody fetches it", "the piece before does"])
def test_all_of_a_piece_at_once(here: bool) -> None:
    """Of pages that straddle the cut those of the filter are fetched by the piece before in any case."""
    first, second, *_ = pieces(piece_bytes=10)
    assert [(part.reads.leaf, part.carried) for part in second.leaves] == [(0, False), (1, True)]
    found = at_once(second, lambda leaf, ordinal: here)
    assert [part.carried for part in found.leaves] == [False, here]
    assert at_once(first, lambda leaf, ordinal: True) == first
    straddling = dataclasses.replace(
        second, leaves=tuple(dataclasses.replace(part, carried=True) for part in second.leaves)
    )
    assert [part.carried for part in at_once(straddling, lambda *_: False).leaves] == [True, False]


def late_piece(*, carried: bool) -> Piece:
    """Rows 30 to 90 of two columns, of four pages each, of which the piece before may have the first."""
    rows = RowSelection.of([(30, 90)])
    leaves = tuple(
        PieceLeaf(reads(leaf=leaf, first_rows=FIRST_ROWS, rows=rows, start=9000 * leaf), 0, 3, carried)
        for leaf in (1, 2)
    )
    return Piece(rows, rows, leaves, 26, 95)


@pytest.mark.parametrize("carried", [False, True])
def test_a_large_second_phase_is_cut(carried: bool) -> None:
    """It begins and ends where the piece does, and begins as it did."""
    piece = late_piece(carried=carried)
    parts = cut_output(piece, num_rows=ROWS, size=PieceSize(20))
    assert [(part.start, part.stop) for part in parts] == [(26, 50), (50, 75), (75, 95)]
    assert [list(part.rows) for part in parts] == [[(30, 50)], [(50, 75)], [(75, 90)]]
    assert [[leaf.carried for leaf in part.leaves] for part in parts] == [
        [carried] * 2,
        [False] * 2,
        [False] * 2,
    ]
    assert all(part.certain == part.rows for part in parts)


def test_a_second_phase_that_fits_is_not_cut() -> None:
    piece = late_piece(carried=False)
    assert cut_output(piece, num_rows=ROWS, size=PieceSize(60)) == [piece]
    assert len(cut_output(piece, num_rows=ROWS, size=PieceSize(40))) == 2
    chunk = dataclasses.replace(piece, leaves=(PieceLeaf(whole(leaf=1), 0, 0, False),))
    assert cut_output(chunk, num_rows=ROWS, size=PieceSize(1)) == [chunk]


def test_whole_chunks_stay_whole() -> None:
    late = PieceLeaf(dataclasses.replace(whole(leaf=1), for_output=True), 0, 0, False)
    piece = Piece(ALL, NONE, (late,), 0, ROWS)
    assert output_phase(piece, RowSelection.of([(1, 2)]), is_carried=lambda *_: False).leaves == (late,)


def test_counts_are_of_the_rows_selected() -> None:
    rows = RowSelection.of([(0, 10), (20, 30)])
    assert rows.counts(np.array([0, 5, 25]), np.array([5, 25, 100])).tolist() == [5, 10, 5]


# -- observed selectivity ---------------------------------------------------------------------------


def test_nothing_seen_is_the_guess() -> None:
    assert ObservedSelectivity().share(0.25) == 0.25


@pytest.mark.parametrize(
    ("tested", "matched", "guess", "share"),
    [
        pytest.param(10_000, 0, 1.0, 0.5, id="as much seen as guessed"),
        pytest.param(990_000, 990_000, 0.0, 0.99, id="all matched"),
        pytest.param(90_000, 0, 1.0, 0.1, id="none matched"),
    ],
)
def test_what_was_seen_weighs_by_its_rows(tested: int, matched: int, guess: float, share: float) -> None:
    seen = ObservedSelectivity()
    seen.add(tested=tested // 2, matched=matched // 2)
    seen.add(tested=tested - tested // 2, matched=matched - matched // 2)
    assert seen.share(guess) == pytest.approx(share)
