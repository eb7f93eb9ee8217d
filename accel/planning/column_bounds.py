"""What a source knows of a column in the files of a block: Arrow arrays of its own type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from accel.arrays import integers, validity
from accel.errors import TableFormatError
from accel.format.domain import Bounds

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = ["ColumnBounds", "known_counts"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ColumnBounds:
    """The facts of a source about one column, as arrays with a value for each file of a block; null where
    unknown.

    Bounds may be wider than the values, in a type that casts to the column's without loss. A float column of
    which `nan_count` is unknown may hold NaN, which no bound covers.
    """

    lower: pa.Array | None = None
    """Values that none in the file is less than."""
    upper: pa.Array | None = None
    """Values that none in the file is greater than."""
    null_count: pa.Array | None = None
    """Integers."""
    nan_count: pa.Array | None = None
    """Integers."""

    def __post_init__(self) -> None:
        lengths = {len(array) for array in self.arrays if array is not None}
        if len(lengths) > 1:
            raise ValueError(f"the bounds of a column are arrays of one length, not of {sorted(lengths)}")

    @property
    def arrays(self) -> tuple[pa.Array | None, ...]:
        """All four, in the order of the fields."""
        return self.lower, self.upper, self.null_count, self.nan_count

    def take(self, files: pa.Array) -> ColumnBounds:
        """Choose files.

        Parameters
        ----------
        files : pyarrow.Array
            Their places, integers.

        Returns
        -------
        ColumnBounds
            The bounds of these files, in their order.
        """
        return self._each(lambda array: array.take(files))

    def slice(self, start: int, stop: int) -> ColumnBounds:
        """Cut out files that follow each other.

        Parameters
        ----------
        start, stop : int
            The half-open range of their places.

        Returns
        -------
        ColumnBounds
            The bounds of these files.
        """
        return self._each(lambda array: array.slice(start, stop - start))

    def _each(self, change: Callable[[pa.Array], pa.Array]) -> ColumnBounds:
        lower, upper, nulls, nans = (None if one is None else change(one) for one in self.arrays)
        return ColumnBounds(lower=lower, upper=upper, null_count=nulls, nan_count=nans)

    @classmethod
    def concat(cls, parts: Sequence[ColumnBounds | None], lengths: Sequence[int]) -> ColumnBounds:
        """Put the bounds of several lists of files after each other.

        Parameters
        ----------
        parts : sequence of ColumnBounds or None
            The bounds of each list; None where nothing is known. What has another type than the first that
            is known counts as unknown.
        lengths : sequence of int
            The number of files of each list.

        Returns
        -------
        ColumnBounds
            The bounds of all files.
        """
        joined: list[pa.Array | None] = []
        for side in range(4):
            given = [None if part is None else part.arrays[side] for part in parts]
            kind = next((array.type for array in given if array is not None), None)
            filled = [
                pa.nulls(length, kind) if array is None or not array.type.equals(kind) else array
                for array, length in zip(given, lengths, strict=True)
            ]
            joined.append(None if kind is None else pa.concat_arrays(filled))
        return cls(lower=joined[0], upper=joined[1], null_count=joined[2], nan_count=joined[3])

    def judged(self, kind: pa.DataType, num_values: Int64s) -> Bounds:
        """Return the bounds in the form in which a predicate is judged by them.

        Parameters
        ----------
        kind : pyarrow.DataType
            The type of the column in the data set.
        num_values : int64 array
            The values of each file, nulls included; -1 where unknown.

        Returns
        -------
        Bounds
            One unit a file; see `predicate.value_bounds.array_bounds`.

        Raises
        ------
        TableFormatError
            Counts are no integers, or not as many as there are files.
        """
        from accel.predicate.value_bounds import array_bounds

        n = len(num_values)
        return array_bounds(
            self.lower,
            self.upper,
            kind=kind,
            num_values=num_values,
            null_count=known_counts(self.null_count, n),
            nan_count=known_counts(self.nan_count, n),
        )


def known_counts(array: pa.Array | None, n: int) -> Int64s:
    """Return the counts of n files, -1 where they are unknown or no counts.

    Raises
    ------
    TableFormatError
        They are no integers, or not n.
    """
    if array is None:
        return np.full(n, -1, np.int64)
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if len(array) != n or not pa.types.is_integer(array.type):
        raise TableFormatError(f"counts of {n} files are integers, not {len(array)} values of {array.type}")
    counts = integers(array).astype(np.int64)
    return np.where(validity(array) & (counts >= 0), counts, -1)
