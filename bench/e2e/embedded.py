"""What embedded indexes save: many files of which one matches, and lookups by an unsorted key.

Isolated: (1) 1,000 small files with the DataFusion example's `IDX1` over a text column, one of which holds
the text asked for, over MinIO behind the proxy (30 ms first byte, 90 MB/s a response), cold and warm, next to
DataFusion over the same files by their statistics; (2) bytes of a point lookup on an unsorted unique column
of one large file, with and without a `bitmap`.

`python -m bench.e2e.embedded [--files N] [--rows N]`
"""

from __future__ import annotations

import argparse
import pathlib
import tempfile
import time

import numpy as np
import pyarrow as pa

import accel
from accel.testing import Layout, table, write_file
from bench.latency.lookups import print_rows
from bench.network import BANDWIDTH, FIRST_BYTE
from tests.support.proxy import ProxyProcess
from tests.support.s3 import Minio, install_minio


def many_files(count: int) -> list[dict[str, object]]:
    """One of `count` files holds the text; bounds say nothing, as every file spans the same texts."""
    rng = np.random.default_rng(4)
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as scratch, Minio(install_minio()) as minio:
        minio.create_bucket("bench")
        one, two = pathlib.Path(scratch, "a.parquet"), pathlib.Path(scratch, "b.parquet")
        for number in range(count):
            texts = ["aaa", "zzz", *(f"text {i}" for i in rng.integers(0, 10**9, 50))]
            if number == count // 2:
                texts.append("text of one file")
            picks = np.arange(20_000) % len(texts)
            data = table(category=pa.array(texts).take(pa.array(picks)), value=rng.random(20_000))
            one.write_bytes(write_file(data, Layout(page_rows=5_000)))
            accel.embed(str(one), str(two), indexes={"category": "idx1"})
            minio.put("bench", f"many/{number:04d}.parquet", two.read_bytes())
        with ProxyProcess(minio.url, first_byte=FIRST_BYTE, bandwidth=BANDWIDTH) as proxy:
            options = minio.storage_options(proxy.url)
            cache = accel.Cache()
            urls = [f"s3://bench/many/{number:04d}.parquet" for number in range(count)]
            for name in ("accel, cold", "accel, warm"):
                proxy.reset()
                started = time.perf_counter()
                scan = accel.scan(
                    urls,
                    "category = 'text of one file'",
                    embedded={"category": "idx1"},
                    storage_options=options,
                    cache=cache,
                )
                found = scan.to_table().num_rows
                seconds = time.perf_counter() - started
                rows.append(_row(name, seconds, proxy, found))
            rows.append(_datafusion(options, proxy))
    return rows


def _row(name: str, seconds: float, proxy: ProxyProcess, found: int) -> dict[str, object]:
    return {
        "files": name,
        "seconds": round(seconds, 2),
        "requests": proxy.requests,
        "KB": round(proxy.bytes / 1e3, 1),
        "rows": found,
    }


def _datafusion(options: dict[str, str], proxy: ProxyProcess) -> dict[str, object]:
    from datafusion import SessionContext
    from datafusion.object_store import AmazonS3

    context = SessionContext()
    store = AmazonS3(
        bucket_name="bench",
        region=options["region"],
        access_key_id=options["access_key_id"],
        secret_access_key=options["secret_access_key"],
        endpoint=options["endpoint"],
        allow_http=True,
    )
    context.register_object_store("s3://", store, "bench")
    proxy.reset()
    started = time.perf_counter()
    context.register_parquet("t", "s3://bench/many/")
    batches = context.sql("SELECT * FROM t WHERE category = 'text of one file'").collect()
    return _row("datafusion, cold", time.perf_counter() - started, proxy, sum(b.num_rows for b in batches))


def bitmap_lookups(count: int) -> list[dict[str, object]]:
    """Bytes of lookups by a key in no order."""
    rng = np.random.default_rng(8)
    keys = rng.permutation(count).astype(np.int64) * 2
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        plain, indexed = f"{scratch}/plain.parquet", f"{scratch}/indexed.parquet"
        data = table(user=pa.array(keys), value=rng.random(count), other=rng.integers(0, 1 << 40, count))
        write_file(data, Layout(group_rows=1_000_000, dictionary=False), where=plain)
        started = time.perf_counter()
        accel.embed(plain, indexed, indexes={"user": "bitmap"})
        print(f"embedding the bitmap: {time.perf_counter() - started:.1f} s")
        cache = accel.Cache()
        for name, path in (
            ("statistics alone", plain),
            ("bitmap, first", indexed),
            ("bitmap, again", indexed),
        ):
            cache = (
                accel.Cache() if name != "bitmap, again" else cache
            )  # the second round meets what the first left
            sizes = []
            for key in keys[:: count // 7][:5].tolist():
                scan = accel.scan(path, f"user = {key}", cache=cache)
                if scan.to_table().num_rows != 1:
                    raise AssertionError(f"{path} has not one row of {key}")
                sizes.append(scan.metrics.bytes)
            rows.append(
                {
                    "lookups": name,
                    "KB median": round(float(np.median(sizes)) / 1e3, 1),
                    "KB first": round(sizes[0] / 1e3, 1),
                }
            )
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=1_000)
    parser.add_argument("--rows", type=int, default=10_000_000)
    arguments = parser.parse_args()
    print_rows(bitmap_lookups(arguments.rows))
    print_rows(many_files(arguments.files))


if __name__ == "__main__":
    main()
