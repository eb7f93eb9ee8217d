"""Files that Spark (parquet-java) wrote: INT96 and microsecond timestamps, several types, partitions."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.predicate.parser import parse
from tests.oracle import rowwise
from tests.support.arrow import same

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")

ROWS = 3000
COLUMNS = """
    id,
    CAST(CASE WHEN id % 7 = 0 THEN NULL ELSE id * 3 END AS INT) AS i,
    CAST(id % 128 AS TINYINT) AS small,
    CASE WHEN id % 50 = 0 THEN CAST('NaN' AS DOUBLE) WHEN id % 50 = 1 THEN -0.0D ELSE id / 10.0D END AS x,
    CAST(id AS FLOAT) AS y,
    CASE WHEN id % 11 = 0 THEN NULL ELSE concat('name ', lpad(CAST(id AS STRING), 5, '0')) END AS name,
    concat('cat ', CAST(id % 5 AS STRING)) AS cat,
    CAST(id / 100 AS DECIMAL(9, 2)) AS dec,
    CAST(id AS DECIMAL(30, 5)) AS wide,
    date_add(DATE '2020-01-01', CAST(id / 10 AS INT)) AS day,
    timestamp_seconds(1600000000 + id) AS at,
    id % 2 = 0 AS even,
    CAST(CAST(id AS STRING) AS BINARY) AS bytes,
    array(id, NULL, id + 1) AS list,
    named_struct('a', CAST(id AS INT), 'b', named_struct('c', concat('c', CAST(id % 3 AS STRING)))) AS st,
    map(concat('k', CAST(id % 2 AS STRING)), id) AS m
"""
PREDICATES = [
    "id = 1234",
    "i > 8900 OR i IS NULL",
    "x > 299",
    "NOT x < 290",
    "x = 0",
    "y BETWEEN 10 AND 12.5",
    "name LIKE 'name 0012%'",
    "cat IN ('cat 3', 'dog') AND id < 100",
    "dec = 12.34",
    "wide >= 2999",
    "day = '2020-02-02'",
    "at >= '2020-09-13 12:30:00' AND at < '2020-09-13 12:31:00'",
    "even IS DISTINCT FROM true AND id > 2990",
    "st.a = 77 OR st.b.c = 'c9'",
]


@pytest.fixture(scope="module")
def frame(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataFrame]:
    from pyspark.sql import SparkSession

    scratch = tmp_path_factory.mktemp("spark")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    builder = SparkSession.builder.master("local[1]").appName("accel interop")
    for key, value in settings.items():
        builder = builder.config(key, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session.range(0, ROWS, 1, 1).selectExpr(*_split(COLUMNS))
    session.stop()


def _split(text: str) -> list[str]:
    """One expression a line."""
    return [line.strip().rstrip(",") for line in text.strip().splitlines()]


def write(frame: DataFrame, path: Path, stamps: str, **options: str) -> Path:
    frame.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", stamps)
    writer = frame.write.option("parquet.block.size", "65536").option("parquet.page.size", "2048")
    for key, value in options.items():
        writer = writer.option(key.replace("_", "."), value)
    writer.parquet(str(path))
    return path


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("stamps", "options"),
    [
        ("INT96", {}),
        ("TIMESTAMP_MICROS", {"parquet_writer_version": "PARQUET_2_0", "compression": "zstd"}),
        ("TIMESTAMP_MILLIS", {"parquet_enable_dictionary": "false", "compression": "gzip"}),
    ],
    ids=["INT96", "v2", "plain"],
)
def test_files_of_spark(frame: DataFrame, tmp_path: Path, stamps: str, options: dict[str, str]) -> None:
    folder = write(frame, tmp_path / "out", stamps, **options)
    [path] = folder.glob("*.parquet")
    full = pq.read_table(path, page_checksum_verification=True)
    metadata = pq.read_metadata(path)
    assert full.num_rows == ROWS
    assert metadata.created_by.startswith("parquet-mr")
    assert metadata.row_group(0).column(0).has_offset_index
    cache = accel.Cache()
    found = accel.scan(str(path), cache=cache).to_table()
    assert found.schema == full.schema
    for name in full.schema.names:
        assert same(found.column(name), full.column(name)), name
    for where in PREDICATES:
        answers = rowwise.evaluate(parse(where), full)
        rows = pa.array([row for row, answer in enumerate(answers) if answer is True], pa.int64())
        assert 0 < len(rows) < ROWS, where
        # Markers and checksums of Hadoop lie beside the file.
        scan = accel.scan(f"{folder}/", where, cache=cache)
        got = scan.to_table()
        for name in full.schema.names:
            assert same(got.column(name), full.column(name).take(rows)), f"{name} where {where}"
        assert scan.count_rows() == len(rows), where


@pytest.mark.timeout(240)
def test_a_partitioned_directory_of_spark(frame: DataFrame, tmp_path: Path) -> None:
    out = tmp_path / "parts"
    frame.selectExpr("id", "nullif(cat, 'cat 2') AS cat", "day").write.partitionBy("cat").parquet(str(out))
    found = accel.scan(f"{out}/", "cat = 'cat 3' AND id < 20", cache=accel.Cache())
    assert found.to_table().select(["id", "cat"]).to_pylist() == [
        {"id": n, "cat": "cat 3"} for n in (3, 8, 13, 18)
    ]
    assert found.metrics.files.kept == 1
    nulls = accel.scan(f"{out}/", "cat IS NULL", columns=["id", "cat"], cache=accel.Cache()).to_table()
    assert nulls.column("id").to_pylist() == list(range(2, ROWS, 5))
    assert nulls.column("cat").null_count == ROWS // 5
