"""The repetition level that a page begins with: 0 where that is where a row begins, as it should be.

Some writers go on with a row on the next page, though the format forbids it where there is a page index, or in pages of
version 2: arrow-go up to 18.6, older versions of Arrow C++ and of arrow-rs.

Source: parquet-format `Encodings.md` (RLE/bit-packed hybrid).
"""

from __future__ import annotations

from accel.format.runs import LONGEST_HEAD, read_head
from accel.ranges import Buffer

__all__ = ["MOST_BYTES", "begins_with_row"]

_MOST_LEVEL = 4
"""Bytes of one level."""
MOST_BYTES = LONGEST_HEAD + _MOST_LEVEL
"""More bytes of the levels are not looked at."""


def begins_with_row(levels: Buffer, max_repetition: int) -> bool:
    """Whether the first of these repetition levels is 0; False where that cannot be told."""
    width = max_repetition.bit_length()
    whole = (width + 7) >> 3
    front = bytes(memoryview(levels)[: LONGEST_HEAD + whole])
    head, at = read_head(front, 0)
    # A run of one level, or the first of packed ones: its lowest bits.
    first = front[at : at + whole]
    level = int.from_bytes(first, "little") & ((1 << width) - 1)
    return bool(head) and len(first) == whole and not level
