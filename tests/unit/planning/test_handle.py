"""What an opened file weighs and suggests."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from accel.format.domain import Bounds
from accel.format.page_index import parse_offset_index
from accel.testing import Layout, table, write_file
from tests.unit.planning.files import Bytes, footer_start

COLUMNS = table(a=pa.array(np.arange(1000)), b=pa.array(np.arange(1000)))


def test_the_suggested_tail_reaches_to_the_first_page_index() -> None:
    data = write_file(COLUMNS, Layout(group_rows=250, page_rows=50))
    chunks = Bytes(data).open().metadata.chunks
    first = min(int(chunks.column_index_offset.min()), int(chunks.offset_index_offset.min()))
    assert Bytes(data).open(8).suggested_tail_bytes() == len(data) - first


def test_without_page_indexes_it_is_the_footer() -> None:
    data = write_file(COLUMNS, Layout(page_index=False))
    assert Bytes(data).open().suggested_tail_bytes() == len(data) - footer_start(data)


def test_its_weight_grows_with_what_it_learns() -> None:
    data = write_file(COLUMNS, Layout(page_rows=50))
    handle = Bytes(data).open(8)
    before = handle.nbytes
    chunks = handle.metadata.chunks
    start, length = int(chunks.offset_index_offset[0, 0]), int(chunks.offset_index_length[0, 0])
    index = parse_offset_index(data[start : start + length], num_rows=1000, lower=4, upper=len(data))
    handle.offset_indexes[0, 0] = index
    assert handle.nbytes == before + index.nbytes
    handle.offset_indexes[0, 1] = None
    assert handle.nbytes == before + index.nbytes
    handle.chunk_bounds[0] = bounds = Bounds.unknown(np.full(7, 10, np.int64))
    assert handle.nbytes == before + index.nbytes + 64 * len(bounds) + 256


def test_bytes_before_the_footer_weigh() -> None:
    data = write_file(COLUMNS, Layout(page_rows=50))
    assert Bytes(data).open().nbytes - Bytes(data).open(8).nbytes == footer_start(data)
