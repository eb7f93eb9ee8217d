"""A guess gives way to what was seen."""

from __future__ import annotations

import pytest

from accel.planning.two_phase import ObservedSelectivity


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
