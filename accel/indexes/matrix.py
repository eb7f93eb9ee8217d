"""Which of many keys stand in which of many units: a sparse matrix of bits.

Cell (key, unit) is member `key * units + unit` of a roaring bitmap. Members have 32 bits, so a
matrix is cut into blocks of whole keys.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from accel.arrays import sort_distinct
from accel.errors import IndexFormatError
from accel.indexes.roaring import bitmap_runs, decode_bitmap, encode_bitmap

if TYPE_CHECKING:
    from pyroaring import BitMap

    from accel.arrays import Bools, Int64s
    from accel.indexes.wire import BlobReader, BlobWriter

__all__ = ["Matrix", "distinct_cells", "keys_per_block", "write_matrix"]


_MEMBERS = 1 << 32
_DENSE = 1 << 20
"""So many flags are always looked through rather than sorting."""
_FEW = 64
"""Up to so many keys are looked up one by one; for more, all cells are read."""
_MOST_CELLS = 1 << 22
"""Up to so many set cells of a block are looked at one by one; more of them as the runs that they are stored as."""


def distinct_cells(rows: Int64s, columns: Int64s, *, width: int, height: int) -> Int64s:
    """Cells `row * width + column` that occur, ascending, of rows below `height` and columns below `width`."""
    cells = rows * width
    cells += columns
    if width * height > 16 * len(cells) + _DENSE:
        return sort_distinct(cells)
    seen = np.zeros(width * height, bool)
    seen[cells] = True
    return np.flatnonzero(seen)


def keys_per_block(units: int) -> int:
    """The keys of every block but the last."""
    return _MEMBERS // max(units, 1)


def write_matrix(out: BlobWriter, cells: Int64s, *, keys: int, units: int) -> None:
    """Write the set cells, given ascending as `key * units + unit`: a block of bytes a bitmap."""
    step = keys_per_block(units)
    for first in range(0, keys, step):
        low, high = np.searchsorted(cells, (first * units, min(first + step, keys) * units))
        out.block(encode_bitmap((cells[low:high] - first * units).astype(np.uint32)))


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """A matrix read back."""

    keys: int
    units: int
    blocks: tuple[BitMap, ...]
    nbytes: int

    @classmethod
    def read(cls, data: BlobReader, *, keys: int, units: int) -> Matrix:
        """Raises IndexFormatError for cells that are not, and for what is no matrix."""
        if units < 1 and keys:
            raise IndexFormatError("an index has keys and no units")
        step = keys_per_block(units)
        before = data.left
        blocks = tuple(
            decode_bitmap(data.block(), limit=min(step, keys - first) * units)
            for first in range(0, keys, step)
        )
        return cls(keys, units, blocks, before - data.left + 64)

    def row(self, key: int) -> Int64s:
        """The units of a key, ascending."""
        from pyroaring import BitMap

        step = keys_per_block(self.units)
        low = key % step * self.units
        found = self.blocks[key // step] & BitMap(range(low, low + self.units))
        return np.frombuffer(found.to_array(), np.uint32).astype(np.int64) - low

    def cells(self) -> tuple[Int64s, Int64s]:
        """The key and the unit of each cell that is set, by keys, then units."""
        step = keys_per_block(self.units)
        found = [
            np.frombuffer(block.to_array(), np.uint32).astype(np.int64) + number * step * self.units
            for number, block in enumerate(self.blocks)
        ]
        keys, units = np.divmod(np.concatenate([np.zeros(0, np.int64), *found]), max(self.units, 1))
        return keys, units

    def any(self, keys: Bools) -> Bools:
        """Units that have one of the keys, given as flags of all keys."""
        out = np.zeros(self.units, bool)
        wanted = np.flatnonzero(keys)
        if len(wanted) <= _FEW:
            for key in wanted.tolist():
                out[self.row(key)] = True
            return out
        step = keys_per_block(self.units)
        for number, block in enumerate(self.blocks):
            if len(block) > _MOST_CELLS:
                out |= _units_of_runs(block, keys[number * step : (number + 1) * step], self.units)
                continue
            cells = np.frombuffer(block.to_array(), np.uint32).astype(np.int64)
            out[(cells % self.units)[keys[number * step + cells // self.units]]] = True
        return out

    def all(self, keys: Iterable[int]) -> Bools:
        """Units that have every one of the keys."""
        out = np.ones(self.units, bool)
        for key in keys:
            here = np.zeros(self.units, bool)
            here[self.row(key)] = True
            out &= here
            if not bool(out.any()):
                break
        return out


def _units_of_runs(block: BitMap, keys: Bools, units: int) -> Bools:
    """Units that have one of the keys, given as flags of the keys of the block."""
    before = np.concatenate(([0], np.cumsum(keys)))
    # How many more runs hold a unit than hold the one before it.
    rises = np.zeros(units + 1, np.int64)
    for first, last in bitmap_runs(block):
        (first_key, low), (last_key, high) = np.divmod(first, units), np.divmod(last, units)
        longer = last_key > first_key
        starts, ends = keys[first_key], longer & keys[last_key]
        np.add.at(rises, low[starts], 1)
        np.subtract.at(rises, np.where(longer, units, high + 1)[starts], 1)
        np.subtract.at(rises, high[ends] + 1, 1)
        # Keys of which a run holds all units.
        between = longer & (before[last_key] > before[first_key + longer])
        rises[0] += np.count_nonzero(ends) + np.count_nonzero(between)
        rises[units] -= np.count_nonzero(between)
    held: Bools = np.cumsum(rises[:-1]) > 0
    return held
