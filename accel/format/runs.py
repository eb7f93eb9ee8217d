"""Runs of levels and of indices into a dictionary, read within their bounds.

A run says how many values it has, and nothing but the page says whether there are so many. Everything that looks at
runs without pyarrow reads them here. What is accepted is what writers make: no run of nothing, none that goes on
behind the values of its page but for the filling of the last packed group, no byte left over. Other runs may be legal:
they are left to pyarrow, which then reads them or refuses them.

Source: parquet-format `Encodings.md` (RLE/bit-packed hybrid).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = ["LONGEST_HEAD", "Runs", "find_runs", "read_head", "unpack_runs"]

LONGEST_HEAD: Final = 5
"""Bytes of the number that a run begins with, which has 32 bits."""
_MOST_WIDTH: Final = 32
_GROUP: Final = 8
_PACKED: Final = -1


class Runs(NamedTuple):
    """The runs of one page's levels or indices, in order."""

    firsts: list[int]
    """Of each run the number of its first value."""
    bits: list[int]
    """The bit of the data at which its values begin."""
    values: list[int]
    """The value that it repeats; -1 where its values are packed."""
    steps: int
    """How many of them took a look of their own."""

    @property
    def most(self) -> int:
        """The greatest of the values that are repeated."""
        return max(self.values, default=_PACKED)


def read_head(data: bytes, at: int) -> tuple[int, int]:
    """The number that the run at a place begins with, and where it ends; (0, at) where there is none of 32 bits.

    The lowest bit says whether the run is packed; the others count its groups of eight, or its values. A run has at
    least one, so its number is never 0 or 1.
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
    """The runs that fill `data` from `start` on; None where they are not just `count` values, or are of another form.

    Parameters
    ----------
    width : int
        Bits of a value.
    most_runs : int
        None is given where there are more. Packed runs of one length behind each other, as writers have them, count
        as one.
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
        step, held, alike = at - position + groups * width, groups * _GROUP, 1
        if at == position + 1 and held <= left:
            # Each behind the same byte; a last one that is filled up is looked at by itself.
            heads = data[position : position + step * (left // held) : step]
            alike = len(heads) - len(heads.lstrip(data[position:at]))
        elif groups > (left + _GROUP - 1) // _GROUP:
            return None
        if position + alike * step > size:
            return None
        firsts.extend(range(seen, seen + alike * held, held))
        bits.extend(range(at << 3, (at + alike * step) << 3, step << 3))
        values.extend([_PACKED] * alike)
        seen, position = seen + alike * held, position + alike * step
    return Runs(firsts, bits, values, steps) if seen >= count and position == size else None


def unpack_runs(data: bytes, runs: Runs, *, width: int, count: int) -> Int64s:
    """All values of runs that `find_runs` gave for the same data, width and count."""
    ends = np.array([*runs.firsts[1:], count], np.int64)
    counts: Int64s = ends - np.array(runs.firsts, np.int64)
    repeated = np.array(runs.values, np.int64)
    if runs.values and min(runs.values) > _PACKED:
        return repeated.repeat(counts)
    # The bit of each value, as if the values before it in the page were packed just before its run.
    places = (np.array(runs.bits, np.int64) - np.array(runs.firsts, np.int64) * width).repeat(counts)
    places += np.arange(0, count * width, width) if width else 0
    packed = None
    if runs.most > _PACKED:
        repeated = repeated.repeat(counts)
        packed = repeated < 0
        places[~packed] = 0
    # Eight bytes from any place on hold a number of 32 bits, wherever in a byte it begins.
    padded = data + bytes(8)
    words: npt.NDArray[np.int64] = np.ndarray((len(padded) - 7,), "<i8", padded, 0, (1,))
    numbers: Int64s = words[places >> 3]
    numbers >>= places & 7
    numbers &= (1 << width) - 1
    return numbers if packed is None else np.where(packed, numbers, repeated)
