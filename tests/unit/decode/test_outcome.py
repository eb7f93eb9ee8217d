"""Filters look at a column in the chunks that it came in, and find what they find in the whole."""

from __future__ import annotations

import io
import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.decode import outcome
from accel.testing import DictStore

_ROWS = 60_000


def _file() -> bytes:
    """Texts whose dictionary runs full: decoded in two parts, which stay two where they are much."""
    rng = random.Random(3)
    texts = pa.array([f"{rng.getrandbits(160):040x}" for _ in range(_ROWS)])
    few = pa.array([f"{row % 7}" if row % 977 else None for row in range(_ROWS)])
    sink = io.BytesIO()
    pq.write_table(
        pa.table({"t": texts, "u": texts, "n": pa.array(np.arange(_ROWS)), "f": few}),
        sink,
        dictionary_pagesize_limit=200_000,
        data_page_size=64_000,
        compression="zstd",
        write_page_index=True,
    )
    return sink.getvalue()


_WHERE = {
    "prefix": "t LIKE 'ab%'",
    "two columns in chunks": "t < '2' AND u > '1'",
    "beside a whole one": "t LIKE '1%' AND n > 2000",
    "or null": "f IS NULL OR t LIKE '0%'",
    "of rows between": "(t LIKE 'a%' OR f = '1') AND n >= 1500 AND n < 59000",
}


@pytest.mark.parametrize("where", _WHERE.values(), ids=_WHERE)
def test_chunks_are_looked_at_one_by_one(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = DictStore({"x.parquet": _file()})
    cut: list[list[int]] = []
    cuts = outcome._cuts

    def noted(arrays: object, num_rows: int) -> list[int]:
        cut.append(cuts(arrays, num_rows))  # type: ignore[arg-type]
        return cut[-1]

    monkeypatch.setattr(outcome, "_cuts", noted)
    found = accel.scan("x.parquet", where, store=store, cache=None).to_table()
    assert max(map(len, cut)) == 3
    monkeypatch.setattr(outcome, "_cuts", lambda arrays, num_rows: [0, num_rows])
    assert found.equals(accel.scan("x.parquet", where, store=store, cache=None).to_table())
    assert 0 < found.num_rows < _ROWS


def test_where_they_are_cut() -> None:
    chunked = pa.chunked_array([[1, 2], [], [3], [4, 5]])
    assert outcome._cuts([chunked, pa.array(range(5))], 5) == [0, 2, 3, 5]
    assert outcome._cuts([chunked, pa.chunked_array([[1], [2, 3, 4, 5]])], 5) == [0, 1, 2, 3, 5]
    assert outcome._cuts([pa.chunked_array([[1]] * 50)], 50) == [0, 50]
    assert outcome._cuts([chunked], 4) == [0, 4]
    assert outcome._cuts([], 0) == [0, 0]
