"""What figures answer: exact ones, and no others."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from accel.format.bounds import settle_exactness
from accel.format.domain import Bounds, Domain
from accel.format.model import Physical, Repetition, SchemaElement
from accel.indexes.zone_bounds import unit_bounds
from accel.planning.aggregates import Function, Tally
from accel.planning.exact_figures import answerable, tally_units

COUNT, SUM, MIN, MAX = Function.COUNT, Function.SUM, Function.MIN, Function.MAX
NAN, INF = math.nan, math.inf


def element(physical: Physical) -> SchemaElement:
    return SchemaElement(
        name="x",
        physical=physical,
        type_length=0,
        repetition=Repetition.OPTIONAL,
        num_children=0,
        converted_type=None,
        logical_type=None,
        logical_params={},
        scale=0,
        precision=0,
        field_id=None,
        raw=b"",
    )


def bounds(domain: Domain, low: Any, high: Any, *, nulls: int = 0, nans: int = 0, rows: int = 10) -> Bounds:
    kind = {Domain.FLOAT: np.float64, Domain.BYTES: object, Domain.BOOLEAN: bool}.get(domain, np.int64)

    def column(value: Any) -> Any:
        out = np.empty(1, kind)
        out[:] = [value if value is not None else (b"" if kind is object else 0)]
        return out

    one = np.array([1], np.int64)
    return Bounds(
        domain,
        column(low),
        column(high),
        np.array([low is not None]),
        np.array([high is not None]),
        one * rows,
        one * nulls,
        one * nans,
    )


def known(given: Bounds) -> dict[str, bool]:
    return {str(f): bool(answerable(given, {f})[0]) for f in (COUNT, MIN, MAX, SUM)}


@pytest.mark.parametrize(
    ("given", "physical", "low_exact", "high_exact", "wanted"),
    [
        (bounds(Domain.INTEGER, 1, 9), Physical.INT64, -1, -1, "count min max"),
        (bounds(Domain.INTEGER, 1, 9), Physical.INT64, 0, 1, "count max"),
        (bounds(Domain.INTEGER, 1, None), Physical.INT64, -1, -1, "count min"),
        (bounds(Domain.INTEGER, 1, 9, nulls=-1), Physical.INT64, 1, 1, "min max"),
        (bounds(Domain.INTEGER, None, None, nulls=10), Physical.INT64, -1, -1, "count min max sum"),
        (bounds(Domain.INTEGER, 7, 7, nulls=2), Physical.INT64, -1, -1, "count min max sum"),
        (bounds(Domain.INTEGER, 7, 7, nulls=-1), Physical.INT64, -1, -1, "min max"),
        (bounds(Domain.INTEGER, 7, 7), Physical.INT64, 0, 1, "count max"),
        (bounds(Domain.FLOAT, 2.0, 2.0), Physical.DOUBLE, -1, -1, "count min max sum"),
        (bounds(Domain.FLOAT, 2.0, 2.0, nans=1), Physical.DOUBLE, -1, -1, "count min max"),
        (bounds(Domain.FLOAT, 0.1, 0.1), Physical.DOUBLE, -1, -1, "count min max"),
        (bounds(Domain.FLOAT, 2.0**53, 2.0**53), Physical.DOUBLE, -1, -1, "count min max"),
        (bounds(Domain.INTEGER, 1, 9), Physical.FIXED_LEN_BYTE_ARRAY, -1, -1, "count min max"),
        (bounds(Domain.INTEGER, 1, 9), Physical.BYTE_ARRAY, -1, -1, "count"),
        (bounds(Domain.INTEGER, 1, 9), Physical.BYTE_ARRAY, 1, 1, "count min max"),
        (bounds(Domain.BOOLEAN, False, True), Physical.BOOLEAN, -1, -1, "count min max"),
        (bounds(Domain.BYTES, b"a", b"b"), Physical.BYTE_ARRAY, -1, -1, "count"),
        (bounds(Domain.BYTES, b"a", b"b"), Physical.BYTE_ARRAY, 1, 0, "count min"),
        # Between two equal bounds is one value, unless they may have been cut.
        (bounds(Domain.BYTES, b"a", b"a"), Physical.BYTE_ARRAY, -1, -1, "count min max sum"),
        (bounds(Domain.BYTES, b"a" * 16, b"a" * 16), Physical.BYTE_ARRAY, -1, -1, "count"),
        (bounds(Domain.BYTES, b"a" * 16, b"a" * 16), Physical.BYTE_ARRAY, 1, -1, "count min"),
        (bounds(Domain.BYTES, b"a", b"a"), Physical.BYTE_ARRAY, 1, 0, "count min"),
        (bounds(Domain.BYTES, b"a", b"b"), Physical.FIXED_LEN_BYTE_ARRAY, -1, -1, "count"),
        (bounds(Domain.FLOAT, 1.0, 2.0), Physical.DOUBLE, -1, -1, "count min max"),
        (bounds(Domain.FLOAT, 1.0, 2.0, nans=-1), Physical.DOUBLE, 1, 1, "count"),
        (bounds(Domain.FLOAT, 1.0, 2.0, nans=3), Physical.DOUBLE, 1, 1, "count min max"),
        (bounds(Domain.FLOAT, None, None, nans=10), Physical.DOUBLE, -1, -1, "count min max"),
        (bounds(Domain.FLOAT, None, None, nans=3), Physical.DOUBLE, -1, -1, "count"),
        (bounds(Domain.NONE, None, None, nulls=4), Physical.INT96, -1, -1, "count"),
    ],
)
def test_what_statistics_prove(
    given: Bounds, physical: Physical, low_exact: int, high_exact: int, wanted: str
) -> None:
    flags = (np.array([flag], np.int8) for flag in (low_exact, high_exact))
    exact = settle_exactness(given, element(physical), *flags)
    assert [name for name, yes in known(exact).items() if yes] == wanted.split()


@pytest.mark.parametrize(
    ("values", "wanted", "total"),
    [
        # Exactly: rounded one by one, the last would be lost.
        ([1e16, 1.0, 1.0], "count min max sum", 1e16 + 2),
        ([1.5e308, 1.5e308, -1.7e308], "count min max", INF),
        ([1.5e308, NAN, 1.5e308], "count min max sum", NAN),
    ],
)
def test_the_sum_of_units_together(values: list[float], wanted: str, total: float) -> None:
    parts = [unit_bounds(pa.array([value]), np.zeros(1, np.int64)) for value in values]
    merged = Bounds.join(parts).fold(np.array([len(parts)]))
    assert str(merged.sums) == str((total,))
    assert [name for name, yes in known(merged).items() if yes] == wanted.split()


def test_zeros_that_were_widened_have_no_sign() -> None:
    given = bounds(Domain.FLOAT, -0.0, 0.0)
    flags = np.array([-1], np.int8)
    exact = settle_exactness(given, element(Physical.DOUBLE), flags, flags)
    found = tally_units(exact, np.array([True]), {MIN, MAX})
    assert (math.copysign(1, found.low), math.copysign(1, found.high)) == (1, 1)


def stats(values: list[Any], kind: pa.DataType, starts: tuple[int, ...] = (0,)) -> Bounds:
    return unit_bounds(pa.array(values, kind), np.array(starts, np.int64))


@pytest.mark.parametrize(
    ("values", "kind", "wanted"),
    [
        ([1, None, 3], pa.int64(), "count min max sum"),
        ([None], pa.int64(), "count min max sum"),
        ([1.5, NAN], pa.float64(), "count min max sum"),
        ([NAN], pa.float64(), "count min max sum"),
        ([INF, 1.0], pa.float64(), "count min max sum"),
        # With -1e308 elsewhere, another order may not overflow.
        ([1e308, 1e308], pa.float64(), "count min max"),
        ([b"a", b"b"], pa.binary(), "count min max"),
        ([b"a", b"b" * 65], pa.binary(), "count min"),
        ([True, False], pa.bool_(), "count min max"),
    ],
)
def test_what_zone_maps_prove(values: list[Any], kind: pa.DataType, wanted: str) -> None:
    assert [name for name, yes in known(stats(values, kind)).items() if yes] == wanted.split()


def test_figures_of_some_units() -> None:
    zones = stats([1, 9, None, 4, 5, 6, None, None], pa.int64(), (0, 2, 4, 6))
    assert zones.num_values.tolist() == [2, 2, 2, 2]
    every = {COUNT, SUM, MIN, MAX}
    assert answerable(zones, every).all()
    assert tally_units(zones, np.array([True, True, False, True]), every) == Tally(
        count=3, low=1, high=9, total=14
    )
    assert tally_units(zones, np.array([False, False, False, True]), every) == Tally()
    assert tally_units(zones.part(1, 2), np.array([True]), every) == Tally(count=1, low=4, high=4, total=4)


def test_nan_is_told_of_units_without_other_values() -> None:
    zones = stats([NAN, NAN, 1.0, NAN], pa.float64(), (0, 2))
    assert tally_units(zones, np.array([True, False]), {MIN}) == Tally(count=2, nan=True)
    both = tally_units(zones, np.array([True, True]), {MIN})
    assert (both.count, both.low) == (4, 1.0)


def test_counts_that_are_not_known_do_not_count() -> None:
    given = replace(stats([1, 2], pa.int64()), null_count=np.array([-1], np.int64), sums=None)
    assert known(given) == {"count": False, "min": True, "max": True, "sum": False}
    assert tally_units(given, np.array([True]), {MIN}).count == 0


def test_nan_in_one_unit_is_nan_in_all_together() -> None:
    """A tally has NaN where any of the chosen units has."""
    zones = unit_bounds(pa.array([1.0, 2.0, NAN, 4.0, 5.0]), np.array([0, 1, 2, 3]))
    assert tally_units(zones, np.array([True, True, True, False]), {MIN, MAX}) == Tally(
        count=3, nan=True, low=1.0, high=2.0
    )
    assert tally_units(zones, np.array([True, True, False, True]), {MIN, MAX}) == Tally(
        count=4, nan=False, low=1.0, high=5.0
    )
