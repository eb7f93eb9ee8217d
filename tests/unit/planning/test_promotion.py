"""Changes of types that lose something: which there are, and values as DuckDB has them to the last bit."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accel.planning.conform import conform_array, widens
from accel.planning.evolution import NO_EVOLUTION, Evolution, FieldDefaults
from accel.planning.promotion import Promotion, promote_array, promotes

FLOATS = {"FLOAT": pa.float32(), "DOUBLE": pa.float64()}
PLAIN = [
    *(pa.bool_(), pa.int8(), pa.int32(), pa.int64(), pa.uint64(), pa.float32(), pa.float64()),
    *(pa.decimal128(9, 2), pa.string(), pa.date32(), pa.timestamp("us"), pa.timestamp("ms")),
    *(pa.timestamp("us", "UTC"), pa.time64("us"), pa.binary()),
]
LOSSY = {
    "bool": ["int8", "int32", "int64", "uint64", "float", "double", "string"],
    "int8": ["string"],
    "int32": ["float", "string"],
    "int64": ["float", "double", "string"],
    "uint64": ["float", "double", "string"],
    "double": ["float"],
    "decimal128(9, 2)": ["float", "double"],
    "timestamp[us]": ["timestamp[ms]"],
}


def test_which_changes_lose_something() -> None:
    found = {str(have): [str(to) for to in PLAIN if promotes(have, to)] for have in PLAIN}
    assert {have: kinds for have, kinds in found.items() if kinds} == LOSSY
    for have in PLAIN:
        for to in PLAIN:
            if promotes(have, to):
                assert not widens(have, to)
                assert widens(pa.list_(have), pa.list_(to), Promotion.SQL)
                assert not widens(pa.struct([("x", have)]), pa.struct([("x", to)]))


@st.composite
def decimals(draw: st.DrawFn) -> pa.Array:
    precision = draw(st.integers(1, 38))
    scale = draw(st.integers(0, precision))
    digits = draw(st.integers(1, precision))
    values = draw(st.lists(st.none() | st.integers(1 - 10**digits, 10**digits - 1), min_size=1, max_size=40))
    exact = [None if value is None else Decimal(value).scaleb(-scale) for value in values]
    start = draw(st.integers(0, len(values) - 1))
    return pa.array(exact, pa.decimal128(precision, scale)).slice(start)


@given(array=decimals())
@settings(max_examples=300, deadline=None)
def test_decimals_become_the_floats_of_duckdb(array: pa.Array) -> None:
    duckdb = pytest.importorskip("duckdb")
    given_rows = pa.table({"x": array})  # noqa: F841  DuckDB finds it by its name
    for name, kind in FLOATS.items():
        expected = duckdb.sql(f"SELECT x::{name} AS x FROM given_rows").to_arrow_table()["x"]
        assert promote_array(array, kind).to_pylist() == expected.to_pylist()


@pytest.mark.parametrize("scale", range(39))
def test_decimals_of_every_scale(scale: int) -> None:
    """A power of ten is the nearest float: 10.0 to the power of 23 is another one."""
    duckdb = pytest.importorskip("duckdb")
    numbers = [n for n in (1, 2, 3, 7, 9, -1, 10**17 + 3, 10**30 + 7) if abs(n) < 10 ** max(scale, 1)]
    kind = pa.decimal128(max(scale, 1), scale)
    array = pa.array([Decimal(n).scaleb(-scale) for n in numbers], kind)
    given_rows = pa.table({"x": array})  # noqa: F841  DuckDB finds it by its name
    for name, to in FLOATS.items():
        expected = duckdb.sql(f"SELECT x::{name} AS x FROM given_rows").to_arrow_table()["x"]
        assert promote_array(array, to).to_pylist() == expected.to_pylist()


@given(values=st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=40))
@settings(max_examples=100, deadline=None)
def test_integers_become_the_floats_of_duckdb(values: list[int | None]) -> None:
    duckdb = pytest.importorskip("duckdb")
    array = pa.array(values, pa.int64())
    given_rows = pa.table({"x": array})  # noqa: F841  DuckDB finds it by its name
    for name, kind in FLOATS.items():
        expected = duckdb.sql(f"SELECT x::{name} AS x FROM given_rows").to_arrow_table()["x"]
        assert promote_array(array, kind).to_pylist() == expected.to_pylist()


@pytest.mark.parametrize(
    ("values", "to", "expected"),
    [
        (pa.array([True, None, False]), pa.int16(), [1, None, 0]),
        (pa.array([True, None, False]), pa.float64(), [1.0, None, 0.0]),
        (pa.array([True, None, False]), pa.string(), ["true", None, "false"]),
        (pa.array([-7, None]), pa.string(), ["-7", None]),
        (pa.array([0.1, None]), pa.float32(), [0.10000000149011612, None]),
    ],
    ids=str,
)
def test_other_values(values: pa.Array, to: pa.DataType, expected: list[Any]) -> None:
    assert promote_array(values, to).to_pylist() == expected
    assert promote_array(values.slice(1), to).to_pylist() == expected[1:]


def test_defaults_stand_for_what_is_missing_at_any_depth() -> None:
    have = pa.struct([("a", pa.int32()), ("l", pa.list_(pa.struct([("b", pa.int32())])))])
    to = pa.struct(
        [
            ("a", pa.int64()),
            ("new", pa.int64()),
            ("l", pa.list_(pa.struct([("b", pa.int32()), ("c", pa.string())]))),
        ]
    )
    defaults = FieldDefaults(
        {("s", "new"): pa.scalar(7, pa.int32()), ("s", "l", "element", "c"): pa.scalar("x")}
    )
    array = pa.array([{"a": 1, "l": [{"b": 2}, None]}, None, {"a": None, "l": None}], have)
    found = conform_array(array, to, defaults=defaults.below("s"))
    assert found.to_pylist() == [
        {"a": 1, "new": 7, "l": [{"b": 2, "c": "x"}, None]},
        None,
        {"a": None, "new": 7, "l": None},
    ]
    found.validate(full=True)
    assert conform_array(array, to).field("new").null_count == 3


def test_an_evolution_travels_as_metadata() -> None:
    assert NO_EVOLUTION.metadata == {}
    assert Evolution.decode(None) is Evolution.decode({b"other": b"x"}) is NO_EVOLUTION
    values = {("s", "é"): pa.scalar("x"), ("l", "element", "d"): pa.scalar(1, pa.date32())}
    for one in (
        Evolution(Promotion.SQL),
        Evolution(defaults=FieldDefaults(values)),
        Evolution(coalesced=frozenset({"n", "m"})),
    ):
        schema = pa.schema([("x", pa.int8())], one.metadata)
        found = Evolution.decode(pa.ipc.read_schema(schema.serialize()).metadata)
        assert (found.promotion, found.coalesced) == (one.promotion, one.coalesced)
        assert found.defaults.values == one.defaults.values
