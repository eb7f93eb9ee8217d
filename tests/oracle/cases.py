"""Random tables, file layouts and predicates: what the oracle tests draw from."""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from accel.predicate.expr import (
    And,
    Column,
    Compare,
    Expr,
    InList,
    IsNull,
    Like,
    Literal,
    Not,
    Op,
    Or,
    Ticks,
)
from accel.testing import Layout

__all__ = ["Case", "cases", "plain"]

DAY = datetime.date(2020, 1, 1)
NOON = datetime.datetime(2020, 1, 1, 12)


@dataclass(frozen=True)
class Kind:
    """A column type, how its values are drawn, and how a literal for it is."""

    type: pa.DataType
    values: st.SearchStrategy[Any]
    literals: st.SearchStrategy[Any] | None = None
    """None: the column can only be asked for nulls."""
    like: bool = False


def _ints(bits: int, *, signed: bool) -> st.SearchStrategy[int]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return st.one_of(st.integers(max(low, -5), 5), st.sampled_from([low, low + 1, high - 1, high]))


_NUMBERS = st.one_of(
    st.integers(-6, 6),
    st.sampled_from([127, 128, 200, -129, 255, 256, 2**31, 2**53, 2**53 + 1, 2**63, 2**64, -(2**63) - 1]),
    st.sampled_from([0.0, -0.0, 0.5, 1.5, -2.5, math.nan, math.inf, -math.inf, 0.1, 1e300]),
    st.sampled_from([decimal.Decimal(t) for t in ("0.1", "1.00", "1.005", "-2.5", "1e30", "99999.99")]),
)
_FLOATS = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.5, math.nan, math.inf, -math.inf]), st.integers(-4, 4).map(float)
)
_TEXTS = st.one_of(
    st.sampled_from(
        ["", "a", "ab", "abc", "b", "ÿ", "é", "日本", "a%", "a_b", "\\", "z" * 80, "z" * 79 + "y"]
    ),
    st.text(alphabet="abz", max_size=3),
)
_BYTES = st.one_of(st.sampled_from([b"", b"\x00", b"\xff", b"a", b"\xff" * 70]), st.binary(max_size=2))
_DATES = st.integers(-3, 3).map(lambda d: DAY + datetime.timedelta(days=d))
_STAMPS = st.integers(-4, 4).map(lambda h: NOON + datetime.timedelta(seconds=h))
_STAMP_LITERALS = st.one_of(
    _STAMPS,
    _STAMPS.map(lambda t: t.isoformat(sep=" ")),
    _DATES,
    st.integers(-3, 3).map(lambda n: Ticks("timestamp", 1_577_880_000_000_000_000 + n * 500_000_000)),
)
_TIMES = st.integers(0, 9).map(lambda s: datetime.time(12, 0, s, 5000 * (s % 2)))


def _decimals(precision: int, scale: int) -> Kind:
    top = min(10**precision - 1, 10**9)
    unscaled = st.one_of(st.integers(max(-top, -300), min(top, 300)), st.sampled_from([-top, top]))
    kind = pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
    return Kind(kind, unscaled.map(lambda n: decimal.Decimal(n).scaleb(-scale)), _NUMBERS)


KINDS: list[Kind] = [
    *(
        Kind(t, _ints(t.bit_width, signed=True), _NUMBERS)
        for t in (pa.int8(), pa.int16(), pa.int32(), pa.int64())
    ),
    *(
        Kind(t, _ints(t.bit_width, signed=False), _NUMBERS)
        for t in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
    ),
    Kind(pa.float16(), _FLOATS.map(np.float16), _NUMBERS),
    Kind(pa.float32(), _FLOATS, _NUMBERS),
    Kind(pa.float64(), _FLOATS, _NUMBERS),
    Kind(pa.bool_(), st.booleans(), st.booleans()),
    _decimals(5, 2),
    _decimals(15, 3),
    _decimals(30, 0),
    Kind(pa.string(), _TEXTS, _TEXTS, like=True),
    Kind(pa.large_string(), _TEXTS, _TEXTS, like=True),
    Kind(pa.binary(), _BYTES, _BYTES),
    Kind(pa.binary(2), st.binary(min_size=2, max_size=2), st.binary(min_size=2, max_size=2)),
    Kind(pa.dictionary(pa.int32(), pa.string()), _TEXTS, _TEXTS, like=True),
    Kind(pa.date32(), _DATES, st.one_of(_DATES, _DATES.map(str))),
    Kind(pa.time32("ms"), _TIMES, _TIMES),
    Kind(pa.time64("us"), _TIMES, _TIMES),
    *(Kind(pa.timestamp(unit), _STAMPS, _STAMP_LITERALS) for unit in ("ms", "us", "ns")),
    Kind(pa.timestamp("us", "UTC"), _STAMPS.map(lambda t: t.replace(tzinfo=datetime.UTC)), _STAMP_LITERALS),
    Kind(pa.null(), st.none()),
    Kind(pa.list_(pa.int32()), st.lists(st.one_of(st.none(), st.integers(-5, 5)), max_size=4)),
    Kind(
        pa.list_(pa.struct([("x", pa.int16()), ("y", pa.list_(pa.string()))])),
        st.lists(
            st.one_of(
                st.none(),
                st.fixed_dictionaries(
                    {
                        "x": st.one_of(st.none(), st.integers(0, 9)),
                        "y": st.one_of(st.none(), st.lists(_TEXTS, max_size=2)),
                    }
                ),
            ),
            max_size=3,
        ),
    ),
    Kind(
        pa.map_(pa.string(), pa.int64()),
        st.lists(st.tuples(_TEXTS, st.one_of(st.none(), st.integers(0, 9))), max_size=3),
    ),
]

_INNER = pa.struct([("n", pa.int32()), ("t", pa.string())])
STRUCT = Kind(
    pa.struct([("n", pa.int32()), ("s", _INNER)]),
    st.fixed_dictionaries(
        {
            "n": st.one_of(st.none(), st.integers(-5, 5)),
            "s": st.one_of(
                st.none(),
                st.fixed_dictionaries({"n": st.integers(-5, 5), "t": st.one_of(st.none(), _TEXTS)}),
            ),
        }
    ),
)


@dataclass(frozen=True)
class Case:
    """One question to one file."""

    table: pa.Table
    layout: Layout
    where: Expr | None
    columns: list[str] | None
    tail_hint: int
    piece_bytes: int
    batch_rows: int


@st.composite
def _columns(draw: st.DrawFn, rows: int) -> list[tuple[str, Kind, pa.Array]]:
    out = []
    for at in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from([*KINDS, STRUCT]))
        share = draw(st.sampled_from([0.0, 0.0, 0.2, 1.0]))
        distinct = draw(st.lists(kind.values, min_size=1, max_size=8))
        seed = draw(st.integers(0, 2**32 - 1))
        rng = np.random.default_rng(seed)
        picks = rng.integers(0, len(distinct), rows)
        if draw(st.booleans()):
            picks = np.sort(picks)
        nulls = rng.random(rows) < share
        values = [None if null else distinct[i] for i, null in zip(picks, nulls, strict=True)]
        out.append((f"c{at}", kind, pa.array(values, kind.type)))
    return out


@st.composite
def _atom(draw: st.DrawFn, name: str, kind: Kind) -> Expr:
    column = Column(tuple(name.split(".")))
    if kind.literals is None:
        return IsNull(column)
    choice = draw(st.integers(0, 9))
    if choice == 0:
        return IsNull(column)
    if choice == 1:
        values = draw(st.lists(st.one_of(kind.literals, st.none()), min_size=1, max_size=4))
        return InList(column, tuple(values))
    if choice == 2 and kind.like:
        return Like(column, draw(st.sampled_from(["a%", "%b", "_", "a_%", "%", "", "z\\%", "a\\_b", "ab"])))
    op = draw(st.sampled_from(list(Op)))
    literal = Literal(draw(kind.literals))
    return Compare(op, column, literal) if draw(st.booleans()) else Compare(op, literal, column)


@st.composite
def _predicate(draw: st.DrawFn, names: list[tuple[str, Kind]], depth: int = 2) -> Expr:
    choice = draw(st.integers(0, 5)) if depth else 0
    if choice <= 2:
        name, kind = draw(st.sampled_from(names))
        return draw(_atom(name, kind))
    if choice == 3:
        return Not(draw(_predicate(names, depth - 1)))
    operands = tuple(draw(st.lists(_predicate(names, depth - 1), min_size=2, max_size=3)))
    return And(operands) if choice == 4 else Or(operands)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A table of up to 120 rows, cut into odd row groups and pages, and a question."""
    rows = draw(st.sampled_from([0, 1, 7, 40, 120]))
    columns = draw(_columns(rows))
    table = pa.Table.from_arrays([a for _, _, a in columns], names=[n for n, _, _ in columns])
    codec = draw(st.sampled_from(["none", "snappy", "zstd", "gzip", "brotli", "lz4"]))
    layout = Layout(
        group_rows=draw(st.sampled_from([13, 50, 1000])),
        page_rows=draw(st.sampled_from([1, 3, 10, 1000])),
        codec=codec,
        dictionary=draw(st.booleans()),
        dictionary_bytes=draw(st.sampled_from([1, 40, 1 << 20])),
        page_index=draw(st.sampled_from([True, True, False])),
        statistics=draw(st.sampled_from([True, True, False])),
        data_page=draw(st.sampled_from(["1.0", "2.0"])),
        checksums=draw(st.booleans()),
        arrow_schema=draw(st.sampled_from([True, True, False])),
    )
    names: list[tuple[str, Kind]] = []
    for name, kind, _ in columns:
        names.append((name, kind))
        if kind is STRUCT:
            names += [(f"{name}.n", KINDS[2]), (f"{name}.s.t", KINDS[15]), (f"{name}.s", STRUCT)]
    where = draw(st.one_of(st.none(), _predicate(names), _predicate(names)))
    chosen = draw(st.one_of(st.none(), st.lists(st.sampled_from([n for n, _ in names]), unique=True)))
    return Case(
        table=table,
        layout=layout,
        where=where,
        columns=chosen,
        tail_hint=draw(st.sampled_from([8, 600, 1 << 17])),
        piece_bytes=draw(st.sampled_from([1, 200, 1 << 25])),
        batch_rows=draw(st.sampled_from([1, 17, 1 << 17])),
    )


def plain(values: list[Any]) -> str:
    """Values as text that tells NaN, zeros, nulls and types apart, so that == is sameness."""
    return repr(values)


Check = Callable[[Case], None]
