"""The partition columns of a catalog's files: each file has one value, which its path spells, so its bounds
are that value.

Nothing of them is stored in the table `bounds`: the paths of the table `files` tell them, in whatever types a
scan gives them. What the head says of the paths of a segment settles these types, and rules out whole
segments, before any path is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from accel.arrays import make_scalar, repeat_scalar
from accel.format.domain import Bounds
from accel.predicate.atoms import Bound, BoundColumn
from accel.predicate.value_bounds import constants_bounds, range_bounds
from accel.tables.partition_paths import SpelledColumn, settle, spell

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s

__all__ = ["FilePartitions", "bounds_of_segment"]


@dataclass(frozen=True, slots=True, eq=False)
class FilePartitions:
    """The partition values of the files of one segment."""

    schema: pa.Schema
    """The partition columns of the scan."""
    values: Sequence[tuple[object, ...]]
    """The combinations of values, each in the order of the schema."""
    codes: Int64s
    """Which of `values` each file has; of files that the scan does not read it is any."""

    @classmethod
    def of_files(
        cls, schema: pa.Schema, files: Iterable[tuple[int, tuple[object, ...]]], num_files: int
    ) -> FilePartitions:
        """Return the values of files that are given with their ordinals."""
        codes = np.zeros(num_files, np.int64)
        found: dict[tuple[object, ...], int] = {}
        for ordinal, values in files:
            codes[ordinal] = found.setdefault(values, len(found))
        return cls(schema, list(found), codes)

    @classmethod
    def of_paths(cls, schema: pa.Schema, paths: Sequence[str], live: Bools) -> FilePartitions:
        """Return the values that paths spell below one directory; those of files that are not `live` do not
        count.

        Raises
        ------
        SchemaMismatchError
            A path lacks a key, or its value does not fit the type.
        """
        codes = np.zeros(len(paths), np.int64)
        found: dict[str, int] = {}
        for at in np.flatnonzero(live).tolist():
            codes[at] = found.setdefault(paths[at].rpartition("/")[0], len(found))
        spellings = [spell(directory, directory.split("/")) for directory in found]
        return cls(schema, settle(spellings, schema, strict=True)[1], codes)

    def bounds(self, bound: Bound, constant: frozenset[str]) -> Mapping[tuple[str, ...], Bounds]:
        """Return the bounds of each file, of the columns of a predicate that are `constant` in each file."""
        found: dict[tuple[str, ...], Bounds] = {}
        for column in bound.columns:
            name = column.path[0]
            if name not in constant or not self.values:
                continue
            at = self.schema.get_field_index(name)
            distinct: dict[object, int] = {}
            numbers = [distinct.setdefault(values[at], len(distinct)) for values in self.values]
            of_values = _of_values(list(distinct), column)
            if of_values is not None:
                found[column.path] = of_values.take(np.array(numbers, np.int64)[self.codes])
        return found


def _of_values(values: Sequence[object], column: BoundColumn) -> Bounds | None:
    """Return the bounds of units that hold one value each.

    None where a value is not of the column's type: the scan reports it.
    """
    try:
        parts = [repeat_scalar(make_scalar(value, column.type), 1) for value in values]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    return constants_bounds(
        pa.concat_arrays(parts), kind=column.type, num_values=np.ones(len(parts), np.int64)
    )


def bounds_of_segment(
    spelled: Mapping[str, SpelledColumn],
    schema: pa.Schema,
    bound: Bound,
    *,
    constant: frozenset[str],
) -> Mapping[tuple[str, ...], Bounds]:
    """Return the bounds of all files of a segment as one unit, by what its head says of their paths.

    Parameters
    ----------
    spelled : mapping
        By key.
    schema : pyarrow.Schema
        The partition columns of the scan.
    bound : Bound
    constant : frozenset of str
    """
    found: dict[tuple[str, ...], Bounds] = {}
    for column in bound.columns:
        one = spelled.get(column.path[0])
        # Under other types values may be in another order.
        if one is None or column.path[0] not in constant or column.type != schema.field(column.path[0]).type:
            continue
        if one.kind not in (pa.null(), column.type):
            continue
        ends = [None if end is None else make_scalar(end, column.type) for end in (one.lower, one.upper)]
        nulls = 1 if one.kind == pa.null() else None if one.has_null else 0
        found[column.path] = range_bounds(
            *ends, kind=column.type, num_values=1, null_count=nulls, nan_count=0
        )
    return found
