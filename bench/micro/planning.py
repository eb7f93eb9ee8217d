"""CPU of planning: one cached file, thousands of cached files, thousands of files met for the first time.

Isolated: everything but the network and the data; files are in memory. The CPU is the whole process's, in
rounds of which the best counts, as the machine may have other work. "pure" are the planning functions alone,
without the hand-off to the I/O loop. A stretch is the longest time (of CPU) for which planning kept the I/O
loop from anything else; Python's garbage collector is part of it.

- `one file`: 4 row groups of 50 pages, cached; a predicate as text up to the Plan.
- `cached`: small files of two row groups whose metadata is cached, and a predicate that one of them can
  match; listed as a directory, or named one by one; and one that none of them can be spared for. And what
  they come to for the garbage collector: objects that it follows, and how much longer a full collection
  takes.
- `cold`: such files, opened, parsed and planned, and scanned to a table.

`python -m bench.micro.planning [--cached N] [--cold N] [--rounds N]` prints one table.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa

import accel
from accel.decode.arrow import arrow_schema, shared_schema
from accel.decode.dictionary_decode import dictionary_values
from accel.format.model import SchemaElement
from accel.planning.file_entry import FileEntry
from accel.planning.file_planner import plan_file
from accel.planning.handle import FileHandle
from accel.planning.opening import open_file
from accel.planning.page_indexes import PlanSizes
from accel.planning.query import Question
from accel.planning.read_request import ReadRequest, Tail, TailRequest
from accel.planning.task import describe_file
from accel.predicate.where import to_expr
from accel.ranges import Stash
from accel.runtime import io_loop
from accel.testing import DictStore, Layout, bench_table, write_file
from tests.support.file_steps import drive

COLUMNS = ["key", "ts", "category", "value", "name"]
KEY = "one.parquet"
ROWS = 200_000
PREDICATES = {
    "lookup": "key = 299997",
    "range of a page in each": "amount BETWEEN 5 AND 6 AND value > 3.5",
    "all row groups": "value > 2.5 OR category IN ('category 0007', 'category 0931')",
}
ROWS_OF_SMALL = 200
PROBE_MIN_BYTES = 1 << 20
"""About what it comes to for a store in memory."""


def _best(call: Callable[[], object], rounds: int, times: int = 1) -> tuple[float, float]:
    """Least CPU and wall seconds of a call."""
    cpu, wall = [], []
    for _ in range(rounds):
        started, at = time.process_time(), time.perf_counter()
        for _ in range(times):
            call()
        cpu.append((time.process_time() - started) / times)
        wall.append((time.perf_counter() - at) / times)
    return min(cpu), min(wall)


class Pure:
    """One file planned by the pure functions alone, everything it asks for answered from its bytes."""

    def __init__(self, path: str, data: bytes) -> None:
        self.data = data
        self.file = FileEntry("store:", path, path)
        self.handle = self.open()

    def answer(self, need: ReadRequest | TailRequest) -> Stash | Tail:
        data = memoryview(self.data)
        if isinstance(need, TailRequest):
            start = max(0, len(data) - need.length)
            return Tail(data[start:], start, len(data), '"e"')
        return {want.key: data[want.range.start : want.range.end] for want in need.wants}

    def open(self) -> FileHandle:
        options = accel.Options()
        steps = open_file(
            self.file.path,
            65536,
            max_footer_bytes=options.max_footer_bytes,
            arrow_schema=arrow_schema,
            shared=shared_schema,
        )
        return drive(steps, self.answer)

    def question(self, where: str | None) -> Question:
        schema = self.handle.arrow_schema
        output = schema if where is None else accel_output(schema)
        return Question(where=to_expr(where), schema=schema, output=output, partition_names=())

    def plan(self, question: Question) -> int:
        options = accel.Options()
        steps = plan_file(
            self.handle,
            describe_file(
                self.file,
                self.handle,
                question,
                partition={},
                schema=self.handle.metadata.schema,
                arrow_schema=self.handle.arrow_schema,
                int96_unit="ns",
            ),
            selection=None,
            sizes=PlanSizes(piece_bytes=options.cut_bytes, probe_min_bytes=PROBE_MIN_BYTES),
            read_dictionary=_read_dictionary,
            on_bad_index=_no_bad_index,
        )
        return len(drive(steps, self.answer).tasks)


def accel_output(schema: Any) -> Any:
    """What the columns asked for come out as."""
    from accel.planning.projection import project_schema

    return project_schema(schema, COLUMNS)


def _read_dictionary(page: memoryview, codec: int, element: SchemaElement, kind: pa.DataType) -> pa.Array:
    return dictionary_values(page, codec, element, arrow_type=kind)


def _no_bad_index(error: Exception) -> None:
    raise error


def one_file(rounds: int) -> dict[str, float]:
    """Milliseconds from a predicate to a plan of one cached file."""
    data = write_file(bench_table(ROWS), Layout(group_rows=ROWS // 4, page_rows=ROWS // 200))
    store, cache, pure = DictStore({KEY: data}), accel.Cache(), Pure(KEY, data)
    out: dict[str, float] = {}
    for name, where in PREDICATES.items():

        def ask(where: str = where) -> object:
            return accel.plan(KEY, where, columns=COLUMNS, store=store, cache=cache)

        def ask_pure(where: str = where) -> object:
            return pure.plan(pure.question(where))

        ask(), ask_pure()
        cpu, wall = _best(ask, rounds, 50)
        out[f"one file, {name}: accel.plan, ms CPU"] = 1e3 * cpu
        out[f"one file, {name}: accel.plan, ms"] = 1e3 * wall
        out[f"one file, {name}: pure, ms CPU"] = 1e3 * _best(ask_pure, rounds, 50)[0]
    return out


def small_files(count: int) -> dict[str, bytes]:
    """Files of disjoint key ranges: two row groups, a page index, six columns."""
    table = bench_table(count * ROWS_OF_SMALL)
    layout = Layout(group_rows=ROWS_OF_SMALL // 2, page_rows=ROWS_OF_SMALL // 4)
    return {
        f"d/part-{number:05d}.parquet": write_file(
            table.slice(number * ROWS_OF_SMALL, ROWS_OF_SMALL).combine_chunks(), layout
        )
        for number in range(count)
    }


class Stretches:
    """How long the I/O loop was kept from its other work, at the most and in the median of the long ones."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._ended = False

    async def watch(self) -> None:
        # By the thread's own CPU: what other processes take is not ours.
        last = time.thread_time()
        while not self._ended:
            await asyncio.sleep(0)
            now = time.thread_time()
            self.longest = max(self.longest, now - last)
            last = now

    def during(self, source: Any, **keywords: Any) -> float:
        """The longest stretch, in milliseconds, while a source is planned on the loop."""

        async def both() -> None:
            watching = asyncio.get_running_loop().create_task(self.watch())
            await asyncio.sleep(0)
            try:
                await accel.plan_async(source, **keywords)
            finally:
                self._ended = True
                await watching

        io_loop.run(both())
        return 1e3 * self.longest


class Collections:
    """What the garbage collector has to do for all that was made since."""

    def __init__(self) -> None:
        self._before = self._look()

    def _look(self) -> tuple[int, float]:
        gc.collect()
        seconds = []
        for _ in range(5):
            started = time.thread_time()
            gc.collect()
            seconds.append(time.thread_time() - started)
        return len(gc.get_objects()), min(seconds)

    def since(self) -> tuple[int, float]:
        """Objects that it follows, and milliseconds that a full collection takes, beyond those at the
        start."""
        (before, took), (now, takes) = self._before, self._look()
        return now - before, 1e3 * (takes - took)


def cached_files(objects: dict[str, bytes], rounds: int) -> dict[str, float]:
    """Microseconds a cached file."""
    store, cache = DictStore(objects), accel.Cache(memory=4 << 30, max_age=3600)
    count = len(objects)
    accel.plan(list(objects)[:50], "key = 7", columns=COLUMNS, store=store, cache=accel.Cache())
    collections = Collections()
    where = f"key = {3 * (count // 2 * ROWS_OF_SMALL + 7)}"
    sources = {"a directory": "d/", "a list": list(objects)}
    named: dict[str, Any] = {"columns": COLUMNS, "store": store, "cache": cache}
    out: dict[str, float] = {}
    for name, source in sources.items():
        ask = partial(accel.plan, source, where, **named)
        found = ask()
        if len(found.tasks) != 1:
            raise AssertionError(f"{len(found.tasks)} tasks")
        cpu, _ = _best(ask, rounds)
        out[f"cached, {name}: us CPU a file"] = 1e6 * cpu / count
        stretches = [Stretches().during(source, where=where, **named) for _ in range(rounds)]
        out[f"cached, {name}: longest stretch, ms"] = min(stretches)
        out[f"cached, {name}: median of longest stretches, ms"] = statistics.median(stretches)
    tracked, milliseconds = collections.since()
    out["cached: objects that are collected, a file"] = tracked / count
    out["cached: a full collection of them, ms"] = milliseconds

    def scan() -> pa.Table:
        return accel.scan("d/", where, **named).to_table()

    scan()
    out["cached, a scan of a directory: us CPU a file"] = 1e6 * _best(scan, rounds)[0] / count
    some = list(objects)[: count // 10]
    every = partial(accel.plan, some, "value > 1.5", **named)
    every()
    out["cached, none pruned: us CPU a file"] = 1e6 * _best(every, rounds)[0] / len(some)
    pures = [Pure(path, objects[path]) for path in some]
    question = pures[0].question(where)

    def all_pure() -> None:
        for pure in pures:
            pure.plan(question)

    all_pure()
    out["cached, pure: us CPU a file"] = 1e6 * _best(all_pure, rounds)[0] / len(some)
    return out


def cold_files(objects: dict[str, bytes], rounds: int) -> dict[str, float]:
    """Microseconds a file that is met for the first time."""
    store, count = DictStore(objects), len(objects)
    where = f"key = {3 * (count // 2 * ROWS_OF_SMALL + 7)}"
    named: dict[str, Any] = {"columns": COLUMNS, "store": store}
    out: dict[str, float] = {}
    pures = [Pure(path, data) for path, data in list(objects.items())[:500]]

    def parse() -> None:
        for pure in pures:
            pure.open()

    out["cold, pure: open and parse, us CPU a file"] = 1e6 * _best(parse, rounds)[0] / len(pures)
    plan = lambda: accel.plan("d/", where, cache=accel.Cache(), **named)
    out["cold, accel.plan: us CPU a file"] = 1e6 * _best(plan, rounds)[0] / count
    scan = lambda: accel.scan("d/", where, cache=accel.Cache(), **named).to_table()
    out["cold, scan to a table: us CPU a file"] = 1e6 * _best(scan, rounds)[0] / count
    out["cold, longest stretch, ms"] = Stretches().during("d/", where=where, cache=accel.Cache(), **named)
    return out


def measure(*, cached: int = 10_000, cold: int = 2_000, rounds: int = 5) -> dict[str, float]:
    """All of it, by what it is."""
    out = one_file(rounds)
    objects = small_files(max(cached, cold))
    out |= cached_files(dict(list(objects.items())[:cached]), rounds)
    out |= cold_files(dict(list(objects.items())[:cold]), rounds)
    return out


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cached", type=int, default=10_000)
    parser.add_argument("--cold", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    found = measure(cached=arguments.cached, cold=arguments.cold, rounds=arguments.rounds)
    width = max(map(len, found))
    for name, value in found.items():
        print(f"{name:{width}}  {value:10.3f}")


if __name__ == "__main__":
    main()
