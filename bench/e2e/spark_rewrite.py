"""`accel.spark.optimize` against Spark's own sorted rewrite, and lookups in what it wrote."""

from __future__ import annotations

import random
import shutil
import statistics
import tempfile
from pathlib import Path

import pyarrow.parquet as pq

import accel
from bench.e2e.catalog_network import upload_folder
from bench.e2e.figures import Figure
from bench.e2e.optimize import write_files
from bench.e2e.spark_measuring import SPARK, Bench, Found, Side, ratio
from bench.network import BUCKET

__all__ = ["optimize"]

_OPTIMIZE = "accel.spark.optimize"
_LOOKUPS = 20
_WARM_A_FILE = 8
"""Lookups a file before those that count."""


def optimize(bench: Bench) -> Found:
    """Rewrite files of the local disk, sorted by an id; then look ids up in the result behind the slow
    network."""
    megabytes = bench.size(1_000, least=10)
    with tempfile.TemporaryDirectory(prefix="accel-optimize-") as name:
        source, targets = Path(name, "source"), {side: Path(name, side) for side in (SPARK, _OPTIMIZE)}
        source.mkdir()
        rows = write_files(source, megabytes=megabytes)
        frame = bench.spark.read.parquet(str(source))

        def by_spark(_: int) -> Path:
            shutil.rmtree(targets[SPARK], ignore_errors=True)
            frame.orderBy("id").write.option("compression", "zstd").parquet(str(targets[SPARK]))
            return targets[SPARK]

        def by_accel(_: int) -> Path:
            shutil.rmtree(targets[_OPTIMIZE], ignore_errors=True)
            to = str(targets[_OPTIMIZE])
            accel.spark.optimize(bench.spark, str(source), to=to, sort_by="id", preset="random-access")
            return targets[_OPTIMIZE]

        sides: dict[str, Side] = {SPARK: by_spark, _OPTIMIZE: by_accel}
        case = f"{sum(path.stat().st_size for path in source.iterdir()) / 1e6:,.0f} MB sorted anew"
        found = bench.by_turns(
            case,
            sides,
            of=lambda folder: _content(bench, folder),
            rows=lambda content: content[0],
            times=1,
            unmeasured=0,
        )
        if found[SPARK].rows != rows:
            raise AssertionError(f"{found[SPARK].rows:,} rows of {rows:,} were written")
        figures = [ratio(found, _OPTIMIZE, of="seconds", target=1.5)]
        return [*found.values()], figures + _lookups(bench, targets[_OPTIMIZE])


def _content(bench: Bench, folder: Path) -> tuple[object, ...]:
    """What tells whether all rows are there."""
    sums = ("count(*)", "bit_xor(id)", "sum(quantity)", "bit_xor(note)", "min(at)", "max(customer)")
    return tuple(bench.spark.read.parquet(str(folder)).selectExpr(*sums).collect()[0])


def _lookups(bench: Bench, folder: Path) -> list[Figure]:
    """What looking ids up takes when the metadata is cached; listing the directory goes on beside it."""
    for other in [*folder.iterdir()]:
        if other.suffix != ".parquet":
            other.unlink() if other.is_file() else shutil.rmtree(other)
    name = upload_folder(bench.network, folder, "optimized")
    ids = pq.read_table(folder, columns=["id"])["id"]
    cache = accel.Cache()
    trips, nbytes = [], []
    # A file's footer comes with its first lookup, and all of its page indexes with one of the next.
    first = _WARM_A_FILE * len([*folder.iterdir()])
    for number, at in enumerate(random.Random(3).sample(range(len(ids)), _LOOKUPS + first)):
        scan = accel.scan(
            f"s3://{BUCKET}/{name}",
            where=f"id = {ids[at]}",
            storage_options=bench.storage_options,
            cache=cache,
        )
        bench.network.begin()
        if scan.to_table().num_rows < 1:
            raise AssertionError(f"no row of id {ids[at]}")
        traffic = bench.network.end()
        if number >= first:
            trips.append(traffic.trips)
            nbytes.append(traffic.bytes)
    case = "a lookup in what accel wrote, warm"
    return [
        Figure(case=case, what="round trips", value=statistics.median(trips), unit="", target=1),
        Figure(case=case, what="KB", value=statistics.median(nbytes) / 1e3, unit="KB", target=100),
    ]
