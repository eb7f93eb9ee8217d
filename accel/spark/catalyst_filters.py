"""The conditions of Spark's filters, as tests of columns: read from the tree of expressions, never from its
text.

Only what has a column on one side and a literal of the very same type on the other is understood. What is not
is None, and left to Spark, whose filter stays where it is.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import numpy as np

from accel.spark.column_tests import ColumnTest, Operator
from accel.spark.expressions import Expression, items_of
from accel.spark.moment_spans import Cut, spark_unit

__all__ = [
    "Combination",
    "Connective",
    "aggregate_of",
    "conjuncts_of",
    "field_paths",
]

_EPOCH: Final = datetime(1970, 1, 1)
_MOST_ONE_BY_ONE: Final = 1_000
"""Values of a set that are fetched from the JVM each by itself, at some 0.1 ms."""


class Connective(enum.Enum):
    """How conditions are put together."""

    AND = "and"
    OR = "or"
    NOT = "not"


@dataclass(frozen=True, slots=True)
class Combination:
    """Conditions put together; None is one that is not understood."""

    connective: Connective
    parts: tuple[ColumnTest | Combination | None, ...]


class _UnknownError(Exception):
    """An expression is none of those that are understood."""


def conjuncts_of(
    condition: Any, names: Mapping[int, str]
) -> list[tuple[ColumnTest | Combination | None, str]]:
    """Return the conjuncts of a condition, each with its text for messages.

    Parameters
    ----------
    condition : JavaObject
        A Catalyst expression.
    names : mapping
        The columns that it may test, by the number of their expression.

    Returns
    -------
    list of (ColumnTest or Combination or None, str)
        None is one that is not understood.
    """
    flat = _flat(Expression(condition), "And")
    return [(_condition(each, names), each.java.sql()) for each in flat]


def aggregate_of(expression: Any, names: Mapping[int, str]) -> tuple[tuple[str, ...] | None, str] | None:
    """Return the column and the function of a count, minimum or maximum; None for any other expression.

    The column is None where rows are counted.
    """
    alias = Expression(expression)
    if alias.kind != "Alias":
        return None
    (whole,) = alias.children
    if whole.kind != "aggregate.AggregateExpression":
        return None
    if not whole.java.filter().isEmpty() or whole.java.isDistinct():
        return None
    function = Expression(whole.java.aggregateFunction())
    name, children = _AGGREGATES.get(function.kind), function.children
    if name is None or len(children) != 1:
        return None
    (child,) = children
    if child.kind == "Literal":
        counts = name == "count" and child.java.value() is not None
        return (None, "count_all") if counts else None
    try:
        return _path(child, names), name
    except _UnknownError:
        return None


_AGGREGATES: Final = {"aggregate.Count": "count", "aggregate.Min": "min", "aggregate.Max": "max"}


def field_paths(expression: Any, names: Mapping[int, str]) -> Iterator[tuple[str, tuple[str, ...] | None]]:
    """Yield each column that an expression uses, and the path of the field that it uses of it.

    The path is empty where the column is used as a whole, and None where only its being null matters.
    """
    yield from _field_paths(Expression(expression), names)


def _field_paths(
    expression: Expression, names: Mapping[int, str]
) -> Iterator[tuple[str, tuple[str, ...] | None]]:
    if expression.kind in ("AttributeReference", "GetStructField"):
        try:
            name, *path = _path(expression, names)
        except _UnknownError:
            pass
        else:
            yield name, tuple(path)
            return
    children = expression.children
    if expression.kind in _NULLS and children[0].kind == "AttributeReference":
        yield from ((name, None) for name, _ in _field_paths(children[0], names))
        return
    for child in children:
        yield from _field_paths(child, names)


def _flat(expression: Expression, kind: str) -> list[Expression]:
    if expression.kind != kind:
        return [expression]
    return [each for child in expression.children for each in _flat(child, kind)]


def _condition(expression: Expression, names: Mapping[int, str]) -> ColumnTest | Combination | None:
    kind = expression.kind
    try:
        if kind in ("And", "Or"):
            parts = tuple(_condition(each, names) for each in _flat(expression, kind))
            return Combination(Connective.AND if kind == "And" else Connective.OR, parts)
        if kind == "Not":
            return Combination(Connective.NOT, (_condition(expression.children[0], names),))
        return _test(expression, names)
    except (_UnknownError, OverflowError, UnicodeDecodeError):
        return None


def _test(expression: Expression, names: Mapping[int, str]) -> ColumnTest | Combination:
    kind = expression.kind
    if kind in ("AttributeReference", "GetStructField"):
        return ColumnTest(Operator.EQUAL, _path(expression, names), True)  # a condition is a boolean
    if kind in _NULLS:
        return ColumnTest(_NULLS[kind], _path(expression.children[0], names))
    if kind in ("In", "InSet"):
        column, *others = expression.children
        cut = _cut(column, names)
        path = () if cut is not None else _path(column, names)
        if kind == "InSet":
            values = _set_values(expression, column)
        else:
            values = [_literal(each, column) for each in others]
        return ColumnTest(Operator.IN, path, values) if cut is None else _among(cut, values)
    if kind not in _COMPARED:
        raise _UnknownError(kind)
    operator, flipped = _COMPARED[kind]
    left, right = expression.children
    if flipped is not None and left.kind == "Literal":
        left, right, operator = right, left, flipped
    cut = _cut(left, names)
    path = () if cut is not None else _path(left, names)
    value = _literal(right, left)
    if value is None:
        raise _UnknownError("a comparison with null")
    return ColumnTest(operator, path, value) if cut is None else _within(cut, operator, value)


def _within(cut: Cut, operator: Operator, value: Any) -> Combination:
    tests = cut.tests(operator, value)
    if not tests:
        raise _UnknownError("a moment that is out of range")
    return Combination(Connective.AND, tuple(tests))


def _among(cut: Cut, values: list[Any]) -> Combination:
    present = [value for value in values if value is not None]
    if not present or len(present) > _MOST_SPANS:
        raise _UnknownError("a list of moments")
    return Combination(Connective.OR, tuple(_within(cut, Operator.EQUAL, value) for value in present))


def _cut(expression: Expression, names: Mapping[int, str]) -> Cut | None:
    """Return a function that cuts a column of moments; None where an expression is none."""
    kind, zone = expression.kind, None
    if kind == "Year":
        unit: str | None = "year"
        (inner,) = expression.children
        if inner.kind == "Cast" and inner.type_name == "date":
            inner, zone = inner.children[0], _zone(inner)
    elif kind == "Cast" and expression.type_name == "date":
        unit, inner, zone = "day", expression.children[0], _zone(expression)
    elif kind in ("TruncTimestamp", "TruncDate"):
        unit = _unit(Expression(expression.java.format()))
        moment = expression.java.timestamp() if kind == "TruncTimestamp" else expression.java.date()
        inner = Expression(moment)
        zone = _zone(expression) if kind == "TruncTimestamp" else None
        if kind == "TruncTimestamp" and inner.kind == "Cast":
            inner = inner.children[0] if inner.children[0].type_name == "date" else inner
    else:
        return None
    column = inner.type_name
    if unit is None or column not in _MOMENTS:
        raise _UnknownError(kind)
    if column == "timestamp_ntz":
        zone = None  # its days are those that are written
    return Cut(path=_path(inner, names), kind=column, unit=unit, zone=zone)


def _unit(expression: Expression) -> str | None:
    return spark_unit(_literal(expression, expression)) if expression.type_name == "string" else None


def _zone(expression: Expression) -> str | None:
    """Return the zone of an expression; of one without, one that is not known."""
    found = expression.java.timeZoneId()
    return str(found.get()) if found.isDefined() else ""


_MOMENTS: Final = ("date", "timestamp", "timestamp_ntz")
_MOST_SPANS: Final = 100

_NULLS: Final = {"IsNull": Operator.IS_NULL, "IsNotNull": Operator.IS_NOT_NULL}
_COMPARED: Final[Mapping[str, tuple[Operator, Operator | None]]] = {
    "EqualTo": (Operator.EQUAL, Operator.EQUAL),
    "EqualNullSafe": (Operator.EQUAL_NULL_SAFE, Operator.EQUAL_NULL_SAFE),
    "GreaterThan": (Operator.GREATER, Operator.LESS),
    "GreaterThanOrEqual": (Operator.GREATER_EQUAL, Operator.LESS_EQUAL),
    "LessThan": (Operator.LESS, Operator.GREATER),
    "LessThanOrEqual": (Operator.LESS_EQUAL, Operator.GREATER_EQUAL),
    "StartsWith": (Operator.STARTS_WITH, None),
    "EndsWith": (Operator.ENDS_WITH, None),
    "Contains": (Operator.CONTAINS, None),
}
"""The operators, and those with the sides exchanged."""


def _path(expression: Expression, names: Mapping[int, str]) -> tuple[str, ...]:
    if expression.kind == "AttributeReference":
        name = names.get(expression.number)
        if name is not None:
            return (name,)
    elif expression.kind == "GetStructField":
        return (*_path(expression.children[0], names), expression.java.extractFieldName())
    raise _UnknownError(expression.kind)


def _literal(expression: Expression, column: Expression) -> Any:
    """Return the value of a literal that has the type of a column."""
    name = column.type_name
    if expression.kind != "Literal" or expression.type_name != name:
        raise _UnknownError(name)
    return _value(name, expression.java.value())


def _set_values(expression: Expression, column: Expression) -> list[Any]:
    name, values = column.type_name, expression.java.hset()
    count = values.size()
    if count <= _MOST_ONE_BY_ONE:
        return [_value(name, each) for each in items_of(values.toSeq())]
    # All at once, as text that is the values themselves.
    if name in _WHOLE:
        texts = values.mkString(",").split(",")
        return [None if text == "null" else _value(name, int(text)) for text in texts]
    if name == "string" and not expression.java.hasNull():
        texts = values.mkString("\0").split("\0")
        if len(texts) == count and not any("\ufffd" in text for text in texts):
            return list(texts)
    raise _UnknownError(name)


def _value(name: str, value: Any) -> Any:
    """Return a value of Catalyst in Python's type: what `translate_test` compares."""
    if value is None:
        return None
    read = _VALUES.get("decimal" if name.startswith("decimal(") else name)
    if read is None:
        raise _UnknownError(name)
    return read(value)


def _micros(value: int) -> datetime:
    return _EPOCH + timedelta(microseconds=value)


def _instant(value: int) -> datetime:
    return _micros(value).replace(tzinfo=UTC)


def _day(value: int) -> date:
    return date(1970, 1, 1) + timedelta(days=value)


def _float32(value: float) -> float:
    # Java writes the shortest text that is read as the same number in 32 bits.
    return float(np.float32(value))


def _decimal(value: Any) -> Decimal:
    return Decimal(value.toJavaBigDecimal())  # py4j makes it one of Python


def _text(value: Any) -> str:
    return bytes(value.getBytes()).decode()  # strictly: other bytes are no text here


_VALUES: Final[Mapping[str, Callable[[Any], Any]]] = {
    "boolean": bool,
    "tinyint": int,
    "smallint": int,
    "int": int,
    "bigint": int,
    "float": _float32,
    "double": float,
    "decimal": _decimal,
    "string": _text,
    "binary": bytes,
    "date": _day,
    "timestamp": _instant,
    "timestamp_ntz": _micros,
}
_WHOLE: Final = ("tinyint", "smallint", "int", "bigint", "date", "timestamp", "timestamp_ntz")
