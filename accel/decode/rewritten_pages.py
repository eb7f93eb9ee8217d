"""Chunks handed to pyarrow with their pages decompressed, where that is faster than its own way.

pyarrow decompresses a page when it comes to it, by its own library. Where there is a faster one, the pages are decompressed into
the file that is spliced, in place of being copied into it, and the file says that they are not compressed.

Source: parquet-format `parquet.thrift` (PageHeader, DataPageHeaderV2).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from accel.decode.chunks import ChunkPages
from accel.decode.codecs import Bytes, Decompress, fast_snappy
from accel.decode.dictionary_decode import number_page
from accel.decode.splice import SplicedChunk
from accel.decode.verify import IS_DATA, PageFacts, verify_chunk, walk_dictionary
from accel.errors import ParquetFormatError
from accel.format.model import Codec, Leaf, PageTable, PageType, SchemaElement
from accel.format.thrift import I32, encode_varint, read_struct, write_struct
from accel.ranges import Buffer

__all__ = [
    "PackedBody",
    "bare_chunk",
    "leave_checksums",
    "may_leave_checksums",
    "verify_readable",
]

_LEAST_PAGE: Final = 16 << 10
"""Bytes of a page, decompressed, on average: of smaller ones the new headers cost what is saved."""
_MOST_BYTES: Final = 64 << 20
"""Bytes of a chunk that are held decompressed at once."""
_COMPRESSED_SIZE, _CRC = 3, 4
"""Fields of a page header."""


class PackedBody:
    """What becomes of a page's body, decompressed where it is put."""

    __slots__ = ("_body", "_size", "_unpack")

    def __init__(self, body: memoryview, size: int, *, unpack: Decompress) -> None:
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
        As a chunk of INT32, whose dictionary is that of the numbers from 0 on (`accel.decode.dictionary_decode`).
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
    buffer: Buffer, table: PageTable, unpack: Decompress, *, without_dictionary: bool = False
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


def verify_readable(
    chunk: ChunkPages,
    leaf: Leaf,
    *,
    element: SchemaElement,
    memory_limit: int | None,
    place: Callable[[], str],
    verify_checksums: bool = True,
) -> tuple[ChunkPages, PageFacts]:
    """Verify a chunk, and leave out what would stop pyarrow: what is left of it, and what holds of that.

    Other parameters and errors are those of `verify_chunk`.

    Parameters
    ----------
    verify_checksums : bool
        Whether pages that have a checksum are to be held against it.
    """
    facts = verify_chunk(chunk, leaf, element=element, memory_limit=memory_limit, place=place)
    dictionary = () if chunk.dictionary is None else (walk_dictionary(chunk.dictionary),)
    bare = may_leave_checksums((*facts.tables, *dictionary), verify=verify_checksums)
    if facts.page_values.all() and not bare:
        return chunk, facts
    if bare:
        chunk = leave_checksums(chunk, facts.tables, verify=verify_checksums)
        facts = verify_chunk(chunk, leaf, element=element, memory_limit=memory_limit, place=place)
        if facts.page_values.all():
            return chunk, facts
    chunk = _without_empty_pages(chunk, facts)
    return chunk, verify_chunk(chunk, leaf, element=element, memory_limit=memory_limit, place=place)


def _without_empty_pages(chunk: ChunkPages, facts: PageFacts) -> ChunkPages:
    # Verified, they are of no rows.
    kept = [_kept(buffer, table) for buffer, table in zip(chunk.buffers, facts.tables, strict=True)]
    buffers = tuple(buffer for buffer in kept if len(buffer))
    if chunk.whole:
        return replace(chunk, buffers=buffers)
    filled = facts.page_values > 0
    return replace(
        chunk,
        buffers=buffers,
        first_rows=chunk.first_rows[filled],
        stop_rows=chunk.stop_rows[filled],
    )


def _kept(buffer: Buffer, table: PageTable) -> Buffer:
    empty = IS_DATA[table.type] & (table.num_values == 0)
    if not empty.any():
        return buffer
    view = memoryview(buffer)
    # Between the ends of empty pages and the starts of the next.
    ends = [0, *table.end[empty].tolist()]
    starts = [*table.start[empty].tolist(), int(table.end[-1])]
    return b"".join(view[first:stop] for first, stop in zip(ends, starts, strict=True))


_CRC = 4
"""The field of a page header."""
_I32_NEXT = 0x15
"""The header of a field of 32 bits whose number is one more than the last one's."""
_MOST_STEP = 14


def may_leave_checksums(tables: Sequence[PageTable], *, verify: bool) -> bool:
    """Whether any of these pages has a checksum that is not to be looked at."""
    return any(((table.crc == 0) if verify else (table.crc >= 0)).any() for table in tables)


def leave_checksums(chunk: ChunkPages, tables: Sequence[PageTable], *, verify: bool) -> ChunkPages:
    """The chunk without the checksums that are not to be looked at, be it its own dictionary page's or another's.

    Parameters
    ----------
    tables : sequence of PageTable
        The pages of each of the chunk's buffers.
    verify : bool
        Whether those stay that are not 0.
    """
    dictionary = chunk.dictionary
    if dictionary is not None:
        table = walk_dictionary(dictionary)
        if may_leave_checksums([table], verify=verify):
            dictionary = b"".join(_pages(dictionary, table, verify))
    if not may_leave_checksums(tables, verify=verify):
        return chunk if dictionary is chunk.dictionary else replace(chunk, dictionary=dictionary)
    buffers = tuple(
        b"".join(_pages(buffer, table, verify)) for buffer, table in zip(chunk.buffers, tables, strict=True)
    )
    return replace(chunk, dictionary=dictionary, buffers=buffers)


def _pages(buffer: Buffer, table: PageTable, verify: bool) -> Iterator[Buffer]:
    view = memoryview(buffer)
    for start, body, end, crc in zip(
        table.start.tolist(), table.body.tolist(), table.end.tolist(), table.crc.tolist(), strict=True
    ):
        if crc == 0 or (crc > 0 and not verify):
            yield _without_checksum(bytes(view[start:body]))
            yield view[body:end]
        else:
            yield view[start:end]


def _without_checksum(head: bytes) -> bytes:
    """A page header without its checksum."""
    at = 0
    for _ in range(_CRC - 1):
        # The type and both sizes, as writers order them.
        if head[at] != _I32_NEXT:
            break
        at = _behind_number(head, at + 1)
    else:
        behind = _behind_number(head, at + 1)
        step = head[behind] >> 4
        if head[at] == _I32_NEXT and 0 < step < _MOST_STEP:
            return head[:at] + bytes([head[behind] + 0x10]) + head[behind + 1 :]
    fields, _ = read_struct(head)
    fields.pop(_CRC, None)
    return write_struct(fields)


def _behind_number(head: bytes, at: int) -> int:
    """Where a number ends; the header has been parsed before."""
    while head[at] & 0x80:
        at += 1
    return at + 1
