"""Rows cut out of decoded pages."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from accel.decode.chunks import ChunkPages
from accel.decode.trim import place_rows, trim
from accel.planning.selection import RowSelection
from tests.unit.decode.typed import FLAT, NESTED, column


def _pages(*ranges: tuple[int, int]) -> ChunkPages:
    first, stop = zip(*ranges, strict=True)
    return ChunkPages(
        leaf=4,
        codec=0,
        dictionary=None,
        buffers=(b"",),
        first_rows=np.array(first, np.int64),
        stop_rows=np.array(stop, np.int64),
        num_values=0,
        whole=False,
    )


_PLACED = [
    ([(0, 10)], [(0, 10)], [(0, 10)]),
    ([(10, 20)], [(10, 11), (19, 20)], [(0, 1), (9, 10)]),
    ([(10, 20), (20, 30)], [(15, 25)], [(5, 15)]),
    ([(10, 20), (40, 50)], [(19, 20), (40, 41)], [(9, 11)]),
    ([(10, 20), (40, 50), (50, 60), (90, 95)], [(12, 13), (45, 55), (94, 95)], [(2, 3), (15, 25), (34, 35)]),
    ([(10, 20)], [], []),
]


@pytest.mark.parametrize(("pages", "rows", "expected"), _PLACED)
def test_where_rows_lie(
    pages: list[tuple[int, int]], rows: list[tuple[int, int]], expected: list[tuple[int, int]]
) -> None:
    assert place_rows(_pages(*pages), RowSelection.of(rows)) == RowSelection.of(expected)


@pytest.mark.parametrize("rows", [(9, 11), (19, 21), (25, 26), (5, 6), (60, 61), (15, 45)])
def test_rows_on_no_page(rows: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="not all on the pages given for leaf 4"):
        place_rows(_pages((10, 20), (40, 50)), RowSelection.of([rows]))


@pytest.mark.parametrize("name", [*FLAT, *NESTED])
def test_trim_equals_picking_rows(name: str) -> None:
    rng = random.Random(3)
    kind, make = (FLAT | NESTED)[name]
    array = column(kind, make, 90, rng, nulls=0.2)
    chunked = pa.chunked_array([array.slice(0, 30), array.slice(30, 1), array.slice(31)])
    for share in (0.05, 0.3, 0.95, 1.0):
        rows = RowSelection.from_mask(np.array([rng.random() < share for _ in range(90)]))
        picked = [i for a, b in rows for i in range(a, b)]
        for whole in (pa.chunked_array([array]), chunked):
            found = trim(whole, rows)
            found.validate(full=True)
            assert found.type == kind
            values = [repr(v) for v in array.to_pylist()]
            assert [repr(v) for v in found.to_pylist()] == [values[i] for i in picked]


def test_everything_is_not_copied() -> None:
    array = pa.chunked_array([pa.array(range(100))])
    assert trim(array, RowSelection.all(100)) is array
    most = trim(array, RowSelection.of([(1, 99)]))
    assert most.chunk(0).buffers()[1].address == array.chunk(0).buffers()[1].address
