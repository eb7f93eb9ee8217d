"""`accel.spark.lookup` against Spark's own join: some thousand keys, a large table of many files.

Both sides join the same DataFrame of keys with the same files over MinIO behind the proxy (30 ms first byte, 90 MB/s a
response), in one session, by turns; Spark reads by S3A's analytics stream and broadcasts the keys. The files are sorted by the
key; the keys lie in runs, as those of some days or batches do, or anywhere.

`python -m bench.e2e.spark_lookup [--rows N] [--files N] [--keys N] [--times N]`
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import accel
from bench.latency.lookups import print_rows
from bench.network import BUCKET, Network, slow_network
from bench.peers.spark import make_session

_FOLDER = "orders"
_RUNS = 20
_PAGE_ROWS = 2_000


def put_table(network: Network, *, rows: int, files: int) -> None:
    """Write the files: a key that ascends over all of them, in steps of two, a number and a text."""
    rng = np.random.default_rng(1)
    texts = pa.array([f"{number:016x}" for number in rng.integers(0, 1 << 60, 1000)])
    share = rows // files
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "part.parquet")
        for number in range(files):
            table = pa.table(
                {
                    "id": np.arange(number * share, (number + 1) * share) * 2,
                    "amount": rng.random(share),
                    "note": texts.take(pa.array(rng.integers(0, 1000, share))),
                }
            )
            pq.write_table(table, path, write_page_index=True, max_rows_per_page=_PAGE_ROWS)
            network.put(f"{_FOLDER}/{number:04d}.parquet", path)


def keys_of(kind: str, *, keys: int, rows: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the keys, of which every other one is in the table."""
    rng = np.random.default_rng(2)
    if kind == "anywhere":
        return rng.choice(rows * 2, keys, replace=False).astype(np.int64)
    starts = rng.choice(rows * 2 - keys, _RUNS, replace=False)
    return np.concatenate([start + np.arange(keys // _RUNS) for start in starts]).astype(np.int64)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--times", type=int, default=3)
    given = parser.parse_args()
    printed: list[dict[str, object]] = []
    with slow_network() as network:
        put_table(network, rows=given.rows, files=given.files)
        os.environ["PYSPARK_PYTHON"] = sys.executable
        spark = make_session(network.endpoint, {})
        own = spark.read.parquet(f"s3a://{BUCKET}/{_FOLDER}")
        for kind in ("in runs", "anywhere"):
            ids = keys_of(kind, keys=given.keys, rows=given.rows)
            df = spark.createDataFrame(pa.table({"id": ids, "asked": np.arange(len(ids))})).cache()
            df.count()

            def by_spark(df: Any = df) -> Any:
                return df.join(own, "id")

            def by_accel(df: Any = df) -> Any:
                return accel.spark.lookup(
                    df,
                    f"s3://{BUCKET}/{_FOLDER}/",
                    on="id",
                    storage_options=network.endpoint.storage_options(),
                )

            printed += _measured(network, kind, {"Spark": by_spark, "accel": by_accel}, given.times)
    print_rows(printed)


def _measured(
    network: Network, kind: str, sides: dict[str, Callable[[], Any]], times: int
) -> list[dict[str, object]]:
    """Join by turns, once unmeasured, and see that the rows are the same."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    traffic: dict[str, Any] = {}
    sums: dict[str, Any] = {}
    for turn in range(times + 1):
        for name, side in sides.items():
            network.begin()
            started = time.perf_counter()
            found = side().selectExpr("count(*)", "sum(id)", "round(sum(amount), 3)", "max(note)").collect()
            if turn:
                seconds[name].append(time.perf_counter() - started)
            traffic[name], sums[name] = network.end(), tuple(found[0])
    if len(set(sums.values())) > 1:
        raise RuntimeError(f"the rows differ: {sums}")
    least = statistics.median(seconds["Spark"])
    return [
        {
            "keys": kind,
            "join": name,
            "rows": sums[name][0],
            "seconds": round(statistics.median(seconds[name]), 2),
            "of Spark": round(statistics.median(seconds[name]) / least, 2),
            "requests": traffic[name].requests,
            "MB": round(traffic[name].bytes / 1e6, 1),
        }
        for name in sides
    ]


if __name__ == "__main__":
    main()
