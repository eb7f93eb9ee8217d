"""Decompression by cramjam and by pyarrow agree, and stored pages decode to the same values with every
codec."""

from __future__ import annotations

import io
import random
import subprocess
import sys
import zlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel.decode import codecs
from accel.decode.codecs import STORES, StoredPage, decompress, store_bytes, store_page
from accel.decode.dictionary_decode import dictionary_values
from accel.format.footer import parse_footer
from accel.format.model import Codec, Encoding, PageType
from accel.format.page_header import parse_page_header
from accel.format.thrift import I32, STRUCT, write_struct
from accel.testing import table

_SIZES = [0, 1, 59, 60, 61, 1_000, 65_535, 65_536, 65_537, 300_000]


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> codecs.CramjamLibrary:
    fresh = codecs.CramjamLibrary()
    monkeypatch.setattr(codecs, "cramjam_library", fresh)
    return fresh


def _use(library: codecs.CramjamLibrary, *, fast: bool) -> None:
    library.decompress, library.missing = None, not fast
    if fast:
        codecs.load_library()
        assert library.decompress is not None


def _bytes(kind: str, size: int, rng: random.Random) -> bytes:
    if kind == "noise":
        return rng.randbytes(size)
    if kind == "zeros":
        return bytes(size)
    words = [rng.randbytes(rng.randrange(1, 90)) for _ in range(20)]
    data = b"".join(rng.choices(words, k=size // 10 + 1))
    return (data * (size // max(1, len(data)) + 1))[:size]


def _by_both(library: codecs.CramjamLibrary, body: bytes, size: int) -> list[bytes | None]:
    found = []
    for fast in (True, False):
        _use(library, fast=fast)
        raw = decompress(memoryview(body), Codec.SNAPPY, size=size)
        found.append(None if raw is None else raw.tobytes())
    return found


@pytest.mark.parametrize("kind", ["noise", "zeros", "words"])
@pytest.mark.parametrize("size", _SIZES)
def test_both_decompress_to_the_same_bytes(kind: str, size: int, library: codecs.CramjamLibrary) -> None:
    data = _bytes(kind, size, random.Random(size))
    body = pa.Codec("snappy").compress(data, asbytes=True)
    assert _by_both(library, body, size) == [data, data]


@pytest.mark.parametrize("due", [-1, 1, -100, 100])
def test_another_size_than_the_page_s_is_refused_by_both(due: int, library: codecs.CramjamLibrary) -> None:
    body = pa.Codec("snappy").compress(_bytes("words", 5_000, random.Random(1)), asbytes=True)
    assert _by_both(library, body, 5_000 + due) == [None, None]


@pytest.mark.parametrize("seed", range(8))
def test_of_damaged_bytes_both_make_the_same(seed: int, library: codecs.CramjamLibrary) -> None:
    rng = random.Random(seed)
    refused = 0
    for _ in range(150):
        size = rng.choice([40, 700, 9_000])
        body = bytearray(
            pa.Codec("snappy").compress(_bytes(rng.choice(["noise", "words"]), size, rng), asbytes=True)
        )
        for _ in range(rng.choice([1, 1, 4])):
            at = rng.randrange(len(body))
            match rng.randrange(3):
                case 0:
                    body[at] = rng.randrange(256)
                case 1:
                    del body[at : at + rng.randrange(1, 4)]
                case _:
                    body[at:at] = rng.randbytes(rng.randrange(1, 4))
            body = body or bytearray(1)
        fast, slow = _by_both(library, bytes(body), size)
        assert fast == slow
        refused += fast is None
    assert 10 < refused < 150


def test_what_is_written_into_has_the_size_that_is_due(library: codecs.CramjamLibrary) -> None:
    _use(library, fast=True)
    unpack = library.decompress
    assert unpack is not None
    body = pa.Codec("snappy").compress(b"x" * 1_000, asbytes=True)
    held = np.full(1_020, 7, np.uint8)
    assert unpack(body, held[10:1_010])
    assert held.tobytes() == b"\7" * 10 + b"x" * 1_000 + b"\7" * 10
    held[:] = 7
    # A longer one is refused before a byte is written.
    assert not unpack(body, held[10:1_009])
    assert (held == 7).all()
    assert not unpack(body, held[10:1_011])


def test_the_library_is_loaded_once_it_pays(library: codecs.CramjamLibrary) -> None:
    assert codecs.fast_snappy(5 << 20) is None
    assert library.decompress is None
    assert codecs.fast_snappy((3 << 20) - 1) is None
    found = codecs.fast_snappy(1)
    assert found is not None
    assert codecs.fast_snappy(0) is found


def test_without_the_library_pyarrow_decompresses(
    library: codecs.CramjamLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cramjam", None)
    assert codecs.fast_snappy(1 << 30) is None
    assert library.missing
    data = _bytes("words", 5_000, random.Random(2))
    body = pa.Codec("snappy").compress(data, asbytes=True)
    raw: Any = decompress(memoryview(body), Codec.SNAPPY, size=5_000)
    assert raw.tobytes() == data
    # It is not looked for again.
    monkeypatch.undo()
    assert library.missing


_SMALL = """
import sys
import pyarrow as pa
import accel
from accel.testing import DictStore, Layout, bench_table, write_file
data = write_file(bench_table(2_000), Layout(codec="snappy"))
scan = accel.scan("memory:///x.parquet", where=accel.col("key") > 1_500, store=DictStore({"x.parquet": data}))
assert scan.to_table().num_rows
print("cramjam" in sys.modules)
"""


def test_a_first_scan_of_few_bytes_does_not_load_it() -> None:
    command = [sys.executable, "-c", _SMALL]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr) == ("False\n", "")


CODECS = [codec for codec in STORES]
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
