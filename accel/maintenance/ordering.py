"""The order that rows get: by columns, or along a Z curve through several columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accel.writing.sort_order import SortBy, SortKey, read_ordering

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = ["Ordering", "Sample", "count_before"]

_ASCENDING: Final = "ascending"
_SAMPLE_ROWS: Final = 1 << 17
"""Rows by which the ranks of values, and the parts of a table, are settled."""
_MOST_BITS: Final = 16
"""Bits of a rank."""
_MOST_COLUMNS: Final = 8
"""Columns of a Z curve: with more, each has too few bits to rule anything out."""


@dataclass(frozen=True, slots=True, eq=False)
class Ordering:
    """An order of rows. Nulls come last, NaN is the greatest number.

    Along a Z curve the bits of several ranks are interleaved, so that rows that lie side by side have similar
    values in all of these columns. A rank is the place of a value among those of a sample: it depends on no
    type, and columns of any distribution take part alike.
    """

    sort_by: SortBy | None = None
    z_order: tuple[str, ...] = ()
    limits: tuple[pa.Table, ...] = ()
    """For each column of the Z curve, the values of a sample that separate the ranks."""

    @classmethod
    def of(cls, sort_by: SortBy | None, z_order: Sequence[str] | str | None) -> Ordering:
        """Return the order that a caller names.

        Raises
        ------
        ValueError
            Both are named, or too many columns.
        TypeError
            `z_order` is no list of columns.
        """
        if z_order is None or not len(z_order):
            return cls(sort_by=sort_by or None)
        if sort_by:
            raise ValueError("rows have one order: sort_by or z_order")
        columns = (z_order,) if isinstance(z_order, str) else tuple(z_order)
        if not all(isinstance(name, str) for name in columns):
            raise TypeError(f"z_order is a list of columns, not {z_order!r:.80}")
        if len(set(columns)) != len(columns) or len(columns) > _MOST_COLUMNS:
            raise ValueError(f"z_order is a list of up to {_MOST_COLUMNS} different columns")
        return cls(z_order=columns)

    def __bool__(self) -> bool:
        return bool(self.sort_by or self.z_order)

    @property
    def names(self) -> list[str]:
        """The columns that the order depends on."""
        if self.z_order:
            return list(self.z_order)
        given = [self.sort_by] if isinstance(self.sort_by, str) else self.sort_by or []
        return list(dict.fromkeys(one if isinstance(one, str) else one[0] for one in given))

    def check(self, schema: pa.Schema) -> None:
        """Raise ValueError or TypeError, as `read_ordering` does, for columns that a table does not have or
        cannot be sorted by."""
        self._sort_keys(schema.empty_table())

    def _sort_keys(self, table: pa.Table) -> list[SortKey]:
        return read_ordering(table, self.z_order or self.sort_by or [])

    def keys(self, table: pa.Table) -> tuple[pa.Table, list[SortKey]]:
        """Return the keys by which rows are sorted, and the columns whose order a file may declare."""
        found = self._sort_keys(table)
        if not self.z_order:
            return _key_table([key.values for key in found]), found
        curve = self._curve([_key_table([key.values]) for key in found])
        return _key_table([pa.chunked_array([pa.array(curve)])]), []

    @property
    def directions(self) -> list[str]:
        """The direction of each key of `keys`."""
        if self.z_order:
            return [_ASCENDING]
        given = [self.sort_by] if isinstance(self.sort_by, str) else self.sort_by or []
        return [_ASCENDING if isinstance(one, str) else one[1] for one in given]

    def with_limits(self, sample: pa.Table) -> Ordering:
        """Return the order with the ranks that a sample of the rows gives; it has the columns of `names`."""
        if not self.z_order:
            return self
        limits = []
        for key in self._sort_keys(sample):
            values = _key_table([key.values])
            values = values.filter(values.column(0).is_valid())
            ranked = values.take(_positions(values, [_ASCENDING]))
            # Even steps through the sample: where a value is frequent, several limits are the same.
            steps = np.unique(np.linspace(0, len(ranked) - 1, self._ranks() - 1).astype(np.int64))
            limits.append(ranked.take(pa.array(steps)).combine_chunks() if len(ranked) else ranked)
        return replace(self, limits=tuple(limits))

    def _bits(self) -> int:
        return min(_MOST_BITS, 63 // len(self.z_order))

    def _ranks(self) -> int:
        """Return the number of ranks of a column, without that of nulls."""
        return (1 << self._bits()) - 1

    def _curve(self, columns: Sequence[pa.Table]) -> Int64s:
        if len(columns) != len(self.limits):
            raise TypeError("a Z curve takes ranks from a sample")
        bits = self._bits()
        curve = np.zeros(len(columns[0]), np.int64)
        for place, (values, limits) in enumerate(zip(columns, self.limits, strict=True)):
            ranks = count_before(limits, values, [_ASCENDING])
            # Few limits are spread over all bits, so that columns of few values take part from the first bit
            # on.
            ranks = ranks * (self._ranks() - 1) // max(1, len(limits))
            null = np.asarray(values.column(0).is_null().combine_chunks(), bool)
            ranks[null] = self._ranks()
            for bit in range(bits):
                at = (bits - 1 - bit) * len(columns) + len(columns) - 1 - place
                curve |= ((ranks >> (bits - 1 - bit)) & 1) << at
        return curve

    def split(self, sample: pa.Table, parts: int) -> pa.Table:
        """Return the keys that cut the rows into about even parts, from a sample of the columns of
        `names`."""
        keys, _ = self.keys(sample)
        ranked = keys.take(_positions(keys, self.directions))
        steps = np.linspace(0, len(ranked), parts + 1)[1:-1].astype(np.int64)
        return ranked.take(pa.array(np.unique(steps[steps < len(ranked)]))).combine_chunks()


def _positions(keys: pa.Table, directions: Sequence[str]) -> pa.Array:
    """Return the positions of rows in the order of their keys, nulls last. The sort is stable."""
    order = list(zip(keys.column_names, directions, strict=True))
    return pc.sort_indices(keys, sort_keys=order)


def count_before(limits: pa.Table, keys: pa.Table, directions: Sequence[str]) -> Int64s:
    """Return for each row of `keys` how many rows of `limits` do not come after it."""
    together = pa.concat_tables([limits, keys])
    order = np.asarray(_positions(together, directions), np.int64)
    is_limit = order < len(limits)
    counts = np.cumsum(is_limit)
    found = np.empty(len(keys), np.int64)
    found[order[~is_limit] - len(limits)] = counts[~is_limit]
    return found


def _key_table(columns: Sequence[pa.ChunkedArray]) -> pa.Table:
    return pa.Table.from_arrays(list(columns), names=[str(at) for at in range(len(columns))])


class Sample:
    """Takes some of the rows that pass.

    Parameters
    ----------
    num_rows : int
        All rows.
    """

    def __init__(self, num_rows: int) -> None:
        self._share = min(1.0, _SAMPLE_ROWS / max(1, num_rows))
        self._random = np.random.default_rng(0)
        self._taken: list[pa.Table] = []

    def add(self, table: pa.Table) -> None:
        """Take some rows of a table."""
        if self._share < 1:
            at = np.flatnonzero(self._random.random(len(table)) < self._share)
            table = table.take(pa.array(at))
        self._taken.append(table)

    def of(self, tables: Iterable[pa.Table], schema: pa.Schema) -> pa.Table:
        """Take some rows of all tables."""
        for table in tables:
            self.add(table)
        return pa.concat_tables(self._taken) if self._taken else schema.empty_table()
