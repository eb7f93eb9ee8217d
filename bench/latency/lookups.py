"""Point lookups on random keys over a real MinIO behind the proxy: 30 ms first byte, 90 MB/s a response.

Isolated: what one selective lookup of five columns costs, cold (nothing cached), and metadata-warm (footer
and page indexes cached; dictionary pages as they have been met). The swept variable is the key.

`python -m bench.latency.lookups [--rows N] [--lookups N]` prints one table.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import accel
from accel.testing import write_bench_file
from bench.network import BANDWIDTH, FIRST_BYTE
from tests.support.proxy import ProxyProcess
from tests.support.s3 import Minio, install_minio

COLUMNS = ["key", "ts", "category", "value", "name"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One lookup."""

    seconds: float
    requests: int
    round_trips: int
    bytes: int
    rows: int

    @property
    def bound(self) -> float:
        """What the network alone would take: its round trips, and the bytes at the bandwidth of one
        response."""
        return self.round_trips * FIRST_BYTE + self.bytes / BANDWIDTH


async def lookup(url: str, key: int, options: dict[str, str], cache: accel.Cache) -> Sample:
    """Ask for one key."""
    started = time.perf_counter()
    scan = accel.scan(url, where=f"key = {key}", columns=COLUMNS, storage_options=options, cache=cache)
    rows = sum([batch.num_rows async for batch in scan])
    metrics = scan.metrics
    return Sample(time.perf_counter() - started, metrics.requests, metrics.round_trips, metrics.bytes, rows)


def describe(name: str, samples: Sequence[Sample]) -> dict[str, object]:
    """The row of one kind of lookup."""
    seconds = sorted(s.seconds for s in samples)
    ratios = sorted(s.seconds / s.bound for s in samples if s.bound)
    return {
        "query": name,
        "lookups": len(samples),
        "p50 ms": round(1e3 * statistics.median(seconds), 1),
        "p99 ms": round(1e3 * seconds[min(len(seconds) - 1, int(0.99 * len(seconds)))], 1),
        "p50 / network bound": round(statistics.median(ratios), 2) if ratios else None,
        "requests": round(statistics.mean(s.requests for s in samples), 2),
        "round trips": max(s.round_trips for s in samples),
        "KB p50": round(statistics.median(s.bytes for s in samples) / 1e3, 1),
        "KB max": round(max(s.bytes for s in samples) / 1e3, 1),
    }


async def measure(url: str, rows: int, lookups: int, options: dict[str, str]) -> list[dict[str, object]]:
    """All kinds, on the same file."""
    rng = random.Random(7)
    keys = [3 * rng.randrange(rows) for _ in range(lookups)]
    cold = []
    await lookup(url, keys[0], options, accel.Cache())  # connections and imports
    for key in keys[: max(5, lookups // 10)]:
        cold.append(await lookup(url, key, options, accel.Cache()))
    cache = accel.Cache()
    # The first lookups meet the dictionary pages, one or two of each row group.
    met = [await lookup(url, 3 * (g * rows // 4 + rows // 400), options, cache) for g in range(4)]
    warm = [await lookup(url, key, options, cache) for key in keys]
    absent = [await lookup(url, key + 1, options, cache) for key in keys[:20]]
    outside = [await lookup(url, key, options, cache) for key in (-5, 3 * rows + 10)]
    between = [await lookup(url, 3 * (rows // 4) - 1, options, cache)]
    for sample in (*cold, *warm):
        if sample.rows != 1:
            raise AssertionError(f"a lookup found {sample.rows} rows")
    return [
        describe("cold", cold),
        describe("meeting dictionaries", met),
        describe("metadata warm", warm),
        describe("absent key inside a page", absent),
        describe("absent key outside all", outside),
        describe("absent key between row groups", between),
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--lookups", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with Minio(install_minio()) as minio:
        minio.create_bucket("bench")
        data = write_bench_file(rows=arguments.rows)
        minio.put("bench", "lookups.parquet", data)
        print(f"{arguments.rows:,} rows, {len(data):,} bytes, 30 ms first byte, 90 MB/s a response")
        with ProxyProcess(minio.url, first_byte=FIRST_BYTE, bandwidth=BANDWIDTH) as proxy:
            options = minio.storage_options(proxy.url)
            rows = asyncio.run(
                measure("s3://bench/lookups.parquet", arguments.rows, arguments.lookups, options)
            )
    if arguments.json:
        print(json.dumps(rows, indent=1))
        return
    print_rows(rows)


def print_rows(rows: Sequence[dict[str, object]]) -> None:
    """Print rows of the same names as a table."""
    names = list(rows[0])
    widths = [max(len(str(name)), *(len(str(row[name])) for row in rows)) for name in names]
    for cells in (names, *([str(row[name]) for name in names] for row in rows)):
        print("  ".join(str(cell).rjust(width) for cell, width in zip(cells, widths, strict=True)))


if __name__ == "__main__":
    main()
