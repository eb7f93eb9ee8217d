"""Pages that begin within a row, as some writers have them."""

from __future__ import annotations

from accel.format.page_runs import walk_pages

__all__ = ["split_rows"]


def split_rows(chunk: memoryview) -> bytes:
    """A chunk of lists of eight, in uncompressed pages of version 2, with the first four items of each page but the
    first given to the row before them: as many rows begin on every page as did."""
    pages = walk_pages(chunk, max_pages=1 << 20)
    data = bytearray(chunk)
    for body, levels, definition in zip(
        pages.body.tolist()[1:],
        pages.level_bytes.tolist()[1:],
        pages.definition_bytes.tolist()[1:],
        strict=True,
    ):
        end = body + levels - definition
        # Eight levels a byte, the first the lowest bit: 0 where a row begins.
        data[body:end] = data[body:end].replace(b"\xfe", b"\xef")
    return bytes(data)
