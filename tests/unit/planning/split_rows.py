"""Pages that begin within a row, as some writers have them."""

from __future__ import annotations

from collections.abc import Collection

from accel.format.model import PageType
from accel.format.page_runs import walk_pages

__all__ = ["split_rows"]


def split_rows(chunk: memoryview, *, pages: Collection[int] | None = None) -> bytes:
    """A chunk of lists of eight, in uncompressed pages, with the first four items of each page but the first, or of these,
    given to the row before them: as many rows begin on every page as did."""
    table = walk_pages(chunk, max_pages=1 << 20)
    data = bytearray(chunk)
    for page, (kind, body) in enumerate(zip(table.type.tolist(), table.body.tolist(), strict=True)):
        if not page or (pages is not None and page not in pages):
            continue
        if kind == PageType.DATA_PAGE_V2:
            start, length = body, int(table.level_bytes[page] - table.definition_bytes[page])
        else:
            start, length = body + 4, int.from_bytes(chunk[body : body + 4], "little")
        # Eight levels a byte, the first the lowest bit: 0 where a row begins.
        levels = data[start : start + length]
        data[start : start + length] = levels.replace(b"\xfe", b"\xef")
    return bytes(data)
