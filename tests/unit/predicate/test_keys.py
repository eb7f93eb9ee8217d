"""Key sets of IN: an array gives what the list of its values gives, and is refused where that is."""

from __future__ import annotations

import warnings
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from accel.errors import PredicateError
from accel.predicate.keys import array_keys, list_keys
from accel.predicate.kinds import kind_of

FLOATS = [5e19, -5e19, 2.0**63, -(2.0**63), 2.0**64, 7.0, 0.5, -0.0, float("inf"), 1e30]
HELD = {"where": "c", "position": 0}


@pytest.mark.parametrize(
    "column",
    [
        pa.decimal128(38, 0),
        pa.decimal256(60, 0),
        pa.decimal128(18, 0),
        pa.decimal128(38, 2),
        pa.int64(),
        pa.uint64(),
        pa.int8(),
        pa.float64(),
    ],
    ids=str,
)
@pytest.mark.parametrize("floats", [FLOATS, FLOATS[:1], FLOATS[5:6], []], ids=len)
def test_floats_against_any_number(column: pa.DataType, floats: list[float]) -> None:
    """None is cast to a narrower number than the column holds."""
    kind = kind_of(column)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = array_keys(pa.array(floats, pa.float64()), kind, **HELD)
    expected = list_keys(floats, kind, **HELD)
    assert found.sorted.tolist() == expected.sorted.tolist()
    assert (found.values, found.nan) == (expected.values, expected.nan)


def test_the_largest_are_what_they_are() -> None:
    found = array_keys(pa.array([5e19, 1.0]), kind_of(pa.decimal128(38, 0)), **HELD)
    assert found.values.to_pylist() == [Decimal(1), Decimal(5 * 10**19)]


@pytest.mark.parametrize("ticks", [1, 2**62], ids=["a second", "more than Python's have"])
@pytest.mark.parametrize("column", [pa.int64(), pa.string(), pa.timestamp("us")], ids=str)
def test_durations_are_no_other_kind(column: pa.DataType, ticks: int) -> None:
    durations = pa.array([ticks, None], pa.int64()).view(pa.duration("s"))
    with pytest.raises(PredicateError, match="duration|timedelta"):
        array_keys(durations, kind_of(column), **HELD)


def test_of_nothing_but_nulls_there_is_nothing_to_refuse() -> None:
    nulls: Any = pa.nulls(2, pa.duration("s"))
    assert array_keys(nulls, kind_of(pa.int64()), **HELD).sorted.tolist() == []
    assert np.asarray(array_keys(nulls[:0], kind_of(pa.int64()), **HELD).sorted).size == 0
