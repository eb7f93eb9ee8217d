"""`accel.spark.lookup` against Spark's own join: some thousand keys, a large table of many files.

Both sides join the same DataFrame of keys, which Spark broadcasts, with the same files. The files are sorted
by the key; the keys lie in runs, as those of some days or batches do, or anywhere.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import accel
from bench.e2e.figures import Figure
from bench.e2e.spark_measuring import SPARK, Bench, Found, Measured, Side, ratio
from bench.network import BUCKET, Network

__all__ = ["lookup_join"]

_LOOKUP = "accel.spark.lookup"
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


def lookup_join(bench: Bench) -> Found:
    """Join keys with a table."""
    files, keys = bench.size(200, least=4), bench.size(10_000, least=200)
    rows = files * 100_000
    put_table(bench.network, rows=rows, files=files)
    own = bench.spark.read.parquet(f"s3a://{BUCKET}/{_FOLDER}")
    measured: list[Measured] = []
    figures: list[Figure] = []
    for kind in ("in runs", "anywhere"):
        ids = keys_of(kind, keys=keys, rows=rows)
        df = bench.spark.createDataFrame(pa.table({"id": ids, "asked": np.arange(len(ids))})).cache()
        df.count()

        def by_spark(_: int, df: Any = df) -> Any:
            return _summed(df.join(own, "id"))

        def by_accel(_: int, df: Any = df) -> Any:
            url = f"s3://{BUCKET}/{_FOLDER}/"
            return _summed(accel.spark.lookup(df, url, on="id", storage_options=bench.storage_options))

        sides: dict[str, Side] = {SPARK: by_spark, _LOOKUP: by_accel}
        case = f"{keys:,} keys {kind}, {rows:,} rows"
        found = bench.by_turns(
            case, sides, rows=lambda sums: sums[0], times=min(bench.times, 3), unmeasured=1
        )
        measured += found.values()
        figures.append(ratio(found, _LOOKUP, of="seconds", target=3, least=True))
    return measured, figures


def _summed(joined: Any) -> tuple[Any, ...]:
    return tuple(joined.selectExpr("count(*)", "sum(id)", "round(sum(amount), 3)", "max(note)").collect()[0])
