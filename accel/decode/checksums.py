"""Pages whose checksums are not to be looked at, as pages without one.

A checksum of 0 stands for none: JuliaIO/Parquet.jl writes it into every page, and of four billion pages one has it
rightly. pyarrow would hold the page against it. Where the caller wants no checksum verified, no page keeps its own.

Source: parquet-format `parquet.thrift` (PageHeader).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from accel.decode.chunks import ChunkPages
from accel.decode.verify import walk_dictionary
from accel.format.model import PageTable
from accel.format.thrift import read_struct, write_struct
from accel.ranges import Buffer

__all__ = ["leave_checksums", "may_leave_checksums"]

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
    return replace(chunk, dictionary=dictionary, buffers=buffers, sizes=None, ahead=None)


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
