"""Keys of a lookup as a predicate: nothing that equals a key is ruled out, and what is far from all keys
is."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.errors import SchemaMismatchError
from accel.predicate.bind import bind
from accel.predicate.evaluate import evaluate
from accel.spark.keys import (
    joined_ranges,
    key_list,
    key_ranges,
    key_sql,
    range_predicate,
    ranges_of_batches,
    tuple_predicate,
)

ACCEPTED = [
    ("boolean", pa.bool_(), "{}"),
    ("bigint", pa.uint8(), "{}"),
    ("decimal(10,2)", pa.int32(), "{}"),
    ("int", pa.decimal128(9, 2), "{}"),
    ("double", pa.float16(), "{}"),
    ("string", pa.dictionary(pa.int8(), pa.string()), "{}"),
    ("string", pa.json_(), "{}"),
    ("binary", pa.binary(4), "{}"),
    ("timestamp", pa.date32(), "try_cast({} AS date)"),
    ("string", pa.timestamp("ms", "UTC"), "try_cast({} AS timestamp)"),
    ("date", pa.timestamp("us"), "try_cast({} AS timestamp_ntz)"),
    ("time(3)", pa.time32("ms"), "{}"),
    ("interval day to second", pa.duration("s"), "{}"),
    ("void", pa.int64(), "{}"),
    ("bigint", pa.null(), "{}"),
]
REFUSED = [
    ("string", pa.int32()),
    ("int", pa.string()),
    ("bigint", pa.float64()),
    ("double", pa.decimal128(9, 2)),
    ("timestamp", pa.timestamp("us")),
    ("string", pa.timestamp("us")),
    ("string collate UTF8_LCASE", pa.string()),
    ("binary", pa.string()),
    ("interval year to month", pa.duration("us")),
    ("array<int>", pa.list_(pa.int32())),
]


@pytest.mark.parametrize(("given", "kind", "sql"), ACCEPTED, ids=lambda value: str(value))
def test_types_that_compare(given: str, kind: pa.DataType, sql: str) -> None:
    assert key_sql(given, pa.field("k", kind), name="k") == sql


@pytest.mark.parametrize(("given", "kind"), REFUSED, ids=lambda value: str(value))
def test_types_that_spark_does_not_compare_by_value_are_refused(given: str, kind: pa.DataType) -> None:
    with pytest.raises(SchemaMismatchError, match=r"cast the keys to the type"):
        key_sql(given, pa.field("k", kind), name="own")


def _matching(where: Any, table: pa.Table) -> list[bool]:
    bound = bind(where, table.schema)
    columns = {(name,): table.column(name) for name in table.column_names}
    return evaluate(bound, columns, table.num_rows).tolist()  # type: ignore[no-any-return]


DAY = dt.date(2013, 3, 10)
NOON = dt.datetime(2013, 3, 10, 12)
RANGES: list[tuple[str, Any, Any, list[Any], list[Any]]] = [
    ("int", pa.int64(), pa.int32(), [1, 2, 3, 1000, 1001, -50, -49], [4, 999, -48, -51]),
    ("uint64", pa.decimal128(20, 0), pa.uint64(), [1, 2, 2**64 - 1], [3, 2**63]),
    ("decimal", pa.decimal128(9, 2), pa.decimal128(12, 4), [Decimal("1.5"), Decimal("1.75"), Decimal(80)],
     [Decimal("1.4999"), Decimal("79.9999")]),
    ("double", pa.float64(), pa.float64(), [0.0, 0.5, 1e300, float("inf")], [0.6, 1e299, -0.1, float("nan")]),
    ("nan", pa.float64(), pa.float32(), [0.5, float("nan")], [0.25]),
    ("text", pa.large_string(), pa.string(), ["ab1", "ab2", "zz", "zz\U0001f600"], ["ab3", "a", "z", ""]),
    ("binary", pa.large_binary(), pa.binary(2), [b"\0\0", b"\0\xff", b"\xff\xff"], [b"\x01\0", b"\xfe\xff"]),
    ("date", pa.date32(), pa.date64(), [DAY, DAY + dt.timedelta(1), dt.date(1500, 1, 1)], [DAY + dt.timedelta(2)]),
    ("timestamp", pa.timestamp("us", "UTC"), pa.timestamp("ms", "UTC"), [NOON, NOON + dt.timedelta(days=9)],
     [NOON + dt.timedelta(days=5)]),
    ("time", pa.time64("ns"), pa.time32("s"), [dt.time(1), dt.time(1, 0, 1), dt.time(23)], [dt.time(12)]),
    ("duration", pa.duration("us"), pa.duration("s"), [dt.timedelta(0), dt.timedelta(1)], [dt.timedelta(seconds=5)]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("of_keys", "of_files", "keys", "others"), [case[1:] for case in RANGES], ids=[case[0] for case in RANGES]
)
def test_ranges_hold_all_keys_and_leave_out_what_is_far(
    of_keys: Any, of_files: Any, keys: list[Any], others: list[Any]
) -> None:
    table = pa.table({"k": pa.array([*keys, *others, None], of_files)})
    where = range_predicate(table.schema.field("k"), key_ranges(pa.array(keys, of_keys), 3))
    assert _matching(where, table) == [True] * len(keys) + [False] * (len(others) + 1)


NANOS: list[tuple[str, Any, Any]] = [
    ("timestamp", pa.timestamp("us", "UTC"), pa.timestamp("ns", "UTC")),
    ("local", pa.timestamp("us"), pa.timestamp("ns")),
    ("time", pa.time64("us"), pa.time64("ns")),
    ("duration", pa.duration("us"), pa.duration("ns")),
]


@pytest.mark.parametrize(
    ("of_keys", "of_files"), [case[1:] for case in NANOS], ids=[case[0] for case in NANOS]
)
def test_all_nanoseconds_of_a_microsecond_match_it(of_keys: Any, of_files: Any) -> None:
    table = pa.table({"k": pa.array([4999, 5000, 5999, 6000, 9000, None], of_files)})
    keys = pa.table({"k": pa.array([5, 9], of_keys)})
    where = tuple_predicate([table.schema.field("k")], keys)
    assert _matching(where, table) == [False, True, True, False, True, False]


def test_sorted_batches_become_ranges_between_the_widest_gaps() -> None:
    rng = np.random.default_rng(5)
    clusters = [rng.integers(0, 1000, 3000) + start for start in range(0, 64_000_000, 1_000_000)]
    values = np.sort(np.concatenate(clusters))
    batches = [
        pa.RecordBatch.from_arrays([pa.array(part)], ["k"])
        for part in np.array_split(values, 100)
        if len(part)
    ]
    (found,) = ranges_of_batches(iter(batches))
    assert found.column("low").to_pylist() == [int(part.min()) for part in clusters]
    assert found.column("high").to_pylist() == [int(part.max()) for part in clusters]
    few = joined_ranges(pa.Table.from_batches([found]), 2)
    assert few.num_rows == 2
    assert few.column("low")[0].as_py() == values[0]
    assert few.column("high")[1].as_py() == values[-1]


def test_a_partition_without_keys_has_no_range() -> None:
    assert list(ranges_of_batches(iter([]))) == []
    nothing = pa.table({"low": pa.array([], pa.int64()), "high": pa.array([], pa.int64())})
    table = pa.table({"k": pa.array([1, None])})
    assert _matching(range_predicate(table.schema.field("k"), nothing), table) == [False, False]


def test_tuples_of_few_days_are_matched_day_by_day() -> None:
    rng = np.random.default_rng(3)
    keys = pa.table({"number": rng.integers(0, 1000, 300), "day": rng.integers(0, 5, 300).astype(np.int32)})
    rows = pa.table({"number": np.tile(np.arange(1000), 6), "day": np.repeat(np.arange(6), 1000)})
    where = tuple_predicate([rows.schema.field("number"), rows.schema.field("day")], keys)
    wanted = set(zip(keys["number"].to_pylist(), keys["day"].to_pylist(), strict=True))
    pairs = zip(rows["number"].to_pylist(), rows["day"].to_pylist(), strict=True)
    assert _matching(where, rows) == [pair in wanted for pair in pairs]


def test_tuples_of_many_values_are_matched_column_by_column() -> None:
    keys = pa.table({"a": np.arange(100), "b": np.arange(100) + 1000, "c": ["x", "y"] * 50})
    rows = pa.table(
        {"a": [0, 0, 0, 1, None], "b": [1000, 1000, 1001, 1099, 1000], "c": ["x", "y", "x", "y", "x"]}
    )
    where = tuple_predicate([rows.schema.field(name) for name in "abc"], keys)
    # (1, 1099, y) is no key, but all of its values belong to keys with a y.
    assert _matching(where, rows) == [True, False, False, True, False]


def test_narrow_decimals_are_listed_as_integers() -> None:
    values = pa.chunked_array([pa.array([Decimal("1.50"), None, Decimal("1.5")], pa.decimal128(9, 2))])
    assert key_list(values).equals(pa.array([Decimal("1.50")], pa.decimal64(9, 2)))


def test_a_million_keys_prune_a_file_to_the_pages_that_hold_some(tmp_path: Any) -> None:
    """A scan with them takes one search of the page bounds in the sorted keys, not one per key."""
    path = tmp_path / "a.parquet"
    accel.write_table(pa.table({"k": np.arange(200_000) * 10}), path, row_group_size=100_000)
    keys = np.concatenate([np.arange(500_000, 501_000), np.arange(10_000_000, 11_000_000)])
    scan = accel.scan(str(path), where=accel.col("k").isin(keys))
    assert scan.count_rows() == 100
