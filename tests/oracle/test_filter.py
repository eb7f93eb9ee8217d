"""The exact filter against the row-by-row oracle: every type with every literal, list, pattern and other
type."""

from __future__ import annotations

import datetime
import math
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from accel.errors import PredicateError
from accel.predicate.bind import bind
from accel.predicate.evaluate import outcome
from accel.predicate.expr import (
    And,
    Compare,
    Expr,
    InArray,
    InList,
    IsNull,
    Like,
    Literal,
    Not,
    Op,
    Or,
    Ticks,
    Value,
    column_of,
)
from accel.predicate.membership import MANY
from tests.oracle import rowwise

X, Y = column_of(["x"]), column_of(["y"])

INTEGERS = [
    0,
    1,
    -1,
    7,
    127,
    -128,
    128,
    255,
    2**31,
    2**53,
    2**53 + 1,
    2**63 - 1,
    -(2**63),
    2**64 - 1,
    2**64,
    10**77,
]
DOUBLES = [
    *(0.0, -0.0, 0.1, 0.5, -1.5, 5e-324, 1e300, 1.7976931348623157e308, math.inf, -math.inf, math.nan),
    *(float(np.float32(0.1)), 2.0**53, 65504.0, 65520.0, 7.0),
]
DECIMALS = [
    *("0.1", "10.005", "10.01", "-0.01", "7.000", "1e400", "-1e400", "1e-400", "9007199254740993e0", "1e38"),
    "0.1000000000000000055511151231257827",
]
TEXTS = [
    *(
        "",
        "a",
        "A",
        "é",
        "É",
        "ab",
        "a%",
        "a\\",
        "\uffff",
        "\U00010000",
        "ſ",
        "K",
        "k",
        "İ",
        "i",
        "ß",
        "ẞ",
        "\n",
    ),
    *("2013-01-31", "2013-01-31 12:00:00.000000001", "12:00:00", "12:00:00.5Z"),
]
BINARY = [b"", b"a", b"\xff", b"\x00", "é".encode(), bytes(16)]
NOON = datetime.datetime(2013, 1, 31, 12)
MOMENTS: list[Value] = [
    *(datetime.date(2013, 1, 31), datetime.date(1, 1, 1), datetime.date(9999, 12, 31)),
    *(NOON, NOON.replace(tzinfo=datetime.UTC), datetime.datetime(1970, 1, 1)),
    *(Ticks("timestamp", 1_359_633_600_000_000_001), Ticks("timestamp", -1, True)),
    *(datetime.time(12), datetime.time(0), Ticks("time", 1)),
]
LITERALS: list[Value] = [
    *INTEGERS,
    *DOUBLES,
    *map(Decimal, DECIMALS),
    *TEXTS,
    *BINARY,
    *MOMENTS,
    *(True, False, None),
]
PATTERNS = ["%", "_", "a%", "%a", "A%", "é", "_%_", "a\\%%", "%\n", "k", "s", "i%", "ß", "%a%%b"]


def _arrays() -> dict[str, pa.Array]:
    """One array of each type that columns come in, with its extremes and a null."""
    made: dict[str, pa.Array] = {}
    for kind in (
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.uint8(),
        pa.uint16(),
        pa.uint32(),
        pa.uint64(),
    ):
        bits = kind.bit_width - (0 if pa.types.is_unsigned_integer(kind) else 1)
        low = 0 if pa.types.is_unsigned_integer(kind) else -(2**bits)
        made[str(kind)] = pa.array([*(n for n in INTEGERS if low <= n < 2**bits), None], kind)
    made["double"] = pa.array([*DOUBLES, 10.005, None])
    made["float"] = pa.array([*(d for d in DOUBLES if not 3e38 < abs(d) < math.inf), None], pa.float32())
    halves = [np.float16(d) for d in DOUBLES if math.isinf(d) or math.isnan(d) or abs(d) <= 65504]
    made["halffloat"] = pa.array([*halves, None], pa.float16())
    for kind, texts in (
        (pa.decimal128(9, 2), ["10.00", "10.01", "-0.01", "7", "0.10"]),
        (pa.decimal128(38, 0), ["1e37", "7", "18446744073709551616"]),
        (pa.decimal256(76, 0), ["1e75", "7"]),
        (pa.decimal128(5, -2), ["100", "700"]),
    ):
        made[str(kind)] = pa.array([*map(Decimal, texts), None], kind)
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        made[str(kind)] = pa.array([*TEXTS, None], kind)
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view()):
        made[str(kind)] = pa.array([*BINARY, None], kind)
    made["fixed"] = pa.array([b"a", b"\xff", None], pa.binary(1))
    made["uuid"] = pa.ExtensionArray.from_storage(
        pa.uuid(), pa.array([bytes(16), b"\xff" * 16, None], pa.binary(16))
    )
    made["dictionary of text"] = made["string"].dictionary_encode()
    made["dictionary of ints"] = pa.array([1, 7, 7, 255, None]).dictionary_encode()
    made["bool"] = pa.array([True, False, None])
    days = pa.array([0, 15736, -719163, 2932897, None], pa.int32()).cast(pa.date32())
    made["date32"], made["date64"] = days, days.slice(0, 2).cast(pa.date64())
    for unit, second in (("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)):
        ticks = [0, 1_359_633_600 * second, 1_359_633_600 * second + 1, -1, None]
        made[f"timestamp {unit}"] = pa.array(ticks, pa.timestamp(unit))
        made[f"timestamp {unit} zoned"] = pa.array(ticks, pa.timestamp(unit, "Europe/Paris"))
        made[f"duration {unit}"] = pa.array([0, second, 7 * second, -1, None], pa.duration(unit))
        kind = pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)
        made[f"time {unit}"] = pa.array([0, 1, 43_200 * second, None], kind)
    made["null"] = pa.nulls(2)
    made["list"] = pa.array([[1], None, []])
    return made


ARRAYS = _arrays()


def answers(judge: Any, expr: Expr, table: pa.Table) -> list[bool | None] | str:
    try:
        found: list[bool | None] = judge(expr, table)
    except PredicateError:
        return "refused"
    return found


def by_filter(expr: Expr, table: pa.Table) -> list[bool | None]:
    bound = bind(expr, table.schema)
    columns = {column.path: table.column(column.path[0]).chunk(0) for column in bound.columns}
    found: list[bool | None] = outcome(bound, columns, table.num_rows).to_pylist()
    return found


def compare_answers(expr: Expr, table: pa.Table) -> bool:
    """Assert that both say the same; whether the predicate was not refused."""
    expected = answers(rowwise.evaluate, expr, table)
    assert answers(by_filter, expr, table) == expected, expr
    return expected != "refused"


@pytest.mark.parametrize("name", ARRAYS)
def test_literals(name: str) -> None:
    table = pa.Table.from_arrays([ARRAYS[name]], names=["x"])
    understood = 0
    for literal in map(Literal, LITERALS):
        for op in Op:
            understood += compare_answers(Compare(op, X, literal), table)
        compare_answers(Compare(Op.LT, literal, X), table)
    # NULL compares with all but nested columns.
    assert understood == 0 if name == "list" else understood >= len(Op)


@pytest.mark.parametrize("name", ARRAYS)
def test_lists_patterns_and_the_column_alone(name: str, large: bool) -> None:
    seed = random.randrange(2**32) if large else 1
    print("seed", seed)
    rng = random.Random(seed)
    table = pa.Table.from_arrays([ARRAYS[name]], names=["x"])
    pool = [v for v in LITERALS if answers(rowwise.evaluate, InList(X, (v,)), table) != "refused"]
    for _ in range(300 if large else 20):
        compare_answers(InList(X, tuple(rng.choices(pool or [None], k=rng.randint(0, 6)))), table)
        compare_answers(InList(X, tuple(rng.sample(LITERALS, 2))), table)
    for pattern in PATTERNS:
        compare_answers(Like(X, pattern), table)
        compare_answers(Like(X, pattern, ignore_case=True), table)
    assert compare_answers(IsNull(X), table)
    assert compare_answers(X, table) is compare_answers(Not(X), table) is (name in ("bool", "null"))


@pytest.mark.parametrize("name", ARRAYS)
def test_many_equalities(name: str, large: bool) -> None:
    """Whether they are taken together or not: of one column, between other conditions, denied, in AND and in
    OR."""
    seed = random.randrange(2**32) if large else 1
    print("seed", seed)
    rng = random.Random(seed)
    table = pa.Table.from_arrays(
        [ARRAYS[name], pick(ARRAYS[name], [0] * len(ARRAYS[name]))], names=["x", "y"]
    )
    pool = [v for v in LITERALS if answers(rowwise.evaluate, InList(X, (v,)), table) != "refused"] or [None]
    for _ in range(200 if large else 15):
        ops = rng.choice([[Op.EQ], [Op.NE], [Op.EQ, Op.NE], list(Op)])
        most = rng.choice([3, len(pool)])
        parts: list[Expr] = [
            Compare(rng.choice(ops), rng.choice([X, X, X, Y]), Literal(rng.choice(pool[:most])))
            for _ in range(rng.randint(2, 4 * MANY))
        ]
        if rng.random() < 0.5:
            parts.insert(rng.randrange(len(parts)), rng.choice([IsNull(X), Not(IsNull(Y)), Not(parts[0])]))
        for kind in (And, Or):
            assert compare_answers(kind(tuple(parts)), table) or name == "list"
            compare_answers(Not(kind(tuple(Not(part) for part in parts))), table)


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_of_keys(name: str) -> None:
    table = pa.Table.from_arrays([ARRAYS[name]], names=["x"])
    for other, keys in ARRAYS.items():
        if other != "list":
            understood = compare_answers(InArray(X, keys), table)
            understood &= compare_answers(InArray(X, keys.slice(1, len(keys) - 2)), table)
            if other == name:
                assert understood


@pytest.mark.parametrize("name", ARRAYS)
def test_columns(name: str) -> None:
    left = ARRAYS[name]
    for other, right in ARRAYS.items():
        pairs = [(i, j) for i in range(len(left)) for j in range(len(right))]
        random.Random(0).shuffle(pairs)
        sides = [pick(left, [i for i, _ in pairs[:50]]), pick(right, [j for _, j in pairs[:50]])]
        table = pa.Table.from_arrays(sides, names=["x", "y"])
        for op in Op:
            understood = compare_answers(Compare(op, X, Y), table)
            assert understood or other != name or name == "list"


def pick(array: pa.Array, places: list[int]) -> pa.Array:
    """`take`, also for the types that pyarrow does not take from."""
    if isinstance(array, pa.ExtensionArray):
        return pa.ExtensionArray.from_storage(array.type, pick(array.storage, places))
    if pa.types.is_string_view(array.type) or pa.types.is_binary_view(array.type):
        return pa.array([array[place].as_py() for place in places], array.type)
    return array.take(pa.array(places))
