"""Bodies of pages come decompressed to the very size that the header gives, or not at all."""

from __future__ import annotations

import zlib

import numpy as np
import pyarrow as pa
import pytest

from accel.decode.codecs import store_page
from accel.decode.plain_pages import decompress
from accel.format.model import Codec, Encoding, PageType
from accel.format.thrift import I32, STRUCT, write_struct

_CODECS = [Codec.UNCOMPRESSED, Codec.SNAPPY, Codec.GZIP, Codec.ZSTD, Codec.LZ4_RAW]
_DATA = np.arange(700, dtype="<i8").tobytes()


def _packed(codec: Codec, data: bytes) -> bytes:
    return data if codec is Codec.UNCOMPRESSED else pa.Codec(codec.arrow_name).compress(data, asbytes=True)


@pytest.mark.parametrize("codec", _CODECS, ids=lambda codec: codec.name)
@pytest.mark.parametrize("data", [_DATA, _DATA[:1], b""], ids=["many", "one", "none"])
@pytest.mark.parametrize("promised", [-1, 0, 1, 8, 4096])
def test_only_the_promised_size_comes(codec: Codec, data: bytes, promised: int) -> None:
    size = len(data) + promised
    if size < 0:
        return
    found = decompress(memoryview(_packed(codec, data)), codec, size=size)
    if promised:
        assert found is None
    elif data or found is not None:
        assert found is not None
        assert found.tobytes() == data


def test_deflate_in_any_wrapper_and_whole() -> None:
    plain = zlib.compress(_DATA)
    found = decompress(memoryview(plain), Codec.GZIP, size=len(_DATA))
    assert found is not None
    assert found.tobytes() == _DATA
    assert decompress(memoryview(plain[:-1]), Codec.GZIP, size=len(_DATA)) is None


@pytest.mark.parametrize("codec", [0, 3, 4, 5, 77])
def test_what_is_left_to_pyarrow(codec: int) -> None:
    assert decompress(memoryview(b"\x00" * 9), codec, size=8) is None


@pytest.mark.parametrize("codec", _CODECS[1:], ids=lambda codec: codec.name)
def test_a_dictionary_that_comes_short_is_not_stored(codec: Codec) -> None:
    body = _packed(codec, _DATA)
    page = (
        write_struct(
            {
                1: (I32, int(PageType.DICTIONARY_PAGE)),
                2: (I32, len(_DATA) + 8),
                3: (I32, len(body)),
                7: (STRUCT, {1: (I32, 701), 2: (I32, int(Encoding.PLAIN))}),
            }
        )
        + body
    )
    assert bytes(store_page(page, codec)) == page
