"""Runs of pages: whole chunks walked, several of them at once, and bytes that end too soon."""

from __future__ import annotations

import zlib

import numpy as np
import pyarrow as pa
import pytest

from accel.errors import ParquetFormatError
from accel.format.model import Encoding, PageType
from accel.format.page_header import parse_page_header, walk_chunks, walk_pages
from tests.unit.format.files import parse, write
from tests.unit.format.test_page_header import DICTIONARY, V1, V2, header

ROWS = 3000


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_walking_whole_chunks(version):
    values = pa.array([None if i % 5 == 0 else i % 50 for i in range(ROWS)], pa.int64())
    raw = write(
        pa.Table.from_arrays([values, pa.array(np.arange(ROWS))], ["n", "i"]),
        data_page_version=version,
        max_rows_per_page=200,
        use_dictionary=["n"],
        compression="zstd",
        write_page_checksum=True,
    )
    chunks = parse(raw).chunks
    for column, encoding in ((0, Encoding.RLE_DICTIONARY), (1, Encoding.PLAIN)):
        start, end = int(chunks.start[0, column]), int(chunks.end[0, column])
        pages = walk_pages(memoryview(raw)[start:end], max_pages=16)
        data = pages.type != PageType.DICTIONARY_PAGE
        assert pages.num_pages == 15 + (column == 0)
        assert (pages.start[0], pages.end[-1]) == (0, end - start)
        assert (pages.start[1:] == pages.end[:-1]).all()
        assert pages.num_values[data].sum() == chunks.num_values[0, column] == ROWS
        assert set(pages.encoding[data].tolist()) == {encoding}
        assert (pages.uncompressed + pages.body - pages.start).sum() == chunks.uncompressed[0, column]
        if version == "2.0":
            assert pages.num_rows[data].tolist() == [200] * 15
            assert pages.num_nulls[data].sum() == (600 if column == 0 else 0)
            assert (pages.level_bytes[data] > 0).all()
        else:
            assert set(pages.num_rows.tolist() + pages.num_nulls.tolist()) == {-1}
        if column == 0:
            assert (pages.type[0], pages.num_values[0]) == (PageType.DICTIONARY_PAGE, 40)
        for page in range(pages.num_pages):
            one = parse_page_header(raw, start + int(pages.start[page]))
            assert one.header_length == pages.body[page] - pages.start[page]
            body = raw[start + pages.body[page] : start + pages.end[page]]
            assert one.crc == zlib.crc32(body)


def test_a_walk_may_stop_at_the_values_and_leave_padding():
    page = header(0, stored=4, size=4, f5=V1) + b"body"
    assert walk_pages(page * 3 + b"\xff" * 100, max_pages=9, num_values=30).num_pages == 3
    with pytest.raises(ParquetFormatError):
        walk_pages(page * 3 + b"\xff" * 100, max_pages=9)
    assert walk_pages(b"", max_pages=0).num_pages == 0


def test_a_walk_is_bounded():
    page = header(0, stored=0, size=0, f5=V1)
    assert walk_pages(page * 5, max_pages=5).num_pages == 5
    with pytest.raises(ParquetFormatError, match="more than 4 pages"):
        walk_pages(page * 5, max_pages=4)


def test_a_body_beyond_the_bytes_is_refused():
    with pytest.raises(ParquetFormatError, match="60 bytes where 59 are left") as caught:
        walk_pages(header(0, f5=V1) + bytes(59), max_pages=1)
    assert caught.value.place == "page header at byte 0"


DATA = header(0, stored=4, size=4, f5=V1) + b"body"
ENTRIES = header(2, stored=3, size=3, f7=DICTIONARY) + b"abc"
CHUNKS = {
    "each with a dictionary": [ENTRIES + DATA, ENTRIES + DATA * 2, ENTRIES + DATA],
    "with other headers between": [
        DATA,
        header(3, stored=8, size=9, f8=V2) + b"a newer one"[:8] + DATA,
        DATA,
    ],
    "with padding": [DATA + b"\xff" * 9, DATA * 3 + b"\0", DATA],
    "of which one is empty": [DATA, b"", DATA],
    "none": [],
}


@pytest.mark.parametrize("chunks", CHUNKS.values(), ids=CHUNKS)
def test_chunks_walked_together_have_the_pages_of_each(chunks: list[bytes]) -> None:
    values = [10 * (chunk.count(b"body") + chunk.count(b"a newer")) for chunk in chunks]
    table, counts = walk_chunks(chunks, num_values=values, max_pages=9)
    each = [walk_pages(chunk, max_pages=9, num_values=due) for chunk, due in zip(chunks, values, strict=True)]
    assert counts.tolist() == [pages.num_pages for pages in each]
    for name in ("start", "body", "end", "uncompressed", "crc", "num_values", "type", "num_rows", "num_nulls",
                 "encoding", "level_bytes", "definition_bytes", "is_compressed", "level_encoding"):  # fmt: skip
        found = getattr(table, name)
        assert found.tolist() == [one for pages in each for one in getattr(pages, name).tolist()], name
        assert not each or found.dtype == getattr(each[0], name).dtype, name


def test_the_bound_holds_for_each_of_several_chunks() -> None:
    _, counts = walk_chunks([DATA * 4] * 3, num_values=[40] * 3, max_pages=4)
    assert counts.tolist() == [4, 4, 4]
    with pytest.raises(ParquetFormatError, match="more than 4 pages"):
        walk_chunks([DATA, DATA * 5], num_values=[10, 50], max_pages=4)


def test_the_last_of_several_chunks_ends_too_soon() -> None:
    with pytest.raises(ParquetFormatError, match="4 bytes where 3 are left"):
        walk_chunks([DATA, DATA[:-1]], num_values=[10, 10], max_pages=4)
    with pytest.raises(ParquetFormatError, match="ends early"):
        walk_chunks([DATA, DATA[:9]], num_values=[10, 10], max_pages=4)
