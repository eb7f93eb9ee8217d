"""DuckDB as a third opinion: the same predicate, as SQL text, over a native table and over a scan.

Left out is what TRAPS says DuckDB sees otherwise: float32 against a literal, an integer against a double
literal, backslash escapes in LIKE. NaN it orders as accel does, over a native table.
"""

from __future__ import annotations

import datetime
import decimal
import random
from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest

import accel
from accel.predicate.expr import And, Column, Compare, Expr, InList, IsNull, Like, Literal, Not, Op, Or
from accel.predicate.sql import to_sql
from accel.testing import DictStore, Layout, write_file
from tests.interop.tables import everything

SEED = 20_261_121
PREDICATES = 300
TYPES = ["i8", "i32", "i64", "u64", "f64", "b", "s", "cat", "d", "ts", "dec"]


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


def literal(name: str, rng: random.Random) -> object:
    at = rng.randrange(-20, 1520)
    match name:
        case "i8":
            return rng.choice([0, 5, -128, 127, 200, -1])
        case "i32" | "i64":
            return rng.choice([at, at, at, 2**40, -5])
        case "u64":
            return 2**64 - 1 - max(at, 0) * 100 + rng.choice([0, 0, 1 if at > 0 else 0])
        case "f64":
            return rng.choice([at / 1000.0, 0.0, -0.0, 1e308, 0.1, at])
        case "b":
            return rng.random() < 0.5
        case "s":
            return rng.choice([f"key {max(at, 0):04d}", "", "key", "日本 ÿ", "zz", "it's"])
        case "cat":
            return f"cat {rng.randrange(11)}"
        case "d":
            return datetime.date(2020, 1, 1) + datetime.timedelta(days=at // 10)
        case "ts":
            return datetime.datetime(2021, 1, 1) + datetime.timedelta(seconds=at)
    return decimal.Decimal(at).scaleb(-2)


def atom(rng: random.Random) -> Expr:
    name = rng.choice(TYPES)
    column = Column(name, parts=(name,))
    choice = rng.randrange(10)
    if choice == 0:
        return IsNull(column)
    if choice <= 2:
        values = [literal(name, rng) for _ in range(rng.randrange(1, 5))]
        return InList(column, tuple([*values, None] if rng.random() < 0.2 else values))
    if name in ("s", "cat") and choice == 3:
        return Like(column, rng.choice(["key 01%", "%9", "%5_", "cat _", "", "%", "k_y 1%0"]))
    ops = [op for op in Op if name != "b" or op in (Op.EQ, Op.NE, Op.DISTINCT, Op.NOT_DISTINCT)]
    return Compare(rng.choice(ops), column, Literal(literal(name, rng)))


def predicate(rng: random.Random, depth: int = 3) -> Expr:
    choice = rng.randrange(6) if depth else 0
    if choice <= 1:
        return atom(rng)
    if choice == 2:
        return Not(predicate(rng, depth - 1))
    operands = tuple(predicate(rng, depth - 1) for _ in range(rng.randrange(2, 4)))
    return And(operands) if choice <= 4 else Or(operands)


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
