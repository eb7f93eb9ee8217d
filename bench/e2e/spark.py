"""accel in Spark against Spark's own reader over S3A: what is to be reached, and what is.

Real MinIO behind a network of 30 ms to the first byte and 90 MB/s a response; one warm session, `local[2]`,
in which the sides are asked in turn and their rows compared. S3A reads by its analytics stream, with vectored
reads (`bench/peers/spark.py`).

`python -m bench.e2e.spark [--quick] [--scale PART] [--times N] [--json FILE] [--publish] [case...]` prints
times (medians), requests and bytes, then each number beside its target. The cases that ask in
SQL are `sql join prune small tpch`; `--publish` writes what was measured into docs/measurements.md, where the
queries of TPC-H have a table of their own.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import accel
from bench.e2e import spark_lookup, spark_queries, spark_rewrite, spark_scans, spark_sql
from bench.e2e.figures import Figure, print_figures
from bench.e2e.spark_floor import AtHand
from bench.e2e.spark_measuring import Bench, Found, Measured
from bench.latency.lookups import print_rows
from bench.network import slow_network
from bench.peers.spark import make_session, stop_session
from bench.publish import replaced
from bench.tables import table

__all__ = ["main", "published_table"]

_BEGIN = "<!-- measured: python -m bench.e2e.spark --publish writes this -->"
_BEGIN_TPCH = "<!-- measured: python -m bench.e2e.spark tpch --publish writes this -->"
_PAGE = Path(__file__).resolve().parents[2] / "docs" / "measurements.md"
_OF_TPCH = re.compile(r"TPC-H (\d+)")
"""One of its queries."""

CASES: dict[str, Callable[[Bench], Found]] = {
    "one": spark_queries.one_file,
    "many": spark_queries.many_files,
    "lookup": spark_lookup.lookup_join,
    "scan": spark_scans.full_scan,
    "small": spark_scans.small_files,
    "empty": spark_scans.empty_tasks,
    "sql": spark_sql.selective_sql,
    "join": spark_sql.self_join,
    "tpch": spark_sql.tpch,
    "prune": spark_sql.overhead,
    "optimize": spark_rewrite.optimize,
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="as --scale 0.01 --times 1")
    parser.add_argument("--scale", type=float, default=1.0, help="of the data (default 1)")
    parser.add_argument("--times", type=int, default=5, help="turns of each case that count, at most")
    parser.add_argument("--stream", choices=("analytics", "classic"), default="analytics", help="S3A's")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there, too")
    parser.add_argument("--publish", action="store_true", help=f"write the table into docs/{_PAGE.name}")
    parser.add_argument("cases", nargs="*", help=f"some of {' '.join(CASES)}")
    given = parser.parse_args()
    if given.quick:
        given.scale, given.times = 0.01, 1
    unknown = set(given.cases) - CASES.keys()
    if unknown:
        parser.error(f"no such cases: {' '.join(sorted(unknown))}")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Ended by a signal, it takes its servers with it.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    measured: list[Measured] = []
    figures: list[Figure] = []
    with slow_network() as network:
        spark = make_session(network.endpoint, {}, master="local[2]", stream=given.stream)
        try:
            accel.spark.register(spark, pushdown=True)

            spark.dataSource.register(AtHand)
            bench = Bench(network, spark, given.scale, given.times)
            for case in given.cases or CASES:
                begun = time.monotonic()
                sides, verdicts = CASES[case](bench)
                print(f"{case}: {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
                measured += sides
                figures += verdicts
                if sides:
                    print_rows([one.row() for one in sides])
                print(flush=True)
                if given.json:
                    _write(given.json, measured, figures)
                if given.publish:
                    _publish(figures, given.scale)
        finally:
            stop_session(spark)
    print_figures(figures)
    print(f"\nAbsolute times are this machine's, load {os.getloadavg()[0]:.1f}: compare ratios.")


def _write(path: Path, measured: Sequence[Measured], figures: Sequence[Figure]) -> None:
    """Write the numbers of the cases so far."""
    document = {
        "measured": [dataclasses.asdict(one) for one in measured],
        "figures": [dataclasses.asdict(one) for one in figures],
    }
    path.write_text(json.dumps(document, indent=1))


def _publish(figures: Sequence[Figure], scale: float) -> None:
    """Put the figures of the cases so far into the page."""
    setting = f"{os.cpu_count()} cores under a load of {os.getloadavg()[0]:.0f}, scale {scale:g}"
    of_tpch = [one for one in figures if one.case.startswith("TPC-H")]
    others = [one for one in figures if one not in of_tpch]
    for begin, found in ((_BEGIN, others), (_BEGIN_TPCH, of_tpch)):
        if found:
            _PAGE.write_text(replaced(_PAGE.read_text(), published_table(found, setting), begin=begin))


def published_table(figures: Sequence[Figure], setting: str) -> str:
    """Return the figures in Markdown, below what they were measured on; the queries of TPC-H in a table of
    their own."""
    rows = [("question", "what", "measured", "wanted")]
    queries: dict[str, list[str]] = {}
    for one in figures:
        unit = "" if one.unit == "x" else f" {one.unit}"
        value = f"{one.value:,.0f}{unit}" if one.value >= 100 else f"{one.value:.2g}{unit}"
        value = "Spark: none" if math.isinf(one.value) else value
        shown = f"**{value}**" if one.met is False else value
        query = _OF_TPCH.fullmatch(one.case)
        if query is not None:
            queries.setdefault(query[1], []).append(shown)
            continue
        wanted = "" if one.target is None else f"{'≥' if one.least else '≤'} {one.target:.3g}"
        rows.append((one.case, one.what, shown, wanted))
    text = f"{setting}:\n\n{table(rows)}"
    if not queries:
        return text
    head = ("query of TPC-H, rows equal", "seconds over those of Spark", "bytes over those of Spark")
    return f"{text}\n\n{table([head, *((number, *shown) for number, shown in queries.items())])}"


if __name__ == "__main__":
    main()
