"""Partition values of a Hive table: texts, in the types of their columns; and which of them a predicate rules
out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accel.arrays import from_numpy
from accel.errors import AccelError, TableFormatError
from accel.predicate.bind import bind
from accel.predicate.expr import And, Expr, columns_of
from accel.scanning.block_pruning import excluded_by_values
from accel.tables.partition_texts import cast_texts

if TYPE_CHECKING:
    from accel.arrays import Bools

__all__ = ["about_keys", "partition_arrays", "ruled_in", "texts_of", "texts_of_names"]

_NULL: Final = "__HIVE_DEFAULT_PARTITION__"


def partition_arrays(
    texts: Sequence[pa.Array], keys: Mapping[str, str], schema: pa.Schema
) -> dict[str, pa.Array]:
    """Return the values of each partition column, by its name.

    Parameters
    ----------
    texts : sequence of pyarrow.Array
        For each key, the text of each partition.
    keys : mapping
        By the metastore's name of a key, its name in the schema.
    schema : pyarrow.Schema

    Raises
    ------
    TableFormatError
        A text is no value of its type.
    """
    return {
        name: _array(some, schema.field(name).type, name)
        for name, some in zip(keys.values(), texts, strict=True)
    }


def texts_of(values: Sequence[Sequence[str]], count: int) -> list[pa.Array]:
    """Return the texts of some partitions for each of `count` keys.

    Raises
    ------
    TableFormatError
        A partition has another number of values, or one that is no text.
    """
    for one in values:
        if len(one) != count or not all(isinstance(value, str) for value in one):
            raise TableFormatError(f"the partition {list(one)!r:.200} has not {count} values")
    return [pa.array([one[at] for one in values], pa.string()) for at in range(count)]


def texts_of_names(names: Sequence[str], keys: Sequence[str]) -> list[pa.Array] | None:
    """Return what names of partitions spell, for each key: `day=2024-01-01/region=eu%2Fx`; None where one
    spells other keys, or no text."""
    count = len(keys)
    parts = pc.split_pattern(pa.array(names, pa.string()), "/")
    if not pc.all(pc.equal(pc.list_value_length(parts), count)).as_py():
        return None
    flat, out = parts.flatten(), []
    for at, key in enumerate(keys):
        # The columns of each name follow each other.
        column = flat.take(from_numpy(np.arange(at, len(flat), count)))
        prefix = f"{key}="
        if not pc.all(pc.starts_with(column, prefix)).as_py():
            return None
        encoded = pc.utf8_slice_codeunits(column, len(prefix)).dictionary_encode()
        try:
            decoded = [
                unquote(text, errors="strict") if "%" in text else text
                for text in encoded.dictionary.to_pylist()
            ]
        except UnicodeDecodeError:
            return None
        out.append(pa.array(decoded, pa.string()).take(encoded.indices))
    return out


def _array(texts: pa.Array, kind: pa.DataType, column: str) -> pa.Array:
    # The decoder of messages has replaced what was no UTF-8.
    if pc.any(pc.match_substring(texts.unique(), "\ufffd")).as_py():
        raise TableFormatError(f"a value of the partition column {column!r} is no UTF-8")
    return cast_texts(texts, kind, column=column, null=_NULL, time_zone=None)


def about_keys(where: Expr, keys: Mapping[str, str]) -> Expr | None:
    """Return the part of a predicate that names partition columns alone, and that every matching row passes;
    None where there is none."""
    names = set(keys.values())
    operands = where.operands if isinstance(where, And) else (where,)
    ours = [
        one
        for one in operands
        if (found := [column.top_level for column in columns_of(one)])
        and all(name in names for name in found)
    ]
    return None if not ours else ours[0] if len(ours) == 1 else And(tuple(ours))


def ruled_in(where: Expr | None, values: Mapping[str, pa.Array], count: int) -> Bools:
    """Return for each partition whether it may hold matching rows."""
    if where is None or not values:
        return np.ones(count, bool)
    schema = pa.schema([pa.field(name, array.type) for name, array in values.items()])
    try:
        bound: Any = bind(where, schema)
    except AccelError:
        # The scan says what cannot be compared, with the schema of all columns.
        return np.ones(count, bool)
    return ~excluded_by_values(bound, values, count)
