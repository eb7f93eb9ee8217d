"""The headline cases in small, over stores in memory, for `bench.micro.ablation`.

A case is started once, which fills its caches, and is then run with a number. The number decides what is
asked: the same number asks the same question, and another number asks a new one, so no answer comes from a
cache that the headline case would not find filled.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa

import accel
from accel.testing import DictStore, LatencyStore, Layout, bench_table, write_file
from tests.support.sample_table import flights_table

__all__ = ["CASES", "SMALL", "USUAL", "Answer", "Case", "Run", "Size"]

COLUMNS = ["key", "ts", "category", "value", "name"]
KEY = "file.parquet"
FOLDER = "files/"
FIRST_BYTE = 5e-3
"""Seconds that a request takes where requests matter: few, so that many rounds fit."""
SLOW_BANDWIDTH = 4e6
"""Bytes a second of the slow network."""


@dataclass(frozen=True, slots=True)
class Size:
    """How large the cases are."""

    rows: int
    files: int
    groups: int
    wide_columns: int
    at_once: int
    lookups: int
    """Lookups in a row, in one run of a case."""


USUAL = Size(rows=600_000, files=2_000, groups=100, wide_columns=400, at_once=256, lookups=16)
SMALL = Size(rows=560_000, files=20, groups=10, wide_columns=80, at_once=8, lookups=2)
"""The size that tests use."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of one run of a case, and what fetching them took."""

    tables: Sequence[pa.Table]
    requests: int
    nbytes: int

    def equals(self, other: Answer) -> bool:
        """Return whether the rows are the same, in the same order."""
        pairs = zip(self.tables, other.tables, strict=True)
        return all(mine.equals(theirs) for mine, theirs in pairs)


Run = Callable[[int], Answer]


@dataclass(frozen=True, slots=True)
class Case:
    """One case; `start` fills its caches and returns what runs it."""

    name: str
    start: Callable[[Size], Run]


# -- data --------------------------------------------------------------------------------------------


@cache
def _bench_file(size: Size, codec: str) -> bytes:
    return write_file(bench_table(size.rows), Layout(group_rows=-(-size.rows // 4), codec=codec))


@cache
def _flights(size: Size) -> bytes:
    rows = size.rows // 3
    words = np.array(["carefully", "final", "deposits", "sleep", "quickly", "above", "the", "ironic"])
    notes = words[np.random.default_rng(7).integers(0, 8, (rows, 4))]
    table = flights_table(rows).append_column("note", pa.array([" ".join(some) for some in notes]))
    return write_file(table, Layout(group_rows=rows // 2, page_rows=5_000))


@cache
def _files(size: Size) -> dict[str, bytes]:
    whole, rows = bench_table(size.files * 200), 200
    layout = Layout(group_rows=rows, page_rows=rows)
    return {
        f"{FOLDER}part-{at:05d}.parquet": write_file(whole.slice(at * rows, rows).combine_chunks(), layout)
        for at in range(size.files)
    }


@cache
def _groups(size: Size) -> bytes:
    return write_file(bench_table(size.groups * 500), Layout(group_rows=500, page_rows=500))


@cache
def _middle_groups(size: Size) -> bytes:
    return write_file(bench_table(size.rows), Layout(group_rows=10_000, page_rows=10_000))


@cache
def _tiny_groups(size: Size) -> bytes:
    return write_file(bench_table(size.groups * 100), Layout(group_rows=20, page_rows=20, page_index=False))


@cache
def _wide(size: Size) -> bytes:
    numbers = np.arange(400)
    columns = {"key": pa.array(numbers * 3)}
    columns |= {f"column_{at}": pa.array(numbers * (at + 1)) for at in range(size.wide_columns)}
    return write_file(pa.table(columns), Layout(group_rows=20, page_rows=20))


@cache
def _few_rows(size: Size) -> bytes:
    columns = {f"column_{at}": pa.array(np.arange(40) * (at + 1)) for at in range(size.wide_columns)}
    return write_file(pa.table(columns), Layout(group_rows=40, page_rows=40, page_index=False))


# -- cases -------------------------------------------------------------------------------------------


def _answer(scan: Any, table: pa.Table) -> Answer:
    return Answer([table], scan.metrics.requests, scan.metrics.bytes)


def _scan(source: str, where: str | None, columns: Sequence[str] | None, **keywords: Any) -> Answer:
    scan = accel.scan(source, where, columns=columns, **keywords)
    return _answer(scan, scan.to_table())


def _all(answers: Sequence[Answer]) -> Answer:
    tables = [table for answer in answers for table in answer.tables]
    return Answer(tables, sum(one.requests for one in answers), sum(one.nbytes for one in answers))


def _far(objects: dict[str, bytes]) -> LatencyStore:
    return LatencyStore(DictStore(objects), first_byte=FIRST_BYTE)


def _keys(number: int, rows: int, count: int) -> list[int]:
    rng = random.Random(number)
    return [3 * rng.randrange(rows) for _ in range(count)]


def _warm_lookup(codec: str, size: Size) -> Run:
    """Lookups one after the other, each of which reads its pages from the store."""
    store, kept = DictStore({KEY: _bench_file(size, codec)}), accel.Cache()

    def ask(key: int) -> Answer:
        return _scan(KEY, f"key = {key}", COLUMNS, store=store, cache=kept)

    for key in range(0, 3 * size.rows, 3 * size.rows // 8):
        ask(key)

    def run(number: int) -> Answer:
        kept.byte_tier.clear()
        return _all([ask(key) for key in _keys(number, size.rows, size.lookups)])

    return run


def _at_once(size: Size) -> Run:
    store, kept = _far({KEY: _bench_file(size, "zstd")}), accel.Cache()

    async def ask(key: int) -> Answer:
        scan = accel.scan(KEY, f"key = {key}", columns=COLUMNS, store=store, cache=kept)
        return _answer(scan, await scan.to_table_async())

    async def all_of(keys: Sequence[int]) -> list[Answer]:
        return await asyncio.gather(*map(ask, keys))

    def run(number: int) -> Answer:
        kept.byte_tier.clear()
        return _all(asyncio.run(all_of(_keys(number, size.rows, size.at_once))))

    run(-1)
    return run


def _known_file(
    store: Any, where: Callable[[int], str | None], columns: Sequence[str] | None, *, warm: Sequence[int]
) -> Run:
    """Questions to a file whose metadata is cached, and whose data is not."""
    kept = accel.Cache()

    def run(number: int) -> Answer:
        kept.byte_tier.clear()
        return _scan(KEY, where(number), columns, store=store, cache=kept)

    for number in warm:
        run(number)
    return run


def _wide_filter(size: Size) -> Run:
    store = _far({KEY: _flights(size)})
    return _known_file(store, lambda number: f"flight = {1 + number % 8_000}", None, warm=(8_001, 8_002))


def _slow_network(size: Size) -> Run:
    """Few rows that only their values tell, so pages of the other columns need not be fetched."""
    store = LatencyStore(DictStore({KEY: _bench_file(size, "zstd")}), bandwidth=SLOW_BANDWIDTH)
    return _known_file(store, lambda number: f"value > {4.2 + number % 100 / 1_000}", COLUMNS, warm=(98, 99))


def _many_files(cached: bool, size: Size) -> Run:
    store, kept = _far(_files(size)), accel.Cache()

    def run(number: int) -> Answer:
        (key,) = _keys(number, 200 * size.files, 1)
        return _scan(FOLDER, f"key = {key}", COLUMNS, store=store, cache=kept if cached else accel.Cache())

    for number in (-1, -2) if cached else ():
        run(number)
    return run


def _full_scan(codec: str, size: Size) -> Run:
    store = DictStore({KEY: _bench_file(size, codec)})
    return _known_file(store, lambda _: None, None, warm=(0,))


def _small_groups(size: Size) -> Run:
    store = DictStore({KEY: _groups(size)})
    return _known_file(
        store, lambda number: f"value > {2 + number % 1000 / 10_000}", COLUMNS, warm=(998, 999)
    )


def _groups_of_a_page(size: Size) -> Run:
    """Row groups of 10,000 rows, of which each chunk is one page."""
    store, columns = DictStore({KEY: _middle_groups(size)}), ["key", "value"]
    return _known_file(
        store, lambda number: f"value > {0.9 + number % 1000 / 10_000}", columns, warm=(998, 999)
    )


def _groups_of_few_rows(size: Size) -> Run:
    """All of them, with nothing cached: more pages than there are headers in memory of earlier ones."""
    store = DictStore({KEY: _tiny_groups(size)})
    return lambda _: _scan(KEY, None, None, store=store, cache=accel.Cache())


def _columns_of_few_rows(size: Size) -> Run:
    """All of them, with nothing cached."""
    store = DictStore({KEY: _few_rows(size)})
    return lambda _: _scan(KEY, None, None, store=store, cache=accel.Cache())


def _whole_files(size: Size) -> Run:
    """All rows of many files."""
    objects = dict([*_files(size).items()][: max(8, size.files // 4)])
    store = DictStore(objects)

    def run(number: int) -> Answer:
        return _scan(FOLDER, None, ["key", "value", "category"], store=store, cache=accel.Cache())

    run(-1)
    return run


def _repeated(size: Size) -> Run:
    """A question asked over and over: in the end it takes no request."""
    store, kept = _far({KEY: _bench_file(size, "zstd")}), accel.Cache()

    def run(number: int) -> Answer:
        ask = partial(_scan, KEY, f"key = {3 * (size.rows // 3)}", COLUMNS, store=store, cache=kept)
        return _all([ask() for _ in range(2 * size.lookups)])

    run(0)
    return run


def _same_pages(size: Size) -> Run:
    """New keys whose pages were read before."""
    store, kept = _far({KEY: _bench_file(size, "zstd")}), accel.Cache()

    def run(number: int) -> Answer:
        keys = _keys(number, 5_000, size.lookups)
        return _all([_scan(KEY, f"key = {key}", COLUMNS, store=store, cache=kept) for key in keys])

    for number in (-1, -2):
        run(number)
    return run


def _wide_directory(size: Size) -> Run:
    """The wall clock tells whether the listing is waited for before anything is read."""
    objects, kept = {f"{FOLDER}{at}.parquet": _wide(size) for at in range(2)}, accel.Cache()
    store = LatencyStore(DictStore(objects), first_byte=10 * FIRST_BYTE)

    def run(number: int) -> Answer:
        kept.byte_tier.clear()
        keys = _keys(number, 400, size.lookups)
        columns = ["key", "column_7", "column_9"]
        return _all([_scan(FOLDER, f"key = {key}", columns, store=store, cache=kept) for key in keys])

    for number in (-1, -2):
        run(number)
    return run


def _cold_lookup(make: Callable[[Size], bytes], columns: Sequence[str], rows: int | None, size: Size) -> Run:
    store = _far({KEY: make(size)})

    def run(number: int) -> Answer:
        keys = _keys(number, rows or size.rows, max(1, size.lookups // 2))
        return _all([_scan(KEY, f"key = {key}", columns, store=store, cache=accel.Cache()) for key in keys])

    run(-1)
    return run


CASES: tuple[Case, ...] = (
    Case("warm lookup, zstd", partial(_warm_lookup, "zstd")),
    Case("warm lookup, snappy", partial(_warm_lookup, "snappy")),
    Case("warm lookup, plain", partial(_warm_lookup, "none")),
    Case("256 lookups at once", _at_once),
    Case("wide filter", _wide_filter),
    Case("few rows, slow network", _slow_network),
    Case("many files, cold", partial(_many_files, False)),
    Case("many files, cached", partial(_many_files, True)),
    Case("full scan, zstd", partial(_full_scan, "zstd")),
    Case("full scan, snappy", partial(_full_scan, "snappy")),
    Case("small row groups", _small_groups),
    Case("row groups of a page", _groups_of_a_page),
    Case("row groups of few rows", _groups_of_few_rows),
    Case("many columns of few rows", _columns_of_few_rows),
    Case("all rows of many files", _whole_files),
    Case("repeated lookup", _repeated),
    Case("lookups in the same pages", _same_pages),
    Case("lookups in a wide directory", _wide_directory),
    Case("cold lookup", partial(_cold_lookup, partial(_bench_file, codec="zstd"), COLUMNS, None)),
    Case("cold wide footer", partial(_cold_lookup, _wide, ["key", "column_7", "column_9"], 400)),
)
