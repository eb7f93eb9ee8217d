"""Bounds that no file tells: of columns that hold one value (partition columns, columns that a file lacks), and of ranges
that somebody outside the file knows."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel.arrays import integers, mask
from accel.format.domain import Bounds, Domain
from accel.predicate.kinds import kind_of, native

__all__ = ["constant_bounds", "range_bounds"]


def constant_bounds(scalar: pa.Scalar, num_values: npt.NDArray[np.int64]) -> Bounds:
    """Exact bounds of units that hold nothing but one value.

    Parameters
    ----------
    scalar : pyarrow.Scalar
        The value; a null makes columns that are all null. Its type is the column's.
    num_values : array of int64
        Rows of each unit.
    """
    kind = kind_of(scalar.type)
    n = len(num_values)
    none = np.zeros(n, np.int64)
    if not scalar.is_valid:
        void = np.zeros(n, _DTYPES[kind.domain])
        absent = np.zeros(n, bool)
        return Bounds(kind.domain, void, void, absent, absent, num_values, num_values, none)
    while isinstance(scalar, pa.DictionaryScalar | pa.ExtensionScalar | pa.RunEndEncodedScalar):
        scalar = scalar.value
    plain = native(pa.repeat(scalar, 1))
    has = np.full(n, kind.domain is not Domain.NONE)
    nans = none
    lower = upper = np.zeros(n, _DTYPES[kind.domain])
    if kind.domain is Domain.BYTES:
        lower = np.empty(n, object)
        lower[:] = [plain[0].as_py()] * n
        upper = lower
    elif kind.domain is Domain.BOOLEAN:
        lower = upper = np.full(n, bool(mask(plain)[0]))
    elif kind.domain is not Domain.NONE:
        value = integers(plain)[0]
        if kind.domain is Domain.INTEGER:
            wide = np.uint64 if isinstance(value, np.unsignedinteger) else np.int64
            lower = upper = np.full(n, value, object if isinstance(value, int) else wide)
        elif math.isnan(value):
            has, nans = np.zeros(n, bool), num_values
        else:
            zero = value == 0
            lower = np.full(n, -0.0 if zero else value, np.float64)
            upper = np.full(n, 0.0 if zero else value, np.float64)
    return Bounds(kind.domain, lower, upper, has, has, num_values, none, nans)


_DTYPES = {
    Domain.INTEGER: np.int64,
    Domain.FLOAT: np.float64,
    Domain.BYTES: object,
    Domain.BOOLEAN: bool,
    Domain.NONE: np.int64,
}


def range_bounds(
    lower: pa.Scalar | None,
    upper: pa.Scalar | None,
    *,
    kind: pa.DataType,
    num_values: int,
    null_count: int | None,
    nan_count: int | None,
) -> Bounds:
    """Bounds of one unit whose values lie between two scalars, as somebody outside the file tells.

    Parameters
    ----------
    lower, upper : pyarrow.Scalar or None
        Inclusive; None, null, NaN, and what does not fit the column's type bound nothing.
    kind : pyarrow.DataType
        Of the column.
    num_values : int
        Values of the unit, nulls included; -1 where unknown.
    null_count, nan_count : int or None
        None where unknown.
    """
    counts = np.array([num_values], np.int64)
    domain = kind_of(kind).domain
    low, high = _one_bound(lower, kind, counts), _one_bound(upper, kind, counts)
    if domain is Domain.NONE or domain is not Domain.FLOAT:
        nans = np.zeros(1, np.int64)
    else:
        nans = np.array([-1 if nan_count is None else nan_count], np.int64)
    void = np.zeros(1, _DTYPES[domain])
    return Bounds(
        domain,
        void if low is None else low.lower,
        void if high is None else high.upper,
        np.array([low is not None]),
        np.array([high is not None]),
        counts,
        np.array([-1 if null_count is None else null_count], np.int64),
        nans,
    )


def _one_bound(scalar: pa.Scalar | None, kind: pa.DataType, counts: npt.NDArray[np.int64]) -> Bounds | None:
    if scalar is None or not scalar.is_valid:
        return None
    try:
        exact = scalar if scalar.type.equals(kind) else scalar.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    found = constant_bounds(exact, counts)
    return found if bool(found.has_lower[0]) else None
