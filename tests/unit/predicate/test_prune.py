"""What bounds and counts prove, evidence as three-valued logic, and the bounds of constant columns."""

from __future__ import annotations

import datetime
import decimal
import itertools
import math
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from accel.format.domain import Bounds, Domain
from accel.predicate.bind import bind
from accel.predicate.expr import (
    And,
    Column,
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
)
from accel.predicate.prune import Evidence, Verdict, prune
from accel.predicate.value_bounds import constant_bounds

C, D = Column(("c",)), Column(("d",))
NAN = math.nan


def bounds(
    domain: Domain,
    ends: list[tuple[Any, Any]],
    *,
    rows: int = 10,
    nulls: list[int] | None = None,
    nans: list[int] | None = None,
) -> Bounds:
    """Units from (lower, upper), None where there is none."""
    n = len(ends)
    dtype: Any = {Domain.INTEGER: np.int64, Domain.FLOAT: np.float64, Domain.BOOLEAN: bool}.get(
        domain, object
    )
    filler: Any = {Domain.BYTES: None, Domain.BOOLEAN: False}.get(domain, 0)
    columns = []
    for side in (0, 1):
        column = np.empty(n, object)
        column[:] = [filler if end[side] is None else end[side] for end in ends]
        columns.append(column.astype(dtype))
    has = [np.array([end[side] is not None for end in ends]) for side in (0, 1)]
    return Bounds(
        domain,
        columns[0],
        columns[1],
        has[0],
        has[1],
        np.full(n, rows, np.int64),
        np.array(nulls or [0] * n, np.int64),
        np.array(nans or [0] * n, np.int64),
    )


def shown(
    expr: Expr, kind: pa.DataType, claims: Bounds, other: tuple[pa.DataType, Bounds] | None = None
) -> str:
    """A word of T, F and N for each unit: what may be."""
    fields, given = [("c", kind)], {("c",): claims}
    if other is not None:
        fields, given = [*fields, ("d", other[0])], {**given, ("d",): other[1]}
    evidence = prune(bind(expr, pa.schema(fields)), given, len(claims))
    flags = zip(evidence.may_true, evidence.may_false, evidence.may_null, strict=True)
    return " ".join("".join(c for c, flag in zip("TFN", unit, strict=True) if flag) or "-" for unit in flags)


INTS = bounds(Domain.INTEGER, [(1, 3), (5, 5), (6, 9), (None, 3), (8, None), (None, None)])


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (Compare(Op.EQ, C, Literal(5)), "F T F F F TF"),
        (Compare(Op.NE, C, Literal(5)), "T F T T T TF"),
        (Compare(Op.LT, C, Literal(5)), "T F F T F TF"),
        (Compare(Op.LE, C, Literal(5)), "T T F T F TF"),
        (Compare(Op.GT, C, Literal(5)), "F F T F T TF"),
        (Compare(Op.GE, C, Literal(5)), "F T T F T TF"),
        (Compare(Op.GE, C, Literal(2)), "TF T T TF T TF"),
        (Compare(Op.LT, C, Literal(8.5)), "T T TF T TF TF"),
        (Compare(Op.EQ, C, Literal(2.5)), "F F F F F F"),
        (Compare(Op.LT, C, Literal(2**70)), "T T T T T T"),
        (Compare(Op.EQ, C, Literal(None)), "N N N N N N"),
        (Compare(Op.DISTINCT, C, Literal(5)), "T F T T T TF"),
        (IsNull(C), "F F F F F F"),
        (InList(C, (0, 4, 5)), "F T F TF F TF"),
        (InList(C, (1, 2, 3)), "T F F TF F TF"),
        (InList(C, (5, None)), "N T N N N TN"),
        (Not(InList(C, (4, 5))), "T F T T T TF"),
        (InList(C, ()), "F F F F F F"),
    ],
    ids=str,
)
def test_integers(expr: Expr, expected: str) -> None:
    assert shown(expr, pa.int64(), INTS) == expected


def test_counts() -> None:
    claims = bounds(Domain.INTEGER, [(1, 3), (1, 3), (1, 3), (None, None)], nulls=[0, 4, -1, 10])
    assert shown(Compare(Op.LT, C, Literal(5)), pa.int32(), claims) == "T TN TN N"
    assert shown(IsNull(C), pa.int32(), claims) == "F TF TF T"
    assert shown(Not(IsNull(C)), pa.int32(), claims) == "T TF TF F"
    assert shown(Compare(Op.DISTINCT, C, Literal(2)), pa.int32(), claims) == "TF TF TF T"
    assert shown(Compare(Op.NOT_DISTINCT, C, Literal(None)), pa.int32(), claims) == "F TF TF T"


def test_counts_of_parts() -> None:
    """A part of a unit with some nulls may have none, or only nulls."""
    claims = bounds(Domain.INTEGER, [(1, 3), (None, None)], nulls=[4, 10]).take(np.array([0, 0, 1]))
    assert shown(IsNull(C), pa.int32(), claims) == "TF TF T"
    assert shown(Compare(Op.LT, C, Literal(5)), pa.int32(), claims) == "TN TN N"


def test_a_unit_without_rows_has_no_outcome() -> None:
    claims = bounds(Domain.INTEGER, [(None, None)], rows=0)
    assert shown(Compare(Op.LT, C, Literal(5)), pa.int32(), claims) == "-"
    assert shown(IsNull(C), pa.int32(), claims) == "-"


FLOATS = bounds(Domain.FLOAT, [(1.0, 3.0)] * 3 + [(None, None), (-0.0, 0.0)], nans=[0, 2, -1, 10, 0])


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (Compare(Op.GT, C, Literal(5.0)), "F TF TF T F"),
        (Compare(Op.LT, C, Literal(5.0)), "T TF TF F T"),
        (Not(Compare(Op.LT, C, Literal(5.0))), "F TF TF T F"),
        (Compare(Op.EQ, C, Literal(NAN)), "F TF TF T F"),
        (Compare(Op.LE, C, Literal(NAN)), "T T T T T"),
        (Compare(Op.GT, C, Literal(math.inf)), "F TF TF T F"),
        (Compare(Op.EQ, C, Literal(0)), "F F F F T"),
        (Compare(Op.EQ, C, Literal(-0.0)), "F F F F T"),
        (InList(C, (NAN, 7.0)), "F TF TF T F"),
        (InList(C, (0.0, 7.0)), "F F F F T"),
        (Compare(Op.LE, C, C), "TF TF TF T T"),
        # A NaN passes one of the two, numbers the other: nothing passes both.
        (And((Compare(Op.GT, C, Literal(5.0)), Compare(Op.LT, C, Literal(8.0)))), "F F F F F"),
        (And((Compare(Op.GE, C, Literal(1.0)), Compare(Op.LE, C, Literal(3.0)))), "T TF TF F F"),
        (Not(Or((Compare(Op.LT, C, Literal(1.0)), Compare(Op.GT, C, Literal(3.0))))), "T TF TF F F"),
        (Or((Compare(Op.LT, C, Literal(1.0)), Compare(Op.GT, C, Literal(5.0)))), "F TF TF T T"),
        (And((Compare(Op.GT, C, Literal(5.0)), InList(C, (NAN, 2.0)))), "F TF TF T F"),
    ],
    ids=str,
)
def test_floats(expr: Expr, expected: str) -> None:
    assert shown(expr, pa.float64(), FLOATS) == expected


TEXT = bounds(
    Domain.BYTES, [(b"abc", b"abd"), (b"abca", b"abcz"), (b"b", b"c"), (None, b"aa"), (b"ab\xff", None)]
)


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (Like(C, "abc%"), "TF T F F F"),
        (Like(C, "abc%x"), "TF TF F F F"),
        (Like(C, "abc_"), "TF TF F F F"),
        (Like(C, "%x"), "TF TF TF TF TF"),
        (Not(Like(C, "abc%")), "TF F T T T"),
        (Like(C, "ABC%", True), "TF TF F TF F"),
        (Like(C, "B%", True), "TF TF TF TF TF"),
        (Like(C, "D%", True), "TF TF TF TF TF"),
        (Like(C, "1%", True), "F F F TF F"),
        (Like(C, "%"), "T T T T T"),
        (Like(C, "abc"), "TF F F F F"),
        (Compare(Op.LT, C, Literal("abc")), "F F F T F"),
        (Compare(Op.GE, C, Literal("abcz")), "TF TF T F T"),
        (InList(C, ("abcm", "bz")), "TF TF TF F TF"),
    ],
    ids=str,
)
def test_text(expr: Expr, expected: str) -> None:
    assert shown(expr, pa.string(), TEXT) == expected


def test_trailing_zero_bytes_count() -> None:
    claims = bounds(Domain.BYTES, [(b"a\x00", b"a\x00")])
    assert shown(Compare(Op.EQ, C, Literal(b"a")), pa.binary(), claims) == "F"
    assert shown(Compare(Op.EQ, C, Literal(b"a\x00")), pa.binary(), claims) == "T"
    assert shown(InList(C, (b"a", b"b")), pa.binary(), claims) == "F"


def test_booleans() -> None:
    claims = bounds(Domain.BOOLEAN, [(False, False), (True, True), (False, True), (None, None)])
    assert shown(C, pa.bool_(), claims) == "F T TF TF"
    assert shown(Not(C), pa.bool_(), claims) == "T F TF TF"
    assert shown(Compare(Op.LE, C, Literal(False)), pa.bool_(), claims) == "T F TF TF"


def test_decimals_by_their_unscaled_value() -> None:
    claims = bounds(Domain.INTEGER, [(900, 1000), (1001, 1100)])
    tenth = Compare(Op.LT, C, Literal(decimal.Decimal("10.005")))
    assert shown(tenth, pa.decimal128(9, 2), claims) == "T F"


def test_column_to_column() -> None:
    left = bounds(Domain.INTEGER, [(1, 3), (3, 5), (5, 5), (7, None)], nulls=[0, 0, 0, 1])
    right = bounds(Domain.INTEGER, [(3, 5), (1, 3), (5, 5), (1, 2)])
    other = (pa.int32(), right)
    assert shown(Compare(Op.LE, C, D), pa.int64(), left, other) == "T TF T FN"
    assert shown(Compare(Op.LT, C, D), pa.int64(), left, other) == "TF F F FN"
    assert shown(Compare(Op.EQ, C, D), pa.int64(), left, other) == "TF TF T FN"
    assert shown(Compare(Op.DISTINCT, C, D), pa.int64(), left, other) == "TF TF F T"
    # Days and milliseconds are not one scale: only the counts speak.
    assert shown(Compare(Op.LE, C, D), pa.timestamp("ms"), left, (pa.date32(), right)) == "TF TF TF TFN"


def test_unsigned_meets_signed_exactly() -> None:
    kind = np.array([2**64 - 2], np.uint64)
    none, one = np.zeros(1, np.int64), np.ones(1, bool)
    big = Bounds(Domain.INTEGER, kind, kind + np.uint64(1), one, one, none + 5, none, none)
    small = bounds(Domain.INTEGER, [(2**63 - 1, 2**63 - 1)])
    assert shown(Compare(Op.GT, C, D), pa.uint64(), big, (pa.int64(), small)) == "T"
    assert shown(Compare(Op.GE, C, Literal(2**64 - 2)), pa.uint64(), big) == "T"
    assert shown(InList(C, (2**64 - 1, 2**64 - 2)), pa.uint64(), big) == "T"
    assert shown(InList(C, (2**63 - 1, 1)), pa.int64(), big) == "F"


@pytest.mark.parametrize(
    "claims",
    [
        bounds(Domain.NONE, [(1, 3)], nulls=[-1]),
        bounds(Domain.BYTES, [(b"1", b"3")], nulls=[-1]),
        bounds(Domain.INTEGER, [(9, 3)], nulls=[-1]),
        bounds(Domain.INTEGER, [(None, None)], nulls=[-1]),
        bounds(Domain.INTEGER, [(None, None)], nulls=[11]),
    ],
    ids=["no-order", "another-domain", "crossed", "no-bounds", "more-nulls-than-values"],
)
def test_what_is_not_claimed_may_be(claims: Bounds) -> None:
    assert shown(Compare(Op.EQ, C, Literal(7)), pa.int64(), claims) == "TFN"


def test_columns_without_bounds_are_unknown() -> None:
    bound = bind(Compare(Op.EQ, C, Literal(7)), pa.schema([("c", pa.int64())]))
    assert prune(bound, {}, 2).verdicts().tolist() == [1, 1]
    assert prune(bound, {}, 0).verdicts().tolist() == []
    with pytest.raises(ValueError, match="bounds of 'c' have 6 units, not 2"):
        prune(bound, {("c",): INTS}, 2)


@pytest.mark.parametrize(
    ("keys", "kind", "domain", "ends"),
    [
        pytest.param([5, 8, -1], pa.int64(), Domain.INTEGER, [(1, 3), (5, 5), (6, 9), (8, 9)], id="numbers"),
        pytest.param(
            [0.5, 2.0], pa.float64(), Domain.FLOAT, [(0.5, 0.5), (0.6, 1.9), (-1.0, 0.0)], id="floats"
        ),
        pytest.param(
            ["b", "bb"], pa.string(), Domain.BYTES, [(b"a", b"b"), (b"b", b"b"), (b"c", b"d")], id="text"
        ),
    ],
)
def test_a_list_is_judged_alike_where_every_unit_has_bounds_and_where_one_lacks_them(
    keys: list[Any], kind: pa.DataType, domain: Domain, ends: list[tuple[Any, Any]]
) -> None:
    expr = InList(C, tuple(keys))
    alone = shown(expr, kind, bounds(domain, ends))
    assert shown(expr, kind, bounds(domain, [*ends, (None, None)])).split()[:-1] == alone.split()
    assert len(set(alone.split())) > 1


def test_many_keys_against_many_units() -> None:
    """100,000 keys and 100,000 units are two searches, not their product."""
    starts = np.arange(100_000, dtype=np.int64) * 10
    has, none = np.ones(len(starts), bool), np.zeros(len(starts), np.int64)
    claims = Bounds(Domain.INTEGER, starts, starts + 4, has, has, none + 5, none, none)
    keys = pa.array(np.arange(100_000, dtype=np.int64) * 7)
    bound = bind(InArray(C, keys), pa.schema([("c", pa.int64())]))
    start = time.perf_counter()
    evidence = prune(bound, {("c",): claims}, len(starts))
    assert time.perf_counter() - start < 2  # measured 10 ms
    first = -(-starts // 7) * 7
    expected = (first <= starts + 4) & (first < 700_000)
    assert evidence.may_true.tolist() == expected.tolist()


ROWS = np.array([3, 4])


def storage(kind: Any, value: Any) -> pa.Scalar:
    return pa.ExtensionArray.from_storage(kind, pa.array([value], kind.storage_type))[0]


@pytest.mark.parametrize(
    ("scalar", "domain", "value", "dtype"),
    [
        (pa.scalar(2013, pa.int32()), Domain.INTEGER, 2013, "int64"),
        (pa.scalar(2**64 - 1, pa.uint64()), Domain.INTEGER, 2**64 - 1, "uint64"),
        (pa.scalar(datetime.date(1970, 1, 3)), Domain.INTEGER, 2, "int64"),
        (pa.scalar(5, pa.timestamp("us", "UTC")), Domain.INTEGER, 5, "int64"),
        (pa.scalar(decimal.Decimal("1.50")), Domain.INTEGER, 150, "int64"),
        (pa.scalar(decimal.Decimal(10) ** 30), Domain.INTEGER, 10**30, "object"),
        (pa.scalar(1.5, pa.float32()), Domain.FLOAT, 1.5, "float64"),
        (pa.scalar("é"), Domain.BYTES, "é".encode(), "object"),
        (pa.scalar("é", pa.string_view()), Domain.BYTES, "é".encode(), "object"),
        (pa.scalar(b"ab", pa.binary(2)), Domain.BYTES, b"ab", "object"),
        (pa.array(["x"]).dictionary_encode()[0], Domain.BYTES, b"x", "object"),
        (storage(pa.uuid(), bytes(16)), Domain.BYTES, bytes(16), "object"),
        (pa.scalar(True), Domain.BOOLEAN, True, "bool"),
    ],
    ids=lambda value: str(getattr(value, "type", "")),
)
def test_values(scalar: pa.Scalar, domain: Domain, value: Any, dtype: str) -> None:
    bounds = constant_bounds(scalar, ROWS)
    assert bounds.domain is domain
    assert bounds.lower.tolist() == bounds.upper.tolist() == [value, value]
    assert (str(bounds.lower.dtype), str(bounds.upper.dtype)) == (dtype, dtype)
    assert bounds.has_lower.tolist() == bounds.has_upper.tolist() == [True, True]
    assert (bounds.num_values.tolist(), bounds.null_count.tolist(), bounds.nan_count.tolist()) == (
        [3, 4],
        [0, 0],
        [0, 0],
    )


def test_zero_is_both_zeros() -> None:
    bounds = constant_bounds(pa.scalar(-0.0), ROWS)
    assert [math.copysign(1, end[0]) for end in (bounds.lower, bounds.upper)] == [-1, 1]


@pytest.mark.parametrize("kind", [pa.int8(), pa.float64(), pa.string(), pa.bool_(), pa.null()], ids=str)
def test_null_is_all_null(kind: pa.DataType) -> None:
    bounds = constant_bounds(pa.scalar(None, kind), ROWS)
    assert bounds.has_lower.tolist() == bounds.has_upper.tolist() == [False, False]
    assert bounds.null_count.tolist() == [3, 4]
    schema = pa.schema([("c", kind)])
    assert (
        prune(bind(IsNull(Column(("c",))), schema), {("c",): bounds}, 2).verdicts().tolist()
        == [Verdict.ALL] * 2
    )


def test_nan_is_above_every_number() -> None:
    bounds = {("c",): constant_bounds(pa.scalar(math.nan), ROWS)}
    schema = pa.schema([("c", pa.float64())])
    above = bind(Compare(Op.GT, Column(("c",)), Literal(1e308)), schema)
    below = bind(Compare(Op.LE, Column(("c",)), Literal(1e308)), schema)
    assert prune(above, bounds, 2).verdicts().tolist() == [Verdict.ALL] * 2
    assert prune(below, bounds, 2).verdicts().tolist() == [Verdict.NONE] * 2


def test_a_list_only_tells_that_it_is_there() -> None:
    bounds = constant_bounds(pa.scalar([1]), ROWS)
    assert (bounds.domain, bounds.null_count.tolist()) == (Domain.NONE, [0, 0])


OUTCOMES = (True, False, None)
SETS = [frozenset(s) for n in range(4) for s in itertools.combinations(OUTCOMES, n)]


def evidence(allowed: frozenset[bool | None]) -> Evidence:
    return Evidence(*(np.array([outcome in allowed]) for outcome in OUTCOMES))


def allowed(found: Evidence) -> set[bool | None]:
    flags = (found.may_true, found.may_false, found.may_null)
    return {outcome for outcome, flag in zip(OUTCOMES, flags, strict=True) if flag[0]}


def conjunction(a: bool | None, b: bool | None) -> bool | None:
    if a is False or b is False:
        return False
    return None if a is None or b is None else True


@pytest.mark.parametrize("a", SETS, ids=str)
@pytest.mark.parametrize("b", SETS, ids=str)
def test_and_or(a: frozenset[bool | None], b: frozenset[bool | None]) -> None:
    both = {conjunction(x, y) for x in a for y in b}
    found = allowed(evidence(a) & evidence(b))
    if a and b:
        assert found == both
    else:
        # A unit without rows on one side: whatever is claimed holds of none.
        assert found >= both
    assert allowed(evidence(a) | evidence(b)) == allowed(~(~evidence(a) & ~evidence(b)))


@pytest.mark.parametrize("a", SETS, ids=str)
@pytest.mark.parametrize("b", SETS, ids=str)
def test_two_statements_about_one_predicate_leave_what_both_allow(
    a: frozenset[bool | None], b: frozenset[bool | None]
) -> None:
    assert allowed(evidence(a).meet(evidence(b))) == a & b


@pytest.mark.parametrize("a", SETS, ids=str)
def test_not(a: frozenset[bool | None]) -> None:
    assert allowed(~evidence(a)) == {None if x is None else not x for x in a}


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [
        ({True}, Verdict.ALL),
        ({True, False}, Verdict.SOME),
        ({True, None}, Verdict.SOME),
        ({False}, Verdict.NONE),
        ({None}, Verdict.NONE),
        ({False, None}, Verdict.NONE),
        (set(), Verdict.NONE),
        ({True, False, None}, Verdict.SOME),
    ],
    ids=str,
)
def test_verdicts(outcomes: set[bool | None], verdict: Verdict) -> None:
    assert evidence(frozenset(outcomes)).verdicts().tolist() == [verdict]


def test_unknown_is_some() -> None:
    assert Evidence.unknown(3).verdicts().tolist() == [Verdict.SOME] * 3


def test_a_part_is_of_its_units() -> None:
    flags = [np.array([bool(number >> bit & 1) for number in range(8)]) for bit in range(3)]
    whole = Evidence(*flags)
    part = whole.part(2, 5)
    assert len(part) == 3
    assert [column.tolist() for column in (part.may_true, part.may_false, part.may_null)] == [
        column[2:5].tolist() for column in flags
    ]
