"""SQL engines over accel next to their own readers: DuckDB with its httpfs, and Polars with scan_parquet.

One file of TPC-H's lineitem, sorted by l_orderkey, with a bitmap on the unsorted l_ref, in MinIO behind the
proxy (30 ms first byte, 90 MB/s a response), and on the local disk. The metadata is cached on both sides and no
data is: DuckDB's cache of bytes is off, and accel's is of no size. Samples are taken in turn, and
each asks for a key of its own.

`python -m bench.e2e.engines [--factor F] [--rounds N] [--publish]`
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow.dataset
import pyarrow.parquet as pq

import accel
import accel.polars
from bench.data import lineitem
from bench.e2e.figures import Figure, print_figures
from bench.network import Network, slow_network
from bench.peers.duckdb import DuckDB
from bench.publish import replaced
from bench.suite import LINE
from bench.tables import table

__all__ = ["figures", "main", "published_table"]

_KEY = "lineitem.parquet"
_BEGIN = "<!-- measured: python -m bench.e2e.engines --publish writes this -->"
_PAGE = Path(__file__).resolve().parents[2] / "docs" / "engines.md"
_TEN = (*LINE, "l_partkey", "l_suppkey", "l_quantity", "l_discount", "l_tax")
_SUMS = "count(*), sum(l_quantity), sum(l_extendedprice * l_discount), max(l_shipdate)"
Ask = Callable[[int], Any]
"""Asks about a key, or whatever a round has as its number; what it returns is compared."""


@dataclass(slots=True)
class Taken:
    """What two sides took of one question, sample by sample."""

    seconds: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))
    cpu: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))
    bytes: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))
    requests: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))

    def median(self, side: int) -> float:
        """Seconds of accel (0) or of the other (1)."""
        return statistics.median(self.seconds[side])

    @property
    def ratio(self) -> float:
        """The other's time over accel's."""
        return self.median(1) / self.median(0)

    @property
    def byte_ratio(self) -> float:
        """accel's bytes over the other's."""
        return statistics.median(self.bytes[0]) / statistics.median(self.bytes[1])


def _in_turn(ours: Ask, theirs: Ask, keys: Sequence[int], network: Network | None = None) -> Taken:
    """Ask both sides about each key but the first, which warms them up."""
    taken = Taken()
    for number, key in enumerate(keys):
        answers = []
        # Whoever is first meets a processor that the other has left warm.
        for side in (0, 1) if number % 2 else (1, 0):
            if network is not None:
                network.begin()
            started, busy = time.perf_counter(), time.process_time()
            answer = (ours, theirs)[side](key)
            seconds, busy = time.perf_counter() - started, time.process_time() - busy
            answers.append(answer)
            traffic = None if network is None else network.end()
            if number:
                taken.seconds[side].append(seconds)
                taken.cpu[side].append(busy)
                taken.bytes[side].append(traffic.bytes if traffic else 0)
                taken.requests[side].append(traffic.requests if traffic else 0)
        if answers[0] != answers[1]:
            raise AssertionError(f"the answers about {key} differ: {answers[0]!r:.200}, {answers[1]!r:.200}")
    return taken


def _over(data: Any) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET enable_progress_bar = false")
    return connection.register("lineitem", data)


def _own(network: Network) -> duckdb.DuckDBPyConnection:
    """DuckDB with its httpfs, set up as the benchmark's system of that name."""
    peer = DuckDB()
    peer.open(network.endpoint)
    connection: duckdb.DuckDBPyConnection = peer._connection
    return connection


def _lookup(connection: duckdb.DuckDBPyConnection, source: str, column: str) -> Ask:
    names = ", ".join(LINE)
    return lambda key: sorted(
        connection.execute(f"SELECT {names} FROM {source} WHERE {column} = {key}").fetchall()
    )


def _sums(connection: duckdb.DuckDBPyConnection, source: str) -> Ask:
    return lambda _: connection.execute(f"SELECT {_SUMS} FROM {source}").fetchall()


def _selected(frame: pl.LazyFrame, column: str, block: int) -> Ask:
    """Ask for the rows of so many keys from one on."""
    asked = pl.col(column)

    def ask(key: int) -> Any:
        chosen = frame.filter((asked >= key) & (asked < key + block) if block > 1 else asked == key)
        return chosen.select(_TEN).collect().sort("l_orderkey", "l_linenumber").rows()

    return ask


def _over_the_network(network: Network, path: Path, rounds: int) -> Iterator[Figure]:
    network.put(_KEY, path)
    url = network.endpoint.object_url(_KEY)
    options = network.endpoint.storage_options()
    given = {"storage_options": options, "cache": accel.Cache(data=0)}
    over, own = _over(accel.dataset(url, **given)), _own(network)
    source = f"read_parquet('{url}')"
    for column, what in (("l_orderkey", "sorted key"), ("l_ref", "unsorted key, bitmap")):
        taken = _in_turn(
            _lookup(over, "lineitem", column),
            _lookup(own, source, column),
            _keys(path, column, rounds),
            network,
        )
        case = f"DuckDB, point lookup by {what}"
        yield from _times(case, taken, own="httpfs", least=3.0)
        if column == "l_orderkey":
            yield Figure(
                case=case, what="bytes over those of httpfs", value=taken.byte_ratio, unit="", target=0.1
            )
    yield from _by_polars(network, path, rounds, given)
    taken = _in_turn(_sums(over, "lineitem"), _sums(own, source), range(max(4, rounds // 4)), network)
    yield from _scan_of_all("DuckDB, full scan to an aggregate, network", taken)


def _by_polars(network: Network, path: Path, rounds: int, given: Mapping[str, Any]) -> Iterator[Figure]:
    url, options = network.endpoint.object_url(_KEY), network.endpoint.storage_options()
    aws = {f"aws_{name}": value for name, value in options.items() if name != "endpoint"}
    frame = pl.scan_parquet(
        url, storage_options={**aws, "aws_endpoint_url": options["endpoint"]}, credential_provider=None
    )
    ours = accel.polars.scan(url, **given)
    for column, block, what in (
        ("l_orderkey", 10_000, "some 10,000 rows by the sort key"),
        ("l_partkey", 1, "some 30 rows by an unsorted key"),
    ):
        keys = _keys(path, column, rounds if block > 1 else max(3, rounds // 2))
        taken = _in_turn(_selected(ours, column, block), _selected(frame, column, block), keys, network)
        yield from _times(f"Polars lazy, ten columns, {what}", taken, own="scan_parquet", least=2.0)


def _on_disk(path: Path, rounds: int) -> Iterator[Figure]:
    cache = accel.Cache(data=0)
    over, own = _over(accel.dataset(str(path), cache=cache)), duckdb.connect()
    own.execute("SET parquet_metadata_cache = true")
    taken = _in_turn(
        _sums(over, "lineitem"), _sums(own, f"read_parquet('{path}')"), range(max(4, rounds // 4))
    )
    yield from _scan_of_all("DuckDB, full scan to an aggregate, local", taken)

    def scanned(key: int) -> Any:
        rows = accel.scan(str(path), f"l_orderkey = {key}", columns=list(LINE), cache=cache).to_table()
        return sorted(zip(*rows.to_pydict().values(), strict=True))

    yield from _overhead(scanned, over, _keys(path, "l_orderkey", 6 * rounds))


def _overhead(scanned: Ask, over: duckdb.DuckDBPyConnection, keys: Sequence[int]) -> Iterator[Figure]:
    """What a pushed-down query takes more than the scan that it becomes, and how much of it is DuckDB's."""
    asked = _lookup(over, "lineitem", "l_orderkey")
    taken = _in_turn(scanned, asked, keys)
    memory = duckdb.connect().register(
        "lineitem",
        pyarrow.dataset.dataset(
            over.execute(f"SELECT {', '.join(LINE)} FROM lineitem LIMIT 4").to_arrow_table()
        ),
    )
    alone = _in_turn(_lookup(memory, "lineitem", "l_orderkey"), lambda _: [], [-key for key in keys])
    case = "DuckDB over accel.dataset, point lookup, local"
    for what, pick in (("", taken.seconds), (", CPU time", taken.cpu)):
        scan, query = (1e3 * statistics.median(pick[side]) for side in (0, 1))
        own = 1e3 * statistics.median((alone.cpu if what else alone.seconds)[0])
        yield Figure(case=case, what=f"accel.scan alone{what}", value=scan, unit="ms")
        yield Figure(case=case, what=f"more than accel.scan{what}", value=query - scan, unit="ms", target=5.0)
        yield Figure(
            case=case, what=f"DuckDB over a data set of four rows in memory{what}", value=own, unit="ms"
        )


def _times(case: str, taken: Taken, *, own: str, least: float) -> Iterator[Figure]:
    for side, name in enumerate(("over accel", own)):
        requests, size = statistics.median(taken.requests[side]), statistics.median(taken.bytes[side])
        what = f"{name} ({requests:,.0f} requests, {size / 1e3:,.0f} KB)"
        yield Figure(case=case, what=what, value=1e3 * taken.median(side), unit="ms")
    yield Figure(
        case=case, what=f"time of {own} over accel's", value=taken.ratio, unit="", target=least, least=True
    )


def _scan_of_all(case: str, taken: Taken) -> Iterator[Figure]:
    for side, name in enumerate(("over accel", "own reader")):
        yield Figure(case=case, what=name, value=1e3 * taken.median(side), unit="ms")
    cpu = statistics.median(taken.cpu[0]) / statistics.median(taken.cpu[1])
    yield Figure(case=case, what="accel's CPU time over that of DuckDB's reader", value=cpu, unit="")
    yield Figure(
        case=case,
        what="accel's time over that of DuckDB's reader",
        value=1 / taken.ratio,
        unit="",
        target=1.15,
    )


def _keys(path: Path, column: str, rounds: int) -> list[int]:
    """Keys that are far from each other, so that no page is met twice."""
    values = pq.read_table(path, columns=[column])[column].to_numpy()
    return [int(values[row]) for row in np.linspace(1, len(values) - 2, rounds + 1).astype(int)]


def figures(factor: float, rounds: int) -> list[Figure]:
    """Measure all of it."""
    path = lineitem.by_accel(factor)
    found = list(_on_disk(path, rounds))
    with slow_network() as network:
        return [*_over_the_network(network, path, rounds), *found]


def published_table(found: Sequence[Figure], setting: str) -> str:
    """Return the figures in Markdown, for docs/engines.md, below what they were measured on."""
    rows = [("question", "what", "measured", "wanted")]
    for one in found:
        wanted = "" if one.target is None else f"{'≥' if one.least else '≤'} {one.target:g}"
        value = f"{one.value:,.0f}" if one.value >= 100 else f"{one.value:.3g}"
        value = f"{value} {one.unit}".strip()
        rows.append((one.case, one.what, value if one.met is not False else f"**{value}**", wanted))
    return f"{setting}:\n\n{table(rows)}"


def main() -> None:
    """Measure, print, and put the table into the documentation if that is wanted."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--factor", type=float, default=1.0, help="TPC-H's scale factor of lineitem")
    parser.add_argument("--rounds", type=int, default=16, help="samples of a lookup")
    parser.add_argument("--publish", action="store_true", help="write the table into docs/engines.md")
    given = parser.parse_args()
    found = figures(given.factor, given.rounds)
    load = os.getloadavg()[0]
    setting = f"{os.cpu_count()} cores under a load of {load:.0f}, lineitem at scale {given.factor:g}"
    print(setting)
    print_figures(found)
    if given.publish:
        _PAGE.write_text(replaced(_PAGE.read_text(), published_table(found, setting), begin=_BEGIN))


if __name__ == "__main__":
    main()
