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
from accel.decode.spark_types import to_spark_batch
from accel.errors import AccelError, ColumnNotFoundError, ObjectChangedError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.support.proxy import Proxy
    from tests.support.s3 import S3Admin

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
EPOCH = dt.datetime(1970, 1, 1)
NANOS = [
    (moment - EPOCH) // dt.timedelta(microseconds=1) * 1000 + n for moment in LOCAL for n in (-1, 0, 999)
]
TIMES = [dt.time(0, 0), dt.time(1, 2, 3, 4), dt.time(23, 59, 59, 999999)]


@dataclass(frozen=True)
class Pair:
    """Values and type of the files' column, those of the keys, and what Spark calls the type of the keys."""

    id: str
    values: Sequence[Any]
    column: pa.DataType
    keys: Sequence[Any]
    given: pa.DataType
    cast: str


def _decimals(*texts: str) -> list[Decimal]:
    return [Decimal(text) for text in texts]


SMALL = [-128, -1, 0, 1, 7, 127]
INTEGERS = [
    Pair("int-bigint", [*SMALL, 2**31 - 1], pa.int32(), [*SMALL, 2**31 - 1, 2**40, 2**32 + 7], pa.int64(), "bigint"),
    Pair("bigint-int", [*SMALL, 2**40, 2**32 + 7], pa.int64(), SMALL, pa.int32(), "int"),
    Pair("tinyint-smallint", SMALL, pa.int8(), [*SMALL, 128, 256 + 7], pa.int16(), "smallint"),
    Pair("uint32-bigint", [0, 7, 2**32 - 1], pa.uint32(), [0, 7, -1, 2**32 - 1], pa.int64(), "bigint"),
    Pair("uint64-decimal", [0, 7, 2**64 - 1], pa.uint64(), _decimals("0", "7", "-1", str(2**64 - 1)),
         pa.decimal128(20, 0), "decimal(20,0)"),
]  # fmt: skip
NUMBERS = [
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
DATES = [
    Pair("date-date", DAYS, pa.date32(), DAYS[:3], pa.date32(), "date"),
    Pair("date-timestamp", DAYS[1:], pa.date32(), INSTANTS, pa.timestamp("us", "UTC"), "timestamp"),
    Pair("date-ntz", DAYS[1:], pa.date32(), LOCAL, pa.timestamp("us"), "timestamp_ntz"),
    Pair("date-text", DAYS[1:], pa.date32(), ["2013-03-10", "2013-3-10", "1969-12-31"], pa.string(), "string"),
]  # fmt: skip
MOMENTS = [
    Pair("timestamp-timestamp", INSTANTS, pa.timestamp("us", "UTC"), INSTANTS[::2], pa.timestamp("us", "UTC"), "timestamp"),
    Pair("timestamp_ms-timestamp", INSTANTS, pa.timestamp("ms", "UTC"), INSTANTS[::2], pa.timestamp("us", "UTC"),
         "timestamp"),
    Pair("timestamp-date", INSTANTS, pa.timestamp("us", "UTC"), DAYS[1:], pa.date32(), "date"),
    Pair("timestamp-ntz", INSTANTS, pa.timestamp("us", "UTC"), LOCAL, pa.timestamp("us"), "timestamp_ntz"),
    Pair("timestamp-text", INSTANTS, pa.timestamp("us", "UTC"), ["2013-03-10 01:30:00", "2013-11-03T05:30:00Z"],
         pa.string(), "string"),
    Pair("nanoseconds", NANOS, pa.timestamp("ns"), LOCAL[:3], pa.timestamp("us"), "timestamp_ntz"),
    Pair("ntz-ntz", LOCAL, pa.timestamp("us"), LOCAL[::2], pa.timestamp("us"), "timestamp_ntz"),
    Pair("ntz-date", LOCAL, pa.timestamp("us"), DAYS[1:], pa.date32(), "date"),
    Pair("time", TIMES, pa.time64("us"), TIMES[1:], pa.time64("ns"), "time(6)"),
    Pair("duration", [dt.timedelta(0), dt.timedelta(microseconds=-3)], pa.duration("us"),
         [dt.timedelta(0), dt.timedelta(days=1)], pa.duration("us"), "interval day to second"),
]  # fmt: skip

FAMILIES = {
    "integers": INTEGERS,
    "numbers": NUMBERS,
    "text": TEXTS_AND_BYTES,
    "dates": DATES,
    "moments": MOMENTS,
}


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


def _frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    """The table in Spark's own types, as one partition."""
    schema = accel.spark.spark_arrow_schema(table.schema)
    (batch,) = table.combine_chunks().to_batches()
    taken = pa.Table.from_batches([to_spark_batch(batch, schema)])
    return spark.createDataFrame(taken, accel.spark.spark_schema(schema)).coalesce(1)


def _sorted_rows(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


@pytest.fixture(scope="module")
def in_new_york(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", ZONE)
    yield
    spark.conf.set("spark.sql.session.timeZone", before or "UTC")


@pytest.mark.usefixtures("in_new_york")
@pytest.mark.parametrize("pairs", list(FAMILIES.values()), ids=list(FAMILIES))
def test_rows_are_those_of_sparks_own_join(spark: SparkSession, tmp_path: Path, pairs: list[Pair]) -> None:
    from pyspark.sql import functions

    found, expected = [], []
    for seed, pair in enumerate(pairs):
        table = pa.table({"k": _drawn(pair.values, pair.column, ROWS, seed), "number": np.arange(ROWS)})
        path = tmp_path / f"{pair.id}.parquet"
        pq.write_table(table, path, row_group_size=50, write_page_index=True)
        keys = pa.table({"k": _drawn(pair.keys, pair.given, 40, 100 + seed), "row": np.arange(40)})
        df = _frame(spark, keys)
        own = _frame(spark, table).withColumnRenamed("k", "j")
        named = functions.lit(pair.id).alias("pair")
        expected.append(df.join(own, functions.expr("k = j")).select(named, "row", "number"))
        rows = accel.spark.lookup(df, str(path), on="k", partitions=1)
        assert rows.schema[0].dataType.simpleString() == pair.cast
        found.append(rows.select(named, "row", "number"))
    wanted = _sorted_rows(functools.reduce(lambda a, b: a.union(b), expected))
    assert {row[0] for row in wanted} == {pair.id for pair in pairs}, "a pair of types matches nothing"
    assert _sorted_rows(functools.reduce(lambda a, b: a.union(b), found)) == wanted


# -- joins, tuples and many keys ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four days of a thousand numbers each, which are sorted within a day, in pages of fifty rows."""
    root = tmp_path_factory.mktemp("data") / "days"
    rng = np.random.default_rng(7)
    for day in range(4):
        path = root / f"day={day}" / "part.parquet"
        path.parent.mkdir(parents=True)
        number = np.sort(rng.integers(0, 5000, 1000))
        table = pa.table(
            {
                "number": pa.array(number, mask=number % 50 == 3),
                "value": rng.random(1000),
                "name": ["x" * 9] * 1000,
            }
        )
        pq.write_table(table, path, row_group_size=500, write_page_index=True, max_rows_per_page=50)
    return root


@pytest.fixture(scope="module")
def wanted(spark: SparkSession) -> DataFrame:
    """Keys with duplicates and nulls."""
    rng = np.random.default_rng(8)
    number = rng.integers(0, 6000, 60)
    columns = {
        "day": rng.integers(0, 5, 60),
        "number": pa.array(number, mask=number % 10 == 0),
        "row": np.arange(60),
    }
    return _frame(spark, pa.table({**columns, "k": columns["number"]})).unionAll(
        _frame(spark, pa.table({**columns, "k": columns["number"]}))
    )


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_each_kind_of_join_is_sparks(spark: SparkSession, folder: Path, wanted: DataFrame, how: str) -> None:
    own = spark.read.parquet(str(folder)).select("day", "number", "value")
    expected = wanted.select("day", "number", "row").join(own, ["day", "number"], how).select("*")
    columns = ["value"] if how in ("inner", "left") else None
    found = accel.spark.lookup(
        wanted.select("day", "number", "row"), str(folder), on=["day", "number"], columns=columns, how=how
    )
    assert found.columns == expected.columns
    rows = _sorted_rows(found)
    assert rows == _sorted_rows(expected)
    assert len(rows) > 0


@pytest.mark.parametrize("max_keys", [1_000_000, 20, 3], ids=str)
def test_many_keys_become_ranges(spark: SparkSession, folder: Path, wanted: DataFrame, max_keys: int) -> None:
    own = spark.read.parquet(str(folder)).withColumnRenamed("day", "d").withColumnRenamed("number", "n")
    from pyspark.sql import functions

    keys = wanted.select("day", "k", "row")
    expected = keys.join(own, functions.expr("k = n AND day = d AND value < 0.5")).select(
        "day", "k", "row", "value"
    )
    found = accel.spark.lookup(
        keys,
        str(folder),
        on={"day": "day", "k": "number"},
        columns=["value"],
        where="value < 0.5",
        max_keys=max_keys,
    )
    rows = _sorted_rows(found)
    assert rows == _sorted_rows(expected)
    assert len(rows) > 0


def test_no_keys_read_nothing(spark: SparkSession, folder: Path) -> None:
    nothing = spark.createDataFrame([(None, 1)], "number long, row int")
    found = accel.spark.lookup(nothing, str(folder), on="number", how="left")
    assert [tuple(row) for row in found.collect()] == [(None, 1, None, None, None)]
    assert found.columns == ["number", "row", "value", "name", "day"]


def test_a_result_that_may_be_large_is_not_sent_to_all_executors(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    df = spark.range(0, 5000, 7).withColumnRenamed("id", "number")
    small = accel.spark.lookup(df, str(folder), on="number")
    monkeypatch.setattr("accel.spark.join.BROADCAST_BYTES", 1000)
    large = accel.spark.lookup(df, str(folder), on="number")
    plans = [frame._jdf.queryExecution().executedPlan().toString() for frame in (small, large)]
    assert ["BroadcastHashJoin" in plan for plan in plans] == [True, False]
    assert _sorted_rows(small) == _sorted_rows(large)


def test_a_file_that_changes_before_it_is_read_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"k": np.arange(1000), "v": np.arange(1000)}), path)
    found = accel.spark.lookup(spark.range(10).withColumnRenamed("id", "k"), str(path), on="k")
    pq.write_table(pa.table({"k": np.arange(2000), "v": np.arange(2000)}), path)
    with pytest.raises(Exception, match=ObjectChangedError.__name__):
        found.collect()


def test_executors_read_only_the_pages_that_may_match(
    spark: SparkSession, folder: Path, bucket: str, s3: S3Admin, proxy: Proxy
) -> None:
    """The driver alone asks for metadata; every read is pinned to the version that was planned."""
    for path in sorted(folder.glob("*/*.parquet")):
        s3.put(bucket, f"days/{path.relative_to(folder).as_posix()}", path.read_bytes())
    numbers = pq.read_table(folder / "day=2" / "part.parquet").column("number")[500:520]
    keys = pa.table({"day": pa.array([2] * len(numbers)), "number": numbers})
    found = accel.spark.lookup(
        _frame(spark, keys),
        f"s3://{bucket}/days/",
        on=["day", "number"],
        columns=["value"],
        storage_options=s3.storage_options(proxy.url),
        cache=None,
    )
    proxy.reset()
    rows = found.collect()
    assert {row.number for row in rows} == set(numbers.to_pylist()) - {None}
    passages = proxy.passages
    assert {passage.path.partition("?")[0].replace("day=", "day%3D") for passage in passages} == {
        f"/{bucket}/days/day%3D2/part.parquet"
    }
    assert {(passage.method, passage.status, passage.if_match is not None) for passage in passages} == {
        ("GET", 206, True)
    }
    # A page of fifty numbers and one of fifty values, and a dictionary for each; the file has four times ten
    # of both.
    assert len(passages) <= 4
    assert proxy.bytes < (folder / "day=2" / "part.parquet").stat().st_size / 2


# -- keys that an index outside the files looks up ----------------------------------------------------

UNSORTED_FILES, UNSORTED_ROWS = 6, 500


@pytest.fixture(scope="module")
def unsorted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that each span all ids and names, so that neither bounds nor pages rule anything out."""
    root = tmp_path_factory.mktemp("unsorted") / "files"
    root.mkdir()
    ids = np.random.default_rng(9).permutation(UNSORTED_FILES * UNSORTED_ROWS)
    for number, some in enumerate(np.split(ids, UNSORTED_FILES)):
        names = pa.array([f"name {one // 10:04d}" for one in some], mask=some % 100 == 7)
        kinds = [("kind 0", f"kind {1 + number}", "kind 9")[one % 3] for one in some]
        table = pa.table({"id": some, "name": names, "value": some * 0.5, "kind": kinds})
        pq.write_table(table, root / f"{number}.parquet", write_page_index=True, max_rows_per_page=50)
    return root


INDEXES: list[tuple[str, dict[Any, Any], list[str], int]] = [
    ("keys", {"id": "keys"}, ["id"], 3 * 50),
    ("text", {"name": "keys"}, ["name"], 30 * 50),
    ("bloom", {"id": "bloom"}, ["id"], 4 * UNSORTED_ROWS),
    ("two_columns", {("name", "id"): "keys"}, ["name", "id"], 3 * 50),
    ("a_key_of_one_of_two", {"id": "keys"}, ["name", "id"], 3 * 50),
    ("distinct", {"kind": "distinct"}, ["kind", "id"], 3 * UNSORTED_ROWS),
]


@pytest.mark.parametrize(
    ("indexes", "on", "most_rows"), [case[1:] for case in INDEXES], ids=[case[0] for case in INDEXES]
)
def test_keys_are_looked_up_in_the_index(
    spark: SparkSession,
    unsorted: Path,
    tmp_path: Path,
    indexes: dict[Any, Any],
    on: list[str],
    most_rows: int,
) -> None:
    """The rows are Spark's, and pages are read that the index names."""
    accel.build_index(str(unsorted), to=str(tmp_path / "index"), indexes=indexes)
    own = spark.read.parquet(str(unsorted))
    wanted = own.where("id IN (16, 1234, 2998)").select(*on).cache()
    wanted = wanted.unionAll(
        spark.createDataFrame([(None, "absent", "kind 1")], "id long, name string, kind string").select(*on)
    )
    with accel.spark.metrics(spark) as counts:
        found = _sorted_rows(
            accel.spark.lookup(wanted, str(unsorted), on=on, columns=["value"], index=str(tmp_path / "index"))
        )
    assert found == _sorted_rows(wanted.join(own.select(*on, "value"), on))
    assert len(found) >= 1
    assert (counts.catalog.total, counts.warnings) == (UNSORTED_FILES, [])
    assert counts.rows.kept <= most_rows


REFUSALS: list[tuple[str, dict[str, Any], type[Exception], str]] = [
    ("missing", {"on": {"k": "nothing"}}, ColumnNotFoundError, "no column 'nothing'"),
    ("types", {"on": {"text": "number"}}, AccelError, "cast the keys"),
    ("clash", {"on": {"k": "number"}, "columns": ["name", "value"]}, ValueError, "both have columns named"),
    ("how", {"on": "number", "how": "outer"}, ValueError, "how is one of"),
    ("semi", {"on": "number", "how": "semi", "columns": ["name"]}, ValueError, "leave columns= out"),
    ("twice", {"on": {"k": "number", "number": "number"}}, ValueError, "of the files twice"),
    ("nothing", {"on": []}, TypeError, "on= is the name"),
    ("partitions", {"on": "number", "partitions": 0}, ValueError, "at least 1"),
    ("max_keys", {"on": "number", "max_keys": -1}, ValueError, "max_keys is a non-negative int"),
]


@pytest.mark.parametrize(
    ("arguments", "error", "words"), [case[1:] for case in REFUSALS], ids=[case[0] for case in REFUSALS]
)
def test_refusals(
    spark: SparkSession, folder: Path, arguments: dict[str, Any], error: type[Exception], words: str
) -> None:
    df = spark.createDataFrame([(1, 1, "a", "b")], "k long, number long, text string, Name string")
    with pytest.raises(error, match=words):
        accel.spark.lookup(df, str(folder), **arguments)


def test_no_dataframe_is_refused(folder: Path) -> None:
    with pytest.raises(TypeError, match="is a DataFrame"):
        accel.spark.lookup([1, 2], str(folder), on="number")  # type: ignore[arg-type]
