"""RLE and bit-packed runs of levels and dictionary indices, read within the bounds of their page.

A run states how many values it has, and only the page shows whether that can be true. All code that reads runs
without pyarrow reads them here. Accepted is what writers produce: no empty run, none that exceeds the values of its
page except by the padding of the last packed group, no byte left over. Pyarrow reads or refuses all other runs.

Source: parquet-format `Encodings.md` (RLE/bit-packed hybrid).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from accel.ranges import Buffer

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = [
    "MOST_BYTES",
    "Runs",
    "begins_with_row",
    "find_runs",
    "read_head",
    "unpack_runs",
]

LONGEST_HEAD: Final = 5
"""Most bytes of the 32-bit varint that begins a run."""
_MOST_WIDTH: Final = 32
_GROUP: Final = 8
_PACKED: Final = -1


class Runs(NamedTuple):
    """The runs of one page's levels or indices, in order."""

    firsts: list[int]
    """The index of the first value of each run."""
    bits: list[int]
    """The bit offset of its values in the data."""
    values: list[int]
    """The repeated value; -1 for a packed run."""
    steps: int
    """Headers that were parsed one by one."""

    @property
    def most(self) -> int:
        """The greatest repeated value."""
        return max(self.values, default=_PACKED)


def read_head(data: bytes, at: int) -> tuple[int, int]:
    """Return the header of the run at `at` and the offset behind it; (0, at) where no 32-bit varint is there.

    The lowest bit says whether the run is packed; the other bits count its groups of eight or its values. A run has
    at least one, so a header is never 0 or 1.
    """
    number, size = 0, len(data)
    for place in range(LONGEST_HEAD):
        if at + place >= size:
            break
        byte = data[at + place]
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return (number, at + place + 1) if 1 < number < 1 << 32 else (0, at)
    return 0, at


def find_runs(data: bytes, *, start: int, width: int, count: int, most_runs: int) -> Runs | None:
    """Return the runs that fill `data` from `start` on; None where they do not hold exactly `count` values.

    Parameters
    ----------
    width : int
        Bits of a value.
    most_runs : int
        The result is None where there are more. Consecutive packed runs of one length count as one.
    """
    if not 0 <= width <= _MOST_WIDTH:
        return None
    size, whole, limit = len(data), (width + 7) >> 3, 1 << width
    firsts: list[int] = []
    bits: list[int] = []
    values: list[int] = []
    position, seen, steps = start, 0, 0
    while seen < count and steps < most_runs:
        steps += 1
        head, at = read_head(data, position)
        left = count - seen
        if not head:
            return None
        if not head & 1:
            value = int.from_bytes(data[at : at + whole], "little")
            if head >> 1 > left or at + whole > size or value >= limit:
                return None
            firsts.append(seen)
            bits.append(at << 3)
            values.append(value)
            seen, position = seen + (head >> 1), at + whole
            continue
        groups = head >> 1
        step, filled, repeats = at - position + groups * width, groups * _GROUP, 1
        if at == position + 1 and filled <= left:
            # Count the following runs with the same header at once; a padded last run comes by itself.
            heads = data[position : position + step * (left // filled) : step]
            repeats = len(heads) - len(heads.lstrip(data[position:at]))
        elif groups > (left + _GROUP - 1) // _GROUP:
            return None
        if position + repeats * step > size:
            return None
        firsts.extend(range(seen, seen + repeats * filled, filled))
        bits.extend(range(at << 3, (at + repeats * step) << 3, step << 3))
        values.extend([_PACKED] * repeats)
        seen, position = seen + repeats * filled, position + repeats * step
    return Runs(firsts, bits, values, steps) if seen >= count and position == size else None


def unpack_runs(data: bytes, runs: Runs, *, width: int, count: int) -> Int64s:
    """Return all values of the runs that `find_runs` found in the same data."""
    ends = np.array([*runs.firsts[1:], count], np.int64)
    counts: Int64s = ends - np.array(runs.firsts, np.int64)
    repeated = np.array(runs.values, np.int64)
    if runs.values and min(runs.values) > _PACKED:
        return repeated.repeat(counts)
    # The bit offset of each value, as if all values before its run were packed just before it.
    places = (np.array(runs.bits, np.int64) - np.array(runs.firsts, np.int64) * width).repeat(counts)
    places += np.arange(0, count * width, width) if width else 0
    packed = None
    if runs.most > _PACKED:
        repeated = repeated.repeat(counts)
        packed = repeated < 0
        places[~packed] = 0
    # Eight bytes hold a number of 32 bits at any bit of the first byte.
    padded = data + bytes(8)
    words: npt.NDArray[np.int64] = np.ndarray((len(padded) - 7,), "<i8", padded, 0, (1,))
    numbers: Int64s = words[places >> 3]
    numbers >>= places & 7
    numbers &= (1 << width) - 1
    return numbers if packed is None else np.where(packed, numbers, repeated)


_MAX_LEVEL_BYTES = 4
MOST_BYTES = LONGEST_HEAD + _MAX_LEVEL_BYTES
"""Bytes of a page's levels that `begins_with_row` reads at most."""


def begins_with_row(levels: Buffer, max_repetition: int) -> bool:
    """Return whether the first repetition level is 0; False where the bytes do not tell."""
    width = max_repetition.bit_length()
    whole = (width + 7) >> 3
    front = bytes(memoryview(levels)[: LONGEST_HEAD + whole])
    head, at = read_head(front, 0)
    # A repeated level, or the first of packed ones in its lowest bits.
    first = front[at : at + whole]
    level = int.from_bytes(first, "little") & ((1 << width) - 1)
    return bool(head) and len(first) == whole and not level
