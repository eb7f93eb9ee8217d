"""Random data sets through every way from a plan to Spark's rows, under random settings: the rows that
pyarrow reads.

`test_random_questions` asks one file by its path. Here are several files, some of them later and narrower,
with row groups, pages and folders of any kind, asked by `accel.spark.read` and by tasks: as they were
planned, shuffled, by way of Parquet, and planned on the executors.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.predicate.expr import Expr
from accel.testing import Layout, write_file
from tests.oracle.rowwise import evaluate
from tests.support.arrow import same
from tests.support.sample_table import TYPES, everything, predicate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS, ROUNDS = 120, 2
# Besides what predicates are about.
FLAT = ["i16", "u8", "u16", "u32", "f32", "bin", "t", "tsz", "ts_ns", "dec_wide", "nothing"]
NESTED = ["st", "li", "deep", "m", "held", "helds"]
NARROWER = {"i64": pa.int32(), "i16": pa.int8(), "f64": pa.float32()}
SETTINGS = {
    "spark.sql.adaptive.enabled": ["true", "false"],
    "spark.sql.execution.arrow.maxRecordsPerBatch": ["1", "3", "10000"],
    "spark.sql.execution.arrow.useLargeVarTypes": ["true", "false"],
    "spark.sql.execution.arrow.localRelationThreshold": ["0", "48MB"],
    "spark.sql.session.timeZone": ["UTC", "America/New_York", "Asia/Kolkata"],
}


class Case(NamedTuple):
    root: Path
    files: list[str]
    where: Expr | None
    columns: list[str]
    answer: pa.Table
    """In the order of the files."""


class Answer(NamedTuple):
    frame: DataFrame
    ordered: bool


Way = Callable[["SparkSession", Case, random.Random], Answer]


@pytest.fixture
def configure(spark: SparkSession) -> Iterator[Callable[[random.Random], None]]:
    before = {name: spark.conf.get(name, None) for name in SETTINGS}

    def choose(rng: random.Random) -> None:
        for name, values in SETTINGS.items():
            spark.conf.set(name, rng.choice(values))

    yield choose
    for name, value in before.items():
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)


# -- data sets -----------------------------------------------------------------------------------


def with_held(table: pa.Table, rng: random.Random) -> pa.Table:
    """And columns of types that Spark takes only converted, in a struct and in lists of it."""
    names = ["u8", "ts_ns", "u64", "cat"]
    nulls = pa.array([rng.random() < 0.2 for _ in range(ROWS)])
    held = pa.StructArray.from_arrays(
        [table[name].combine_chunks() for name in names], names=names, mask=nulls
    )
    starts = [None if rng.random() < 0.2 else at for at in range(ROWS)]
    helds = pa.ListArray.from_arrays(pa.array([*starts, ROWS], pa.int32()), held)
    return table.append_column("held", held).append_column("helds", helds)


def any_layout(rng: random.Random) -> Layout:
    return Layout(
        group_rows=rng.choice([7, 40, 1000]),
        page_rows=rng.choice([5, 1000]),
        codec=rng.choice(["none", "snappy", "zstd"]),
        dictionary=rng.random() < 0.5,
        page_index=rng.random() < 0.7,
        statistics=rng.random() < 0.8,
        data_page=rng.choice(["1.0", "2.0"]),
    )


def older(table: pa.Table, rng: random.Random) -> pa.Table:
    """The same rows as an older writer had them: without some columns, and others narrower."""
    table = table.drop_columns([n for n in table.column_names if n != "i32" and rng.random() < 0.15])
    for name in NARROWER.keys() & set(table.column_names):
        narrow = table[name].cast(NARROWER[name], safe=False)
        table = table.set_column(table.column_names.index(name), name, narrow)
    return table


def widened(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        table[field.name].cast(field.type)
        if field.name in table.column_names
        else pa.nulls(len(table), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def make_case(rng: random.Random, root: Path, *, hive: bool) -> Case:
    names = [*TYPES, *rng.sample(FLAT, 3), *rng.sample(NESTED, 2)]
    rows = with_held(everything(ROWS, seed=rng.randrange(1 << 30)).combine_chunks(), rng).select(names)
    cuts = [0, *sorted(rng.choices(range(ROWS + 1), k=rng.randrange(4))), ROWS]
    files: list[str] = []
    parts = []
    for number, (start, stop) in enumerate(itertools.pairwise(cuts)):
        part = rows.slice(start, stop - start)
        path = root / (f"part={number}" if hive else "") / f"{number}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(
            older(part, rng) if number and rng.random() < 0.5 else part, any_layout(rng), where=str(path)
        )
        files.append(str(path))
        read = widened(pq.ParquetFile(path).read(), rows.schema)
        parts.append(read.append_column("part", pa.array([number] * len(read), pa.int64())) if hive else read)
    whole = pa.concat_tables(parts).combine_chunks()
    columns = whole.column_names
    if rng.random() < 0.5:
        columns = ["i32", *rng.sample(columns[1:], 3)]
        columns = list(dict.fromkeys(columns))
    where = predicate(rng, 2) if rng.random() < 0.8 else None
    if where is not None:
        whole = whole.filter(pa.array([true is True for true in evaluate(where, whole)], pa.bool_()))
    return Case(root, files, where, columns, whole.select(columns))


# -- ways from a plan to rows --------------------------------------------------------------------


def by_read(spark: SparkSession, case: Case, rng: random.Random) -> Answer:
    partitions = rng.choice([None, 1, 2, 50])
    read = accel.spark.read(
        spark, str(case.root), where=case.where, columns=case.columns, partitions=partitions
    )
    return Answer(read, ordered=True)


def by_tasks(spark: SparkSession, case: Case, rng: random.Random) -> Answer:
    plan = accel.plan(str(case.root), case.where, columns=case.columns)
    tasks = spark.createDataFrame(plan.to_arrow())
    changed = rng.choice(
        [
            tasks.repartition(5),
            tasks.repartition(2, "row_group").selectExpr("'x' as note", "*"),
            tasks.select(*rng.sample(tasks.columns, len(tasks.columns))).orderBy("bytes"),
        ]
    )
    return Answer(changed.mapInArrow(accel.scan, accel.spark.spark_schema(plan.schema)), ordered=False)


def by_written_tasks(spark: SparkSession, case: Case, rng: random.Random) -> Answer:
    plan = accel.plan(str(case.root), case.where, columns=case.columns)
    kept = str(case.root.with_name("tasks"))
    spark.createDataFrame(plan.to_arrow()).repartition(2).write.parquet(kept)
    read = spark.read.parquet(kept)
    return Answer(read.mapInArrow(accel.scan, accel.spark.spark_schema(plan.schema)), ordered=False)


def by_plans_of_executors(spark: SparkSession, case: Case, rng: random.Random) -> Answer:
    schema = accel.scan(case.files[0]).schema
    asked = {"where": case.where, "columns": case.columns, "schema": schema}
    paths = spark.createDataFrame([(name,) for name in case.files], "path string")
    tasks = paths.repartition(rng.randrange(1, 6)).mapInArrow(
        partial(accel.plan, **asked), accel.spark.TASK_SCHEMA
    )
    result = accel.spark.spark_schema(pa.schema([schema.field(name) for name in case.columns]))
    return Answer(tasks.mapInArrow(accel.scan, result), ordered=False)


WAYS: list[Way] = [by_read, by_tasks, by_written_tasks, by_plans_of_executors]


def check(got: pa.Table, want: pa.Table, *, ordered: bool) -> None:
    assert got.column_names == want.column_names
    if not ordered:
        got, want = got.sort_by("i32"), want.sort_by("i32")
    for name, kind in zip(got.column_names, got.schema.types, strict=True):
        # Units and widths are Spark's, and what nanoseconds lose by that is lost on purpose.
        column = pa.chunked_array([chunk.cast(kind, safe=False) for chunk in want[name].chunks], kind)
        if pa.types.is_nested(kind):
            assert got[name].to_pylist() == column.to_pylist(), name
        else:
            assert same(got[name], column), name


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_the_same_rows(
    spark: SparkSession,
    configure: Callable[[random.Random], None],
    tmp_path: Path,
    way: Way,
    large: bool,
) -> None:
    telling = 0
    for number in range(ROUNDS * (10 if large else 1)):
        rng = random.Random(f"{way.__name__} {number}")
        # Bare paths bring no folders' values.
        hive = way is not by_plans_of_executors and rng.random() < 0.4
        case = make_case(rng, tmp_path / f"{number}" / "data", hive=hive)
        configure(rng)
        frame, ordered = way(spark, case, rng)
        check(frame.toArrow(), case.answer, ordered=ordered)
        # Run once more, as Spark does after a failure, and whole within another operator.
        joined = frame.join(frame.select("i32"), "i32").select(*[f"`{name}`" for name in case.columns])
        check(joined.toArrow(), case.answer, ordered=False)
        telling += len(case.answer) > 0
    assert telling
