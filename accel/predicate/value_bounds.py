"""Bounds made of Arrow values: constants, ranges, and columns with a value for each unit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel.arrays import integers, mask, repeat_scalar, validity
from accel.format.domain import Bounds, Domain
from accel.predicate.kinds import kind_of, native

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s

__all__ = ["array_bounds", "constant_bounds", "constants_bounds", "range_bounds"]

_DTYPES = {
    Domain.INTEGER: np.int64,
    Domain.FLOAT: np.float64,
    Domain.BYTES: object,
    Domain.BOOLEAN: bool,
    Domain.NONE: np.int64,
}


def constant_bounds(value: pa.Scalar, num_values: Int64s) -> Bounds:
    """Return the exact bounds of units that hold a single value, as partition columns and missing columns do:
    see `constants_bounds`.

    Parameters
    ----------
    value : pyarrow.Scalar
        The value, of the column's type; null for a column of nulls.
    num_values : array of int64
        Rows of each unit.
    """
    if isinstance(value, pa.RunEndEncodedScalar):
        value = value.value
    return constants_bounds(repeat_scalar(value, len(num_values)), kind=value.type, num_values=num_values)


def constants_bounds(values: pa.Array, *, kind: pa.DataType, num_values: Int64s) -> Bounds:
    """Return the exact bounds of units each of which holds a value of its own, and no other.

    Parameters
    ----------
    values : pyarrow.Array
        The value of each unit, null where all are null. They cast to the column's type.
    kind : pyarrow.DataType
        The column's type.
    num_values : array of int64
        Rows of each unit.
    """
    values = values if values.type.equals(kind) else values.cast(kind)
    plain = _decoded(values)
    valid, nans = validity(plain), np.zeros(len(values), np.int64)
    if kind_of(kind).domain is Domain.FLOAT:
        nans = np.where(valid & np.isnan(integers(native(plain))), num_values, 0)
    ends = values if bool(valid.any()) else None
    return array_bounds(
        ends,
        ends,
        kind=kind,
        num_values=num_values,
        null_count=np.where(valid, 0, num_values),
        nan_count=nans,
    )


def range_bounds(
    lower: pa.Scalar | None,
    upper: pa.Scalar | None,
    *,
    kind: pa.DataType,
    num_values: int,
    null_count: int | None,
    nan_count: int | None,
) -> Bounds:
    """Return the bounds of one unit whose values lie between two scalars: see `array_bounds`.

    Parameters
    ----------
    lower, upper : pyarrow.Scalar or None
        Inclusive bounds.
    kind : pyarrow.DataType
        The column's type.
    num_values : int
        Values of the unit, nulls included; -1 where unknown.
    null_count, nan_count : int or None
        None where unknown.
    """
    return array_bounds(
        None if lower is None else pa.repeat(lower, 1),
        None if upper is None else pa.repeat(upper, 1),
        kind=kind,
        num_values=np.array([num_values], np.int64),
        null_count=np.array([-1 if null_count is None else null_count], np.int64),
        nan_count=np.array([-1 if nan_count is None else nan_count], np.int64),
    )


def array_bounds(
    lower: pa.Array | None,
    upper: pa.Array | None,
    *,
    kind: pa.DataType,
    num_values: Int64s,
    null_count: Int64s,
    nan_count: Int64s,
) -> Bounds:
    """Return the bounds of units whose values lie between those of two arrays, as a catalog or a table gives
    them.

    Parameters
    ----------
    lower, upper : pyarrow.Array or None
        Inclusive bounds, one for each unit. None, null and NaN are no bound; nor are those of an array that
        does not cast to the column's type without loss.
    kind : pyarrow.DataType
        The column's type.
    num_values : array of int64
        Values of each unit, nulls included; -1 where unknown.
    null_count, nan_count : array of int64
        -1 where unknown.
    """
    domain, n = kind_of(kind).domain, len(num_values)
    low, has_low = _ends(lower, kind, n, zero=-0.0)
    high, has_high = _ends(upper, kind, n, zero=0.0)
    nans = nan_count if domain is Domain.FLOAT else np.zeros(n, np.int64)
    return Bounds(domain, low, high, has_low, has_high, num_values, null_count, nans)


def _ends(
    array: pa.Array | None, kind: pa.DataType, n: int, *, zero: float
) -> tuple[npt.NDArray[Any], Bools]:
    """Return the bounds of one side, and where there is one; a zero of either sign is taken for `zero`."""
    domain = kind_of(kind).domain
    none = np.zeros(n, _DTYPES[domain]), np.zeros(n, bool)
    if array is None or domain is Domain.NONE or pa.types.is_run_end_encoded(kind):
        return none
    if not array.type.equals(kind):
        try:
            array = array.cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return none
    array = _decoded(array)
    has, plain = validity(array), native(array)
    if domain is Domain.BYTES:
        values = np.empty(n, object)
        values[:] = [value or b"" for value in plain.to_pylist()]
        return values, has
    if domain is Domain.BOOLEAN:
        return mask(plain), has
    numbers = integers(plain)
    if domain is Domain.FLOAT:
        has = has & ~np.isnan(numbers)
        return np.where(numbers == 0, zero, numbers), has
    if numbers.dtype.kind == "u":
        return numbers.astype(np.uint64), has
    return numbers if numbers.dtype.kind == "O" else numbers.astype(np.int64), has


def _decoded(array: pa.Array) -> pa.Array:
    """Return the values below dictionaries and extension types."""
    while True:
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        elif isinstance(array, pa.DictionaryArray):
            array = array.dictionary.take(array.indices)
        else:
            return array
