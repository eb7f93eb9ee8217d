"""The conditions of a query over Arrow arrays in memory, for systems that leave filtering to their user."""

from __future__ import annotations

import decimal
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bench.queries import Query

__all__ = ["Mask", "compile_mask", "scalar"]

Mask = Callable[[Mapping[str, Any]], Any]
"""From the columns by name to the mask of matching rows; null where it is unknown."""

_COMPARE = {"=": pc.equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}


def scalar(value: Any, kind: pa.DataType) -> pa.Scalar:
    """A literal of the column's type; 0.05 against a decimal column is the decimal 0.05."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_decimal(kind):
        value = decimal.Decimal(repr(value))
    return pa.scalar(value, kind)


def compile_mask(query: Query, schema: pa.Schema) -> Mask | None:
    """The conjunction, its literals bound to the schema's types once; None where there are no conditions."""
    parts = [_part(column, op, value, schema.field(column).type) for column, op, value in query.where]
    if not parts:
        return None
    return lambda columns: reduce(pc.and_kleene, (part(columns) for part in parts))


def _part(column: str, op: str, value: Any, kind: pa.DataType) -> Mask:
    if op == "in":
        options = pc.SetLookupOptions(pa.array([scalar(each, kind).as_py() for each in value], kind))
        return lambda columns: pc.is_in(columns[column], options=options)
    if op == "prefix":
        return lambda columns: pc.starts_with(columns[column], value)
    compare, bound = _COMPARE[op], scalar(value, kind)
    return lambda columns: compare(columns[column], bound)
