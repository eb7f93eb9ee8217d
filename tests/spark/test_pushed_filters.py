"""Filters that Spark pushes into format("accel"): the rows are those that Spark finds without any pushdown.

Most are translated and asked of accel alone, and Spark evaluates all of them in one job: a job for each would
take minutes.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

import accel
from accel.spark.pushed_filters import Translated, translate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAN, INF = float("nan"), float("inf")
FLOATS = [NAN, -NAN, 0.0, -0.0, 1.5, -1.5, INF, -INF, 1e-300, None]
TEXTS = ["", "a", "A", "ab%c", "ab_c", "a\\b", "ä", "\U0001f600", "zebra", None]
DAYS = [
    dt.date(1, 1, 1), dt.date(1582, 10, 4), dt.date(1582, 10, 15), dt.date(1500, 2, 28), dt.date(1969, 12, 31),
    dt.date(1970, 1, 1), dt.date(2013, 7, 4), dt.date(9999, 12, 31), dt.date(2000, 2, 29), None,
]  # fmt: skip
TIMES = [
    dt.datetime(1, 1, 1), dt.datetime(1582, 10, 4, 12), dt.datetime(1899, 12, 31, 23, 59, 59, 999999),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999999), dt.datetime(1970, 1, 1), dt.datetime(2013, 3, 10, 2, 30),
    dt.datetime(2013, 7, 4, 12, 0, 0, 1), dt.datetime(2013, 7, 4, 12), dt.datetime(9999, 12, 31), None,
]  # fmt: skip
NANOS = [0, 1, 999, 1000, -1, -1000, -1001, 1_372_939_200_000_000_000, 1_372_939_200_000_000_999, None]
BYTES = [b"", b"\0", b"\xff", b"a", b"ab", b"\x7f", b"\x80", b"\xff\xff", b"b", None]
UUIDS = [uuid.UUID(int=n).bytes for n in range(0, 9 << 120, 1 << 120)] + [None]
NUMBERS = [-128, -1, 0, 1, 2, 3, 4, 5, 127, None]
DECIMALS = [None if n is None else Decimal(n).scaleb(-2) for n in NUMBERS]

COLUMNS: dict[str, pa.Array] = {
    "id": pa.array(range(10), pa.int64()),
    "f64": pa.array(FLOATS, pa.float64()),
    "f32": pa.array([None if f is None else f for f in FLOATS], pa.float32()),
    "i8": pa.array(NUMBERS, pa.int8()),
    "i64": pa.array([None if n is None else n * 2**55 for n in NUMBERS], pa.int64()),
    "u64": pa.array([None if n is None else (n + 128) * 2**55 for n in NUMBERS], pa.uint64()),
    "dec": pa.array(DECIMALS, pa.decimal128(9, 2)),
    "wide": pa.array(DECIMALS, pa.decimal128(38, 2)),
    "flag": pa.array([True, False, None] * 3 + [True], pa.bool_()),
    "s": pa.array(TEXTS, pa.string()),
    "code": pa.array(TEXTS, pa.large_string()).dictionary_encode(),
    "b": pa.array(BYTES, pa.binary()),
    "day": pa.array(DAYS, pa.date32()),
    "ntz": pa.array(TIMES, pa.timestamp("us")),
    "utc": pa.array(TIMES, pa.timestamp("us", "UTC")),
    "ms": pa.array(TIMES, pa.timestamp("us")).cast(pa.timestamp("ms"), safe=False),
    "list": pa.array([[n] if n else None for n in range(10)], pa.list_(pa.int32())),
    "point": pa.array([{"x": n, "y": str(n)} if n % 4 else None for n in range(10)]),
    "nothing": pa.array([None] * 10, pa.null()),
}
OWN: dict[str, pa.Array] = {
    "ns": pa.array(NANOS, pa.timestamp("ns")),
    "nsutc": pa.array(NANOS, pa.timestamp("ns", "UTC")),
    "u": pa.ExtensionArray.from_storage(pa.uuid(), pa.array(UUIDS, pa.binary(16))),
}
_COMPARED: dict[str, Callable[[tuple[str, ...], Any], Filter]] = {
    "=": EqualTo,
    "<=>": EqualNullSafe,
    "<": LessThan,
    "<=": LessThanOrEqual,
    ">": GreaterThan,
    ">=": GreaterThanOrEqual,
    "<>": lambda path, value: Not(EqualTo(path, value)),
}


def _compared(column: str, *values: tuple[str, Any]) -> list[tuple[str, Filter]]:
    """Every comparison of a column with values, each as Spark's SQL has it and as Python has it."""
    path = tuple(column.split("."))
    return [
        (f"{column} {op} {text}", make(path, value))
        for text, value in values
        for op, make in _COMPARED.items()
    ]


def _naive(*parts: int) -> dt.datetime:
    return dt.datetime(*parts)  # type: ignore[arg-type]


def _aware(*parts: int) -> dt.datetime:
    return dt.datetime(*parts, tzinfo=dt.UTC)  # type: ignore[arg-type]


EXACT: list[tuple[str, Filter]] = [
    *_compared(
        "f64",
        ("double('NaN')", NAN),
        ("0.0D", 0.0),
        ("-0.0D", -0.0),
        ("1.5D", 1.5),
        ("double('-Infinity')", -INF),
    ),
    *_compared("f32", ("float('NaN')", NAN), ("0.0F", 0.0), ("float('Infinity')", INF)),
    ("f64 IN (1.5D, double('NaN'))", In(("f64",), (1.5, NAN))),
    ("NOT (f64 IN (1.5D, double('NaN')))", Not(In(("f64",), (1.5, NAN)))),
    *_compared("i8", ("0Y", 0), ("127Y", 127)),
    ("i8 IN (1Y, 2Y, NULL)", In(("i8",), (1, 2, None))),
    ("NOT (i8 IN (1Y, 2Y, NULL))", Not(In(("i8",), (1, 2, None)))),
    ("NOT (i8 IN (1Y, 2Y))", Not(In(("i8",), (1, 2)))),
    *_compared("i64", ("36028797018963968L", 2**55)),
    *_compared("u64", ("cast(9223372036854775808 as decimal(20,0))", Decimal(2**63))),
    *_compared("dec", ("0.01", Decimal("0.01"))),
    ("dec IN (0.01, 0.02, 1.27)", In(("dec",), (Decimal("0.01"), Decimal("0.02"), Decimal("1.27")))),
    *_compared("wide", ("cast(0.01 as decimal(38,2))", Decimal("0.01"))),
    *_compared("flag", ("true", True), ("false", False)),
    *_compared("s", ("'a'", "a"), ("''", ""), ("'ä'", "ä")),
    ("s LIKE 'a%'", StringStartsWith(("s",), "a")),
    ("s LIKE '%b'", StringEndsWith(("s",), "b")),
    ("s LIKE '%b%'", StringContains(("s",), "b")),
    ("startswith(s, 'ab%')", StringStartsWith(("s",), "ab%")),
    ("startswith(s, 'ab_')", StringStartsWith(("s",), "ab_")),
    ("contains(s, '_')", StringContains(("s",), "_")),
    ("contains(s, char(92))", StringContains(("s",), "\\")),
    ("endswith(s, '%c')", StringEndsWith(("s",), "%c")),
    ("endswith(s, '')", StringEndsWith(("s",), "")),
    ("NOT startswith(s, 'a')", Not(StringStartsWith(("s",), "a"))),
    ("s IN ('a', 'A', 'zebra')", In(("s",), ("a", "A", "zebra"))),
    *_compared("code", ("'a'", "a")),
    ("code LIKE 'a%'", StringStartsWith(("code",), "a")),
    *_compared("b", ("X'80'", b"\x80"), ("X''", b"")),
    ("b IN (X'FF', X'61')", In(("b",), (b"\xff", b"a"))),
    *_compared(
        "day", ("date'1582-10-16'", dt.date(1582, 10, 16)), ("date'1582-10-04'", dt.date(1582, 10, 4))
    ),
    ("day IN (date'0001-01-01', date'9999-12-31')", In(("day",), (dt.date(1, 1, 1), dt.date(9999, 12, 31)))),
    *_compared("ntz", ("timestamp_ntz'1582-10-04 12:00:00'", _naive(1582, 10, 4, 12))),
    *_compared("ntz", ("timestamp_ntz'2013-07-04 12:00:00'", _naive(2013, 7, 4, 12))),
    *_compared("utc", ("timestamp'2013-07-04 12:00:00+00:00'", _aware(2013, 7, 4, 12))),
    *_compared("utc", ("timestamp'1900-01-01 00:00:00+00:00'", _aware(1900, 1, 1))),
    ("utc IN (timestamp'1970-01-01 00:00:00+00:00')", In(("utc",), (_aware(1970, 1, 1),))),
    *_compared("ms", ("timestamp_ntz'1969-12-31 23:59:59.999'", _naive(1969, 12, 31, 23, 59, 59, 999000))),
    *((f"{name} IS NULL", IsNull((name,))) for name in COLUMNS),
    *((f"{name} IS NOT NULL", IsNotNull((name,))) for name in COLUMNS),
    *_compared("point.x", ("5L", 5)),
    ("point.x IS NULL", IsNull(("point", "x"))),
    ("NOT (point.y LIKE '5%')", Not(StringStartsWith(("point", "y"), "5"))),
]
# What Spark's own reader does not read: compared with Spark over the rows as accel gives them.
OWN_EXACT: list[tuple[str, Filter]] = [
    *_compared("ns", ("timestamp_ntz'1970-01-01 00:00:00'", _naive(1970, 1, 1))),
    *_compared("ns", ("timestamp_ntz'1970-01-01 00:00:00.000001'", _naive(1970, 1, 1, 0, 0, 0, 1))),
    *_compared("ns", ("timestamp_ntz'1969-12-31 23:59:59.999999'", _naive(1969, 12, 31, 23, 59, 59, 999999))),
    *_compared("nsutc", ("timestamp'2013-07-04 12:00:00+00:00'", _aware(2013, 7, 4, 12))),
    ("u = '00000000-0000-0000-0000-000000000000'", EqualTo(("u",), str(uuid.UUID(int=0)))),
    ("u <=> '01000000-0000-0000-0000-000000000000'", EqualNullSafe(("u",), str(uuid.UUID(int=1 << 120)))),
    ("u <> '01000000-0000-0000-0000-000000000000'", Not(EqualTo(("u",), str(uuid.UUID(int=1 << 120))))),
    ("u IN ('02000000-0000-0000-0000-000000000000')", In(("u",), (str(uuid.UUID(int=2 << 120)),))),
    ("u IS NULL", IsNull(("u",))),
]
# Spark finds 0.0 in a long list by its bits, and in a short one by its value: it has the last word.
ZEROS = [In(("f64",), (0.0, 1.5)), In(("f64",), (-0.0, *map(float, range(1, 12))))]
NOT_TAKEN: list[Filter] = [
    EqualTo(("u",), "{00000000-0000-0000-0000-000000000000}"),
    EqualTo(("u",), str(uuid.UUID(int=255)).upper()),
    GreaterThan(("u",), str(uuid.UUID(int=0))),
    StringStartsWith(("u",), "0"),
    In(("ns",), (_naive(1970, 1, 1),)),
    LessThanOrEqual(("ns",), dt.datetime.max),
    EqualTo(("missing",), 1),
    EqualTo(("id",), "1"),
    EqualTo(("ns",), 0),
    Not(In(("ns",), (_naive(1970, 1, 1),))),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pages of two rows each, and row groups of four, with bounds of everything."""
    root = tmp_path_factory.mktemp("filters")
    for name, columns in (("all", COLUMNS), ("own", {"id": COLUMNS["id"], **OWN})):
        table = pa.Table.from_arrays(list(columns.values()), names=list(columns))
        pq.write_table(
            table, root / f"{name}.parquet", row_group_size=4, write_page_index=True, max_rows_per_page=2
        )
    return root


def _truth(frame: DataFrame, filters: list[str]) -> list[list[int]]:
    """The rows for which Spark finds each filter true, in one job over rows in memory."""
    columns = [f"coalesce({each}, false) as c{number}" for number, each in enumerate(filters)]
    rows = frame.selectExpr("id", *columns).collect()
    return [sorted(row["id"] for row in rows if row[f"c{number}"]) for number in range(len(filters))]


def _check(path: Path, frame: DataFrame, filters: list[tuple[str, Filter]]) -> None:
    columns = accel.scan(str(path)).schema
    wrong = []
    for (text, given), due in zip(filters, _truth(frame, [text for text, _ in filters]), strict=True):
        found = translate(given, columns, frame.schema)
        rows = (
            None
            if found.expr is None
            else sorted(accel.scan(str(path), found.expr).to_table()["id"].to_pylist())
        )
        if rows != due or not found.exact:
            wrong.append((text, found, rows, due))
    assert wrong == []


def test_rows_are_those_of_spark(spark: SparkSession, folder: Path) -> None:
    """Spark reads the file by itself, and pushes nothing into its own reader, which loses NaN and zeros."""
    path = folder / "all.parquet"
    names = [name for name in COLUMNS if name != "nothing"]
    frame = spark.read.parquet(str(path)).select(*names).selectExpr("*", "null as nothing")
    _check(path, frame, EXACT)


def test_rows_of_types_that_spark_does_not_read(spark: SparkSession, folder: Path) -> None:
    path = folder / "own.parquet"
    _check(path, accel.spark.read(spark, str(path)), OWN_EXACT)


def test_what_prunes_and_is_left_to_spark(folder: Path) -> None:
    columns = accel.scan(str(folder / "all.parquet")).schema
    schema = accel.spark.spark_schema(columns)
    for given in ZEROS:
        found = translate(given, columns, schema)
        assert not found.exact
        assert found.expr is not None
        rows = accel.scan(str(folder / "all.parquet"), found.expr).to_table()["f64"].to_pylist()
        assert {value for value in given.value if value in FLOATS} <= set(rows)
        assert translate(Not(given), columns, schema) == Translated(None, False)


@pytest.mark.parametrize("given", NOT_TAKEN, ids=repr)
def test_what_is_left_to_spark(folder: Path, given: Filter) -> None:
    columns = accel.scan(str(folder / "own.parquet")).schema
    assert translate(given, columns, accel.spark.spark_schema(columns)) == Translated(None, False)


@pytest.mark.parametrize(
    "given",
    [
        EqualTo(("day",), dt.date(1582, 10, 15)),
        LessThan(("day",), dt.date(1582, 10, 15)),
        In(("day",), (dt.date(1970, 1, 1), dt.date(1582, 10, 15))),
        *(LessThan(("utc",), _aware(1582, 10, day, 23)) for day in (14, 15, 16)),
    ],
    ids=repr,
)
def test_what_may_be_a_day_that_java_leaves_out_is_left_to_spark(given: Filter) -> None:
    columns = pa.schema([("day", pa.date32()), ("utc", pa.timestamp("us", "UTC"))])
    assert translate(given, columns, accel.spark.spark_schema(columns)) == Translated(None, False)


def test_days_that_java_leaves_out(spark: SparkSession, tmp_path: Path) -> None:
    days = [dt.date(1582, 10, day) for day in (4, 5, 10, 14, 15, 16, 25)]
    instants = [_aware(1582, 10, day.day, 12) for day in days]
    table = pa.table({"day": pa.array(days), "utc": pa.array(instants, pa.timestamp("us", "UTC"))})
    pq.write_table(table, tmp_path / "a.parquet")
    accel.spark.register(spark, pushdown=True)
    for where, count in {
        "day = date'1582-10-10'": 1,
        "day < date'1582-10-10' AND utc < timestamp'1582-10-10 12:00:00'": 2,
    }.items():
        assert spark.read.format("accel").load(str(tmp_path)).where(where).count() == count, where


def test_a_session_whose_parent_had_the_source_is_refused(spark: SparkSession) -> None:
    """Spark neither registers nor finds it there."""
    accel.spark.register(spark)
    with pytest.raises(accel.AccelError, match="session it was made from"):
        accel.spark.register(spark.newSession())


def test_text_of_another_collation_is_left_to_spark(folder: Path) -> None:
    from pyspark.sql.types import StringType, StructField, StructType

    columns = pa.schema([("s", pa.string())])
    padded = StructField("s", StringType(), True, {"__CHAR_VARCHAR_TYPE_STRING": "char(5)"})
    for field in (StructField("s", StringType("UTF8_LCASE")), padded):
        assert translate(EqualTo(("s",), "a"), columns, StructType([field])) == Translated(None, False)


# Each of its own rows, so that none is simplified away.
TOGETHER = [
    ("f64 <= double('NaN') AND i8 >= -128Y AND dec < 1.27 AND s IN ('a', 'A', '') AND b <= X'FF'", 0),
    (
        "NOT flag AND day < date'1600-01-01' AND ntz < timestamp_ntz'1600-01-01 00:00:00' AND list IS NOT NULL",
        0,
    ),
    ("s LIKE 'a%' AND s LIKE '%c' AND s LIKE '%b%' AND i8 <=> 2Y AND point.x > 1", 0),
    ("utc > timestamp'2013-03-10 02:30:00' AND u64 > 0", 0),
    ("utc = '1970-01-01 00:00:00'", 0),
    ("s ILIKE 'A' AND (i8 < 0Y OR i8 > 1Y)", 1),
    ("f64 IN (0.0D, 1.5D)", 1),
]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_pushed_by_spark(spark: SparkSession, folder: Path, zone: str) -> None:
    """By SQL, in a session with another zone too. A plan without a Filter has left all of it to accel."""
    accel.spark.register(spark, pushdown=True)
    path = str(folder / "all.parquet")
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        names = [name for name in COLUMNS if name != "nothing"]
        truth = _truth(spark.read.parquet(path).select(*names), [text for text, _ in TOGETHER])
        chosen = TOGETHER if zone == "UTC" else TOGETHER[3:5]
        for (text, filters), due in zip(TOGETHER, truth, strict=True):
            if (text, filters) not in chosen:
                continue
            # Loaded anew: Spark 4.3 mixes the filters of one loaded DataFrame up.
            frame = spark.read.format("accel").load(path).where(text).select("id")
            assert sorted(row["id"] for row in frame.collect()) == due, text
            plan = frame._jdf.queryExecution().executedPlan().toString()
            assert plan.replace("RuntimeFilters", "").count("Filter ") == filters, plan
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
