"""Pages of small pieces, decompressed before the pieces are decoded: those of many in one call.

Small pieces are decoded on the I/O loop, as to hand each to a thread takes longer than to decode it. Where many wait for
that, a thread can take from the loop what needs no interpreter: the bodies of all their pages are decompressed by one
call, which lets go of the GIL, while the loop decodes those before them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from accel.decode.frames import decompress_frames, frame_size
from accel.decode.page_heads import read_lone
from accel.errors import ParquetFormatError
from accel.format.model import PageTable, PageType
from accel.format.page_runs import walk_pages
from accel.ranges import Buffer
from accel.records import dataclass

if TYPE_CHECKING:
    from accel.decode.bodies import Bytes

__all__ = ["Unpacked", "unpack_pages"]

_LARGEST: Final = 1 << 20
"""Bytes of a page, decompressed: larger ones wait for who decodes them."""


@dataclass(frozen=True, slots=True, eq=False)
class Unpacked:
    """A data page (v1) that fills a buffer: what its header says, and its body."""

    table: PageTable
    body: Bytes
    """Decompressed: as many bytes as the header says. Its checksum has not been looked at."""


def unpack_pages(pages: Sequence[Buffer]) -> list[Unpacked | None]:
    """Pages that fill a buffer each, compressed by Zstandard, decompressed together.

    None for one that is no data page (v1), or large, or odd; and for all where one of them does not decompress: who
    decodes it will say why."""
    found: list[Unpacked | None] = [None] * len(pages)
    held: list[tuple[int, PageTable]] = []
    bodies: list[memoryview] = []
    sizes: list[int] = []
    for number, table in enumerate(read_lone(pages)):
        table = table or _walked(pages[number])
        if table is None or table.type.tolist() != [PageType.DATA_PAGE]:
            continue
        body, size = memoryview(pages[number])[int(table.body[0]) :], int(table.uncompressed[0])
        if size <= _LARGEST and frame_size(body) == size:
            held.append((number, table))
            bodies.append(body)
            sizes.append(size)
    unpacked = decompress_frames(bodies, sizes) if bodies else None
    if unpacked is not None:
        for (number, table), raw in zip(held, unpacked, strict=True):
            found[number] = Unpacked(table, raw)
    return found


def _walked(page: Buffer) -> PageTable | None:
    try:
        return walk_pages(page, max_pages=1)
    except ParquetFormatError:
        return None
