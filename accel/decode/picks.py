"""Dictionary-encoded pages of which few rows are wanted: their indices are read off where they lie.

For a page or two pyarrow's reader takes longer to be opened than to decode. Many pages are decoded by it, which is
faster once it is open. A page with nulls, or of any form that is not quite this one, is left to it too.

Source: parquet-format `Encodings.md` (RLE/bit-packed hybrid; RLE_DICTIONARY).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel import kernels
from accel.arrays import from_numpy
from accel.decode.bodies import Bytes, DataPage, value_bytes
from accel.decode.entries import pick_entries
from accel.decode.forms import Form
from accel.decode.verify import DictionaryFacts
from accel.format.model import SchemaElement
from accel.planning.selection import RowSelection

__all__ = ["MOST_PICKED", "pick_indices", "read_picks"]

Int64s = npt.NDArray[np.int64]

MOST_PICKED: Final = 1 << 15
"""More rows, selected or not, are faster decoded by pyarrow."""
_MOST_RUNS: Final = 512
"""Packed ones of one length in a row count as one."""
_MOST_WIDTH: Final = 32
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
    verify_checksums: bool,
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
    ends = np.cumsum([page.num_values for page in pages])
    firsts = [0, *ends.tolist()]
    cuts = [0, *chosen.searchsorted(ends).tolist()]
    held = [number for number in range(len(pages)) if cuts[number + 1] > cuts[number]]
    bodies = value_bytes(
        [pages[number] for number in held], optional=optional, verify_checksum=verify_checksums
    )
    picked: list[Int64s] = []
    for number, raw in zip(held, bodies, strict=True):
        wanted = chosen[cuts[number] : cuts[number + 1]] - firsts[number]
        found = None if raw is None else pick_indices(raw, pages[number].num_values, wanted)
        if found is None:
            return None
        picked.append(found)
    indices = picked[0] if len(picked) == 1 else np.concatenate(picked)
    if int(indices.max()) >= named.entries:
        return None
    entries, places = pick_entries(named, codec, element, kind, form, indices)
    return entries if places is None else kernels.take(entries, from_numpy(places))


def pick_indices(raw: Bytes, count: int, wanted: Int64s) -> Int64s | None:
    """Some of the indices that the values of a page are; None where the bytes are not quite what they should be.

    Parameters
    ----------
    raw : array of bytes
        The bit width in a byte, then the runs.
    count : int
        Values of the page, none of them null.
    wanted : array
        Places below `count`, ascending.
    """
    runs = _runs(raw.tobytes(), count)
    if runs is None:
        return None
    width, firsts, bits, fixed = runs
    run = firsts.searchsorted(wanted, "right") - 1
    place = bits[run] + (wanted - firsts[run]) * width
    if fixed is None:
        return _unpack(raw, width, place)
    value = fixed[run]
    packed = value < 0
    value[packed] = _unpack(raw, width, place[packed])
    return value


def _unpack(raw: Bytes, width: int, place: Int64s) -> Int64s:
    """The numbers of so many bits that begin at these bits."""
    if not len(place):
        return place
    # Eight bytes from any place on hold a number of 32 bits, wherever in a byte it begins.
    if (int(place.max()) >> 3) + 8 > len(raw):
        padded = np.zeros(len(raw) + 8, np.uint8)
        padded[: len(raw)] = raw
        raw = padded
    words: npt.NDArray[np.int64] = np.ndarray((len(raw) - 7,), "<i8", raw, 0, (1,))
    numbers: Int64s = words[place >> 3] >> (place & 7)
    numbers &= (1 << width) - 1
    return numbers


def _runs(data: bytes, count: int) -> tuple[int, Int64s, Int64s, Int64s | None] | None:
    """The bit width; of each run its first value, the bit at which it begins, and its value, -1 where it is packed;
    None instead of the values where all are."""
    if not data or data[0] > _MOST_WIDTH:
        return None
    width, position, seen = data[0], 1, 0
    size, whole = len(data), (data[0] + 7) >> 3
    firsts: list[int] = []
    bits: list[int] = []
    fixed: list[int] = []
    for _ in range(_MOST_RUNS):
        if seen >= count:
            break
        start, head = position, 0
        while True:
            if position >= size or position - start > 4:
                return None
            byte = data[position]
            head |= (byte & 0x7F) << 7 * (position - start)
            position += 1
            if byte < 0x80:
                break
        if head < 2:
            return None
        if head & 1:
            held, step = (head >> 1) << 3, (head >> 1) * width + 1
            # Writers have many packed runs of one length in a row, each behind the same byte.
            alike = 1
            if position == start + 1:
                heads = data[start : start + step * -(-(count - seen) // held) : step]
                alike = len(heads) - len(heads.lstrip(data[start:position]))
            firsts.extend(range(seen, seen + alike * held, held))
            bits.extend(range(position << 3, (position + alike * step) << 3, step << 3))
            fixed.extend([-1] * alike)
            seen += alike * held
            position += alike * step - 1
        else:
            firsts.append(seen)
            bits.append(position << 3)
            fixed.append(int.from_bytes(data[position : position + whole], "little"))
            seen += head >> 1
            position += whole
        if position > size:
            return None
    if seen < count:
        return None
    values = np.array(fixed, np.int64) if max(fixed, default=-1) >= 0 else None
    return width, np.array(firsts, np.int64), np.array(bits, np.int64), values
