"""One column against another, by exact value whatever their types."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accel import kernels as pc
from accel.arrays import bools, integers, validity
from accel.format.domain import Domain
from accel.predicate.atoms import Order
from accel.predicate.kinds import Kind

if TYPE_CHECKING:
    from accel.arrays import Bools

__all__ = ["compare_arrays", "holds"]

Signs = npt.NDArray[np.int8]

_KERNELS = {Order.EQ: pc.equal, Order.LT: pc.less, Order.LE: pc.less_equal}
_INT64 = np.iinfo(np.int64)


def compare_arrays(
    left: pa.Array, left_kind: Kind, *, right: pa.Array, right_kind: Kind, order: Order
) -> pa.BooleanArray:
    """`left order right`, row by row; both arrays native, null where either is."""
    if left_kind.domain is Domain.BYTES:
        if left.type != right.type:
            left, right = left.cast(pa.large_binary()), right.cast(pa.large_binary())
        return _KERNELS[order](left, right)
    valid = validity(left) & validity(right)
    a, b = integers(left), integers(right)
    # What stands under a null may be anything, a NaN or a misfit too.
    a, b = np.where(valid, a, 0).astype(a.dtype), np.where(valid, b, 0).astype(b.dtype)
    signs = _signs(a, left_kind, b, right_kind)
    return bools(holds(signs, order), valid)


def holds(signs: Signs, order: Order) -> Bools:
    """From -1, 0, 1 to the truth of an order."""
    if order is Order.EQ:
        return np.equal(signs, 0)
    return np.less(signs, 0) if order is Order.LT else np.less_equal(signs, 0)


def _signs(a: npt.NDArray[Any], left: Kind, b: npt.NDArray[Any], right: Kind) -> Signs:
    """-1, 0 or 1 where a is below, at or above b."""
    floats = (left.domain is Domain.FLOAT, right.domain is Domain.FLOAT)
    if floats == (True, True):
        nan_a, nan_b = np.isnan(a), np.isnan(b)
        return np.where(nan_a | nan_b, _cmp(nan_a, nan_b), _cmp(a, b))
    if floats == (False, True):
        return _integers_floats(a, left, b)
    if floats == (True, False):
        return -_integers_floats(b, right, a)
    up = left.numerator * right.denominator
    down = right.numerator * left.denominator
    shared = math.gcd(up, down)
    return _cmp(_times(a, up // shared), _times(b, down // shared))


def _times(values: npt.NDArray[Any], factor: int) -> npt.NDArray[Any]:
    """The product, exact: as Python ints where it may not fit."""
    if factor == 1 or not len(values):
        return values
    if values.dtype != object:
        largest = max(abs(int(values.min())), abs(int(values.max())))
        # Not the product alone: 0 times a factor that is no int64 fits, and the factor does not.
        if factor <= _INT64.max and largest * factor <= _INT64.max:
            return values.astype(np.int64) * factor
    return np.asarray(values.astype(object) * factor, object)


def _cmp(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> Signs:
    if a.dtype != b.dtype and "u" in (a.dtype.kind, b.dtype.kind) and object not in (a.dtype, b.dtype):
        # A signed and an unsigned 64-bit array have no common numpy integer.
        if a.dtype.itemsize == 8 and a.dtype.kind == "u":
            return -_cmp(b, a)
        if b.dtype == np.uint64:
            below = np.less(a, 0) if a.dtype.kind != "u" else np.zeros(len(a), bool)
            signs = _cmp(np.where(below, 0, a).astype(np.uint64), b)
            return np.where(below, np.int8(-1), signs)
    above, below = np.greater(a, b).astype(bool), np.less(a, b).astype(bool)
    difference: Signs = np.subtract(above, below, dtype=np.int8)
    return difference


def _integers_floats(a: npt.NDArray[Any], kind: Kind, b: npt.NDArray[Any]) -> Signs:
    """Exact: an int64 is not made a double, which would round it."""
    if a.dtype == object or kind.step != (1, 1):
        return _fractions_floats(a, kind, b)
    unsigned = a.dtype == np.uint64
    low, high = (0.0, 2.0**64) if unsigned else (-(2.0**63), 2.0**63)
    above, below = (b >= high) | np.isnan(b), b < low
    inside = ~(above | below)
    whole = np.floor(np.where(inside, b, 0.0))
    signs = _cmp(
        a.astype(np.uint64 if unsigned else np.int64), whole.astype(np.uint64 if unsigned else np.int64)
    )
    signs = np.where((signs == 0) & inside & (b > whole), np.int8(-1), signs)
    return np.where(above, np.int8(-1), np.where(below, np.int8(1), signs)).astype(np.int8)


def _fractions_floats(a: npt.NDArray[Any], kind: Kind, b: npt.NDArray[Any]) -> Signs:
    from fractions import Fraction

    out = np.empty(len(a), np.int8)
    for i, (integer, number) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
        if math.isfinite(number):
            exact, other = Fraction(integer * kind.numerator, kind.denominator), Fraction(number)
            out[i] = (exact > other) - (exact < other)
        else:
            out[i] = 1 if number < 0 else -1
    return out
