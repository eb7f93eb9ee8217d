"""PLAIN values of fixed length without nulls, taken out of their pages as they lie there.

pyarrow appends such values one by one, and makes each a decimal: 20 ns a value, where few rows are wanted too. A page
here is decompressed by pyarrow's codec and its bytes are gathered. Any page that is not of this plain
form is none of ours: the whole column is then decoded the common way.

Sources: parquet-format `Encodings.md` (PLAIN; RLE/bit-packed hybrid), `parquet.thrift` (DataPageHeader,
DataPageHeaderV2); README (nulls, data pages).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel.decode.chunks import ChunkPages
from accel.decode.verify import PageFacts
from accel.errors import ParquetFormatError
from accel.format.model import Codec, Encoding, Leaf, PageTable, PageType, Physical, SchemaElement
from accel.format.page_header import PageHeader, parse_page_header
from accel.planning.selection import RowSelection
from accel.ranges import Buffer

__all__ = ["has_fixed_length", "may_be_plain", "read_entries", "read_plain", "widen"]

Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]

_CODECS: Final = {
    Codec.SNAPPY: "snappy",
    Codec.GZIP: "gzip",
    Codec.BROTLI: "brotli",
    Codec.ZSTD: "zstd",
    Codec.LZ4_RAW: "lz4_raw",
}
_DECIMAL_BYTES: Final = 16


def may_be_plain(kind: pa.DataType, element: SchemaElement, leaf: Leaf, facts: PageFacts) -> bool:
    """Whether it is worth trying `read_plain` on a top-level column of this type."""
    if facts.encoded.any() or leaf.max_repetition or leaf.max_definition > 1:
        return False
    return has_fixed_length(kind, element)


def has_fixed_length(kind: pa.DataType, element: SchemaElement) -> bool:
    """Whether it is a type whose values are taken from PLAIN bytes here."""
    if element.physical is not Physical.FIXED_LEN_BYTE_ARRAY or not element.type_length:
        return False
    if pa.types.is_decimal128(kind):
        return element.type_length <= _DECIMAL_BYTES
    return bool(pa.types.is_fixed_size_binary(kind)) and kind.byte_width == element.type_length


def read_plain(
    chunk: ChunkPages,
    facts: PageFacts,
    rows: RowSelection,
    *,
    kind: pa.DataType,
    width: int,
    optional: bool,
    verify_checksums: bool,
) -> pa.Array | None:
    """The selected rows of a column that `may_be_plain`; None where one of its pages is not.

    Parameters
    ----------
    rows : RowSelection
        Counted from the first row of the pages given.
    width : int
        Bytes of one value.
    optional : bool
        Whether the pages have definition levels.

    Raises
    ------
    ParquetFormatError
        A checksum does not match.
    """
    count = rows.count
    out = pa.allocate_buffer(count * (_DECIMAL_BYTES if pa.types.is_decimal128(kind) else width))
    ends = np.cumsum(facts.page_values)
    chosen = rows.row_numbers() if count < int(facts.num_values) else None
    cuts = ends if chosen is None else chosen.searchsorted(ends)
    data = np.frombuffer(out, np.uint8)
    done = first = 0
    for (page, header), end, cut in zip(
        _pages(chunk, facts.tables), ends.tolist(), cuts.tolist(), strict=True
    ):
        if cut > done:
            if verify_checksums:
                _check(page, header)
            raw = _values(page, header, chunk.codec, width=width, optional=optional)
            if raw is None:
                return None
            if chosen is not None and cut - done < end - first:
                raw = raw.view(f"V{width}").take(chosen[done:cut] - first).view(np.uint8)
            _put(raw, data, done, kind, width)
        done, first = cut, end
    return pa.Array.from_buffers(kind, count, [None, out], 0)


def read_entries(page: Buffer, codec: int, *, kind: pa.DataType, width: int) -> pa.Array | None:
    """The entries of a dictionary page (header included) of such values; None where it is not of that form.

    Raises
    ------
    ParquetFormatError
        The checksum does not match.
    """
    header = parse_page_header(page)
    body = memoryview(page)[header.header_length :][: header.compressed_size]
    _check(body, header)
    raw = _decompress(body, codec, header.uncompressed_size)
    if raw is None or len(raw) != header.num_values * width:
        return None
    out = pa.allocate_buffer(header.num_values * (_DECIMAL_BYTES if pa.types.is_decimal128(kind) else width))
    _put(raw, np.frombuffer(out, np.uint8), 0, kind, width)
    return pa.Array.from_buffers(kind, header.num_values, [None, out], 0)


def widen(raw: Bytes, width: int, out: Int64s) -> None:
    """Big-endian integers of 1 to 16 bytes, two's complement, as rows of two words, the low one first."""
    count = len(out)
    low, high = out[:, 0], out[:, 1]
    if width > 8:
        low[:] = _words(raw, count, width, width - 8)
        high[:] = _words(raw, count, width, 0)
        high >>= 8 * (_DECIMAL_BYTES - width)
        return
    # The word that begins with a value has bytes of the next behind it, which the last values have not.
    inside = max(0, count - (7 // width + 1))
    low[:inside] = _words(raw, inside, width, 0)
    tail = np.zeros((count - inside) * width + 8, np.uint8)
    tail[:-8] = raw[inside * width :]
    low[inside:] = _words(tail, count - inside, width, 0)
    low >>= 64 - 8 * width
    np.right_shift(low, 63, out=high)


def _words(raw: Bytes, count: int, width: int, offset: int) -> npt.NDArray[np.int64]:
    words: Int64s = np.ndarray((count,), ">i8", raw, offset, (width,)) if count else np.zeros(0, np.int64)
    return words


def _put(raw: Bytes, data: Bytes, row: int, kind: pa.DataType, width: int) -> None:
    if pa.types.is_decimal128(kind):
        count = len(raw) // width
        words = data[_DECIMAL_BYTES * row : _DECIMAL_BYTES * (row + count)].view("<i8").reshape(count, 2)
        widen(raw, width, words)
    else:
        data[width * row : width * row + len(raw)] = raw


def _pages(chunk: ChunkPages, tables: tuple[PageTable, ...]) -> Iterator[tuple[memoryview, PageHeader]]:
    """The stored bodies of the data pages."""
    for buffer, table in zip(chunk.buffers, tables, strict=True):
        view = memoryview(buffer)
        starts, bodies, ends = table.start.tolist(), table.body.tolist(), table.end.tolist()
        for kind, start, body, end in zip(table.type.tolist(), starts, bodies, ends, strict=True):
            if kind in (PageType.DATA_PAGE, PageType.DATA_PAGE_V2):
                yield view[body:end], parse_page_header(view, start)


def _values(page: memoryview, header: PageHeader, codec: int, *, width: int, optional: bool) -> Bytes | None:
    """The bytes of a page's values; None where there are nulls, or anything else than PLAIN values."""
    count = header.num_values
    if header.encoding != Encoding.PLAIN or header.num_nulls > 0:
        return None
    if header.type == PageType.DATA_PAGE_V2:
        levels = header.repetition_bytes + header.definition_bytes
        if header.repetition_bytes or not (header.is_compressed or codec == Codec.UNCOMPRESSED):
            return None
        raw = _decompress(page[levels:], codec, header.uncompressed_size - levels)
        if optional and not _all_present(np.frombuffer(page[:levels], np.uint8), count):
            return None
    else:
        raw = _decompress(page, codec, header.uncompressed_size)
        if optional and raw is not None:
            levels = 4 + int.from_bytes(raw[:4].tobytes(), "little")
            if header.level_encoding != Encoding.RLE or not _all_present(raw[4:levels], count):
                return None
            raw = raw[levels:]
    return raw if raw is not None and len(raw) == count * width else None


def _check(body: memoryview, header: PageHeader) -> None:
    if header.crc is not None and zlib.crc32(body) != header.crc:
        raise ParquetFormatError("the CRC checksum of a page is not that of its bytes")


def _decompress(body: memoryview, codec: int, size: int) -> Bytes | None:
    if codec == Codec.UNCOMPRESSED:
        return np.frombuffer(body, np.uint8)
    name = _CODECS.get(Codec(codec))
    if name is None:
        return None
    try:
        data = pa.Codec(name).decompress(pa.py_buffer(body), decompressed_size=size)
    except (pa.ArrowException, OSError, ValueError):
        # pyarrow's reader will say what is wrong with it.
        return None
    return np.frombuffer(data, np.uint8) if len(data) == size else None


def _all_present(levels: Bytes, count: int) -> bool:
    """Whether definition levels of one bit, in RLE runs, say that no value is null."""
    data = levels.tobytes()
    position = seen = 0
    while seen < count and position < len(data):
        head = shift = 0
        while position < len(data):
            byte = data[position]
            position += 1
            head |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80 or shift > 35:
                break
        # An even number is a run of one value, an odd one groups of eight bits: these have nulls more often than not.
        if head & 1 or position >= len(data) or data[position] != 1:
            return False
        position += 1
        seen += head >> 1
    return seen >= count
