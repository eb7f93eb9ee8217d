"""Selective questions in Spark: of one file and of many, by accel and by Spark's own reader."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

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


def _view(bench: Bench, name: str, path: str, *, source: str = "accel", **options: str) -> None:
    """Make a view of a Python source anew: Spark 4.1 to 4.3 keep the filters of a question with it."""
    every = {"path": path, "columns": _COLUMNS, **bench.storage_options, **options}
    words = ", ".join(f"'{key}' '{value}'" for key, value in every.items())
    bench.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} USING {source} OPTIONS ({words})")


def _ask(bench: Bench, view: str, key: int) -> Any:
    return bench.spark.sql(f"SELECT {_COLUMNS} FROM {view} WHERE key = {key}").toArrow()


def _sides(bench: Bench, rows: int, key: str, **index: str) -> dict[str, Side]:
    """Each side's way to a row of the file or folder of a key; no two ask for the same row, which one might
    find cached."""
    url, view = f"s3://{BUCKET}/{key}", "one_by_spark"
    bench.spark.read.parquet(f"s3a://{BUCKET}/{key}").createOrReplaceTempView(view)

    def row_of(turn: int, side: int) -> int:
        return 3 * (((3 * turn + side) * 982_451_653 + 12_345) % rows)

    def by_spark(turn: int) -> tuple[int, pa.Table]:
        wanted = row_of(turn, 0)
        return wanted, _ask(bench, view, wanted)

    def by_format(turn: int) -> tuple[int, pa.Table]:
        wanted = row_of(turn, 1)
        _view(bench, "one_by_accel", url, **index)
        return wanted, _ask(bench, "one_by_accel", wanted)

    def by_read(turn: int) -> tuple[int, pa.Table]:
        wanted = row_of(turn, 2)
        given: dict[str, Any] = {**index, "storage_options": bench.storage_options}
        columns = _COLUMNS.split(", ")
        return wanted, accel.spark.read(
            bench.spark, url, where=f"key = {wanted}", columns=columns, **given
        ).toArrow()

    return {SPARK: by_spark, _FORMAT: by_format, _READ: by_read}


def _checked(answer: tuple[int, pa.Table], file: Path) -> int:
    """Return the number of rows of an answer, which are those of the local file."""
    wanted, found = answer
    expected = pq.read_table(file, columns=found.column_names, filters=[("key", "=", wanted)])
    if found.to_pylist() != expected.to_pylist():
        raise AssertionError(f"key {wanted}: {found.to_pylist()}, not {expected.to_pylist()}")
    return int(found.num_rows)


def one_file(bench: Bench) -> Found:
    """A row of one file by the key that it is sorted by."""
    rows = bench.size(2_000_000, least=200_000)
    path = generated.synthetic(rows, 4)
    bench.network.put(f"one/{path.name}", path)
    sides = _sides(bench, rows, f"one/{path.name}")
    with tempfile.TemporaryDirectory() as scratch:
        put_at_hand(Path(scratch, FLOOR), [_ask(bench, "one_by_spark", 0)])

        def by_floor(_: int) -> tuple[int, pa.Table]:
            _view(bench, "one_at_hand", str(Path(scratch, FLOOR)), source="at_hand")
            return 0, _ask(bench, "one_at_hand", 0)

        found = bench.by_turns(
            f"one row of {rows:,} in one file",
            {**sides, FLOOR: by_floor},
            of=lambda answer: _checked(answer, path),
            rows=int,
        )
    figures = [
        ratio(found, _FORMAT, of="seconds", target=1 / 2),
        ratio(found, _FORMAT, of="bytes", target=1 / 10),
        ratio(found, _READ, of="seconds", target=1 / 2),
        ratio(found, FLOOR, of="seconds"),
    ]
    return [*found.values()], figures


def many_files(bench: Bench) -> Found:
    """A row of many files by a key, with a catalog."""
    count, rows = bench.size(2_000, least=50), 5_000
    folder = generated.files(count, rows)
    name = upload_folder(bench.network, folder, f"many-{count}")
    index = f"s3://{BUCKET}/index/{name}"
    accel.build_index(f"s3://{BUCKET}/{name}", to=index, storage_options=bench.network.storage_options)
    found = bench.by_turns(
        f"one row of {count:,} files, catalog",
        _sides(bench, count * rows, name, index=index, listing="index"),
        of=lambda answer: _checked(answer, folder / f"part-{answer[0] // 3 // rows:05d}.parquet"),
        rows=int,
        times=min(bench.times, 3),
        unmeasured=1,
    )
    figures = [
        ratio(found, _FORMAT, of="seconds", target=5, least=True),
        ratio(found, _FORMAT, of="requests", target=1 / 50),
        ratio(found, _READ, of="seconds", target=5, least=True),
    ]
    return [*found.values()], figures
