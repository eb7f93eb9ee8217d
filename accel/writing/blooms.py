"""Parquet's own bloom filters, sized by the data: what pyarrow is told about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from accel.predicate.kinds import native, plain_type

__all__ = ["BloomColumns", "bloom_options"]

BloomColumns = Sequence[str] | Mapping[str, float]
"""Names of columns, or names and the chance of a false positive of each."""

_CHANCE = 0.01


def bloom_options(table: pa.Table, blooms: BloomColumns, *, row_group_size: int) -> dict[str, dict[str, Any]]:
    """`bloom_filter_options` of pyarrow's writer.

    A filter is of one row group, so the number of distinct values is that of the row group that has most.
    Left to itself pyarrow assumes a million, which costs megabytes a column.

    Raises
    ------
    TypeError
        These are not names of columns.
    ValueError
        A column is not there, is boolean or nested, or a chance is not between 0 and 1.
    """
    names = [blooms] if isinstance(blooms, str) else blooms
    if not isinstance(names, Sequence | Mapping) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"blooms is a list of columns, or a mapping of them to chances, not {blooms!r}")
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        at = table.schema.get_field_index(name)
        if at < 0:
            raise ValueError(f"blooms: no column {name!r}, or more than one")
        kind = plain_type(table.schema.field(at).type)
        if pa.types.is_boolean(kind) or pa.types.is_nested(kind) or pa.types.is_null(kind):
            raise ValueError(f"blooms: column {name!r} is of type {kind}, which can have no bloom filter")
        chance = blooms[name] if isinstance(blooms, Mapping) else _CHANCE
        if not isinstance(chance, Real) or not 0 < chance < 1:
            raise ValueError(f"blooms: {chance!r} is not a chance between 0 and 1")
        found[name] = {"ndv": _most_distinct(table.column(at), row_group_size), "fpp": float(chance)}
    return found


def _most_distinct(column: pa.ChunkedArray, row_group_size: int) -> int:
    most = 1
    for start in range(0, len(column), row_group_size):
        parts = column.slice(start, row_group_size).chunks
        # pyarrow counts no dictionaries or extensions.
        part = pa.chunked_array([native(each) for each in parts])
        most = max(most, int(pc.count_distinct(part, mode="only_valid").as_py()))
    return most
