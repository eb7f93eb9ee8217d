"""Every type that accel converts arrives in Spark with the expected value, and Spark can work with it."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.decode.spark_types import spark_conversion
from accel.spark import spark_ddl, spark_schema
from tests.spark.cases import CONVERTED, PARIS, TAKEN, UTC, TypeCase

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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


EXPRESSIONS = [
    "id",
    "cast(id as tinyint) as tiny",
    "cast(id as smallint) as small",
    "cast(id as int) as int",
    "cast(id as float) / 3 as float",
    "if(id % 7 = 0, null, cast(id as double) / 7) as double",
    "id % 2 = 0 as bool",
    "cast(id as decimal(9,2)) as d9",
    "cast(id as decimal(18,4)) as d18",
    "cast(id as decimal(38,10)) as d38",
    "if(id % 5 = 0, null, concat('text ', id)) as text",
    "cast(concat('bytes ', id) as binary) as bytes",
    "date_add(date'1969-12-25', cast(id as int)) as day",
    "timestamp_micros(id * 1234567 - 1000000) as instant",
    "timestamp_ntz'2013-01-01 00:00:00' + make_dt_interval(0, 0, 0, id) as local",
    "if(id % 3 = 0, null, sequence(0, id % 4)) as list",
    "named_struct('a', id, 'b', if(id % 4 = 0, null, array(named_struct('c', id)))) as struct",
    "map('x', id, 'y', if(id % 2 = 0, null, id)) as map",
    "array() as void_list",
    "named_struct('a', id, 'b', array(array())) as void_struct",
]


def written_as(spark: SparkSession, timestamps: str, tmp_path: Path, data: DataFrame) -> str:
    """A folder with the data, its timestamps stored as told."""
    folder = str(tmp_path / "written")
    spark.conf.set("spark.sql.parquet.outputTimestampType", timestamps)
    try:
        data.write.parquet(folder)
    finally:
        spark.conf.unset("spark.sql.parquet.outputTimestampType")
    return folder


@pytest.mark.parametrize("outputs", ["TIMESTAMP_MICROS", "TIMESTAMP_MILLIS"])
def test_files_that_spark_wrote(spark: SparkSession, tmp_path: Path, outputs: str) -> None:
    """Every type that Spark writes comes back as Spark's own reader gives it, schema and values."""
    folder = written_as(
        spark, outputs, tmp_path, spark.range(0, 100, numPartitions=2).selectExpr(*EXPRESSIONS)
    )
    own = spark.read.parquet(folder)
    ours = accel.spark.read(spark, folder)
    assert ours.schema.simpleString() == own.schema.simpleString()
    assert sorted(ours.collect(), key=lambda row: row.id) == sorted(own.collect(), key=lambda row: row.id)
    selective = accel.spark.read(spark, folder, where="id = 42 OR text = 'text 7'")
    assert sorted(selective.collect()) == sorted(own.where("id = 42 OR text = 'text 7'").collect())


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_int96_that_spark_wrote(spark: SparkSession, tmp_path: Path, zone: str) -> None:
    """The same instants, at any depth, and under the session's zone the same answers; without a zone where
    asked for."""
    columns = [
        "id",
        "timestamp_micros(id * 123456789 - 1000000001) as at",
        "array(named_struct('at', if(id = 3, null, timestamp_seconds(id)))) as nested",
    ]
    folder = written_as(spark, "INT96", tmp_path, spark.range(0, 50, numPartitions=1).selectExpr(*columns))
    accel.spark.register(spark)
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        own = spark.read.parquet(folder)
        for ours in (accel.spark.read(spark, folder), spark.read.format("accel").load(folder)):
            assert ours.schema == own.schema
            for frame in (ours, ours.where("at > '1970-01-01 00:00:30' AND hour(at) < 20")):
                alike = own if frame is ours else own.where("at > '1970-01-01 00:00:30' AND hour(at) < 20")
                assert frame.orderBy("id").collect() == alike.orderBy("id").collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    local = accel.spark.read(spark, folder, columns=["at"], options=accel.Options(int96_unit="us"))
    assert local.schema.simpleString() == "struct<at:timestamp_ntz>"


def test_int96_beside_other_timestamps(spark: SparkSession, tmp_path: Path) -> None:
    """A folder that was written under one setting and then another, whichever file comes first."""
    moments = "timestamp_micros(id * 123456789 - 1000000001) as at"
    columns = ["id", moments, "array(named_struct('at', if(id = 3, null, timestamp_seconds(id)))) as nested"]
    files = []
    for number, stored in enumerate(["INT96", "TIMESTAMP_MICROS", "TIMESTAMP_MILLIS"]):
        data = spark.range(number * 9, number * 9 + 9, numPartitions=1).selectExpr(*columns)
        files += Path(written_as(spark, stored, tmp_path / stored, data)).glob("*.parquet")
    own = spark.read.parquet(*map(str, files))
    for some in (files, [files[1], files[0], files[2]]):
        found = accel.spark.read(spark, some)
        assert found.schema == own.schema
        assert found.orderBy("id").collect() == own.orderBy("id").collect()
    late = accel.spark.read(spark, files[1::-1], where="at > '1970-01-01 00:00:30'")
    assert (
        late.orderBy("id").collect()
        == own.where("at > '1970-01-01 00:00:30' AND id < 18").orderBy("id").collect()
    )
    with pytest.raises(accel.SchemaMismatchError, match="give `schema=` with a type that holds both"):
        accel.spark.read(spark, files, options=accel.Options(int96_unit="us"))


def test_int96_beyond_nanoseconds(spark: SparkSession, tmp_path: Path) -> None:
    """Sentinels of far years come as Spark gives them; nanoseconds, where these are asked for, refuse
    them."""
    moments = "if(id = 2, null, timestamp'9999-12-31 23:59:59.999999' - make_interval(id * 3000)) as at"
    folder = written_as(
        spark, "INT96", tmp_path, spark.range(0, 4, numPartitions=1).selectExpr("id", moments)
    )
    own = spark.read.parquet(folder).orderBy("id").collect()
    assert len({row.at for row in own}) == 4
    ours = accel.spark.read(spark, folder)
    files = [(str(path),) for path in Path(folder).glob("*.parquet")]
    paths = spark.createDataFrame(files, "path string")
    for seen in (ours, paths.mapInArrow(accel.scan, ours.schema)):
        assert seen.orderBy("id").collect() == own
    nanos = accel.Options(int96_unit=accel.Int96Unit.NS)
    with pytest.raises(
        Exception, match=r"stored as INT96, does not fit in timestamp\[ns\] .*int96_unit=.us."
    ):
        accel.spark.read(spark, folder, options=nanos).collect()


def test_a_map_of_void_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    """pyspark cannot declare one to mapInArrow; the other columns are read."""
    folder = str(tmp_path / "void")
    spark.range(0, 2, numPartitions=1).selectExpr("id", "map() as m").write.parquet(folder)
    with pytest.raises(accel.SchemaMismatchError, match=r"column m: Spark has no type for Arrow's map<null"):
        accel.spark.read(spark, folder)
    assert accel.spark.read(spark, folder, columns=["id"]).collect() == [(0,), (1,)]


def test_unsigned_numbers_as_spark_reads_them(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "unsigned.parquet")
    kinds = (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
    arrays = [pa.array([0, 2**kind.bit_width - 1, None], kind) for kind in kinds]
    pq.write_table(pa.Table.from_arrays(arrays, names=[str(kind) for kind in kinds]), path)
    ours, own = accel.spark.read(spark, path), spark.read.parquet(path)
    assert ours.schema == own.schema
    assert ours.collect() == own.collect()
