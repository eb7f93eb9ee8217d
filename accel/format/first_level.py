"""The repetition level that a page begins with: 0 where that is where a row begins, as it should be.

Some writers go on with a row on the next page, though the format forbids it where there is a page index, or in pages of
version 2: arrow-go up to 18.6, older versions of Arrow C++ and of arrow-rs.

Source: parquet-format `Encodings.md` (RLE/bit-packed hybrid).
"""

from __future__ import annotations

from accel.ranges import Buffer

__all__ = ["MOST_BYTES", "begins_with_row"]

_LEAST_RUN = 2
"""What the number that a run of levels begins with is at least: less is a run of no levels."""
_MOST_HEAD = 5
"""Bytes of that number."""
MOST_BYTES = _MOST_HEAD + 4
"""More bytes of the levels are not looked at."""


def begins_with_row(levels: Buffer, max_repetition: int) -> bool:
    """Whether the first of these repetition levels is 0; False where that cannot be told."""
    width = max_repetition.bit_length()
    whole = (width + 7) >> 3
    known = bytes(memoryview(levels)[: _MOST_HEAD + whole])
    head = next((at for at, byte in enumerate(known[:_MOST_HEAD]) if byte < 0x80), len(known)) + 1
    # A run of one level, or the first of packed ones: its lowest bits.
    first = known[head : head + whole]
    level = int.from_bytes(first, "little") & ((1 << width) - 1)
    return len(first) == whole and not level and known[0] >= _LEAST_RUN
