"""CPU seconds of one warm point lookup of five columns, over a store in memory, and of its stages.

Isolated: everything but the network. The CPU is the whole process's (all threads), taken over many lookups in
rounds, of which the median counts: the machine may have other work. Stages are timed by the CPU of the thread
that runs them, in rounds of their own, as the timers cost too.

`python -m bench.micro.lookup_cpu [--rows N] [--lookups N] [--rounds N] [--peer]` prints one table; `--peer`
adds DataFusion over the same file on disk.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import Any

import accel
from accel.testing import DictStore, write_bench_file

COLUMNS = ["key", "ts", "category", "value", "name"]
KEY = "lookups.parquet"

Lookup = Callable[[int], int]


def accel_lookup(store: Any, cache: accel.Cache, key: int) -> int:
    """One lookup, blocking."""
    scan = accel.scan(KEY, where=f"key = {key}", columns=COLUMNS, store=store, cache=cache)
    return int(scan.to_table().num_rows)


async def _concurrent(store: Any, cache: accel.Cache, keys: Sequence[int]) -> int:
    async def one(key: int) -> int:
        scan = accel.scan(KEY, where=f"key = {key}", columns=COLUMNS, store=store, cache=cache)
        return int((await scan.to_table_async()).num_rows)

    return sum(await asyncio.gather(*map(one, keys)))


def datafusion_lookups(path: Path) -> Lookup:
    """DataFusion, the table registered once, its filter pushed down."""
    from datafusion import SessionConfig, SessionContext

    context = SessionContext(SessionConfig().set("datafusion.execution.parquet.pushdown_filters", "true"))
    context.register_parquet("t", str(path))
    names = ", ".join(COLUMNS)

    def lookup(key: int) -> int:
        batches = context.sql(f"SELECT {names} FROM t WHERE key = {key}").collect()
        return sum(batch.num_rows for batch in batches)

    return lookup


# -- stages ------------------------------------------------------------------------------------------


class Stages:
    """CPU of the running thread inside wrapped functions, the wrapped ones below them included."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def _add(self, name: str, seconds: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def plain(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, timed."""

        @wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            started = time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                self._add(name, time.thread_time() - started)

        return timed

    def coroutine(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """An `async` function, timed while it runs, not while it waits."""

        @wraps(function)
        async def timed(*args: Any, **kwargs: Any) -> Any:
            return await _Steps(function(*args, **kwargs), partial(self._add, name))

        return timed


class _Steps:
    def __init__(self, inner: Any, add: Callable[[float], None]) -> None:
        self._inner = inner
        self._add = add

    def __await__(self) -> Generator[Any, Any, Any]:
        value: Any = None
        inner = self._inner.__await__()
        while True:
            started = time.thread_time()
            try:
                waited = inner.send(value)
            except StopIteration as done:
                return done.value
            finally:
                self._add(time.thread_time() - started)
            value = yield waited


@contextlib.contextmanager
def staged() -> Iterator[Stages]:
    """Time the stages of every scan meanwhile."""
    from accel import api
    from accel.decode import piece
    from accel.planning import task as task_files
    from accel.predicate import evaluate
    from accel.reader import reader, task_reads
    from accel.scanning import resolved_source
    from accel.scanning import spec as arguments
    from accel.store import client

    stages = Stages()
    wrapped: list[tuple[Any, str, Any]] = [
        (api, "check_arguments", stages.plain("scan(): arguments, parse", arguments.check_arguments)),
        (
            resolved_source.ResolvedSource,
            "question",
            stages.coroutine("question (listing, opening, binding)", resolved_source.ResolvedSource.question),
        ),
        (reader, "describe_file", stages.plain("  compile for the file", task_files.describe_file)),
        (reader.Reader, "plan", stages.coroutine("plan the file", reader.Reader.plan)),
        (task_reads.TaskReads, "fetch", stages.coroutine("fetch a piece", task_reads.TaskReads.fetch)),
        (client.Client, "read", stages.coroutine("  client.read", client.Client.read)),
        (piece, "decode_piece", stages.plain("decode a piece", piece.decode_piece)),
        (evaluate, "evaluate", stages.plain("  exact filter", evaluate.evaluate)),
    ]
    before = [(home, name, getattr(home, name)) for home, name, _ in wrapped]
    for home, name, function in wrapped:
        setattr(home, name, function)
    try:
        yield stages
    finally:
        for home, name, function in before:
            setattr(home, name, function)


# -- measuring ---------------------------------------------------------------------------------------


def _rounds(calls: Callable[[], int], lookups: int, rounds: int) -> float:
    """Median CPU milliseconds a lookup."""
    taken = []
    for _ in range(rounds):
        started = time.process_time()
        found = calls()
        taken.append(1e3 * (time.process_time() - started) / lookups)
        if found != lookups:
            raise AssertionError(f"{found} rows for {lookups} lookups")
    return statistics.median(taken)


def measure(
    *, rows: int = 2_000_000, lookups: int = 200, rounds: int = 7, peer: bool = False
) -> dict[str, float]:
    """CPU milliseconds a lookup: one at a time, 256 at once, by stage; of DataFusion too if `peer`."""
    data = write_bench_file(rows=rows)
    store, cache = DictStore({KEY: data}), accel.Cache()
    rng = random.Random(7)
    keys = [3 * rng.randrange(rows) for _ in range(lookups)]
    for group in range(4):
        for page in range(12):
            accel_lookup(store, cache, 3 * (group * rows // 4 + page * 10_000 + 3))
    out: dict[str, float] = {}
    one_by_one = partial(_each, partial(accel_lookup, store, cache), keys)
    many = [3 * rng.randrange(rows) for _ in range(256)]

    def at_once() -> int:
        return asyncio.run(_concurrent(store, cache, many))

    at_once()
    out["accel, one at a time"] = _rounds(one_by_one, lookups, rounds)
    out["accel, 256 at once"] = _rounds(at_once, len(many), rounds)
    with staged() as stages:
        one_by_one()
    out |= {name: 1e3 * seconds / lookups for name, seconds in stages.seconds.items()}
    if peer:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / KEY
            path.write_bytes(data)
            lookup = datafusion_lookups(path)
            for key in keys[:20]:
                lookup(key)
            out["DataFusion, one at a time"] = _rounds(partial(_each, lookup, keys), lookups, rounds)
    return out


def _each(lookup: Lookup, keys: Sequence[int]) -> int:
    return sum(lookup(key) for key in keys)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--lookups", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--peer", action="store_true")
    arguments = parser.parse_args()
    found = measure(
        rows=arguments.rows, lookups=arguments.lookups, rounds=arguments.rounds, peer=arguments.peer
    )
    width = max(map(len, found))
    print(f"{'CPU of a warm lookup':{width}}  ms")
    for name, value in found.items():
        print(f"{name:{width}}  {value:.3f}")


if __name__ == "__main__":
    main()
