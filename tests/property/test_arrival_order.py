"""Whatever order answers come in, and however a scan is cut, its rows are the same and in order."""

from __future__ import annotations

import asyncio
import io
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import accel
from accel.ranges import ByteRange, Suffix
from accel.store.range_store import Payload
from accel.testing import DictStore, Layout, table, write_file
from accel.testing.stores import StoreWrapper

ROWS = 6_000


class Shuffled(StoreWrapper):
    """Holds each answer back for some turns of the loop."""

    def __init__(self, inner: Any, seed: int) -> None:
        super().__init__(inner)
        self._random = random.Random(seed)

    async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
        for _ in range(self._random.choice((0, 3, 40, 200))):
            await asyncio.sleep(0)
        return await self.inner.read(path, want, if_match=if_match)


@pytest.fixture(scope="module")
def data() -> bytes:
    rng = np.random.default_rng(3)
    columns = table(
        x=pa.array(rng.integers(0, 50, ROWS)),
        text=pa.array([f"{i:05}" * (i % 7) for i in range(ROWS)]),
        y=pa.array(rng.random(ROWS)),
    )
    return write_file(columns, Layout(group_rows=1_100, page_rows=130))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 1 << 30),
    piece_bytes=st.sampled_from([1, 700, 5_000, 8 << 20]),
    phases=st.sampled_from(["one", "two", "auto"]),
    inline=st.sampled_from([0, 256 << 10]),
    threads=st.integers(1, 3),
    most=st.sampled_from([1, 2, 8]),
    long_run=st.sampled_from([1, 900, 512 << 10]),
    value=st.sampled_from([None, 7, 99]),
    limit=st.sampled_from([None, 1, 3_000]),
)
def test_rows_come_in_order(
    data: bytes,
    seed: int,
    piece_bytes: int,
    phases: str,
    inline: int,
    threads: int,
    most: int,
    long_run: int,
    value: int | None,
    limit: int | None,
) -> None:
    whole = pq.read_table(io.BytesIO(data))
    if value is not None:
        whole = whole.filter(pa.array(whole["x"].to_numpy() == value))
    if limit is not None:
        whole = whole.slice(0, limit)
    options = accel.Options(
        piece_bytes=piece_bytes,
        phases=phases,
        inline_decode_bytes=inline,
        decode_threads=threads,
        max_tasks_in_flight=most,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("accel.planning.pages.LONG_RUN", long_run)
        scan = accel.scan(
            "a.parquet",
            None if value is None else f"x = {value}",
            limit=limit,
            store=Shuffled(DictStore({"a.parquet": data}), seed),
            cache=accel.Cache(),
            options=options,
        )
        assert scan.to_table().equals(whole)
