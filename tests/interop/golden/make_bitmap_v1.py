"""Wrote `bitmap_v1.parquet`, before an index could be of several row groups: bitmaps of version 1, one a row
group.

It is kept to be read, not to be made again: `python tests/interop/golden/make_bitmap_v1.py PATH`, with accel
as it was then.
"""

from __future__ import annotations

import sys

import pyarrow as pa

import accel
from accel.testing import Layout, write_file

ROWS, GROUP_ROWS, PAGE_ROWS = 240, 48, 12


def rows() -> pa.Table:
    """Keys in no order, each once; texts of which each row group has some."""
    keys = [(i * 77 + 13) % ROWS * 3 for i in range(ROWS)]
    texts = [None if i % 11 == 0 else f"text {i * 31 % 97}" for i in range(ROWS)]
    columns = [pa.array(keys, pa.int64()), pa.array(texts), pa.array(range(ROWS), pa.int32())]
    return pa.Table.from_arrays(columns, names=["key", "text", "place"])


def main(path: str) -> None:
    with open(path, "wb") as file:
        file.write(write_file(rows(), Layout(group_rows=GROUP_ROWS, page_rows=PAGE_ROWS)))
    accel.embed(path, path, indexes={"key": "bitmap", "text": "bitmap"})


if __name__ == "__main__":
    main(sys.argv[1])
