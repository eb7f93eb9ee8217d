"""Dictionary-encoded pages of which few rows are wanted: their indices are read off where they lie.

For a page or two pyarrow's reader takes longer to be opened than to decode. Many pages are decoded by it, which is
faster once it is open. A page with nulls, or of any form that is not quite this one, is left to it too.

Source: parquet-format `Encodings.md` (RLE/bit-packed hybrid; RLE_DICTIONARY).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel import kernels
from accel.arrays import from_numpy
from accel.decode.bodies import DataPage, value_bytes
from accel.decode.entries import pick_entries
from accel.decode.forms import Form
from accel.decode.verify import DictionaryFacts
from accel.format.model import SchemaElement
from accel.planning.selection import RowSelection

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = ["MOST_PICKED", "Runs", "read_picks"]


MOST_PICKED: Final = 1 << 15
"""More rows, selected or not, are faster decoded by pyarrow."""
_MOST_RUNS: Final = 512
"""Packed ones of one length in a row count as one."""
_MOST_LOOKED_AT: Final = 256
"""Of several pages together: pyarrow decodes all of them in the time that so many looks take."""
_MOST_WIDTH: Final = 32
_GROUP: Final = 8
_PLACES: Final = np.arange(_GROUP)
_FEW_GROUPS: Final = 256
"""Up to this many picked rows, all eight numbers of the packed group around each are unpacked and checked: damage that
shifts one shifts its whole group, and such a group seldom names only entries that exist. For more rows, eight times
the work costs more than it finds."""
_MOST_BYTES: Final = 1 << 30


def read_picks(
    pages: Sequence[DataPage],
    rows: RowSelection,
    *,
    named: DictionaryFacts,
    codec: int,
    element: SchemaElement,
    kind: pa.DataType,
    form: Form,
    optional: bool,
) -> pa.Array | None:
    """The selected rows of pages that are all dictionary-encoded; None where they are to be read in the common way.

    Parameters
    ----------
    rows : RowSelection
        Counted from the first row of the pages given.
    kind, form
        Of the array, and how its values lie in the dictionary.

    Raises
    ------
    ParquetFormatError
        A checksum does not match, or the dictionary does not decode.
    """
    if named.longest * rows.count > _MOST_BYTES:
        return None
    chosen = rows.row_numbers()
    ends = np.array([page.num_values for page in pages]).cumsum()
    firsts = [0, *ends.tolist()]
    cuts = [0, *chosen.searchsorted(ends).tolist()]
    held = [number for number in range(len(pages)) if cuts[number + 1] > cuts[number]]
    bodies = value_bytes([pages[number] for number in held], optional=optional)
    runs = Runs(named.entries)
    for done, (number, raw) in enumerate(zip(held, bodies, strict=True), 1):
        if raw is None or not runs.add(raw.tobytes(), pages[number].num_values, firsts[number]):
            return None
        # Those that are left are taken to be as these.
        if done < len(held) and runs.looked_at * len(held) > _MOST_LOOKED_AT * done:
            return None
    indices = runs.values(chosen)
    if indices is None:
        return None
    entries, places = pick_entries(named, codec, element=element, kind=kind, form=form, indices=indices)
    return entries if places is None else kernels.take(entries, from_numpy(places))


class Runs:
    """The runs of pages behind each other: looked through one by one, but read from all at once.

    What lies between the values that are picked is not looked at, so the runs have to be just what writers make of a
    page of so many values and a dictionary of so many entries.
    """

    __slots__ = (
        "_bits",
        "_data",
        "_entries",
        "_firsts",
        "_fixed",
        "_most_width",
        "_size",
        "_stops",
        "_widths",
        "looked_at",
    )

    def __init__(self, entries: int) -> None:
        self._entries = entries
        # The number of the entries itself may have set the width, not the last one's, or whole bytes.
        self._most_width = min(-(-entries.bit_length() // 8) * 8, _MOST_WIDTH)
        self._data: list[bytes] = []
        self._size = 0
        self._widths: list[int] = []
        """Of each page, and the number of runs up to its end."""
        self._stops: list[int] = []
        self._firsts: list[int] = []
        """Of each run its first value, the bit at which it begins, and its value, -1 where it is packed."""
        self._bits: list[int] = []
        self._fixed: list[int] = []
        self.looked_at = 0
        """Runs that took a look of their own."""

    def add(self, data: bytes, count: int, first: int) -> bool:
        """The next page, whose values are numbered from `first` on; False where it is not quite what it should be."""
        if not data or data[0] > self._most_width:
            return False
        if not self._look_through(data, count, first):
            return False
        self._widths.append(data[0])
        self._stops.append(len(self._firsts))
        self._data.append(data)
        self._size += len(data)
        return True

    def _look_through(self, data: bytes, count: int, first: int) -> bool:
        width, position, seen = data[0], 1, 0
        size, whole, before = len(data), (data[0] + 7) >> 3, self._size
        for _ in range(_MOST_RUNS):
            if seen >= count:
                break
            self.looked_at += 1
            start, head = position, 0
            while True:
                if position >= size or position - start > 4:
                    return False
                byte = data[position]
                head |= (byte & 0x7F) << 7 * (position - start)
                position += 1
                if byte < 0x80:
                    break
            if head < 2:
                return False
            if head & 1:
                held, step = (head >> 1) << 3, (head >> 1) * width + 1
                # Writers have many packed runs of one length in a row, each behind the same byte.
                alike = 1
                if position == start + 1:
                    heads = data[start : start + step * -(-(count - seen) // held) : step]
                    alike = len(heads) - len(heads.lstrip(data[start:position]))
                at, bit = first + seen, (before + position) << 3
                self._firsts.extend(range(at, at + alike * held, held))
                self._bits.extend(range(bit, bit + (alike * step << 3), step << 3))
                self._fixed.extend([-1] * alike)
                seen += alike * held
                position += alike * step - 1
            else:
                value = int.from_bytes(data[position : position + whole], "little")
                if value >= self._entries:
                    return False
                self._firsts.append(first + seen)
                self._bits.append((before + position) << 3)
                self._fixed.append(value)
                seen += head >> 1
                position += whole
            if position > size:
                return False
        # The last run may be filled up; nothing follows.
        return position == size and seen >= count

    def values(self, wanted: Int64s) -> Int64s | None:
        """Those with these numbers, ascending, each of a page that was added; None where one of them, or of what lies
        next to them, names no entry."""
        firsts, bits = np.array(self._firsts, np.int64), np.array(self._bits, np.int64)
        run = firsts.searchsorted(wanted, "right") - 1
        width: int | Int64s = self._widths[0]
        if len(set(self._widths)) > 1:
            width = np.array(self._widths, np.int64)[
                np.array(self._stops, np.int64).searchsorted(run, "right")
            ]
        inside = wanted - firsts[run]
        place = bits[run] + inside * width
        if max(self._fixed) < 0:
            return self._named(width, place, inside)
        value = np.array(self._fixed, np.int64)[run]
        packed = value < 0
        if packed.any():
            own = width if isinstance(width, int) else width[packed]
            found = self._named(own, place[packed], inside[packed])
            if found is None:
                return None
            value[packed] = found
        return value

    def _named(self, width: int | Int64s, place: Int64s, inside: Int64s) -> Int64s | None:
        """The numbers of so many bits that begin at these bits, as the so many of their runs; None where one of them, or
        of a few of them one of its group, is too large."""
        if len(place) > _FEW_GROUPS:
            found = self._unpack(width, place)
            return found if int(found.max()) < self._entries else None
        # What shifts the numbers, or makes them wider, does so to all of a group, and few such groups name entries.
        nth = inside & (_GROUP - 1)
        wide: int | Int64s = width if isinstance(width, int) else width[:, None]
        groups = self._unpack(wide, (place - nth * width)[:, None] + _PLACES * wide)
        if int(groups.max()) >= self._entries:
            return None
        own: Int64s = groups[np.arange(len(nth)), nth]
        return own

    def _unpack(self, width: int | Int64s, place: Int64s) -> Int64s:
        """The numbers of so many bits that begin at these bits."""
        # Eight bytes from any place on hold a number of 32 bits, wherever in a byte it begins.
        data = b"".join((*self._data, bytes(8)))
        words: npt.NDArray[np.int64] = np.ndarray((len(data) - 7,), "<i8", data, 0, (1,))
        numbers: Int64s = words[place >> 3] >> (place & 7)
        if isinstance(width, int):
            numbers &= (1 << width) - 1
        else:
            numbers &= (np.int64(1) << width) - 1
        return numbers
