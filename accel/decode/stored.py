"""Pages rewritten as if their codec had found nothing to compress: what is decoded often is decompressed once.

A dictionary page of a megabyte takes milliseconds to decompress, and each lookup of a dictionary-encoded column
needs it. Every codec has a form for bytes that it cannot compress; a page in that form is an ordinary page of
the same chunk, and costs a copy.

Sources: RFC 8878 (3.1.1, raw blocks), snappy `format_description.txt` (literals), lz4 `lz4_Block_format.md`
(last sequence), RFC 1951 (3.2.4, stored blocks).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel.decode.bodies import Bytes, check_crc, decompress
from accel.errors import AccelError
from accel.format.model import Codec, PageType
from accel.format.page_header import parse_page_header
from accel.format.thrift import I32, encode_varint, read_struct, write_struct
from accel.ranges import Buffer

__all__ = ["STORABLE", "BarePage", "StoredPage", "bare_page", "store_bytes", "store_page"]

Ints = npt.NDArray[np.integer]

# PageHeader: compressed_page_size, crc.
_COMPRESSED_SIZE, _CRC = 3, 4
# A page that grows beyond so many bytes would fill the cache; so would one that grows to many times its own.
_MOST_BYTES = 4 << 20
_MOST_GROWTH = 16
_SMALL_BYTES = 256 << 10
_ZSTD_BLOCK = 128 << 10
_ZSTD_HEAD = 3


class StoredPage(bytes):
    """A page, header included, that is to stay as it is."""

    __slots__ = ()


class BarePage(StoredPage):
    """One whose body is stored and not compressed."""

    even = 0
    """Bytes of each of its texts with its length, once they were seen to be all of one."""

    def pick(self, codec: int, body: int, *, size: int, width: int, chosen: Ints) -> Bytes | None:
        """Some of the page's values, without a copy of all; None of a codec of which it is not known where they lie.

        Parameters
        ----------
        body : int
            Where the page's body begins.
        size : int
            Bytes of all values.
        width : int
            Bytes of each.
        chosen
            Their numbers, each of a value that there is.
        """
        first_of = _FIRST_BYTES.get(codec)
        if first_of is None:
            return None
        at = (chosen.astype(np.int64) * width)[:, None] + np.arange(width)
        if codec == Codec.ZSTD:
            # Each block has a head of its own.
            at += at // _ZSTD_BLOCK * _ZSTD_HEAD
        found: Bytes = np.frombuffer(self, np.uint8)[at + (body + first_of(size))].reshape(-1)
        return found


def bare_page(page: Buffer) -> BarePage | None:
    """The page that this is, or is a view of, if it is one whose body is not compressed."""
    whole = page.obj if isinstance(page, memoryview) else page
    return whole if isinstance(whole, BarePage) and len(whole) == len(page) else None


def store_page(page: Buffer, codec: int) -> StoredPage:
    """The same page with its body stored. As it is, where the codec has no such form, where it would
    grow too much, or where it does not decode: whoever reads it will say why."""
    try:
        return BarePage(_stored(page, codec))
    except (AccelError, pa.ArrowException, OSError, ValueError):
        return StoredPage(page)


def store_bytes(data: bytes, codec: int) -> bytes | None:
    """What a codec decompresses to these bytes, not compressed; None for one that has no such form."""
    if codec == Codec.UNCOMPRESSED:
        return data
    store = _STORES.get(codec)
    return None if store is None else b"".join(store(memoryview(data)))


def _stored(page: Buffer, codec: int) -> bytes:
    store = _STORES.get(codec)
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
        raise ValueError("of another length")
    stored = store(data.data)
    fields, _ = read_struct(page)
    fields[_COMPRESSED_SIZE] = (I32, sum(map(len, stored)))
    # It was checked above, and is of other bytes.
    fields.pop(_CRC, None)
    return b"".join((write_struct(fields), *stored))


# Each gives the parts, to be joined: these are megabytes, and each copy of them is felt.


def _snappy(data: memoryview) -> list[Buffer]:
    length = len(data)
    if not length:
        return [b"\0"]
    size = (length - 1).to_bytes(4, "little")
    # A literal of any length: 63 << 2 says that four bytes of length follow.
    return [encode_varint(length), bytes([63 << 2]), size, data]


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


_STORES: Final[dict[int, Callable[[memoryview], list[Buffer]]]] = {
    Codec.SNAPPY: _snappy,
    Codec.GZIP: _gzip,
    Codec.ZSTD: _zstd,
    Codec.LZ4_RAW: _lz4,
}

# Where the data begins in a body, by its size. Deflate's blocks are cut as zlib likes.
_FIRST_BYTES: Final[dict[int, Callable[[int], int]]] = {
    Codec.SNAPPY: lambda size: len(encode_varint(size)) + 5,
    Codec.ZSTD: lambda size: 9 + _ZSTD_HEAD,
    Codec.LZ4_RAW: lambda size: 1 if size < 15 else 2 + (size - 15) // 255,
}

STORABLE: Final = frozenset({Codec.UNCOMPRESSED, *_STORES})
"""Codecs whose pages need not be compressed."""
