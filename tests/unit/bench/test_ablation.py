"""Each way is switched off wherever it is used, and the answers are the same without it."""

import importlib

import pytest

from accel.decode import codecs, rewritten_pages
from bench.micro.ablation import WAYS, Comparison, Ratios, Way, report, switched_off
from bench.micro.ablation_cases import CASES, SMALL

WAY = {way.name: way for way in WAYS}
CASE = {case.name: case for case in CASES}


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return Comparison(size=SMALL, rounds=1)


@pytest.mark.parametrize("way", [way for way in WAYS if way.where], ids=lambda way: way.name)
def test_each_way_is_reached_by_a_case_that_answers_the_same_without_it(
    way: Way, comparison: Comparison
) -> None:
    assert any(comparison.compare(way, case) for case in CASES if case.name != "few rows, slow network")


def test_a_way_is_off_wherever_its_name_was_imported_and_on_again_afterwards() -> None:
    before = codecs.fast_snappy
    with switched_off(WAY["cramjam's Snappy"]) as switch:
        assert vars(rewritten_pages)["fast_snappy"] is codecs.fast_snappy is not before
        assert codecs.fast_snappy(1 << 20) is None
    assert vars(rewritten_pages)["fast_snappy"] is codecs.fast_snappy is before
    assert (switch.calls, switch.counts) == (1, True)


@pytest.mark.parametrize(
    "where", ["accel.decode.codecs:slow_snappy", "accel.cache.byte_tier:ByteTier.refuse", "accel.gone:way"]
)
def test_a_name_that_no_longer_exists_is_an_error(where: str) -> None:
    with pytest.raises((AttributeError, ModuleNotFoundError)), switched_off(Way("gone", where)):
        pass


def test_an_imported_name_is_not_patched_in_place_of_its_own_module() -> None:
    for way in WAYS:
        module, _, path = way.where.partition(":")
        if path and "." not in path:
            found = getattr(importlib.import_module(module), path)
            assert getattr(found, "__module__", module) == module, way.name


def test_a_case_that_does_not_reach_a_way_is_not_timed() -> None:
    assert Comparison(size=SMALL).compare(WAY["cramjam's Snappy"], CASE["warm lookup, zstd"]) is None


def test_another_answer_without_a_way_is_refused() -> None:
    fewer = Way(
        "all row groups", "accel.planning.two_phase:cut_task", lambda original: lambda *args, **options: []
    )
    with pytest.raises(RuntimeError, match="full scan, zstd has another answer without all row groups"):
        Comparison(size=SMALL, rounds=1).compare(fewer, CASE["full scan, zstd"])


@pytest.mark.parametrize(
    ("cpu", "requests", "nbytes", "earns"),
    [
        pytest.param([1.1, 1.2, 1.3], (1, 1), (9, 9), True, id="CPU"),
        pytest.param([0.9, 1.2, 1.3], (1, 1), (9, 9), False, id="rounds that disagree"),
        pytest.param([1.05, 1.06, 1.3], (1, 1), (9, 9), False, id="CPU of one round"),
        pytest.param([1.0], (0, 3), (9, 9), True, id="requests"),
        pytest.param([1.0], (1, 1), (100, 105), False, id="few bytes"),
    ],
)
def test_a_tenth_is_earned(
    cpu: list[float], requests: tuple[int, int], nbytes: tuple[int, int], earns: bool
) -> None:
    ratios = Ratios(cpu, [1.5], [7.5], requests, nbytes)
    assert ratios.earns is earns
    line = report(WAY["plain pages"], CASE["wide filter"], ratios)
    assert line.startswith("plain pages")
    assert ("earns" in line) is earns
    assert ("requests 0 -> 3" in line) is (requests == (0, 3))
