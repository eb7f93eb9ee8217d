"""UUIDs: filters at every level give the rows that Python's own comparison gives, and damaged bytes no
others."""

from __future__ import annotations

import io
import random
import uuid
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import accel
from accel.testing import DictStore

ROWS = 600
NAME = "f.parquet"
SEED = 20_261_121
# Bytes beyond 0x7F, where signed and unsigned order differ, and neighbours.
POOL = sorted(
    uuid.UUID(bytes=first + bytes(13) + last)
    for first in (b"\0\0", b"\x7f\xff", b"\x80\0", b"\xff\xff", b"ab")
    for last in (b"\0", b"\x01", b"\xff")
)
LAYOUTS: dict[str, dict[str, Any]] = {
    "dictionary": {"use_dictionary": True},
    "plain": {"use_dictionary": False},
    "bloom": {"use_dictionary": False, "bloom_filter_options": {"id": {"ndv": 100}}},
    "no index": {"use_dictionary": True, "write_page_index": False, "write_statistics": False},
    "v2": {"use_dictionary": False, "data_page_version": "2.0", "compression": "zstd"},
}


@cache
def ids() -> list[uuid.UUID | None]:
    rng = random.Random(SEED)
    found = [None if rng.random() < 0.1 else rng.choice(POOL) for _ in range(ROWS)]
    # Runs of few values, so that there is something to prune.
    return sorted(found[:300], key=lambda each: (each is None, each or POOL[0])) + found[300:]


@cache
def file(layout: str) -> bytes:
    storage = pa.array([None if each is None else each.bytes for each in ids()], pa.binary(16))
    columns = [pa.ExtensionArray.from_storage(pa.uuid(), storage), pa.array(range(ROWS))]
    settings = {
        "row_group_size": 200,
        "max_rows_per_page": 23,
        "write_page_index": True,
        "compression": "none",
    }
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(columns, names=["id", "n"]), sink, **settings | LAYOUTS[layout])
    return sink.getvalue()


def scanned(data: bytes, where: str | None = None, **keywords: Any) -> pa.Table:
    options = accel.Options(tail_hint=8, probe_min_bytes=0, memory_limit=64 << 20)
    store = DictStore({NAME: data})
    return accel.scan(NAME, where, store=store, cache=None, options=options, **keywords).to_table()


known = st.one_of(st.sampled_from(POOL), st.uuids())
OPERATORS = {
    "=": lambda one, other: one == other,
    "<>": lambda one, other: one != other,
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
}


@pytest.mark.parametrize("layout", LAYOUTS)
@given(operator=st.sampled_from(list(OPERATORS)), value=known, other=known, upper=st.booleans())
@settings(max_examples=30, deadline=None)
def test_filters(layout: str, operator: str, value: uuid.UUID, other: uuid.UUID, upper: bool) -> None:
    text = str(value).upper() if upper else str(value)
    wanted = [n for n, each in enumerate(ids()) if each is not None and OPERATORS[operator](each, value)]
    assert scanned(file(layout), f"id {operator} '{text}'", columns=["n"])["n"].to_pylist() == wanted
    inside = [n for n, each in enumerate(ids()) if each in (value, other)]
    assert scanned(file(layout), f"id IN ('{text}', '{other}')", columns=["n"])["n"].to_pylist() == inside


@pytest.mark.parametrize("layout", LAYOUTS)
def test_nulls_and_all_rows(layout: str) -> None:
    nulls = [n for n, each in enumerate(ids()) if each is None]
    assert scanned(file(layout), "id IS NULL", columns=["n"])["n"].to_pylist() == nulls
    found = scanned(file(layout))
    assert found.schema.field("id").type == pa.uuid()
    assert found["id"].to_pylist() == ids()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_damaged_bytes(layout: str, large: bool) -> None:
    intact, rng = file(layout), random.Random(SEED)
    whole = as_text(pq.read_table(io.BytesIO(intact)))
    errors = 0
    for _ in range(800 if large else 60):
        data = bytearray(intact)
        data[rng.randrange(4, len(data) - 8)] ^= rng.choice([1 << rng.randrange(8), 0xFF])
        try:
            found = as_text(scanned(bytes(data)))
        except accel.AccelError:
            errors += 1
            continue
        if found != whole:
            # Whatever pyarrow makes of it.
            assert found == as_text(pq.read_table(io.BytesIO(bytes(data)), page_checksum_verification=True))
    assert errors


def as_text(table: pa.Table) -> str:
    columns = [c.cast(pa.binary(16)) if c.type == pa.uuid() else c for c in table.columns]
    return repr((table.schema.remove_metadata().to_string(), [column.to_pylist() for column in columns]))
