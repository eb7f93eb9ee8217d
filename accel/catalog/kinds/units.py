"""The units of a file that tables of the catalog refer to: stretches of rows, as its pages of some columns
part them.

A place is the ordinal of the file times 2 ** 32, and the number of the unit in it. The units follow from the
metadata that the catalog has of the file, however much of it a scan has in memory: its pages where the offset
indexes tell them, else its row groups. Of several columns each page of any begins a unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from accel.catalog.describing import MOST_METADATA
from accel.catalog.kinds.kind import Hits, RowHits, check_ordinals
from accel.errors import AccelError, IndexFormatError
from accel.format.page_index import chunk_offset_index
from accel.planning.handle import FileHandle
from accel.planning.page_indexes import index_want
from accel.planning.projection import path_leaves
from accel.planning.selection import RowSelection
from accel.ranges import Kind

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s

__all__ = ["FileUnits", "UnitHits", "file_units", "files_of_places", "is_flat", "moved_places", "places_of"]

_UNIT_BITS: Final = 32
_UNIT_MASK: Final = (1 << _UNIT_BITS) - 1


@dataclass(frozen=True, slots=True, eq=False)
class FileUnits:
    """The units of a file. Every row belongs to one, whatever a page index says."""

    groups: Int64s
    """The row group of each."""
    first_rows: Int64s
    """The first row of each in its row group."""
    num_rows: Int64s

    def __len__(self) -> int:
        return len(self.groups)

    def of_rows(self) -> Int64s:
        """Return the number of the unit of each row of the file."""
        return np.repeat(np.arange(len(self)), self.num_rows)

    def rows(self, units: Int64s) -> dict[int, RowSelection]:
        """Return the rows of some units, by row group.

        Raises
        ------
        IndexFormatError
            The file does not have them.
        """
        if len(units) and int(units.max()) >= len(self):
            raise IndexFormatError("the catalog has pages that a file does not have")
        ranges: dict[int, list[tuple[int, int]]] = {}
        for unit in units.tolist():
            first = int(self.first_rows[unit])
            ranges.setdefault(int(self.groups[unit]), []).append((first, first + int(self.num_rows[unit])))
        return {group: RowSelection.of(some) for group, some in sorted(ranges.items())}


def file_units(handle: FileHandle, paths: Sequence[tuple[str, ...]]) -> FileUnits:
    """Return the units of a file by the pages of some columns.

    Raises
    ------
    IndexFormatError
        They follow from page indexes that are not in the tail of the handle.
    """
    leaves = [_leaf(handle, path) for path in paths]
    by_page = handle.page_index_bytes <= MOST_METADATA
    if by_page and handle.index_region(MOST_METADATA) is not None:
        raise IndexFormatError("the catalog has the pages of a file, and not its page indexes")
    groups, firsts, sizes = [], [], []
    for group, size in enumerate(handle.group_rows.tolist()):
        if by_page:
            first = np.unique(np.concatenate([_first_rows(handle, group, leaf, size) for leaf in leaves]))
        else:
            first = np.zeros(1, np.int64)
        groups.append(np.full(len(first), group, np.int64))
        firsts.append(first)
        sizes.append(np.diff(np.append(first, size)))
    if not groups:
        nothing = np.zeros(0, np.int64)
        return FileUnits(nothing, nothing, nothing)
    return FileUnits(np.concatenate(groups), np.concatenate(firsts), np.concatenate(sizes))


def is_flat(handle: FileHandle, path: tuple[str, ...]) -> bool:
    """Return whether a column is one leaf with a value for each row."""
    leaf = _leaf(handle, path)
    return leaf >= 0 and not handle.shared.schema.leaves[leaf].max_repetition


def _leaf(handle: FileHandle, path: tuple[str, ...]) -> int:
    """Return the leaf of a column, -1 where it is not one leaf."""
    leaves = path_leaves(handle.shared.schema, handle.arrow_schema, path=path)
    return leaves[0] if leaves is not None and len(leaves) == 1 else -1


def _first_rows(handle: FileHandle, group: int, leaf: int, size: int) -> Int64s:
    for want in index_want(handle.metadata.chunks, Kind.OFFSET_INDEX, group, leaf):
        data = handle.in_tail(want.range)
        if data is None:
            continue
        try:
            first = chunk_offset_index(data, handle.metadata, group, leaf).first_row
        except AccelError:
            continue
        if len(first) and first[0] == 0 and bool((np.diff(first) > 0).all()) and first[-1] < size:
            return first
    return np.zeros(1, np.int64)


def places_of(files: Int64s | int, units: Int64s) -> Int64s:
    """Return the places of units of a file, or each of a file of its own."""
    found: Int64s = (np.asarray(files, np.int64) << _UNIT_BITS) + units
    return found


def files_of_places(places: Int64s) -> Int64s:
    """Return the ordinal of the file of each place."""
    return places >> _UNIT_BITS


def moved_places(places: Int64s, files: Int64s) -> Int64s:
    """Return the same units of other files."""
    return places_of(files, places & _UNIT_MASK)


@dataclass(frozen=True, slots=True, eq=False)
class UnitHits(Hits):
    """The units of files that may hold rows that match."""

    paths: Sequence[tuple[str, ...]]
    """The columns whose pages are the units."""
    covered: Bools
    """Whether the table describes each file."""
    units: Mapping[int, Int64s]
    """The units that may match, for each of these files that has any."""

    @classmethod
    def of(cls, places: Int64s, paths: Sequence[tuple[str, ...]], *, covered: Bools) -> UnitHits:
        """Make them of places.

        Raises
        ------
        IndexFormatError
            A place is in a file that the segment does not have.
        """
        places = np.unique(places)
        files = check_ordinals(files_of_places(places), len(covered))
        starts = np.flatnonzero(np.append(True, files[1:] != files[:-1])) if len(files) else files
        units = np.split(places & _UNIT_MASK, starts[1:])
        return cls(paths, covered, dict(zip(files[starts].tolist(), units, strict=False)))

    def may_match(self) -> Bools:
        """Return whether each file may hold rows that match; see `Hits.may_match`."""
        may = ~self.covered
        may[list(self.units)] = True
        return may

    def rows(self, file: int, handle: FileHandle) -> RowHits | None:
        """Return the rows of a file that may match; see `Hits.rows`."""
        if not self.covered[file]:
            return None
        units, hits = file_units(handle, self.paths), self.units.get(file, np.zeros(0, np.int64))
        return RowHits(units.rows(hits), len(units) - len(hits))
