"""What indexes say, brought to stretches of rows: whole evidence for each."""

from __future__ import annotations

import numpy as np
import pytest

from accel.planning.index_evidence import IndexStatements, Statement, concatenate
from accel.predicate.atoms import Null
from accel.predicate.prune import Evidence

NODE, OTHER = Null(0), Null(1)
Letters = list[str]


def said(letters: Letters) -> Evidence:
    flags = [np.array([letter in unit for unit in letters], bool) for letter in "TFN"]
    return Evidence(*flags)


def shown(evidence: Evidence | None) -> Letters | None:
    if evidence is None:
        return None
    flags = zip(evidence.may_true, evidence.may_false, evidence.may_null, strict=True)
    return ["".join(c for c, flag in zip("TFN", unit, strict=True) if flag) for unit in flags]


def witnesses(*given: tuple[list[int], Letters], group: int = 3) -> IndexStatements:
    found = IndexStatements()
    for first_rows, letters in given:
        found.add(NODE, group, Statement(np.array(first_rows, np.int64), said(letters)))
    return found


def test_without_statements() -> None:
    none = IndexStatements()
    assert (bool(none), none.covers(3), none.cuts(3)) == (False, False, [])
    assert none.of_rows(3, np.array([0])) is None


def test_statements_cut_their_own_row_group_where_they_change() -> None:
    found = witnesses(([0, 10], ["T", "F"]), ([0], ["FN"]), ([0, 4, 8], ["T", "F", "N"]))
    assert bool(found)
    assert [found.covers(group) for group in (2, 3)] == [False, True]
    assert found.cuts(2) == []
    assert [cut.tolist() for cut in found.cuts(3)] == [[0, 10], [0, 4, 8]]


def test_what_leaves_true_and_false_open_says_nothing() -> None:
    found = witnesses(([0, 10], ["TF", "TFN"]), ([0], ["TF"]))
    assert (bool(found), found.covers(3), found.cuts(3)) == (False, False, [])


@pytest.mark.parametrize(
    ("given", "cuts", "expected"),
    [
        ([([0], ["TN"])], [0], ["TN"]),
        ([([0], ["T"])], [0, 5, 9], ["T", "T", "T"]),
        ([([0, 10], ["T", "F"])], [0, 10], ["T", "F"]),
        ([([0, 10], ["T", "F"])], [0, 5, 10, 15], ["T", "T", "F", "F"]),
        # What two say must both be so.
        ([([0, 10], ["TF", "FN"]), ([0, 5], ["TN", "TFN"])], [0, 5, 10], ["T", "TF", "FN"]),
    ],
    ids=["whole", "spread", "as it stands", "refined", "two of them"],
)
def test_each_stretch_has_what_was_said_where_it_starts(
    given: list[tuple[list[int], Letters]], cuts: list[int], expected: Letters
) -> None:
    witness = witnesses(*given).of_rows(3, np.array(cuts, np.int64))
    assert witness is not None
    assert shown(witness(NODE)) == expected
    assert witness(OTHER) is None


def test_row_groups_one_after_the_other() -> None:
    first = witnesses(([0, 10], ["T", "F"])).of_rows(3, np.array([0, 10]))
    last = witnesses(([0], ["N"])).of_rows(3, np.array([0]))
    joined = concatenate([(first, 2), (None, 3), (last, 1)])
    assert joined is not None
    assert shown(joined(NODE)) == ["T", "F", "TFN", "TFN", "TFN", "N"]
    assert joined(OTHER) is None
    assert concatenate([(first, 2)]) is first
    assert concatenate([(None, 2)]) is None
    assert concatenate([(None, 2), (None, 1)]) is None
