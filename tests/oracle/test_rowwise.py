"""The row-by-row oracle against answers worked out by hand."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from accel.errors import ColumnNotFoundError, PredicateError
from accel.predicate.column import col
from accel.predicate.expr import Column, Compare, Expr, InArray, Literal, Op, Ticks, column_named, column_of
from accel.predicate.where import to_expr
from tests.oracle import rowwise

T, F, N = True, False, None
NAN, INF = float("nan"), float("inf")
NANO = 1_359_633_600_000_000_001  # 2013-01-31 12:00:00.000000001
NOON = datetime.datetime(2013, 1, 31, 12)


def answer(where: Any, array: pa.Array | pa.ChunkedArray) -> list[bool | None]:
    expr = to_expr(where)
    assert expr is not None
    return rowwise.evaluate(expr, pa.Table.from_arrays([array], names=["x"]))


def halves(*values: float | None) -> pa.Array:
    return pa.array([None if value is None else np.float16(value) for value in values], pa.float16())


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("p", [T, T, T, F, F, F, N, N, N]),
        ("NOT p", [F, F, F, T, T, T, N, N, N]),
        ("p AND q", [T, F, N, F, F, F, N, F, N]),
        ("p OR q", [T, T, T, T, F, N, T, N, N]),
        ("NOT (p AND q)", [F, T, N, T, T, T, N, T, N]),
        ("p AND q AND TRUE", [T, F, N, F, F, F, N, F, N]),
        ("p OR q OR NULL", [T, T, T, T, N, N, T, N, N]),
        ("p = q", [T, F, N, F, T, N, N, N, N]),
        ("p <> q", [F, T, N, T, F, N, N, N, N]),
        ("p < q", [F, F, N, T, F, N, N, N, N]),
        ("p IS DISTINCT FROM q", [F, T, T, T, F, T, T, T, F]),
        ("p IS NOT DISTINCT FROM q", [T, F, F, F, T, F, F, F, T]),
        ("p IS NULL", [F, F, F, F, F, F, T, T, T]),
        ("NOT p IS NULL", [T, T, T, T, T, T, F, F, F]),
        ("p IS TRUE", [T, T, T, F, F, F, F, F, F]),
        ("p = NULL", [N] * 9),
        ("TRUE", [T] * 9),
        ("NULL", [N] * 9),
    ],
)
def test_three_valued_logic(where: str, expected: list[bool | None]) -> None:
    table = pa.Table.from_arrays(
        [pa.array([T, T, T, F, F, F, N, N, N]), pa.array([T, F, N] * 3)], names=["p", "q"]
    )
    expr = to_expr(where)
    assert expr is not None
    assert rowwise.evaluate(expr, table) == expected


BIG = pa.array([2**53, 2**53 + 1, None], pa.int64())
FLOATS = pa.array([-INF, -1.0, -0.0, 0.0, 0.1, INF, NAN, None])
SINGLES = pa.array([0.1, 0.5, NAN, None], pa.float32())
DECIMALS = pa.array([Decimal("10.00"), Decimal("10.01"), Decimal("-0.01"), None], pa.decimal128(9, 2))


@pytest.mark.parametrize(
    ("where", "array", "expected"),
    [
        ("x = 200", pa.array([1, -56, None], pa.int8()), [F, F, N]),
        ("x < 200", pa.array([1, 127, None], pa.int8()), [T, T, N]),
        ("x <> 1e30", pa.array([1, None], pa.int8()), [T, N]),
        ("x = 7.0", pa.array([7, 8], pa.int8()), [T, F]),
        ("x < 7.5", pa.array([7, 8], pa.uint8()), [T, F]),
        ("x > -1", pa.array([0, 2**64 - 1], pa.uint64()), [T, T]),
        ("x = 18446744073709551615", pa.array([0, 2**64 - 1], pa.uint64()), [F, T]),
        ("x = 9007199254740993", BIG, [F, T, N]),
        ("x = 9007199254740993e0", BIG, [F, T, N]),
        (col("x") == 2.0**53, BIG, [T, F, N]),
        ("x IN (9007199254740993, 1)", BIG, [F, T, N]),
        ("x = DOUBLE 'NaN'", BIG, [F, F, N]),
        ("x < DOUBLE 'NaN'", BIG, [T, T, N]),
        ("x < DOUBLE 'Infinity'", BIG, [T, T, N]),
        ("x = 0", FLOATS, [F, F, T, T, F, F, F, N]),
        ("x < 0", FLOATS, [T, T, F, F, F, F, F, N]),
        ("x > 0", FLOATS, [F, F, F, F, T, T, T, N]),
        ("x <= 0.1", FLOATS, [T, T, T, T, T, F, F, N]),
        ("NOT x <= 0.1", FLOATS, [F, F, F, F, F, T, T, N]),
        ("x = 0.1", FLOATS, [F, F, F, F, T, F, F, N]),
        ("x = 0.1000000000000000055511151231257827", FLOATS, [F, F, F, F, T, F, F, N]),
        ("x = DOUBLE 'NaN'", FLOATS, [F, F, F, F, F, F, T, N]),
        ("x >= DOUBLE 'NaN'", FLOATS, [F, F, F, F, F, F, T, N]),
        ("x IN (DOUBLE 'NaN', 0)", FLOATS, [F, F, T, T, F, F, T, N]),
        ("x > 1e308", FLOATS, [F, F, F, F, F, T, T, N]),
        ("x >= 1e400", FLOATS, [F, F, F, F, F, T, T, N]),
        ("x = 9007199254740993", pa.array([2.0**53]), [T]),
        ("x = 0.1", SINGLES, [F, F, F, N]),
        ("x > 0.1", SINGLES, [T, T, T, N]),
        (col("x") == float(np.float32(0.1)), SINGLES, [T, F, F, N]),
        ("x = 0.5", SINGLES, [F, T, F, N]),
        ("x = 0.5", halves(0.5, 0.1, NAN, None), [T, F, F, N]),
        ("x = 0.0999755859375", halves(0.5, 0.1, NAN, None), [F, T, F, N]),
        ("x > 65504", halves(65504, INF, NAN, None), [F, T, T, N]),
        ("x = 10.005", DECIMALS, [F, F, F, N]),
        ("x < 10.005", DECIMALS, [T, F, T, N]),
        ("x = 10", DECIMALS, [T, F, F, N]),
        (col("x") == 10.01, DECIMALS, [F, F, F, N]),
        (col("x") == Decimal("10.0100"), DECIMALS, [F, T, F, N]),
        ("x > -0.01", DECIMALS, [T, T, F, N]),
        ("x = 1e75", pa.array([Decimal(10) ** 75], pa.decimal256(76, 0)), [T]),
        ("x = 10", pa.array([Decimal(10), Decimal(20)], pa.decimal128(3, -1)), [T, F]),
        ("x IN (1, NULL)", pa.array([1, 2, None]), [T, N, N]),
        ("x NOT IN (1, NULL)", pa.array([1, 2, None]), [F, N, N]),
        ("x IN (1, 2)", pa.array([1, 3, None]), [T, F, N]),
        ("x IN (NULL)", pa.array([1, None]), [N, N]),
        ("x IN ()", pa.array([1, None]), [F, F]),
        ("x NOT IN ()", pa.array([1, None]), [T, T]),
        ("x BETWEEN 1 AND 2", pa.array([0, 1, 2, 3, None]), [F, T, T, F, N]),
        ("x IS DISTINCT FROM 1", pa.nulls(1), [T]),
        ("x IS NOT DISTINCT FROM NULL", pa.nulls(1), [T]),
        ("x = 'a' OR x IN (1)", pa.nulls(1), [N]),
        ("x = 1 OR x IN (x, 5)", pa.array([1, 2, None]), [T, T, N]),
    ],
    ids=lambda value: str(value) if not isinstance(value, list | pa.Array) else "",
)
def test_numbers(where: Any, array: pa.Array, expected: list[bool | None]) -> None:
    assert answer(where, array) == expected


@pytest.mark.parametrize(
    ("left", "right", "equal", "less"),
    [
        (BIG, pa.array([2.0**53, 2.0**53, 1.0]), [T, F, N], [F, F, N]),
        (DECIMALS, pa.array([10, 11, 0, 0]), [T, F, F, N], [F, T, T, N]),
        (DECIMALS, pa.array([10.0, 10.01, -0.01, 0]), [T, F, F, N], [F, F, F, N]),
        (SINGLES, pa.array([0.1, 0.5, NAN, 1]), [F, T, T, N], [F, F, F, N]),
        (pa.array([1, 255], pa.uint8()), pa.array([1, -1], pa.int8()), [T, F], [F, F]),
        (pa.array([INF, NAN]), pa.array([1, 2**62]), [F, F], [F, F]),
        (pa.array(["a", "b"]), pa.array(["a", "a"], pa.large_string()), [T, F], [F, F]),
        (pa.array([b"a"]), pa.array(["a"]), [T], [F]),
        (pa.array([15736], pa.date32()), pa.array([NOON], pa.timestamp("ms")), [F], [T]),
        (pa.array([NANO], pa.timestamp("ns")), pa.array([NOON], pa.timestamp("us")), [F], [F]),
        (pa.array([1], pa.time32("s")), pa.array([10**9], pa.time64("ns")), [T], [F]),
        (pa.array([1], pa.duration("s")), pa.array([1001], pa.duration("ms")), [F], [T]),
        (pa.nulls(2), pa.array([1, 2]), [N, N], [N, N]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_columns_with_each_other(left: pa.Array, right: pa.Array, equal: list[Any], less: list[Any]) -> None:
    table = pa.Table.from_arrays([left, right], names=["a", "b"])
    both = column_of(["a"]), column_of(["b"])
    assert rowwise.evaluate(Compare(Op.EQ, *both), table) == equal
    assert rowwise.evaluate(Compare(Op.LT, *both), table) == less
    assert rowwise.evaluate(Compare(Op.GT, both[1], both[0]), table) == less


WORDS = ["", "A", "a", "aé", "\uffff", "\U00010000", None]


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())],
    ids=str,
)
@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("x = 'a'", [F, F, T, F, F, F, N]),
        ("x < 'a'", [T, T, F, F, F, F, N]),
        ("x > '\uffff'", [F, F, F, F, F, T, N]),
        ("x >= ''", [T, T, T, T, T, T, N]),
        ("x IN ('a', 'A', 'b')", [F, T, T, F, F, F, N]),
        ("x = X'61c3a9'", [F, F, F, T, F, F, N]),
        ("x LIKE '_'", [F, T, T, F, T, T, N]),
        ("x LIKE 'a%'", [F, F, T, T, F, F, N]),
        ("x LIKE '%'", [T, T, T, T, T, T, N]),
        ("x LIKE ''", [T, F, F, F, F, F, N]),
        ("x NOT LIKE '__'", [T, T, T, F, T, T, N]),
        ("x ILIKE 'a'", [F, T, T, F, F, F, N]),
        ("x ILIKE 'AÉ'", [F, F, F, T, F, F, N]),
        ("x IS NULL", [F, F, F, F, F, F, T]),
    ],
)
def test_text(kind: pa.DataType, where: str, expected: list[bool | None]) -> None:
    array = (
        pa.array(WORDS).dictionary_encode().cast(kind)
        if pa.types.is_dictionary(kind)
        else pa.array(WORDS, kind)
    )
    assert answer(where, array) == expected


@pytest.mark.parametrize(
    ("text", "pattern", "expected"),
    [
        ("100%", "100\\%", True),
        ("1000", "100\\%", False),
        ("a_b", "a\\_b", True),
        ("axb", "a\\_b", False),
        ("a\\b", "a\\\\b", True),
        ("ab", "\\a\\b", True),
        ("a\nb", "a_b", True),
        ("a\nb", "%", True),
        ("a.b", "a.b", True),
        ("axb", "a.b", False),
        ("aXbXc", "a%X%c", True),
        ("ab", "a%b%b", False),
        ("mississippi", "m%iss%ip%i", True),
        ("😀", "_", True),
        ("e\u0301", "_", False),
    ],
)
def test_like(text: str, pattern: str, expected: bool) -> None:
    assert answer(col("x").like(pattern), pa.array([text, None])) == [expected, None]


@pytest.mark.parametrize(
    ("array", "where", "expected"),
    [
        (pa.array([b"", b"\x7f", b"\x80", None]), "x > X'7f'", [F, F, T, N]),
        (pa.array([b"ab", b"zz"], pa.binary(2)), "x = X'6162'", [T, F]),
        (pa.array([b"ab"], pa.binary_view()), "x = 'ab'", [T]),
        (pa.array([b"ab"], pa.large_binary()), "x < 'b'", [T]),
        (pa.array([b"\0" * 15 + b"\x01"], pa.uuid()), "x = '00000000-0000-0000-0000-000000000001'", [T]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_binary(array: pa.Array, where: str, expected: list[bool | None]) -> None:
    assert answer(where, array) == expected


DAYS = pa.array([-719163, 15736, None], pa.date32())  # 0000-12-31 is before what datetime can hold
NANOS = pa.array([NANO - 1, NANO, -1, None], pa.timestamp("ns"))
ZONED = pa.array([NOON, None], pa.timestamp("us", "Europe/Paris"))


@pytest.mark.parametrize(
    ("array", "where", "expected"),
    [
        (DAYS, "x = DATE '2013-01-31'", [F, T, N]),
        (DAYS, "x = '2013-01-31'", [F, T, N]),
        (DAYS, "x < '0001-01-01'", [T, F, N]),
        (DAYS, "x < TIMESTAMP '2013-01-31 00:00:01'", [T, T, N]),
        (DAYS.cast(pa.date64()), "x >= DATE '2013-01-31'", [F, T, N]),
        (NANOS, "x = TIMESTAMP '2013-01-31 12:00:00.000000001'", [F, T, F, N]),
        (NANOS, "x > '2013-01-31 12:00'", [F, T, F, N]),
        (NANOS, "x < '1970-01-01'", [F, F, T, N]),
        (NANOS, "x > DATE '2013-01-31'", [T, T, F, N]),
        (col("x").isin([Ticks("timestamp", NANO)]), NANOS, [F, T, F, N]),
        (ZONED, "x = '2013-01-31 12:00:00'", [T, N]),
        (ZONED, "x = '2013-01-31 13:00:00+01:00'", [T, N]),
        (ZONED, "x = TIMESTAMP '2013-01-31T12:00:00Z'", [T, N]),
        (ZONED, "x > '2013-01-31 12:00:00.000000001'", [F, N]),
        (pa.array([1, None], pa.time64("ns")), "x < TIME '00:00:00.000001'", [T, N]),
        (pa.array([61, 0], pa.time32("s")), "x = '00:01:01'", [T, F]),
        (pa.array([61, 0], pa.duration("s")), "x > 60", [T, F]),
        (pa.array([61], pa.time32("ms")), "x > TIME '00:00:00.060999999'", [T]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_moments(array: Any, where: Any, expected: list[bool | None]) -> None:
    if isinstance(where, pa.Array):
        array, where = where, array
    assert answer(where, array) == expected


@pytest.mark.parametrize(
    ("keys", "array", "expected"),
    [
        (pa.array([1, 3]), pa.array([1, 2, None], pa.int8()), [T, F, N]),
        (pa.array([1, None]), pa.array([1, 2, None], pa.int8()), [T, N, N]),
        (pa.array([0.1], pa.float32()), SINGLES, [T, F, F, N]),
        (pa.array([NAN, -0.0]), FLOATS, [F, F, T, T, F, F, T, N]),
        (pa.array(["a"], pa.string_view()), pa.array(["a", "b"]).dictionary_encode(), [T, F]),
        (pa.array([NANO], pa.timestamp("ns")), NANOS, [F, T, F, N]),
        (pa.array([15736], pa.date32()), DAYS, [F, T, N]),
        (pa.array([1000], pa.duration("ms")), pa.array([1, 1000], pa.duration("s")), [T, F]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_arrays_of_keys(keys: pa.Array, array: pa.Array, expected: list[bool | None]) -> None:
    assert answer(InArray(column_of(["x"]), keys), array) == expected


INNER = pa.struct([("b", pa.int64()), ("c d", pa.string())])


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (col("s.b") == 1, [T, N, N, F]),
        (col("s")["c d"] == "y", [T, F, N, N]),
        (col("s").is_null(), [F, F, T, F]),
        (col("s.b").is_null(), [F, T, T, F]),
        (col("s.x") == 7, [T, T, T, T]),
        (Compare(Op.EQ, column_named("s.b"), Literal(1)), [T, N, N, F]),
        (Compare(Op.EQ, Column(("s.x",)), Literal(7)), [T, T, T, T]),
        (col("l").is_not_null(), [T, T, F, T]),
        (col("l").is_null(), [F, F, T, F]),
    ],
    ids=lambda value: repr(value) if not isinstance(value, list) else "",
)
def test_nested(expr: Any, expected: list[bool | None]) -> None:
    struct = pa.array([{"b": 1, "c d": "y"}, {"b": None, "c d": "z"}, None, {"b": 2}], INNER)
    lists = pa.array([[1], [], None, [None]])
    table = pa.Table.from_arrays([struct, lists, pa.array([7] * 4)], names=["s", "l", "s.x"])
    tree = to_expr(expr)
    assert tree is not None
    assert rowwise.evaluate(tree, table) == expected
    sliced = pa.concat_tables([table.slice(0, 1), table.slice(1)])
    assert rowwise.evaluate(tree, sliced) == expected


def test_run_ends_and_chunks() -> None:
    runs = pa.RunEndEncodedArray.from_arrays([2, 3], [1, None])
    assert answer("x = 1", runs) == [T, T, N]
    assert answer("x > 1", pa.chunked_array([[1], [2, None], []], pa.int64())) == [F, T, N]
    assert answer("x > 1", pa.array([], pa.int64())) == []


@pytest.mark.parametrize(
    ("where", "kind"),
    [
        ("x = 'a'", pa.int64()),
        ("x = '1'", pa.float64()),
        ("x = TRUE", pa.int64()),
        ("x = 1", pa.bool_()),
        ("x = 1", pa.string()),
        ("x = DATE '2013-01-31'", pa.string()),
        ("x = DATE '2013-01-31'", pa.int32()),
        ("x = 1", pa.date32()),
        ("x = TIME '01:00'", pa.timestamp("us")),
        ("x = TIMESTAMP '2013-01-31'", pa.time64("us")),
        ("x = 'not a date'", pa.date32()),
        ("x = '25:00'", pa.time32("s")),
        ("x = ''", pa.time32("s")),
        ("x = '12:00Z'", pa.time32("s")),
        ("x = '2013-02-30'", pa.timestamp("s")),
        ("x = X'00'", pa.int64()),
        ("x = 1.0", pa.duration("s")),
        ("x = TIME '00:00:01'", pa.duration("s")),
        ("x = 1", pa.list_(pa.int64())),
        ("x = x", pa.list_(pa.int64())),
        ("x IN ()", pa.list_(pa.int64())),
        ("x IN (1, 'a')", pa.int64()),
        ("x LIKE 'a'", pa.int64()),
        ("x LIKE 'a'", pa.binary()),
        ("x", pa.int64()),
        ("x", pa.string()),
    ],
    ids=lambda value: str(value),
)
def test_what_does_not_compare_is_refused_even_without_rows(where: str, kind: pa.DataType) -> None:
    for rows in (0, 1):
        with pytest.raises(PredicateError):
            answer(where, pa.nulls(rows, kind))


def test_a_uuid_column_compares_with_no_text_column() -> None:
    uuids = pa.array([bytes(16)], pa.uuid())
    assert answer(col("x") == bytes(16), uuids) == [T]
    table = pa.Table.from_arrays([uuids, pa.array(["x"])], names=["a", "b"])
    with pytest.raises(PredicateError):
        rowwise.evaluate(Compare(Op.EQ, column_of(["a"]), column_of(["b"])), table)


def test_missing_columns() -> None:
    for expr in (col("y") == 1, col("x.y") == 1, Compare(Op.EQ, Column(("x.y",)), Literal(1))):
        tree: Expr | None = to_expr(expr)
        assert tree is not None
        with pytest.raises(ColumnNotFoundError):
            rowwise.evaluate(tree, pa.Table.from_arrays([pa.array([1])], names=["x"]))
