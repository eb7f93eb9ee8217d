"""An object that is replaced between questions, and between the requests of one, under caches of every size.

What is larger than a part of the data cache is kept by other rules than lookups are: no rule may mix
versions.
"""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.options import Phases
from accel.ranges import ByteRange, Suffix
from accel.store.range_store import Payload
from accel.testing import DictStore, Layout, write_file

ROWS = 20_000
PATH = "f.parquet"
QUESTIONS = 8


@functools.cache
def rows_of(version: int) -> pa.Table:
    """The version stands in each row, and in what no index can tell."""
    noise = np.random.default_rng(version).integers(0, 1 << 50, ROWS)
    texts = pa.array([f"{version} {i % 97}" for i in range(ROWS)])
    columns = [pa.array(np.arange(ROWS)), pa.array(np.full(ROWS, version)), pa.array(noise), texts]
    return pa.Table.from_arrays(columns, names=["k", "v", "x", "s"])


@functools.cache
def file_of(version: int, codec: str) -> bytes:
    return write_file(rows_of(version), Layout(group_rows=8000, page_rows=700, codec=codec))


class Replaced:
    """A store whose object is replaced just before a certain read."""

    def __init__(self, inner: DictStore, replace: Callable[[], None]) -> None:
        self.inner = inner
        self.replace = replace
        self.left = -1

    async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
        self.left -= 1
        if self.left == 0:
            self.replace()
        await asyncio.sleep(0)
        return await self.inner.read(path, want, if_match=if_match)


@pytest.mark.parametrize("seed", range(6))
def test_every_answer_is_of_one_version(seed: int, large: bool) -> None:
    rng = random.Random(seed)
    codec = rng.choice(["snappy", "zstd", "none"])
    inner = DictStore()
    version = 0

    def replace() -> None:
        nonlocal version
        version = (version + 1) % 3
        inner.put(PATH, file_of(version, codec))

    replace()
    store = Replaced(inner, replace)
    size = len(file_of(0, codec))
    max_age = rng.choice([0, 60])
    cache = accel.Cache(data=rng.choice([size // 4, 2 * size, 20 * size, 1 << 28]), max_age=max_age)
    options = accel.Options(
        tail_hint=rng.choice([8, 16384]), max_gap_bytes=rng.choice([0, None]), phases=rng.choice(list(Phases))
    )
    questions, answers = QUESTIONS * (10 if large else 1), 0
    for _ in range(questions):
        start = rng.randrange(ROWS)
        stop = min(ROWS, start + rng.choice([1, 500, 8000, ROWS]))
        where = rng.choice(
            [f"k >= {start} AND k < {stop}", f"k >= {start} AND k < {stop} AND s <> 'q'", None]
        )
        if where is None:
            start, stop = 0, ROWS
        store.left = rng.choice([-1, -1, 1, 2, 3, 5])
        before = version
        keywords: dict[str, Any] = {"store": store, "cache": cache, "options": options}
        try:
            found = accel.scan(PATH, where, **keywords).to_table()
        except accel.ObjectChangedError:
            continue
        (came,) = set(found.column("v").to_pylist())
        assert found.equals(rows_of(came).slice(start, stop - start)), (seed, where)
        assert max_age or came in (before, version)
        answers += 1
    # Only what was known to be older and is replaced when it is read again is refused.
    assert answers > questions // 2
