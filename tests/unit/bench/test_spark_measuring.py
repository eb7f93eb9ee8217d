"""Sides of a case are asked in turn, compared, and counted by their medians."""

from __future__ import annotations

from typing import Any, cast

import pytest

from bench.e2e.figures import Figure
from bench.e2e.spark import published_table
from bench.e2e.spark_measuring import SPARK, Bench, Measured, ratio
from bench.network import Network, Traffic


class Counted:
    """A network on which each turn sends one request more than the one before."""

    def __init__(self) -> None:
        self.requests = 0

    def begin(self) -> None:
        self.requests += 1

    def end(self) -> Traffic:
        return Traffic(self.requests, 0, 1, 100 * self.requests)


def _bench(scale: float = 1.0) -> Bench:
    return Bench(cast("Network", Counted()), None, scale, times=3)


def test_sides_are_asked_in_turn_and_the_unmeasured_turns_do_not_count() -> None:
    asked: list[tuple[str, int]] = []

    def side(name: str) -> Any:
        def ask(turn: int) -> list[int]:
            asked.append((name, turn))
            return [turn]

        return ask

    found = _bench().by_turns("case", {SPARK: side("a"), "accel": side("b")}, unmeasured=1)
    assert asked == [("a", 0), ("b", 0), ("b", 1), ("a", 1), ("a", 2), ("b", 2), ("b", 3), ("a", 3)]
    assert [(one.side, one.rows, one.requests, one.bytes) for one in found.values()] == [
        (SPARK, 1, 5, 500),
        ("accel", 1, 6, 600),
    ]


def test_answers_that_differ_are_no_numbers() -> None:
    sides = {SPARK: lambda _: [1], "accel": lambda _: [2]}
    with pytest.raises(AssertionError, match="case: the answers differ"):
        _bench().by_turns("case", sides)


@pytest.mark.parametrize(
    ("least", "value", "target", "met"), [(False, 0.25, 0.5, True), (True, 4.0, 5.0, False)], ids=str
)
def test_a_ratio_is_judged_by_its_target(least: bool, value: float, target: float, met: bool) -> None:
    found = {
        name: Measured(case="c", side=name, rows=1, seconds=seconds, least=seconds, requests=1, bytes=1)
        for name, seconds in ((SPARK, 4.0), ("accel", 1.0))
    }
    figure = ratio(found, "accel", of="seconds", target=target, least=least)
    assert (figure.value, figure.met) == (value, met)
    assert isinstance(figure, Figure)


@pytest.mark.parametrize(("scale", "size"), [(1.0, 2_000), (0.2, 400), (0.01, 50)])
def test_sizes_follow_the_scale(scale: float, size: int) -> None:
    assert _bench(scale).size(2_000, least=50) == size


def test_the_queries_of_tpch_are_published_in_a_table_of_their_own() -> None:
    def figure(case: str, value: float, target: float) -> Figure:
        return Figure(case=case, what="times", value=value, unit="x", target=target)

    found = [figure("TPC-H 1", 1.3, 1.25), figure("TPC-H 1", 0.5, 1.0), figure("TPC-H, 1 queries", 0.8, 0.9)]
    assert published_table(found, "here") == (
        "here:\n\n| question | what | measured | wanted |\n|---|---|---|---|\n"
        "| TPC-H, 1 queries | times | 0.8 | ≤ 0.9 |\n\n"
        "| query of TPC-H, rows equal | seconds over those of Spark | bytes over those of Spark |\n"
        "|---|---|---|\n| 1 | **1.3** | 0.5 |"
    )
