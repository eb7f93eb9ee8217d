"""Aggregates over every kind of source, from every face, and what they refuse."""

from __future__ import annotations

import asyncio
import itertools
import math
import pathlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.errors import ColumnNotFoundError, SchemaMismatchError
from accel.planning.aggregates import Tally
from accel.planning.metadata_answers import MetadataAnswer
from accel.ranges import Kind
from accel.scanning.aggregating import Aggregation
from accel.testing import DictStore, Layout, RecordingStore, table, write_file

ASKED = [("x", "sum"), ("x", "max"), ("x", "count"), ([], "count_all")]


def file(first: int, rows: int = 100, kind: pa.DataType | None = None, **columns: Any) -> bytes:
    x = pa.array(np.arange(first, first + rows), mask=np.arange(rows) % 10 == 3)
    return write_file(
        table(x=x if kind is None else x.cast(kind), **columns),
        Layout(group_rows=50, page_rows=10, dictionary=False),
    )


def ask(files: dict[str, bytes], source: Any = None, where: str | None = None, **keywords: Any) -> accel.Scan:
    store = keywords.pop("store", None) or DictStore(files)
    return accel.scan(source or list(files), where, store=store, **{"cache": accel.Cache(), **keywords})


def values(found: pa.Table) -> list[Any]:
    assert found.num_rows == 1
    return [column[0].as_py() for column in found.columns]


def wanted(scan: accel.Scan, asked: list[Any] = ASKED) -> list[Any]:
    return values(scan.to_table().group_by([]).aggregate(asked))


def test_the_result_is_as_pyarrows() -> None:
    scan = ask({"a.parquet": file(0), "b.parquet": file(500)}, where="x >= 17")
    found = scan.aggregate(ASKED)
    there = scan.to_table().group_by([]).aggregate(ASKED)
    assert found.schema == there.schema
    assert found.equals(there)
    assert found.equals(asyncio.run(scan.aggregate_async(ASKED)))


def test_a_file_that_is_named_twice_counts_twice() -> None:
    store = RecordingStore(DictStore({"a.parquet": file(0)}))
    scan = ask({}, ["a.parquet", "a.parquet"], store=store)
    assert values(scan.aggregate([("x", "max"), ("x", "count"), ([], "count_all")])) == [99, 180, 200]
    assert set(scan.metrics.requests_by_kind) == {Kind.TAIL}
    assert values(scan.aggregate(ASKED)) == wanted(scan)


def test_files_without_the_column_and_files_of_narrower_types() -> None:
    files = {
        "a.parquet": file(0, y=pa.array([{"b": i, "c": 1} for i in range(100)])),
        "b.parquet": file(900, kind=pa.int16()),
        "c.parquet": write_file(table(z=pa.array(range(10)))),
        "d.parquet": file(7, y=pa.array([{"c": 1}] * 100)),
    }
    scan = ask(files)
    asked = [("x", "sum"), ("x", "min"), ("y.b", "sum"), ("y.b", "count"), ("y", "count"), ([], "count_all")]
    table_ = scan.to_table()
    inner = table_.column("y").combine_chunks().flatten()[0]
    flat = pa.table({"x": table_.column("x"), "y.b": inner, "y": table_.column("y")})
    for where in (None, "x > 30"):
        scan = ask(files, where=where)
        kept = flat if where is None else flat.filter(pa.compute.greater(flat.column("x"), 30))
        assert values(scan.aggregate(asked)) == values(kept.group_by([]).aggregate(asked))
    assert values(ask(files).aggregate([("y.b", "count")])) == [100]


def test_units_that_differ_are_read() -> None:
    def at(unit: str) -> bytes:
        return write_file(
            table(t=pa.array([1000, 5000]).cast(pa.timestamp(unit)), n=pa.array([1, 2], pa.int16()))
        )

    schema = pa.schema([("t", pa.timestamp("ns")), ("n", pa.float64())])
    scan = ask({"a.parquet": at("ms"), "b.parquet": at("us")}, schema=schema)
    asked = [("t", "min"), ("t", "max"), ("n", "max")]
    assert scan.aggregate(asked).equals(scan.to_table().group_by([]).aggregate(asked))
    assert scan.metrics.rows_from_metadata == 0


def test_partition_columns_take_no_reading() -> None:
    files = {f"t/day=2024-01-0{d}/n={d}/f.parquet": file(0) for d in (1, 2, 3)}
    store = RecordingStore(DictStore(files))
    scan = ask({}, "t/", "n >= 2", store=store)
    asked = [("n", "sum"), ("n", "count"), ("day", "max"), ([], "count_all")]
    found = values(scan.aggregate(asked))
    assert scan.metrics.rows_from_metadata == 200
    assert Kind.PAGE not in scan.metrics.requests_by_kind
    assert found == wanted(scan, asked)
    scan = ask(files, "t/", "n >= 2 AND x < 25")
    assert values(scan.aggregate([*asked, *ASKED])) == wanted(scan, [*asked, *ASKED])


def test_columns_that_are_never_null_need_no_reading_to_be_counted() -> None:
    schema = pa.schema([pa.field("r", pa.int64(), nullable=False), ("x", pa.int64())])
    rows = pa.Table.from_arrays([pa.array(range(100)), pa.array(range(100))], schema=schema)
    data = write_file(rows, Layout(page_rows=10, dictionary=False, statistics=False))
    scan = ask({"a.parquet": data}, where="x >= 15")
    assert values(scan.aggregate([("r", "count"), ([], "count_all")])) == [85, 85]
    # Without statistics every row is undecided: the filter's column is read, the other is not.
    assert (scan.metrics.rows.kept, scan.metrics.fallbacks) == (100, 0)


@pytest.mark.parametrize("limit", [0, 7, 10_000])
def test_a_limit_is_of_rows(limit: int) -> None:
    scan = ask({"a.parquet": file(0), "b.parquet": file(500)}, limit=limit)
    assert values(scan.aggregate(ASKED)) == wanted(scan)
    assert scan.count_rows() == min(limit, 200)


def test_counting_no_rows_asks_for_nothing() -> None:
    store = RecordingStore(DictStore({"a.parquet": file(0)}))
    assert ask({}, ["a.parquet"], store=store, limit=0).count_rows() == 0
    assert store.requests == 0
    assert values(ask({}, ["a.parquet"], store=store, limit=0).aggregate([("x", "sum")])) == [None]
    assert store.requests == 1


def test_nothing_at_all() -> None:
    scan = ask({"a.parquet": file(0, rows=0), "b.parquet": file(5)}, where="x < 0")
    assert values(scan.aggregate([*ASKED, ("x", "min")])) == [None, None, 0, 0, None]
    empty = accel.scan(iter([]), store=DictStore({}))
    assert values(empty.aggregate([([], "count_all")])) == [0]
    assert accel.scan(iter([]), store=DictStore({})).count_rows() == 0


def paths(*names: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(names)], names=["path"])


@pytest.mark.parametrize("limit", [None, 150])
def test_a_stream_of_paths(limit: int | None) -> None:
    files = {"a.parquet": file(0), "b.parquet": file(500), "c.parquet": file(900)}
    batches = [paths("a.parquet", "b.parquet"), paths("c.parquet")]

    def scan() -> accel.Scan:
        return ask(files, iter(batches), "x > 20", limit=limit)

    assert values(scan().aggregate(ASKED)) == wanted(scan())
    assert values(asyncio.run(scan().aggregate_async(ASKED))) == wanted(scan())
    assert scan().count_rows() == scan().to_table().num_rows


def test_a_plan_and_its_tasks() -> None:
    files = {"a.parquet": file(0), "b.parquet": file(500)}
    store = DictStore(files)
    plan = accel.plan(list(files), "x > 20", store=store)
    for source in (plan, list(plan.tasks), iter(plan)):
        whole = ask(files, where="x > 20")
        assert values(accel.scan(source, store=store).aggregate(ASKED)) == wanted(whole)
    narrow = accel.plan(list(files), columns=[], store=store)
    with pytest.raises(ColumnNotFoundError):
        accel.scan(narrow, store=store).aggregate(ASKED)
    # Which rows a limit means only they can say.
    assert accel.scan(accel.plan(list(files), store=store), store=store, limit=7).count_rows() == 7
    none = accel.plan(list(files), "x > 9999", store=store)
    assert values(accel.scan(none, store=store).aggregate(ASKED)) == [None, None, 0, 0]


async def test_floats_add_up_the_same_in_whatever_order_files_are_planned() -> None:
    class Ended:
        async def take(self) -> None:
            return None

    answers = [
        (SimpleNamespace(url=url), MetadataAnswer([], (Tally(count=1, total=total),), 1))
        for url, total in (("a", 1e16), ("b", 1.0), ("c", -1e16))
    ]
    for order in itertools.permutations(answers):
        aggregation = Aggregation([("x", "sum")], limited=False)
        aggregation.resolve(pa.schema([("x", pa.float64())]))
        aggregation._answers = dict(enumerate(order))  # type: ignore[arg-type]
        await aggregation.fold(Ended(), decode_threads=1)  # type: ignore[arg-type]
        assert (aggregation.rows, values(aggregation.result())) == (3, [(1e16 + 1.0) - 1e16])


def test_only_columns_of_the_result() -> None:
    scan = ask({"a.parquet": file(0, y=pa.array(range(100)))}, columns=["y"])
    assert values(scan.aggregate([("y", "max")])) == [99]
    with pytest.raises(ColumnNotFoundError, match="there is no column 'x'"):
        scan.aggregate([("x", "max")])
    assert scan.to_table().num_rows == 100


def test_what_is_refused() -> None:
    scan = ask({"a.parquet": file(0, s=pa.array(["a"] * 100))})
    with pytest.raises(SchemaMismatchError, match="no sum of column 's', which is string"):
        scan.aggregate([("s", "sum")])
    with pytest.raises(ValueError, match="no aggregate 'mean'"):
        scan.aggregate([("x", "mean")])
    with pytest.raises(TypeError):
        scan.aggregate("x")  # type: ignore[arg-type]
    assert scan.count_rows() == 100


def test_a_file_that_changed_counts_as_what_it_is_now() -> None:
    names = ["a.parquet", "b.parquet"]
    store = DictStore({name: file(0) for name in names})
    cache, options = accel.Cache(max_age=3600, data=0), accel.Options(tail_hint=1024)
    first = accel.scan(names, "x >= 15", store=store, cache=cache, options=options)
    assert values(first.aggregate(ASKED)) == wanted(first)
    store.put("a.parquet", file(1000, rows=60))
    # A page of it is undecided and asked for: the store refuses, and the file is planned again.
    again = accel.scan(names, "x >= 15", store=store, cache=cache, options=options)
    found = values(again.aggregate(ASKED))
    assert again.metrics.replans == 1
    now = ask({"a.parquet": file(1000, rows=60), "b.parquet": file(0)}, where="x >= 15")
    assert found == wanted(now)


def test_large_doubles_whose_sum_overflows_on_the_way(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "a.parquet")
    table = pa.table({"x": [1.5e308, 1.5e308, -1.7e308]})
    accel.write_table(table, path, row_group_size=1, indexes={"x": ("zonemap", "file")})
    for asked, wanted, from_metadata in (
        ([("x", "max"), ("x", "count")], [1.5e308, 3], 3),
        ([("x", "sum")], [math.inf], 0),
    ):
        scan = accel.scan(path, cache=None)
        assert values(scan.aggregate(asked)) == wanted
        assert scan.metrics.rows_from_metadata == from_metadata


def test_expressions(tmp_path: pathlib.Path) -> None:
    day = pa.array(np.arange(0, 400)).cast(pa.int32()).cast(pa.date32())
    name = pa.array([f"Name {i % 7}" if i % 5 else None for i in range(400)])
    (tmp_path / "a.parquet").write_bytes(write_file(table(d=day, s=name), Layout(page_rows=50)))
    kinds = {"d": accel.indexes.Zonemap(of="year"), "s": accel.indexes.Zonemap(of="lower")}
    accel.embed(str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet"), indexes=kinds)
    asked = [
        ("year(d)", "min"),
        ("year(d)", "max"),
        ("year(d)", "sum"),
        ("lower(s)", "min"),
        ("lower(s)", "count"),
    ]
    for name_, from_metadata in (("a", 0), ("b", 400)):
        scan = accel.scan(str(tmp_path / f"{name_}.parquet"), cache=None)
        assert values(scan.aggregate(asked)) == [1970, 1971, 365 * 1970 + 35 * 1971, "name 0", 320]
        assert scan.metrics.rows_from_metadata == from_metadata
