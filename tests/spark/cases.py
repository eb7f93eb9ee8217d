"""Every Arrow type that a Parquet file can hold or name, and what Spark makes of it."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

UUID = bytes(range(16))
DAY = dt.date(2013, 1, 2)
NOON = dt.datetime(2013, 1, 2, 12, 30, 15, 123456)


@dataclass(frozen=True)
class TypeCase:
    """An array, the Arrow type Spark gets, that type as DDL, and the Python values that Spark shows."""

    id: str
    array: pa.Array
    arrow: Any
    ddl: str
    values: list[object]


def _case(
    id: str, values: list[object], kind: Any, arrow: Any, ddl: str, shown: list[object] | None = None
) -> TypeCase:
    return TypeCase(id, pa.array(values, kind), arrow, ddl, values if shown is None else shown)


def _extension(kind: Any, storage: pa.Array) -> pa.Array:
    return pa.ExtensionArray.from_storage(kind, storage)


NANOS = [0, 1, -1, 999, -1000, -1001, 1357129815123456789, None]
_EPOCH = dt.datetime(1970, 1, 1)
FLOORED = [None if n is None else _EPOCH + dt.timedelta(microseconds=n // 1000) for n in NANOS]
LISTS = [[1, None], None, [], [200]]
SHOWN_STRUCT = pa.struct([("a", pa.int16()), ("b", pa.string())])

TAKEN = [
    _case("null", [None, None], pa.null(), pa.null(), "VOID"),
    _case("bool", [True, None, False], pa.bool_(), pa.bool_(), "BOOLEAN"),
    _case("int8", [-128, None, 127], pa.int8(), pa.int8(), "TINYINT"),
    _case("int16", [-(2**15), None], pa.int16(), pa.int16(), "SMALLINT"),
    _case("int32", [-(2**31), None], pa.int32(), pa.int32(), "INT"),
    _case("int64", [-(2**63), None, 2**63 - 1], pa.int64(), pa.int64(), "BIGINT"),
    _case("float32", [1.5, None, float("inf")], pa.float32(), pa.float32(), "FLOAT"),
    _case("float64", [0.1, None, float("-inf")], pa.float64(), pa.float64(), "DOUBLE"),
    _case("string", ["", None, "é\n"], pa.string(), pa.string(), "STRING"),
    _case("large_string", ["x", None], pa.large_string(), pa.large_string(), "STRING"),
    _case("binary", [b"", None, b"\0\xff"], pa.binary(), pa.binary(), "BINARY"),
    _case("large_binary", [b"x", None], pa.large_binary(), pa.large_binary(), "BINARY"),
    _case("date32", [DAY, None], pa.date32(), pa.date32(), "DATE"),
    _case("timestamp_us", [NOON, None], pa.timestamp("us"), pa.timestamp("us"), "TIMESTAMP_NTZ"),
    _case("duration_us", [dt.timedelta(days=-1, microseconds=3), None], pa.duration("us"), pa.duration("us"),
          "INTERVAL DAY TO SECOND"),
    _case("decimal128", [Decimal("-1.23"), None], pa.decimal128(38, 2), pa.decimal128(38, 2), "DECIMAL(38,2)"),
]  # fmt: skip

CONVERTED = [
    _case("uint8", [0, 255, None], pa.uint8(), pa.int16(), "SMALLINT"),
    _case("uint16", [0, 2**16 - 1, None], pa.uint16(), pa.int32(), "INT"),
    _case("uint32", [0, 2**32 - 1, None], pa.uint32(), pa.int64(), "BIGINT"),
    _case("uint64", [0, 2**64 - 1, None], pa.uint64(), pa.decimal128(20, 0), "DECIMAL(20,0)",
          [Decimal(0), Decimal(2**64 - 1), None]),
    TypeCase("float16", pa.array([1.5, None, -0.25], pa.float32()).cast(pa.float16()), pa.float32(), "FLOAT",
             [1.5, None, -0.25]),
    _case("date64", [DAY, None], pa.date64(), pa.date32(), "DATE"),
    _case("time32_s", [dt.time(1, 2, 3), None], pa.time32("s"), pa.time64("ns"), "TIME(6)"),
    _case("time32_ms", [dt.time(1, 2, 3, 4000), None], pa.time32("ms"), pa.time64("ns"), "TIME(6)"),
    _case("time64_us", [dt.time(23, 59, 59, 999999), None], pa.time64("us"), pa.time64("ns"), "TIME(6)"),
    TypeCase("time64_ns", pa.array([1999, 86399999999999, None], pa.time64("ns")), pa.time64("ns"), "TIME(6)",
             [dt.time(0, 0, 0, 1), dt.time(23, 59, 59, 999999), None]),
    _case("timestamp_s", [NOON.replace(microsecond=0), None], pa.timestamp("s"), pa.timestamp("us"), "TIMESTAMP_NTZ"),
    _case("timestamp_ms", [NOON.replace(microsecond=123000), None], pa.timestamp("ms"), pa.timestamp("us"),
          "TIMESTAMP_NTZ"),
    TypeCase("timestamp_ns", pa.array(NANOS, pa.timestamp("ns")), pa.timestamp("us"), "TIMESTAMP_NTZ", FLOORED),
    _case("duration_s", [dt.timedelta(seconds=-3), None], pa.duration("s"), pa.duration("us"),
          "INTERVAL DAY TO SECOND"),
    TypeCase("duration_ns", pa.array([-1, 1999, None], pa.duration("ns")), pa.duration("us"), "INTERVAL DAY TO SECOND",
             [dt.timedelta(microseconds=-1), dt.timedelta(microseconds=1), None]),
    _case("decimal32", [Decimal("1.23"), None], pa.decimal32(5, 2), pa.decimal128(5, 2), "DECIMAL(5,2)"),
    _case("decimal64", [Decimal("-1.2"), None], pa.decimal64(15, 1), pa.decimal128(15, 1), "DECIMAL(15,1)"),
    _case("decimal256", [Decimal("7.5"), None], pa.decimal256(38, 1), pa.decimal128(38, 1), "DECIMAL(38,1)"),
    _case("decimal_negative_scale", [Decimal("12E+2"), None], pa.decimal128(5, -2), pa.decimal128(7, 0),
          "DECIMAL(7,0)", [Decimal(1200), None]),
    _case("string_view", ["short", None, "longer than twelve bytes"], pa.string_view(), pa.string(), "STRING"),
    _case("binary_view", [b"x", None], pa.binary_view(), pa.binary(), "BINARY"),
    _case("fixed_size_binary", [b"ab", None], pa.binary(2), pa.binary(), "BINARY"),
    TypeCase("uuid", _extension(pa.uuid(), pa.array([UUID, None, b"\xff" * 16], pa.binary(16))), pa.string(), "STRING",
             ["00010203-0405-0607-0809-0a0b0c0d0e0f", None, "ffffffff-ffff-ffff-ffff-ffffffffffff"]),
    TypeCase("json", _extension(pa.json_(), pa.array(["{}", None])), pa.string(), "STRING", ["{}", None]),
    TypeCase("bool8", _extension(pa.bool8(), pa.array([1, 0, None], pa.int8())), pa.bool_(), "BOOLEAN",
             [True, False, None]),
    TypeCase("dictionary", pa.array(["a", None, "b", "a"]).dictionary_encode(), pa.string(), "STRING",
             ["a", None, "b", "a"]),
    TypeCase("dictionary_of_uint8", pa.array([200, None], pa.uint8()).dictionary_encode(), pa.int16(), "SMALLINT",
             [200, None]),
    _case("large_list", LISTS, pa.large_list(pa.uint8()), pa.list_(pa.int16()), "ARRAY<SMALLINT>"),
    _case("list_of_uint8", LISTS, pa.list_(pa.uint8()), pa.list_(pa.int16()), "ARRAY<SMALLINT>"),
    _case("list_view", LISTS, pa.list_view(pa.uint8()), pa.list_(pa.int16()), "ARRAY<SMALLINT>"),
    _case("large_list_view", LISTS, pa.large_list_view(pa.uint8()), pa.list_(pa.int16()), "ARRAY<SMALLINT>"),
    _case("fixed_size_list", [[1, None], None, [3, 200]], pa.list_(pa.uint8(), 2), pa.list_(pa.int16()),
          "ARRAY<SMALLINT>"),
    _case("struct", [{"a": 200, "b": "x"}, None, {"a": None, "b": "y"}],
          pa.struct([("a", pa.uint8()), ("b", pa.string_view())]), SHOWN_STRUCT, "STRUCT<`a`: SMALLINT, `b`: STRING>"),
    _case("list_of_struct", [[{"a": 200, "b": "x"}, None], None, [], [{"a": None, "b": None}]],
          pa.large_list(pa.struct([("a", pa.uint8()), ("b", pa.string())])), pa.list_(SHOWN_STRUCT),
          "ARRAY<STRUCT<`a`: SMALLINT, `b`: STRING>>"),
    _case("list_of_list", [[[1], None, []], None, [[200, None]]], pa.large_list(pa.large_list(pa.uint8())),
          pa.list_(pa.list_(pa.int16())), "ARRAY<ARRAY<SMALLINT>>"),
    _case("map", [[("x", 200), ("y", None)], None, [], [("z", 1)]], pa.map_(pa.string_view(), pa.uint8()),
          pa.map_(pa.string(), pa.int16()), "MAP<STRING, SMALLINT>",
          [{"x": 200, "y": None}, None, {}, {"z": 1}]),
    _case("map_of_list", [[("x", [200])], None], pa.map_(pa.string(), pa.large_list(pa.uint8())),
          pa.map_(pa.string(), pa.list_(pa.int16())), "MAP<STRING, ARRAY<SMALLINT>>", [{"x": [200]}, None]),
]  # fmt: skip

UTC = TypeCase(
    "timestamp_utc",
    pa.array([NOON, None], pa.timestamp("us", "UTC")),
    pa.timestamp("us", "UTC"),
    "TIMESTAMP",
    [NOON.replace(tzinfo=dt.UTC), None],
)
PARIS = TypeCase(
    "timestamp_ns_paris",
    pa.array([1357129815123456789, None], pa.timestamp("ns", "Europe/Paris")),
    pa.timestamp("us", "Europe/Paris"),
    "TIMESTAMP",
    [NOON.replace(tzinfo=dt.UTC), None],
)

REFUSED = [
    ("decimal256_wide", pa.decimal256(39, 0), "at most 38 digits"),
    ("decimal_negative_scale_wide", pa.decimal128(38, -1), "at most 38 digits"),
    ("interval", pa.month_day_nano_interval(), "no type for Arrow's"),
    ("union", pa.dense_union([pa.field("a", pa.int8())]), "no type for Arrow's"),
]
