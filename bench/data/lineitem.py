"""TPC-H's lineitem as three writers leave it: `tpchgen-cli`, Spark, and `accel.write_table`.

The first two hold the same rows in the same order. The third has two columns more, by which nothing is
sorted: `l_uid` under Parquet's bloom filters and `l_ref` under an embedded bitmap, each a permutation of the
row numbers times three, so that absent keys lie between present ones.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import accel
from bench.data.folder import made, need_room

__all__ = ["by_accel", "by_spark", "by_tpchgen"]

_KEYS = ("l_uid", "l_ref")
_BATCH_ROWS = 1 << 20
_MAPPED_BYTES = 1.45e9
"""Of disk that the third takes at scale 1 while it is made: an Arrow file, and the Parquet file made of
it."""


def by_tpchgen(factor: float) -> Path:
    """As the generator writes it: snappy, row groups of 7 MiB, a page index, sorted by l_orderkey."""

    def make(path: Path) -> None:
        folder = path.with_suffix(".folder")
        tool = Path(sys.executable).with_name("tpchgen-cli")
        command = [str(tool), "parquet", "-s", f"{factor:g}", "--tables", "lineitem", "--output-dir"]
        try:
            subprocess.run([*command, str(folder)], check=True, stdout=subprocess.DEVNULL)
            (folder / "lineitem.parquet").rename(path)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    return made(f"lineitem-{factor:g}/tpchgen.parquet", make)


def by_spark(factor: float) -> Path:
    """The same rows as one file of Spark's own defaults: snappy, row groups of 128 MiB, a column index."""
    source = by_tpchgen(factor)

    def make(path: Path) -> None:
        folder = path.with_suffix(".folder")
        try:
            # Of its own process: a JVM here would stay for the whole run.
            subprocess.run(
                [sys.executable, "-m", "bench.data.lineitem", str(source), str(folder)], check=True
            )
            next(folder.glob("part-*.parquet")).rename(path)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    return made(f"lineitem-{factor:g}/spark.parquet", make)


def by_accel(factor: float) -> Path:
    """With page index, bloom filters on l_uid and a bitmap on l_ref, at the writer's defaults otherwise."""
    source = by_tpchgen(factor)

    def make(path: Path) -> None:
        # By way of a mapped file: at scale 10 the table is larger than the memory of many machines.
        mapped = path.with_suffix(".arrow")
        need_room(path.parent, int(factor * _MAPPED_BYTES))
        try:
            _spread(source, mapped)
            with pa.memory_map(str(mapped)) as file:
                table = pa.ipc.open_file(file).read_all()
                accel.write_table(table, path, blooms=["l_uid"], indexes={"l_ref": "bitmap"})
        finally:
            mapped.unlink(missing_ok=True)

    return made(f"lineitem-{factor:g}/accel.parquet", make)


def _spread(source: Path, target: Path) -> None:
    """The generator's rows and the two keys as an Arrow file, a batch at a time."""
    parquet = pq.ParquetFile(source)
    schema = pa.schema([_plain(field) for field in parquet.schema_arrow])
    rng = np.random.default_rng(19)
    keys = [rng.permutation(parquet.metadata.num_rows) * 3 for _ in _KEYS]
    whole = pa.schema([*schema, *(pa.field(name, pa.int64()) for name in _KEYS)])
    done = 0
    with pa.ipc.new_file(target, whole) as writer:
        for batch in parquet.iter_batches(_BATCH_ROWS):
            batch = batch.cast(schema)
            for name, values in zip(_KEYS, keys, strict=True):
                batch = batch.append_column(name, pa.array(values[done : done + batch.num_rows]))
            writer.write_batch(batch)
            done += batch.num_rows


def _plain(field: pa.Field) -> pa.Field:
    """The generator asks for string views, which not every reader knows."""
    return pa.field(field.name, pa.string() if field.type == pa.string_view() else field.type)


def _write_by_spark(source: str, folder: str) -> None:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("bench data")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "4g",
        # One split, one task, one file: the order of the rows stays.
        "spark.sql.files.maxPartitionBytes": "64g",
        "spark.sql.files.openCostInBytes": "64g",
    }.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        spark.sparkContext.setLogLevel("ERROR")
        spark.read.parquet(source).coalesce(1).write.parquet(folder)
    finally:
        spark.stop()


if __name__ == "__main__":
    _write_by_spark(*sys.argv[1:])
