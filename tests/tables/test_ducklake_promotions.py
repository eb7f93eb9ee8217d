"""Columns of a DuckLake whose types were changed: every change that DuckDB allows is read as DuckDB reads it, or
refused by name."""

from __future__ import annotations

import datetime
import decimal
import itertools
import operator
import pathlib
import pickle
from typing import Any

import pyarrow as pa
import pytest

import accel
from accel.errors import SchemaMismatchError, TableFormatError
from tests.support.ducklake import Lake, plain

WHOLE = {
    "TINYINT": [-128, -5, 0, 1, 127],
    "SMALLINT": [-32768, -300, 0, 7, 32767],
    "INT": [-(2**31), -16777217, 0, 7, 16777217, 2**31 - 1],
    "BIGINT": [-(2**63), -9007199254740993, 0, 7, 16777217, 9007199254740993, 9223371761976868863, 2**63 - 1],
    "HUGEINT": [-(10**20), 0, 7, 9007199254740993, 10**20],
    "UTINYINT": [0, 1, 200, 255],
    "USMALLINT": [0, 7, 65535],
    "UINTEGER": [0, 7, 16777217, 2**32 - 1],
    "UBIGINT": [0, 7, 9007199254740993, 18446742974197923841, 2**64 - 1],
    "UHUGEINT": [0, 7, 9007199254740993, 10**20],
}
VALUES: dict[str, list[str]] = {
    "BOOLEAN": ["true", "false"],
    **{kind: [str(value) for value in values] for kind, values in WHOLE.items()},
    "FLOAT": ["0.1", "-0.1", "1e-45", "3.4028234e38", "16777217", "7"],
    "DOUBLE": ["0.1", "7"],
    "DECIMAL(4,1)": ["1.7", "-0.1", "0", "999.9", "7"],
    "DECIMAL(18,3)": ["900719925474099.317", "-16777.217", "0.001", "-999999999999999.999", "7"],
    "DECIMAL(38,10)": [
        "1234567890123456789012345678.0123456789",
        "-0.0000000001",
        "1844674407.3709551617",
        "7",
    ],
    "TIME": ["12:34:56.5"],
    "TIME_NS": ["12:34:56.5"],
    "TIMETZ": ["12:34:56.5+00"],
    "DATE": ["2024-02-29", "1899-12-31", "2200-01-01"],
    "TIMESTAMP": ["2024-02-29 01:02:03.5", "1969-12-31 23:59:59.999999"],
    "TIMESTAMP_S": ["2024-02-29 01:02:03", "1924-02-29 01:02:03"],
    "TIMESTAMP_MS": ["2024-02-29 01:02:03.5", "1924-02-29 01:02:03.123"],
    "TIMESTAMP_NS": ["2024-02-29 01:02:03.123456789"],
    "TIMESTAMPTZ": ["2024-02-29 01:02:03.5+00"],
    "INTERVAL": ["3 days"],
    "VARCHAR": ["[1, 2]", '{"a": 1}', "7"],
    "BLOB": ["ab"],
    "UUID": ["0191d6a0-0000-7000-8000-000000000001"],
    "JSON": ["[1, 2]"],
}
"""By type, values as text. Those in the middle of two floats are among them."""
NUMBERS = ["FLOAT", "DOUBLE"]
DECIMALS = ["DECIMAL(4,1)", "DECIMAL(18,3)", "DECIMAL(38,10)"]
READ = {
    "BOOLEAN": [*WHOLE, "JSON"],
    "TINYINT": ["SMALLINT", "INT", "BIGINT", "HUGEINT", *NUMBERS, *DECIMALS, "JSON"],
    "SMALLINT": ["INT", "BIGINT", "HUGEINT", *NUMBERS, *DECIMALS[1:], "JSON"],
    "INT": ["BIGINT", "HUGEINT", *NUMBERS, *DECIMALS[1:], "JSON"],
    "BIGINT": ["HUGEINT", *NUMBERS, DECIMALS[2], "JSON"],
    "HUGEINT": NUMBERS,
    "UTINYINT": [*list(WHOLE)[1:5], *list(WHOLE)[6:], *NUMBERS, *DECIMALS, "JSON"],
    "USMALLINT": [*list(WHOLE)[2:5], *list(WHOLE)[7:], *NUMBERS, *DECIMALS[1:], "JSON"],
    "UINTEGER": [*list(WHOLE)[3:5], *list(WHOLE)[8:], *NUMBERS, *DECIMALS[1:], "JSON"],
    "UBIGINT": ["HUGEINT", "UHUGEINT", *NUMBERS, DECIMALS[2], "JSON"],
    "UHUGEINT": NUMBERS,
    "FLOAT": ["DOUBLE"],
    "DECIMAL(4,1)": [*NUMBERS, *DECIMALS[1:]],
    "DECIMAL(18,3)": [*NUMBERS, DECIMALS[2]],
    "DECIMAL(38,10)": NUMBERS,
    "DATE": ["TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"],
    "TIMESTAMP": ["TIMESTAMP_NS"],
    "TIMESTAMP_S": ["TIMESTAMP", "TIMESTAMP_MS", "TIMESTAMP_NS"],
    "TIMESTAMP_MS": ["TIMESTAMP", "TIMESTAMP_NS"],
    "VARCHAR": ["JSON"],
}
"""By type, those that a column may become and that are read."""
REFUSED = {
    # Files hold doubles, of which DuckDB makes decimals with digits that nobody has written.
    "HUGEINT": ["DECIMAL(38,10)", "JSON"],
    "UHUGEINT": ["DECIMAL(38,10)", "JSON"],
    # The instant depends on the time zone of the session that reads.
    "DATE": ["TIMESTAMPTZ", "JSON"],
    "TIMESTAMP": ["TIMESTAMPTZ", "JSON"],
    # The text is DuckDB's own.
    **{kind: ["JSON"] for kind in ("FLOAT", "DOUBLE", *DECIMALS, "TIME", "TIME_NS", "TIMETZ", "TIMESTAMP_S")},
    **{
        kind: ["JSON"] for kind in ("TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMPTZ", "INTERVAL", "BLOB", "UUID")
    },
}
"""By type, those that a column may become and that are refused; and VARIANT, as columns of it are."""
NO_LITERALS = ("BOOLEAN", "INTERVAL", "BLOB", "TIME_NS")
"""Types of which DuckLake takes no default, or not as text."""


def table_of(lake: Lake, name: str = "events", **options: Any) -> accel.FileSource:
    return accel.tables.ducklake(lake.catalog, name, **options)  # type: ignore[no-any-return]


def test_the_lists_hold_all_changes_that_duckdb_allows(lake: Lake) -> None:
    import duckdb

    allowed = {}
    for have in VALUES:
        lake.run(f"CREATE TABLE events (c {have})")
        allowed[have] = []
        for to in [kind for kind in VALUES if kind != have]:
            lake.run("BEGIN")
            try:
                lake.run(f"ALTER TABLE events ALTER c SET TYPE {to}")
                allowed[have].append(to)
            except duckdb.Error as refusal:
                assert "widening" in str(refusal)
            lake.run("ROLLBACK")
        lake.run("DROP TABLE events")
    listed = {have: sorted([*READ.get(have, []), *REFUSED.get(have, [])]) for have in VALUES}
    assert {have: sorted(kinds) for have, kinds in allowed.items()} == listed


def make(lake: Lake, name: str, have: str, to: str) -> None:
    """Make a table with rows of before and after a change, in files and in the catalog."""
    values = ", ".join(f"('{text}'::{have})" for text in VALUES[have])
    lake.run(
        f"CREATE TABLE {name} (part VARCHAR, c {have})",
        f"INSERT INTO {name} SELECT 'file', a FROM (VALUES {values}) v(a), range(20)",
        f"INSERT INTO {name} SELECT 'null', NULL FROM range(20)",
        f"INSERT INTO {name} SELECT 'inlined', a FROM (VALUES {values}) v(a)",
    )
    if have not in NO_LITERALS:
        lake.run(f"ALTER TABLE {name} ADD COLUMN z {have} DEFAULT '{VALUES[have][0]}'")
        lake.run(f"ALTER TABLE {name} ALTER z SET TYPE {to}")
    lake.run(f"ALTER TABLE {name} ALTER c SET TYPE {to}")
    after = VALUES[to][0] if to != "JSON" else "[1, 2]"
    lake.run(
        f"INSERT INTO {name} BY NAME SELECT 'later' AS part, '{after}'::{to} AS c FROM range(20)",
        f"INSERT INTO {name} BY NAME SELECT 'later, inlined' AS part, '{after}'::{to} AS c",
    )


def literal(value: Any) -> str:
    if isinstance(value, datetime.datetime):
        return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
    return repr(value) if isinstance(value, int | float) else str(value) if is_number(value) else f"'{value}'"


def is_number(value: Any) -> bool:
    return isinstance(value, int | float | decimal.Decimal)


def holds(lake: Lake, name: str, to: str) -> None:
    """Fail where the rows of a table, all or those that a filter leaves, are not those of DuckDB."""
    names = lake.query(f"SELECT * FROM {name} LIMIT 0").column_names
    chosen = [f"{one}::DOUBLE AS {one}" if one != "part" and "HUGEINT" in to else one for one in names]
    rows = lake.query(f"SELECT {', '.join(chosen)} FROM {name}").to_pylist()
    lake.close()
    expected = sorted(repr(list(map(plain, row.values()))) for row in rows)
    table, cache = table_of(lake, name), accel.Cache()
    found = accel.scan(table, cache=cache).to_table()
    assert sorted(repr(list(map(plain, row.values()))) for row in found.to_pylist()) == expected
    assert accel.scan(table, "c IS NULL", cache=cache).count_rows() == 20
    values = [row["c"] for row in rows if row["c"] is not None]
    ranges = itertools.cycle(((">", operator.gt), ("<=", operator.le)))
    for value in dict.fromkeys(values):
        for sign, compare in (("=", operator.eq), next(ranges)):
            scan = accel.scan(table, f"c {sign} {literal(value)}", columns=["part", "c"], cache=cache)
            matching = sorted(repr(plain(one)) for one in values if compare(one, value))
            assert sorted(repr(plain(one)) for one in scan.to_table()["c"].to_pylist()) == matching, (
                sign,
                value,
            )
    for order, turned in (("c", False), ("c desc", True)):
        ordered = accel.scan(table, columns=["c"], order_by=order, limit=25, cache=cache).to_table()["c"]
        assert ordered.to_pylist() == sorted(values, reverse=turned)[:25]
    if not isinstance(values[0], str):
        totals = accel.scan(table, cache=cache).aggregate([("c", "min"), ("c", "max"), ("c", "count")])
        assert list(totals.to_pylist()[0].values()) == [min(values), max(values), len(values)]
    distinct = accel.distinct(table, "c", cache=cache)
    assert {repr(one) for one in distinct.to_pylist()} == {repr(row["c"]) for row in rows}


@pytest.mark.parametrize("have", READ)
def test_every_change_that_is_read_is_read_as_duckdb_reads_it(lake: Lake, have: str) -> None:
    for at, to in enumerate(READ[have]):
        make(lake, f"events{at}", have, to)
        holds(lake, f"events{at}", to)


@pytest.mark.parametrize(
    "change", [("FLOAT", "DOUBLE"), ("BIGINT", "DOUBLE"), ("DECIMAL(18,3)", "FLOAT"), ("BOOLEAN", "INT")]
)
def test_other_databases_judge_statistics_of_before_a_change_alike(
    any_lake: Lake, change: tuple[str, str]
) -> None:
    make(any_lake, "events", *change)
    holds(any_lake, "events", change[1])


# DuckDB's writer of Parquet has no TIME_NS.
@pytest.mark.parametrize("have", [kind for kind in REFUSED if kind != "TIME_NS"])
def test_changes_that_are_refused_say_so(lake: Lake, have: str) -> None:
    for at, to in enumerate([*REFUSED[have], "VARIANT"]):
        name = f"events{at}"
        lake.run(
            f"CREATE TABLE {name} (id INT, c {have})",
            f"INSERT INTO {name} SELECT i, '{VALUES[have][0]}'::{have} FROM range(20) r(i)",
            f"ALTER TABLE {name} ALTER c SET TYPE {to}",
        )
        lake.close()
        with pytest.raises((TableFormatError, SchemaMismatchError), match="column 'c'"):
            accel.scan(table_of(lake, name)).to_table()
        if to == "VARIANT":
            continue
        assert accel.scan(table_of(lake, name), "id < 5", columns=["id"]).to_table().num_rows == 5
        lake.run(f"INSERT INTO {name} SELECT 1, NULL")
        lake.close()
        before = table_of(lake, name, version=lake.version() - 2)
        lake.close()
        assert accel.scan(before).to_table().num_rows == 20


def test_a_change_of_inlined_rows_that_is_refused_names_both_types(lake: Lake) -> None:
    lake.run("CREATE TABLE events (c TIMESTAMP)", "INSERT INTO events VALUES ('2024-01-01')")
    lake.run("ALTER TABLE events ALTER c SET TYPE TIMESTAMPTZ")
    lake.close()
    with pytest.raises(
        TableFormatError, match=r"'c' was timestamp\[us\] and has become timestamp\[us, tz=UTC\]"
    ):
        accel.scan(table_of(lake)).to_table()
    lake.run(
        "ALTER TABLE events ADD COLUMN zoned TIMESTAMPTZ",
        "UPDATE events SET zoned = c",
        "ALTER TABLE events DROP COLUMN c",
    )
    lake.close()
    assert accel.scan(table_of(lake)).to_table().num_rows == 1  # as the hint says


def test_several_changes_of_one_column_and_of_nested_ones(lake: Lake) -> None:
    import duckdb

    lake.run(
        "CREATE TABLE events (id INT, c TINYINT, s STRUCT(a INT, b DECIMAL(4, 1)[]), m MAP(INT, SMALLINT))"
    )
    changes = [
        "ALTER c SET TYPE INT",
        "ALTER s SET TYPE STRUCT(a FLOAT, b DECIMAL(9, 3)[])",
        "ALTER c SET TYPE FLOAT",
        "ALTER m SET TYPE MAP(BIGINT, DOUBLE)",
        "ALTER s SET TYPE STRUCT(a DOUBLE, b DOUBLE[], n INT)",
        "ALTER c SET TYPE DOUBLE",
    ]
    for at, change in enumerate(["", *changes]):
        if change:
            lake.run(f"ALTER TABLE events {change}")
        added = ", 'n': 5" if at > 4 else ""
        row = f"100 + i AS c, {{'a': 16777217, 'b': [1.7, NULL]{added}}} AS s, MAP {{1: 3, 2: NULL}} AS m"
        for start, rows in ((100 * at, 2), (100 * at + 50, 20)):
            lake.run(f"INSERT INTO events BY NAME SELECT {start} + i AS id, {row} FROM range({rows}) r(i)")
    own = lake.query("SELECT * FROM events ORDER BY id")
    lake.close()
    assert accel.scan(table_of(lake)).to_table().sort_by("id").to_pylist() == own.to_pylist()
    for where in ("s.a = 16777216", "s.a > 16777216", "c >= 110.0", "s.a = 16777217 AND c < 105", "s.n = 5"):
        ids = duckdb.sql(f"SELECT id FROM own WHERE {where} ORDER BY id").fetchall()
        scan = accel.scan(table_of(lake), where, columns=["id"])
        assert sorted(scan.to_table()["id"].to_pylist()) == [row[0] for row in ids]


def test_an_index_from_before_a_change_loses_no_row(lake: Lake, tmp_path: pathlib.Path) -> None:
    lake.run("CREATE TABLE events (id INT, c BIGINT, d DECIMAL(18, 3))")
    for start in (0, 1000):
        lake.run(
            f"INSERT INTO events SELECT i, 9007199254740992 + i, i / 1000 FROM range({start}, {start + 1000}) r(i)"
        )
    before = str(tmp_path / "before")
    accel.build_index(table_of(lake), to=before, indexes={"c": "keys", "d": "keys"})
    lake.run("ALTER TABLE events ALTER c SET TYPE DOUBLE", "ALTER TABLE events ALTER d SET TYPE FLOAT")
    lake.run("INSERT INTO events SELECT i, 9007199254740992 + i, i / 1000 FROM range(2000, 3000) r(i)")
    rows = lake.query("SELECT * FROM events").to_pylist()
    lake.close()
    after = str(tmp_path / "after")
    with pytest.warns(UserWarning, match="in another type than the first file"):
        accel.build_index(table_of(lake), to=after, indexes={"c": "keys", "d": "keys"})
    for index in (before, after, None):
        for id in (1, 2, 3, 999, 1717, 2501):
            for column in ("c", "d"):
                value = rows[[row["id"] for row in rows].index(id)][column]
                scan = accel.scan(table_of(lake), f"{column} = {value!r}", index=index)
                same = sorted(row["id"] for row in rows if row[column] == value)
                assert sorted(scan.to_table()["id"].to_pylist()) == same, (index, column, value)


def test_a_plan_carries_the_change_of_types(lake: Lake) -> None:
    lake.run("CREATE TABLE events (c BIGINT)", "INSERT INTO events SELECT 9007199254740993 FROM range(20)")
    lake.run("ALTER TABLE events ALTER c SET TYPE DOUBLE")
    lake.close()
    plan = accel.plan(table_of(lake), "c = 9007199254740992")
    for carried in (plan, pickle.loads(pickle.dumps(plan)), accel.Plan.from_arrow(plan.to_arrow())):
        found = accel.scan(carried).to_table()
        assert found.schema.field("c").type == pa.float64()
        assert found["c"].to_pylist() == [9007199254740992.0] * 20
