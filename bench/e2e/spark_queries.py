"""Selective questions in Spark: of one file and of many, by accel and by Spark's own reader."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import accel
from bench.data import generated
from bench.e2e.catalog_network import upload_folder
from bench.e2e.spark_floor import FLOOR, put_at_hand
from bench.e2e.spark_measuring import SPARK, Bench, Found, Side, ratio
from bench.network import BUCKET

__all__ = ["many_files", "one_file"]

_COLUMNS = "key, ts, category, value, name"
_FORMAT = 'accel, format("accel")'
_READ = "accel.spark.read"


def _sorted_rows(table: Any) -> list[tuple[object, ...]]:
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _view(bench: Bench, name: str, path: str, *, source: str = "accel", **options: str) -> None:
    """Make a view of a Python source anew: Spark 4.1 to 4.3 keep the filters of a question with it."""
    every = {"path": path, "columns": _COLUMNS, **bench.storage_options, **options}
    words = ", ".join(f"'{key}' '{value}'" for key, value in every.items())
    bench.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} USING {source} OPTIONS ({words})")


def _ask(bench: Bench, view: str, key: int) -> Any:
    return bench.spark.sql(f"SELECT {_COLUMNS} FROM {view} WHERE key = {key}").toArrow()


def one_file(bench: Bench) -> Found:
    """A row of one file by the key that it is sorted by."""
    rows = bench.size(2_000_000, least=200_000)
    path = generated.synthetic(rows, 4)
    key = f"one/{path.name}"
    bench.network.put(key, path)
    own = f"s3a://{BUCKET}/{key}"
    bench.spark.read.parquet(own).createOrReplaceTempView("one_by_spark")

    def of_turn(turn: int) -> int:
        return 3 * ((turn * 982_451_653 + 12_345) % rows)

    def by_format(turn: int) -> Any:
        _view(bench, "one_by_accel", f"s3://{BUCKET}/{key}")
        return _ask(bench, "one_by_accel", of_turn(turn))

    sides: dict[str, Side] = {
        SPARK: lambda turn: _ask(bench, "one_by_spark", of_turn(turn)),
        _FORMAT: by_format,
        _READ: lambda turn: accel.spark.read(
            bench.spark,
            f"s3://{BUCKET}/{key}",
            where=f"key = {of_turn(turn)}",
            columns=_COLUMNS.split(", "),
            storage_options=bench.storage_options,
        ).toArrow(),
    }
    case = f"one row of {rows:,} in one file"
    with tempfile.TemporaryDirectory() as scratch:
        put_at_hand(Path(scratch, FLOOR), [_ask(bench, "one_by_spark", 0)])

        def by_floor(turn: int) -> Any:
            _view(bench, "one_at_hand", str(Path(scratch, FLOOR)), source="at_hand")
            return _ask(bench, "one_at_hand", 0)

        sides[FLOOR] = by_floor
        found = bench.by_turns(case, sides, of=_sorted_rows, uncompared=FLOOR)
    figures = [
        ratio(found, _FORMAT, of="seconds", target=1 / 2),
        ratio(found, _FORMAT, of="bytes", target=1 / 10),
        ratio(found, _READ, of="seconds", target=1 / 2),
        ratio(found, FLOOR, of="seconds"),
    ]
    return [*found.values()], figures


def many_files(bench: Bench) -> Found:
    """A row of many files by a key, with a catalog."""
    count = bench.size(2_000, least=50)
    folder = generated.files(count, 5_000)
    name = upload_folder(bench.network, folder, f"many-{count}")
    index = f"s3://{BUCKET}/index/{name}"
    accel.build_index(f"s3://{BUCKET}/{name}", to=index, storage_options=bench.network.storage_options)
    bench.spark.read.parquet(f"s3a://{BUCKET}/{name}").createOrReplaceTempView("many_by_spark")

    def of_turn(turn: int) -> int:
        return 3 * ((turn * 982_451_653 + 12_345) % (count * 5_000))

    def by_format(turn: int) -> Any:
        _view(bench, "many_by_accel", f"s3://{BUCKET}/{name}", index=index, listing="index")
        return _ask(bench, "many_by_accel", of_turn(turn))

    sides: dict[str, Side] = {
        SPARK: lambda turn: _ask(bench, "many_by_spark", of_turn(turn)),
        _FORMAT: by_format,
        _READ: lambda turn: accel.spark.read(
            bench.spark,
            f"s3://{BUCKET}/{name}",
            where=f"key = {of_turn(turn)}",
            columns=_COLUMNS.split(", "),
            index=index,
            listing="index",
            storage_options=bench.storage_options,
        ).toArrow(),
    }
    found = bench.by_turns(
        f"one row of {count:,} files, catalog",
        sides,
        of=_sorted_rows,
        times=min(bench.times, 3),
        unmeasured=1,
    )
    figures = [
        ratio(found, _FORMAT, of="seconds", target=5, least=True),
        ratio(found, _FORMAT, of="requests", target=1 / 50),
        ratio(found, _READ, of="seconds", target=5, least=True),
    ]
    return [*found.values()], figures
