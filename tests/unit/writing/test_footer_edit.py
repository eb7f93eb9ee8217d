from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from accel.errors import ParquetFormatError
from accel.format.footer import parse_footer
from accel.format.model import FileMetadata
from accel.format.thrift import BINARY, I64, STRUCT, read_struct, write_struct
from accel.writing.tail import PageIndexPlaces, edit_footer
from tests.unit.writing.files import metadata_of, write


@pytest.fixture(scope="module")
def metadata(tmp_path_factory: pytest.TempPathFactory) -> FileMetadata:
    path = write(tmp_path_factory.mktemp("footer") / "a.parquet", write_page_index=True)
    return metadata_of(path)


def places_of(metadata: FileMetadata) -> PageIndexPlaces:
    chunks = metadata.chunks
    return PageIndexPlaces(
        chunks.offset_index_offset,
        chunks.offset_index_length,
        chunks.column_index_offset,
        chunks.column_index_length,
    )


def parsed(footer: bytes, metadata: FileMetadata) -> FileMetadata:
    return parse_footer(footer, file_size=1 << 40, footer_start=metadata.footer_start)


def test_nothing_changed_is_the_same_bytes(metadata: FileMetadata) -> None:
    assert edit_footer(metadata.footer, places=places_of(metadata), key_value={}) == metadata.footer


def test_places_are_set_and_removed_and_all_else_stays(metadata: FileMetadata) -> None:
    shape = metadata.chunks.start.shape
    numbers = np.arange(np.prod(shape), dtype=np.int64).reshape(shape) + 5
    none = np.full(shape, -1, np.int64)
    footer = edit_footer(
        metadata.footer, places=PageIndexPlaces(numbers, numbers * 2, none, none), key_value={}
    )
    found = parsed(footer, metadata).chunks
    assert found.offset_index_offset.tolist() == numbers.tolist()
    assert found.offset_index_length.tolist() == (numbers * 2).tolist()
    assert (found.column_index_offset == -1).all()
    assert (found.column_index_length == -1).all()
    assert edit_footer(footer, places=places_of(metadata), key_value={}) == metadata.footer


def test_keys_are_added_replaced_and_removed_in_place(metadata: FileMetadata) -> None:
    def edit(footer: bytes, **pairs: bytes | None) -> bytes:
        return edit_footer(footer, places=places_of(metadata), key_value=pairs)

    before = dict(metadata.key_value)
    footer = edit(metadata.footer, ours=b"\xff\x00one", theirs=b"two")
    assert dict(parsed(footer, metadata).key_value) == {**before, "ours": b"\xff\x00one", "theirs": b"two"}
    again = edit(footer, ours=b"three")
    assert list(parsed(again, metadata).key_value.items()) == [
        *before.items(),
        ("theirs", b"two"),
        ("ours", b"three"),
    ]
    assert edit(again, ours=None, theirs=None) == metadata.footer


def test_a_footer_without_keys_gets_the_list(metadata: FileMetadata) -> None:
    fields, _ = read_struct(metadata.footer)
    del fields[5]
    footer = edit_footer(write_struct(fields), places=places_of(metadata), key_value={"k": b"v"})
    assert dict(parsed(footer, metadata).key_value) == {"k": b"v"}


def test_fields_that_nobody_knows_stay(metadata: FileMetadata) -> None:
    fields, _ = read_struct(metadata.footer)
    unknown = (STRUCT, {1: (BINARY, b"future"), 40: (I64, -3)})
    fields[900] = unknown
    group = fields[4][1].items[0]
    group[77] = unknown
    chunk = group[1][1].items[2]
    chunk[55] = unknown
    chunk[3][1][99] = unknown
    footer = write_struct(fields)
    assert edit_footer(footer, places=places_of(metadata), key_value={}) == footer
    edited, _ = read_struct(edit_footer(footer, places=places_of(metadata), key_value={"k": b"v"}))
    chunk = edited[4][1].items[0][1][1].items[2]
    assert edited[900] == edited[4][1].items[0][77] == chunk[55] == chunk[3][1][99] == unknown


def test_type_orders_take_the_place_of_none(metadata: FileMetadata) -> None:
    fields, _ = read_struct(metadata.footer)
    leaves = len(metadata.schema.leaves)
    orders = fields.pop(7)
    footer = edit_footer(write_struct(fields), places=places_of(metadata), key_value={}, type_orders=leaves)
    assert read_struct(footer)[0][7] == orders
    assert footer == metadata.footer


@pytest.mark.parametrize("shape", [(2, 11), (3, 9), (4, 11)], ids=str)
def test_other_row_groups_or_columns_are_refused(metadata: FileMetadata, shape: tuple[int, int]) -> None:
    assert metadata.chunks.start.shape == (3, 10)
    none = np.full(shape, -1, np.int64)
    with pytest.raises(ParquetFormatError, match=r"were read"):
        edit_footer(metadata.footer, places=PageIndexPlaces(none, none, none, none), key_value={})


def test_a_field_twice_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", pa.table({"a": [1]}))
    metadata = metadata_of(path)
    # num_rows once more, by its long header, before STOP.
    footer = metadata.footer[:-1] + b"\x06\x06\x02\x00"
    with pytest.raises(ParquetFormatError, match="twice"):
        edit_footer(footer, places=places_of(metadata), key_value={})


@pytest.mark.parametrize("length", [1, 40, 400, 1500])
def test_a_cut_footer_is_a_format_error(metadata: FileMetadata, length: int) -> None:
    with pytest.raises(ParquetFormatError):
        edit_footer(metadata.footer[:length], places=places_of(metadata), key_value={})
