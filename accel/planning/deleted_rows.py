"""Rows of a file that its source says are gone, as a table's delete files and deletion vectors name them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from accel.errors import TableFormatError
from accel.planning.selection import RowSelection

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = ["DeletedRows"]


@dataclass(frozen=True, slots=True, eq=False)
class DeletedRows:
    """The numbers of the rows of a file that are gone, or where to get them; they are fetched for planned
    files only.

    Row numbers count from 0 over the whole file, in the order of its row groups.

    Examples
    --------
    >>> DeletedRows.of([7, 3, 3]).count
    2
    """

    rows: Int64s | None
    """Ascending, each once; None where they have to be loaded."""
    loader: Callable[[], Awaitable[Any]] | None = None
    """Awaited on the I/O loop for the numbers, in any form that `of` takes."""
    count: int | None = None
    """How many there are, where that is known exactly."""
    finder: Callable[[Mapping[int, RowSelection]], Awaitable[Any]] | None = None
    """Awaited with rows by row group, for the numbers of more rows that are gone among these: what is gone is
    told by values of the file itself, and no more of them than planned rows are read."""

    @classmethod
    def of(cls, rows: Iterable[int] | Any) -> DeletedRows:
        """Make the deleted rows of some row numbers.

        Parameters
        ----------
        rows : array, sequence or set of int, pyarrow.Array, or pyroaring bitmap
            In any order; a number may occur more than once.

        Returns
        -------
        DeletedRows

        Raises
        ------
        TableFormatError
            A number is negative, or none.
        """
        numbers = _numbers(rows)
        return cls(numbers, count=len(numbers))

    @classmethod
    def later(
        cls,
        loader: Callable[[], Awaitable[Any]],
        *,
        count: int | None = None,
        finder: Callable[[Mapping[int, RowSelection]], Awaitable[Any]] | None = None,
    ) -> DeletedRows:
        """Make deleted rows that are loaded when their file is planned.

        Parameters
        ----------
        loader : callable
            Awaited for the numbers, as `of` takes them. It may be called more than once.
        count : int, optional
            How many there are, if that is known exactly.
        finder : callable, optional
            Awaited with the rows that are planned, as a `RowSelection` by row group, for the numbers of more
            rows that are gone among them, as `of` takes them. How many are gone is not known exactly then.

        Returns
        -------
        DeletedRows

        Raises
        ------
        ValueError
            There is a finder, and a count.
        """
        if finder is not None and count is not None:
            raise ValueError("how many rows a finder finds is not known before it has looked")
        return cls(None, loader, count, finder)

    async def load(self) -> DeletedRows:
        """Return the same with its row numbers.

        Raises
        ------
        TableFormatError
            The loader gives other than row numbers, or another number of them than was promised.
        """
        if self.rows is not None or self.loader is None:
            return self
        loaded = DeletedRows.of(await self.loader())
        if self.count is not None and loaded.count != self.count:
            raise TableFormatError(f"{loaded.count} deleted rows were found where {self.count} are promised")
        if self.finder is None:
            return loaded
        return replace(loaded, count=None, finder=self.finder)

    async def found_among(self, rows: Mapping[int, RowSelection]) -> DeletedRows:
        """Return those that the finder finds among rows of some row groups.

        Parameters
        ----------
        rows : mapping
            By row group.

        Raises
        ------
        TableFormatError
            The finder gives other than row numbers.
        """
        some = {group: chosen for group, chosen in rows.items() if chosen}
        if self.finder is None or not some:
            return DeletedRows.of(())
        return DeletedRows.of(await self.finder(some))

    def with_found(self, found: DeletedRows) -> DeletedRows:
        """Return the same with those that its finder has found among all rows of the file, and no finder."""
        if self.rows is None or found.rows is None:
            raise ValueError("the row numbers are not loaded")
        return DeletedRows.of(np.concatenate((self.rows, found.rows)))

    def remaining(self, group_rows: Int64s) -> dict[int, RowSelection]:
        """Return the rows that are left of a file, by row group; a row group of which none is left is not
        named.

        Parameters
        ----------
        group_rows : array of int64
            The rows of each row group.

        Raises
        ------
        TableFormatError
            A row number is beyond the file.
        """
        rows = self.rows
        if rows is None:
            raise ValueError("the row numbers are not loaded")
        stops = np.cumsum(group_rows)
        total = int(stops[-1]) if len(stops) else 0
        if len(rows) and int(rows[-1]) >= total:
            raise TableFormatError(
                f"row {int(rows[-1])} is named as deleted, and the file has {total}",
                hint="the deletes belong to another file, or to another version of it",
            )
        starts = stops - group_rows
        cuts = np.searchsorted(rows, np.append(starts, total)).tolist()
        left: dict[int, RowSelection] = {}
        for group, (start, count) in enumerate(zip(starts.tolist(), group_rows.tolist(), strict=True)):
            gone = rows[cuts[group] : cuts[group + 1]] - start
            if not len(gone):
                left[group] = RowSelection.all(count)
                continue
            begins, ends = np.append(0, gone + 1), np.append(gone, count)
            kept = begins < ends
            if kept.any():
                left[group] = RowSelection(begins[kept], ends[kept])
        return left


def _numbers(rows: Any) -> Int64s:
    if hasattr(rows, "to_array"):  # a bitmap of pyroaring's
        rows = np.array(rows.to_array(), np.uint64)
    elif isinstance(rows, pa.Array | pa.ChunkedArray):
        if rows.null_count or not pa.types.is_integer(rows.type):
            raise TableFormatError(f"deleted rows are numbers, not {rows.type} with {rows.null_count} nulls")
        rows = np.asarray(rows)
    elif not isinstance(rows, np.ndarray):
        rows = list(rows)
    found = np.asarray(rows) if len(rows) else np.zeros(0, np.int64)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise TableFormatError(f"deleted rows are whole numbers, not {found.dtype}")
    found = np.unique(found)
    if len(found) and (int(found[0]) < 0 or int(found[-1]) >= 1 << 62):
        raise TableFormatError(f"{int(found[0] if found[0] < 0 else found[-1])} is no row of a file")
    return found.astype(np.int64)
