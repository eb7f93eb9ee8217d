"""Directories that change between scans, read by what they held before: always the rows that are there
now."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import accel
from accel.store.range_store import ObjectEntry
from accel.testing import DictStore, Layout, table, write_file

NAMES = ("a", "b", "p=1/c", "p=2/d", "_hidden", "e.parquet", "e.parquet/f")
ROWS = 12


@functools.cache
def file(name: str, number: int) -> bytes:
    """Of a name, its `number`th version: as many rows in each, so that sizes seldom tell them apart."""
    first = 100 * NAMES.index(name)
    rows = table(k=pa.array(range(first, first + ROWS), pa.int64()), v=pa.array([number] * ROWS, pa.int64()))
    return write_file(rows, Layout(group_rows=6, page_rows=3, dictionary=False, codec="none"))


class Directory(DictStore):
    """Lists after so many turns of the loop."""

    turns = 0

    async def list(self, prefix: str) -> AsyncIterator[ObjectEntry]:
        for _ in range(self.turns):
            await asyncio.sleep(0)
        async for entry in super().list(prefix):
            yield entry


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(NAMES), st.integers(0, 3)),
        st.tuples(st.just("delete"), st.sampled_from(NAMES)),
        st.tuples(
            st.just("scan"),
            st.sampled_from(["d/", "d/*", "d", "d/p=1/", "d/**/*", "d/e.parquet"]),
            st.sampled_from([None, "v >= 2", "k < 205 OR v = 1", "k IN (3, 104, 207)"]),
            st.sampled_from(["table", "batches", "sum", "count", "limit", "any order"]),
            st.sampled_from([0, 40, 400]),
        ),
    ),
    min_size=4,
    max_size=24,
)


def run(scan: accel.Scan, verb: str) -> Any:
    """Pairs of key and version, or what is made of them."""
    if verb == "count":
        return scan.count_rows()
    if verb == "sum":
        (sums,) = scan.aggregate([("v", "sum"), ("k", "sum"), ([], "count_all")]).to_pylist()
        return tuple(sums.values())
    batches = list(scan) if verb == "batches" else scan.to_table().to_batches()
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def answer(store: Directory, source: str, where: str | None, verb: str, **keywords: Any) -> Any:
    """What comes of it, or the kind of error; and whether it began anew."""
    scan = accel.scan(source, where, columns=["k", "v"], store=store, **keywords)
    try:
        return run(scan, verb), scan.metrics
    except accel.AccelError as error:
        return type(error), scan.metrics


@settings(max_examples=150, deadline=None)
@given(steps=STEPS, data=st.sampled_from([0, 1 << 20]))
def test_every_scan_is_of_what_is_listed(steps: list[tuple[Any, ...]], data: int) -> None:
    # Of a file by its name older metadata would do for a while.
    store, cache = Directory({"d/a": file("a", 0)}), accel.Cache(data=data, max_age=0)
    for step in steps:
        if step[0] == "put":
            store.put(f"d/{step[1]}", file(step[1], step[2]))
        elif step[0] == "delete":
            store.objects.pop(f"d/{step[1]}", None)
            store.etags.pop(f"d/{step[1]}", None)
        else:
            _, source, where, verb, store.turns = step
            keywords: dict[str, Any] = {"limit": 7} if verb == "limit" else {"order": verb != "any order"}
            found, counts = answer(store, source, where, verb, cache=cache, **keywords)
            wanted, plain = answer(store, source, where, verb, cache=None, **keywords)
            if verb == "any order" and isinstance(found, list):
                found, wanted = sorted(found), sorted(wanted)
            assert found == wanted, (source, where, verb)
            if not isinstance(wanted, type) and verb != "limit":
                assert counts.files == plain.files
                assert counts.rows.total == plain.rows.total
