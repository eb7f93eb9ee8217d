"""Samples brought together."""

import pytest

from bench.prices import dollars_a_million
from bench.summary import Place, percentile, summarise
from tests.unit.bench.samples import sample

PLACE = Place("point", 0, "warm")


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ([3.0], 0.99, 3.0),
        ([2.0, 1.0], 0.5, 1.0),
        ([2.0, 1.0], 0.51, 2.0),
        ([float(i) for i in range(1, 101)], 0.99, 99.0),
        ([float(i) for i in range(1, 101)], 0.07, 7.0),
        ([float(i) for i in range(1, 102)], 0.99, 100.0),
        ([1.0, 2.0, 3.0], 0.0, 1.0),
        ([1.0, 2.0, 3.0], 1.0, 3.0),
    ],
)
def test_percentile(values: list[float], share: float, expected: float) -> None:
    assert percentile(values, share) == expected


def test_no_percentile_of_nothing() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


def test_a_line_is_medians_but_for_requests_and_peak() -> None:
    taken = [
        sample("accel", 0.1, requests=4, bytes=10, cpu=0.01, peak=7, trips=1),
        sample("accel", 0.3, requests=5, bytes=30, cpu=0.03, peak=9, trips=2),
        sample("accel", 0.2, requests=9, bytes=20, cpu=0.02, peak=8, trips=2),
    ]
    line = summarise(taken).line(PLACE, "accel")
    assert line is not None
    assert (line.samples, line.p50, line.p99, line.first) == (3, 0.2, 0.3, 0.2)
    assert (line.requests, line.trips, line.bytes, line.cpu, line.peak) == (6, 2, 20, 0.02, 9)


def test_ratios() -> None:
    summary = summarise(
        [
            sample("accel", 0.1, bytes=50),
            sample("floor", 0.05, bytes=40),
            sample("polars", 0.3, bytes=400),
            sample("duckdb-cached", 0.02, bytes=0),
        ]
    )
    accel, polars = summary.line(PLACE, "accel"), summary.line(PLACE, "polars")
    assert accel is not None
    assert polars is not None
    assert summary.fastest(PLACE).system == "duckdb-cached"
    assert summary.rival(PLACE).system == "polars"
    assert summary.ratio(PLACE, polars) == pytest.approx(3)
    assert summary.over_floor(PLACE, accel) == pytest.approx(2)
    assert summary.over_minimum(PLACE, accel) == pytest.approx(1.25)
    assert summary.over_minimum(PLACE, polars) == pytest.approx(10)


def test_a_cache_of_data_counts_where_the_query_is_repeated() -> None:
    place = Place("point", 0, "repeated")
    taken = [sample(system, at, mode="repeated") for system, at in (("polars", 0.3), ("duckdb-cached", 0.02))]
    assert summarise(taken).rival(place).system == "duckdb-cached"


def test_what_is_not_there_has_no_ratio() -> None:
    summary = summarise([sample("polars", 0.3), sample("floor", 0.1, bytes=0)])
    line = summary.line(PLACE, "polars")
    assert line is not None
    assert summary.ratio(PLACE, line) is None
    assert summary.over_minimum(PLACE, line) is None
    assert summary.line(Place("miss", 0, "warm"), "polars") is None
    assert summary.fastest(Place("miss", 0, "warm")) is None


@pytest.mark.parametrize(("requests", "lists", "dollars"), [(5, 0, 2.0), (2, 1, 5.4), (0, 0, 0.0)])
def test_prices(requests: float, lists: float, dollars: float) -> None:
    assert dollars_a_million(requests, lists) == pytest.approx(dollars)
