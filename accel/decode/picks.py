"""Dictionary-encoded pages of which few rows are wanted: their indices are read off where they lie.

For a page or two pyarrow's reader takes longer to be opened than to decode. Many pages are decoded by it, which is
faster once it is open. A page with nulls, or of any form that is not quite this one, is left to it too.

Source: parquet-format `Encodings.md` (RLE/bit-packed hybrid; RLE_DICTIONARY).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from accel import kernels
from accel.arrays import from_numpy
from accel.decode.bodies import DataPage, value_bytes
from accel.decode.entries import pick_entries
from accel.decode.forms import Form
from accel.decode.verify import DictionaryFacts
from accel.format.model import SchemaElement
from accel.format.runs import Runs, find_runs, unpack_runs
from accel.planning.selection import RowSelection

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = ["MOST_PICKED", "PickedPages", "read_picks"]


MOST_PICKED: Final = 1 << 15
"""More rows, selected or not, are faster decoded by pyarrow: all indices of a page that is read are unpacked."""
_MOST_RUNS: Final = 512
"""Of a page. Packed ones of one length in a row count as one."""
_MOST_LOOKED_AT: Final = 256
"""Of several pages together: pyarrow decodes all of them in the time that so many looks take."""
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
    cuts = [0, *chosen.searchsorted(ends).tolist()]
    held = [number for number in range(len(pages)) if cuts[number + 1] > cuts[number]]
    counts = [pages[number].num_values for number in held]
    if sum(counts) > MOST_PICKED:
        return None
    bodies = value_bytes([pages[number] for number in held], optional=optional)
    picked = PickedPages(named.entries)
    for done, (count, raw) in enumerate(zip(counts, bodies, strict=True), 1):
        if raw is None or not picked.add(raw.tobytes(), count):
            return None
        # Those that are left are taken to be as these.
        if done < len(held) and picked.looked_at * len(held) > _MOST_LOOKED_AT * done:
            return None
    indices = picked.indices()
    if indices is None:
        return None
    if len(held) < len(pages):
        # Where the rows lie in the pages that were read.
        skipped = ends[held] - np.cumsum(counts)
        chosen = chosen - skipped[ends[held].searchsorted(chosen, "right")]
    indices = indices[chosen]
    entries, places = pick_entries(named, codec, element=element, kind=kind, form=form, indices=indices)
    return entries if places is None else kernels.take(entries, from_numpy(places))


class PickedPages:
    """The indices of pages behind each other: their runs are looked through one by one, and unpacked together.

    All indices of a page are unpacked, and held against the dictionary, however few are picked.
    """

    __slots__ = (
        "_bits",
        "_data",
        "_entries",
        "_firsts",
        "_found",
        "_repeated",
        "_size",
        "_values",
        "_width",
        "looked_at",
    )

    def __init__(self, entries: int) -> None:
        self._entries = entries
        self._found: list[Int64s] = []
        self._width = 0
        # Of pages of this width, which are yet to be unpacked: their bytes, their values, and their runs.
        self._data: list[bytes] = []
        self._size = self._values = 0
        self._firsts: list[int] = []
        self._bits: list[int] = []
        self._repeated: list[int] = []
        self.looked_at = 0
        """Runs that took a look of their own."""

    def add(self, data: bytes, count: int) -> bool:
        """The next page; False where it is not quite what writers make, or repeats what is no entry."""
        width = data[0] if data else -1
        runs = find_runs(data, start=1, width=width, count=count, most_runs=_MOST_RUNS)
        if runs is None or runs.most >= self._entries:
            return False
        self.looked_at += runs.steps
        if width != self._width:
            self._unpack()
            self._width = width
        first, bit = self._values, self._size << 3
        self._firsts.extend([first + at for at in runs.firsts] if first else runs.firsts)
        self._bits.extend([bit + at for at in runs.bits] if bit else runs.bits)
        self._repeated.extend(runs.values)
        self._data.append(data)
        self._size += len(data)
        self._values += count
        return True

    def _unpack(self) -> None:
        if not self._data:
            return
        runs = Runs(self._firsts, self._bits, self._repeated, 0)
        data = self._data[0] if len(self._data) == 1 else b"".join(self._data)
        self._found.append(unpack_runs(data, runs, width=self._width, count=self._values))
        self._data, self._firsts, self._bits, self._repeated = [], [], [], []
        self._size = self._values = 0

    def indices(self) -> Int64s | None:
        """All indices of the pages; None where one of them names what is no entry."""
        self._unpack()
        found = np.concatenate(self._found) if len(self._found) != 1 else self._found[0]
        return found if not len(found) or int(found.max()) < self._entries else None
