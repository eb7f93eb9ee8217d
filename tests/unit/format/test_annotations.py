"""What a leaf is annotated with, read one way for whoever asks."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from accel.format.schema import ConvertedType, LogicalType, time_unit
from tests.unit.format.files import parse, write

PLAIN = parse(write(pa.Table.from_arrays([pa.array([1])], names=["t"]))).schema.elements[1]


@pytest.mark.parametrize(
    ("logical", "params", "converted", "unit"),
    [
        pytest.param(LogicalType.TIMESTAMP, {"unit": 1}, None, "ms", id="milliseconds"),
        pytest.param(LogicalType.TIME, {"unit": 2}, None, "us", id="microseconds"),
        pytest.param(LogicalType.TIMESTAMP, {"unit": 3}, None, "ns", id="nanoseconds"),
        pytest.param(LogicalType.TIMESTAMP, {"unit": 4}, None, None, id="a unit to come"),
        pytest.param(LogicalType.TIMESTAMP, {}, None, None, id="no unit"),
        pytest.param(None, {}, ConvertedType.TIME_MILLIS, "ms", id="older, time in ms"),
        pytest.param(None, {}, ConvertedType.TIME_MICROS, "us", id="older, time in us"),
        pytest.param(None, {}, ConvertedType.TIMESTAMP_MILLIS, "ms", id="older, timestamp in ms"),
        pytest.param(None, {}, ConvertedType.TIMESTAMP_MICROS, "us", id="older, timestamp in us"),
        pytest.param(
            LogicalType.TIMESTAMP,
            {"unit": 3},
            ConvertedType.TIMESTAMP_MILLIS,
            "ns",
            id="the newer one counts",
        ),
        pytest.param(None, {}, ConvertedType.DATE, None, id="another type"),
        pytest.param(None, {}, None, None, id="none"),
    ],
)
def test_time_unit(
    logical: int | None, params: dict[str, int], converted: int | None, unit: str | None
) -> None:
    element = replace(PLAIN, logical_type=logical, logical_params=params, converted_type=converted)
    assert time_unit(element) == unit


@pytest.mark.parametrize(
    ("kind", "logical", "converted"),
    [
        (pa.string(), LogicalType.STRING, ConvertedType.UTF8),
        (pa.decimal128(9, 2), LogicalType.DECIMAL, ConvertedType.DECIMAL),
        (pa.date32(), LogicalType.DATE, ConvertedType.DATE),
        (pa.time32("ms"), LogicalType.TIME, None),
        (pa.timestamp("us", "UTC"), LogicalType.TIMESTAMP, ConvertedType.TIMESTAMP_MICROS),
        (pa.uint8(), LogicalType.INTEGER, ConvertedType.UINT_8),
        (pa.int16(), LogicalType.INTEGER, ConvertedType.INT_16),
        (pa.float16(), LogicalType.FLOAT16, None),
        (pa.json_(), LogicalType.JSON, ConvertedType.JSON),
        (pa.uuid(), LogicalType.UUID, None),
        (pa.int64(), None, None),
    ],
    ids=str,
)
def test_what_pyarrow_writes(kind: pa.DataType, logical: int | None, converted: int | None) -> None:
    """The numbers are those of another implementation."""
    element = parse(write(pa.table({"a": pa.nulls(1, kind)}))).schema.elements[1]
    assert (element.logical_type, element.converted_type) == (logical, converted)
