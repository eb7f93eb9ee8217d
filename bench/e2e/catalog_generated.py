"""Catalogs of more files than this machine has room for: what planning by them takes, and how much memory.

The catalog is generated and the files are not there: one real file of 4 row groups and 10 columns is
described, and its rows are repeated with other paths and bounds. `c0` ascends over all files, so that one
file matches a value of it.
"""

from __future__ import annotations

import hashlib
import os
import statistics
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import accel
from accel.catalog.describing import WHOLE_FILE
from accel.catalog.head import FORMAT_VERSION, CatalogHead, Table
from accel.catalog.homes.objects import ObjectHome
from accel.catalog.kinds.kind import TableRows
from accel.indexes.bound_bytes import End, encode_bounds
from accel.metrics import Metrics
from accel.options import Options
from accel.predicate.kinds import kind_of
from accel.runtime import io_loop
from accel.store.clients import Connector
from accel.store.local_store import etag_of
from bench.data.folder import made
from bench.e2e.figures import Figure, chunks_of, in_new_process, peak_memory

__all__ = ["FILE_ROWS", "generated", "linked", "many_files"]

_GROUPS, _ROWS, _COLUMNS = 4, 100, 10
_SEGMENT_FILES = 20_000
_WARM = 9
FILE_ROWS = _GROUPS * _ROWS


def generated(files: int) -> Path:
    """The folder above a catalog of so many files, which is made once."""

    def make(folder: Path) -> None:
        folder.mkdir()
        io_loop.run(_generate(_write_one(folder), folder, files, None))

    return made(f"catalog-{files}-format-{FORMAT_VERSION}", make)


def linked(folder: Path, files: int) -> None:
    """Write a catalog of so many files into a folder, and the files: each is a link to the one that has rows,
    so that `c0` is 0 to 399 in all of them."""
    one = _write_one(folder)
    file = folder / "_one" / "0.parquet"
    for at in range(files):
        os.link(file, folder / _name(at))
    # A link changes the time of the file that is part of its etag.
    io_loop.run(_generate(one, folder, files, etag_of(file.stat())))


def _write_one(folder: Path) -> ObjectHome:
    """Write the one file, and describe it."""
    own = folder / "_one"
    own.mkdir()
    table = pa.table({f"c{at}": np.arange(FILE_ROWS, dtype=np.int64) for at in range(_COLUMNS)})
    # Of `c0` the catalog alone has bounds: those of the one file would rule the others out.
    settings = {"write_page_index": True, "write_statistics": table.column_names[1:]}
    pq.write_table(table, own / "0.parquet", row_group_size=_ROWS, **settings)
    accel.build_index(str(own))
    return _home(own / "_accel")


def _name(number: int) -> str:
    return f"{number:07d}.parquet"


def _home(folder: Path) -> ObjectHome:
    return ObjectHome.at(
        folder, Connector(storage_options=None, store=None, options=Options()), in_store=False
    )


async def _generate(one: ObjectHome, folder: Path, files: int, etag: str | None) -> None:
    home = _home(folder / "_accel")
    snapshot, _ = await one.read_head(Metrics())
    reader = one.reader(cache=None, options=Options(), metrics=Metrics())
    rows, bounds = [
        await reader.whole_table(snapshot.tables[0], name) for name in (Table.FILES, Table.BOUNDS)
    ]
    segments = []
    for begin, end in chunks_of(files, _SEGMENT_FILES):
        tables = _repeated(rows, bounds, np.arange(begin, end), etag)
        segment = await home.put_segment(tables, num_files=end - begin)
        described = tables[Table.FILES].in_memory()
        paths, schemas = (described[name].to_pylist() for name in ("path", "schema_fingerprint"))
        segments.append(segment.with_files(paths, schemas))
    await home.put_head(CatalogHead(base=".", segments=tuple(segments)), instead_of=None)


def _repeated(
    rows: pa.Table, bounds: pa.Table, numbers: np.ndarray, etag: str | None
) -> dict[str, TableRows]:
    """The tables of a segment about files with these numbers, of one etag or each of its own."""
    count, kind = len(numbers), kind_of(pa.int64())
    table = rows.take(pa.array(np.zeros(count, np.int64)))
    names = [_name(at) for at in numbers]
    etags = [etag or f'"{hashlib.md5(name.encode()).hexdigest()}"' for name in names]
    for name, values in (("path", names), ("etag", etags)):
        at = rows.schema.get_field_index(name)
        table = table.set_column(at, rows.schema.field(at), pa.array(values))
    parts = []
    for row in range(len(bounds)):
        part = bounds.take(pa.array(np.full(count, row)))
        group = bounds["row_group"][row].as_py()
        first = numbers * FILE_ROWS + (0 if group == WHOLE_FILE else group * _ROWS)
        last = first + (FILE_ROWS if group == WHOLE_FILE else _ROWS) - 1
        arrays = {"file": pa.array(np.arange(count, dtype=np.int32))} | {
            end.value: encode_bounds(values, np.ones(count, bool), kind=kind, end=end)
            for end, values in ((End.LOWER, first), (End.UPPER, last))
        }
        for name, array in arrays.items():
            at = part.schema.get_field_index(name)
            part = part.set_column(at, part.schema.field(at), array)
        parts.append(part)
    bounds = pa.concat_tables(parts).combine_chunks()
    return {Table.FILES: TableRows.of(table), Table.BOUNDS: TableRows.of(bounds)}


def plan(folder: str, files: int, cached: bool) -> dict[str, float]:
    """Plan in this process by the catalog in a folder, each time for another value."""
    before, cache = peak_memory(), accel.Cache() if cached else None
    taken = []
    for at in range(1 + _WARM if cached else 1):
        key = (files * (at + 1) // (_WARM + 2)) * FILE_ROWS + 150
        begun = time.perf_counter()
        found = accel.plan(
            f"{folder}/", f"c0 = {key}", index=f"{folder}/_accel", listing="index", cache=cache
        )
        taken.append(1e3 * (time.perf_counter() - begun))
        if sum(task.num_rows for task in found.tasks) != FILE_ROWS:
            raise AssertionError(f"the plan of c0 = {key} has {len(found.tasks)} tasks")
    peak = peak_memory()
    warm = statistics.median(taken[1:] or [0.0])
    return {"first": taken[0], "warm": warm, "peak": peak / 1e6, "own": (peak - before) / 1e6}


def many_files(quick: bool) -> list[Figure]:
    """Generated catalogs, each planned by in a new process."""
    sizes = (1_000, 10_000) if quick else (10_000, 100_000, 1_000_000)
    figures = []
    for files in sizes:
        folder, case = generated(files), f"{files:,} files generated"
        # Of a million files no scan keeps all in a cache of the default size.
        found = in_new_process(plan, str(folder), files, files < 1_000_000)
        size = sum(path.stat().st_size for path in (folder / "_accel").iterdir())
        hundred = files == 100_000
        figures += [
            Figure(case=case, what="predicate to tasks, first in a process", value=found["first"], unit="ms"),
            Figure(case=case, what="peak memory of the process", value=found["peak"], unit="MB", target=1000),
            Figure(case=case, what="of it, after the imports", value=found["own"], unit="MB"),
            Figure(case=case, what="objects of the catalog", value=size / 1e6, unit="MB"),
            Figure(
                case=case,
                what="head",
                value=(folder / "_accel" / "head").stat().st_size / 1e3,
                unit="KB",
            ),
        ]
        if files < 1_000_000:
            warm = Figure(
                case=case,
                what="predicate to tasks, warm",
                value=found["warm"],
                unit="ms",
                target=150 if hundred else None,
            )
            figures.insert(-4, warm)
    return figures
