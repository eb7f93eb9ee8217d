"""The keys of equality delete files: which columns they are of, and which rows have one of them.

Source: the Iceberg specification, "Equality Delete Files".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accel.errors import TableFormatError
from accel.tables.formats.iceberg.schema import Field

__all__ = ["field_alone", "leaf_values", "no_keys", "rows_with_keys"]

_MOST_COMBINATIONS: Final = 1 << 62


def field_alone(columns: Sequence[Field], number: int) -> Field | None:
    """Return the column that is, or has below it in structs, the field of an id, without its other fields."""
    for column in columns:
        if column.id == number:
            return column
        if column.kind == "struct":
            child = field_alone(column.children, number)
            if child is not None:
                return replace(column, type=pa.struct([child.arrow]), children=(child,))
    return None


def leaf_values(column: pa.Array, field: Field) -> pa.Array:
    """Return the values of the field that `field_alone` has left of a column."""
    while field.kind == "struct" and len(field.children) == 1:
        field = field.children[0]
        column = pc.struct_field(column, 0)
    return column


def no_keys(fields: Sequence[Field]) -> pa.Table:
    """Return the keys of a file that has none."""
    columns = []
    for field in fields:
        leaf = field
        while leaf.kind == "struct" and len(leaf.children) == 1:
            leaf = leaf.children[0]
        columns.append(pa.chunked_array([], leaf.type))
    return pa.table(columns, names=[str(field.id) for field in fields])


def rows_with_keys(columns: Sequence[pa.Array], keys: Sequence[pa.ChunkedArray]) -> Any:
    """Return which rows have one of the keys; nulls are equal, and NaN is."""
    n, m = len(columns[0]), len(keys[0])
    rows, wanted = np.zeros(n, np.int64), np.zeros(m, np.int64)
    alive = np.ones(n, bool)
    for column, key in zip(columns, keys, strict=True):
        have, want = _comparable(column), _comparable(key.combine_chunks())
        if isinstance(want, pa.ChunkedArray):
            want = pa.concat_arrays(want.chunks) if want.num_chunks else pa.nulls(0, want.type)
        distinct = want.unique()
        row_codes = _codes(have, distinct)
        key_codes = _codes(want, distinct)
        alive &= row_codes >= 0
        # The combinations so far are numbered anew, so that products stay small.
        known, wanted = np.unique(wanted, return_inverse=True)
        at = np.searchsorted(known, rows)
        at = np.minimum(at, len(known) - 1)
        alive &= known[at] == rows
        if len(known) * max(len(distinct), 1) >= _MOST_COMBINATIONS:
            raise TableFormatError("an equality delete file has more keys than are read")
        rows = at * len(distinct) + np.maximum(row_codes, 0)
        wanted = wanted * len(distinct) + key_codes
    return alive & np.isin(rows, wanted)


def _codes(values: pa.Array, among: pa.Array) -> Any:
    found = pc.index_in(values, value_set=among, skip_nulls=False)
    return found.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)


def _comparable(values: pa.Array) -> pa.Array:
    """Return values that are equal where those of a key are: floats by their bits, with one NaN."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
        if isinstance(values, pa.ChunkedArray):
            values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.nulls(0, values.type)
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if pa.types.is_floating(values.type):
        valid = np.asarray(values.is_valid())
        numbers = values.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
        numbers = np.where(np.isnan(numbers), np.nan, numbers)
        return pa.array(np.ascontiguousarray(numbers).view(np.int64), pa.int64(), mask=~valid)
    return values
