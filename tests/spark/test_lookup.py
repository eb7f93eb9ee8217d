"""accel.spark.lookup inside a real Spark: its rows are those of Spark's own join, and it reads little."""

from __future__ import annotations

import datetime as dt
import functools
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 400
ZONE = "America/New_York"
DAYS = [dt.date(1500, 3, 1), dt.date(1969, 12, 31), dt.date(2013, 3, 10), dt.date(2013, 11, 3)]
NIGHTS = [dt.datetime.combine(day, dt.time(hour, 30)) for day in DAYS[1:] for hour in (0, 1, 2, 3, 5)]
MIDNIGHTS = [dt.datetime.combine(day, dt.time()) for day in DAYS[1:]]
LOCAL = [*NIGHTS, *MIDNIGHTS]
INSTANTS = [moment.replace(tzinfo=dt.UTC) for moment in LOCAL]
INSTANTS += [moment + dt.timedelta(hours=shift) for moment in INSTANTS for shift in (4, 5)]
FLOATS = [
    float("nan"),
    0.0,
    -0.0,
    float("inf"),
    float("-inf"),
    0.1,
    1.5,
    float(np.float32(0.1)),
    2.0**53,
    7.0,
]
TEXTS = ["", "a", "a ", "A", "é", "e\u0301", "\U0001f600", "2013-03-10", "x" * 70]
UUIDS = [str(uuid.UUID(int=number * 2**100 + 5)) for number in range(6)]
TIMES = [dt.time(0, 0), dt.time(1, 2, 3, 4), dt.time(23, 59, 59, 999999)]


@dataclass(frozen=True)
class Pair:
    """Values and type of the files' column, and those of the DataFrame's, whose type Spark casts them to."""

    id: str
    values: Sequence[Any]
    column: pa.DataType
    keys: Sequence[Any]
    given: pa.DataType
    cast: str


def _decimals(*texts: str) -> list[Decimal]:
    return [Decimal(text) for text in texts]


SMALL = [-128, -1, 0, 1, 7, 127]
NUMBERS = [
    Pair("int-bigint", [*SMALL, 2**31 - 1], pa.int32(), [*SMALL, 2**31 - 1, 2**40, 2**32 + 7], pa.int64(), "bigint"),
    Pair("bigint-int", [*SMALL, 2**40, 2**32 + 7], pa.int64(), SMALL, pa.int32(), "int"),
    Pair("tinyint-smallint", SMALL, pa.int8(), [*SMALL, 128, 256 + 7], pa.int16(), "smallint"),
    Pair("uint32-bigint", [0, 7, 2**32 - 1], pa.uint32(), [0, 7, -1, 2**32 - 1], pa.int64(), "bigint"),
    Pair("uint64-decimal", [0, 7, 2**64 - 1], pa.uint64(), _decimals("0", "7", "-1", str(2**64 - 1)),
         pa.decimal128(20, 0), "decimal(20,0)"),
    Pair("bigint-decimal", SMALL, pa.int64(), _decimals("7", "7.50", "-1.00", "99999"), pa.decimal128(10, 2),
         "decimal(10,2)"),
    Pair("decimal-decimal", _decimals("7.00", "7.25", "-1.10", "0"), pa.decimal128(9, 2),
         _decimals("7", "7.25", "7.2501", "-1.1", "0.001"), pa.decimal128(12, 4), "decimal(12,4)"),
    Pair("wide_decimal-bigint", _decimals("7", "7.5", "-1", "1e20"), pa.decimal128(38, 10), SMALL, pa.int64(), "bigint"),
    Pair("double-double", FLOATS, pa.float64(), FLOATS, pa.float64(), "double"),
    Pair("float-double", FLOATS, pa.float32(), FLOATS, pa.float64(), "double"),
    Pair("double-float", FLOATS, pa.float64(), FLOATS, pa.float32(), "float"),
]  # fmt: skip
TEXTS_AND_BYTES = [
    Pair("text", TEXTS, pa.string(), [*TEXTS, "b"], pa.string(), "string"),
    Pair("dictionary", TEXTS, pa.dictionary(pa.int32(), pa.string()), [*TEXTS, "b"], pa.string(), "string"),
    Pair("binary", [b"", b"\0", b"\0\0", b"ab"], pa.binary(), [b"", b"\0\0", b"ab", b"b"], pa.binary(), "binary"),
    Pair("fixed-binary", [b"\0\0", b"ab"], pa.binary(2), [b"", b"\0", b"\0\0", b"ab", b"abc"], pa.binary(), "binary"),
    Pair("boolean", [True, False], pa.bool_(), [True], pa.bool_(), "boolean"),
    Pair("uuid-text", UUIDS, pa.uuid(), [*UUIDS[:4], UUIDS[4].upper(), "no uuid"], pa.string(), "string"),
]  # fmt: skip
MOMENTS = [
    Pair("date-date", DAYS, pa.date32(), DAYS[:3], pa.date32(), "date"),
    Pair("date-timestamp", DAYS[1:], pa.date32(), INSTANTS, pa.timestamp("us", "UTC"), "timestamp"),
    Pair("date-ntz", DAYS[1:], pa.date32(), LOCAL, pa.timestamp("us"), "timestamp_ntz"),
    Pair("date-text", DAYS[1:], pa.date32(), ["2013-03-10", "2013-3-10", "1969-12-31"], pa.string(), "string"),
    Pair("timestamp-timestamp", INSTANTS, pa.timestamp("us", "UTC"), INSTANTS[::2], pa.timestamp("us", "UTC"), "timestamp"),
    Pair("timestamp_ms-timestamp", INSTANTS, pa.timestamp("ms", "UTC"), INSTANTS[::2], pa.timestamp("us", "UTC"),
         "timestamp"),
    Pair("timestamp-date", INSTANTS, pa.timestamp("us", "UTC"), DAYS[1:], pa.date32(), "date"),
    Pair("timestamp-ntz", INSTANTS, pa.timestamp("us", "UTC"), LOCAL, pa.timestamp("us"), "timestamp_ntz"),
    Pair("timestamp-text", INSTANTS, pa.timestamp("us", "UTC"), ["2013-03-10 01:30:00", "2013-11-03T05:30:00Z"],
         pa.string(), "string"),
    Pair("ntz-ntz", LOCAL, pa.timestamp("us"), LOCAL[::2], pa.timestamp("us"), "timestamp_ntz"),
    Pair("ntz-date", LOCAL, pa.timestamp("us"), DAYS[1:], pa.date32(), "date"),
    Pair("time", TIMES, pa.time64("us"), TIMES[1:], pa.time64("ns"), "time(6)"),
    Pair("duration", [dt.timedelta(0), dt.timedelta(microseconds=-3)], pa.duration("us"),
         [dt.timedelta(0), dt.timedelta(days=1)], pa.duration("us"), "interval day to second"),
]  # fmt: skip


def _drawn(values: Sequence[Any], kind: pa.DataType, count: int, seed: int) -> pa.Array:
    """Values by chance, a seventh of them null."""
    rng = np.random.default_rng(seed)
    chosen = rng.integers(0, len(values), count)
    drawn = [None if rng.random() < 1 / 7 else values[at] for at in chosen]
    if pa.types.is_dictionary(kind):
        return pa.array(drawn, kind.value_type).dictionary_encode()
    if kind == pa.uuid():
        raw = [None if text is None else uuid.UUID(text).bytes for text in drawn]
        return pa.ExtensionArray.from_storage(kind, pa.array(raw, pa.binary(16)))
    return pa.array(drawn, kind)


def _sorted_rows(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


@pytest.fixture(scope="module")
def in_new_york(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", ZONE)
    yield
    spark.conf.set("spark.sql.session.timeZone", before or "UTC")


@pytest.mark.usefixtures("in_new_york")
@pytest.mark.parametrize("pairs", [NUMBERS, TEXTS_AND_BYTES, MOMENTS], ids=["numbers", "text", "moments"])
def test_rows_are_those_of_sparks_own_join(spark: SparkSession, tmp_path: Path, pairs: list[Pair]) -> None:
    from pyspark.sql import functions

    found, expected = [], []
    for seed, pair in enumerate(pairs):
        folder = tmp_path / pair.id
        folder.mkdir()
        for part in range(2):
            column = _drawn(pair.values, pair.column, ROWS // 2, 2 * seed + part)
            number = np.arange(ROWS // 2, dtype=np.int64) + part * ROWS
            pq.write_table(
                pa.table({"k": column, "number": number}),
                folder / f"{part}.parquet",
                row_group_size=50,
                write_page_index=True,
            )
        given = pa.table({"k": _drawn(pair.keys, pair.given, 40, 1000 + seed), "row": np.arange(40)})
        df = spark.createDataFrame(given, accel.spark.spark_schema(given.schema))
        df = df.withColumn("k", functions.col("k").cast(pair.cast))
        own = accel.spark.read(spark, str(folder), index=None)
        named = functions.lit(pair.id).alias("pair")
        # The optimiser does not look into either side, so the casts are those of the analyser.
        expected.append(
            df.join(own.withColumnRenamed("k", "j"), functions.expr("k = j")).select(named, "row", "number")
        )
        found.append(accel.spark.lookup(df, str(folder), on="k").select(named, "row", "number"))
    wanted = _sorted_rows(functools.reduce(lambda a, b: a.union(b), expected))
    assert {row[0] for row in wanted} == {pair.id for pair in pairs}, "a pair of types matches nothing"
    assert _sorted_rows(functools.reduce(lambda a, b: a.union(b), found)) == wanted
