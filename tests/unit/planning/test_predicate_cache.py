"""What is remembered of a predicate: exactly what was tested, for exactly that predicate, and no more than fits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel.planning.predicate_cache import Evaluation, is_selective
from accel.planning.selection import RowSelection

ROWS = 40


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


@pytest.mark.parametrize(("tested", "matched", "worth"), [(2560, 10, True), (2559, 10, False), (1, 0, True)])
def test_only_what_selects_little_is_worth_it(tested: int, matched: int, worth: bool) -> None:
    assert is_selective(tested, matched) == worth
