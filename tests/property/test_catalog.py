"""A scan with the catalog is the scan without it, and what pyarrow finds, whatever became of the files since
it was built."""

from __future__ import annotations

import datetime
import decimal
import random
import tempfile
import uuid
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

import accel
from accel.catalog.homes import sql_pages, sql_tables
from accel.catalog.inspecting import verify_index
from accel.testing import DictStore, Layout, RecordingStore, write_file
from tests.property.judged_predicates import Judged, predicates
from tests.support.postgres import Postgres

# The files have columns in different types, which some kinds leave out.
pytestmark = pytest.mark.filterwarnings("ignore:the index .* leaves out:UserWarning")

DIRECTORY = "t/"
INDEX = "t/_accel/"
NAMES = (
    "e=1/a.parquet",
    "e=1/b/c.parquet",
    "e=2/b/d.parquet",
    "e=10/f.parquet",
    "e=__HIVE_DEFAULT_PARTITION__/f.parquet",
)
"""In the order of their paths."""
BY_FILE = ("distinct", "bloom", "zonemap")
INDEXES: dict[Any, Any] = {
    **{name: ["keys", *BY_FILE] for name in ("n", "x", "d", "t", "st.v")},
    "s": ["keys", "ngram", *BY_FILE],
    ("s", "n", "st.v"): "keys",
    ("t", "x"): "keys",
    **dict.fromkeys(("lower(s)", "year(t)", "day(t)", "hour(t)"), "zonemap"),
}
SUBSETS: tuple[dict[Any, Any], ...] = (
    INDEXES,
    {name: "keys" for name in ("n", "x", "d", "t", "st.v", ("s", "n", "st.v"))},
    {"s": "ngram"},
    dict.fromkeys(("n", "x", "s", "d", "t", "st.v"), "distinct"),
    dict.fromkeys(("n", "x", "s", "d", "t", "st.v"), "bloom"),
    dict.fromkeys(("n", "x", "lower(s)", "d", "hour(t)", "st.v"), "zonemap"),
)
"""Each kind alone, and all together."""
PREDICATES = (
    "n = 7",
    "n > 90 OR n < 3",
    "NOT (n >= 10)",
    "x > 5",
    "x <= 0",
    "x IS NULL",
    "s = 'abc'",
    "s LIKE 'ab%' AND n < 50",
    "s IN ('q', 'zzz') OR x = 1.5",
    "d > 10.25",
    "d = 3",
    "t >= '2020-01-03'",
    "t IS NOT NULL AND b",
    "b IS NULL",
    "st.v BETWEEN 4 AND 6",
    "n <> 7 AND st.v IS DISTINCT FROM 4",
    "n = 7.0",
    "s = 'q' AND n = 7",
    "n IN (1, 5, 50, 95) AND x = 1.5",
    "x = DOUBLE 'NaN'",
    "st.v = 5",
    "t = '2020-01-03 05:00:00' OR n = 3",
    "t = '2020-01-03 05:00:00'",
    "s = 'abc' AND n = 5",
    "s IN ('q', 'abd', 'none') AND st.v = 5 AND n IN (5, 6, 50)",
    "t IN (TIMESTAMP '2020-01-03 05:00:00') AND x = 1.5",
    "s = 'q' AND st.v = 0",
    "s LIKE '%zzzz%'",
    "s ILIKE '%ZZZZ%' AND s LIKE '%z'",
    "s LIKE '%abc%' OR s = 'zz'",
    "s ILIKE '%ÉÉÉ%' OR s ILIKE 'ABD'",
    "NOT s LIKE '%abc%'",
    "s LIKE '%abc%' OR n = 5",
    "s LIKE '%bc' AND (s LIKE 'ab%' OR s IN ('abc', 'abd'))",
    "NOT (n = 5 OR s = 'q') AND x < 100",
    "n NOT IN (5, 6, NULL)",
    "s ILIKE 'Q%'",
    "n IS DISTINCT FROM 5 AND NOT (x = 1.5 AND x < 3)",
    "x = -0.0 OR x = DOUBLE 'NaN'",
    "t < '2020-01-02' AND n > x",
    "e = 2",
    "e > 1 AND n < 50",
    "e IS NULL OR n = 5",
    "NOT e = 1 AND s = 'abc'",
    "e = n OR e IN (10, NULL)",
)


def rows(seed: int, count: int, kind: int) -> pa.Table:
    """A table of `count` rows around a value that `seed` chooses; `kind` varies the types and the columns.

    Kind 3 has its texts in a dictionary, and kind 4 has nulls alone where other kinds have numbers and texts.
    """
    r = random.Random(seed)
    centre = r.choice([0, 5, 50, 95])

    def maybe(value: Any) -> Any:
        return None if r.random() < 0.2 else value

    numbers = [maybe(centre + r.randrange(-6, 7)) for _ in range(count)]
    doubles = [
        maybe(r.choice([centre / 10, -0.0, 1.5, float("nan"), float("inf"), -7.25])) for _ in range(count)
    ]
    texts = [maybe(r.choice(["abc", "abd", "q", "zz" * 60, "", "é" * 40])) for _ in range(count)]
    decimals = [maybe(decimal.Decimal(centre * 100 + r.randrange(100)).scaleb(-2)) for _ in range(count)]
    days = [
        maybe(datetime.datetime(2020, 1, 1) + datetime.timedelta(hours=centre + r.randrange(30)))
        for _ in range(count)
    ]
    flags = [maybe(r.random() < 0.5) for _ in range(count)]
    structs = [maybe({"v": maybe(centre // 10 + r.randrange(3))}) for _ in range(count)]
    columns: dict[str, pa.Array] = {
        "n": pa.array(numbers, pa.int32() if kind == 1 else pa.int64()),
        "x": pa.array(doubles, pa.float64()),
        "s": pa.array(texts, pa.string()),
        "d": pa.array(decimals, pa.decimal128(9 if kind == 1 else 12, 2)),
        "t": pa.array(days, pa.timestamp("ms" if kind == 1 else "us")),
        "b": pa.array(flags, pa.bool_()),
        "st": pa.array(structs, pa.struct([("v", pa.int16())])),
    }
    if kind == 2:
        del columns["b"]
    if kind == 3:
        columns["s"] = columns["s"].dictionary_encode()
    if kind == 4:
        columns |= {name: pa.nulls(count, columns[name].type) for name in ("n", "s")}
    return pa.table(columns)


def file(seed: int, count: int, kind: int) -> bytes:
    layout = Layout(group_rows=max(1, count // 2), page_rows=max(1, count // 5), page_index=seed % 3 > 0)
    return write_file(rows(seed, count, kind), layout)


def shown(table: pa.Table) -> tuple[pa.Schema, str]:
    """A table as its schema and its values; NaN is equal to itself there."""
    return table.schema, repr(table.to_pylist())


def everything(store: DictStore) -> pa.Table:
    """All rows of all files in their order, as pyarrow reads them, with the column that their paths spell."""
    tables = []
    for path in sorted(path for path in store.objects if not path.startswith(INDEX)):
        found = pq.read_table(pa.BufferReader(store.objects[path]))
        spelled = path.removeprefix(DIRECTORY).split("/")[0].removeprefix("e=")
        value = int(spelled) if spelled.isdigit() else None
        columns = [
            found.column(f.name).cast(f.type)
            if f.name in found.schema.names
            else pa.chunked_array([pa.nulls(len(found), f.type)])
            for f in SCHEMA
        ]
        columns.append(pa.chunked_array([pa.array([value] * len(found), pa.int64())]))
        tables.append(pa.Table.from_arrays(columns, schema=SCHEMA.append(pa.field("e", pa.int64()))))
    return pa.concat_tables(tables)


SCHEMA = rows(1, 3, 0).schema
ASKED = [
    (name, function)
    for name in ("n", "t", "d", "x", "s", "b", "st.v")
    for function in ("count", "min", "max")
]
ASKED += [("n", "sum"), ("d", "sum"), ("st.v", "sum"), ("b", "sum"), ([], "count_all")]


class Histories(RuleBasedStateMachine):
    """Files come, go and change beside a catalog that is refreshed now and then."""

    def place(self) -> str | None:
        """Where the catalog is built; None for beside the files."""
        return None

    @property
    def index(self) -> str:
        return self.to or INDEX

    @initialize(seed=st.integers(0, 999), indexes=st.sampled_from(SUBSETS))
    def begin(self, seed: int, indexes: dict[Any, Any]) -> None:
        self.to = self.place()
        self.indexes = indexes
        self.store = RecordingStore(DictStore({DIRECTORY + NAMES[0]: file(seed, 10, 0)}))
        self.cache = accel.Cache(max_age=0)
        self.built = False

    @rule(
        name=st.sampled_from(NAMES),
        seed=st.integers(0, 999),
        count=st.integers(0, 25),
        kind=st.integers(0, 4),
    )
    def put(self, name: str, seed: int, count: int, kind: int) -> None:
        self.store.inner.put(DIRECTORY + name, file(seed, count, kind))

    @rule(name=st.sampled_from(NAMES[1:]))
    def remove(self, name: str) -> None:
        if DIRECTORY + name in self.store.inner.objects:
            self.store.inner.delete(DIRECTORY + name)

    @rule()
    def build(self) -> None:
        report = accel.build_index(DIRECTORY, to=self.to, indexes=self.indexes, store=self.store.inner)
        self.built = True
        assert report.files == sum(
            name.endswith(".parquet") and "_accel" not in name for name in self.store.inner.objects
        )
        assert not report.skipped

    @rule(indexes=st.sampled_from(SUBSETS))
    def build_more(self, indexes: dict[Any, Any]) -> None:
        """Kinds that the catalog lacks are added to it."""
        if self.built:
            accel.build_index(DIRECTORY, to=self.to, indexes=indexes, store=self.store.inner)
            assert verify_index(self.index, store=self.store.inner).is_empty

    @rule()
    def compact(self) -> None:
        if self.built:
            before = accel.refresh_index(self.index, store=self.store.inner).files
            after = accel.compact_index(self.index, store=self.store.inner)
            assert verify_index(self.index, store=self.store.inner).is_empty
            assert after.files == before
            assert after.segments <= 1

    @rule()
    def vacuum(self) -> None:
        if self.built:
            accel.vacuum_index(self.index, grace=0, store=self.store.inner)

    @rule(where=st.sampled_from(PREDICATES), shared=st.booleans())
    def scan(self, where: str, shared: bool) -> None:
        if not self.built:
            return
        given: dict[str, Any] = {"store": self.store, "schema": SCHEMA}
        expected = accel.scan(DIRECTORY, where, cache=None, **given).to_table()
        cache = self.cache if shared else None
        found = accel.scan(DIRECTORY, where, index=self.index, cache=cache, **given)
        assert shown(found.to_table()) == shown(expected), where
        plain = accel.scan(DIRECTORY, where, index=None, **(given | {"cache": None}))
        asked = random.Random(len(where) + expected.num_rows).sample(ASKED, 2)
        assert shown(found.aggregate(asked)) == shown(plain.aggregate(asked)), (where, asked)
        assert found.metrics.warnings == []
        assert (
            accel.scan(DIRECTORY, where, index=self.index, cache=cache, **given).count_rows()
            == expected.num_rows
        )

    @rule(where=st.sampled_from(PREDICATES))
    def scan_as_listed_by_the_catalog(self, where: str) -> None:
        """What the catalog lists is what is there, right after a refresh."""
        if not self.built:
            return
        accel.refresh_index(self.index, store=self.store.inner)
        given: dict[str, Any] = {"store": self.store, "schema": SCHEMA, "cache": None}
        expected = accel.scan(DIRECTORY, where, **given).to_table()
        found = accel.scan(DIRECTORY, where, index=self.index, listing="index", **given)
        assert shown(found.to_table()) == shown(expected), where
        plain = accel.scan(DIRECTORY, where, index=None, **(given | {"cache": None}))
        asked = random.Random(len(where) + expected.num_rows).sample(ASKED, 2)
        assert shown(found.aggregate(asked)) == shown(plain.aggregate(asked)), (where, asked)

    @rule(where=predicates(), fresh=st.booleans())
    def judge(self, where: Judged, fresh: bool) -> None:
        """With the catalog, without it, and pyarrow's own filter over all that pyarrow reads."""
        if not self.built:
            return
        if fresh:
            accel.refresh_index(self.index, store=self.store.inner)
        found = where.filter(everything(self.store.inner))
        judged = shown(found)
        given: dict[str, Any] = {"store": self.store, "schema": SCHEMA, "cache": None}
        assert shown(accel.scan(DIRECTORY, where.sql, index=None, **given).to_table()) == judged
        given["index"] = self.index
        assert shown(accel.scan(DIRECTORY, where.sql, **given).to_table()) == judged
        if fresh:
            scan = accel.scan(DIRECTORY, where.sql, listing="index", **given)
            assert shown(scan.to_table()) == judged
            assert scan.count_rows() == len(found)

    @invariant()
    def nothing_is_left_half_done(self) -> None:
        if getattr(self, "built", False) and self.to is None:
            assert INDEX + "head" in self.store.inner.objects


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=25, stateful_step_count=14, deadline=None)


class DatabaseHistories(Histories):
    """The catalog lies in a database, in pages that are so small that even a few rows are looked for by their
    keys."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = pytest.MonkeyPatch()
        for name, value in (("BOUNDS_ROWS", 1), ("PAGE_ROWS", 3), ("FEW_PAGES", 0)):
            self.patches.setattr(sql_pages, name, value)
        self.patches.setattr(sql_tables, "AT_ONCE", 3)

    def teardown(self) -> None:
        self.patches.undo()


class SqliteHistories(DatabaseHistories):
    def place(self) -> str:
        self.directory = tempfile.TemporaryDirectory()
        return f"sqlite:///{self.directory.name}/index.db"

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "directory"):
            self.directory.cleanup()


class PostgresHistories(DatabaseHistories):
    server: Postgres

    def place(self) -> str:
        return f"{self.server.url()}#h{uuid.uuid4().hex[:16]}"


TestSqliteHistories = SqliteHistories.TestCase
TestSqliteHistories.settings = settings(max_examples=15, stateful_step_count=14, deadline=None)


def test_histories_beside_a_catalog_in_postgres(postgres: Postgres) -> None:
    PostgresHistories.server = postgres
    short = settings(max_examples=5, stateful_step_count=12, deadline=None)
    run_state_machine_as_test(PostgresHistories, settings=short)


@pytest.mark.parametrize("where", PREDICATES)
def test_the_first_files_schema_settles_the_scan_with_and_without_the_catalog(where: str) -> None:
    store = DictStore({f"t/e={at // 2}/{at}.parquet": file(at, 20, at % 2) for at in range(8)})
    accel.build_index(DIRECTORY, store=store)
    for listing in ("store", "index"):
        outcomes = []
        for given in ({}, {"index": INDEX, "listing": listing}):
            try:
                found = accel.scan(DIRECTORY, where, store=store, cache=None, **given)
                outcomes.append(shown(found.to_table()))
            except accel.SchemaMismatchError as error:
                outcomes.append(type(error))
        assert outcomes[0] == outcomes[1] or outcomes[0] is accel.SchemaMismatchError
