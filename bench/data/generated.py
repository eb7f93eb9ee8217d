"""The data sets that need no generator of others: the flights, the synthetic file, wide tables, small files
and groups."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from accel.testing import Layout, bench_table, write_bench_file, write_file
from bench.data.folder import made

__all__ = ["files", "flights", "small_groups", "synthetic", "wide"]


def flights() -> Path:
    """The 336,776 flights of 2013 in order of time, in pages of 5,000 rows with a page index."""

    def make(path: Path) -> None:
        from demo.flights import read_flights

        table = read_flights().sort_by("time_hour")
        write_file(table, Layout(group_rows=1 << 17, page_rows=5_000), where=path)

    return made("flights.parquet", make)


def synthetic(rows: int, groups: int) -> Path:
    """zstd, pages of 10,000 rows, a page index; see `accel.testing.bench_table`."""

    def make(path: Path) -> None:
        write_bench_file(path, rows=rows, groups=groups)

    return made(f"synthetic-{rows}-{groups}.parquet", make)


def wide(columns: int, groups: int) -> Path:
    """`columns` columns in `groups` row groups of 200 rows: nearly all metadata. `key` is 3 * row number."""

    def make(path: Path) -> None:
        rng = np.random.default_rng([columns, groups])
        rows = 200 * groups
        arrays = [pa.array(np.arange(rows, dtype=np.int64) * 3)]
        arrays += [pa.array(rng.integers(0, 1 << 20, rows, dtype=np.int32)) for _ in range(columns - 1)]
        names = ["key", *(f"c{i:04d}" for i in range(1, columns))]
        table = pa.Table.from_arrays(arrays, names=names)
        pq.write_table(
            table,
            path,
            compression="zstd",
            row_group_size=200,
            use_dictionary=False,
            write_page_index=True,
        )

    return made(f"wide-{columns}-{groups}.parquet", make)


def small_groups(groups: int, rows: int) -> Path:
    """The synthetic table in row groups of `rows` rows, as one who writes every few seconds leaves it."""

    def make(path: Path) -> None:
        write_file(bench_table(groups * rows), Layout(group_rows=rows, page_rows=rows), where=path)

    return made(f"groups-{groups}-{rows}.parquet", make)


def files(count: int, rows: int) -> Path:
    """A folder of `count` files of the synthetic table, `rows` rows each: together sorted by `key`,
    disjoint."""

    def make(folder: Path) -> None:
        folder.mkdir()
        for number in range(count):
            table = bench_table(rows, first=number * rows)
            write_file(table, Layout(page_rows=rows), where=folder / f"part-{number:05d}.parquet")

    return made(f"files-{count}-{rows}", make)
