"""What is packed comes out again as it was parsed, whichever writer wrote it."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from accel.format.footer import parse_footer
from accel.format.model import FileMetadata
from accel.format.packed import PackedMetadata, SharedMetadata, chunks_of_leaf, unpack
from bench.micro.footers import WRITERS
from tests.property.test_footer_parses import same

START = 1 << 30


def parsed(writer: str, groups: int, columns: int = 4) -> FileMetadata:
    data = WRITERS[writer](columns, groups)
    return parse_footer(data, file_size=START + len(data) + 8, footer_start=START)


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("groups", [1, 3])
def test_it_comes_out_as_it_was(writer: str, groups: int) -> None:
    metadata = parsed(writer, groups)
    packed = PackedMetadata.of(metadata)
    same(unpack(packed), metadata)
    assert packed.num_row_groups == groups
    assert packed.num_rows == metadata.num_rows
    assert packed.group_rows.tolist() == metadata.group_rows.tolist()
    for name in type(metadata.chunks).__slots__:
        assert np.array_equal(packed.column(name), getattr(metadata.chunks, name)), name


def test_what_comes_out_is_apart_from_what_is_packed() -> None:
    packed = PackedMetadata.of(parsed("pyarrow", 2))
    unpack(packed).chunks.start[:] = 0
    assert (packed.column("start") > 0).all()


def test_the_chunks_of_one_leaf_of_several_files() -> None:
    files = [parsed("pyarrow", groups) for groups in (2, 1, 3)]
    packed = [PackedMetadata.of(metadata) for metadata in files]
    for leaf in range(4):
        found = chunks_of_leaf(packed, leaf)
        for name, column in found.items():
            alone = [value for file in files for value in getattr(file.chunks, name)[:, leaf].tolist()]
            assert column.tolist() == alone, name
    assert chunks_of_leaf(packed[:1], 3)["start"].tolist() == files[0].chunks.start[:, 3].tolist()


def test_without_row_groups() -> None:
    metadata = parsed("pyarrow", 1)
    packed = PackedMetadata.of(metadata)
    none = PackedMetadata(packed.shared, packed.numbers[:0], None, packed.footer, packed.file_size, START, 0)
    found = unpack(none)
    assert (found.num_row_groups, found.num_rows, found.chunks.start.shape) == (0, 0, (0, 4))


def test_the_garbage_collector_follows_nothing_of_it() -> None:
    metadata = parsed("pyarrow", 2)
    packed = PackedMetadata.of(metadata, SharedMetadata.of(metadata))
    held = (packed.numbers, packed.footer, packed.file_size, packed.sorting)
    gc.collect()
    assert not gc.is_tracked(held)
