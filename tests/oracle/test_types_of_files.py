"""Files whose types differ from the data set's: rows are those of a row-by-row evaluation over the values
shown."""

from __future__ import annotations

import decimal
import pathlib
import pickle
import re
import uuid
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.predicate.where import to_expr
from accel.testing import DictStore, Layout, write_file
from tests.oracle import rowwise

U = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
D = decimal.Decimal
OPTIONS = accel.Options(probe_min_bytes=0, max_gap_bytes=0)
EACH = 20
"""Rows of every value: one page, and one row group."""

DURATIONS = [
    *("x > 1000", "x = 60000", "x = 60", "x <> 60", "x <= 1500", "x >= 60", "x = y", "x < y", "x IS NULL"),
    *("x IN (60, 60000)", "x NOT IN (1, 60000)", "x IN (1, NULL)", "x IS DISTINCT FROM 60000"),
]
EDGES = [
    "1.00000000000000000000001",
    "0.99999999999999999999",
    "0.1",
    "1",
    "1e400",
    "-1e400",
    "1e-400",
    "2e0",
]
NUMBERS = [
    *(f"x {op} {edge}" for edge in EDGES for op in ("=", "<", ">=")),
    "x IN (1.00000000000000000000001, 100)",
    "x NOT IN (0.99999999999999999999, 2)",
    "x IN (1.00000000000000000000001, NULL)",
    "x IS NOT DISTINCT FROM 1.00000000000000000000001",
    *(
        "1.00000000000000000000001 > x",
        "x < DOUBLE 'NaN'",
        "x IN (DOUBLE 'NaN', 1)",
        "x = y OR x < y",
        "x IS NULL",
    ),
]
BYTES = [
    *(f"x = '{U}'", f"x = X'{U.hex}'", f"x < '{U}'", f"x > '{U}'", f"x IN ('{U}', X'{bytes(16).hex()}')"),
    *("x <> 'a'", "x = y", "x IS NULL"),
]
FLAGS = ["x = 1", "x = 5", "x > 1", "x < 0", "x <> 1", "x IN (5, 0)", "x NOT IN (5)", "x = y", "x IS NULL"]
KEYS = [
    pa.array([D("1.00000000000000000000001"), D(2)]),
    pa.array([D("1.00000000000000000000001"), None]),
    pa.array([1.0, float("nan"), -0.0]),
    pa.array([1, 2**62], pa.int64()),
]

SECONDS = [1, 60, 61, None, 0, -60]
MIXED = pa.array([60, 60_000, 1000, None, 7, 1])
WHOLE = [100, 0, 1, 2, None, 3]
FLOATS = pa.array([0.1, 1.0, None, float("nan"), -0.0, 100.0])
BOOL8 = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([0, 1, 5, None, -1, 1], pa.int8()))
UUIDS = pa.ExtensionArray.from_storage(
    pa.uuid(), pa.array([U.bytes, None, bytes(16), b"\xff" * 16, U.bytes, bytes(16)], pa.binary(16))
)
RAW = pa.array([U.bytes, str(U).encode(), None, b"", b"a", bytes(16)])
SMALL = pa.array([0, 1, 5, None, 7, -1])


def whole(kind: pa.DataType) -> pa.Array:
    return pa.array(WHOLE, kind)


CASES: dict[str, tuple[pa.Array, pa.Array, pa.Array, list[Any]]] = {
    # Values of a file of the data set's type, those of another, these as they are shown, and what is asked.
    **{
        f"{unit} and {other}": (
            MIXED.cast(pa.duration(unit)),
            pa.array(SECONDS, pa.duration(other)),
            pa.array(SECONDS, pa.duration(other)).cast(pa.duration(unit)),
            DURATIONS,
        )
        for unit, other in [("ms", "s"), ("us", "ms")]
    },
    **{
        f"{to} and {have}": (FLOATS.cast(to), whole(have), whole(have).cast(to), [*NUMBERS, *KEYS])
        for to, have in [(pa.float64(), pa.int32()), (pa.float32(), pa.uint8())]
    },
    **{
        f"{to} and uuid": (RAW.cast(to), UUIDS, UUIDS.storage.cast(pa.binary()).cast(to), BYTES)
        for to in (pa.binary(),)
    },
    **{
        f"{to} and bool8": (SMALL.cast(to), BOOL8, BOOL8.storage.cast(to), FLAGS)
        for to in (pa.int8(), pa.float64())
    },
}
LAYOUTS = {
    "statistics": Layout(group_rows=EACH, page_rows=EACH, dictionary=False),
    "dictionaries": Layout(group_rows=EACH, page_rows=2, statistics=False, page_index=False, codec="none"),
    "indexes": Layout(group_rows=EACH, page_rows=EACH, statistics=False, page_index=False),
}


def repeated(array: pa.Array) -> pa.Array:
    return array.take(pa.array(np.repeat(np.arange(len(array)), EACH)))


def table_of(x: pa.Array, y: pa.Array, *, nested: bool) -> pa.Table:
    columns = {"x": repeated(x), "y": repeated(y)}
    if not nested:
        return pa.table(columns)
    return pa.table({"s": pa.StructArray.from_arrays(list(columns.values()), list(columns))})


def written(table: pa.Table, layout: str, folder: pathlib.Path, *, nested: bool) -> bytes:
    data = write_file(table, LAYOUTS[layout])
    if layout != "indexes":
        return data
    source, target = folder / "a.parquet", folder / "b.parquet"
    source.write_bytes(data)
    accel.embed(str(source), str(target), indexes={"s.x" if nested else "x": "distinct"})
    return target.read_bytes()


def asked(where: Any, *, nested: bool) -> Any:
    if isinstance(where, pa.Array):
        return (accel.col("s")["x"] if nested else accel.col("x")).isin(where)
    return re.sub(r"\b([xy])\b(?!')", r"s.\1", where) if nested else where


@pytest.mark.parametrize(
    ("layout", "nested"),
    [*((layout, False) for layout in LAYOUTS), ("statistics", True)],
    ids=[*LAYOUTS, "fields of a struct"],
)
@pytest.mark.parametrize("name", CASES)
def test_literals_are_read_in_the_data_sets_type(
    name: str, layout: str, nested: bool, tmp_path: pathlib.Path
) -> None:
    same, other, shown, questions = CASES[name]
    meant = table_of(pa.concat_arrays([same, shown]), pa.concat_arrays([same[::-1], same]), nested=nested)
    tables = table_of(same, same[::-1], nested=nested), table_of(other, same, nested=nested)
    files = {f"f{at}": written(table, layout, tmp_path, nested=nested) for at, table in enumerate(tables)}
    store, cache = DictStore(files), accel.Cache()
    found, wanted = {}, {}
    rows = list(map(str, meant.to_pylist()))
    for question in questions:
        where = asked(question, nested=nested)
        truth = rowwise.evaluate(to_expr(where), meant)
        scan = accel.scan(["f0", "f1"], where, store=store, cache=cache, options=OPTIONS)
        wanted[str(where)] = [[row for row, true in zip(rows, truth, strict=True) if true is True]] * 2
        found[str(where)] = [list(map(str, scan.to_table().to_pylist())) for _ in range(2)]
    assert found == wanted
    # And in another process.
    plan = accel.plan(["f0", "f1"], where, store=store, cache=None, options=OPTIONS)
    travelled = accel.scan(pickle.loads(pickle.dumps(plan)), store=store, cache=None)
    assert list(map(str, travelled.to_table().to_pylist())) == wanted[str(where)][0]


@pytest.mark.parametrize("where", ["x = 60000", "x = 60", "x > 60"])
def test_a_schema_of_another_unit_than_all_files(where: str) -> None:
    store = DictStore({"f": write_file(pa.table({"x": pa.array([60, 1], pa.duration("s"))}))})
    schema = pa.schema([("x", pa.duration("ms"))])
    meant = pa.table({"x": pa.array([60_000, 1_000], pa.duration("ms"))})
    found = accel.scan("f", where, store=store, cache=None, schema=schema).to_table()
    assert found == meant.filter(pa.array(rowwise.evaluate(to_expr(where), meant)))
