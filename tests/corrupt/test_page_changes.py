"""Pages changed in any way, several ways at once: accel gives the rows that pyarrow gives of the same bytes,
or an error.

What pyarrow refuses accel refuses too, if it reads it. The rows that are looked for are found by a column
that stays as it is. `--large` makes 100,000 cases in place of 1,200; of a range of them `python -m
tests.corrupt.seeds tests.corrupt.page_worker 0 100000` tells what came.
"""

from __future__ import annotations

import pytest

from tests.corrupt.seeds import run_seeds

FEW, MANY = 1_200, 100_000
MORE = (3085, 12724, 32299)
"""Seeds beyond the few that once came to a fault, in a chunk that is read whole: the lists of two leaves that
did not agree, and a page that says it has more values than it has."""


@pytest.mark.parametrize("seed", MORE)
def test_what_was_once_a_fault(seed: int) -> None:
    counts, faults = run_seeds("tests.corrupt.page_worker", seed, seed + 1)
    assert faults == []
    # A seed alone is read in full too, which meets what is wrong.
    assert counts["both refuse"] + counts["only accel refuses"] >= 1


@pytest.mark.timeout(7200)
def test_changed_pages_give_what_pyarrow_gives_or_an_error(large: bool) -> None:
    counts, faults = run_seeds("tests.corrupt.page_worker", 0, MANY if large else FEW)
    assert faults == []
    assert counts["both refuse"] > FEW // 10 < counts["same rows"]
    # Headers that lie about counts, mostly, and what lies on other pages of a chunk that is read whole.
    assert counts["only accel refuses"] < counts["same rows"] // 4
