"""Compression codecs of pages: decompressing a page's body, and storing it so that it costs a copy to
decompress.

Snappy is decompressed by cramjam, which takes a third to two thirds of pyarrow's time; the library is loaded
once that pays. The other codecs are pyarrow's and zlib's.

A dictionary page of a megabyte takes milliseconds to decompress, and each lookup of a dictionary-encoded
column needs it. Every codec has a form for bytes that it cannot compress: a page rewritten to that form is an
ordinary page of the same chunk.

Sources: RFC 8878 (3.1.1, raw blocks), snappy `format_description.txt` (literals), lz4 `lz4_Block_format.md`
(last sequence), RFC 1951 (3.2.4, stored blocks).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel.errors import AccelError, ParquetFormatError
from accel.format.model import Codec, PageType
from accel.format.page_header import parse_page_header
from accel.format.thrift import I32, encode_varint, read_struct, write_struct
from accel.memory import allocate, pool
from accel.ranges import Buffer

__all__ = [
    "STORABLE",
    "Bytes",
    "Decompress",
    "StoredPage",
    "UncompressedPage",
    "check_crc",
    "decompress",
    "fast_snappy",
    "is_uncompressed",
    "store_bytes",
    "store_page",
]

Bytes = npt.NDArray[np.uint8]
Decompress: TypeAlias = "Callable[[Buffer, Bytes | memoryview | pa.Buffer], bool]"
"""Decompresses bytes into a buffer of the expected size, and returns whether they filled it exactly."""

_CODECS: Final[dict[int, str]] = {
    codec: codec.arrow_name for codec in (Codec.SNAPPY, Codec.ZSTD, Codec.LZ4_RAW, Codec.BROTLI)
}
_SILENT: Final = frozenset({Codec.LZ4_RAW, Codec.BROTLI})
"""Codecs for which pyarrow does not report that fewer bytes came out than expected."""
_ANY_WRAPPER: Final = 32 + zlib.MAX_WBITS
"""Deflate streams in gzip's wrapper, or in zlib's, which some writers use."""


def check_crc(page: memoryview, crc: int | None) -> None:
    """Compare the stored body of a page with its checksum; a checksum of 0 stands for none.

    Raises
    ------
    ParquetFormatError
        They differ.
    """
    if crc is not None and crc > 0 and zlib.crc32(page) != crc:
        raise ParquetFormatError("the CRC checksum of a page is not that of its bytes")


def decompress(body: memoryview, codec: int, *, size: int) -> Bytes | None:
    """Decompress a page's body of `size` bytes; None where it has another size or the codec is not supported
    here.

    The result may be a view of a body that is stored without compression.
    """
    if codec == Codec.UNCOMPRESSED:
        return np.frombuffer(body, np.uint8) if len(body) == size else None
    if codec == Codec.GZIP:
        return _inflate(body, size)
    name = _CODECS.get(codec)
    if name is None:
        return None
    if codec == Codec.SNAPPY:
        head = _snappy_head(size)
        if body[: len(head)] == head and len(body) == len(head) + size:
            return np.frombuffer(body, np.uint8)[len(head) :]
        if not body[:5].tobytes().startswith(_snappy_size(size)):
            return None
    fast = fast_snappy(size) if codec == Codec.SNAPPY else None
    if fast is not None:
        out = allocate(size)
        return np.frombuffer(out, np.uint8) if fast(body, out) else None
    unpack = partial(pa.Codec(name).decompress, pa.py_buffer(body), memory_pool=pool())
    try:
        data = unpack(decompressed_size=size)
    except (pa.ArrowException, OSError, ValueError):
        # pyarrow's reader reports what is wrong with it.
        return None
    if codec in _SILENT and size:
        # Where less came out, the rest of the buffer is arbitrary memory.
        with suppress(pa.ArrowException, OSError):
            unpack(decompressed_size=size - 1)
            return None
    return np.frombuffer(data, np.uint8)


def _inflate(body: memoryview, size: int) -> Bytes | None:
    stream = zlib.decompressobj(_ANY_WRAPPER)
    try:
        data = stream.decompress(body, size + 1)
    except zlib.error:
        return None
    return np.frombuffer(data, np.uint8) if stream.eof and len(data) == size else None


_LEAST_SNAPPY: Final = 8 << 20
"""Decompressed bytes at which cramjam saves what loading it takes, 1 to 3 ms."""


class CramjamLibrary:
    """Whether cramjam is loaded."""

    __slots__ = ("decompress", "missing", "seen")

    def __init__(self) -> None:
        self.decompress: Decompress | None = None
        self.missing = False
        self.seen = 0
        """Bytes that were decompressed without it."""


cramjam_library = CramjamLibrary()


def fast_snappy(nbytes: int) -> Decompress | None:
    """Return cramjam's function, or None where pyarrow's is to be used.

    `nbytes` is the number of bytes that are about to be decompressed.
    """
    if cramjam_library.decompress is not None or cramjam_library.missing:
        return cramjam_library.decompress
    # Threads may lose one another's count, which only delays loading.
    cramjam_library.seen += nbytes
    if cramjam_library.seen >= _LEAST_SNAPPY:
        load_library()
    return cramjam_library.decompress


def load_library() -> None:
    try:
        from cramjam import DecompressionError, snappy
    except ImportError:
        cramjam_library.missing = True
        return
    cramjam_library.decompress = _checked(snappy.decompress_raw_into, DecompressionError)


def _checked(decompress: Callable[[Any, Any], int], refusal: type[Exception]) -> Decompress:
    def checked(body: Buffer, out: Bytes | memoryview | pa.Buffer) -> bool:
        try:
            # A longer stream is refused before a byte is written, a shorter one leaves bytes as they are.
            return decompress(body, out) == len(out)
        except refusal:
            return False

    return checked


_COMPRESSED_SIZE, _CRC = 3, 4
"""Fields of a page header."""
_MOST_BYTES: Final = 4 << 20
"""A larger page would fill the cache."""
_MOST_GROWTH: Final = 16
"""A page that grows by more would, too."""
_SMALL_BYTES: Final = 256 << 10
_ZSTD_BLOCK: Final = 128 << 10


class StoredPage(bytes):
    """A page, header included, that `store_page` has returned: it is not rewritten again."""

    __slots__ = ()


class UncompressedPage(StoredPage):
    """A stored page whose codec has nothing left to do but copy."""

    __slots__ = ()


def is_uncompressed(page: Buffer) -> bool:
    """Return whether a page is an `UncompressedPage`, or a view of a whole one."""
    whole = page.obj if isinstance(page, memoryview) else page
    return isinstance(whole, UncompressedPage) and len(whole) == len(page)


def store_page(page: Buffer, codec: int) -> StoredPage:
    """Return a dictionary page with its body stored uncompressed.

    The page stays as it is where the codec has no such form, where it would grow too much, or where it does
    not decode: the decoder reports why.
    """
    try:
        return UncompressedPage(_stored(page, codec))
    except (AccelError, pa.ArrowException, OSError, ValueError):
        return StoredPage(page)


def store_bytes(data: bytes, codec: int) -> bytes | None:
    """Return bytes that the codec decompresses to `data` by copying; None for a codec without such a form."""
    if codec == Codec.UNCOMPRESSED:
        return data
    store = STORES.get(codec)
    return None if store is None else b"".join(store(memoryview(data)))


def _stored(page: Buffer, codec: int) -> bytes:
    store = STORES.get(codec)
    header = parse_page_header(page)
    body = memoryview(page)[header.header_length : header.header_length + header.compressed_size]
    size = header.uncompressed_size
    if store is None or header.type != PageType.DICTIONARY_PAGE or len(body) != header.compressed_size:
        raise ValueError("no page to store")
    if size > min(_MOST_BYTES, max(_SMALL_BYTES, _MOST_GROWTH * len(body))):
        raise ValueError("too large")
    check_crc(body, header.crc)
    data = decompress(body, codec, size=size)
    if data is None:
        raise ValueError("it does not decompress")
    stored = store(data.data)
    fields, _ = read_struct(page)
    fields[_COMPRESSED_SIZE] = (I32, sum(map(len, stored)))
    # The checksum was verified above, and is of the compressed bytes.
    fields.pop(_CRC, None)
    return b"".join((write_struct(fields), *stored))


# Each returns parts to join, because the bodies are megabytes.


def _snappy(data: memoryview) -> list[Buffer]:
    return [_snappy_head(len(data)), data]


_snappy_size = lru_cache(256)(encode_varint)


@lru_cache(256)
def _snappy_head(length: int) -> bytes:
    """Return what stands before the bytes of a stream that is one literal."""
    if not length:
        return b"\0"
    # 63 << 2 says that four bytes of length follow.
    return encode_varint(length) + bytes([63 << 2]) + (length - 1).to_bytes(4, "little")


def _zstd(data: memoryview) -> list[Buffer]:
    # A frame in one segment, its size in four bytes, no checksum; then raw blocks, the last one marked.
    parts: list[Buffer] = [b"\x28\xb5\x2f\xfd\xa0", len(data).to_bytes(4, "little")]
    starts = range(0, len(data), _ZSTD_BLOCK) or range(1)
    for start in starts:
        block = data[start : start + _ZSTD_BLOCK]
        last = start == starts[-1]
        parts += [(len(block) << 3 | last).to_bytes(3, "little"), block]
    return parts


def _lz4(data: memoryview) -> list[Buffer]:
    # One sequence: literals and no match, as a block ends.
    length = len(data)
    if length < 15:
        return [bytes([length << 4]), data]
    full, rest = divmod(length - 15, 255)
    return [b"\xf0" + b"\xff" * full + bytes([rest]), data]


def _gzip(data: memoryview) -> list[Buffer]:
    deflate = zlib.compressobj(0, zlib.DEFLATED, 31)
    return [deflate.compress(data), deflate.flush()]


STORES: Final[dict[int, Callable[[memoryview], list[Buffer]]]] = {
    Codec.SNAPPY: _snappy,
    Codec.GZIP: _gzip,
    Codec.ZSTD: _zstd,
    Codec.LZ4_RAW: _lz4,
}

STORABLE: Final = frozenset({Codec.UNCOMPRESSED, *STORES})
"""Codecs whose pages need not be compressed."""
