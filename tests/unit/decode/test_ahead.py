"""Pages decompressed together are what each comes to by itself, and what is odd about one is left to the decoder."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from accel.decode import chunks
from accel.decode.chunks import Unpacked
from accel.format.model import Codec
from accel.format.page_header import walk_pages
from accel.format.thrift import I32, read_struct, write_struct
from accel.testing import table

_UNCOMPRESSED, _COMPRESSED = 2, 3


def pages(array: pa.Array, **options: object) -> list[bytes]:
    """The pages of a chunk, one by one, headers included."""
    sink = io.BytesIO()
    settings = {"compression": "zstd", "use_dictionary": False, "data_page_size": 2048, **options}
    pq.write_table(table(x=array), sink, write_batch_size=100, **settings)
    data = sink.getvalue()
    chunk = pq.read_metadata(io.BytesIO(data)).row_group(0).column(0)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    held = data[start : start + chunk.total_compressed_size]
    walked = walk_pages(held, max_pages=1000)
    return [held[a:b] for a, b in zip(walked.start.tolist(), walked.end.tolist(), strict=True)]


def body_of(page: bytes, codec: int = Codec.ZSTD) -> bytes:
    """As the codec decompresses it by itself."""
    walked = walk_pages(page, max_pages=1)
    body, size = page[int(walked.body[0]) :], int(walked.uncompressed[0])
    return bytes(pa.Codec(Codec(codec).arrow_name).decompress(body, decompressed_size=size, asbytes=True))


def unpack_pages(given: Sequence[bytes], codec: int = Codec.ZSTD) -> list[Unpacked | None]:
    return chunks.unpack_pages([(page, codec) for page in given])


NUMBERS = pa.array(np.arange(5000) * 7919 % 10_007)
TEXTS = pa.array([f"text number {row * row}" for row in range(3000)])
NULLS = pa.array([None if row % 3 else row for row in range(4000)])


@pytest.mark.parametrize("index", [True, False], ids=["page index", "none"])
@pytest.mark.parametrize("checksum", [True, False], ids=["with CRC", "without"])
@pytest.mark.parametrize("array", [NUMBERS, TEXTS, NULLS], ids=["numbers", "texts", "nulls"])
@pytest.mark.parametrize("codec", [Codec.ZSTD, Codec.SNAPPY, Codec.GZIP, Codec.LZ4_RAW], ids=lambda c: c.name)
def test_each_is_what_it_comes_to_by_itself(
    codec: Codec, array: pa.Array, checksum: bool, index: bool
) -> None:
    # Without a page index the headers have statistics, and are of another form.
    name = "lz4" if codec == Codec.LZ4_RAW else codec.name
    given = pages(array, write_page_checksum=checksum, write_page_index=index, compression=name)
    assert len(given) > 3
    found = unpack_pages(given, codec)
    for page, one in zip(given, found, strict=True):
        assert one is not None
        assert one.body.tobytes() == body_of(page, codec)
        walked = walk_pages(page, max_pages=1)
        assert (one.table.body.tolist(), one.table.num_values.tolist(), one.table.crc.tolist()) == (
            walked.body.tolist(),
            walked.num_values.tolist(),
            walked.crc.tolist(),
        )


def test_no_pages() -> None:
    assert unpack_pages([]) == []


def claiming(page: bytes, field: int, value: int) -> bytes:
    """A page whose header says something else."""
    fields, end = read_struct(page)
    fields[field] = (I32, value)
    return write_struct(fields) + page[end:]


def test_what_is_odd_is_left_and_the_others_are_not() -> None:
    first, second, *_ = pages(NUMBERS)
    (dictionary, *_), (v2, *_) = pages(NUMBERS, use_dictionary=True), pages(NUMBERS, data_page_version="2.0")
    size = len(body_of(first))
    odd = {
        "dictionary": dictionary,
        "v2": v2,
        "larger than told": claiming(first, _UNCOMPRESSED, size - 1),
        "smaller than told": claiming(first, _UNCOMPRESSED, size + 1),
        "a bomb": claiming(first, _UNCOMPRESSED, 2**31 - 1),
        "cut": first[:-1],
        "longer": first + b"\0",
        "ends elsewhere": claiming(first, _COMPRESSED, 7),
        "ends far away": claiming(first, _COMPRESSED, 2**31 - 1),
        "nothing": b"",
        "noise": b"\xff" * 60,
    }
    found = unpack_pages([first, *odd.values(), second])
    assert dict(zip(odd, found[1:-1], strict=True)) == dict.fromkeys(odd)
    assert [found[0] is not None, found[-1] is not None] == [True, True]
    assert found[-1].body.tobytes() == body_of(second)  # type: ignore[union-attr]


def test_one_that_does_not_decompress_is_left_to_the_decoder() -> None:
    first, second, *_ = pages(NUMBERS)
    broken = bytearray(second)
    broken[-60:-20] = bytes(40)
    with pytest.raises(OSError, match="ZSTD"):
        body_of(bytes(broken))
    found = unpack_pages([first, bytes(broken)])
    assert [page is None for page in found] == [False, True]


def test_a_large_one_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, *_ = sorted(pages(TEXTS), key=lambda page: len(body_of(page)))
    monkeypatch.setattr(chunks, "_LARGEST", len(body_of(second)) - 1)
    found = unpack_pages([second, first])
    assert [one is None for one in found] == [True, len(body_of(first)) == len(body_of(second))]


def test_of_other_codecs_only_the_one_that_does_not_decompress_is_left() -> None:
    first, second, third, *_ = pages(NUMBERS, compression="snappy")
    broken = bytearray(second)
    broken[-60:-20] = b"\xff" * 40
    found = unpack_pages([first, bytes(broken), third], Codec.SNAPPY)
    assert [one is None for one in found] == [False, True, False]
    assert found[2].body.tobytes() == body_of(third, Codec.SNAPPY)  # type: ignore[union-attr]
    assert unpack_pages([first], Codec.BROTLI) == [None]


def test_pages_of_several_codecs() -> None:
    zstd, snappy = pages(NUMBERS)[0], pages(NUMBERS, compression="snappy")[0]
    found = chunks.unpack_pages([(zstd, Codec.ZSTD), (snappy, Codec.SNAPPY), (zstd, Codec.SNAPPY)])
    assert [one is None for one in found] == [False, False, True]
    bodies = [one.body.tobytes() for one in found[:2]]  # type: ignore[union-attr]
    assert bodies == [body_of(zstd), body_of(snappy, Codec.SNAPPY)]
