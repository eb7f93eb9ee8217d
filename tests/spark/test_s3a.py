"""accel beside Spark's own reader over S3A, on a cluster of two workers: the same rows of all types, whoever
wrote the file.

Each test sends one function to the driver, because a job takes half a second however little it reads.
"""

from __future__ import annotations

import datetime as dt
import functools
import io
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from tests.support.s3a import install_s3a, s3a_config
from tests.support.spark_cluster import SparkCluster, find_java
from tests.support.spark_driver import SparkDriver

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.support.s3 import S3Admin

pytestmark = pytest.mark.timeout(600)  # the jars may have to be fetched

ROWS = 120
NAN, INF = float("nan"), float("inf")
FLOATS = [NAN, 0.0, -0.0, 1.5, -1.5, INF, -INF, 0.1]
TEXTS = ["", "a", "A", "ab%c", "ab_c", "a\\b", "ä", "\U0001f600", "zebra", "x" * 70]
BYTES = [b"", b"\0", b"\xff", b"a", b"ab", b"\x80"]
DAYS = [
    dt.date(1, 1, 1), dt.date(1500, 2, 28), dt.date(1582, 10, 4), dt.date(1582, 10, 15), dt.date(1900, 1, 1),
    dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(2013, 7, 4), dt.date(9999, 12, 31),
]  # fmt: skip
TIMES = [
    dt.datetime(1, 1, 2), dt.datetime(1582, 10, 4, 12), dt.datetime(1883, 11, 18, 12, 3, 58),
    dt.datetime(1899, 12, 31, 23, 59, 59, 999999), dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
    dt.datetime(1970, 1, 1), dt.datetime(2013, 3, 10, 2, 30), dt.datetime(2013, 11, 3, 5, 30),
    dt.datetime(2013, 7, 4, 12, 0, 0, 1), dt.datetime(9999, 12, 30),
]  # fmt: skip
CLOCKS = [dt.time(), dt.time(1, 2, 3, 4000), dt.time(23, 59, 59, 999999)]
DECIMALS = {
    (5, 2): 10**5,
    (9, 0): 10**9,
    (18, 4): 10**18,
    (20, 0): 10**20,
    (38, 10): 10**38,
    (38, 38): 10**38,
}


def _pick(r: random.Random, values: list[Any]) -> list[Any]:
    return [None if r.random() < 0.1 else r.choice(values) for _ in range(ROWS)]


def _ints(bits: int, *, signed: bool = True) -> list[int]:
    top = 1 << (bits - signed)
    return [0, 1, 2, 3, 5, top - 1, -top if signed else top // 2, *([-1] if signed else [])]


def _decimals(precision: int, scale: int) -> list[Decimal]:
    top = DECIMALS[precision, scale] - 1
    return [Decimal((n < 0, tuple(map(int, str(abs(n)))), -scale)) for n in (0, 1, -1, 7, top, -top)]


def everything() -> pa.Table:
    """Every type that Spark reads of a file that pyarrow wrote."""
    r = random.Random(35)
    named: dict[str, pa.Array] = {"id": pa.array(range(ROWS), pa.int64())}
    for name, kind, values in (
        ("flag", pa.bool_(), [True, False]),
        *((f"i{bits}", getattr(pa, f"int{bits}")(), _ints(bits)) for bits in (8, 16, 32, 64)),
        *((f"u{bits}", getattr(pa, f"uint{bits}")(), _ints(bits, signed=False)) for bits in (8, 16, 32, 64)),
        ("f32", pa.float32(), FLOATS),
        ("f64", pa.float64(), FLOATS),
        *((f"d{p}_{s}", pa.decimal128(p, s), _decimals(p, s)) for p, s in DECIMALS),
        ("s", pa.string(), TEXTS),
        ("big", pa.large_string(), TEXTS),
        ("b", pa.binary(), BYTES),
        ("fixed", pa.binary(3), [b"abc", b"\0\0\0", b"\xff\0a"]),
        ("day", pa.date32(), DAYS),
        ("ntz_ms", pa.timestamp("ms"), [t.replace(microsecond=t.microsecond // 1000 * 1000) for t in TIMES]),
        ("ntz", pa.timestamp("us"), TIMES),
        ("utc_ms", pa.timestamp("ms", "UTC"), [t.replace(microsecond=7000) for t in TIMES]),
        ("utc", pa.timestamp("us", "UTC"), TIMES),
        ("paris", pa.timestamp("us", "Europe/Paris"), TIMES),
        ("time", pa.time64("us"), CLOCKS),
        ("nothing", pa.null(), [None]),
        ("list", pa.list_(pa.int32()), [[], [1, None], [5, 6, 7]]),
        ("lists", pa.list_(pa.list_(pa.string())), [[], [[], None, ["a", None]], [["b"]]]),
        ("map", pa.map_(pa.string(), pa.float64()), [[], [("x", NAN), ("y", None)], [("z", -0.0)]]),
    ):
        named[name] = pa.array(_pick(r, values), kind)
    named["code"] = named["s"].dictionary_encode()
    inner = pa.struct([("at", pa.timestamp("us", "UTC")), ("n", pa.decimal128(38, 2))])
    rows = [{"at": TIMES[1], "n": Decimal("1.25")}, {"at": None, "n": None}, None]
    point = pa.struct([("x", pa.int64()), ("y", pa.string()), ("in", inner)])
    points = [{"x": n, "y": str(n), "in": rows[n % 3]} for n in range(8)]
    named["point"] = pa.array(_pick(r, points), point)
    named["rows"] = pa.array(_pick(r, [[], rows, rows[:1]]), pa.list_(inner))
    named["by_day"] = pa.array(
        _pick(r, [[], [(DAYS[1], rows)], [(DAYS[0], None), (DAYS[2], [])]]),
        pa.map_(pa.date32(), pa.list_(inner)),
    )
    return pa.table(named)


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    if find_java() is None:
        pytest.skip("needs Java on PATH or in JAVA_HOME")
    with SparkCluster() as running:
        yield running


@pytest.fixture(scope="module")
def driver(s3: S3Admin, cluster: SparkCluster) -> Iterator[SparkDriver]:
    try:
        jars = install_s3a()
    except FileNotFoundError as error:
        pytest.skip(f"no S3A to compare with: {error}")
    config = {
        **cluster.config(),
        **s3a_config(jars, s3),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.timeType.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
    }
    with ExitStack() as stack:
        yield stack.enter_context(SparkDriver(config, environment=cluster.driver_environment()))


def _ask(driver: SparkDriver, function: Callable[..., Any], *arguments: object, **named: object) -> Any:
    """With patience: the first job starts everything."""
    driver.start(function, *arguments, **named)
    return driver.result(timeout=500)


def _put(s3: S3Admin, bucket: str, table: pa.Table, **settings: Any) -> str:
    """A bucket with two files of a table, whose pages have five rows."""
    s3.create_bucket(bucket)
    for number in range(2):
        sink = io.BytesIO()
        half = table.slice(number * ROWS // 2, ROWS // 2)
        pq.write_table(half, sink, row_group_size=20, write_page_index=True, max_rows_per_page=5, **settings)
        s3.put(bucket, f"t/{number}.parquet", sink.getvalue())
    return f"s3a://{bucket}/t/"


def _load(spark: SparkSession, url: str, options: dict[str, str], **more: object) -> DataFrame:
    given = {**options, **{name: str(value) for name, value in more.items()}}
    return spark.read.format("accel").options(**given).load(url)


def _rows(frame: DataFrame) -> list[str]:
    """Its rows, so that NaN is NaN and the two zeros differ."""
    table = frame.orderBy("id").toArrow()
    return [repr(row) for row in table.to_pylist()]


def compare(spark: SparkSession, url: str, options: dict[str, str], zone: str) -> list[Any]:
    """What differs between Spark's own rows and accel's, by each way in: columns with their types, then
    rows."""
    accel.spark.register(spark, pushdown=True)
    spark.conf.set("spark.sql.session.timeZone", zone)
    own = spark.read.parquet(url)
    truth = _rows(own)
    found: list[Any] = []
    for way in (_load(spark, url, options), accel.spark.read(spark, url, storage_options=options)):
        types = zip(own.schema, way.schema, strict=True)
        found += [(a.name, _type(a), _type(b)) for a, b in types if (a.name, _type(a)) != (b.name, _type(b))]
        found += [(a, b) for a, b in zip(truth, _rows(way), strict=True) if a != b][:3]
    return found


def _type(field: Any) -> str:
    return str(field.dataType.simpleString())


def rewrite(spark: SparkSession, source: str, target: str, settings: dict[str, str]) -> None:
    """Have Spark write the rows of pyarrow's file."""
    settings = {f"spark.sql.parquet.{name}": value for name, value in settings.items()}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        spark.read.parquet(source).drop("nothing").coalesce(1).write.parquet(target)
    finally:
        for name in settings:
            spark.conf.unset(name)


def answer(
    spark: SparkSession, url: str, options: dict[str, str], zone: str, questions: list[str], *, pushed: int
) -> dict[str, dict[str, list[int]]]:
    """The ids that match, by question and by who answers it.

    One question of so many is `pushed` to accel, and those about floating-point numbers to Spark's own
    reader: each is a DataFrame of its own, which takes a while.
    """
    accel.spark.register(spark, pushdown=True)
    spark.conf.set("spark.sql.session.timeZone", zone)
    found: dict[str, dict[str, list[int]]] = {question: {} for question in questions}

    def note(who: str, pairs: list[Any], asked: Iterable[int]) -> None:
        for number in asked:
            found[questions[number]][who] = sorted(row.id for row in pairs if row.question == number)

    def evaluated(frame: DataFrame) -> list[Any]:
        """By Spark, of every row: nothing is pushed."""
        each = ", ".join(f"if({question}, {number}, null)" for number, question in enumerate(questions))
        return frame.selectExpr("id", f"explode(array({each})) as question").where("question >= 0").collect()

    def asked(load: Callable[[], DataFrame], numbers: Iterable[int]) -> list[Any]:
        """Each of a DataFrame of its own, as Spark 4.3 mixes the filters of one up."""
        frames = [
            load().where(questions[number]).selectExpr("id", f"{number} as question") for number in numbers
        ]
        return functools.reduce(lambda one, other: one.unionAll(other), frames).collect()

    every, some = range(len(questions)), range(0, len(questions), pushed)
    floats = [number for number in every if "f64" in questions[number] or "f32" in questions[number]]
    note("truth", evaluated(spark.read.parquet(url)), every)
    note("accel", evaluated(_load(spark, url, options)), every)
    note("pushed", asked(lambda: _load(spark, url, options), some), some)
    note("S3A", asked(lambda: spark.read.parquet(url), floats), floats)
    return found


def refused(
    spark: SparkSession, urls: dict[str, str], options: dict[str, str]
) -> dict[str, tuple[str, list[Any]]]:
    """What Spark says of each file, and what accel reads of it."""
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    found = {}
    for name, url in urls.items():
        rows = [row[0] for row in accel.spark.read(spark, url, storage_options=options).collect()]
        try:
            said = repr([row[0] for row in spark.read.parquet(url).collect()])
        except Exception as error:  # noqa: BLE001 - whatever Spark raises
            said = str(error).partition(" ")[0]
        found[name] = (said, rows)
    return found


# -- the tests ----------------------------------------------------------------------------------


NEW_YORK = "America/New_York"
QUESTIONS = [
    "flag", "NOT flag", "flag <=> NULL", "i8 = -128Y", "i16 > 2S", "i32 IN (1, 5, NULL)", "i64 = 9223372036854775807L",
    "NOT (i64 IN (0L, 2L))", "u8 = 128S", "u16 >= 65535", "u32 = 4294967295L",
    "u64 = cast(9223372036854775808 as decimal(20,0))", "f32 = 0.1F", "f32 = -0.0F", "f64 = 0.0D", "f64 > 1.0D",
    "f64 = double('NaN')", "NOT (f64 < 1.0D)", "f64 IN (0.0D, 1.5D)", "d5_2 = 0.07", "d9_0 < 0",
    "d18_4 = 99999999999999.9999", "d20_0 >= 7", "d38_10 <> cast(0.0000000001 as decimal(38,10))",
    "d38_38 > cast('0.5' as decimal(38,38))", "s LIKE 'a%'", "s LIKE '%b%c'", "s = 'ä'", "s >= 'ab'",
    "big IN ('A', 'zebra')", "code <> 'a'", "b = X'80'", "b < X'61'", "fixed = X'616263'",
    "day = date'1500-02-28'", "day < date'1582-10-15'", "day IN (date'9999-12-31', date'0001-01-01')",
    "utc < timestamp'1900-01-01 00:00:00'", "utc = timestamp'2013-11-03 01:30:00'", "utc_ms > '2013-03-10'",
    "paris IN (timestamp'2013-03-09 21:30:00', timestamp'2013-07-04 08:00:00.000001')",
    "time = TIME'01:02:03.004'", "list IS NULL", "size(list) > 1", "point.x = 5L", "point.in.n = 1.25",
    "point.in.at < timestamp'1900-01-01 00:00:00'", "point IS NULL", "map['x'] IS NULL", "i8 > 0Y AND s < 'b' OR flag",
]  # fmt: skip
LOCAL = [
    "ntz = timestamp_ntz'1582-10-04 12:00:00'",
    "ntz_ms >= timestamp_ntz'2013-03-10 02:30:00'",
    "ntz > timestamp'2013-03-10 02:30:00'",
    "nothing IS NULL",
]
"""Of pyarrow's files as they are."""
LOST = {"f64 > 1.0D", "f64 = double('NaN')", "NOT (f64 < 1.0D)"}
"""Rows with NaN, which the bounds of pyarrow leave out."""


@pytest.fixture(scope="module")
def of_pyarrow(s3: S3Admin) -> str:
    return _put(s3, "s3a-pyarrow", everything())


@pytest.fixture(scope="module")
def of_spark(driver: SparkDriver, of_pyarrow: str) -> str:
    """With Spark's own defaults, which store timestamps as INT96."""
    _ask(driver, rewrite, of_pyarrow, "s3a://s3a-pyarrow/spark/", {})
    return "s3a://s3a-pyarrow/spark/"


@pytest.mark.parametrize("zone", ["UTC", NEW_YORK])
def test_rows_of_all_types(driver: SparkDriver, s3: S3Admin, of_pyarrow: str, zone: str) -> None:
    """A column of nothing but nulls, which pyarrow writes as integers, is the only one with another type."""
    found = _ask(driver, compare, of_pyarrow, s3.storage_options(), zone)
    assert found == [("nothing", "int", "void")] * 2


def test_rows_that_spark_wrote(driver: SparkDriver, s3: S3Admin, of_spark: str) -> None:
    assert _ask(driver, compare, of_spark, s3.storage_options(), NEW_YORK) == []


@pytest.mark.parametrize(
    "settings",
    [
        {"writeLegacyFormat": "true", "outputTimestampType": "TIMESTAMP_MILLIS"},
        {"outputTimestampType": "TIMESTAMP_MICROS"},
    ],
    ids=["as Hive wrote", "microseconds"],
)
def test_rows_that_spark_wrote_otherwise(
    driver: SparkDriver, s3: S3Admin, of_pyarrow: str, settings: dict[str, str]
) -> None:
    target = f"s3a://s3a-pyarrow/{settings['outputTimestampType']}/"
    _ask(driver, rewrite, of_pyarrow, target, settings)
    assert _ask(driver, compare, target, s3.storage_options(), NEW_YORK) == []


def test_int96_that_pyarrow_wrote(driver: SparkDriver, s3: S3Admin) -> None:
    """Instants, even of what was local time in Arrow, in both."""
    table = everything().drop(["nothing"])
    url = _put(s3, "s3a-int96", table, use_deprecated_int96_timestamps=True)
    assert _ask(driver, compare, url, s3.storage_options(), NEW_YORK) == []


def test_the_old_calendar(driver: SparkDriver, s3: S3Admin, of_pyarrow: str) -> None:
    """Days that Spark 2 wrote, or a later one in its way: Spark converts them, and accel reads them as they
    are stored."""
    target = "s3a://s3a-pyarrow/legacy/"
    _ask(driver, rewrite, of_pyarrow, target, {"datetimeRebaseModeInWrite": "LEGACY"})
    assert _ask(driver, old_days, target, s3.storage_options()) == {
        dt.date(1500, 2, 28): dt.date(1500, 3, 9),
        dt.date(1582, 10, 4): dt.date(1582, 10, 14),
        **{day: day for day in DAYS[3:]},
    }


def old_days(spark: SparkSession, url: str, options: dict[str, str]) -> dict[dt.date, dt.date]:
    """Each day as Spark reads it, and as accel does."""
    own = spark.read.parquet(url).where("day > date'1000-01-01'").selectExpr("id", "day as own")
    ours = accel.spark.read(spark, url, columns=["id", "day"], storage_options=options)
    return {row.own: row.day for row in own.join(ours, "id").collect()}


def test_answers(driver: SparkDriver, s3: S3Admin, of_pyarrow: str, large: bool) -> None:
    """Pushed or not. Spark's own pushdown loses rows."""
    asked, share = [*QUESTIONS, *LOCAL], 1 if large else 3
    found = _ask(driver, answer, of_pyarrow, s3.storage_options(), NEW_YORK, asked, pushed=share)
    assert _wrong(found, "accel") == _wrong(found, "pushed") == {}
    assert sum(not each["truth"] for each in found.values()) <= 3  # most have an answer
    assert set(_wrong(found, "S3A")) == LOST


def test_answers_from_files_of_spark(driver: SparkDriver, s3: S3Admin, of_spark: str, large: bool) -> None:
    """Moments are stored as INT96, and bounds of floating-point columns are others; the long run asks
    everything."""
    asked = [q for q in QUESTIONS if large or q.startswith(("utc", "paris", "point.in"))]
    found = _ask(driver, answer, of_spark, s3.storage_options(), NEW_YORK, [*asked, "f64 > 1.0D"], pushed=1)
    assert _wrong(found, "accel") == _wrong(found, "pushed") == _wrong(found, "S3A") == {}


def _wrong(found: dict[str, dict[str, list[int]]], who: str) -> dict[str, dict[str, list[int]]]:
    return {
        question: each for question, each in found.items() if each.get(who, each["truth"]) != each["truth"]
    }


def test_types_that_spark_refuses(driver: SparkDriver, s3: S3Admin) -> None:
    s3.create_bucket("s3a-refused")
    urls = {}
    for name, (values, _, _) in REFUSED.items():
        sink = io.BytesIO()
        pq.write_table(pa.table({"x": values}), sink)
        s3.put("s3a-refused", f"{name}.parquet", sink.getvalue())
        urls[name] = f"s3a://s3a-refused/{name}.parquet"
    found = _ask(driver, refused, urls, s3.storage_options())
    assert found == {name: (said, [value, None]) for name, (_, said, value) in REFUSED.items()}


NOON = dt.datetime(2013, 1, 2, 12, 30, 15, 123456)
ILLEGAL = "[PARQUET_TYPE_ILLEGAL]"
NANOS, UUID = 1357129815123456789, bytes(range(16))
REFUSED: dict[str, tuple[pa.Array, str, object]] = {
    "timestamp_ns": (pa.array([NANOS, None], pa.timestamp("ns")), ILLEGAL, NOON),
    "timestamp_ns_utc": (pa.array([NANOS, None], pa.timestamp("ns", "UTC")), ILLEGAL, NOON),
    "time_ms": (pa.array([3723004, None], pa.time32("ms")), ILLEGAL, dt.time(1, 2, 3, 4000)),
    "float16": (pa.array([1.5, None], pa.float16()), ILLEGAL, 1.5),
    "uuid": (
        pa.ExtensionArray.from_storage(pa.uuid(), pa.array([UUID, None], pa.binary(16))),
        ILLEGAL,
        "00010203-0405-0607-0809-0a0b0c0d0e0f",
    ),
    # The only one of these that Spark reads, without the digits after the sixth.
    "time_ns": (
        pa.array([3723000004999, None], pa.time64("ns")),
        "[datetime.time(1, 2, 3, 4), None]",
        dt.time(1, 2, 3, 4),
    ),
}
