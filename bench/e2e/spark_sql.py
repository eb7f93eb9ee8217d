"""SQL in Spark over accel: TPC-H, selective questions, self-joins, and what `prune` itself takes."""

from __future__ import annotations

import importlib.resources
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

import accel
from bench.data import generated
from bench.e2e.catalog_network import upload_folder
from bench.e2e.figures import Figure
from bench.e2e.spark_measuring import SPARK, Bench, Found, Measured, Side, ratio
from bench.network import BUCKET

__all__ = ["overhead", "selective_sql", "self_join", "tpch"]

_SQL = "accel.spark.sql"
_FORMAT = 'format("accel"), unpruned'
_RELATIONS = 20


def _queries() -> dict[int, str]:
    """TPC-H's queries, as DuckDB's extension has them, with `{name}` for the tables."""
    folder = importlib.resources.files("duckdb_extension_tpch") / "extensions" / f"v{duckdb.__version__}"
    connection = duckdb.connect()
    connection.execute(f"LOAD '{folder / 'tpch.duckdb_extension'}'")
    found = connection.execute("SELECT query_nr, query FROM tpch_queries() ORDER BY query_nr").fetchall()
    return {number: text.strip().rstrip(";") for number, text in found}


def _after_from(text: str, names: list[str]) -> str:
    """Return a query in which the tables, where they are read, are `{name}`."""
    pattern = re.compile(rf"((?:\bFROM|\bJOIN|,)\s+)({'|'.join(names)})\b(?=\s*(?:,|$|[a-z]|\)|[A-Z]))")
    return pattern.sub(r"\1{\2}", text)


def tpch(bench: Bench) -> Found:
    """All queries of TPC-H, at a scale of 1 of its own."""
    generator = Path(sys.executable).with_name("tpchgen-cli")
    with tempfile.TemporaryDirectory(prefix="accel-tpch-") as folder:
        command = [str(generator), "parquet", "-s", str(bench.scale), "--output-dir", folder]
        subprocess.run(command, check=True, capture_output=True, timeout=1200)
        paths = sorted(Path(folder).iterdir())
        for path in paths:
            bench.network.put(f"tpch/{path.name}", path)
    names = [path.stem for path in paths]
    ours: dict[str, Any] = {
        name: accel.spark.table(
            bench.spark,
            f"s3://{BUCKET}/tpch/{name}.parquet",
            storage_options=bench.storage_options,
            cache=None,  # Spark has none, and each turn asks the same
        )
        for name in names
    }
    theirs = {name: bench.spark.read.parquet(f"s3a://{BUCKET}/tpch/{name}.parquet") for name in names}
    measured: list[Measured] = []
    figures: list[Figure] = []
    for number, text in _queries().items():
        query = _after_from(text, names)
        sides: dict[str, Side] = {
            SPARK: lambda _, query=query: bench.spark.sql(query, **theirs).collect(),  # type: ignore[misc]
            _SQL: lambda _, query=query: accel.spark.sql(bench.spark, query, **ours).collect(),  # type: ignore[misc]
        }
        found = bench.by_turns(
            f"TPC-H {number}", sides, of=_comparable, times=min(bench.times, 3), unmeasured=1
        )
        measured += found.values()
        figures.append(ratio(found, _SQL, of="seconds", target=1.25))
        figures.append(ratio(found, _SQL, of="bytes", target=1.0))
    return measured, [*figures, *_of_all(figures[::2], figures[1::2])]


def _of_all(seconds: list[Figure], nbytes: list[Figure]) -> Iterator[Figure]:
    """Yield what the ratios of all queries come to."""
    for of, found, median, most in (("seconds", seconds, 0.9, 1.25), ("bytes", nbytes, None, 1.0)):
        values = [one.value for one in found]
        worst = max(found, key=lambda one: one.value)
        missed = sum(one.met is False for one in found)
        told = f"{of} over those of Spark"
        for what, value, target in (
            (f"median of {told}", statistics.median(values), median),
            (f"most {told} (query {worst.case.split()[-1]}; {missed} above the target)", worst.value, most),
        ):
            yield Figure(case=f"TPC-H, {len(found)} queries", what=what, value=value, unit="x", target=target)


def _comparable(rows: list[Any]) -> list[str]:
    """Return rows without the last digits of sums, which depend on the order of additions."""
    return sorted(
        repr([f"{value:.6g}" if isinstance(value, float) else str(value) for value in row]) for row in rows
    )


def selective_sql(bench: Bench) -> Found:
    """A row of one large file by the key that it is sorted by, in SQL."""
    rows = bench.size(6_000_000, least=200_000)
    path = generated.synthetic(rows, 12)
    bench.network.put(f"one/{path.name}", path)
    theirs = bench.spark.read.parquet(f"s3a://{BUCKET}/one/{path.name}")
    url = f"s3://{BUCKET}/one/{path.name}"
    ours: Any = accel.spark.table(bench.spark, url, storage_options=bench.storage_options)

    def text(turn: int, side: int) -> str:
        wanted = 3 * (((3 * turn + side) * 982_451_653 + 12_345) % rows)
        return f"SELECT count(value), count(name) FROM {{t}} WHERE key = {wanted}"

    found = bench.by_turns(
        f"one row of {rows:,} in SQL, {path.stat().st_size / 1e6:,.0f} MB",
        {
            SPARK: lambda turn: bench.spark.sql(text(turn, 0), t=theirs).collect(),
            _SQL: lambda turn: accel.spark.sql(bench.spark, text(turn, 1), t=ours).collect(),
        },
    )
    return [*found.values()], [
        ratio(found, _SQL, of="seconds", target=0.6),
        ratio(found, _SQL, of="bytes", target=0.1),
    ]


def self_join(bench: Bench) -> Found:
    """A large table joined with itself, with a filter on either side; each turn asks for other rows."""
    rows = bench.size(2_000_000, least=200_000)
    path = generated.synthetic(rows, 4)
    bench.network.put(f"one/{path.name}", path)
    url = f"s3://{BUCKET}/one/{path.name}"
    theirs = bench.spark.read.parquet(f"s3a://{BUCKET}/one/{path.name}")
    ours: Any = accel.spark.table(bench.spark, url, storage_options=bench.storage_options)
    loaded = bench.spark.read.format("accel").options(**bench.storage_options, pushdown="false").load(url)

    def text(turn: int) -> str:
        low = (turn + 2) * (rows // 4) % (5 * rows // 2)
        return f"""
            SELECT count(*), sum(a.value), max(b.name) FROM {{t}} a JOIN {{t}} b ON a.key = b.key - 3
            WHERE a.key BETWEEN {low} AND {low + rows // 10} AND b.key BETWEEN {low} AND {low + rows // 5}"""

    sides: dict[str, Side] = {
        SPARK: lambda turn: bench.spark.sql(text(turn), t=theirs).collect(),
        _SQL: lambda turn: accel.spark.sql(bench.spark, text(turn), t=ours).collect(),
        _FORMAT: lambda turn: bench.spark.sql(text(turn), t=loaded).collect(),
    }
    found = bench.by_turns(f"self-join of {rows:,} rows", sides, of=_comparable, times=min(bench.times, 3))
    value = found[_SQL].seconds / found[_FORMAT].seconds
    return [*found.values()], [
        ratio(found, _SQL, of="seconds", target=1.0),
        Figure(
            case=found[_SQL].case,
            what="seconds over those of format unpruned",
            value=value,
            unit="x",
            target=0.5,
        ),
    ]


def overhead(bench: Bench) -> Found:
    """What `prune` takes for a plan of many relations, beyond planning their reads one by one."""
    with tempfile.TemporaryDirectory(prefix="accel-overhead-") as name:
        folder = Path(name, "t")
        folder.mkdir()
        for number in range(_RELATIONS):
            table = pa.table({"id": range(1_000), "k": [number] * 1_000})
            pq.write_table(table, folder / f"{number}.parquet")
        uploaded = upload_folder(bench.network, folder, "overhead")
    urls = [f"s3://{BUCKET}/{uploaded.rstrip('/')}/{number}.parquet" for number in range(_RELATIONS)]
    options = bench.storage_options
    tables = [accel.spark.table(bench.spark, url, storage_options=options) for url in urls]
    frame = tables[0].where("id = 0")
    for number, one in enumerate(tables[1:], 1):
        frame = frame.union(one.where(f"id = {number}"))
    frame = frame.select("k")
    whole, reads = [], []
    for _ in range(bench.times + 2):
        begun = time.perf_counter()
        pruned = accel.spark.prune(frame)
        whole.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        for number, url in enumerate(urls):
            accel.spark.read(
                bench.spark, url, where=f"id = {number}", columns=["id", "k"], storage_options=options
            )
        reads.append(time.perf_counter() - begun)
    if pruned.count() != _RELATIONS:
        raise AssertionError("rows were lost")
    milliseconds = 1e3 * (statistics.median(whole[2:]) - statistics.median(reads[2:]))
    return [], [
        Figure(
            case=f"prune of {_RELATIONS} relations",
            what="beyond planning the reads",
            value=milliseconds,
            unit="ms",
            target=150,
        )
    ]
