"""Expressions of Polars, read from their serialized tree, as far as they say what a predicate can.

Polars compares as accel does: null is not true, NaN equals itself and is above every number, -0.0 is 0.0. The
caller filters again by the whole expression, so what is not understood is left out where that only keeps more
rows.
"""

from __future__ import annotations

import datetime
import decimal
import json
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from accel.errors import AccelError
from accel.predicate.bind import bind, resolve
from accel.predicate.expr import (
    MAX_DEPTH,
    And,
    Column,
    Compare,
    Constant,
    Expr,
    InArray,
    IsNull,
    Like,
    Literal,
    Not,
    Op,
    Or,
    Ticks,
    Value,
    column_of,
    join,
)

if TYPE_CHECKING:
    import polars

__all__ = ["from_polars"]

_EPOCH: Final = datetime.date(1970, 1, 1)
_TICKS: Final = {"Nanoseconds": 1, "Microseconds": 1_000, "Milliseconds": 1_000_000}
_OPS: Final = {
    "Eq": Op.EQ,
    "NotEq": Op.NE,
    "Lt": Op.LT,
    "LtEq": Op.LE,
    "Gt": Op.GT,
    "GtEq": Op.GE,
    "EqValidity": Op.NOT_DISTINCT,
    "NotEqValidity": Op.DISTINCT,
}
_BETWEEN: Final = {
    "Both": (Op.GE, Op.LE),
    "Left": (Op.GE, Op.LT),
    "Right": (Op.GT, Op.LE),
    "None": (Op.GT, Op.LT),
}


class _UnknownError(Exception):
    """A part of the tree says something that no predicate says."""


def from_polars(expression: polars.Expr, schema: pa.Schema) -> Expr | None:
    """Return a predicate that keeps every row that an expression keeps; None where nothing of it is
    understood.

    Parameters
    ----------
    expression : polars.Expr
        A boolean expression over the columns.
    schema : pyarrow.Schema
        The columns that it is put to.
    """
    try:
        tree = json.loads(expression.meta.serialize(format="json"))
    except (ValueError, RecursionError):
        return None
    except Exception as error:
        # Polars does not serialize what calls back into Python.
        if type(error).__module__.partition(".")[0] != "polars":
            raise
        return None
    return _Reading(schema).wanted(tree)


class _Reading:
    """One expression, read for columns of a schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    def wanted(self, tree: Any) -> Expr | None:
        """Return what is understood of the operands of the outermost ANDs."""
        found: list[Expr] = []
        stack = [tree]
        while stack:
            match stack.pop():
                case {"BinaryExpr": {"left": left, "op": "And" | "LogicalAnd", "right": right}}:
                    stack += [right, left]
                case other:
                    try:
                        expr = self.node(other)
                        bind(expr, self.schema)
                    except (_UnknownError, AccelError, RecursionError):
                        continue
                    found.append(expr)
        return join(And, found) if found else None

    def node(self, tree: Any, depth: int = 0) -> Expr:
        """Return the predicate that a tree says. Raises _UnknownError where there is none."""
        if depth > MAX_DEPTH:
            raise _UnknownError
        match tree:
            case {
                "BinaryExpr": {
                    "left": left,
                    "op": "And" | "LogicalAnd" | "Or" | "LogicalOr" as op,
                    "right": right,
                }
            }:
                kind = And if op.endswith("And") else Or
                return join(kind, [self.node(left, depth + 1), self.node(right, depth + 1)])
            case {"BinaryExpr": {"left": left, "op": op, "right": right}} if op in _OPS:
                return self.compared(_OPS[op], left, right)
            case {"Function": {"input": inputs, "function": {"Boolean": function}}}:
                return self.boolean(function, inputs, depth)
            case {"Function": {"input": [inner, pattern], "function": {"StringExpr": function}}}:
                return self.text(function, inner, pattern)
            case {"Column": _}:
                return self.column(tree)
            case {"Literal": _}:
                value = _literal(tree)
                if value is None or isinstance(value, bool):
                    return Constant(value)
        raise _UnknownError

    def boolean(self, function: Any, inputs: list[Any], depth: int) -> Expr:
        match function, inputs:
            case "Not", [inner]:
                return Not(self.node(inner, depth + 1))
            case "IsNull", [inner]:
                return IsNull(self.column(inner))
            case "IsNotNull", [inner]:
                return Not(IsNull(self.column(inner)))
            case "IsNan", [inner]:
                return Compare(Op.EQ, self.column(inner), Literal(math.nan))
            case "IsNotNan", [inner]:
                return Compare(Op.NE, self.column(inner), Literal(math.nan))
            case {"IsIn": {"nulls_equal": False}}, [inner, values]:
                return InArray(self.column(inner), _values(values))
            case {"IsBetween": {"closed": closed}}, [inner, low, high] if closed in _BETWEEN:
                above, below = _BETWEEN[closed]
                return And((self.compared(above, inner, low), self.compared(below, inner, high)))
        raise _UnknownError

    def text(self, function: Any, inner: Any, pattern: Any) -> Expr:
        match function:
            case "StartsWith":
                before, behind = "", "%"
            case "EndsWith":
                before, behind = "%", ""
            case {"Contains": {"literal": True}}:
                before, behind = "%", "%"
            case _:
                raise _UnknownError
        text = _literal(pattern)
        if not isinstance(text, str):
            raise _UnknownError
        plain = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        return Like(self.column(inner), f"{before}{plain}{behind}")

    def compared(self, op: Op, left: Any, right: Any) -> Expr:
        if "Literal" in left:
            return self.compared(op.mirrored, right, left)
        column = self.column(left)
        equality = op in (Op.EQ, Op.NE, Op.DISTINCT, Op.NOT_DISTINCT)
        if not equality and pa.types.is_dictionary(resolve(column, self.schema).type):
            # Categories have an order of their own.
            raise _UnknownError
        if "Literal" in right:
            return Compare(op, column, Literal(_literal(right)))
        return Compare(op, column, self.column(right))

    def column(self, tree: Any) -> Column:
        path: list[str] = []
        while True:
            match tree:
                case {"Column": str() as name}:
                    return column_of((name, *reversed(path)))
                case {
                    "Function": {"input": [inner], "function": {"StructExpr": {"FieldByName": str() as name}}}
                }:
                    path.append(name)
                    tree = inner
                case _:
                    raise _UnknownError


def _literal(tree: Any) -> Value:
    match tree:
        case {"Literal": {"Dyn": {"Int": int() as number}}}:
            return number
        case {"Literal": {"Dyn": {"Float": int() | float() as number}}}:
            return float(number)
        case {"Literal": {"Dyn": {"Str": str() as text}}}:
            return text
        case {"Literal": {"Scalar": {**scalar}}} if len(scalar) == 1:
            ((kind, value),) = scalar.items()
            read = _SCALARS.get(str(kind))
            if read is not None:
                found: Value = read(value)
                return found
    raise _UnknownError


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise _UnknownError
    return value


def _date(value: Any) -> Value:
    try:
        return _EPOCH + datetime.timedelta(days=_integer(value))
    except OverflowError:
        raise _UnknownError from None


def _instant(value: Any) -> Value:
    match value:
        case [int() as ticks, unit, zone] if unit in _TICKS:
            return Ticks("timestamp", ticks * _TICKS[unit], zone is not None)
    raise _UnknownError


def _decimal(value: Any) -> Value:
    match value:
        case [int() as unscaled, _, int() as scale]:
            sign, digits = int(unscaled < 0), tuple(map(int, str(abs(unscaled))))
            return decimal.Decimal((sign, digits, -scale))
    raise _UnknownError


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise _UnknownError
    return float(value)


def _typed(kind: type) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise _UnknownError
        return value

    return read


_SCALARS: Final[Mapping[str, Callable[[Any], Any]]] = {
    **dict.fromkeys(("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64"), _integer),
    "Float32": lambda value: float(np.float32(_number(value))),
    "Float64": _number,
    "String": _typed(str),
    "StringOwned": _typed(str),
    "Boolean": _typed(bool),
    "Null": lambda _: None,
    "Date": _date,
    "Datetime": _instant,
    "DatetimeOwned": _instant,
    "Time": lambda value: Ticks("time", _integer(value)),
    "Decimal": _decimal,
}


def _values(tree: Any) -> pa.Array:
    """Return the values of a list, which is serialized as an Arrow stream of one column; without nulls, which
    equal nothing."""
    match tree:
        case {"Literal": {"Scalar": {"List": data}}} | {"Literal": {"Series": data}}:
            try:
                table = pa.ipc.open_stream(pa.py_buffer(bytes(data))).read_all()
                table.validate(full=True)
                values = table.column(0)
            except (pa.ArrowException, ValueError, TypeError, IndexError, OSError):
                raise _UnknownError from None
        case _:
            raise _UnknownError
    kind = values.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        values = values.combine_chunks().flatten()
        kind = values.type
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        values = values.cast(pa.large_string() if pa.types.is_string_view(kind) else pa.large_binary())
    if pa.types.is_floating(kind) or pa.types.is_dictionary(kind):
        raise _UnknownError
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return array.drop_null()
