"""Files that accel wrote before its formats grew are read as they were."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

import accel
from accel.testing import DictStore
from tests.interop.golden.make_bitmap_v1 import PAGE_ROWS, rows

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("small", [1 << 20, 0], ids=["whole", "in parts"])
@pytest.mark.parametrize("place", [0, 1, 47, 48, 120, 239])
def test_bitmaps_of_each_row_group(monkeypatch: pytest.MonkeyPatch, place: int, small: int) -> None:
    monkeypatch.setattr("accel.planning.embedded.SMALL", small)
    wanted = rows().slice(place, 1).to_pylist()
    store = DictStore({"f.parquet": (GOLDEN / "bitmap_v1.parquet").read_bytes()})
    options = accel.Options(probe_min_bytes=0, tail_hint=512, max_tail_hint=512)
    where = f"key = {wanted[0]['key']}"
    scan = accel.scan("f.parquet", where, store=store, cache=accel.Cache(), options=options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert scan.to_table().to_pylist() == wanted
    assert (scan.metrics.indexes_ignored, scan.metrics.rows.kept) == (0, PAGE_ROWS)


@pytest.mark.parametrize("text", [None, "text 0", "text 31", "text 96", "no such text"])
def test_their_texts(text: str | None) -> None:
    store = DictStore({"f.parquet": (GOLDEN / "bitmap_v1.parquet").read_bytes()})
    where = "text IS NULL" if text is None else f"text = '{text}'"
    scan = accel.scan("f.parquet", where, store=store, options=accel.Options(probe_min_bytes=0))
    assert scan.to_table().to_pylist() == [row for row in rows().to_pylist() if row["text"] == text]
    assert scan.metrics.indexes_ignored == 0
