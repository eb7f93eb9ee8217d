"""Literals meet columns by exact value: one table a rule."""

from __future__ import annotations

import datetime
import decimal
import math
from typing import Any

import pyarrow as pa
import pytest

from accel.errors import PredicateError
from accel.predicate.bind import bind
from accel.predicate.evaluate import outcome
from accel.predicate.expr import Column, Compare, InArray, InList, Literal, Op, Ticks

D = decimal.Decimal
NAN, INF = math.nan, math.inf
UTC = datetime.UTC
HOUR = datetime.timedelta(hours=1)


def three_way(array: pa.Array, literal: Any) -> list[str | None]:
    """Each row's place from the literal: "<", "=" or ">", by all six operators, which must agree."""
    schema = pa.schema([("c", array.type)])
    answers = {
        op: outcome(
            bind(Compare(op, Column(("c",)), Literal(literal)), schema), {("c",): array}, len(array)
        ).to_pylist()
        for op in Op
    }
    out: list[str | None] = []
    for row in range(len(array)):
        got = {op: answers[op][row] for op in Op}
        found = [name for name, op in (("<", Op.LT), ("=", Op.EQ), (">", Op.GT)) if got[op]]
        if got[Op.EQ] is None:
            assert set(got.values()) == {None, True, False}
            assert (got[Op.DISTINCT], got[Op.NOT_DISTINCT]) == (True, False)
            out.append(None)
            continue
        assert len(found) == 1, got
        assert got[Op.NE] is got[Op.DISTINCT] is (found != ["="])
        assert got[Op.NOT_DISTINCT] is got[Op.EQ]
        assert got[Op.LE] is (not got[Op.GT])
        assert got[Op.GE] is (not got[Op.LT])
        out.append(found[0])
    return out


def ticks(kind: pa.DataType, *values: int | None) -> pa.Array:
    return pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)


def extension(kind: Any, *values: Any) -> pa.Array:
    return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))


INT8 = pa.array([-128, 7, 127, None], pa.int8())
UINT64 = pa.array([0, 2**63, 2**64 - 1, None], pa.uint64())
DOUBLE = pa.array([-INF, -0.0, 0.1, 5.0, INF, NAN, None], pa.float64())
FLOAT = pa.array([0.0, 0.1, 0.5, NAN, None], pa.float32())
HALF = pa.array([0.5, 2.0, None], pa.float16())
CENTS = pa.array([D("10.00"), D("10.01"), None], pa.decimal128(6, 2))
HUNDREDS = pa.array([D("1E+2"), D("3E+2"), None], pa.decimal128(6, -2))
WIDE = pa.array([D(10) ** 50, -(D(10) ** 50), None], pa.decimal256(60, 0))
SECONDS = ticks(pa.timestamp("s"), -1, 0, 1, None)
NANOS = ticks(pa.timestamp("ns", "Europe/Berlin"), -1, 0, 1, None)
DAYS = ticks(pa.date32(), -1, 0, 1, None)
MILLIDAYS = ticks(pa.date64(), 0, 86_400_000, None)
CLOCK = ticks(pa.time32("s"), 0, 1, 86_399, None)
CLOCK_NS = ticks(pa.time64("ns"), 0, 1, 10**9, None)
TEXT = pa.array(["", "a", "é", "\uffff", "\U0001f600", None])
BINARY = pa.array([b"", b"a", b"a\x00", b"\xff", None])
UUIDS = extension(pa.uuid(), bytes(16), b"\x00" * 15 + b"\x01", b"\xff" * 16, None)


@pytest.mark.parametrize(
    ("array", "literal", "expected"),
    [
        (INT8, 7, "< = > N"),
        (INT8, 7.0, "< = > N"),
        (INT8, D("7.00"), "< = > N"),
        (INT8, 7.5, "< < > N"),
        (INT8, -7.5, "< > > N"),
        (INT8, 200, "< < < N"),
        (INT8, -129, "> > > N"),
        (INT8, D("1e1000000"), "< < < N"),
        (INT8, D("-1e1000000"), "> > > N"),
        (INT8, D("1e-1000000"), "< > > N"),
        (INT8, D("-1e-1000000"), "< > > N"),
        (INT8, 10**400, "< < < N"),
        (INT8, INF, "< < < N"),
        (INT8, -INF, "> > > N"),
        (INT8, NAN, "< < < N"),
        (INT8, D("NaN"), "< < < N"),
        (INT8, D("-Infinity"), "> > > N"),
        (UINT64, -1, "> > > N"),
        (UINT64, float(2**63), "< = > N"),
        (UINT64, 2**64 - 1, "< < = N"),
        (UINT64, float(2**64), "< < < N"),
        (DOUBLE, 0, "< = > > > > N"),
        (DOUBLE, -0.0, "< = > > > > N"),
        (DOUBLE, D("0.1"), "< < = > > > N"),
        (DOUBLE, D("0.1000000000000000055511151231257827"), "< < = > > > N"),
        (DOUBLE, 5, "< < < = > > N"),
        (DOUBLE, NAN, "< < < < < = N"),
        (DOUBLE, INF, "< < < < = > N"),
        (DOUBLE, 10**400, "< < < < = > N"),
        (DOUBLE, D("-1e400"), "= > > > > > N"),
        (FLOAT, 0.1, "< > > > N"),
        (FLOAT, 0.10000000149011612, "< = > > N"),
        (FLOAT, D("0.5"), "< < = > N"),
        (HALF, 2, "< = N"),
        (HALF, NAN, "< < N"),
        (CENTS, D("10.005"), "< > N"),
        (CENTS, 10, "= > N"),
        (CENTS, 10.0, "= > N"),
        (CENTS, 10.01, "< > N"),  # the double is a little below
        (CENTS, D("10.010"), "< = N"),
        (CENTS, D("99999999.99"), "< < N"),
        (HUNDREDS, 100, "= > N"),
        (HUNDREDS, 150, "< > N"),
        (HUNDREDS, D("2.5"), "> > N"),
        (WIDE, 10**50, "= < N"),
        (WIDE, -(10**50) - 1, "> > N"),
        (WIDE, 10**77, "< < N"),
        (SECONDS, "1970-01-01 00:00:00", "< = > N"),
        (SECONDS, "1970-01-01 00:00:00.5", "< < > N"),
        (SECONDS, "1969-12-31T23:59:59.5", "< > > N"),
        (SECONDS, "1970-01-01T01:00:00+01:00", "< = > N"),
        (SECONDS, datetime.date(1970, 1, 1), "< = > N"),
        (SECONDS, datetime.datetime(1970, 1, 1, 0, 0, 1), "< < = N"),
        (SECONDS, datetime.date(9999, 12, 31), "< < < N"),
        (SECONDS, Ticks("timestamp", 1), "< < > N"),
        (NANOS, "1970-01-01", "< = > N"),
        (NANOS, "1970-01-01 00:00:00.000000001", "< < = N"),
        (NANOS, datetime.datetime(1970, 1, 1, 1, tzinfo=datetime.timezone(HOUR)), "< = > N"),
        (NANOS, datetime.date(1, 1, 1), "> > > N"),
        (NANOS, datetime.date(9999, 1, 1), "< < < N"),
        (DAYS, datetime.date(1970, 1, 1), "< = > N"),
        (DAYS, "1970-01-02", "< < = N"),
        (DAYS, "1970-01-01 12:00", "< < > N"),
        (DAYS, datetime.datetime(1970, 1, 1), "< = > N"),
        (DAYS, Ticks("timestamp", -1), "< > > N"),
        (MILLIDAYS, datetime.date(1970, 1, 2), "< = N"),
        (CLOCK, datetime.time(0, 0, 1), "< = > N"),
        (CLOCK, "00:00:00.5", "< > > N"),
        (CLOCK, "23:59:59.999999999", "< < < N"),
        (CLOCK_NS, Ticks("time", 1), "< = > N"),
        (CLOCK_NS, "00:00:01", "< < = N"),
        (TEXT, "a", "< = > > > N"),
        (TEXT, "\uffff", "< < < = > N"),  # UTF-16 order would put the emoji below
        (TEXT, "", "= > > > > N"),
        (TEXT, b"\xff", "< < < < < N"),
        (BINARY, b"a\x00", "< < = > N"),
        (BINARY, b"a", "< = > > N"),
        (BINARY, "é", "< < < > N"),
        (UUIDS, "00000000-0000-0000-0000-000000000001", "< = > N"),
        (UUIDS, "ffffffffffffffffffffffffffffffff".upper(), "< < = N"),
        (UUIDS, bytes(16), "= > > N"),
        (pa.array([False, True, None]), True, "< = N"),
        (pa.array([False, True, None]), False, "= > N"),
        (extension(pa.bool8(), 0, 1, 2, None), True, "< = = N"),
        (extension(pa.json_(), '{"a":1}', None), '{"a":1}', "= N"),
        (ticks(pa.duration("ms"), 4, 5, None), 5, "< = N"),
        (pa.nulls(2), 5, "N N"),
    ],
    ids=lambda value: str(getattr(value, "type", value))[:40],
)
def test_the_place_of_values_from_a_literal(array: pa.Array, literal: Any, expected: str) -> None:
    assert [place or "N" for place in three_way(array, literal)] == expected.split()
    # A list of one literal is an equation.
    schema = pa.schema([("c", array.type)])
    listed = outcome(bind(InList(Column(("c",)), (literal, literal)), schema), {("c",): array}, len(array))
    assert listed.to_pylist() == [{"N": None}.get(place, place == "=") for place in expected.split()]


BIG = pa.array([2**53, 2**53 + 1, -(2**63), 2**63 - 1], pa.int64())


@pytest.mark.parametrize(
    ("column", "keys", "expected"),
    [
        (INT8, pa.array([7.0, 7.5, 300.0, NAN, INF], pa.float64()), [False, True, False, None]),
        (INT8, pa.array([7, 2**64 - 1], pa.uint64()), [False, True, False, None]),
        (INT8, pa.array([7, None], pa.int64()), [None, True, None, None]),
        (INT8, pa.array([D("7.00"), D("127.01")]), [False, True, False, None]),
        (INT8, pa.array([D("7"), D("-128")], pa.decimal32(5, 1)), [True, True, False, None]),
        (INT8, pa.nulls(2), [None, None, None, None]),
        (INT8, pa.array([], pa.int64()), [False] * 4),
        (INT8, pa.array(["x"])[:0], [False] * 4),
        (UINT64, pa.array([-1, 0, 2**63 - 1], pa.int64()), [True, False, False, None]),
        (UINT64, pa.array([2.0**63, 2.0**64], pa.float64()), [False, True, False, None]),
        (BIG, pa.array([2.0**53, 2.0**63, -(2.0**63)]), [True, False, True, False]),
        (DOUBLE, pa.array([0, 5], pa.int8()), [False, True, False, True, False, False, None]),
        (DOUBLE, pa.array([NAN, 0.0]), [False, True, False, False, False, True, None]),
        (DOUBLE, pa.array([D("0.1"), D("5.00")]), [False, False, True, True, False, False, None]),
        (FLOAT, pa.array([0.1, 0.5], pa.float32()), [False, True, True, False, None]),
        (FLOAT, pa.array([0.1, 0.5], pa.float64()), [False, False, True, False, None]),
        (HALF, pa.array([2, None], pa.int64()), [None, True, None]),
        (CENTS, pa.array([1001, 10], pa.int64()), [True, False, None]),
        (CENTS, pa.array([D("10.010"), D("10.005")], pa.decimal128(9, 3)), [False, True, None]),
        (CENTS, pa.array([10.0, 10.01]), [True, False, None]),
        (WIDE, pa.array([D(10) ** 50, None], pa.decimal256(60, 0)), [True, None, None]),
        (HUNDREDS, pa.array([300, 350], pa.int16()), [False, True, None]),
        (SECONDS, ticks(pa.timestamp("ns"), 0, 5, 10**9), [False, True, True, None]),
        (SECONDS, DAYS[:3], [False, True, False, None]),
        (SECONDS, pa.array(["1970-01-01", "1970-01-01 00:00:00.5"]), [False, True, False, None]),
        (NANOS, SECONDS[:3], [False, True, False, None]),
        (NANOS, ticks(pa.timestamp("s"), 2**62, 0), [False, True, False, None]),
        (DAYS, ticks(pa.timestamp("us"), 86_400_000_000, 1), [False, False, True, None]),
        (CLOCK, CLOCK_NS[:3], [True, True, False, None]),
        (TEXT, pa.array(["é", "x", None]).dictionary_encode(), [None, None, True, None, None, None]),
        (TEXT, pa.array(["é"], pa.string_view()), [False, False, True, False, False, None]),
        (BINARY, pa.array(["a"]), [False, True, False, False, None]),
        (UUIDS, UUIDS[:1], [True, False, False, None]),
        (UUIDS, pa.array(["00000000-0000-0000-0000-000000000001"]), [False, True, False, None]),
        (pa.array([True, None]), pa.array([True, False]), [True, None]),
        (ticks(pa.duration("s"), 1, 2, None), ticks(pa.duration("ms"), 1000, 1), [True, False, None]),
        (ticks(pa.duration("s"), 1, 2, None), pa.array([2, 3]), [False, True, None]),
    ],
    ids=lambda value: str(getattr(value, "type", ""))[:30],
)
def test_key_arrays(column: pa.Array, keys: pa.Array, expected: list[bool | None]) -> None:
    bound = bind(InArray(Column(("c",)), keys), pa.schema([("c", column.type)]))
    assert outcome(bound, {("c",): column}, len(column)).to_pylist() == expected


@pytest.mark.parametrize(
    ("kind", "text", "hint"),
    [
        (pa.date32(), "yesterday", "'yesterday' is not a date; write YYYY-MM-DD"),
        (pa.date64(), "2013-1-31", "'2013-1-31' is not a date; write YYYY-MM-DD"),
        (pa.date32(), "2013-02-30", "'2013-02-30' is not a date: day is out of range for month"),
        (pa.time64("us"), "noon", "'noon' is not a time; write HH:MM[:SS[.fffffffff]]"),
        (
            pa.timestamp("us"),
            "now",
            "'now' is not a timestamp; write YYYY-MM-DD HH:MM:SS[.fffffffff][+HH:MM]",
        ),
        (pa.date32(), 2013, "write DATE '2013-01-31'"),
    ],
    ids=str,
)
def test_text_that_is_no_moment_is_told_how_one_is_written(kind: pa.DataType, text: Any, hint: str) -> None:
    with pytest.raises(PredicateError) as caught:
        bind(Compare(Op.EQ, Column(("c",)), Literal(text)), pa.schema([("c", kind)]))
    assert caught.value.message.endswith(f"cannot be compared with {text!r}")
    assert caught.value.hint == hint
