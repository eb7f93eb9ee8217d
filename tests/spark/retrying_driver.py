"""A whole program: jobs on a cluster whose processes are killed or slowed. `python retrying_driver.py FOLDER
CONFIG`.

It prints a line of JSON for each case: its name, whether the process was hindered, what came out, and the
seconds that it took.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import accel
from accel.catalog.inspecting import verify_index
from accel.testing import write_file
from tests.support.hindered_store import HinderedStore, Hindrance

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES, ROWS = 4, 200
Store = HinderedStore


def fill(root: Path) -> None:
    (root / "t").mkdir(parents=True)
    for number in range(FILES):
        ids = list(range(number * ROWS, (number + 1) * ROWS))
        data = write_file(pa.table({"id": ids, "name": [f"n{i * 37 % 11}" for i in ids]}))
        (root / f"t/{number}.parquet").write_bytes(data)


def scanned(store: Store, **given: Any) -> list[int]:
    ids: list[int] = (
        accel.scan("t/", columns=["id"], store=store, cache=None, **given).to_table()["id"].to_pylist()
    )
    return sorted(ids)


def read(spark: SparkSession, store: Store, root: Path) -> list[int]:
    return sorted(row.id for row in accel.spark.read(spark, "t/", store=store, partitions=4).collect())


def lookup(spark: SparkSession, store: Store, root: Path) -> list[int]:
    keys = spark.range(0, FILES * ROWS).withColumnRenamed("id", "key")
    found = accel.spark.lookup(keys, "t/", on={"key": "id"}, columns=["name"], store=store)
    return sorted(row.key for row in found.collect())


def optimize(spark: SparkSession, store: Store, root: Path) -> list[int]:
    report = accel.spark.optimize(spark, "t", sort_by="name", parts=3, store=store)
    # The record of what replaced what stays, and is written once.
    left = [path.name for path in (root / "t/_accel").iterdir() if path.name != "optimize.json"]
    records = [name for name in left if name.startswith("replaced-")]
    if (
        left != records
        or len(records) != 1
        or len(list((root / "t").glob("*.parquet"))) != report.files_after
    ):
        raise AssertionError(f"left: {left}, {report}")
    return scanned(store)


def embed(spark: SparkSession, store: Store, root: Path) -> list[int]:
    report = accel.spark.embed(spark, "t", to="u", indexes={"name": "distinct"}, store=store)
    done = report.embedded + report.skipped
    if report.failed or done != FILES or len(list((root / "u").glob("*.parquet"))) != FILES:
        raise AssertionError(str(report))
    found = accel.scan("u/", columns=["id"], store=store, cache=None).to_table()
    return sorted(found["id"].to_pylist())


def build_index(spark: SparkSession, store: Store, root: Path) -> list[int]:
    report = accel.spark.build_index(spark, "t", indexes={"name": "keys"}, shares=4, store=store)
    if report.files != FILES or not verify_index("t/_accel", store=store).is_empty:
        raise AssertionError(str(report))
    return scanned(store, index="t/_accel", listing="index")


Way = Callable[["SparkSession", Store, Path], list[int]]
CASES: list[tuple[Way, str, Hindrance]] = [
    (read, "read", Hindrance.SLOW),
    (optimize, "write", Hindrance.SLOW),
    (build_index, "write", Hindrance.SLOW),
    (read, "read", Hindrance.WORKER_KILLED),
    (optimize, "write", Hindrance.WORKER_KILLED),
    (embed, "write", Hindrance.WORKER_KILLED),
    (lookup, "read", Hindrance.EXECUTOR_KILLED),
    (optimize, "write", Hindrance.EXECUTOR_KILLED),
]


def main(folder: str, config: str) -> None:
    warnings.simplefilter("ignore", FutureWarning)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("retries")
    for key, value in json.loads(config).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    warm = Path(folder, "warm")
    fill(warm)
    accel.spark.read(spark, str(warm / "t"), partitions=4).count()
    for number, (way, at, hindrance) in enumerate(CASES):
        root = Path(folder, str(number))
        fill(root)
        store = HinderedStore(root, root, hindrance, at=at, seconds=40)
        begun = time.monotonic()
        ids = way(spark, store, root)
        told = {
            "case": f"{way.__name__}, {hindrance}",
            "hindered": store.has_happened,
            "right": ids == list(range(FILES * ROWS)),
            "seconds": round(time.monotonic() - begun, 1),
        }
        print(json.dumps(told), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
