"""Bounds as bytes: they compare as the exact values do, whatever the types, and decode to sound bounds of
other types."""

from __future__ import annotations

import datetime
import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import accel
from accel.format.domain import Domain
from accel.indexes.bound_bytes import LONGEST, End, decode_bounds, encode_bounds
from accel.predicate.kinds import kind_of

NUMBERS = [
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.uint8(),
    pa.uint32(),
    pa.uint64(),
    pa.float16(),
    pa.float32(),
    pa.float64(),
    pa.decimal128(38, 5),
    pa.decimal128(20, -3),
    pa.decimal128(5, 0),
    pa.decimal256(60, 30),
    pa.decimal256(76, -20),
]
INSTANTS = [
    pa.timestamp("s"),
    pa.timestamp("ms"),
    pa.timestamp("us", "UTC"),
    pa.timestamp("ns"),
    pa.date32(),
    pa.date64(),
]
TIMES = [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")]
DURATIONS = [pa.duration(unit) for unit in ("s", "ms", "us", "ns")]
ALIKE = [NUMBERS, INSTANTS, TIMES, DURATIONS]
EDGES = [0, 1, -1, 2**53 - 1, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1, -(2**53) - 1, -(2**63), 10**18]
SPECIAL = [
    0.0,
    -0.0,
    math.inf,
    -math.inf,
    5e-324,
    -5e-324,
    2.0**-1022,
    1.7976931348623157e308,
    2.0**63,
    1e-310,
]

Exact = Fraction | float
Item = tuple[pa.DataType, Any]


def natives(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Native values of a type: floats, or the integers that its values count."""
    if pa.types.is_floating(kind):
        return st.sampled_from(SPECIAL) | st.floats(allow_nan=False) | st.integers(-(2**70), 2**70).map(float)
    if pa.types.is_decimal(kind):
        least, greatest = -(10**kind.precision) + 1, 10**kind.precision - 1
    else:
        least, greatest = kind_of(kind).limits
    edges = [least, greatest, *(edge for edge in EDGES if least <= edge <= greatest)]
    small = st.integers(max(least, -2000), min(greatest, 2000))
    return st.sampled_from(edges) | small | st.integers(least, greatest)


def items(kinds: list[pa.DataType]) -> st.SearchStrategy[Item]:
    return st.sampled_from(kinds).flatmap(lambda kind: st.tuples(st.just(kind), natives(kind)))


def exact(kind: pa.DataType, native: Any) -> Exact:
    """The number, or the nanoseconds, that a native value stands for; infinities stay floats, which
    compare."""
    if isinstance(native, float | np.floating):
        return float(native) if math.isinf(native) else Fraction(float(native))
    return Fraction(int(native) * kind_of(kind).numerator, kind_of(kind).denominator)


def array(kind: pa.DataType, values: list[Any]) -> np.ndarray[Any, Any]:
    if pa.types.is_decimal(kind):
        out = np.empty(len(values), object)
        out[:] = values
        return out
    if pa.types.is_floating(kind):
        return np.array(values, np.float64)
    return np.array(values, np.uint64 if kind == pa.uint64() else np.int64)


def encoded(kind: pa.DataType, values: list[Any], end: End) -> list[bytes]:
    found = encode_bounds(array(kind, values), np.ones(len(values), bool), kind=kind_of(kind), end=end)
    return found.to_pylist()  # type: ignore[no-any-return]


def both(item: Item) -> tuple[bytes, bytes]:
    kind, value = item
    return encoded(kind, [value], End.LOWER)[0], encoded(kind, [value], End.UPPER)[0]


@pytest.mark.parametrize("kinds", ALIKE, ids=["numbers", "instants", "times", "durations"])
@settings(max_examples=25)
@given(data=st.data())
def test_bytes_compare_as_exact_values_do(kinds: list[pa.DataType], data: st.DataObject) -> None:
    drawn = data.draw(st.lists(items(kinds), min_size=2, max_size=12))
    rows = sorted(((exact(*item), *both(item)) for item in drawn), key=lambda row: row[0])
    for value, lower, upper in rows:
        assert lower <= upper, value
    for (value, lower, upper), (next_value, next_lower, next_upper) in itertools.pairwise(rows):
        assert lower <= next_lower
        assert upper <= next_upper
        assert lower <= next_upper
        if value == next_value:
            assert (lower, upper) == (next_lower, next_upper)


@pytest.mark.parametrize(
    "kind", [kind for kinds in ALIKE for kind in kinds if not pa.types.is_decimal(kind)], ids=str
)
@settings(max_examples=12)
@given(data=st.data())
def test_all_but_decimals_are_exact_below_64_bits(kind: pa.DataType, data: st.DataObject) -> None:
    """Different values differ in their bytes, both ends have the same, and the way back gives the value."""
    values = data.draw(st.lists(natives(kind), min_size=1, max_size=8))
    values = [value for value in values if math.isinf(value) or abs(exact(kind, value)) < 2**64] or [0]
    lower, upper = encoded(kind, values, End.LOWER), encoded(kind, values, End.UPPER)
    assert lower == upper
    for end in End:
        found, has = decode_bounds(pa.array(lower, pa.binary()), kind=kind_of(kind), end=end)
        assert has.all()
        assert [exact(kind, value) for value in found.tolist()] == [exact(kind, value) for value in values]


@pytest.mark.parametrize("kinds", ALIKE, ids=["numbers", "instants", "times", "durations"])
@settings(max_examples=25)
@given(data=st.data())
def test_bounds_decode_to_sound_bounds_of_any_type_that_compares(
    kinds: list[pa.DataType], data: st.DataObject
) -> None:
    rows = data.draw(st.lists(items(kinds), min_size=1, max_size=8))
    target = data.draw(st.sampled_from(kinds))
    kind = kind_of(target)
    lowers, has_lower = decode_bounds(
        pa.array([both(row)[0] for row in rows], pa.binary()), kind=kind, end=End.LOWER
    )
    uppers, has_upper = decode_bounds(
        pa.array([both(row)[1] for row in rows], pa.binary()), kind=kind, end=End.UPPER
    )
    # A native integer bounds values of its own type: those in the gap below the next one there are none.
    step = 0 if kind.domain is Domain.FLOAT else Fraction(kind.numerator, kind.denominator)
    for at, row in enumerate(rows):
        value = exact(*row)
        if has_lower[at]:
            low = exact(target, lowers[at])
            assert low <= value or low - step < value
        if has_upper[at]:
            high = exact(target, uppers[at])
            assert high >= value or high + step > value
        if has_lower[at] and has_upper[at] and kind.domain is not Domain.FLOAT:
            representable = isinstance(value, Fraction) and (value / step).denominator == 1
            if representable:
                assert exact(target, lowers[at]) <= value <= exact(target, uppers[at])


@given(value=st.integers(-(2**63), 2**63 - 1))
def test_a_double_around_a_long_integer_is_tight(value: int) -> None:
    """Decoded as doubles, the bounds of an integer are the doubles next to it."""
    lower, upper = both((pa.int64(), value))
    low, _ = decode_bounds(pa.array([lower]), kind=kind_of(pa.float64()), end=End.LOWER)
    high, _ = decode_bounds(pa.array([upper]), kind=kind_of(pa.float64()), end=End.UPPER)
    assert Fraction(low[0]) <= value <= Fraction(high[0])
    assert high[0] <= np.nextafter(np.nextafter(low[0], np.inf), np.inf)


def test_zeros_of_either_sign_are_one_value_and_decode_to_the_outer_one() -> None:
    lower, upper = (
        encoded(pa.float64(), [0.0, -0.0], End.LOWER),
        encoded(pa.float64(), [0.0, -0.0], End.UPPER),
    )
    assert len({*lower, *upper}) == 1
    low, _ = decode_bounds(pa.array(lower), kind=kind_of(pa.float64()), end=End.LOWER)
    high, _ = decode_bounds(pa.array(upper), kind=kind_of(pa.float64()), end=End.UPPER)
    assert np.signbit(low).all()
    assert not np.signbit(high).any()


def test_an_infinite_bound_bounds_no_integer() -> None:
    for value, end in ((-math.inf, End.LOWER), (math.inf, End.UPPER), (math.inf, End.LOWER)):
        one = pa.array(encoded(pa.float64(), [value], end), pa.binary())
        assert not decode_bounds(one, kind=kind_of(pa.int32()), end=end)[1].any()


TEXTS = st.binary(max_size=2 * LONGEST) | st.text(max_size=LONGEST).map(str.encode)
LONG = st.tuples(st.sampled_from([b"a", b"\xff", b"\x00", b"a\xff"]), st.integers(1, 2 * LONGEST)).map(
    lambda one: one[0] * one[1]
)


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.binary(), pa.large_string(), pa.string_view(), pa.uuid()], ids=str
)
@settings(max_examples=20)
@given(values=st.lists(TEXTS | LONG, min_size=1, max_size=8))
def test_texts_are_cut_outward(kind: pa.DataType, values: list[bytes]) -> None:
    given_values = np.empty(len(values), object)
    given_values[:] = values
    has = np.ones(len(values), bool)
    lowers = encode_bounds(given_values, has, kind=kind_of(kind), end=End.LOWER).to_pylist()
    uppers = encode_bounds(given_values, has, kind=kind_of(kind), end=End.UPPER).to_pylist()
    for value, lower, upper in zip(values, lowers, uppers, strict=True):
        assert lower <= value
        assert len(lower) <= LONGEST
        assert upper is None or (value <= upper and len(upper) <= LONGEST)
        if len(value) <= LONGEST:
            assert lower == upper == value
        if upper is None:
            assert value[:LONGEST] == b"\xff" * LONGEST
    decoded, there = decode_bounds(pa.array(uppers, pa.binary()), kind=kind_of(kind), end=End.UPPER)
    assert there.tolist() == [upper is not None for upper in uppers]
    assert [one for one, has_one in zip(decoded, there, strict=True) if has_one] == [
        u for u in uppers if u is not None
    ]


def test_truth_values_are_a_byte() -> None:
    kind, has = kind_of(pa.bool_()), np.ones(2, bool)
    found = encode_bounds(np.array([False, True]), has, kind=kind, end=End.LOWER)
    assert found.to_pylist() == [b"\x00", b"\x01"]
    assert decode_bounds(found, kind=kind, end=End.LOWER)[0].tolist() == [False, True]


@pytest.mark.parametrize(
    "kind", [pa.int32(), pa.float64(), pa.decimal128(20, 3), pa.string(), pa.bool_()], ids=str
)
def test_absent_bounds_stay_absent(kind: pa.DataType) -> None:
    has = np.array([False, True, False])
    values = array(kind, [1, 1, 1]) if kind not in (pa.string(), pa.bool_()) else np.array([b"a"] * 3, object)
    values = np.array([True] * 3) if kind == pa.bool_() else values
    found = encode_bounds(values, has, kind=kind_of(kind), end=End.UPPER)
    assert found.is_valid().to_pylist() == has.tolist()
    decoded, there = decode_bounds(found, kind=kind_of(kind), end=End.UPPER)
    assert there.tolist() == has.tolist()
    assert decoded[1] == values[1]
    # A slice has an offset of its own.
    decoded, there = decode_bounds(found.slice(1, 2), kind=kind_of(kind), end=End.UPPER)
    assert there.tolist() == [True, False]
    assert decoded[0] == values[1]


def test_a_type_without_an_order_has_no_bounds() -> None:
    kind = kind_of(pa.list_(pa.int64()))
    found = encode_bounds(np.zeros(3, np.int64), np.ones(3, bool), kind=kind, end=End.LOWER)
    assert found.null_count == 3
    assert not decode_bounds(found, kind=kind, end=End.LOWER)[1].any()


def test_nanoseconds_compare_days_with_instants() -> None:
    day = (datetime.date(2024, 2, 29) - datetime.date(1970, 1, 1)).days
    (date,) = encoded(pa.date32(), [day], End.LOWER)
    for unit, ticks in (("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)):
        before, same, after = encoded(
            pa.timestamp(unit), [day * 86_400 * ticks + moved for moved in (-1, 0, 1)], End.LOWER
        )
        assert before < date == same < after


DAMAGED = [b"", b"\x80", b"\x80" * 9, b"\x80" * 11, b"\x00" * 64]


@pytest.mark.parametrize(
    "kind", [pa.int64(), pa.float64(), pa.decimal256(60, 3), pa.timestamp("us")], ids=str
)
@pytest.mark.parametrize("end", End)
def test_damaged_numbers_are_refused(kind: pa.DataType, end: End) -> None:
    for damaged in (*DAMAGED, b"\xc0\x10" + b"\x00" * 8, b"\xc0\x10" + b"\x7f" + b"\xff" * 7):
        with pytest.raises(accel.IndexFormatError):
            decode_bounds(pa.array([None, damaged], pa.binary()), kind=kind_of(kind), end=end)


@pytest.mark.parametrize("damaged", [b"", b"\x02", b"\xff", b"\x00\x00"])
def test_damaged_truth_values_are_refused(damaged: bytes) -> None:
    with pytest.raises(accel.IndexFormatError):
        decode_bounds(pa.array([b"\x01", damaged]), kind=kind_of(pa.bool_()), end=End.UPPER)


@pytest.mark.parametrize(
    "kind", [pa.int64(), pa.uint64(), pa.float64(), pa.decimal128(38, 10), pa.date32()], ids=str
)
@given(data=st.binary(min_size=10, max_size=10))
def test_any_ten_bytes_are_a_number_or_refused(kind: pa.DataType, data: bytes) -> None:
    for end in End:
        try:
            found, has = decode_bounds(pa.array([data]), kind=kind_of(kind), end=end)
        except accel.IndexFormatError:
            continue
        assert len(found) == len(has) == 1
        assert not (has[0] and found[0] != found[0])
