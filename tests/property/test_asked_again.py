"""Questions asked over and over through one cache, in any order, are answered as each is when it is asked
alone."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.testing import DictStore, Layout, table, write_file

SEED, ROWS, GROUP = 20261123, 6_000, 2_000
PATHS = ("d/month=1/a.parquet", "d/month=2/b.parquet")
COLUMNS = (None, ["key"], ["price", "month", "text"], ["pad", "items"], [])
WHERES = (
    "key = {n}", "key IN ({n}, {m}, 3)", "key BETWEEN {n} AND {o} AND price > 1", "key = {n} AND text = '{t}'",
    "key < {s} AND text LIKE 't1%'", "key = {n} OR key = {m} AND month = 2", "key = {n} AND price IS NULL",
    "key > {n} AND key < {o} AND NOT (text = '{t}')", "key = 100000", "key < {s}", "text = '{t}' AND price > 5",
)  # fmt: skip
OPTIONS: tuple[dict[str, Any], ...] = (
    {}, {}, {"batch_rows": 3}, {"phases": "two"}, {"piece_bytes": 1}, {"phases": "two", "piece_bytes": 1},
)  # fmt: skip


@cache
def written(version: int, page_index: bool) -> bytes:
    rng = np.random.default_rng(version)
    texts = [None if at % 7 == 2 else f"t{v}" for at, v in enumerate(rng.integers(0, 30, ROWS).tolist())]
    items = [[int(v)] * (v % 3) if v % 5 else None for v in rng.integers(0, 9, ROWS)]
    price = pa.array(rng.choice([0.0, -0.0, 1.5, np.nan, 7.25], ROWS), mask=rng.random(ROWS) < 0.1)
    columns = table(key=range(ROWS), text=texts, price=price, items=items, pad=rng.random(ROWS))
    return write_file(columns, Layout(group_rows=GROUP, page_rows=200, page_index=page_index))


def predicate(chance: random.Random, where: str) -> str:
    n, m, s = chance.randrange(ROWS), chance.randrange(ROWS), chance.randrange(30)
    return where.format(n=n, m=m, o=n + chance.randrange(40), s=s, t=f"t{s}")


def question(chance: random.Random, where: str, columns: list[str] | None) -> dict[str, Any]:
    """Others differ in one thing only."""
    asked: dict[str, Any] = {
        "where": where,
        "columns": columns,
        "options": accel.Options(**chance.choice(OPTIONS)),
    }
    if chance.random() < 0.2:
        groups = {group: [(0, chance.randrange(GROUP))] for group in range(ROWS // GROUP)}
        asked["selection"] = {PATHS[0]: groups, PATHS[1]: {1: [(5, GROUP)]}}
    if chance.random() < 0.1:
        asked["limit"] = chance.randrange(1, 4)
    return asked


def answer(
    asked: dict[str, Any], store: DictStore, cache: accel.Cache | None
) -> tuple[list[pa.RecordBatch], int]:
    source = list(PATHS) if "selection" in asked else "d/"
    scan = accel.scan(source, store=store, cache=cache, **asked)
    return list(scan), scan.metrics.rows_recalled


def as_text(batches: list[pa.RecordBatch]) -> list[str]:
    """In which NaN is NaN, and -0.0 is not 0.0."""
    return [f"{batch.num_rows} {batch.schema.to_string()} {batch.to_pydict()}" for batch in batches]


@pytest.mark.parametrize("page_index", [True, False], ids=["pages", "chunks"])
@pytest.mark.parametrize("data", [256 << 20, 64 * 20_000], ids=["roomy", "tight"])
def test_each_is_answered_as_by_itself(page_index: bool, data: int) -> None:
    chance = random.Random(SEED + data + page_index)
    store = DictStore({path: written(at, page_index) for at, path in enumerate(PATHS)})
    cache, recalled = accel.Cache(data=data, max_age=0), 0
    wheres = [predicate(chance, where) for where in (*chance.sample(WHERES[:-1], 4), WHERES[-1])]
    columns = [["text", "key"], ["key", "text"], chance.choice(COLUMNS)]
    pool = [question(chance, chance.choice(wheres), chance.choice(columns)) for _ in range(50)]
    for turn in range(200):
        if turn % 100 == 99:
            store.put(chance.choice(PATHS), written(2 + turn, page_index))
        asked = chance.choice(pool)
        found, many = answer(asked, store, cache)
        expected, _ = answer(asked, store, None)
        assert as_text(found) == as_text(expected), asked
        recalled += many > 0
    assert recalled > 15
