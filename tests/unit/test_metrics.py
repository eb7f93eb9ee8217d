"""The counts of a run."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import get_args

import pytest

from accel.metrics import Count, Counter, Metrics
from accel.ranges import Kind


def test_requests_by_kind() -> None:
    metrics = Metrics()
    for kind, received in ((Kind.TAIL, 100), (Kind.PAGE, 10), (Kind.PAGE, 0)):
        metrics.count_request(kind, received)
    assert (metrics.requests, metrics.bytes) == (3, 110)
    assert metrics.requests_by_kind == {Kind.TAIL: 1, Kind.PAGE: 2}
    assert metrics.bytes_by_kind == {Kind.TAIL: 100, Kind.PAGE: 10}


def test_counts_and_waves() -> None:
    metrics = Metrics()
    metrics.add("replans")
    metrics.add("rows_out", 7)
    for depth in (2, 5, 3):
        metrics.deepest(depth)
    metrics.pages.add(total=9, kept=4)
    metrics.pages.add(total=1, kept=1)
    assert (metrics.replans, metrics.rows_out, metrics.round_trips) == (1, 7, 5)
    assert metrics.pages == Counter(total=10, kept=5)
    assert str(metrics.pages) == "5 of 10"


def test_each_plain_count_can_be_added_to_by_name() -> None:
    plain = {field.name for field in dataclasses.fields(Metrics) if field.default == 0}
    assert set(get_args(Count)) == plain - {"requests", "bytes", "round_trips"}
    metrics = Metrics()
    for name in get_args(Count):
        metrics.add(name, 3)
        assert getattr(metrics, name) == 3


def test_warnings_are_bounded() -> None:
    metrics = Metrics()
    for i in range(250):
        metrics.warn(str(i))
    assert metrics.warnings == [str(i) for i in range(100)]


def test_from_many_threads_nothing_is_lost() -> None:
    metrics = Metrics()

    def work(_: int) -> None:
        for _ in range(500):
            metrics.count_request(Kind.PAGE, 2)
            metrics.add("rows_out")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert (metrics.requests, metrics.bytes, metrics.rows_out) == (4000, 8000, 4000)


def test_as_text_what_is_not_zero() -> None:
    metrics = Metrics()
    assert repr(metrics) == "Metrics()"
    metrics.count_request(Kind.PAGE, 5)
    metrics.rows.add(total=3, kept=0)
    assert repr(metrics) == (
        "Metrics(requests=1, bytes=5, requests_by_kind={'data page': 1}, bytes_by_kind={'data page': 5}, "
        "rows={'total': 3, 'kept': 0})"
    )


def test_as_plain_values() -> None:
    metrics = Metrics()
    metrics.count_request(Kind.DICTIONARY, 5)
    metrics.rows.add(total=3, kept=2)
    metrics.warn("careful")
    plain = metrics.as_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["requests_by_kind"] == {"dictionary page": 1}
    assert plain["rows"] == {"total": 3, "kept": 2}
    assert plain["warnings"] == ["careful"]
    assert "_lock" not in plain
    plain["warnings"].append("mine")  # type: ignore[attr-defined]
    assert metrics.warnings == ["careful"]


@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))],
    ids=["copy", "deep", "pickle"],
)
def test_a_copy_is_of_its_moment(copied: Callable[[Metrics], Metrics]) -> None:
    metrics = Metrics()
    metrics.count_request(Kind.PAGE, 7)
    metrics.rows.add(total=9, kept=4)
    metrics.warn("passed over")
    before, other = metrics.as_dict(), copied(metrics)
    metrics.count_request(Kind.PAGE, 1)
    metrics.rows.add(total=1, kept=1)
    metrics.warn("another")
    assert other.as_dict() == before != metrics.as_dict()
    other.add("rows_out")
    assert (other.rows_out, metrics.rows_out) == (1, 0)


def test_plain_values_are_of_one_moment() -> None:
    """A request of another kind that is counted while they are told does not disturb them."""
    metrics = Metrics()

    class Told(str):
        __slots__ = ()

        def __str__(self) -> str:
            metrics.count_request(Kind.PAGE, 1)
            return "told"

    metrics.requests_by_kind[Told("told")] = 1  # type: ignore[index]
    assert metrics.as_dict()["requests_by_kind"] == {"told": 1}
    assert metrics.requests == 1


def test_the_counts_of_runs_are_merged() -> None:
    """All counts are added but the round trips, of which the greater counts; those of an index by table, then
    by name."""
    one, other = Metrics(requests=2, round_trips=3), Metrics(requests=5, round_trips=1)
    one.count_dropped("bounds", files=4)
    other.count_dropped("bounds", files=1, pages=7)
    other.count_dropped("keys id", rows=9)
    other.files.add(total=6, kept=2)
    other.warn("a file was skipped")
    one.merge(other)
    assert (one.requests, one.round_trips, one.warnings) == (7, 3, ["a file was skipped"])
    assert (one.files.total, one.files.kept) == (6, 2)
    assert one.catalog_dropped == {"bounds": {"files": 5, "pages": 7}, "keys id": {"rows": 9}}
    assert other.catalog_dropped == {"bounds": {"files": 1, "pages": 7}, "keys id": {"rows": 9}}
