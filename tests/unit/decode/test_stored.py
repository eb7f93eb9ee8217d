"""A stored page is the same page: pyarrow decodes the same values from it, whatever the codec."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel.decode.codecs import _STORES, StoredPage, store_bytes, store_page
from accel.decode.dictionary_decode import dictionary_values
from accel.format.footer import parse_footer
from accel.format.model import Codec
from accel.format.page_header import parse_page_header
from accel.testing import table

CODECS = [codec for codec in _STORES]
VALUES = {
    "texts": pa.array([f"name {i % 3000:05}" for i in range(9000)]),
    "numbers": pa.array([i % 40_000 * 3 for i in range(90_000)]),
    "one": pa.array(["x"] * 9),
}


def first_page(array: pa.Array, codec: str, **options: object) -> tuple[bytes, int, object]:
    """The dictionary page of a chunk, its codec and its schema element."""
    sink = io.BytesIO()
    pq.write_table(table(x=array), sink, compression=codec, use_dictionary=True, **options)
    data = sink.getvalue()
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    metadata = parse_footer(data[start:-8], file_size=len(data), footer_start=start)
    at = int(metadata.chunks.start[0, 0])
    header = parse_page_header(data, at)
    page = data[at : at + header.header_length + header.compressed_size]
    return page, int(metadata.chunks.codec[0, 0]), metadata.schema.elements[metadata.schema.leaves[0].element]


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("checksum", [True, False], ids=["with CRC", "without"])
@pytest.mark.parametrize("codec", ["snappy", "gzip", "zstd", "lz4"])
def test_it_decodes_to_the_same_values(codec: str, checksum: bool, values: str) -> None:
    array = VALUES[values]
    page, number, element = first_page(array, codec, write_page_checksum=checksum)
    stored = store_page(page, number)
    header = parse_page_header(stored)
    assert header.crc is None
    assert header.uncompressed_size == parse_page_header(page).uncompressed_size
    assert header.header_length + header.compressed_size == len(stored)
    assert header.compressed_size >= header.uncompressed_size
    expected = dictionary_values(page, number, element, arrow_type=array.type)  # type: ignore[arg-type]
    assert dictionary_values(stored, number, element, arrow_type=array.type).equals(expected)  # type: ignore[arg-type]
    assert expected.equals(array.unique())


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: Codec(codec).name)
@given(data=st.binary(max_size=300) | st.integers(0, 600_000).map(lambda n: bytes(range(256)) * (n // 256)))
def test_every_codec_reads_what_is_stored(codec: int, data: bytes) -> None:
    name, stored = Codec(codec).arrow_name, store_bytes(data, codec)
    found = pa.Codec(name).decompress(stored, decompressed_size=len(data), asbytes=True) if data else b""
    assert found == data


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda page: page[:-1], id="cut"),
        pytest.param(lambda page: page[:-9] + bytes(9), id="damaged"),
        pytest.param(lambda page: b"", id="nothing"),
        pytest.param(lambda page: b"\xff" * 40, id="no page"),
    ],
)
def test_what_does_not_decode_stays_as_it_is(change: object) -> None:
    page, codec, _ = first_page(VALUES["texts"], "zstd", write_page_checksum=True)
    changed = change(page)  # type: ignore[operator]
    stored = store_page(changed, codec)
    assert type(stored) is StoredPage
    assert stored == changed


@pytest.mark.parametrize("codec", [Codec.UNCOMPRESSED, Codec.BROTLI, Codec.LZ4, 99])
def test_codecs_without_a_stored_form(codec: int) -> None:
    page, _, _ = first_page(VALUES["texts"], "zstd")
    assert store_page(page, codec) == page


def test_a_page_that_would_grow_too_much_is_left() -> None:
    page, codec, _ = first_page(pa.array(["x" * 2_000_000, "y" * 2_500_000]), "zstd")
    assert len(page) < 10_000
    assert store_page(page, codec) == page


PICKED = {
    "numbers": (pa.array(np.arange(200_000) * 7), [0, 1, 16_383, 16_384, 16_385, 131_071, 199_999, 3, 3]),
    "half numbers": (pa.array(np.arange(70_000, dtype=np.int32)), [69_999, 0, 32_767, 32_768]),
    "texts of one length": (
        pa.array([f"{i * 48_271 % (1 << 31):010}" for i in range(40_000)]),
        [*range(10_070, 10_100), 39_999, 0],
    ),
    "texts of none": (pa.array([""]), [0, 0]),
    "few": (pa.array([7]), [0]),
    "decimals": (pa.array(range(50_000)).cast(pa.decimal128(22, 0)), [49_999, 13_106, 13_107, 13_108]),
}
