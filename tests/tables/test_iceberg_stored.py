"""Iceberg tables that Spark and Iceberg's own Java library have written: every version gives the rows that these
read of it, under random predicates, too."""

from __future__ import annotations

import json
import pickle
import random

import pyarrow as pa
import pytest

import accel
import accel.tables
from accel.predicate.where import to_expr
from accel.testing import RecordingStore
from tests.oracle import rowwise
from tests.tables.stored_tables import rows_of, stored_table

NAMES = ["evolving_v2", "evolving_v3", "zordered_v2", "zordered_v3", "equality_v2", "equality_v3"]
CASES = [(name, version) for name in NAMES for version in stored_table(name).versions]


def named(name: str, version: str) -> accel.tables.IcebergTable:
    kind, _, value = version.partition(":")
    chosen = {"snapshot": "snapshot_id"}.get(kind, kind)
    given = {} if kind == "now" else {chosen: int(value) if kind == "snapshot" else value}
    return accel.tables.iceberg(f"/{stored_table(name).directory}", **given)


@pytest.mark.parametrize(("name", "version"), CASES)
def test_every_version_has_the_rows_of_its_own_engine(name: str, version: str) -> None:
    stored = stored_table(name)
    table, store = named(name, version), stored.store
    scan = accel.scan(table, store=store)
    found = scan.to_table()
    expected = stored.versions[version]
    assert found.schema.names == expected["columns"]
    assert rows_of(found) == sorted(expected["rows"], key=json.dumps)
    assert scan.count_rows() == len(expected["rows"])
    assert same(scan.head(7), found.slice(0, 7))
    plan = accel.plan(table, store=store)
    for carried in (pickle.loads(pickle.dumps(plan)), accel.Plan.from_arrow(plan.to_arrow())):
        assert same(accel.scan(carried, store=store).to_table(), found)


def same(one: pa.Table, other: pa.Table) -> bool:
    """Whether two tables have the same rows in the same order; NaN is equal to NaN."""
    return one.schema.equals(other.schema) and repr(one.to_pylist()) == repr(other.to_pylist())


def literals(column: pa.ChunkedArray, rng: random.Random) -> list[str]:
    """Texts of some values of a column, and of some that it does not have."""
    values = [value for value in column.to_pylist() if value is not None and repr(value) != "nan"]
    chosen = rng.sample(values, min(3, len(values)))
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        kind = "DATE" if pa.types.is_date(column.type) else "TIMESTAMP"
        return [f"{kind} '{value.isoformat().replace('T', ' ')}'" for value in chosen]
    if pa.types.is_string(column.type):
        return [f"'{value}'" for value in chosen] + ["'name 4'", "'zzz'"]
    return [str(value) for value in chosen] + ["-1", "7"]


def predicates(rows: pa.Table, seed: int, count: int) -> list[str]:
    rng = random.Random(seed)
    plain = [
        field.name
        for field in rows.schema
        if pa.types.is_integer(field.type)
        or pa.types.is_floating(field.type)
        or pa.types.is_decimal(field.type)
        or pa.types.is_string(field.type)
        or pa.types.is_timestamp(field.type)
        or pa.types.is_date(field.type)
    ]

    def term() -> str:
        name = rng.choice(plain)
        if rng.random() < 0.15:
            return f"{name} IS {rng.choice(['', 'NOT '])}NULL"
        found = literals(rows[name], rng)
        if not found:
            return f"{name} IS NULL"
        kind = rng.random()
        if kind < 0.25:
            return f"{name} IN ({', '.join(found)})"
        if kind < 0.35 and pa.types.is_string(rows[name].type):
            return f"{name} LIKE '{rng.choice(['name 1', 'w1', 'n', 'na'])}%'"
        return f"{name} {rng.choice(['=', '=', '<', '<=', '>', '>=', '<>'])} {rng.choice(found)}"

    def tree(depth: int) -> str:
        if depth == 0 or rng.random() < 0.4:
            return term()
        joined = f" {rng.choice(['AND', 'AND', 'OR'])} ".join(tree(depth - 1) for _ in range(2))
        return f"NOT ({joined})" if rng.random() < 0.2 else f"({joined})"

    return [tree(2) for _ in range(count)]


@pytest.mark.parametrize(
    ("name", "version"),
    [case for case in CASES if case[0].startswith("equality") or not case[1].startswith("snapshot")],
)
def test_a_filter_keeps_the_rows_that_the_exact_evaluator_keeps(name: str, version: str) -> None:
    store = stored_table(name).store
    table = named(name, version)
    rows = accel.scan(table, store=store).to_table()
    for where in predicates(rows, CASES.index((name, version)), 6):
        kept = [at for at, value in enumerate(rowwise.evaluate(to_expr(where), rows)) if value is True]
        scan = accel.scan(table, where, store=store)
        assert same(scan.to_table(), rows.take(pa.array(kept, pa.int64()))), where
        assert scan.count_rows() == len(kept), where


def test_partitions_of_every_spec_rule_files_out() -> None:
    """Files of four buckets and three days, then of truncated titles and days of instants."""
    store = stored_table("evolving_v2").store
    table = named("evolving_v2", "now")

    def data_files(where: str) -> set[str]:
        recording = RecordingStore(store)
        accel.scan(table, where, store=recording).to_table()
        return {call.path for call in recording.calls if "/data/" in call.path and "deletes" not in call.path}

    everything = data_files("raw IS NOT NULL OR raw IS NULL")
    assert len(data_files("day = DATE '2024-01-02' AND id < 300")) < len(everything) / 2
    # The ids of each of the three days fill the whole range.
    of_id = data_files("id = 41")
    assert len(of_id) == 3 and len({path.split("id_bucket=")[1][0] for path in of_id}) == 1
    assert len(data_files("title = 'name 12' AND id >= 300")) <= 2


def test_the_schema_is_that_of_the_snapshot_for_a_tag_and_that_of_now_for_a_branch() -> None:
    store = stored_table("evolving_v3").store
    of_tag = accel.scan(named("evolving_v3", "tag:first"), store=store).schema
    of_branch = accel.scan(named("evolving_v3", "branch:audit"), store=store).schema
    assert of_tag.field("id").type == pa.int32() and "full_name" in of_tag.names
    assert of_branch.field("id").type == pa.int64() and "title" in of_branch.names
    assert of_branch.field("place").type.field("country").type == pa.string()
