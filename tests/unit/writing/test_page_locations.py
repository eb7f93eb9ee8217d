from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from accel.format.model import OffsetIndex
from accel.format.page_index import parse_offset_index
from accel.writing.page_indexes import ChunkPageList, encode_offset_index, list_pages
from tests.unit.writing.files import as_source, metadata_of, write


def same(a: OffsetIndex, b: OffsetIndex) -> bool:
    return all(
        getattr(a, name).tolist() == getattr(b, name).tolist() for name in ("offset", "size", "first_row")
    )


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("window", [64, 300, 1 << 20])
def test_located_as_the_writer_has_it(tmp_path: Path, version: str, window: int) -> None:
    path = write(tmp_path / "a.parquet", write_page_index=True, data_page_version=version)
    metadata = metadata_of(path)
    data = Path(path).read_bytes()
    source = as_source(path)
    source.window = window
    checked = 0
    for group in range(metadata.num_row_groups):
        for leaf in metadata.schema.leaves:
            at = (group, leaf.ordinal)
            chunks, rows = metadata.chunks, int(metadata.group_rows[group])
            start, end = int(chunks.start[at]), int(chunks.end[at])
            offset = int(chunks.offset_index_offset[at])
            stored = data[offset : offset + int(chunks.offset_index_length[at])]
            truth = parse_offset_index(stored, num_rows=rows, lower=start, upper=end)
            pages = list_pages(source, start, end=end, num_values=int(chunks.num_values[at]))
            assert pages is not None
            found = pages.locate_flat(rows) if leaf.max_repetition == 0 else pages.locate_versioned(rows)
            if leaf.max_repetition and version == "1.0":
                assert found is None
                continue
            assert found is not None
            assert same(found, truth)
            again = parse_offset_index(encode_offset_index(found), num_rows=rows, lower=start, upper=end)
            assert same(again, truth)
            checked += 1
    assert checked == metadata.num_row_groups * (10 if version == "2.0" else 9)
    source.close()


def test_values_that_do_not_add_up_are_unknown(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet")
    metadata = metadata_of(path)
    chunks = metadata.chunks
    source = as_source(path)
    start, end, values = int(chunks.start[0, 0]), int(chunks.end[0, 0]), int(chunks.num_values[0, 0])
    assert list_pages(source, start, end=end, num_values=values) is not None
    assert list_pages(source, start, end=end, num_values=values + 1) is None
    assert list_pages(source, start, end=end, num_values=values - 1) is None
    assert list_pages(source, start, end=end - 1, num_values=values) is None
    assert list_pages(source, start + 1, end=end, num_values=values) is None
    source.close()


def pages_of(*values: int) -> ChunkPageList:
    sizes = np.full(len(values), 10, np.int64)
    return ChunkPageList(np.array([np.cumsum(sizes), sizes, values, np.full(len(values), -1)]))


@pytest.mark.parametrize(
    ("values", "levels", "first_rows"),
    [
        pytest.param((3, 2), [1, 2, 2], [0, 2], id="between rows"),
        pytest.param((5,), [1, 2, 2], [0], id="one page"),
        pytest.param((2, 3), [1, 2, 2], None, id="within a row"),
        pytest.param((3, 3), [1, 2, 2], None, id="more values than levels"),
        pytest.param((1, 1, 3), [1, 1, 3], [0, 1, 2], id="a page a row"),
    ],
)
def test_rows_counted_by_levels(
    values: tuple[int, ...], levels: list[int], first_rows: list[int] | None
) -> None:
    found = pages_of(*values).locate_counted(np.array(levels))
    assert (None if found is None else found.first_row.tolist()) == first_rows
