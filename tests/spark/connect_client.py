"""A whole program: a Spark Connect client of its own local server. `python connect_client.py FOLDER`."""

from __future__ import annotations

import os
import sys
import warnings

import accel
from tests.spark.conftest import CONFIG


def main(folder: str) -> None:
    warnings.simplefilter("ignore", FutureWarning)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.remote("local[2]")
    for key, value in CONFIG.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    print("session", type(spark).__module__)
    frame = accel.spark.read(spark, folder, where="month = 1")
    print("read", frame.count())
    print(
        "executors", accel.spark.read(spark, folder, columns=["id"], planning="executors", limit=70).count()
    )
    accel.spark.register(spark)
    print("format", spark.read.format("accel").option("where", "month = 2").load(folder).count())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW t USING accel OPTIONS (path '{folder}')")
    print(
        "sql",
        [tuple(row) for row in spark.sql("SELECT month, count(*) FROM t GROUP BY 1 ORDER BY 1").collect()],
    )
    wanted = spark.createDataFrame([(1, 5), (2, 39), (2, 40), (None, 7), (9, 7), (2, 39)], "m int, id long")
    for name, given in (
        ("lookup", {}),
        ("lookup, ranges", {"max_keys": 1}),
        ("lookup, left", {"how": "left"}),
    ):
        found = accel.spark.lookup(wanted, folder, on={"m": "month", "id": "id"}, columns=["value"], **given)
        print(name, sorted((tuple(row) for row in found.collect()), key=repr))
    accel.build_index(folder, to=f"{folder}/../index", indexes={"value": "keys"})
    words = spark.createDataFrame([("m1 v7",), ("m2 v39",), ("m3 v1",)], "value string")
    found = accel.spark.lookup(words, folder, on="value", columns=["id"], index=f"{folder}/../index")
    print("lookup, index", sorted(tuple(row) for row in found.collect()))
    for name, refused in (
        ("metrics", lambda: accel.spark.metrics(spark).__enter__()),
        ("sql", lambda: accel.spark.sql(spark, "SELECT * FROM t")),
        ("prune", lambda: accel.spark.prune(spark.table("t"))),
        ("table", lambda: accel.spark.table(spark, folder)),
    ):
        try:
            print("never", refused())
        except accel.AccelError as error:
            print(name, error.message + (f" ({error.hint})" if name != "metrics" else ""))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
