"""Key sets of IN, from lists, arrays and many equalities of one column."""

from __future__ import annotations

import warnings
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from accel.errors import PredicateError
from accel.predicate.atoms import Against, AllOf, Among, AnyOf, Negation, Node, Null, Order
from accel.predicate.bind import bind
from accel.predicate.kinds import kind_of, native
from accel.predicate.membership import MANY, array_keys, keys_between, keys_near, list_keys
from accel.predicate.where import to_expr

SCHEMA = pa.schema([("a", pa.int64()), ("s", pa.string()), ("f", pa.float64()), ("flag", pa.bool_())])


def root(where: str) -> Node:
    return bind(to_expr(where), SCHEMA).root  # type: ignore[arg-type]


def equal(name: str, op: str, count: int = MANY) -> list[str]:
    return [f"{name} {op} {i}" for i in range(count)]


def test_many_equalities_are_a_list() -> None:
    found, listed = root(" OR ".join(equal("a", "="))), root(f"a IN ({', '.join(map(str, range(MANY)))})")
    assert isinstance(found, Among)
    assert isinstance(listed, Among)
    assert found.keys.values == listed.keys.values
    assert not found.with_null


def test_many_inequalities_are_a_list_denied() -> None:
    found = root(" AND ".join(equal("a", "<>")))
    assert isinstance(found, Negation)
    assert isinstance(found.operand, Among)
    assert found.operand.keys.sorted.tolist() == list(range(MANY))


def test_other_operands_stay_beside_the_list() -> None:
    parts = equal("a", "=")
    found = root(" OR ".join(["s = 'x'", *parts[:5], "a IS NULL", "a <> 3", *parts[5:], "f = DOUBLE 'NaN'"]))
    assert isinstance(found, AnyOf)
    among, *rest = found.operands
    assert isinstance(among, Among)
    assert among.column == 1
    nan = rest.pop()
    assert rest == [
        Against(0, Order.EQ, b"x"),
        Null(1),
        Negation(Against(1, Order.EQ, 3)),
    ]
    assert isinstance(nan, Against)


@pytest.mark.parametrize(
    ("where", "kind"),
    [
        (" OR ".join(equal("a", "=", MANY - 1)), AnyOf),
        (" AND ".join(equal("a", "<>", MANY - 1)), AllOf),
        (" OR ".join(equal("a", "<>")), AnyOf),
        (" AND ".join(equal("a", "=")), AllOf),
        (" OR ".join(equal("a", "<")), AnyOf),
        (" OR ".join(equal("a", "IS NOT DISTINCT FROM")), AnyOf),
        (" OR ".join(["flag"] * MANY), AnyOf),
        (" OR ".join(["a = 1"] * MANY), Against),
    ],
    ids=["few", "few denied", "or of <>", "and of =", "ranges", "not distinct", "flags", "one value"],
)
def test_what_is_no_list(where: str, kind: type[Node]) -> None:
    assert isinstance(root(where), kind)


def test_a_list_of_floats_has_its_nan_and_its_zeros() -> None:
    found = root(" OR ".join([*equal("f", "="), "f = DOUBLE 'NaN'", "f = DOUBLE '-0.0'"]))
    assert isinstance(found, Among)
    assert found.keys.nan
    assert [str(v) for v in found.keys.values.to_pylist()].count("-0.0") == 1


FLOATS = [5e19, -5e19, 2.0**63, -(2.0**63), 2.0**64, 7.0, 0.5, -0.0, float("inf"), 1e30]
PLACE = {"where": "c", "position": 0}


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
        found = array_keys(pa.array(floats, pa.float64()), kind, **PLACE)
    expected = list_keys(floats, kind, **PLACE)
    assert found.sorted.tolist() == expected.sorted.tolist()
    assert (found.values, found.nan) == (expected.values, expected.nan)


def test_the_largest_are_what_they_are() -> None:
    found = array_keys(pa.array([5e19, 1.0]), kind_of(pa.decimal128(38, 0)), **PLACE)
    assert found.values.to_pylist() == [Decimal(1), Decimal(5 * 10**19)]


@pytest.mark.parametrize("ticks", [1, 2**62], ids=["a second", "more than Python's have"])
@pytest.mark.parametrize("column", [pa.int64(), pa.string(), pa.timestamp("us")], ids=str)
def test_durations_are_no_other_kind(column: pa.DataType, ticks: int) -> None:
    durations = pa.array([ticks, None], pa.int64()).view(pa.duration("s"))
    with pytest.raises(PredicateError, match="duration|timedelta"):
        array_keys(durations, kind_of(column), **PLACE)


def test_of_nothing_but_nulls_there_is_nothing_to_refuse() -> None:
    nulls: Any = pa.nulls(2, pa.duration("s"))
    assert array_keys(nulls, kind_of(pa.int64()), **PLACE).sorted.tolist() == []
    assert np.asarray(array_keys(nulls[:0], kind_of(pa.int64()), **PLACE).sorted).size == 0


WIDE = pa.decimal128(38, 0)


@pytest.mark.parametrize(
    ("keys", "values", "near"),
    [
        (pa.array(range(100)), pa.array([7, None, 7, 300, -1, 50]), {7, 50}),
        (pa.array(range(100), pa.int8()), pa.array([7, None, 7 + 256, 1 << 60]), {7}),
        (pa.array([1, 2**63], pa.uint64()), pa.array([2**63, 2**64 - 1, 1], pa.uint64()), {1, 2**63}),
        (pa.array([1, 2**62]), pa.array([2**62, 2**64 - 1, 1], pa.uint64()), {1, 2**62}),
        (pa.array([1.5, -0.0, 9.0]), pa.array([-0.0, float("nan"), 1.5]), {0.0, 1.5}),
        (pa.array([1, 2, 3]), pa.array([10**30, -(10**30), 2, None], WIDE), {2}),
        (pa.array([1, 10**30, 3], WIDE), pa.array([10**30, 3], WIDE), {10**30, 3}),
        (pa.array(["a", "b", "zz"]), pa.array(["b", None, "\U0010ffff", ""]), {b"b"}),
        (pa.array([b"a", b"a\0"]), pa.array([b"a\0", b"b"], pa.large_binary()), {b"a\0"}),
        (pa.array([1, 2]), pa.array([], pa.int64()), set()),
    ],
    ids=lambda value: str(getattr(value, "type", value)),
)
def test_the_keys_near_values(keys: pa.Array, values: pa.Array, near: set[object]) -> None:
    """All that are among the values, and no more than there are values."""
    kind = kind_of(values.type)
    found = keys_near(array_keys(keys, kind, **PLACE), native(values))
    kept = set(found.sorted.tolist())
    assert near <= kept <= set(array_keys(keys, kind, **PLACE).sorted.tolist())
    assert len(kept) <= len(values)
    assert found.values.type == kind.native
    assert set(native(values).drop_null().to_pylist()) & set(found.values.to_pylist()) == near


@pytest.mark.parametrize(
    ("keys", "values", "between"),
    [
        (pa.array(range(100)), pa.array([7, 9, 300]), list(range(7, 100))),
        (pa.array(range(100)), pa.array([-5, 3]), [0, 1, 2, 3]),
        (pa.array(range(100)), pa.array([200, 300]), []),
        (pa.array(range(100)), pa.array([None, None], pa.int64()), []),
        (pa.array(range(100)), pa.array([], pa.int64()), []),
        (pa.array(range(100), pa.int8()), pa.array([98, 1 << 60]), [98, 99]),
        (pa.array([1, 2**62]), pa.array([2**62, 2**64 - 1], pa.uint64()), [2**62]),
        (pa.array([1, 2**63, 2**64 - 1], pa.uint64()), pa.array([2, 2**63], pa.uint64()), [2**63]),
        (pa.array([1.5, -0.0, 9.0]), pa.array([-0.0, float("nan"), 1.0]), [0.0]),
        (pa.array([1.5, 2.0]), pa.array([float("nan"), None]), []),
        (pa.array([1.0, float("inf")]), pa.array([2.0, float("inf")]), [float("inf")]),
        (pa.array([1, 10**30, 3], WIDE), pa.array([2, 10**31], WIDE), [3, 10**30]),
        (pa.array(["a", "b", "zz"]), pa.array(["b", None, "\U0010ffff"]), [b"b", b"zz"]),
        (pa.array([b"a", b"a\0", b"c"]), pa.array([b"a\0", b"b"], pa.large_binary()), [b"a\0"]),
    ],
    ids=lambda value: str(getattr(value, "type", value)),
)
def test_the_keys_between_values(keys: pa.Array, values: pa.Array, between: list[object]) -> None:
    kind = kind_of(values.type)
    found = keys_between(array_keys(keys, kind, **PLACE), native(values))
    assert found.sorted.tolist() == between
    hashed = [repr(value) for value in found.values.to_pylist()]
    # Both zeros are hashed, because Arrow tells them apart; decimals have their integers in `sorted`.
    zeros = ["-0.0"] if repr(0.0) in hashed else []
    assert hashed == [repr(Decimal(value) if kind.native == WIDE else value) for value in between] + zeros  # type: ignore[arg-type]


def test_zeros_and_nan_stay_beside_few_values() -> None:
    keys = list_keys([0.0, float("nan"), 5.0], kind_of(pa.float64()), **PLACE)
    found = keys_near(keys, pa.array([-0.0]))
    assert ([str(v) for v in found.values.to_pylist()], found.nan) == (["0.0", "-0.0"], True)
