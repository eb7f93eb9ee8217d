"""What widens without loss, and the widening."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from accel.errors import SchemaMismatchError
from accel.planning.conform import check_schema, conform_array, widens

WIDENS = [
    (pa.int8(), pa.int64(), True),
    (pa.int64(), pa.int32(), False),
    (pa.uint8(), pa.int16(), True),
    (pa.uint8(), pa.int8(), False),
    (pa.uint32(), pa.uint64(), True),
    (pa.int8(), pa.uint64(), False),
    (pa.int32(), pa.float64(), True),
    (pa.int32(), pa.float32(), False),
    (pa.int16(), pa.float32(), True),
    (pa.int64(), pa.float64(), False),
    (pa.int32(), pa.decimal128(12, 2), True),
    (pa.int32(), pa.decimal128(11, 2), False),
    (pa.float16(), pa.float32(), True),
    (pa.float64(), pa.float32(), False),
    (pa.decimal128(5, 2), pa.decimal128(7, 3), True),
    (pa.decimal128(5, 2), pa.decimal128(5, 3), False),
    (pa.string(), pa.large_string(), True),
    (pa.string(), pa.binary(), False),
    (pa.binary(4), pa.binary(), True),
    (pa.date32(), pa.date64(), True),
    (pa.date32(), pa.timestamp("us"), False),
    (pa.timestamp("ms"), pa.timestamp("us"), True),
    (pa.timestamp("us"), pa.timestamp("ms"), False),
    (pa.timestamp("us"), pa.timestamp("us", "UTC"), False),
    (pa.timestamp("us", "UTC"), pa.timestamp("us", "Europe/Paris"), True),
    (pa.time32("ms"), pa.time64("us"), True),
    (pa.null(), pa.list_(pa.int8()), True),
    (pa.dictionary(pa.int8(), pa.string()), pa.string(), True),
    (pa.string(), pa.dictionary(pa.int32(), pa.string()), True),
    (pa.list_(pa.int8()), pa.large_list(pa.int16()), True),
    (pa.list_(pa.int16()), pa.list_(pa.int8()), False),
    (pa.struct([("a", pa.int8())]), pa.struct([("a", pa.int16()), ("b", pa.string())]), True),
    (pa.struct([("a", pa.int16())]), pa.struct([("a", pa.int8())]), False),
    (pa.bool_(), pa.int8(), False),
]


@pytest.mark.parametrize(("have", "to", "expected"), WIDENS, ids=lambda v: str(v))
def test_widens(have: pa.DataType, to: pa.DataType, expected: bool) -> None:
    assert widens(have, to) is expected


@pytest.mark.parametrize(("have", "to", "_"), [case for case in WIDENS if case[2]], ids=lambda v: str(v))
def test_what_widens_converts_nulls_and_all(have: pa.DataType, to: pa.DataType, _: bool) -> None:
    out = conform_array(pa.nulls(3, have), to)
    assert out.type == to
    assert out.null_count == 3
    assert len(out) == 3


def test_values_survive() -> None:
    assert conform_array(pa.array([1, None], pa.int8()), pa.decimal128(5, 1)).to_pylist() == [
        Decimal("1.0"),
        None,
    ]
    stamps = conform_array(pa.array([1, -1], pa.timestamp("ms")), pa.timestamp("us"))
    assert stamps.to_pylist() == [
        datetime.datetime(1970, 1, 1, 0, 0, 0, 1000),
        datetime.datetime(1969, 12, 31, 23, 59, 59, 999000),
    ]
    encoded = conform_array(pa.array(["x", None, "x"]), pa.dictionary(pa.int32(), pa.string()))
    assert encoded.type == pa.dictionary(pa.int32(), pa.string())
    assert encoded.to_pylist() == ["x", None, "x"]


def test_struct_children_by_name_missing_ones_null() -> None:
    array = pa.array(
        [{"b": 1, "a": 2}, None, {"b": None, "a": 3}], pa.struct([("b", pa.int8()), ("a", pa.int8())])
    )
    to = pa.struct([("a", pa.int16()), ("c", pa.string()), ("b", pa.int8())])
    out = conform_array(array.slice(1), to)
    assert out.type == to
    assert out.to_pylist() == [None, {"a": 3, "c": None, "b": None}]


def test_overflow_is_a_mismatch() -> None:
    far = pa.array([2**62], pa.timestamp("ms"))
    with pytest.raises(SchemaMismatchError, match="'t'"):
        conform_array(far, pa.timestamp("ns"), url="f.parquet", name="t")


def test_check_schema_names_file_column_and_types() -> None:
    with pytest.raises(
        SchemaMismatchError, match=r"part-2\.parquet: column 'x' is double here and int32"
    ) as info:
        check_schema(pa.schema([("x", pa.float64())]), pa.schema([("x", pa.int32())]), url="part-2.parquet")
    assert info.value.hint is not None
