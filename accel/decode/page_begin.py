"""Whether a page begins with a row, seen without decoding it.

Source: parquet-format `Encodings.md` (levels of data pages; RLE/bit-packed hybrid), `parquet.thrift` (DataPageHeader,
DataPageHeaderV2).
"""

from __future__ import annotations

from accel.decode.bodies import check_crc, decompress
from accel.errors import ParquetFormatError
from accel.format.model import Encoding, PageType
from accel.format.page_header import parse_page_header
from accel.format.runs import MOST_BYTES, begins_with_row

__all__ = ["page_begins_with_row"]


def page_begins_with_row(
    page: memoryview, *, codec: int, max_repetition: int, memory_limit: int | None = None
) -> bool:
    """Of a data page inside a list, header included; False where that cannot be told, as of one that is damaged, or
    would decompress to more than `memory_limit` bytes."""
    try:
        header = parse_page_header(page)
        body = page[header.header_length :]
        if len(body) != header.compressed_size:
            return False
        check_crc(body, header.crc)
    except ParquetFormatError:
        return False
    if header.type == PageType.DATA_PAGE_V2:
        return begins_with_row(body[: header.repetition_bytes], max_repetition)
    if header.type != PageType.DATA_PAGE or header.level_encoding != Encoding.RLE:
        return False
    if memory_limit is not None and header.uncompressed_size > memory_limit:
        return False
    raw = decompress(body, codec, size=header.uncompressed_size)
    if raw is None:
        return False
    length = int.from_bytes(raw[:4].tobytes(), "little")
    return length <= len(raw) - 4 and begins_with_row(
        raw[4 : 4 + min(length, MOST_BYTES)].data, max_repetition
    )
