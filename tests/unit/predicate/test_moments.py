"""Functions of dates and timestamps, and moments that are computed: the rows that DuckDB finds, and the pages
that the same comparisons leave."""

from __future__ import annotations

import datetime
import operator
import pathlib
import random
from collections.abc import Callable
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.errors import PredicateError
from accel.predicate import parser
from accel.predicate.column import Condition, col
from accel.predicate.parser import parse
from accel.predicate.sql import to_sql


def _moments(rng: random.Random) -> list[datetime.datetime | None]:
    found: list[datetime.datetime | None] = [None]
    for _ in range(300):
        day = datetime.date(rng.choice([1583, 1969, 1970, 2023, 2024, 2025]), rng.choice([1, 2, 3, 12]), 1)
        base = datetime.datetime.combine(day, datetime.time())
        step = rng.choice([1, 10**6, 60 * 10**6, 3600 * 10**6, 86_400 * 10**6])
        found.append(base + datetime.timedelta(microseconds=rng.randint(-3, 3) * step))
    return found


@pytest.fixture(scope="module")
def table() -> pa.Table:
    moments = _moments(random.Random(7))
    return pa.table(
        {
            "n": range(len(moments)),
            "t": pa.array(moments, pa.timestamp("us")),
            "z": pa.array(moments, pa.timestamp("us", "UTC")),
            "d": pa.array([None if m is None else m.date() for m in moments], pa.date32()),
        }
    )


@pytest.fixture(scope="module")
def path(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("moments") / "f.parquet"
    pq.write_table(table.sort_by("t"), path, row_group_size=25, write_page_index=True)
    return str(path)


OPERATORS = ("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM")
UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")


@pytest.mark.parametrize("column", ["t", "d"])
@pytest.mark.parametrize("unit", UNITS)
def test_truncated_as_in_duckdb(unit: str, column: str, table: pa.Table, path: str) -> None:
    rng = random.Random(unit)
    connection = duckdb.connect()
    for op in OPERATORS:
        moment = rng.choice([m for m in table["t"].to_pylist() if m is not None])
        if rng.random() < 0.7:
            moment = connection.execute(f"SELECT date_trunc('{unit}', TIMESTAMP '{moment}')").fetchone()[0]
        where = f"date_trunc('{unit}', {column}) {op} TIMESTAMP '{moment}'"
        _check(where, connection, table, path)


@pytest.mark.parametrize("column", ["t", "d"])
@pytest.mark.parametrize("call", ["year({})", "EXTRACT(YEAR FROM {})"])
def test_years_as_in_duckdb(call: str, column: str, table: pa.Table, path: str) -> None:
    connection = duckdb.connect()
    year = call.format(column)
    for op in OPERATORS:
        _check(f"{year} {op} 2024", connection, table, path)
    for where in (
        f"2024 < {year}",
        f"{year} IN (1969, 2024)",
        f"{year} NOT IN (1969, 2024)",
        f"{year} BETWEEN 1583 AND 1970",
        f"NOT {year} NOT BETWEEN 2023 AND 2024",
        f"{year} IS NULL OR {year} = 1970",
        f"{year} = NULL",
    ):
        _check(where, connection, table, path)


@pytest.mark.parametrize("op", OPERATORS)
def test_casts_as_in_duckdb(op: str, table: pa.Table, path: str) -> None:
    for where in (
        f"CAST(t AS DATE) {op} DATE '2024-02-28' + 2",
        f"t {op} DATE '2024-03-31' - INTERVAL '1' MONTH",
        f"t {op} TIMESTAMP '2024-03-01' - INTERVAL 1 HOUR",
        f"d {op} DATE '2024-02-29' - INTERVAL '1 year'",
    ):
        _check(where, duckdb.connect(), table, path)


def _check(where: str, connection: duckdb.DuckDBPyConnection, table: pa.Table, path: str) -> None:
    connection.register("rows_of_moments", table)
    # Its rule for these functions takes null for a moment (1.5.5).
    connection.execute("PRAGMA disable_optimizer")
    wanted = connection.execute(f"SELECT n FROM rows_of_moments WHERE {where} ORDER BY n").fetchall()
    found = accel.scan(path, where, columns=["n"]).to_table().sort_by("n")
    assert found["n"].to_pylist() == [n for (n,) in wanted], where


_PYTHON: dict[str, Callable[[Any, Any], Condition]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "IS DISTINCT FROM": lambda cut, value: cut.is_distinct_from(value),
    "IS NOT DISTINCT FROM": lambda cut, value: cut.is_not_distinct_from(value),
}


@pytest.mark.parametrize("op", OPERATORS)
def test_expressions_are_what_the_text_is(op: str) -> None:
    test, t = _PYTHON[op], col("t")
    for unit in UNITS:
        for moment in ("2024-01-01", "2024-02-29 13:14:15.5", "2023-01-02 00:00:00"):
            value = datetime.datetime.fromisoformat(moment)
            text = f"date_trunc('{unit}', t) {op} TIMESTAMP '{moment}'"
            assert to_sql(test(t.date_trunc(unit), value).expr) == to_sql(parse(text))
            assert to_sql(test(t.date_trunc(f"{unit}s"), moment).expr) == to_sql(parse(text))
    assert to_sql(test(t.year(), 2024).expr) == to_sql(parse(f"year(t) {op} 2024"))
    assert to_sql(test(t.date(), datetime.date(2024, 3, 1)).expr) == to_sql(
        parse(f"CAST(t AS DATE) {op} DATE '2024-03-01'")
    )
    assert to_sql(test(t.year(), None).expr) == to_sql(parse(f"year(t) {op} NULL"))


def test_expressions_with_several_values() -> None:
    year = col("s.t").year()
    assert to_sql(year.isin([1969, 2024]).expr) == to_sql(parse("year(s.t) IN (1969, 2024)"))
    assert to_sql(year.between(1583, 1970).expr) == to_sql(parse("year(s.t) BETWEEN 1583 AND 1970"))
    assert to_sql(year.isin([]).expr) == "FALSE"
    assert to_sql((2024 < year).expr) == to_sql(parse("2024 < year(s.t)"))
    assert repr(year) == "<year(s.t)>"
    assert repr(col("t").date_trunc("Hours")) == "<date_trunc('hour', t)>"


def test_expressions_prune_as_comparisons_do(path: str, table: pa.Table) -> None:
    found = accel.scan(path, (col("t").year() == 2024) & (col("d").date_trunc("month") < "2024-03-01"))
    wanted = [
        row
        for row in table.sort_by("t").to_pylist()
        if row["t"] is not None and row["t"].year == 2024 and row["d"] < datetime.date(2024, 3, 1)
    ]
    assert wanted
    assert found.to_table().to_pylist() == wanted
    assert 0 < found.metrics.row_groups.kept < found.metrics.row_groups.total


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda t: t.year() == "2024", "compared with a whole number"),
        (lambda t: t.year() == 9999, "from 1 to 9998"),
        (lambda t: t.year() == col("u"), "not with another column"),
        (lambda t: col("u") == t.year(), "not with another column"),
        (lambda t: t.year() == col("u").year(), "not with another column"),
        (lambda t: t.date() == 3, "compared with a date or a timestamp"),
        (lambda t: t.date() == "soon", "timestamp"),
        (lambda t: t.date_trunc("eon"), "a unit is one of 'year', .*not 'eon'"),
        (lambda t: t.date_trunc(None), "a unit is one of"),
        (lambda t: t.year().isin(2024), "isin takes a list"),
    ],
)
def test_expressions_that_are_refused(make: Callable[[Any], object], message: str) -> None:
    with pytest.raises(PredicateError, match=message):
        make(col("t"))


def test_a_function_alone_is_no_condition() -> None:
    with pytest.raises(TypeError, match="compare it with a value"):
        bool(col("t").year())
    with pytest.raises(AttributeError, match=r"write year\(\), date\(\) or date_trunc\(unit\)"):
        col("t").dt  # noqa: B018
    with pytest.raises(TypeError, match="& joins predicates, not a Moment"):
        (col("a") == 1) & col("t").year()


def test_a_column_with_a_zone_is_cut_in_utc(path: str) -> None:
    assert (
        accel.scan(path, "year(z) = 2024").count_rows() == accel.scan(path, "year(t) = 2024").count_rows() > 0
    )


def test_bounds_rule_out_by_functions(path: str) -> None:
    for where in (
        "year(t) = 1583",
        "date_trunc('month', t) = DATE '1583-02-01'",
        "CAST(t AS DATE) < DATE '1600-01-01'",
    ):
        scan = accel.scan(path, where, cache=None)
        assert scan.count_rows() > 0
        explained = scan.explain()
        left, whole = explained.row_groups
        assert 0 < left < whole, where


def test_moments_are_computed_when_the_text_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    class Then(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:
            return datetime.datetime(2024, 3, 1, 12, 30, tzinfo=tz)

    class Module:
        datetime, UTC = Then, datetime.UTC

    monkeypatch.setattr(parser, "datetime", Module)
    for text, told in {
        "t >= CURRENT_DATE - 7": "t >= DATE '2024-02-23'",
        "t >= today() + 1": "t >= DATE '2024-03-02'",
        "t > now() - interval '3' hour": "t > TIMESTAMP '2024-03-01 09:30:00+00:00'",
        "t > CURRENT_TIMESTAMP - INTERVAL '2 days'": "t > TIMESTAMP '2024-02-28 12:30:00+00:00'",
        "t BETWEEN CURRENT_DATE - 1 AND CURRENT_DATE": "t >= DATE '2024-02-29' AND t <= DATE '2024-03-01'",
    }.items():
        assert to_sql(parse(text)) == told


def test_columns_of_these_names_stay_columns() -> None:
    text = 'year = 2024 AND "date" = \'2024-01-01\' AND now = 1 AND "current_date" = 2 AND cast = 3'
    assert to_sql(parse(text)).count("2024") == 2
    assert {str(n) for n in (2024, 1, 2, 3)} <= set(to_sql(parse(text)).replace("'", " ").split())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("month(t) = 3", "are functions here"),
        ("year(t)", "expected a condition, found a function"),
        ("year(t) = 'x'", "compared with a whole number"),
        ("year(t) = 2024.5", "compared with a whole number"),
        ("year(t) = true", "compared with a whole number"),
        ("year(t) = 9999", "from 1 to 9998"),
        ("year(t) = u", "a literal to compare the function with"),
        ("year(t) = year(u)", "a literal to compare the function with"),
        ("year(t) LIKE 'x'", "LIKE takes text"),
        ("cast(t AS int) = 3", "no other cast is supported"),
        ("extract(month from t) = 3", "keep their order"),
        ("date_trunc('eon', t) = '2024-01-01'", "one of 'year'"),
        ("date_trunc('day', t) = 3", "compared with a date or a timestamp"),
        ("date_trunc('day', t) = TIME '10:00'", "compared with a date or a timestamp"),
        ("date_trunc('day' t) = '2024-01-01'", "and a column"),
        ("t > now() - 7", "INTERVAL"),
        ("t > CURRENT_DATE - INTERVAL '1'", "expected a unit"),
        ("t > CURRENT_DATE - INTERVAL 'x day'", "a whole number"),
        ("t > CURRENT_DATE - INTERVAL '9999 years'", "0001 to 9999"),
        ("t > CURRENT_DATE - 99999999", "a whole number"),
        ("t > DATE '9999-12-31' + 1", "0001 to 9999"),
        ("year(t = 3", r"expected \)"),
    ],
)
def test_what_is_no_function_is_refused(text: str, told: str) -> None:
    with pytest.raises(PredicateError, match=told):
        parse(text)


def test_no_text_breaks_the_parser(tmp_path: pathlib.Path) -> None:
    rng = random.Random(3)
    words = [
        "year",
        "(",
        "t",
        ")",
        "=",
        "2024",
        "-",
        "+",
        "INTERVAL",
        "'7'",
        "DAY",
        "date_trunc",
        "'month'",
        ",",
        "CAST",
        "AS",
        "DATE",
        "CURRENT_DATE",
        "now",
        "IN",
        "NULL",
    ]
    for _ in range(3000):
        text = " ".join(rng.choices(words, k=rng.randint(1, 12)))
        try:
            to_sql(parse(text))
        except PredicateError:
            pass
