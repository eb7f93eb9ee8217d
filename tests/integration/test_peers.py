"""Every system of the benchmark that is installed, Spark aside, finds the same rows in the same files."""

import datetime as dt
import importlib.util
from collections.abc import Iterator
from decimal import Decimal

import pyarrow as pa
import pytest

from accel.testing import Layout, write_file
from bench.peers.child import Child
from bench.peers.digest import digest
from bench.peers.endpoint import Endpoint
from bench.peers.exact import compile_mask
from bench.peers.protocol import Unsupported
from bench.queries import Query
from tests.support.s3 import S3Admin

ROWS = 6_000
DAY, MOMENT = dt.date(1992, 1, 1), dt.datetime(2013, 1, 1, tzinfo=dt.UTC)
NEEDS = {
    "datafusion": "datafusion",
    "datafusion-pushdown": "datafusion",
    "duckdb": "duckdb_extension_httpfs",
    "duckdb-cached": "duckdb_extension_httpfs",
    "polars": "polars",
    "arro3": "arro3",
}
NAMES = ("accel", *NEEDS, "pyarrow", "floor")
FILE, FOLDER = "one.parquet", "many/"
COLUMNS = ("key", "name", "price")


def table(first: int = 0) -> pa.Table:
    numbers = range(first, first + ROWS)
    return pa.table(
        {
            "key": pa.array(numbers, pa.int64()),
            "name": [f"{'abcdef'[i % 6]}{i % 50:02}" for i in numbers],
            "price": pa.array([Decimal(i % 100) / 100 for i in numbers], pa.decimal128(15, 2)),
            "day": [DAY + dt.timedelta(days=i // 10) for i in numbers],
            "moment": pa.array([MOMENT + dt.timedelta(hours=i) for i in numbers], pa.timestamp("us", "UTC")),
            "value": [i / 4 for i in numbers],
        }
    )


def of_file(name: str, *where: tuple[str, str, object], **settings: object) -> Query:
    return Query(name, (FILE,), COLUMNS, where, **settings)  # type: ignore[arg-type]


QUERIES = (
    (of_file("point", ("key", "=", 2500)), 1),
    (of_file("miss", ("key", "=", -1)), 0),
    (of_file("in", ("key", "in", tuple(range(0, 6_000, 60)))), 100),
    (of_file("range", ("day", ">=", dt.date(1992, 2, 1)), ("day", "<", dt.date(1992, 2, 11))), 100),
    (of_file("moment", ("moment", "<", MOMENT + dt.timedelta(hours=24))), 24),
    (of_file("prefix", ("name", "prefix", "b1")), 200),
    (of_file("text", ("name", "=", "a00")), 40),
    (of_file("decimal", ("price", "=", 0.05), ("value", ">=", 750.0)), 30),
    (of_file("not in the output", ("value", "<", 10.0)), 40),
    (of_file("scan"), ROWS),
    (Query("count", (FILE,), count=True), ROWS),
    (Query("count where", (FILE,), where=(("key", "<", 100),), count=True), 100),
    (Query("all", (FILE,)), ROWS),
    (Query("folder", (FOLDER,), COLUMNS, (("key", "=", 7_000),)), 1),
    (Query("files", (FILE, "many/1.parquet"), COLUMNS, (("key", ">=", 5_990), ("key", "<", 6_010))), 20),
)
TOP = (of_file("top row group", row_groups=(0,)), 2_000)
CANNOT_NAME_ROW_GROUPS = set(NEEDS)


@pytest.fixture(scope="module")
def endpoint(minio: S3Admin) -> Iterator[Endpoint]:
    bucket = "integration-peers"
    minio.create_bucket(bucket)
    layout = Layout(group_rows=2_000, page_rows=100)
    minio.put(bucket, FILE, write_file(table(), layout))
    for number in range(2):
        minio.put(bucket, f"{FOLDER}{number}.parquet", write_file(table(ROWS * number), layout))
    yield Endpoint(minio.url, minio.access_key, minio.secret_key, "us-east-1", bucket)


def values_of(query: Query) -> str:
    """What `Measured.digest` is to be, by the rows in memory."""
    if not query.where or query.count:
        return ""
    parts = {FILE: table(), "many/1.parquet": table(ROWS), FOLDER: pa.concat_tables([table(), table(ROWS)])}
    rows = pa.concat_tables(parts[path] for path in query.paths)
    mask = compile_mask(query, rows.schema)
    assert mask is not None
    found = rows.filter(mask({name: rows[name] for name, _, _ in query.where}))
    return digest(found.select(list(query.columns or found.column_names)))


@pytest.mark.parametrize("name", NAMES)
def test_all_systems_agree(name: str, endpoint: Endpoint) -> None:
    if name in NEEDS and importlib.util.find_spec(NEEDS[name]) is None:
        pytest.skip(f"{NEEDS[name]} is not installed")
    with Child(name, limit=60) as child:
        child.open(endpoint)
        for _ in range(2):
            found = {query.name: child.run(query) for query, _ in QUERIES}
            assert {name: took.rows for name, took in found.items()} == {q.name: rows for q, rows in QUERIES}
            # The floor counts what it decodes.
            values = {} if name == "floor" else {query.name: values_of(query) for query, _ in QUERIES}
            assert {name: took.digest for name, took in found.items() if took.digest} == {
                name: value for name, value in values.items() if value
            }
            child.forget()
        query, rows = TOP
        if name in CANNOT_NAME_ROW_GROUPS:
            with pytest.raises(Unsupported):
                child.run(query)
        else:
            assert child.run(query).rows == rows
        if name != "arro3":
            few = [query for query, _ in QUERIES[:4]]
            assert child.concurrently(few).each == tuple(rows for _, rows in QUERIES[:4])
        assert child.close() == 0
