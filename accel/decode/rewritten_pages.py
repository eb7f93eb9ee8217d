"""Pages that are rewritten before pyarrow reads them: decompressed, without a checksum, or left out.

pyarrow decompresses each page by its own library. Where there is a faster one, the pages are decompressed
into the spliced file instead of being copied into it, and the file says that they are not compressed.

Source: parquet-format `parquet.thrift` (PageHeader, DataPageHeaderV2).
"""

from __future__ import annotations

import operator
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from accel.decode.chunks import ChunkPages
from accel.decode.codecs import Bytes, Decompress, fast_snappy
from accel.decode.dictionary_decode import number_page
from accel.decode.splice import SplicedChunk
from accel.decode.verify import IS_DATA, PageFacts, verify_chunk
from accel.errors import ParquetFormatError
from accel.format.model import Codec, Leaf, PageTable, PageType, SchemaElement
from accel.format.page_header import walk_pages
from accel.format.thrift import I32, encode_varint, read_struct, write_struct
from accel.ranges import Buffer

__all__ = [
    "CompressedBody",
    "uncompressed_chunk",
    "verify_readable",
]

LEAST_PAGE: Final = 16 << 10
"""Average decompressed bytes of a page below which rewriting the headers costs what is saved."""
_MOST_BYTES: Final = 64 << 20
"""Decompressed bytes of a chunk that may be in memory at once."""
_COMPRESSED_SIZE, _CRC = 3, 4
"""Fields of a page header."""


class CompressedBody:
    """A compressed body of a page, which is decompressed into the place where it is put."""

    __slots__ = ("_body", "_size", "_unpack")

    def __init__(self, body: memoryview, size: int, *, unpack: Decompress) -> None:
        self._body, self._size, self._unpack = body, size, unpack

    def __len__(self) -> int:
        return self._size

    def put(self, out: Bytes) -> None:
        """Decompress it into an array of its size.

        Raises
        ------
        ParquetFormatError
            It decompresses to another size.
        """
        if not self._unpack(self._body, out):
            raise ParquetFormatError("a page does not decompress to the size that its header says")


def uncompressed_chunk(chunk: ChunkPages, facts: PageFacts, *, indexed: bool) -> SplicedChunk | None:
    """Return a chunk whose pages are decompressed as they are spliced; None where it is spliced as it is
    stored.

    Parameters
    ----------
    indexed : bool
        Whether the chunk becomes one of INT32, whose dictionary is the numbers from 0 on.
    """
    named = facts.dictionary if indexed else None
    size = facts.uncompressed - (0 if named is None else named.uncompressed)
    if chunk.codec != Codec.SNAPPY or not LEAST_PAGE * len(facts.page_values) <= size <= _MOST_BYTES:
        return None
    unpack = fast_snappy(size)
    if unpack is None:
        return None
    parts: list[Buffer | CompressedBody] = []
    if named is not None:
        parts.append(number_page(named.entries, Codec.UNCOMPRESSED))
    elif chunk.dictionary is not None:
        table = walk_pages(chunk.dictionary, max_pages=1)
        if not _sums_hold(chunk.dictionary, table):
            return None
        parts.extend(_uncompressed(chunk.dictionary, table, unpack))
    for buffer, table in zip(chunk.buffers, facts.tables, strict=True):
        if not _sums_hold(buffer, table):
            return None
        parts.extend(_uncompressed(buffer, table, unpack, without_dictionary=named is not None))
    return SplicedChunk(tuple(parts), Codec.UNCOMPRESSED, facts.num_values, sum(map(len, parts)))


def _uncompressed(
    buffer: Buffer, table: PageTable, unpack: Decompress, *, without_dictionary: bool = False
) -> Iterator[Buffer | CompressedBody]:
    """Yield the pages in a buffer, each with a header for its decompressed body."""
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
        if kind not in _COMPRESSIBLE or not packed:
            # pyarrow ignores pages of other types, and a v2 page may say that its values are not compressed.
            yield view[start:end]
            continue
        yield _uncompressed_head(bytes(view[start:body]), size, end - body, has_crc=crc >= 0)
        if levels:
            yield view[body : body + levels]
        if size > levels or end > body + levels:
            yield CompressedBody(view[body + levels : end], size - levels, unpack=unpack)


_COMPRESSIBLE: Final = frozenset(
    {int(PageType.DATA_PAGE), int(PageType.DATA_PAGE_V2), int(PageType.DICTIONARY_PAGE)}
)


def _uncompressed_head(head: bytes, size: int, compressed: int, *, has_crc: bool) -> bytes:
    """Return a page's header with one size and no checksum, which was computed from the compressed bytes."""
    size_bytes = encode_varint(size << 1)
    # Writers put the type, in a byte, and both sizes first; to parse such a header takes 15 times as long.
    begin = head[:2] + b"\x15" + size_bytes + b"\x15"
    usual = begin + encode_varint(compressed << 1)
    if not has_crc and head.startswith(usual):
        return begin + size_bytes + head[len(usual) :]
    fields, _ = read_struct(head)
    fields[_COMPRESSED_SIZE] = (I32, size)
    fields.pop(_CRC, None)
    return write_struct(fields)


def _sums_hold(buffer: Buffer, table: PageTable) -> bool:
    """Return whether all pages match their checksums; pyarrow reports those that do not."""
    if table.crc.max(initial=-1) <= 0:
        return True
    view = memoryview(buffer)
    bodies = zip(table.body.tolist(), table.end.tolist(), table.crc.tolist(), strict=True)
    return all(crc <= 0 or zlib.crc32(view[body:end]) == crc for body, end, crc in bodies)


def verify_readable(
    chunk: ChunkPages,
    leaf: Leaf,
    *,
    element: SchemaElement,
    memory_limit: int | None,
    place: Callable[[], str],
    verify_checksums: bool = True,
) -> tuple[ChunkPages, PageFacts]:
    """Verify a chunk, and drop what would stop pyarrow; return what is left, and the facts about it.

    Other parameters and errors are those of `verify_chunk`.

    Parameters
    ----------
    verify_checksums : bool
        Whether pages that have a checksum are compared with it; a checksum of 0 stands for none.
    """
    verify = partial(verify_chunk, leaf=leaf, element=element, memory_limit=memory_limit, place=place)
    facts = verify(chunk)
    readable = _without_checksums(chunk, facts, verify=verify_checksums)
    if readable is not chunk:
        chunk, facts = readable, verify(readable)
    if 0 not in facts.page_values.tolist():
        return chunk, facts
    chunk = _without_empty_pages(chunk, facts)
    return chunk, verify(chunk)


def _without_empty_pages(chunk: ChunkPages, facts: PageFacts) -> ChunkPages:
    """Return the chunk without pages of no values, which hold no rows, as has been verified."""
    parts = [_filled(buffer, table) for buffer, table in zip(chunk.buffers, facts.tables, strict=True)]
    buffers = tuple(buffer for buffer in parts if len(buffer))
    if chunk.whole:
        return replace(chunk, buffers=buffers)
    filled = facts.page_values > 0
    first_rows, stop_rows = chunk.first_rows[filled], chunk.stop_rows[filled]
    return replace(chunk, buffers=buffers, first_rows=first_rows, stop_rows=stop_rows)


def _filled(buffer: Buffer, table: PageTable) -> Buffer:
    empty = IS_DATA[table.type] & (table.num_values == 0)
    if not empty.any():
        return buffer
    view = memoryview(buffer)
    # What is left lies between the ends of empty pages and the starts of the next ones.
    ends = [0, *table.end[empty].tolist()]
    starts = [*table.start[empty].tolist(), int(table.end[-1])]
    return b"".join(view[first:stop] for first, stop in zip(ends, starts, strict=True))


def _without_checksums(chunk: ChunkPages, facts: PageFacts, *, verify: bool) -> ChunkPages:
    """Return the chunk without the checksums that pyarrow is not to verify: those of 0, or all of them."""
    dictionary = chunk.dictionary
    head = facts.separate_dictionary
    if dictionary is not None and head is not None and head.crc is not None:
        dictionary = _strip(dictionary, walk_pages(dictionary, max_pages=1), verify)
    pages = zip(chunk.buffers, facts.tables, strict=True)
    buffers = tuple(_strip(buffer, table, verify) for buffer, table in pages)
    unchanged = dictionary is chunk.dictionary and all(map(operator.is_, buffers, chunk.buffers))
    return chunk if unchanged else replace(chunk, dictionary=dictionary, buffers=buffers)


def _strip(buffer: Buffer, table: PageTable, verify: bool) -> Buffer:
    """Return the pages of a buffer without these checksums."""
    crcs = table.crc.tolist()
    if 0 not in crcs if verify else max(crcs, default=-1) < 0:
        return buffer
    chosen = (table.crc == 0) if verify else (table.crc >= 0)
    view = memoryview(buffer)
    parts: list[Buffer] = []
    for start, body, end, strips in zip(
        table.start.tolist(), table.body.tolist(), table.end.tolist(), chosen.tolist(), strict=True
    ):
        if strips:
            fields, _ = read_struct(view[start:body])
            fields.pop(_CRC, None)
            parts.append(write_struct(fields))
            start = body
        parts.append(view[start:end])
    return b"".join(parts)
