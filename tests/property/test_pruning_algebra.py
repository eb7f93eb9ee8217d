"""Pruning never contradicts the exact filter: random columns, predicates, partitions and honest bounds."""

from __future__ import annotations

import datetime
import decimal
import itertools
import math
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from accel.arrays import bools, mask, validity
from accel.format.domain import Bounds, Domain
from accel.predicate.bind import bind
from accel.predicate.evaluate import outcome
from accel.predicate.expr import (
    And,
    Column,
    Compare,
    Constant,
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
)
from accel.predicate.prune import Evidence, prune

sys.path.insert(0, str(Path(__file__).parents[1] / "oracle"))
import rowwise

D = decimal.Decimal
NAN, INF = math.nan, math.inf
DAY = 86_400_000_000_000


@dataclass(frozen=True)
class Sort:
    """One type of column: values as pyarrow takes them, their native form, and literals to compare with."""

    type: pa.DataType
    domain: Domain
    values: tuple[Any, ...]
    native: Callable[[Any], Any]
    literals: tuple[Any, ...]
    group: str


def is_nan(value: Any) -> bool:
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def same(value: Any) -> Any:
    return value


NUMBERS = (0, 1, -1, 2, 127, 128, 200, -129, 7.0, 0.5, NAN, INF, -INF, -0.0, D("0.005"), D("1.00"), D("-0.5"))
BIG = (2**63 - 1, 2**63, 2**64 - 1, -(2**63), -(2**63) - 1, float(2**63), D("9223372036854775806.5"), 10**400)
TEXTS = ("", "a", "ab", "abc", "b", "é", "aé", "z\U0010ffff", "K", "k", "\u212ab", "a%", "\n")
MOMENTS = (
    datetime.date(1970, 1, 1),
    datetime.date(1970, 1, 2),
    datetime.datetime(1970, 1, 1, 0, 0, 1),
    "1970-01-01 00:00:00.5",
    "1970-01-01T01:00:01+01:00",
    Ticks("timestamp", 1),
    Ticks("timestamp", -1),
    Ticks("timestamp", DAY + 1),
    datetime.date(9999, 12, 31),
    datetime.date(1, 1, 1),
)
TIMES = (
    "00:00",
    datetime.time(0, 0, 1),
    "00:00:00.000000001",
    "23:59:59.999999999",
    Ticks("time", 1_000_000_000),
)


def integer(kind: pa.DataType, *values: int) -> Sort:
    return Sort(kind, Domain.INTEGER, values, same, NUMBERS + BIG, "number")


def decimals(kind: pa.DataType, *values: str) -> Sort:
    unscaled = lambda v: int(v.scaleb(kind.scale))
    return Sort(kind, Domain.INTEGER, tuple(map(D, values)), unscaled, NUMBERS + BIG, "number")


def ticks(kind: pa.DataType, literals: tuple[Any, ...], group: str, *values: int) -> Sort:
    return Sort(kind, Domain.INTEGER, values, same, literals, group)


def floats(kind: pa.DataType, *values: float) -> Sort:
    return Sort(
        kind,
        Domain.FLOAT,
        values,
        lambda v: float(np.dtype(kind.to_pandas_dtype()).type(v)),
        NUMBERS + BIG,
        "number",
    )


def texts(kind: pa.DataType) -> Sort:
    return Sort(kind, Domain.BYTES, TEXTS, str.encode, (*TEXTS, b"a\x00", b"\xff", b"a"), "bytes")


def binaries(kind: pa.DataType, *values: bytes) -> Sort:
    return Sort(kind, Domain.BYTES, values, same, (*TEXTS, b"a\x00", b"\xff", b"ab", b""), "bytes")


SORTS = (
    integer(pa.int8(), -128, -1, 0, 1, 2, 127),
    integer(pa.int64(), -(2**63), -1, 0, 1, 2, 200, 2**63 - 1),
    integer(pa.uint64(), 0, 1, 2, 2**63, 2**64 - 1),
    integer(pa.uint8(), 0, 1, 200, 255),
    floats(pa.float64(), -INF, -1.0, -0.0, 0.0, 0.5, 1.0, 7.0, float(2**63), INF, NAN),
    floats(pa.float32(), -INF, -0.0, 0.0, 0.5, 0.1, 1.0, NAN),
    floats(pa.float16(), -0.0, 0.0, 0.5, 2.0, NAN),
    decimals(pa.decimal128(5, 2), "-0.50", "0.00", "0.01", "1.00", "7.00", "200.00"),
    decimals(pa.decimal32(5, 2), "-0.50", "0.00", "0.01", "1.00", "128.00"),
    decimals(pa.decimal64(12, 0), "-1", "0", "2", "128"),
    decimals(pa.decimal256(50, 3), "-0.005", "0.005", "1.000", "9223372036854775806.500"),
    ticks(pa.date32(), MOMENTS, "instant", -1, 0, 1, 2),
    ticks(pa.timestamp("s"), MOMENTS, "instant", -1, 0, 1, 86_400),
    ticks(pa.timestamp("ns", "Europe/Berlin"), MOMENTS, "instant", -1, 0, 1, 10**9, DAY),
    ticks(pa.time32("s"), TIMES, "time", 0, 1, 86_399),
    ticks(pa.time64("ns"), TIMES, "time", 0, 1, 10**9, DAY - 1),
    ticks(pa.duration("ms"), (0, 1, -1, 5), "duration", -1, 0, 1, 5),
    texts(pa.string()),
    texts(pa.large_string()),
    texts(pa.string_view()),
    texts(pa.dictionary(pa.int8(), pa.string())),
    binaries(pa.binary(), b"", b"a", b"a\x00", b"ab", b"\xff", b"\xff\xff"),
    binaries(pa.binary(2), b"ab", b"a\x00", b"\xff\xff", b"\xff\x00"),
    binaries(pa.binary_view(), b"", b"ab", b"\xff"),
    Sort(pa.bool_(), Domain.BOOLEAN, (True, False), same, (True, False), "boolean"),
)


@dataclass(frozen=True)
class Case:
    schema: pa.Schema
    sorts: tuple[Sort, ...]
    rows: dict[tuple[str, ...], list[Any]]
    arrays: dict[tuple[str, ...], pa.Array]
    num_rows: int


def make_array(sort: Sort, rows: list[Any], rng: random.Random) -> Any:
    kind = sort.type
    if sort.group in ("instant", "time", "duration"):
        width = pa.int32() if kind.bit_width == 32 else pa.int64()
        array: Any = pa.array(rows, width).view(kind)
    elif pa.types.is_float16(kind):
        array = pa.array([None if v is None else np.float16(v) for v in rows], kind)
    elif pa.types.is_dictionary(kind):
        array = pa.array(rows, pa.string()).dictionary_encode().cast(kind)
    else:
        array = pa.array(rows, kind)
    form = rng.randrange(3)
    if form == 1 and not pa.types.is_dictionary(kind):
        padding = pa.nulls(3, kind)
        array = pa.concat_arrays([padding, array, padding])[3 : 3 + len(rows)]
    if form == 2:
        half = len(rows) // 2
        array = pa.chunked_array([array[:half], array[half:]])
    return array


def make_case(rng: random.Random) -> Case:
    sorts = tuple(rng.choice(SORTS) for _ in range(rng.randint(1, 3)))
    if len(sorts) > 1 and rng.random() < 0.5:
        related = [s for s in SORTS if s.group == sorts[0].group]
        sorts = (sorts[0], rng.choice(related), *sorts[2:])
    num_rows = rng.choice((0, 1, 3, 3, 6, 6, 12))
    rows, arrays = {}, {}
    for i, sort in enumerate(sorts):
        pool = rng.sample(sort.values, rng.randint(1, len(sort.values)))
        nulls = rng.choice((0.0, 0.0, 0.3, 1.0))
        column = [None if rng.random() < nulls else rng.choice(pool) for _ in range(num_rows)]
        if num_rows > 2 and rng.random() < 0.4:
            cut = rng.randrange(num_rows)
            column[:cut] = [rng.choice((column[0], None))] * cut
        rows[(f"c{i}",)] = column
        arrays[(f"c{i}",)] = make_array(sort, column, rng)
    schema = pa.schema([(f"c{i}", sort.type) for i, sort in enumerate(sorts)])
    return Case(schema, sorts, rows, arrays, num_rows)


def make_atom(case: Case, rng: random.Random) -> Expr:
    i = rng.randrange(len(case.sorts))
    sort, column = case.sorts[i], Column((f"c{i}",))
    literals = (*sort.literals, None)
    match rng.randrange(9):
        case 0:
            return IsNull(column)
        case 1:
            return InList(column, tuple(rng.choice(literals) for _ in range(rng.randint(0, 4))))
        case 2 if sort.domain is Domain.BYTES and not pa.types.is_binary(sort.type):
            if sort.values is not TEXTS:
                return IsNull(column)
            pattern = "".join(
                rng.choice(("a", "a", "b", "k", "K", "%", "_", "É", "\\\\", "\\%"))
                for _ in range(rng.randint(0, 4))
            )
            return Like(column, pattern + rng.choice(("", "%")), ignore_case=rng.random() < 0.5)
        case 3:
            others = [j for j, other in enumerate(case.sorts) if other.group == sort.group]
            return Compare(rng.choice(list(Op)), column, Column((f"c{rng.choice(others)}",)))
        case 4:
            array = case.arrays[(f"c{rng.choice([j for j, o in enumerate(case.sorts) if o is sort])}",)]
            array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
            return InArray(column, array)
        case 5 if sort.domain is Domain.BOOLEAN:
            return column
        case 6 if rng.random() < 0.2:
            return Constant(rng.choice((True, False, None)))
        case _:
            sides = [column, Literal(rng.choice(literals))]
            rng.shuffle(sides)
            return Compare(rng.choice(list(Op)), *sides)


def make_expr(case: Case, rng: random.Random, depth: int) -> Expr:
    pick = rng.random()
    if depth == 0 or pick < 0.4:
        return make_atom(case, rng)
    if pick < 0.6:
        return Not(make_expr(case, rng, depth - 1))
    parts = tuple(make_expr(case, rng, depth - 1) for _ in range(rng.randint(2, 3)))
    return And(parts) if pick < 0.8 else Or(parts)


def make_cuts(total: int, rng: random.Random) -> list[int]:
    inner = sorted(rng.randint(0, total) for _ in range(rng.randint(0, 3)))
    return [0, *inner, total]


def loosen(value: Any, sort: Sort, rng: random.Random, *, up: bool) -> Any:
    """A bound that holds as well, as writers that truncate leave it."""
    if sort.domain is Domain.BYTES and rng.random() < 0.5:
        head = value[: rng.randint(0, len(value))]
        if not up:
            return head
        stripped = value[: max(1, len(head))].rstrip(b"\xff")
        return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else value + b"\x00"
    if sort.domain is Domain.INTEGER and rng.random() < 0.3:
        return value + (rng.randint(0, 3) if up else -rng.randint(0, 3))
    if sort.domain is Domain.FLOAT and rng.random() < 0.3:
        return value + (1.0 if up else -1.0)
    return value


def make_bounds(sort: Sort, rows: list[Any], cuts: list[int], rng: random.Random) -> Bounds:
    n = len(cuts) - 1
    lower, upper = np.empty(n, object), np.empty(n, object)
    has = np.zeros((2, n), bool)
    counts = np.full((3, n), -1, np.int64)
    for unit in range(n):
        inside = rows[cuts[unit] : cuts[unit + 1]]
        natives = [sort.native(v) for v in inside if v is not None]
        plain = [v for v in natives if not is_nan(v)]
        counts[0, unit] = len(inside) if rng.random() < 0.9 else -1
        if rng.random() < 0.7:
            counts[1, unit] = len(inside) - len(natives)
        if sort.domain is not Domain.FLOAT:
            counts[2, unit] = 0
        elif rng.random() < 0.6:
            counts[2, unit] = len(natives) - len(plain)
        void = rng.choice((None, {Domain.BYTES: b"~"}.get(sort.domain, 0)))
        lower[unit] = upper[unit] = (
            void if sort.domain is Domain.BYTES else {Domain.BOOLEAN: False}.get(sort.domain, 0)
        )
        if plain:
            if rng.random() < 0.85:
                has[0, unit], lower[unit] = True, loosen(min(plain), sort, rng, up=False)
            if rng.random() < 0.85:
                has[1, unit], upper[unit] = True, loosen(max(plain), sort, rng, up=True)
            if sort.domain is Domain.FLOAT:
                lower[unit] = -0.0 if lower[unit] == 0 else lower[unit]
                upper[unit] = 0.0 if upper[unit] == 0 else upper[unit]
    domain = sort.domain if rng.random() < 0.95 else Domain.NONE
    dtype: Any = {Domain.FLOAT: np.float64, Domain.BOOLEAN: bool}.get(sort.domain, object)
    if sort.domain is Domain.INTEGER and rng.random() < 0.7:
        low, high = min(lower, default=0), max(upper, default=0)
        extremes = (min(low, min(upper, default=0)), max(high, max(lower, default=0)))
        if extremes[0] >= -(2**63) and extremes[1] < 2**63:
            dtype = np.int64
        elif extremes[0] >= 0 and extremes[1] < 2**64:
            dtype = np.uint64
    return Bounds(
        domain, lower.astype(dtype), upper.astype(dtype), has[0], has[1], counts[0], counts[1], counts[2]
    )


def assert_honest(evidence: Evidence, result: pa.BooleanArray, cuts: list[int], shown: object) -> None:
    valid = validity(result)
    true = mask(result)
    flags = {
        "true": (evidence.may_true, true),
        "false": (evidence.may_false, valid & ~true),
        "null": (evidence.may_null, ~valid),
    }
    for name, (allowed, seen) in flags.items():
        for unit, (start, stop) in enumerate(itertools.pairwise(cuts)):
            if bool(seen[start:stop].any()):
                assert allowed[unit], (name, unit, shown)


# Cases are cheap, and rows depend on them; `--large` takes as many more as everywhere.
@settings(max_examples=20 * settings.default.max_examples, deadline=None)
@given(st.randoms(use_true_random=True))
def test_evidence_never_contradicts_the_rows(rng: random.Random) -> None:
    case = make_case(rng)
    expr = make_expr(case, rng, 3)
    bound = bind(expr, case.schema)
    result = outcome(bound, case.arrays, case.num_rows)
    assert len(result) == case.num_rows
    cuts = make_cuts(case.num_rows, rng)
    bounds = {
        path: make_bounds(sort, case.rows[path], cuts, rng)
        for sort, path in zip(case.sorts, case.rows, strict=True)
        if rng.random() < 0.9
    }
    evidence = prune(bound, bounds, len(cuts) - 1)
    shown = (expr, case.schema, case.rows, bounds)
    assert_honest(evidence, result, cuts, shown)

    # The same claims for parts of the units.
    fine = sorted({*cuts, *(rng.randint(0, case.num_rows) for _ in range(3))})
    owner = np.searchsorted(np.unique(cuts), fine[:-1], side="right") - 1
    # Empty units have no parts: number the others as `cuts` does.
    filled = [i for i in range(len(cuts) - 1) if cuts[i] < cuts[i + 1]]
    units = np.array([filled[i] for i in owner], np.int64)
    parts = {path: claims.take(units) for path, claims in bounds.items()}
    assert_honest(prune(bound, parts, len(units)), result, fine, shown)

    # NOT swaps true and false, of the rows and of the evidence.
    negated = bind(Not(expr), case.schema)
    swapped = outcome(negated, case.arrays, case.num_rows)
    assert swapped.equals(bools(validity(result) & ~mask(result), validity(result)))
    other = prune(negated, bounds, len(cuts) - 1)
    assert other.may_true.tolist() == evidence.may_false.tolist()
    assert other.may_false.tolist() == evidence.may_true.tolist()
    assert other.may_null.tolist() == evidence.may_null.tolist()


@settings(max_examples=5 * settings.default.max_examples, deadline=None)
@given(st.randoms(use_true_random=True))
def test_outcome_is_that_of_the_rows_one_by_one(rng: random.Random) -> None:
    case = make_case(rng)
    expr = make_expr(case, rng, 2)
    assume("DURATION" not in str(case.schema).upper())  # the oracle has no literal for durations
    table = pa.table([case.arrays[(name,)] for name in case.schema.names], schema=case.schema)
    expected = rowwise.evaluate(expr, table)
    assert outcome(bind(expr, case.schema), case.arrays, case.num_rows).to_pylist() == expected, (
        expr,
        case.rows,
    )


def spans(sort: Sort) -> list[list[Any]]:
    """Every run of the sort's values in order, with nothing added, with a null, with a NaN."""
    plain = sorted((v for v in sort.values if not is_nan(v)), key=sort.native)
    runs = [plain[i:j] for i in range(len(plain)) for j in range(i + 1, len(plain) + 1)]
    runs += [[run[0], run[-1]] for run in runs if len(run) > 2] + [[]]
    extras: list[list[Any]] = [[], [None]]
    if sort.domain is Domain.FLOAT:
        extras += [[NAN], [None, NAN]]
    return [run + extra for run in runs for extra in extras]


def exact_bounds(sort: Sort, units: list[list[Any]]) -> Bounds:
    natives = [[sort.native(v) for v in unit if v is not None and not is_nan(v)] for unit in units]
    void: Any = {Domain.BYTES: None, Domain.BOOLEAN: False}.get(sort.domain, 0)
    ends = np.empty((2, len(units)), object)
    ends[0] = [min(values, default=void) for values in natives]
    ends[1] = [max(values, default=void) for values in natives]
    if sort.domain is Domain.FLOAT:
        ends[0] = [-0.0 if v == 0 else v for v in ends[0]]
        ends[1] = [0.0 if v == 0 else v for v in ends[1]]
    dtype: Any = {Domain.FLOAT: np.float64, Domain.BOOLEAN: bool}.get(sort.domain, object)
    has = np.array([len(values) > 0 for values in natives])
    total = np.array([len(unit) for unit in units], np.int64)
    nulls = np.array([unit.count(None) for unit in units], np.int64)
    nans = np.array([sum(map(is_nan, unit)) for unit in units], np.int64)
    return Bounds(sort.domain, ends[0].astype(dtype), ends[1].astype(dtype), has, has, total, nulls, nans)


def check_units(expr: Expr, sorts: list[Sort], units: list[list[list[Any]]]) -> None:
    """Units of several columns, side by side: honest of each."""
    schema = pa.schema([(f"c{i}", sort.type) for i, sort in enumerate(sorts)])
    arrays, bounds = {}, {}
    for i, (sort, own) in enumerate(zip(sorts, units, strict=True)):
        rows = [v for unit in own for v in unit]
        arrays[(f"c{i}",)] = make_array(sort, rows, random.Random(0))
        bounds[(f"c{i}",)] = exact_bounds(sort, own)
    cuts = [0, *np.cumsum([len(unit) for unit in units[0]]).tolist()]
    bound = bind(expr, schema)
    result = outcome(bound, arrays, cuts[-1])
    assert_honest(prune(bound, bounds, len(cuts) - 1), result, cuts, (expr, schema))


PATTERNS = (
    "a%",
    "ab%",
    "%",
    "_%",
    "k%",
    "K_",
    "\u212a%",
    "%b",
    "a",
    "A%",
    "aB",
    "",
    "\\%",
    "a\\%",
    "é%",
    "z%",
)


@pytest.mark.parametrize("sort", SORTS, ids=lambda sort: str(sort.type))
def test_every_run_of_values_against_every_literal(sort: Sort) -> None:
    units, column = spans(sort), Column(("c0",))
    checked: list[Expr] = [Compare(op, column, Literal(value)) for op in Op for value in sort.literals]
    checked += [InList(column, (a, b)) for a in sort.literals for b in (*sort.literals[:3], None)]
    if sort.values is TEXTS:
        checked += [Like(column, pattern, ignore_case=fold) for pattern in PATTERNS for fold in (False, True)]
    for expr in checked:
        check_units(expr, [sort], [units])


@pytest.mark.parametrize("group", ["number", "instant", "time", "duration", "bytes", "boolean"])
def test_every_pair_of_runs_of_two_columns(group: str) -> None:
    rng = random.Random(11)
    sorts = [sort for sort in SORTS if sort.group == group]
    for left in sorts:
        for right in sorts:
            few = [rng.sample(spans(sort), min(12, len(spans(sort)))) for sort in (left, right)]
            few[1] += [unit for unit in few[0] if left is right]
            pairs = [
                ([v for v in a for _ in b], [v for _ in a for v in b])
                for a in few[0]
                for b in few[1]
                if a and b
            ]
            units = [[a for a, _ in pairs], [b for _, b in pairs]]
            for op in Op:
                check_units(Compare(op, Column(("c0",)), Column(("c1",))), [left, right], units)


SHARP = tuple(sort for sort in SORTS if sort.domain is not Domain.NONE)


@pytest.mark.parametrize("sort", SHARP, ids=lambda sort: str(sort.type))
def test_a_unit_of_one_value_is_decided(sort: Sort) -> None:
    """Bounds that are not merely honest but exact must decide: pruning that proves nothing would pass too."""
    rng = random.Random(7)
    schema = pa.schema([("c0", sort.type)])
    for value in sort.values:
        rows = [value] * 3
        array = make_array(sort, rows, rng)
        native = sort.native(value)
        nan = is_nan(native)
        ends = np.array([native], object)
        dtype: Any = {Domain.FLOAT: np.float64, Domain.BOOLEAN: bool}.get(sort.domain, object)
        has = np.array([not nan])
        nulls, nans = np.zeros(1, np.int64), np.array([3 if nan else 0], np.int64)
        bounds = Bounds(
            sort.domain, ends.astype(dtype), ends.astype(dtype), has, has, np.array([3]), nulls, nans
        )
        for literal in sort.literals:
            for op in Op:
                bound = bind(Compare(op, Column(("c0",)), Literal(literal)), schema)
                row = outcome(bound, {("c0",): array}, 3)[0].as_py()
                evidence = prune(bound, {("c0",): bounds}, 1)
                got = [bool(flag[0]) for flag in (evidence.may_true, evidence.may_false, evidence.may_null)]
                assert got == [row is True, row is False, row is None], (value, op, literal)
