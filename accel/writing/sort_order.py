"""The order of the rows of a file: how pyarrow sorts by columns, and what the file declares of that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accel.arrays import integers, pack_bits, validity
from accel.format.domain import Domain, storage_type
from accel.predicate.kinds import Family, kind_of, native
from accel.writing.named_columns import find_column
from accel.writing.stored_types import INSTANT_MARK, instant_keys

if TYPE_CHECKING:
    from pyarrow.parquet import SortingColumn

__all__ = ["SortBy", "SortKey", "read_ordering", "sort_table", "sorting_columns"]

SortBy = str | Sequence[str | tuple[str, str]]

_NAN = np.int64(0x7FF8 << 48)
"""The bits of the NaN that Python, numpy and Arrow make."""
_MAX = np.int64(2**63 - 1)


@dataclass(frozen=True, slots=True, eq=False)
class SortKey:
    """A column to sort by."""

    name: str
    direction: str
    """"ascending" or "descending"."""
    leaf: int
    """The number of its leaf in the file."""
    values: pa.ChunkedArray
    """Values that pyarrow sorts in the order of the column. pyarrow itself ignores narrow decimals among
    several keys, sorts no half floats, dictionaries and UUIDs, puts NaN last in either direction, and takes
    -0.0 for 0.0."""
    settled: bool
    """Whether readers agree about the order: it has no NaN but the common one, which some put below all
    numbers."""


def read_ordering(table: pa.Table, sort_by: SortBy) -> list[SortKey]:
    """Return the columns that `sort_by` names.

    Raises
    ------
    TypeError
        `sort_by` is neither a column nor a list of columns and pairs of a column and a direction.
    ValueError
        A column does not exist, or its type has no order; a direction is neither of the two.
    """
    keys = []
    for name, direction in _pairs(sort_by):
        at = find_column(name, table.schema, "sort_by")
        if direction not in ("ascending", "descending"):
            raise ValueError(f"sort_by: {direction!r} is neither ascending nor descending")
        kind = kind_of(table.schema.field(at).type)
        if kind.domain is Domain.NONE and kind.family is not Family.NULL:
            raise ValueError(
                f"sort_by: column {name!r} is of type {table.schema.field(at).type}, which has no order"
            )
        leaf = sum(_count_leaves(field.type) for field in list(table.schema)[:at])
        if INSTANT_MARK in (table.schema.field(at).metadata or {}):
            keys.append(_instants(name, direction, leaf, table.column(at)))
        else:
            keys.append(_key(name, direction, leaf, table.column(at)))
    return keys


def _pairs(sort_by: SortBy) -> list[tuple[str, str]]:
    given = [sort_by] if isinstance(sort_by, str) else sort_by
    if not isinstance(given, Sequence):
        raise _no_columns(sort_by)
    pairs = []
    for each in given:
        match each:
            case str():
                pairs.append((each, "ascending"))
            case [str() as name, str() as direction]:
                pairs.append((name, direction))
            case _:
                raise _no_columns(sort_by)
    return pairs


def _no_columns(sort_by: object) -> TypeError:
    return TypeError(
        f'sort_by is a column, or a list of columns and pairs ("a", "descending"), not {sort_by!r}'
    )


def _count_leaves(kind: pa.DataType) -> int:
    kind = storage_type(kind)
    if not pa.types.is_nested(kind):
        return 1
    return sum(_count_leaves(kind.field(i).type) for i in range(kind.num_fields))


def _key(name: str, direction: str, leaf: int, column: pa.ChunkedArray) -> SortKey:
    parts, settled = [], True
    for chunk in column.chunks or [pa.nulls(0, column.type)]:
        values = native(_stored(chunk))
        if pa.types.is_floating(values.type):
            values, common = _ranks(values)
            settled = settled and common
        parts.append(values)
    return SortKey(name, direction, leaf, pa.chunked_array(parts), settled)


def _instants(name: str, direction: str, leaf: int, column: pa.ChunkedArray) -> SortKey:
    """Return the key of an INT96 column, of which no file declares an order: Parquet defines none."""
    chunks = [instant_keys(chunk) for chunk in column.chunks or [pa.nulls(0, column.type)]]
    return SortKey(name, direction, leaf, pa.chunked_array(chunks), settled=False)


def _stored(array: pa.Array) -> pa.Array:
    """Return the values that the file stores of an extension array: bytes for UUIDs, numbers for booleans of
    a byte."""
    while isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    return array


def _ranks(values: pa.Array) -> tuple[pa.Array, bool]:
    """Return integers in the order of doubles, -0.0 before 0.0 and NaN last, and whether all NaN are the
    common one."""
    numbers = integers(values)
    bits = numbers.view(np.int64)
    valid = validity(values)
    nan = np.isnan(numbers) & valid
    ranks = np.where(nan, _MAX, bits ^ ((bits >> 63) & _MAX))
    nulls = None if bool(valid.all()) else pack_bits(valid)
    ranked = pa.Array.from_buffers(pa.int64(), len(ranks), [nulls, pa.py_buffer(ranks)])
    return ranked, bool((bits[nan] == _NAN).all())


def sort_table(table: pa.Table, keys: Sequence[SortKey]) -> pa.Table:
    """Return the rows in the order of the keys, nulls last; the sort is stable."""
    if not keys:
        return table
    names = [str(turn) for turn in range(len(keys))]
    values = pa.Table.from_arrays([key.values for key in keys], names=names)
    # pyarrow puts nulls last.
    ordering = [(name, key.direction) for name, key in zip(names, keys, strict=True)]
    return table.take(pc.sort_indices(values, sort_keys=ordering))


def sorting_columns(keys: Sequence[SortKey], pyarrow_options: Mapping[str, Any]) -> list[SortingColumn]:
    """Return the order that the file declares: the keys up to the first whose order readers disagree
    about."""
    import pyarrow.parquet as pq

    declared: list[SortingColumn] = []
    for key in keys:
        if not key.settled:
            break
        declared.append(
            pq.SortingColumn(key.leaf, descending=key.direction == "descending", nulls_first=False)
        )
        if pyarrow_options.get("allow_truncated_timestamps"):
            # Truncated timestamps may become equal, and then the next keys are out of order.
            break
    return declared
