"""What statistics say of files that are judged together, kept together: thousands of cached files weigh less so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from accel.format.domain import Bounds

if TYPE_CHECKING:
    from accel.arrays import Int64s
    from accel.planning.handle import FileHandle

__all__ = ["Shelf", "group_starts"]


def group_starts(handles: Sequence[FileHandle]) -> Int64s:
    """The first row group of each file, where one file's follow the other's."""
    counts = np.array([handle.num_row_groups for handle in handles], np.int64)
    starts: Int64s = np.cumsum(counts) - counts
    return starts


class Shelf:
    """The chunk bounds of some files, one file's row groups after the other's. Each file knows its place on it.

    Python's garbage collector goes through every object of every file; these are a few for all of them.
    """

    __slots__ = ("bounds", "files", "rows", "starts")

    def __init__(self, handles: Sequence[FileHandle], rows: Int64s, bounds: dict[int, Bounds]) -> None:
        self.files = len(handles)
        self.rows = rows
        """Of each row group."""
        self.starts = group_starts(handles)
        """The first row group of each file."""
        self.bounds = bounds
        """By leaf."""
        for handle, start in zip(handles, self.starts.tolist(), strict=True):
            handle.shelf, handle.shelf_at = self, start
            for leaf in bounds:
                handle.drop_bounds(leaf)

    def of(self, handle: FileHandle, leaf: int) -> Bounds | None:
        """Those of one file."""
        found = self.bounds.get(leaf)
        if found is None:
            return None
        return found.part(handle.shelf_at, handle.shelf_at + handle.num_row_groups)

    def holds(self, handles: Sequence[FileHandle]) -> bool:
        """Whether it is of just these, in this order."""
        if len(handles) != self.files:
            return False
        places: list[int] = self.starts.tolist()
        return [handle.shelf_at if handle.shelf is self else -1 for handle in handles] == places
