"""Spark's pushed filters as accel's predicates, and whether accel answers them exactly as Spark does.

The list of filters is a conjunction over rows. One that is exact need not be evaluated by Spark again; one that is not may
still prune, if every row that Spark would keep matches the predicate too.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as spark
from pyspark.sql.types import StringType, StructType

from accel.errors import ColumnNotFoundError, PredicateError
from accel.planning.projection import find_type
from accel.predicate.bind import bind
from accel.predicate.column import ColumnExpr, Condition
from accel.predicate.expr import Constant, Expr, column_of
from accel.predicate.kinds import Family, kind_of

__all__ = ["Translated", "translate"]


@dataclass(frozen=True, slots=True)
class Translated:
    """A filter as a predicate."""

    expr: Expr | None
    """True for every row for which the filter is; None where that is unknown."""
    exact: bool
    """True, false and null for the very rows for which the filter is."""


_NOTHING = Translated(None, False)


def translate(given: spark.Filter, columns: pa.Schema, schema: StructType) -> Translated:
    """Translate a filter.

    Parameters
    ----------
    given : pyspark.sql.datasource.Filter
        The filter.
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
        return _NOTHING
    return found


def _translate(given: spark.Filter, columns: pa.Schema, schema: StructType) -> Translated:
    if isinstance(given, spark.Not):
        inner = _translate(given.child, columns, schema)
        if inner.expr is None or not inner.exact:
            return _NOTHING
        return Translated((~Condition(inner.expr)).expr, True)
    path = getattr(given, "attribute", ())
    kind = _type_at(columns, path)
    if kind is None:
        return _NOTHING
    column = ColumnExpr(column_of(path))
    if isinstance(given, spark.IsNull):
        return Translated(column.is_null().expr, True)
    if isinstance(given, spark.IsNotNull):
        return Translated(column.is_not_null().expr, True)
    if _type_of(schema, path) not in (None, StringType()):
        # Another collation, or the padding of CHAR, decides what is equal.
        return _NOTHING
    family = kind_of(kind).family
    if isinstance(given, spark.StringStartsWith | spark.StringEndsWith | spark.StringContains):
        return _like(given, column) if family is Family.TEXT else _NOTHING
    value: Any = getattr(given, "value", None)
    if isinstance(given, spark.In):
        return _in(column, family, kind, value)
    compare = _COMPARISONS.get(type(given))
    if compare is None or not _comparable(family, value):
        return _NOTHING
    if family is Family.UUID and (not _is_canonical(value) or type(given) not in _EQUALITIES):
        # Spark has the text of a UUID, and every other text is another value.
        return _NOTHING
    if _finer(kind):
        return _compare_micros(type(given), column, value)
    return Translated(compare(column, value).expr, True)


_COMPARISONS: dict[type, Callable[[ColumnExpr, Any], Condition]] = {
    spark.EqualTo: lambda column, value: column == value,
    spark.EqualNullSafe: lambda column, value: column.is_not_distinct_from(value),
    spark.GreaterThan: lambda column, value: column > value,
    spark.GreaterThanOrEqual: lambda column, value: column >= value,
    spark.LessThan: lambda column, value: column < value,
    spark.LessThanOrEqual: lambda column, value: column <= value,
}
_EQUALITIES = (spark.EqualTo, spark.EqualNullSafe)
_MICROSECOND = timedelta(microseconds=1)
_FIRST_GREGORIAN = date(1582, 10, 15)
"""Spark hands over the ten days before it as this one, too: its filters have dates and times of Java, whose calendar leaves
those out."""
_ZONES = timedelta(days=1)
"""Most that the day of an instant differs from the one in UTC."""


def _compare_micros(kind: type, column: ColumnExpr, value: datetime) -> Translated:
    """Compare nanoseconds as Spark sees them: rounded down to microseconds."""
    if kind is spark.EqualTo:
        found = (column >= value) & (column < value + _MICROSECOND)
    elif kind is spark.EqualNullSafe:
        within = (column >= value) & (column < value + _MICROSECOND)
        found = column.is_not_null() & within
    elif kind is spark.GreaterThan:
        found = column >= value + _MICROSECOND
    elif kind is spark.LessThanOrEqual:
        found = column < value + _MICROSECOND
    elif kind is spark.GreaterThanOrEqual:
        found = column >= value
    else:
        found = column < value
    return Translated(found.expr, True)


def _in(column: ColumnExpr, family: Family, kind: pa.DataType, values: Sequence[Any]) -> Translated:
    present = [value for value in values if value is not None]
    if _finer(kind) or not all(_comparable(family, value) for value in present):
        return _NOTHING
    if family is Family.UUID and not all(map(_is_canonical, present)):
        return _NOTHING
    if not present:
        return Translated(Constant(None), True) if values else _NOTHING
    # Spark looks a long list up in a set, where the two zeros differ.
    exact = family is not Family.FLOAT or 0.0 not in present
    return Translated(column.isin(list(values)).expr, exact)


def _like(given: Any, column: ColumnExpr) -> Translated:
    text = given.value
    if not isinstance(text, str):
        return _NOTHING
    for special in "\\%_":
        text = text.replace(special, "\\" + special)
    before = "" if isinstance(given, spark.StringStartsWith) else "%"
    after = "" if isinstance(given, spark.StringEndsWith) else "%"
    return Translated(column.like(f"{before}{text}{after}").expr, True)


def _comparable(family: Family, value: Any) -> bool:
    """Whether Spark's value has the very type of the column, so that neither side is converted, and is what was asked for."""
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
