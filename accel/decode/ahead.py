"""Pages of small pieces, decompressed before the pieces are decoded.

Small pieces are decoded on the I/O loop, as to hand each to a thread takes longer than to decode it. Where many wait for
that, a thread can take from the loop what needs no interpreter: it decompresses the pages of all, by libraries that let go
of the GIL, while the loop decodes the pieces before them. Zstandard's are decompressed in one call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from accel.decode.bodies import decompress
from accel.decode.frames import decompress_frames, frame_size
from accel.decode.page_heads import read_lone
from accel.errors import ParquetFormatError
from accel.format.model import Codec, PageTable, PageType
from accel.format.page_header import walk_pages
from accel.ranges import Buffer

if TYPE_CHECKING:
    from accel.decode.bodies import Bytes

__all__ = ["LonePage", "Unpacked", "unpack_pages"]

LonePage: TypeAlias = tuple[Buffer, int]
"""A page that fills a buffer, and its codec."""

_LARGEST: Final = 1 << 20
"""Bytes of a page, decompressed: larger ones wait for who decodes them."""


@dataclass(frozen=True, slots=True, eq=False)
class Unpacked:
    """A data page (v1) that fills a buffer: what its header says, and its body."""

    table: PageTable
    body: Bytes
    """Decompressed: as many bytes as the header says. Its checksum has not been looked at."""


def unpack_pages(pages: Sequence[LonePage]) -> list[Unpacked | None]:
    """What becomes of each page; None for one that is no data page (v1), or large, or odd, or does not decompress: who
    decodes it will say why. One of Zstandard's that does not leaves all of these to the decoder."""
    found: list[Unpacked | None] = [None] * len(pages)
    framed: list[tuple[int, PageTable]] = []
    bodies: list[memoryview] = []
    sizes: list[int] = []
    for number, (table, (page, codec)) in enumerate(
        zip(read_lone([page for page, _ in pages]), pages, strict=True)
    ):
        table = table or _walked(page)
        if table is None or table.type.tolist() != [PageType.DATA_PAGE]:
            continue
        body, size = memoryview(page)[int(table.body[0]) :], int(table.uncompressed[0])
        if size > _LARGEST:
            continue
        if codec != Codec.ZSTD:
            raw = decompress(body, codec, size=size)
            found[number] = None if raw is None else Unpacked(table, raw)
        elif frame_size(body) == size:
            framed.append((number, table))
            bodies.append(body)
            sizes.append(size)
    unpacked = decompress_frames(bodies, sizes) if bodies else None
    for (number, table), raw in zip(framed, unpacked or (), strict=False):
        found[number] = Unpacked(table, raw)
    return found


def _walked(page: Buffer) -> PageTable | None:
    try:
        return walk_pages(page, max_pages=1)
    except ParquetFormatError:
        return None
