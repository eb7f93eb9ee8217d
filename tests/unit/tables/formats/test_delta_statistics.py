"""Statistics of a Delta log are claims, which are widened where writers cut values."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from accel.tables.formats.delta.schema import StatisticsLeaf
from accel.tables.formats.delta.statistics import read_parsed, read_texts


def leaf(kind: pa.DataType, name: str = "c", *, widened: bool = False) -> StatisticsLeaf:
    return StatisticsLeaf((name,), (name,), kind, widened=widened)


def bounds(
    low: Any, high: Any, kind: pa.DataType, *, widened: bool = False, **more: Any
) -> tuple[Any, Any, Any]:
    text = json.dumps(
        {"numRecords": 9, "minValues": {"c": low}, "maxValues": {"c": high}, "nullCount": {"c": 2}, **more}
    )
    found, _ = read_texts(pa.array([text]), [leaf(kind, widened=widened)])
    one = found.bounds[("c",)]
    assert one.lower is not None and one.upper is not None and one.null_count is not None
    assert one.lower.type == one.upper.type == kind
    return one.lower[0].as_py(), one.upper[0].as_py(), one.null_count[0].as_py()


def test_numbers_and_days_are_as_they_are() -> None:
    assert bounds(-5, 7, pa.int32()) == (-5, 7, 2)
    assert bounds(0.5, 2.5, pa.float64()) == (0.5, 2.5, 2)
    day = datetime.date(2024, 2, 29)
    assert bounds("2024-02-29", "2024-02-29", pa.date32()) == (day, day, 2)
    assert bounds(1.25, 3.5, pa.decimal128(5, 2)) == (Decimal("1.25"), Decimal("3.50"), 2)


def test_times_were_cut_at_milliseconds() -> None:
    zoned = pa.timestamp("us", "UTC")
    low, high, _ = bounds("2024-01-01T00:00:00.123Z", "2024-01-01T01:00:00.123+01:00", zoned)
    assert low == datetime.datetime(2024, 1, 1, 0, 0, 0, 123000, datetime.UTC)
    assert high == datetime.datetime(2024, 1, 1, 0, 0, 0, 123999, datetime.UTC)
    plain = bounds("2024-01-01T00:00:00.123", "2024-01-01T00:00:00.123", pa.timestamp("us"))
    assert plain[1] == datetime.datetime(2024, 1, 1, 0, 0, 0, 123999)


def test_texts_were_cut_somewhere() -> None:
    low, high, _ = bounds("abc", "abz", pa.string())
    assert low == "abc"
    assert high > "abzzzzz\U0010fffe"


def test_decimals_of_many_digits_were_rounded() -> None:
    kind = pa.decimal128(38, 10)
    value = Decimal("12345678901234567890.1234567891")
    low, high, _ = bounds(float(value), float(value), kind)
    assert low < value < high
    assert bounds(1e40, -1e40, kind)[:2] == (None, None)


def test_floats_that_became_doubles_had_the_shortest_text() -> None:
    true = float.fromhex("0x1.19999ap+0")  # what the float of the text 1.1 is
    assert bounds(1.1, 1.1, pa.float64())[1] < true
    low, high, _ = bounds(1.1, 1.1, pa.float64(), widened=True)
    assert low <= true <= high
    assert bounds(1.1, 1.1, pa.float32())[0] == pytest.approx(true, abs=0)


def test_null_counts_are_wide_after_a_deletion() -> None:
    for count, meant in ((0, 0), (9, 9), (3, None)):
        found = bounds(1, 2, pa.int64(), tightBounds=False, nullCount={"c": count})
        assert found == (1, 2, meant)
    assert bounds(1, 2, pa.int64(), tightBounds=True, nullCount={"c": 3})[2] == 3


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[1]",
        '{"numRecords": "x", "minValues": {"c": "a"}}',
        '{"minValues": 5, "nullCount": {"c": -4}}',
        '{"minValues": {"c": 1e400}, "maxValues": {"c": 99999999999999999999}}',
        '{"minValues": {"c": true}}',
        "[" * 100_000,
    ],
)
def test_what_is_no_statistic_is_no_bound(text: str) -> None:
    good = '{"numRecords": 4, "minValues": {"c": 1}, "maxValues": {"c": 2}, "nullCount": {"c": 0}}'
    found, bad = read_texts(pa.array([good, text, None]), [leaf(pa.int64())])
    one = found.bounds[("c",)]
    assert one.lower is not None and one.upper is not None and one.null_count is not None
    assert one.lower.to_pylist() == [1, None, None]
    assert one.upper.to_pylist() == [2, None, None]
    assert one.null_count.to_pylist() == [0, None, None]
    assert found.num_rows.to_pylist() == [4, None, None]
    assert bad <= 1


def test_a_number_beyond_the_type_is_no_bound() -> None:
    assert bounds(-(2**40), 2**40, pa.int32()) == (None, None, 2)


def test_nested_columns_are_found_by_their_physical_names() -> None:
    deep = StatisticsLeaf(("a", "b"), ("x", "y"), pa.int64())
    text = '{"numRecords": 1, "minValues": {"x": {"y": 3}}, "maxValues": {"x": {"y": 4}}, "nullCount": {"x": {"y": 0}}}'
    found, _ = read_texts(pa.array([text, "{}"]), [deep])
    assert found.bounds["a", "b"].lower is not None
    assert found.bounds["a", "b"].lower.to_pylist() == [3, None]


def test_columns_without_bounds_have_null_counts() -> None:
    """Booleans and bytes have no bounds; their nulls are counted, beside columns that have some."""
    text = '{"numRecords": 5, "minValues": {"c": 1}, "maxValues": {"c": 2}, "nullCount": {"b": 5, "c": 0}}'
    found, _ = read_texts(pa.array([text]), [leaf(pa.bool_(), "b"), leaf(pa.int64())])
    one = found.bounds[("b",)]
    assert one.null_count is not None
    assert (one.lower, one.upper, one.null_count.to_pylist()) == (None, None, [5])


def test_parsed_statistics_of_an_older_type() -> None:
    struct = pa.array(
        [{"numRecords": 2, "minValues": {"c": 1}, "maxValues": {"c": 5}, "nullCount": {"c": 0}}],
        pa.struct(
            [
                ("numRecords", pa.int64()),
                *((name, pa.struct([("c", pa.int32())])) for name in ("minValues", "maxValues", "nullCount")),
            ]
        ),
    )
    one = read_parsed(struct, [leaf(pa.int64())]).bounds[("c",)]
    assert one.lower is not None and one.upper is not None
    assert (one.lower.type, one.lower.to_pylist(), one.upper.to_pylist()) == (pa.int64(), [1], [5])
    other = read_parsed(struct, [leaf(pa.string())]).bounds[("c",)]
    assert other.lower is None
    assert read_parsed(struct, [leaf(pa.int64(), "d")]).bounds[("d",)].lower is None
