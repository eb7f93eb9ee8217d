"""accel beside Spark's own reader over S3A, on a cluster of two workers: the same rows of all types, whoever wrote the file.

Each test sends one function to the driver, because a job takes half a second however little it reads.
"""

from __future__ import annotations

import datetime as dt
import io
import random
import uuid
from collections.abc import Iterator
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
ZONES = ("UTC", "America/New_York")
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
    """What differs between Spark's own rows and accel's, by each way in: columns with their types, then rows."""
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


@pytest.mark.parametrize("zone", ZONES)
def test_rows_of_all_types(driver: SparkDriver, s3: S3Admin, zone: str) -> None:
    """A column of nothing but nulls, which pyarrow writes as integers, is the only one with another type."""
    url = _put(s3, f"s3a-types-{zone[-4:].lower()}", everything())
    assert driver.call(compare, url, s3.storage_options(), zone) == [("nothing", "int", "void")] * 2


def test_int96_of_pyarrow(driver: SparkDriver, s3: S3Admin) -> None:
    t = everything().select(["id", "ntz", "utc", "ntz_ms"])
    t = t.filter(pa.array([True] * ROWS))
    url = _put(s3, "s3a-int96", t, use_deprecated_int96_timestamps=True)
    assert driver.call(compare, url, s3.storage_options(), ZONES[1]) == 1


def write(spark: SparkSession, source: str, target: str, settings: dict[str, str], names: list[str]) -> None:
    for k, v in settings.items():
        spark.conf.set(k, v)
    spark.read.parquet(source).select(*names).write.parquet(target)
    for k in settings:
        spark.conf.unset(k)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {
            "spark.sql.parquet.writeLegacyFormat": "true",
            "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MILLIS",
        },
        {
            "spark.sql.parquet.outputTimestampType": "INT96",
            "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
        },
        {
            "spark.sql.parquet.outputTimestampType": "INT96",
            "spark.sql.parquet.int96RebaseModeInWrite": "LEGACY",
            "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
        },
    ],
)
def test_spark_wrote(driver: SparkDriver, s3: S3Admin, settings) -> None:
    t = everything().drop(["nothing"])
    n = "s3a-" + uuid.uuid4().hex[:8]
    url = _put(s3, n, t)
    driver.call(write, url, f"s3a://{n}/w", settings, t.column_names)
    assert driver.call(compare, f"s3a://{n}/w", s3.storage_options(), ZONES[1]) == 1
