"""What an opened file weighs and suggests."""

from __future__ import annotations

import gc
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from accel.errors import IndexFormatError
from accel.format.bloom import BloomState
from accel.format.domain import Bounds
from accel.format.page_index import parse_offset_index
from accel.planning.handle import FileHandle, FileView, SharedStatistics
from accel.testing import Layout, table, write_file
from tests.property.test_footer_parses import same
from tests.support.file_steps import Bytes, footer_start

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
    handle.view.offset_indexes[0, 0] = index
    assert handle.nbytes == before + index.nbytes
    handle.view.offset_indexes[0, 1] = None
    assert handle.nbytes == before + index.nbytes
    handle.view.chunk_bounds[0] = bounds = Bounds.unknown(np.full(7, 10, np.int64))
    assert handle.nbytes == before + index.nbytes + 64 * len(bounds) + 256


def test_bytes_before_the_footer_weigh() -> None:
    data = write_file(COLUMNS, Layout(page_rows=50))
    assert Bytes(data).open().nbytes - Bytes(data).open(8).nbytes == footer_start(data)


def tracked(handle: FileHandle) -> list[type]:
    """What the garbage collector follows of it alone, the handle aside."""
    gc.collect()
    shared = [handle.shared, handle.arrow_schema, FileHandle, None]
    return [
        type(one)
        for one in gc.get_referents(handle)
        if gc.is_tracked(one) and not any(one is other for other in shared)
    ]


def test_a_folded_file_is_one_object_for_the_garbage_collector() -> None:
    handle = Bytes(write_file(COLUMNS, Layout(group_rows=250, page_rows=50))).open()
    handle.fold()
    assert tracked(handle) == []
    assert len(handle.metadata.group_rows) == 4
    assert tracked(handle) == [FileView]


def test_it_has_grown_until_it_is_weighed() -> None:
    """Whatever it has grown by, and whoever was to weigh it then and did not."""
    handle = Bytes(write_file(COLUMNS, Layout(group_rows=250, page_rows=50))).open()
    handle.weigh()
    assert not handle.has_grown()
    handle.view.chunk_bounds[0] = Bounds.unknown(np.full(4, 250, np.int64))
    assert handle.has_grown()
    assert handle.weigh() == handle.nbytes
    assert not handle.has_grown()
    handle.view.blooms[0, 0] = BloomState()
    assert handle.has_grown()
    handle.weigh()
    assert not handle.has_grown()
    # Within its entry, by blocks that no request may have brought.
    handle.view.blooms[0, 0].blocks[7] = bytes(32)
    assert handle.has_grown()
    assert handle.weigh() == handle.nbytes
    assert not handle.has_grown()


def test_folded_and_laid_out_again_it_says_the_same() -> None:
    handle = Bytes(write_file(COLUMNS, Layout(group_rows=250, page_rows=50))).open(8)
    before, weight = handle.metadata, handle.nbytes
    suggested, rows, size = handle.suggested_tail_bytes(), handle.group_rows.tolist(), handle.id
    handle.fold()
    assert handle.suggested_tail_bytes() == suggested
    assert (handle.num_rows, handle.num_row_groups, handle.group_rows.tolist()) == (1000, 4, rows)
    assert (handle.id, handle.path, handle.size, handle.etag) == (size, size.path, size.size, size.etag)
    assert (handle.view.size, handle.toc, handle.bad_toc) == (0, None, None)
    assert abs(handle.nbytes - weight) < 1000
    assert handle.metadata is not before
    same(handle.metadata, before)
    assert handle.metadata is handle.metadata


@pytest.mark.parametrize(
    "note",
    [
        lambda handle: handle.view.offset_indexes.update({(0, 0): None}),
        lambda handle: handle.view.column_indexes.update({(0, 0): None}),
        lambda handle: handle.view.indexes.update({0: None}),
        lambda handle: handle.view.dictionaries.update({(0, 0): pa.nulls(1)}),
        lambda handle: handle.view.blooms.update({(0, 0): None}),
        lambda handle: setattr(handle, "distrusted", True),
        lambda handle: setattr(handle.view, "index_reads", 1),
        lambda handle: setattr(handle, "bad_toc", IndexFormatError("bad")),
    ],
)
def test_what_the_footer_does_not_say_is_kept(note: Callable[[FileHandle], object]) -> None:
    handle = Bytes(write_file(COLUMNS, Layout(page_rows=50))).open()
    note(handle)
    view = handle.view
    handle.fold()
    assert handle.view is view


# -- shared statistics ------------------------------------------------------------------------------


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
