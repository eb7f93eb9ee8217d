"""Chunks handed to pyarrow with their pages decompressed, where that is faster than its own way.

pyarrow decompresses a page when it comes to it, by its own library. Where there is a faster one, the pages are decompressed into
the file that is spliced, in place of being copied into it, and the file says that they are not compressed.

Source: parquet-format `parquet.thrift` (PageHeader, DataPageHeaderV2).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

from accel.decode.bodies import Bytes
from accel.decode.chunks import ChunkPages
from accel.decode.entries import number_page
from accel.decode.snappy import Unpack, fast_snappy
from accel.decode.splice import SplicedChunk
from accel.decode.verify import PageFacts, walk_dictionary
from accel.errors import ParquetFormatError
from accel.format.model import Codec, PageTable, PageType
from accel.format.thrift import I32, encode_varint, read_struct, write_struct
from accel.ranges import Buffer

__all__ = ["PackedBody", "bare_chunk"]

_LEAST_PAGE: Final = 16 << 10
"""Bytes of a page, decompressed, on average: of smaller ones the new headers cost what is saved."""
_MOST_BYTES: Final = 64 << 20
"""Bytes of a chunk that are held decompressed at once."""
_COMPRESSED_SIZE, _CRC = 3, 4
"""Fields of a page header."""


class PackedBody:
    """What becomes of a page's body, decompressed where it is put."""

    __slots__ = ("_body", "_size", "_unpack")

    def __init__(self, body: memoryview, size: int, *, unpack: Unpack) -> None:
        self._body, self._size, self._unpack = body, size, unpack

    def __len__(self) -> int:
        return self._size

    def put(self, out: Bytes) -> None:
        """Decompress it into just so many bytes.

        Raises
        ------
        ParquetFormatError
            It does not come to them.
        """
        if not self._unpack(self._body, out):
            raise ParquetFormatError("a page does not decompress to the size that its header says")


def bare_chunk(chunk: ChunkPages, facts: PageFacts, *, indexed: bool) -> SplicedChunk | None:
    """A chunk whose pages are decompressed as they are spliced; None where it is to be spliced as it is.

    Parameters
    ----------
    indexed : bool
        As a chunk of INT32, whose dictionary is that of the numbers from 0 on (`accel.decode.entries`).
    """
    named = facts.dictionary if indexed else None
    size = facts.uncompressed - (0 if named is None else named.uncompressed)
    if chunk.codec != Codec.SNAPPY or not _LEAST_PAGE * len(facts.page_values) <= size <= _MOST_BYTES:
        return None
    unpack = fast_snappy(size)
    if unpack is None:
        return None
    parts: list[Buffer | PackedBody] = []
    if named is not None:
        parts.append(number_page(named.entries, Codec.UNCOMPRESSED))
    elif chunk.dictionary is not None:
        table = walk_dictionary(chunk.dictionary)
        if not _sums_hold(chunk.dictionary, table):
            return None
        parts.extend(_bare(chunk.dictionary, table, unpack))
    for buffer, table in zip(chunk.buffers, facts.tables, strict=True):
        if not _sums_hold(buffer, table):
            return None
        parts.extend(_bare(buffer, table, unpack, without_dictionary=named is not None))
    return SplicedChunk(tuple(parts), Codec.UNCOMPRESSED, facts.num_values, sum(map(len, parts)))


def _bare(
    buffer: Buffer, table: PageTable, unpack: Unpack, *, without_dictionary: bool = False
) -> Iterator[Buffer | PackedBody]:
    """The pages in a buffer, each with a header that says what they come to."""
    view = memoryview(buffer)
    for start, body, end, size, crc, kind, levels, packed in zip(
        table.start.tolist(),
        table.body.tolist(),
        table.end.tolist(),
        table.uncompressed.tolist(),
        table.crc.tolist(),
        table.type.tolist(),
        table.level_bytes.tolist(),
        table.is_compressed.tolist(),
        strict=True,
    ):
        if without_dictionary and kind == PageType.DICTIONARY_PAGE:
            continue
        if kind not in _BODIES or not packed:
            # pyarrow passes over pages of other types; a v2 page may say that its values are bare.
            yield view[start:end]
            continue
        yield _bare_head(bytes(view[start:body]), size, end - body, has_crc=crc >= 0)
        if levels:
            yield view[body : body + levels]
        if size > levels or end > body + levels:
            yield PackedBody(view[body + levels : end], size - levels, unpack=unpack)


_BODIES: Final = frozenset(
    {int(PageType.DATA_PAGE), int(PageType.DATA_PAGE_V2), int(PageType.DICTIONARY_PAGE)}
)


def _bare_head(head: bytes, size: int, compressed: int, *, has_crc: bool) -> bytes:
    """A page's header with one size, and no checksum: that was of other bytes."""
    due = encode_varint(size << 1)
    # The type, in a byte; then both sizes.
    begun = head[:2] + b"\x15" + due + b"\x15"
    begins = begun + encode_varint(compressed << 1)
    if not has_crc and head.startswith(begins):
        return begun + due + head[len(begins) :]
    fields, _ = read_struct(head)
    fields[_COMPRESSED_SIZE] = (I32, size)
    fields.pop(_CRC, None)
    return write_struct(fields)


def _sums_hold(buffer: Buffer, table: PageTable) -> bool:
    """Whether the pages are those that their checksums are of: whoever reads those that are not will say so."""
    if table.crc.max(initial=-1) <= 0:
        return True
    view = memoryview(buffer)
    bodies = zip(table.body.tolist(), table.end.tolist(), table.crc.tolist(), strict=True)
    return all(crc <= 0 or zlib.crc32(view[body:end]) == crc for body, end, crc in bodies)
