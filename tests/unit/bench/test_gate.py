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
        "bytes over the floor's": 1.05,
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
        ("time over the floor's", 2.7, 2.8),
        ("fastest peer's time over accel's", 1.5, 1.4),
        ("bytes over the floor's", 1.2, 1.3),
        ("requests", 8, 9),
        ("round trips", 2, 3),
    ],
)
def test_tolerances(figure: str, fine: float, worse: float) -> None:
    assert set(TOLERANCES) == set(FIGURES["point, warm"])
    before = FIGURES["point, warm"]
    assert compare({"point, warm": before | {figure: fine}}, FIGURES) == []
    assert compare({"point, warm": before | {figure: worse}}, FIGURES) == [
        Regression("point, warm", figure, worse, before[figure])
    ]


def test_better_is_no_regression() -> None:
    better = {
        "time over the floor's": 1.0,
        "fastest peer's time over accel's": 30.0,
        "bytes over the floor's": 0.0,
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
    assert len(compare({}, FIGURES)) == 5


def test_what_was_not_run_is_not_compared() -> None:
    assert compare({}, FIGURES, cases={"miss", "poi"}) == []
    assert len(compare({}, FIGURES, cases={"point"})) == 5


def test_a_message() -> None:
    assert str(Regression("miss, cold", "requests", 9, 5)) == "miss, cold: requests is 9, was 5"


def test_the_baseline_of_each_scale_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    assert read_baseline("quick", path) is None
    path.write_text(json.dumps({"scale-1": {"point, warm": {"requests": 1}}}))
    update_baseline(RUN, path)
    assert read_baseline("quick", path) == FIGURES
    assert read_baseline("scale-1", path) == {"point, warm": {"requests": 1}}


def test_a_run_of_another_store_has_another_baseline(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    update_baseline(replace(RUN, store="memory"), path)
    assert read_baseline("quick", path) is None
    assert read_baseline("quick, memory", path) == FIGURES
