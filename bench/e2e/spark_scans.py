"""Whole tables in Spark, of a few files and of many small ones, and tasks that have nothing to do."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import accel
from bench.data import generated
from bench.e2e.catalog_network import upload_folder
from bench.e2e.figures import Figure
from bench.e2e.spark_floor import FLOOR, put_at_hand
from bench.e2e.spark_measuring import SPARK, Bench, Found, Side, ratio
from bench.network import BUCKET

__all__ = ["empty_tasks", "full_scan", "small_files"]

_FORMAT = 'format("accel")'
_READ = "accel.spark.read"
_NAMES = ("key", "ts", "category", "value", "name", "amount")
_COUNTS = [f"count({name})" for name in _NAMES] + ["sum(key)", "sum(amount)", "max(name)"]
"""Of which each needs a column."""


def _counted(frame: Any) -> tuple[object, ...]:
    return tuple(frame.selectExpr(*_COUNTS).collect()[0])


def _brought(frame: Any) -> pa.Table:
    return frame.toArrow()


def _after(make: Callable[[], Any], use: Callable[[Any], Any]) -> Side:
    """Return a side that makes its DataFrame and uses it."""
    return lambda _: use(make())


def _frames(bench: Bench, folder: str, **options: str) -> dict[str, Any]:
    """Each side's way from a folder to its DataFrame."""
    url = f"s3://{BUCKET}/{folder}"

    def by_format(**more: str) -> Any:
        return bench.spark.read.format("accel").options(**bench.storage_options, **more).load(url)

    def by_read(**more: Any) -> Any:
        return accel.spark.read(bench.spark, url, storage_options=bench.storage_options, **more)

    return {
        SPARK: lambda: bench.spark.read.parquet(f"s3a://{BUCKET}/{folder}"),
        _FORMAT: by_format,
        _READ: by_read,
    }


def full_scan(bench: Bench) -> Found:
    """All rows of some files: counted, every column counted, and brought to the driver."""
    rows, files = bench.size(2_000_000, least=50_000), 2
    path = generated.synthetic(rows, 4)
    for number in range(files):
        bench.network.put(f"scan/{number}.parquet", path)
    frames = _frames(bench, "scan/")
    size = f"{rows * files:,} rows"
    counts: dict[str, Side] = {
        SPARK: lambda _: frames[SPARK]().count(),
        _FORMAT: lambda _: frames[_FORMAT](columns="").count(),
        _READ: lambda _: frames[_READ](columns=[]).count(),
    }
    counted = bench.by_turns(f"{size}: count()", counts, rows=int)
    columns = {name: _after(make, _counted) for name, make in frames.items()}
    scanned = bench.by_turns(f"{size}: every column counted", columns, rows=lambda found: found[0])
    arrow = {name: _after(make, _brought) for name, make in frames.items()}
    with tempfile.TemporaryDirectory() as scratch:
        put_at_hand(
            Path(scratch, FLOOR), [frames[SPARK]().toArrow().slice(at * rows, rows) for at in range(files)]
        )
        source = bench.spark.read.format("at_hand")
        arrow[FLOOR] = lambda _: source.load(str(Path(scratch, FLOOR))).toArrow()
        brought = bench.by_turns(f"{size}: to Arrow", arrow, of=_in_order, rows=lambda table: table.num_rows)
    targets = [(counted, 1.25), (scanned, 1.25), (brought, 1.0)]
    figures = [
        ratio(found, side, of="seconds", target=target)
        for found, target in targets
        for side in (_FORMAT, _READ)
    ]
    figures.append(ratio(brought, FLOOR, of="seconds"))
    return [one for found, _ in targets for one in found.values()], figures


def _in_order(table: pa.Table) -> pa.Table:
    return table.sort_by([("key", "ascending"), ("name", "ascending")]).combine_chunks()


def small_files(bench: Bench) -> Found:
    """All rows of many small files."""
    count = bench.size(5_000, least=60)
    folder = upload_folder(bench.network, generated.files(count, 500), f"small-{count}")
    frames = _frames(bench, folder)
    sides = {name: _after(make, _counted) for name, make in frames.items()}
    found = bench.by_turns(
        f"{count:,} small files, every column counted",
        sides,
        rows=lambda found: found[0],
        times=1,
        unmeasured=0,
    )
    return [*found.values()], [ratio(found, side, of="seconds", target=1.0) for side in (_FORMAT, _READ)]


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


def empty_tasks(bench: Bench) -> Found:
    """Tasks without a row, after the first: of accel, and of a function that does nothing."""
    slots = int(bench.spark.sparkContext.defaultParallelism)
    tasks = slots * bench.size(32, least=4)
    paths = bench.spark.range(0, tasks, 1, tasks).selectExpr("cast(id AS string) AS path").where("path = ''")
    sides: dict[str, Side] = {
        "a function that does nothing": lambda _: paths.mapInArrow(_same, "path string").count(),
        "accel.scan": lambda _: paths.mapInArrow(accel.scan, "key long").count(),
    }
    case = f"{tasks} empty tasks"
    found = bench.by_turns(case, sides, rows=int)
    each = {name: 1e3 * one.seconds * slots / tasks for name, one in found.items()}
    targets = {"accel.scan": 60.0}
    return [*found.values()], [
        Figure(case=case, what=f"each, {name}", value=value, unit="ms", target=targets.get(name))
        for name, value in each.items()
    ]
