"""Evidence combines as three-valued logic does, over every combination of outcomes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from accel.predicate.prune import Evidence, Verdict

OUTCOMES = (True, False, None)
SETS = [frozenset(s) for n in range(4) for s in itertools.combinations(OUTCOMES, n)]


def evidence(allowed: frozenset[bool | None]) -> Evidence:
    return Evidence(*(np.array([outcome in allowed]) for outcome in OUTCOMES))


def allowed(found: Evidence) -> set[bool | None]:
    flags = (found.may_true, found.may_false, found.may_null)
    return {outcome for outcome, flag in zip(OUTCOMES, flags, strict=True) if flag[0]}


def conjunction(a: bool | None, b: bool | None) -> bool | None:
    if a is False or b is False:
        return False
    return None if a is None or b is None else True


@pytest.mark.parametrize("a", SETS, ids=str)
@pytest.mark.parametrize("b", SETS, ids=str)
def test_and_or(a: frozenset[bool | None], b: frozenset[bool | None]) -> None:
    both = {conjunction(x, y) for x in a for y in b}
    found = allowed(evidence(a) & evidence(b))
    if a and b:
        assert found == both
    else:
        # A unit without rows on one side: whatever is claimed holds of none.
        assert found >= both
    assert allowed(evidence(a) | evidence(b)) == allowed(~(~evidence(a) & ~evidence(b)))


@pytest.mark.parametrize("a", SETS, ids=str)
@pytest.mark.parametrize("b", SETS, ids=str)
def test_two_statements_about_one_predicate_leave_what_both_allow(
    a: frozenset[bool | None], b: frozenset[bool | None]
) -> None:
    assert allowed(evidence(a).meet(evidence(b))) == a & b


@pytest.mark.parametrize("a", SETS, ids=str)
def test_not(a: frozenset[bool | None]) -> None:
    assert allowed(~evidence(a)) == {None if x is None else not x for x in a}


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [
        ({True}, Verdict.ALL),
        ({True, False}, Verdict.SOME),
        ({True, None}, Verdict.SOME),
        ({False}, Verdict.NONE),
        ({None}, Verdict.NONE),
        ({False, None}, Verdict.NONE),
        (set(), Verdict.NONE),
        ({True, False, None}, Verdict.SOME),
    ],
    ids=str,
)
def test_verdicts(outcomes: set[bool | None], verdict: Verdict) -> None:
    assert evidence(frozenset(outcomes)).verdicts().tolist() == [verdict]


def test_unknown_is_some() -> None:
    assert Evidence.unknown(3).verdicts().tolist() == [Verdict.SOME] * 3


def test_a_part_is_of_its_units() -> None:
    flags = [np.array([bool(number >> bit & 1) for number in range(8)]) for bit in range(3)]
    whole = Evidence(*flags)
    part = whole.part(2, 5)
    assert len(part) == 3
    assert [column.tolist() for column in (part.may_true, part.may_false, part.may_null)] == [
        column[2:5].tolist() for column in flags
    ]
