"""Bit-packed values: eight values of `width` bits are a group of `width` bytes, lowest bits first.

The n-th value of every group begins at the same bit of its group. So a strided view of the bytes shows one
value of each group, or several neighbours at once, and numpy's calls are as many as there are values in a
group.

Source: parquet-format `Encodings.md` (RLE/bit-packed hybrid).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = [
    "GROUP",
    "PADDING",
    "are_below",
    "pick_packed",
    "unpack_groups",
]

Ints: TypeAlias = npt.NDArray[np.integer[Any]]

GROUP: Final = 8
"""Values of a group."""
PADDING: Final = bytes(8)
"""The bytes that must follow the groups, because values are read as words of eight bytes."""
_MOST_NARROW: Final = 25
"""Bits of a value that are in four bytes at any bit of the first byte."""
_MOST_COMPARED: Final = 16
"""Bits of a value above which fewer than four are in a word, and unpacking all takes as long as comparing
them."""


def unpack_groups(data: bytes, width: int) -> Ints:
    """Return all values of the groups in `data`, which ends with `PADDING`; `width` is 1 to 32.

    They are int32 where the values have at most 25 bits, else int64.
    """
    count = (len(data) - len(PADDING)) // width
    narrow = width <= _MOST_NARROW
    out = np.empty((count, GROUP), np.int32 if narrow else np.int64)
    kind, mask = ("<i4" if narrow else "<i8"), (1 << width) - 1
    for number in range(GROUP):
        at, shift = divmod(number * width, 8)
        # An aligned copy first: numpy is slow with words at odd addresses.
        words: Ints = np.ndarray((count,), kind, data, at, (width,)).copy()
        if shift:
            words >>= shift
        np.bitwise_and(words, mask, out=out[:, number])
    return out.reshape(-1)


def pick_packed(data: bytes, width: int, places: Int64s) -> Int64s:
    """Return the values at these places of the groups in `data`, which ends with `PADDING`; `width` is 1 to
    32."""
    bits = places * width
    words: npt.NDArray[np.int64] = np.ndarray((len(data) - len(PADDING) + 1,), "<i8", data, 0, (1,))
    numbers: Int64s = words[bits >> 3]
    numbers >>= bits & 7
    numbers &= (1 << width) - 1
    return numbers


def are_below(data: bytes, width: int, limit: int) -> bool:
    """Return whether all values of the groups in `data`, which ends with `PADDING`, are below a limit.

    Values of up to 16 bits are compared several at once, as they are packed: to each an addend is added that
    carries into the bits of its neighbour, which were cleared, where the limit is reached.
    """
    count = (len(data) - len(PADDING)) // width
    if limit >= 1 << width or not count:
        return True
    if width > _MOST_COMPARED:
        return int(unpack_groups(data, width).max()) < limit
    for at, shift, (mask, addend, carry) in _comparisons(width, limit):
        words = np.ndarray((count,), "<u8", data, at, (width,)).copy()
        if shift:
            words >>= shift
        others = words >> width
        for some in (words, others):
            some &= mask
            some += addend
        words |= others
        if int(np.bitwise_or.reduce(words)) & carry:
            return False
    return True


@lru_cache(64)
def _comparisons(width: int, limit: int) -> list[tuple[int, int, tuple[np.uint64, np.uint64, int]]]:
    """Return for each word of a group: its byte, the bit that its values begin at, and the constants for
    every other value."""
    # Four values of 16 bits fill a word; with one bit less, they fit behind the four bits where the second
    # word begins.
    in_word = GROUP if width * GROUP <= 64 else GROUP // 2
    places = range(0, in_word * width, 2 * width)
    mask, addend, carry = (
        sum(number << place for place in places)
        for number in ((1 << width) - 1, (1 << width) - limit, 1 << width)
    )
    constants = np.uint64(mask), np.uint64(addend), carry
    return [(*divmod(first * width, 8), constants) for first in range(0, GROUP, in_word)]
