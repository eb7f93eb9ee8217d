"""The same point lookups through accel and through what one would use instead, interleaved in one run.

Isolated: one warm lookup of five columns by a random key of a sorted column; every system keeps open what it
can keep open (accel its cache, pyarrow its Dataset, DataFusion its registered table; Polars has nothing to
keep). Bytes and requests are counted by the proxy, the same way for all. Ratios are of this run.

`python -m bench.latency.peers [--rows N] [--lookups N]` prints one table.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from urllib.parse import urlsplit

import accel
from accel.testing import write_bench_file
from bench.latency.lookups import COLUMNS, print_rows
from bench.network import BANDWIDTH, FIRST_BYTE
from tests.support.proxy import ProxyProcess
from tests.support.s3 import Minio, install_minio

Lookup = Callable[[int], int]
KEY = "lookups.parquet"


def accel_lookups(options: dict[str, str]) -> Lookup:
    """accel at its defaults, metadata cached."""
    cache = accel.Cache()

    def lookup(key: int) -> int:
        scan = accel.scan(
            f"s3://bench/{KEY}", f"key = {key}", columns=COLUMNS, storage_options=options, cache=cache
        )
        return int(scan.to_table().num_rows)

    return lookup


def pyarrow_lookups(options: dict[str, str]) -> Lookup:
    """pyarrow.dataset, the Dataset kept open, pre-buffering (its default for Parquet)."""
    import pyarrow.dataset as ds
    from pyarrow.fs import S3FileSystem

    parts = urlsplit(options["endpoint"])
    fs = S3FileSystem(
        access_key=options["access_key_id"],
        secret_key=options["secret_access_key"],
        endpoint_override=parts.netloc,
        scheme=parts.scheme,
        region=options["region"],
    )
    data = ds.dataset(f"bench/{KEY}", filesystem=fs, format="parquet")

    def lookup(key: int) -> int:
        return int(data.to_table(columns=COLUMNS, filter=ds.field("key") == key).num_rows)

    return lookup


def polars_lookups(options: dict[str, str]) -> Lookup:
    """polars.scan_parquet, lazily, filter and projection pushed down."""
    import polars as pl

    settings = {
        "aws_endpoint_url": options["endpoint"],
        "aws_access_key_id": options["access_key_id"],
        "aws_secret_access_key": options["secret_access_key"],
        "aws_region": options["region"],
        "aws_allow_http": "true",
    }

    def lookup(key: int) -> int:
        frame = pl.scan_parquet(f"s3://bench/{KEY}", storage_options=settings)
        return frame.filter(pl.col("key") == key).select(COLUMNS).collect().height

    return lookup


def datafusion_lookups(options: dict[str, str], *, pushdown: bool) -> Lookup:
    """DataFusion, the table registered once; with and without its row filter."""
    from datafusion import SessionConfig, SessionContext
    from datafusion.object_store import AmazonS3

    config = SessionConfig().set("datafusion.execution.parquet.pushdown_filters", str(pushdown).lower())
    context = SessionContext(config)
    store = AmazonS3(
        bucket_name="bench",
        region=options["region"],
        access_key_id=options["access_key_id"],
        secret_access_key=options["secret_access_key"],
        endpoint=options["endpoint"],
        allow_http=True,
    )
    context.register_object_store("s3://", store, "bench")
    context.register_parquet("t", f"s3://bench/{KEY}")
    names = ", ".join(COLUMNS)

    def lookup(key: int) -> int:
        batches = context.sql(f"SELECT {names} FROM t WHERE key = {key}").collect()
        return sum(batch.num_rows for batch in batches)

    return lookup


def measure(
    systems: dict[str, Lookup], proxy: ProxyProcess, keys: list[int], met: list[int]
) -> list[dict[str, object]]:
    """Every system on every key, one after the other, after each has met one key of every row group."""
    seconds: dict[str, list[float]] = {name: [] for name in systems}
    requests: dict[str, list[int]] = {name: [] for name in systems}
    received: dict[str, list[int]] = {name: [] for name in systems}
    for lookup in systems.values():
        for key in met:
            lookup(key)
    for key in keys:
        for name, lookup in systems.items():
            proxy.reset()
            started = time.perf_counter()
            found = lookup(key)
            seconds[name].append(time.perf_counter() - started)
            if found != 1:
                raise AssertionError(f"{name} found {found} rows")
            requests[name].append(proxy.requests)
            received[name].append(proxy.bytes)
    base = statistics.median(seconds["accel"])
    return [
        {
            "system": name,
            "p50 ms": round(1e3 * statistics.median(seconds[name]), 1),
            "x accel": round(statistics.median(seconds[name]) / base, 2),
            "requests": round(statistics.mean(requests[name]), 1),
            "KB": round(statistics.median(received[name]) / 1e3, 1),
        }
        for name in systems
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--lookups", type=int, default=60)
    arguments = parser.parse_args()
    rng = random.Random(11)
    keys = [3 * rng.randrange(arguments.rows) for _ in range(arguments.lookups)]
    met = [3 * (g * arguments.rows // 4 + arguments.rows // 400) for g in range(4)]
    with Minio(install_minio()) as minio:
        minio.create_bucket("bench")
        minio.put("bench", KEY, write_bench_file(rows=arguments.rows))
        with ProxyProcess(minio.url, first_byte=FIRST_BYTE, bandwidth=BANDWIDTH) as proxy:
            options = minio.storage_options(proxy.url)
            systems: dict[str, Lookup] = {
                "accel": accel_lookups(options),
                "datafusion": datafusion_lookups(options, pushdown=False),
                "datafusion, pushdown": datafusion_lookups(options, pushdown=True),
                "polars": polars_lookups(options),
                "pyarrow.dataset": pyarrow_lookups(options),
            }
            print_rows(measure(systems, proxy, keys, met))


if __name__ == "__main__":
    main()
