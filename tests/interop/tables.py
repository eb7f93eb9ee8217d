"""One table of many types, in random but seeded disorder, and the predicates that are put to its files."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["PREDICATES", "ROWS", "everything", "same"]

ROWS = 5_000

PREDICATES: list[tuple[str, str]] = [
    # Columns that it needs, separated by blanks; the predicate.
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
    """Sorted and random columns, with nulls, NaN, both zeros, infinities, long and empty texts, nested values."""
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


def same(left: Any, right: Any) -> bool:
    """Whether two columns hold the same values to the bit: NaN is NaN, -0.0 is not 0.0."""
    if isinstance(left, pa.ChunkedArray):
        left, right = left.combine_chunks(), right.combine_chunks()
    kind = left.type
    if kind != right.type or len(left) != len(right):
        return False
    if not left.is_null().equals(right.is_null()):
        return False
    if pa.types.is_floating(kind):
        bits = pa.int64() if kind.bit_width == 64 else pa.int32() if kind.bit_width == 32 else pa.int16()
        return bool(left.view(bits).equals(right.view(bits)))
    if pa.types.is_struct(kind):
        return all(same(a, b) for a, b in zip(left.flatten(), right.flatten(), strict=True))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        lengths = [pc.list_value_length(a) for a in (left, right)]
        return bool(lengths[0].equals(lengths[1])) and same(left.flatten(), right.flatten())
    return bool(left.equals(right))
