"""Bounds kept together are those of each file, at its place."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from accel.format.domain import Bounds
from accel.planning.handle import FileHandle, SharedStatistics
from accel.testing import Layout, table, write_file
from tests.support.file_steps import Bytes


def opened(groups: int) -> FileHandle:
    data = table(n=pa.array(range(2 * groups), pa.int64()))
    return Bytes(write_file(data, Layout(group_rows=2))).open()


def test_each_file_finds_its_own() -> None:
    handles = [opened(2), opened(1), opened(3)]
    counts = np.array([1, 2, 3, 4, 5, 6], np.int64)
    statistics = SharedStatistics(handles, counts, {0: Bounds.unknown(counts)})
    found = [statistics.of(handle, 0) for handle in handles]
    assert [bounds.num_values.tolist() for bounds in found if bounds is not None] == [[1, 2], [3], [4, 5, 6]]
    assert statistics.of(handles[0], 1) is None
    assert statistics.starts.tolist() == [0, 2, 3]


def test_it_is_of_just_those_files_in_that_order() -> None:
    handles = [opened(2), opened(1), opened(3)]
    statistics = SharedStatistics(handles, np.ones(6, np.int64), {})
    assert statistics.holds(handles)
    assert not statistics.holds(handles[:2])
    assert not statistics.holds(handles[::-1])
    assert not statistics.holds([*handles, opened(1)])
    other = SharedStatistics(handles[1:], np.ones(4, np.int64), {})
    assert other.holds(handles[1:]) and not statistics.holds(handles)


def test_what_a_file_kept_itself_goes() -> None:
    handle = opened(2)
    handle.view.chunk_bounds[0] = handle.view.chunk_bounds[7] = Bounds.unknown(np.ones(2, np.int64))
    before = handle.nbytes
    SharedStatistics([handle], np.ones(2, np.int64), {0: Bounds.unknown(np.ones(2, np.int64))})
    assert list(handle.view.chunk_bounds) == [7]
    assert handle.nbytes == before - 256
