"""What a zone map may be of besides a column's own values: text without case, and parts of moments."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel.arrays import bytes_array, from_numpy, integers, mask, pack_bits, validity
from accel.errors import SchemaMismatchError
from accel.indexes.folding import fold, fold_settled
from accel.indexes.native import Tag, code_values, tag_of, uniform
from accel.predicate.kinds import Family, kind_of

if TYPE_CHECKING:
    from accel.arrays import Int64s

__all__ = ["Expression", "apply_expression", "apply_to_value", "numbers_of", "output_type"]


_SECOND = 1_000_000_000


class Expression(enum.StrEnum):
    """A function of one column's values; the text is what files hold."""

    VALUE = "value"
    LOWER = "lower"
    """Text folded as `str.casefold` does."""
    YEAR = "year"
    MONTH = "month"
    DAY = "day"
    HOUR = "hour"
    """Parts of dates and timestamps, in UTC."""

    @property
    def monotone(self) -> bool:
        """Whether a greater value never gives less."""
        return self in (Expression.VALUE, Expression.YEAR)


def output_type(expression: Expression, kind: pa.DataType) -> pa.DataType:
    """The type of an expression over a column.

    Raises
    ------
    SchemaMismatchError
        It has no meaning there.
    """
    if expression is Expression.VALUE:
        return kind
    family = kind_of(kind).family
    if expression is Expression.LOWER:
        if family is Family.TEXT:
            return pa.large_string()
    elif family in (Family.DATE, Family.TIMESTAMP):
        return pa.int64()
    raise SchemaMismatchError(f"{expression}() has no meaning for {kind}")


def apply_expression(expression: Expression, array: pa.Array) -> pa.Array:
    """The expression's values, a uniform array; null where the column is.

    Raises
    ------
    SchemaMismatchError
        It has no meaning for the type.
    UnicodeDecodeError
        `lower` of what is no UTF-8.
    """
    output_type(expression, array.type)
    if expression is Expression.VALUE:
        return uniform(array)
    if expression is Expression.LOWER:
        coded = code_values(array)
        folded = bytes_array([fold(text) for text in coded.values.to_pylist()], pa.large_binary())
        valid = coded.codes >= 0
        indices = pa.Array.from_buffers(
            pa.int64(),
            len(valid),
            [pack_bits(valid), pa.py_buffer(np.maximum(coded.codes, 0))],
        )
        if not len(folded):
            return pa.nulls(len(valid), pa.large_binary())
        return folded.take(indices)
    ticks = uniform(array)
    parts = _part(expression, integers(ticks), kind_of(array.type).numerator)
    plain = from_numpy(parts)
    if not ticks.null_count:
        return plain
    bits = pack_bits(validity(ticks))
    return pa.Array.from_buffers(pa.int64(), len(plain), [bits, plain.buffers()[1]])


def apply_to_value(expression: Expression, value: Any, *, kind: pa.DataType) -> Any:
    """The same for one native value of a column of that type; None where it has none, or another Python may have another."""
    if expression is Expression.VALUE:
        return value
    if expression is Expression.LOWER:
        return fold_settled(value)
    return int(_part(expression, np.array([value], np.int64), kind_of(kind).numerator)[0])


def _part(expression: Expression, ticks: Int64s, nanos: int) -> Int64s:
    """A calendar part of ticks of that many nanoseconds since 1970."""
    seconds = ticks // (_SECOND // nanos) if nanos <= _SECOND else ticks * (nanos // _SECOND)
    if expression is Expression.HOUR:
        return seconds // 3600 % 24
    days = (seconds // 86_400).astype("datetime64[D]")
    months = days.astype("datetime64[M]")
    count = months.astype(np.int64)
    if expression is Expression.YEAR:
        return 1970 + count // 12
    if expression is Expression.MONTH:
        return count % 12 + 1
    first: Int64s = (days - months.astype("datetime64[D]")).astype(np.int64) + 1
    return first


def numbers_of(values: pa.Array) -> npt.NDArray[Any] | None:
    """A uniform array as numpy numbers, what stands under nulls arbitrary; None for bytes."""
    tag = tag_of(values.type)
    if tag is Tag.BYTES:
        return None
    return mask(values) if tag is Tag.BOOLEAN else integers(values)
