"""Delta tables of Spark: every version holds the rows that Spark read, whole and under random predicates.

`make_delta_tables.py` has made them.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from tests.oracle import rowwise
from tests.support.delta_reference import rows_of

HERE = Path(__file__).parent / "delta"
NAMES = sorted(path.parent.name for path in HERE.glob("*/expected"))
VERSIONS = [
    (name, int(path.stem)) for name in NAMES for path in sorted((HERE / name / "expected").glob("*.parquet"))
]
CASES = 12


def expected(name: str, version: int, schema: pa.Schema) -> pa.Table:
    """Return what Spark read, in the types of the table."""
    rows = pq.read_table(HERE / name / "expected" / f"{version}.parquet")
    return pa.Table.from_arrays([rows[field.name].cast(field.type) for field in schema], schema=schema)


@pytest.mark.parametrize(("name", "version"), VERSIONS)
def test_a_version_is_what_spark_read(name: str, version: int) -> None:
    scan = accel.scan(accel.tables.delta(HERE / name / "table", version=version))
    found = scan.to_table()
    assert scan.count_rows() == found.num_rows
    rows = pq.read_table(HERE / name / "expected" / f"{version}.parquet")
    assert found.schema.names == rows.schema.names
    if name == "variants":  # Spark gives JSON, accel the bytes of the variant
        assert found.drop(["v"]).to_pylist() == rows.drop(["v"]).to_pylist()
        assert found.schema.field("v").type == pa.struct([("metadata", pa.binary()), ("value", pa.binary())])
        return
    assert rows_of(found) == rows_of(expected(name, version, found.schema))


def test_the_newest_version_is_the_last() -> None:
    for name in NAMES:
        table = accel.tables.delta(HERE / name / "table")
        last = max(version for one, version in VERSIONS if one == name)
        scan = accel.scan(table)
        assert scan.count_rows() == pq.read_metadata(HERE / name / f"expected/{last}.parquet").num_rows
        assert scan.metrics.table is not None
        assert scan.metrics.table.version == last


def _literal(value: object, kind: pa.DataType) -> str | None:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if pa.types.is_string(kind):
        return "'" + str(value).replace("'", "''") + "'"
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return f"'{value}'"
    if pa.types.is_boolean(kind):
        return str(value).lower()
    if pa.types.is_binary(kind) or pa.types.is_nested(kind) or value in (float("inf"), float("-inf")):
        return None
    return str(value)


def _columns(schema: pa.Schema) -> list[tuple[tuple[str, ...], pa.DataType]]:
    out: list[tuple[tuple[str, ...], pa.DataType]] = []
    stack = [((field.name,), field.type) for field in schema]
    while stack:
        path, kind = stack.pop(0)
        if pa.types.is_struct(kind):
            stack += [((*path, field.name), field.type) for field in kind]
        elif not pa.types.is_nested(kind) and not pa.types.is_null(kind):
            out.append((path, kind))
    return out


def _value(row: dict[str, object], path: tuple[str, ...]) -> object:
    found: object = row
    for name in path:
        found = None if found is None else found[name]  # type: ignore[index]
    return found


def predicate(random_: random.Random, rows: pa.Table) -> str:
    """Return a predicate of up to three tests, with values of the table and some beside them."""
    parts: list[str] = []
    values = rows.to_pylist()
    while len(parts) < random_.randint(1, 3):
        path, kind = random_.choice(_columns(rows.schema))
        name = ".".join(f'"{one}"' for one in path)
        if random_.random() < 0.15 or not values:
            parts.append(f"{name} is {random_.choice(['', 'not '])}null")
            continue
        literal = _literal(_value(random_.choice(values), path), kind)
        if literal is None:
            continue
        if pa.types.is_boolean(kind):
            parts.append(f"{name} = {literal}")
        else:
            parts.append(f"{name} {random_.choice(['=', '<', '<=', '>', '>=', '<>'])} {literal}")
    return f" {random_.choice(['and', 'or'])} ".join(parts)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "variants"])
def test_random_predicates_find_the_rows_that_match(name: str) -> None:
    random_ = random.Random(name)
    version = max(version for one, version in VERSIONS if one == name)
    table = accel.tables.delta(HERE / name / "table")
    rows = expected(name, version, accel.scan(table).schema)
    for _ in range(CASES):
        where = predicate(random_, rows)
        found = accel.scan(table, where).to_table()
        expr = accel.scan(table, where).engine.spec.where
        assert expr is not None
        matching = [at for at, value in enumerate(rowwise.evaluate(expr, rows)) if value is True]
        assert rows_of(found) == rows_of(rows.take(pa.array(matching, pa.int64()))), where
        assert accel.scan(table, where).count_rows() == len(matching), where


def test_bounds_rule_files_out_and_never_a_row() -> None:
    """Texts, times, decimals and floats at the very ends of what each file has."""
    table = accel.tables.delta(HERE / "all_statistics" / "table")
    everything = accel.scan(table, file_path="file").to_table()
    ruled_out: Counter[str] = Counter()
    for column in ("id", "s", "ts", "tn", "n", "f", "d", "t"):
        kind = everything.schema.field(column).type
        for value in sorted({row[column] for row in everything.to_pylist()} - {None}, key=str)[::7]:
            literal = _literal(value, kind)
            if literal is None:
                continue
            scan = accel.scan(table, f"{column} = {literal}")
            where = f"{column} = {literal}"
            assert scan.to_table().num_rows == sum(row[column] == value for row in everything.to_pylist()), (
                where
            )
            assert scan.metrics.table is not None
            ruled_out[column] += scan.metrics.table.excluded_by_bounds
    assert all(ruled_out[column] for column in ("id", "ts", "n", "t")), ruled_out
