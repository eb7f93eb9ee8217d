"""Full scans of one local file: accel and what else reads Parquet into memory, wall and CPU.

Isolated: decoding and the path around it; the file is in the page cache, no filter. Systems take turns in one
process, round by round; what counts is the median, over the rounds, of each system's ratio to pyarrow's
`ParquetFile.read` (CPU) and to the fastest peer (wall). Each gives one Arrow table (Polars its DataFrame).

`python -m bench.micro.full_scan [--rows N] [--groups N] [--rounds N]` prints a table for all and for few
columns.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import accel
from accel.testing import write_bench_file

FEW = ("key", "value")

Read = Callable[[Sequence[str] | None], int]


def readers(path: str) -> dict[str, Read]:
    """Every system's full read of some or all columns; each returns the rows it got."""
    import duckdb
    import polars as pl
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

    connection = duckdb.connect()

    def of_duckdb(columns: Sequence[str] | None) -> int:
        names = "*" if columns is None else ", ".join(columns)
        found = connection.execute(f"select {names} from read_parquet('{path}')").to_arrow_table()
        return int(found.num_rows)

    def streamed(columns: Sequence[str] | None) -> int:
        return sum(batch.num_rows for batch in accel.scan(path, columns=columns))

    def listed(columns: Sequence[str] | None) -> list[str] | None:
        return None if columns is None else list(columns)

    return {
        "accel, table": lambda columns: accel.scan(path, columns=columns).to_table().num_rows,
        "accel, batches": streamed,
        "pyarrow ParquetFile": lambda columns: pq.ParquetFile(path).read(columns=listed(columns)).num_rows,
        "pyarrow.dataset": lambda columns: ds.dataset(path).to_table(columns=listed(columns)).num_rows,
        "polars": lambda columns: pl.read_parquet(path, columns=listed(columns)).height,
        "duckdb": of_duckdb,
    }


PEERS = ("pyarrow.dataset", "polars", "duckdb")


def compare(
    systems: dict[str, Read], columns: Sequence[str] | None, *, rounds: int, rows: int
) -> dict[str, tuple[float, float, float, float]]:
    """For each system: wall and CPU seconds, wall to the fastest peer's, CPU to ParquetFile's (medians)."""
    walls: dict[str, list[float]] = {name: [] for name in systems}
    cpus: dict[str, list[float]] = {name: [] for name in systems}
    for number in range(rounds + 1):
        # In turn, each round begun by another: who comes first finds the allocators cold.
        turn = number % len(systems)
        for name, read in [*systems.items()][turn:] + [*systems.items()][:turn]:
            cpu, wall = time.process_time(), time.perf_counter()
            found = read(columns)
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            if found != rows:
                raise AssertionError(f"{name} read {found} rows of {rows}")
            if number:  # the first round warms
                walls[name].append(wall)
                cpus[name].append(cpu)
    out = {}
    for name in systems:
        fastest = [min(walls[peer][i] for peer in PEERS) for i in range(rounds)]
        against = [wall / best for wall, best in zip(walls[name], fastest, strict=True)]
        cost = [cpu / base for cpu, base in zip(cpus[name], cpus["pyarrow ParquetFile"], strict=True)]
        of_both = statistics.median(walls[name]), statistics.median(cpus[name])
        out[name] = (*of_both, statistics.median(against), statistics.median(cost))
    return out


def measure(
    path: str | None = None, *, rows: int = 4_000_000, groups: int = 8, rounds: int = 5, show: bool = False
) -> dict[str, float]:
    """Ratios by system and projection: `wall` to the fastest peer's, `cpu` to that of pyarrow's
    ParquetFile."""
    out: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        if path is None:
            path = os.fspath(Path(folder) / "scan.parquet")
            write_bench_file(path, rows=rows, groups=groups)
        systems = readers(path)
        rows = systems["pyarrow ParquetFile"](())
        for title, columns in (("all columns", None), ("few columns", FEW)):
            found = compare(systems, columns, rounds=rounds, rows=rows)
            if show:
                print_table(f"{title}, {rows:,} rows, {Path(path).stat().st_size:,} bytes", found)
            for name, (_, _, wall, cpu) in found.items():
                out[f"{title}, {name}: wall"] = wall
                out[f"{title}, {name}: cpu"] = cpu
    return out


def print_table(title: str, found: dict[str, tuple[float, float, float, float]]) -> None:
    """One projection's table."""
    print(f"{title:>44}  wall s   CPU s  x fastest peer  x CPU of ParquetFile")
    for name, (wall, cpu, against, cost) in found.items():
        print(f"{name:>44}  {wall:6.3f}  {cpu:6.3f}  {against:14.2f}  {cost:20.2f}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--path", help="a file of your own with columns `key` and `value`")
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    measure(arguments.path, rows=arguments.rows, groups=arguments.groups, rounds=arguments.rounds, show=True)


if __name__ == "__main__":
    main()
