"""Spark's tests of a column as accel's predicates, and whether accel answers them exactly as Spark does.

The tests come from two places: the filters that Spark pushes into a data source, and the expressions of a
plan. One that is exact need not be evaluated by Spark again; one that is not may still prune, if every row
that Spark would keep matches the predicate too.
"""

from __future__ import annotations

import enum
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StringType, StructType

from accel.errors import ColumnNotFoundError, PredicateError
from accel.planning.projection import find_type
from accel.predicate.bind import bind
from accel.predicate.column import ColumnExpr, Condition
from accel.predicate.expr import And, Constant, Expr, Or, column_of, join
from accel.predicate.kinds import Family, kind_of

__all__ = [
    "NOTHING",
    "ColumnTest",
    "Operator",
    "Translated",
    "translate_and",
    "translate_not",
    "translate_or",
    "translate_test",
]


class Operator(enum.Enum):
    """What a column is tested for."""

    EQUAL = "="
    EQUAL_NULL_SAFE = "<=>"
    GREATER = ">"
    GREATER_EQUAL = ">="
    LESS = "<"
    LESS_EQUAL = "<="
    IN = "in"
    IS_NULL = "is null"
    IS_NOT_NULL = "is not null"
    STARTS_WITH = "starts with"
    ENDS_WITH = "ends with"
    CONTAINS = "contains"


@dataclass(frozen=True, slots=True)
class ColumnTest:
    """A test of one column, or of a field of one, against what Spark has as a literal."""

    operator: Operator
    path: Sequence[str]
    value: Any = None
    """In Python's type; of IN, all values."""
    exact: bool = True
    """Whether it is the test itself; else every row that Spark keeps passes, and others may."""


@dataclass(frozen=True, slots=True)
class Translated:
    """A filter as a predicate."""

    expr: Expr | None
    """True for every row for which the filter is; None where that is unknown."""
    exact: bool
    """True, false and null for the very rows for which the filter is."""


NOTHING = Translated(None, False)


def translate_test(given: ColumnTest, columns: pa.Schema, schema: StructType) -> Translated:
    """Translate the test of a column.

    Parameters
    ----------
    given : ColumnTest
        The test.
    columns : pyarrow.Schema
        The columns in the types of the files.
    schema : StructType
        The same in Spark's types.

    Returns
    -------
    Translated
        The predicate.
    """
    try:
        found = _translate(given, columns, schema)
        if found.expr is not None:
            bind(found.expr, columns)  # refuses what no file could answer
    except (PredicateError, ColumnNotFoundError, OverflowError):
        return NOTHING
    return found if given.exact else replace(found, exact=False)


def translate_not(inner: Translated) -> Translated:
    """Return the negation: of what is not exact nothing is known."""
    if inner.expr is None or not inner.exact:
        return NOTHING
    return Translated((~Condition(inner.expr)).expr, True)


def translate_and(parts: Sequence[Translated]) -> Translated:
    """Return the conjunction: parts of which nothing is known are left out."""
    known = [part.expr for part in parts if part.expr is not None]
    if not known:
        return NOTHING
    exact = len(known) == len(parts) and all(part.exact for part in parts)
    return Translated(join(And, known), exact)


def translate_or(parts: Sequence[Translated]) -> Translated:
    """Return the disjunction: of nothing if nothing is known of one part."""
    known = [part.expr for part in parts if part.expr is not None]
    if len(known) < len(parts):
        return NOTHING
    return Translated(join(Or, known), all(part.exact for part in parts))


def _translate(given: ColumnTest, columns: pa.Schema, schema: StructType) -> Translated:
    operator, path, value = given.operator, given.path, given.value
    kind = _type_at(columns, path)
    if kind is None:
        return NOTHING
    column = ColumnExpr(column_of(path))
    if operator is Operator.IS_NULL:
        return Translated(column.is_null().expr, True)
    if operator is Operator.IS_NOT_NULL:
        return Translated(column.is_not_null().expr, True)
    if _type_of(schema, path) not in (None, StringType()):
        # Another collation, or the padding of CHAR, decides what is equal.
        return NOTHING
    family = kind_of(kind).family
    if operator in _LIKE:
        return _like(operator, column, value) if family is Family.TEXT else NOTHING
    if operator is Operator.IN:
        return _in(column, family, kind, value)
    if not _comparable(family, value):
        return NOTHING
    if family is Family.UUID and (not _is_canonical(value) or operator not in _EQUALITIES):
        # Spark has the text of a UUID, and every other text is another value.
        return NOTHING
    if _finer(kind):
        return _compare_micros(operator, column, value)
    return Translated(_COMPARISONS[operator](column, value).expr, True)


_COMPARISONS: dict[Operator, Callable[[ColumnExpr, Any], Condition]] = {
    Operator.EQUAL: lambda column, value: column == value,
    Operator.EQUAL_NULL_SAFE: lambda column, value: column.is_not_distinct_from(value),
    Operator.GREATER: lambda column, value: column > value,
    Operator.GREATER_EQUAL: lambda column, value: column >= value,
    Operator.LESS: lambda column, value: column < value,
    Operator.LESS_EQUAL: lambda column, value: column <= value,
}
_EQUALITIES = (Operator.EQUAL, Operator.EQUAL_NULL_SAFE)
_LIKE = (Operator.STARTS_WITH, Operator.ENDS_WITH, Operator.CONTAINS)
_MICROSECOND = timedelta(microseconds=1)
_FIRST_GREGORIAN = date(1582, 10, 15)
"""Spark hands over the ten days before it as this one, too: its filters have dates and times of Java, whose
calendar leaves those out."""
_ZONES = timedelta(days=1)
"""Most that the day of an instant differs from the one in UTC."""


def _compare_micros(kind: Operator, column: ColumnExpr, value: datetime) -> Translated:
    """Compare nanoseconds as Spark sees them: rounded down to microseconds."""
    if kind is Operator.EQUAL:
        found = (column >= value) & (column < value + _MICROSECOND)
    elif kind is Operator.EQUAL_NULL_SAFE:
        within = (column >= value) & (column < value + _MICROSECOND)
        found = column.is_not_null() & within
    elif kind is Operator.GREATER:
        found = column >= value + _MICROSECOND
    elif kind is Operator.LESS_EQUAL:
        found = column < value + _MICROSECOND
    elif kind is Operator.GREATER_EQUAL:
        found = column >= value
    else:
        found = column < value
    return Translated(found.expr, True)


def _in(column: ColumnExpr, family: Family, kind: pa.DataType, values: Sequence[Any]) -> Translated:
    present = [value for value in values if value is not None]
    if _finer(kind) or not all(_comparable(family, value) for value in present):
        return NOTHING
    if family is Family.UUID and not all(map(_is_canonical, present)):
        return NOTHING
    if not present:
        return Translated(Constant(None), True) if values else NOTHING
    # Spark looks a long list up in a set, where the two zeros differ.
    exact = family is not Family.FLOAT or 0.0 not in present
    return Translated(column.isin(list(values)).expr, exact)


def _like(operator: Operator, column: ColumnExpr, text: Any) -> Translated:
    if not isinstance(text, str):
        return NOTHING
    for special in "\\%_":
        text = text.replace(special, "\\" + special)
    before = "" if operator is Operator.STARTS_WITH else "%"
    after = "" if operator is Operator.ENDS_WITH else "%"
    return Translated(column.like(f"{before}{text}{after}").expr, True)


def _comparable(family: Family, value: Any) -> bool:
    """Return whether Spark's value has the very type of the column, so that neither side is converted, and is
    what was asked for."""
    match family:
        case Family.BOOLEAN:
            return isinstance(value, bool)
        case Family.INTEGER | Family.DECIMAL:
            return isinstance(value, int | Decimal) and not isinstance(value, bool)
        case Family.FLOAT:
            return isinstance(value, float)
        case Family.TEXT | Family.UUID:
            return isinstance(value, str)
        case Family.BINARY:
            return isinstance(value, bytes | bytearray)
        case Family.DATE:
            return isinstance(value, date) and not isinstance(value, datetime) and value != _FIRST_GREGORIAN
        case Family.TIMESTAMP:
            return isinstance(value, datetime) and abs(value.date() - _FIRST_GREGORIAN) > _ZONES
        case _:
            return False


def _is_canonical(value: Any) -> bool:
    try:
        return bool(str(uuid.UUID(value)) == value)
    except (ValueError, AttributeError, TypeError):
        return False


def _finer(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.unit == "ns")


def _type_at(columns: pa.Schema, path: Sequence[str]) -> pa.DataType | None:
    if not path or len(columns.get_all_field_indices(path[0])) != 1:
        return None
    return find_type(columns.field(path[0]).type, path[1:])


def _type_of(schema: StructType, path: Sequence[str]) -> Any:
    """Return the Spark type of a column of text; None for a column of another type."""
    kind: Any = schema
    for number, name in enumerate(path):
        field = (
            next((f for f in kind.fields if f.name == name), None) if isinstance(kind, StructType) else None
        )
        if field is None:
            return None
        kind = field.dataType
        if number == len(path) - 1 and field.metadata.get("__CHAR_VARCHAR_TYPE_STRING"):
            return field.metadata
    return kind if isinstance(kind, StringType) else None
