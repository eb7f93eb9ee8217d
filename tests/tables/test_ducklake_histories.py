"""Random histories of DuckLake tables, read at every version: as DuckDB reads them, with and without filters and
with and without an index that was built at some version."""

from __future__ import annotations

import pathlib
import tempfile
import warnings

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import accel
from tests.support.ducklake import Lake, matching, same_rows
from tests.support.postgres import Postgres

DATABASES = ("sqlite", "duckdb", "postgresql")
WIDER = {
    "id": ["INT", "BIGINT"],
    "w": ["UTINYINT", "SMALLINT", "INT", "FLOAT", "DOUBLE"],
    "x": ["FLOAT", "DOUBLE"],
    "e": ["DECIMAL(5, 2)", "DECIMAL(9, 3)", "DOUBLE"],
    "d": ["DATE", "TIMESTAMP", "TIMESTAMP_NS"],
}
"""By column, the types that it has one after the other."""
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *("small", "small", "large", "large", "delete", "delete", "update", "upsert"),
                *("add", "drop", "rename", "widen", "widen", "add field", "rename field", "drop field"),
                *("partition", "merge", "flush", "rewrite"),
            ]
        ),
        st.integers(0, 99),
        st.integers(1, 60),
    ),
    min_size=4,
    max_size=10,
)


class History:
    """A table, and what may be done to it. It knows the columns, by what they are filled with."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.columns = {
            "id": "i",
            "name": "'n' || (i * 7 % 50)",
            "x": "(i * 13 % 40) / 10",
            "w": "i * 3 % 256",
            "e": "(i * 17 % 1000) / 100",
            "d": "DATE '2024-01-01' + (i % 90)::INT",
        }
        self.types = {name: kinds[0] for name, kinds in WIDER.items()}
        self.fields = {"a": "(i % 9)::INT", "b": "['x, y', 'it''s ' || i, NULL]"}
        self.made = self.next = 0
        names = ", ".join(f"{name} {self.types.get(name, 'VARCHAR')}" for name in self.columns)
        lake.run(f"CREATE TABLE events ({names}, s STRUCT(a INT, b VARCHAR[]))")
        self.insert(30)

    @property
    def name(self) -> str:
        """The column of texts as it is called now."""
        return next(name for name in self.columns if name.startswith("name"))

    def values(self) -> str:
        """The columns of rows whose numbers are `i`."""
        values = [
            f"CASE WHEN i % 11 = {at} THEN NULL ELSE {text} END AS {name}"
            for at, (name, text) in enumerate(self.columns.items())
        ]
        fields = ", ".join(f"'{name}': {text}" for name, text in self.fields.items())
        return f"{', '.join(values)}, CASE WHEN i % 5 = 0 THEN NULL ELSE {{{fields}}} END AS s"

    def insert(self, rows: int) -> None:
        self.lake.run(
            f"INSERT INTO events BY NAME SELECT {self.values()} FROM range({self.next}, {self.next + rows}) r(i)"
        )
        self.next += rows

    def step(self, kind: str, number: int, count: int) -> None:
        run = self.lake.run
        low = number % self.next
        within = f"id BETWEEN {low} AND {low + count // 3}"
        match kind:
            case "small":
                self.insert(1 + count % 5)
            case "large":
                self.insert(12 + count)
            case "delete":
                run(f"DELETE FROM events WHERE {within}")
            case "update":
                run(f"UPDATE events SET {self.name} = 'n3', d = d + INTERVAL 1 DAY WHERE {within}")
            case "upsert":
                run(
                    f"MERGE INTO events USING (SELECT {self.values()} FROM range({low}, {low + count}) r(i)) u "
                    f"ON events.id = u.id WHEN MATCHED THEN UPDATE SET {self.name} = 'n5' "
                    "WHEN NOT MATCHED THEN INSERT BY NAME"
                )
                self.next = max(self.next, low + count)
            case "add":
                name = self.fresh("c")
                run(f"ALTER TABLE events ADD COLUMN {name} INT{['', ' DEFAULT 42'][number % 2]}")
                self.columns[name] = "i % 6"
            case "drop" if len(self.columns) > 6:
                name = list(self.columns)[-1]
                run(f"ALTER TABLE events DROP COLUMN {name}")
                del self.columns[name]
            case "rename":
                before, after = self.name, self.fresh("name")
                run(f"ALTER TABLE events RENAME COLUMN {before} TO {after}")
                self.columns = {
                    after if name == before else name: text for name, text in self.columns.items()
                }
            case "widen":
                name = list(WIDER)[number % len(WIDER)]
                wider = WIDER[name][WIDER[name].index(self.types[name]) + 1 :]
                if wider:
                    self.types[name] = wider[count % len(wider)]
                    run(f"ALTER TABLE events ALTER COLUMN {name} SET TYPE {self.types[name]}")
            case "add field":
                name = self.fresh("f")
                run(f"ALTER TABLE events ADD COLUMN s.{name} INT{['', ' DEFAULT 7'][number % 2]}")
                self.fields[name] = "i % 4"
            case "drop field" if len(self.fields) > 2:
                name = list(self.fields)[-1]
                run(f"ALTER TABLE events DROP COLUMN s.{name}")
                del self.fields[name]
            case "rename field" if len(self.fields) > 2:
                before, after = list(self.fields)[-1], self.fresh("f")
                run(f"ALTER TABLE events RENAME COLUMN s.{before} TO {after}")
                self.fields[after] = self.fields.pop(before)
            case "partition":
                keys = ["", f"{self.name}", "bucket(4, id)", "year(d), w"][number % 4]
                run(
                    f"ALTER TABLE events {f'SET PARTITIONED BY ({keys})' if keys else 'RESET PARTITIONED BY'}"
                )
            case "merge":
                run("CALL ducklake_merge_adjacent_files('lake')")
            case "flush":
                run("CALL ducklake_flush_inlined_data('lake')")
            case "rewrite":
                run(f"CALL ducklake_rewrite_data_files('lake', delete_threshold => {number / 200})")

    def fresh(self, prefix: str) -> str:
        """Return a name, which may be one that was dropped."""
        self.made += 1
        names = [f"{prefix}{at}" for at in range(self.made + 1)]
        return next(name for name in names if name not in {**self.columns, **self.fields})


def predicates(rows: pa.Table, number: int, most: int) -> list[str]:
    """Return conditions on the columns that a version has."""
    low = number % (most + 5)
    some = [
        f"id = {low}",
        f"id BETWEEN {low} AND {low + 9}",
        f"id IN ({low}, {low + 1}, {low + 200}) OR NOT id < {most - 2}",
        "x > 0.1",
        f"x <= {number % 40 / 8} AND id > {low}",
        "x IS NULL OR e IS NULL",
        f"w = {number * 3 % 256}",
        f"e > {number / 10} AND w < 200",
        f"d = DATE '2024-0{1 + number % 3}-{10 + number % 18}'",
        f"d < DATE '2024-02-01' OR id = {low}",
        f"s.a >= {number % 9}",
    ]
    (text,) = (name for name in rows.column_names if name.startswith("name"))
    some += [f"{text} = 'n{number % 50}'", f"{text} LIKE 'n1%'", f"{text} > 'n3' AND {text} < 'n5'"]
    some += [f"{name} = 42 OR {name} < 2" for name in rows.column_names if name.startswith("c")]
    fields = [field.name for field in rows.schema.field("s").type if field.name.startswith("f")]
    some += [f"s.{name} = 7" for name in fields] + [f"s.{name} IS NULL" for name in fields]
    start = number % len(some)
    return [*some[start:], *some[:start]][:3]


@pytest.mark.parametrize("database", DATABASES)
@given(steps=STEPS, indexed_at=st.integers(0, 9), number=st.integers(0, 499))
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_version_of_a_random_history_is_read_with_and_without_an_index(
    request: pytest.FixtureRequest,
    database: str,
    steps: list[tuple[str, int, int]],
    indexed_at: int,
    number: int,
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        place = pathlib.Path(directory)
        catalog = f"{database}:///{place / 'catalog.db'}"
        if database == "postgresql":
            server: Postgres = request.getfixturevalue("postgres")
            catalog = server.new_database()
        with Lake(catalog, place / "data") as lake:
            history = History(lake)
            first = lake.version()
            for at, step in enumerate(steps):
                history.step(*step)
                if at == min(indexed_at, len(steps) - 1):
                    build(lake, history, place)
            expected = {}
            for version in range(first, lake.version() + 1):
                rows = lake.at(version)
                asked = predicates(rows, number + version, history.next)
                # DuckDB rounds a literal to a FLOAT that it is compared with; accel compares the values.
                exact = [where.replace("x > ", "x::DOUBLE > ") for where in asked]
                found = [matching(rows, where) for where in exact]
                expected[version] = list(zip(["", *asked], [rows, *found], strict=True))
        for version, cases in expected.items():
            table, cache = accel.tables.ducklake(lake.catalog, "events", version=version), accel.Cache()
            for where, rows in cases:
                for index in (None, str(place / "index")):
                    scan = accel.scan(table, where or None, index=index, cache=cache)
                    same_rows(scan.to_table(), rows)
                    assert scan.count_rows() == rows.num_rows


def build(lake: Lake, history: History, place: pathlib.Path) -> None:
    """Index the table as it is now."""
    lake.close()
    indexes = {"id": "keys", history.name: "keys", "w": "keys", "x": "keys", "e": "keys", "s.a": "keys"}
    with warnings.catch_warnings():
        # It leaves out files of before a change, and rows that are in none.
        warnings.simplefilter("ignore", UserWarning)
        accel.build_index(
            accel.tables.ducklake(lake.catalog, "events"), to=str(place / "index"), indexes=indexes
        )
