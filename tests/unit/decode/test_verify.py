"""Wrong page headers are found before pyarrow decodes a page, and wrong pages afterwards."""

from __future__ import annotations

import io
import random
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.decode.arrow import projected_schema
from accel.decode.chunks import ChunkPages
from accel.decode.columns import StoredRowGroup, decode_columns
from accel.decode.dictionary_decode import longest_text
from accel.decode.verify import needs_dictionary, verify_chunk
from accel.errors import AccelError, MemoryLimitError, ParquetFormatError
from accel.format.page_header import parse_page_header
from accel.format.thrift import FALSE, I32, Struct, read_struct, write_struct
from accel.planning.selection import RowSelection
from accel.ranges import Buffer
from accel.testing import DictStore
from tests.unit.decode.selected import chosen_pages, open_metadata, whole_chunk

_ALL = RowSelection.all(100)
Edit = Callable[[Struct], None]


def _write(array: pa.Array, **options: object) -> bytes:
    sink = pa.BufferOutputStream()
    settings = {"compression": "NONE", "write_page_index": True, "max_rows_per_page": 25} | options
    pq.write_table(pa.Table.from_arrays([array], names=["c"]), sink, **settings)
    return sink.getvalue().to_pybytes()


_INTS = pa.array(range(100))
_TEXTS = pa.array([f"text {i % 9}" for i in range(100)])
_LISTS = pa.array([list(range(i % 4)) for i in range(100)])
_PLAIN = {"use_dictionary": False}
_V2 = {"use_dictionary": False, "data_page_version": "2.0"}


def _decode(data: bytes, chunk: ChunkPages, *, limit: int | None = None, created_by: str = "") -> pa.Array:
    meta = open_metadata(data)
    return decode_columns(
        StoredRowGroup("dir/file.parquet", 3, meta.schema, meta.key_value, created_by),
        {0: chunk},
        rows=_ALL,
        arrow_schema=projected_schema(meta.schema, meta.key_value, leaves=[0]),
        memory_limit=limit,
    )[0]


def _chunk(data: bytes) -> ChunkPages:
    chunk = chosen_pages(data, open_metadata(data), 0, 0, _ALL)
    # A buffer a page, so that each can be changed alone.
    pages: list[Buffer] = []
    for buffer in chunk.buffers:
        at = 0
        while at < len(buffer):
            header = parse_page_header(buffer, at)
            end = at + header.header_length + header.compressed_size
            pages.append(bytes(buffer[at:end]))
            at = end
    return replace(chunk, buffers=tuple(pages))


def _edit(page: Buffer, edit: Edit) -> bytes:
    header, end = read_struct(page)
    edit(header)
    return write_struct(header) + bytes(page[end:])


def _lie(field: int, inner: int, value: int) -> Edit:
    def edit(header: Struct) -> None:
        header[field][1][inner] = (I32, value)

    return edit


def _size(inner: int, change: int) -> Edit:
    def edit(header: Struct) -> None:
        header[inner] = (I32, header[inner][1] + change)

    return edit


_LIES = [
    ("v1 counts too many", _INTS, _PLAIN, _lie(5, 1, 26), "data page 1 of those read has 26 values"),
    ("v1 counts too few", _INTS, _PLAIN, _lie(5, 1, 24), "data page 1 of those read has 24 values"),
    ("v2 counts too many", _INTS, _V2, _lie(8, 1, 26), "data page 1 of those read has 26 values"),
    ("v2 has other rows", _INTS, _V2, _lie(8, 3, 24), r"has 25 values \(and 24 rows"),
    ("v2 has more nulls than values", _INTS, _V2, _lie(8, 2, 26), "26 nulls"),
    ("fewer values than rows in lists", _LISTS, _PLAIN, _lie(5, 1, 24), "has 24 values"),
    ("more values in lists", _LISTS, _PLAIN, _lie(5, 1, 60), "."),
    ("fewer values in lists", _LISTS, _PLAIN, _lie(5, 1, 30), "."),
    ("body too long", _INTS, _PLAIN, _size(3, 1), "a page of "),
    ("body too short", _INTS, _PLAIN, _size(3, -1), "."),
    ("decompresses to less", _INTS, {**_PLAIN, "compression": "SNAPPY"}, _size(2, -8), "."),
    ("decompresses to more", _INTS, {**_PLAIN, "compression": "SNAPPY"}, _size(2, 8), "."),
    ("dictionary page amid data", _INTS, _PLAIN, lambda h: h.update({1: (I32, 2)}), "."),
    ("unknown encoding", _INTS, _PLAIN, _lie(5, 2, 77), "."),
    (
        "needs a dictionary",
        _INTS,
        _PLAIN,
        _lie(5, 2, 8),
        "data page 1 is dictionary-encoded, and there is no",
    ),
]


@pytest.mark.parametrize(
    ("array", "options", "edit", "message"), [c[1:] for c in _LIES], ids=[c[0] for c in _LIES]
)
def test_a_lying_header(array: pa.Array, options: dict[str, object], edit: Edit, message: str) -> None:
    data = _write(array, **options)
    chunk = _chunk(data)
    assert _decode(data, chunk).equals(array)
    pages = list(chunk.buffers)
    pages[1] = _edit(pages[1], edit)
    with pytest.raises(ParquetFormatError, match=message) as caught:
        _decode(data, replace(chunk, buffers=tuple(pages)))
    assert caught.value.path == "dir/file.parquet"
    assert caught.value.place is not None
    assert caught.value.place.startswith("row group 3, column c")


@pytest.mark.parametrize("options", [_PLAIN, _V2], ids=["v1", "v2"])
def test_a_chunk_of_one_page_is_held_against_the_offset_index_as_others_are(
    options: dict[str, object],
) -> None:
    data = _write(_INTS, **options, max_rows_per_page=1_000)
    chunk = _chunk(data)
    (page,) = chunk.buffers
    assert not chunk.whole
    with pytest.raises(ParquetFormatError):
        _decode(data, replace(chunk, buffers=(bytes(page) + b"\x15\x00",)))
    with pytest.raises(ParquetFormatError, match="has 101 values"):
        _decode(data, replace(chunk, buffers=(_edit(page, _lie(5 if options is _PLAIN else 8, 1, 101)),)))


def test_a_chunk_of_one_page_has_the_rows_that_its_header_says() -> None:
    data = _write(_LISTS, **_V2, max_rows_per_page=1_000)
    chunk = _chunk(data)
    with pytest.raises(ParquetFormatError, match=r"has 175 values \(and 99 rows"):
        _decode(data, replace(chunk, buffers=(_edit(chunk.buffers[0], _lie(8, 3, 99)),)))


_FIXED = {
    "int32": pa.array(range(100), pa.int32()),
    "float": pa.array([i / 4 for i in range(100)], pa.float32()),
    "boolean": pa.array([i % 3 == 0 for i in range(100)]),
    "fixed": pa.array([bytes([i]) * 5 for i in range(100)], pa.binary(5)),
}


@pytest.mark.parametrize("array", _FIXED.values(), ids=_FIXED)
def test_levels_in_the_pages_of_a_required_column(array: pa.Array) -> None:
    """One flipped bit in the footer makes an optional column a required one. pyarrow takes the levels for
    values."""
    optional, required = _write(array, **_PLAIN), _of_required(array)
    chunk = replace(_chunk(optional), first_rows=_chunk(required).first_rows)
    assert _decode(optional, chunk).equals(array)
    assert _decode(required, _chunk(required)).equals(array)
    with pytest.raises(ParquetFormatError, match="a page of [0-9]+ bytes for 25 values, which take"):
        _decode(required, chunk)


def _of_required(array: pa.Array) -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.Table.from_arrays([array], schema=pa.schema([pa.field("c", array.type, nullable=False)]))
    settings = {"compression": "NONE", "write_page_index": True, "max_rows_per_page": 25}
    pq.write_table(table, sink, **_PLAIN, **settings)
    return sink.getvalue().to_pybytes()


def test_rows_that_lie_on_other_pages_than_the_offset_index_says() -> None:
    data = _write(_LISTS, **_PLAIN)
    chunk = _chunk(data)
    shifted = np.array([0, 24, 50, 75], np.int64)
    moved = replace(chunk, first_rows=shifted, stop_rows=np.append(shifted[1:], 100))
    with pytest.raises(ParquetFormatError, match="data page 0 of those read does not hold the rows"):
        _decode(data, moved)


def test_fewer_or_more_pages_than_the_offset_index_says() -> None:
    lists = pa.array([[1] * (i // 25) for i in range(100)])
    data = _write(lists, **_PLAIN)
    chunk = _chunk(data)
    assert _decode(data, chunk).equals(lists)
    with pytest.raises(ParquetFormatError, match="3 data pages where the offset index has 4"):
        _decode(data, replace(chunk, buffers=chunk.buffers[:3]))
    with pytest.raises(ParquetFormatError, match="4 data pages where the offset index has 3"):
        _decode(data, replace(chunk, first_rows=chunk.first_rows[:3], stop_rows=chunk.stop_rows[:3]))


@pytest.mark.parametrize("cut", [1, 10, 40, 100])
def test_a_cut_page(cut: int) -> None:
    data = _write(_INTS, **_PLAIN)
    chunk = _chunk(data)
    pages = (*chunk.buffers[:3], chunk.buffers[3][:-cut])
    with pytest.raises(ParquetFormatError, match="a page of 2.. bytes where "):
        _decode(data, replace(chunk, buffers=pages))


def test_a_whole_chunk_that_holds_other_rows() -> None:
    data = _write(_INTS, write_page_index=False)
    chunk = whole_chunk(data, open_metadata(data), 0, 0)
    assert _decode(data, chunk).equals(_INTS)
    short = replace(chunk, stop_rows=np.array([101]))
    with pytest.raises(ParquetFormatError, match="the pages hold 100 values for 101 rows"):
        _decode(data, short)
    with pytest.raises(ParquetFormatError, match="the pages hold 100 values for 99 rows"):
        _decode(data, replace(chunk, stop_rows=np.array([99])))


@pytest.mark.parametrize("rows", [99, 101])
def test_a_whole_chunk_of_lists_that_holds_other_rows(rows: int) -> None:
    data = _write(_LISTS, write_page_index=False)
    chunk = whole_chunk(data, open_metadata(data), 0, 0)
    assert _decode(data, chunk).equals(_LISTS)
    with pytest.raises(ParquetFormatError, match=f"rows were decoded, promised are {rows}$"):
        _decode(data, replace(chunk, stop_rows=np.array([rows])))


def test_a_checksum_that_does_not_match() -> None:
    data = _write(_INTS, **_PLAIN, write_page_checksum=True)
    chunk = _chunk(data)
    page = bytearray(chunk.buffers[2])
    page[-1] ^= 1
    damaged = replace(chunk, buffers=(*chunk.buffers[:2], bytes(page), chunk.buffers[3]))
    with pytest.raises(ParquetFormatError, match="CRC"):
        _decode(data, damaged)


def test_the_checksum_of_a_dictionary_that_is_decoded_apart() -> None:
    data = _write(_TEXTS, write_page_checksum=True)
    chunk = _chunk(data)
    assert _decode(data, chunk).equals(_TEXTS)
    assert chunk.dictionary is not None
    page = bytearray(chunk.dictionary)
    page[-1] ^= 1
    with pytest.raises(ParquetFormatError, match="CRC"):
        _decode(data, replace(chunk, dictionary=bytes(page)))


def _said_to_be_uncompressed(chunk: ChunkPages) -> ChunkPages:
    # ARROW-10353: parquet-cpp before 2.0 set is_compressed to false in v2 pages that it had compressed.
    def deny(header: Struct) -> None:
        header[8][1][7] = (FALSE, False)

    return replace(chunk, buffers=tuple(_edit(page, deny) for page in chunk.buffers))


_OLD_WRITER = "parquet-cpp version 1.5.1-SNAPSHOT"


def test_an_old_writer_said_that_its_compressed_pages_were_not() -> None:
    data = _write(_TEXTS, **_V2, compression="SNAPPY")
    old = _said_to_be_uncompressed(_chunk(data))
    assert _decode(data, old, created_by=_OLD_WRITER).equals(_TEXTS)
    with pytest.raises(ParquetFormatError):
        _decode(data, old, created_by="another version 2.0.0")


def test_so_are_the_instants_of_an_old_writer_held_against_what_is_stored() -> None:
    ticks = _INTS.cast(pa.timestamp("us"))
    data = _write(ticks, **_V2, compression="SNAPPY", use_deprecated_int96_timestamps=True)
    found = _decode(data, _said_to_be_uncompressed(_chunk(data)), created_by=_OLD_WRITER)
    assert found.equals(ticks.cast(pa.timestamp("ns")))


def test_dictionary_pages() -> None:
    data = _write(_TEXTS)
    chunk = _chunk(data)
    assert chunk.dictionary is not None
    assert _decode(data, chunk).equals(_TEXTS)
    with pytest.raises(
        ParquetFormatError, match="data page 0 is dictionary-encoded, and there is no dictionary"
    ):
        _decode(data, replace(chunk, dictionary=None))
    with pytest.raises(ParquetFormatError, match="where the dictionary page should be is another page"):
        _decode(data, replace(chunk, dictionary=chunk.buffers[0]))
    with pytest.raises(ParquetFormatError, match="a dictionary of 90000 values in 90 bytes"):
        _decode(data, replace(chunk, dictionary=_edit(chunk.dictionary, _lie(7, 1, 90_000))))
    with pytest.raises(ParquetFormatError, match="cannot decode"):
        _decode(data, replace(chunk, dictionary=_edit(chunk.dictionary, _lie(7, 1, 3))))
    flags = pa.array([True] * 100)
    plain = _write(flags, **_PLAIN)
    with pytest.raises(ParquetFormatError, match="a dictionary of booleans"):
        _decode(plain, replace(_chunk(plain), dictionary=chunk.dictionary))


@pytest.mark.parametrize("codec", [3, 8, 99, -1])
def test_a_codec_that_nobody_reads(codec: int) -> None:
    data = _write(_INTS, **_PLAIN)
    with pytest.raises(ParquetFormatError, match=f"compression codec {codec} cannot be read"):
        _decode(data, replace(_chunk(data), codec=codec))


@pytest.mark.parametrize("codec", [1, 2, 4, 5, 6, 7])
def test_another_codec_than_the_pages_have(codec: int) -> None:
    data = _write(_INTS, **_PLAIN)
    with pytest.raises(ParquetFormatError, match="pyarrow cannot decode it"):
        _decode(data, replace(_chunk(data), codec=codec))


def test_sizes_beyond_the_limit_are_refused_before_they_are_allocated() -> None:
    data = _write(_INTS, **_PLAIN, max_rows_per_page=100)
    chunk = _chunk(data)
    assert _decode(data, chunk, limit=1_000).equals(_INTS)
    with pytest.raises(MemoryLimitError, match="row group 3, column c: pages of .* more than 700 bytes"):
        _decode(data, chunk, limit=700)
    (page,) = chunk.buffers
    bomb = replace(chunk, codec=6, buffers=(_edit(page, lambda h: h.update({2: (I32, 2**31 - 1)})),))
    with pytest.raises(MemoryLimitError, match="pages of 2147483647 bytes"):
        _decode(data, bomb, limit=1 << 29)
    many = replace(
        chunk,
        buffers=(_edit(page, _lie(5, 1, 2**31 - 1)),),
        stop_rows=np.array([2**31 - 1]),
        num_values=2**31,
    )
    with pytest.raises(MemoryLimitError, match="2147483647 values"):
        _decode(data, many, limit=1 << 29)


@pytest.mark.parametrize(
    ("kind", "nullable", "width"),
    [
        (pa.bool_(), False, 2),
        (pa.bool_(), True, 4),
        (pa.int64(), True, 10),
        (pa.list_(pa.bool_()), True, 6),
    ],
    ids=["booleans", "booleans or nulls", "integers or nulls", "lists of booleans"],
)
def test_values_that_take_no_bytes_of_the_page_count(kind: pa.DataType, nullable: bool, width: int) -> None:
    values = pa.nulls(100, kind) if nullable else pa.array([True] * 100)
    sink = pa.BufferOutputStream()
    rows = pa.Table.from_arrays([values], schema=pa.schema([pa.field("c", kind, nullable=nullable)]))
    pq.write_table(rows, sink, write_page_index=True, use_dictionary=False)
    data = sink.getvalue().to_pybytes()
    assert _decode(data, _chunk(data), limit=100 * width).equals(values)
    with pytest.raises(MemoryLimitError, match=f"and 100 values decode to more than {100 * width - 1} bytes"):
        _decode(data, _chunk(data), limit=100 * width - 1)


def test_prefixes_that_would_grow_beyond_the_limit() -> None:
    texts = pa.array(["x" * 50_000 + str(i % 10) for i in range(100)])
    data = _write(texts, use_dictionary=False, column_encoding={"c": "DELTA_BYTE_ARRAY"})
    chunk = _chunk(data)
    assert sum(map(len, chunk.buffers)) < 300_000
    assert _decode(data, chunk, limit=6_000_000).equals(texts)
    with pytest.raises(MemoryLimitError, match="column c: the column decodes to more than 1000000 bytes"):
        _decode(data, chunk, limit=1_000_000)


@pytest.mark.parametrize("codec", ["NONE", "SNAPPY", "ZSTD"])
def test_the_longest_text_of_a_dictionary(codec: str) -> None:
    data = _write(pa.array(["a", "", "a longer text", "b"] * 25), compression=codec)
    chunk = _chunk(data)
    assert chunk.dictionary is not None
    assert longest_text(chunk.dictionary, chunk.codec) == len("a longer text")
    torn = bytearray(chunk.dictionary)
    torn[-8:] = b"\xff" * 8
    with pytest.raises(ParquetFormatError):
        longest_text(bytes(torn), chunk.codec)


@pytest.mark.parametrize("codec", ["NONE", "SNAPPY", "ZSTD"])
@pytest.mark.parametrize("texts", [["abc", "def", "ghi"], ["", ""], ["abc", "de", "fghi"], ["", "abcd"]])
def test_the_longest_of_texts_of_one_length_and_of_others_that_come_to_as_much(
    codec: str, texts: list[str]
) -> None:
    chunk = _chunk(_write(pa.array(texts * 25), compression=codec))
    assert chunk.dictionary is not None
    assert longest_text(chunk.dictionary, chunk.codec) == max(map(len, texts))


LOOKALIKES = {
    "short texts": [b"a", b"bcd", b"x" * 255],
    "a text of 256 bytes": [b"a", b"x" * 256],
    "an empty text": [b"", b"a", b"bc"],
    "zeros within": [b"a\0\0\0b", b"c"],
    "zeros at the end": [b"a\0\0", b"bcd", b"\0"],
    "a text that is a dictionary": [b"\x01\0\0\0a\x02\0\0\0bc", b"d"],
    "one text": [b"abc"],
    "one empty text": [b""],
    "non-ASCII": [b"\xff\xfe", b"\x80", b"\x01\x02\x03\x04"],
}


@pytest.mark.parametrize("texts", LOOKALIKES.values(), ids=LOOKALIKES)
def test_the_longest_of_texts_that_hold_what_a_length_looks_like(texts: list[bytes]) -> None:
    chunk = _chunk(_write(pa.array(texts * 25, pa.binary())))
    assert chunk.dictionary is not None
    assert longest_text(chunk.dictionary, chunk.codec) == max(map(len, texts))


def test_the_longest_of_random_texts_over_few_bytes() -> None:
    dice = random.Random(3)
    for _ in range(60):
        texts = [bytes(dice.choices(b"\0\1\2a", k=dice.randrange(9))) for _ in range(dice.randrange(1, 30))]
        chunk = _chunk(_write(pa.array(texts * 3, pa.binary())))
        assert chunk.dictionary is not None
        assert longest_text(chunk.dictionary, chunk.codec) == max(map(len, texts))


def test_which_pages_need_the_dictionary() -> None:
    texts = pa.array([f"{i:06}" for i in range(1_000)])
    data = _write(texts, dictionary_pagesize_limit=1_000, data_page_size=500, write_batch_size=50)
    chunk = chosen_pages(data, open_metadata(data), 0, 0, RowSelection.all(1_000))
    flags = [needs_dictionary(page) for page in _chunk_pages(chunk)]
    assert flags == sorted(flags, reverse=True)
    assert (flags[0], flags[-1]) == (True, False)
    assert needs_dictionary(b"".join(_chunk_pages(chunk)))
    assert not needs_dictionary(b"")
    # What is wrong with a page is not told here.
    assert not needs_dictionary(bytes(_chunk_pages(chunk)[-1])[:-1])
    assert not needs_dictionary(b"\xff" * 9)


def _chunk_pages(chunk: ChunkPages) -> list[Buffer]:
    pages: list[Buffer] = []
    for buffer in chunk.buffers:
        at = 0
        while at < len(buffer):
            header = parse_page_header(buffer, at)
            end = at + header.header_length + header.compressed_size
            pages.append(buffer[at:end])
            at = end
    return pages


def test_facts_of_good_pages() -> None:
    data = _write(_TEXTS)
    meta = open_metadata(data)
    chunk = chosen_pages(data, meta, 0, 0, RowSelection.of([(30, 60)]))
    facts = verify_chunk(
        chunk, meta.schema.leaves[0], element=meta.schema.elements[1], memory_limit=None, place=lambda: "here"
    )
    assert facts.page_values.tolist() == [25, 25]
    assert facts.num_values == 50
    assert facts.parts == (chunk.dictionary, *chunk.buffers)
    assert facts.dictionary is not None
    assert (facts.dictionary.named, facts.dictionary.longest) == (50, 9 * len("text 1"))
    assert facts.prefixed == 0


def test_every_prefix_of_a_page_is_refused() -> None:
    data = _write(_TEXTS, compression="SNAPPY", max_rows_per_page=100)
    chunk = _chunk(data)
    (page,) = chunk.buffers
    for length in range(len(page)):
        with pytest.raises(AccelError):
            _decode(data, replace(chunk, buffers=(page[:length],)))


def test_a_flipped_byte_gives_an_error_or_sound_arrays() -> None:
    seed = zlib.crc32(b"flip")
    print("seed", seed)
    rng = random.Random(seed)
    data = _write(_LISTS, compression="ZSTD", write_page_checksum=True)
    chunk = _chunk(data)
    refused = 0
    for _ in range(200):
        pages = [bytearray(page) for page in chunk.buffers]
        page = rng.choice(pages)
        page[rng.randrange(len(page))] ^= 1 << rng.randrange(8)
        try:
            # With checksums, what decodes is what was written: only unused header bits may differ.
            found = _decode(data, replace(chunk, buffers=tuple(map(bytes, pages))), limit=1 << 26)
        except AccelError:
            refused += 1
        else:
            assert found.equals(_LISTS)
    assert refused > 150


TEXTS = {
    "many": [f"text {i * 7919 % 1000}" for i in range(5000)],
    "of one length": [f"{i:05}" for i in range(5000)],
    "few": ["a"] * 40,
    "nulls": [None if i % 5 == 0 else f"t{i}" for i in range(3000)],
    # With just one in a page its levels take the place of a text, and nothing is left over: that is not seen.
    "two nulls": ["abc", None, "d", None],
    "empty": [""] * 300,
    "one": ["x"],
}


def written(values: list[Any], *, nullable: bool, **settings: Any) -> bytes:
    sink = io.BytesIO()
    schema = pa.schema([pa.field("s", pa.string(), nullable=nullable)])
    keywords: dict[str, Any] = {"write_page_index": True, "data_page_size": 3000, "store_schema": False}
    pq.write_table(
        pa.table([pa.array(values)], schema=schema), sink, row_group_size=2000, **keywords | settings
    )
    return sink.getvalue()


def flipped(data: bytes) -> bytes:
    """The same file, whose schema says `required`; without the histograms that would contradict it."""
    length = int.from_bytes(data[-8:-4], "little")
    footer, _ = read_struct(data[-8 - length : -8])
    for element in footer[2][1].items[1:]:
        element[3] = (element[3][0], 0)
    for group in footer[4][1].items:
        for chunk in group[1][1].items:
            chunk[3][1].pop(16, None)
            for index in (6, 7):
                chunk.pop(index, None)
    made = bytes(write_struct(footer))
    return data[: -8 - length] + made + len(made).to_bytes(4, "little") + b"PAR1"


def rows_of(data: bytes, **keywords: Any) -> list[Any]:
    found = accel.scan("f", store=DictStore({"f": data}), cache=None, **keywords).to_table()
    out: list[Any] = found.column("s").to_pylist()
    return out


@pytest.mark.parametrize("compression", ["none", "snappy"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [False, True], ids=["plain", "dictionary"])
@pytest.mark.parametrize("texts", TEXTS)
def test_levels_are_not_taken_for_texts(texts: str, dictionary: bool, version: str, compression: str) -> None:
    values = TEXTS[texts]
    data = flipped(
        written(
            values,
            nullable=True,
            use_dictionary=dictionary,
            data_page_version=version,
            compression=compression,
        )
    )
    for keywords in (
        {},
        {"selection": {"f": {0: [(0, 1), (2, 3)][: len(values)]}}} if len(values) > 2 else {},
    ):
        try:
            found = rows_of(data, **keywords)
        except accel.ParquetFormatError:
            continue
        assert version == "2.0"
        assert found == ([values[0], values[2]] if keywords else values)


@pytest.mark.parametrize(
    "encoding", ["PLAIN", "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY", "dictionary", "both"]
)
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("texts", ["many", "of one length", "few", "empty", "one"])
def test_required_texts_are_read(texts: str, version: str, encoding: str) -> None:
    how: dict[str, Any] = {"use_dictionary": encoding in ("dictionary", "both")}
    if encoding == "both":
        how["dictionary_pagesize_limit"] = 500
    elif encoding != "dictionary":
        how["column_encoding"] = encoding
    values = TEXTS[texts]
    data = written(values, nullable=False, data_page_version=version, **how)
    assert rows_of(data) == values
    assert rows_of(data, where="s = 'text 7' OR s = 'a' OR s = '' OR s = 'x'") == [
        value for value in values if value in ("text 7", "a", "", "x")
    ]


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd", "brotli", "lz4"])
@pytest.mark.parametrize("kind", [pa.string(), pa.int64(), pa.int32(), pa.binary(3), pa.bool_()], ids=str)
def test_bytes_behind_required_values_are_passed_over(kind: pa.DataType, compression: str) -> None:
    """fastparquet leaves some there."""
    values = [f"t{n:02}" for n in range(40)]
    array = pa.array(values if kind in (pa.string(), pa.binary(3)) else range(4, 44))
    array = array.cast(kind) if kind != pa.bool_() else pa.array([n % 3 == 0 for n in range(40)])
    sink = io.BytesIO()
    table = pa.Table.from_arrays([array], schema=pa.schema([pa.field("s", kind, nullable=False)]))
    pq.write_table(table, sink, use_dictionary=False, compression=compression, store_schema=False)
    data = _with_bytes_behind(sink.getvalue(), compression)
    assert pq.read_table(pa.BufferReader(data)).column("s").to_pylist() == array.to_pylist()
    assert rows_of(data) == array.to_pylist()
    assert rows_of(data, selection={"f": {0: [(7, 9)]}}) == array.to_pylist()[7:9]


def _with_bytes_behind(data: bytes, compression: str) -> bytes:
    """The file of one page with eight bytes more behind its values."""
    length = int.from_bytes(data[-8:-4], "little")
    footer, _ = read_struct(data[-8 - length : -8])
    meta = footer[4][1].items[0][1][1].items[0][3][1]
    header, at = read_struct(data, meta[9][1])
    name = {"none": None, "lz4": "lz4_raw"}.get(compression, compression)
    body = data[at : at + header[3][1]]
    size = header[2][1]
    raw = body if name is None else pa.decompress(body, decompressed_size=size, codec=name, asbytes=True)
    raw += bytes(8)
    body = raw if name is None else pa.compress(raw, codec=name, asbytes=True)
    header[2], header[3] = (header[2][0], len(raw)), (header[3][0], len(body))
    page = bytes(write_struct(header)) + body
    meta[7] = (meta[7][0], len(page))
    made = bytes(write_struct(footer))
    return b"PAR1" + page + made + len(made).to_bytes(4, "little") + b"PAR1"
