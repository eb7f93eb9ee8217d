"""The figures of one measure so far: folded from decoded values, or from what metadata says of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from accel import kernels as pc
from accel.arrays import bools, bytes_array, integers_array, relabel, whole
from accel.errors import SchemaMismatchError
from accel.format.domain import Domain
from accel.indexes.expressions import Expression, apply_expression
from accel.planning.measures import Function, Measure
from accel.predicate.kinds import kind_of, native

__all__ = ["Tally", "finish", "sum_type", "tally_array", "tally_constant"]


@dataclass(slots=True)
class Tally:
    """Native values: integers for dates, times and decimals (unscaled), bytes for text. -0.0 is 0.0."""

    count: int = 0
    """Values that are not null."""
    nan: bool = False
    """One of them is NaN; told where no other value is."""
    low: Any = None
    high: Any = None
    total: int | float = 0
    """Of a signed or unsigned integer type it may be off by multiples of 2**64, of a decimal by as much as
    its own width: `finish` takes it modulo that, as pyarrow does."""

    def add(self, other: Tally) -> None:
        """Take in the figures of other rows."""
        self.count += other.count
        self.nan |= other.nan
        self.total += other.total
        if other.low is not None and (self.low is None or other.low < self.low):
            self.low = other.low
        if other.high is not None and (self.high is None or other.high > self.high):
            self.high = other.high


def sum_type(kind: pa.DataType) -> pa.DataType:
    """The type of a sum, as `pyarrow.compute.sum` has it."""
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
    # An expression is null where the column is: counting takes none.
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
    if not rows or not value.is_valid:
        return Tally()
    found = tally_array(measure, pa.repeat(value, 1))
    found.count, found.total = rows, found.total * rows
    return found


def finish(measure: Measure, function: Function, tally: Tally) -> pa.Array:
    """An aggregate's value, as an array of one."""
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
    return pa.nulls(1, measure.type) if value is None else _array_of(value, measure.type)


def _wrap(value: int, bits: int, *, signed: bool) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def _array_of(value: Any, to: pa.DataType) -> pa.Array:
    kind = kind_of(to)
    if kind.domain is Domain.BOOLEAN:
        return bools(np.array([value], bool))
    if kind.domain is Domain.FLOAT:
        return integers_array(np.array([value], np.float64), pa.float64()).cast(to, safe=False)
    if kind.domain is Domain.BYTES:
        if pa.types.is_fixed_size_binary(to):
            return pa.Array.from_buffers(to, 1, [None, pa.py_buffer(value)])
        # Not by a cast from binary to text, which refuses what is no UTF-8: a scan gives it as it is.
        if pa.types.is_binary_view(to) or pa.types.is_string_view(to):
            return relabel(bytes_array([value], pa.large_binary()).cast(pa.binary_view()), to)
        return bytes_array([value], to)
    return relabel(integers_array([value], kind.native), to)
