"""Many equalities of one column bind to the list that they come to; few, and others, stay as they are."""

from __future__ import annotations

import pyarrow as pa
import pytest

from accel.predicate.atoms import Against, AllOf, Among, AnyOf, Negation, Node, Null, Order
from accel.predicate.bind import bind
from accel.predicate.membership import MANY
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
