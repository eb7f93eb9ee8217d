"""A whole program: `optimize` on a local Spark of its own, killed with its process group. `python
killed_driver.py FOLDER STATE STEP`."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

import accel
from tests.spark.conftest import CONFIG
from tests.support.step_store import StepStore


def main(folder: str, state: str, step: str) -> None:
    warnings.simplefilter("ignore", FutureWarning)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]")
    for key, value in CONFIG.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    store = StepStore(Path(folder), Path(state))
    store.arm(int(step), makes_the_last=True, group=os.getpgrp())
    accel.spark.optimize(spark, "t", sort_by="id", parts=2, target_file_size=1_500, store=store)


if __name__ == "__main__":
    main(*sys.argv[1:])
