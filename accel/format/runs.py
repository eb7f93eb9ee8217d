"""RLE and bit-packed runs of levels and dictionary indices, read within the bounds of their page.

A run states how many values it has, and only the page shows whether that can be true. All code that reads
runs without pyarrow reads them here. Accepted is what writers produce: no empty run, none that exceeds the
values of its page except by the padding of the last packed group, no byte left over. Pyarrow reads or refuses
all other runs.

Source: parquet-format `Encodings.md` (RLE/bit-packed hybrid).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from accel.format.bit_packing import GROUP, PADDING, Ints, are_below, pick_packed, unpack_groups
from accel.ranges import Buffer

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = [
    "MOST_BYTES",
    "PackedBody",
    "RunValues",
    "Runs",
    "begins_with_row",
    "continues_row",
    "find_runs",
    "read_head",
]

LONGEST_HEAD: Final = 5
"""Most bytes of the 32-bit varint that begins a run."""
_MOST_WIDTH: Final = 32
_PACKED: Final = -1


class Runs(NamedTuple):
    """The runs of one page's levels or indices, in order; consecutive packed runs of one length count as
    one."""

    firsts: list[int]
    """The index of the first value of each run."""
    values: list[int]
    """The repeated value; -1 for a packed run."""
    bodies: list[PackedBody]
    """The bytes of the packed runs."""

    @property
    def most(self) -> int:
        """The greatest repeated value."""
        return max(self.values, default=_PACKED)


class PackedBody(NamedTuple):
    """The bytes of packed runs of one length, each behind a head of one byte where there are several."""

    start: int
    """Offset of the first group."""
    groups: int
    """Groups of each run."""
    repeats: int


def read_head(data: bytes, at: int) -> tuple[int, int]:
    """Return the header of the run at `at` and the offset behind it; (0, at) where no 32-bit varint is there.

    The lowest bit says whether the run is packed; the other bits count its groups of eight or its values. A
    run has at least one, so a header is never 0 or 1.
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
        The result is None where there are more.
    """
    if not 0 <= width <= _MOST_WIDTH:
        return None
    size, whole, limit = len(data), (width + 7) >> 3, 1 << width
    firsts: list[int] = []
    values: list[int] = []
    bodies: list[PackedBody] = []
    position, seen = start, 0
    while seen < count and len(firsts) < most_runs:
        head, at = read_head(data, position)
        left = count - seen
        if not head:
            return None
        firsts.append(seen)
        if not head & 1:
            value = int.from_bytes(data[at : at + whole], "little")
            if head >> 1 > left or at + whole > size or value >= limit:
                return None
            values.append(value)
            seen, position = seen + (head >> 1), at + whole
            continue
        groups = head >> 1
        step, filled, repeats = at - position + groups * width, groups * GROUP, 1
        if at == position + 1 and filled <= left:
            # Count the following runs with the same header at once; a padded last run comes by itself.
            heads = data[position : position + step * (left // filled) : step]
            repeats = len(heads) - len(heads.lstrip(data[position:at]))
        elif groups > (left + GROUP - 1) // GROUP:
            return None
        if position + repeats * step > size:
            return None
        # Values of no bits are a repeated 0.
        values.append(_PACKED if width else 0)
        if width:
            bodies.append(PackedBody(at, groups, repeats))
        seen, position = seen + repeats * filled, position + repeats * step
    return Runs(firsts, values, bodies) if seen >= count and position == size else None


class RunValues:
    """The values of runs of one width, of one page or of several one after the other.

    The groups of all packed runs are joined, so that they are looked at together.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self.count = 0
        self._firsts: list[int] = []
        self._values: list[int] = []
        # What is added to the index of a value to get its place among the packed ones.
        self._shifts: list[int] = []
        self._parts: list[Buffer] = []
        self._packed = 0
        self._joined = b""

    def add(self, data: bytes, runs: Runs, *, count: int) -> None:
        """Append the `count` values of the runs that `find_runs` found in `data`."""
        width, before, bodies = self.width, self.count, iter(runs.bodies)
        self._firsts.extend([before + first for first in runs.firsts] if before else runs.firsts)
        self._values.extend(runs.values)
        self.count += count
        for first, value in zip(runs.firsts, runs.values, strict=True):
            if value > _PACKED:
                self._shifts.append(0)
                continue
            start, groups, repeats = next(bodies)
            size = groups * width
            self._shifts.append(self._packed - before - first)
            self._packed += GROUP * groups * repeats
            if repeats == 1:
                self._parts.append(memoryview(data)[start : start + size])
            else:
                self._parts.append(_without_heads(data, start, size, repeats))

    def are_below(self, limit: int) -> bool:
        """Return whether all values are below `limit`."""
        if max(self._values, default=_PACKED) >= limit:
            return False
        if not self._packed or are_below(self._groups(), self.width, limit):
            return True
        # What fills up the last group of a page is no value, and may be anything.
        return int(self.unpack().max(initial=0)) < limit

    def unpack(self) -> Ints:
        """Return all values, in order."""
        if not any(self._shifts) and max(self._values, default=_PACKED) == _PACKED:
            return unpack_groups(self._groups(), self.width)[: self.count]
        counts = np.diff(np.array([*self._firsts, self.count]))
        if not self._packed:
            return np.array(self._values, np.int64).repeat(counts)
        packed = unpack_groups(self._groups(), self.width)
        out: Ints = np.array(self._values, packed.dtype).repeat(counts)
        stops = [*self._firsts[1:], self.count]
        for first, stop, value, shift in zip(self._firsts, stops, self._values, self._shifts, strict=True):
            if value == _PACKED:
                out[first:stop] = packed[first + shift : stop + shift]
        return out

    def pick(self, places: Int64s) -> Int64s:
        """Return the values with these indices."""
        owner = np.array(self._firsts).searchsorted(places, "right") - 1
        repeated: Int64s = np.array(self._values, np.int64)[owner]
        if not self._packed:
            return repeated
        places = places + np.array(self._shifts, np.int64)[owner]
        is_packed = repeated == _PACKED
        places[~is_packed] = 0
        return np.where(is_packed, pick_packed(self._groups(), self.width, places), repeated)

    def _groups(self) -> bytes:
        """Return the groups of all packed runs, and the padding behind them."""
        if self._parts:
            self._joined = b"".join((self._joined[: -len(PADDING)], *self._parts, PADDING))
            self._parts = []
        return self._joined


def _without_heads(data: bytes, start: int, size: int, repeats: int) -> Buffer:
    """Return the bytes of packed runs of one size, each behind a head of one byte."""
    runs: npt.NDArray[np.uint8] = np.ndarray((repeats, size), np.uint8, data, start, (size + 1, 1))
    return runs.tobytes()


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


def continues_row(levels: bytes, max_repetition: int, *, count: int) -> bool:
    """Return whether a repetition level other than 0 lies behind the first `count`.

    It belongs to an item of the page's last row, since writers fill up the last group with zeros. Bytes that
    are no runs are left to pyarrow, which refuses them.
    """
    width = max_repetition.bit_length()
    whole = (width + 7) >> 3
    position = seen = 0
    while position < len(levels):
        head, at = read_head(levels, position)
        if not head:
            return False
        packed = head & 1
        values = (head >> 1) * GROUP if packed else head >> 1
        position = at + ((head >> 1) * width if packed else whole)
        if seen + values > count:
            body = int.from_bytes(levels[at:position], "little")
            if body >> (max(count - seen, 0) * width if packed else 0):
                return True
        seen += values
    return False
