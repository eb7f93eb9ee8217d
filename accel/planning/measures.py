"""What an aggregation asks: functions of columns, or of expressions over them, named and typed as pyarrow's are."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from accel.errors import ColumnNotFoundError, SchemaMismatchError
from accel.format.domain import Domain
from accel.indexes.expressions import Expression, output_type
from accel.planning.projection import narrow_type, split_name, type_at
from accel.predicate.kinds import kind_of, plain_type

__all__ = [
    "Aggregate",
    "Aggregates",
    "Function",
    "Measure",
    "check_aggregates",
    "resolve_aggregates",
]

_EXPRESSION = re.compile(r"(lower|year|month|day|hour)\((.+)\)", re.DOTALL)


class Function(enum.StrEnum):
    """What can be asked of a column."""

    COUNT = "count"
    """Values that are not null."""
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    COUNT_ALL = "count_all"
    """Rows; of no column."""


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
    """A column of the scan's result, or an expression over one, and what is asked of it."""

    path: tuple[str, ...]
    """Names from the top level down, through structs."""
    of: Expression
    column_type: pa.DataType
    type: pa.DataType
    """Of the values: dictionaries and run-end encoding undone."""
    functions: frozenset[Function]


@dataclass(frozen=True, slots=True, eq=False)
class Aggregates:
    """What is asked, held against the schema of a scan's result."""

    asked: tuple[Aggregate, ...]
    measures: tuple[Measure, ...]
    of: tuple[int, ...]
    """For each aggregate its measure; -1 for `count_all`."""
    schema: pa.Schema
    """Of the scan's result."""

    def project(self, measures: Iterable[int]) -> pa.Schema:
        """The columns that some of the measures take, structs cut down to the fields meant."""
        wanted: dict[str, list[tuple[str, ...]]] = {}
        for ordinal in measures:
            path = self.measures[ordinal].path
            wanted.setdefault(path[0], []).append(path[1:])
        fields = []
        for name, below in wanted.items():
            field = self.schema.field(name)
            fields.append(field.with_type(narrow_type(field.type, below)).remove_metadata())
        return pa.schema(fields)


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
    try:
        function = Function(name)
    except ValueError:
        raise ValueError(f"there is no aggregate {name!r}, only {', '.join(Function)}") from None
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


def resolve_aggregates(asked: Sequence[Aggregate], schema: pa.Schema) -> Aggregates:
    """Find the columns.

    Parameters
    ----------
    asked : sequence of Aggregate
    schema : pyarrow.Schema
        Of the scan's result.

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
    for aggregate in asked:
        if aggregate.column is None:
            of.append(-1)
            continue
        key = _find(aggregate.column, schema)
        at = ordinals.setdefault(key, len(ordinals))
        if at == len(functions):
            functions.append(set())
        functions[at].add(aggregate.function)
        of.append(at)
    measures = []
    for (path, expression), wanted in zip(ordinals, functions, strict=True):
        column_type = type_at(schema, path)
        kind = (
            plain_type(column_type)
            if expression is Expression.LOWER
            else output_type(expression, column_type)
        )
        measure = Measure(path, expression, column_type, _undone(kind), frozenset(wanted))
        _check_meaning(measure)
        measures.append(measure)
    return Aggregates(tuple(asked), tuple(measures), tuple(of), schema)


def _find(name: str, schema: pa.Schema) -> tuple[tuple[str, ...], Expression]:
    try:
        path, expression = split_name(name, schema), Expression.VALUE
    except ColumnNotFoundError:
        match = _EXPRESSION.fullmatch(name)
        if match is None:
            raise
        path, expression = split_name(match[2], schema), Expression(match[1])
    if len(schema.get_all_field_indices(path[0])) > 1:
        raise SchemaMismatchError(f"the scan has several columns named {path[0]!r}")
    if expression is not Expression.VALUE:
        output_type(expression, type_at(schema, path))
    return path, expression


def _undone(kind: pa.DataType) -> pa.DataType:
    """The type without dictionary and run-end encoding; extension types stay."""
    while pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        kind = kind.value_type
    return kind


def _check_meaning(measure: Measure) -> None:
    kind, t = measure.type, pa.types
    extended = isinstance(kind, pa.BaseExtensionType)
    number = t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind) or t.is_boolean(kind)
    ordered = kind_of(kind).domain is not Domain.NONE
    for function in sorted(measure.functions - {Function.COUNT}):
        able = number if function is Function.SUM else ordered
        if extended or not (able or t.is_null(kind)):
            raise SchemaMismatchError(
                f"there is no {function} of column {'.'.join(measure.path)!r}, which is {kind}"
            )
