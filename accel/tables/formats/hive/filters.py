"""What a metastore can be asked about partitions: the part of a predicate that its filters can say.

A filter may name too many partitions, and never too few: its answer is judged again by what asked. What it
cannot say, or says with another meaning on some database below a metastore, is left out:

- Texts are compared by the order and the equality of that database, so only `=` of them is said, which finds
  too much at worst.
- A text holds one kind of quotes at most: a quote that is doubled or escaped finds nothing, without an error.
- Where a metastore cannot compare numbers in its database it compares their texts, and finds `07` not to be
  7, but refuses ranges. So a number that is to be equal is said as a range.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from accel.predicate.expr import And, Column, Compare, Expr, InArray, InList, Literal, Op, Or

__all__ = ["filter_text"]

_MOST_VALUES: Final = 50
_MOST_TEXT: Final = 8_000
_TEXT: Final = re.compile(r"[ !#-&(-\[\]-~]+")
"""Printable ASCII without quotes and backslashes."""
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_RANGES: Final = {Op.LT: "<", Op.LE: "<=", Op.GT: ">", Op.GE: ">="}


def filter_text(where: Expr, keys: Mapping[str, str], schema: pa.Schema) -> str | None:
    """Return a filter that no partition with matching rows fails; None where there is none.

    Parameters
    ----------
    where : Expr
    keys : mapping
        By the metastore's name of a partition column, its name in the schema.
    schema : pyarrow.Schema

    Examples
    --------
    >>> schema = pa.schema([("k", pa.int32()), ("p", pa.string())])
    >>> filter_text(parse("k = 7 AND p <> 'x'"), {"k": "k", "p": "p"}, schema)
    '(k >= 7 and k <= 7)'
    """
    names = {name: key for key, name in keys.items() if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key)}
    text = _said(where, names, schema)
    return text if text is None or len(text) <= _MOST_TEXT else None


def _said(where: Expr, names: Mapping[str, str], schema: pa.Schema) -> str | None:
    match where:
        case And():
            # Operands that cannot be said are left out.
            said = [text for one in where.operands if (text := _said(one, names, schema)) is not None]
            return f"({' and '.join(said)})" if len(said) > 1 else said[0] if said else None
        case Or():
            every = [_said(one, names, schema) for one in where.operands]
            if None in every or len(every) > _MOST_VALUES:
                return None
            return f"({' or '.join(text for text in every if text is not None)})"
        case Compare(left=Column() as column, right=Literal() as literal):
            return _compared(column, where.op, literal.value, names, schema)
        case Compare(left=Literal() as literal, right=Column() as column):
            return _compared(column, where.op.mirrored, literal.value, names, schema)
        case InList(column=column) | InArray(column=column):
            return _listed(column, where, names, schema)
        case _:
            return None


def _listed(
    column: Column, where: InList | InArray, names: Mapping[str, str], schema: pa.Schema
) -> str | None:
    if len(where.values) > _MOST_VALUES:
        return None
    values = where.values if isinstance(where, InList) else where.values.to_pylist()
    # A null in the list matches nothing.
    every = [
        _compared(column, Op.EQ, value, names, schema) for value in dict.fromkeys(values) if value is not None
    ]
    if None in every or not every:
        return None
    return f"({' or '.join(text for text in every if text is not None)})"


def _compared(
    column: Column, op: Op, value: object, names: Mapping[str, str], schema: pa.Schema
) -> str | None:
    name = column.top_level
    key = None if name is None else names.get(name)
    if name is None or key is None:
        return None
    kind = schema.field(name).type
    if pa.types.is_string(kind):
        return f"{key} = {quoted}" if op is Op.EQ and (quoted := _quoted(value)) is not None else None
    if pa.types.is_integer(kind) and isinstance(value, int) and not isinstance(value, bool):
        if not -(1 << 62) < value < 1 << 62:
            return None
        literal = str(value)
    elif pa.types.is_date(kind) and (day := _day(value)) is not None:
        literal = f"'{day}'"
    else:
        return None
    if op is Op.EQ:
        return f"({key} >= {literal} and {key} <= {literal})"
    if op is Op.NE:
        return f"({key} < {literal} or {key} > {literal})"
    return f"{key} {_RANGES[op]} {literal}" if op in _RANGES else None


def _quoted(value: object) -> str | None:
    if not isinstance(value, str) or value != value.strip():
        return None
    if _TEXT.fullmatch(value.replace("'", "")):
        return f'"{value}"'
    return f"'{value}'" if _TEXT.fullmatch(value.replace('"', "")) else None


def _day(value: object) -> str | None:
    if isinstance(value, str) and _DAY.fullmatch(value):
        try:
            value = datetime.date.fromisoformat(value)
        except ValueError:
            return None
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return value.isoformat()
    return None
