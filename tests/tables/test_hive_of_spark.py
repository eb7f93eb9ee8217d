"""Tables that Spark makes in a Hive Metastore, and the rows that it reads of them."""

from __future__ import annotations

import datetime
import pickle
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import accel
from accel.tables.formats.hive import table as hive_table
from accel.testing import DictStore, write_file
from tests.support.hive_metastore import HiveMetastore
from tests.support.hive_spark import REFUSED, TABLES

# Spark takes most of a minute to make them, and the first test waits for that.
pytestmark = pytest.mark.timeout(600)

FRESH: dict[str, Any] = {"cache": None}


def rows_of(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def scan(metastore: HiveMetastore, table: str, where: str | None = None, **given: Any) -> accel.Scan:
    return accel.scan(accel.tables.hive(metastore.url, table), where, **{**FRESH, **given})


def reference(table: pa.Table, where: str | None) -> list[str]:
    """The rows of a table that match, by the exact evaluator over one file of all of them."""
    file = DictStore({"all.parquet": write_file(table)})
    return rows_of(accel.scan("all.parquet", where, store=file, cache=None).to_table())


@pytest.mark.parametrize("table", TABLES)
def test_the_rows_are_those_that_spark_reads(
    metastore: HiveMetastore, by_spark: Mapping[str, pa.Table], table: str
) -> None:
    found = scan(metastore, f"db.{table}")
    expected = by_spark[table]
    assert found.schema.names == expected.column_names
    assert rows_of(found.to_table()) == rows_of(expected)
    assert found.count_rows() == expected.num_rows
    facts = found.metrics.table
    assert facts is not None
    assert (facts.format, facts.location) == ("Hive", f"{metastore.url}/db.{table}")


REGIONS = st.sampled_from(["eu", "EU", "us/x", "it's", 'a"b', "50%", "none", "a", ""])
DAYS = st.dates(datetime.date(2023, 12, 30), datetime.date(2024, 1, 7))
OPERATORS = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])


def text(value: object) -> str:
    return str(value) if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'"


ATOMS = st.one_of(
    st.builds(lambda op, value: f"region {op} {text(value)}", OPERATORS, REGIONS),
    st.builds(lambda op, value: f"Day {op} {text(value)}", OPERATORS, DAYS),
    st.builds(lambda op, value: f"bucketNo {op} {value}", OPERATORS, st.integers(-1, 4)),
    st.builds(lambda op, value: f"Id {op} {value}", OPERATORS, st.integers(-1, 600)),
    st.builds(
        lambda values: f"region IN ({', '.join(map(text, values))})", st.lists(REGIONS, min_size=1, max_size=3)
    ),
    st.builds(lambda values: f"bucketNo IN ({', '.join(map(str, values))}, NULL)", st.just([0, 2])),
    st.sampled_from([
        "region IS NULL", "Day IS NOT NULL", "region LIKE 'u%'", "Nested.InnerField = 3", "userName = 'u3'",
        "Day BETWEEN '2024-01-02' AND '2024-01-03'", "bucketNo IS DISTINCT FROM 1",
    ]),
)  # fmt: skip
PREDICATES = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.builds("({}) AND ({})".format, inner, inner),
        st.builds("({}) OR ({})".format, inner, inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=4,
)


def test_random_predicates(metastore: HiveMetastore, by_spark: Mapping[str, pa.Table], large: bool) -> None:
    """Whatever the metastore can be asked, and whatever it answers, the rows are those that match."""
    cache = accel.Cache()

    file = DictStore({"all.parquet": write_file(by_spark["events"])})

    @settings(max_examples=300 if large else 40, deadline=None)
    @given(PREDICATES)
    def check(where: str) -> None:
        found = scan(metastore, "db.events", where, cache=cache, columns=["Id"]).to_table()
        right = accel.scan("all.parquet", where, store=file, columns=["Id"]).to_table()
        assert sorted(found["Id"].to_pylist()) == sorted(right["Id"].to_pylist())

    check()


NAMES, PARTITIONS, FILTER = "get_partition_names", "get_partitions_by_names", "get_partitions_by_filter"


@pytest.mark.parametrize(
    ("where", "questions", "files"),
    [
        (None, [(NAMES, None), (PARTITIONS, 12)], 12),
        ("Id = 7", [(NAMES, None), (PARTITIONS, 12)], 12),
        ("region = 'eu'", [(FILTER, 'region = "eu"')], 2),
        ("region = 'it''s'", [(FILTER, 'region = "it\'s"')], 2),
        ("region = 'a\"b'", [(FILTER, "region = 'a\"b'")], 2),
        ("region = 'a\"b''c'", [(NAMES, None)], 0),
        ("Day >= '2024-01-03' AND bucketNo < 1", [(FILTER, "(day >= '2024-01-03' and bucketno < 1)")], 2),
        ("region IS NULL", [(NAMES, None), (PARTITIONS, 2)], 2),
        ("region > 'eu'", [(NAMES, None), (PARTITIONS, 4)], 4),
        ("region > 'eu' AND bucketNo = 1", [(FILTER, "(bucketno >= 1 and bucketno <= 1)")], 2),
        ("Day = '2031-01-01'", [(FILTER, "(day >= '2031-01-01' and day <= '2031-01-01')")], 0),
    ],
)
def test_what_the_metastore_is_asked(
    metastore: HiveMetastore,
    by_spark: Mapping[str, pa.Table],
    asked: list[tuple[str, Any]],
    where: str | None,
    questions: list[tuple[str, Any]],
    files: int,
) -> None:
    found = scan(metastore, "db.events", where)
    assert found.to_table().num_rows == len(reference(by_spark["events"], where))
    assert asked == [("get_table", None), *questions]
    facts = found.metrics.table
    assert facts is not None
    assert facts.files == files
    # All partitions are listed by one listing of the table's directory, others each by its own.
    assert facts.log_requests == len(asked) + (1 if files == 12 else files)


def test_an_answer_is_used_again_while_it_is_young(
    metastore: HiveMetastore, by_spark: Mapping[str, pa.Table], asked: list[tuple[str, Any]]
) -> None:
    cache = accel.Cache()
    for _ in range(2):
        assert scan(metastore, "db.events", "region = 'eu'", cache=cache).count_rows() == 100
    assert [name for name, _ in asked] == ["get_table", "get_partitions_by_filter"]
    old = accel.Cache(max_age=0)
    for _ in range(2):
        assert scan(metastore, "db.events", "region = 'eu'", cache=old).count_rows() == 100
    assert [name for name, _ in asked] == 3 * ["get_table", "get_partitions_by_filter"]


def test_a_filter_that_is_refused_is_asked_otherwise(
    metastore: HiveMetastore, by_spark: Mapping[str, pa.Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a metastore that cannot compare dates, say: it raises MetaException."""
    monkeypatch.setattr(hive_table, "filter_text", lambda *_: "no_such_key = 7")
    found = scan(metastore, "db.events", "region = 'eu'")
    assert found.count_rows() == 100
    assert found.metrics.table is not None
    assert found.metrics.table.files == 2


@pytest.mark.parametrize("table", REFUSED)
def test_what_holds_no_parquet_is_refused_by_name(
    metastore: HiveMetastore, by_spark: Mapping[str, pa.Table], table: str
) -> None:
    with pytest.raises(accel.TableFormatError, match=REFUSED[table]) as refused:
        scan(metastore, f"db.{table}").to_table()
    assert refused.value.path == f"{metastore.url}/db.{table}"


def test_a_plan_is_read_elsewhere(metastore: HiveMetastore, by_spark: Mapping[str, pa.Table]) -> None:
    table = pickle.loads(pickle.dumps(accel.tables.hive(metastore.url, "db.events")))
    plan = accel.plan(table, "region = 'us/x' AND Nested.InnerField = 3", cache=None)
    again = accel.Plan.from_arrow(plan.to_arrow())
    where = "region = 'us/x' AND Nested.InnerField = 3"
    expected = reference(by_spark["events"], where)
    for one in (plan, again, pickle.loads(pickle.dumps(plan))):
        assert rows_of(accel.scan(one, cache=None).to_table()) == expected
