"""Key columns of a join with files: which types are equal where Spark says so, and the predicate that keys
become.

The predicate may match too many rows, because Spark's own join decides in the end, and none too few. So a
pair of types is accepted only if every row that equals a key in Spark passes the predicate here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from accel.arrays import integers
from accel.errors import SchemaMismatchError
from accel.format.domain import Domain
from accel.predicate.expr import (
    And,
    Column,
    Compare,
    Constant,
    Expr,
    InArray,
    Literal,
    Op,
    Or,
    Ticks,
    Value,
    column_of,
    join,
)
from accel.predicate.kinds import Family, kind_of, native

__all__ = [
    "MOST_RANGES",
    "joined_ranges",
    "key_list",
    "key_ranges",
    "key_sql",
    "range_predicate",
    "ranges_of_batches",
    "tuple_predicate",
]

_PLAIN: Final = "{}"
_NUMBER: Final = r"tinyint|smallint|int|bigint|decimal\(.*\)"
_UUID: Final = "CASE WHEN {0} RLIKE '^[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}$' THEN unhex(replace({0}, '-', '')) END"  # noqa: E501
"""Spark sees the UUIDs of the files in lower case: other text equals none."""
_ACCEPTED: Final[Mapping[Family, Mapping[str, str]]] = {
    Family.BOOLEAN: {"boolean": _PLAIN},
    Family.INTEGER: {_NUMBER: _PLAIN},
    Family.DECIMAL: {_NUMBER: _PLAIN},
    Family.FLOAT: {"float|double": _PLAIN},
    Family.TEXT: {"string": _PLAIN},
    Family.UUID: {"string": _UUID},
    Family.BINARY: {"binary": _PLAIN},
    Family.DATE: {"date": _PLAIN, "timestamp|timestamp_ntz|string": "try_cast({} AS date)"},
    Family.TIME: {r"time\(\d\)": _PLAIN},
    Family.DURATION: {"interval (day|hour|minute|second).*": _PLAIN},
    Family.NULL: {".*": _PLAIN},
}
"""By the family of the files' column: the types that Spark compares with it by value, and how the keys are
converted."""
_INSTANT: Final = {"timestamp": _PLAIN, "timestamp_ntz|date|string": "try_cast({} AS timestamp)"}
_LOCAL: Final = {"timestamp_ntz": _PLAIN, "date": "try_cast({} AS timestamp_ntz)"}
_NANOS: Final = 1000
"""Nanoseconds that Spark, which has microseconds, does not tell apart."""

MOST_RANGES: Final = 64
"""Most ranges that stand for a column's keys: each is two comparisons for every unit that is pruned."""
_MOST_GROUPS: Final = 64
"""Most values of a key column for each of which the other key columns have lists of their own."""


def key_sql(given: str, column: pa.Field, *, name: str) -> str:
    """Return SQL, with `{}` for a key column, of the values that compare with a column of the files; null
    equals none.

    Parameters
    ----------
    given : str
        The type of the key column, as Spark's `simpleString` has it.
    column : pyarrow.Field
        The column of the files, with the type that they decode to.
    name : str
        The name of the key column, for messages.

    Raises
    ------
    SchemaMismatchError
        Spark casts the column of the files for this comparison, or does not compare by value.
    """
    kind = _value_type(column)
    family = kind_of(kind).family
    rules = _ACCEPTED.get(family, {})
    if family is Family.TIMESTAMP:
        rules = _LOCAL if kind.tz is None else _INSTANT
    for types, sql in rules.items():
        if re.fullmatch(types, given):
            return sql
    if given == "void":
        return _PLAIN
    raise SchemaMismatchError(
        f"keys of Spark's type {given}, as in the column {name!r} of the DataFrame, are not looked up in "
        f"{kind}",
        place=f"column {column.name}",
        hint=(
            "cast the keys to the type that accel.spark.read gives this column, or join with accel.spark.read"
        ),
    )


def _value_type(column: pa.Field) -> pa.DataType:
    return column.type.value_type if pa.types.is_dictionary(column.type) else column.type


def _is_finer(column: pa.Field) -> bool:
    """Return whether values of the files may differ that are equal to Spark: those in nanoseconds."""
    kind = kind_of(_value_type(column))
    temporal = kind.family in (Family.TIMESTAMP, Family.TIME, Family.DURATION)
    return temporal and kind.step == (1, 1)


def key_list(values: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return the distinct values of a key column, without nulls, in the form that compares fastest."""
    found = pc.unique(values).drop_null()
    if pa.types.is_decimal128(found.type) and found.type.precision <= 18:
        # As 64-bit integers they are compared by numpy, not one by one.
        return found.cast(pa.decimal64(found.type.precision, found.type.scale))
    if pa.types.is_string(found.type):
        return found.cast(pa.large_string())
    return found.cast(pa.large_binary()) if pa.types.is_binary(found.type) else found


def tuple_predicate(columns: Sequence[pa.Field], keys: pa.Table) -> Expr:
    """Return a predicate that every row passes whose key columns equal one of the rows of a table.

    One of several columns that has few values gets, for each of them, lists of the others: of keys of a day
    and a number, a page of one day is read only for numbers of that day.

    Parameters
    ----------
    columns : sequence of pyarrow.Field
        The columns of the files.
    keys : pyarrow.Table
        The keys: as many columns, in this order, of at least one row.
    """
    lists = [key_list(column) for column in keys.columns]
    tests = [_one_of(column, values) for column, values in zip(columns, lists, strict=True)]
    least = min(range(len(lists)), key=lambda at: len(lists[at]))
    if len(lists) > 1 and 1 < len(lists[least]) <= _MOST_GROUPS:
        codes = keys.column(least).combine_chunks().dictionary_encode().indices
        groups = [
            keys.filter(pc.equal(codes, pa.scalar(code, codes.type))) for code in range(len(lists[least]))
        ]
        alternatives = [
            join(And, [_one_of(c, key_list(v)) for c, v in zip(columns, group.columns, strict=True)])
            for group in groups
        ]
        tests.append(join(Or, alternatives))
    return join(And, tests)


def _one_of(column: pa.Field, values: pa.Array) -> Expr:
    if _is_finer(column):
        return range_predicate(column, key_ranges(values))
    return InArray(column_of([column.name]), values)


# -- ranges ------------------------------------------------------------------------------------------


def key_ranges(values: pa.Array, most: int = MOST_RANGES) -> pa.Table:
    """Return at most so many ranges that hold all values, with the columns `low` and `high`, in order."""
    return _merged(pa.table({"low": values, "high": values}).sort_by("low"), most)


def ranges_of_batches(batches: Iterator[pa.RecordBatch], most: int = MOST_RANGES) -> Iterator[pa.RecordBatch]:
    """Yield at most so many ranges that hold all values of batches of one column, which is sorted, in bounded
    memory."""
    found: pa.Table | None = None
    for batch in batches:
        values = batch.column(0)
        ranges = pa.table({"low": values, "high": values})
        found = _merged(ranges if found is None else pa.concat_tables([found, ranges]), most)
    if found is not None:
        yield from found.combine_chunks().to_batches()


def joined_ranges(ranges: pa.Table, most: int = MOST_RANGES) -> pa.Table:
    """Return at most so many ranges that hold all of these, which do not overlap."""
    return _merged(ranges.sort_by("low"), most)


def _merged(ranges: pa.Table, most: int) -> pa.Table:
    """Join the ranges, which are in order, that are closest to each other."""
    count = ranges.num_rows
    if count <= most:
        return ranges
    gaps = _gaps(ranges.column("high").slice(0, count - 1), ranges.column("low").slice(1))
    cuts = np.sort(np.argpartition(gaps, len(gaps) - most + 1)[len(gaps) - most + 1 :])
    first, last = np.append(0, cuts + 1), np.append(cuts, count - 1)
    return pa.table({"low": ranges.column("low").take(first), "high": ranges.column("high").take(last)})


def _gaps(before: pa.ChunkedArray, after: pa.ChunkedArray) -> npt.NDArray[np.float64]:
    """Return about how far values lie apart, which decides only where ranges end."""
    if kind_of(before.type).domain is Domain.BYTES:
        pairs = zip(
            before.cast(pa.large_binary()).to_pylist(), after.cast(pa.large_binary()).to_pylist(), strict=True
        )
        return np.fromiter((_bytes_gap(a, b) for a, b in pairs), np.float64, len(before))
    low, high = (_floats(values.combine_chunks()) for values in (before, after))
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(high - low)


def _floats(values: pa.Array) -> npt.NDArray[np.float64]:
    plain = native(values)
    return integers(plain).astype(np.float64)


def _bytes_gap(before: bytes, after: bytes) -> float:
    """Return the difference of the first bytes that differ, which counts for less the later they are."""
    shorter = min(len(before), len(after))
    at = next((i for i in range(shorter) if before[i] != after[i]), shorter)
    return float(
        (after[at] if at < len(after) else 0) - (before[at] if at < len(before) else -1)
    ) * 256.0 ** -min(at, 120)


def range_predicate(column: pa.Field, ranges: pa.Table) -> Expr:
    """Return a predicate that every row passes whose column equals a value in one of the ranges."""
    if not ranges.num_rows:
        return Constant(False)
    named = column_of([column.name])
    lows, highs = (_ends(ranges.column(end), column, upper=end == "high") for end in ("low", "high"))
    return join(Or, [_between(named, low, high) for low, high in zip(lows, highs, strict=True)])


def _between(column: Column, low: Value, high: Value) -> Expr:
    return And((Compare(Op.GE, column, Literal(low)), Compare(Op.LE, column, Literal(high))))


def _ends(ends: pa.ChunkedArray, column: pa.Field, *, upper: bool) -> list[Any]:
    """Return the ends of ranges as literals, which exceed all values of the files that are one of them to
    Spark."""
    of, kind = kind_of(_value_type(column)), kind_of(ends.type)
    rest = _NANOS - 1 if upper and _is_finer(column) else 0
    if kind.family in (Family.DATE, Family.TIME, Family.TIMESTAMP, Family.DURATION):
        ticks = integers(native(ends.combine_chunks())).tolist()
        nanos = [tick * kind.numerator + rest for tick in ticks]
        if kind.family is Family.DURATION:
            # A literal of a duration counts the ticks of the column.
            return [-(-n // of.numerator) if upper else n // of.numerator for n in nanos]
        return [Ticks("time" if kind.family is Family.TIME else "timestamp", n) for n in nanos]
    values: list[Any] = ends.to_pylist()
    return values
