"""A whole program: Spark jobs whose Python workers end after each task. `python fresh_workers.py FILE
ROUNDS`."""

from __future__ import annotations

import sys
import warnings
from functools import partial

import accel
from tests.spark.conftest import CONFIG


def main(path: str, rounds: int) -> None:
    from pyspark.sql import SparkSession

    warnings.simplefilter("ignore", FutureWarning)
    builder = SparkSession.builder.master("local[2]").config("spark.python.worker.reuse", "false")
    for key, value in CONFIG.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    ask = partial(accel.scan, where="carrier = 'UA'", columns=["flight"])
    counts = set()
    for _ in range(rounds):
        paths = spark.createDataFrame([(path,)] * 8, "path string").repartition(8)
        counts.add(paths.mapInArrow(ask, "flight bigint").count())
    spark.stop()
    print("counts", *counts)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
