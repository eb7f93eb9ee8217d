"""Pages of lists that begin with a row, or within one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from accel.decode.chunks import page_begins_with_row
from accel.format.model import Codec
from accel.format.page_header import walk_pages
from accel.testing import Layout, table, write_file
from tests.support.file_steps import Bytes, split_rows

CODECS = {
    "none": Codec.UNCOMPRESSED,
    "snappy": Codec.SNAPPY,
    "gzip": Codec.GZIP,
    "zstd": Codec.ZSTD,
    "lz4": Codec.LZ4_RAW,
}


def pages_of(*, split: bool = False, **layout: object) -> list[memoryview]:
    lists = pa.array([list(range(i, i + 8)) for i in range(1_000)])
    data = write_file(table(x=lists), Layout(page_rows=100, dictionary=False, **layout))  # type: ignore[arg-type]
    chunks = Bytes(data).open().metadata.chunks
    start, end = int(chunks.start[0, 0]), int(chunks.end[0, 0])
    chunk = memoryview(data)[start:end]
    if split:
        chunk = memoryview(split_rows(chunk))
    found = walk_pages(chunk, max_pages=100)
    ends = found.end.tolist()
    return [chunk[at:end] for at, end in zip([0, *ends], ends, strict=False)]


@pytest.mark.parametrize("data_page", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", CODECS)
def test_what_begins_with_a_row(codec: str, data_page: str) -> None:
    pages = pages_of(codec=codec, data_page=data_page)
    assert len(pages) == 10
    for page in pages:
        assert page_begins_with_row(page, codec=CODECS[codec], max_repetition=1)


@pytest.mark.parametrize("data_page", ["1.0", "2.0"])
def test_what_begins_within_one(data_page: str) -> None:
    first, *others = pages_of(codec="none", data_page=data_page, split=True)
    assert page_begins_with_row(first, codec=Codec.UNCOMPRESSED, max_repetition=1)
    assert not any(page_begins_with_row(page, codec=Codec.UNCOMPRESSED, max_repetition=1) for page in others)


@pytest.mark.parametrize("data_page", ["1.0", "2.0"])
def test_of_what_is_damaged_it_is_not_told(data_page: str) -> None:
    page = pages_of(codec="zstd", data_page=data_page, checksums=True)[3]
    assert page_begins_with_row(page, codec=Codec.ZSTD, max_repetition=1)
    rng = np.random.default_rng(0)
    for cut in (0, 1, 10, len(page) - 1):
        assert not page_begins_with_row(page[:cut], codec=Codec.ZSTD, max_repetition=1)
    for at in rng.integers(40, len(page), 20).tolist():
        flipped = bytearray(page)
        flipped[at] ^= 0x10
        assert not page_begins_with_row(memoryview(flipped), codec=Codec.ZSTD, max_repetition=1)


def test_nor_of_what_is_too_large_or_of_another_codec() -> None:
    page = pages_of(codec="zstd")[3]
    assert not page_begins_with_row(page, codec=Codec.ZSTD, max_repetition=1, memory_limit=1_000)
    assert page_begins_with_row(page, codec=Codec.ZSTD, max_repetition=1, memory_limit=1 << 20)
    assert not page_begins_with_row(page, codec=Codec.SNAPPY, max_repetition=1)
    assert not page_begins_with_row(page, codec=Codec.BROTLI, max_repetition=1)
