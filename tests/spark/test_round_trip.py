"""Every type that accel converts arrives in Spark with the expected value, and Spark can work with it."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.spark import spark_ddl, spark_schema
from accel.spark.types import spark_conversion
from tests.spark.cases import CONVERTED, PARIS, TAKEN, UTC, TypeCase

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

ALL = [*TAKEN, *CONVERTED, UTC, PARIS]


def _plain(value: object) -> object:
    """Spark's Rows and bytearrays as plain values; local instants as UTC."""
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, list):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if hasattr(value, "asDict"):
        return {k: _plain(v) for k, v in value.asDict().items()}
    return value


def _instants(case: TypeCase, values: list[object]) -> list[object]:
    # Spark's collect() gives instants as naive local time of this machine.
    if case.ddl != "TIMESTAMP":
        return values
    return [v.astimezone(dt.UTC) if isinstance(v, dt.datetime) else v for v in values]


def test_all_types_at_once(spark: SparkSession) -> None:
    """One job for all types: a column each, all cut or filled up to eight rows."""
    rows = 8
    arrays = [pa.concat_arrays([c.array, pa.nulls(rows - len(c.array), c.array.type)]) for c in ALL]
    batch = pa.RecordBatch.from_arrays(arrays, names=[c.id for c in ALL])
    convert = spark_conversion(batch.schema)
    assert convert is not None
    converted = convert(batch)
    schema = spark_schema(batch.schema)

    def give(batches):  # type: ignore[no-untyped-def]
        for _ in batches:
            pass
        yield converted

    frame = spark.range(1, numPartitions=1).mapInArrow(give, schema)
    got = frame.collect()
    seen = {c.id: _instants(c, [_plain(row[c.id]) for row in got]) for c in ALL}
    assert seen == {c.id: c.values + [None] * (rows - len(c.values)) for c in ALL}
    # Spark's own parser reads our DDL as the same schema.
    assert spark.range(1).mapInArrow(give, spark_ddl(batch.schema)).schema == schema


# What pyarrow writes to Parquet, and reads back as the type itself.
IN_FILES = [
    case
    for case in ALL
    if case.id
    not in {
        "decimal_negative_scale",
        "decimal32",
        "decimal64",
        "list_view",
        "large_list_view",
        "string_view",
        "binary_view",
        "bool8",
        "dictionary_of_uint8",
        "map",
    }
]


def test_all_types_from_a_file(spark: SparkSession, tmp_path: Path) -> None:
    rows = 8
    arrays = [pa.concat_arrays([c.array, pa.nulls(rows - len(c.array), c.array.type)]) for c in IN_FILES]
    path = tmp_path / "types.parquet"
    pq.write_table(pa.Table.from_arrays(arrays, names=[c.id for c in IN_FILES]), path)
    got = accel.spark.read(spark, str(path)).collect()
    seen = {c.id: _instants(c, [_plain(row[c.id]) for row in got]) for c in IN_FILES}
    assert seen == {c.id: c.values + [None] * (rows - len(c.values)) for c in IN_FILES}


def test_time_compares_as_it_looks(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "time.parquet"
    table = pa.Table.from_arrays([pa.array([999, 1000, 1999, 2000], pa.time64("ns"))], names=["t"])
    pq.write_table(table, path)
    frame = accel.spark.read(spark, str(path))
    assert frame.where("t = TIME '00:00:00.000001'").count() == 2


@pytest.mark.parametrize(
    ("declared", "seen"),
    [("b long, a long", {"b": 1, "a": 2}), ("a long", {"a": 1})],
    ids=["names are not looked at", "columns too many are dropped"],
)
def test_what_spark_does_with_positions(spark: SparkSession, declared: str, seen: dict[str, int]) -> None:
    """Not ours to change; the documentation says so, and this notices when it is no longer true."""
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["a", "b"])

    def give(batches):  # type: ignore[no-untyped-def]
        for _ in batches:
            pass
        yield batch

    assert spark.range(1, numPartitions=1).mapInArrow(give, declared).collect()[0].asDict() == seen
