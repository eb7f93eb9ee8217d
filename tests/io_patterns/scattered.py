"""A file in which what a predicate selects lies scattered, and the bounds of pages tell nothing of it.

2 row groups of 80,000 rows in pages of 1,000; `code` is each whole number once, in no order, so that the
bounds of every page hold almost any.
"""

from __future__ import annotations

import functools

import numpy as np
import pyarrow as pa

from accel.testing import Layout, table, write_file

PATH, GROUP, GROUPS = "f.parquet", 80_000, 2
ROWS = GROUP * GROUPS
LAYOUT = Layout(group_rows=GROUP, page_rows=1000, dictionary=False)


@functools.cache
def scattered_rows() -> pa.Table:
    rng = np.random.default_rng(5)
    return table(
        code=pa.array(rng.permutation(ROWS)),
        name=pa.array([None if i % 9 == 4 else f"n{i}" for i in rng.permutation(ROWS)]),
        pad=pa.array(rng.random(ROWS)),
    )


@functools.cache
def scattered_file() -> bytes:
    return write_file(scattered_rows(), LAYOUT)


def turned_rows() -> pa.Table:
    """The last row first."""
    return scattered_rows().take(pa.array(np.arange(ROWS)[::-1]))
