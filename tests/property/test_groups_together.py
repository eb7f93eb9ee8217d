"""Pages of several row groups are pruned in one call as they are group by group."""

from __future__ import annotations

import datetime
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from accel.planning.handle import FileHandle
from accel.planning.index_evidence import IndexStatements, Statement
from accel.planning.page_indexes import PlanSizes, page_index_wants, take_page_indexes
from accel.planning.pruning import prune_pages
from accel.planning.query import FileQuery
from accel.predicate.atoms import column_atoms
from accel.predicate.prune import Evidence
from accel.testing import Layout, table, write_file
from tests.support.file_steps import Bytes, query_of

SEED, ROWS, GROUP, PAGE = 20261121, 600, 100, 10
LEAVES = (
    "number = {n}", "number <= {n}", "number IN ({n}, {m}, NULL)", "number IS NULL", "small > {n}", "price < {p}",
    "price >= {p}", "price = {p}", "text = '{t}'", "text LIKE '{t}%'", "text < '{t}'", "day > '{d}'", "number = small",
    "flag", "none IS NULL", "none = {n}",
)  # fmt: skip


def data() -> bytes:
    rng = np.random.default_rng(SEED)
    drift = np.arange(ROWS) // 40
    number = [None if v % 9 == 0 else int(v) for v in rng.integers(0, 12, ROWS) + drift]
    days = [
        datetime.date(2020, 1, 1) + datetime.timedelta(days=int(v)) for v in rng.integers(0, 30, ROWS) + drift
    ]
    columns = table(
        number=pa.array(number, pa.int64()),
        small=pa.array((rng.integers(0, 20, ROWS)).astype(np.uint8)),
        price=pa.array(rng.choice([0.0, -0.0, 1.5, np.nan, 7.25], ROWS)),
        text=pa.array([f"text {v:02d}" for v in rng.integers(0, 30, ROWS) + drift]),
        day=pa.array(days),
        flag=pa.array((drift % 3 == 0).tolist()),
        none=pa.array([None] * ROWS, pa.int64()),
    )
    layout = Layout(group_rows=GROUP, page_rows=PAGE, statistics=["number", "small", "price", "day", "none"])
    return write_file(columns, layout)


def predicate(chance: random.Random) -> str:
    def leaf() -> str:
        text = chance.choice(LEAVES).format(
            n=chance.randrange(-1, 28),
            m=chance.randrange(28),
            p=chance.choice(["0", "1.5", "8"]),
            t=f"text {chance.randrange(48):02d}",
            d=f"2020-01-{chance.randrange(1, 31):02d}",
        )
        return f"NOT ({text})" if chance.random() < 0.3 else text

    parts = ["(" + " AND ".join(leaf() for _ in range(chance.randint(1, 3))) + ")" for _ in range(2)]
    return " OR ".join(parts[: chance.randint(1, 2)])


def fill(handle: FileHandle, source: Bytes) -> None:
    """Give a handle all page indexes."""
    query = query_of(handle, " AND ".join(f"{name} IS NULL" for name in handle.arrow_schema.names))
    kept = [(group, False) for group in range(handle.metadata.num_row_groups)]
    wants = page_index_wants(
        handle,
        query,
        groups=kept,
        selection=None,
        sizes=PlanSizes(piece_bytes=1, probe_min_bytes=0),
        limit=None,
        pages_indexed=False,
    )
    stash = {want.key: memoryview(source.data)[want.range.start : want.range.end] for want in wants}

    def unexpected(error: Exception) -> None:
        raise error

    take_page_indexes(handle, wants, stash=stash, on_bad_index=unexpected)


def witnesses_of(query: FileQuery, groups: list[int], chance: random.Random) -> IndexStatements:
    """What indexes might say of some atoms in some row groups, by stretches of any rows."""
    found = IndexStatements()
    if query.bound is None or chance.random() < 0.4:
        return found
    for node in column_atoms(query.bound.root):
        for group in groups:
            if chance.random() < 0.5:
                starts = np.array([0, *sorted(chance.sample(range(1, GROUP), chance.randrange(6)))], np.int64)
                flags: list[Any] = [np.array([chance.random() < 0.6 for _ in starts]) for _ in range(3)]
                found.add(node, group, Statement(starts, Evidence(*flags)))
    return found


@pytest.mark.parametrize("part", range(6))
def test_together_as_one_by_one(part: int) -> None:
    chance = random.Random(SEED + part)
    source = Bytes(data())
    handle = source.open(hint=8)
    fill(handle, source)
    full = dict(handle.view.column_indexes)
    told = 0
    for _ in range(60):
        handle.view.column_indexes = {at: index for at, index in full.items() if chance.random() < 0.8}
        handle.view.page_bounds.clear()
        query = query_of(handle, predicate(chance))
        groups = sorted(chance.sample(range(ROWS // GROUP), chance.randint(1, ROWS // GROUP)))
        said = witnesses_of(query, groups, chance)
        together = prune_pages(handle, query, groups=groups, evidence=said)
        for group, found in zip(groups, together, strict=True):
            [alone] = prune_pages(handle, query, groups=[group], evidence=said)
            assert (found.rows, found.certain) == (alone.rows, alone.certain)
            told += found.rows.count < GROUP
    assert told > 50
