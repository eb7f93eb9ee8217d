"""The regression gate."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench.gate import TOLERANCES, Regression, compare, figures, read_baseline, update_baseline
from tests.unit.bench.samples import document, sample

RUN = document(
    sample("accel", 0.1, bytes=105, requests=5, trips=1),
    sample("floor", 0.08, bytes=100),
    sample("polars", 0.3, bytes=900),
)
FIGURES = {
    "point, warm": {
        "time over the floor's": 1.25,
        "fastest peer's time over accel's": 3.0,
        "polars's time over accel's": 3.0,
        "bytes over the floor's": 1.05,
        "kilobytes": 0.105,
        "most kilobytes": 0.105,
        "requests": 5,
        "round trips": 1.0,
    }
}


def test_figures_of_a_run() -> None:
    assert figures(RUN) == FIGURES


def test_the_same_run_passes() -> None:
    assert compare(FIGURES, FIGURES) == []


@pytest.mark.parametrize(
    ("figure", "fine", "worse"),
    [
        ("time over the floor's", 2.0, 2.1),
        ("fastest peer's time over accel's", 1.5, 1.4),
        ("polars's time over accel's", 2.85, 2.84),
        ("bytes over the floor's", 1.2, 1.3),
        ("kilobytes", 10.1, 10.2),
        ("requests", 8, 9),
        ("round trips", 1, 2),
    ],
)
def test_tolerances(figure: str, fine: float, worse: float) -> None:
    assert {*TOLERANCES, "polars's time over accel's", "most kilobytes"} == set(FIGURES["point, warm"])
    before = FIGURES["point, warm"]
    assert compare({"point, warm": before | {figure: fine}}, FIGURES) == []
    assert compare({"point, warm": before | {figure: worse}}, FIGURES) == [
        Regression("point, warm", figure, worse, before[figure])
    ]


@pytest.mark.parametrize(
    ("where", "trips", "before", "fine", "worse"),
    [
        pytest.param("point, warm", 1, 1.05, 1.77, 1.78, id="a lookup that waits"),
        pytest.param("point, warm", 1, 1.5, 3.2, 3.21, id="it does not mostly wait"),
        pytest.param("point, repeated", 0, 0.1, 0.4, 0.41, id="it sends nothing"),
        pytest.param("by delay 100, warm", 1, 1.0, 1.7, 1.71, id="long delay"),
        pytest.param("by delay 10, warm", 1, 1.0, 2.2, 2.21, id="short delay"),
        pytest.param("by delay, warm", 1, 1.0, 2.2, 2.21, id="no delay"),
    ],
)
def test_times_of_who_waits(where: str, trips: int, before: float, fine: float, worse: float) -> None:
    figure = "time over the floor's"
    old = {"requests": 5.0 * trips, "round trips": trips, figure: before}
    assert compare({where: old | {figure: fine}}, {where: old}) == []
    assert compare({where: old | {figure: worse}}, {where: old}) == [Regression(where, figure, worse, before)]


@pytest.mark.parametrize(
    ("where", "requests", "trips", "more"),
    [
        pytest.param("miss, repeated", 0, 0, 0, id="nothing was sent"),
        pytest.param("point, warm", 20, 1, 0, id="few"),
        pytest.param("point, cold", 20, 2, 0, id="two trips"),
        pytest.param("by delay 100, cold", 5, 2, 0, id="long delay"),
        pytest.param("point, warm", 20.5, 1, 1, id="more requests"),
        pytest.param("point, cold", 5, 3, 1, id="more trips"),
        pytest.param("by delay 10, warm", 5, 1, 1, id="short delay"),
        pytest.param("count, warm", 1.5, 0, 1, id="half of the samples sent nothing"),
        pytest.param("many points, repeated", 0.5, 1, 1, id="half of the samples sent something"),
    ],
)
def test_round_trips_of_few_requests_are_exact(where: str, requests: float, trips: int, more: int) -> None:
    before = {where: {"requests": requests, "round trips": trips}}
    for added in range(3):
        now = {where: {"requests": requests, "round trips": trips + added}}
        found = [Regression(where, "round trips", trips + added, trips)] if added > more else []
        assert compare(now, before) == found


def test_a_pruning_that_is_lost_is_seen_though_the_floor_reads_as_much() -> None:
    before = {"point, warm": {"bytes over the floor's": 1.0, "kilobytes": 230.0, "most kilobytes": 230.0}}
    now = {"point, warm": {"bytes over the floor's": 1.0, "kilobytes": 900.0, "most kilobytes": 900.0}}
    assert compare(now, before) == [Regression("point, warm", "kilobytes", 900.0, 230.0)]


def test_bytes_of_samples_that_differ_are_held_against_the_most_of_them() -> None:
    before = {"point, cold": {"kilobytes": 400.0, "most kilobytes": 1000.0}}
    assert compare({"point, cold": {"kilobytes": 2510.0}}, before) == []
    assert compare({"point, cold": {"kilobytes": 2511.0}}, before) == [
        Regression("point, cold", "kilobytes", 2511.0, 1000.0)
    ]


def test_a_baseline_without_kilobytes_compares_the_rest() -> None:
    before = {
        "point, warm": {name: value for name, value in FIGURES["point, warm"].items() if "kilo" not in name}
    }
    assert compare({"point, warm": FIGURES["point, warm"] | {"kilobytes": 9e9}}, before) == []
    assert len(compare({}, before)) == 6


def ratios(**peers: float) -> dict[str, dict[str, float]]:
    return {"point, warm": {f"{name}'s time over accel's": value for name, value in peers.items()}}


def test_what_accel_lost_against_its_peers_is_named() -> None:
    before = ratios(duckdb=4.0, polars=3.0, datafusion=2.0)
    assert [str(found) for found in compare(ratios(duckdb=3.6, polars=2.7, datafusion=1.95), before)] == [
        "point, warm: duckdb's time over accel's is 3.6, was 4",
        "point, warm: polars's time over accel's is 2.7, was 3",
    ]


@pytest.mark.parametrize(
    ("now", "fell"),
    [
        pytest.param({"duckdb": 3.8, "polars": 2.85, "datafusion": 1.9}, 0, id="0.95 of each"),
        pytest.param({"duckdb": 3.79, "polars": 2.84, "datafusion": 1.89}, 3, id="less of each"),
        pytest.param({"duckdb": 4.0, "polars": 1.0, "datafusion": 2.0}, 0, id="one peer was faster"),
        pytest.param({"duckdb": 4.0, "polars": 1.0, "datafusion": 1.0}, 2, id="two of three were"),
        pytest.param({"duckdb": 3.0}, 1, id="one is left"),
        pytest.param({"spark": 90.0}, 1, id="none is left"),
    ],
)
def test_ratios_are_those_of_the_median_peer(now: dict[str, float], fell: int) -> None:
    assert len(compare(ratios(**now), ratios(duckdb=4.0, polars=3.0, datafusion=2.0))) == fell


def test_better_is_no_regression() -> None:
    better = {
        "time over the floor's": 1.0,
        "fastest peer's time over accel's": 30.0,
        "polars's time over accel's": 30.0,
        "bytes over the floor's": 0.0,
        "kilobytes": 0.0,
        "requests": 0,
        "round trips": 0,
    }
    assert compare({"point, warm": better}, FIGURES) == []


@pytest.mark.parametrize(("requests", "found"), [(100, 1), (101, 0)])
def test_round_trips_of_many_requests_say_nothing(requests: int, found: int) -> None:
    before = {"point, warm": FIGURES["point, warm"] | {"requests": requests}}
    now = {"point, warm": before["point, warm"] | {"round trips": 9.0}}
    assert len(compare(now, before)) == found


def test_what_is_no_longer_measured_is_a_regression() -> None:
    (first, *_) = compare({}, FIGURES)
    assert str(first) == "point, warm: time over the floor's was 1.25, and is not measured any more"
    assert len(compare({}, FIGURES)) == 7


@pytest.mark.parametrize(
    ("cases", "places"),
    [
        ({"point"}, ["point 30, warm", "point, cold"]),
        ({"point accel"}, ["point accel, warm"]),
        ({"poi", "30", "100"}, []),
        ({"in 100", "miss"}, ["in 100, cold"]),
        (None, ["in 100, cold", "point 30, warm", "point accel, warm", "point, cold"]),
    ],
)
def test_only_the_cases_that_were_run_are_compared(cases: set[str] | None, places: list[str]) -> None:
    there = ("in 100, cold", "point 30, warm", "point accel, warm", "point, cold")
    before = {place: {"requests": 1.0} for place in there}
    assert [found.where for found in compare({}, before, cases=cases)] == places


@pytest.mark.parametrize(
    ("now", "before", "told"),
    [
        (9, 5, "is 9, was 5"),
        (2818.4, 1.2345, "is 2,818, was 1.23"),
        (None, 5, "was 5, and is not measured any more"),
    ],
)
def test_a_message(now: float | None, before: float, told: str) -> None:
    assert str(Regression("miss, cold", "requests", now, before)) == f"miss, cold: requests {told}"


def test_the_baseline_of_each_scale_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    assert read_baseline("quick", path) is None
    path.write_text(json.dumps({"scale-1": {"point, warm": {"requests": 1}}}))
    update_baseline(RUN, path)
    assert read_baseline("quick", path) == FIGURES
    assert read_baseline("scale-1", path) == {"point, warm": {"requests": 1}}


def test_a_run_of_some_cases_leaves_the_baseline_of_the_others(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    path.write_text(
        json.dumps(
            {
                "quick": {
                    where: {"requests": 1} for where in ("point, cold", "point accel, warm", "miss, warm")
                }
            }
        )
    )
    update_baseline(RUN, path, cases={"point"})
    rest = {"point accel, warm": {"requests": 1}, "miss, warm": {"requests": 1}}
    assert read_baseline("quick", path) == FIGURES | rest
    update_baseline(RUN, path, cases={"miss"})
    assert read_baseline("quick", path) == FIGURES | {"point accel, warm": {"requests": 1}}
    update_baseline(RUN, path)
    assert read_baseline("quick", path) == FIGURES


def test_a_run_of_another_store_has_another_baseline(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    update_baseline(replace(RUN, store="memory"), path)
    assert read_baseline("quick", path) is None
    assert read_baseline("quick, memory", path) == FIGURES
