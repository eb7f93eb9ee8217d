"""Footers: pyarrow's metadata of the same files, and footers that no pyarrow would write."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from accel.errors import EncryptedFileError, ParquetFormatError
from accel.format.footer import FooterTail, parse_footer, parse_tail
from accel.format.model import MISPLACED, Codec, ColumnOrder, Encoding
from accel.format.thrift import BINARY, FALSE, I32, I64, LIST, STRUCT, TRUE, ThriftList
from tests.unit.format.files import chunk, edited, footer_of, parse, write


def table(rows: int = 1000) -> pa.Table:
    ids = np.arange(rows)
    nullable = pa.array([None if i % 3 == 0 else i for i in range(rows)], pa.int32())
    lists = pa.array([[i, i + 1] for i in range(rows)], pa.list_(pa.int64()))
    texts = pa.array([f"value {i % 7}" for i in range(rows)])
    return pa.Table.from_arrays([pa.array(ids), nullable, lists, texts], ["id", "n", "l", "s"])


WRITERS = {
    "default": {},
    "v2, zstd, crc": {"data_page_version": "2.0", "compression": "zstd", "write_page_checksum": True},
    "plain": {"use_dictionary": False, "compression": "none"},
    "mixed": {"compression": {"id": "gzip", "n": "brotli", "s": "lz4"}, "use_dictionary": ["s"]},
    "bloom": {"bloom_filter_options": {"id": True}},
    "no statistics": {"write_statistics": False},
    "no page index": {"write_page_index": False},
    "delta": {"use_dictionary": False, "column_encoding": {"id": "DELTA_BINARY_PACKED"}},
    "sorted": {"sorting_columns": [pq.SortingColumn(0, descending=True, nulls_first=True)]},
}


@pytest.mark.parametrize("options", WRITERS.values(), ids=WRITERS.keys())
def test_every_number_equals_pyarrows(options):
    raw = write(table(), **{"row_group_size": 300, "write_page_index": True} | options)
    ours, theirs = parse(raw), pq.read_metadata(io.BytesIO(raw))
    assert (ours.num_rows, ours.num_row_groups) == (theirs.num_rows, theirs.num_row_groups)
    assert ours.created_by == theirs.created_by
    assert {k.encode(): v for k, v in ours.key_value.items()} == theirs.metadata
    assert ours.column_orders.tolist() == [ColumnOrder.TYPE_DEFINED] * 4
    assert ours.file_size == len(raw)
    assert raw[ours.footer_start :][: len(ours.footer)] == ours.footer
    chunks = ours.chunks
    for g in range(ours.num_row_groups):
        group = theirs.row_group(g)
        assert (ours.group_rows[g], ours.group_bytes[g]) == (group.num_rows, group.total_byte_size)
        assert [(s.column, s.descending, s.nulls_first) for s in ours.sorting[g]] == [
            (s.column_index, s.descending, s.nulls_first) for s in group.sorting_columns
        ]
        for c in range(group.num_columns):
            column = group.column(c)
            assert chunks.num_values[g, c] == column.num_values
            assert chunks.compressed[g, c] == column.total_compressed_size
            assert chunks.uncompressed[g, c] == column.total_uncompressed_size
            assert chunks.data_page_offset[g, c] == column.data_page_offset
            assert chunks.dictionary_page_offset[g, c] == (column.dictionary_page_offset or -1)
            start = column.dictionary_page_offset or column.data_page_offset
            assert chunks.start[g, c] == start
            assert chunks.end[g, c] == start + column.total_compressed_size
            assert Codec(chunks.codec[g, c]).name.replace("LZ4_RAW", "LZ4") == column.compression
            bits = {Encoding[name] for name in column.encodings}
            assert chunks.encodings[g, c] == sum(1 << e for e in bits)
            assert (chunks.offset_index_length[g, c] > 0) == column.has_offset_index
            assert (chunks.column_index_length[g, c] > 0) == column.has_column_index
            if column.statistics is None:
                assert chunks.null_count[g, c] == -1
                assert chunks.min_start[g, c] == -1
            else:
                assert chunks.null_count[g, c] == column.statistics.null_count
            assert not chunks.external[g, c]
            assert not chunks.encrypted[g, c]
    if "bloom_filter_options" in options:
        assert (chunks.bloom_offset[:, 0] > 0).all()
        assert (chunks.bloom_length[:, 0] > 0).all()
    assert (chunks.bloom_offset[:, 1:] == -1).all()


def test_raw_bounds_point_into_the_footer():
    metadata = parse(write(table()))
    c = metadata.chunks
    low = metadata.footer[c.min_start[0, 0] :][: c.min_length[0, 0]]
    high = metadata.footer[c.max_start[0, 3] :][: c.max_length[0, 3]]
    assert (int.from_bytes(low, "little"), high) == (0, b"value 6")
    assert (c.min_exact[0, 0], c.max_exact[0, 3]) == (1, 1)
    # pyarrow writes the deprecated pair too where it is right, and leaves it out for text.
    assert metadata.footer[c.old_min_start[0, 0] :][:8] == bytes(8)
    assert c.old_min_start[0, 3] == -1


def test_pages_by_encoding():
    chunks = parse(write(table(), use_dictionary=["s"])).chunks
    assert chunks.dictionary_pages.tolist() == [[0, 0, 0, 1]]
    assert chunks.plain_pages.tolist() == [[1, 1, 1, 0]]


def test_a_file_without_rows_and_one_without_columns():
    empty = parse(write(table(0)))
    assert (empty.num_rows, empty.num_row_groups, empty.chunks.start.shape) == (0, 1, (1, 4))
    bare = pa.Table.from_arrays([pa.array([1, 2])], ["a"]).select([])
    metadata = parse(write(bare))
    assert metadata.schema.leaves == ()
    assert metadata.chunks.start.shape == (metadata.num_row_groups, 0)


TAILS = {
    "plain": (b"\x10\x27\x00\x00PAR1", FooterTail(10_000)),
    "encrypted": (b"\x10\x27\x00\x00PARE", EncryptedFileError),
    "other magic": (b"\x10\x27\x00\x00ORC1", ParquetFormatError),
    "empty footer": (b"\x00\x00\x00\x00PAR1", ParquetFormatError),
    "short": (b"PAR1", ParquetFormatError),
    "nothing": (b"", ParquetFormatError),
}


@pytest.mark.parametrize(("tail", "outcome"), TAILS.values(), ids=TAILS.keys())
def test_tails(tail, outcome):
    if isinstance(outcome, FooterTail):
        assert parse_tail(memoryview(tail)) == outcome
    else:
        with pytest.raises(outcome):
            parse_tail(tail)


def test_padding_and_unknown_fields_are_passed_over():
    raw = write(table())
    plain = parse(raw)

    def edit(fields):
        fields[90] = (STRUCT, {1: (LIST, ThriftList(LIST, [ThriftList(BINARY, [b"x"])]))})
        column = chunk(fields)
        column[77] = (I64, 5)
        column[3][1][99] = (TRUE, True)
        column[3][1][12][1][55] = (FALSE, False)

    found = edited(raw, edit)
    assert np.array_equal(found.chunks.start, plain.chunks.start)
    assert found.schema.leaves == plain.schema.leaves
    data, start = footer_of(raw)
    padded = parse_footer(data + bytes(500), file_size=len(raw) + 500, footer_start=start)
    assert np.array_equal(padded.chunks.end, plain.chunks.end)


def test_a_plaintext_footer_with_encrypted_columns():
    def edit(fields):
        fields[8] = (STRUCT, {1: (STRUCT, {2: (BINARY, b"aad")})})
        column = chunk(fields, column=1)
        del column[3]
        column[8] = (STRUCT, {2: (STRUCT, {1: (LIST, ThriftList(BINARY, [b"n"]))})})
        column[9] = (BINARY, b"secret" * 10)

    chunks = edited(write(table()), edit).chunks
    assert chunks.encrypted.tolist() == [[False, True, False, False]]
    assert (chunks.start[0, 1], chunks.end[0, 1], chunks.num_values[0, 1]) == (-1, -1, -1)


def test_a_chunk_in_another_file_is_marked():
    def edit(fields):
        chunk(fields)[1] = (BINARY, b"other.parquet")
        chunk(fields)[3][1][9] = (I64, 1 << 40)

    chunks = edited(write(table()), edit).chunks
    assert chunks.external.tolist() == [[True, False, False, False]]
    assert (chunks.start[0, 0], chunks.end[0, 0]) == (-1, -1)


@pytest.mark.parametrize("offset", [None, 0, "data"], ids=["absent", "zero", "the data page's"])
def test_dictionary_offsets_that_say_there_is_none(offset):
    raw = write(table(), use_dictionary=False)
    data = int(parse(raw).chunks.data_page_offset[0, 0])

    def edit(fields):
        if offset is not None:
            chunk(fields)[3][1][11] = (I64, data if offset == "data" else offset)

    chunks = edited(raw, edit).chunks
    assert (chunks.dictionary_page_offset[0, 0], chunks.start[0, 0]) == (-1, data)


PARQUET_816 = {
    "old": (b"parquet-mr version 1.2.8 (build abc)", True),
    "fixed": (b"parquet-mr version 1.2.9 (build abc)", False),
    "newer": (b"parquet-mr version 1.12.0", False),
    "someone else": (b"impala version 1.2.0", False),
    "no version": (b"parquet-mr", True),
    "no number": (b"parquet-mr version unknown", True),
    "no number that can be read": (b"parquet-mr version " + b"9" * 5000 + b".1.1", True),
}


@pytest.mark.parametrize(("created_by", "short"), PARQUET_816.values(), ids=PARQUET_816.keys())
def test_sizes_that_leave_out_the_dictionary_header(created_by, short):
    raw = write(table())
    plain = parse(raw).chunks

    def edit(fields):
        fields[6] = (BINARY, created_by)
        for column in range(4):
            size = chunk(fields, column=column)[3][1]
            size[7] = (I64, size[7][1] - 15)

    end = edited(raw, edit).chunks.end
    if short:
        # Padded up to the next chunk; the last chunk up to a hundred bytes.
        assert end[0, :3].tolist() == plain.start[0, 1:].tolist()
        assert end[0, 3] == min(plain.end[0, 3] + 85, footer_of(raw)[1])
    else:
        assert end.tolist() == (plain.end - 15).tolist()


def test_row_groups_out_of_file_order_and_offsets_from_the_files_start():
    raw = write(table(), row_group_size=500)

    def edit(fields):
        fields[4][1].items.reverse()

    swapped, plain = edited(raw, edit), parse(raw)
    assert np.array_equal(swapped.chunks.start, plain.chunks.start[::-1])
    # A Parquet file behind other bytes, its offsets moved along with it.
    ahead = 1000

    def move(fields):
        for group in fields[4][1].items:
            for column in group[1][1].items:
                for field in (9, 11):
                    if field in column[3][1]:
                        column[3][1][field] = (I64, column[3][1][field][1] + ahead)

    data, start = footer_of(raw)
    from accel.format.thrift import read_struct, write_struct

    fields = read_struct(data)[0]
    move(fields)
    footer = write_struct(fields)
    size = ahead + start + len(footer) + 8
    moved = parse_footer(footer, file_size=size, footer_start=ahead + start)
    assert np.array_equal(moved.chunks.start, plain.chunks.start + ahead)


ORDERS = {
    "absent": (None, 0),
    "too few": ([{1: (STRUCT, {})}], 0),
    "typed": ([{1: (STRUCT, {})}] * 4, 1),
    "total": ([{2: (STRUCT, {})}] * 4, 2),
    "unknown": ([{3: (STRUCT, {})}] * 4, 0),
    "empty union": ([{}] * 4, 0),
}


@pytest.mark.parametrize(("orders", "outcome"), ORDERS.values(), ids=ORDERS.keys())
def test_column_orders(orders, outcome):
    def edit(fields):
        del fields[7]
        if orders is not None:
            fields[7] = (LIST, ThriftList(STRUCT, orders))

    assert edited(write(table()), edit).column_orders.tolist() == [outcome] * 4


def test_an_unknown_codec_is_kept():
    def edit(fields):
        chunk(fields)[3][1][4] = (I32, 42)

    assert edited(write(table()), edit).chunks.codec.tolist() == [[42, 1, 1, 1]]


def set_metadata(field: int, value: tuple | None, column: int = 1):
    def edit(fields):
        inner = chunk(fields, column=column)[3][1]
        inner.pop(field, None)
        if value is not None:
            inner[field] = value

    return edit


def set_chunk(field: int, value: tuple):
    def edit(fields):
        chunk(fields, column=1)[field] = value

    return edit


def set_group(field: int, value: tuple):
    def edit(fields):
        fields[4][1].items[0][field] = value

    return edit


def drop_column(fields):
    fields[4][1].items[0][1][1].items.pop()


def drop_metadata(fields):
    del chunk(fields, column=1)[3]


LIES = {
    "other physical type": (set_metadata(1, (I32, 6)), "physical type"),
    "unknown physical type": (set_metadata(1, (I32, 77)), "physical type"),
    "no physical type": (set_metadata(1, None), "no metadata"),
    "no codec": (set_metadata(4, None), "codec: it is missing"),
    "codec beyond a byte": (set_metadata(4, (I32, 1000)), "codec"),
    "no value count": (set_metadata(5, None), "num_values: it is missing"),
    "negative value count": (set_metadata(5, (I64, -7)), "num_values: -7"),
    "negative size": (set_metadata(7, (I64, -2)), "compressed: -2"),
    "negative uncompressed size": (set_metadata(6, (I64, -2)), "uncompressed: -2"),
    "no data page offset": (set_metadata(9, None), "data_page_offset"),
    "data page as text": (set_metadata(9, (BINARY, b"12")), "data_page_offset: it is missing"),
    "negative data page offset": (set_metadata(9, (I64, -100)), "data_page_offset: -100"),
    "offset behind the footer": (set_metadata(9, (I64, 1 << 40)), "after the"),
    "greatest offset": (set_metadata(9, (I64, (1 << 63) - 1)), "after the"),
    "size into the footer": (set_metadata(7, (I64, 1 << 30)), "reach into the footer"),
    "greatest size": (set_metadata(7, (I64, (1 << 63) - 1)), "reach into the footer"),
    "negative rows": (set_group(3, (I64, -1)), "a row count of -1"),
    "too many rows": (set_group(3, (I64, 1 << 62)), "a row count"),
    "columns missing": (drop_column, "3 column chunks for 4 columns"),
    "no metadata": (drop_metadata, "column chunk 1 has no metadata"),
    "values in no rows": (set_group(3, (I64, 0)), "a row group of no rows whose chunks have values"),
}


MISPLACED_INDEXES = {
    "offset index behind the footer": (set_chunk(4, (I64, 1 << 40)), "offset index"),
    "offset index that is too long": (set_chunk(5, (I32, 1 << 30)), "offset index"),
    "column index of negative length": (set_chunk(7, (I32, -9)), "column index"),
    "bloom filter behind the footer": (set_metadata(14, (I64, 1 << 40)), "bloom filter"),
    "bloom filter before the file": (set_metadata(14, (I64, -2)), "bloom filter"),
    "offset index before the file": (set_chunk(4, (I64, -(1 << 63))), "offset index"),
    "column index at the greatest offset": (set_chunk(6, (I64, (1 << 63) - 1)), "column index"),
}


@pytest.mark.parametrize(("edit", "words"), MISPLACED_INDEXES.values(), ids=MISPLACED_INDEXES)
def test_an_index_that_is_placed_outside_the_file_is_as_good_as_absent(edit, words):
    data = write(table(), write_page_index=True)
    metadata = edited(data, edit)
    ((found, group, leaf),) = metadata.misplaced_indexes(range(len(metadata.schema.leaves)))
    assert found == words
    assert [*metadata.misplaced_indexes([leaf + 1])] == []
    chunks = metadata.chunks
    name = {"bloom filter": "bloom"}.get(words, words.replace(" ", "_"))
    assert getattr(chunks, f"{name}_offset")[group, leaf] == MISPLACED
    assert getattr(chunks, f"{name}_length")[group, leaf] == -1


@pytest.mark.parametrize(("edit", "message"), LIES.values(), ids=LIES.keys())
def test_lies_are_refused_and_named(edit, message):
    with pytest.raises(ParquetFormatError, match=message) as caught:
        edited(write(table(), write_page_index=True), edit)
    assert "footer" in caught.value.place


def test_the_place_names_row_group_and_column():
    def edit(fields):
        chunk(fields, group=1, column=2)[3][1][7] = (I64, -2)

    with pytest.raises(ParquetFormatError) as caught:
        edited(write(table(), row_group_size=500), edit)
    assert caught.value.place == "footer, row group 1, column l.list.element"


def test_half_a_page_index_counts_as_none():
    raw = write(table(), write_page_index=True)

    def edit(fields):
        del chunk(fields, column=0)[5]
        del chunk(fields, column=1)[6]
        chunk(fields, column=2)[4] = (I64, 0)

    chunks = edited(raw, edit).chunks
    assert chunks.offset_index_offset[0, :3].tolist()[0::2] == [-1, -1]
    assert chunks.column_index_length[0, 1] == -1
    assert chunks.column_index_offset[0, 0] > 0
    assert chunks.offset_index_offset[0, 1] > 0


def test_a_bloom_filter_may_lack_its_length():
    chunks = edited(write(table()), set_metadata(14, (I64, 100))).chunks
    assert (chunks.bloom_offset[0, 1], chunks.bloom_length[0, 1]) == (100, -1)


def test_rows_are_counted_from_the_row_groups():
    def edit(fields):
        fields[3] = (I64, 5)

    assert edited(write(table()), edit).num_rows == 1000


def test_a_second_list_of_chunks_is_refused():
    # One row group whose field 1 comes twice, with the long form of the header.
    raw = b"\x29\x1c\x48\x01r\x15\x00\x00\x29\x1c\x19\x0c\x09\x02\x0c\x16\x00\x00\x00"
    with pytest.raises(ParquetFormatError, match="second list"):
        parse_footer(raw, file_size=100, footer_start=4)


def test_a_footer_outside_of_its_file_is_refused():
    data, start = footer_of(write(table()))
    with pytest.raises(ParquetFormatError, match="in a file of 100"):
        parse_footer(data, file_size=100, footer_start=start)


def test_nbytes_counts_the_arrays():
    metadata = parse(write(table(), row_group_size=100))
    arrays = sum(getattr(metadata.chunks, name).nbytes for name in metadata.chunks.__slots__)
    assert metadata.chunks.nbytes == arrays
    assert metadata.nbytes > arrays + len(metadata.footer)
