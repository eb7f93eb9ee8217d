"""Aggregates: functions of columns or of expressions over them, named and typed as pyarrow's, and their
values. The distinct values of a column are one of them."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from accel import kernels as pc
from accel.arrays import bools, bytes_array, integers_array, relabel, repeat_scalar, whole
from accel.errors import ColumnNotFoundError, SchemaMismatchError
from accel.format.domain import Domain, storage_type
from accel.indexes.expressions import Expression, apply_expression, output_type
from accel.indexes.native import tag_of
from accel.planning.distinct_values import DistinctSet
from accel.planning.projection import narrow_type, split_name, type_at
from accel.predicate.kinds import kind_of, native

__all__ = [
    "Aggregate",
    "Aggregates",
    "Function",
    "Measure",
    "Tally",
    "array_of",
    "check_aggregates",
    "finish",
    "resolve_aggregates",
    "sum_type",
    "tally_array",
    "tally_constant",
]

_EXPRESSION = re.compile(r"(lower|year|month|day|hour)\((.+)\)", re.DOTALL)


class Function(enum.StrEnum):
    """The aggregate functions."""

    COUNT = "count"
    """Values that are not null."""
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    COUNT_ALL = "count_all"
    """Rows; of no column."""
    DISTINCT = "distinct"
    """The values themselves, each once: what `Scan.distinct` asks, and no column of a table of aggregates."""


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One value of the result."""

    column: str | None
    """As the caller wrote it; None for `count_all`."""
    function: Function

    @property
    def name(self) -> str:
        return self.function if self.column is None else f"{self.column}_{self.function}"


@dataclass(frozen=True, slots=True)
class Measure:
    """A column of the scan's result, or an expression over one, and the functions of it that are wanted."""

    path: tuple[str, ...]
    """Names from the top level down, through structs."""
    of: Expression
    column_type: pa.DataType
    type: pa.DataType
    """The type of the values, without dictionary and run-end encoding."""
    functions: frozenset[Function]

    @property
    def distinct(self) -> bool:
        """Whether the values themselves are wanted."""
        return Function.DISTINCT in self.functions

    def tally(self) -> Tally:
        """Return the figures of no rows."""
        return Tally(values=DistinctSet(self.type) if self.distinct else None)


@dataclass(frozen=True, slots=True, eq=False)
class Aggregates:
    """The wanted aggregates, resolved against the schema of a scan's result."""

    requested: tuple[Aggregate, ...]
    measures: tuple[Measure, ...]
    of: tuple[int, ...]
    """For each aggregate its measure; -1 for `count_all`."""
    schema: pa.Schema
    """The schema of the scan's result."""

    def tallies(self) -> tuple[Tally, ...]:
        """Return the figures of no rows, by measure."""
        return tuple(measure.tally() for measure in self.measures)

    def project(self, measures: Iterable[int]) -> pa.Schema:
        """Return the columns that some of the measures take, structs cut down to the fields meant."""
        wanted: dict[str, list[tuple[str, ...]]] = {}
        for ordinal in measures:
            path = self.measures[ordinal].path
            wanted.setdefault(path[0], []).append(path[1:])
        fields = []
        for name, below in wanted.items():
            field = self.schema.field(name)
            fields.append(field.with_type(narrow_type(field.type, below)).remove_metadata())
        return pa.schema(fields)


_NAMED: Final = {str(function): function for function in Function if function is not Function.DISTINCT}


def check_aggregates(aggregates: Any) -> tuple[Aggregate, ...]:
    """Read the caller's list.

    Raises
    ------
    TypeError, ValueError
        It is none, is empty, or names no function that there is.
    """
    lone = isinstance(aggregates, list | tuple) and bool(aggregates) and isinstance(aggregates[-1], str)
    if lone or isinstance(aggregates, str | bytes | Mapping) or not isinstance(aggregates, Iterable):
        raise TypeError(
            f'aggregates are a list such as [("x", "sum"), ([], "count_all")], not {aggregates!r}'
        )
    out = tuple(_check_one(one) for one in aggregates)
    if not out:
        raise ValueError("aggregate() of nothing: name a column and a function")
    return out


def _check_one(one: Any) -> Aggregate:
    if not isinstance(one, tuple | list) or len(one) < 2:
        raise TypeError(f'an aggregate is a pair of a column and a function, as ("x", "sum"), not {one!r}')
    if len(one) > 2:
        raise ValueError(f"{one!r}: options are not taken; nulls are left out, and nothing sums up to null")
    column, name = one
    function = _NAMED.get(name) if isinstance(name, str) else None
    if function is None:
        raise ValueError(f"there is no aggregate {name!r}, only {', '.join(_NAMED)}")
    if isinstance(column, list | tuple):
        if len(column) > 1:
            raise ValueError(f"{function} takes one column, not {len(column)}")
        column = column[0] if column else None
    if column is not None and not isinstance(column, str):
        raise TypeError(f"a column is named by a string, not {column!r}")
    if (column is None) != (function is Function.COUNT_ALL):
        takes = "takes no column: ([], 'count_all')" if column is not None else "takes a column"
        raise ValueError(f"{function} {takes}")
    return Aggregate(column, function)


def resolve_aggregates(
    requested: Sequence[Aggregate], schema: pa.Schema, *, case_sensitive: bool = True
) -> Aggregates:
    """Find the columns.

    Parameters
    ----------
    requested : sequence of Aggregate
    schema : pyarrow.Schema
        The schema of the scan's result.
    case_sensitive : bool
        As for `split_name`.

    Raises
    ------
    ColumnNotFoundError
        A column is not there.
    SchemaMismatchError
        A function, or an expression, has no meaning for the column's type, or two columns have that name.
    """
    ordinals: dict[tuple[tuple[str, ...], Expression], int] = {}
    functions: list[set[Function]] = []
    of: list[int] = []
    for aggregate in requested:
        if aggregate.column is None:
            of.append(-1)
            continue
        distinct = aggregate.function is Function.DISTINCT
        key = _find(aggregate.column, schema, distinct=distinct, case_sensitive=case_sensitive)
        at = ordinals.setdefault(key, len(ordinals))
        if at == len(functions):
            functions.append(set())
        functions[at].add(aggregate.function)
        of.append(at)
    measures = []
    for (path, expression), wanted in zip(ordinals, functions, strict=True):
        column_type = type_at(schema, path)
        kind = (
            storage_type(column_type)
            if expression is Expression.LOWER
            else output_type(expression, column_type)
        )
        measure = Measure(path, expression, column_type, _undone(kind), frozenset(wanted))
        _check_meaning(measure)
        measures.append(measure)
    return Aggregates(tuple(requested), tuple(measures), tuple(of), schema)


def _find(
    name: str, schema: pa.Schema, *, distinct: bool, case_sensitive: bool
) -> tuple[tuple[str, ...], Expression]:
    split = partial(split_name, schema=schema, case_sensitive=case_sensitive)
    try:
        path, expression = split(name), Expression.VALUE
    except ColumnNotFoundError:
        match = _EXPRESSION.fullmatch(name)
        if match is None or distinct:
            raise
        path, expression = split(match[2]), Expression(match[1])
    if len(schema.get_all_field_indices(path[0])) > 1:
        raise SchemaMismatchError(f"the scan has several columns named {path[0]!r}")
    if expression is not Expression.VALUE:
        output_type(expression, type_at(schema, path))
    return path, expression


def _undone(kind: pa.DataType) -> pa.DataType:
    """Return the type without dictionary and run-end encoding; extension types stay."""
    while pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        kind = kind.value_type
    return kind


def _check_meaning(measure: Measure) -> None:
    kind, t = measure.type, pa.types
    extended = isinstance(kind, pa.BaseExtensionType)
    number = t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind) or t.is_boolean(kind)
    ordered = kind_of(kind).domain is not Domain.NONE
    if measure.distinct and tag_of(kind) is None and not t.is_null(kind):
        raise SchemaMismatchError(
            f"column {'.'.join(measure.path)!r} is {kind}, whose values have no order",
            hint="ask for a field of the struct, or read the column and collect its values",
        )
    for function in sorted(measure.functions - {Function.COUNT, Function.DISTINCT}):
        able = number if function is Function.SUM else ordered
        if extended or not (able or t.is_null(kind)):
            raise SchemaMismatchError(
                f"there is no {function} of column {'.'.join(measure.path)!r}, which is {kind}"
            )


@dataclass(slots=True)
class Tally:
    """Native values: integers for dates, times and decimals (unscaled), bytes for text. -0.0 is 0.0."""

    count: int = 0
    """Values that are not null."""
    nan: bool = False
    """Whether a value is NaN; reliable where there is no other value."""
    low: Any = None
    high: Any = None
    total: int | float = 0
    """The sum; for integers modulo 2**64 and for decimals modulo their width, which `finish` applies as
    pyarrow does."""
    values: DistinctSet | None = None
    """The values, null among them, where these are wanted."""

    def add(self, other: Tally) -> None:
        """Take in the figures of other rows."""
        self.count += other.count
        self.nan |= other.nan
        self.total += other.total
        if self.values is not None and other.values is not None:
            self.values.update(other.values)
        if other.low is not None and (self.low is None or other.low < self.low):
            self.low = other.low
        if other.high is not None and (self.high is None or other.high > self.high):
            self.high = other.high


def sum_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of a sum, as `pyarrow.compute.sum` has it."""
    t = pa.types
    if t.is_floating(kind):
        return pa.float64()
    if t.is_decimal(kind):
        wide = kind.bit_width == 256
        return pa.decimal256(76, kind.scale) if wide else pa.decimal128(38, kind.scale)
    return pa.uint64() if t.is_boolean(kind) or t.is_unsigned_integer(kind) else pa.int64()


def tally_array(measure: Measure, array: pa.Array | pa.ChunkedArray) -> Tally:
    """Fold the values of a column (of type `measure.column_type`, the field of a struct alone).

    Raises
    ------
    SchemaMismatchError
        `lower` of what is no UTF-8.
    """
    array = whole(array)
    if measure.distinct:
        found = measure.tally()
        found.values.add_column(array)  # type: ignore[union-attr]
        return found
    # An expression is null where the column is, so a count does not evaluate it.
    if measure.of is not Expression.VALUE and measure.functions != {Function.COUNT}:
        try:
            array = apply_expression(measure.of, array)
        except UnicodeDecodeError:
            raise SchemaMismatchError(
                f"{measure.of}() of text that is not UTF-8", place=f"column {'.'.join(measure.path)}"
            ) from None
    found = Tally(count=len(array) - array.null_count)
    if not found.count or measure.functions == {Function.COUNT}:
        return found
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if {Function.MIN, Function.MAX} & measure.functions:
        ends = pc.min_max(native(array))
        found.low, found.high = _plain(ends["min"]), _plain(ends["max"])
        if found.low != found.low:  # no value but NaN
            found.nan, found.low, found.high = True, None, None
    if Function.SUM in measure.functions:
        found.total = _plain(pc.sum(_addable(array)))
    return found


def _addable(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_decimal(kind) and kind.bit_width < 128:
        # Their native integers would overflow.
        array = array.cast(sum_type(kind))
    return array if pa.types.is_boolean(kind) else native(array)


def _plain(value: pa.Scalar) -> Any:
    if pa.types.is_decimal(value.type):
        return int(value.as_py())
    found = value.as_py()
    return found + 0.0 if isinstance(found, float) else found


def tally_constant(measure: Measure, value: pa.Scalar, *, rows: int) -> Tally:
    """Fold so many rows of one value."""
    if not rows or not (value.is_valid or measure.distinct):
        return measure.tally()
    found = tally_array(measure, repeat_scalar(value, 1))
    found.count, found.total = rows, found.total * rows
    return found


def finish(measure: Measure, function: Function, tally: Tally) -> pa.Array:
    """Return an aggregate's value, as an array of one; the distinct values in ascending order, NaN after the
    numbers and null at the end."""
    if tally.values is not None and function is Function.DISTINCT:
        return tally.values.result()
    if function is Function.COUNT:
        return integers_array([tally.count], pa.int64())
    if function is Function.SUM:
        to = sum_type(measure.type)
        if not tally.count:
            return pa.nulls(1, to)
        if pa.types.is_floating(to):
            return integers_array(np.array([tally.total], np.float64), to)
        signed = not pa.types.is_unsigned_integer(to)
        return integers_array([_wrap(int(tally.total), to.bit_width, signed=signed)], to)
    value = tally.low if function is Function.MIN else tally.high
    if value is None and tally.nan:
        value = float("nan")
    return pa.nulls(1, measure.type) if value is None else array_of(value, measure.type)


def _wrap(value: int, bits: int, *, signed: bool) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def array_of(value: Any, to: pa.DataType) -> pa.Array:
    """Return an array of one native value, in a type that has no dictionary."""
    kind = kind_of(to)
    if kind.domain is Domain.BOOLEAN:
        return bools(np.array([value], bool))
    if kind.domain is Domain.FLOAT:
        return integers_array(np.array([value], np.float64), pa.float64()).cast(to, safe=False)
    if kind.domain is Domain.BYTES:
        if pa.types.is_fixed_size_binary(to):
            return pa.Array.from_buffers(to, 1, [None, pa.py_buffer(value)])
        # A cast from binary to text would refuse bytes that are not UTF-8, which a scan returns as they are.
        if pa.types.is_binary_view(to) or pa.types.is_string_view(to):
            return relabel(bytes_array([value], pa.large_binary()).cast(pa.binary_view()), to)
        return bytes_array([value], to)
    return relabel(integers_array([value], kind.native), to)
