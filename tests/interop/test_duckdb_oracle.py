"""DuckDB as a third opinion: the same predicate, as SQL text, over a native table and over a scan.

NaN it orders as accel does, over a native table.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest

import accel
from accel.predicate.sql import to_sql
from accel.testing import DictStore, Layout, write_file
from tests.support.sample_table import TYPES, everything, predicate

SEED = 20_261_121
PREDICATES = 300


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return everything(1500).select(["i32", *(n for n in TYPES if n != "i32")])


@pytest.fixture(scope="module")
def database(table: pa.Table) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.register("given", table)
        connection.execute("CREATE TABLE native AS SELECT * FROM given")
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


@pytest.fixture(scope="module")
def store(table: pa.Table) -> DictStore:
    return DictStore({"t.parquet": write_file(table, Layout(group_rows=400, page_rows=60))})


def test_generated_predicates(database: duckdb.DuckDBPyConnection, store: DictStore, large: bool) -> None:
    cache = accel.Cache()
    telling = 0
    for number in range(PREDICATES * (10 if large else 1)):
        rng = random.Random(SEED + number)
        where = to_sql(predicate(rng))
        wanted = [
            row[0] for row in database.sql(f"SELECT i32 FROM native WHERE {where} ORDER BY rowid").fetchall()
        ]
        found = accel.scan("t.parquet", where, columns=["i32"], store=store, cache=cache).to_table()
        assert found.column("i32").to_pylist() == wanted, f"seed {SEED + number}: {where}"
        telling += 0 < len(wanted) < 1500
    assert telling > PREDICATES // 2
