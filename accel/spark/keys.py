"""Key columns of a join with files: which types are equal where Spark says so, and the predicate that keys become.

A predicate of keys may match too many rows, because Spark's own join decides in the end, and none too few. So a pair of types
is accepted only if every row that equals a key in Spark equals it here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from accel.errors import SchemaMismatchError
from accel.predicate.expr import And, Expr, InArray, column_of, join
from accel.predicate.kinds import Family, kind_of

__all__ = ["key_cast", "key_predicate", "keys_of"]

_ANY_INTEGER: Final = "tinyint|smallint|int|bigint"
_ACCEPTED: Final[dict[Family, tuple[str, str, str | None]]] = {
    Family.BOOLEAN: ("boolean", "", None),
    Family.INTEGER: (rf"{_ANY_INTEGER}|decimal\(.*\)", "", None),
    Family.DECIMAL: (rf"{_ANY_INTEGER}|decimal\(.*\)", "", None),
    Family.FLOAT: ("float|double", "", None),
    Family.TEXT: ("string", "", None),
    Family.UUID: ("string", "", None),
    Family.BINARY: ("binary", "", None),
    Family.DATE: ("date", "timestamp|timestamp_ntz|string", "date"),
    Family.TIME: (r"time\(\d\)", "", None),
    Family.DURATION: ("interval (day|hour|minute|second).*", "", None),
    Family.NULL: (".*", "", None),
}
"""By the family of the files' column: types of Spark that compare as they are, types that do after a cast, and the cast."""
_INSTANT: Final = ("timestamp", "timestamp_ntz|date|string", "timestamp")
_LOCAL: Final = ("timestamp_ntz", "date", "timestamp_ntz")
_UUID_TEXT: Final = r"\A[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\z"
_MOST_GROUPS: Final = 64
"""Most values of one key column of several that have a list of the others each."""


def key_cast(given: str, column: pa.Field, *, name: str) -> str | None:
    """Return the type to which Spark has to cast keys before they compare with a column of the files; None for no cast.

    Parameters
    ----------
    given : str
        The type of the key column of the DataFrame, as Spark's `simpleString` has it.
    column : pyarrow.Field
        The column of the files, with the type that they decode to.
    name : str
        The name of the key column, for messages.

    Raises
    ------
    SchemaMismatchError
        Spark would cast the column of the files, or compares the two otherwise than by value.
    """
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    family = kind_of(kind).family
    rule = _ACCEPTED.get(family)
    if family is Family.TIMESTAMP:
        rule = _LOCAL if kind.tz is None else _INSTANT
    if given == "void" or (rule is not None and re.fullmatch(rule[0], given)):
        return None
    if rule is not None and re.fullmatch(rule[1], given):
        return rule[2]
    raise SchemaMismatchError(
        f"keys of the type {given} (column {name} of the DataFrame) are not looked up in a column of {column.type}",
        place=f"column {column.name}",
        hint="cast the column of the DataFrame to the type that accel.spark.read gives this one, or join with accel.spark.read",
    )


def keys_of(values: pa.ChunkedArray, column: pa.Field) -> pa.Array:
    """Return the distinct values of a key column, without nulls, as an array that compares with the column of the files.

    Parameters
    ----------
    values : pyarrow.ChunkedArray
        The values, after the cast of `key_cast`.
    column : pyarrow.Field
        The column of the files.
    """
    found = pc.unique(values).drop_null()
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if kind_of(kind).family is Family.UUID:
        return _uuids(found)
    if pa.types.is_decimal128(found.type) and found.type.precision <= pa.decimal64(18).precision:
        # As 64-bit integers they are compared by numpy, not one by one.
        return found.cast(pa.decimal64(found.type.precision, found.type.scale))
    if pa.types.is_string(found.type) or pa.types.is_binary(found.type):
        return found.cast(pa.large_string() if pa.types.is_string(found.type) else pa.large_binary())
    return found


def _uuids(texts: pa.Array) -> pa.Array:
    """Return the UUIDs as bytes; Spark sees those of the files in lower case, and other text equals none."""
    canonical = texts.filter(pc.match_substring_regex(texts, _UUID_TEXT))
    return pa.array([bytes.fromhex(text.replace("-", "")) for text in canonical.to_pylist()], pa.binary(16))


def key_predicate(names: Sequence[str], keys: Sequence[pa.Array], tuples: pa.Table | None = None) -> Expr:
    """Return a predicate that every row passes whose key columns equal one of the tuples.

    Parameters
    ----------
    names : sequence of str
        The columns of the files.
    keys : sequence of pyarrow.Array
        The distinct values of each.
    tuples : pyarrow.Table, optional
        The tuples, for several columns.
    """
    return join(And, [InArray(column_of([name]), values) for name, values in zip(names, keys, strict=True)])
