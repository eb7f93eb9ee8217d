"""Where the CPU of a query that needs most pages goes, beside what Polars and DataFusion spend on the same file.

Isolated: the work after the bytes are there. The file is local and in the page cache, systems take turns in one
process, and a figure is the median of the process's CPU over the rounds. Stages are timed in rounds of their
own by the CPU of the thread that runs them, without the stages below them:

- verify: page headers and checksums are walked; what a header says is compared with the index.
- splice: the pages become a file for pyarrow, which is opened; rows that are not wanted are left out of what it
  decodes.
- decode: pyarrow decompresses, and decodes levels, indices and values.
- direct: the same for few rows or PLAIN pages, without pyarrow.
- filter: the predicate is evaluated, on dictionary entries where there are few.
- batches: matching rows are taken, and cut into batches of the result's schema.
- rest: what no stage covers: planning, tasks, reading, Python between them, the result's table.

`wait` is no CPU: it is how long threads that were ready waited for a core, as the scheduler counts it, or nan
where the kernel does not.

`python -m bench.micro.cpu_profile [--rows N] [--rounds N]` prints a row for each case.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import accel
from accel.testing import write_bench_file

__all__ = ["CASES", "Case", "measure"]

STAGES = ("verify", "splice", "decode", "direct", "filter", "batches", "rest")
SYSTEMS = ("accel", "polars", "datafusion")


@dataclass(frozen=True, slots=True)
class Case:
    """One query; `where` is understood by every system."""

    name: str
    where: str | None
    columns: tuple[str, ...] | None = None
    groups: int = 4


CASES = (
    Case("weak and weak", "value > 0.3 AND amount > 300000", ("key", "value", "name")),
    Case("wide filter", "value > 0.9"),
    Case("small row groups", "value > 0.9", ("key", "value"), groups=200),
    Case("full scan", None),
)


class _Exclusive:
    """CPU of threads inside wrapped functions, without that of the wrapped ones below."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._running = threading.local()

    def wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return `function`, timed."""

        @wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            outer = getattr(self._running, "below", 0.0)
            self._running.below = 0.0
            started = time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                taken = time.thread_time() - started
                with self._lock:
                    self.seconds[name] += taken - self._running.below
                self._running.below = outer + taken

        return timed


@contextlib.contextmanager
def _staged() -> Iterator[_Exclusive]:
    """Time the stages of every decoded piece meanwhile."""
    from accel.decode import columns, piece, stack
    from accel.predicate import evaluate

    stages = _Exclusive()
    places: list[tuple[Any, str, str]] = [
        (columns, "_verify", "verify"),
        (stack, "verify_stack", "verify"),
        (columns._Job, "read_spliced", "splice"),
        (stack, "splice_groups", "splice"),
        (columns._Job, "_read", "decode"),
        (stack._Stack, "_read", "decode"),
        (columns._Job, "read_directly", "direct"),
        (evaluate, "evaluate", "filter"),
        (piece, "filter_rows", "batches"),
        (stack, "filter_rows", "batches"),
        (piece, "make_batches", "batches"),
        (stack, "make_batches", "batches"),
    ]
    before = [(home, name, getattr(home, name)) for home, name, _ in places]
    for (home, name, stage), (_, _, function) in zip(places, before, strict=True):
        setattr(home, name, stages.wrap(stage, function))
    try:
        yield stages
    finally:
        for home, name, function in before:
            setattr(home, name, function)


def _waited() -> float:
    """Return the seconds for which this process's threads have waited for a core."""
    total = 0
    try:
        for thread in os.listdir("/proc/self/task"):
            with contextlib.suppress(FileNotFoundError):
                total += int(Path(f"/proc/self/task/{thread}/schedstat").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return float("nan")
    return total / 1e9


def _systems(case: Case, path: str) -> dict[str, Callable[[], int]]:
    """Return how each system answers the case; each gives its number of rows."""
    import polars as pl
    from datafusion import SessionConfig, SessionContext

    config = SessionConfig().set("datafusion.execution.parquet.pushdown_filters", "true")
    context = SessionContext(config)
    context.register_parquet("t", path)
    columns = None if case.columns is None else list(case.columns)
    names = "*" if columns is None else ", ".join(columns)
    question = f"SELECT {names} FROM t" + (f" WHERE {case.where}" if case.where else "")

    def of_polars() -> int:
        frame = pl.scan_parquet(path)
        if case.where:
            frame = frame.filter(pl.sql_expr(case.where))
        return (frame.select(columns) if columns else frame).collect().height

    def of_datafusion() -> int:
        return sum(batch.num_rows for batch in context.sql(question).collect())

    return {
        "accel": lambda: accel.scan(path, where=case.where, columns=columns, cache=None).to_table().num_rows,
        "polars": of_polars,
        "datafusion": of_datafusion,
    }


def _profile(case: Case, path: str, rounds: int) -> dict[str, float]:
    """Return CPU seconds by system and by accel's stages, and the wait for a core."""
    systems = _systems(case, path)
    taken: dict[str, list[float]] = {name: [] for name in (*SYSTEMS, *STAGES, "wait")}
    rows = {read() for read in systems.values()}  # warms
    for number in range(rounds):
        turn = number % len(systems)
        for name, read in [*systems.items()][turn:] + [*systems.items()][:turn]:
            waited, started = _waited(), time.process_time()
            rows.add(read())
            taken[name].append(time.process_time() - started)
            if name == "accel":
                taken["wait"].append(_waited() - waited)
        with _staged() as stages:
            started = time.process_time()
            rows.add(systems["accel"]())
            whole = time.process_time() - started
        for stage in STAGES[:-1]:
            taken[stage].append(stages.seconds[stage])
        taken["rest"].append(whole - sum(stages.seconds.values()))
    if len(rows) != 1:
        raise AssertionError(f"{case.name}: the systems read different numbers of rows: {sorted(rows)}")
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


def measure(*, rows: int = 2_000_000, rounds: int = 5, show: bool = False) -> dict[str, float]:
    """CPU seconds by case, system and stage."""
    out: dict[str, float] = {}
    named = (*SYSTEMS, *STAGES, "wait")
    if show:
        print(f"{'ms of CPU':>18}" + "".join(f"{name:>11}" for name in named))
    with tempfile.TemporaryDirectory() as folder:
        for groups in sorted({case.groups for case in CASES}):
            path = os.fspath(Path(folder) / f"{groups}.parquet")
            write_bench_file(path, rows=rows, groups=groups)
            for case in (case for case in CASES if case.groups == groups):
                found = _profile(case, path, rounds)
                out.update({f"{case.name}, {name}": seconds for name, seconds in found.items()})
                if show:
                    told = "".join(f"{found[name] * 1e3:11.1f}" for name in named)
                    print(f"{case.name:>18}{told}", flush=True)
    return out


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    measure(rows=given.rows, rounds=given.rounds, show=True)


if __name__ == "__main__":
    main()
