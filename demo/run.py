"""One selective query over the flights of 2013: from Python, then the same on Spark.

Run it by `make demo`, `python -m demo` or `python demo/run.py`. It writes to demo-data/ (or the folder that
is given to it) and needs no server.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
import warnings
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
if str(HERE.parent) not in sys.path:  # `python demo/run.py` puts demo/ itself there
    sys.path.insert(0, str(HERE.parent))

import pyarrow as pa

import accel
from demo import delta
from demo.flights import ROWS, write_flights

DATA = (Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parent / "demo-data") / "flights"
WHERE = "month = 7 AND carrier IN ('AS', 'HA') AND dep_delay > 60"
COLUMNS = ["time_hour", "carrier", "flight", "dest", "dep_delay"]

_STARTED = time.perf_counter()


def say(text: str) -> None:
    print(f"\n[{time.perf_counter() - _STARTED:5.1f} s] {text}", flush=True)


def show(table: pa.Table) -> None:
    """A small table, as text."""
    rows = [table.column_names, *([str(v) for v in row.values()] for row in table.to_pylist())]
    widths = [max(len(row[i]) for row in rows) for i in range(table.num_columns)]
    for row in rows:
        print("    " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def make_data() -> None:
    say(f"Writing the {ROWS:,} flights of 2013 as Parquet, a file a month, under {DATA.parent.name}/flights/")
    shutil.rmtree(DATA, ignore_errors=True)
    size = write_flights(DATA)
    print(f"    12 files, {size:,} bytes, sorted by carrier and hour, with a page index")


async def ask_python() -> tuple[pa.Table, accel.Metrics]:
    """The answer, and what getting it took with nothing cached."""
    say("Asking from Python: scan = accel.scan(folder, where=..., columns=...); async for batch in scan")
    print(f"    where    {WHERE}\n    columns  {', '.join(COLUMNS)}")
    scan = accel.scan(str(DATA), where=WHERE, columns=COLUMNS)
    batches = [batch async for batch in scan]
    cold = scan.metrics
    return pa.Table.from_batches(batches, await scan.schema_async()), cold


async def ask_again() -> accel.Metrics:
    """The same question, now that the metadata and the dictionary pages of its file are cached."""
    say("Asking again, now that the metadata is cached: print(scan.explain(analyze=True))")
    scan = accel.scan(str(DATA), where=WHERE, columns=COLUMNS)
    print(await scan.explain_async(analyze=True))
    return scan.metrics


async def read_all() -> accel.Metrics:
    """A full read of the same files, by the same library and without what it has cached."""
    scan = accel.scan(str(DATA), cache=None)
    table = await scan.to_table_async()
    if table.num_rows != ROWS:
        raise SystemExit(f"the full read has {table.num_rows} rows, not {ROWS}")
    return scan.metrics


def compare(cold: accel.Metrics, warm: accel.Metrics, full: accel.Metrics) -> None:
    say("What that took, against reading everything")
    print(f"    {'':28}{'requests':>10}{'round trips':>14}{'bytes':>14}")
    for name, metrics in (
        ("this query, nothing cached", cold),
        ("this query again", warm),
        ("a full read, nothing cached", full),
    ):
        print(f"    {name:28}{metrics.requests:>10,}{metrics.round_trips:>14}{metrics.bytes:>14,}")


def look_up_in_table() -> bool:
    """One aeroplane in a Delta table, without an index and with one; return whether both are right."""
    folder = DATA.parent / "delta"
    say(
        f"The flights as a Delta table of {delta.WEEKS} commits: tailnum = '{delta.PLANE}', by which no file is sorted"
    )
    expected = delta.write_table(folder)
    before, after, rows = delta.look_up(folder)
    print(
        f"    {rows} rows; accel.build_index(table, indexes={{'tailnum': 'keys'}}) lies in _accel/ beside its log"
    )
    print(f"    {'':28}{'files':>10}{'requests':>10}{'bytes':>14}")
    for name, metrics in (("without the index", before), ("with the index", after)):
        print(f"    {name:28}{metrics.files.kept:>10}{metrics.requests:>10,}{metrics.bytes:>14,}")
    return rows == expected


def ask_spark(expected: pa.Table) -> pa.Table:
    say("Starting Spark, local[2], with this Python in its workers")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise SystemExit("pyspark is missing: pip install '.[spark]'") from None
    builder = SparkSession.builder.master("local[2]").appName("accel demo")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
    }.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        spark.sparkContext.setLogLevel("ERROR")
        say(
            "Asking Spark: the driver plans, df holds the plan's tasks, df.mapInArrow(accel.scan, schema) reads"
        )
        plan = accel.plan(str(DATA), where=WHERE, columns=COLUMNS)
        df = spark.createDataFrame(plan.to_arrow())
        read: Any = accel.scan  # a Scan can be iterated, which is enough; pyspark's types ask for an iterator
        answer = df.mapInArrow(read, accel.spark.spark_schema(expected.schema))
        return answer.toArrow()
    finally:
        spark.stop()


def same(left: pa.Table, right: pa.Table) -> bool:
    """Equal rows, in whatever order; Spark hands instants back in its own session's zone."""
    by_all = [(name, "ascending") for name in COLUMNS]
    wanted = left.cast(pa.schema([f.with_metadata(None) for f in left.schema])).sort_by(by_all)
    return bool(right.cast(wanted.schema).sort_by(by_all).equals(wanted))


def main() -> int:
    print("accel: one query, whole. Parquet files in, rows in Python and in Spark out.")
    make_data()
    answer, cold = asyncio.run(ask_python())
    say(f"Python's answer: {answer.num_rows} rows")
    show(answer)
    warm = asyncio.run(ask_again())
    compare(cold, warm, asyncio.run(read_all()))
    found = look_up_in_table()
    by_spark = ask_spark(answer)
    say(f"Spark's answer: {by_spark.num_rows} rows")
    show(by_spark)
    agree = same(answer, by_spark) and found
    say("The two answers are equal." if agree else "The two answers DIFFER.")
    return 0 if agree else 1


if __name__ == "__main__":
    raise SystemExit(main())
