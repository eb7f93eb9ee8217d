"""DuckDB and Polars read the very files that accel reads, and answer the same questions with whole rows, in
order.

Each reads a file whole first, and is asked then: over a file both prune by bounds that leave out NaN.
"""

from __future__ import annotations

import math
import pathlib
import random
import re
from collections.abc import Callable
from typing import Any, Protocol

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import accel
from accel.predicate.expr import And, Column, Compare, Expr, InList, IsNull, Like, Literal, Not, Op, Or
from accel.predicate.sql import to_sql
from accel.testing import DictStore, Layout, write_file
from tests.support.sample_table import TYPES, everything, predicate

ROWS = 1500
QUESTIONS = 12
CODECS = ("none", "snappy", "gzip", "brotli", "zstd", "lz4")

Rows = list[tuple[object, ...]]


def by_pyarrow(table: pa.Table, _: pathlib.Path, rng: random.Random) -> bytes:
    layout = Layout(
        group_rows=rng.choice([173, 400, 5000]),
        page_rows=rng.choice([7, 60, 1000]),
        codec=rng.choice(CODECS),
        dictionary=rng.choice([True, False, ["s", "i8", "dec"]]),
        dictionary_bytes=rng.choice([300, 1 << 20]),
        page_index=rng.random() < 0.7,
        statistics=rng.choice([True, True, False, ["i32", "f64"]]),
        data_page=rng.choice(["1.0", "2.0"]),
        checksums=rng.random() < 0.3,
    )
    return write_file(table, layout)


def by_duckdb(table: pa.Table, folder: pathlib.Path, rng: random.Random) -> bytes:
    path = folder / "duckdb.parquet"
    codec, version = rng.choice(["snappy", "zstd", "lz4_raw"]), rng.choice(["v1", "v2"])
    with duckdb.connect() as connection:
        connection.register("given", table)
        connection.execute(
            f"COPY (SELECT * FROM given) TO '{path}' "
            f"(FORMAT parquet, CODEC '{codec}', PARQUET_VERSION {version}, ROW_GROUP_SIZE 512)"
        )
    return path.read_bytes()


def by_polars(table: pa.Table, folder: pathlib.Path, rng: random.Random) -> bytes:
    path = folder / "polars.parquet"
    pl.DataFrame(pl.from_arrow(table)).write_parquet(
        path,
        compression=rng.choice(["uncompressed", "snappy", "gzip", "zstd", "lz4"]),
        row_group_size=rng.choice([333, 5000]),
        data_page_size=rng.choice([600, 1 << 20]),
        statistics=rng.choice([True, False]),
    )
    return path.read_bytes()


WRITERS = {"pyarrow": by_pyarrow, "duckdb": by_duckdb, "polars": by_polars}


class Engine(Protocol):
    def rows(self, where: Expr) -> Rows: ...


class DuckDB:
    """Over a native table: over the file its pushdown loses NaN."""

    def __init__(self, path: pathlib.Path) -> None:
        self._database = duckdb.connect()
        self._database.execute("SET TimeZone = 'UTC'")
        self._database.execute(f"CREATE TABLE t AS SELECT * FROM read_parquet('{path}')")

    def rows(self, where: Expr) -> Rows:
        return self._database.sql(f"SELECT * FROM t WHERE {to_sql(where)} ORDER BY rowid").fetchall()


class Polars:
    def __init__(self, path: pathlib.Path) -> None:
        self._frame = pl.read_parquet(path)

    def rows(self, where: Expr) -> Rows:
        return self._frame.filter(_as_polars(where, self._frame.schema)).rows()


_OPERATORS: dict[Op, Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    Op.EQ: pl.Expr.eq,
    Op.NE: pl.Expr.ne,
    Op.LT: pl.Expr.lt,
    Op.LE: pl.Expr.le,
    Op.GT: pl.Expr.gt,
    Op.GE: pl.Expr.ge,
    Op.DISTINCT: pl.Expr.ne_missing,
    Op.NOT_DISTINCT: pl.Expr.eq_missing,
}


def _as_polars(where: Expr, schema: pl.Schema) -> pl.Expr:
    match where:
        case And(operands):
            return pl.all_horizontal([_as_polars(one, schema) for one in operands])
        case Or(operands):
            return pl.any_horizontal([_as_polars(one, schema) for one in operands])
        case Not(operand):
            return ~_as_polars(operand, schema)
        case IsNull(column):
            return pl.col(column.name).is_null()
        case Like(column, pattern):
            signs = {"%": ".*", "_": "."}
            spelt = "".join(signs.get(sign) or re.escape(sign) for sign in pattern)
            return pl.col(column.name).str.contains(f"(?s)^{spelt}$")
        case InList(column, values):
            return pl.any_horizontal([_compared(Op.EQ, column, value, schema) for value in values])
        case Compare(op, Column() as column, Literal(value)):
            return _compared(op, column, value, schema)
    raise TypeError(f"no such question is made: {where}")


def _compared(op: Op, column: Column, value: Any, schema: pl.Schema) -> pl.Expr:
    kind = schema[column.name]
    left = pl.col(column.name)
    if value is None:
        right = pl.lit(None, kind)
    elif kind in (pl.Int8, pl.Int32):
        left, right = left.cast(pl.Int64), pl.lit(value, pl.Int64)
    else:
        right = pl.lit(value, kind)
    return _OPERATORS[op](left, right)


def shown(rows: Rows) -> list[str]:
    """NaN is NaN, and -0.0 is not 0.0."""
    return [repr(row) for row in rows]


@pytest.mark.parametrize("engine", [DuckDB, Polars])
@pytest.mark.parametrize("writer", WRITERS)
def test_whole_rows(
    engine: Callable[[pathlib.Path], Engine], writer: str, tmp_path: pathlib.Path, large: bool
) -> None:
    table = everything(ROWS).select(["i32", *(name for name in TYPES if name != "i32")])
    telling = 0
    for seed in range(50 if large else 2):
        rng = random.Random(f"{writer} {seed}")
        data = WRITERS[writer](table, tmp_path, rng)
        path = tmp_path / "t.parquet"
        path.write_bytes(data)
        other = engine(path)
        keywords: dict[str, Any] = {"store": DictStore({"t.parquet": data}), "cache": accel.Cache()}
        for number in range(QUESTIONS * (4 if large else 1)):
            where = predicate(rng)
            found = accel.scan("t.parquet", where, **keywords).to_table()
            wanted = other.rows(where)
            came = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
            assert shown(came) == shown(wanted), f"seed {seed}, question {number}: {to_sql(where)}"
            telling += 0 < len(wanted) < ROWS
    assert telling > QUESTIONS // 2


def test_nan_is_seen_alike(tmp_path: pathlib.Path) -> None:
    """What the random questions rest on."""
    path = tmp_path / "t.parquet"
    write_file(pa.table({"f64": [0.0, -0.0, math.nan, math.inf, None]}), where=str(path))
    column = Column(("f64",))
    for op, due in ((Op.GT, "nan"), (Op.EQ, "[]")):
        where = Compare(op, column, Literal(math.inf if op is Op.GT else 1.0))
        rows = [shown(engine(path).rows(where)) for engine in (DuckDB, Polars)]
        assert rows[0] == rows[1]
        assert due in str(rows[0])
