"""`optimize` against Spark's own sorted rewrite, and a point lookup on the result.

`python -m bench.e2e.optimize [MB]` writes some files of random rows into a temporary directory, rewrites them
sorted by an id in three ways, each in a process of its own, and prints seconds and bytes; then what a lookup
of one id costs when the metadata is cached.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import accel

_FILES = 8
_ROW_BYTES = 38
"""Of a row in the files that are rewritten."""


def write_files(directory: Path, *, megabytes: int) -> int:
    """Write the files of a table, and return its rows."""
    rows = megabytes * 1_000_000 // _ROW_BYTES // _FILES
    for number in range(_FILES):
        rng = np.random.default_rng(number)
        words = pa.array([f"customer {at:06}" for at in range(50_000)])
        table = pa.table(
            {
                "id": pa.array(rng.integers(0, 1 << 40, rows)),
                "customer": words.take(pa.array(rng.integers(0, 50_000, rows))),
                "amount": pa.array(np.round(rng.random(rows) * 1000, 2)),
                "at": pa.array(rng.integers(0, 1 << 35, rows) * 1000).cast(pa.timestamp("us")),
                "quantity": pa.array(rng.integers(0, 50, rows).astype(np.int32)),
                "note": pa.array(rng.integers(0, 1 << 62, rows)),
            }
        )
        pq.write_table(table, directory / f"{number}.parquet", compression="zstd")
    return rows * _FILES


_SESSION = """
import os, sys, time
from pyspark.sql import SparkSession
source, target = sys.argv[1:]
spark = (SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.driver.memory", "2g")
    .config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1").getOrCreate())
spark.range(10).mapInArrow(lambda batches: batches, "id long").count()
begun = time.monotonic()
"""
WAYS = {
    "Spark: orderBy(id).write.parquet": _SESSION
    + "spark.read.parquet(source).orderBy('id').write.option('compression', 'zstd').parquet(target)\n"
    "print(time.monotonic() - begun)",
    "accel.spark.optimize": _SESSION
    + "import accel\naccel.spark.optimize(spark, source, to=target, sort_by='id', preset='random-access')\n"
    "print(time.monotonic() - begun)",
    "accel.optimize": "import sys, time, accel\nsource, target = sys.argv[1:]\nbegun = time.monotonic()\n"
    "accel.optimize(source, to=target, sort_by='id', preset='random-access')\nprint(time.monotonic() - begun)",
}


def run(code: str, source: Path, target: Path) -> float:
    """Run one way in a process of its own, and return the seconds without the start of Spark."""
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, "-c", code, str(source), str(target)],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
    )
    return float(done.stdout.split()[-1])


def look_up(directory: Path) -> None:
    """Print what lookups cost when the footers are cached."""
    cache = accel.Cache()
    found = accel.scan(str(directory), columns=["id"], cache=None).to_table().column("id")
    keys = [found[at].as_py() for at in np.random.default_rng(1).integers(0, len(found), 20).tolist()]
    accel.scan(str(directory), f"id = {keys[0]}", cache=cache).to_table()
    costs = []
    for key in keys[1:]:
        scan = accel.scan(str(directory), f"id = {key}", cache=cache)
        begun = time.monotonic()
        assert scan.to_table().num_rows >= 1
        data = (
            scan.metrics.round_trips - scan.metrics.round_trips_by_kind.get("listing", 0)
            if hasattr(scan.metrics, "round_trips_by_kind")
            else scan.metrics.round_trips
        )
        costs.append((data, scan.metrics.bytes, time.monotonic() - begun))
    trips, nbytes, seconds = (sorted(column)[len(costs) // 2] for column in zip(*costs, strict=True))
    print(
        f"lookup: {trips} round trips, {nbytes / 1000:.0f} KB, {seconds * 1000:.1f} ms (medians of {len(costs)})"
    )


def main() -> None:
    """Run all ways."""
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with tempfile.TemporaryDirectory(prefix="accel-optimize-") as name:
        source = Path(name) / "source"
        source.mkdir()
        rows = write_files(source, megabytes=megabytes)
        size = sum(path.stat().st_size for path in source.iterdir())
        print(f"{rows:,} rows, {size / 1e6:.0f} MB in {_FILES} files")
        for number, (way, code) in enumerate(WAYS.items()):
            target = Path(name) / str(number)
            seconds = run(code, source, target)
            size = sum(path.stat().st_size for path in target.glob("*.parquet"))
            print(f"{way}: {seconds:.1f} s, {size / 1e6:.0f} MB", flush=True)
        look_up(target)


if __name__ == "__main__":
    main()
